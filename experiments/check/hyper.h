/* hyper.h - The domain of every hyper-parameter: values by number, edges favoured, and schedules.
 *
 * Numbers count through QM_HYPER_LIST and then QM_HYPER_FLAG_LIST (core/rule/rule.h). */
#ifndef QM_EXPERIMENTS_CHECK_HYPER_H
#define QM_EXPERIMENTS_CHECK_HYPER_H

#include "core/recipe/recipe.h"

enum {
#define X(name, value, text) QM_HYPER_##name,
    QM_HYPER_LIST(X) QM_HYPER_FLAG_LIST(X)
#undef X
        QM_HYPERS
};

extern const char *const qm_hyper_names[QM_HYPERS];

double qm_hyper_get(const struct qm_hyper *h, int k);
void qm_hyper_put(struct qm_hyper *h, int k, double value); /* a flag becomes value != 0 */

/* Where a value lies; `own` is the recipe's own value, whatever it is. */
/* clang-format off */
#define QM_HYPER_BIN_LIST(X) X(own) X(zero) X(one) X(tiny) X(ordinary) X(large)
/* clang-format on */
enum qm_hyper_bin {
#define X(name) QM_HYPER_BIN_##name,
    QM_HYPER_BIN_LIST(X)
#undef X
        QM_HYPER_BINS
};

/* 1: hyper-parameter k is a flag, 0 or 1. */
int qm_hyper_is_flag(int k);

/* The bin of a value of hyper-parameter k, where `own` is the recipe's. */
enum qm_hyper_bin qm_hyper_bin_of(int k, double own, double value);

/* A value of the bin, of few decimal digits.  word: 32 random bits.  NaN: the bin has no value (a
 * flag is never tiny). */
double qm_hyper_draw(int k, enum qm_hyper_bin bin, uint32_t word);

/* The same for a tensor of this shape: of a number that counts elements (a rank, a block's length,
 * an order) half of the large values are sizes of the shape, or one less or more. */
double qm_hyper_draw_for(int k, enum qm_hyper_bin bin, uint32_t word, const struct qm_shape *shape);

/* A value that is larger (is_up) or smaller than x, by up to a factor of 10^6 (of a beta above 1/2,
 * 1 - x smaller or larger), within the domain; NaN: there is none, as of a flag or a side. */
double qm_hyper_beyond(int k, int is_up, double x, uint32_t word);

/* The hyper-parameters of step number `step` of a schedule, a function of the arguments alone: lr
 * differs from that of r in every step, and other numbers that the rule reads in every third; what
 * the rule refuses, and rank, side and gap, stay.  Step 0 has those of r.  initial_lr becomes the
 * lr of r where it is 0. */
struct qm_hyper qm_hyper_schedule(const struct qm_recipe *r, uint64_t seed, int step);

/* Bit k is 1 where the recipe's rule reads hyper-parameter k (qm_rule_reads). */
uint64_t qm_hyper_read(const struct qm_recipe *r);

#endif
