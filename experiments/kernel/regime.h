/* regime.h - Selects the cases of a kernel check (--regime) and draws those of --forever. */
#ifndef QM_EXPERIMENTS_KERNEL_REGIME_H
#define QM_EXPERIMENTS_KERNEL_REGIME_H

#include "experiments/kernel/kernel.h"

struct qm_regimes {
    int any_class, any_setting; /* 1: no class, no setting was named: all are taken */
    int class[QM_CLASS_COUNT], setting[QM_SETTING_COUNT];
};

/* Reads the names of --regime.  QM_NO_MATCH: a name is neither a class nor a setting. */
qm_status qm_regimes_of(const struct qm_kernel_options *o, struct qm_regimes *r);

/* 1: the case is taken, because its class and its setting are named. */
int qm_regimes_take(const struct qm_regimes *r, const struct qm_case *c);

/* Draws case i of a seed: a shape of up to 16,384 elements; a class, a setting and a step that are
 * taken. */
struct qm_case qm_regimes_draw(const struct qm_regimes *r, uint64_t seed, int64_t i);

#endif
