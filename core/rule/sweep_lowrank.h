/* sweep_lowrank.h - The operations of rules that project the gradient (dual).
 *
 * The list of sweep.h names them, and sweep.h ends with this file.  R is the projected gradient.
 * Its channels are its rows or its columns: channel i has `inner` numbers, which begin at i step_a
 * and are step_k apart. */
#ifndef QM_RULE_SWEEP_LOWRANK_H
#define QM_RULE_SWEEP_LOWRANK_H

#include "core/rule/sweep.h"

/* x[0], cols x rows, = the transpose of x[1], rows x cols. */
QM_SWEEP(transpose) { a->x[0][i] = a->x[1][i % a->rows * a->cols + i / a->rows]; }

/* x[0] = x[1] - x[0]. */
QM_SWEEP(less) { a->x[0][i] = a->x[1][i] - a->x[0][i]; }

/* x[0].mul_(c[0]).addcmul_(x[1], x[1], value=c[1]) of torch, fused. */
QM_SWEEP(average_square)
{
    float x = a->x[1][i];
    a->x[0][i] = fmaf(a->c[1] * x, x, a->x[0][i] * a->c[0]);
}

/* x[0] = x[1] / (sqrt(x[2]) + c[0]); flag 0: x[3]^2 is subtracted from x[2] first. */
QM_SWEEP(adapted)
{
    float v = a->x[2][i];
    if (a->flag[0])
        v = fmaf(-a->x[3][i], a->x[3][i], v);
    a->x[0][i] = a->x[1][i] / (sqrtf(v) + a->c[0]);
}

/* y[0][i] = sum of the squares of channel i of x[1]; flag 0: each square rounded to float32. */
QM_SWEEP(channel_squares)
{
    const float *x = a->x[1] + i * a->step_a;
    double s = 0.0;
    for (int64_t k = 0; k < a->inner; k++) {
        float y = x[k * a->step_k], square = y * y;
        s += a->flag[0] ? (double)square : (double)y * (double)y;
    }
    a->y[0][i] = s;
}

/* y[0] = sqrt(y[0]) / (sqrt(y[1]) + 1e-8) in float32, for two sums of squares. */
QM_SWEEP(channel_ratio)
{
    a->y[0][i] = (double)((float)sqrt(a->y[0][i]) / ((float)sqrt(a->y[1][i]) + 1e-8f));
}

/* factor * x, rounded once: for a float32 factor this is the product in float32. */
QM_FN float qm_channel(double factor, float x) { return (float)(factor * (double)x); }

/* x[0] = x[1] times the factor y[0] of its row (flag 0) or of its column; flag 1: one factor
 * for all. */
QM_SWEEP(channels)
{
    int64_t k = a->flag[0] ? i / a->cols : i % a->cols;
    a->x[0][i] = qm_channel(a->y[0][a->flag[1] ? 0 : k], a->x[1][i]);
}

/* ---- adafactor8bit --------------------------------------------------------------------------- */

/* x[0] = max(c[0] x[1]^2, c[1]), NaN of a NaN: the first second moment of R. */
QM_SWEEP(adafactor8_begin)
{
    float x = a->x[1][i], v = a->c[0] * (x * x);
    a->x[0][i] = v < a->c[1] ? a->c[1] : v;
}

/* x[0] = c[0] x[0] + c[1] (mean of the squares of channel i of x[1], plus d[0]), at least c[2];
 * flag 0: without x[0]. */
QM_SWEEP(adafactor8_low_means)
{
    const float *x = a->x[1] + i * a->step_a;
    double s = 0.0;
    for (int64_t k = 0; k < a->inner; k++)
        s += (double)x[k * a->step_k] * (double)x[k * a->step_k];
    float v = a->c[1] * (float)(qm_float_sum(s) / (double)a->inner + a->d[0]);
    v = a->flag[0] ? v : a->c[0] * a->x[0][i] + v;
    a->x[0][i] = v < a->c[2] ? a->c[2] : v;
}

/* y[0][0] = max(mean of x[1][inner], d[0]), infinite where the sum overflows in float32. */
QM_SWEEP(adafactor8_low_mean)
{
    double mean = 0.0;
    for (int64_t k = 0; k < a->inner; k++)
        mean += (double)a->x[1][k];
    a->y[0][i] = qm_at_least(qm_float_sum(mean) / (double)a->inner, a->d[0]);
}

/* y[0][i] = sum over channel i of (x[1] / (sqrt(v) + d[0]))^2.  v is x[2], with flag 1 at least
 * 2^-53; or, with flag 0, the average x[2] of the channel times the average x[3] across the
 * channels, over the mean y[1][0]. */
QM_SWEEP(adafactor8_channel_squares)
{
    double s = 0.0;
    for (int64_t k = 0; k < a->inner; k++) {
        int64_t e = i * a->step_a + k * a->step_k;
        double v = (double)a->x[2][a->flag[0] ? i : e];
        if (a->flag[0]) /* in float32, as the source: the product of two squares may overflow */
            v = (double)(a->x[2][i] * a->x[3][k] / (float)a->y[1][0]);
        else if (a->flag[1])
            v = fmax(v, 0x1p-53);
        v = (double)a->x[1][e] / (sqrt(v) + a->d[0]);
        s += v * v;
    }
    a->y[0][i] = s;
}

/* y[0][i] = sum of the i-th `inner` numbers of y[1]. */
QM_SWEEP(adafactor8_totals)
{
    double s = 0.0;
    for (int64_t k = 0; k < a->inner; k++)
        s += a->y[1][i * a->inner + k];
    a->y[0][i] = s;
}

/* y[0][i] = sqrt(y[0][i]) / (sqrt(y[0][n + i]) + 1e-8) * d[0] of two sums in float32, each of which
 * may overflow, rounded to float32; flag 0: of the totals y[1][0] and y[1][1] instead, one number
 * for all.  flag 1: of one number each, whose norm torch takes without a square. */
QM_SWEEP(adafactor8_ratio)
{
    double s = a->flag[0] ? a->y[1][0] : a->y[0][i];
    double t = a->flag[0] ? a->y[1][1] : a->y[0][a->n + i];
    s = a->flag[1] ? s : qm_float_sum(s);
    t = a->flag[1] ? t : qm_float_sum(t);
    a->y[0][i] = (double)(float)(sqrt(s) / (sqrt(t) + 1e-8) * a->d[0]);
}

#endif
