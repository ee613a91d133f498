/* h5.h - the few HDF5 idioms that store.c, result_reader.c and digest.c share. */
#ifndef QM_STORE_H5_H
#define QM_STORE_H5_H

#include <hdf5.h>

#include "core/base/tensor.h"

#define QM_H5_SCHEMA         "qualm-results"
#define QM_H5_SCHEMA_VERSION 1

/* HDF5 prints no error stacks in this thread from now on: failures speak through qm_fail. */
void qm_h5_quiet(void);

/* As qm_fail, with HDF5's own innermost reason after the text.  Call it before the next HDF5
 * call: that one clears the reason. */
qm_status qm_h5_fail_at(const char *file, int line, qm_status code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
#define qm_h5_fail(code, ...) qm_h5_fail_at(__FILE__, __LINE__, (code), __VA_ARGS__)

/* Releases any HDF5 id; accepts a failed one (negative) and predefined types. */
void qm_h5_close(hid_t id);

/* The element type in files, always little-endian: bf16 as a 16-bit float with 8 exponent bits
 * (h5py reads it as float32), bool as the enumeration h5py makes.  The caller closes it; negative
 * when out of memory. */
hid_t qm_h5_type(enum qm_dtype d);

/* The same type in this machine's byte order, for memory. */
hid_t qm_h5_native(enum qm_dtype d);

/* Opens an existing file for reading; one clear line when it is missing, a folder, not HDF5, or
 * damaged.  Locks are taken where the file system has them.  cache: bytes of inflated chunks kept
 * per dataset. */
qm_status qm_h5_open(const char *path, size_t cache, hid_t *out);

#endif
