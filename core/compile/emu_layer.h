/* emu_layer.h - The emulator's layer (core/emu) as an object file, which is compiled once for all
 * processes and kept in the cache of compiled kernels (cubin_cache.h). */
#ifndef QM_COMPILE_EMU_LAYER_H
#define QM_COMPILE_EMU_LAYER_H

#include "core/base/sha256.h"

/* The first line of `$CXX --version` (c++ where CXX is blank), asked once, not by a shell; "":
 * there is no such compiler. */
const char *qm_emu_compiler(void);

/* Adds everything that an object of the emulator depends on beside its own source: the compiler,
 * $CXX, $CXXFLAGS and the texts of the layer. */
void qm_emu_layer_hash(struct qm_sha256 *h);

/* Copies the layer, compiled with these flags, from the cache to the file `object`.  Returns 0
 * where the cache does not have it, or it cannot be written. */
int qm_emu_layer_read(const char *flags, const char *object);

/* Copies the file `object` into the cache.  A cache that cannot be written is not an error. */
void qm_emu_layer_write(const char *flags, const char *object);

#endif
