/* withheld.h - Cases that are not drawn by default, because engine and oracle do not agree on them
 * yet. */
#ifndef QM_EXPERIMENTS_CHECK_WITHHELD_H
#define QM_EXPERIMENTS_CHECK_WITHHELD_H

#include "experiments/check/domain.h"

/* 1: the case is not drawn for this recipe.  --case runs it all the same. */
int qm_case_is_withheld(const struct qm_recipe *r, const struct qm_case *c);

/* Number k = 0, 1, ... of what is withheld for the recipe, and the reason; NULL: no more. */
const char *qm_withheld_at(const struct qm_recipe *r, int k, const char **reason);

#endif
