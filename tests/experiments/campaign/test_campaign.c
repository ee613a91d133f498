/* test_campaign.c - Outcome encoding, segments, ledgers, journals, shards, cell ids, compare. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experiments/campaign/campaign.h"
#include "experiments/campaign/queue.h"
#include "experiments/campaign/writer.h"
#include "experiments/report/compare.h"

static char dir[] = "/tmp/qm_campaign_XXXXXX", path[128];

static int make_dir(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "%s/x", mkdtemp(dir));
    return 0;
}

static int drop_dir(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    return system(command);
}

static char *file(const char *name)
{
    static char text[4][160];
    static int k;
    k = (k + 1) % 4;
    snprintf(text[k], sizeof text[k], "%s/%s", dir, name);
    return text[k];
}

static void write_text(const char *where, const char *text)
{
    FILE *f = fopen(where, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* ---- outcomes ------------------------------------------------------------------------------ */

static uint64_t drawn;

static double any_bits(void)
{
    double x;
    drawn = drawn * 6364136223846793005u + 1442695040888963407u; /* yields NaNs with payloads too */
    uint64_t bits = drawn ^ (drawn >> 29) ^ ((drawn % 5) == 0 ? 0x7FF0000000000000u : 0);
    memcpy(&x, &bits, sizeof x);
    return x;
}

static double *array(int64_t n)
{
    double *x = malloc((size_t)(n > 0 ? n : 1) * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++)
        x[i] = any_bits();
    return x;
}

/* An outcome of random bits.  kind 0: with curves; 1: without; 2: failed, no values; 3:
 * a reason. */
static struct qm_outcome make_outcome(int kind, uint64_t seed)
{
    struct qm_outcome o = {0};
    drawn = seed * 977 + 1;
    o.done = kind != 2;
    o.failed = kind == 2;
    o.diverged = seed % 2 == 0;
    o.reason = kind >= 2 ? strdup(kind == 2 ? "died by SIGSEGV" : "") : NULL;
    o.n = (int64_t)(drawn >> 3);
    o.steps = -7;
    o.bits = any_bits();
    o.value = kind == 2 ? NULL : array(qm_value_count());
    for (int d = 0; d < QM_DECADES; d++) {
        o.decade[d] = (struct qm_decade){d, any_bits(), any_bits(), any_bits()};
        o.unit_decade[d] = (struct qm_decade){-d, any_bits(), any_bits(), any_bits()};
    }
    for (int s = 0; s < QM_MAX_SLOTS && (s < 8 || seed % 3 == 0); s++) {
        o.wanted[s] = (int64_t)(drawn >> (s + 4));
        o.uncoded[s] = seed % 2 ? (int64_t)(drawn >> (s + 9)) : 0;
    }
    o.n_points = kind == 0 ? 17 : 0;
    for (int t = 0; kind == 0 && t < QM_TRACK_COUNT; t++)
        o.track[t] = array(o.n_points);
    for (int t = 0; kind == 0 && t < QM_HITS_COUNT; t++) {
        o.n_hits[t] = 2 * t;
        o.hits[t] = array(o.n_hits[t]);
    }
    return o;
}

static void assert_same_array(const double *a, const double *b, int64_t n)
{
    assert_int_equal(a != NULL, b != NULL);
    if (a)
        assert_memory_equal(a, b, (size_t)n * sizeof *a);
}

