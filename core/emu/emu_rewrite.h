/* emu_rewrite.h - Rewrites CUDA's own syntax to C++, in preprocessed text. */
#ifndef QM_EMU_REWRITE_H
#define QM_EMU_REWRITE_H

#include "core/base/status.h"

/* Rewrites the output of g++ -E for a .cu file with qm_emu.hpp:
 *
 *     __shared__ T x[8], y;             to references to variables of the layer
 *     extern __shared__ T x[];          to a pointer to the launch's dynamic shared memory
 *     k<T><<<grid, block, n, s>>>(a);   to a call of qm_emu::launch with a lambda
 *     __noinline__                      to an attribute of g++
 *
 * Lines keep their numbers; the text of system headers is not changed.  The caller frees *out.
 * QM_BAD_ARG, with file and line: inline PTX, or one of the above that cannot be read. */
qm_status qm_emu_rewrite(const char *text, char **out);

#endif
