/* columns.c - Builds the columns of a table one by one. */
#include "experiments/store/columns.h"

#include <stdlib.h>

#include "core/base/grow.h"

void *qm_columns_add(struct qm_columns *t, const char *name, enum qm_column_type type,
                     const char *unit, const char *text)
{
    size_t size = type == QM_COLUMN_text ? sizeof(char *) : sizeof(int64_t);
    void *data = calloc((size_t)t->rows + 1, size);
    if (!data || qm_grow((void **)&t->column, &t->room, t->n + 1, sizeof *t->column) != QM_OK) {
        free(data);
        t->failed = 1;
        return NULL;
    }
    t->column[t->n++] = (struct qm_column){name, type, unit, text, data};
    return data;
}

const char **qm_columns_text(struct qm_columns *t, const char *name, const char *text)
{
    return qm_columns_add(t, name, QM_COLUMN_text, "", text);
}

int64_t *qm_columns_whole(struct qm_columns *t, const char *name, const char *text)
{
    return qm_columns_add(t, name, QM_COLUMN_i64, "1", text);
}

double *qm_columns_number(struct qm_columns *t, const char *name, const char *unit,
                          const char *text)
{
    return qm_columns_add(t, name, QM_COLUMN_f64, unit, text);
}

qm_status qm_columns_store(struct qm_columns *t, struct qm_store *s, const char *path,
                           const char *text)
{
    qm_status st = t->failed ? qm_fail(QM_NO_MEMORY, "columns of %s", path)
                             : qm_store_table(s, path, text, t->rows, t->n, t->column);
    for (int i = 0; i < t->n; i++)
        free((void *)t->column[i].data);
    free(t->column);
    t->column = NULL;
    t->n = t->room = 0;
    return st;
}
