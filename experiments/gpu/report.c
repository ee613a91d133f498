/* report.c - Writes the measurements of a GPU as HDF5 and as a Markdown page. */
#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "experiments/cli/cli.h"
#include "experiments/gpu/gpu.h"
#include "experiments/machine/provenance.h"
#include "experiments/store/store.h"

enum { COLUMNS = 32 };

static const struct {
    const char *key, *title, *text;
} sections[] = {
    {"exact", "The CPU's bits",
     "three steps of each variant and shape beside the CPU backend, compared bit for bit"},
    {"check", "Against the oracle", "qm check on the GPU, exact and fast"},
    {"codes", "Every float", "codes of all 2^32 floats by the GPU against the defining search"},
    {"speed", "Speed", "steps between events; share_of_copy: of a copy within the device's memory"},
    {"tables", "Many tensors", "the tables of a launch: in memory, by value, or a launch for each"},
    {"peers", "Beside other optimizers",
     "the same sizes and way of timing in the same run; ratio: our seconds over theirs"},
    {"peers_skipped", "Other optimizers that were not compared", "with the reason"},
};
enum { SECTIONS = sizeof sections / sizeof *sections };

/* The files' stem: "nvidia-h100-2026-11-20". */
static void stem_of(json_t *all, char *out, size_t size)
{
    char date[24];
    const char *name = json_string_value(json_object_get(json_object_get(all, "device"), "name"));
    size_t n = 0;
    for (const char *c = name ? name : "gpu"; *c && n + 13 < size; c++)
        if (isalnum((unsigned char)*c))
            out[n++] = (char)tolower((unsigned char)*c);
        else if (n && out[n - 1] != '-')
            out[n++] = '-';
    snprintf(out + n, size - n, "-%.10s", qm_utc(date));
}

/* ---- HDF5 ------------------------------------------------------------------------------------ */

/* Stores an array of objects with equal keys as a table. */
static qm_status store_rows(struct qm_store *f, const char *path, const char *text, json_t *rows)
{
    struct qm_column column[COLUMNS];
    void *data[COLUMNS] = {NULL};
    size_t n = json_array_size(rows), i;
    int k = 0;
    const char *key;
    json_t *value, *row;
    qm_status st = QM_OK;
    json_object_foreach(json_array_get(rows, 0), key, value)
    {
        if (k == COLUMNS)
            break;
        column[k] = (struct qm_column){.name = key, .unit = "", .text = key};
        column[k].type = json_is_string(value) ? QM_COLUMN_text
                         : json_is_real(value) ? QM_COLUMN_f64
                                               : QM_COLUMN_i64;
        column[k].data = data[k] = malloc(8 * (n + 1));
        if (!data[k])
            st = qm_fail(QM_NO_MEMORY, "a table of %zu rows", n);
        for (i = 0; st == QM_OK && i < n; i++) {
            row = json_array_get(rows, i);
            json_t *x = json_object_get(row, key);
            if (json_is_string(value))
                ((const char **)data[k])[i] = json_string_value(x);
            else if (json_is_real(value))
                ((double *)data[k])[i] = json_real_value(x);
            else
                ((int64_t *)data[k])[i] =
                    json_is_boolean(x) ? json_is_true(x) : json_integer_value(x);
        }
        k++;
    }
    if (st == QM_OK && k > 0)
        st = qm_store_table(f, path, text, (int64_t)n, k, column);
    for (int c = 0; c < k; c++)
        free(data[c]);
    return st;
}

static qm_status store_all(struct qm_store *f, json_t *all)
{
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(all, "device"), key, value)
    {
        if (json_is_string(value))
            QM_TRY(qm_store_text(f, "/device", key, json_string_value(value)));
        else
            QM_TRY(qm_store_number(f, "/device", key, json_number_value(value)));
    }
    for (int i = 0; i < SECTIONS; i++) {
        char path[64];
        json_t *rows = json_object_get(all, sections[i].key);
        snprintf(path, sizeof path, "/gpu/%s", sections[i].key);
        if (json_array_size(rows))
            QM_TRY(store_rows(f, path, sections[i].text, rows));
    }
    return QM_OK;
}

