/* metric_list.c - The list of metrics: name, unit, level, direction, text, value from the sums.
 *
 * A row of the list is X(name, unit, level, better, text, value of m).  better: higher or lower
 * where `qualm compare` judges the metric by default, else none.  A new metric needs
 * its row here and its definition in results/METRICS.md, and a sum that is not taken yet its place
 * in pair_sums.h or metric_state.h. */
#include "oracle/metric/metric.h"
#include "oracle/metric/metric_state.h"
#include <math.h>
#include <string.h>

static double value_of(const struct qm_sum *s) { return qm_sum_value(s); }

/* a / b; 0 where a = 0, also for b = 0; NaN over no elements. */
static double ratio(double a, double b, int64_t n)
{
    return n == 0 ? nan("") : a == 0.0 ? 0.0 : a / b;
}

static double share(int64_t a, int64_t n) { return n ? (double)a / (double)n : nan(""); }

/* a, or NaN over no elements. */
static double over(double a, int64_t n) { return n ? a : nan(""); }

/* The size of an error, which has no bound where a finite number became NaN or Inf. */
static double size(double error, int64_t unbounded) { return unbounded ? HUGE_VAL : error; }

static double decibel(double nmse) { return -10.0 * log10(nmse); }

static int64_t nonzero(const struct qm_pair_sums *p) { return p->n - p->zero_want; }

/* Elements with want = 0 that are not decoded to 0. */
static int64_t born(const struct qm_pair_sums *p)
{
    return p->zero_want - (p->zero_got - p->collapsed);
}

static double mean_err(const struct qm_pair_sums *p)
{
    return over(value_of(&p->err) / (double)p->n, p->n);
}

static double err_sd(const struct qm_pair_sums *p)
{
    return p->n > 1 ? sqrt(value_of(&p->spread) / (double)(p->n - 1)) : nan("");
}

static double err_se(const struct qm_pair_sums *p) { return err_sd(p) / sqrt((double)p->n); }

static double err_z(const struct qm_pair_sums *p)
{
    double mean = mean_err(p), se = err_se(p);
    return isnan(se) ? se : mean == 0.0 ? 0.0 : mean / se;
}

static double disagree_abs(const struct qm_pair_sums *p)
{
    double wrong = value_of(&p->flipped_abs) + value_of(&p->collapsed_abs);
    return ratio(wrong, value_of(&p->abs_want), p->n);
}

static double stream_mean(const struct qm_metric_stream *s)
{
    return over(value_of(&s->sum) / (double)s->n, s->n);
}

static double stream_abs(const struct qm_metric_stream *s)
{
    return over(value_of(&s->abs) / (double)s->n, s->n);
}

static double stream_rms(const struct qm_metric_stream *s)
{
    return over(sqrt(value_of(&s->sq) / (double)s->n), s->n);
}

static double stream_max(const struct qm_metric_stream *s) { return over(s->max, s->n); }

/* Statistics of the codes; n is 0 and the entropy NaN without codes. */
struct code_use {
    int64_t n;
    int used;
    double levels, entropy;
};

static struct code_use code_use(const struct qm_metrics *m)
{
    int64_t count[256];
    struct code_use u = {0, 0, ldexp(1.0, m->bits), nan("")};
    qm_metrics_codes(m, count);
    for (int k = 0; k < 256; k++) {
        u.n += count[k];
        u.used += count[k] > 0;
    }
    if (u.n == 0 || m->bits == 0) {
        u.n = 0;
        return u;
    }
    struct qm_sum h = {0.0, 0.0};
    for (int k = 0; k < 256; k++) {
        double p = (double)count[k] / (double)u.n;
        if (count[k] > 0)
            qm_sum_add(&h, -p * log2(p));
    }
    u.entropy = value_of(&h);
    return u;
}

static double code_share(const struct qm_metrics *m, int low, int high)
{
    int64_t count[256];
    int last = (1 << m->bits) - 1;
    struct code_use u = code_use(m);
    qm_metrics_codes(m, count);
    return u.n ? share((low ? count[0] : 0) + (high ? count[last] : 0), u.n) : nan("");
}

