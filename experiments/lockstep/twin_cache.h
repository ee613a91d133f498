/* twin_cache.h - Caches double-precision twins that several cells of coupling closed share.
 *
 * Cells that differ only in how a variant stores its state have the same twin: problem, arguments,
 * seed, start, rule family, hyper-parameters, steps and points are equal.  A cache stores the
 * losses and states of a twin that a cell reads, so that the next such cell runs its variant alone.
 * Results have the same bits with and without a cache, whatever it holds.  One thread at a time may
 * use it. */
#ifndef QM_LOCKSTEP_TWIN_CACHE_H
#define QM_LOCKSTEP_TWIN_CACHE_H

#include "experiments/lockstep/lockstep_pair.h"

struct qm_twin_cache; /* opaque */

/* A finished twin, or one being recorded. */
struct qm_twin {
    char key[65];
    int64_t n_losses, n_points, total;
    int n_slots, complete;
    double *loss;          /* [n_losses]: above the floor */
    double *state;         /* [n_points][1 + n_slots][total]: parameter, slots */
    double *before, *grad; /* [total]: parameter before, and gradient of, the last update */
    double moved;          /* the largest |parameter - start| where a loss was evaluated, up to
                              divergence */
    uint64_t used;         /* number of the call of qm_twin_find that last returned it */
    size_t bytes;
};

/* bytes: the most memory that twins may take (0: 256 MiB); the least recently used are dropped. */
qm_status qm_twin_cache_open(size_t bytes, struct qm_twin_cache **out);
void qm_twin_cache_close(struct qm_twin_cache *t); /* accepts NULL */

/* Finds the twin of a pair that was just opened: either `complete`, or a new one for the caller to
 * record, with room for `losses` losses and `points` states.  *out is NULL where t is NULL or
 * has no room.  *out lives until the next call. */
qm_status qm_twin_find(struct qm_twin_cache *t, const struct qm_lockstep_pair *a, int64_t losses,
                       int64_t points, struct qm_twin **out);

/* Copies a->twin_p and a->twin_slot to state i of w, and back. */
void qm_twin_record(struct qm_twin *w, int64_t i, const struct qm_lockstep_pair *a);
void qm_twin_restore(const struct qm_twin *w, int64_t i, struct qm_lockstep_pair *a);

/* For tests: how many calls of qm_twin_find found a complete twin. */
int64_t qm_twin_hits(const struct qm_twin_cache *t);

/* The order of n cells in which cells with the same twin are neighbours, sorted by the first of
 * them; n indices, which the caller frees. */
qm_status qm_twin_order(const struct qm_cell *cells, int64_t n, int64_t **order);

#endif
