/* test_golden.c - Replays the golden vectors that ship, and the larger set where it is present. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <glob.h>
#include <hdf5.h>
#include <hdf5_hl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "experiments/conform/conform.h"

static void show(void *context, const struct qm_golden_case *c)
{
    if (c->outcome == QM_CONFORM_differs || c->outcome == QM_CONFORM_unreadable)
        print_error("%s: %s %s: %s [%s]\n", (const char *)context,
                    qm_conform_result_word(c->outcome), c->name, c->text, c->how);
}

static int64_t replay(const char *path, int64_t count[QM_CONFORM_COUNT])
{
    memset(count, 0, QM_CONFORM_COUNT * sizeof *count);
    qm_status st = qm_conform_file(path, NULL, show, (void *)(uintptr_t)path, count);
    if (st != QM_OK)
        print_error("%s\n", qm_message());
    assert_int_equal(st, QM_OK);
    print_message("%s: %lld EQUAL, %lld NEAR, %lld skipped\n", path,
                  (long long)count[QM_CONFORM_equal], (long long)count[QM_CONFORM_near],
                  (long long)count[QM_CONFORM_skipped]);
    return count[QM_CONFORM_differs] + count[QM_CONFORM_unreadable];
}

/* One test per shipped file: nothing differs, and `compared` cases are compared, each once. */
struct expected {
    const char *path;
    int compared;
};

static void test_file(void **state)
{
    const struct expected *e = *state;
    int64_t count[QM_CONFORM_COUNT];
    assert_int_equal(replay(e->path, count), 0);
    assert_int_equal(count[QM_CONFORM_equal] + count[QM_CONFORM_near], e->compared);
}

/* Golden files hold at most 15 MB, so that a clone stays small; the larger set has the rest. */
static void test_size(void **state)
{
    enum { MOST = 15350000 };
    long long bytes = 0;
    glob_t found;
    (void)state;
    assert_int_equal(glob("tests/golden/*.h5", 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        struct stat s;
        assert_int_equal(stat(found.gl_pathv[i], &s), 0);
        bytes += (long long)s.st_size;
    }
    globfree(&found);
    if (bytes > MOST)
        fail_msg("tests/golden holds %lld bytes, at most %d", bytes, MOST);
}

/* Replays the whole recordings from which the shipped selections were taken, where they are
 * at hand. */
static void test_shared(void **state)
{
    const char *root = getenv("QM_SHARED");
    char pattern[512];
    glob_t found;
    (void)state;
    snprintf(pattern, sizeof pattern, "%s/data/golden/*.h5", root ? root : "../shared");
    if (glob(pattern, 0, NULL, &found) != 0)
        skip();
    int64_t count[QM_CONFORM_COUNT];
    int64_t differs = 0, replayed = 0;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        const char *name = strrchr(found.gl_pathv[i], '/') + 1;
        char shipped[512];
        snprintf(shipped, sizeof shipped, "tests/golden/%s", name);
        if (access(shipped, F_OK) != 0) {
            print_message("skipped: data/golden/%s: no selection of this file ships\n", name);
            continue;
        }
        differs += replay(found.gl_pathv[i], count);
        replayed++;
    }
    globfree(&found);
    assert_int_equal(differs, 0);
    assert_true(replayed > 0);
}

/* ---- foreign and damaged files ---- */

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
    int64_t count[QM_CONFORM_COUNT] = {0};
    char path[] = "/tmp/qm_golden_XXXXXX";
    (void)state;
    assert_int_equal(qm_conform_file("/dev/null/x.h5", NULL, NULL, NULL, count), QM_BAD_FILE);
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

/* A file cut short anywhere is refused. */
static void test_truncated(void **state)
{
    char path[] = "/tmp/qm_golden_XXXXXX";
    size_t n;
    (void)state;
    char *bytes = read_whole("tests/golden/philox.h5", &n);
    close(mkstemp(path));
    for (size_t i = 0; i < 24; i++) {
        int64_t count[QM_CONFORM_COUNT] = {0};
        write_file(path, bytes, i < 12 ? n * i / 12 : n - (24 - i) * (24 - i));
        assert_int_equal(qm_conform_file(path, NULL, NULL, NULL, count), QM_BAD_FILE);
        assert_non_null(strstr(qm_message(), path));
    }
    unlink(path);
    free(bytes);
}

