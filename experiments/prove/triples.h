/* triples.h - Proves a whole element update over its domain: all codes x all bfloat16 gradients.
 *
 * Each triple (code of slot 0, code of slot 1, gradient) is decoded with the given scales, updated
 * by the rule's float32 loop and encoded with equal group maxima, by the engine's own functions.
 * The oracle makes the step in double, and its derived bounds limit the float32 results: fresh
 * states and the parameter must lie within the bound, and a code must be one that the bound allows.
 * The maximum of a group, the rounding of scales to 16 bits and the layout of blocks and bytes are
 * left to other tests. */
#ifndef QM_EXPERIMENTS_PROVE_TRIPLES_H
#define QM_EXPERIMENTS_PROVE_TRIPLES_H

#include <jansson.h>

#include "core/recipe/recipe.h"
#include "experiments/check/judge.h"

struct qm_triples_tally {
    int64_t triples;
    int64_t judged, unbounded; /* numbers and codes judged; not judged, because they may overflow */
    int64_t verdict[QM_VERDICT_COUNT]; /* of codes */
    int64_t out_of_bound;              /* parameters and fresh states */
    double worst_ratio;                /* largest error / bound */
    int64_t worst_at;                  /* first triple of the worst finding's severity, or -1 */
    int severity;
    char finding[240];
};

/* Counts the triples of a recipe.  QM_SKIPPED, with the reason, where the recipe has no such
 * domain: a slot without codes, more than two slots, no derived bound, a round that draws, a curve
 * with several numbers per block, nested scales, two scales in turn, keepsign. */
qm_status qm_triples_count(const struct qm_recipe *r, int64_t *out);

/* Judges all triples by recipe r at step t and parameter p.
 *   runs      the recipe that is run, for planted bugs; NULL: r
 *   maxima    [slots]: the maximum of each slot's group, before the curve, finite and above 0
 *   progress  called with the triples done, by one thread at a time; or NULL
 * The tally does not depend on the number of threads. */
qm_status qm_triples_run(const struct qm_recipe *r, const struct qm_recipe *runs,
                         const float *maxima, int64_t t, float p,
                         void (*progress)(void *of, int64_t triples), void *of,
                         struct qm_triples_tally *out);

/* 1: no number is out of bound, every code is EQUAL or BOUNDARY, and at least one was judged. */
int qm_triples_hold(const struct qm_triples_tally *t);

#endif
