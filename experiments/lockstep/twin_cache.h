/* twin_cache.h - double-precision twins that several cells share.
 *
 * Cells that differ only in how a variant stores its state have one twin: same problem, arguments,
 * seed, start, rule family, hyper-parameters, steps and points.  A cache keeps what a cell needs of
 * it, so the second such cell runs its variant alone.  Results are the same bits with or without a
 * cache, whatever it holds; it may be used by one thread at a time. */
#ifndef QM_LOCKSTEP_TWIN_CACHE_H
#define QM_LOCKSTEP_TWIN_CACHE_H

#include "experiments/lockstep/lockstep_pair.h"

struct qm_twin_cache; /* opaque */

/* A finished twin, or one being recorded. */
struct qm_twin {
    char key[65];
    int64_t n_looks, n_points, total;
    int n_slots, complete;
    double *loss;          /* [n_looks]: above the floor */
    double *state;         /* [n_points][1 + n_slots][total]: parameter, slots */
    double *before, *grad; /* [total]: parameter and gradient of the last update */
    double moved;          /* the largest |parameter - start| of any look that is not lost */
    uint64_t used;         /* when, in calls of the cache */
    size_t bytes;
};

/* bytes: keep no more than that (0: 256 MiB); the least recently used go first. */
qm_status qm_twin_cache_open(size_t bytes, struct qm_twin_cache **out);
void qm_twin_cache_close(struct qm_twin_cache *t); /* accepts NULL */

/* The twin of sides that were just opened, `complete` or to be recorded; looks and points: how many losses and
 * states it will have.  *out NULL: there is no cache, or no room for this one.  Lives until the next call. */
qm_status qm_twin_find(struct qm_twin_cache *t, const struct qm_lockstep_pair *a, int64_t looks,
                       int64_t points, struct qm_twin **out);

/* State number i from a->twin_p and a->twin_slot, and back. */
void qm_twin_keep(struct qm_twin *w, int64_t i, const struct qm_lockstep_pair *a);
void qm_twin_show(const struct qm_twin *w, int64_t i, struct qm_lockstep_pair *a);

/* How often a twin was asked for and was there. */
int64_t qm_twin_hits(const struct qm_twin_cache *t);

/* The order in which cells share most: those of one twin next to each other, by first appearance;
 * n indices, the caller frees them. */
qm_status qm_twin_order(const struct qm_cell *cells, int64_t n, int64_t **order);

#endif