static void assert_same(const struct qm_outcome *a, const struct qm_outcome *b)
{
    assert_int_equal(a->done, b->done);
    assert_int_equal(a->failed, b->failed);
    assert_int_equal(a->diverged, b->diverged);
    assert_true(a->n == b->n && a->steps == b->steps && a->n_points == b->n_points);
    assert_memory_equal(&a->bits, &b->bits, sizeof a->bits);
    assert_int_equal(a->reason != NULL, b->reason != NULL);
    if (a->reason)
        assert_string_equal(a->reason, b->reason);
    assert_same_array(a->value, b->value, qm_value_count());
    assert_memory_equal(a->wanted, b->wanted, sizeof a->wanted);
    assert_memory_equal(a->uncoded, b->uncoded, sizeof a->uncoded);
    assert_memory_equal(a->decade, b->decade, sizeof a->decade);
    assert_memory_equal(a->unit_decade, b->unit_decade, sizeof a->unit_decade);
    for (int t = 0; t < QM_TRACK_COUNT; t++)
        assert_same_array(a->track[t], b->track[t], a->n_points);
    for (int t = 0; t < QM_HITS_COUNT; t++) {
        assert_true(a->n_hits[t] == b->n_hits[t]);
        assert_same_array(a->hits[t], b->hits[t], a->n_hits[t]);
    }
}

static void test_pack(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++)
        for (uint64_t seed = 1; seed < 20; seed++) {
            struct qm_outcome o = make_outcome(kind, seed), back, untouched = {.n = 5};
            struct qm_outcome_words p;
            char digest[65], other[65];
            assert_int_equal(qm_outcome_encode(&o, &p), QM_OK);
            assert_int_equal(qm_outcome_decode(p.word, p.n, p.text, &back), QM_OK);
            assert_same(&o, &back);
            qm_outcome_words_digest(p.word, p.n, p.text, digest);
            p.word[p.n / 2] ^= 1; /* one flipped bit changes the digest */
            qm_outcome_words_digest(p.word, p.n, p.text, other);
            assert_string_not_equal(digest, other);
            p.word[p.n / 2] ^= 1;
            qm_outcome_words_digest(p.word, p.n, p.text ? NULL : "", other);
            assert_string_not_equal(digest, other); /* "" differs from NULL */
            assert_int_equal(qm_outcome_decode(p.word, p.n - 1, p.text, &untouched), QM_BAD_FILE);
            p.word[0]++;
            assert_int_equal(qm_outcome_decode(p.word, p.n, p.text, &untouched), QM_BAD_FILE);
            assert_true(untouched.n == 5 && !untouched.value);
            qm_outcome_words_free(&p);
            qm_outcome_free(&o);
            qm_outcome_free(&back);
        }
}

/* ---- segments ------------------------------------------------------------------------------ */

static void add(struct qm_segment *s, int64_t cell, const struct qm_outcome *o)
{
    struct qm_outcome_words p;
    assert_int_equal(qm_outcome_encode(o, &p), QM_OK);
    assert_int_equal(qm_segment_add(s, cell, "0123456789abcdef", 0.5, &p), QM_OK);
    qm_outcome_words_free(&p);
}

static void test_segment(void **state)
{
    (void)state;
    struct qm_segment s = {0}, back = {0};
    char hash[65], again[65];
    for (int i = 0; i < 12; i++) {
        struct qm_outcome o = make_outcome(i % 4, (uint64_t)i + 50);
        add(&s, 100 - i, &o);
        qm_outcome_free(&o);
    }
    char *where = file("1of1.0001.h5");
    assert_int_equal(qm_segment_write(&s, where, hash), QM_OK);
    assert_int_equal(qm_file_hash(where, again), QM_OK);
    assert_string_equal(hash, again);
    assert_int_equal(qm_segment_read(where, &back), QM_OK);
    assert_int_equal(back.rows, 12);
    for (int i = 0; i < 12; i++) {
        struct qm_outcome o = make_outcome(i % 4, (uint64_t)i + 50), got;
        const struct qm_segment_row *r = &back.row[i];
        assert_int_equal(r->cell, 100 - i);
        assert_string_equal(r->digest, s.row[i].digest);
        assert_string_equal(r->status, qm_outcome_status(&o));
        assert_int_equal(qm_outcome_decode(back.word + r->offset, r->length, r->reason, &got),
                         QM_OK);
        assert_same(&o, &got);
        qm_outcome_free(&o);
        qm_outcome_free(&got);
    }
    qm_segment_free(&back);
    assert_int_equal(truncate(where, 3000), 0);
    assert_int_equal(qm_segment_read(where, &back), QM_BAD_FILE);
    qm_segment_free(&back);
    qm_segment_free(&s);
    int64_t nonsense[4] = {1, 2, 3, 4};
    struct qm_outcome_words p = {.n = 4, .word = nonsense};
    assert_int_equal(qm_segment_add(&s, 0, "0123456789abcdef", 0.0, &p), QM_BAD_ARG);
    assert_int_equal(s.rows, 0);
    qm_segment_free(&s);
    unlink(where);
}

