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

#endif
