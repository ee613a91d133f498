/* adafactor8.h - What the files of family adafactor8 share: scalars and geometry of a step.
 *
 * The family is the optimizer of adafactor8bit: Adafactor with an optional first moment, CAME's
 * confidence, APOLLO's projection and Fira's limiter, in the forms of its releases:
 *
 *     0.2.1, 0.2.4 (0.2.2 computes the same), 0.2.5 or 0.2.6; PyTorch path or CUDA path;
 *     0.4.6 (0.4.3 computes the same), PyTorch path
 *
 * A hyper-parameter that the source takes as None is -1 here: beta1 (no first moment), beta2 (the
 * weight of a new square is t^beta2_decay), eps1 (machine epsilon of float32; in the projected
 * space eps instead).  eps is eps_came and apollo_eps of the source, clip its d, and factored, with
 * rank > 0, its apollo_factorize.
 *
 * CAME before 0.2.6 has the paper's name and another formula: the confidence averages the squared
 * distance between the gradient and its average, and multiplies the second moment.
 *
 * 0.4.6: no floor under row and column factors; a vector's moment averages its clipped update;
 * tensors that are not factored, with a fixed beta2, take Adam's denominator, and their moment
 * averages the gradient; momentum_only_1d against its default exchanges these two moments, and an
 * averaged update has no Adam's denominator; clip 0 is no clip;
 * the bias is corrected where correct_bias says so.  A positive beta2_decay without beta2 stands
 * for None: SGD, whose step is M / (1 - beta1).  APOLLO adds nothing to its squares, but 2^-126 to
 * their means, always applies fresh states, corrects the bias behind the limiter, and has no
 * limiter where margin is below 0. */
#ifndef QM_RULE_ADAFACTOR8_H
#define QM_RULE_ADAFACTOR8_H

#include "core/rule/rule.h"
#include "core/rule/sweep.h"

enum qm_adafactor8_slot {
    QM_ADAFACTOR8_M,   /* exp_avg: in the shape of the parameter, or of the projected gradient */
    QM_ADAFACTOR8_ROW, /* row_var [batch x rows] */
    QM_ADAFACTOR8_COL, /* col_var [batch x cols] */
    QM_ADAFACTOR8_V,   /* variance, unfactored */
    QM_ADAFACTOR8_CONF_ROW, /* CAME */
    QM_ADAFACTOR8_CONF_COL,
    QM_ADAFACTOR8_NORM, /* prev_norm: of the limiter */
    QM_ADAFACTOR8_PROJ, /* the projection, where the caller gives it (gap < 0) */
    QM_ADAFACTOR8_SLOTS
};

/* flag[]: the release, 21 to 46; the CUDA path; momentum_only_1d against its default; the variance
 * is averaged by lerp, as where it has codes, although it is float32 here (qualm conform, of
 * 16-bit codes). */
enum { QM_ADAFACTOR8_RELEASE, QM_ADAFACTOR8_CUDA, QM_ADAFACTOR8_OTHER_1D, QM_ADAFACTOR8_WIDE };

/* A tensor as the source sees it: batch matrices of rows x cols (APOLLO: one of dim[0] x rest). */
struct qm_adafactor8 {
    const struct qm_tensor_rule_args *w;
    const struct qm_hyper *h;
    int is_024, is_025, is_026, is_046; /* that release or a later one */
    int is_adam;                        /* 0.4.6: M / (sqrt(V) + eps1) */
    int is_unit; /* 0.4.6: the first moment of a vector averages its update */
    int is_sgd;  /* 0.4.6, earlier releases refuse it: no second moment */
    int is_cuda; /* not of matrices whose second moments are float32: no kernel has them */
    int has_m, is_factored, is_apollo;
    int is_came, is_old_came; /* old: CAME before 0.2.6, where is_came is 1 too */
    int64_t t; /* the step; 1 in every step where the source forgets that it has a state */
    int64_t n, batch, rows, cols;
    int64_t rank;      /* APOLLO; as the source, not limited by rows and cols */
    int is_right;      /* APOLLO: rows >= cols, G P^T is rows x rank; else P^T G is rank x cols */
    double eps1;       /* None resolved */
    double eps_sq;     /* max(eps1^2, 2^-126): floor of a second moment */
    double b;          /* weight of a new square */
    double rho;        /* the rate before the parameter's scale */
    double correction; /* of Adam's bias; 1 where the source has none */
    double adam_eps;   /* eps1, times sqrt(1 - beta2^t) where the bias is corrected */
};

/* A step's scalars and geometry; the tensor may have no element. */
struct qm_adafactor8 qm_adafactor8_open(const struct qm_tensor_rule_args *w);

/* out = the gradient as the averages take it in: its sign turned, and 0 where it is not finite, if
 * the source does so. */
void qm_adafactor8_gradients(const struct qm_adafactor8 *a, int sanitized, float *out);

/* The average of squares in a slot takes in x[n]^2 + add, of an x whose sign is turned first if
 * `turns`. */
void qm_adafactor8_squares_of(const struct qm_adafactor8 *a, enum qm_adafactor8_slot slot,
                              const float *x, int64_t n, int turns, float add);

/* The first moment m[n] takes in fresh[n]. */
void qm_adafactor8_moment(const struct qm_adafactor8 *a, int64_t n, const float *fresh, float *m);

struct qm_lazy_floats;

/* The norm of n numbers, from squares in float32; infinite where they overflow.  is_torch: of one
 * number its absolute value, as torch has it; the kernels of the source square it. */
double qm_adafactor8_norm(const struct qm_lazy_floats *x, int64_t n, int is_torch);

/* The rate of the parameter: max(RMS(p), eps2) rho, or rho. */
double qm_adafactor8_rate(const struct qm_adafactor8 *a);

/* The limiter of the update's norm (Fira).  Returns the factor for an update of this norm, and
 * keeps its memory in slot prev_norm.  From 0.2.5 on a norm that is not finite counts as 0; a
 * memory that is NaN makes the factor NaN, of any norm. */
double qm_adafactor8_limit(const struct qm_adafactor8 *a, double norm);

/* p = p (1 - decay) - rate u, each product rounded to float32. */
void qm_adafactor8_write(const struct qm_adafactor8 *a, double alpha, double rate, const float *u);

/* The two halves of a step (struct qm_tensor_ops). */
qm_status qm_adafactor8_states(const struct qm_tensor_rule_args *w);
qm_status qm_adafactor8_apply(const struct qm_tensor_rule_args *w);

/* The two halves of a step in the projected space (adafactor8_apollo.c). */
qm_status qm_adafactor8_apollo_states(const struct qm_adafactor8 *a);
qm_status qm_adafactor8_apollo_apply(const struct qm_adafactor8 *a);

/* 1 on a step that begins the projected second moment anew: the first one and, before 0.2.6, each
 * one that draws a new projection. */
int qm_adafactor8_starts(const struct qm_adafactor8 *a);

#endif
