/* cases.h - The edge cases: shapes x classes of gradients x hyper-parameters x first step.
 *
 * The name of a case lists its parts: "4097/planted/beta0/t1/forced".  Mode `forced` disables the
 * fallbacks to float32 (min_numel and whole_blocks are 0), so that every shape is quantized, and
 * limits the rank of projections to 4.  Mode `own` keeps the variant's own fallbacks and rank. */
#ifndef QM_EXPERIMENTS_CHECK_CASES_H
#define QM_EXPERIMENTS_CHECK_CASES_H

#include "core/recipe/recipe.h"
#include "experiments/check/decide.h"

/* clang-format off */
#define QM_CLASS_LIST(X)                                                                            \
    X(normal,     "normal, 0.01 wide")                                                              \
    X(loguniform, "both signs, magnitudes log-uniform over 30 decades")                             \
    X(denormal,   "multiples of the smallest float below the normal range")                         \
    X(huge,       "1e15 to 4e19: g * g passes the largest float")                                   \
    X(zeros,      "all +0")                                                                         \
    X(signedzeros, "+0 and -0 in turn")                                                             \
    X(outlier,    "normal with one element 10,000 times larger")                                    \
    X(zeroblock,  "normal, but elements 128 to 511 stay 0")                                         \
    X(nonfinite,  "normal with one NaN, and one Inf 600 elements on")                               \
    X(lastmax,    "normal with the largest element at the end of each block and of the tensor")     \
    X(planted,    "new states on codebook points and decision mid-points -+3 ulp, carried state")   \
    X(exact,      "the same with exact arithmetic: beta1 0, beta2 1/2, loaded second moment; ties")    \
    X(nan,        "normal with one NaN; of the table of special values")                            \
    X(inf,        "normal with one Inf; of the table of special values")                            \
    X(small,      "normal, 1e-6 wide; of the kill matrix")                                          \
    X(unit,       "normal, 1 wide; of the kill matrix")
#define QM_SETTING_LIST(X)  /* lr, beta1, beta2, eps, weight decay; -1: the variant's own */         \
    X(default, -1.0, -1.0, -1.0, -1.0, -1.0, "the variant's own")                                   \
    X(wd0,     -1.0, -1.0, -1.0, -1.0, 0.0,  "no weight decay")                                     \
    X(wd,      -1.0, -1.0, -1.0, -1.0, 0.1,  "weight decay 0.1")                                    \
    X(beta0,   -1.0, 0.0,  0.0,  -1.0, -1.0, "beta1 = beta2 = 0")                                   \
    X(eps,     1e-2, 0.5,  0.9,  1e-3, -1.0, "lr 0.01, beta1 0.5, beta2 0.9, eps 1e-3")             \
    X(lr0,     0.0,  -1.0, -1.0, -1.0, -1.0, "lr 0")                                                \
    X(slow,    -1.0, 0.999, 0.999999, -1.0, -1.0, "beta1 0.999, beta2 0.999999")                    \
    X(extreme, 10.0, -1.0, -1.0, 1e-30, 0.5, "lr 10, eps 1e-30, weight decay 0.5")                  \
    X(exact,   -1.0, 0.0,  0.5,  -1.0, -1.0, "beta1 0, beta2 1/2: what class exact needs")          \
    X(maximize, -1.0, -1.0, -1.0, -1.0, -1.0, "the objective is maximized; not of every rule")
/* clang-format on */

enum qm_class {
#define X(name, text) QM_CLASS_##name,
    QM_CLASS_LIST(X)
#undef X
        QM_CLASS_COUNT
};

enum qm_setting {
#define X(name, lr, b1, b2, eps, wd, text) QM_SETTING_##name,
    QM_SETTING_LIST(X)
#undef X
        QM_SETTING_COUNT
};

struct qm_case {
    struct qm_shape shape;
    enum qm_class kind;
    enum qm_setting setting;
    int64_t t;  /* number of the first step */
    int forced; /* 0: mode own */
};

#define QM_CASE_TEXT 96
enum { QM_CHECK_STEPS = 3 }; /* steps of a case */

int qm_case_count(void);
struct qm_case qm_case_at(int i);

/* text: QM_CASE_TEXT characters; returned. */
char *qm_case_print(const struct qm_case *c, char *text);

/* Accepts every combination of parts, also one that the list does not have.  QM_NO_MATCH: a word
 * is unknown (the message names the nearest); QM_BAD_ARG: a part is missing, or above 2^24
 * elements. */
qm_status qm_case_parse(const char *text, struct qm_case *out);

/* Sets the hyper-parameters and fallbacks of the case in r, a copy of the recipe. */
void qm_case_apply(const struct qm_case *c, struct qm_recipe *r);

/* New state = keep * state + give * g, or keep * state + give * g^2 where the slot is never
 * negative.  give 0: no gradient can be solved for. */
struct qm_aim_weight {
    double keep, give;
};

/* What the gradients of a planted case are aimed at: the codebooks and the states before the
 * step. */
struct qm_aim {
    const struct qm_recipe *recipe; /* with the case's settings */
    const struct qm_shape *shape;
    int64_t n;
    const struct qm_decider *slot[QM_MAX_SLOTS]; /* NULL: float32 */
    const float *state[QM_MAX_SLOTS];            /* decoded, before the step */
    struct qm_aim_weight weight[QM_MAX_SLOTS];
    uint64_t seed;
};

/* Draws the starting parameters p[a->n]: normal, with some zeros and some of 1000. */
void qm_case_start(const struct qm_aim *a, float *p);

/* Writes the codes and scales of the second moment that class exact starts from; returns 0 where
 * this case loads none. */
int qm_case_load(const struct qm_case *c, const struct qm_aim *a, int slot, int64_t n_scales,
                 uint8_t *codes, float *scales);

/* Draws the gradients g[a->n] of step t, which is number k = 0, 1, ... of the case. */
void qm_case_gradient(const struct qm_case *c, const struct qm_aim *a, int64_t t, int k, float *g);

#endif
