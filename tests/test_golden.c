/* test_golden.c - the golden vectors that ship, and the larger set where it is at hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experiments/conform/conform.h"

static void show(void *context, const struct qm_case *c)
{
    if (c->outcome == QM_OUTCOME_differs || c->outcome == QM_OUTCOME_unreadable)
        print_error("%s: %s %s: %s [%s]\n", (const char *)context, qm_outcome_word(c->outcome),
                    c->name, c->text, c->how);
}

static void replay(const char *path, int64_t count[QM_OUTCOME_COUNT])
{
    memset(count, 0, QM_OUTCOME_COUNT * sizeof *count);
    qm_status st = qm_conform_file(path, NULL, show, (void *)(uintptr_t)path, count);
    if (st != QM_OK)
        print_error("%s\n", qm_message());
    assert_int_equal(st, QM_OK);
    print_message("%s: %lld EQUAL, %lld NEAR, %lld skipped\n", path,
                  (long long)count[QM_OUTCOME_equal], (long long)count[QM_OUTCOME_near],
                  (long long)count[QM_OUTCOME_skipped]);
    assert_int_equal(count[QM_OUTCOME_differs], 0);
    assert_int_equal(count[QM_OUTCOME_unreadable], 0);
}

/* One test for each shipped file: nothing differs, and at least as many cases are compared as the
 * file is known to hold for what is built. */
struct expected {
    const char *path;
    int compared;
};

static void test_file(void **state)
{
    const struct expected *e = *state;
    int64_t count[QM_OUTCOME_COUNT];
    replay(e->path, count);
    assert_true(count[QM_OUTCOME_equal] + count[QM_OUTCOME_near] >= e->compared);
}

static void test_shared(void **state)
{
    const char *root = getenv("QM_SHARED");
    char pattern[512];
    glob_t found;
    (void)state;
    snprintf(pattern, sizeof pattern, "%s/data/golden/*.h5", root ? root : "../shared");
    if (glob(pattern, 0, NULL, &found) != 0)
        skip();
    int64_t count[QM_OUTCOME_COUNT];
    for (size_t i = 0; i < found.gl_pathc; i++)
        replay(found.gl_pathv[i], count);
    globfree(&found);
}

/* ---- files that are not what they should be ---- */

static void write_file(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static char *read_whole(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    char *bytes = malloc(*n);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, *n, f), *n);
    fclose(f);
    return bytes;
}

static void test_foreign(void **state)
{
    int64_t count[QM_OUTCOME_COUNT] = {0};
    char path[] = "/tmp/qm_golden_XXXXXX";
    (void)state;
    assert_int_equal(qm_conform_file("/nonexistent.h5", NULL, NULL, NULL, count), QM_BAD_FILE);
    close(mkstemp(path));
    assert_int_equal(qm_conform_file(path, NULL, NULL, NULL, count), QM_BAD_FILE);
    write_file(path, "not an HDF5 file", 16);
    assert_int_equal(qm_conform_file(path, NULL, NULL, NULL, count), QM_BAD_FILE);
    unlink(path);
    /* states of a training run, no golden vectors */
    assert_int_equal(qm_conform_file("experiments/data/cancer_tabular.h5", NULL, NULL, NULL, count),
                     QM_BAD_FILE);
    assert_non_null(strstr(qm_message(), "not a file of golden vectors"));
}

/* A truncated file, and one with a stretch of zeros in it, is refused or its cases are judged; it
 * never ends the program. */
static void test_damaged(void **state)
{
    char path[] = "/tmp/qm_golden_XXXXXX";
    size_t n;
    (void)state;
    char *bytes = read_whole("tests/golden/philox.h5", &n);
    close(mkstemp(path));
    for (int i = 1; i < 12; i++) {
        int64_t count[QM_OUTCOME_COUNT] = {0};
        write_file(path, bytes, n * (size_t)i / 12);
        assert_int_not_equal(qm_conform_file(path, NULL, NULL, NULL, count), QM_OK);
    }
    for (size_t at = 64; at + 64 < n; at += n / 40) {
        int64_t count[QM_OUTCOME_COUNT] = {0};
        char kept[64];
        memcpy(kept, bytes + at, sizeof kept);
        memset(bytes + at, 0, sizeof kept);
        write_file(path, bytes, n);
        (void)qm_conform_file(path, NULL, NULL, NULL, count);
        memcpy(bytes + at, kept, sizeof kept);
    }
    unlink(path);
    free(bytes);
}

/* A filter leaves out what it does not match. */
static void test_filter(void **state)
{
    int64_t count[QM_OUTCOME_COUNT] = {0};
    (void)state;
    assert_int_equal(qm_conform_file("tests/golden/torchao.h5", "^q4s_gauss$", NULL, NULL, count),
                     QM_OK);
    assert_int_equal(count[QM_OUTCOME_equal], 1);
    assert_int_equal(count[QM_OUTCOME_near] + count[QM_OUTCOME_skipped], 0);
}

int main(void)
{
    static struct expected files[] = {
        {"tests/golden/torchao.h5", 1}, {"tests/golden/bitsandbytes.h5", 1},
        {"tests/golden/lpmm.h5", 1},    {"tests/golden/adafactor8bit.h5", 1},
        {"tests/golden/adamw.h5", 1},   {"tests/golden/sgd.h5", 1},
        {"tests/golden/philox.h5", 1},  {"tests/golden/dtypes.h5", 1},
    };
    enum { N = sizeof files / sizeof *files };
    struct CMUnitTest tests[N + 4] = {
        cmocka_unit_test(test_shared),
        cmocka_unit_test(test_foreign),
        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_filter),
    };
    for (int i = 0; i < N; i++)
        tests[4 + i] = (struct CMUnitTest){files[i].path, test_file, NULL, NULL, &files[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
