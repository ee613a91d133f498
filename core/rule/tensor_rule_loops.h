/* blocks_whole.h - the loops of rules over whole tensors, one table per instruction set.
 *
 * Sums keep their order: what runs beside each other is rows, columns or elements that do not meet. */
#ifndef QM_RULE_BLOCKS_WHOLE_H
#define QM_RULE_BLOCKS_WHOLE_H

#include "core/base/isa.h"
#include "core/rule/rule.h"
#include "core/rule/sweep.h"

/* Divides by the root of row * col[j] / mean, at least `floor`, in double: the root, then its inverse,
 * then the product with x, then float32.  root: 1 / sqrt(col[j]); row, col and mean are finite, not
 * negative, mean not 0. */
struct qm_root {
    double row, mean, floor;
    const float *col;
    const double *root;
};

/* CHUNK: elements of a loop that stay in the first-level cache; ROWS, DEEP x TILE: sums at a time. */
enum { QM_TENSOR_CHUNK = 256, QM_TENSOR_ROWS = 16, QM_TENSOR_TILE = 16, QM_TENSOR_DEEP = 4 };

struct qm_tensor_rule_loops {
    /* What a sum in [grid, 2 grid) whose last bit is 0 gains by adding x[i]^2 one by one, each addition
     * rounded; *odd: likewise, last bit 1.  NaN, or too much for the sum to stay below 2 grid, where it
     * does not.  n: a multiple of 64, up to 1024; grid: a power of two (whole.h says what for). */
    double (*squares)(const float *x, int64_t n, double grid, double *odd);

    /* sum[i] += terms of row i, from left to right: rows <= QM_TENSOR_ROWS rows, `step` apart. */
    void (*row_sums)(struct qm_term t, const float *x, int64_t rows, int64_t cols, int64_t step,
                     double *sum);

    /* sum[j] += terms of column j, from top to bottom. */
    void (*col_sums)(struct qm_term t, const float *x, int64_t rows, int64_t cols, int64_t step,
                     double *sum);

    /* out[a][c] = sum over k of x[a step_a + k step_k] y[k][c], in double, in the order of k: a tile of
     * rows <= QM_TENSOR_DEEP by cols <= QM_TENSOR_TILE.  y and out have `width` columns. */
    void (*product)(const float *x, int64_t step_a, int64_t step_k, const float *y, int64_t width,
                    int64_t rows, int64_t inner, int64_t cols, float *out);

    /* old[i] takes in x[i]; x may be the gradient or an update. */
    void (*moment)(const struct qm_moment *m, int64_t n, const float *x, float *old);

    /* out[i] = x[i], turned and cleared of what is not finite; out may be x. */
    void (*taken)(const struct qm_moment *m, int64_t n, const float *x, float *out);

    /* x[i] = x[i] / by; x[i] = x[i] * by. */
    void (*divide)(int64_t n, float by, float *x);
    void (*multiply)(int64_t n, float by, float *x);

    /* u[i] = (u[i] - m[i])^2 + add. */
    void (*residual)(int64_t n, float add, const float *m, float *u);

    /* CAME's rounds: u[i] = u[i] / by; old[i] takes in u[i] (round < 2); u[i] = (u[i] - old[i])^2 + add
     * (round != 1).  how->is_lerp: 0. */
    void (*came)(const struct qm_moment *how, int round, int64_t n, float by, float add, float *old,
                 float *u);

    /* p[i] = p[i] * keep - by * u[i]. */
    void (*decay_step)(int64_t n, float keep, float by, const float *u, float *p);

    /* old <- fmaf(x, weight, old * keep). */
    void (*average)(int64_t n, float keep, float weight, const float *x, float *old);

    /* p[i] = fmaf(p[i], by, p[i]). */
    void (*decay)(int64_t n, float by, float *p);

    /* p[i] = fmaf(u[i], by, p[i]). */
    void (*add_scaled)(int64_t n, float by, const float *u, float *p);

    /* out[j] = row * root[j] * x[j], from the left: in double, rounded to float32 once; or in float32, each
     * product rounded.  out may be x. */
    void (*outer)(int64_t n, double row, const double *root, const float *x, float *out);
    void (*outer_f32)(int64_t n, float row, const float *root, const float *x, float *out);

    /* See struct qm_root; out may be x. */
    void (*over_root)(const struct qm_root *r, int64_t n, const float *x, float *out);

    /* lpmm's AdamW (lpmm.h) with v = row * col[j]. */
    void (*lpmm_apply)(const struct qm_rule_step *s, int64_t n, float row, const float *col,
                       const float *m, float *p);
    void (*lpmm_lerp)(const struct qm_rule_step *s, int64_t n, const float *g, float *m);
};

/* The table of the level that qm_isa() chose (whole.c). */
const struct qm_tensor_rule_loops *qm_tensor_rule_loops(void);

#endif