static double entropy_corrected(const struct qm_metrics *m)
{
    struct code_use u = code_use(m);
    return u.n ? u.entropy + (u.used - 1) / (2.0 * (double)u.n * log(2.0)) : nan("");
}

static double cos_grad(const struct qm_metrics_extra *x)
{
    double norms = sqrt(value_of(&x->sq_grad)) * sqrt(value_of(&x->sq_step));
    return norms > 0.0 ? value_of(&x->step_grad) / norms : nan("");
}

static struct qm_signed_log_histogram_gap gap(const struct qm_metrics *m)
{
    return qm_signed_log_histogram_compare(&m->extra->want, &m->extra->got);
}

/* The mean of |e|.  W1 cannot exceed it, nor W2 the RMS of e: they are the cost of the given
 * pairing, and W1 and W2 are minima over all pairings. */
static double mean_abs(const struct qm_metrics *m)
{
    return over(value_of(&m->state.abs_err) / (double)m->state.n, m->state.n);
}

static double rms(const struct qm_pair_sums *p)
{
    return over(sqrt(value_of(&p->sq_err) / (double)p->n), p->n);
}

/* RMS of the decoded values, as norm ratio times RMS of the exact values, so that nothing cancels;
 * where all exact values are 0 it is the RMS of the error. */
static double rms_got(const struct qm_pair_sums *p)
{
    if (p->zero_want == p->n)
        return rms(p);
    return qm_pair_sums_norm_ratio(p) * sqrt(value_of(&p->sq_want) / (double)p->n);
}

#define S           (&m->state)
#define U           (&m->step)
#define FX          (m->extra)
#define QUANTILE(p) qm_metrics_rel_quantile(m, p)
#define NMSE        size(qm_pair_sums_nmse(S), m->unbounded)
#define STEP_NMSE   size(qm_pair_sums_nmse(U), m->step_unbounded)

