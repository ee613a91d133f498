/* bound_overflow.c - Where numbers between the formulas of adafactor8bit overflow in float32. */
#include <math.h>

#include "oracle/bound/bound_tensor.h"
#include "oracle/rule/adafactor8.h"

/* The package's PyTorch path takes the means over rows and columns of x as three products of g^2,
 * g M and M^2 with the squared inverse roots of r and c, in float32. */
void qm_bound_open_products(const struct qm_bound_step *b, int64_t k, struct qm_ball mean,
                            double floor, const struct qm_ball *r, const struct qm_ball *c,
                            const struct qm_ball *m, struct qm_ball *x)
{
    struct qm_matrix_batch size = qm_batch_of(b->shape);
    for (int64_t i = 0; i < size.rows * size.cols; i++) {
        int64_t e = k * size.rows * size.cols + i, row = e / size.cols,
                col = k * size.cols + i % size.cols;
        double most = fmax(fabs(b->g[e]), fabs(m[e].x) + m[e].e);
        double of_row = (mean.x + mean.e) / fmax(r[row].x - r[row].e, floor);
        double of_col = 1.0 / fmax(c[col].x - c[col].e, floor);
        most *= most * (double)(size.rows + size.cols);
        if (!(of_row < 0x1p127) || !(of_row * most < 0x1p127) || !(of_col * most < 0x1p127))
            x[e].e = HUGE_VAL;
    }
}

/* No order of the package multiplies row and col themselves, whose product leaves float32's range
 * where both are small: a gradient of 0 stays 0 there. */
struct qm_ball qm_bound_inverse_root(const struct qm_bound_step *b, struct qm_ball row,
                                     struct qm_ball col)
{
    /* Two roots, their product, the quotient, its reciprocal, the arithmetic here. */
    enum { ROUNDINGS = 6 };
    double unit = b->reorder.tree ? QM_U : 0x1p-52, x = 1.0 / (sqrt(row.x) * sqrt(col.x));
    if (!(row.x - row.e > 0.0 && col.x - col.e > 0.0 && row.x + row.e + col.x + col.e < HUGE_VAL))
        return qm_ball_div_double(b, qm_ball_exact(1.0),
                                  qm_ball_sqrt_double(b, qm_ball_mul_double(b, row, col)));
    double high = 1.0 / (sqrt(row.x - row.e) * sqrt(col.x - col.e)),
           low = 1.0 / (sqrt(row.x + row.e) * sqrt(col.x + col.e));
    return (struct qm_ball){x, fmax(high - x, x - low) + ROUNDINGS * unit * high};
}

/* A product below float32's least normal number has an error of 2^-150 at most.  From 2^127 on a
 * product counts as one that may overflow, whatever its roundings are. */
struct qm_ball qm_bound_two_products(const struct qm_bound_step *b, struct qm_ball x,
                                     struct qm_ball root, struct qm_ball row, struct qm_ball col)
{
    double largest = (fabs(x.x) + x.e) / sqrt(row.x - row.e);
    double least = fmax(fabs(x.x) - x.e, 0.0) / sqrt(row.x + row.e);
    double by = 1.0 / sqrt(col.x - col.e);
    struct qm_ball u = qm_ball_float32(qm_ball_mul_double(b, x, root));
    if (isfinite(x.x) && row.x + row.e > 0.0 && largest >= 0x1p127)
        u.e = HUGE_VAL; /* else it is infinite in every order */
    if (largest > 0.0 && least <= 0x1p-126 && isfinite(by))
        u.e += 0x1p-150 * by;
    return u;
}

/* The package forms the norm from the squares of the channels' norms and of the factors, or from
 * the norm of the gradient, in float32. */
struct qm_ball qm_bound_scaled_norm(const struct qm_bound_step *b, const struct qm_ball *factor,
                                    struct qm_ball norm)
{
    int64_t rows = b->shape->dim[0], cols = b->n / rows, is_right = rows >= cols;
    int64_t channels = is_right ? rows : cols, from = is_right ? cols : 1, step = b->n / rows;
    int64_t numel = b->n / channels;
    int whole = b->h->tensor_scale;
    step = whole || is_right ? 1 : step;
    numel = whole ? b->n : numel;
    for (int64_t k = 0; k < (whole ? 1 : channels); k++) {
        double squares = 0.0, f = fabs(factor[k].x) + factor[k].e;
        for (int64_t i = 0; i < numel; i++) {
            double g = b->g[k * from + i * step];
            squares += isfinite(g) ? g * g : 0.0;
        }
        double by = whole ? f : f * f, size = whole ? sqrt(squares) : squares;
        if (!(squares < 0x1p127) || !(by < 0x1p127) || !(size * by < 0x1p127))
            norm.e = HUGE_VAL;
        if ((squares < 0x1p-120 && by > 1.0) || (by < 0x1p-120 && size > 1.0))
            norm.e += norm.x + sqrt(0x1p-126 * fmax(by, size) * (double)numel);
    }
    return norm;
}
