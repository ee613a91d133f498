/* specials.h - prints the table of special values (qualm check --specials). */
#ifndef QM_EXPERIMENTS_SPECIALS_H
#define QM_EXPERIMENTS_SPECIALS_H

#include "experiments/select.h"

/* Measures and judges every recipe; the exit code: 1 when a verdict failed. */
int qm_specials_print(const struct qm_recipes *recipes, uint64_t seed);

#endif