/* ---- the page -------------------------------------------------------------------------------- */

static void print_value(FILE *f, json_t *x)
{
    if (json_is_string(x))
        fprintf(f, " %s |", json_string_value(x));
    else if (json_is_boolean(x))
        fprintf(f, " %s |", json_is_true(x) ? "yes" : "no");
    else if (json_is_real(x))
        fprintf(f, " %.4g |", json_real_value(x));
    else
        fprintf(f, " %lld |", (long long)json_integer_value(x));
}

/* 0: the row is only counted, because its results are equal. */
static int is_listed(const char *section, json_t *row)
{
    return strcmp(section, "exact") != 0 || !json_is_true(json_object_get(row, "equal"));
}

static void print_section(FILE *f, int s, json_t *rows)
{
    const char *key;
    json_t *value, *row;
    size_t i, listed = 0;
    json_array_foreach(rows, i, row) listed += (size_t)is_listed(sections[s].key, row);
    fprintf(f, "\n## %s\n\n%zu rows: %s.\n", sections[s].title, json_array_size(rows),
            sections[s].text);
    if (listed < json_array_size(rows))
        fprintf(f, "%zu of them are equal.\n", json_array_size(rows) - listed);
    if (listed == 0)
        return;
    fputs("\n|", f);
    json_object_foreach(json_array_get(rows, 0), key, value) fprintf(f, " %s |", key);
    fputs("\n|", f);
    json_object_foreach(json_array_get(rows, 0), key, value) fputs("---|", f);
    fputs("\n", f);
    json_array_foreach(rows, i, row)
    {
        if (!is_listed(sections[s].key, row))
            continue;
        fputs("|", f);
        json_object_foreach(row, key, value) print_value(f, value);
        fputs("\n", f);
    }
}

static qm_status print_page(const char *path, json_t *all)
{
    char part[PATH_MAX + 8];
    const char *key;
    json_t *value;
    snprintf(part, sizeof part, "%s.part", path);
    FILE *f = fopen(part, "w");
    if (!f)
        return qm_fail(QM_BAD_FILE, "%s: cannot be written", part);
    fprintf(f, "# %s\n\n",
            json_string_value(json_object_get(json_object_get(all, "device"), "name")));
    fprintf(f, "Written by `qualm gpu-check`, version %s, commit %s.\n\n", qm_version(),
            qm_commit());
    json_object_foreach(json_object_get(all, "device"), key, value)
    {
        fprintf(f, "- %s:", key);
        if (json_is_string(value))
            fprintf(f, " %s\n", json_string_value(value));
        else
            fprintf(f, " %.6g\n", json_number_value(value));
    }
    for (int i = 0; i < SECTIONS; i++)
        if (json_array_size(json_object_get(all, sections[i].key)))
            print_section(f, i, json_object_get(all, sections[i].key));
    int failed = fflush(f) != 0;
    failed |= fclose(f) != 0;
    return !failed && rename(part, path) == 0 ? QM_OK
                                              : qm_fail(QM_BAD_FILE, "%s: cannot be written", path);
}

qm_status qm_gpu_report(const char *folder, json_t *all, int argc, char **argv, char *path,
                        size_t size)
{
    char stem[160], h5[PATH_MAX];
    struct qm_store *f;
    stem_of(all, stem, sizeof stem);
    for (char *c = strchr(folder + 1, '/'); c; c = strchr(c + 1, '/')) {
        snprintf(h5, sizeof h5, "%.*s", (int)(c - folder), folder);
        mkdir(h5, 0777);
    }
    mkdir(folder, 0777);
    snprintf(h5, sizeof h5, "%s/%s.h5", folder, stem);
    snprintf(path, size, "%s/%s.md", folder, stem);
    QM_TRY(qm_store_open(h5, "gpu", argc, argv, &f));
    qm_status st = store_all(f, all);
    if (st == QM_OK)
        st = qm_store_commit(f);
    else
        qm_store_abort(f);
    return st == QM_OK ? print_page(path, all) : st;
}
