/* emu_rewrite.h - Rewrites CUDA's own syntax to C++, in preprocessed text. */
#ifndef QM_EMU_REWRITE_H
#define QM_EMU_REWRITE_H

#include "core/base/status.h"

/* A pragma in a header that is not to be included, before the words that say what it is. */
#define QM_EMU_REFUSED "qualm_refuses"

/* What the rewritten text is for: to be run, or to be compiled for core/emu/emu_device.h. */
enum qm_emu_purpose { QM_EMU_RUN, QM_EMU_MARK };

/* Rewrites the output of g++ -E for a .cu file with qm_emu.hpp:
 *
 *     __shared__ T x[8], y;             to references to variables of the layer
 *     extern __shared__ T x[];          to a pointer to the launch's dynamic shared memory
 *     k<T><<<grid, block, n, s>>>(a);   to a call of qm_emu::launch with a lambda
 *     __noinline__                      to an attribute of g++
 *     no_sanitize and its like,         to the attribute `unused`, so that no access is hidden and
 *     optimize, target                  the compiler's flags hold; pragmas for the same are dropped
 *
 * __global__, __device__, ...       to nothing, or to marks; __forceinline__ is inline to be marked
 *
 * Lines keep their numbers.  The text of system headers is not changed but for those attributes;
 * that of files in `layer`, a folder, not at all.  The caller frees *out.  QM_BAD_ARG, with file
 * and line: inline PTX, a header of CUDA's that nothing here stands in for, a kernel that returns
 * something, shared memory with an initializer, or one of the above that cannot be read. */
qm_status qm_emu_rewrite(const char *text, const char *layer, enum qm_emu_purpose purpose,
                         char **out);

#endif