/* clang-format off */
#define QM_METRIC_LIST(X) \
    X(count, "elements", brief, none, "elements with finite want and got", (double)S->n) \
    X(nan_want, "elements", brief, none, "NaN in the exact values", (double)m->nan_want) \
    X(inf_want, "elements", brief, none, "Inf in the exact values", (double)m->inf_want) \
    X(nan_got, "elements", brief, none, "NaN in the decoded values", (double)m->nan_got) \
    X(inf_got, "elements", brief, none, "Inf in the decoded values", (double)m->inf_got) \
    X(step_nonfinite, "elements", basic, none, "NaN or Inf in either step", (double)m->step_nonfinite) \
    X(mse, "x^2", brief, none, "mean squared error", \
      size(over(value_of(&S->sq_err) / (double)S->n, S->n), m->unbounded)) \
    X(rmse, "x", brief, none, "root mean squared error", size(rms(S), m->unbounded)) \
    X(nmse, "1", brief, none, "sum of squared errors over sum of squares", NMSE) \
    X(sqnr, "dB", brief, higher, "-10 log10 of nmse", decibel(NMSE)) \
    X(mean_abs, "x", basic, none, "mean absolute error", size(mean_abs(m), m->unbounded)) \
    X(max_abs, "x", brief, none, "largest absolute error", \
      size(over(S->max_err, S->n), m->unbounded)) \
    X(max_rel, "1", basic, none, "largest |e| / |x| over x != 0", over(S->max_rel, nonzero(S))) \
    X(max_rel_scaled, "1", full, none, "largest |e| / |x| over |x| >= scale / 100", \
      over(FX->max_rel_scaled, FX->scaled)) \
    X(bias, "x", basic, none, "mean error", mean_err(S)) \
    X(bias_se, "x", basic, none, "standard error of the mean error", err_se(S)) \
    X(bias_z, "1", basic, none, "mean error in standard errors", err_z(S)) \
    X(error_sd, "x", basic, none, "standard deviation of the error", err_sd(S)) \
    X(rel_bias, "1", basic, none, "sum of errors over sum of |x|", \
      ratio(value_of(&S->err), value_of(&S->abs_want), S->n)) \
    X(shrinkage, "x", basic, none, "mean of |x^| - |x|", over(value_of(&S->shrink) / (double)S->n, S->n)) \
    X(rel_shrinkage, "1", basic, none, "sum of |x^| - |x| over sum of |x|", \
      ratio(value_of(&S->shrink), value_of(&S->abs_want), S->n)) \
    X(angle, "rad", basic, none, "angle between exact and decoded", qm_pair_sums_angle(S)) \
    X(cosine, "1", basic, none, "cosine of the angle between exact and decoded", cos(qm_pair_sums_angle(S))) \
    X(norm_ratio, "1", basic, none, "norm of decoded over norm of exact", qm_pair_sums_norm_ratio(S)) \
    X(collapse, "1", brief, none, "share decoded to 0, of x != 0", share(S->collapsed, nonzero(S))) \
    X(collapse_abs, "1", basic, none, "share decoded to 0, weighted by |x|", \
      over(value_of(&S->collapsed_abs) / value_of(&S->abs_want), nonzero(S))) \
    X(collapse_step, "1", basic, none, "share decoded to 0, weighted by the exact step", \
      ratio(value_of(&m->lost_want_step), value_of(&U->abs_want), U->n)) \
    X(collapse_got_step, "1", basic, none, "share decoded to 0, weighted by the step made", \
      ratio(value_of(&m->lost_got_step), value_of(&U->abs_want) + value_of(&U->shrink), U->n)) \
    X(birth, "1", basic, none, "share not decoded to 0, of x = 0", share(born(S), S->zero_want)) \
    X(sign_flip, "1", basic, none, "share decoded to the opposite sign, of x != 0", \
      share(S->flipped, nonzero(S))) \
    X(beyond_2x, "1", basic, none, "share with x^ / x outside [1/2, 2], of x != 0", \
      share(S->beyond, nonzero(S))) \
    X(rel_p1, "1", full, none, "1 % quantile of |e| / max(|x|, 2^-126)", QUANTILE(0.01)) \
    X(rel_p5, "1", full, none, "5 % quantile", QUANTILE(0.05)) \
    X(rel_p25, "1", full, none, "25 % quantile", QUANTILE(0.25)) \
    X(rel_p50, "1", full, none, "median", QUANTILE(0.5)) \
    X(rel_p75, "1", full, none, "75 % quantile", QUANTILE(0.75)) \
    X(rel_p95, "1", full, none, "95 % quantile", QUANTILE(0.95)) \
    X(rel_p99, "1", full, none, "99 % quantile", QUANTILE(0.99)) \
    X(rel_p99_9, "1", full, none, "99.9 % quantile", QUANTILE(0.999)) \
    X(rel_min, "1", full, none, "smallest, exact", over(FX->rel.min, FX->rel.n)) \
    X(rel_max, "1", full, none, "largest, exact", over(FX->rel.max, FX->rel.n)) \
    X(log_mean, "1", full, none, "mean of ln(x^ / x), same nonzero sign", stream_mean(&FX->log)) \
    X(log_rms, "1", full, none, "RMS of ln(x^ / x)", stream_rms(&FX->log)) \
    X(log_max, "1", full, none, "largest |ln(x^ / x)|", stream_max(&FX->log)) \
    X(ulp_mean, "ulp", full, none, "mean |e| in float32 ULPs of x", stream_abs(&FX->ulp)) \
    X(ulp_rms, "ulp", full, none, "RMS of the error in float32 ULPs of x", stream_rms(&FX->ulp)) \
    X(ulp_max, "ulp", full, none, "largest |e| in float32 ULPs of x", stream_max(&FX->ulp)) \
    X(exact, "1", full, none, "share with x^ equal to x rounded to float32", share(FX->equal, S->n)) \
    X(invsqrt_mean, "x^-1/2", full, none, "mean |1/(sqrt v + eps) - 1/(sqrt v^ + eps)|", \
      stream_abs(&FX->invsqrt[QM_EPS_OWN])) \
    X(invsqrt_rms, "x^-1/2", full, none, "RMS of 1/(sqrt v + eps) - 1/(sqrt v^ + eps)", stream_rms(&FX->invsqrt[QM_EPS_OWN])) \
    X(invsqrt_max, "x^-1/2", full, none, "largest |1/(sqrt v + eps) - 1/(sqrt v^ + eps)|", stream_max(&FX->invsqrt[QM_EPS_OWN])) \
    X(rho_mean, "1", full, none, "mean of (sqrt v + eps)/(sqrt v^ + eps) - 1", \
      stream_mean(&FX->rho[QM_EPS_OWN])) \
    X(rho_rms, "1", full, none, "RMS of (sqrt v + eps)/(sqrt v^ + eps) - 1", stream_rms(&FX->rho[QM_EPS_OWN])) \
    X(rho_max, "1", full, none, "largest |(sqrt v + eps)/(sqrt v^ + eps) - 1|", stream_max(&FX->rho[QM_EPS_OWN])) \
    X(invsqrt_mean_1e6, "x^-1/2", full, none, "invsqrt_mean with eps = 1e-6", \
      stream_abs(&FX->invsqrt[QM_EPS_1E6])) \
    X(invsqrt_rms_1e6, "x^-1/2", full, none, "invsqrt_rms with eps = 1e-6", \
      stream_rms(&FX->invsqrt[QM_EPS_1E6])) \
    X(invsqrt_max_1e6, "x^-1/2", full, none, "invsqrt_max with eps = 1e-6", \
      stream_max(&FX->invsqrt[QM_EPS_1E6])) \
    X(rho_mean_1e6, "1", full, none, "rho_mean with eps = 1e-6", stream_mean(&FX->rho[QM_EPS_1E6])) \
    X(rho_rms_1e6, "1", full, none, "rho_rms with eps = 1e-6", stream_rms(&FX->rho[QM_EPS_1E6])) \
    X(rho_max_1e6, "1", full, none, "rho_max with eps = 1e-6", stream_max(&FX->rho[QM_EPS_1E6])) \
    X(rho_alive_rms, "1", full, none, "RMS of sqrt(v / v^) - 1, 0 where v^ = 0", \
      stream_rms(&FX->rho_alive)) \
    X(invsqrt_negative, "elements", full, none, "left out of these: v < 0 or v^ < 0", \
      (double)FX->negative) \
    X(invsqrt_singular, "elements", full, none, "left out of these: eps = 0 with v = 0 or v^ = 0", \
      (double)FX->singular) \
    X(step_nmse, "1", basic, none, "nmse of the update", STEP_NMSE) \
    X(step_sqnr, "dB", basic, higher, "-10 log10 of step_nmse", decibel(STEP_NMSE)) \
    X(step_rmse, "1", basic, none, "root mean squared error of the update", \
      size(rms(U), m->step_unbounded)) \
    X(step_rms, "1", basic, none, "root mean square of the update from the quantized state, lr = 1", \
      rms_got(U)) \
    X(step_max, "1", basic, none, "largest |update| from the quantized state, lr = 1", \
      over(U->max_got, U->n)) \
    X(step_max_abs, "1", basic, none, "largest absolute error of the update", \
      size(over(U->max_err, U->n), m->step_unbounded)) \
    X(step_angle, "rad", basic, none, "angle between the updates", qm_pair_sums_angle(U)) \
    X(step_norm_ratio, "1", basic, none, "norm of the update over that of the exact", \
      qm_pair_sums_norm_ratio(U)) \
    X(step_cos_grad, "1", full, none, "cosine of the update and the gradient", cos_grad(FX)) \
    X(step_sign, "1", basic, none, "share of updates of another sign", qm_pair_sums_disagree(U)) \
    X(step_sign_abs, "1", basic, none, "share of updates of another sign, weighted by the exact |update|", disagree_abs(U)) \
    X(codes_used, "codes", brief, none, "codes that occur", over(code_use(m).used, code_use(m).n)) \
    X(code_utilisation, "1", brief, none, "codes that occur, of 2^bits", \
      over(code_use(m).used / code_use(m).levels, code_use(m).n)) \
    X(code_entropy, "bits", brief, none, "entropy of the codes", code_use(m).entropy) \
    X(code_entropy_mm, "bits", brief, none, "entropy of the codes with Miller and Madow's correction", \
      entropy_corrected(m)) \
    X(code_efficiency, "1", brief, none, "entropy over code width", code_use(m).entropy / m->bits) \
    X(code_perplexity, "codes", brief, none, "2^entropy", exp2(code_use(m).entropy)) \
    X(code_low, "1", brief, none, "share on code 0", code_share(m, 1, 0)) \
    X(code_high, "1", brief, none, "share on the last code", code_share(m, 0, 1)) \
    X(saturation, "1", brief, none, "share on code 0 or the last", code_share(m, 1, 1)) \
    X(clipped, "1", full, none, "share with |x| > scale", share(FX->clipped, FX->scaled)) \
    X(ks, "1", full, none, "Kolmogorov-Smirnov distance, a bound from below", gap(m).ks) \
    X(ks_high, "1", full, none, "Kolmogorov-Smirnov distance, a bound from above", gap(m).ks_high) \
    X(w1, "x", full, none, "Wasserstein-1 distance, a bound from below", fmin(gap(m).w1, mean_abs(m))) \
    X(w1_high, "x", full, none, "Wasserstein-1 distance, a bound from above", fmin(gap(m).w1_high, mean_abs(m))) \
    X(w2, "x", full, none, "Wasserstein-2 distance", fmin(gap(m).w2, rms(S))) \
    X(w2_error, "x", full, none, "how far w2, the Wasserstein-2 distance, may be off", gap(m).w2_error)

