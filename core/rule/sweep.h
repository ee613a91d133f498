/* sweep.h - The operations of tensor rules on elements, rows and columns (dual).
 *
 * An operation is a function of arguments and an index i < n.  It writes element i of x[0] (or of
 * y[0]) and whatever else its comment names, and reads no other element of what it writes.  So a
 * loop (sweep.c), the threads of a GPU (core/device/tensor_rule.cu) and the faster loops of
 * tensor_rule_loops.c give the same bits.  Sums are chains of additions in double in the order of
 * the indices, one chain for each i. */
#ifndef QM_RULE_SWEEP_H
#define QM_RULE_SWEEP_H

#include "core/base/half.h"
#include "core/base/logexp.h"
#include "core/rule/bnb.h"
#include "core/rule/lpmm.h"

/* Arguments of an operation; those that its comment does not name are not used.  The enumerators
 * above an operation name its scalars d[] and c[] and its flags. */
struct qm_sweep {
    int64_t n;          /* indices */
    int64_t rows, cols; /* of each matrix of a batch */
    int64_t inner, step_a, step_k;
    double d[4];
    float c[16];
    int flag[4];
    float *x[6];
    double *y[2];
};
QM_ASSERT_BYTES(struct qm_sweep, 224);
QM_ASSERT_PLACE(struct qm_sweep, d, 48);
QM_ASSERT_PLACE(struct qm_sweep, c, 80);
QM_ASSERT_PLACE(struct qm_sweep, x, 160);

/* clang-format off */
#define QM_SWEEP_SUM_LIST(X) /* one index, one sum */                                              \
    X(row_means) X(col_means) X(squares) X(lane_norm) X(product) X(adafactor8_mean)                \
    X(channel_squares) X(adafactor8_low_means) X(adafactor8_low_mean)                              \
    X(adafactor8_channel_squares) X(adafactor8_totals) X(adafactor8_top)                           \
    X(adafactor8_open) X(adafactor8_open_rows) X(adafactor8_open_cols)
#define QM_SWEEP_ELEMENT_LIST(X)                                                                   \
    X(fill) X(copy) X(divide) X(multiply) X(moment) X(taken) X(residual) X(decay_step)             \
    X(average) X(decay) X(add_scaled) X(add_square) X(over_sqrt) X(factor_rsqrt)                   \
    X(lamb_states) X(lamb_corrected) X(lamb_update) X(lamb_step)                                   \
    X(lars_states) X(lars_bare) X(lars_step) X(lars_step_cpu)                                      \
    X(lpmm_lerp) X(lpmm_second) X(lpmm_apply) X(lpmm_factor)                                       \
    X(torch_means) X(torch_lerp) X(torch_estimate) X(torch_update) X(came_decay)                   \
    X(adafactor8_square) X(adafactor8_gradient_square) X(adafactor8_missed) X(adafactor8_outer)    \
    X(adafactor8_over_root) X(adafactor8_direction) X(adafactor8_product) X(adafactor8_recode)     \
    X(adafactor8_adam) X(adafactor8_decay)                                                         \
    X(transpose) X(less) X(average_square) X(adapted) X(channel_ratio) X(channels)                 \
    X(adafactor8_begin) X(adafactor8_ratio)                                                        \
    X(muon_momentum) X(muon_direction) X(muon_over) X(muon_product) X(muon_blend) X(muon_step)
#define QM_SWEEP_LIST(X) QM_SWEEP_SUM_LIST(X) QM_SWEEP_ELEMENT_LIST(X)

#define QM_SWEEP(name) QM_FN void qm_sweep_##name(const struct qm_sweep *a, int64_t i)
/* clang-format on */

enum qm_sweep_kind {
#define X(name) QM_SWEEP_##name,
    QM_SWEEP_LIST(X)
#undef X
        QM_SWEEP_COUNT
};

#define X(name) +1
enum {
    QM_SWEEP_SUMS = QM_SWEEP_SUM_LIST(X)
}; /* the number of kinds that are sums; they come first */
#undef X

/* ---- elements -------------------------------------------------------------------------------- */

