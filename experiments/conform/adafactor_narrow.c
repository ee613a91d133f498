/* adafactor_narrow.c - What PyTorch's Adafactor makes of bfloat16 parameters, by its roundings.
 *
 * Its states are stored in bfloat16: the recorded ones of a step, the gradient and the parameters
 * before it determine those after it, within the ranges of narrow_span.h.  Norms are roots of
 * float32 sums, (n / 16 + 8) 2^-24 off and as many counts of 2^-149 as numbers, in bfloat16; of one
 * number they are its size.  They enter as Python's floats, where max(x, NaN) is x. */
#include "experiments/conform/adafactor_narrow.h"

#include <math.h>
#include <stdlib.h>

/* 1 / sqrt(v) in float32, or in scalar code, which rounds the root to bfloat16 before. */
static struct qm_narrow_span inverse_root(struct qm_narrow_span v)
{
    const double ends[2] = {sqrt(v.lo), sqrt(v.hi)};
    struct qm_narrow_span root = qm_narrow_span_of(ends, 2), one = qm_narrow_span_one(1.0);
    root.nan |= v.nan;
    return qm_narrow_span_either(
        qm_narrow_span_narrow(qm_narrow_span_quotient(one, qm_narrow_span_single(root))),
        qm_narrow_span_narrow(qm_narrow_span_quotient(one, qm_narrow_span_narrow(root))));
}

/* The larger of each number and a scalar; NaN stays. */
static struct qm_narrow_span at_least(struct qm_narrow_span x, double least)
{
    struct qm_narrow_span s = qm_narrow_span_scalar(least);
    if (x.lo > x.hi)
        return x;
    return (struct qm_narrow_span){fmax(x.lo, s.lo), fmax(x.hi, s.hi), x.nan};
}

/* The norm of n numbers over the root of n. */
static struct qm_narrow_span mean_size(const struct qm_narrow_span *x, int64_t n)
{
    double off = ((double)n / 8.0 + 16.0) * 0x1p-24, least = 0.0, most = 0.0;
    struct qm_narrow_span r = {0.0, 0.0, 0};
    for (int64_t k = 0; k < n; k++) {
        double a = fabs(x[k].lo), b = fabs(x[k].hi);
        double low = x[k].lo <= 0.0 && x[k].hi >= 0.0 ? 0.0 : fmin(a, b);
        r.nan |= x[k].nan;
        if (x[k].lo > x[k].hi)
            low = a = b = 0.0;
        least += low * low;
        most += fmax(a, b) * fmax(a, b);
        r.lo = low;
        r.hi = fmax(a, b);
    }
    if (n > 1) {
        double counts = (double)n * 0x1p-149;
        r.lo = least * (1.0 - off) >= 0x1p128 ? HUGE_VAL
                                              : sqrt(fmax(least * (1.0 - off) - counts, 0.0));
        r.hi =
            most * (1.0 + off) + counts >= 0x1p128 ? HUGE_VAL : sqrt(most * (1.0 + off) + counts);
        r = qm_narrow_span_narrow(r);
    }
    r.lo /= sqrt((double)n);
    r.hi /= sqrt((double)n);
    return r;
}

/* Python's max(least, x). */
static struct qm_narrow_span python_max(double least, struct qm_narrow_span x)
{
    return (struct qm_narrow_span){x.nan ? least : fmax(least, x.lo), fmax(least, x.hi), 0};
}

/* The mean of the rows' averages of a matrix. */
static struct qm_narrow_span row_mean(const double *row, int64_t rows)
{
    double sum = 0.0;
    for (int64_t i = 0; i < rows; i++)
        sum += row[i];
    double off = (double)rows * 0x1p-24 * fabs(sum);
    struct qm_narrow_span s = {sum - off, sum + off, 0}, n = qm_narrow_span_scalar((double)rows);
    if (!isfinite(sum))
        s = qm_narrow_span_one(sum);
    return qm_narrow_span_either(
        qm_narrow_span_narrow(qm_narrow_span_quotient(s, n)),
        qm_narrow_span_narrow(qm_narrow_span_quotient(qm_narrow_span_narrow(s), n)));
}

