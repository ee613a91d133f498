/* test_ball.c - Tests that the balls of error bounds hold the results of all numbers in them, with
 * zeros, infinities, NaN and numbers of which nothing is known among them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/base/philox.h"
#include "oracle/bound/bound_tensor.h"

enum { DRAWS = 200000, MOST = 20 };

static uint64_t seed = 1, drawn;

static uint32_t below(uint32_t n) { return qm_philox_stream(seed, 1, drawn++) % n; }

static double number(void)
{
    static const double edge[] = {
        0.0,         -0.0,     1.0,       -1.0,     HUGE_VAL,       -HUGE_VAL,
        (double)NAN, 0x1p-149, -0x1p-149, 0x1p-126, 0x1.fffffep127, 0x1p-70};
    uint32_t k = below(2 * sizeof edge / sizeof *edge);
    return k < sizeof edge / sizeof *edge
               ? edge[k]
               : qm_round_float32(ldexp((double)below(1u << 24) - 0x1p23, (int)below(40) - 40));
}

/* A ball: exact, of nothing known, of a part of its centre, or one that may vanish. */
static struct qm_ball ball(void)
{
    double x = number();
    switch (isfinite(x) ? below(5) : 0) {
    case 1: return (struct qm_ball){x, HUGE_VAL};
    case 2: return (struct qm_ball){x, fabs(x) * 0x1p-20};
    case 3: return (struct qm_ball){x, fabs(x) * 2.0 + 0x1p-149};
    case 4: return (struct qm_ball){0.0, 0x1p-100};
    default: return qm_ball_exact(x);
    }
}

static int contains(struct qm_ball a, double x)
{
    if (qm_ball_is_unknown(a))
        return 1;
    return isnan(a.x) ? isnan(x) : isinf(a.x) ? x == a.x : fabs(x - a.x) <= a.e;
}

/* A float32 in the ball: the centre, an end, zero, something between; any number where nothing is
 * known. */
static double member(struct qm_ball a)
{
    double x = a.x;
    if (qm_ball_is_unknown(a))
        return below(2) ? number() : a.x;
    if (!isfinite(a.x) || a.e == 0.0)
        return a.x;
    switch (below(4)) {
    case 0: x = qm_round_float32(a.x + a.e); break;
    case 1: x = qm_round_float32(a.x - a.e); break;
    case 2: x = 0.0; break;
    default: x = qm_round_float32(a.x + a.e * (double)below(1000) / 1000.0); break;
    }
    return contains(a, x) ? x : a.x;
}

static void expect(const char *what, struct qm_ball a, struct qm_ball b, struct qm_ball r, double x,
                   double y, double got)
{
    if (!contains(r, got))
        fail_msg("%s of %a +- %a and %a +- %a: %a and %a give %a, not within %a of %a; seed %llu",
                 what, a.x, a.e, b.x, b.e, x, y, got, r.e, r.x, (unsigned long long)seed);
}

static void test_operations(void **state)
{
    const struct qm_bound_step step = {.n = 1};
    int unknown = 0, infinite = 0;
    (void)state;
    for (int i = 0; i < DRAWS; i++) {
        struct qm_ball a = ball(), b = ball(), r;
        volatile float x = (float)member(a), y = (float)member(b), got;
        double p = (double)x, q = (double)y;
        got = x + y, r = qm_ball_add(a, b);
        expect("sum", a, b, r, p, q, (double)got);
        got = x * y, r = qm_ball_mul(a, b);
        expect("product", a, b, r, p, q, (double)got);
        unknown += qm_ball_is_unknown(r), infinite += !!isinf(r.x);
        got = x / y, r = qm_ball_div(&step.reorder, a, b);
        expect("quotient", a, b, r, p, q, (double)got);
        unknown += qm_ball_is_unknown(r), infinite += !!isinf(r.x);
        expect("product in double", a, b, qm_ball_mul_double(&step, a, b), p, q, p * q);
        expect("quotient in double", a, b, qm_ball_div_double(&step, a, b), p, q, p / q);
    }
    assert_in_range(unknown, DRAWS / 20, 2 * DRAWS - DRAWS / 20); /* neither all nor none */
    assert_true(infinite > DRAWS / 100);
}

static void test_norms_and_means(void **state)
{
    const struct qm_bound_step step = {.n = MOST};
    (void)state;
    for (int i = 0; i < DRAWS / 10; i++) {
        struct qm_ball a[MOST], none = qm_ball_exact(0.0);
        int64_t n = 1 + below(MOST), whole = n / 8 * 8;
        double sum = 0.0, squares = 0.0, x[MOST];
        float lane[8] = {0.0f}, all;
        for (int64_t k = 0; k < n; k++) {
            a[k] = below(4) ? (struct qm_ball){1.0, 0.0} : ball();
            x[k] = member(a[k]);
            sum += x[k], squares += x[k] * x[k];
            for (int j = 1; j < 8 && k == whole; j++)
                lane[0] += lane[j];
            float *to = &lane[k < whole ? k % 8 : 0];
            *to = fmaf((float)x[k], (float)x[k], *to);
        }
        all = lane[0];
        for (int j = 1; j < 8 && n == whole; j++)
            all += lane[j];
        expect("mean", a[0], none, qm_ball_mean(&step, a, n, 1), x[0], 0.0, sum / (double)n);
        expect("norm", a[0], none, qm_ball_norm(&step, a, n, 1), x[0], 0.0, sqrt(squares));
        expect("norm in lanes", a[0], none, qm_ball_norm_in_lanes(&step, a, n), x[0], 0.0,
               (double)sqrtf(all));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_operations),
        cmocka_unit_test(test_norms_and_means),
    };
    const char *given = getenv("QM_TEST_SEED");
    seed = given ? strtoull(given, NULL, 10) : seed;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
