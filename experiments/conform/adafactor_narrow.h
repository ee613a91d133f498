/* adafactor_narrow.h - What PyTorch's Adafactor makes of bfloat16 parameters, by its roundings. */
#ifndef QM_CONFORM_ADAFACTOR_NARROW_H
#define QM_CONFORM_ADAFACTOR_NARROW_H

#include "experiments/conform/narrow_span.h"
#include "experiments/conform/tensor_rule_run.h"

/* The range of each parameter after the recorded step, from the parameters `before` it.  1: some
 * number of the update may be infinite or NaN; -1: no state is recorded, and out is untouched. */
int qm_adafactor_narrow(const struct qm_tensor_run_case *w, const struct qm_tensor_run_at *at,
                        const double *before, struct qm_narrow_span *out);

#endif
