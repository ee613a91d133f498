/* test_store.c - result files: what is written is read back, never half there, and hashed alike. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <dirent.h>
#include <malloc.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/base/half.h"
#include "experiments/result.h"
#include "experiments/store.h"

#define ROWS 20000 /* of the large table: chunked */

static char folder[64];

/* Paths under the test's folder, in a few rotating buffers. */
static char *in_folder(const char *name)
{
    static char text[4][400];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(text[turn], sizeof text[turn], "%s/%s", folder, name);
    return text[turn];
}

static int files_in_folder(void)
{
    DIR *d = opendir(folder);
    assert_non_null(d);
    int n = 0;
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static void folder_empty(void)
{
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        if (e->d_name[0] != '.')
            unlink(in_folder(e->d_name));
    closedir(d);
}

static int setup(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/qm_store_XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    folder_empty();
    return rmdir(folder);
}

/* ---- a sample with one thing changed ------------------------------------------------------- */

enum change {
    SAME,
    TIMING,
    COMMAND_LINE, /* these three leave the digest as it is */
    KIND,
    CELL_TEXT,
    CELL_NUMBER,
    CELL_ZERO_SIGN,
    COLUMN_NAME,
    COLUMN_UNIT,
    COLUMN_TEXT,
    TABLE_TEXT,
    LAST_METRIC,
    ARRAY_VALUE,
    ARRAY_TYPE,
    ARRAY_SHAPE,
    ARRAY_UNIT,
    ARRAY_TEXT,
    ARRAY_PATH,
    NO_SCALE,
    CURVE_VALUE,
    CURVE_CUT,
    ATTRIBUTE_TEXT,
    ATTRIBUTE_NUMBER,
    ATTRIBUTE_NAME,
    LONG_TEXT,
    EMPTY_GROUP,
    CHANGES
};

static qm_status put_cells(struct qm_store *s, enum change c)
{
    const char *id[] = {"a1", "b22", NULL, "caf\xc3\xa9", c == CELL_TEXT ? "x" : "y"};
    int64_t seed[] = {1, -2, INT64_MAX, INT64_MIN, c == CELL_NUMBER ? 6 : 5};
    double loss[] = {0.5, c == CELL_ZERO_SIGN ? 0.0 : -0.0, HUGE_VAL, (double)NAN, 1e-310};
    const struct qm_column columns[] = {
        {c == COLUMN_NAME ? "name" : "cell", QM_COLUMN_text, "", "which cell", id},
        {"seed", QM_COLUMN_i64, c == COLUMN_UNIT ? "s" : "1", "seed of the run", seed},
        {"loss", QM_COLUMN_f64, "1", c == COLUMN_TEXT ? "loss" : "final loss", loss},
    };
    return qm_store_table(s, "/cells", c == TABLE_TEXT ? "cells" : "one row per cell", 5, 3,
                          columns);
}

static qm_status put_metrics(struct qm_store *s, enum change c)
{
    double *x = malloc(ROWS * sizeof *x), *y = malloc(ROWS * sizeof *y);
    assert_true(x && y);
    for (int i = 0; i < ROWS; i++) {
        x[i] = sin(i);
        y[i] = i;
    }
    y[ROWS - 1] += c == LAST_METRIC;
    const struct qm_column columns[] = {{"sqnr", QM_COLUMN_f64, "dB", "SQNR", x},
                                        {"ulp", QM_COLUMN_f64, "ULP", "largest distance", y}};
    qm_status st =
        qm_store_table(s, "/metrics", "row i belongs to row i of /cells", ROWS, 2, columns);
    free(x);
    free(y);
    return st;
}

static qm_status put_arrays(struct qm_store *s, enum change c)
{
    int64_t code[16];
    float value[16];
    uint8_t *image = malloc(300 * 400 * 3);
    uint16_t half[4] = {0x3f80, 0xbf80, 0x7f80, 1};
    struct qm_shape line = {1, {16}}, box = {3, {300, 400, 3}}, scalar = {0, {0}},
                    none = {2, {0, 3}};
    struct qm_shape four = {c == ARRAY_SHAPE ? 2 : 1, {c == ARRAY_SHAPE ? 2 : 4, 2}};
    const char *scale[] = {c == NO_SCALE ? NULL : "/codebooks/code"};
    assert_non_null(image);
    for (int i = 0; i < 16; i++) {
        code[i] = i;
        value[i] = (float)i / 16.0f;
    }
    for (int i = 0; i < 300 * 400 * 3; i++)
        image[i] = (uint8_t)(i * i >> 5);
    image[300 * 400 * 3 - 1] ^= c == ARRAY_VALUE;
    qm_status st =
        qm_store_array(s, "/codebooks/code", QM_DTYPE_i64, &line, code, "1", "code", NULL);
    if (st == QM_OK)
        st = qm_store_array(s, "/codebooks/lin4u", QM_DTYPE_f32, &line, value,
                            c == ARRAY_UNIT ? "dB" : "1", c == ARRAY_TEXT ? "" : "values", scale);
    if (st == QM_OK)
        st = qm_store_array(s, c == ARRAY_PATH ? "/a/c/box" : "/a/b/box", QM_DTYPE_u8, &box, image,
                            "1", "bytes", NULL);
    if (st == QM_OK)
        st = qm_store_array(s, "/a/half", c == ARRAY_TYPE ? QM_DTYPE_f16 : QM_DTYPE_bf16, &four,
                            half, "1", "four", NULL);
    if (st == QM_OK)
        st = qm_store_array(s, "/a/scalar", QM_DTYPE_f32, &scalar, value + 5, "1", "one", NULL);
    if (st == QM_OK)
        st = qm_store_array(s, "/a/none", QM_DTYPE_bool, &none, NULL, "1", "nothing", NULL);
    free(image);
    return st;
}

static qm_status put_rest(struct qm_store *s, enum change c)
{
    int64_t length[] = {3, 0, 2};
    double value[] = {3, 2, 1, 5, c == CURVE_VALUE ? 4.5 : 4};
    double wall[] = {c == TIMING ? 2.0 : 1.0};
    if (c == CURVE_CUT)
        length[0] = 2, length[1] = 1;
    char *longer = malloc(100001);
    assert_non_null(longer);
    memset(longer, 'q', 100000);
    longer[100000] = 0;
    longer[99999] = c == LONG_TEXT ? 'p' : 'q';
    qm_status st = qm_store_ragged(s, "/curves/loss", 3, length, value, "1", "loss by step");
    if (st == QM_OK)
        st = qm_store_text(s, "/", "question", c == ATTRIBUTE_TEXT ? "why?" : "which map is best?");
    if (st == QM_OK)
        st = qm_store_text(s, "/plan", "text", longer);
    if (st == QM_OK)
        st = qm_store_number(s, "/plan", c == ATTRIBUTE_NAME ? "steps" : "every",
                             c == ATTRIBUTE_NUMBER ? 11 : 10);
    if (st == QM_OK && c == EMPTY_GROUP)
        st = qm_store_text(s, "/provenances", "x", ""); /* not /provenance */
    if (st == QM_OK)
        st = qm_store_timing(s, "wall", 1, wall, "s", "time of the run");
    free(longer);
    return st;
}

static qm_status sample_open(const char *path, enum change c, struct qm_store **s)
{
    char *argv[] = {"qualm", "run", c == COMMAND_LINE ? "other.yaml" : "some.yaml"};
    QM_TRY(qm_store_open(path, c == KIND ? "bench" : "run", 3, argv, s));
    qm_status st = put_cells(*s, c);
    if (st == QM_OK)
        st = put_metrics(*s, c);
    if (st == QM_OK)
        st = put_arrays(*s, c);
    return st == QM_OK ? put_rest(*s, c) : st;
}

static qm_status sample(const char *path, enum change c)
{
    struct qm_store *s;
    QM_TRY(sample_open(path, c, &s));
    return qm_store_commit(s);
}

static void digest_of(const char *path, char out[65])
{
    qm_status st = qm_store_digest(path, out);
    if (st != QM_OK)
        print_message("%s\n", qm_message());
    assert_int_equal(st, QM_OK);
    assert_int_equal(strlen(out), 64);
}

static char *file_bytes(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    *n = (size_t)ftell(f);
    rewind(f);
    char *bytes = malloc(*n);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, *n, f), *n);
    fclose(f);
    return bytes;
}

