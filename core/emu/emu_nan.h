/* emu_nan.h - Changes the assembly of a kernel so that float32 arithmetic makes NVIDIA's NaNs.
 *
 * On NVIDIA's GPUs every float32 operation whose result is NaN gives 0x7fffffff, whatever NaN came
 * in; on x86 an invalid operation gives 0xffc00000, and a NaN that comes in keeps sign and payload.
 * Loads, stores and moves keep the bits of a NaN on both, and so does float64 arithmetic here. */
#ifndef QM_EMU_NAN_H
#define QM_EMU_NAN_H

#include "core/base/status.h"

/* Compiler flags that the changed assembly needs: nothing may lie below the stack pointer. */
#if defined(__x86_64__)
#define QM_EMU_NAN_FLAGS "-mno-red-zone "
#else
#define QM_EMU_NAN_FLAGS ""
#endif

/* Appends to each float32 operation of x86-64 assembly (g++ or clang++ -S) in a register xmm, and
 * to each call of a float function of the C library, instructions that replace a NaN in the result
 * by 0x7fffffff and change nothing else.  Assembly of other processors is copied.  The caller
 * frees *out. */
qm_status qm_emu_nans(const char *assembly, char **out);

#endif
