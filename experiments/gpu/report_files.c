/* report_files.c - Writes a report of a GPU as HDF5 and as a Markdown page. */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/gpu/gpu_report.h"
#include "experiments/machine/provenance.h"
#include "experiments/report/escape.h"
#include "experiments/store/atomic_file.h"
#include "experiments/store/store.h"

enum { COLUMNS = 32 };

static const struct {
    const char *title, *text;
} parts[] = {
#define X(name, title, text) {title, text},
    QM_GPU_PART_LIST(X)
#undef X
};

/* ---- HDF5 ------------------------------------------------------------------------------------ */

/* The column's values: NaN, -1 and "" where a row has none. */
static void *values_of(const struct qm_gpu_column *c, json_t *rows)
{
    size_t n = json_array_size(rows), i;
    void *data = malloc(8 * (n + 1));
    json_t *row;
    if (!data)
        return NULL;
    json_array_foreach (rows, i, row) {
        json_t *x = json_object_get(row, c->name);
        if (c->type == 't')
            ((const char **)data)[i] = json_string_value(x);
        else if (c->type == 'f')
            ((double *)data)[i] = json_is_number(x) ? json_number_value(x) : (double)NAN;
        else
            ((int64_t *)data)[i] = json_is_boolean(x)   ? json_is_true(x)
                                   : json_is_integer(x) ? json_integer_value(x)
                                                        : -1;
    }
    return data;
}

static qm_status store_rows(struct qm_store *f, enum qm_gpu_part part, json_t *rows)
{
    struct qm_column column[COLUMNS];
    void *data[COLUMNS] = {NULL};
    char path[64];
    int n = 0;
    qm_status st = QM_OK;
    for (const struct qm_gpu_column *c = qm_gpu_columns(part); c->name && n < COLUMNS; c++, n++) {
        data[n] = values_of(c, rows);
        st = data[n] ? st : qm_fail(QM_NO_MEMORY, "a table of %zu rows", json_array_size(rows));
        column[n] = (struct qm_column){.name = c->name, .unit = c->unit, .text = c->text};
        column[n].type = c->type == 't'   ? QM_COLUMN_text
                         : c->type == 'f' ? QM_COLUMN_f64
                                          : QM_COLUMN_i64;
        column[n].data = data[n];
    }
    snprintf(path, sizeof path, "/gpu/%s", qm_gpu_part_name(part));
    if (st == QM_OK)
        st = qm_store_table(f, path, parts[part].text, (int64_t)json_array_size(rows), n, column);
    for (int k = 0; k < n; k++)
        free(data[k]);
    return st;
}

static qm_status store_facts(struct qm_store *f, const char *path, json_t *facts)
{
    const char *key;
    json_t *value;
    json_object_foreach (facts, key, value) {
        if (json_is_string(value))
            QM_TRY(qm_store_text(f, path, key, json_string_value(value)));
        else
            QM_TRY(qm_store_number(f, path, key, json_number_value(value)));
    }
    return QM_OK;
}

static qm_status store_all(struct qm_store *f, const struct qm_gpu_report *r)
{
    char *plan = json_dumps(r->plan, JSON_COMPACT), *device = json_dumps(r->device, JSON_COMPACT);
    qm_status st = plan && device ? QM_OK : qm_fail(QM_NO_MEMORY, "a report");
    if (st == QM_OK)
        st = store_facts(f, "/device", r->device);
    if (st == QM_OK)
        st = qm_store_text(f, "/gpu", "plan", plan);
    if (st == QM_OK)
        st = qm_store_text(f, "/gpu", "device", device);
    for (int i = 0; i < QM_GPU_PARTS && st == QM_OK; i++)
        if (json_array_size(r->rows[i]))
            st = store_rows(f, (enum qm_gpu_part)i, r->rows[i]);
    free(plan);
    free(device);
    return st;
}

/* ---- the page -------------------------------------------------------------------------------- */

static void print_value(FILE *f, const struct qm_gpu_column *c, json_t *x)
{
    if (json_is_string(x)) {
        fputc(' ', f);
        qm_escape_markdown(f, json_string_value(x));
        fputs(" |", f);
    } else if (json_is_boolean(x)) {
        fprintf(f, " %s |", json_is_true(x) ? "yes" : "no");
    } else if (c->type == 'f' && json_is_number(x)) {
        fprintf(f, " %.4g |", json_number_value(x));
    } else if (json_is_integer(x)) {
        fprintf(f, " %lld |", (long long)json_integer_value(x));
    } else {
        fputs(" - |", f);
    }
}

