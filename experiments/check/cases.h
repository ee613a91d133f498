/* cases.h - A case of the judge: its coordinates, its name, and the listed core of cases.
 *
 * The name states every coordinate, and together with a seed it replays the case:
 *
 *     SHAPE/CLASS/SETTING/tSTEP/MODE[/PART...]        4097/planted/beta0/t1/forced
 *                                  5x1x33/normal/wd+momentum=0.3/t17/own/p2^40/second/schedule
 *
 * SETTING is the name of a setting, hyper-parameters KEY=VALUE, or both, joined by "+".
 * Mode `forced` disables the fallbacks to float32 (min_numel and whole_blocks are 0), so that every
 * shape is quantized, and limits the rank of projections to 4.  Mode `own` keeps the variant's own
 * fallbacks and rank.  Further parts, in any order: p2^K, g2^K, s2^K (QM_POWER_LIST), tensorN, and
 * the words of QM_PART_LIST.
 *
 * The core is a list (qm_case_at); all others are drawn (domain.h). */
#ifndef QM_EXPERIMENTS_CHECK_CASES_H
#define QM_EXPERIMENTS_CHECK_CASES_H

#include "core/recipe/recipe.h"
#include "experiments/check/decide.h"
#include "experiments/check/hyper.h"

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
    X(lastmax,    "normal; the largest of 64, of a row, of a block and of all is one of its last 4") \
    X(planted,    "new states on codebook points and decision mid-points -+3 ulp, carried state")   \
    X(exact,      "the same with exact arithmetic: beta1 0, beta2 1/2, loaded second moment; ties")    \
    X(nan,        "normal with one NaN; of the table of special values")                            \
    X(inf,        "normal with one Inf; of the table of special values")                            \
    X(small,      "normal, 1e-6 wide; of the kill matrix")                                          \
    X(unit,       "normal, 1 wide; of the kill matrix")                                             \
    X(sparse,     "normal, with rows, columns and runs of zeros; all 0 in the second step")          \
    X(constant,   "all elements equal")                                                             \
    X(edges,      "powers of two, 9-bit integers, mid-points and edges of float formats; halves of them")    \
    X(floors,     "one size for whole blocks, where it or its square is a floor or denormal")       \
    X(swamped,    "first or middle of the longest axis so large that one sum loses all others")     \
    X(graded,     "rows, columns or a diagonal that grow or shrink by powers of two")
#define QM_SETTING_LIST(X)  /* lr, beta1, beta2, eps, weight decay; -1: the variant's own */         \
    X(default, -1.0, -1.0, -1.0, -1.0, -1.0, "the variant's own")                                   \
    X(wd0,     -1.0, -1.0, -1.0, -1.0, 0.0,  "no weight decay")                                     \
    X(wd,      -1.0, -1.0, -1.0, -1.0, 0.1,  "weight decay 0.1")                                    \
    X(beta0,   -1.0, 0.0,  0.0,  -1.0, -1.0, "beta1 = beta2 = 0")                                   \
    X(eps,     1e-2, 0.5,  0.9,  1e-3, -1.0, "lr 0.01, beta1 0.5, beta2 0.9, eps 1e-3")             \
    X(lr0,     0.0,  -1.0, -1.0, -1.0, -1.0, "lr 0; initial_lr the variant's own lr")               \
    X(slow,    -1.0, 0.999, 0.999999, -1.0, -1.0, "beta1 0.999, beta2 0.999999")                    \
    X(extreme, 10.0, -1.0, -1.0, 1e-30, 0.5, "lr 10, eps 1e-30, weight decay 0.5")                  \
    X(exact,   -1.0, 0.0,  0.5,  -1.0, -1.0, "beta1 0, beta2 1/2: what class exact needs")          \
    X(maximize, -1.0, -1.0, -1.0, -1.0, -1.0, "the objective is maximized; not of every rule")
#define QM_PART_LIST(X)  /* what a case does beside stepping one tensor from a zero state */        \
    X(pzero,    "all parameters start at 0")                                                        \
    X(busy,     "the first call is not the process's first: 4096 steps of a small tensor")          \
    X(podd,     "NaN, Inf, signed zeros and denormals among the parameters")                        \
    X(sodd,     "the same among the loaded states; needs s2^K")                                     \
    X(godd,     "one NaN or Inf, or some of all these, among the gradients of the last step")        \
    X(gfirst,   "the same among the gradients of the first step")                                   \
    X(schedule, "lr and other hyper-parameters change from step to step")                           \
    X(second,   "before each step a tensor of another shape, number and step is stepped")           \
    X(group,    "before each step a tensor with other hyper-parameters is stepped")                 \
    X(warm,     "the first call is not step 1: another tensor is stepped at a late t and stays")   \
    X(fresh,    "between steps states are saved and loaded: a fresh plan, and process where there is one")
#define QM_POWER_LIST(X)                                                                            \
    X(p, "starting parameters times 2^K")                                                           \
    X(g, "gradients times 2^K")                                                                     \
    X(s, "states are loaded before the first step: normal times 2^K, in the slot's own format")
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

enum qm_part {
#define X(name, text) QM_PART_##name,
    QM_PART_LIST(X)
#undef X
        QM_PARTS
};

enum qm_power {
#define X(name, text) QM_POWER_##name,
    QM_POWER_LIST(X)
#undef X
        QM_POWERS
};

