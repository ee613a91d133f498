/* baseline.h - The float32 baseline: the error that float32 arithmetic alone makes in one step.
 *
 * The baseline runs the judged recipe's rule, composed, with every state and the parameter in
 * float32.  Each of its steps starts from the decoded inputs of the judged step.  Both errors are
 * taken against the oracle's step from these inputs:
 *
 *     RMSE = sqrt(sum (x - oracle)^2 / sum oracle^2) of one step
 *     ratio = RMSE of the judged step / RMSE of the float32 step
 *
 * The parameter's ratio is 1 where storage costs nothing within a step, because the update uses the
 * states before they are encoded.  It is above 1 where the rule reads codes back, where the
 * parameter is narrower than float32, and for a kernel that rounds more often than it needs to.
 * The ratio of a state is the cost of its format. */
#ifndef QM_EXPERIMENTS_CHECK_BASELINE_H
#define QM_EXPERIMENTS_CHECK_BASELINE_H

#include <jansson.h>

#include "core/recipe/backend.h"

/* Sums over the steps whose two errors are finite and not 0.  Logarithms are summed, so that no
 * single setting of the hyper-parameters outweighs the others. */
struct qm_rmse {
    double judged, plain; /* sums of log RMSE of the judged and of the float32 step */
    double worst;         /* largest ratio of any step */
    int64_t steps;
};

/* Geometric means over the steps, and their quotient; NaN where there are no steps. */
double qm_rmse_judged(const struct qm_rmse *r);
double qm_rmse_ratio(const struct qm_rmse *r);

void qm_rmse_merge(struct qm_rmse *into, const struct qm_rmse *from);

/* Adds one step of n elements; `want` is the oracle's result. */
void qm_rmse_add(struct qm_rmse *to, const float *judged, const float *plain, const double *want,
                 int64_t n);

/* {"parameter": {"ratio", "worst", "rmse", "float32", "steps"}, "exp_avg": ...} from
 * rmse[QM_MAX_SLOTS + 1], whose last entry is the parameter; null where there is no number.  rule
 * NULL: the parameter alone.  The caller owns the object. */
json_t *qm_rmse_json(const struct qm_rmse *rmse, const struct qm_rule *rule);

/* Prints the parameter's ratio (slots 0) or the largest ratio of the states (slots 1) from the
 * object of qm_rmse_json, or "-" where there is none. */
void qm_rmse_text(const json_t *rmse, int slots, char *text, size_t size);

struct qm_baseline {
    void *plan; /* NULL: closed */
    int n_slots;
    float *p, *slot[QM_MAX_SLOTS]; /* results; one allocation, which p begins */
};

/* b is zeroed beforehand.  n, slot_n: elements of the parameter and of each slot. */
qm_status qm_baseline_open(struct qm_baseline *b, const struct qm_recipe *judged,
                           const struct qm_shape *shape, uint32_t tensor, int64_t n,
                           const int64_t *slot_n);

/* Makes step t from p[n] and slot[i][slot_n[i]]; the results are b->p and b->slot[i]. */
qm_status qm_baseline_step(struct qm_baseline *b, const struct qm_shape *shape, const float *p,
                           float *const *slot, const struct qm_tensor *g, int64_t t, uint64_t seed);

void qm_baseline_close(struct qm_baseline *b);

#endif
