/* code_edges.c - Which codes the error of a number allows: positions and edges in double. */
#include "experiments/conform/code_edges.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double U = 0x1p-24;

/* A range of no code. */
static struct qm_code_range code_range_none(void) { return (struct qm_code_range){1, 0}; }

int qm_code_judge(struct qm_conform *c, const char *what, int64_t k, int64_t got, int64_t want,
                  struct qm_code_range range)
{
    if (got == want)
        return 0;
    if (range.low <= want && want <= range.high)
        return 1;
    qm_golden_case_differs(c,
                           "%s[%lld]: got 0x%02llx, want 0x%02llx, whose edge is further away than "
                           "its error",
                           what, (long long)k, (unsigned long long)got, (unsigned long long)want);
    return 0;
}

/* The whole numbers from 0 to top that `at` may be rounded to where it is `off` off. */
static struct qm_code_range rounded(double at, double off, double top)
{
    if (!isfinite(at) || !isfinite(off))
        return code_range_none();
    double low = ceil(at - off - 0.5), high = floor(at + off + 0.5);
    return (struct qm_code_range){(int64_t)fmin(fmax(low, 0.0), top),
                                  (int64_t)fmin(fmax(high, 0.0), top)};
}

struct qm_code_range qm_code_range_table(const struct qm_codec *codec, double x, double off,
                                         double scale)
{
    double at = x / scale, by = off / fabs(scale) + 3.0 * U * fabs(at);
    if (!isfinite(at) || !isfinite(by))
        return code_range_none();
    return (struct qm_code_range){qm_code_of(codec, (float)(at - by), 0),
                                  qm_code_of(codec, (float)(at + by), 0)};
}

/* 255 (log2 x + 126) / span, and in *error what the recording's roundings make of it; what is not
 * above 2^-126 counts as that. */
static double log_place(double x, double span, double *error)
{
    double l = x > 0x1p-126 ? log2(x) : -126.0, at = (l + 126.0) / span * 255.0;
    *error = l == -126.0 ? 0.0 : 4.0 * U * fabs(l) / span * 255.0 + 4.0 * U * fabs(at);
    return at;
}

struct qm_code_range qm_code_range_log(const struct qm_codec *codec, double x, double off,
                                       double span)
{
    double of_low, of_high, low = log_place(x - off, span, &of_low),
                            high = log_place(x + off, span, &of_high);
    (void)codec;
    if (!(span > 0.0))
        return code_range_none();
    struct qm_code_range a = rounded(low, of_low, 255.0), b = rounded(high, of_high, 255.0);
    if (a.low > a.high || b.low > b.high)
        return code_range_none();
    return (struct qm_code_range){a.low, b.high};
}

struct qm_code_range qm_code_range_adaptive(double x, double span, double low, int levels)
{
    double most = (double)(levels - 2);
    if (!(x > 0.0) || !(span > 0.0))
        return code_range_none();
    double l = log2(fmax(x, (double)1e-38f)), at = (l - low) / span * most;
    double error = 4.0 * U * fabs(l) / span * most + 3.0 * U * fabs(at);
    struct qm_code_range r = rounded(at, error, most);
    return (struct qm_code_range){r.low + 1, r.high + (r.low <= r.high)};
}

/* ---- SOLO's logarithm ------------------------------------------------------------------------ */

/* log2(x / scale) / log2(alpha), of which *error is that of the recording: 2 u for each logarithm
 * that is an ulp off and u for the quotient, and as much again of these as their products have. */
static double power_of(const struct qm_quantile_number *a, double x, double *error)
{
    double y = a->off > 0.0 ? x / a->scale : (double)((float)x / (float)a->scale);
    double k = log2(y) / log2(a->alpha);
    *error = 5.01 * U * fabs(k);
    return k;
}

/* d or the code after it, by whether y - s >= (b - s) u with b, s = alpha^d, alpha^(d + 1): powers
 * are 2 u off, both differences and the product are rounded. */
static struct qm_code_range of_cell(const struct qm_quantile_number *a, double d, double low,
                                    double high)
{
    double top = (double)a->top, e = fmin(d + 1.0, top), b = pow(a->alpha, d), s = pow(a->alpha, e);
    double at = (b - s) * a->u;
    double error = 2.0 * U * s + U * fmax(fabs(low - s), fabs(high - s)) +
                   a->u * 2.0 * U * (b + s) + 2.0 * U * fabs(at) + 0x1p-149;
    return (struct qm_code_range){(int64_t)(high - s + error >= at ? d : e),
                                  (int64_t)(low - s - error >= at ? d : e)};
}

/* Whether a number that may be the scale, or an ulp above or below it, may have code `want` by an
 * alpha of 1: 0 as NaN or as minus infinity, which round bernoulli puts to 1 (no y is above
 * alpha^1), or the last code as infinity. */
static int is_of_ones(const struct qm_quantile_number *a, int64_t want)
{
    int is_below = a->x - a->off<a->scale, is_above = a->x + a->off> a->scale;
    int is_even = a->x - a->off <= a->scale && a->x + a->off >= a->scale;
    return (want == 0 && (is_even || (is_below && !a->is_unbiased))) ||
           (want == 1 && is_below && a->is_unbiased) || (want == a->top && is_above);
}

