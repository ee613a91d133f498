/* test_bench.c - Summaries of samples of `qualm bench`, and its arithmetic in registers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/isa.h"
#include "experiments/bench/bench.h"
#include "experiments/cli/cli.h"

enum { MOST = 192 };

/* The recurrence as its declaration in bench.h states it, one number at a time. */
static float plainly(int numbers, int64_t rounds, float times, float plus)
{
    float sum = 0.0f;
    for (int i = 0; i < numbers; i++) {
        float x = (float)i;
        for (int64_t r = 0; r < rounds; r++) {
            volatile float product = x * times;
            x = product + plus;
        }
        sum += x;
    }
    return sum;
}

static void test_registers(void **state)
{
    static const float factor[][2] = {{0.75f, 0.25f}, {0.9f, 0.1f}, {0.3f, 7.0f}};
    const enum qm_isa best = qm_isa();
    int last = 0;
    (void)state;
    for (int isa = 0; isa <= (int)best; isa++) {
        assert_true(qm_isa_force((enum qm_isa)isa));
        const struct qm_bench_registers *x = qm_bench_registers();
        assert_int_equal(MOST % x->numbers, 0);
        assert_true(x->numbers > last);
        last = x->numbers;
        for (size_t k = 0; k < sizeof factor / sizeof *factor; k++)
            for (int64_t rounds = 0; rounds < 30; rounds++) {
                float want = plainly(x->numbers, rounds, factor[k][0], factor[k][1]),
                      got = x->run(rounds, factor[k][0], factor[k][1]);
                assert_memory_equal(&got, &want, sizeof got);
            }
    }
    qm_isa_force(best);
}

static double shortest(int64_t rounds)
{
    double best = (double)INFINITY;
    for (int i = 0; i < 50; i++) {
        double start = qm_seconds();
        volatile float sum = qm_bench_registers()->run(rounds, 0.75f, 0.25f);
        double t = qm_seconds() - start;
        (void)sum;
        best = t < best ? t : best;
    }
    return best;
}

/* Eight times the work takes about eight times as long, although x has reached 1 long before: the
 * compiler removes nothing.  The work is not faster than four vectors per cycle at 6 GHz. */
static void test_registers_do_the_work(void **state)
{
    const int64_t rounds = 10000;
    (void)state;
    double one = shortest(rounds), eight = shortest(8 * rounds);
    assert_true(eight > 5.0 * one);
    double ops = 2.0 * 8.0 * (double)rounds * qm_bench_registers()->numbers;
    assert_true(ops / eight < 4.0 * qm_bench_registers()->numbers / 12.0 * 6e9);
}

/* The roof of registers leaves the arrays alone; that of memory adds 1e-20 b to a. */
static void test_roofs(void **state)
{
    enum { N = 1 << 16 };
    static float a[N], b[N];
    (void)state;
    for (int i = 0; i < N; i++)
        b[i] = 1e20f * (float)(i % 100);
    for (int threads = 1; threads <= 3; threads++)
        assert_true(qm_bench_roof_seconds(QM_BENCH_REGISTERS, a, b, N, threads) > 0.0);
    for (int i = 0; i < N; i++)
        assert_true(a[i] == 0.0f);
    assert_true(qm_bench_roof_seconds(QM_BENCH_MEMORY, a, b, N, 2) > 0.0);
    for (int i = 0; i < N; i++)
        assert_true(a[i] == 1e-20f * b[i]);
}

static void set_rounds(double (*to)[QM_BENCH_ROUNDS], const double *one, const double *all)
{
    memcpy(to[0], one, 3 * sizeof *one);
    memcpy(to[1], all, 3 * sizeof *all);
}

/* Summaries are medians of ratios; ratios of medians would be 3 for the speed-up and 1.5 for the
 * scaling here. */
static void test_summary(void **state)
{
    struct qm_bench b = {.n = 1 << 20, .rounds = 3, .threads = 2};
    struct qm_bench_rows *s = calloc(1, sizeof *s);
    struct qm_bench_row *step = &s->row[0], *registers = &s->row[1 + QM_BENCH_REGISTERS];
    (void)state;
    s->count = 1;
    *step = (struct qm_bench_row){.name = "step", .rounds = 3, .moved = 24.0};
    set_rounds(step->time, (const double[]){6.0, 8.0, 2.0}, (const double[]){2.0, 1.0, 4.0});
    set_rounds(step->f32, (const double[]){3.0, 8.0, 8.0}, (const double[]){8.0, 1.0, 2.0});
    set_rounds(step->roof[QM_BENCH_MEMORY], (const double[]){3.0, 8.0, 6.0},
               (const double[]){3.0, 8.0, 1.0});
    set_rounds(step->roof[QM_BENCH_REGISTERS], (const double[]){3.0, 8.0, 8.0},
               (const double[]){2.0, 2.0, 8.0});
    *registers = *step;
    registers->moved = 0.0;
    struct qm_bench_summary one = qm_bench_summary(&b, s, 0, 0),
                            all = qm_bench_summary(&b, s, 0, 1);
    assert_true(one.rate == b.n / 6.0 && all.rate == b.n / 2.0);
    assert_true(one.to_f32 == 1.0 && all.to_f32 == 1.0); /* of 1/2, 1, 4 and of 4, 1, 1/2 */
    assert_true(one.of_yardstick == 2.0);                /* twice the bytes: of 1, 2, 6 */
    assert_true(all.of_yardstick == 3.0);                /* of 3, 16, 1/2 */
    assert_true(all.speedup == 3.0);                     /* of 3, 8, 1/2 */
    assert_true(all.scaling[QM_BENCH_MEMORY] == 3.0);    /* of 3/1, 8/1, (1/2)/6 */
    assert_true(all.scaling[QM_BENCH_REGISTERS] == 2.0); /* of 3/1.5, 8/4, (1/2)/1 */
    struct qm_bench_summary ops = qm_bench_summary(&b, s, 1 + QM_BENCH_REGISTERS, 1);
    assert_true(ops.rate == QM_BENCH_OPS * b.n / 2.0);
    assert_true(isnan(ops.to_f32) && isnan(ops.of_yardstick) && ops.speedup == 3.0);
    free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_registers),
        cmocka_unit_test(test_registers_do_the_work),
        cmocka_unit_test(test_roofs),
        cmocka_unit_test(test_summary),
    };
    return cmocka_run_group_tests_name("bench", tests, NULL, NULL);
}