/* The estimate of the second moment of element k, from the recorded states.  *mean: what the rows
 * of its matrix are divided by, which its first element forms for those that follow. */
static struct qm_narrow_span estimate(const struct qm_tensor_run_case *w,
                                      const struct qm_tensor_run_at *at, int64_t k,
                                      struct qm_narrow_span *mean)
{
    const struct qm_shape *s = at->shape;
    int64_t n = qm_shape_numel(s);
    if (s->rank < 2)
        return qm_narrow_span_one(at->state[2][(at->t - 1) * n + k]);
    int64_t cols = s->dim[s->rank - 1], rows = s->dim[s->rank - 2], matrix = k / (rows * cols);
    const double *row = at->state[0] + (at->t - 1) * (n / cols) + matrix * rows,
                 *col = at->state[1] + (at->t - 1) * (n / rows) + matrix * cols;
    struct qm_narrow_span both =
        qm_narrow_span_narrow(qm_narrow_span_one(row[k / cols % rows] * col[k % cols]));
    if (k % (rows * cols) == 0)
        *mean = at_least(row_mean(row, rows), w->hyper.eps1);
    return qm_narrow_span_narrow(qm_narrow_span_quotient(both, *mean));
}

/* The numbers of -rate as torch.add's alpha or foreach's factors. */
static struct qm_narrow_span negative_rate(struct qm_narrow_span rate)
{
    struct qm_narrow_span a = qm_narrow_span_scalar(-rate.lo), b = qm_narrow_span_scalar(-rate.hi);
    return qm_narrow_span_either(a, b);
}

int qm_adafactor_narrow(const struct qm_tensor_run_case *w, const struct qm_tensor_run_at *at,
                        const double *before, struct qm_narrow_span *out)
{
    const struct qm_hyper *h = &w->hyper;
    int64_t n = qm_shape_numel(at->shape);
    int is_special = 0, is_matrix = at->shape->rank >= 2;
    struct qm_narrow_span *p = malloc(sizeof *p * (size_t)(n + 1));
    if (!p || (is_matrix ? !at->state[0] || !at->state[1] : !at->state[2])) {
        free(p);
        return -1;
    }
    struct qm_narrow_span mean = {0};
    for (int64_t k = 0; k < n; k++) {
        p[k] = qm_narrow_span_one(before[k]);
        struct qm_narrow_span v = at_least(estimate(w, at, k, &mean), h->eps1 * h->eps1);
        out[k] = qm_narrow_span_narrow(qm_narrow_span_product(
            inverse_root(v), qm_narrow_span_one(h->maximize ? -at->grad[k] : at->grad[k])));
        is_special |= out[k].nan || isinf(out[k].lo) || isinf(out[k].hi);
    }
    double rho = fmin(h->lr, 1.0 / sqrt((double)at->t));
    struct qm_narrow_span size = python_max(h->eps2, mean_size(p, n)), by = mean_size(out, n);
    by.lo /= h->clip;
    by.hi /= h->clip;
    by = python_max(1.0, by);
    struct qm_narrow_span rate =
        negative_rate((struct qm_narrow_span){size.lo * rho / by.hi, size.hi * rho / by.lo, 0});
    for (int64_t k = 0; k < n; k++) {
        if (h->weight_decay != 0.0)
            p[k] = qm_narrow_span_narrow(
                qm_narrow_span_product(p[k], qm_narrow_span_scalar(1.0 - h->lr * h->weight_decay)));
        struct qm_narrow_span u = qm_narrow_span_single(qm_narrow_span_product(out[k], rate));
        out[k] = qm_narrow_span_narrow(
            qm_narrow_span_sum(p[k], qm_narrow_span_either(u, qm_narrow_span_narrow(u))));
    }
    free(p);
    return is_special;
}
