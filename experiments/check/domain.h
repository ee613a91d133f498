/* domain.h - The domain of cases: every coordinate of the interface, drawn with its edges favoured.
 *
 * A drawn case is a function of (seed, number, recipe) alone, and its name replays it.  Three of
 * four cases are small; of the others, sizes around 2^15, 2^16, 2^17 and 2^20 come at fixed
 * numbers, so that a check of n cases takes about n times as long for any seed.  In large tensors
 * most hyper-parameters are off the recipe's own values, and schedules, other tensors, loaded
 * states, NaN and Inf come as often as in small ones. */
#ifndef QM_EXPERIMENTS_CHECK_DOMAIN_H
#define QM_EXPERIMENTS_CHECK_DOMAIN_H

#include "core/recipe/backend.h"
#include "experiments/check/cases.h"

struct qm_domain {
    struct qm_recipe recipe;
    uint64_t reads;              /* bit k: the rule reads hyper-parameter k (hyper.h) */
    int64_t block[QM_MAX_SLOTS]; /* the recipe's block sizes; at least one */
    int n_blocks;
    int64_t row_block;             /* N of a slot with norm rowblock:N; 0: none */
    int has_sides;                 /* a state or a scale has a number for each row or column */
    int rounds_by_draws;           /* a slot or the parameter is rounded stochastically */
    int can_schedule, can_restart; /* what the backend can do */
    int64_t last_step;             /* the largest first step */
    int64_t largest;               /* elements of the largest tensor */
    /* How many cases a plain one is chosen from, by the effects of its hyper-parameters; 0: the
     * first is taken, and its effects are not computed. */
    int candidates;
    uint64_t subjects; /* hyper-parameters that further cases are about */
    /* Bit qm_hyper_bin: values that further cases do not give, as the judged side refuses them. */
    uint8_t refused[QM_HYPERS];
};

/* The domain for a recipe on a backend, which need not be able to run. */
void qm_domain_of(const struct qm_recipe *r, const struct qm_backend *b, struct qm_domain *out);

/* Case i = 0, 1, ... of a seed. */
struct qm_case qm_domain_draw(const struct qm_domain *d, uint64_t seed, int64_t i);

/* Plain case i = 0, 1, ... about d->subjects (0: about every hyper-parameter), one of four of
 * settings crossed, one with an extreme setting, and one of twelve in a large tensor; without the
 * values of d->refused. */
struct qm_case qm_domain_further(const struct qm_domain *d, uint64_t seed, int64_t i);

/* Large case i = 0, 1, ... of this shape, of whatever size: for a side that steps few of them. */
struct qm_case qm_domain_large(const struct qm_domain *d, uint64_t seed, int64_t i,
                               const struct qm_shape *shape);

/* ---- bins ------------------------------------------------------------------------------------ */

/* The coordinates; each divides its values into named bins.  After them come the hyper-parameters
 * that the rule reads, with the bins of QM_HYPER_BIN_LIST. */
/* clang-format off */
#define QM_COORDINATE_LIST(X)  /* name, bins */                                                     \
    X(rank,     "0 1 2 3 4 5 6 7 8")                                                                \
    X(ones,     "no yes")                                                                           \
    X(sides,    "none different two<=64 two>64 all<=64 all>64") /* equal ones */                    \
    X(size,     "0 1 <2^8 2^8 <2^15 2^15 <2^16 2^16 <2^17 2^17 <2^20 2^20")                         \
    X(large,    "no yes") /* above 2^15 + 8 elements */                                            \
    X(blocks,   "none short whole tail")                                                            \
    X(class,    "")                                                                                 \
    X(step,     "1 2..15 16..31 32..1022 1023..1025 <2^16 <2^31 >=2^31")                            \
    X(fallback, "own forced")                                                                       \
    X(p,        "1 <2^-60 <1 >1 >2^60")                                                             \
    X(g,        "1 <2^-60 <1 >1 >2^60")                                                             \
    X(state,    "zero <2^-60 <1 >=1 >2^60")                                                         \
    X(tensor,   "1 other")                                                                          \
    X(pzero,    "no yes")                                                                           \
    X(podd,     "no yes")                                                                           \
    X(sodd,     "no yes")                                                                           \
    X(godd,     "no yes")                                                                           \
    X(gfirst,   "no yes")                                                                           \
    X(schedule, "no yes")                                                                           \
    X(second,   "no yes")                                                                           \
    X(group,    "no yes")                                                                           \
    X(warm,     "no yes")                                                                           \
    X(fresh,    "no yes")                                                                           \
    X(busy,     "no yes")
/* clang-format on */
enum qm_coordinate {
#define X(name, bins) QM_COORDINATE_##name,
    QM_COORDINATE_LIST(X)
#undef X
        QM_COORDINATE_hyper, /* the first hyper-parameter */
    QM_COORDINATES = QM_COORDINATE_hyper + QM_HYPERS
};
enum { QM_BINS_MOST = 24 }; /* bins of a coordinate */

/* 1: the coordinate is part of this domain (a hyper-parameter that the rule reads, or no hyper-
 * parameter). */
int qm_domain_has(const struct qm_domain *d, int coordinate);

const char *qm_coordinate_name(int coordinate);

/* The name of a bin in text[24], which is returned; NULL: there is no such bin. */
const char *qm_coordinate_bin(int coordinate, int bin, char text[24]);

/* The bin of the case in every coordinate; -1 where the domain does not have it. */
void qm_domain_bins(const struct qm_domain *d, const struct qm_case *c, int bin[QM_COORDINATES]);

#endif
