/* slot_names.c - What files call the states of optimizers. */
#include "experiments/readers/slot_names.h"

#include "core/base/name.h"

static const char *const names[QM_SLOT_NAMES][4] = {{"exp_avg", "momentum_buffer", "state1", NULL},
                                                    {"exp_avg_sq", "state2", NULL, NULL}};

const char *const *qm_slot_names(int i) { return names[i]; }

int qm_slot_alias(const char *tensor)
{
    for (int i = 0; i < QM_SLOT_NAMES; i++)
        for (int k = 1; names[i][k]; k++)
            if (qm_name_ends(tensor, names[i][k]))
                return i;
    return -1;
}
