/* test_orders.c - Tests that the bound of AdamW holds for every order that the list allows.
 *
 * One element is stepped in float32 with a form drawn for each operation: fused or not, divided or
 * multiplied by a reciprocal, each form of an average, of the decay and of the step.  No result may
 * leave the bound with all freedoms; some must leave the bound without any, or the freedoms would
 * be for nothing. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/philox.h"
#include "oracle/bound/bound.h"

enum { ELEMENTS = 60000 };

static uint64_t drawn;

static uint32_t draw(void) { return qm_philox_stream(31, 4, drawn++); }
static int pick(int n) { return (int)(draw() % (unsigned)n); }

/* ---- float32 operations, each in a drawn form ------------------------------------------------ */

static float product(float a, float b)
{
    volatile float x = a * b;
    return x;
}

static float plus(float a, float b)
{
    volatile float x = a + b;
    return x;
}

static float add_product(float a, float b, float c) /* a + b c */
{
    return pick(2) ? fmaf(b, c, a) : plus(a, product(b, c));
}

static float quotient(float a, float b)
{
    volatile float by = 1.0f / b, x = a / b;
    return pick(2) ? product(a, by) : x;
}

static float root(float x)
{
    volatile float r = sqrtf(x);
    return r;
}

static float average(float beta, float w, float old, float fresh)
{
    float difference = plus(fresh, -old);
    switch (pick(3)) {
    case 0: return add_product(old, w, difference);
    case 1:
        return w < 0.5f ? add_product(old, w, difference)
                        : add_product(fresh, w - 1.0f, difference);
    default: return add_product(product(beta, old), w, fresh);
    }
}

static float square_average(float beta, float w, float old, float g)
{
    if (pick(2))
        return add_product(product(beta, old), product(w, g), g);
    return average(beta, w, old, product(g, g));
}

/* ---- a step ---------------------------------------------------------------------------------- */

struct element {
    float p, g, m, v;
};

static float step_of(const struct qm_oracle_hyper *h, int64_t t, float m, float v)
{
    double c1 = -expm1((double)t * log1p(h->beta1 - 1.0));
    double c2 = -expm1((double)t * log1p(h->beta2 - 1.0));
    float lr = (float)h->lr, bc1 = (float)c1, root_bc2 = (float)sqrt(c2), eps = (float)h->eps;
    float den =
        pick(2) ? plus(quotient(root(v), root_bc2), eps) : plus(root(quotient(v, (float)c2)), eps);
    float hat = plus(root(v), pick(2) ? (float)(h->eps * sqrt(c2)) : product(eps, root_bc2));
    float lr_hat = pick(2) ? (float)(h->lr * sqrt(c2) / c1) : quotient(product(lr, root_bc2), bc1);
    float lr_bc1 = pick(2) ? (float)(h->lr / c1) : quotient(lr, bc1);
    switch (pick(6)) {
    case 0: return product(lr, quotient(quotient(m, bc1), den));
    case 1: return quotient(product(lr, quotient(m, bc1)), den);
    case 2: return product(lr_bc1, quotient(m, den));
    case 3: return quotient(product(lr_bc1, m), den);
    case 4: return product(lr_hat, quotient(m, hat));
    default: return quotient(product(lr_hat, m), hat);
    }
}

static float moved(const struct qm_oracle_hyper *h, int64_t t, float p, float m, float v)
{
    float lr = (float)h->lr, wd = (float)h->weight_decay, kept;
    if (h->lr != 0.0 && pick(5) == 0) { /* within the step */
        struct qm_oracle_hyper one = *h;
        one.lr = 1.0;
        return add_product(p, -lr, add_product(step_of(&one, t, m, v), wd, p));
    }
    switch (pick(4)) {
    case 0: kept = product(p, (float)(1.0 - h->lr * h->weight_decay)); break;
    case 1: kept = product(p, add_product(1.0f, -lr, wd)); break;
    case 2: kept = add_product(p, -product(lr, wd), p); break;
    default: kept = add_product(p, -lr, product(wd, p)); break;
    }
    return plus(kept, -step_of(h, t, m, v));
}

