/* test_report.c - Reports of gpu-check: names that are nobody else's, figures that are none, names
 * of devices that are no words, damaged files.
 *
 * No GPU and no emulator: the reports are made here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "experiments/foreign/file_sum.h"
#include "tests/support/gpu_report_sample.h"

enum { NAMES = 4, FLIPS = 30, RUNS = 8 };

static char folder[] = "/tmp/qm-report-XXXXXX";
static uint64_t state = 20261122;

static uint32_t draw(uint32_t below)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((state >> 33) % below);
}

/* A row of each part whose status is ok. */
static json_t *good_row(enum qm_gpu_part part)
{
    json_t *key = json_pack("{s:s}", qm_gpu_columns(part)->name, "adamw_f32");
    json_t *row = sample_row(part, key);
    json_decref(key);
    return row;
}

/* ---- names ----------------------------------------------------------------------------------- */

/* Processes that ask at once in one second get a name each; nobody else gets a lock that is held,
 * and the lock ends with the process. */
static void names_are_nobody_elses(void **unused)
{
    char path[256], other[300], taken[RUNS][256];
    int both[2], lock = -1, fd = -1, n = 0;
    (void)unused;
    assert_int_equal(pipe(both), 0);
    pid_t pid[RUNS];
    for (int k = 0; k < RUNS; k++)
        if ((pid[k] = fork()) == 0) {
            memset(path, 0, sizeof path);
            qm_status st = qm_gpu_report_name(folder, "A|B\n", "all", path, sizeof path, &lock);
            if (st != QM_OK || lock < 0 || write(both[1], path, 256) != 256)
                _exit(1);
            for (;;)
                pause();
        }
    for (; n < RUNS; n++) {
        assert_int_equal(read(both[0], taken[n], 256), 256);
        for (int k = 0; k < n; k++)
            assert_string_not_equal(taken[k], taken[n]);
        assert_int_equal(qm_gpu_report_lock(taken[n], &fd), QM_OK);
        assert_int_equal(fd, -1); /* held */
    }
    for (int k = 0; k < RUNS; k++) {
        kill(pid[k], SIGKILL);
        waitpid(pid[k], NULL, 0);
    }
    assert_int_equal(qm_gpu_report_lock(taken[0], &fd), QM_OK);
    assert_true(fd >= 0);
    qm_gpu_report_unlock(taken[0], fd);
    snprintf(other, sizeof other, "%s.lock", taken[0]);
    assert_int_not_equal(access(other, F_OK), 0);
    assert_non_null(strstr(taken[0], "/a-b-all-"));
    assert_int_equal(qm_gpu_report_lock("/proc/none/x", &fd), QM_BAD_FILE);
}

/* ---- figures --------------------------------------------------------------------------------- */

/* A row with status ok whose figure is missing, 0, negative or too large is no good row. */
static void figures_must_be_numbers(void **unused)
{
    static const struct {
        enum qm_gpu_part part;
        const char *name;
    } figures[] = {{QM_GPU_speed, "seconds"},       {QM_GPU_speed, "share_of_copy"},
                   {QM_GPU_speed, "rate"},          {QM_GPU_speed, "copy_rate"},
                   {QM_GPU_tables, "seconds"},      {QM_GPU_peers, "peer_seconds"},
                   {QM_GPU_peers, "ratio"},         {QM_GPU_tables, "least_seconds"},
                   {QM_GPU_tables, "graph_seconds"}};
    (void)unused;
    for (int i = 0; i < QM_GPU_PARTS; i++) {
        json_t *row = good_row((enum qm_gpu_part)i);
        assert_int_equal(qm_gpu_row_verdict((enum qm_gpu_part)i, row), QM_GPU_good);
        json_object_del(row, "status");
        assert_int_equal(qm_gpu_row_verdict((enum qm_gpu_part)i, row), QM_GPU_broken);
        json_decref(row);
    }
    for (size_t k = 0; k < sizeof figures / sizeof *figures; k++)
        for (int how = 0; how < 4; how++) {
            json_t *row = good_row(figures[k].part);
            if (how == 0) /* JSON has no NaN: it is as if the figure were missing */
                json_object_del(row, figures[k].name);
            else
                json_object_set_new(row, figures[k].name,
                                    json_real(how == 1   ? 0.0
                                              : how == 2 ? -1.0
                                                         : -0.0));
            int is_optional = how == 0 && strcmp(figures[k].name, "graph_seconds") == 0;
            assert_int_equal(qm_gpu_row_verdict(figures[k].part, row),
                             is_optional ? QM_GPU_good : QM_GPU_broken);
            if (!is_optional)
                assert_string_equal(qm_gpu_row_flaw(figures[k].part, row), figures[k].name);
            json_decref(row);
        }
}

