/* emu_contracted.h - Lines of a source whose products and sums the compiler has fused. */
#ifndef QM_EMU_CONTRACTED_H
#define QM_EMU_CONTRACTED_H

#include "core/base/status.h"

enum { QM_CONTRACTED_LINES = 24 };

/* The lines where one assembly has more fused multiply-adds than another; n counts those beyond the
 * room too. */
struct qm_contracted {
    int n;
    struct {
        char file[256];
        int line;
    } at[QM_CONTRACTED_LINES];
};

/* Compares two assemblies of the same source (g++ or clang++ -S -g1), compiled with and without
 * contraction.  Explicit calls of fmaf are in both and do not count. */
qm_status qm_emu_contracted(const char *contracted, const char *plain, struct qm_contracted *out);

#endif
