/* emu_fast.h - Mode fast on the emulator: what nvcc does with --fmad=true
 * --prec-div=false --prec-sqrt=false. */
#ifndef QM_EMU_FAST_H
#define QM_EMU_FAST_H

#include "core/base/status.h"

/* Rewrites every division a / b of a source to a / qm_emu::over / b, which qm_emu_fast.hpp makes
 * approximate where both operands are float; precedence and types do not change.  Comments,
 * strings, preprocessor lines and a /= b are not changed.  The caller frees *out. */
qm_status qm_emu_divisions(const char *text, char **out);

/* Compiler flags, in addition to those of mode exact, that contract; NULL: this machine has no
 * fused multiply-add. */
const char *qm_emu_fast_flags(void);

#endif
