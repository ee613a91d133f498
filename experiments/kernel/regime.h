/* regime.h - which cases a kernel check takes: --regime, and the random ones of --forever. */
#ifndef QM_EXPERIMENTS_KERNEL_REGIME_H
#define QM_EXPERIMENTS_KERNEL_REGIME_H

#include "experiments/kernel/kernel.h"

struct qm_regimes {
    int any_class, any_setting; /* 1: none of this kind was named */
    int class[QM_CLASS_COUNT], setting[QM_SETTING_COUNT];
};

/* QM_NO_MATCH for a name that is neither a class nor a setting. */
qm_status qm_regimes_of(const struct qm_kernel_options *o, struct qm_regimes *r);

/* A case is taken when its class is among those named, and its setting among those named. */
int qm_regimes_take(const struct qm_regimes *r, const struct qm_case *c);

/* Case i of a seed: any shape of up to 16,384 elements, any class, setting and step that is taken. */
struct qm_case qm_regimes_draw(const struct qm_regimes *r, uint64_t seed, int64_t i);

#endif
