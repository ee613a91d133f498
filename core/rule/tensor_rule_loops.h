/* tensor_rule_loops.h - The loops of tensor rules, one table per instruction set.
 *
 * Sums keep their order: what a loop computes at the same time are rows, columns or elements that
 * do not depend on each other. */
#ifndef QM_RULE_TENSOR_RULE_LOOPS_H
#define QM_RULE_TENSOR_RULE_LOOPS_H

#include "core/base/isa.h"
#include "core/rule/rule.h"
#include "core/rule/sweep.h"

/* A row of a factored second moment and what divides by its root: out[j] = x[j] (1 / sqrt(max(row
 * col[j] / mean, floor))), where root[j] = 1 / sqrt(col[j]).  In double, in this order: the root,
 * its inverse, the product with x[j]; then rounded to float32.  row, col and mean are finite and
 * not negative, mean is not 0. */
struct qm_root {
    double row, mean, floor;
    const float *col;
    const double *root;
};

/* CHUNK: elements of a loop that stay in the first-level cache.  ROWS: row sums at a time.  DEEP x
 * TILE: sums of a product at a time. */
enum { QM_TENSOR_CHUNK = 256, QM_TENSOR_ROWS = 16, QM_TENSOR_TILE = 16, QM_TENSOR_DEEP = 4 };

/* A tile of the product out[a][c] = sum over k of x[a step_a + k step_k] y[k][c]: rows <=
 * QM_TENSOR_DEEP by cols <= QM_TENSOR_TILE sums over k < inner.  y and out have `width` columns. */
struct qm_product_tile {
    const float *x, *y;
    float *out;
    int64_t step_a, step_k, width, rows, inner, cols;
};

struct qm_tensor_rule_loops {
    /* What adding x[0]^2, x[1]^2, ... one by one, each addition rounded, adds to a sum in [grid, 2
     * grid): returned for a sum whose last bit is 0, in *odd for one whose last bit is 1.  Where
     * the sum does not stay below 2 grid, the result is NaN or too large for that.  n: a multiple
     * of 64, up to 1024; grid: a power of two (qm_sum_squares). */
    double (*squares)(const float *x, int64_t n, double grid, double *odd);

    /* sum[i] += the terms of row i, from left to right: rows <= QM_TENSOR_ROWS rows, which begin
     * `step` apart. */
    void (*row_sums)(struct qm_term t, const float *x, int64_t rows, int64_t cols, int64_t step,
                     double *sum);

    /* sum[j] += the terms of column j, from top to bottom. */
    void (*col_sums)(struct qm_term t, const float *x, int64_t rows, int64_t cols, int64_t step,
                     double *sum);

    /* In double, in the order of k. */
    void (*product)(const struct qm_product_tile *t);

    /* The average old[i] takes x[i] in, which is a gradient or an update. */
    void (*moment)(const struct qm_moment *m, int64_t n, const float *x, float *old);

    /* out[i] = x[i] as the average takes it in: with its sign turned, and 0 where it is not finite,
     * as m says.  out may be x. */
    void (*taken)(const struct qm_moment *m, int64_t n, const float *x, float *out);

    /* x[i] = x[i] / by; x[i] = x[i] * by. */
    void (*divide)(int64_t n, float by, float *x);
    void (*multiply)(int64_t n, float by, float *x);

    /* u[i] = (u[i] - m[i])^2 + add. */
    void (*residual)(int64_t n, float add, const float *m, float *u);

    /* Rounds of CAME: u[i] = u[i] / by; in rounds 0 and 1 the average old[i] takes u[i] in; in
     * rounds 0 and 2 u[i] = (u[i] - old[i])^2 + add.  how->is_lerp is 0. */
    void (*came)(const struct qm_moment *how, int round, int64_t n, float by, float add, float *old,
                 float *u);

    /* p[i] = p[i] * keep - by * u[i]. */
    void (*decay_step)(int64_t n, float keep, float by, const float *u, float *p);

    /* old[i] = fmaf(x[i], weight, old[i] * keep). */
    void (*average)(int64_t n, float keep, float weight, const float *x, float *old);

    /* p[i] = fmaf(p[i], by, p[i]). */
    void (*decay)(int64_t n, float by, float *p);

    /* p[i] = fmaf(u[i], by, p[i]). */
    void (*add_scaled)(int64_t n, float by, const float *u, float *p);

    /* out[j] = qm_outer(row, root[j], x[j]); outer_f32: out[j] = (row * root[j]) * x[j], each
     * product rounded.  out may be x. */
    void (*outer)(int64_t n, double row, const double *root, const float *x, float *out);
    void (*outer_f32)(int64_t n, float row, const float *root, const float *x, float *out);

    /* struct qm_root; out may be x. */
    void (*over_root)(const struct qm_root *r, int64_t n, const float *x, float *out);

    /* AdamW of lpmm (lpmm.h): the parameters, with v = row * col[j]; the first moments. */
    void (*lpmm_apply)(const struct qm_rule_step *s, int64_t n, float row, const float *col,
                       const float *m, float *p);
    void (*lpmm_lerp)(const struct qm_rule_step *s, int64_t n, const float *g, float *m);
};

/* The table of the level that qm_isa() chose (tensor_rule.c), or of this thread's device. */
const struct qm_tensor_rule_loops *qm_tensor_rule_loops(void);

#endif