static void file_from(const char *path, const char *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

/* ---- what is written is read --------------------------------------------------------------- */

static void tables_read_back(void **state)
{
    struct qm_result *r;
    int64_t rows, *seed;
    double *loss, *ulp;
    char **cell;
    struct qm_result_columns c;
    (void)state;
    assert_int_equal(sample(in_folder("t.h5"), SAME), QM_OK);
    assert_int_equal(files_in_folder(), 1);
    assert_int_equal(qm_result_open(in_folder("t.h5"), &r), QM_OK);
    assert_string_equal(qm_result_kind(r), "run");
    assert_int_equal(qm_result_i64(r, "/cells", "seed", &rows, &seed), QM_OK);
    assert_int_equal(rows, 5);
    assert_true(seed[1] == -2 && seed[2] == INT64_MAX && seed[3] == INT64_MIN);
    assert_int_equal(qm_result_f64(r, "/cells", "loss", &rows, &loss), QM_OK);
    assert_true(loss[0] == 0.5 && loss[1] == 0.0 && signbit(loss[1]) && isinf(loss[2]));
    assert_true(isnan(loss[3]) && loss[4] == 1e-310);
    assert_int_equal(qm_result_texts(r, "/cells", "cell", &rows, &cell), QM_OK);
    assert_string_equal(cell[0], "a1");
    assert_string_equal(cell[2], "");
    assert_string_equal(cell[3], "caf\xc3\xa9");
    assert_int_equal(qm_result_f64(r, "/metrics", "ulp", &rows, &ulp), QM_OK);
    assert_int_equal(rows, ROWS);
    for (int i = 0; i < ROWS; i++)
        assert_true(ulp[i] == i);
    assert_int_equal(qm_result_columns(r, "/metrics", &c), QM_OK);
    assert_true(c.n == 2 && c.rows == ROWS && c.type[0] == QM_COLUMN_f64);
    assert_string_equal(c.name[1], "ulp");
    assert_string_equal(c.unit[0], "dB");
    assert_string_equal(c.text[1], "largest distance");
    qm_result_columns_free(&c);
    free(seed);
    free(loss);
    free(ulp);
    free(cell);
    qm_result_close(r);
}

static void arrays_and_attributes_read_back(void **state)
{
    struct qm_result *r;
    struct qm_tensor t;
    struct qm_result_curves curves;
    char *text;
    double number;
    (void)state;
    assert_int_equal(sample(in_folder("a.h5"), SAME), QM_OK);
    assert_int_equal(qm_result_open(in_folder("a.h5"), &r), QM_OK);
    assert_int_equal(qm_result_array(r, "/a/b/box", &t), QM_OK);
    assert_true(t.dtype == QM_DTYPE_u8 && t.shape.rank == 3 && t.shape.dim[1] == 400);
    for (int i = 0; i < 300 * 400 * 3; i++)
        assert_int_equal(((uint8_t *)t.data)[i], (uint8_t)(i * i >> 5));
    free(t.data);
    assert_int_equal(qm_result_array(r, "/a/half", &t), QM_OK);
    assert_true(t.dtype == QM_DTYPE_bf16 && ((uint16_t *)t.data)[2] == 0x7f80);
    free(t.data);
    assert_int_equal(qm_result_array(r, "/a/scalar", &t), QM_OK);
    assert_true(t.shape.rank == 0 && *(float *)t.data == 5.0f / 16.0f);
    free(t.data);
    assert_int_equal(qm_result_array(r, "/a/none", &t), QM_OK);
    assert_true(t.dtype == QM_DTYPE_bool && t.shape.dim[0] == 0 && t.shape.dim[1] == 3);
    free(t.data);
    assert_int_equal(qm_result_ragged(r, "/curves/loss", &curves), QM_OK);
    assert_true(curves.n == 3 && curves.offset[2] == 3 && curves.length[1] == 0);
    assert_true(curves.value[curves.offset[2] + 1] == 4.0);
    qm_result_curves_free(&curves);
    assert_int_equal(qm_result_text(r, "/", "question", &text), QM_OK);
    assert_string_equal(text, "which map is best?");
    free(text);
    assert_int_equal(qm_result_text(r, "/plan", "text", &text), QM_OK);
    assert_int_equal(strlen(text), 100000);
    free(text);
    assert_int_equal(qm_result_number(r, "/plan", "every", &number), QM_OK);
    assert_true(number == 10);
    qm_result_close(r);
}

static void readers_refuse_clearly(void **state)
{
    struct qm_result *r;
    struct qm_tensor t;
    int64_t rows, *whole;
    double *x;
    char **text;
    (void)state;
    assert_int_equal(sample(in_folder("r.h5"), SAME), QM_OK);
    assert_int_equal(qm_result_open(in_folder("r.h5"), &r), QM_OK);
    assert_int_equal(qm_result_f64(r, "/cells", "seeds", &rows, &x), QM_NO_MATCH);
    assert_non_null(strstr(qm_message(), "no column 'seeds' in /cells"));
    assert_int_equal(qm_result_f64(r, "/cell/s", "seed", &rows, &x), QM_NO_MATCH);
    assert_int_equal(qm_result_f64(r, "/cells", "cell", &rows, &x), QM_BAD_ARG);
    assert_int_equal(qm_result_i64(r, "/cells", "loss", &rows, &whole), QM_BAD_ARG);
    assert_int_equal(qm_result_texts(r, "/cells", "loss", &rows, &text), QM_BAD_ARG);
    assert_int_equal(qm_result_array(r, "/cells", &t), QM_BAD_ARG);
    assert_int_equal(qm_result_array(r, "/a", &t), QM_BAD_ARG);
    assert_int_equal(qm_result_f64(r, "/a/half", "x", &rows, &x), QM_BAD_ARG);
    assert_true(qm_result_has(r, "/a/b/box") && !qm_result_has(r, "/a/b/box/deeper"));
    qm_result_close(r);

    assert_int_equal(qm_result_open(in_folder("missing.h5"), &r), QM_BAD_FILE);
    assert_non_null(strstr(qm_message(), "No such file"));
    assert_int_equal(qm_result_open(folder, &r), QM_BAD_FILE);
    file_from(in_folder("text.h5"), "not HDF5 at all, not at all", 27);
    assert_int_equal(qm_result_open(in_folder("text.h5"), &r), QM_BAD_FILE);
    assert_non_null(strstr(qm_message(), "is not an HDF5 file"));
    size_t n;
    char hash[65], *bytes = file_bytes(in_folder("r.h5"), &n);
    file_from(in_folder("cut.h5"), bytes, n / 2);
    assert_int_equal(qm_result_open(in_folder("cut.h5"), &r), QM_BAD_FILE);
    assert_int_equal(qm_store_digest(in_folder("cut.h5"), hash), QM_BAD_FILE);
    char *middle = memmem(bytes, n, "qqqqqqqqqqqqqqqq", 16); /* raw text, then chunks before it */
    assert_non_null(middle);
    free(bytes);
}

/* A flipped bit in any chunk is seen by its checksum. */
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

/* ---- the digest ---------------------------------------------------------------------------- */

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

/* Whole files, byte for byte: a second later and with other rubbish in fresh memory. */
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

static int have(const char *program)
{
    char command[128];
    snprintf(command, sizeof command, "command -v %s >/dev/null 2>&1", program);
    return system(command) == 0;
}

static void shell(const char *format, ...)
{
    char command[2000];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    if (system(command) != 0)
        fail_msg("failed: %s", command);
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

/* Types that other programs write: variable-length text, big-endian, enumerations, references. */
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

/* ---- other programs ------------------------------------------------------------------------ */

static void python_reads(void **state)
{
    (void)state;
    if (system("/usr/bin/python3 -c 'import h5py' 2>/dev/null") != 0)
        skip();
    assert_int_equal(sample(in_folder("y.h5"), SAME), QM_OK);
    shell("/usr/bin/python3 -c \"\n"
          "import h5py, numpy as np\n"
          "f = h5py.File('%s', 'r')\n"
          "assert f.attrs['schema'] == b'qualm-results' or f.attrs['schema'] == 'qualm-results'\n"
          "assert f.attrs['schema_version'] == 1\n"
          "c = f['cells'][...]\n"
          "assert [x.decode() for x in c['cell']] == ['a1', 'b22', '', 'caf\\u00e9', 'y'], c\n"
          "assert c['seed'].tolist() == [1, -2, 2**63 - 1, -2**63, 5]\n"
          "assert c['loss'][0] == 0.5 and np.isnan(c['loss'][3]) and c['loss'][4] == 1e-310\n"
          "assert [u.decode() for u in f['cells'].attrs['column_units']] == ['', '1', '1']\n"
          "assert f['metrics'].shape == (20000,) and f['metrics'].chunks\n"
          "assert f['metrics'].compression == 'gzip' and f['metrics'].fletcher32\n"
          "assert np.array_equal(f['metrics']['ulp'], np.arange(20000.))\n"
          "assert f['a/half'][0] == 1 and f['a/half'][1] == -1 and np.isinf(f['a/half'][2])\n"
          "assert f['a/none'].dtype == bool and f['a/none'].shape == (0, 3)\n"
          "assert f['codebooks/lin4u'].dims[0][0][15] == 15\n"
          "assert f['provenance/argv'].asstr()[...].tolist() == ['qualm', 'run', 'some.yaml']\n"
          "assert f['provenance'].attrs['rounding'] in (b'nearest', 'nearest')\n"
          "assert len(f['plan/text'][()]) == 100000\n\"",
          in_folder("y.h5"));
}

static void h5dump_opens(void **state)
{
    (void)state;
    if (!have("h5dump"))
        skip();
    assert_int_equal(sample(in_folder("h.h5"), SAME), QM_OK);
    shell("h5dump %s > %s", in_folder("h.h5"), in_folder("h.txt"));
    shell("grep -q 'which map is best' %s", in_folder("h.txt"));
}

/* ---- never half there ---------------------------------------------------------------------- */

static void old_file_stays_until_commit(void **state)
{
    struct qm_store *s;
    char before[65], during[65], after[65];
    (void)state;
    folder_empty();
    assert_int_equal(sample(in_folder("o.h5"), SAME), QM_OK);
    digest_of(in_folder("o.h5"), before);
    assert_int_equal(sample_open(in_folder("o.h5"), LAST_METRIC, &s), QM_OK);
    digest_of(in_folder("o.h5"), during);
    assert_string_equal(before, during);
    assert_int_equal(qm_store_commit(s), QM_OK);
    digest_of(in_folder("o.h5"), after);
    assert_string_not_equal(before, after);
    assert_int_equal(sample_open(in_folder("o.h5"), SAME, &s), QM_OK);
    qm_store_abort(s);
    digest_of(in_folder("o.h5"), during);
    assert_string_equal(during, after);
    assert_int_equal(files_in_folder(), 1);
    qm_store_abort(NULL);
}

static void child_writes_for_ever(void)
{
    for (int turn = 0;; turn++)
        if (sample(in_folder("k.h5"), turn % 2 ? LAST_METRIC : SAME) != QM_OK)
            _exit(1);
}

static void killed_writers_leave_no_half_file(void **state)
{
    char one[65], two[65], got[65];
    (void)state;
    folder_empty();
    assert_int_equal(sample(in_folder("k.h5"), SAME), QM_OK);
    digest_of(in_folder("k.h5"), one);
    assert_int_equal(sample(in_folder("k.h5"), LAST_METRIC), QM_OK);
    digest_of(in_folder("k.h5"), two);
    unlink(in_folder("k.h5"));
    for (int turn = 0; turn < 24; turn++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            child_writes_for_ever();
        struct timespec pause = {0, 1000000L + turn * 2711000L};
        nanosleep(&pause, NULL);
        assert_int_equal(kill(child, SIGKILL), 0);
        int how;
        assert_int_equal(waitpid(child, &how, 0), child);
        assert_true(WIFSIGNALED(how));
        if (access(in_folder("k.h5"), F_OK) == 0) {
            digest_of(in_folder("k.h5"), got);
            assert_true(strcmp(got, one) == 0 || strcmp(got, two) == 0);
        } else {
            assert_int_equal(turn < 8, 1); /* sooner or later one got through */
        }
    }
    folder_empty();
}

/* A full disk, as far as one can be had without one: writes fail beyond a size. */
static void full_disk(void **state)
{
    struct rlimit old, small;
    char before[65], after[65];
    (void)state;
    folder_empty();
    assert_int_equal(sample(in_folder("f.h5"), SAME), QM_OK);
    digest_of(in_folder("f.h5"), before);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = old;
    small.rlim_cur = 10000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    qm_status over = sample(in_folder("f.h5"), LAST_METRIC);
    char message[300];
    snprintf(message, sizeof message, "%s", qm_message());
    qm_status fresh = sample(in_folder("g.h5"), SAME);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, handler);
    assert_int_equal(over, QM_BAD_FILE);
    assert_int_equal(fresh, QM_BAD_FILE);
    assert_non_null(strstr(message, "f.h5: cannot be written: File too large"));
    digest_of(in_folder("f.h5"), after);
    assert_string_equal(before, after);
    assert_int_equal(files_in_folder(), 1);
}

static void refused(const char *path, const char *why)
{
    struct qm_store *s;
    assert_int_equal(qm_store_open(path, "run", 0, NULL, &s), QM_BAD_FILE);
    if (!strstr(qm_message(), why) || strchr(qm_message(), '\n'))
        fail_msg("message '%s', expected '%s'", qm_message(), why);
}

static void bad_targets(void **state)
{
    struct qm_store *s;
    (void)state;
    folder_empty();
    refused(folder, "expected the name of a file");
    refused("", "expected the name of a file");
    refused("/dev/null", "expected the name of a file");
    refused(in_folder("no/such/x.h5"), "No such file or directory");
    assert_int_equal(qm_store_open(in_folder("w.h5"), "run", 0, NULL, &s), QM_OK);
    refused(in_folder("w.h5"), "is being written already");
    qm_store_abort(s);
    assert_int_equal(qm_store_open(in_folder("w.h5"), "run", 0, NULL, &s), QM_OK);
    assert_int_equal(mkdir(in_folder("w.h5"), 0777), 0);
    assert_int_equal(qm_store_commit(s), QM_BAD_FILE);
    assert_int_equal(rmdir(in_folder("w.h5")), 0);
    assert_int_equal(files_in_folder(), 0);

    assert_int_equal(chmod(folder, 0500), 0);
    int root = geteuid() == 0;
    if (root)
        assert_int_equal(seteuid(65534), 0);
    refused(in_folder("x.h5"), "Permission denied");
    if (root)
        assert_int_equal(seteuid(0), 0);
    assert_int_equal(chmod(folder, 0700), 0);
    assert_int_equal(files_in_folder(), 0);
}

/* The leftovers of a dead process with our number neither block nor survive. */
static void leftovers_are_taken_over(void **state)
{
    char part[300];
    (void)state;
    folder_empty();
    snprintf(part, sizeof part, "%s/z.h5.%ld.part", folder, (long)getpid());
    file_from(part, "rubbish of an earlier life", 26);
    assert_int_equal(sample(in_folder("z.h5"), SAME), QM_OK);
    assert_int_equal(files_in_folder(), 1);
}

static qm_status misuse(struct qm_store *s, int which)
{
    const int64_t one = 1, minus = -1;
    const double x = 1;
    const struct qm_shape line = {1, {1}}, wrong = {1, {-1}};
    const char *const scale[] = {"/no/scale"}, *const other[] = {"/three"};
    const struct qm_column twice[] = {{"a", QM_COLUMN_i64, "1", "", &one},
                                      {"a", QM_COLUMN_f64, "1", "", &x}};
    const struct qm_column bare[] = {{"a", QM_COLUMN_i64, NULL, "", &one}};
    switch (which) {
    case 0: return qm_store_table(s, "/t", "", 1, 2, twice);
    case 1: return qm_store_table(s, "/t", "", 1, 1, bare);
    case 2: return qm_store_table(s, "/t", "", 1, 0, NULL);
    case 3: return qm_store_table(s, "t", "", 1, 1, twice);
    case 4: return qm_store_table(s, "/three", "", 1, 1, twice);
    case 5: return qm_store_array(s, "/y", QM_DTYPE_f64, &line, &x, "1", "", scale);
    case 6: return qm_store_array(s, "/y", QM_DTYPE_f64, &line, &x, "1", "", other);
    case 7: return qm_store_array(s, "/y", QM_DTYPE_f64, &wrong, &x, "1", "", NULL);
    case 8: return qm_store_array(s, "/three/below", QM_DTYPE_f64, &line, &x, "1", "", NULL);
    case 9: return qm_store_ragged(s, "/y", 1, &minus, &x, "1", "");
    case 10: return qm_store_text(s, "/a//b", "x", "y");
    default: return QM_OK;
    }
}

/* Each misuse is refused, and a store that refused once writes no file. */
static void failures_stick(void **state)
{
    const struct qm_shape three = {1, {3}};
    const double x[] = {1, 2, 3};
    (void)state;
    folder_empty();
    for (int which = 0; which <= 10; which++) {
        struct qm_store *s;
        assert_int_equal(qm_store_open(in_folder("s.h5"), "run", 0, NULL, &s), QM_OK);
        assert_int_equal(qm_store_array(s, "/three", QM_DTYPE_f64, &three, x, "1", "", NULL),
                         QM_OK);
        if (misuse(s, which) != QM_BAD_ARG)
            fail_msg("misuse %d was let through", which);
        char first[300];
        snprintf(first, sizeof first, "%s", qm_message());
        assert_int_equal(qm_store_number(s, "/", "n", 1), QM_BAD_ARG);
        assert_int_equal(qm_store_commit(s), QM_BAD_ARG);
        assert_non_null(strstr(qm_message(), first));
        assert_int_equal(files_in_folder(), 0);
    }
}

/* Four thousand words of command line and a wide table fit. */
static void large_things_fit(void **state)
{
    enum { WORDS = 5000, COLUMNS = 300 };
    static char *argv[WORDS];
    static struct qm_column column[COLUMNS];
    static char name[COLUMNS][24];
    const double x = 2;
    struct qm_store *s;
    struct qm_result *r;
    double *got;
    int64_t rows;
    (void)state;
    for (int i = 0; i < WORDS; i++)
        argv[i] = "some/long/path/to/a/tensor/file.safetensors";
    for (int i = 0; i < COLUMNS; i++) {
        snprintf(name[i], sizeof name[i], "metric_%d", i);
        column[i] = (struct qm_column){name[i], QM_COLUMN_f64, "1",
                                       "a description as long as those usually are, or longer", &x};
    }
    assert_int_equal(qm_store_open(in_folder("w.h5"), "run", WORDS, argv, &s), QM_OK);
    assert_int_equal(qm_store_table(s, "/wide", "many", 1, COLUMNS, column), QM_OK);
    assert_int_equal(qm_store_commit(s), QM_OK);
    assert_int_equal(qm_result_open(in_folder("w.h5"), &r), QM_OK);
    assert_int_equal(qm_result_f64(r, "/wide", "metric_299", &rows, &got), QM_OK);
    assert_true(rows == 1 && got[0] == 2);
    free(got);
    qm_result_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_read_back),
        cmocka_unit_test(arrays_and_attributes_read_back),
        cmocka_unit_test(readers_refuse_clearly),
        cmocka_unit_test(damage_is_seen),
        cmocka_unit_test(digest_sees_every_change),
        cmocka_unit_test(bytes_repeat),
        cmocka_unit_test(digest_ignores_layout),
        cmocka_unit_test(digest_of_foreign_files),
        cmocka_unit_test(python_reads),
        cmocka_unit_test(h5dump_opens),
        cmocka_unit_test(old_file_stays_until_commit),
        cmocka_unit_test(killed_writers_leave_no_half_file),
        cmocka_unit_test(full_disk),
        cmocka_unit_test(bad_targets),
        cmocka_unit_test(leftovers_are_taken_over),
        cmocka_unit_test(failures_stick),
        cmocka_unit_test(large_things_fit),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
