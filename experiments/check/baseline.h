/* baseline.h - the plain float32 step beside the judged one: how far float32 arithmetic alone is from
 * the oracle on the same inputs.
 *
 * The same rule, composed, with every state and the parameter in float32.  It starts each step from
 * what the judged side starts from, decoded.  RMSE is of one step, against the oracle from those
 * inputs too; the judged over the float32 one is the ratio that `check` reports.  Of a parameter it is
 * 1 where the storage costs nothing within a step: the update uses the states before they are
 * encoded.  It is more where the rule reads codes back or the parameter is narrower than float32, and
 * for a kernel that rounds more than it needs to; of a state it is what its format costs. */
#ifndef QM_EXPERIMENTS_CHECK_BASELINE_H
#define QM_EXPERIMENTS_CHECK_BASELINE_H

#include <jansson.h>

#include "core/recipe/backend.h"

/* Over steps whose two errors are finite and not 0: sums of the logarithms of
 * sqrt(sum (x - oracle)^2 / sum oracle^2), so that no one setting of the hyper-parameters outweighs the
 * others; the largest quotient of any step. */
struct qm_rmse {
    double judged, plain, worst;
    int64_t steps;
};

/* Geometric means over the steps, and their quotient; NaN over none. */
double qm_rmse_judged(const struct qm_rmse *r);
double qm_rmse_plain(const struct qm_rmse *r);
double qm_rmse_ratio(const struct qm_rmse *r);

void qm_rmse_merge(struct qm_rmse *into, const struct qm_rmse *from);

void qm_rmse_add(struct qm_rmse *to, const float *judged, const float *plain, const double *want,
                 int64_t n);

/* {"parameter": {"ratio", "worst", "rmse", "float32", "steps"}, "exp_avg": ...} of rmse[QM_MAX_SLOTS + 1], whose
 * last entry is the parameter; null where there is no number. */
json_t *qm_rmse_json(const struct qm_rmse *rmse, const struct qm_rule *rule);

/* For a table: the parameter's ratio (slots 0), or the largest of the states', from that object. */
void qm_rmse_text(const json_t *rmse, int slots, char *text, size_t size);

struct qm_baseline {
    void *plan; /* NULL: closed */
    int n_slots;
    float *p, *slot[QM_MAX_SLOTS]; /* results; p also takes the start */
};

/* b is zeroed.  n, slot_n: elements. */
qm_status qm_baseline_open(struct qm_baseline *b, const struct qm_recipe *judged,
                           const struct qm_shape *shape, uint32_t tensor, int64_t n,
                           const int64_t *slot_n);

/* Step t from p[n] and slot[i]. */
qm_status qm_baseline_step(struct qm_baseline *b, const struct qm_shape *shape, const float *p,
                           float *const *slot, const struct qm_tensor *g, int64_t t, uint64_t seed);

void qm_baseline_close(struct qm_baseline *b);

#endif
