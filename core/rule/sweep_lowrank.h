/* sweep_lowrank.h - operations of rules that project the gradient (dual); sweep.h, whose list names
 * them, ends with this file.
 *
 * R is the projected gradient.  A channel is a row of it, or a column: channel i has `inner` numbers, from
 * i step_a on, step_k apart. */
#ifndef QM_RULE_SWEEP_LOWRANK_H
#define QM_RULE_SWEEP_LOWRANK_H

#include "core/rule/sweep.h"

/* x[0] = x[1], rows x cols, the other way round. */
QM_SWEEP(transpose) { a->x[0][i] = a->x[1][i % a->rows * a->cols + i / a->rows]; }

QM_SWEEP(less) { a->x[0][i] = a->x[1][i] - a->x[0][i]; }

/* mul_(c[0]).addcmul_(x[1], x[1], value=c[1]). */
QM_SWEEP(average_square)
{
    float x = a->x[1][i];
    a->x[0][i] = fmaf(a->c[1] * x, x, a->x[0][i] * a->c[0]);
}

/* x[1] over the root of x[2], c[0] added to it; flag 0: the square of x[3] is taken off first. */
QM_SWEEP(adapted)
{
    float v = a->x[2][i];
    if (a->flag[0])
        v = fmaf(-a->x[3][i], a->x[3][i], v);
    a->x[0][i] = a->x[1][i] / (sqrtf(v) + a->c[0]);
}

/* y[0][i] = sum of the squares of channel i of x[1]. */
QM_SWEEP(channel_squares)
{
    const float *x = a->x[1] + i * a->step_a;
    double s = 0.0;
    for (int64_t k = 0; k < a->inner; k++)
        s += (double)x[k * a->step_k] * (double)x[k * a->step_k];
    a->y[0][i] = s;
}

/* Of two sums of squares, the norm y[0] over the norm y[1], to which 1e-8 is added, in float32. */
QM_SWEEP(channel_ratio)
{
    a->y[0][i] = (double)((float)sqrt(a->y[0][i]) / ((float)sqrt(a->y[1][i]) + 1e-8f));
}

/* Rounded once: of a float32 factor it is their product in float32. */
QM_FN float qm_channel(double factor, float x) { return (float)(factor * (double)x); }

/* x[1] by the factors y[0] of its rows (flag 0: 1), of its columns (0), or by one of them all (flag 1). */
QM_SWEEP(channels)
{
    int64_t k = a->flag[0] ? i / a->cols : i % a->cols;
    a->x[0][i] = qm_channel(a->y[0][a->flag[1] ? 0 : k], a->x[1][i]);
}

/* ---- adafactor8bit ----------------------------------------------------------------------------- */

/* Where the second moment of R begins: c[0] of the square of x[1]. */
QM_SWEEP(adafactor8_begin)
{
    float x = a->x[1][i];
    a->x[0][i] = fmaxf(a->c[0] * (x * x), QM_ADAFACTOR8_TINY);
}

/* c[0] of the average x[0] and c[1] of the mean square of channel i of x[1], to which d[0] is added. */
QM_SWEEP(adafactor8_low_means)
{
    const float *x = a->x[1] + i * a->step_a;
    double s = 0.0;
    for (int64_t k = 0; k < a->inner; k++)
        s += (double)x[k * a->step_k] * (double)x[k * a->step_k];
    a->x[0][i] = a->c[0] * a->x[0][i] + a->c[1] * (float)(s / (double)a->inner + a->d[0]);
}

/* y[0][0] = mean of x[1][inner], each divided before it is added; at least d[0]. */
QM_SWEEP(adafactor8_low_mean)
{
    double mean = 0.0;
    for (int64_t k = 0; k < a->inner; k++)
        mean += (double)a->x[1][k] / (double)a->inner;
    a->y[0][i] = fmax(mean, a->d[0]);
}

/* y[0][i] = sum of the squares of channel i of x[1], each over the root of its second moment, to which d[0]
 * is added.  Second moments: x[2], at least 2^-53 with flag 1; or (flag 0) the channels' averages x[2] times
 * those across them, x[3], over the mean y[1][0]. */
QM_SWEEP(adafactor8_channel_squares)
{
    double s = 0.0;
    for (int64_t k = 0; k < a->inner; k++) {
        int64_t e = i * a->step_a + k * a->step_k;
        double v = (double)a->x[2][a->flag[0] ? i : e];
        if (a->flag[0])
            v = v * (double)a->x[3][k] / a->y[1][0];
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

/* The same as channel_ratio in double; flag 0: of all sums one, by their totals y[1]; times d[0].  Sums are
 * y[0][i] and y[0][n + i]. */
QM_SWEEP(adafactor8_ratio)
{
    double s = a->flag[0] ? a->y[1][0] : a->y[0][i];
    double t = a->flag[0] ? a->y[1][1] : a->y[0][a->n + i];
    a->y[0][i] = sqrt(s) / (sqrt(t) + 1e-8) * a->d[0];
}

#endif
