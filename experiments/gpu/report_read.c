/* report_read.c - Reads a report of a GPU from its HDF5 file, in a process of its own.
 *
 * A damaged file may crash the HDF5 library or ask it for any amount of memory.  What the process
 * sends is checked too. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "experiments/cli/cli.h"
#include "experiments/gpu/gpu_run.h"
#include "experiments/store/result_reader.h"

static const double SECONDS = 60.0;            /* for one file */
enum { MEBIBYTES = 512, MOST_ROWS = 1000000 }; /* memory of the process; rows of a part */

/* ---- HDF5 ------------------------------------------------------------------------------------ */

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
    *out = st == QM_OK ? json_loads(text, 0, NULL) : NULL;
    free(text);
    return json_is_object(*out) ? QM_OK
                                : qm_fail(QM_BAD_FILE, "is no report of gpu-check: no %s", name);
}

static qm_status read_here(const char *path, struct qm_gpu_report *r)
{
    struct qm_result *h5;
    char table[64];
    QM_TRY(qm_result_open(path, &h5));
    qm_status st =
        strcmp(qm_result_kind(h5), "gpu") == 0
            ? QM_OK
            : qm_fail(QM_BAD_FILE, "is a file of kind %.40s, expected gpu", qm_result_kind(h5));
    if (st == QM_OK)
        st = read_text(h5, "plan", &r->plan);
    if (st == QM_OK)
        st = read_text(h5, "device", &r->device);
    for (int i = 0; i < QM_GPU_PARTS && st == QM_OK; i++) {
        r->rows[i] = json_array();
        snprintf(table, sizeof table, "/gpu/%s", qm_gpu_part_name((enum qm_gpu_part)i));
        if (qm_result_has(h5, table))
            for (const struct qm_gpu_column *c = qm_gpu_columns((enum qm_gpu_part)i);
                 c->name && st == QM_OK; c++)
                st = read_column(h5, table, c, r->rows[i]);
    }
    qm_result_close(h5);
    if (st == QM_OK)
        return QM_OK;
    if (strncmp(qm_message(), path, strlen(path)) != 0)
        (void)qm_fail_in(st, path);
    return st == QM_NO_MEMORY ? st : QM_BAD_FILE; /* whatever is wrong, the file is */
}

/* ---- the process ----------------------------------------------------------------------------- */

static void work(void *path, int fd)
{
    struct qm_gpu_report r = {0};
    json_t *rows = json_array();
#ifndef __SANITIZE_ADDRESS__ /* which takes more of it than there is */
    setrlimit(RLIMIT_DATA, &(struct rlimit){(rlim_t)MEBIBYTES << 20, (rlim_t)MEBIBYTES << 20});
#endif
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    qm_status st = read_here(path, &r);
    if (st != QM_OK) {
        qm_gpu_child_send(
            fd, json_pack("{s:o, s:i}", "error", qm_json_text(qm_message()), "status", (int)st));
        return;
    }
    for (int i = 0; i < QM_GPU_PARTS; i++)
        json_array_append(rows, r.rows[i]);
    qm_gpu_child_send(
        fd, json_pack("{s:O, s:O, s:o}", "plan", r.plan, "device", r.device, "rows", rows));
}

/* ---- what it sends --------------------------------------------------------------------------- */

static int has_type(const struct qm_gpu_column *c, json_t *x)
{
    return c->type == 't'   ? json_is_string(x)
           : c->type == 'b' ? json_is_boolean(x)
           : c->type == 'f' ? json_is_number(x)
                            : json_is_integer(x);
}

/* Every row must have its keys and a status, and every member its type. */
static qm_status check_rows(const char *path, enum qm_gpu_part part, json_t *rows)
{
    json_t *row;
    size_t i;
    json_array_foreach(rows, i, row)
    {
        for (const struct qm_gpu_column *c = qm_gpu_columns(part); c->name; c++) {
            json_t *x = json_object_get(row, c->name);
            if (x ? !has_type(c, x) : c->is_key || strcmp(c->name, "status") == 0)
                return qm_fail(QM_BAD_FILE, "%s: row %zu of %s has no %s: the file is damaged",
                               path, i, qm_gpu_part_name(part), c->name);
        }
    }
    return QM_OK;
}

static qm_status take(const char *path, json_t *value, struct qm_gpu_report *out)
{
    struct qm_gpu_report r = {0};
    json_t *rows = json_object_get(value, "rows");
    const char *error = json_string_value(json_object_get(value, "error"));
    if (error)
        return qm_fail((qm_status)json_integer_value(json_object_get(value, "status")), "%s",
                       error);
    r.plan = json_incref(json_object_get(value, "plan"));
    r.device = json_incref(json_object_get(value, "device"));
    qm_status st = QM_OK;
    for (int i = 0; i < QM_GPU_PARTS && st == QM_OK; i++) {
        r.rows[i] = json_incref(json_array_get(rows, (size_t)i));
        st = check_rows(path, (enum qm_gpu_part)i, r.rows[i]);
    }
    if (st == QM_OK)
        *out = r;
    else
        qm_gpu_report_free(&r);
    return st;
}

qm_status qm_gpu_report_read(const char *path, struct qm_gpu_report *out)
{
    struct qm_gpu_child c;
    json_t *value = NULL;
    char how[200] = "";
    QM_TRY(qm_gpu_child_start(&c, work, (void *)(uintptr_t)path));
    enum qm_gpu_wait end = qm_gpu_child_wait(&c, qm_seconds() + SECONDS, NULL, &value);
    qm_gpu_child_end(&c, how, sizeof how);
    if (end != QM_GPU_WAIT_line)
        return qm_fail(QM_BAD_FILE, "%s: cannot be read, the file is damaged: %s%s", path,
                       end == QM_GPU_WAIT_late ? "it takes more than a minute; " : "", how);
    qm_status st = take(path, value, out);
    json_decref(value);
    return st;
}
