/* bench.h - the parts of `qualm bench`.
 *
 * What is compared is measured in turn within a round, and ratios are taken within rounds: bandwidth
 * on shared machines swings twofold between runs, ratios hardly. */
#ifndef QM_EXPERIMENTS_BENCH_BENCH_H
#define QM_EXPERIMENTS_BENCH_BENCH_H

#include <jansson.h>
#include <stdint.h>

#include "experiments/store.h"

enum { QM_BENCH_ROUNDS = 101, QM_BENCH_STEPS = 96 };

struct qm_bench {
    int64_t n;   /* parameters of a step, a multiple of 2^20 */
    int rounds;  /* 1 to QM_BENCH_ROUNDS */
    int quick;   /* fewer repeats; no rules over whole tensors */
    int threads; /* of the half with all threads */
    int64_t gib; /* of the file that analyze reads */
};

/* A part.  run allocates *data, which free() releases; NULL or what was measured so far on failure.
 * print: a note, a table unless --json, and the rows for it (the caller's). */
struct qm_bench_part {
    const char *name;
    qm_status (*run)(const struct qm_bench *b, void **data);
    json_t *(*print)(const struct qm_bench *b, const void *data);
    qm_status (*store)(const struct qm_bench *b, const void *data, struct qm_store *f);
};

extern const struct qm_bench_part qm_bench_steps, qm_bench_searches, qm_bench_analyze;

/* ---- bench.c ------------------------------------------------------------------------------- */

double qm_bench_median(const double *x, int n); /* n from 1 to QM_BENCH_ROUNDS */

/* Median over rounds of over[r] / under[r] * factor. */
double qm_bench_ratio(int rounds, const double *over, const double *under, double factor);

/* Gradients of every scale from 2^-4 to 2^4, and start values of about 1. */
void qm_bench_fill(float *p, float *g, int64_t n);

/* ---- steps.c measures, steps_table.c prints and stores --------------------------------------- */

/* A step, or the yardstick, with its samples in s: [half][round], half 0: one thread, 1: all; beside
 * them those of adamw_f32 and of the yardstick in the same rounds. */
struct qm_bench_row {
    const char *name;
    int rounds;
    double state_bytes, moved; /* per parameter */
    double time[2][QM_BENCH_ROUNDS], f32[2][QM_BENCH_ROUNDS], yard[2][QM_BENCH_ROUNDS];
};

struct qm_bench_rows {
    int count; /* of steps; the yardstick's row follows */
    struct qm_bench_row row[QM_BENCH_STEPS + 1];
};

json_t *qm_bench_steps_print(const struct qm_bench *b, const void *rows);
qm_status qm_bench_steps_store(const struct qm_bench *b, const void *rows, struct qm_store *f);

#endif
