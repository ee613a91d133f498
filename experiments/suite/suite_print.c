/* suite_print.c - Writes the canonical text of a suite. */
#include "experiments/suite/suite.h"

#include <stdlib.h>
#include <string.h>

enum { KEY_MOST = 160 }; /* 6 * 160 < 1024, the most characters that a plain key may have */

/* For a character that YAML refuses or takes for the end of a line: the number of its UTF-8 bytes,
 * and its code; 0 for any other character. */
static int special(const char *text, unsigned *code)
{
    const unsigned char *t = (const unsigned char *)text;
    *code = t[0];
    if ((t[0] < 0x20 && t[0] != '\t') || t[0] == 0x7f)
        return 1;
    if (t[0] == 0xc2 && t[1] < 0xa0) { /* U+0080 to U+009F */
        *code = t[1];
        return 2;
    }
    if (t[0] == 0xe2 && t[1] == 0x80 && (t[2] == 0xa8 || t[2] == 0xa9)) {
        *code = 0x2000u + (t[2] & 0x3fu);
        return 3;
    }
    if (t[0] == 0xef && t[1] == 0xbf && t[2] >= 0xbe) {
        *code = 0xffc0u + (t[2] & 0x3fu);
        return 3;
    }
    return 0;
}

static void quoted(FILE *f, const char *text)
{
    unsigned code;
    fputc('"', f);
    for (int n; *text; text += n > 0 ? n : 1) {
        n = special(text, &code);
        if (*text == '\n')
            fputs("\\n", f);
        else if (n > 0)
            fprintf(f, code < 0x100 ? "\\x%02x" : "\\u%04x", code);
        else
            fprintf(f, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    }
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

static void print_pairs(FILE *f, const char *key, char *const *name, char *const *label, int n)
{
    for (int i = 0; i < n; i++) {
        fprintf(f, i ? ", " : ", %s: {", key);
        quoted(f, name[i]);
        fputs(": ", f);
        quoted(f, label[i]);
        fputs(i + 1 == n ? "}" : "", f);
    }
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
    print_pairs(f, "versus", &p->versus_key, &p->versus_label, p->versus_key ? 1 : 0);
    print_pairs(f, "where", p->where_key, p->where_label, p->n_where);
    if (p->headline) {
        fputs(", headline: ", f);
        quoted(f, p->headline);
    }
    fputs("}\n", f);
}

static void print_contrasts(FILE *f, const struct qm_suite *s)
{
    fputs(s->n_contrasts ? "contrast: {" : "contrast: none\n", f);
    for (int i = 0; i < s->n_contrasts; i++) {
        const struct qm_contrast *c = &s->contrast[i];
        fputs(i ? ", " : "", f);
        quoted(f, c->axis);
        fputs(c->against ? ": {against: " : ": {pairs: ", f);
        if (c->against)
            quoted(f, c->against);
        fputs(c->all ? "all" : c->against ? "" : "[", f);
        for (int k = 0; k < c->n_pairs; k++) {
            fputs(k ? ", [" : "[", f);
            quoted(f, c->pair[k][0]);
            fputs(", ", f);
            quoted(f, c->pair[k][1]);
            fputs(k + 1 == c->n_pairs ? "]]" : "]", f);
        }
        fputs(i + 1 == s->n_contrasts ? "}}\n" : "}", f);
    }
}

static void print_rates(FILE *f, const struct qm_suite *s)
{
    fputs(s->n_rates ? "rates:\n" : "rates: none\n", f);
    for (int i = 0; i < s->n_rates; i++) {
        fputs("  - [", f);
        quoted(f, s->rate[i].key);
        fprintf(f, ", %.17g]\n", s->rate[i].rate);
    }
}

static void print_claim(FILE *f, const struct qm_suite *s)
{
    fputs("claim: ", f);
    quoted(f, s->claim);
    fputs("\nclaim_source: ", f);
    quoted(f, s->claim_source ? s->claim_source : "");
    fputs(s->n_expects ? "\nexpect:\n" : "\n", f);
    for (int i = 0; i < s->n_expects; i++) {
        const struct qm_expect *e = &s->expect[i];
        fputs("  - {value: ", f);
        quoted(f, e->value);
        print_pairs(f, "of", e->of_key, e->of_label, e->n_of);
        print_pairs(f, "versus", &e->versus_key, &e->versus_label, e->versus_key ? 1 : 0);
        fputs(", unit: ", f);
        quoted(f, e->unit);
        fputs(", relation: ", f);
        quoted(f, e->relation_text);
        fputs("}\n", f);
    }
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
                fputs(strlen(v->label) > KEY_MOST ? "? " : "", f);
                quoted(f, v->label);
                fputs(": ", f);
            }
            quoted(f, v->text);
        }
        fputs("]\n", f);
    }
    word_list(f, "data", s->data, s->n_data);
    fprintf(f, "\nmin_numel: %lld\nmin_rank: %lld\n", (long long)s->min_numel,
            (long long)s->min_rank);
    if (s->every)
        fprintf(f, "every: %lld\n", (long long)s->every);
    if (s->paired)
        fprintf(f, "protocol: paired\nbudget: %lld\n", (long long)s->budget);
    if (s->delta > 0.0)
        fprintf(f, "delta: %.17g\n", s->delta);
    if (s->has_contrast)
        print_contrasts(f, s);
    if (s->has_rates)
        print_rates(f, s);
    else if (s->other_rates)
        fprintf(f, "rates: %s\n", s->other_rates);
    fputs(s->n_summaries ? "summary:\n" : "", f);
    for (int i = 0; i < s->n_summaries; i++)
        print_summary(f, &s->summary[i]);
    if (s->claim)
        print_claim(f, s);
    return fclose(f) == 0 ? QM_OK : qm_fail(QM_NO_MEMORY, "suite");
}
