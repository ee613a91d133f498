/* gpu_beside.c - Lays reports of several GPUs side by side, as a page in Markdown. */
#include <stdlib.h>
#include <string.h>

#include "experiments/gpu/gpu_report.h"

/* A line of the page: a label, and the value of each report. */
static void print_line(FILE *f, const char *label, char (*cell)[96], int n)
{
    fprintf(f, "| %s |", label);
    for (int i = 0; i < n; i++)
        fprintf(f, " %s |", *cell[i] ? cell[i] : "-");
    fputs("\n", f);
}

static void print_head(FILE *f, const char *first, const struct qm_gpu_report *r, int n)
{
    fprintf(f, "\n| %s |", first);
    for (int i = 0; i < n; i++) {
        const char *name = json_string_value(json_object_get(r[i].device, "name"));
        fprintf(f, " %s |", name ? name : "GPU");
    }
    fputs("\n|---|", f);
    for (int i = 0; i < n; i++)
        fputs("---|", f);
    fputs("\n", f);
}

static void fact(json_t *facts, const char *name, char *out, size_t size)
{
    json_t *x = json_object_get(facts, name);
    if (json_is_string(x))
        snprintf(out, size, "%s", json_string_value(x));
    else if (json_is_number(x))
        snprintf(out, size, "%.6g", json_number_value(x));
    else
        *out = '\0';
}

static void print_facts(FILE *f, const struct qm_gpu_report *r, char (*cell)[96], int n)
{
    static const struct {
        const char *name, *label;
        int is_plan;
    } facts[] = {{"compute_capability", "compute capability, times ten", 0},
                 {"multiprocessors", "multiprocessors", 0},
                 {"memory_bytes", "bytes of memory", 0},
                 {"driver_api", "driver's version of CUDA", 0},
                 {"nvrtc", "NVRTC", 0},
                 {"commit", "commit", 1},
                 {"begun", "begun", 1},
                 {"parts", "parts", 1},
                 {"state", "state", 1}};
    print_head(f, "", r, n);
    for (size_t k = 0; k < sizeof facts / sizeof *facts; k++) {
        for (int i = 0; i < n; i++)
            fact(facts[k].is_plan ? r[i].plan : r[i].device, facts[k].name, cell[i],
                 sizeof cell[i]);
        print_line(f, facts[k].label, cell, n);
    }
}

/* Good rows of all rows that could be measured; rows that could not, apart. */
static void print_counts(FILE *f, const struct qm_gpu_report *r, char (*cell)[96], int n)
{
    static const struct {
        enum qm_gpu_part part;
        const char *label;
    } parts[] = {{QM_GPU_exact, "steps with the CPU's bits"},
                 {QM_GPU_codes, "searches right over all floats"},
                 {QM_GPU_check, "verdicts passed"}};
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
        for (int i = 0; i < n; i++) {
            size_t count[4] = {0}, at;
            json_t *row;
            json_array_foreach(r[i].rows[parts[k].part], at, row)
                count[qm_gpu_row_verdict(parts[k].part, row)]++;
            size_t judged = count[QM_GPU_good] + count[QM_GPU_bad];
            char broken[48] = "";
            if (count[QM_GPU_broken])
                snprintf(broken, sizeof broken, ", %zu not measured", count[QM_GPU_broken]);
            if (judged + count[QM_GPU_broken])
                snprintf(cell[i], sizeof cell[i], "%zu of %zu%s", count[QM_GPU_good], judged,
                         broken);
            else
                *cell[i] = '\0';
        }
        print_line(f, parts[k].label, cell, n);
    }
}

/* ---- numbers of rows that have equal keys ---------------------------------------------------- */

