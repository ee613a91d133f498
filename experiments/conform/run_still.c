/* run_still.c - Finds the elements of a recorded step of which nothing is rounded. */
#include "experiments/conform/run.h"

int qm_run_is_still(const struct qm_run *run, int64_t row, int64_t n, int64_t k)
{
    int64_t t = run->kept[row], last = row > 0 ? run->kept[row - 1] : 0;
    float p = row > 0 ? run->params[(row - 1) * n + k] : run->p0[k];
    int has_decay = run->recipe.hyper.weight_decay != 0.0 && p != 0.0f;
    if (run->mixes || last != t - 1 || has_decay || run->grads[(t - 1) * n + k] != 0.0f)
        return 0;
    for (int i = 0; i < run->recipe.rule->n_slots; i++) {
        const struct qm_run_slot *slot = &run->slot[i];
        if (slot->codes || slot->every_step)
            return 0;
        float old = row > 0 && slot->values ? slot->values[(row - 1) * n + k] : slot->first;
        if (old != 0.0f)
            return 0;
    }
    return 1;
}
