/* sweep_adafactor8.h - The operations of adafactor8bit (dual).
 *
 * The list of sweep.h names them, and sweep.h ends with this file and others; those of APOLLO are
 * in sweep_lowrank.h. */
#ifndef QM_RULE_SWEEP_ADAFACTOR8_H
#define QM_RULE_SWEEP_ADAFACTOR8_H

#include "core/rule/sweep.h"

#define QM_ADAFACTOR8_TINY 1.17549435e-38f /* 2^-126: the least second moment of the log code */

/* How an average of squares takes a new square in: as fused_log_quantize_lerp_kernel; as a product
 * and a product that are not fused; by lerp. */
enum qm_adafactor8_way { QM_ADAFACTOR8_KERNEL, QM_ADAFACTOR8_MIX, QM_ADAFACTOR8_LERP };

/* b: the weight of the new square; not of MIX. */
QM_FN float qm_adafactor8_squared(enum qm_adafactor8_way way, float b, float old, float fresh)
{
    if (way == QM_ADAFACTOR8_KERNEL) {
        float x = qm_bnb_finite(fresh) && fresh > QM_ADAFACTOR8_TINY ? fresh : QM_ADAFACTOR8_TINY;
        float v = fmaf(old, 1.0f - b, b * x);
        return v > QM_ADAFACTOR8_TINY ? v : QM_ADAFACTOR8_TINY;
    }
    return qm_lerp(old, fresh, b, b - 1.0f);
}

/* c[] of adafactor8_square and adafactor8_gradient_square: b, 1 - b, the number that is added to a
 * square before, and b times it. */
enum {
    QM_ADAFACTOR8_SQUARE_WEIGHT,
    QM_ADAFACTOR8_SQUARE_KEEP,
    QM_ADAFACTOR8_SQUARE_ADD,
    QM_ADAFACTOR8_SQUARE_WEIGHTED_ADD
};
enum {
    QM_ADAFACTOR8_SQUARE_WAY,  /* flag[]: enum qm_adafactor8_way */
    QM_ADAFACTOR8_SQUARE_TURNS /* flag[]: the sign of the gradient is turned before */
};

QM_FN float qm_adafactor8_taken_in(const struct qm_sweep *a, float old, float fresh)
{
    return qm_adafactor8_squared((enum qm_adafactor8_way)a->flag[QM_ADAFACTOR8_SQUARE_WAY],
                                 a->c[QM_ADAFACTOR8_SQUARE_WEIGHT], old,
                                 fresh + a->c[QM_ADAFACTOR8_SQUARE_ADD]);
}

/* x[0] takes in x[1]. */
QM_SWEEP(adafactor8_square) { a->x[0][i] = qm_adafactor8_taken_in(a, a->x[0][i], a->x[1][i]); }

/* The same for the square of x[1] instead. */
QM_SWEEP(adafactor8_gradient_square)
{
    float g = a->flag[QM_ADAFACTOR8_SQUARE_TURNS] ? -a->x[1][i] : a->x[1][i];
    if (a->flag[QM_ADAFACTOR8_SQUARE_WAY] == QM_ADAFACTOR8_MIX) {
        /* torch.addcmul is (b g) g, where g g may overflow */
        float b = a->c[QM_ADAFACTOR8_SQUARE_WEIGHT], add = a->c[QM_ADAFACTOR8_SQUARE_ADD];
        float v = a->x[0][i] * a->c[QM_ADAFACTOR8_SQUARE_KEEP] + (b * g) * g;
        a->x[0][i] = add != 0.0f ? v + a->c[QM_ADAFACTOR8_SQUARE_WEIGHTED_ADD] : v;
        return;
    }
    a->x[0][i] = qm_adafactor8_taken_in(a, a->x[0][i], g * g);
}

/* x[0] = x[1] - x[0].  The source has the square of it as three products, which are counts of
 * 2^-149 where both numbers are below 2^-63; there, x[0] = its root. */
