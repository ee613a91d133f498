/* gpu_beside.c - Lays reports of several GPUs side by side, as a page in Markdown. */
#include <stdlib.h>
#include <string.h>

#include "experiments/gpu/gpu_report.h"
#include "experiments/report/escape.h"

enum { CELL = 160 };

struct page {
    FILE *f;
    char **file;
    const struct qm_gpu_report *r;
    char (*cell)[CELL]; /* of the line that is printed next */
    int n;
};

/* Prints a line: a label, and the value of each report. */
static void print_line(const struct page *p, const char *label)
{
    fputs("| ", p->f);
    qm_escape_markdown(p->f, label);
    fputs(" |", p->f);
    for (int i = 0; i < p->n; i++) {
        fputc(' ', p->f);
        qm_escape_markdown(p->f, *p->cell[i] ? p->cell[i] : "-");
        fputs(" |", p->f);
    }
    fputs("\n", p->f);
}

/* The head of a table; columns have numbers, because two cards may have one name. */
static void print_head(const struct page *p, const char *first)
{
    fputs("\n| ", p->f);
    qm_escape_markdown(p->f, first);
    fputs(" |", p->f);
    for (int i = 0; i < p->n; i++) {
        const char *name = json_string_value(json_object_get(p->r[i].device, "name"));
        fprintf(p->f, " %d: ", i + 1);
        qm_escape_markdown(p->f, name && *name ? name : "GPU");
        fputs(" |", p->f);
    }
    fputs("\n|---|", p->f);
    for (int i = 0; i < p->n; i++)
        fputs("---|", p->f);
    fputs("\n", p->f);
}

/* ---- what the reports are -------------------------------------------------------------------- */

#define FACTS(X) /* name, is it of the plan, may figures depend on it, label */     \
    X(uuid, 0, 0, "card")                                                           \
    X(compute_capability, 0, 0, "compute capability, times ten")                    \
    X(multiprocessors, 0, 0, "multiprocessors")                                     \
    X(memory_bytes, 0, 0, "bytes of memory")                                        \
    X(driver_api, 0, 0, "driver's version of CUDA")                                 \
    X(driver, 0, 0, "driver")                                                       \
    X(nvrtc, 0, 0, "NVRTC")                                                         \
    X(commit, 1, 1, "commit")                                                       \
    X(begun, 1, 0, "begun")                                                         \
    X(parts, 1, 0, "parts")                                                         \
    X(recipes, 1, 0, "recipes")                                                     \
    X(quick, 1, 1, "quick (codes and verdicts sampled, no large tensors in exact)") \
    X(elements, 1, 1, "parameters of the large tensor")                             \
    X(rounds, 1, 1, "rounds")                                                       \
    X(missing, 1, 0, "rows missing")                                                \
    X(state, 1, 0, "state")

static const struct {
    const char *name;
    int is_plan, matters;
    const char *label;
} facts[] = {
#define X(name, is_plan, matters, label) {#name, is_plan, matters, label},
    FACTS(X)
#undef X
};
enum { N_FACTS = sizeof facts / sizeof *facts };

static json_t *fact_of(const struct qm_gpu_report *r, int k)
{
    return json_object_get(facts[k].is_plan ? r->plan : r->device, facts[k].name);
}

static void print_value(json_t *x, char *out)
{
    if (json_is_string(x))
        snprintf(out, CELL, "%s", json_string_value(x));
    else if (json_is_number(x))
        snprintf(out, CELL, "%.10g", json_number_value(x));
    else
        *out = '\0';
}

