/* pair_sums.c - Sums over pairs (want, got): lanes to totals, merging, derived quantities. */
#include "oracle/metric/pair_sums.h"
#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

/* The lanes of every sum over one group. */
struct lanes {
    double count;
    double err[8], abs_err[8], sq_err[8], abs_want[8], sq_want[8], cross[8], shrink[8];
    double collapsed_abs[8], flipped_abs[8], max_err[8], max_got[8], spread[8], residual[8];
    int64_t zero_want[8], zero_got[8], collapsed[8], flipped[8], beyond[8], above[8];
};

/* The a that minimizes |e - a x|; 0 where x vanishes. */
static double slope_of(double cross, double sq_want)
{
    return sq_want > 0.0 ? cross / sq_want : 0.0;
}

static double lanes_slope(const struct lanes *l)
{
    return slope_of(qm_sum_lanes(l->cross), qm_sum_lanes(l->sq_want));
}

#define NAME(x) x##_base
#define WIDTH   16
#define TARGET
#include "oracle/metric/pair_sums_loop.h"

#if defined(__x86_64__)
#define NAME(x) x##_avx2
#define WIDTH   32
#define TARGET  __attribute__((target("avx2")))
#include "oracle/metric/pair_sums_loop.h"

#define NAME(x) x##_avx512
#define WIDTH   64
#define TARGET  __attribute__((target("avx512f")))
#include "oracle/metric/pair_sums_loop.h"

enum qm_pair_sums_isa qm_pair_sums_best(void)
{
    if (__builtin_cpu_supports("avx512f"))
        return QM_PAIR_SUMS_avx512;
    return __builtin_cpu_supports("avx2") ? QM_PAIR_SUMS_avx2 : QM_PAIR_SUMS_base;
}
#else
#define pair_kernel_avx2    pair_kernel_base
#define pair_kernel_avx512  pair_kernel_base
#define brief_kernel_avx2   brief_kernel_base
#define brief_kernel_avx512 brief_kernel_base
#define lost_kernel_avx2    lost_kernel_base
#define lost_kernel_avx512  lost_kernel_base
#define widen_kernel_avx2   widen_kernel_base
#define widen_kernel_avx512 widen_kernel_base

enum qm_pair_sums_isa qm_pair_sums_best(void) { return QM_PAIR_SUMS_base; }
#endif

static int64_t count_lanes(const int64_t v[8])
{
    int64_t n = 0;
    for (int j = 0; j < 8; j++)
        n += v[j];
    return n;
}

static double max_lanes(double most, const double v[8])
{
    for (int j = 0; j < 8; j++)
        most = v[j] > most ? v[j] : most;
    return most;
}

static double max_rel(double most, const double *want, const double *got, int n)
{
    for (int i = 0; i < n; i++) {
        double r = want[i] != 0.0 ? fabs(got[i] - want[i]) / fabs(want[i]) : 0.0;
        most = r > most ? r : most;
    }
    return most;
}

/* a b / (a + b): the weight of the squared difference between the centres of two groups. */
static double joint(double a, double b) { return a + b > 0.0 ? a / (a + b) * b : 0.0; }