QM_SWEEP(adafactor8_missed)
{
    float x = a->x[0][i], y = a->x[1][i];
    a->x[0][i] = y - x;
    if (fabsf(x) < 0x1p-63f && fabsf(y) < 0x1p-63f) {
        double square = (double)(x * x) - 2.0 * (double)(x * y) + (double)(y * y);
        a->x[0][i] = (float)sqrt(fmax(square, 0.0));
    }
}

enum { QM_ADAFACTOR8_MEAN_CLAMP, QM_ADAFACTOR8_MEAN_LEAST }; /* d[]: least value, least mean */
enum { QM_ADAFACTOR8_MEAN_CLAMPS };                          /* flag[]: there is a least value */

/* y[0][i] = max(mean of row i of x[1], least), infinite where the sum overflows in float32. */
QM_SWEEP(adafactor8_mean)
{
    const float *r = a->x[1] + i * a->cols;
    double mean = 0.0;
    for (int64_t k = 0; k < a->cols; k++)
        mean += a->flag[QM_ADAFACTOR8_MEAN_CLAMPS]
                    ? qm_at_least((double)r[k], a->d[QM_ADAFACTOR8_MEAN_CLAMP])
                    : (double)r[k];
    a->y[0][i] = qm_at_least(qm_float_sum(mean) / (double)a->cols, a->d[QM_ADAFACTOR8_MEAN_LEAST]);
}

/* d[] of adafactor8_outer, _over_root, _direction and of the operations on open products: the least
 * second moment. */
enum { QM_ADAFACTOR8_FLOOR };

/* sqrt(mean / max(r, floor)) of a row, 1 / sqrt(max(c, floor)) of a column; floor 0: none, and r is
 * divided by the mean in float32, as in 0.4.6, where the quotient may vanish. */
QM_FN double qm_adafactor8_floored(float x, double floor)
{
    return floor > 0.0 ? qm_at_least((double)x, floor) : (double)x;
}

QM_FN double qm_adafactor8_row_root(float r, double mean, double floor)
{
    if (floor == 0.0)
        return 1.0 / sqrt((double)(r / (float)mean));
    return sqrt(mean / qm_adafactor8_floored(r, floor));
}

QM_FN double qm_adafactor8_col_root(float c, double floor)
{
    return 1.0 / sqrt(qm_adafactor8_floored(c, floor));
}

/* x[0] = x[1] times the roots of rows x[2] and columns x[3] with means of the rows y[0]. */
QM_SWEEP(adafactor8_outer)
{
    struct qm_sweep_place at = qm_sweep_at(a, i);
    double row =
        qm_adafactor8_row_root(a->x[2][at.row], a->y[0][at.batch], a->d[QM_ADAFACTOR8_FLOOR]);
    a->x[0][i] = qm_outer(row, qm_adafactor8_col_root(a->x[3][at.col], a->d[QM_ADAFACTOR8_FLOOR]),
                          a->x[1][i]);
}

/* The same in the order of the CUDA kernels, where the floor is that of the product. */
QM_SWEEP(adafactor8_over_root)
{
    struct qm_sweep_place at = qm_sweep_at(a, i);
    a->x[0][i] = qm_over_root((double)a->x[2][at.row], (double)a->x[3][at.col], a->y[0][at.batch],
                              a->d[QM_ADAFACTOR8_FLOOR], a->x[1][i]);
}

/* CAME before 0.2.6 averages ((g - M) / sqrt(V))^2 over rows and columns as three matrix
 * products, of g^2, g M and M^2 with the squared inverse roots of the second moments, in float32.
 * Where one of them overflows (the root of a row of zeros beside a large one does), the result is
 * what Inf and 0 make of it: Inf, NaN or 0.  The square of the inverse root of a row and of a
 * column: */
QM_FN float qm_adafactor8_row_square(float r, double mean, double floor)
{
    float root = 1.0f / sqrtf((float)qm_adafactor8_floored(r, floor)) * sqrtf((float)mean);
    return root * root;
}