/* A term of row and column sums: x, or x * x + add in float32. */
struct qm_term {
    int is_square;
    float add;
    int is_single; /* the sum overflows as in float32 */
};

QM_FN float qm_term_of(struct qm_term t, float x) { return t.is_square ? x * x + t.add : x; }

/* How an average takes in a new number x, whose sign is turned before (turns), and which is 0 where
 * it is not finite (only_finite): by qm_lerp with `weight`, or as old * keep + weight * x, which is
 * not fused. */
struct qm_moment {
    int is_lerp, turns, only_finite;
    float keep, weight;
};

QM_FN float qm_taken(struct qm_moment m, float x)
{
    float f = m.turns ? -x : x;
    return m.only_finite && !qm_bnb_finite(f) ? 0.0f : f;
}

QM_FN float qm_moment_lerp(struct qm_moment m, float old, float x)
{
    return qm_lerp(old, m.turns ? -x : x, m.weight, m.weight - 1.0f);
}

QM_FN float qm_moment_mix(struct qm_moment m, float old, float x)
{
    return old * m.keep + m.weight * qm_taken(m, x);
}

/* (u - m)^2 + add. */
QM_FN float qm_residual(float u, float m, float add) { return (u - m) * (u - m) + add; }

QM_FN float qm_decay_step(float p, float keep, float by, float u) { return p * keep - by * u; }

/* mul_(keep).add_(x, alpha=weight) of torch, fused. */
QM_FN float qm_averaged(float old, float x, float keep, float weight)
{
    return fmaf(x, weight, old * keep);
}

/* Factors of a factored second moment, (r / mean)^(-1/2) of a row and c^(-1/2) of a column, and x
 * times both. */
QM_FN float qm_row_root(float r, float mean) { return 1.0f / sqrtf(r / mean); }
QM_FN float qm_col_root(float c) { return 1.0f / sqrtf(c); }
QM_FN float qm_outer_f32(float row, float col, float x) { return (row * col) * x; }
/* x times row times col in double; where x times row is not a normal float32 (it overflows, or is
 * tiny), what float32 makes of it times col. */
QM_FN float qm_outer(double row, double col, float x)
{
    double first = (double)x * row, size = fabs(first);
    if (size >= 0x1p-126 && size < 0x1.fffffep127)
        return (float)((double)x * (row * col));
    return (float)((double)(float)first * col);
}

/* max(x, least), and NaN of a NaN, as torch.clamp has it. */
QM_FN double qm_at_least(double x, double least) { return x < least ? least : x; }

enum {
    QM_STORED_BF16, /* flag[]: parameters are bfloat16 */
    QM_STORED_F16   /* flag[]: parameters are float16 */
};

/* x in the format that the flags name. */
QM_FN float qm_sweep_stored(const struct qm_sweep *a, float x)
{
    x = a->flag[QM_STORED_BF16] ? qm_bf16_to_float(qm_float_to_bf16(x)) : x;
    return a->flag[QM_STORED_F16] ? qm_f16_to_float(qm_float_to_f16(x)) : x;
}

