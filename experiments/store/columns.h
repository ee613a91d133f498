/* columns.h - Columns of a table under construction: room for each, then the table is stored. */
#ifndef QM_STORE_COLUMNS_H
#define QM_STORE_COLUMNS_H

#include "experiments/store/store.h"

/* Starts as {.rows = R}, R >= 0. */
struct qm_columns {
    int64_t rows;
    int64_t room;
    int n, failed; /* failed: no memory, at any column */
    struct qm_column *column;
};

/* Adds a column and returns its data, all 0: int64_t[rows], double[rows] or const char *[rows],
 * whose texts are borrowed until the table is stored.  The data is the table's.  NULL sets
 * t->failed. */
void *qm_columns_add(struct qm_columns *t, const char *name, enum qm_column_type type,
                     const char *unit, const char *text);

/* The same for texts, whole numbers and doubles. */
const char **qm_columns_text(struct qm_columns *t, const char *name, const char *text);
int64_t *qm_columns_whole(struct qm_columns *t, const char *name, const char *text);
double *qm_columns_number(struct qm_columns *t, const char *name, const char *unit,
                          const char *text);

/* Stores the table as qm_store_table does and frees the columns, also after a failure; QM_NO_MEMORY
 * where t->failed. */
qm_status qm_columns_store(struct qm_columns *t, struct qm_store *s, const char *path,
                           const char *text);

#endif