/* ---- ledgers ------------------------------------------------------------------------------- */

#define HEX "0000000000000000000000000000000000000000000000000000000000000000"

/* A line with its sum, from the text before it. */
static void summed(FILE *f, const char *text)
{
    char sum[QM_LEDGER_SUM];
    qm_ledger_line_sum(text, strlen(text), sum);
    fprintf(f, "%s,\"sum\":\"%s\"}\n", text, sum);
}

static void segment_line(FILE *f, const char *segment, const char *hash)
{
    char text[400];
    snprintf(text, sizeof text, "{\"segment\":\"%s\",\"sha256\":\"%s\",\"cells\":4", segment, hash);
    summed(f, text);
}

static void line(FILE *f, int cell, const char *id, const char *status, const char *segment)
{
    char text[400];
    snprintf(text, sizeof text,
             "{\"cell\":%d,\"id\":\"%s\",\"status\":\"%s\",\"segment\":\"%s\",\"row\":0,"
             "\"digest\":\"" HEX "\",\"seconds\":1",
             cell, id, status, segment);
    summed(f, text);
}

static void test_ledger_index(void **state)
{
    (void)state;
    struct qm_ledger_index index = {0};
    int64_t best[6];
    char hash[65], id[6][QM_CELL_ID];
    write_text(file("good.h5"), "good");
    assert_int_equal(qm_file_hash(file("good.h5"), hash), QM_OK);
    FILE *f = fopen(file("1of1.jsonl"), "w");
    assert_non_null(f);
    segment_line(f, "good.h5", hash);
    segment_line(f, "bad.h5", hash);
    line(f, 0, "aaaaaaaaaaaaaaaa", "ok", "good.h5");     /* line 0 */
    line(f, 1, "aaaaaaaaaaaaaaaa", "failed", "good.h5"); /* line 1: runs again as line 2 */
    line(f, 1, "aaaaaaaaaaaaaaaa", "ok", "good.h5");     /* line 2: the first that did not fail */
    line(f, 1, "aaaaaaaaaaaaaaaa", "failed", "good.h5"); /* line 3: after a success */
    line(f, 2, "aaaaaaaaaaaaaaaa", "ok", "bad.h5");      /* line 4: its segment is missing */
    line(f, 3, "bbbbbbbbbbbbbbbb", "ok", "good.h5");     /* line 5: the id of another cell */
    line(f, 4, "aaaaaaaaaaaaaaaa", "ok", "none.h5");     /* line 6: no such segment */
    line(f, 9, "aaaaaaaaaaaaaaaa", "ok", "good.h5");     /* line 7: no such cell */
    fputs("{\"cell\": 5, \"id\"\n", f);                  /* a damaged line */
    fputs("{\"cell\":0,\"id\":\"aaaaaaaaaaaaaaaa\",\"status\":\"failed\",\"segment\":\"good.h5\","
          "\"row\":0,\"digest\":\"" HEX "\",\"seconds\":1}\n",
          f);                                            /* one without a sum */
    fputs("{\"cell\":5,\"id\":\"aaaaaaaaaaaaaaaa\"", f); /* a line cut off */
    fclose(f);
    assert_int_equal(qm_ledger_index_read_all(&index, dir), QM_OK);
    assert_int_equal(index.n_lines, 8);
    assert_int_equal(index.bad_lines, 2);
    assert_int_equal(qm_ledger_index_check(&index), 2);
    for (int i = 0; i < 6; i++)
        strcpy(id[i], "aaaaaaaaaaaaaaaa");
    assert_int_equal(qm_ledger_index_resolve(&index, 6, id, best), QM_OK);
    const int64_t want[6] = {0, 2, -1, -1, -1, -1};
    for (int i = 0; i < 6; i++)
        assert_int_equal(best[i], want[i]);
    qm_ledger_index_free(&index);
    /* opening the ledger for writing cuts the half line off, and takes the lock */
    struct qm_ledger l, second;
    assert_int_equal(qm_ledger_open(dir, "1of1", &l), QM_OK);
    assert_int_equal(qm_ledger_is_held(file("1of1.jsonl")), 1);
    assert_int_equal(qm_ledger_open(dir, "1of1", &second), QM_BAD_FILE);
    assert_int_equal(qm_ledger_append(&l, "{}\n", 3), QM_OK);
    qm_ledger_close(&l);
    f = fopen(file("1of1.jsonl"), "r");
    char text[400], last[400] = "", before[400] = "";
    while (fgets(text, sizeof text, f)) {
        strcpy(before, last);
        strcpy(last, text);
    }
    fclose(f);
    assert_string_equal(last, "{}\n");
    assert_non_null(strstr(before, "\"seconds\":1}\n"));
    unlink(file("1of1.jsonl"));
}