/* All members 0 but for shape and t: the case of the core with these coordinates. */
struct qm_case {
    struct qm_shape shape;
    enum qm_class kind;
    enum qm_setting setting;
    int64_t t;      /* number of the first step, up to QM_CASE_LAST_STEP */
    int forced;     /* 0: fallbacks own */
    uint64_t given; /* bit k: hyper-parameter k (hyper.h) is hyper[k], not the setting's */
    double hyper[QM_HYPERS];
    unsigned part;             /* bit QM_PART_... */
    unsigned powered;          /* bit QM_POWER_...: power[] is given */
    int power[QM_POWERS];      /* -QM_CASE_POWER to QM_CASE_POWER */
    uint32_t tensor_after_one; /* the tensor's number in the problem, less 1 (modulo 2^32) */
    uint64_t effects; /* of a plain drawn case: bit k, hyper-parameter k has an effect (effect.h);
                       * it is no part of the name */
};

#define QM_CASE_TEXT      512
#define QM_CASE_LAST_STEP ((int64_t)1 << 41)
/* Steps of a case; largest exponent of a part. */
enum { QM_CHECK_STEPS = 3, QM_CASE_POWER = 150 };
/* Seed of the judge's cases where none is given; its digits, for texts of `--help`. */
#define QM_CHECK_SEED      20240501
#define QM_CHECK_SEED_TEXT QM_DIGITS_OF(QM_CHECK_SEED)
/* Cases of a round that are drawn beside the core where no other number is given. */
#define QM_CHECK_DRAWS        680
#define QM_CHECK_DRAWS_TEXT   QM_DIGITS_OF(QM_CHECK_DRAWS)
#define QM_DIGITS_OF(number)  QM_DIGITS_OF_(number)
#define QM_DIGITS_OF_(digits) #digits
/* Elements above which a tensor is large, and above which it makes one step where that will do. */
enum { QM_LARGE = (1 << 15) + 8, QM_COSTLY = (1 << 17) + 8 };
/* The largest order of a preconditioner in a case, in one of fewer than QM_ORDER_FEW elements, and
 * in one of fewer than QM_ORDER_IDLE_FEW in which neither statistics nor roots are due; longer
 * sides are cut into tiles there. */
enum { QM_ORDER_MOST = 160, QM_ORDER_LONG = 320, QM_ORDER_FEW = 2048 };
enum { QM_ORDER_IDLE = 1200, QM_ORDER_IDLE_FEW = 4096 };

static inline int qm_case_takes(const struct qm_case *c, enum qm_part p)
{
    return c->part >> p & 1;
}
static inline int qm_case_power(const struct qm_case *c, enum qm_power p)
{
    return c->powered >> p & 1 ? c->power[p] : 0;
}
static inline int qm_case_loads(const struct qm_case *c) { return c->powered >> QM_POWER_s & 1; }

/* Steps of this case: QM_CHECK_STEPS; 2 for tensors of more than 2^14 elements, and 1 for those of
 * more than QM_COSTLY that start from loaded states, unless something happens between steps. */
int qm_case_steps(const struct qm_case *c);

/* Whether it steps other tensors too. */
static inline int qm_case_has_company(const struct qm_case *c)
{
    return qm_case_takes(c, QM_PART_second) || qm_case_takes(c, QM_PART_group) ||
           qm_case_takes(c, QM_PART_warm) || qm_case_takes(c, QM_PART_busy);
}

int qm_case_count(void);
struct qm_case qm_case_at(int i);

/* text: QM_CASE_TEXT characters; returned. */
char *qm_case_print(const struct qm_case *c, char *text);

/* Accepts every combination of parts, also one that the list does not have.  QM_NO_MATCH: a word
 * is unknown (the message names the nearest); QM_BAD_ARG: a part is missing or out of range, or
 * above 2^24 elements. */
qm_status qm_case_parse(const char *text, struct qm_case *out);

/* Sets the hyper-parameters and fallbacks of the case in r, a copy of the recipe.  Whether the rule
 * takes them is for qm_recipe_applicable to say. */
void qm_case_apply(const struct qm_case *c, struct qm_recipe *r);

/* Says in out[size] which order of factors or rank qm_case_apply lowers, for a judge's time, below
 * what the case or the recipe asks and the tensor would have; "": none. */
void qm_case_limits(const struct qm_case *c, const struct qm_recipe *r, char *out, size_t size);

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
    int power; /* anchors are times 2^power */
    uint64_t seed;
};

/* The first element of the tail of n. */
static inline int64_t qm_case_tail(int64_t n) { return n - n / 8; }
#define QM_TAIL_FACTOR 4.0f

/* Draws the starting parameters p[a->n]: normal, with some zeros and some of 1000, times 2^K of
 * part p2^K; part podd replaces some.  Where the rule adds up the numbers of a tensor and it is
 * large, those of its tail are QM_TAIL_FACTOR times that: a sum that ends too early then shows in
 * the quotient of two sums, too. */
void qm_case_start(const struct qm_case *c, const struct qm_aim *a, float *p);

/* Draws the n values of slot `slot` that part s2^K loads: normal times 2^K, of both signs only
 * where the slot takes both, with zeros; part sodd replaces some. */
void qm_case_state(const struct qm_case *c, const struct qm_aim *a, int slot, int64_t n, float *x);

/* Writes the codes and scales of the second moment that class exact starts from; returns 0 where
 * this case loads none. */
int qm_case_load(const struct qm_case *c, const struct qm_aim *a, int slot, int64_t n_scales,
                 uint8_t *codes, float *scales);

/* Draws the gradients g[a->n] of step t, which is number k = 0, 1, ... of the case. */
void qm_case_gradient(const struct qm_case *c, const struct qm_aim *a, int64_t t, int k, float *g);

#endif
