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

enum { QM_AVERAGE_SQUARE_KEEP, QM_AVERAGE_SQUARE_WEIGHT }; /* c[] */

/* x[0].mul_(keep).addcmul_(x[1], x[1], value=weight) of torch, fused. */
QM_SWEEP(average_square)
{
    float x = a->x[1][i];
    a->x[0][i] =
        fmaf(a->c[QM_AVERAGE_SQUARE_WEIGHT] * x, x, a->x[0][i] * a->c[QM_AVERAGE_SQUARE_KEEP]);
}

enum { QM_ADAPTED_EPS };      /* c[] */
enum { QM_ADAPTED_CENTERED }; /* flag[]: x[3]^2 is subtracted from x[2] first */

/* x[0] = x[1] / (sqrt(x[2]) + eps). */
QM_SWEEP(adapted)
{
    float v = a->x[2][i];
    if (a->flag[QM_ADAPTED_CENTERED])
        v = fmaf(-a->x[3][i], a->x[3][i], v);
    a->x[0][i] = a->x[1][i] / (sqrtf(v) + a->c[QM_ADAPTED_EPS]);
}

enum { QM_CHANNEL_SQUARES_SINGLE }; /* flag[]: each square is rounded to float32 */

/* y[0][i] = sum of the squares of channel i of x[1]. */
QM_SWEEP(channel_squares)
{
    const float *x = a->x[1] + i * a->step_a;
    double s = 0.0;
    for (int64_t k = 0; k < a->inner; k++) {
        float y = x[k * a->step_k], square = y * y;
        s += a->flag[QM_CHANNEL_SQUARES_SINGLE] ? (double)square : (double)y * (double)y;
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

enum {
    QM_CHANNELS_ROWS, /* flag[]: a factor for each row; otherwise for each column */
    QM_CHANNELS_ONE   /* flag[]: one factor for all */
};

/* x[0] = x[1] times the factor y[0] of its channel. */
QM_SWEEP(channels)
{
    int64_t k = a->flag[QM_CHANNELS_ROWS] ? i / a->cols : i % a->cols;
    a->x[0][i] = qm_channel(a->y[0][a->flag[QM_CHANNELS_ONE] ? 0 : k], a->x[1][i]);
}

/* ---- adafactor8bit --------------------------------------------------------------------------- */

enum { QM_ADAFACTOR8_BEGIN_WEIGHT, QM_ADAFACTOR8_BEGIN_LEAST }; /* c[] */

/* x[0] = max(weight x[1]^2, least), NaN of a NaN: the first second moment of R. */
QM_SWEEP(adafactor8_begin)
{
    float x = a->x[1][i], v = a->c[QM_ADAFACTOR8_BEGIN_WEIGHT] * (x * x);
    float least = a->c[QM_ADAFACTOR8_BEGIN_LEAST];
    a->x[0][i] = v < least ? least : v;
}

enum { QM_ADAFACTOR8_LOW_ADD };                                                     /* d[] */
enum { QM_ADAFACTOR8_LOW_KEEP, QM_ADAFACTOR8_LOW_WEIGHT, QM_ADAFACTOR8_LOW_LEAST }; /* c[] */
enum { QM_ADAFACTOR8_LOW_STARTS }; /* flag[]: without x[0] */

/* x[0] = keep x[0] + weight (mean of the squares of channel i of x[1], plus add), at least
 * `least`. */
QM_SWEEP(adafactor8_low_means)
{
    const float *x = a->x[1] + i * a->step_a;
    double s = 0.0;
    for (int64_t k = 0; k < a->inner; k++)
        s += (double)x[k * a->step_k] * (double)x[k * a->step_k];
    float mean = (float)(qm_float_sum(s) / (double)a->inner + a->d[QM_ADAFACTOR8_LOW_ADD]);
    float v = a->c[QM_ADAFACTOR8_LOW_WEIGHT] * mean, least = a->c[QM_ADAFACTOR8_LOW_LEAST];
    v = a->flag[QM_ADAFACTOR8_LOW_STARTS] ? v : a->c[QM_ADAFACTOR8_LOW_KEEP] * a->x[0][i] + v;
    a->x[0][i] = v < least ? least : v;
}

enum { QM_ADAFACTOR8_LOW_MEAN_LEAST }; /* d[] */

/* y[0][0] = max(mean of x[1][inner], least), infinite where the sum overflows in float32. */
QM_SWEEP(adafactor8_low_mean)
{
    double mean = 0.0;
    for (int64_t k = 0; k < a->inner; k++)
        mean += (double)a->x[1][k];
    a->y[0][i] =
        qm_at_least(qm_float_sum(mean) / (double)a->inner, a->d[QM_ADAFACTOR8_LOW_MEAN_LEAST]);
}

enum { QM_ADAFACTOR8_CHANNEL_EPS };                                  /* d[] */
enum { QM_ADAFACTOR8_CHANNEL_FACTORED, QM_ADAFACTOR8_CHANNEL_CUDA }; /* flag[] */

/* y[0][i] = sum over channel i of (x[1] / (sqrt(v) + eps))^2.  v is x[2], on CUDA at least
 * 2^-53; or, where it is factored, the average x[2] of the channel times the average x[3] across
 * the channels, over the mean y[1][0]. */
QM_SWEEP(adafactor8_channel_squares)
{
    double s = 0.0;
    for (int64_t k = 0; k < a->inner; k++) {
        int64_t e = i * a->step_a + k * a->step_k;
        int is_factored = a->flag[QM_ADAFACTOR8_CHANNEL_FACTORED];
        double v = (double)a->x[2][is_factored ? i : e];
        if (is_factored) /* in float32, as the source: the product of two squares may overflow */
            v = (double)(a->x[2][i] * a->x[3][k] / (float)a->y[1][0]);
        else if (a->flag[QM_ADAFACTOR8_CHANNEL_CUDA])
            v = fmax(v, 0x1p-53);
        v = (double)a->x[1][e] / (sqrt(v) + a->d[QM_ADAFACTOR8_CHANNEL_EPS]);
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

enum { QM_ADAFACTOR8_RATIO_SCALE }; /* d[] */
enum {
    QM_ADAFACTOR8_RATIO_TOTALS, /* flag[]: of the totals y[1][0] and y[1][1], one number for all */
    QM_ADAFACTOR8_RATIO_ONE     /* flag[]: of one number, whose norm torch takes without a square */
};

/* y[0][i] = sqrt(y[0][i]) / (sqrt(y[0][n + i]) + 1e-8) * scale of two sums in float32, each of
 * which may overflow, rounded to float32. */
QM_SWEEP(adafactor8_ratio)
{
    double s = a->flag[QM_ADAFACTOR8_RATIO_TOTALS] ? a->y[1][0] : a->y[0][i];
    double t = a->flag[QM_ADAFACTOR8_RATIO_TOTALS] ? a->y[1][1] : a->y[0][a->n + i];
    s = a->flag[QM_ADAFACTOR8_RATIO_ONE] ? s : qm_float_sum(s);
    t = a->flag[QM_ADAFACTOR8_RATIO_ONE] ? t : qm_float_sum(t);
    a->y[0][i] = (double)(float)(sqrt(s) / (sqrt(t) + 1e-8) * a->d[QM_ADAFACTOR8_RATIO_SCALE]);
}

#endif
