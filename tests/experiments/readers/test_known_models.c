/* test_known_models.c - Parameters of known models add up; shape lists and their errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experiments/readers/shape_list.h"

static int64_t total(const struct qm_model_tensor *t, int n)
{
    int64_t sum = 0;
    for (int i = 0; i < n; i++)
        sum += qm_shape_numel(&t[i].shape);
    return sum;
}

static void test_totals(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int tensors;
        int64_t params;
    } published[] = {
        {"gpt2", 148, 124439808}, {"llama7b", 291, 6738415616}, {"vit_h", 392, 632045800}};
    assert_int_equal(qm_model_count(), 3);
    for (int i = 0; i < 3; i++) {
        struct qm_model_tensor *t;
        int n;
        assert_string_equal(qm_model_at(i)->name, published[i].name);
        assert_int_equal(qm_model_at(i)->params, published[i].params);
        assert_int_equal(qm_model_tensors(i, &t, &n), QM_OK);
        assert_int_equal(n, published[i].tensors);
        assert_int_equal(total(t, n), published[i].params);
        free(t);
    }
}

static void test_layers_follow_each_other(void **state)
{
    (void)state;
    struct qm_model_tensor *t;
    int n;
    assert_int_equal(qm_model_tensors(0, &t, &n), QM_OK);
    assert_string_equal(t[2].name, "h.0.ln_1.weight");
    assert_string_equal(t[13].name, "h.0.mlp.c_proj.bias");
    assert_string_equal(t[14].name, "h.1.ln_1.weight");
    assert_string_equal(t[n - 1].name, "ln_f.bias");
    free(t);
}

static char path[64], remark[QM_FILE_REMARK];

static qm_status load(const char *text, const char *filter, struct qm_model_tensor **t, int *n)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    return qm_shapes_load(path, filter, t, n, remark);
}

static void test_text(void **state)
{
    (void)state;
    struct qm_model_tensor *t;
    int n;
    assert_int_equal(
        load("# a model\n\n  a.weight 768x2304 # first\r\nb\t300\nc scalar\nd 0x3\n", NULL, &t, &n),
        QM_OK);
    assert_int_equal(n, 3); /* d has no elements */
    assert_string_equal(t[0].name, "a.weight");
    assert_int_equal(total(t, n), 768 * 2304 + 300 + 1);
    free(t);
    assert_int_equal(load("a.weight 2x2\nb.bias 2\n", "bias$", &t, &n), QM_OK);
    assert_int_equal(n, 1);
    free(t);
}

static void refused(const char *text, qm_status want, const char *place)
{
    struct qm_model_tensor *t = NULL;
    int n = -1;
    assert_int_equal(load(text, NULL, &t, &n), want);
    assert_non_null(strstr(qm_message(), path));
    assert_non_null(strstr(qm_message(), place));
    assert_null(t);
    assert_int_equal(n, -1);
}

static void test_text_errors(void **state)
{
    (void)state;
    refused("a 2x2\nb\n", QM_BAD_FILE, ":2: ");
    refused("a 2x2\n# c\nb 2 x 3\n", QM_BAD_FILE, ":3: ");
    refused("a 2xtwo\n", QM_BAD_FILE, ":1: ");
    refused("a 2x-2\n", QM_BAD_FILE, ":1: ");
    refused("a 4000000000x4000000000x4000000000\n", QM_BAD_FILE, ":1: ");
    refused("", QM_NO_MATCH, "no tensor");
    refused("# nothing\n", QM_NO_MATCH, "no tensor");
}

static void test_names(void **state)
{
    (void)state;
    struct qm_model_tensor *t;
    int n;
    assert_int_equal(qm_shapes_load("gpt", NULL, &t, &n, remark), QM_NO_MATCH);
    assert_non_null(strstr(qm_message(), "'gpt2'"));
    assert_int_equal(qm_shapes_load("/no/such/file.txt", NULL, &t, &n, remark), QM_BAD_FILE);
    assert_int_equal(qm_shapes_load("/tmp", NULL, &t, &n, remark), QM_BAD_FILE);
    assert_int_equal(qm_shapes_load("gpt2", "^nothing$", &t, &n, remark), QM_NO_MATCH);
    assert_int_equal(qm_shapes_load("gpt2", "c_attn.weight$", &t, &n, remark), QM_OK);
    assert_int_equal(n, 12);
    free(t);
}

static int open_file(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/qualm_shapes_XXXXXX");
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_totals), cmocka_unit_test(test_layers_follow_each_other),
        cmocka_unit_test(test_text),   cmocka_unit_test(test_text_errors),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, open_file, remove_file);
}
