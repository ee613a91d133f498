/* roofline.c - Measures the roofs of a machine: memory bandwidth and arithmetic in registers. */
#include "core/base/clock.h"
#include "core/base/isa.h"
#include "experiments/bench/bench.h"
#include "experiments/cli/cli.h"

QM_ISA_TABLE(const struct qm_bench_registers, qm_bench_registers)

const struct qm_bench_registers *qm_bench_registers(void) { return qm_bench_registers_by_isa(); }

static void memory(float *a, const float *b, int64_t n, int threads)
{
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t piece = 0; piece < n; piece += 4096) {
        int64_t end = piece + 4096 < n ? piece + 4096 : n;
#pragma omp simd
        for (int64_t i = piece; i < end; i++)
            a[i] += 1e-20f * b[i];
    }
}

/* Threads that are idle take the next piece, as in a step.  The factors and the sum are volatile,
 * so that compilers do not remove the work. */
static void registers(int64_t n, int threads)
{
    enum { PIECE = 1 << 16 };
    static volatile float world[3] = {0.75f, 0.25f}; /* times, plus, the sum */
    const struct qm_bench_registers *x = qm_bench_registers();
    int64_t rounds = PIECE * (QM_BENCH_OPS / 2) / x->numbers;
    float sum = 0.0f;
#pragma omp parallel for schedule(dynamic) num_threads(threads) reduction(+ : sum)
    for (int64_t piece = 0; piece < n / PIECE; piece++)
        sum += x->run(rounds, world[0], world[1]);
    world[2] = sum;
}

double qm_bench_roof_seconds(enum qm_bench_roof roof, float *a, const float *b, int64_t n,
                             int threads)
{
    double start = qm_seconds();
    if (roof == QM_BENCH_MEMORY)
        memory(a, b, n, threads);
    else
        registers(n, threads);
    return qm_seconds() - start;
}
