/* outcome_codec.h - An outcome as 64-bit words and a text, for pipes, segments and digests.
 *
 * Decoding returns every member of struct qm_outcome bit for bit, NaN payloads included.  The
 * layout belongs to QM_OUTCOME_CODEC_VERSION and is used only within a campaign. */
#ifndef QM_CAMPAIGN_OUTCOME_CODEC_H
#define QM_CAMPAIGN_OUTCOME_CODEC_H

#include "experiments/lockstep/lockstep.h"

enum { QM_OUTCOME_CODEC_VERSION = 3 };

/* More words, or bytes of text, than any outcome has: a longer record is damaged. */
enum { QM_OUTCOME_WORDS_MOST = 1 << 27, QM_OUTCOME_TEXT_MOST = 1 << 20 };

/* An encoded outcome; text is its reason (NULL: none).  Owns both. */
struct qm_outcome_words {
    int64_t n, room;
    int64_t *word;
    char *text;
};

/* Encodes o; qm_outcome_words_free releases *out.  QM_NO_MEMORY. */
qm_status qm_outcome_encode(const struct qm_outcome *o, struct qm_outcome_words *out);
void qm_outcome_words_free(struct qm_outcome_words *p);

/* Decodes n words and a text (or NULL); qm_outcome_free releases *out.  QM_BAD_FILE: the words are
 * no outcome of this version, and *out is untouched. */
qm_status qm_outcome_decode(const int64_t *word, int64_t n, const char *text,
                            struct qm_outcome *out);

/* The digest of a cell's results: SHA-256 of words and text, as 64 hex digits and NUL. */
void qm_outcome_words_digest(const int64_t *word, int64_t n, const char *text, char out[65]);

#endif