QM_FN float qm_adafactor8_col_square(float c, double floor)
{
    float root = 1.0f / sqrtf((float)qm_adafactor8_floored(c, floor));
    return root * root;
}

/* The sums of w g^2, w g m and w m^2 over the terms of a mean, each product in float32, which may
 * overflow. */
struct qm_adafactor8_open {
    double s[3];
};

QM_FN void qm_adafactor8_open_add(struct qm_adafactor8_open *o, float w, float g, float m)
{
    float gg = g * g, gm = g * m, mm = m * m;
    o->s[0] += (double)w * (double)gg;
    o->s[1] += (double)w * (double)gm;
    o->s[2] += (double)w * (double)mm;
}

/* by (w g^2 - 2 w g m + w m^2), 0 at least, as means of n terms; `kept`, the mean formed without
 * these products, where neither it nor one of them overflows. */
QM_FN float qm_adafactor8_open_end(const struct qm_adafactor8_open *o, int64_t n, float by,
                                   float kept)
{
    float t[3], sum, x;
    for (int k = 0; k < 3; k++)
        t[k] = (float)(qm_float_sum(o->s[k]) / (double)n);
    sum = t[0] - 2.0f * t[1] + t[2];
    x = by * sum;
    int is_kept = qm_bnb_finite(x) && qm_bnb_finite(by) && qm_bnb_finite(kept);
    return is_kept ? kept : x < 0.0f ? 0.0f : x;
}

enum { QM_ADAFACTOR8_OPEN_TURNS }; /* flag[]: the sign of g is turned */

/* y[0][i] = whether the squared inverse root of a row of matrix i overflows: x[1] the rows, y[1]
 * the means. */
QM_SWEEP(adafactor8_open)
{
    int is = 0;
    for (int64_t k = 0; k < a->rows; k++)
        is |= !qm_bnb_finite(qm_adafactor8_row_square(a->x[1][i * a->rows + k], a->y[1][i],
                                                      a->d[QM_ADAFACTOR8_FLOOR]));
    a->y[0][i] = is ? 1.0 : 0.0;
}

/* x[0], the means of rows, where a product overflows: x[1] rows, x[2] columns, x[3] g, x[4] M,
 * y[1] means.  Where the mean over the square is below 2^110, sums of 2^18 terms do not
 * overflow. */
QM_SWEEP(adafactor8_open_rows)
{
    int64_t k = i / a->rows;
    float by = qm_adafactor8_row_square(a->x[1][i], a->y[1][k], a->d[QM_ADAFACTOR8_FLOOR]);
    struct qm_adafactor8_open o = {{0.0, 0.0, 0.0}};
    if (qm_bnb_finite(by) && a->x[0][i] / by < 0x1p110f)
        return;
    for (int64_t j = 0; j < a->cols; j++) {
        float g = a->x[3][i * a->cols + j];
        qm_adafactor8_open_add(
            &o, qm_adafactor8_col_square(a->x[2][k * a->cols + j], a->d[QM_ADAFACTOR8_FLOOR]),
            a->flag[QM_ADAFACTOR8_OPEN_TURNS] ? -g : g, a->x[4][i * a->cols + j]);
    }
    a->x[0][i] = qm_adafactor8_open_end(&o, a->cols, by, a->x[0][i]);
}

/* The same of columns; y[0]: of adafactor8_open. */
QM_SWEEP(adafactor8_open_cols)
{
    int64_t k = i / a->cols;
    float by = qm_adafactor8_col_square(a->x[2][i], a->d[QM_ADAFACTOR8_FLOOR]);
    struct qm_adafactor8_open o = {{0.0, 0.0, 0.0}};
    if (a->y[0][k] == 0.0 && a->x[0][i] / by < 0x1p110f)
        return;
    for (int64_t r = k * a->rows; r < (k + 1) * a->rows; r++) {
        int64_t e = r * a->cols + i % a->cols;
        qm_adafactor8_open_add(
            &o, qm_adafactor8_row_square(a->x[1][r], a->y[1][k], a->d[QM_ADAFACTOR8_FLOOR]),
            a->flag[QM_ADAFACTOR8_OPEN_TURNS] ? -a->x[3][e] : a->x[3][e], a->x[4][e]);
    }
    a->x[0][i] = qm_adafactor8_open_end(&o, a->rows, by, a->x[0][i]);
}

