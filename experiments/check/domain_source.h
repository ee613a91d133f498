/* domain_source.h - The random numbers that a drawn case is made of.
 *
 * Internal to domain.c and to aimed, corner, extreme, joint, large, plain, side and small_case.c.
 */
#ifndef QM_EXPERIMENTS_CHECK_DOMAIN_SOURCE_H
#define QM_EXPERIMENTS_CHECK_DOMAIN_SOURCE_H

#include <math.h>

#include "core/base/philox.h"
#include "experiments/check/domain.h"

/* Stream `number` of a seed, of which `used` words were taken. */
struct qm_domain_source {
    uint64_t seed, number, used;
};

static inline uint32_t qm_domain_word(struct qm_domain_source *s)
{
    return qm_philox_stream(s->seed, s->number, s->used++);
}

/* Uniform in 0 .. n - 1. */
static inline int64_t qm_domain_below(struct qm_domain_source *s, int64_t n)
{
    uint64_t high = qm_domain_word(s);
    return (int64_t)((high << 16 | qm_domain_word(s) >> 16) % (uint64_t)n);
}

static inline int qm_domain_one_in(struct qm_domain_source *s, int n)
{
    return qm_domain_below(s, n) == 0;
}

/* Log-uniform in 1 .. most. */
static inline int64_t qm_domain_log_uniform(struct qm_domain_source *s, int64_t most)
{
    double u = ((double)qm_domain_word(s) + 0.5) * 0x1p-32;
    int64_t x = (int64_t)exp(u * log((double)most + 1.0));
    return x < 1 ? 1 : x < most ? x : most;
}

/* domain.c.  1: the rule takes the hyper-parameters of the case. */
int qm_domain_takes(const struct qm_domain *d, const struct qm_case *c);

/* domain.c.  Gives hyper-parameter k a value of the bin (a flag its other value) by a random word;
 * what the rule does not read, refuses beside the values given before, or d->refused names stays
 * as it is. */
void qm_domain_give(const struct qm_domain *d, int k, enum qm_hyper_bin bin, uint32_t word,
                    struct qm_case *c);

/* domain.c.  1: hyper-parameter k, which the rule reads, has this value now; 0: the rule refuses it
 * beside the values given before, or d->refused names its bin. */
int qm_domain_put(const struct qm_domain *d, int k, double value, struct qm_case *c);

/* plain_case.c.  What each drawn case gets last, by a random word.  A vector becomes a matrix where
 * the rule takes no vectors.  A limiter takes nearly all of an update that has grown against a norm
 * of 0, that of a fresh state beyond step 1: of such cases half have none.  Half of those with a
 * rate of 0 have numbers that are not finite, of which 0 times is NaN. */
void qm_domain_finish(const struct qm_domain *d, uint64_t word, struct qm_case *c);

/* domain.c.  Both sides draw the seeds of all projections before a step: makes the step one with no
 * more than `most` of them. */
void qm_domain_bound_step(const struct qm_domain *d, int64_t most, struct qm_case *c);

/* domain.c.  Cuts n elements into `rank` sizes, which multiply to n or a little less; the last that
 * is set takes what remains. */
struct qm_shape qm_domain_cut(struct qm_domain_source *s, int64_t n, int rank);

/* domain.c.  A number of elements from which on a slot leaves its fallback (0: there is none up to
 * 2^13), or one beside it; or whole blocks below it, or one element more or less. */
int64_t qm_domain_around_fallback(const struct qm_domain *d, struct qm_domain_source *s);

/* domain.c.  Whole blocks of the recipe's, or one element more or less, up to `most`. */
int64_t qm_domain_around_blocks(const struct qm_domain *d, struct qm_domain_source *s,
                                int64_t most);

/* domain.c.  The shape of case i, and a first step. */
struct qm_shape qm_domain_shape(const struct qm_domain *d, struct qm_domain_source *s, int64_t i);
int64_t qm_domain_first_step(const struct qm_domain *d, struct qm_domain_source *s);

/* Elements of the largest matrix whose reference takes the square of a side, and of the largest
 * tensor whose window may have many rows of all elements; of the largest tensor in cases of no
 * special size. */
enum { QM_DOMAIN_PROJECTED = 4096, QM_DOMAIN_WINDOWED = 8192, QM_DOMAIN_DRAWN = 20000 };
#define QM_DOMAIN_LAST_STEP (((int64_t)1 << 40) + 1) /* the largest first step */
/* Whether the rule projects where a rank is given; whether it does by the recipe's own. */
static inline int qm_domain_may_project(const struct qm_domain *d)
{
    return d->reads >> QM_HYPER_rank & 1;
}
static inline int qm_domain_is_projected(const struct qm_domain *d)
{
    return qm_domain_may_project(d) && d->recipe.hyper.rank > 0.0;
}

