/* h5.h - HDF5 helpers of experiments/store: errors and element types. */
#ifndef QM_STORE_H5_H
#define QM_STORE_H5_H

#include <hdf5.h>

#include "core/base/tensor.h"

#define QM_H5_SCHEMA         "qualm-results"
#define QM_H5_SCHEMA_VERSION 1

/* Stops HDF5's printing of error stacks in this thread; failures are reported by qm_fail. */
void qm_h5_quiet(void);

/* As qm_fail, with HDF5's innermost reason after the text.  The next HDF5 call clears the reason,
 * so this call must come first. */
qm_status qm_h5_fail_at(const char *file, int line, qm_status code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
#define qm_h5_fail(code, ...) qm_h5_fail_at(__FILE__, __LINE__, (code), __VA_ARGS__)

/* Releases any HDF5 id; accepts a failed one (negative) and predefined types. */
void qm_h5_close(hid_t id);

/* The element type in files, always little-endian: bf16 is a 16-bit float with 8 exponent bits
 * (h5py reads it as float32), bool the enumeration that h5py makes.  The caller closes it; negative
 * without memory. */
hid_t qm_h5_type(enum qm_dtype d);

/* The element type in memory: as qm_h5_type, in this machine's byte order. */
hid_t qm_h5_native(enum qm_dtype d);

#endif
