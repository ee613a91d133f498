/* stored_digest.h - The digest that a result file carries: attribute "digest" of /provenance. */
#ifndef QM_STORE_STORED_DIGEST_H
#define QM_STORE_STORED_DIGEST_H

#include <hdf5.h>

#include "experiments/store/store.h"

/* The digest (qm_store_digest) of an open file. */
qm_status qm_digest_of(hid_t file, const char *path, char out[65]);

/* Computes the digest and compares it with the one that the file carries. */
qm_status qm_stored_digest_compare(hid_t file, const char *path, enum qm_carried *carried,
                                   char digest[65]);

/* As qm_stored_digest_compare, and computes nothing where the file carries none. */
qm_status qm_stored_digest_check(hid_t file, const char *path, enum qm_carried *carried);

/* What a file without a checksum line carries, by what its digest is: same becomes bare. */
enum qm_carried qm_carried_without_line(int64_t carried);

/* Calls what qm_store_tell set, once per file in a row, unless the file carries its digest and a
 * checksum line. */
void qm_stored_digest_tell(const char *path, enum qm_carried carried);

#endif
