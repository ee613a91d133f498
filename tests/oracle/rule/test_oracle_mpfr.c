/* test_oracle_mpfr.c - Compares Adam, AdamW and SGD in double with the same formulas in 200 bits.
 *
 * A running bound counts what every rounding to double may do; the references must stay
 * within it. */
#include <math.h>
#include <mpfr.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/philox.h"
#include "tests/support/oracle_by_name.h"

enum { N = 48, STEPS = 12, BITS = 200 };

/* One element in MPFR, and running bounds of the rounding errors of double. */
struct exact {
    mpfr_t p, m, v, top, g, x, y;
    double bound_p, bound_m, bound_v, bound_top;
};

static double value(mpfr_t x) { return mpfr_get_d(x, MPFR_RNDN); }

static double magnitude(mpfr_t x) { return fabs(value(x)); }

/* z <- b z + (1 - a) x with 1 - a exact; y is work space. */
static void average(mpfr_t z, double b, double a, mpfr_t x, mpfr_t y)
{
    mpfr_set_d(y, a, MPFR_RNDN);
    mpfr_ui_sub(y, 1, y, MPFR_RNDN);
    mpfr_mul(y, y, x, MPFR_RNDN);
    mpfr_mul_d(z, z, b, MPFR_RNDN);
    mpfr_add(z, z, y, MPFR_RNDN);
}

/* x <- z / (1 - beta^t); y is work space. */
static void corrected(mpfr_t x, mpfr_t z, double beta, int64_t t, mpfr_t y)
{
    mpfr_set_d(y, beta, MPFR_RNDN);
    mpfr_pow_ui(y, y, (unsigned long)t, MPFR_RNDN);
    mpfr_ui_sub(y, 1, y, MPFR_RNDN);
    mpfr_div(x, z, y, MPFR_RNDN);
}

static const double U = 0x1p-53; /* each double operation errs by a factor 1 + d, |d| <= U */

/* e->g <- the gradient with sign and coupled decay; returns the bound of its rounding errors. */
static double exact_gradient(struct exact *e, double grad, const struct qm_oracle_hyper *h,
                             int coupled)
{
    mpfr_set_d(e->g, h->maximize ? -grad : grad, MPFR_RNDN);
    if (!coupled || h->weight_decay == 0.0)
        return 0.0;
    mpfr_mul_d(e->x, e->p, h->weight_decay, MPFR_RNDN);
    mpfr_add(e->g, e->g, e->x, MPFR_RNDN);
    return h->weight_decay * e->bound_p + U * (magnitude(e->x) + magnitude(e->g));
}

static void exact_adam(struct exact *e, double grad, const struct qm_oracle_hyper *h, int64_t t,
                       int coupled)
{
    double b1 = h->beta1, b2 = h->beta2;
    if (!coupled) { /* theta <- (1 - lr lambda) theta: three roundings */
        mpfr_set_d(e->x, h->lr, MPFR_RNDN);
        mpfr_mul_d(e->x, e->x, h->weight_decay, MPFR_RNDN);
        mpfr_ui_sub(e->x, 1, e->x, MPFR_RNDN);
        mpfr_mul(e->p, e->p, e->x, MPFR_RNDN);
        e->bound_p = e->bound_p + 3.0 * U * magnitude(e->p);
    }
    double bound_g = exact_gradient(e, grad, h, coupled), g = magnitude(e->g);
    double old = magnitude(e->m);
    average(e->m, b1, b1, e->g, e->y);
    e->bound_m = b1 * e->bound_m + (1.0 - b1) * bound_g +
                 U * (b1 * old + 2.0 * (1.0 - b1) * g + magnitude(e->m));
    old = magnitude(e->v);
    mpfr_sqr(e->x, e->g, MPFR_RNDN);
    average(e->v, b2, b2, e->x, e->y);
    e->bound_v = b2 * e->bound_v + (1.0 - b2) * 2.0 * g * bound_g +
                 U * (b2 * old + 3.0 * (1.0 - b2) * g * g + magnitude(e->v));
    if (h->amsgrad) {
        mpfr_max(e->top, e->top, e->v, MPFR_RNDN);
        e->bound_top = fmax(e->bound_top, e->bound_v);
    }
    double bound_v = h->amsgrad ? e->bound_top : e->bound_v;
    mpfr_set(e->x, h->amsgrad ? e->top : e->v, MPFR_RNDN);
    double relative_v = value(e->x) > 0.0 ? bound_v / value(e->x) : 0.0;
    corrected(e->x, e->x, b2, t, e->y);
    mpfr_sqrt(e->x, e->x, MPFR_RNDN);
    mpfr_add_d(e->x, e->x, h->eps, MPFR_RNDN);
    double root = value(e->x), bias1 = -expm1((double)t * log1p(b1 - 1.0));
    corrected(e->g, e->m, b1, t, e->y);
    mpfr_div(e->g, e->g, e->x, MPFR_RNDN);
    mpfr_mul_d(e->g, e->g, h->lr, MPFR_RNDN);
    mpfr_sub(e->p, e->p, e->g, MPFR_RNDN);
    /* each correction: log1p, product, expm1 (condition <= 1) within 6 U, the division one more */
    e->bound_p = e->bound_p + h->lr / root * e->bound_m / bias1 +
                 magnitude(e->g) * (7.0 * U + 0.5 * (relative_v + 7.0 * U) + 4.0 * U) +
                 U * magnitude(e->p);
}

