/* drift.c - how a quantized running average departs from the exact one. */
#include "oracle/theory/drift.h"
#include "oracle/metric/compensated_sum.h"
#include <math.h>
#include <stdlib.h>

/* Running moments of the pairs (a, b) = (e_(t-1), e_t), by Welford's update. */
struct lag {
    int32_t pairs;
    double last; /* e_(t-1); NaN before the first */
    double mean_a, mean_b, aa, bb, ab;
};

struct qm_drift {
    int64_t n, steps, nonfinite;
    struct lag *lag;
    double *origin; /* the exact state when the code last changed; NaN before the first */
    uint8_t *code;  /* that code */
    int has_code;
    double rel_error, rel_error_max, mean_error, rel_bias, dead;
    struct qm_sum dead_sum;
    int64_t dead_steps;
};

qm_status qm_drift_open(int64_t n, struct qm_drift **out)
{
    if (n < 1)
        return qm_fail(QM_BAD_ARG, "drift over %lld elements; at least 1 is needed", (long long)n);
    struct qm_drift *d = calloc(1, sizeof *d);
    if (d) {
        d->n = n;
        d->lag = calloc((size_t)n, sizeof *d->lag);
        d->origin = calloc((size_t)n, sizeof *d->origin);
        d->code = calloc((size_t)n, sizeof *d->code);
    }
    if (!d || !d->lag || !d->origin || !d->code) {
        qm_drift_close(d);
        return qm_fail(QM_NO_MEMORY, "drift of %lld elements", (long long)n);
    }
    for (int64_t i = 0; i < n; i++)
        d->lag[i].last = d->origin[i] = nan("");
    *out = d;
    return QM_OK;
}

void qm_drift_close(struct qm_drift *d)
{
    if (d) {
        free(d->lag);
        free(d->origin);
        free(d->code);
    }
    free(d);
}

static void lag_add(struct lag *l, double e)
{
    if (!isnan(l->last)) {
        double n = (double)++l->pairs;
        double da = l->last - l->mean_a, db = e - l->mean_b;
        l->mean_a += da / n;
        l->mean_b += db / n;
        l->aa += da * (l->last - l->mean_a);
        l->bb += db * (e - l->mean_b);
        l->ab += da * (e - l->mean_b);
    }
    l->last = e;
}

/* Whether element i sits in a dead zone; starts its count anew when the code has changed. */
static int stuck(struct qm_drift *d, int64_t i, double want, uint8_t code, double half_cell)
{
    if (isnan(d->origin[i]) || d->code[i] != code) {
        d->code[i] = code;
        d->origin[i] = want;
        return 0;
    }
    return fabs(want - d->origin[i]) > half_cell;
}

void qm_drift_add(struct qm_drift *d, const double *want, const float *got, const uint8_t *code,
                  const float *half_cell)
{
    struct qm_sum e2 = {0.0, 0.0}, x2 = e2, sum = e2, size = e2;
    int64_t used = 0, dead = 0;
    for (int64_t i = 0; i < d->n; i++) {
        double x = want[i], e = (double)got[i] - x;
        if (!isfinite(x) || !isfinite(e)) {
            d->nonfinite++;
            d->lag[i].last = nan("");
            continue;
        }
        used++;
        qm_sum_add(&e2, e * e);
        qm_sum_add(&x2, x * x);
        qm_sum_add(&sum, e);
        qm_sum_add(&size, fabs(x));
        lag_add(&d->lag[i], e);
        if (code && half_cell)
            dead += stuck(d, i, x, code[i], (double)half_cell[i]);
    }
    double error = sqrt(qm_sum_value(&e2)), norm = sqrt(qm_sum_value(&x2));
    double bias = qm_sum_value(&sum);
    d->steps++;
    d->rel_error = used == 0 ? nan("") : error == 0.0 ? 0.0 : error / norm;
    d->rel_error_max = fmax(d->rel_error_max, d->rel_error);
    d->mean_error = used ? bias / (double)used : nan("");
    d->rel_bias = used == 0 ? nan("") : bias == 0.0 ? 0.0 : bias / qm_sum_value(&size);
    d->dead = code && half_cell && used ? (double)dead / (double)used : nan("");
    if (code && half_cell && d->has_code && used) {
        qm_sum_add(&d->dead_sum, d->dead);
        d->dead_steps++;
    }
    d->has_code |= code && half_cell;
}

struct qm_drift_values qm_drift_values(const struct qm_drift *d)
{
    struct qm_drift_values v = {.steps = d->steps, .nonfinite = d->nonfinite};
    int any = d->steps > 0;
    v.rel_error = any ? d->rel_error : nan("");
    v.rel_error_max = any ? d->rel_error_max : nan("");
    v.mean_error = any ? d->mean_error : nan("");
    v.rel_bias = any ? d->rel_bias : nan("");
    v.dead = any ? d->dead : nan("");
    v.dead_mean = d->dead_steps ? qm_sum_value(&d->dead_sum) / (double)d->dead_steps : nan("");
    struct qm_sum mean = {0.0, 0.0}, aa = mean, bb = mean, ab = mean;
    for (int64_t i = 0; i < d->n; i++) {
        const struct lag *l = &d->lag[i];
        if (l->pairs < 2 || !(l->aa > 0.0) || !(l->bb > 0.0))
            continue;
        v.correlated++;
        qm_sum_add(&mean, l->ab / (sqrt(l->aa) * sqrt(l->bb)));
        qm_sum_add(&aa, l->aa);
        qm_sum_add(&bb, l->bb);
        qm_sum_add(&ab, l->ab);
    }
    v.autocorrelation = v.correlated ? qm_sum_value(&mean) / (double)v.correlated : nan("");
    double norms = sqrt(qm_sum_value(&aa)) * sqrt(qm_sum_value(&bb));
    v.autocorrelation_pooled = v.correlated ? qm_sum_value(&ab) / norms : nan("");
    return v;
}