/* x / sqrt(max(row * col / mean, floor)); a NaN of the product counts as the floor (fmax). */
QM_FN float qm_over_root(double row, double col, double mean, double floor, float x)
{
    return (float)((double)x * (1.0 / sqrt(fmax(row * col / mean, floor))));
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* A sum that the sources form in float32 and that is formed in double here: infinite where it
 * overflows in float32. */
QM_FN double qm_float_sum(double sum)
{
    return qm_bnb_finite((float)sum) ? sum : (double)(float)sum;
}

QM_FN float qm_mean_of_sum(struct qm_term t, double sum, int64_t n)
{
    return (float)((t.is_single ? qm_float_sum(sum) : sum) / (double)n);
}

enum { QM_MEANS_ADD }; /* c[] of row_means and col_means: struct qm_term */
enum { QM_MEANS_IS_SQUARE, QM_MEANS_IS_SINGLE }; /* flag[] */

QM_FN struct qm_term qm_sweep_term(const struct qm_sweep *a)
{
    struct qm_term t = {a->flag[QM_MEANS_IS_SQUARE], a->c[QM_MEANS_ADD],
                        a->flag[QM_MEANS_IS_SINGLE]};
    return t;
}

/* x[0][i] = mean of the terms of row i (col_means: of column i) of x[1]. */
QM_SWEEP(row_means)
{
    struct qm_term t = qm_sweep_term(a);
    const float *x = a->x[1] + i * a->cols;
    double s = 0.0;
    for (int64_t j = 0; j < a->cols; j++)
        s += (double)qm_term_of(t, x[j]);
    a->x[0][i] = qm_mean_of_sum(t, s, a->cols);
}

QM_SWEEP(col_means)
{
    struct qm_term t = qm_sweep_term(a);
    const float *x = a->x[1] + i / a->cols * a->rows * a->cols + i % a->cols;
    double s = 0.0;
    for (int64_t k = 0; k < a->rows; k++)
        s += (double)qm_term_of(t, x[k * a->cols]);
    a->x[0][i] = qm_mean_of_sum(t, s, a->rows);
}

enum { QM_SQUARES_GRID }; /* d[] */

/* y[0][i] = sum of the squares of the i-th `inner` numbers of x[1], each rounded to a multiple of
 * d[QM_SQUARES_GRID] 2^-52; NaN where one of them lies half way between two multiples
 * (qm_sum_squares). */
QM_SWEEP(squares)
{
    const float *x = a->x[1] + i * a->inner;
    double s = 0.0, grid = a->d[QM_SQUARES_GRID], half = grid * 0x1p-53;
    int ties = 0;
    for (int64_t k = 0; k < a->inner; k++) {
        double v = (double)x[k] * (double)x[k], rounded = (v + grid) - grid;
        ties |= v - rounded == half || v - rounded == -half;
        s += rounded;
    }
    a->y[0][i] = ties ? (double)qm_float(0x7fc00000u) : s;
}

/* y[0][0] = torch.norm of the `inner` float32 numbers x[1] on CPU with AVX2 and one thread: eight
 * lanes, which add by fma, are added in order; then the rest is added.  Of one number torch takes
 * the absolute value, without a square that might overflow or vanish. */
QM_SWEEP(lane_norm)
{
    float lane[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
    int64_t whole = a->inner / 8 * 8;
    const float *x = a->x[1];
    for (int64_t k = 0; k < whole; k += 8)
        for (int j = 0; j < 8; j++)
            lane[j] = fmaf(x[k + j], x[k + j], lane[j]);
    for (int j = 1; whole > 0 && j < 8; j++)
        lane[0] = lane[0] + lane[j];
    for (int64_t k = whole; k < a->inner; k++)
        lane[0] = fmaf(x[k], x[k], lane[0]);
    a->y[0][i] = (double)(a->inner == 1 ? fabsf(x[0]) : sqrtf(lane[0]));
}

/* Element i of the product of qm_product: x[1] by x[2], which has `cols` columns. */
QM_SWEEP(product)
{
    const float *x = a->x[1] + i / a->cols * a->step_a, *y = a->x[2] + i % a->cols;
    double s = 0.0;
    for (int64_t k = 0; k < a->inner; k++)
        s += (double)x[k * a->step_k] * (double)y[k * a->cols];
    a->x[0][i] = (float)s;
}

/* ---- general --------------------------------------------------------------------------------- */

/* The matrix, the row and the column of an element; rows and columns are counted through
 * the batch. */
struct qm_sweep_place {
    int64_t batch, row, col;
};

QM_FN struct qm_sweep_place qm_sweep_at(const struct qm_sweep *a, int64_t i)
{
    struct qm_sweep_place at;
    at.row = i / a->cols;
    at.batch = at.row / a->rows;
    at.col = at.batch * a->cols + (i - at.row * a->cols);
    return at;
}

enum { QM_MOMENT_KEEP, QM_MOMENT_WEIGHT }; /* c[] of moment and taken: struct qm_moment */
enum { QM_MOMENT_IS_LERP, QM_MOMENT_TURNS, QM_MOMENT_ONLY_FINITE }; /* flag[] */

QM_FN struct qm_moment qm_sweep_how(const struct qm_sweep *a)
{
    struct qm_moment m = {a->flag[QM_MOMENT_IS_LERP], a->flag[QM_MOMENT_TURNS],
                          a->flag[QM_MOMENT_ONLY_FINITE], a->c[QM_MOMENT_KEEP],
                          a->c[QM_MOMENT_WEIGHT]};
    return m;
}

/* c[] of the operations on elements that follow. */
enum { QM_FILL_VALUE };
enum { QM_DIVIDE_BY };
enum { QM_MULTIPLY_BY };
enum { QM_RESIDUAL_ADD };
enum { QM_DECAY_STEP_KEEP, QM_DECAY_STEP_LR };
enum { QM_AVERAGE_KEEP, QM_AVERAGE_WEIGHT };
enum { QM_DECAY_BY };
enum { QM_ADD_SCALED_ALPHA };
enum { QM_ADD_SQUARE_EPS };
enum { QM_ADD_SQUARE_BARE }; /* flag[]: without eps */

QM_SWEEP(fill) { a->x[0][i] = a->c[QM_FILL_VALUE]; }
QM_SWEEP(copy) { a->x[0][i] = a->x[1][i]; }
QM_SWEEP(divide) { a->x[0][i] = a->x[0][i] / a->c[QM_DIVIDE_BY]; }
QM_SWEEP(multiply) { a->x[0][i] = a->x[0][i] * a->c[QM_MULTIPLY_BY]; }

QM_SWEEP(moment)
{
    struct qm_moment m = qm_sweep_how(a);
    float old = a->x[0][i], x = a->x[1][i];
    a->x[0][i] = m.is_lerp ? qm_moment_lerp(m, old, x) : qm_moment_mix(m, old, x);
}

QM_SWEEP(taken) { a->x[0][i] = qm_taken(qm_sweep_how(a), a->x[1][i]); }
QM_SWEEP(residual) { a->x[0][i] = qm_residual(a->x[0][i], a->x[1][i], a->c[QM_RESIDUAL_ADD]); }
QM_SWEEP(decay_step)
{
    a->x[0][i] =
        qm_decay_step(a->x[0][i], a->c[QM_DECAY_STEP_KEEP], a->c[QM_DECAY_STEP_LR], a->x[1][i]);
}
QM_SWEEP(average)
{
    a->x[0][i] =
        qm_averaged(a->x[0][i], a->x[1][i], a->c[QM_AVERAGE_KEEP], a->c[QM_AVERAGE_WEIGHT]);
}
QM_SWEEP(decay) { a->x[0][i] = fmaf(a->x[0][i], a->c[QM_DECAY_BY], a->x[0][i]); }
QM_SWEEP(add_scaled) { a->x[0][i] = fmaf(a->x[1][i], a->c[QM_ADD_SCALED_ALPHA], a->x[0][i]); }

/* x[0] = x[1]^2 + eps. */
QM_SWEEP(add_square)
{
    float square = a->x[1][i] * a->x[1][i];
    a->x[0][i] = a->flag[QM_ADD_SQUARE_BARE] ? square : square + a->c[QM_ADD_SQUARE_EPS];
}

/* x[0] = x[2] / sqrt(x[1]), by the inverse of the root. */
QM_SWEEP(over_sqrt) { a->x[0][i] = 1.0f / sqrtf(a->x[1][i]) * a->x[2][i]; }

/* x[0] = x[1] * rsqrt(row / mean) * rsqrt(col) for rows x[2], columns x[3] and means of the
 * rows x[4]. */
QM_SWEEP(factor_rsqrt)
{
    struct qm_sweep_place at = qm_sweep_at(a, i);
    float row = qm_row_root(a->x[2][at.row], a->x[4][at.batch]);
    a->x[0][i] = qm_outer_f32(row, qm_col_root(a->x[3][at.col]), a->x[1][i]);
}

/* ---- LAMB, LARS: c[] as in bnb.h ------------------------------------------------------------- */

enum {
    QM_LAMB_INVERSE_BC1 = QM_BNB_BC1,      /* c[]: 1 / (1 - beta1^t) */
    QM_LAMB_INVERSE_BC2 = QM_BNB_ROOT_BC2, /* c[]: 1 / (1 - beta2^t) */
    QM_LAMB_EPS = QM_BNB_ALPHA,            /* c[]: eps of the bias-corrected update */
    QM_LAMB_STEP = QM_BNB_BETA3            /* c[]: the step, or the factor on it */
};
enum {
    QM_LAMB_FUSES,  /* flag[]: form 32; otherwise form plain */
    QM_LAMB_FIRST,  /* flag[]: the first step */
    QM_LAMB_COUPLED /* flag[]: the L2 term is added to the gradient */
};

QM_FN enum qm_bnb_form qm_sweep_form(const struct qm_sweep *a)
{
    return a->flag[QM_LAMB_FUSES] ? QM_BNB_32 : QM_BNB_plain;
}

/* x[0] = m, x[1] = v of the gradient x[2]. */
QM_SWEEP(lamb_states)
{
    enum qm_bnb_form form = qm_sweep_form(a);
    float x = a->x[2][i] * a->c[QM_BNB_GNORM_SCALE];
    a->x[0][i] = qm_bnb_add(form, a->x[0][i] * a->c[QM_BNB_BETA1], a->c[QM_BNB_ONE_MINUS_BETA1], x);
    a->x[1][i] =
        qm_bnb_add_square(form, a->x[1][i] * a->c[QM_BNB_BETA2], a->c[QM_BNB_ONE_MINUS_BETA2], x);
}

/* x[0] = the bias-corrected update of m = x[1] and v = x[2]; eps is c[QM_LAMB_EPS]. */
QM_SWEEP(lamb_corrected)
{
    a->x[0][i] = (a->x[1][i] * a->c[QM_LAMB_INVERSE_BC1]) /
                 (sqrtf(a->x[2][i] * a->c[QM_LAMB_INVERSE_BC2]) + a->c[QM_LAMB_EPS]);
}

/* x[0] = the update of m = x[1] and v = x[2] without bias correction. */
QM_SWEEP(lamb_update) { a->x[0][i] = a->x[1][i] / (sqrtf(a->x[2][i]) + a->c[QM_BNB_EPS]); }

/* x[0] = p after a step by m = x[1] and v = x[2]. */
QM_SWEEP(lamb_step)
{
    float u = a->x[1][i] / (sqrtf(a->x[2][i]) + a->c[QM_BNB_EPS]);
    a->x[0][i] =
        qm_bnb_add(qm_sweep_form(a), a->x[0][i] * a->c[QM_BNB_DECAY], a->c[QM_LAMB_STEP], u);
}

/* x[0] = the momentum buffer of p = x[1] and the gradient x[2]. */
QM_SWEEP(lars_states)
{
    a->x[0][i] = qm_bnb_buffer(qm_sweep_form(a), a->c, a->flag[QM_LAMB_COUPLED],
                               a->flag[QM_LAMB_FIRST], a->x[1][i], a->x[2][i], a->x[0][i]);
}

/* x[0] = the buffer x[1] without the L2 term of p = x[2]; lars_step, lars_step_cpu: x[0] = p after
 * a step by the buffer x[1]. */
QM_SWEEP(lars_bare) { a->x[0][i] = a->x[1][i] - a->x[2][i] * a->c[QM_BNB_DECAY]; }
QM_SWEEP(lars_step)
{
    a->x[0][i] = a->x[0][i] + a->c[QM_LAMB_STEP] * (a->c[QM_BNB_STEP] * a->x[1][i]);
}
QM_SWEEP(lars_step_cpu) { a->x[0][i] = fmaf(a->x[1][i], a->c[QM_LAMB_STEP], a->x[0][i]); }

/* ---- lpmm: c[], flag[] as in lpmm.h ---------------------------------------------------------- */

QM_FN float qm_lpmm_first(const float *c, int turns, float m, float g)
{
    return qm_lerp(m, turns ? -g : g, c[QM_LPMM_W1], c[QM_LPMM_W1_MINUS_1]);
}

QM_SWEEP(lpmm_lerp)
{
    a->x[0][i] = qm_lpmm_first(a->c, a->flag[QM_FLAG_MAXIMIZE], a->x[0][i], a->x[1][i]);
}
QM_SWEEP(lpmm_second) { qm_adamw_lpmm_second(a->c, a->x[1][i], a->x[0] + i); }

/* x[0] = p after a step by m = x[1] and v = x[2]. */
QM_SWEEP(lpmm_apply) { qm_adamw_lpmm_apply(a->c, 0, a->x[0] + i, a->x[1][i], a->x[2][i]); }

/* x[0] = p after a step by m = x[1] and v = row / mean * col, for rows x[2], columns x[3], means of
 * the rows x[4]. */
QM_SWEEP(lpmm_factor)
{
    struct qm_sweep_place at = qm_sweep_at(a, i);
    float row = a->x[2][at.row] / a->x[4][at.batch];
    qm_adamw_lpmm_apply(a->c, 0, a->x[0] + i, a->x[1][i], row * a->x[3][at.col]);
}

/* ---- Adafactor, CAME ------------------------------------------------------------------------- */

enum { QM_TORCH_MEANS_COUNT };  /* d[] */
enum { QM_TORCH_LERP_WEIGHT };  /* c[] */
enum { QM_TORCH_ESTIMATE_EPS }; /* c[]: the least mean */
enum { QM_TORCH_UPDATE_LEAST }; /* c[]: the least estimate */
enum { QM_TORCH_UPDATE_TURNS }; /* flag[]: the sign of the gradient is turned */
enum { QM_CAME_DECAY_BY };      /* c[]; its flags are those of qm_sweep_stored */

/* x[0] = a mean of squares x[0] over a count as PyTorch computes it, through a norm:
 * sqrt(x[0] count), squared again, over the count. */
QM_SWEEP(torch_means)
{
    float norm = (float)sqrt((double)a->x[0][i] * a->d[QM_TORCH_MEANS_COUNT]);
    a->x[0][i] = norm * norm / (float)a->d[QM_TORCH_MEANS_COUNT];
}

QM_SWEEP(torch_lerp)
{
    float weight = a->c[QM_TORCH_LERP_WEIGHT];
    a->x[0][i] = qm_lerp(a->x[0][i], a->x[1][i], weight, weight - 1.0f);
}

QM_FN float qm_torch_mean(float mean, float least) { return mean < least ? least : mean; }
QM_FN float qm_torch_second(float row, float col, float mean) { return row * col / mean; }

/* x[0] = row * col / max(mean, eps) for rows x[1], columns x[2] and means of the rows x[3]. */
QM_SWEEP(torch_estimate)
{
    struct qm_sweep_place at = qm_sweep_at(a, i);
    float mean = qm_torch_mean(a->x[3][at.batch], a->c[QM_TORCH_ESTIMATE_EPS]);
    a->x[0][i] = qm_torch_second(a->x[1][at.row], a->x[2][at.col], mean);
}

/* x[0] = x[1] / sqrt(max(x[0], least)) for the estimate x[0] and the gradient x[1]. */
QM_SWEEP(torch_update)
{
    float least = a->c[QM_TORCH_UPDATE_LEAST], v = a->x[0][i] < least ? least : a->x[0][i];
    a->x[0][i] = 1.0f / sqrtf(v) * (a->flag[QM_TORCH_UPDATE_TURNS] ? -a->x[1][i] : a->x[1][i]);
}

/* CAME decays a parameter by torch's add with a factor.  Of 16 bits, the factor has their type,
 * too; whole vectors, the elements below `inner`, take the sum in one rounding, and the scalar code
 * of the others rounds the product to the type before. */
QM_SWEEP(came_decay)
{
    float p = a->x[0][i], by = a->c[QM_CAME_DECAY_BY];
    int is_wide = !a->flag[QM_STORED_BF16] && !a->flag[QM_STORED_F16];
    a->x[0][i] = is_wide || i < a->inner ? qm_sweep_stored(a, fmaf(p, by, p))
                                         : qm_sweep_stored(a, p + qm_sweep_stored(a, p * by));
}

#include "core/rule/sweep_adafactor8.h"
#include "core/rule/sweep_lowrank.h"
#include "core/rule/sweep_muon.h"

#endif
