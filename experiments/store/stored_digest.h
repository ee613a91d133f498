/* stored_digest.h - The digest that a result file carries: attribute "digest" of /provenance. */
#ifndef QM_STORE_STORED_DIGEST_H
#define QM_STORE_STORED_DIGEST_H

#include <hdf5.h>

#include "core/base/status.h"

/* The digest (qm_store_digest) of an open file. */
qm_status qm_digest_of(hid_t file, const char *path, char out[65]);

/* Computes the digest and compares it with the one that the file carries.  *carried: whether it
 * carries one.  QM_BAD_FILE: they differ.  digest may be NULL. */
qm_status qm_stored_digest_compare(hid_t file, const char *path, int *carried, char *digest);

/* As qm_stored_digest_compare, and computes nothing where the file carries none. */
qm_status qm_stored_digest_check(hid_t file, const char *path, int *carried);

/* Calls what qm_store_tell_missing set, once per file in a row. */
void qm_stored_digest_missing(const char *path);

#endif
