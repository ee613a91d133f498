/* control_cells.h - The control cells of a paired suite, and the names of cells in tables. */
#ifndef QM_SUITE_CONTROL_CELLS_H
#define QM_SUITE_CONTROL_CELLS_H

#include "experiments/suite/shared.h"
#include "experiments/suite/suite.h"

/* Appends the controls (null and budget cells) to the product of a paired suite's axes, unless a
 * cell of equal recipe, source and seeds exists.  *cells grows by realloc. */
qm_status qm_protocol_cells(const struct qm_suite *s, struct qm_cell **cells, int64_t *n_cells);

/* The rule of r in float32 throughout: the family's own variant FAMILY_f32 where it exists, else
 * this recipe with all its formats set to f32.  Returns 0 where the rule refuses such a recipe. */
int qm_recipe_full(const struct qm_recipe *r, struct qm_recipe *out);

/* The number of plain cells, the product of the suite's axes; they come first. */
int64_t qm_plain_cell_count(const struct qm_cell *cells, int64_t n_cells);

/* Writes the name of a cell in tables and legends into text, which holds QM_LABEL_TEXT bytes. */
#define QM_LABEL_TEXT 512
char *qm_cell_label(const struct qm_suite *s, const struct qm_cell *c, char *text);

/* The label of an axis for a cell; "" where it has none. */
const char *qm_cell_choice(const struct qm_suite *s, const struct qm_cell *c, int axis);

#endif