static const char *stem(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void print_facts(const struct page *p)
{
    print_head(p, "");
    for (int i = 0; i < p->n; i++)
        snprintf(p->cell[i], CELL, "%s", stem(p->file[i]));
    print_line(p, "file");
    for (int k = 0; k < N_FACTS; k++) {
        for (int i = 0; i < p->n; i++)
            print_value(fact_of(&p->r[i], k), p->cell[i]);
        print_line(p, facts[k].label);
    }
}

/* Says in which of the options that figures depend on the reports differ. */
static void print_differences(const struct page *p)
{
    const char *separator = "\n**These reports differ in ";
    int found = 0;
    for (int k = 0; k < N_FACTS; k++) {
        int differs = 0;
        for (int i = 1; i < p->n && facts[k].matters; i++) {
            json_t *a = fact_of(&p->r[0], k), *b = fact_of(&p->r[i], k);
            differs |= !(a == b || (a && b && json_equal(a, b)));
        }
        if (differs) {
            fprintf(p->f, "%s%s", separator, facts[k].name);
            separator = ", ";
            found = 1;
        }
    }
    if (found)
        fputs(
            ": compare with care.** Where figures of one line are of different sizes, each has its "
            "elements in parentheses; counts of a quick report say so.\n",
            p->f);
}

/* Says of each report that says what an earlier one says that it is the same. */
static void print_same(const struct page *p)
{
    for (int i = 1; i < p->n; i++)
        for (int k = 0; k < i; k++) {
            const struct qm_gpu_report *a = &p->r[k], *b = &p->r[i];
            int same = json_equal(a->device, b->device) && json_equal(a->plan, b->plan);
            for (int part = 0; part < QM_GPU_PARTS; part++)
                same &= json_equal(a->rows[part], b->rows[part]);
            if (same) {
                fprintf(p->f, "\n**%d is the same report as %d.**\n", i + 1, k + 1);
                break;
            }
        }
}

/* Prints how many of the rows that could be measured are good, and how many could not be. */
static void print_counts(const struct page *p)
{
    static const struct {
        enum qm_gpu_part part;
        const char *label;
    } parts[] = {{QM_GPU_exact, "steps with the CPU's bits"},
                 {QM_GPU_codes, "searches right over all floats"},
                 {QM_GPU_check, "verdicts passed"}};
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
        for (int i = 0; i < p->n; i++) {
            size_t count[4] = {0}, at;
            json_t *row;
            json_array_foreach (p->r[i].rows[parts[k].part], at, row)
                count[qm_gpu_row_verdict(parts[k].part, row)]++;
            size_t judged = count[QM_GPU_good] + count[QM_GPU_bad];
            int is_quick = json_integer_value(json_object_get(p->r[i].plan, "quick")) != 0;
            char broken[48] = "";
            if (count[QM_GPU_broken])
                snprintf(broken, sizeof broken, ", %zu not measured", count[QM_GPU_broken]);
            *p->cell[i] = '\0';
            if (judged + count[QM_GPU_broken])
                snprintf(p->cell[i], CELL, "%zu of %zu%s%s", count[QM_GPU_good], judged, broken,
                         is_quick ? " (quick)" : "");
        }
        print_line(p, parts[k].label);
    }
}

/* ---- numbers of rows that have equal keys ---------------------------------------------------- */

static const char *text_of(json_t *row, const char *name)
{
    const char *text = json_string_value(json_object_get(row, name));
    return text ? text : "";
}

/* A row's label: its key columns and, of peers that were timed, recipe, mode and tensors. */
static void label_of(enum qm_gpu_part part, json_t *row, char *out, size_t size)
{
    size_t used = 0;
    *out = '\0';
    for (const struct qm_gpu_column *c = qm_gpu_columns(part); c->name && used < size; c++)
        if (c->is_key)
            used += (size_t)snprintf(out + used, size - used, "%s%s", used ? ", " : "",
                                     text_of(row, c->name));
    if (part == QM_GPU_peers && used < size && *text_of(row, "mode"))
        snprintf(out + used, size - used, ", %s, %s, %lld tensors", text_of(row, "recipe"),
                 text_of(row, "mode"),
                 (long long)json_integer_value(json_object_get(row, "tensors")));
}

/* The row of a report with this label, a good one where there is one; NULL: none. */
static json_t *find(enum qm_gpu_part part, const struct qm_gpu_report *r, const char *label)
{
    char own[256];
    size_t i;
    json_t *row, *other = NULL;
    json_array_foreach (r->rows[part], i, row) {
        label_of(part, row, own, sizeof own);
        if (strcmp(own, label) != 0)
            continue;
        if (qm_gpu_row_verdict(part, row) == QM_GPU_good)
            return row;
        other = row;
    }
    return other;
}

