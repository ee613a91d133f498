/* report_files.c - Writes a report of a GPU as HDF5 and as a Markdown page, and reads it back. */
#include <ctype.h>
#include <glob.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "experiments/gpu/gpu_report.h"
#include "experiments/machine/provenance.h"
#include "experiments/store/atomic_file.h"
#include "experiments/store/result_reader.h"
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
    json_array_foreach(rows, i, row)
    {
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
    json_object_foreach(facts, key, value)
    {
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
        for (const char *text = json_string_value(x); *text; text++)
            fputs(*text == '|' ? "\\|" : *text == '\n' ? " " : (char[]){*text, '\0'}, f);
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
    json_array_foreach(rows, i, row) count[qm_gpu_row_verdict(part, row)]++;
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
    json_array_foreach(rows, i, row) listed += (size_t)is_listed(part, row);
    if (listed == 0)
        return;
    fputs("\n|", f);
    for (const struct qm_gpu_column *c = columns; c->name; c++)
        fprintf(f, " %s |", c->name);
    fputs("\n|", f);
    for (const struct qm_gpu_column *c = columns; c->name; c++)
        fputs("---|", f);
    fputs("\n", f);
    json_array_foreach(rows, i, row)
    {
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
    json_object_foreach(facts, key, value)
    {
        if (json_is_string(value) && *json_string_value(value))
            fprintf(f, "- %s: %s\n", key, json_string_value(value));
        else if (json_is_number(value))
            fprintf(f, "- %s: %.10g\n", key, json_number_value(value));
    }
}

static void print_page(FILE *f, const struct qm_gpu_report *r)
{
    const char *name = json_string_value(json_object_get(r->device, "name"));
    fprintf(f,
            "# %s\n\nWritten by `qualm gpu-check`, version %s, commit %s; results/gpu/README.md "
            "says what each figure means.\n\n",
            name ? name : "GPU", qm_version(), qm_commit());
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

/* ---- reading --------------------------------------------------------------------------------- */

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
    while ((int64_t)json_array_size(rows) < n)
        json_array_append_new(rows, json_object());
    for (int64_t i = 0; i < n; i++) {
        json_t *row = json_array_get(rows, (size_t)i), *value = NULL;
        if (text && (*text[i] || c->is_key))
            value = json_string(text[i]);
        else if (real && !isnan(real[i]))
            value = json_real(real[i]);
        else if (whole && whole[i] >= 0)
            value = c->type == 'b' ? json_boolean(whole[i]) : json_integer(whole[i]);
        if (value)
            json_object_set_new(row, c->name, value);
    }
    free(text);
    free(real);
    free(whole);
    return QM_OK;
}

static qm_status read_text(struct qm_result *h5, const char *name, const char *path, json_t **out)
{
    char *text = NULL;
    qm_status st = qm_result_text(h5, "/gpu", name, &text);
    *out = st == QM_OK ? json_loads(text, 0, NULL) : NULL;
    free(text);
    return json_is_object(*out)
               ? QM_OK
               : qm_fail(QM_BAD_FILE, "%s: is no report of gpu-check: it has no %s", path, name);
}

qm_status qm_gpu_report_read(const char *path, struct qm_gpu_report *out)
{
    struct qm_result *h5;
    struct qm_gpu_report r = {0};
    char table[64];
    QM_TRY(qm_result_open(path, &h5));
    qm_status st = strcmp(qm_result_kind(h5), "gpu") == 0
                       ? QM_OK
                       : qm_fail(QM_BAD_FILE, "%s: is a file of kind %s, expected gpu", path,
                                 qm_result_kind(h5));
    if (st == QM_OK)
        st = read_text(h5, "plan", path, &r.plan);
    if (st == QM_OK)
        st = read_text(h5, "device", path, &r.device);
    for (int i = 0; i < QM_GPU_PARTS && st == QM_OK; i++) {
        r.rows[i] = json_array();
        snprintf(table, sizeof table, "/gpu/%s", qm_gpu_part_name((enum qm_gpu_part)i));
        if (qm_result_has(h5, table))
            for (const struct qm_gpu_column *c = qm_gpu_columns((enum qm_gpu_part)i);
                 c->name && st == QM_OK; c++)
                st = read_column(h5, table, c, r.rows[i]);
    }
    qm_result_close(h5);
    if (st == QM_OK)
        *out = r;
    else
        qm_gpu_report_free(&r);
    return st;
}

/* ---- names ----------------------------------------------------------------------------------- */

/* Appends the letters and digits of a text in lower case, with one '-' for all between them. */
static size_t append_slug(char *out, size_t n, size_t size, const char *text)
{
    for (const char *c = text; *c && n + 2 < size; c++)
        if (isalnum((unsigned char)*c))
            out[n++] = (char)tolower((unsigned char)*c);
        else if (n && out[n - 1] != '-')
            out[n++] = '-';
    if (n && out[n - 1] != '-')
        out[n++] = '-';
    out[n] = '\0';
    return n;
}

qm_status qm_gpu_report_name(const char *folder, const char *device, const char *parts_text,
                             char *path, size_t size)
{
    char stem[200], date[24], file[PATH_MAX];
    size_t n = append_slug(stem, 0, 80, *device ? device : "gpu");
    n = append_slug(stem, n, 140, parts_text);
    qm_utc(date); /* 2026-11-20T15:30:00Z */
    snprintf(stem + n, sizeof stem - n, "%.10s-%.2s%.2s%.2s", date, date + 11, date + 14,
             date + 17);
    for (const char *c = strchr(folder + 1, '/'); c; c = strchr(c + 1, '/')) {
        snprintf(file, sizeof file, "%.*s", (int)(c - folder), folder);
        mkdir(file, 0777);
    }
    mkdir(folder, 0777);
    for (int k = 1; k < 1000; k++) {
        int used = k == 1 ? snprintf(path, size, "%s/%s", folder, stem)
                          : snprintf(path, size, "%s/%s-%d", folder, stem, k);
        if (used >= (int)size || used + 4 >= (int)sizeof file)
            return qm_fail(QM_BAD_ARG, "%s: the path is too long", folder);
        snprintf(file, sizeof file, "%s.h5", path);
        if (access(file, F_OK) != 0)
            return QM_OK;
    }
    return qm_fail(QM_BAD_FILE, "%s: a thousand reports of one second", folder);
}

qm_status qm_gpu_report_newest(const char *folder, char *path, size_t size)
{
    char pattern[PATH_MAX];
    struct stat s;
    glob_t g;
    struct timespec newest = {0};
    int found = 0;
    snprintf(pattern, sizeof pattern, "%s/*.h5", folder);
    if (glob(pattern, 0, NULL, &g) == 0)
        for (size_t i = 0; i < g.gl_pathc; i++)
            if (stat(g.gl_pathv[i], &s) == 0 &&
                (!found || s.st_mtim.tv_sec > newest.tv_sec ||
                 (s.st_mtim.tv_sec == newest.tv_sec && s.st_mtim.tv_nsec > newest.tv_nsec))) {
                found = 1;
                newest = s.st_mtim;
                snprintf(path, size, "%s", g.gl_pathv[i]);
            }
    globfree(&g);
    return found ? QM_OK : qm_fail(QM_NO_MATCH, "%s: holds no report (.h5) to go on with", folder);
}
