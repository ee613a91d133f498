/* test_digest.c - The digest of a result file changes with its contents, and with nothing else. */
#include "tests/support/result_sample.h"

#include "tests/support/flipped_file.h"

#include <malloc.h>
#include <time.h>

/* The checksum of a chunk detects a flipped bit. */
static void damage_is_seen(void **state)
{
    struct qm_result *r;
    int64_t rows;
    double *x;
    size_t n;
    char hash[65];
    int seen = 0, tried = 0;
    (void)state;
    assert_int_equal(sample(in_folder("d.h5"), SAME), QM_OK);
    char *bytes = file_bytes(in_folder("d.h5"), &n);
    for (size_t at = n / 10; at < n / 2; at += n / 10) {
        bytes[at] ^= 4;
        file_from(in_folder("bad.h5"), bytes, n);
        tried++;
        seen += qm_store_digest(in_folder("bad.h5"), hash) == QM_BAD_FILE;
        if (qm_result_open(in_folder("bad.h5"), &r) == QM_OK) {
            if (qm_result_f64(r, "/metrics", "sqnr", &rows, &x) == QM_OK)
                free(x);
            qm_result_close(r);
        }
        bytes[at] ^= 4;
    }
    free(bytes);
    assert_int_equal(seen, tried);
}

static void digest_sees_every_change(void **state)
{
    char hash[CHANGES][65];
    (void)state;
    for (int c = 0; c < CHANGES; c++) {
        assert_int_equal(sample(in_folder("c.h5"), (enum change)c), QM_OK);
        digest_of(in_folder("c.h5"), hash[c]);
    }
    for (int c = 1; c < CHANGES; c++) {
        if (c <= COMMAND_LINE) {
            assert_string_equal(hash[c], hash[SAME]);
            continue;
        }
        for (int k = COMMAND_LINE; k < c; k++)
            if (strcmp(hash[c], hash[k]) == 0)
                fail_msg("change %d has the digest of change %d", c, k);
    }
}

/* Whole files are equal byte for byte, a second later and with other contents of fresh memory. */
static void bytes_repeat(void **state)
{
    size_t n, m;
    (void)state;
    setenv("SOURCE_DATE_EPOCH", "1700000000", 1);
    mallopt(M_PERTURB, 0x5a);
    assert_int_equal(sample(in_folder("1.h5"), SAME), QM_OK);
    struct timespec pause = {1, 100000000};
    nanosleep(&pause, NULL);
    mallopt(M_PERTURB, 0x33);
    assert_int_equal(sample(in_folder("2.h5"), SAME), QM_OK);
    mallopt(M_PERTURB, 0);
    unsetenv("SOURCE_DATE_EPOCH");
    char *a = file_bytes(in_folder("1.h5"), &n), *b = file_bytes(in_folder("2.h5"), &m);
    assert_int_equal(n, m);
    assert_memory_equal(a, b, n);
    free(a);
    free(b);
}

static void digest_ignores_layout(void **state)
{
    static const char *const option[] = {"-f NONE", "-l CONTI", "-f metrics,a/b/box:GZIP=9",
                                         "-l metrics,cells:CHUNK=3 -f metrics:SHUF", "-L"};
    char want[65], got[65];
    (void)state;
    if (!have("h5repack"))
        skip();
    assert_int_equal(sample(in_folder("l.h5"), SAME), QM_OK);
    digest_of(in_folder("l.h5"), want);
    for (size_t i = 0; i < sizeof option / sizeof *option; i++) {
        unlink(in_folder("p.h5"));
        shell("h5repack %s %s %s", option[i], in_folder("l.h5"), in_folder("p.h5"));
        digest_of(in_folder("p.h5"), got);
        assert_string_equal(want, got);
    }
}