struct qm_code_range qm_code_range_quantile(const struct qm_quantile_number *a, int64_t want)
{
    if (a->alpha == 1.0 && a->off > 0.0)
        return is_of_ones(a, want) ? (struct qm_code_range){want, want} : code_range_none();
    double top = (double)a->top, of_low, of_high, from = fmax(a->x - a->off, 0.0);
    double high = power_of(a, from, &of_high), low = power_of(a, a->x + a->off, &of_low);
    if (!isfinite(low) || isnan(high) || (a->off == 0.0 && !isfinite(high)))
        return code_range_none();
    low -= of_low;
    high += isfinite(high) ? of_high : 0.0;
    if (!a->is_unbiased) { /* the sum with the draw is rounded, too */
        low += a->u - 0.5;
        high = fmin(high + (a->u - 0.5), 2.0 * top);
        return (struct qm_code_range){rounded(low, U * fabs(low), top).low,
                                      rounded(high, U * fabs(high), top).high};
    }
    struct qm_code_range r = {a->top, 0};
    double y[2] = {from / a->scale * (1.0 - U), (a->x + a->off) / a->scale * (1.0 + U)};
    if (a->off == 0.0)
        y[0] = y[1] = (double)((float)a->x / (float)a->scale);
    for (double d = fmin(fmax(floor(low), 0.0), top); d <= fmin(fmax(floor(high), 0.0), top);
         d += 1.0) {
        struct qm_code_range cell = of_cell(a, d, y[0], y[1]);
        r.low = cell.low < r.low ? cell.low : r.low;
        r.high = cell.high > r.high ? cell.high : r.high;
    }
    return r;
}

/* ---- runs of the CPU backend ----------------------------------------------------------------- */

int qm_run_numbers_open(struct qm_conform *c, const struct qm_run *run, struct qm_run_numbers *w)
{
    int64_t n = qm_shape_numel(&run->shape);
    *w = (struct qm_run_numbers){.p = NULL};
    if (!run->within.range)
        return 1;
    w->p = qm_golden_case_memory(c, n, sizeof *w->p);
    for (int i = 0; w->p && i < run->recipe.rule->n_slots; i++) {
        if (run->seen && !run->seen[i])
            continue;
        w->old[i] = qm_golden_case_memory(c, n, sizeof *w->p);
        w->x[i] = run->seen ? run->seen[i] : qm_golden_case_memory(c, n, sizeof *w->p);
        if (!w->old[i] || !w->x[i])
            return 0;
    }
    return w->p != NULL;
}

qm_status qm_run_numbers_of(const struct qm_run *run, void *plan, const struct qm_hyper *h,
                            int64_t t, const float *p, const float *g, struct qm_run_numbers *w)
{
    const struct qm_rule *rule = run->recipe.rule;
    int64_t n = qm_shape_numel(&run->shape);
    size_t bytes = (size_t)n * sizeof *p;
    struct qm_rule_step step;
    if (!run->within.range)
        return QM_OK;
    for (int i = 0; i < rule->n_slots; i++) {
        if (!w->x[i])
            continue;
        QM_TRY(qm_backend_cpu.decode(plan, i, w->old[i]));
        if (!run->seen)
            memcpy(w->x[i], w->old[i], bytes);
    }
    if (run->seen || !rule->elementwise)
        return QM_OK;
    memcpy(w->p, p, bytes);
    rule->prepare(h, t, &step);
    step.hyper = h;
    rule->elementwise->block(&step, n, w->p, g, w->x);
    return QM_OK;
}

/* Takes the recorded codes of NaN, which are the same number. */
static void take_nan_codes(const struct qm_run *run, int i, const int64_t *want, int64_t n,
                           uint8_t *codes)
{
    const struct qm_quantizer *q = &run->recipe.slot[i];
    struct qm_codebook cb;
    if (q->bits != 8)
        return;
    qm_codebook_build(q->map, q->bits, q->sign, &cb);
    qm_take_nan_codes(q, &cb, want, n, codes);
}

/* The place of a code among the values of its table, which ascend. */
static int64_t place_of(const struct qm_codec *codec, int64_t code)
{
    int has_place = codec->cb.is_permuted && code >= 0 && code < 256;
    return has_place ? codec->cb.position_of[code] : code;
}

void qm_run_judge_codes(struct qm_conform *c, const struct qm_run *run,
                        const struct qm_run_numbers *w, const struct qm_codec *codec, int i,
                        int64_t t, uint8_t *codes)
{
    const struct qm_run_slot *slot = &run->slot[i];
    int64_t n = qm_shape_numel(&run->shape), off = 0, block = codec->q.block;
    const int64_t *want = slot->codes + (t - 1) * n;
    char what[96];
    snprintf(what, sizeof what, "step %lld %s code", (long long)t, run->recipe.rule->slot[i]);
    take_nan_codes(run, i, want, n, codes);
    if (!run->within.range || (!run->seen && !run->recipe.rule->elementwise)) {
        qm_match_codes(c, what, codes, want, n);
        return;
    }
    for (int64_t k = 0; k < n && qm_golden_case_open(c); k++) {
        if (codes[k] == want[k])
            continue;
        double x = (double)w->x[i][k],
               scale = (double)slot->scales[(t - 1) * slot->n_scales + k / block];
        double by = run->within.number_relative * (fabs(x) + 2.0 * fabs((double)w->old[i][k]));
        struct qm_code_range r = run->within.range(codec, x, by + w->of_l2[k], scale);
        int64_t got = place_of(codec, codes[k]); /* one that the sign of x moved is out of it */
        if (got < r.low || got > r.high)
            r = code_range_none();
        off += qm_code_judge(c, what, k, got, place_of(codec, want[k]), r);
    }
    qm_match_count(c, what, off, n);
}
