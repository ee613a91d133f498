/* h5_chunks.h - Whether the filtered chunks of an HDF5 dataset unpack to the size of a chunk.
 *
 * libhdf5 takes a chunk that unpacks to fewer bytes as it is, and reads what lies behind it in
 * memory as its end. */
#ifndef QM_FOREIGN_H5_CHUNKS_H
#define QM_FOREIGN_H5_CHUNKS_H

#include "experiments/foreign/h5_guard.h"

/* Of a dataset that qm_h5_guard_dataset has accepted: every chunk with filters is read and unpacked
 * as far as its size tells, once in a process however often it is asked.  Known are deflate,
 * shuffle, fletcher32, scaleoffset and nbit of single numbers; a chunk that any other filter packed
 * cannot be checked and is refused, as are more than 2^24 places for chunks.  Memory: the largest
 * stored chunk and, where filters came after deflate, twice an unpacked one.  QM_BAD_FILE with
 * "PATH: NAME ...", or without PATH where it is NULL.  Call it before the first read of values. */
qm_status qm_h5_chunks_check(const char *path, const char *name, hid_t set);

/* Places for chunks that a dataset has along all its axes, and the bytes of a chunk; UINT64_MAX: at
 * least as many. */
uint64_t qm_h5_chunks_places(hid_t set, hid_t plist);
uint64_t qm_h5_chunks_bytes(hid_t set, hid_t plist);

#endif