/* |error| / bound of the parameter and of both moments, the largest. */
static double ratio_of(const struct qm_oracle_hyper *h, int64_t t, const struct element *a,
                       const struct element *got, struct qm_reorder reorder)
{
    const struct qm_oracle *o = qm_oracle_find("adamw");
    const struct qm_shape shape = {1, {1}};
    double p = (double)a->p, g = (double)a->g, m = (double)a->m, v = (double)a->v;
    double want_p = p, want[2] = {m, v}, e_p, e[2], worst = 0.0;
    const double *old[2] = {&m, &v};
    double *wants[2] = {&want[0], &want[1]}, *errors[2] = {&e[0], &e[1]};
    struct qm_bound_step b = {.h = h,
                              .t = t,
                              .n = 1,
                              .reorder = reorder,
                              .shape = &shape,
                              .p = &p,
                              .g = &g,
                              .slot = old,
                              .p_want = &want_p,
                              .want = wants,
                              .e_p = &e_p,
                              .e_slot = errors};
    assert_int_equal(qm_oracle_step(o, &want_p, wants, &g, &shape, 0, h, t), QM_OK);
    assert_int_equal(o->bound(&b), QM_OK);
    const double off[3] = {fabs((double)got->p - want_p), fabs((double)got->m - want[0]),
                           fabs((double)got->v - want[1])};
    const double bound[3] = {e_p, e[0], e[1]};
    for (int k = 0; k < 3; k++)
        worst = fmax(worst, off[k] == 0.0 ? 0.0 : off[k] / bound[k]);
    return worst;
}

static float wide(double decades)
{
    double u = (double)draw() * 0x1p-32;
    return (float)((pick(2) ? -1.0 : 1.0) * pow(10.0, decades * (u - 0.5)));
}

static void test_every_order_is_within(void **state)
{
    static const double betas[][2] = {{0.9, 0.999}, {0.0, 0.0}, {0.4, 0.3}, {0.999, 0.999999}};
    double worst = 0.0, strict = 0.0;
    (void)state;
    for (int i = 0; i < ELEMENTS; i++) {
        double lr = pick(4) ? 1e-3 : 10.0, reach = i % 2 ? 2.0 : 24.0;
        struct qm_oracle_hyper h = {.lr = lr,
                                    .beta1 = betas[i % 4][0],
                                    .beta2 = betas[i % 4][1],
                                    .eps = pick(2) ? 1e-8 : 1e-3,
                                    .weight_decay = pick(3) ? 0.1 : 0.0};
        int64_t t = pick(2) ? 1 + pick(4) : 1 + (int64_t)(draw() % 100000);
        struct element a = {wide(4.0), wide(reach), wide(reach), fabsf(wide(reach))}, got;
        float w1 = (float)(1.0 - h.beta1), w2 = (float)(1.0 - h.beta2);
        got.m = average((float)h.beta1, w1, a.m, a.g);
        got.v = square_average((float)h.beta2, w2, a.v, a.g);
        got.p = moved(&h, t, a.p, got.m, got.v);
        double ratio = ratio_of(&h, t, &a, &got, qm_reorder_any());
        if (!(ratio <= 1.0))
            fail_msg("element %d: error %g of its bound: p %a, g %a, m %a, v %a, t %lld, lr %g, "
                     "betas %g %g, eps %g, decay %g",
                     i, ratio, (double)a.p, (double)a.g, (double)a.m, (double)a.v, (long long)t,
                     h.lr, h.beta1, h.beta2, h.eps, h.weight_decay);
        worst = fmax(worst, ratio);
        strict = fmax(strict, ratio_of(&h, t, &a, &got, (struct qm_reorder){0}));
    }
    print_message("largest error / bound %.3f; of the bound without freedoms %.3g\n", worst,
                  strict);
    assert_true(worst > 0.5 && strict > 1.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_order_is_within)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
