/* describe.h - The description of a golden file, and the hashes of what `gen` writes into it. */
#ifndef QM_VECTORS_DESCRIBE_H
#define QM_VECTORS_DESCRIBE_H

#include "core/base/sha256.h"
#include "experiments/check/trial.h"
#include "experiments/vectors/vectors.h"

enum { QM_HASH = 65 }; /* hex digits of SHA-256 and a NUL */

/* Parts of an array's hash (vectors.h): its type and shape, and then its elements in order. */
void qm_array_hash_start(struct qm_sha256 *h, enum qm_dtype dtype, const struct qm_shape *shape);
void qm_array_hash_add(struct qm_sha256 *h, const float *x, int64_t n);

/* The hash of a tensor in memory. */
void qm_array_hash(const struct qm_tensor *t, char out[QM_HASH]);

/* The description of a case without "inputs", new.  r: the file's recipe without the settings;
 * seed: the file's. */
qm_status qm_describe_case(const struct qm_recipe *r, const struct qm_vectors_case *c,
                           uint64_t seed, json_t **out);

/* The hyper-parameters of step k = 0, 1, ... of a case, whose trial this is. */
struct qm_hyper qm_describe_hyper(const struct qm_trial *t, const struct qm_case *c, int k);

/* The unit value of each stored code of slot i, NaN where there is no such code; s: after
 * qm_judge_begin.  Empty (numel 0) where codes have no single value.  The caller frees data. */
qm_status qm_describe_codebook(const struct qm_subject *s, int i, struct qm_tensor *out);

/* The digest of a description; its own "digest" does not count. */
qm_status qm_describe_digest(json_t *root, char out[QM_HASH]);

#endif
