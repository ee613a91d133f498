/* problem.h - closed-loop problems and their registration (one file each in problems/). */
#ifndef QM_PROBLEMS_PROBLEM_H
#define QM_PROBLEMS_PROBLEM_H

#include "core/base/tensor.h"
#include "experiments/cli/key_value_args.h"

#define QM_PROBLEM_TENSORS 64

/* A problem is a pure function of (name, arguments, seed): the variant and its twin see the same
 * start, data and noise whatever else they draw.  Values and gradients in double.  Every member is
 * required but argmin and optimum.  An open problem serves one thread at a time (it owns scratch);
 * its answers do not depend on what was asked before. */
struct qm_problem {
    const char *name, *summary, *source;
    const char *args;         /* the arguments it takes with their defaults: "n=1024,cond=1e4" */
    const struct qm_arg *arg; /* [n_args]: what each takes and means */
    int n_args;

    /* args: "key=value,..." or "" (experiments/cli/key_value_args.h).  Sets the number of tensors and their
     * shapes.  QM_BAD_ARG names the argument. */
    qm_status (*open)(const char *args, uint64_t seed, void **self, int *n_tensors,
                      struct qm_shape *shapes);
    /* About how many operations one gradient takes, looks at the loss included; 0 for arguments that
     * open refuses.  For estimates of what a run costs.  NULL: a few per element. */
    double (*work)(const char *args);
    /* The start: all tensors one after the other. */
    void (*start)(void *self, double *x);
    /* grad NULL: returns the loss at x that the study plots (the population loss where it has a
     * closed form); t is not read.  Otherwise grad becomes the gradient of step t >= 1, noise
     * included, and the loss whose gradient it is without additive noise is returned: that of a
     * minibatch where there is one.  So ask for a curve's points with NULL. */
    double (*eval)(void *self, const double *x, int64_t t, double *grad);
    /* Whether the loss that eval returns with a gradient is the plotted one, to the bit; then first
     * hits cost nothing.  NULL: it is not. */
    int (*gives_loss)(void *self);
    /* Otherwise: steps between two looks at the plotted loss for first hits.  NULL: every step. */
    int64_t (*look)(void *self);
    /* The basin that x lies in: 0 is the one whose bottom is the floor.  Runs that end in different
     * basins are never averaged.  NULL: there is one basin. */
    int (*basin)(void *self, const double *x);
    /* The floor of that loss.  NULL: there is no loss, the gradients are prescribed whatever x is,
     * and eval returns 0; such a problem serves the couplings local and global, not closed. */
    double (*optimum)(void *self);
    /* A point where the floor is reached.  NULL: the problem does not know one, or has none. */
    void (*argmin)(void *self, double *x);
    /* Expected loss after t >= 0 steps of the full-precision optimizer where a closed form exists;
     * NaN where it does not.  family: "sgdm", ...; lr and momentum as given. */
    double (*expected)(void *self, const char *family, double lr, double momentum, int64_t t);
    void (*close)(void *self); /* accepts NULL */
    /* Suggested budget and learning rates, for suites that give none.  The rates were found by
     * running the double-precision optimizers (defaults of qm_hyper without decay; Lion with beta2
     * 0.99) at the default arguments and seed 1 (quad: rotated and shuffled, from five starts; spike:
     * as quad) over powers of sqrt(10): the
     * lowest loss over the last eighth of the budget that is above its floor by 1e-12 of the
     * start's, among lr <= 0.1 for AdamW, lr <= 0.01 for Lion and, for SGDM, those where sqrt(10)
     * lr comes below the start too; and among those where parameters rounded to float32 after each
     * step end within 5 %, since null pairs must agree where variants are compared.
     * tests/experiments/problems/long_learning_rates.c does that search again.  Wrappers around another base: problem_wrapper.h. */
    int64_t steps;
    double lr_adamw, lr_sgdm, lr_lion;
    /* Two runs count as equivalent when log10 of their gaps differs by less; 0: log10 1.05. */
    double delta;
};

int qm_problem_count(void);
const struct qm_problem *qm_problem_at(int i);
qm_status qm_problem_find(const char *name, const struct qm_problem **out);

/* ---- for the files in problems/ -------------------------------------------------------------- */

/* n elements as rows x n / rows; rows 0: the largest divisor of n that is at most sqrt(n).  One
 * row makes a vector.  QM_BAD_ARG where rows does not divide n. */
qm_status qm_problem_shape(const char *name, int64_t n, int64_t rows, struct qm_shape *out);

#define QM_DATA_SEED_ARG                                             \
    {                                                                \
        .key = "data_seed", .lo = 1, .hi = 4294967295.0, .whole = 1, \
        .text = "seed of the data, apart from the run's"             \
    }
#define QM_ROWS_TEXT \
    "rows of the tensor, a divisor of n; 1: a vector; 0: as near to square as n has"

/* A `gives_loss` that always does. */
int qm_problem_gives_loss(void *self);

/* An `expected` without a closed form: NaN. */
double qm_problem_unexpected(void *self, const char *family, double lr, double momentum, int64_t t);

/* s[9] to the power t >= 0, 3 x 3 row-major, by squaring, in place. */
void qm_problem_power(double s[9], int64_t t);

/* Portable data, the same everywhere: MT19937 words w (init_genrand seed; seed 0 stands for 4357),
 * u = (w + 0.5) / 2^32, pairs sqrt(-2 ln u1) cos 2 pi u2, sqrt(-2 ln u1) sin 2 pi u2.  Each call
 * fills one array; an odd n drops the last sine. */
qm_status qm_data_open(uint32_t seed, void **data);
void qm_data_normals(void *data, int64_t n, double *out);
void qm_data_uniforms(void *data, int64_t n, double *out); /* one word each */
void qm_data_close(void *data);

#endif