/* ---- the journal --------------------------------------------------------------------------- */

/* Cells recovered from a journal of four.  flip: the byte in which a bit is flipped, or -1; cut:
 * bytes removed from the journal's end. */
static int64_t recovered(long flip, long cut)
{
    char id[8][QM_CELL_ID], wanted[8];
    struct qm_writer w;
    int64_t taken = -1;
    int failed;
    for (int i = 0; i < 8; i++)
        snprintf(id[i], sizeof id[i], "%016d", i);
    assert_int_equal(qm_writer_open(dir, "1of2", id, &w), QM_OK);
    for (int i = 0; i < 4; i++) {
        struct qm_outcome o = make_outcome(i == 3 ? 2 : i, (uint64_t)i);
        struct qm_outcome_words p;
        assert_int_equal(qm_outcome_encode(&o, &p), QM_OK);
        assert_int_equal(qm_writer_add(&w, i, 0.1, &p, &failed), QM_OK);
        assert_int_equal(failed, i == 3 || i == 2);
        qm_outcome_words_free(&p);
        qm_outcome_free(&o);
    }
    off_t size = lseek(w.journal, 0, SEEK_END);
    qm_writer_close(&w); /* as after a kill: there is no segment */
    int fd = open(file("1of2.journal"), O_RDWR);
    char byte;
    if (flip >= 0) {
        assert_int_equal(pread(fd, &byte, 1, flip), 1);
        byte ^= 4;
        assert_int_equal(pwrite(fd, &byte, 1, flip), 1);
    }
    assert_int_equal(ftruncate(fd, size - cut), 0);
    close(fd);
    assert_int_equal(qm_writer_open(dir, "1of2", id, &w), QM_OK);
    memset(wanted, 1, sizeof wanted);
    wanted[1] = 0; /* another shard has done it */
    assert_int_equal(qm_writer_recover(&w, 8, wanted, 0, &taken), QM_OK);
    assert_int_equal(lseek(w.journal, 0, SEEK_END), 0);
    qm_writer_close(&w);
    struct qm_ledger_index index = {0};
    assert_int_equal(qm_ledger_index_read(&index, file("1of2.jsonl")), QM_OK);
    assert_int_equal(index.n_lines, taken);
    qm_ledger_index_free(&index);
    unlink(file("1of2.jsonl"));
    return taken;
}

static void test_journal(void **state)
{
    (void)state;
    assert_int_equal(recovered(-1, 0), 1);   /* cell 0; 1 is not wanted, 2 and 3 failed */
    assert_int_equal(recovered(-1, 100), 1); /* half of cell 3's record is gone */
    assert_int_equal(recovered(300, 0), 0);  /* cell 0 is damaged: reading stops there */
}

