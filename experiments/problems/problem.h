/* problem.h - Optimization problems for closed-loop runs, and their registration.
 *
 * Each file of experiments/problems/ that defines a qm_problem_NAME is one problem. */
#ifndef QM_PROBLEMS_PROBLEM_H
#define QM_PROBLEMS_PROBLEM_H

#include "core/base/tensor.h"
#include "experiments/cli/key_value_args.h"

#define QM_PROBLEM_TENSORS 68

/* A problem is a pure function of (name, arguments, seed): the variant and its twin see the same
 * start, data and noise whatever else they draw.  Values and gradients are in double.  A member is
 * required unless its comment says what NULL means.  An open problem serves one thread at a time,
 * because it owns scratch memory; its results do not depend on earlier calls. */
struct qm_problem {
    const char *name, *summary, *source;
    const char *args;         /* the arguments with their defaults: "n=1024,cond=1e4" */
    const struct qm_arg *arg; /* [n_args]: range and meaning of each argument */
    int n_args;

    /* args: "key=value,..." or "" (experiments/cli/key_value_args.h).  Sets the number of tensors
     * and their shapes.  The message of QM_BAD_ARG names the argument. */
    qm_status (*open)(const char *args, uint64_t seed, void **self, int *n_tensors,
                      struct qm_shape *shapes);
    /* Estimated number of operations per gradient, including the evaluations of the plotted loss; 0
     * for arguments that open refuses.  Serves estimates of a run's cost.  NULL: a few operations
     * per element. */
    double (*work)(const char *args);
    /* Sets x to the start: all tensors one after the other. */
    void (*start)(void *self, double *x);
    /* grad NULL: returns the plotted loss at x (the population loss where it has a closed form); t
     * is not read.  Otherwise grad becomes the gradient of step t >= 1, noise included, and eval
     * returns the loss whose gradient this is without additive noise: the loss of the minibatch
     * where there is one.  The points of a curve are therefore evaluated with grad NULL. */
    double (*eval)(void *self, const double *x, int64_t t, double *grad);
    /* Whether eval returns the plotted loss, to the bit, together with a gradient; hitting times
     * then cost nothing.  NULL: it does not. */
    int (*gives_loss)(void *self);
    /* Where gives_loss does not hold: the number of steps between two evaluations of the plotted
     * loss for hitting times.  NULL or 0: the loss is evaluated at every step. */
    int64_t (*loss_interval)(void *self);
    /* The basin of attraction that x lies in; 0 is the basin whose bottom is the floor.  Runs that
     * end in different basins are never averaged.  NULL: there is one basin. */
    int (*basin)(void *self, const double *x);
    /* The floor (infimum) of the plotted loss.  NULL: there is no loss, the gradients are
     * prescribed whatever x is, and eval returns 0; such a problem serves the couplings local and
     * global, not closed. */
    double (*optimum)(void *self);
    /* Sets x to a point that attains the floor.  NULL: no such point is known, or none exists. */
    void (*argmin)(void *self, double *x);
    /* Expected loss after t >= 0 steps of the full-precision optimizer where a closed form exists,
     * else NaN.  family: "sgdm", ...; lr and momentum are that optimizer's. */
    double (*expected)(void *self, const char *family, double lr, double momentum, int64_t t);
    void (*close)(void *self); /* accepts NULL */
    /* Suggested number of steps and learning rates, for suites that give none (of a wrapper around
     * another base than its default: see problem_wrapper.h).  The rates come from a grid search
     * over powers of sqrt(10) that tests/experiments/problems/long_learning_rates.c repeats.  It
     * runs the double-precision optimizers (defaults of qm_hyper without decay; Lion with beta2
     * 0.99) at the default arguments and seed 1 (quad: rotated and shuffled, from five starts;
     * spike: as quad) and takes the rate with the lowest mean gap over the last eighth of the
     * steps; the gap is the loss above the floor over that of the start, and gaps of at most 1e-12
     * do not count.  The candidates are
     *   AdamW  lr <= 0.1
     *   Lion   lr <= 0.01
     *   SGDM   lr <= 100 for which a run at sqrt(10) lr also ends below the start
     * and, of these, the rates at which a run with parameters rounded to float32 after each step
     * ends within 5 %, since null pairs must agree where variants are compared. */
    int64_t steps;
    double lr_adamw, lr_sgdm, lr_lion;
    /* Equivalence margin: two runs count as equivalent when the log10 of their gaps differ by less
     * than this; 0 stands for log10 1.05. */
    double delta;
};

/* The problems that there are: how many, and number i, which is static. */
int qm_problem_count(void);
const struct qm_problem *qm_problem_at(int i);
/* The problem of that name, without arguments.  QM_NO_MATCH: none; the nearest is named. */
qm_status qm_problem_find(const char *name, const struct qm_problem **out);

/* ---- helpers for the files of experiments/problems/ ------------------------------------------ */

/* *out, which the caller frees, becomes a permutation of 0 .. n - 1 that is a function of n alone.
 * QM_NO_MEMORY names `who`. */
qm_status qm_problem_shuffle(const char *who, int64_t n, int64_t **out);

/* Shapes n elements as rows x (n / rows).  rows 0 stands for the largest divisor of n that is at
 * most sqrt(n); one row makes a vector.  QM_BAD_ARG where rows does not divide n. */
qm_status qm_problem_shape(const char *name, int64_t n, int64_t rows, struct qm_shape *out);

#define QM_DATA_SEED_ARG                                             \
    {                                                                \
        .key = "data_seed", .lo = 1, .hi = 4294967295.0, .whole = 1, \
        .text = "seed of the data, apart from the run's"             \
    }
#define QM_ROWS_TEXT \
    "rows of the tensor, a divisor of n; 1: a vector; 0: as near to square as n has"

/* Member gives_loss of problems for which it always holds: returns 1. */
int qm_problem_gives_loss(void *self);

/* Member expected of problems without a closed form: returns NaN. */
double qm_problem_unexpected(void *self, const char *family, double lr, double momentum, int64_t t);

/* Raises s, a 3 x 3 row-major matrix, to the power t >= 0 by squaring, in place. */
void qm_problem_power(double s[9], int64_t t);

/* The portable generator of problem data, the same bits on every machine: MT19937 words w
 * (init_genrand of the seed; seed 0 stands for 4357) give uniforms u = (w + 0.5) / 2^32, and pairs
 * of uniforms give the normals sqrt(-2 ln u1) cos 2 pi u2 and sqrt(-2 ln u1) sin 2 pi u2.  Each
 * call fills one array of n; an odd n drops the last sine. */
qm_status qm_data_open(uint32_t seed, void **data);
void qm_data_normals(void *data, int64_t n, double *out);
void qm_data_uniforms(void *data, int64_t n, double *out); /* one word per element */
void qm_data_close(void *data);

#endif