/* A dataset of the wrong size makes its case unreadable and leaves the others alone. */
static void test_unreadable(void **state)
{
    char path[] = "/tmp/qm_golden_XXXXXX";
    int64_t count[QM_CONFORM_COUNT] = {0};
    hsize_t sizes[3] = {
        8, 4, 7}; /* per row 4 words of counter, 2 of key, 4 of output; 2 rows, one word short */
    static const char *const names[3] = {"counter", "key", "output"};
    (void)state;
    close(mkstemp(path));
    hid_t f = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t g = H5Gcreate2(f, "block", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    hid_t empty = H5Gcreate2(f, "empty", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5LTset_attribute_string(f, "/", "system", "philox") >= 0);
    for (int i = 0; i < 3; i++) {
        unsigned zeros[8] = {0};
        assert_true(H5LTmake_dataset(g, names[i], 1, &sizes[i], H5T_NATIVE_UINT, zeros) >= 0);
    }
    H5Gclose(empty);
    H5Gclose(g);
    H5Fclose(f);
    assert_int_equal(qm_conform_file(path, NULL, NULL, NULL, count), QM_OK);
    assert_int_equal(count[QM_CONFORM_unreadable], 1);
    assert_int_equal(count[QM_CONFORM_skipped], 1);
    unlink(path);
}

/* A changed bit in a recorded code is seen, with its index and both values. */
static void keep_text(void *context, const struct qm_golden_case *c)
{
    if (c->outcome == QM_CONFORM_differs)
        snprintf(context, 320, "%s", c->text);
}

static void test_seen(void **state)
{
    char path[] = "/tmp/qm_golden_XXXXXX", text[320] = "";
    int64_t count[QM_CONFORM_COUNT] = {0};
    size_t n;
    (void)state;
    char *bytes = read_whole("tests/golden/torchao.h5", &n);
    close(mkstemp(path));
    write_file(path, bytes, n);
    free(bytes);
    unsigned char codes[2048];
    hid_t f = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
    assert_true(H5LTread_dataset(f, "q8s_gauss/codes", H5T_NATIVE_UCHAR, codes) >= 0);
    codes[137] ^= 1;
    hid_t d = H5Dopen2(f, "q8s_gauss/codes", H5P_DEFAULT);
    assert_true(H5Dwrite(d, H5T_NATIVE_UCHAR, H5S_ALL, H5S_ALL, H5P_DEFAULT, codes) >= 0);
    H5Dclose(d);
    H5Fclose(f);
    assert_int_equal(qm_conform_file(path, "^q8s_", keep_text, text, count), QM_OK);
    assert_int_equal(count[QM_CONFORM_differs], 1);
    assert_non_null(strstr(text, "code[137]: got 0x"));
    unlink(path);
}

/* Cases that the filter does not match are left out. */
static void test_filter(void **state)
{
    int64_t count[QM_CONFORM_COUNT] = {0};
    (void)state;
    assert_int_equal(qm_conform_file("tests/golden/torchao.h5", "^q4s_gauss$", NULL, NULL, count),
                     QM_OK);
    assert_int_equal(count[QM_CONFORM_equal], 1);
    assert_int_equal(count[QM_CONFORM_near] + count[QM_CONFORM_skipped], 0);
}

int main(void)
{
    static struct expected files[] = {
        {"tests/golden/torchao.h5", 66},
        {"tests/golden/bitsandbytes.h5", 138},
        {"tests/golden/lpmm.h5", 408},
        {"tests/golden/adafactor8bit.h5", 235},
        {"tests/golden/adafactor8bit_real.h5", 1},
        {"tests/golden/adafactor8bit_real_cudahost.h5", 1},
        {"tests/golden/adafactor8bit_043plus.h5", 4},
        {"tests/golden/adamw.h5", 13},
        {"tests/golden/sgd.h5", 10},
        {"tests/golden/philox.h5", 17},
        {"tests/golden/dtypes.h5", 26},
        {"tests/golden/adafactor.h5", 16},
        {"tests/golden/came.h5", 7},
        {"tests/golden/apollo.h5", 18},
        {"tests/golden/fira.h5", 7},
        {"tests/golden/lion8bit.h5", 67},
        {"tests/golden/flashoptim.h5", 61},
        {"tests/golden/solo.h5", 43},
        {"tests/golden/coat.h5", 13},
        {"tests/golden/torch215_adamw.h5", 29},
        {"tests/golden/bnb_small.h5", 8},
        {"tests/golden/torchao018_compiled.h5", 2},
        {"tests/golden/torchao018_limits.h5", 5},
        {"tests/golden/torch215_limits.h5", 19},
        {"tests/golden/lion_limits.h5", 3},
        {"tests/golden/came_limits.h5", 5},
        {"tests/golden/adafactor8bit_limits.h5", 33}, /* and three whose sums cancel: skipped */
        {"tests/golden/muon8bit.h5", 24},
        {"tests/golden/muon_limits.h5", 3},
        {"tests/golden/shampoo_limits.h5", 1},
        {"tests/golden/microadam.h5", 14},
        {"tests/golden/shampoo4bit.h5", 9},
    };
    enum { N = sizeof files / sizeof *files };
    enum { OTHERS = 7 };
    struct CMUnitTest tests[N + OTHERS] = {
        cmocka_unit_test(test_foreign),    cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_unreadable), cmocka_unit_test(test_seen),
        cmocka_unit_test(test_filter),     cmocka_unit_test(test_shared),
        cmocka_unit_test(test_size),
    };
    for (int i = 0; i < N; i++)
        tests[OTHERS + i] = (struct CMUnitTest){files[i].path, test_file, NULL, NULL, &files[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
