/* cubin_cache.h - Cache of compiled kernels on disk, keyed by the hash of everything they depend
 * on.
 *
 * The key is the SHA-256 of every source text, included files among them, the options, the
 * architecture, NVRTC's version and the size of its library, and the version of the cache's
 * format.  A file holds a header, the binary and the compiler's log.  It is written under a
 * temporary name and renamed, so that any number of processes may write at once.  A file that is
 * short, foreign or altered, another user's, or another's to write to counts as absent, as a folder
 * of another user does; a folder that others may write to is closed to them (0700).  The folder
 * is $QM_CACHE, else $XDG_CACHE_HOME/qualm, else ~/.cache/qualm; with QM_CACHE=off there is
 * none. */
#ifndef QM_COMPILE_CUBIN_CACHE_H
#define QM_COMPILE_CUBIN_CACHE_H

#include "core/compile/nvrtc.h"

#define QM_CACHE_KEY 65 /* bytes of a key: 64 hexadecimal digits and a NUL */

void qm_cubin_key(const struct qm_device_source *s, char key[QM_CACHE_KEY]);

/* 1: the binary is in the cache; *out is filled, with from_cache set, and the caller frees it.
 * 0: it is not. */
int qm_cubin_read(const char *key, struct qm_device_binary *out);

/* Writes a binary into the cache.  A cache that cannot be written is not an error. */
void qm_cubin_write(const char *key, const struct qm_device_binary *b);

/* The path of a file in the cache's folder, which is made.  Returns 0 where there is no cache. */
int qm_cache_path(const char *name, char *path, size_t size);

#endif