/* ---- cells and shards ---------------------------------------------------------------------- */

static struct qm_loaded_suite open_text(const char *text)
{
    struct qm_loaded_suite job;
    write_text(path, text);
    if (qm_loaded_suite_open(path, NULL, &job) != QM_OK)
        fail_msg("%s", qm_message());
    return job;
}

static void only_id(const char *text, char *out)
{
    struct qm_loaded_suite job = open_text(text);
    assert_int_equal(job.n_cells, 1);
    qm_cell_id(job.suite, &job.cells[0], out);
    qm_loaded_suite_close(&job);
}

static void test_ids(void **state)
{
    (void)state;
    char base[QM_CELL_ID], other[QM_CELL_ID];
    const char *same[] = {
        "source: dist:gauss\nvariant: ema4_nf4\n",
        "variant:\n  - mine: ema4_nf4\nsource: dist:gauss\nseed: 1\ntitle: x\n",
    };
    const char *different[] = {
        "variant: ema4_uniform\nsource: dist:gauss\n",
        "variant: ema4_nf4\nsource: dist:laplace\n",
        "variant: ema4_nf4\nsource: dist:gauss\nseed: 2\n",
        "variant: ema4_nf4\nsource: dist:gauss\nn: 4096\n",
        "variant: ema4_nf4\nsource: dist:gauss\nsteps: 5\n",
        "variant: ema4_nf4\nsource: dist:gauss\nevery: 5\n",
        "variant: ema4_nf4\nsource: dist:gauss\ncoupling: local\n",
        "variant: ema4_nf4\nsource: dist:gauss\nlr: 1e-3\n",
        "variant: ema4_nf4\nsource: dist:gauss\nexp_avg.norm: \"block:64\"\n",
    };
    only_id("variant: ema4_nf4\nsource: dist:gauss\n", base);
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        only_id(same[i], other);
        assert_string_equal(other, base);
    }
    for (size_t i = 0; i < sizeof different / sizeof *different; i++) {
        only_id(different[i], other);
        assert_string_not_equal(other, base);
    }
    /* another value on an axis does not change the ids of the other cells */
    struct qm_loaded_suite job = open_text("seed: [5, 1]\nvariant: ema4_nf4\nsource: dist:gauss\n");
    qm_cell_id(job.suite, &job.cells[1], other);
    assert_string_equal(other, base);
    qm_loaded_suite_close(&job);
}

#define MIXED                                                                                 \
    "variant: [adamw_f32, adamw4_ao, ema4_nf4]\nsource: [\"problem:quad:n=64\", dist:gauss, " \
    "\"problem:quad:n=1024\", empty]\ncoupling: [closed, oneshot]\nseed: [1, 2, 3, 4, 5]\n"

static void test_shards(void **state)
{
    (void)state;
    static const int counts[] = {1, 2, 7, 100};
    struct qm_loaded_suite job = open_text(MIXED);
    int64_t n = job.n_cells;
    char *seen = calloc((size_t)n, 1), *wanted = calloc((size_t)n, 1);
    assert_non_null(seen);
    assert_non_null(wanted);
    for (int64_t i = 0; i < n; i++)
        wanted[i] = i % 3 != 0;
    for (int k = 0; k < 4; k++) {
        double total = 0.0, most = 0.0;
        memset(seen, 0, (size_t)n);
        for (int s = 0; s < counts[k]; s++) {
            struct qm_queue all, some;
            double cost = 0.0;
            assert_int_equal(qm_queue_open(job.cells, n, s, counts[k], NULL, &all), QM_OK);
            assert_int_equal(qm_queue_open(job.cells, n, s, counts[k], wanted, &some), QM_OK);
            int64_t group = -1, at = 0;
            for (int64_t cell; (cell = qm_queue_take(&all, &group)) >= 0;) {
                seen[cell]++;
                cost += qm_cell_cost(&job.cells[cell]);
                /* wanted[] does not move cells to another shard */
                if (wanted[cell])
                    assert_int_equal(some.cell[at++], cell);
            }
            assert_int_equal(at, some.n);
            total += cost;
            most = fmax(most, cost);
            qm_queue_close(&all);
            qm_queue_close(&some);
        }
        for (int64_t i = 0; i < n; i++)
            assert_int_equal(seen[i], 1); /* every cell in one shard */
        if (counts[k] <= 7)
            assert_true(most < 1.5 * total / counts[k]);
    }
    free(seen);
    free(wanted);
    qm_loaded_suite_close(&job);
}

