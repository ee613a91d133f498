/* analyze.c - Times `qualm analyze` of a file in the page cache against reading the file. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "experiments/analyze/analysis.h"
#include "experiments/bench/bench.h"
#include "experiments/cli/cli.h"

/* Seconds of reading a float32 file in the page cache by read(2) into 1 MiB, and of
 * analyzing it. */
struct analyze {
    double read[QM_BENCH_ROUNDS], run[QM_BENCH_ROUNDS];
    int rounds;
};

static qm_status write_file(FILE *f, int64_t gib)
{
    enum { N = 1 << 18 };
    float *x = malloc(sizeof *x * N);
    char head[128];
    int64_t n = gib << 28;
    /* a .npy header of 128 bytes: magic, version 1.0, length 118, a padded dictionary */
    int used = snprintf(head, sizeof head,
                        "\x93NUMPY%c%c%c%c{'descr': '<f4', 'fortran_order': "
                        "False, 'shape': (%lld,), }",
                        1, 0, 118, 0, (long long)n);
    if (!x)
        return qm_fail(QM_NO_MEMORY, "a file of %lld GiB", (long long)gib);
    memset(head + used, ' ', sizeof head - (size_t)used);
    head[127] = '\n';
    qm_bench_fill(x, x + N / 2, N / 2);
    int ok = fwrite(head, 1, sizeof head, f) == sizeof head;
    for (int64_t i = 0; ok && i < n; i += N)
        ok = fwrite(x, sizeof *x, N, f) == N;
    free(x);
    return ok && fflush(f) == 0 ? QM_OK
                                : qm_fail(QM_BAD_FILE, "the temporary file cannot be written");
}

static qm_status read_plainly(const char *path, double *seconds)
{
    char *room = malloc(1 << 20);
    FILE *f = fopen(path, "rb");
    double start = qm_seconds();
    qm_status st = QM_OK;
    if (!room || !f)
        st = qm_fail(QM_BAD_FILE, "%s cannot be read", path);
    while (st == QM_OK && read(fileno(f), room, 1 << 20) > 0)
        ;
    *seconds = qm_seconds() - start;
    if (f)
        fclose(f);
    free(room);
    return st;
}

static qm_status analyze_once(const struct qm_bench *b, const char *path, double *seconds)
{
    struct qm_file *f = NULL;
    struct qm_analysis a = {.skipped = ""};
    struct qm_float_classes classes;
    const struct qm_analysis_options how = {
        .level = QM_METRICS_brief, .seed = 1, .threads = b->threads};
    double start = qm_seconds();
    QM_TRY(qm_codec_parse(&a.codec, "nf4:4s/block:128/bisect/mid/hi"));
    qm_status st = qm_file_open(path, &f);
    a.metrics = qm_metrics_open(QM_METRICS_brief);
    if (st == QM_OK && !a.metrics)
        st = qm_fail(QM_NO_MEMORY, "metrics");
    if (st == QM_OK)
        st = qm_analyze_tensor(f, 0, &a, 1, &how, &classes);
    *seconds = qm_seconds() - start;
    qm_metrics_close(a.metrics);
    qm_file_close(f);
    return st;
}

static qm_status measure(const struct qm_bench *b, const char *path, FILE *f, struct analyze *a)
{
    struct qm_progress bar;
    double cold;
    a->rounds = b->rounds < 5 ? b->rounds : 5;
    qm_progress_start(&bar, "analyze", a->rounds + 1);
    qm_status st = write_file(f, b->gib);
    fclose(f);
    if (st == QM_OK)
        st = read_plainly(path, &cold); /* brings the file into the page cache */
    for (int r = 0; st == QM_OK && r < a->rounds; r++) {
        qm_progress_add(&bar, 1, 0);
        st = read_plainly(path, &a->read[r]);
        if (st == QM_OK)
            st = analyze_once(b, path, &a->run[r]);
    }
    qm_progress_end(&bar);
    return st;
}

static qm_status run(const struct qm_bench *b, void **data)
{
    const char *folder = getenv("TMPDIR");
    char path[512];
    struct analyze *a = calloc(1, sizeof *a);
    *data = a;
    if (!a)
        return qm_fail(QM_NO_MEMORY, "samples");
    snprintf(path, sizeof path, "%s/qualm-bench-XXXXXX", folder && *folder ? folder : "/tmp");
    int fd = mkstemp(path);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "wb");
    if (!f)
        return qm_fail(QM_BAD_FILE, "no temporary file in %s; set TMPDIR",
                       folder ? folder : "/tmp");
    qm_status st = measure(b, path, f, a);
    unlink(path);
    return st;
}

static json_t *print(const struct qm_bench *b, const void *data)
{
    static const char *const heads[] = {"GiB", "threads", "read s", "analyze s", "x read"};
    const struct analyze *a = data;
    double read_s = qm_bench_median(a->read, a->rounds), run_s = qm_bench_median(a->run, a->rounds),
           to_read = qm_bench_ratio(a->rounds, a->run, a->read, 1.0);
    qm_note("analyze: a .npy file in the page cache, nf4 with blocks of 128, default metrics; "
            "reading: read(2) into 1 MiB");
    if (!qm_cli.json) {
        struct qm_table *table = qm_table_open(5, heads);
        qm_table_cell(table, "%lld", (long long)b->gib);
        qm_table_cell(table, "%d", b->threads);
        qm_table_cell(table, "%.3f", read_s);
        qm_table_cell(table, "%.3f", run_s);
        qm_table_cell(table, "%.2f", to_read);
        qm_table_close(table);
    }
    return json_pack("{s:I, s:i, s:f, s:f, s:f}", "gib", (json_int_t)b->gib, "threads", b->threads,
                     "read_s", read_s, "analyze_s", run_s, "to_read", to_read);
}

static qm_status store(const struct qm_bench *b, const void *data, struct qm_store *f)
{
    const struct analyze *a = data;
    (void)b;
    QM_TRY(qm_store_timing(f, "analyze_seconds", a->rounds, a->run, "s", "analyzing the file"));
    return qm_store_timing(f, "read_seconds", a->rounds, a->read, "s", "reading it plainly");
}

const struct qm_bench_part qm_bench_analyze = {"analyze", run, print, store};
