/* isa.c - Chooses the instruction set, and the tables of core/base that depend on it. */
#include "core/base/isa.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/narrow.h"

static const char *const names[] = {
#define X(name) #name,
    QM_ISA_LIST(X)
#undef X
};

static int chosen = -1;

static enum qm_isa best(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2"))
        return QM_ISA_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return QM_ISA_avx2;
#endif
    return QM_ISA_sse2;
}

enum qm_isa qm_isa(void)
{
    int isa = __atomic_load_n(&chosen, __ATOMIC_RELAXED);
    if (isa < 0) {
        isa = (int)best();
        const char *wish = getenv("QM_ISA");
        for (int i = 0; wish && i < isa; i++)
            if (strcmp(wish, names[i]) == 0)
                isa = i;
        __atomic_store_n(&chosen, isa, __ATOMIC_RELAXED);
    }
    return (enum qm_isa)isa;
}

qm_status qm_isa_check(void)
{
    const char *wish = getenv("QM_ISA");
    for (int i = 0; wish && i < QM_ISA_COUNT; i++)
        if (strcmp(wish, names[i]) == 0)
            return QM_OK;
    return wish && *wish ? qm_fail(QM_BAD_ARG, "QM_ISA is '%.40s', expected %s, %s or %s", wish,
                                   names[QM_ISA_sse2], names[QM_ISA_avx2], names[QM_ISA_avx512])
                         : QM_OK;
}

int qm_isa_force(enum qm_isa isa)
{
    if (isa > best())
        return 0;
    __atomic_store_n(&chosen, (int)isa, __ATOMIC_RELAXED);
    return 1;
}

const char *qm_isa_text(enum qm_isa isa) { return names[isa]; }

QM_ISA_TABLE(const struct qm_narrow, qm_narrow)

const struct qm_narrow *qm_narrow(void) { return qm_narrow_by_isa(); }
