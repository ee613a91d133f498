/* law.h - Probability laws of one element, in a variable that suits quadrature.
 *
 * |x| is a function qm_law_at of a variable z with a smooth density, chosen so that the maximum of
 * many z is spread over a width of about one: panels of fixed length in z then resolve light and
 * heavy tails alike.
 *   normal, laplace: z       uniform: 1 - exp(-z)    student: sinh z
 *   chisq: z^2               lognormal: exp(shape z) */
#ifndef QM_THEORY_LAW_H
#define QM_THEORY_LAW_H

#include "core/base/status.h"

/* clang-format off */
#define QM_LAW_LIST(X)  /* name, takes both signs, what */                             \
    X(normal,    1, "N(0, 1)")                                                        \
    X(laplace,   1, "density exp(-|x|) / 2, E x^2 = 2")                               \
    X(uniform,   1, "uniform on (-1, 1), E x^2 = 1/3")                                \
    X(student,   1, "Student's t with shape degrees of freedom, 0 < shape <= 100")  \
    X(chisq,     0, "chi-squared, shape degrees of freedom, 1 <= shape <= 10000")      \
    X(lognormal, 0, "ln x ~ N(0, shape^2), 0 < shape <= 8, E x^2 = exp(2 shape^2)")
/* clang-format on */

enum qm_law_kind {
#define X(name, sign, text) QM_LAW_##name,
    QM_LAW_LIST(X)
#undef X
        QM_LAW_COUNT
};

/* The law of one element; shape is read by student (nu), chisq (k) and lognormal (sigma) only. */
struct qm_law {
    enum qm_law_kind kind;
    double shape;
};

/* QM_BAD_ARG when shape is out of the range that QM_LAW_LIST gives. */
qm_status qm_law_check(const struct qm_law *law);

/* 1 where x takes both signs (the law is then symmetric), else 0. */
int qm_law_sign(const struct qm_law *law);

/* E x^2; NaN where it does not exist (student, shape <= 2). */
double qm_law_square(const struct qm_law *law);

/* The density of |x| at x > 0, and the differential entropy of x (not of |x|) in nats. */
double qm_law_pdf(const struct qm_law *law, double x);
double qm_law_entropy(const struct qm_law *law);

/* |x| at z, and z at x >= 0 (the inverse; may be infinite). */
double qm_law_at(const struct qm_law *law, double z);
double qm_law_inverse(const struct qm_law *law,
                      double x); /* its inverse, x >= 0; may be infinite */

/* The density of z, and ln P(Z <= z), accurate in both tails. */
double qm_law_density(const struct qm_law *law, double z);
double qm_law_log_cdf(const struct qm_law *law, double z);

/* The range of z outside which the density is negligible, even times x^2; step: a panel of this
 * length is smooth enough for 8 Gauss-Legendre nodes. */
void qm_law_range(const struct qm_law *law, double *low, double *high, double *step);

#endif
