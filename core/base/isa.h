/* isa.h - The instruction set that the CPU loops use.
 *
 * A source that names QM_ISA_NAME is compiled once per instruction set, with QM_ISA defined as its
 * name, and exports its table of functions as QM_ISA_NAME(stem).  All instruction sets give the
 * same bits; tests compare them. */
#ifndef QM_BASE_ISA_H
#define QM_BASE_ISA_H

#include "core/base/status.h"

#define QM_ISA_LIST(X) X(sse2) X(avx2) X(avx512)

enum qm_isa {
#define X(name) QM_ISA_##name,
    QM_ISA_LIST(X)
#undef X
        QM_ISA_COUNT
};

#define QM_ISA_PASTE2(a, b) a##_##b
#define QM_ISA_PASTE(a, b)  QM_ISA_PASTE2(a, b)
#define QM_ISA_NAME(stem)   QM_ISA_PASTE(stem, QM_ISA)

/* The best instruction set of this CPU, or the lesser one that the environment variable QM_ISA
 * names.  The first call decides. */
enum qm_isa qm_isa(void);

/* Whether QM_ISA, where it is set, is one of the names.  QM_BAD_ARG: it is not. */
qm_status qm_isa_check(void);

/* For tests: uses this instruction set from now on.  Returns 0 if the CPU does not have it. */
int qm_isa_force(enum qm_isa isa);

const char *qm_isa_text(enum qm_isa isa);

/* For objects or functions of this type that a BY_ISA file exports under QM_ISA_NAME(stem):
 * declares stem_sse2, stem_avx2, ... and defines the function stem_by_isa, which returns the
 * address of the one of the level that qm_isa() chose. */
#define QM_ISA_TABLE(type, stem)                                                      \
    extern type stem##_sse2, stem##_avx2, stem##_avx512;                              \
    static inline __attribute__((unused)) type *stem##_by_isa(void)                   \
    {                                                                                 \
        static type *const by_isa[QM_ISA_COUNT] = {[QM_ISA_sse2] = &stem##_sse2,      \
                                                   [QM_ISA_avx2] = &stem##_avx2,      \
                                                   [QM_ISA_avx512] = &stem##_avx512}; \
        return by_isa[qm_isa()];                                                      \
    }

#endif
