/* isa.h - which instruction set the kernels run at.
 *
 * Files listed as BY_ISA in the Makefile are compiled once per level with QM_ISA set; each exports
 * its table under a name made by QM_ISA_NAME.  All levels give the same bits; tests compare them. */
#ifndef QM_BASE_ISA_H
#define QM_BASE_ISA_H

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

/* The highest level this CPU has, or the one that the environment variable QM_ISA names where
 * that is lower.  Decided at the first call. */
enum qm_isa qm_isa(void);

/* For tests: use this level from now on; returns 0 where the CPU does not have it. */
int qm_isa_force(enum qm_isa isa);

const char *qm_isa_text(enum qm_isa isa);

/* For objects or functions of this type that a BY_ISA file exports under QM_ISA_NAME(stem): declares
 * stem_sse2, stem_avx2, ... and defines stem_by_isa(), which returns the address of the one of the level
 * that qm_isa() chose. */
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
