/* test_store.c - Result files are read back as written, and appear whole or not at all. */
#include "tests/support/result_sample.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

/* ---- written values are read back ---------------------------------------------------------- */

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
        assert_int_equal(((uint8_t *)t.data)[i], pixel(i));
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
    assert_int_equal(qm_result_f64(r, "/cells", "cell", &rows, &x), QM_BAD_FILE);
    assert_int_equal(qm_result_i64(r, "/cells", "loss", &rows, &whole), QM_BAD_FILE);
    assert_int_equal(qm_result_texts(r, "/cells", "loss", &rows, &text), QM_BAD_FILE);
    assert_int_equal(qm_result_array(r, "/cells", &t), QM_BAD_FILE);
    assert_int_equal(qm_result_array(r, "/a", &t), QM_BAD_FILE);
    assert_int_equal(qm_result_f64(r, "/a/half", "x", &rows, &x), QM_BAD_FILE);
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
    free(bytes);
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

/* The plots' shared module reads the file, and draws equal bytes twice. */
static void plots_read_and_repeat(void **state)
{
    (void)state;
    if (system("/usr/bin/python3 -c 'import h5py, matplotlib' 2>/dev/null") != 0)
        skip();
    assert_int_equal(sample(in_folder("p.h5"), SAME), QM_OK);
    shell("/usr/bin/python3 -B -c \"\n"
          "import sys; sys.path.insert(0, 'plots/figures')\n"
          "import common\n"
          "f = common.load('%s', kinds=('run',))\n"
          "c = common.table(f, '/cells')\n"
          "assert c['cell'].tolist() == ['a1', 'b22', '', 'caf\\u00e9', 'y'], c\n"
          "assert common.columns(f, '/metrics')['sqnr'] == ('dB', 'SQNR')\n"
          "for name in ('one', 'two'):\n"
          "    fig, ax = common.figure()\n"
          "    for i, y in enumerate(common.curves(f, '/curves/loss')):\n"
          "        ax.plot(y, label=str(i), **common.look(i))\n"
          "    ax.set_ylabel(common.label('SQNR', common.unit(f, '/metrics', 'sqnr')))\n"
          "    common.save(fig, '%s', name)\n\" > %s",
          in_folder("p.h5"), folder, in_folder("out.txt"));
    for (int i = 0; i < 2; i++) {
        const char *suffix = i ? "svg" : "png";
        shell("cd %s && cmp one.%s two.%s", folder, suffix, suffix);
    }
}

/* ---- whole or not at all ------------------------------------------------------------------- */

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

/* Waits until the file exists, at most ten seconds. */
static int appears(const char *path)
{
    for (int i = 0; i < 1000 && access(path, F_OK) != 0; i++)
        nanosleep(&(struct timespec){0, 10000000}, NULL);
    return access(path, F_OK) == 0;
}

/* A writer is killed at 24 moments within about three writes, then once after a complete write. */
static void killed_writers_leave_no_half_file(void **state)
{
    enum { TURNS = 24 };
    char one[65], two[65], got[65];
    struct timespec from, to;
    int caught = 0;
    (void)state;
    folder_empty();
    assert_int_equal(sample(in_folder("k.h5"), SAME), QM_OK);
    digest_of(in_folder("k.h5"), one);
    clock_gettime(CLOCK_MONOTONIC, &from);
    assert_int_equal(sample(in_folder("k.h5"), LAST_METRIC), QM_OK);
    clock_gettime(CLOCK_MONOTONIC, &to);
    digest_of(in_folder("k.h5"), two);
    unlink(in_folder("k.h5"));
    long long spent = (to.tv_sec - from.tv_sec) * 1000000000LL + (to.tv_nsec - from.tv_nsec);
    for (int turn = 0; turn <= TURNS; turn++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            child_writes_for_ever();
        long long wait = 3 * spent * turn / TURNS;
        if (turn < TURNS)
            nanosleep(&(struct timespec){wait / 1000000000, wait % 1000000000}, NULL);
        else
            assert_true(appears(in_folder("k.h5")));
        assert_int_equal(kill(child, SIGKILL), 0);
        int how;
        assert_int_equal(waitpid(child, &how, 0), child);
        assert_true(WIFSIGNALED(how));
        int there = access(in_folder("k.h5"), F_OK) == 0;
        if (there) {
            digest_of(in_folder("k.h5"), got);
            assert_true(strcmp(got, one) == 0 || strcmp(got, two) == 0);
        }
        caught += files_in_folder() > there; /* a temporary file: the writer was at work */
    }
    assert_true(caught > 0);
    folder_empty();
}

/* A full disk is simulated by a limit on the file size. */
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

/* The temporary file of a dead process with our pid neither blocks a write nor survives it. */
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

/* Each misuse is refused, and after a refusal the store writes no file. */
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

/* A command line of four thousand words and a wide table fit. */
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
        cmocka_unit_test(python_reads),
        cmocka_unit_test(h5dump_opens),
        cmocka_unit_test(plots_read_and_repeat),
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
