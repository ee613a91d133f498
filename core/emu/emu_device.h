/* emu_device.h - Finds what nvcc refuses in device code, in unoptimized assembly of a kernel file.
 *
 * g++ knows no device code: it compiles a kernel that calls a function of the host.  In assembly
 * without optimization each call and each use of a variable stands with its symbol, after templates
 * and overloads are resolved.  Alignments mark what is device code there: a source that is
 * rewritten for this purpose (core/emu/emu_rewrite.h) gives functions and variables the alignments
 * below, by __device__ and its like. */
#ifndef QM_EMU_DEVICE_H
#define QM_EMU_DEVICE_H

#include "core/base/status.h"

/* Powers of two that mark a symbol by its alignment; far above what a source asks for.  None is
 * itself a power of two: the directive .align takes bytes on x86 and the power on ARM. */
enum {
    QM_MARK_DEVICE = 17, /* __device__ */
    QM_MARK_MANAGED = 18,
    QM_MARK_CONSTANT = 19,
    QM_MARK_GLOBAL = 20, /* __global__ */
    QM_MARK_BOTH = 21    /* __host__ __device__ */
};

/* Checks the assembly (g++ or clang++ -S -O0 -g1) of the marked source, whose preprocessed text
 * is `text`; files in `layer`, a folder, count as system headers.  QM_BAD_ARG, with file and line,
 * the first of these that is found:
 *
 *   - device code calls a function without __device__ that is in no system header and no constexpr
 *     function, or one of the C library that no GPU has
 *   - it uses a variable of the host that is no constant number, or the address of one
 *   - it has try, catch or throw, or launches a kernel
 *   - a kernel is called without <<<>>>, or something else with it
 *
 * *variables gets assembly that lists the marked variables for emu_memory.cpp: a table of address,
 * size, kind (a QM_MARK_...) and name of each in the section qm_variables; symbols that `built`,
 * the assembly which it is to be appended to, does not define are left out.  The caller frees it.
 * */
qm_status qm_emu_device(const char *assembly, const char *text, const char *layer,
                        const char *built, char **variables);

#endif