/* Figures that a row may lack, and that are none of a GPU. */
static void figures_must_be_possible(void **unused)
{
    static const struct {
        const char *name;
        double value;
    } odd[] = {{"local_bytes", -5},      {"local_bytes", 1e9}, {"occupancy", -0.375},
               {"occupancy", 1.001},     {"registers", -1},    {"spill_bytes", 1e12},
               {"shared_bytes", -64},    {"rounds", 0},        {"bytes_per_parameter", -1},
               {"sm_mhz", 4294967290.0}, {"watts", -3},        {"compile_seconds", -0.5}};
    (void)unused;
    for (size_t k = 0; k < sizeof odd / sizeof *odd; k++) {
        json_t *row = good_row(QM_GPU_speed);
        json_object_set_new(row, odd[k].name,
                            json_is_integer(json_object_get(row, odd[k].name))
                                ? json_integer((json_int_t)odd[k].value)
                                : json_real(odd[k].value));
        assert_int_equal(qm_gpu_row_verdict(QM_GPU_speed, row), QM_GPU_broken);
        assert_string_equal(qm_gpu_row_flaw(QM_GPU_speed, row), odd[k].name);
        json_object_del(row, odd[k].name);
        assert_int_equal(qm_gpu_row_verdict(QM_GPU_speed, row), QM_GPU_good);
        json_decref(row);
    }
}

/* ---- names of devices ------------------------------------------------------------------------ */

/* Bytes that break pages: drawn among those that mean something somewhere. */
static void draw_name(char *name, int size)
{
    static const char bytes[] =
        "|\n\r\t`<>&\\*_[]()#!~$\"'\x1b\x7f\x01\xff\xc3\x80\xed\xa0\xf5 aZ0";
    int n = (int)draw((uint32_t)size - 1);
    for (int i = 0; i < n; i++)
        name[i] = bytes[draw(sizeof bytes - 1)];
    name[n] = '\0';
}

/* Cells of a line of a table: '|' that is not escaped, less one. */
static int cells(const char *line)
{
    int n = -1;
    for (const char *c = line; *c; c++)
        if (*c == '\\' && c[1])
            c++;
        else
            n += *c == '|';
    return n;
}

/* A page has no control characters, no HTML, and as many cells in each line as in the head. */
static void expect_page(const char *page)
{
    char line[65536];
    int head = 0, number = 0;
    FILE *f = fopen(page, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        if (number++ == 0)
            assert_true(strncmp(line, "# ", 2) == 0);
        else
            assert_false(line[0] == '#' && line[1] == ' ');
        for (const char *c = line; *c; c++)
            if ((unsigned char)*c < ' ' || *c == 127 || *c == '<')
                fail_msg("%s:%d: byte 0x%02x: %s", page, number, (unsigned char)*c, line);
        head = *line != '|' ? 0 : head ? head : cells(line);
        if (*line == '|' && cells(line) != head)
            fail_msg("%s:%d: %d cells, want %d: %s", page, number, cells(line), head, line);
    }
    fclose(f);
}

