/* cubin_cache.h - compiled kernels on disk, by the hash of all that they were made of.
 *
 * Key: SHA-256 of every source text, the options, the architecture, NVRTC's version and the size of its
 * library, and this format's version.  A file is HEADER, binary, log; written under a name of its own and
 * renamed, so that any number of writers may meet.  What is short, foreign or altered counts as not
 * there.  Folder: $QM_CACHE, or $XDG_CACHE_HOME/qualm, or ~/.cache/qualm; QM_CACHE=off: none. */
#ifndef QM_COMPILE_CUBIN_CACHE_H
#define QM_COMPILE_CUBIN_CACHE_H

#include "core/compile/nvrtc.h"

#define QM_CACHE_KEY 65

void qm_cubin_key(const struct qm_device_source *s, char key[QM_CACHE_KEY]);

/* 1: *out is filled (from_cache is set); free it. */
int qm_cubin_read(const char *key, struct qm_device_binary *out);

/* Does its best: a cache that cannot be written is no error. */
void qm_cubin_write(const char *key, const struct qm_device_binary *b);

/* The path of a file of the cache, its folder made; 0: there is no cache. */
int qm_cache_path(const char *name, char *path, size_t size);

#endif