enum { QM_ADAFACTOR8_DIRECTION_NAN }; /* flag[]: a NaN of x[2] counts as the floor */

/* x[0] = x[1] / sqrt(max(x[2], floor)). */
QM_SWEEP(adafactor8_direction)
{
    double v = (double)a->x[2][i], floor = a->d[QM_ADAFACTOR8_FLOOR];
    v = a->flag[QM_ADAFACTOR8_DIRECTION_NAN] ? fmax(v, floor) : qm_at_least(v, floor);
    a->x[0][i] = (float)((double)a->x[1][i] / sqrt(v));
}

enum { QM_ADAFACTOR8_DECAY_KEEP }; /* c[]; the flags are those of qm_sweep_stored */

/* x[0] = x[0] keep as parameters of 16 bits have it. */
QM_SWEEP(adafactor8_decay)
{
    a->x[0][i] = qm_sweep_stored(a, a->x[0][i] * a->c[QM_ADAFACTOR8_DECAY_KEEP]);
}

enum { QM_ADAFACTOR8_ADAM_EPS };        /* d[] */
enum { QM_ADAFACTOR8_ADAM_RECIPROCAL }; /* flag[] */

/* x[0] = x[1] / (sqrt(x[2]) + eps); with the flag the source multiplies by the reciprocal, which
 * overflows in float32. */
QM_SWEEP(adafactor8_adam)
{
    double den = sqrt((double)a->x[2][i]) + a->d[QM_ADAFACTOR8_ADAM_EPS];
    int is_over = a->flag[QM_ADAFACTOR8_ADAM_RECIPROCAL] && !qm_bnb_finite((float)(1.0 / den));
    a->x[0][i] = (float)((double)a->x[1][i] / (is_over ? 0.0 * den : den));
}

enum { QM_ADAFACTOR8_PRODUCT_LEAST }; /* c[] */

/* x[0] = max(x[1] x[2], least): CAME's factors before 0.2.6. */
QM_SWEEP(adafactor8_product)
{
    float v = a->x[1][i] * a->x[2][i], least = a->c[QM_ADAFACTOR8_PRODUCT_LEAST];
    a->x[0][i] = v < least ? least : v;
}

/* x[0][i] = the span of the log code of block i of x[1], which has `rows` numbers in blocks of
 * `inner`: log2 of its largest number, counted from 2^-126. */
QM_SWEEP(adafactor8_top)
{
    int64_t end = (i + 1) * a->inner < a->rows ? (i + 1) * a->inner : a->rows;
    float top = QM_ADAFACTOR8_TINY;
    for (int64_t k = i * a->inner; k < end; k++)
        top = a->x[1][k] > top ? a->x[1][k] : top;
    float span = qm_log2(top) + 126.0f;
    a->x[0][i] = span > 1e-12f ? span : 1e-12f;
}

/* x[0] = x[0] in 8 bits of its log2 with the spans x[1] of blocks of `inner` numbers: coded as the
 * PyTorch path does and decoded as the kernels do. */
QM_SWEEP(adafactor8_recode)
{
    float x = a->x[0][i], span = a->x[1][i / a->inner];
    float l = qm_log2(x > QM_ADAFACTOR8_TINY ? x : QM_ADAFACTOR8_TINY) + 126.0f;
    float code = rintf(l / span * 255.0f);
    code = code < 0.0f ? 0.0f : code > 255.0f ? 255.0f : code;
    a->x[0][i] = qm_exp2(code * (1.0f / 255.0f) * span - 126.0f);
}

#endif