/* A row's label: its key columns and, of peers, recipe, mode and tensors. */
static void label_of(enum qm_gpu_part part, json_t *row, char *out, size_t size)
{
    static const char *const peers[] = {"recipe", "mode", "tensors"};
    size_t used = 0;
    *out = '\0';
    for (const struct qm_gpu_column *c = qm_gpu_columns(part); c->name && used < size; c++)
        if (c->is_key)
            used += (size_t)snprintf(out + used, size - used, "%s%s", used ? ", " : "",
                                     json_string_value(json_object_get(row, c->name)));
    for (int i = 0; part == QM_GPU_peers && i < 3 && used < size; i++) {
        json_t *x = json_object_get(row, peers[i]);
        if (json_is_integer(x))
            used += (size_t)snprintf(out + used, size - used, ", %lld tensors",
                                     (long long)json_integer_value(x));
        else
            used += (size_t)snprintf(out + used, size - used, ", %s",
                                     json_is_string(x) ? json_string_value(x) : "");
    }
}

/* The row of a report with this label; NULL: none, or it was not measured. */
static json_t *find(enum qm_gpu_part part, const struct qm_gpu_report *r, const char *label)
{
    char own[256];
    size_t i;
    json_t *row;
    json_array_foreach(r->rows[part], i, row)
    {
        label_of(part, row, own, sizeof own);
        if (strcmp(own, label) == 0 && qm_gpu_row_verdict(part, row) == QM_GPU_good)
            return row;
    }
    return NULL;
}

/* A table of one column of a part, a line for each label that any report has. */
static void print_numbers(FILE *f, const char *title, enum qm_gpu_part part, const char *column,
                          const struct qm_gpu_report *r, char (*cell)[96], int n)
{
    char label[256];
    size_t k;
    json_t *row, *done = json_object();
    for (int i = 0; i < n; i++)
        json_array_foreach(r[i].rows[part], k, row)
        {
            label_of(part, row, label, sizeof label);
            if (json_object_get(done, label) || !find(part, &r[i], label))
                continue;
            if (json_object_size(done) == 0) {
                fprintf(f, "\n## %s\n", title);
                print_head(f, column, r, n);
            }
            json_object_set_new(done, label, json_true());
            for (int j = 0; j < n; j++) {
                json_t *x = json_object_get(find(part, &r[j], label), column);
                *cell[j] = '\0';
                if (json_is_number(x))
                    snprintf(cell[j], sizeof cell[j], "%.3g", json_number_value(x));
            }
            print_line(f, label, cell, n);
        }
    json_decref(done);
}

static void print_all(FILE *f, const struct qm_gpu_report *r, char (*cell)[96], int n)
{
    fputs("# GPUs side by side\n\nMade by `qualm gpu-check --beside`; results/gpu/README.md says "
          "what "
          "each figure means.\n",
          f);
    print_facts(f, r, cell, n);
    print_counts(f, r, cell, n);
    print_numbers(f, "Speed of a step, as a share of a copy", QM_GPU_speed, "share_of_copy", r,
                  cell, n);
    print_numbers(f, "Parameters per second", QM_GPU_speed, "rate", r, cell, n);
    print_numbers(f, "Seconds of a step of many small tensors", QM_GPU_tables, "seconds", r, cell,
                  n);
    print_numbers(f, "The same from a CUDA graph", QM_GPU_tables, "graph_seconds", r, cell, n);
    print_numbers(f, "Our seconds over another optimizer's", QM_GPU_peers, "ratio", r, cell, n);
}

qm_status qm_gpu_report_beside(FILE *f, char **files, int n)
{
    struct qm_gpu_report *r = calloc((size_t)n + 1, sizeof *r);
    char(*cell)[96] = calloc((size_t)n + 1, sizeof *cell);
    qm_status st = r && cell ? QM_OK : qm_fail(QM_NO_MEMORY, "%d reports", n);
    for (int i = 0; i < n && st == QM_OK; i++)
        st = qm_gpu_report_read(files[i], &r[i]);
    if (st == QM_OK)
        print_all(f, r, cell, n);
    for (int i = 0; i < n && r; i++)
        qm_gpu_report_free(&r[i]);
    free(r);
    free(cell);
    return st;
}