/* large_case.c.  Takes a rank that the recipe does not have from a large matrix, whose projection
 * would take the square of a side. */
void qm_domain_bound_rank(const struct qm_domain *d, struct qm_case *c);

/* side_case.c.  Gives all axes one length, or of more than two axes in half of the cases two. */
void qm_domain_equal_sides(struct qm_domain_source *s, int64_t side, struct qm_shape *shape);

/* side_case.c.  In two of three cases Shampoo's statistic decays by another beta than the recipe's:
 * mostly one above 0.999, else 0, one below it, or where the state is loaded (a power of s) 1. */
void qm_domain_some_stat_decay(const struct qm_domain *d, struct qm_domain_source *s,
                               struct qm_case *c);

/* side_case.c.  The bin of a shape in coordinate `sides`. */
int qm_domain_sides_bin(const struct qm_shape *shape);

/* side_case.c.  1: case i is about the sides of a matrix (equal ones, long ones, rows of whole
 * blocks), and is c now; else c stays as it is. */
int qm_side_case(const struct qm_domain *d, struct qm_domain_source *s, int64_t i,
                 struct qm_case *c);

/* joint_case.c.  Case number 0, 1, ... in which two things meet that hardly ever do by chance. */
struct qm_case qm_joint_case(const struct qm_domain *d, struct qm_domain_source *s, int64_t number);

/* joint_case.c.  1: c is a step that 32 bits do not hold, half of them just after a multiple of
 * 2^32, with every flag that the rule reads drawn: what a flag does with a step number; 0: d has no
 * such steps. */
int qm_late_flags(const struct qm_domain *d, struct qm_domain_source *s, struct qm_case *c);

/* aimed_case.c.  1: case i is aimed (at draws that come seldom, exact decays, sizes of
 * projections, overflow by rounding, preconditioners that are due), and is c now; else c stays as
 * it is. */
int qm_aimed_case(const struct qm_domain *d, struct qm_domain_source *s, int64_t i,
                  struct qm_case *c);

/* large_case.c.  1: case i has more than QM_LARGE elements, and is c now; else c stays as it is. */
int qm_large_case(const struct qm_domain *d, struct qm_domain_source *s, int64_t i,
                  struct qm_case *c);

/* large_case.c.  Draws a large case of sizes in turn, of few axes. */
struct qm_case qm_large_further(const struct qm_domain *d, struct qm_domain_source *s,
                                int64_t turn);

/* large_case.c.  Draws everything but the shape of a large case, number `turn` of them. */
struct qm_case qm_large_settings(const struct qm_domain *d, struct qm_domain_source *s,
                                 int64_t turn, const struct qm_shape *shape);

/* plain_case.c.  Draws plain case number `plain` = 0, 1, ...: many settings at once and everything
 * else ordinary.  What depends on two hyper-parameters together shows there, and nowhere where one
 * extreme number hides all others.  Most have a subject, a hyper-parameter at 0, at 1, at an
 * ordinary value, at its own or (a flag) at either value, in turn; of d->candidates cases that is
 * taken in which the subject has an effect (effect.h), and of those the one in which most others
 * have. */
struct qm_case qm_plain_case(const struct qm_domain *d, struct qm_domain_source *s, int64_t plain);

/* extreme_case.c.  Draws small case number `number` = 0, 1, ... in which a hyper-parameter is as
 * far from its ordinary values as leaves another an effect. */
struct qm_case qm_extreme_case(const struct qm_domain *d, struct qm_domain_source *s,
                               int64_t number);

/* corner_case.c.  Draws small case number `number` = 0, 1, ... with two hyper-parameters or three
 * at special values at once: each pair of values in turn. */
struct qm_case qm_corner_case(const struct qm_domain *d, struct qm_domain_source *s,
                              int64_t number);

/* small_case.c.  Draws small case number `number` = 0, 1, ...: settings crossed, states of whole
 * blocks at the ends of formats, parameters at the lower end of theirs. */
struct qm_case qm_small_case(const struct qm_domain *d, struct qm_domain_source *s, int64_t number);

/* small_case.c.  The same, of crossed settings alone. */
struct qm_case qm_crossed_case(const struct qm_domain *d, struct qm_domain_source *s,
                               int64_t number);

#endif