/* Types of other programs: variable-length text, big-endian numbers, enumerations, references. */
static void digest_of_foreign_files(void **state)
{
    static const char script[] =
        "import h5py, numpy as np, sys\\n"
        "def make(path, order, chunks, word, at):\\n"
        "    f = h5py.File(path, 'w', libver=('earliest' if order == '<' else 'latest'))\\n"
        "    f.attrs['word'] = word; f.attrs['list'] = ['a', 'bc']\\n"
        "    d = f.create_dataset('x', data=np.arange(999., dtype=order + 'f8'), chunks=chunks)\\n"
        "    f['flags'] = np.array([True, False])\\n"
        "    f['pair'] = np.array([(1, 2.5, b'ab')], dtype=[('i', order + 'i4'), ('x', order + "
        "'f8'), ('s', 'S3')])\\n"
        "    v = f.create_dataset('ragged', (2,), dtype=h5py.vlen_dtype(order + 'i2'))\\n"
        "    v[0] = [1, 2]; v[1] = [at]\\n"
        "    e = h5py.enum_dtype({'low': 1, 'high': 700}, basetype=order + 'i4')\\n"
        "    f.create_dataset('level', data=np.array([1, 700]), dtype=e)\\n"
        "    f.create_dataset('ref', data=np.array([d.ref], dtype=h5py.ref_dtype))\\n"
        "    f['soft'] = h5py.SoftLink('/x'); f.attrs['none'] = h5py.Empty('f4')\\n"
        "    f.close()\\n"
        "make(sys.argv[1] + '/f1.h5', '<', None, 'w', 3)\\n"
        "make(sys.argv[1] + '/f2.h5', '>', (100,), 'w', 3)\\n"
        "make(sys.argv[1] + '/f3.h5', '<', None, 'v', 3)\\n"
        "make(sys.argv[1] + '/f4.h5', '<', None, 'w', 4)\\n";
    char hash[4][65];
    (void)state;
    if (system("/usr/bin/python3 -c 'import h5py' 2>/dev/null") != 0)
        skip();
    shell("printf \"%s\" | /usr/bin/python3 - %s", script, folder);
    digest_of(in_folder("f1.h5"), hash[0]);
    digest_of(in_folder("f2.h5"), hash[1]);
    digest_of(in_folder("f3.h5"), hash[2]);
    digest_of(in_folder("f4.h5"), hash[3]);
    assert_string_equal(hash[0], hash[1]);
    assert_string_not_equal(hash[0], hash[2]);
    assert_string_not_equal(hash[0], hash[3]);
}

/* tests/support/digest.py implements the description in results/README.md a second time. */
static void agrees_with(const char *path)
{
    char command[600], want[80] = "", got[65];
    snprintf(command, sizeof command, "/usr/bin/python3 -B tests/support/digest.py %s", path);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    assert_non_null(fgets(want, sizeof want, f));
    assert_int_equal(pclose(f), 0);
    want[strcspn(want, "\n")] = 0;
    digest_of(path, got);
    assert_string_equal(want, got);
}

static void digest_is_as_described(void **state)
{
    (void)state;
    if (system("/usr/bin/python3 -c 'import h5py' 2>/dev/null") != 0)
        skip();
    assert_int_equal(sample(in_folder("s.h5"), SAME), QM_OK);
    agrees_with(in_folder("s.h5"));
    agrees_with(in_folder("f1.h5")); /* the foreign file of the test above */
}

/* Fails unless every reader refuses the file with a line that names it.  is_short: HDF5 does so,
 * for the file ends before HDF5's own end. */
static void expect_refused(const char *what, const char *path, int is_short)
{
    char got[65];
    struct qm_result *r;
    enum qm_file_sum sum;
    if (qm_store_digest(path, got) != QM_BAD_FILE || qm_result_open(path, &r) != QM_BAD_FILE)
        fail_msg("%s: not refused", what);
    assert_int_equal(strncmp(qm_message(), path, strlen(path)), 0);
    int is_whole = qm_file_sum_check(path, &sum) == QM_OK;
    if (is_whole != is_short || (qm_file_sum_check_any(path, &sum) == QM_OK) != is_short)
        fail_msg("%s: its end is not refused", what);
}

