/* outcome_codec.h - an outcome as words and text, for pipes, segments and digests.
 *
 * All of struct qm_outcome, doubles bit for bit: unpacking gives what was packed, whatever NaNs it
 * holds.  The layout is this version's own (QM_PACK_VERSION); it never leaves a campaign. */
#ifndef QM_CAMPAIGN_OUTCOME_CODEC_H
#define QM_CAMPAIGN_OUTCOME_CODEC_H

#include "experiments/lockstep/lockstep.h"

enum { QM_PACK_VERSION = 2 };

/* Words of an outcome; text is its reason (NULL: none). */
struct qm_packed {
    int64_t n, room;
    int64_t *word;
    char *text;
};

/* Sets *out; qm_packed_free releases it. */
qm_status qm_pack(const struct qm_outcome *o, struct qm_packed *out);
void qm_packed_free(struct qm_packed *p);

/* QM_BAD_FILE: no outcome of this version (out is untouched).  Free with qm_outcome_free. */
qm_status qm_unpack(const int64_t *word, int64_t n, const char *text, struct qm_outcome *out);

/* SHA-256 of words and text, as 64 hex digits: the digest of a cell's results. */
void qm_pack_digest(const int64_t *word, int64_t n, const char *text, char out[65]);

#endif
