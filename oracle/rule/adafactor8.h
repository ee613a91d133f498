/* adafactor8.h - Slots and random matrices of family adafactor8, for the oracle and its bound. */
#ifndef QM_ORACLE_RULE_ADAFACTOR8_H
#define QM_ORACLE_RULE_ADAFACTOR8_H

#include "oracle/oracle.h"

enum qm_oracle_adafactor8_slot { M, R, C, V, CONF_R, CONF_C, NORM, PROJ, SLOTS };

/* Fills p[n] with normals N(0, 1 / rank): matrix number `which` of this tensor, from the Philox
 * stream of role "spare" at step 2^31 + which. */
void qm_adafactor8_matrix(uint32_t tensor, int64_t which, int64_t rank, int64_t n, double *p);

/* x[n] <- x in 8 bits of log2 above 2^-126 in blocks of 2048, decoded again (CAME of 0.2.2 to 0.2.5
 * on the CUDA path).  A ball that may have several codes becomes the middle of their values, with
 * half their distance as radius. */
struct qm_ball;
void qm_bound_recoded(struct qm_ball *x, int64_t n);

/* The norm of n numbers, `step` apart, whose squares are added up in float32: a radius of HUGE_VAL
 * where they may overflow. */
struct qm_bound_step;
struct qm_ball qm_bound_norm_of_floats(const struct qm_bound_step *b, const struct qm_ball *x,
                                       int64_t n, int64_t step);

/* Radii of HUGE_VAL where numbers that the package forms in float32 may overflow
 * (bound_overflow.c). open_products: of x in matrix k, the squares that CAME before 0.2.6
 * averages; r, c: the second moments, at least floor, mean: of the rows r; m: the momentum.
 * scaled_norm: of the norm of the gradient whose channels are multiplied by their factors; also
 * where one of channel and factor may vanish while the other one is large.
 * inverse_root: 1 / sqrt(row col).
 * two_products: of x times root = 1 / sqrt(row col), rounded to float32, which the package forms
 * as (x / sqrt(row)) / sqrt(col), the first factor in float32; its radius also counts what that
 * loses where it is below 2^-126. */
void qm_bound_open_products(const struct qm_bound_step *b, int64_t k, struct qm_ball mean,
                            double floor, const struct qm_ball *r, const struct qm_ball *c,
                            const struct qm_ball *m, struct qm_ball *x);
struct qm_ball qm_bound_scaled_norm(const struct qm_bound_step *b, const struct qm_ball *factor,
                                    struct qm_ball norm);
struct qm_ball qm_bound_inverse_root(const struct qm_bound_step *b, struct qm_ball row,
                                     struct qm_ball col);
struct qm_ball qm_bound_two_products(const struct qm_bound_step *b, struct qm_ball x,
                                     struct qm_ball root, struct qm_ball row, struct qm_ball col);

/* The error bounds of the releases (bound_adafactor8.c). */
qm_status qm_bound_adafactor8(const struct qm_bound_step *b);
qm_status qm_bound_adafactor8_021(const struct qm_bound_step *b);
qm_status qm_bound_adafactor8_024(const struct qm_bound_step *b);
qm_status qm_bound_adafactor8_025(const struct qm_bound_step *b);
qm_status qm_bound_adafactor8_046(const struct qm_bound_step *b); /* bound_adafactor8_046.c */
qm_status qm_bound_adafactor8_046_1d(const struct qm_bound_step *b);
qm_status qm_bound_adafactor8_046_projected(const struct qm_bound_step *b); /* its APOLLO */

/* The parameter p after its decay by weight_decay times `rate` and after the step: p (1 - decay) -
 * step, with reorder.fold also with the decay as difference or within the step. */
struct qm_ball qm_adafactor8_written(const struct qm_bound_step *b, double p, struct qm_ball rate,
                                     struct qm_ball step);

#endif