/* A file ends with one whole checksum or with HDF5's own end.  Of the cuts all within the checksum
 * are tried; what is appended is drawn. */
static void ends_are_whole(void **state)
{
    char *path = strdup(in_folder("end.h5")), what[64], digest[65];
    uint64_t seed = 15;
    size_t size;
    (void)state;
    print_message("seed %d\n", (int)seed);
    assert_int_equal(sample(path, SAME), QM_OK);
    assert_int_equal(qm_store_digest(path, digest), QM_OK);
    char *bytes = file_bytes(path, &size), *longer = malloc(size + 256);
    assert_non_null(longer);
    for (size_t cut = 1; cut < 2 * QM_FILE_SUM_LINE; cut++) {
        snprintf(what, sizeof what, "cut by %zu bytes", cut);
        file_from(path, bytes, size - cut);
        if (cut != QM_FILE_SUM_LINE)
            expect_refused(what, path, cut > QM_FILE_SUM_LINE);
    }
    memcpy(longer, bytes, size);
    for (int i = 0; i < 40; i++) {
        size_t n = 1 + qm_philox_stream(seed, (uint64_t)i, 0) % 256;
        for (size_t k = 0; k < n; k++) /* now and then a whole second line */
            longer[size + k] = i % 4 == 0 ? bytes[size - QM_FILE_SUM_LINE + k % QM_FILE_SUM_LINE]
                                          : (char)qm_philox_stream(seed, (uint64_t)i, k + 1);
        snprintf(what, sizeof what, "%zu bytes appended", n);
        file_from(path, longer, size + n);
        expect_refused(what, path, 0);
    }
    /* as HDF5's own tools leave it: told, and read with its digest */
    char got[65];
    file_from(path, bytes, size - QM_FILE_SUM_LINE);
    qm_store_tell(flipped_tell);
    flipped_carried = QM_CARRIED_same;
    assert_int_equal(qm_store_digest(path, got), QM_OK);
    assert_string_equal(got, digest);
    assert_int_equal(flipped_carried, QM_CARRIED_bare);
    /* one bit of the line, and up to 16 of its bytes */
    for (size_t bit = 0; bit < 8 * QM_FILE_SUM_LINE + 64; bit++) {
        size_t line = size - QM_FILE_SUM_LINE;
        memcpy(longer, bytes, size);
        if (bit < 8 * QM_FILE_SUM_LINE)
            longer[line + bit / 8] ^= (char)(1 << bit % 8);
        for (uint64_t k = 0; k < 16 && bit >= 8 * QM_FILE_SUM_LINE; k++) {
            uint64_t word = qm_philox_stream(seed, 100 + bit, k);
            longer[line + word % QM_FILE_SUM_LINE] = (char)(word >> 32);
        }
        snprintf(what, sizeof what, "change %zu of the line", bit);
        file_from(path, longer, size);
        expect_refused(what, path, 0);
    }
    /* another program's bytes after HDF5's end are nobody's checksum */
    enum qm_file_sum sum;
    memset(longer + size - QM_FILE_SUM_LINE, 0, 100);
    file_from(path, longer, size - QM_FILE_SUM_LINE + 100);
    assert_int_equal(qm_file_sum_check(path, &sum), QM_BAD_FILE);
    assert_int_equal(qm_file_sum_check_any(path, &sum), QM_OK);
    assert_int_equal(sum, QM_FILE_SUM_none);
    free(longer);
    free(bytes);
    free(path);
}

/* long_flips.c flips more. */
static void flips_are_seen(void **state)
{
    (void)state;
    flip_bits(300, 0, 20);
    flip_bits(60, 1, 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damage_is_seen),
        cmocka_unit_test(ends_are_whole),
        cmocka_unit_test(flips_are_seen),
        cmocka_unit_test(digest_sees_every_change),
        cmocka_unit_test(bytes_repeat),
        cmocka_unit_test(digest_ignores_layout),
        cmocka_unit_test(digest_of_foreign_files),
        cmocka_unit_test(digest_is_as_described),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