void qm_pair_sums_merge(struct qm_pair_sums *into, const struct qm_pair_sums *from)
{
    if (from->n == 0)
        return;
    double xa = qm_sum_value(&into->sq_want), xb = qm_sum_value(&from->sq_want);
    double tilt =
        slope_of(qm_sum_value(&from->cross), xb) - slope_of(qm_sum_value(&into->cross), xa);
    if (into->n > 0) {
        double na = (double)into->n, nb = (double)from->n;
        double shift = qm_sum_value(&from->err) / nb - qm_sum_value(&into->err) / na;
        qm_sum_add(&into->spread, shift * shift * joint(na, nb));
        qm_sum_add(&into->residual, tilt * tilt * joint(xa, xb));
    }
    into->n += from->n;
    into->zero_want += from->zero_want;
    into->zero_got += from->zero_got;
    into->collapsed += from->collapsed;
    into->flipped += from->flipped;
    into->beyond += from->beyond;
    qm_sum_merge(&into->err, &from->err);
    qm_sum_merge(&into->abs_err, &from->abs_err);
    qm_sum_merge(&into->sq_err, &from->sq_err);
    qm_sum_merge(&into->abs_want, &from->abs_want);
    qm_sum_merge(&into->sq_want, &from->sq_want);
    qm_sum_merge(&into->cross, &from->cross);
    qm_sum_merge(&into->shrink, &from->shrink);
    qm_sum_merge(&into->collapsed_abs, &from->collapsed_abs);
    qm_sum_merge(&into->flipped_abs, &from->flipped_abs);
    qm_sum_merge(&into->spread, &from->spread);
    qm_sum_merge(&into->residual, &from->residual);
    into->max_err = fmax(into->max_err, from->max_err);
    into->max_got = fmax(into->max_got, from->max_got);
    into->max_rel = fmax(into->max_rel, from->max_rel);
}

static struct qm_sum sum_of(const double v[8])
{
    struct qm_sum s = {qm_sum_lanes(v), 0.0};
    return s;
}

static int add(struct qm_pair_sums *p, const double *want, const double *got, int n,
               enum qm_pair_sums_isa isa, int any)
{
    double x[QM_PAIR_SUMS_BLOCK], y[QM_PAIR_SUMS_BLOCK];
    int groups = (n + 7) & ~7, pad = groups - n;
    assert(n >= 0 && n <= QM_PAIR_SUMS_BLOCK);
    if (n == 0)
        return 1;
    if (pad) { /* up to a multiple of 8 with pairs (0, 0); their zeros are subtracted below */
        memset(x, 0, sizeof x);
        memset(y, 0, sizeof y);
        memcpy(x, want, (size_t)n * sizeof *x);
        memcpy(y, got, (size_t)n * sizeof *y);
        want = x;
        got = y;
    }
    struct lanes l;
    l.count = (double)n;
    switch (isa) {
    case QM_PAIR_SUMS_avx512: pair_kernel_avx512(want, got, groups, p->max_rel, &l); break;
    case QM_PAIR_SUMS_avx2: pair_kernel_avx2(want, got, groups, p->max_rel, &l); break;
    default: pair_kernel_base(want, got, groups, p->max_rel, &l); break;
    }
    struct qm_pair_sums b = {.n = n};
    b.sq_err = sum_of(l.sq_err);
    b.sq_want = sum_of(l.sq_want);
    if (!any && !(b.sq_err.hi < HUGE_VAL && b.sq_want.hi < HUGE_VAL))
        return 0;
    b.zero_want = count_lanes(l.zero_want) - pad;
    b.zero_got = count_lanes(l.zero_got) - pad;
    b.collapsed = count_lanes(l.collapsed);
    b.flipped = count_lanes(l.flipped);
    b.beyond = count_lanes(l.beyond);
    b.err = sum_of(l.err);
    b.abs_err = sum_of(l.abs_err);
    b.abs_want = sum_of(l.abs_want);
    b.cross = sum_of(l.cross);
    b.shrink = sum_of(l.shrink);
    b.collapsed_abs = sum_of(l.collapsed_abs);
    b.flipped_abs = sum_of(l.flipped_abs);
    b.spread = sum_of(l.spread);
    b.residual = sum_of(l.residual);
    b.max_err = max_lanes(0.0, l.max_err);
    b.max_got = max_lanes(0.0, l.max_got);
    /* divides only if a comparison of products found that the maximum may be larger */
    b.max_rel = count_lanes(l.above) ? max_rel(p->max_rel, want, got, n) : 0.0;
    qm_pair_sums_merge(p, &b);
    return 1;
}

int qm_pair_sums_add(struct qm_pair_sums *p, const double *want, const double *got, int n,
                     enum qm_pair_sums_isa isa)
{
    return add(p, want, got, n, isa, 0);
}

void qm_pair_sums_add_any(struct qm_pair_sums *p, const double *want, const double *got, int n,
                          enum qm_pair_sums_isa isa)
{
    add(p, want, got, n, isa, 1);
}

