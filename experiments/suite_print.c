/* suite_print.c - the canonical text of a suite. */
#include "experiments/suite.h"

#include <stdlib.h>
#include <string.h>

static void quoted(FILE *f, const char *text)
{
    fputc('"', f);
    for (; *text; text++)
        fprintf(f, *text == '"' || *text == '\\' ? "\\%c" : *text == '\n' ? "\\n" : "%c", *text);
    fputc('"', f);
}

static void word_list(FILE *f, const char *key, char *const *word, int n)
{
    fprintf(f, "%s: [", key);
    for (int i = 0; i < n; i++) {
        fputs(i ? ", " : "", f);
        quoted(f, word[i]);
    }
    fputc(']', f);
}

static void print_summary(FILE *f, const struct qm_summary_plan *p)
{
    fputs("  - {name: ", f);
    quoted(f, p->name);
    fputs(", ", f);
    word_list(f, "by", p->by, p->n_by);
    if (p->across) {
        fputs(", across: ", f);
        quoted(f, p->across);
    }
    fputs(", ", f);
    word_list(f, "value", p->value, p->n_values);
    fputs(", ", f);
    word_list(f, "stat", p->stat, p->n_stats);
    if (p->versus_key) {
        fputs(", versus: {", f);
        quoted(f, p->versus_key);
        fputs(": ", f);
        quoted(f, p->versus_label);
        fputs("}", f);
    }
    for (int i = 0; i < p->n_where; i++) {
        fputs(i ? ", " : ", where: {", f);
        quoted(f, p->where_key[i]);
        fputs(": ", f);
        quoted(f, p->where_label[i]);
        fputs(i + 1 == p->n_where ? "}" : "", f);
    }
    if (p->headline) {
        fputs(", headline: ", f);
        quoted(f, p->headline);
    }
    fputs("}\n", f);
}

qm_status qm_suite_print(struct qm_suite *s)
{
    size_t size;
    free(s->plan);
    s->plan = NULL;
    FILE *f = open_memstream(&s->plan, &size);
    if (!f)
        return qm_fail(QM_NO_MEMORY, "suite");
    fputs("title: ", f);
    quoted(f, s->title ? s->title : "");
    fputs("\nquestion: ", f);
    quoted(f, s->question ? s->question : "");
    fputc('\n', f);
    for (int i = 0; i < s->n_axes; i++) {
        const struct qm_axis *a = &s->axis[i];
        fprintf(f, "%s: [", a->key);
        for (int j = 0; j < a->n; j++) {
            const struct qm_axis_value *v = &a->value[j];
            fputs(j ? ", " : "", f);
            if (strcmp(v->label, v->text) != 0) {
                quoted(f, v->label);
                fputs(": ", f);
            }
            quoted(f, v->text);
        }
        fputs("]\n", f);
    }
    word_list(f, "data", s->data, s->n_data);
    fprintf(f, "\nmin_numel: %lld\nmin_rank: %lld\nevery: %lld\n", (long long)s->min_numel,
            (long long)s->min_rank, (long long)s->every);
    fputs(s->n_summaries ? "summary:\n" : "", f);
    for (int i = 0; i < s->n_summaries; i++)
        print_summary(f, &s->summary[i]);
    return fclose(f) == 0 ? QM_OK : qm_fail(QM_NO_MEMORY, "suite");
}
