/* law.c - Densities, tails, entropies and quadrature variables of the laws. */
#include "oracle/theory/law.h"

#include <gsl/gsl_cdf.h>
#include <gsl/gsl_randist.h>
#include <gsl/gsl_sf_gamma.h>
#include <gsl/gsl_sf_psi.h>
#include <math.h>

qm_status qm_law_check(const struct qm_law *law)
{
    int student = law->kind == QM_LAW_student, lognormal = law->kind == QM_LAW_lognormal;
    int chisq = law->kind == QM_LAW_chisq;
    if ((int)law->kind < 0 || law->kind >= QM_LAW_COUNT)
        return qm_fail(QM_BAD_ARG, "law %d is not in the list", (int)law->kind);
    if (student && !(law->shape > 0.0 && law->shape <= 100.0))
        return qm_fail(QM_BAD_ARG, "student: %g degrees of freedom, expected (0, 100]", law->shape);
    if (chisq && !(law->shape >= 1.0 && law->shape <= 1e4))
        return qm_fail(QM_BAD_ARG, "chisq: %g degrees of freedom, expected [1, 10000]", law->shape);
    if (lognormal && !(law->shape > 0.0 && law->shape <= 8.0))
        return qm_fail(QM_BAD_ARG, "lognormal: sigma %g, expected (0, 8]", law->shape);
    return QM_OK;
}

int qm_law_sign(const struct qm_law *law)
{
    switch (law->kind) {
#define X(name, sign, text) \
    case QM_LAW_##name: return sign;
        QM_LAW_LIST(X)
#undef X
    default: return 0;
    }
}

double qm_law_square(const struct qm_law *law)
{
    double s = law->shape;
    switch (law->kind) {
    case QM_LAW_laplace: return 2.0;
    case QM_LAW_uniform: return 1.0 / 3.0;
    case QM_LAW_student: return s > 2.0 ? s / (s - 2.0) : (double)NAN;
    case QM_LAW_chisq: return s * (s + 2.0);
    case QM_LAW_lognormal: return exp(2.0 * s * s);
    default: return 1.0;
    }
}

double qm_law_pdf(const struct qm_law *law, double x)
{
    switch (law->kind) {
    case QM_LAW_laplace: return exp(-x);
    case QM_LAW_uniform: return x <= 1.0 ? 1.0 : 0.0;
    case QM_LAW_student: return 2.0 * gsl_ran_tdist_pdf(x, law->shape);
    case QM_LAW_chisq: return gsl_ran_chisq_pdf(x, law->shape);
    case QM_LAW_lognormal: return gsl_ran_lognormal_pdf(x, 0.0, law->shape);
    default: return 2.0 * gsl_ran_ugaussian_pdf(x);
    }
}

double qm_law_entropy(const struct qm_law *law)
{
    double s = law->shape, half = 0.5 * s, of_normal = 0.5 * (1.0 + log(2.0 * M_PI));
    switch (law->kind) {
    case QM_LAW_laplace: return 1.0 + M_LN2;
    case QM_LAW_uniform: return M_LN2;
    case QM_LAW_student:
        return (half + 0.5) * (gsl_sf_psi(half + 0.5) - gsl_sf_psi(half)) + 0.5 * log(s) +
               gsl_sf_lnbeta(half, 0.5);
    case QM_LAW_chisq: return half + M_LN2 + gsl_sf_lngamma(half) + (1.0 - half) * gsl_sf_psi(half);
    case QM_LAW_lognormal: return of_normal + log(s);
    default: return of_normal;
    }
}

double qm_law_at(const struct qm_law *law, double z)
{
    switch (law->kind) {
    case QM_LAW_uniform: return -expm1(-z);
    case QM_LAW_student: return sinh(z);
    case QM_LAW_chisq: return z * z;
    case QM_LAW_lognormal: return exp(law->shape * z);
    default: return z;
    }
}

double qm_law_inverse(const struct qm_law *law, double x)
{
    switch (law->kind) {
    case QM_LAW_uniform: return x < 1.0 ? -log1p(-x) : HUGE_VAL;
    case QM_LAW_student: return asinh(x);
    case QM_LAW_chisq: return sqrt(x);
    case QM_LAW_lognormal: return x > 0.0 ? log(x) / law->shape : -HUGE_VAL;
    default: return x;
    }
}

double qm_law_density(const struct qm_law *law, double z)
{
    switch (law->kind) {
    case QM_LAW_laplace:
    case QM_LAW_uniform: return exp(-z);
    case QM_LAW_student: return 2.0 * gsl_ran_tdist_pdf(sinh(z), law->shape) * cosh(z);
    case QM_LAW_chisq: /* the density of chi, z = sqrt(x) */
        return 2.0 * exp((law->shape - 1.0) * log(z) - 0.5 * z * z - 0.5 * law->shape * M_LN2 -
                         gsl_sf_lngamma(0.5 * law->shape));
    case QM_LAW_lognormal: return gsl_ran_ugaussian_pdf(z);
    default: return 2.0 * gsl_ran_ugaussian_pdf(z);
    }
}

double qm_law_log_cdf(const struct qm_law *law, double z)
{
    double below, above;
    switch (law->kind) {
    case QM_LAW_laplace:
    case QM_LAW_uniform:
        below = -expm1(-z);
        above = exp(-z);
        break;
    case QM_LAW_student:
        above = 2.0 * gsl_cdf_tdist_Q(sinh(z), law->shape);
        below = 1.0 - above;
        break;
    case QM_LAW_chisq:
        below = gsl_cdf_chisq_P(z * z, law->shape);
        above = gsl_cdf_chisq_Q(z * z, law->shape);
        break;
    case QM_LAW_lognormal:
        below = gsl_cdf_ugaussian_P(z);
        above = gsl_cdf_ugaussian_Q(z);
        break;
    default:
        below = erf(z * M_SQRT1_2);
        above = erfc(z * M_SQRT1_2);
        break;
    }
    return below < 0.5 ? log(below) : log1p(-above);
}

void qm_law_range(const struct qm_law *law, double *low, double *high, double *step)
{
    *low = law->kind == QM_LAW_lognormal ? -38.0 : 0.0;
    *step = 1.0;
    switch (law->kind) {
    case QM_LAW_laplace: *high = 90.0; break;
    case QM_LAW_uniform: *high = 60.0; break;
    case QM_LAW_student: /* nearly normal for many degrees of freedom: narrow in asinh x */
        *high = 120.0;
        *step = law->shape > 8.0 ? 8.0 / law->shape : 1.0;
        break;
    case QM_LAW_chisq:
        *low = fmax(0.0, sqrt(law->shape) - 14.0);
        *high = sqrt(law->shape) + 14.0;
        break;
    case QM_LAW_lognormal:
        *high = 2.0 * law->shape + 14.0;
        *step = law->shape > 2.0 ? 2.0 / law->shape : 1.0;
        break;
    default: *high = 14.0; break;
    }
}
