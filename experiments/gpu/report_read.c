/* report_read.c - Reads a report of a GPU from its HDF5 file and checks every row.
 *
 * The file is opened in the reader process of result_reader.h: a damaged one may crash the HDF5
 * library or ask it for any amount of memory. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/gpu/gpu_report.h"
#include "experiments/store/result_reader.h"

enum { MOST_ROWS = 100000 }; /* of a part */

/* ---- columns --------------------------------------------------------------------------------- */

/* Adds a column's values to the rows; what does not apply is left out. */
static qm_status read_column(struct qm_result *h5, const char *table, const struct qm_gpu_column *c,
                             json_t *rows)
{
    int64_t n = 0, *whole = NULL;
    double *real = NULL;
    char **text = NULL;
    qm_status st = c->type == 't'   ? qm_result_texts(h5, table, c->name, &n, &text)
                   : c->type == 'f' ? qm_result_f64(h5, table, c->name, &n, &real)
                                    : qm_result_i64(h5, table, c->name, &n, &whole);
    if (st == QM_NO_MATCH)
        return QM_OK; /* of an earlier version */
    QM_TRY(st);
    if (n > MOST_ROWS)
        st = qm_fail(QM_BAD_FILE, "%s has %lld rows", table, (long long)n);
    while (st == QM_OK && (int64_t)json_array_size(rows) < n)
        json_array_append_new(rows, json_object());
    for (int64_t i = 0; st == QM_OK && i < n; i++) {
        json_t *row = json_array_get(rows, (size_t)i), *value = NULL;
        if (text && (*text[i] || c->is_key))
            value = qm_json_text(text[i]);
        else if (real && isfinite(real[i]))
            value = json_real(real[i]);
        else if (whole && c->type == 'b' && whole[i] > 1)
            st = qm_fail(QM_BAD_FILE, "%s of row %lld of %s is %lld, expected 0 or 1", c->name,
                         (long long)i, table, (long long)whole[i]);
        else if (whole && whole[i] >= 0)
            value = c->type == 'b' ? json_boolean(whole[i]) : json_integer(whole[i]);
        if (value)
            json_object_set_new(row, c->name, value);
    }
    free(text);
    free(real);
    free(whole);
    return st;
}

static qm_status read_text(struct qm_result *h5, const char *name, json_t **out)
{
    char *text = NULL;
    qm_status st = qm_result_text(h5, "/gpu", name, &text);
    *out = st == QM_OK ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL;
    char *again = *out ? json_dumps(*out, JSON_COMPACT) : NULL; /* as it is written */
    int is_same = again && strcmp(again, text) == 0;
    free(again);
    free(text);
    if (!json_is_object(*out))
        return qm_fail(QM_BAD_FILE, "is no report of gpu-check: no %s", name);
    return is_same ? QM_OK : qm_fail(QM_BAD_FILE, "its %s is not as it was written", name);
}

/* Every row must have its keys and a status. */
static qm_status check_rows(enum qm_gpu_part part, json_t *rows)
{
    json_t *row;
    size_t i;
    json_array_foreach (rows, i, row) {
        for (const struct qm_gpu_column *c = qm_gpu_columns(part); c->name; c++)
            if ((c->is_key || strcmp(c->name, "status") == 0) && !json_object_get(row, c->name))
                return qm_fail(QM_BAD_FILE, "row %zu of %s has no %s: the file is damaged", i,
                               qm_gpu_part_name(part), c->name);
    }
    return QM_OK;
}

/* Group /device, which is for who reads the file by other means, must say what /gpu does. */
static qm_status check_facts(struct qm_result *h5, const struct qm_gpu_report *r)
{
    const char *key, *commit = json_string_value(json_object_get(r->plan, "commit"));
    char *text = NULL;
    double x = 0.0;
    json_t *value;
    json_object_foreach (r->device, key, value) {
        text = NULL;
        int is = json_is_string(value) ? qm_result_text(h5, "/device", key, &text) == QM_OK &&
                                             strcmp(text, json_string_value(value)) == 0
                                       : qm_result_number(h5, "/device", key, &x) == QM_OK &&
                                             x == json_number_value(value);
        free(text);
        if (!is)
            return qm_fail(QM_BAD_FILE, "contradicts itself: %.60s of /device is not that of /gpu",
                           key);
    }
    text = NULL;
    int is = qm_result_text(h5, "/provenance", "commit", &text) == QM_OK && commit &&
             strcmp(text, commit) == 0;
    free(text);
    return is ? QM_OK
              : qm_fail(QM_BAD_FILE,
                        "contradicts itself: the commit of its plan is not that of /provenance");
}

/* ---- the report ------------------------------------------------------------------------------ */

static qm_status read_all(struct qm_result *h5, struct qm_gpu_report *r)
{
    char table[64];
    if (strcmp(qm_result_kind(h5), "gpu") != 0)
        return qm_fail(QM_BAD_FILE, "is a file of kind %.40s, expected gpu", qm_result_kind(h5));
    QM_TRY(read_text(h5, "plan", &r->plan));
    QM_TRY(read_text(h5, "device", &r->device));
    for (int i = 0; i < QM_GPU_PARTS; i++) {
        const struct qm_gpu_column *c = qm_gpu_columns((enum qm_gpu_part)i);
        r->rows[i] = json_array();
        snprintf(table, sizeof table, "/gpu/%s", qm_gpu_part_name((enum qm_gpu_part)i));
        for (; qm_result_has(h5, table) && c->name; c++)
            QM_TRY(read_column(h5, table, c, r->rows[i]));
        QM_TRY(check_rows((enum qm_gpu_part)i, r->rows[i]));
    }
    QM_TRY(check_facts(h5, r));
    return qm_gpu_report_agrees(r);
}

qm_status qm_gpu_report_read(const char *path, struct qm_gpu_report *out)
{
    struct qm_gpu_report r = {0};
    struct qm_result *h5;
    QM_TRY(qm_result_open_unchanged(path, &h5));
    qm_status st = read_all(h5, &r);
    qm_result_close(h5);
    if (st == QM_OK) {
        *out = r;
        return QM_OK;
    }
    qm_gpu_report_free(&r);
    if (strncmp(qm_message(), path, strlen(path)) != 0)
        (void)qm_fail_in(st, path);
    return st == QM_NO_MEMORY ? st : QM_BAD_FILE; /* whatever is wrong, the file is */
}