/* 0: the row is only counted, because its results are equal. */
static int is_listed(enum qm_gpu_part part, json_t *row)
{
    return part != QM_GPU_exact || qm_gpu_row_verdict(part, row) != QM_GPU_good;
}

static void print_counts(FILE *f, enum qm_gpu_part part, json_t *rows)
{
    static const char *const words[] = {"good", "bad", "not measured", "skipped"};
    size_t count[4] = {0}, i;
    json_t *row;
    const char *separator = "";
    json_array_foreach (rows, i, row)
        count[qm_gpu_row_verdict(part, row)]++;
    fprintf(f, "\n## %s\n\n%zu rows, ", parts[part].title, json_array_size(rows));
    for (int k = 0; k < 4; k++)
        if (count[k]) {
            fprintf(f, "%s%zu %s", separator, count[k],
                    k == 0 && part != QM_GPU_exact && part != QM_GPU_codes && part != QM_GPU_check
                        ? "measured"
                        : words[k]);
            separator = ", ";
        }
    fprintf(f, ": %s.\n", parts[part].text);
}

static void print_part(FILE *f, enum qm_gpu_part part, json_t *rows)
{
    const struct qm_gpu_column *columns = qm_gpu_columns(part);
    size_t i, listed = 0;
    json_t *row;
    print_counts(f, part, rows);
    json_array_foreach (rows, i, row)
        listed += (size_t)is_listed(part, row);
    if (listed == 0)
        return;
    fputs("\n|", f);
    for (const struct qm_gpu_column *c = columns; c->name; c++)
        fprintf(f, " %s |", c->name);
    fputs("\n|", f);
    for (const struct qm_gpu_column *c = columns; c->name; c++)
        fputs("---|", f);
    fputs("\n", f);
    json_array_foreach (rows, i, row) {
        if (!is_listed(part, row))
            continue;
        fputs("|", f);
        for (const struct qm_gpu_column *c = columns; c->name; c++)
            print_value(f, c, json_object_get(row, c->name));
        fputs("\n", f);
    }
}

static void print_facts(FILE *f, json_t *facts)
{
    const char *key;
    json_t *value;
    json_object_foreach (facts, key, value) {
        if (!json_is_number(value) && !(json_is_string(value) && *json_string_value(value)))
            continue;
        fputs("- ", f);
        qm_escape_markdown(f, key);
        fputs(": ", f);
        if (json_is_string(value))
            qm_escape_markdown(f, json_string_value(value));
        else
            fprintf(f, "%.10g", json_number_value(value));
        fputc('\n', f);
    }
}

static void print_page(FILE *f, const struct qm_gpu_report *r)
{
    const char *name = json_string_value(json_object_get(r->device, "name"));
    fputs("# ", f);
    qm_escape_markdown(f, name && *name ? name : "GPU");
    fprintf(f,
            "\n\nWritten by `qualm gpu-check`, version %s, commit %s; results/gpu/README.md says "
            "what each figure means.\n\n",
            qm_version(), qm_commit());
    print_facts(f, r->device);
    fputs("\nThe run:\n\n", f);
    print_facts(f, r->plan);
    for (int i = 0; i < QM_GPU_PARTS; i++)
        if (json_array_size(r->rows[i]))
            print_part(f, (enum qm_gpu_part)i, r->rows[i]);
}

static qm_status write_page(const char *path, const struct qm_gpu_report *r)
{
    struct qm_atomic_file file;
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return qm_fail(QM_NO_MEMORY, "a page");
    print_page(f, r);
    if (fclose(f) != 0) {
        free(text);
        return qm_fail(QM_NO_MEMORY, "a page");
    }
    qm_status st = qm_atomic_file_open(path, &file);
    if (st == QM_OK) {
        st = qm_atomic_file_write(&file, text, size);
        if (st == QM_OK)
            st = qm_atomic_file_commit(&file);
        if (st != QM_OK)
            qm_atomic_file_abort(&file);
    }
    free(text);
    return st;
}

qm_status qm_gpu_report_write(const struct qm_gpu_report *r, const char *path, int argc,
                              char **argv)
{
    char file[PATH_MAX];
    struct qm_store *f;
    snprintf(file, sizeof file, "%s.h5", path);
    QM_TRY(qm_store_open(file, "gpu", argc, argv, &f));
    qm_status st = store_all(f, r);
    if (st == QM_OK)
        st = qm_store_commit(f);
    else
        qm_store_abort(f);
    QM_TRY(st);
    snprintf(file, sizeof file, "%s.md", path);
    return write_page(file, r);
}
