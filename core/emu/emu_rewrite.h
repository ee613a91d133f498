/* emu_rewrite.h - CUDA's own syntax as C++, in preprocessed text. */
#ifndef QM_EMU_REWRITE_H
#define QM_EMU_REWRITE_H

#include "core/base/status.h"

/* Rewrites what g++ -E has made of a .cu file and qm_emu.hpp:
 *
 *     __shared__ T x[8], y;             variables of the layer's, by reference
 *     extern __shared__ T x[];          a pointer to the launch's dynamic shared memory
 *     k<T><<<grid, block, n, s>>>(a);   a call of qm_emu::launch with a lambda
 *     __noinline__                      an attribute of g++'s
 *
 * Lines stay where they are; text of system headers is left alone.  *out is the caller's (free).
 * QM_BAD_ARG, with file and line: inline PTX, or one of the above that cannot be read. */
qm_status qm_emu_rewrite(const char *text, char **out);

#endif