static void exact_sgdm(struct exact *e, double grad, const struct qm_oracle_hyper *h, int64_t t)
{
    double bound_d = exact_gradient(e, grad, h, 1), d = magnitude(e->g), old = magnitude(e->m);
    double mu = h->momentum, tau = h->dampening;
    if (t == 1) {
        mpfr_set(e->m, e->g, MPFR_RNDN);
        e->bound_m = bound_d;
    } else {
        average(e->m, mu, tau, e->g, e->y);
        e->bound_m = mu * e->bound_m + (1.0 - tau) * bound_d +
                     U * (mu * old + 2.0 * (1.0 - tau) * d + magnitude(e->m));
    }
    mpfr_mul_d(e->x, e->m, mu, MPFR_RNDN);
    mpfr_add(e->g, e->g, e->x, MPFR_RNDN);
    if (h->nesterov)
        bound_d = bound_d + mu * e->bound_m + U * (magnitude(e->x) + magnitude(e->g));
    else {
        mpfr_set(e->g, e->m, MPFR_RNDN);
        bound_d = e->bound_m;
    }
    mpfr_mul_d(e->g, e->g, h->lr, MPFR_RNDN);
    mpfr_sub(e->p, e->p, e->g, MPFR_RNDN);
    e->bound_p = e->bound_p + h->lr * bound_d + U * (magnitude(e->g) + magnitude(e->p));
}

/* |got - want| / bound; fails above 1.  x is work space. */
static double excess(const char *what, double got, mpfr_t want, double bound, mpfr_t x)
{
    mpfr_d_sub(x, got, want, MPFR_RNDN);
    double error = magnitude(x);
    bound *= 1.0 + 1e-6; /* terms in U^2, and the bound's own rounding */
    if (!(error <= bound))
        fail_msg("%s: %.17g is off by %.3g, bound %.3g", what, got, error, bound);
    return error > 0.0 ? error / bound : 0.0;
}

static double random_value(uint64_t stream, int64_t i)
{
    double a = qm_philox_stream(7, 2 * stream, (uint64_t)i) / 4294967296.0;
    double b = qm_philox_stream(7, 2 * stream + 1, (uint64_t)i) / 4294967296.0;
    return (a < 0.5 ? -1.0 : 1.0) * exp(12.0 * b - 9.0); /* 1e-4 .. 20 */
}

static void against_mpfr(const char *family, const struct qm_oracle_hyper *h)
{
    static struct exact e[N];
    double p[N], m[N] = {0}, v[N] = {0}, top[N] = {0}, g[N], *slot[3] = {m, v, top};
    int sgd = strcmp(family, "sgdm") == 0, coupled = strcmp(family, "adam") == 0;
    for (int i = 0; i < N; i++) {
        mpfr_inits2(BITS, e[i].p, e[i].m, e[i].v, e[i].top, e[i].g, e[i].x, e[i].y, (mpfr_ptr)0);
        p[i] = random_value(0, i);
        mpfr_set_d(e[i].p, p[i], MPFR_RNDN);
        mpfr_set_zero(e[i].m, 1);
        mpfr_set_zero(e[i].v, 1);
        mpfr_set_zero(e[i].top, 1);
        e[i].bound_p = e[i].bound_m = e[i].bound_v = e[i].bound_top = 0.0;
    }
    double worst = 0.0, loosest = 0.0;
    for (int64_t t = 1; t <= STEPS; t++) {
        for (int i = 0; i < N; i++)
            g[i] = i == 5 ? 0.0 : random_value((uint64_t)t, i);
        oracle(family)->step(p, slot, g, 6, N / 6, h, t);
        for (int i = 0; i < N; i++) {
            if (sgd)
                exact_sgdm(&e[i], g[i], h, t);
            else
                exact_adam(&e[i], g[i], h, t, coupled);
            worst = fmax(worst, excess("parameter", p[i], e[i].p, e[i].bound_p, e[i].x));
            worst = fmax(worst, excess("first slot", m[i], e[i].m, e[i].bound_m, e[i].x));
            if (!sgd)
                worst = fmax(worst, excess("exp_avg_sq", v[i], e[i].v, e[i].bound_v, e[i].x));
            if (h->amsgrad)
                worst = fmax(worst, excess("maximum", top[i], e[i].top, e[i].bound_top, e[i].x));
            loosest = fmax(loosest, e[i].bound_p / fmax(1.0, fabs(p[i])));
        }
    }
    for (int i = 0; i < N; i++)
        mpfr_clears(e[i].p, e[i].m, e[i].v, e[i].top, e[i].g, e[i].x, e[i].y, (mpfr_ptr)0);
    assert_true(loosest < 3e-13 && worst > 0.05); /* the bound is small, and is nearly reached */
}

static void more_bits(void **state)
{
    (void)state;
    struct qm_oracle_hyper h = {.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
    for (int k = 0; k < 16; k++) {
        h.weight_decay = k & 1 ? 0.1 : 0.0;
        h.amsgrad = k & 2 ? 1 : 0;
        h.maximize = k & 4 ? 1 : 0;
        h.beta2 = k & 8 ? 0.95 : 0.9999;
        against_mpfr("adamw", &h);
        against_mpfr("adam", &h);
    }
    for (int k = 0; k < 8; k++) {
        struct qm_oracle_hyper s = {.lr = 1e-2, .momentum = 0.95};
        s.weight_decay = k & 1 ? 0.1 : 0.0;
        s.nesterov = k & 2 ? 1 : 0;
        s.dampening = k & 4 ? 0.3 : 0.0;
        against_mpfr("sgdm", &s);
    }
    mpfr_free_cache();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(more_bits),
    };
    return cmocka_run_group_tests_name("oracle in 200 bits", tests, NULL, NULL);
}