int qm_pair_sums_add_brief(struct qm_pair_sums *p, const double *want, const float *got, int n,
                           enum qm_pair_sums_isa isa)
{
    struct lanes l;
    assert(n > 0 && n <= QM_PAIR_SUMS_BLOCK && n % 8 == 0);
    switch (isa) {
    case QM_PAIR_SUMS_avx512: brief_kernel_avx512(want, got, n, &l); break;
    case QM_PAIR_SUMS_avx2: brief_kernel_avx2(want, got, n, &l); break;
    default: brief_kernel_base(want, got, n, &l); break;
    }
    struct qm_sum sq_err = sum_of(l.sq_err), sq_want = sum_of(l.sq_want);
    if (!(sq_err.hi < HUGE_VAL && sq_want.hi < HUGE_VAL))
        return 0;
    p->n += n;
    p->zero_want += count_lanes(l.zero_want);
    p->collapsed += count_lanes(l.collapsed);
    qm_sum_merge(&p->sq_err, &sq_err);
    qm_sum_merge(&p->sq_want, &sq_want);
    p->max_err = max_lanes(p->max_err, l.max_err);
    return 1;
}

void qm_pair_sums_lost(const double *want, const double *got, const double *a, const double *b,
                       int n, double out[2], enum qm_pair_sums_isa isa)
{
    int whole = n & ~7;
    double sum[2][8];
    switch (isa) {
    case QM_PAIR_SUMS_avx512: lost_kernel_avx512(want, got, a, b, whole, sum); break;
    case QM_PAIR_SUMS_avx2: lost_kernel_avx2(want, got, a, b, whole, sum); break;
    default: lost_kernel_base(want, got, a, b, whole, sum); break;
    }
    for (int i = whole; i < n; i++) {
        int lost = got[i] == 0.0 && want[i] != 0.0;
        sum[0][i - whole] += lost ? fabs(a[i]) : 0.0;
        sum[1][i - whole] += lost ? fabs(b[i]) : 0.0;
    }
    out[0] = qm_sum_lanes(sum[0]);
    out[1] = qm_sum_lanes(sum[1]);
}

void qm_pair_sums_widen(const float *got, int n, double *out, enum qm_pair_sums_isa isa)
{
    switch (isa) {
    case QM_PAIR_SUMS_avx512: widen_kernel_avx512(got, n, out); break;
    case QM_PAIR_SUMS_avx2: widen_kernel_avx2(got, n, out); break;
    case QM_PAIR_SUMS_base: widen_kernel_base(got, n, out); break;
    }
}

double qm_pair_sums_nmse(const struct qm_pair_sums *p)
{
    double e2 = qm_sum_value(&p->sq_err), x2 = qm_sum_value(&p->sq_want);
    if (p->n == 0)
        return nan("");
    return e2 == 0.0 ? 0.0 : x2 == 0.0 ? HUGE_VAL : e2 / x2;
}

/* 1 + a of x^ = (1 + a) x + r, r orthogonal to x. */
static double slope_total(const struct qm_pair_sums *p)
{
    return 1.0 + slope_of(qm_sum_value(&p->cross), qm_sum_value(&p->sq_want));
}

double qm_pair_sums_angle(const struct qm_pair_sums *p)
{
    if (p->zero_want == p->n || p->zero_got == p->n)
        return nan("");
    double norm = sqrt(qm_sum_value(&p->sq_want));
    return atan2(sqrt(qm_sum_value(&p->residual)), slope_total(p) * norm);
}

double qm_pair_sums_norm_ratio(const struct qm_pair_sums *p)
{
    if (p->zero_want == p->n)
        return nan("");
    double a = slope_total(p);
    return sqrt(a * a + qm_sum_value(&p->residual) / qm_sum_value(&p->sq_want));
}

double qm_pair_sums_disagree(const struct qm_pair_sums *p)
{
    int64_t born = p->zero_want - (p->zero_got - p->collapsed);
    return p->n ? (double)(p->flipped + p->collapsed + born) / (double)p->n : nan("");
}
