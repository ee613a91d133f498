/* stored_digest.h - The digest that a result file carries: attribute "digest" of /provenance.
 *
 * Another program may have written the file again, and the attribute as a text of another width or
 * of variable length: it counts as read wherever it is one text.  A digest that is none counts as
 * another than that of the contents. */
#ifndef QM_STORE_STORED_DIGEST_H
#define QM_STORE_STORED_DIGEST_H

#include <hdf5.h>

#include "experiments/foreign/blob.h"
#include "experiments/foreign/file_sum.h"
#include "experiments/store/store.h"

/* The digest (qm_store_digest) of an open file.  is_own: this process has just written it, so that
 * it may hold any number of times what it stores. */
qm_status qm_digest_of(hid_t file, const char *path, int is_own, char out[65]);

/* Of an open file, in the reader process: puts what qm_stored_digest_take takes, by what the
 * checksum line said (qm_file_sum_check).  Nothing is computed where the line is right, nor for
 * another program's file, which has no attribute "schema" of store/, nor for golden vectors, which
 * get answers, unless is_strict: QM_BAD_FILE then where the file carries no digest, or another
 * than that of its contents. */
qm_status qm_stored_digest_put(hid_t file, const char *path, enum qm_file_sum sum, int is_strict,
                               struct qm_blob *out);

/* In the program: takes it, and calls what qm_store_tell set, once per file, unless the
 * file carries its digest and a checksum line.  0: nothing of the kind is there. */
int qm_stored_digest_take(const char *path, struct qm_blob *in);

#endif