/* Cells that share a twin come in succession, also for two workers that take in turn. */
static void test_queue_order(void **state)
{
    (void)state;
    struct qm_loaded_suite job =
        open_text("variant: [adamw_f32, adamw4_ao]\ncoupling: closed\n"
                  "source: \"problem:quad:n=64\"\nseed: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]\n");
    struct qm_queue q;
    int64_t group[2] = {-1, -1}, last[2] = {-1, -1}, together = 0, n = 0;
    assert_int_equal(qm_queue_open(job.cells, job.n_cells, 0, 1, NULL, &q), QM_OK);
    for (int w = 0; q.left > 0; w = !w, n++) {
        int64_t cell = qm_queue_take(&q, &group[w]);
        together += last[w] >= 0 && job.cells[cell].seed == job.cells[last[w]].seed;
        last[w] = cell;
    }
    assert_int_equal(n, job.n_cells);
    assert_int_equal(together, n / 2);
    assert_int_equal(qm_queue_take(&q, &group[0]), -1);
    qm_queue_return(&q, 5);
    qm_queue_return(&q, 4);
    assert_int_equal(qm_queue_take(&q, &group[0]), 4);
    assert_int_equal(qm_queue_take(&q, &group[0]), 5);
    assert_int_equal(qm_queue_take(&q, &group[0]), -1);
    qm_queue_close(&q);
    qm_loaded_suite_close(&job);
}

