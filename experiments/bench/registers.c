/* registers.c - Arithmetic in registers for roofline.c; compiled once per instruction
 * set (QM_ISA). */
#include "experiments/bench/bench.h"

#include "core/base/isa.h"

#if defined(__AVX512F__)
enum { LANES = 16 };
#elif defined(__AVX2__)
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif
typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));

/* Enough chains to hide two latencies behind two units; together with the two factors they fit into
 * 16 registers. */
enum { CHAINS = 12 };

static float run(int64_t rounds, float times, float plus)
{
    lanes x[CHAINS], m = {0}, a = {0};
    m += times;
    a += plus;
    for (int k = 0; k < CHAINS; k++)
        for (int l = 0; l < LANES; l++)
            x[k][l] = (float)(k * LANES + l); /* equal chains would be computed once */
    for (int64_t r = 0; r < rounds; r++)
        for (int k = 0; k < CHAINS; k++)
            x[k] = x[k] * m + a;
    float sum = 0.0f;
    for (int k = 0; k < CHAINS; k++)
        for (int l = 0; l < LANES; l++)
            sum += x[k][l];
    return sum;
}

const struct qm_bench_registers QM_ISA_NAME(qm_bench_registers) = {LANES * CHAINS, run};