/* The word of a row that has no figures: "failed", "skipped", "timed out", "out of memory"; of one
 * that has, "". */
static const char *no_figures(enum qm_gpu_part part, json_t *row)
{
    static const char *const ends[] = {"skipped", "timed out", "out of memory"};
    if (!row || qm_gpu_row_verdict(part, row) == QM_GPU_good)
        return "";
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (strncmp(text_of(row, "status"), ends[i], strlen(ends[i])) == 0)
            return ends[i];
    return "failed";
}

/* A line: the figures of the rows with this label, with their elements where these differ. */
static void print_figures(const struct page *p, enum qm_gpu_part part, const char *column,
                          const char *label)
{
    json_int_t first = -1, elements;
    int differs = 0;
    for (int i = 0; i < p->n; i++) {
        json_t *row = find(part, &p->r[i], label);
        elements = json_integer_value(json_object_get(row, "elements"));
        if (!row || *no_figures(part, row))
            continue;
        differs |= first >= 0 && elements != first;
        first = elements;
    }
    for (int i = 0; i < p->n; i++) {
        json_t *row = find(part, &p->r[i], label), *x = json_object_get(row, column);
        size_t used = 0;
        const char *why = no_figures(part, row);
        snprintf(p->cell[i], CELL, "%s", why);
        if (!*why && json_is_number(x))
            used = (size_t)snprintf(p->cell[i], CELL, "%.3g", json_number_value(x));
        if (used && differs)
            snprintf(p->cell[i] + used, CELL - used, " (%lld)",
                     (long long)json_integer_value(json_object_get(row, "elements")));
    }
    print_line(p, label);
}

/* A table of one column of a part, a line for each label that any report has, measured or not. */
static void print_numbers(const struct page *p, const char *title, enum qm_gpu_part part,
                          const char *column)
{
    char label[256];
    size_t k;
    json_t *row, *done = json_object();
    for (int i = 0; i < p->n; i++)
        json_array_foreach (p->r[i].rows[part], k, row) {
            label_of(part, row, label, sizeof label);
            if (json_object_get(done, label))
                continue;
            if (json_object_size(done) == 0) {
                fprintf(p->f, "\n## %s\n", title);
                print_head(p, column);
            }
            json_object_set_new(done, label, json_true());
            print_figures(p, part, column, label);
        }
    json_decref(done);
}

static void print_all(const struct page *p)
{
    fputs("# GPUs side by side\n\nMade by `qualm gpu-check --beside`; results/gpu/README.md says "
          "what each figure means.\n",
          p->f);
    print_facts(p);
    print_counts(p);
    print_same(p);
    print_differences(p);
    print_numbers(p, "Speed of a step, as a share of a copy", QM_GPU_speed, "share_of_copy");
    print_numbers(p, "Parameters per second", QM_GPU_speed, "rate");
    print_numbers(p, "Seconds of a step of many small tensors", QM_GPU_tables, "seconds");
    print_numbers(p, "The same from a CUDA graph", QM_GPU_tables, "graph_seconds");
    print_numbers(p, "Our seconds over another optimizer's", QM_GPU_peers, "ratio");
}

qm_status qm_gpu_report_beside(FILE *f, char **files, int n)
{
    struct qm_gpu_report *r = calloc((size_t)n + 1, sizeof *r);
    char(*cell)[CELL] = calloc((size_t)n + 1, sizeof *cell);
    qm_status st = r && cell ? QM_OK : qm_fail(QM_NO_MEMORY, "%d reports", n);
    for (int i = 0; i < n && st == QM_OK; i++)
        st = qm_gpu_report_read(files[i], &r[i]);
    if (st == QM_OK)
        print_all(&(struct page){f, files, r, cell, n});
    for (int i = 0; i < n && r; i++)
        qm_gpu_report_free(&r[i]);
    free(r);
    free(cell);
    return st;
}
