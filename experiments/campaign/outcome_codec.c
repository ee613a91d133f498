/* outcome_codec.c - Encodes outcomes as 64-bit words, and decodes them. */
#include "experiments/campaign/outcome_codec.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/sha256.h"

/* A new member of struct qm_outcome goes into both qm_outcome_encode and qm_outcome_decode, and
 * QM_OUTCOME_CODEC_VERSION increases.  Counts of slots from FIRST_SLOTS on stand at the end, and
 * only where one is not 0: the words of rules of fewer slots, and their digests, do not depend on
 * how many slots a rule may have. */
_Static_assert(sizeof(struct qm_outcome) ==
                   (8 + 2 * QM_MAX_SLOTS + QM_TRACK_COUNT + 2 * QM_HITS_COUNT) * 8 +
                       2 * QM_DECADES * sizeof(struct qm_decade),
               "struct qm_outcome has changed");

enum { MOST = 1 << 27 }; /* longest array that is accepted */
enum { FIRST_SLOTS = 8, MORE_SLOTS = QM_MAX_SLOTS - FIRST_SLOTS };

/* ---- writing ------------------------------------------------------------------------------- */

static void write_words(struct qm_outcome_words *p, const void *from, int64_t n)
{
    memcpy(p->word + p->n, from, (size_t)n * sizeof *p->word);
    p->n += n;
}

static void write_word(struct qm_outcome_words *p, int64_t x) { write_words(p, &x, 1); }

/* The length, then the array; length -1 for NULL. */
static void write_array(struct qm_outcome_words *p, const double *x, int64_t n)
{
    write_word(p, x ? n : -1);
    if (x)
        write_words(p, x, n);
}

static void write_decades(struct qm_outcome_words *p, const struct qm_decade *d)
{
    for (int i = 0; i < QM_DECADES; i++) {
        write_word(p, d[i].count);
        write_words(p, &d[i].mean_rel, 1);
        write_words(p, &d[i].rms_rel, 1);
        write_words(p, &d[i].zero_share, 1);
    }
}

static int has_more_slots(const struct qm_outcome *o)
{
    int any = 0;
    for (int s = FIRST_SLOTS; s < QM_MAX_SLOTS; s++)
        any |= o->wanted[s] != 0 || o->uncoded[s] != 0;
    return any;
}

qm_status qm_outcome_encode(const struct qm_outcome *o, struct qm_outcome_words *out)
{
    struct qm_outcome_words p = {.room = 16 + 2 * QM_MAX_SLOTS + qm_value_count() + 8 * QM_DECADES +
                                         QM_TRACK_COUNT * (1 + o->n_points)};
    for (int i = 0; i < QM_HITS_COUNT; i++)
        p.room += 2 + o->n_hits[i];
    p.word = malloc((size_t)p.room * sizeof *p.word);
    p.text = o->reason ? strdup(o->reason) : NULL;
    if (!p.word || (o->reason && !p.text)) {
        qm_outcome_words_free(&p);
        return qm_fail(QM_NO_MEMORY, "an outcome of %lld points", (long long)o->n_points);
    }
    write_word(&p, QM_OUTCOME_CODEC_VERSION);
    write_word(&p, o->done);
    write_word(&p, o->diverged);
    write_word(&p, o->failed);
    write_word(&p, o->n);
    write_word(&p, o->steps);
    write_words(&p, &o->bits, 1);
    write_words(&p, o->wanted, FIRST_SLOTS);
    write_words(&p, o->uncoded, FIRST_SLOTS);
    write_word(&p, o->n_points);
    write_array(&p, o->value, qm_value_count());
    write_decades(&p, o->decade);
    write_decades(&p, o->unit_decade);
    for (int i = 0; i < QM_TRACK_COUNT; i++)
        write_array(&p, o->track[i], o->n_points);
    for (int i = 0; i < QM_HITS_COUNT; i++) {
        write_word(&p, o->n_hits[i]);
        write_array(&p, o->hits[i], o->n_hits[i]);
    }
    if (has_more_slots(o)) {
        write_words(&p, o->wanted + FIRST_SLOTS, MORE_SLOTS);
        write_words(&p, o->uncoded + FIRST_SLOTS, MORE_SLOTS);
    }
    *out = p;
    return QM_OK;
}

