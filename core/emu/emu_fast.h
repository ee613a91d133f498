/* emu_fast.h - mode fast on the emulator: what nvcc does with --fmad=true --prec-div=false --prec-sqrt=false. */
#ifndef QM_EMU_FAST_H
#define QM_EMU_FAST_H

#include "core/base/status.h"

/* Turns every division of a source, a / b, into a / qm_emu::over / b, which qm_emu_fast.hpp makes approximate
 * where both are float: precedence and types stay as they are, whatever stands left and right.  Comments, strings and
 * preprocessor lines are left alone, as is a /= b.  *out is the caller's (free). */
qm_status qm_emu_divisions(const char *text, char **out);

/* Flags for the compiler beside those of mode exact; NULL: this machine has no fused multiply-add to contract
 * to. */
const char *qm_emu_fast_flags(void);

#endif