#define X(metric, unit, least, better, text, value)                                                \
    static double get_##metric(const struct qm_metrics *m)                                         \
    {                                                                                              \
        return m->level < QM_METRICS_##least ? nan("") : (value);                                  \
    }
QM_METRIC_LIST(X)
#undef X

static const struct qm_metric metrics[] = {
#define X(metric, unit, least, better, text, value)                                                \
    {#metric, unit, text, QM_METRICS_##least, QM_BETTER_##better, get_##metric},
    QM_METRIC_LIST(X)
#undef X
};
/* clang-format on */

const char *qm_better_text(enum qm_better better)
{
    return better == QM_BETTER_lower ? "lower" : better == QM_BETTER_higher ? "higher" : "";
}

int qm_metric_count(void) { return (int)(sizeof metrics / sizeof *metrics); }

const struct qm_metric *qm_metric_at(int i) { return &metrics[i]; }

const struct qm_metric *qm_metric_find(const char *name)
{
    for (int i = 0; i < qm_metric_count(); i++)
        if (strcmp(metrics[i].name, name) == 0)
            return &metrics[i];
    return NULL;
}

static void decades(const struct qm_metrics *m, int which, struct qm_decade out[QM_DECADES])
{
    for (int k = 0; k < QM_DECADES; k++) {
        struct qm_decade none = {0, nan(""), nan(""), nan("")};
        const struct qm_decade_sums *d = m->extra ? &m->extra->decade[which][k] : NULL;
        out[k] = none;
        if (!d || d->count == 0)
            continue;
        double n = (double)d->count;
        out[k].count = d->count;
        out[k].mean_rel = value_of(&d->rel) / n;
        out[k].rms_rel = sqrt(value_of(&d->sq_rel) / n);
        out[k].zero_share = (double)d->zero / n;
    }
}

void qm_metrics_decades(const struct qm_metrics *m, struct qm_decade out[QM_DECADES])
{
    decades(m, 0, out);
}

void qm_metrics_unit_decades(const struct qm_metrics *m, struct qm_decade out[QM_DECADES])
{
    decades(m, 1, out);
}
