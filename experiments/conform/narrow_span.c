/* narrow_span.c - Ranges of numbers that operations of PyTorch on bfloat16 numbers may give. */
#include "experiments/conform/narrow_span.h"

#include <math.h>
#include <stdio.h>

#include "core/base/half.h"

struct qm_narrow_span qm_narrow_span_of(const double *x, int n)
{
    struct qm_narrow_span r = {HUGE_VAL, -HUGE_VAL, 0};
    for (int i = 0; i < n; i++) {
        r.nan |= isnan(x[i]);
        r.lo = x[i] < r.lo ? x[i] : r.lo;
        r.hi = x[i] > r.hi ? x[i] : r.hi;
    }
    return r;
}

/* NaN alone. */
static const struct qm_narrow_span nothing = {HUGE_VAL, -HUGE_VAL, 1};

static int is_empty(struct qm_narrow_span x) { return x.lo > x.hi; }

struct qm_narrow_span qm_narrow_span_one(double x) { return qm_narrow_span_of(&x, 1); }

/* The ends of a range as float32 results, an ulp further out where they are not exact. */
struct qm_narrow_span qm_narrow_span_single(struct qm_narrow_span r)
{
    if (r.lo > r.hi)
        return r;
    float lo = (float)r.lo, hi = (float)r.hi;
    r.lo = (double)lo == r.lo ? r.lo : (double)nextafterf(lo, -HUGE_VALF);
    r.hi = (double)hi == r.hi ? r.hi : (double)nextafterf(hi, HUGE_VALF);
    return r;
}

static double span_bf16(double x) { return (double)qm_bf16_to_float(qm_float_to_bf16((float)x)); }

/* A float32 result that is rounded to bfloat16. */
struct qm_narrow_span qm_narrow_span_narrow(struct qm_narrow_span r)
{
    r = qm_narrow_span_single(r);
    return r.lo > r.hi ? r : (struct qm_narrow_span){span_bf16(r.lo), span_bf16(r.hi), r.nan};
}

/* The range of results x[n] of the ends of two ranges; of none where one of them is NaN alone. */
static struct qm_narrow_span of_ends(struct qm_narrow_span a, struct qm_narrow_span b,
                                     const double *x, int n)
{
    if (is_empty(a) || is_empty(b))
        return nothing;
    struct qm_narrow_span r = qm_narrow_span_of(x, n);
    r.nan |= a.nan || b.nan;
    return r;
}

static int has(struct qm_narrow_span x, double at) { return x.lo <= at && at <= x.hi; }

static int has_infinity(struct qm_narrow_span x) { return has(x, HUGE_VAL) || has(x, -HUGE_VAL); }

/* NaN is among the results where 0 meets an infinity, infinities of two signs meet, or 0 / 0 or a
 * quotient of infinities is formed, be it within a range and not at its ends. */
struct qm_narrow_span qm_narrow_span_product(struct qm_narrow_span a, struct qm_narrow_span b)
{
    const double x[4] = {a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi};
    struct qm_narrow_span r = of_ends(a, b, x, 4);
    r.nan |= (has(a, 0.0) && has_infinity(b)) || (has(b, 0.0) && has_infinity(a));
    return r;
}

struct qm_narrow_span qm_narrow_span_sum(struct qm_narrow_span a, struct qm_narrow_span b)
{
    const double x[2] = {a.lo + b.lo, a.hi + b.hi};
    struct qm_narrow_span r = of_ends(a, b, x, 2);
    r.nan |= isnan(a.lo + b.hi) || isnan(a.hi + b.lo);
    return r;
}

struct qm_narrow_span qm_narrow_span_quotient(struct qm_narrow_span a, struct qm_narrow_span b)
{
    const double x[4] = {a.lo / b.lo, a.lo / b.hi, a.hi / b.lo, a.hi / b.hi};
    struct qm_narrow_span r = of_ends(a, b, x, 4);
    r.nan |= (has(a, 0.0) && has(b, 0.0)) || (has_infinity(a) && has_infinity(b));
    return r;
}

/* A scalar that torch.add, mul or div takes: float32 in vectors, bfloat16 in scalar code. */
struct qm_narrow_span qm_narrow_span_scalar(double x)
{
    const double either[2] = {(double)(float)x, span_bf16(x)};
    return qm_narrow_span_of(either, 2);
}

/* a + alpha b, of torch.add. */
struct qm_narrow_span qm_narrow_span_add(struct qm_narrow_span a, struct qm_narrow_span b,
                                         double alpha)
{
    struct qm_narrow_span x = qm_narrow_span_single(
                              qm_narrow_span_product(b, qm_narrow_span_scalar(alpha))),
                          y = qm_narrow_span_narrow(x);
    struct qm_narrow_span either = {fmin(x.lo, y.lo), fmax(x.hi, y.hi), x.nan};
    return qm_narrow_span_narrow(qm_narrow_span_sum(a, either));
}

/* a + value b / c, of torch.addcdiv. */
struct qm_narrow_span qm_narrow_span_add_quotient(struct qm_narrow_span a, struct qm_narrow_span b,
                                                  struct qm_narrow_span c, double value)
{
    struct qm_narrow_span above =
        qm_narrow_span_single(qm_narrow_span_product(qm_narrow_span_one((double)(float)value), b));
    return qm_narrow_span_narrow(
        qm_narrow_span_sum(a, qm_narrow_span_single(qm_narrow_span_quotient(above, c))));
}

/* sqrt(v), of a recorded number. */
struct qm_narrow_span qm_narrow_span_root(double v)
{
    return qm_narrow_span_narrow(qm_narrow_span_one(sqrt(v)));
}

int qm_narrow_span_has(struct qm_narrow_span x, double want)
{
    return isnan(want) ? x.nan : x.lo <= want && want <= x.hi;
}

struct qm_narrow_span qm_narrow_span_either(struct qm_narrow_span a, struct qm_narrow_span b)
{
    return (struct qm_narrow_span){a.lo < b.lo ? a.lo : b.lo, a.hi > b.hi ? a.hi : b.hi,
                                   a.nan || b.nan};
}

void qm_narrow_span_judge(struct qm_conform *c, const char *what, int64_t k,
                          struct qm_narrow_span x, double want)
{
    double end = want < x.lo ? x.lo : x.hi;
    if (!qm_narrow_span_has(x, want)) {
        qm_golden_case_differs(c,
                               "%s[%lld]: got %.9g, want %.9g: bfloat16 roundings make it %.9g "
                               "to %.9g",
                               what, (long long)k, end, want, x.lo, x.hi);
        return;
    }
    if (x.lo >= x.hi && x.nan == isnan(want))
        return;
    if (c->now.outcome == QM_CONFORM_equal)
        snprintf(c->now.text, sizeof c->now.text,
                 "%s[%lld]: a rounding to bfloat16 may go either way", what, (long long)k);
    c->now.outcome = QM_CONFORM_near;
}
