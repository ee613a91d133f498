/* bench.h - The parts of `qualm bench`: steps, searches, analyze, peers.
 *
 * All steps are measured in turn within a round, and ratios are taken within rounds: on shared
 * machines bandwidth changes twofold between runs, ratios hardly change. */
#ifndef QM_EXPERIMENTS_BENCH_BENCH_H
#define QM_EXPERIMENTS_BENCH_BENCH_H

#include <jansson.h>
#include <stdint.h>

#include "core/recipe/recipe.h"
#include "experiments/store/store.h"

enum { QM_BENCH_ROUNDS = 101, QM_BENCH_STEPS = 96 };

struct qm_bench {
    int64_t n;         /* parameters of a step, a multiple of 2^20 */
    int rounds;        /* 1 to QM_BENCH_ROUNDS */
    int quick;         /* fewer repeats; no rules over whole tensors */
    int threads;       /* number of threads of the half with all threads */
    int64_t gib;       /* size of the file that analyze reads */
    const char *step;  /* only steps that qm_name_matches this, and adamw_f32; NULL: all; of peers,
                       * only such names */
    const char *peers; /* the command line of the program that times peers; NULL: none */
};

/* The most millions (2^20) of parameters whose steps fit into nine tenths of the memory that is
 * free: those of all wanted elementwise variants are held at once, two plans each.  0: not even
 * one; INT64_MAX: nobody says how much is free. */
int64_t qm_bench_steps_fit(const struct qm_bench *b);

/* A part.  run allocates *data, which free() releases; on failure *data is NULL or holds the
 * measurements so far.  print writes a note and, unless --json, a table; it returns the rows as
 * JSON, which the caller owns. */
struct qm_bench_part {
    const char *name;
    qm_status (*run)(const struct qm_bench *b, void **data);
    json_t *(*print)(const struct qm_bench *b, const void *data);
    qm_status (*store)(const struct qm_bench *b, const void *data, struct qm_store *f);
};

extern const struct qm_bench_part qm_bench_steps, qm_bench_searches, qm_bench_analyze,
    qm_bench_peers;

/* ---- bench.c --------------------------------------------------------------------------------- */

double qm_bench_median(const double *x, int n); /* n from 1 to QM_BENCH_ROUNDS */

/* Median over rounds of over[r] / under[r] * factor. */
double qm_bench_ratio(int rounds, const double *over, const double *under, double factor);

/* Fills g with gradients of every scale from 2^-4 to 2^4, and p with start values of about 1. */
void qm_bench_fill(float *p, float *g, int64_t n);

/* ---- roofline.c ------------------------------------------------------------------------------ */

/* The roofs of a machine (the output calls them yardsticks).  Memory: a += s * b in place over
 * arrays far larger than the caches, the bandwidth.  Registers: QM_BENCH_OPS operations per
 * parameter, the peak of arithmetic, which bounds the speed-up of arithmetic by threads. */
enum qm_bench_roof { QM_BENCH_MEMORY, QM_BENCH_REGISTERS, QM_BENCH_ROOFS };
enum { QM_BENCH_OPS = 48 };

/* The seconds of a roof's kernel for n parameters, a multiple of 2^16; registers touches neither a
 * nor b. */
double qm_bench_roof_seconds(enum qm_bench_roof roof, float *a, const float *b, int64_t n,
                             int threads);

/* registers.c: multiplications and additions of floats in independent chains. */
struct qm_bench_registers {
    int numbers; /* the number of chains times lanes: 192 or a divisor of it */

    /* Applies x = x * times + plus, rounded twice, `rounds` times to each of the numbers x = 0, 1,
     * ... numbers - 1, and returns the sum of the results in that order.  0 < times < 1 keeps them
     * away from Inf and, with plus, from subnormals. */
    float (*run)(int64_t rounds, float times, float plus);
};

/* For the instruction set in use. */
const struct qm_bench_registers *qm_bench_registers(void);

/* ---- timed_step.c ---------------------------------------------------------------------------- */

/* The arrays that steps work on: a matrix with 1024 columns, its gradient, and room for the
 * parameter in a narrow format. */
struct qm_bench_arrays {
    struct qm_shape shape;
    float *p, *g;
    void *stored;
};

/* Allocates arrays of b->n elements, which are not set.  QM_NO_MEMORY: *a has none. */
qm_status qm_bench_arrays_alloc(const struct qm_bench *b, struct qm_bench_arrays *a);
void qm_bench_arrays_free(struct qm_bench_arrays *a);

/* A recipe's plans, for one thread and for all threads. */
struct qm_bench_bound {
    struct qm_param param;
    void *plan[2];
};

/* Opens both plans; after a failure, too, qm_bench_release closes what was opened. */
qm_status qm_bench_bind(const struct qm_bench *b, const struct qm_bench_arrays *a,
                        const struct qm_recipe *r, struct qm_bench_bound *x);
void qm_bench_release(struct qm_bench_bound *x);

/* Sets *seconds to the time of step t, at least 1, of a plan: h = 0 on one thread, 1 on all. */
qm_status qm_bench_timed(const struct qm_bench *b, const struct qm_bench_arrays *a,
                         const struct qm_bench_bound *x, int h, int64_t t, double *seconds);

/* ---- steps.c measures, steps_table.c prints and stores --------------------------------------- */

/* The samples of a step or a roof in seconds, [half][round], half 0: one thread, half 1: all
 * threads; and the samples of adamw_f32 and of the roofs in the same rounds. */
struct qm_bench_row {
    const char *name;
    int rounds;
    double state_bytes, moved; /* per parameter; moved: bytes read and written */
    double time[2][QM_BENCH_ROUNDS], f32[2][QM_BENCH_ROUNDS];
    double roof[QM_BENCH_ROOFS][2][QM_BENCH_ROUNDS];
};

struct qm_bench_rows {
    int count; /* number of steps; the rows of the roofs follow */
    struct qm_bench_row row[QM_BENCH_STEPS + QM_BENCH_ROOFS];
};

/* Medians over rounds of the rates and ratios of one row. */
struct qm_bench_summary {
    double rate;         /* parameters per second; of registers: operations per second */
    double to_f32;       /* rate over that of adamw_f32; of registers: NaN */
    double of_yardstick; /* bytes moved per second over the bandwidth; of registers: NaN */
    double speedup;      /* from one thread to all */
    double scaling[QM_BENCH_ROOFS]; /* speedup over that of a roof */
};

/* The summary of row v of rows, half h. */
struct qm_bench_summary qm_bench_summary(const struct qm_bench *b, const struct qm_bench_rows *rows,
                                         int v, int h);

json_t *qm_bench_steps_print(const struct qm_bench *b, const void *rows);
qm_status qm_bench_steps_store(const struct qm_bench *b, const void *rows, struct qm_store *f);

#endif