static void any_name_makes_a_report(void **unused)
{
    char path[4096], file[4200], name[40], *words[] = {(char *)(uintptr_t) "gpu-check"};
    (void)unused;
    print_message("seed %llu\n", (unsigned long long)state);
    snprintf(path, sizeof path, "%s/named", folder);
    for (int k = 0; k < NAMES; k++) {
        draw_name(name, sizeof name);
        struct qm_gpu_report r = sample_report(name), again;
        for (int i = 0; i < QM_GPU_PARTS; i++) {
            json_t *row = json_array_get(r.rows[i], 0);
            char status[80];
            snprintf(status, sizeof status, "failed: %s", name);
            for (const struct qm_gpu_column *c = qm_gpu_columns((enum qm_gpu_part)i); c->name; c++)
                if (!c->is_key && c->type != 't')
                    json_object_del(row, c->name);
            json_object_set_new(row, "status", qm_json_text(status));
        }
        json_object_set_new(json_array_get(r.rows[QM_GPU_peers], 0), "peer", qm_json_text(name));
        json_object_set_new(r.device, "driver", qm_json_text(name));
        if (qm_gpu_report_write(&r, path, 1, words) != QM_OK)
            fail_msg("%s", qm_message());
        snprintf(file, sizeof file, "%s.md", path);
        expect_page(file);
        snprintf(file, sizeof file, "%s.h5", path);
        if (qm_gpu_report_read(file, &again) != QM_OK)
            fail_msg("%s", qm_message());
        assert_true(json_equal(r.device, again.device));
        char side[4200], *files[] = {file, file};
        snprintf(side, sizeof side, "%s/side.md", folder);
        FILE *f = fopen(side, "w");
        assert_int_equal(qm_gpu_report_beside(f, files, 2), QM_OK);
        fclose(f);
        expect_page(side);
        char command[4300];
        snprintf(command, sizeof command, "grep -qF '**2 is the same report as 1.**' '%s'", side);
        assert_int_equal(system(command), 0);
        qm_gpu_report_free(&r);
        qm_gpu_report_free(&again);
    }
}

/* ---- damaged files --------------------------------------------------------------------------- */

static char *bytes_of(const char *path, long *n)
{
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    *n = ftell(f);
    rewind(f);
    char *bytes = malloc((size_t)*n);
    assert_int_equal(fread(bytes, 1, (size_t)*n, f), *n);
    fclose(f);
    return bytes;
}

/* Flipped bits, a cut: the report is read or refused in one line, and this process
 * lives.  Reports that are read can be laid beside each other. */
static void damaged_files_are_refused(void **unused)
{
    char path[4096], file[4200], *words[] = {(char *)(uintptr_t) "gpu-check"}, *files[] = {file};
    struct qm_gpu_report r = sample_report("Card"), again;
    FILE *nothing = fopen("/dev/null", "w");
    long n, refused = 0;
    (void)unused;
    print_message("seed %llu\n", (unsigned long long)state);
    snprintf(path, sizeof path, "%s/damaged", folder);
    assert_int_equal(qm_gpu_report_write(&r, path, 1, words), QM_OK);
    snprintf(file, sizeof file, "%s.h5", path);
    char *whole = bytes_of(file, &n), *bytes = malloc((size_t)n);
    for (int k = 0; k < FLIPS; k++) {
        long at = (long)draw((uint32_t)n), length = k % 10 == 0 ? (long)draw((uint32_t)n) : n;
        FILE *f = fopen(file, "w");
        if (k % 4 == 0) /* damage also adds up */
            memcpy(bytes, whole, (size_t)n);
        bytes[at] = (char)(bytes[at] ^ 1 << draw(8));
        assert_int_equal(fwrite(bytes, 1, (size_t)length, f), length);
        fclose(f);
        qm_status st = qm_gpu_report_read(file, &again);
        if (st != QM_OK && (st != QM_BAD_FILE || !strstr(qm_message(), file)))
            fail_msg("status %d: %s", (int)st, qm_message());
        refused += st != QM_OK;
        if (st == QM_OK) {
            assert_int_equal(qm_gpu_report_beside(nothing, files, 1), QM_OK);
            qm_gpu_report_free(&again);
        }
    }
    print_message("%ld of %d damaged files refused\n", refused, FLIPS);
    assert_true(refused > 0);
    free(whole);
    free(bytes);
    fclose(nothing);
    qm_gpu_report_free(&r);
}

static void write_bytes(const char *file, const char *bytes, long n)
{
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, (size_t)n, f), n);
    fclose(f);
}

/* Without its checksum line a report is read as long as its digest is right: a flipped bit is seen,
 * or changes nothing that is read.  One with a checksum line and another digest, or none, is
 * refused too. */
