/* regime.h - Selects the cases of a kernel check: the core, drawn ones, and --regime. */
#ifndef QM_EXPERIMENTS_KERNEL_REGIME_H
#define QM_EXPERIMENTS_KERNEL_REGIME_H

#include "experiments/check/domain.h"
#include "experiments/kernel/kernel.h"

struct qm_regimes {
    const struct qm_kernel_options *o;
    int any_class, any_setting; /* 1: no class, no setting was named: all are taken */
    int class[QM_CLASS_COUNT], setting[QM_SETTING_COUNT];
    struct qm_domain domain;
    int n_large; /* cases larger than those drawn */
};

/* Reads the names of --regime.  QM_NO_MATCH: a name is neither a class nor a setting. */
qm_status qm_regimes_of(const struct qm_kernel_options *o, struct qm_regimes *r);

/* Sets the domain, when the recipe is known. */
void qm_regimes_draw_for(struct qm_regimes *r, const struct qm_recipe *recipe);

/* 1: the case is taken, because its class and its setting are named. */
int qm_regimes_take(const struct qm_regimes *r, const struct qm_case *c);

/* Number of cases, taken or not; under --forever there is no end. */
int64_t qm_regimes_count(const struct qm_regimes *r);

/* Case i: of the core (not under --forever), then drawn by the seed. */
struct qm_case qm_regimes_at(const struct qm_regimes *r, uint64_t seed, int64_t i);

#endif
