/* triples.h - a whole element update over its whole domain: every code of every slot x every bfloat16
 * gradient, for given scales.
 *
 * Each triple (code of slot 0, code of slot 1, gradient) is decoded with the given scales, updated by
 * the rule's float32 loop and encoded with the same group maxima, by the engine's own functions.  The
 * oracle does the same in double; its derived bounds say what float32 may give.  Fresh state and
 * parameter must lie within the bound; a code must be one that the bound allows.  What this leaves to
 * other tests: the maximum of a group, and how blocks and bytes are laid out. */
#ifndef QM_EXPERIMENTS_PROVE_TRIPLES_H
#define QM_EXPERIMENTS_PROVE_TRIPLES_H

#include <jansson.h>

#include "core/recipe/recipe.h"
#include "experiments/check/judge.h"

struct qm_triples_tally {
    int64_t triples, judged,
        unbounded; /* judged: numbers and codes; unbounded: may have overflowed */
    int64_t verdict[QM_VERDICT_COUNT]; /* of codes */
    int64_t out_of_bound;              /* parameters and fresh states */
    double worst_ratio;                /* largest error over its bound */
    int64_t worst_at;                  /* first triple of the worst kind of finding, or -1 */
    int severity;
    char finding[240];
};

/* Number of triples of this recipe; QM_SKIPPED, with the reason, where it has no such domain: a slot
 * without codes, more than two slots, no derived bound, a curve or scale word that is not covered. */
qm_status qm_triples_count(const struct qm_recipe *r, int64_t *out);

/* All of them, as what r says; run as `runs`, for planted bugs, or (NULL) as r.  Step t, parameter p;
 * maxima[slot]: the raw maximum of each slot's group, finite and above 0.  progress: as of qm_walk.  The tally does not depend on the number of threads. */
qm_status qm_triples_run(const struct qm_recipe *r, const struct qm_recipe *runs,
                         const float *maxima, int64_t t, float p,
                         void (*progress)(void *of, int64_t triples), void *of,
                         struct qm_triples_tally *out);

/* 1: nothing out of bound, every code EQUAL or BOUNDARY, and something was judged. */
int qm_triples_hold(const struct qm_triples_tally *t);

#endif