static void test_shard_words(void **state)
{
    (void)state;
    int shard, shards;
    assert_int_equal(qm_shard_parse("3/7", &shard, &shards), QM_OK);
    assert_true(shard == 2 && shards == 7);
    static const char *const bad[] = {"0/7", "8/7", "3", "3/", "/7", "a/7", "3/7x", "-1/7", "3/0"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(qm_shard_parse(bad[i], &shard, &shards), QM_BAD_ARG);
}

/* ---- compare ------------------------------------------------------------------------------- */

enum { CELLS = 8 };

static void write_run(const char *where, const double *sqnr, const double *nmse, int first)
{
    char id[CELLS][8];
    const char *ids[CELLS], *variant[CELLS], *status[CELLS];
    for (int i = 0; i < CELLS; i++) { /* ids from `first` on, in descending order */
        snprintf(id[i], sizeof id[i], "c%02d", first + CELLS - 1 - i);
        ids[i] = id[i];
        variant[i] = "v";
        status[i] = "ok";
    }
    struct qm_column cells[] = {{"id", QM_COLUMN_text, "", "id", ids},
                                {"variant", QM_COLUMN_text, "", "variant", variant},
                                {"status", QM_COLUMN_text, "", "status", status}};
    struct qm_column metrics[] = {{"sqnr", QM_COLUMN_f64, "dB", "sqnr", sqnr},
                                  {"nmse", QM_COLUMN_f64, "1", "nmse", nmse}};
    struct qm_store *s;
    assert_int_equal(qm_store_open(where, "run", 0, NULL, &s), QM_OK);
    assert_int_equal(qm_store_table(s, "/cells", "cells", CELLS, 3, cells), QM_OK);
    assert_int_equal(qm_store_table(s, "/metrics", "metrics", CELLS, 2, metrics), QM_OK);
    assert_int_equal(qm_store_commit(s), QM_OK);
}

static const struct qm_compare_row *find(const struct qm_comparison *c, const char *metric)
{
    for (int i = 0; i < c->n_rows; i++)
        if (strcmp(c->row[i].metric, metric) == 0)
            return &c->row[i];
    return NULL;
}

static void test_compare(void **state)
{
    (void)state;
    double a[CELLS], b[CELLS], nmse[CELLS];
    for (int i = 0; i < CELLS; i++) {
        a[i] = 20.0 + i;
        b[i] = a[i] - 0.25 * (1 + i % 2); /* differences alternate between -0.25 and -0.5 */
        nmse[i] = i == 3 ? nan("") : 0.5;
    }
    char *fa = file("a.h5"), *fb = file("b.h5");
    write_run(fa, a, nmse, 0);
    write_run(fb, b, nmse, 0);
    struct qm_comparison c;
    assert_int_equal(qm_compare(fa, fb, NULL, 0, 0.0, &c), QM_OK);
    assert_int_equal(c.pairs, CELLS);
    const struct qm_compare_row *r = find(&c, "sqnr");
    /* mean -3/8; deviation (1/8) sqrt(8/7); t(7, 0.975) = 2.364624 */
    assert_true(fabs(r->mean + 0.375) < 1e-12);
    double half = 2.364624251592785 * 0.125 * sqrt(8.0 / 7.0) / sqrt(8.0);
    assert_true(fabs(r->hi - (r->mean + half)) < 1e-9 && fabs(r->lo - (r->mean - half)) < 1e-9);
    assert_int_equal(r->verdict, QM_COMPARED_worse);
    assert_int_equal(c.worse, 1);
    r = find(&c, "nmse");
    assert_true(r->n == 7 && r->equal == 7 && r->verdict == QM_COMPARED_same);
    qm_comparison_free(&c);
    /* with the files exchanged the verdict is `better`; a margin gives `within` */
    assert_int_equal(qm_compare(fb, fa, NULL, 0, 0.0, &c), QM_OK);
    assert_int_equal(find(&c, "sqnr")->verdict, QM_COMPARED_better);
    assert_int_equal(c.worse, 0);
    qm_comparison_free(&c);
    assert_int_equal(qm_compare(fa, fb, NULL, 0, 0.4, &c), QM_OK);
    assert_int_equal(find(&c, "sqnr")->verdict, QM_COMPARED_within);
    qm_comparison_free(&c);
    /* '-' reverses the direction of the metric */
    char turned[] = "sqnr-", *metric[] = {turned};
    assert_int_equal(qm_compare(fa, fb, metric, 1, 0.0, &c), QM_OK);
    assert_int_equal(c.row[0].verdict, QM_COMPARED_better);
    qm_comparison_free(&c);
    /* cells pair by id, not by row: the ids of b begin four later */
    write_run(fb, a, nmse, 4);
    assert_int_equal(qm_compare(fa, fb, NULL, 0, 0.0, &c), QM_OK);
    assert_int_equal(c.pairs, 4);
    assert_true(find(&c, "sqnr")->mean == 4.0);
    qm_comparison_free(&c);
    write_run(fb, a, nmse, 50);
    assert_int_equal(qm_compare(fa, fb, NULL, 0, 0.0, &c), QM_NO_MATCH);
    /* noise around 0 is no regression */
    for (int i = 0; i < CELLS; i++)
        b[i] = a[i] + (i % 2 ? 0.25 : -0.26);
    write_run(fb, b, nmse, 0);
    assert_int_equal(qm_compare(fa, fb, NULL, 0, 0.0, &c), QM_OK);
    assert_int_equal(find(&c, "sqnr")->verdict, QM_COMPARED_unclear);
    qm_comparison_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pack),         cmocka_unit_test(test_segment),
        cmocka_unit_test(test_ledger_index), cmocka_unit_test(test_journal),
        cmocka_unit_test(test_ids),          cmocka_unit_test(test_shards),
        cmocka_unit_test(test_queue_order),  cmocka_unit_test(test_shard_words),
        cmocka_unit_test(test_compare),
    };
    return cmocka_run_group_tests(tests, make_dir, drop_dir);
}