static void digest_decides(void **unused)
{
    char path[4096], file[4200], *words[] = {(char *)(uintptr_t) "gpu-check"}, line[64];
    struct qm_gpu_report r = sample_report("Card"), again;
    long n, refused = 0;
    (void)unused;
    print_message("seed %llu\n", (unsigned long long)state);
    snprintf(path, sizeof path, "%s/sealed", folder);
    assert_int_equal(qm_gpu_report_write(&r, path, 1, words), QM_OK);
    snprintf(file, sizeof file, "%s.h5", path);
    char *bytes = bytes_of(file, &n);
    n -= QM_FILE_SUM_LINE;
    write_bytes(file, bytes, n);
    assert_int_equal(qm_gpu_report_read(file, &again), QM_OK);
    qm_gpu_report_free(&again);
    for (int k = 0; k < FLIPS; k++) {
        long at = (long)draw((uint32_t)n);
        char bit = (char)(1 << draw(8));
        bytes[at] ^= bit;
        write_bytes(file, bytes, n);
        bytes[at] ^= bit;
        if (qm_gpu_report_read(file, &again) != QM_OK) {
            refused++;
            continue;
        }
        for (int i = 0; i < QM_GPU_PARTS; i++)
            assert_true(json_equal(again.rows[i], r.rows[i]));
        assert_true(json_equal(again.plan, r.plan) && json_equal(again.device, r.device));
        qm_gpu_report_free(&again);
    }
    print_message("%ld of %d flipped bits refused\n", refused, FLIPS);
    char *digest = memmem(bytes, (size_t)n, "digest", 7); /* the name of the attribute */
    assert_non_null(digest);
    for (int how = 0; how < 2; how++) { /* another name: none; another digit */
        char *at = digest;
        while (how && !(strspn(at, "0123456789abcdef") >= 64))
            at++;
        *at ^= 1;
        FILE *f = fopen(file, "w");
        qm_file_sum_line(bytes, (size_t)n, line);
        assert_int_equal(fwrite(bytes, 1, (size_t)n, f), n);
        assert_int_equal(fwrite(line, 1, sizeof line, f), sizeof line);
        fclose(f);
        *at ^= 1;
        assert_int_equal(qm_gpu_report_read(file, &again), QM_BAD_FILE);
        if (!strstr(qm_message(), how ? "its digest is not that of what it says" : "no digest"))
            fail_msg("%s", qm_message());
    }
    free(bytes);
    qm_gpu_report_free(&r);
}

/* What killed writers left of this report goes, and nothing else. */
static void parts_are_swept(void **unused)
{
    static const char *const names[] = {"a.h5.12.part", "a.md.7.part",   "a.h5",
                                        "a.h5.x.part",  "a.h5.12.partx", "a-2.h5.12.part",
                                        "b.md.7.part"};
    char path[256];
    (void)unused;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        write_bytes(path, "x", 1);
    }
    snprintf(path, sizeof path, "%s/a", folder);
    qm_gpu_report_sweep(path);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        assert_int_equal(access(path, F_OK) == 0, i >= 2);
    }
}

/* What killed writers of any report of a folder left goes with its lock; a lock that somebody holds
 * stays, with what its writer has begun. */
static void folders_are_swept(void **unused)
{
    static const char *const names[] = {"k.h5.12.part", "k.lock", "k.h5", "l.h5.12.part", "l.lock"};
    char own[64], path[256];
    int lock = -1, both[2];
    (void)unused;
    snprintf(own, sizeof own, "%s/sweep", folder);
    assert_int_equal(mkdir(own, 0777), 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", own, names[i]);
        write_bytes(path, "x", 1);
    }
    assert_int_equal(pipe(both), 0);
    pid_t pid = fork();
    if (pid == 0) {
        snprintf(path, sizeof path, "%s/l", own);
        qm_status st = qm_gpu_report_lock(path, &lock);
        if (write(both[1], &st, sizeof st) == (ssize_t)sizeof st)
            pause();
        _exit(0);
    }
    qm_status st;
    assert_int_equal(read(both[0], &st, sizeof st), sizeof st);
    qm_gpu_report_sweep_folder(own);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", own, names[i]);
        assert_int_equal(access(path, F_OK) == 0, i >= 2);
    }
}

static int prepare(void **unused)
{
    (void)unused;
    setenv("SOURCE_DATE_EPOCH", "0", 1);
    return mkdtemp(folder) ? 0 : 1;
}

static int clean(void **unused)
{
    char command[64];
    (void)unused;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) != 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_nobody_elses),    cmocka_unit_test(figures_must_be_numbers),
        cmocka_unit_test(any_name_makes_a_report),   cmocka_unit_test(figures_must_be_possible),
        cmocka_unit_test(damaged_files_are_refused), cmocka_unit_test(digest_decides),
        cmocka_unit_test(parts_are_swept),           cmocka_unit_test(folders_are_swept),
    };
    return cmocka_run_group_tests(tests, prepare, clean);
}
