/* bench.h - the parts of `qualm bench`.
 *
 * What is compared is measured in turn within a round, and ratios are taken within rounds: bandwidth
 * on shared machines swings twofold between runs, ratios hardly. */
#ifndef QM_EXPERIMENTS_BENCH_BENCH_H
#define QM_EXPERIMENTS_BENCH_BENCH_H

#include <jansson.h>
#include <stdint.h>

#include "experiments/store/store.h"

enum { QM_BENCH_ROUNDS = 101, QM_BENCH_STEPS = 96 };

struct qm_bench {
    int64_t n;        /* parameters of a step, a multiple of 2^20 */
    int rounds;       /* 1 to QM_BENCH_ROUNDS */
    int quick;        /* fewer repeats; no rules over whole tensors */
    int threads;      /* of the half with all threads */
    int64_t gib;      /* of the file that analyze reads */
    const char *step; /* only steps that qm_name_matches this, and adamw_f32; NULL: all */
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

/* ---- roofline.c ----------------------------------------------------------------------------------- */

/* What a machine gives: memory, a += s * b in place over arrays far larger than the caches; registers,
 * QM_BENCH_OPS operations per parameter, which bound what another thread adds to arithmetic. */
enum qm_bench_yard { QM_BENCH_MEMORY, QM_BENCH_REGISTERS, QM_BENCH_YARDS };
enum { QM_BENCH_OPS = 48 };

/* Of n parameters, a multiple of 2^16, on so many threads; registers touches neither a nor b. */
double qm_bench_yard_seconds(enum qm_bench_yard yard, float *a, const float *b, int64_t n,
                             int threads);

/* registers.c: multiplications and additions of floats in chains that do not wait for each other. */
struct qm_bench_registers {
    int numbers; /* at once: lanes times chains; 192 or a divisor of it */

    /* x = x * times + plus, rounded twice, `rounds` times from x = 0, 1, ... numbers - 1 on; their
     * sum in that order.  0 < times < 1 keeps them away from Inf and, with plus, from subnormals. */
    float (*run)(int64_t rounds, float times, float plus);
};

/* For the instruction set in use. */
const struct qm_bench_registers *qm_bench_registers(void);

/* ---- steps.c measures, steps_table.c prints and stores ----------------------------------------- */

/* A step or a yardstick with its samples in s: [half][round], half 0: one thread, 1: all; beside them
 * those of adamw_f32 and of the yardsticks in the same rounds. */
struct qm_bench_row {
    const char *name;
    int rounds;
    double state_bytes, moved; /* per parameter */
    double time[2][QM_BENCH_ROUNDS], f32[2][QM_BENCH_ROUNDS];
    double yard[QM_BENCH_YARDS][2][QM_BENCH_ROUNDS];
};

struct qm_bench_rows {
    int count; /* of steps; the yardsticks' rows follow */
    struct qm_bench_row row[QM_BENCH_STEPS + QM_BENCH_YARDS];
};

/* What a row's samples say: medians over rounds of what each round says. */
struct qm_bench_summary {
    double rate;                 /* parameters per second; in registers: operations per second */
    double to_f32, of_yardstick; /* over adamw_f32's rate, over the bandwidth; in registers: NaN */
    double speedup;              /* from one thread to all */
    double scaling[QM_BENCH_YARDS]; /* the same, over a yardstick's */
};

/* Row v of rows, half h. */
struct qm_bench_summary qm_bench_summary(const struct qm_bench *b, const struct qm_bench_rows *rows,
                                         int v, int h);

json_t *qm_bench_steps_print(const struct qm_bench *b, const void *rows);
qm_status qm_bench_steps_store(const struct qm_bench *b, const void *rows, struct qm_store *f);

#endif