void qm_outcome_words_free(struct qm_outcome_words *p)
{
    free(p->word);
    free(p->text);
    *p = (struct qm_outcome_words){0};
}

/* ---- reading ------------------------------------------------------------------------------- */

struct reader {
    const int64_t *at, *end;
    int bad, no_memory;
};

static void take_words(struct reader *r, void *to, int64_t n)
{
    if (r->bad || n > r->end - r->at) {
        r->bad = 1;
        memset(to, 0, (size_t)n * sizeof *r->at);
        return;
    }
    memcpy(to, r->at, (size_t)n * sizeof *r->at);
    r->at += n;
}

static int64_t take(struct reader *r)
{
    int64_t x = 0;
    take_words(r, &x, 1);
    return x;
}

/* An array of n numbers, or NULL where its length is -1; any other length is bad. */
static double *take_array(struct reader *r, int64_t n)
{
    int64_t there = take(r);
    if (there == -1)
        return NULL;
    if (r->bad || there != n || n < 0 || n > MOST || n > r->end - r->at) {
        r->bad = 1;
        return NULL;
    }
    double *x = malloc((size_t)(n > 0 ? n : 1) * sizeof *x);
    if (!x)
        r->no_memory = 1;
    else
        take_words(r, x, n);
    return x;
}

static void take_decades(struct reader *r, struct qm_decade *d)
{
    for (int i = 0; i < QM_DECADES; i++) {
        d[i].count = take(r);
        take_words(r, &d[i].mean_rel, 1);
        take_words(r, &d[i].rms_rel, 1);
        take_words(r, &d[i].zero_share, 1);
    }
}

qm_status qm_outcome_decode(const int64_t *word, int64_t n, const char *text,
                            struct qm_outcome *out)
{
    struct reader r = {.at = word, .end = word + n};
    struct qm_outcome o = {0};
    r.bad = take(&r) != QM_OUTCOME_CODEC_VERSION;
    o.done = (int)take(&r);
    o.diverged = (int)take(&r);
    o.failed = (int)take(&r);
    o.n = take(&r);
    o.steps = take(&r);
    take_words(&r, &o.bits, 1);
    take_words(&r, o.wanted, FIRST_SLOTS);
    take_words(&r, o.uncoded, FIRST_SLOTS);
    o.n_points = take(&r);
    o.value = take_array(&r, qm_value_count());
    take_decades(&r, o.decade);
    take_decades(&r, o.unit_decade);
    for (int i = 0; i < QM_TRACK_COUNT; i++)
        o.track[i] = take_array(&r, o.n_points);
    for (int i = 0; i < QM_HITS_COUNT; i++) {
        o.n_hits[i] = take(&r);
        o.hits[i] = take_array(&r, o.n_hits[i]);
    }
    if (!r.bad && r.at < r.end) {
        take_words(&r, o.wanted + FIRST_SLOTS, MORE_SLOTS);
        take_words(&r, o.uncoded + FIRST_SLOTS, MORE_SLOTS);
    }
    o.reason = text ? strdup(text) : NULL;
    r.no_memory |= text && !o.reason;
    if (!r.bad && !r.no_memory && r.at == r.end) {
        *out = o;
        return QM_OK;
    }
    qm_outcome_free(&o);
    return r.no_memory ? qm_fail(QM_NO_MEMORY, "an outcome")
                       : qm_fail(QM_BAD_FILE, "no outcome of this version");
}

void qm_outcome_words_digest(const int64_t *word, int64_t n, const char *text, char out[65])
{
    struct qm_sha256 h;
    qm_sha256_start(&h);
    qm_sha256_add(&h, word, (size_t)n * sizeof *word);
    qm_sha256_add(&h, text ? "+" : "-", 1); /* so NULL and "" differ */
    qm_sha256_add(&h, text ? text : "", text ? strlen(text) : 0);
    qm_sha256_hex(&h, out);
}
