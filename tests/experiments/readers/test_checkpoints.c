/* test_checkpoints.c - Tests of the reader of PyTorch's checkpoints over the samples in
 * checkpoints/, which make_checkpoints.py wrote with the values that torch, torchao and
 * bitsandbytes decode. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/foreign/reader_process.h"
#include "experiments/state/state_file.h"
#include "tests/support/drawn.h"
#include "tests/support/readers.h"

#define SAMPLES "tests/experiments/readers/checkpoints/"

static int entry_called(struct qm_file *f, const char *name)
{
    for (int i = 0; i < qm_file_count(f); i++)
        if (strcmp(qm_file_entry(f, i)->name, name) == 0)
            return i;
    return -1;
}

/* Compares entry i with entry k of the expected values: shape, and every bit but those of NaN. */
static void expect_equal(struct qm_file *f, int i, struct qm_file *want, int k)
{
    const struct qm_entry *a = qm_file_entry(f, i), *b = qm_file_entry(want, k);
    double *x = calloc((size_t)a->numel + 1, sizeof *x),
           *y = calloc((size_t)a->numel + 1, sizeof *y);
    if (a->shape.rank != b->shape.rank || a->numel != b->numel ||
        memcmp(a->shape.dim, b->shape.dim, (size_t)a->shape.rank * sizeof *a->shape.dim) != 0)
        fail_msg("%s has another shape", b->name);
    assert_int_equal(qm_file_read_double(f, i, 0, a->numel, x), QM_OK);
    assert_int_equal(qm_file_read_double(want, k, 0, a->numel, y), QM_OK);
    for (int64_t e = 0; e < a->numel; e++)
        if (memcmp(&x[e], &y[e], sizeof *x) != 0 && (x[e] == x[e] || y[e] == y[e]))
            fail_msg("%s[%lld] is %a, expected %a", b->name, (long long)e, x[e], y[e]);
    free(x);
    free(y);
}

/* Every array that the samples hold, and no more of them. */
static void test_values(void **state)
{
    (void)state;
    struct qm_file *want = open_good(SAMPLES "expected.npz"), *f = NULL;
    char open[256] = "";
    int n_files = 0, found = 0, n_arrays = 0;
    for (int k = 0; k < qm_file_count(want); k++) {
        const char *name = qm_file_entry(want, k)->name, *bar = strchr(name, '|');
        assert_non_null(bar);
        if (strncmp(open, name, (size_t)(bar - name)) != 0 || open[bar - name]) {
            if (f)
                assert_int_equal(found, qm_file_count(f));
            qm_file_close(f);
            snprintf(open, sizeof open, "%.*s", (int)(bar - name), name);
            char path[512];
            snprintf(path, sizeof path, SAMPLES "%s", open);
            f = open_good(path);
            found = 0;
            n_files++;
        }
        int i = entry_called(f, bar + 1);
        if (i < 0)
            fail_msg("%s is absent", name);
        expect_equal(f, i, want, k);
        found++;
        n_arrays++;
    }
    assert_int_equal(found, qm_file_count(f));
    qm_file_close(f);
    qm_file_close(want);
    print_message("%d checkpoints, %d arrays\n", n_files, n_arrays);
    assert_true(n_files == 11 && n_arrays > 40);
}

static void expect_option(struct qm_file *f, const char *key, double want)
{
    double x = -1.0;
    assert_int_equal(qm_file_attr_number(f, "/0.weight", key, &x, 1), 1);
    assert_true(x == want);
}

static void test_options(void **state)
{
    (void)state;
    char text[512];
    static const char *const files[] = {"zip.pt", "legacy.pt"};
    for (int i = 0; i < 2; i++) {
        char path[256];
        snprintf(path, sizeof path, SAMPLES "%s", files[i]);
        struct qm_file *f = open_good(path);
        assert_string_equal(qm_file_format(f), "torch");
        expect_option(f, "lr", 0.25);
        expect_option(f, "beta1", 0.5);
        expect_option(f, "beta2", 0.75);
        expect_option(f, "decoupled_weight_decay", 1.0);
        assert_true(qm_file_attr_text(f, "/0.bias", "options", text, sizeof text) > 0);
        assert_non_null(strstr(text, "\"lr\": 0.25"));
        assert_int_equal(qm_file_attr_text(f, "/1.bias", "options", text, sizeof text), -1);
        qm_file_close(f);
    }
}

static void test_states(void **state)
{
    (void)state;
    struct qm_state zip, legacy, folder;
    char a[65], b[65];
    assert_int_equal(qm_state_read(SAMPLES "zip.pt", &zip), QM_OK);
    assert_int_equal(qm_state_read(SAMPLES "legacy.pt", &legacy), QM_OK);
    assert_int_equal(qm_state_read(SAMPLES "distributed", &folder), QM_OK);
    assert_int_equal(qm_state_digest(&zip, a), QM_OK);
    assert_int_equal(qm_state_digest(&legacy, b), QM_OK);
    assert_string_equal(a, b);
    assert_int_equal(zip.n, 2);
    assert_string_equal(zip.tensor[0].name, "0.weight");
    assert_string_equal(zip.tensor[0].recipe, "adamw_f32,lr=0.25,beta1=0.5,beta2=0.75");
    assert_int_equal(zip.tensor[0].step, 2);
    assert_string_equal(folder.tensor[1].recipe, "adam_f32,lr=0.25");
    assert_int_equal(folder.tensor[1].step, 1);
    qm_state_free(&zip);
    qm_state_free(&legacy);
    qm_state_free(&folder);
    assert_int_equal(qm_state_read(SAMPLES "sgd.pt", &zip), QM_BAD_FILE);
    assert_non_null(strstr(qm_message(), "no parameter"));
    assert_int_equal(qm_state_read(SAMPLES "nested.pt", &zip), QM_BAD_FILE);
    assert_int_equal(qm_state_read_as(SAMPLES "zip.pt", "sgdm_f32", NULL, NULL, &zip), QM_BAD_FILE);
    assert_non_null(strstr(qm_message(), "0.weight"));
}

/* Every prefix of a file (or a drawn share of them) is refused with one line. */
static void test_truncated(void **state)
{
    (void)state;
    static const char *const files[] = {"zip.pt", "legacy.pt", "tensors.pth",
                                        "distributed/.metadata"};
    int n = 0;
    qm_reader_in_this_process(1);
    for (size_t k = 0; k < sizeof files / sizeof *files; k++) {
        struct bytes whole = {NULL, 0, 0};
        char path[256];
        snprintf(path, sizeof path, SAMPLES "%s", files[k]);
        int fd = open(path, O_RDONLY);
        unsigned char block[65536];
        for (ssize_t got; (got = read(fd, block, sizeof block)) > 0;)
            bytes_put(&whole, block, (size_t)got);
        close(fd);
        const char *cut = save("cut.pt", &whole);
        for (size_t size = whole.size; size-- > 1;) {
            if (!is_drawn((int)size))
                continue;
            assert_int_equal(truncate(cut, (off_t)size), 0);
            expect_bad(cut, "");
            n++;
        }
        bytes_clear(&whole);
    }
    qm_reader_in_this_process(0);
    print_message("%d truncated files\n", n);
    assert_true(n > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_states),
        cmocka_unit_test(test_truncated),
    };
    return cmocka_run_group_tests_name("checkpoints", tests, make_dir, remove_dir);
}
