/* narrow_span.h - Ranges of numbers that operations of PyTorch on bfloat16 numbers may give.
 *
 * Outside of fused kernels PyTorch rounds to bfloat16 after each operation.  An operation maps the
 * ranges of its operands to a range:
 *
 *   float32   it is one of float32 numbers; a result that float32 does not have is moved by one ulp
 *             of float32 to either side, for kernels contract and order differently,
 *   bfloat16  and both ends are rounded to bfloat16, which is monotone.
 *
 * A range has more than one number only next to a tie of bfloat16, and where a scalar takes part:
 * torch's add, mul and div round it to bfloat16 in scalar code, and add its product with `alpha`,
 * but not in whole vectors of 32 elements: either is taken, and what lies between. */
#ifndef QM_CONFORM_NARROW_SPAN_H
#define QM_CONFORM_NARROW_SPAN_H

#include "experiments/conform/conform.h"

/* The numbers from lo to hi, and NaN where `nan`; lo > hi: nothing but NaN. */
struct qm_narrow_span {
    double lo, hi;
    int nan;
};

/* The least range of n numbers; that of one number. */
struct qm_narrow_span qm_narrow_span_of(const double *x, int n);
struct qm_narrow_span qm_narrow_span_one(double x);

/* What lies between numbers of two ranges. */
struct qm_narrow_span qm_narrow_span_either(struct qm_narrow_span a, struct qm_narrow_span b);

/* A result in float32; a result that is rounded to bfloat16. */
struct qm_narrow_span qm_narrow_span_single(struct qm_narrow_span r);
struct qm_narrow_span qm_narrow_span_narrow(struct qm_narrow_span r);

/* Exact products, sums and quotients; no range of divisors has 0 inside. */
struct qm_narrow_span qm_narrow_span_product(struct qm_narrow_span a, struct qm_narrow_span b);
struct qm_narrow_span qm_narrow_span_sum(struct qm_narrow_span a, struct qm_narrow_span b);
struct qm_narrow_span qm_narrow_span_quotient(struct qm_narrow_span a, struct qm_narrow_span b);

/* A scalar that torch.add, mul or div takes. */
struct qm_narrow_span qm_narrow_span_scalar(double x);

/* torch.add: a + alpha b.  torch.addcdiv: a + value b / c.  The root of a number v. */
struct qm_narrow_span qm_narrow_span_add(struct qm_narrow_span a, struct qm_narrow_span b,
                                         double alpha);
struct qm_narrow_span qm_narrow_span_add_quotient(struct qm_narrow_span a, struct qm_narrow_span b,
                                                  struct qm_narrow_span c, double value);
struct qm_narrow_span qm_narrow_span_root(double v);

/* Whether a recorded number is in a range. */
int qm_narrow_span_has(struct qm_narrow_span x, double want);

/* Judges number k: outside of its range it differs, and the nearest end is what was computed;
 * equal where the range has one number. */
void qm_narrow_span_judge(struct qm_conform *c, const char *what, int64_t k,
                          struct qm_narrow_span x, double want);

#endif
