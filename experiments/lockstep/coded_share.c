/* coded_share.c - Counts the elements of a run's states that had codes. */
#include "experiments/lockstep/coded_share.h"

#include <math.h>

void qm_coded_count(const struct qm_lockstep_pair *a, struct qm_outcome *o)
{
    for (int i = 0; i < a->n_tensors; i++)
        for (int s = 0; s < a->n_slots; s++) {
            int64_t n = qm_lockstep_pair_slot_numel(a, i, s);
            if (a->recipe.slot[s].bits == 0)
                continue;
            o->wanted[s] += n;
            if (qm_recipe_slot(&a->recipe, s, &a->shape[i]).bits == 0)
                o->uncoded[s] += n;
        }
}

double qm_coded_share(const struct qm_outcome *o, int slots)
{
    int64_t wanted = 0, uncoded = 0;
    for (int s = 0; s < QM_MAX_SLOTS; s++)
        if (slots >> s & 1) {
            wanted += o->wanted[s];
            uncoded += o->uncoded[s];
        }
    return wanted ? 1.0 - (double)uncoded / (double)wanted : nan("");
}

int qm_varied_slots(const struct qm_results *r, const struct qm_cell *c)
{
    int slots = 0;
    for (int64_t i = 0; i < r->n_cells; i++) {
        const struct qm_cell *e = &r->cell[i];
        for (int s = 0; e->role == QM_CELL_plain && !e->reason &&
                        e->recipe->rule == c->recipe->rule && s < c->recipe->rule->n_slots;
             s++)
            slots |= !qm_quantizer_equal(&e->recipe->slot[s], &c->recipe->slot[s]) << s;
    }
    return slots ? slots : QM_ALL_SLOTS;
}

double qm_asked_share(const struct qm_results *r, int64_t i)
{
    const struct qm_cell *c = &r->cell[i];
    const struct qm_outcome *o = &r->outcome[i];
    double all = qm_coded_share(o, QM_ALL_SLOTS);
    if (o->reason || c->coupling == QM_COUPLING_oneshot)
        return nan("");
    if (!(all < 1.0))
        return all;
    int is_whole = c->coupling == QM_COUPLING_closed || c->coupling == QM_COUPLING_update;
    return qm_coded_share(o, is_whole ? qm_varied_slots(r, c) : 1 << c->slot);
}

int qm_is_unquantized(const struct qm_results *r, int64_t i) { return qm_asked_share(r, i) == 0.0; }

int64_t qm_oneshot_beyond(const struct qm_results *r)
{
    int64_t found = 0;
    for (int64_t i = 0; i < r->n_cells; i++) {
        const struct qm_cell *c = &r->cell[i];
        struct qm_shape drawn = {.rank = 1, .dim = {c->n}};
        if (c->coupling == QM_COUPLING_oneshot && !c->reason && !r->outcome[i].reason)
            found += qm_recipe_slot(c->recipe, c->slot, c->recorded ? &c->recorded->shape : &drawn)
                         .bits == 0;
    }
    return found;
}
