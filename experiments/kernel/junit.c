/* junit.c - Writes a kernel check as JUnit XML. */
#include <stdlib.h>
#include <string.h>

#include "experiments/kernel/kernel.h"
#include "experiments/store/atomic_file.h"

/* Writes text within a quoted attribute: escapes reserved characters, replaces others by '?' where
 * they are not printable ASCII. */
static void put_text(FILE *f, const char *text)
{
    for (; text && *text; text++) {
        unsigned char c = (unsigned char)*text;
        switch (c) {
        case '&': fputs("&amp;", f); break;
        case '<': fputs("&lt;", f); break;
        case '>': fputs("&gt;", f); break;
        case '"': fputs("&quot;", f); break;
        default: fputc(c < 0x20 || c >= 0x7f ? '?' : c, f);
        }
    }
}

static void put_attribute(FILE *f, const char *name, const char *text)
{
    fprintf(f, " %s=\"", name);
    put_text(f, text);
    fputc('"', f);
}

/* nth: of the cases with this name, from 1. */
static void put_case(FILE *f, const struct qm_kernel_run *r, const struct qm_kernel_case *c,
                     int nth)
{
    char again[QM_RECIPE_TEXT + 1024], name[sizeof c->name + 64], form[32], more[16] = "";
    fputs("  <testcase", f);
    put_attribute(f, "classname", *r->recipe ? r->recipe : "kernel");
    if (nth > 1)
        snprintf(more, sizeof more, " %d", nth);
    snprintf(name, sizeof name, "%s%s%s", c->name, qm_kernel_form(r, c->form, form, sizeof form),
             more);
    put_attribute(f, "name", name);
    fprintf(f, " time=\"%.6f\"", c->seconds);
    if (c->result == QM_CASE_passed) {
        fputs("/>\n", f);
        return;
    }
    int is_bad = qm_case_result_is_bad(c->result);
    int is_error = is_bad && c->result != QM_CASE_failed;
    fprintf(f, ">\n    <%s", is_error ? "error" : is_bad ? "failure" : "skipped");
    if (is_bad)
        put_attribute(f, "type", qm_case_result_name(c->result));
    put_attribute(f, "message", c->text ? c->text : "this shape does not fit the quantizer");
    fputs(">", f);
    qm_kernel_again(r, c, again, sizeof again);
    if (is_bad)
        put_text(f, again);
    fprintf(f, "</%s>\n  </testcase>\n", is_error ? "error" : is_bad ? "failure" : "skipped");
}

static int by_name(const void *a, const void *b)
{
    const struct qm_kernel_case *x = *(struct qm_kernel_case *const *)a;
    const struct qm_kernel_case *y = *(struct qm_kernel_case *const *)b;
    int names = strcmp(x->name, y->name);
    return names                ? names
           : x->form != y->form ? (x->form > y->form) - (x->form < y->form)
                                : (x > y) - (x < y);
}

/* Which of the cases with its name and form each is, from 1 (a draw can come again, and "after the
 * last case" is one for each process); NULL: no memory. */
static int *numbers_of(const struct qm_kernel_run *r)
{
    const struct qm_kernel_case *c = r->cases, *last = NULL;
    const struct qm_kernel_case **sorted = calloc((size_t)r->n_cases + 1, sizeof *sorted);
    int *nth = calloc((size_t)r->n_cases + 1, sizeof *nth);
    for (int i = 0; sorted && i < r->n_cases; i++)
        sorted[i] = &c[i];
    if (sorted)
        qsort(sorted, (size_t)r->n_cases, sizeof *sorted, by_name);
    for (int i = 0; sorted && nth && i < r->n_cases; i++) {
        const struct qm_kernel_case *x = sorted[i];
        int again = last && x->form == last->form && strcmp(x->name, last->name) == 0;
        nth[x - c] = again ? nth[last - c] + 1 : 1;
        last = x;
    }
    if (!sorted) {
        free(nth);
        nth = NULL;
    }
    free(sorted);
    return nth;
}

static void put_all(FILE *f, const struct qm_kernel_run *r, const int *nth, const char *broken)
{
    int64_t tests = broken != NULL, failures = r->count[QM_CASE_failed], errors = tests,
            skipped = 0;
    struct qm_kernel_case c;
    for (int i = 0; i < r->n_cases; i++) {
        enum qm_case_result is = r->cases[i].result;
        tests++;
        errors += qm_case_result_is_bad(is) && is != QM_CASE_failed;
        skipped += is == QM_CASE_refused || is == QM_CASE_unfit;
    }
    for (int i = 0; i < r->tally.n_findings; i++)
        if (qm_kernel_general(r, i, &c))
            tests++, failures++;
    fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n<testsuite", f);
    put_attribute(f, "name", r->o->file);
    fprintf(
        f, " tests=\"%lld\" failures=\"%lld\" errors=\"%lld\" skipped=\"%lld\" time=\"%.3f\">\n",
        (long long)tests, (long long)failures, (long long)errors, (long long)skipped, r->seconds);
    fprintf(f, "  <properties><property name=\"seed\" value=\"%llu\"/></properties>\n",
            (unsigned long long)r->seed);
    for (int i = 0; i < r->tally.n_findings; i++) {
        const struct qm_finding *all = r->tally.finding;
        int again = 1;
        for (int k = 0; k < i; k++)
            again += strcmp(all[k].name, all[i].name) == 0;
        if (qm_kernel_general(r, i, &c))
            put_case(f, r, &c, again);
    }
    for (int i = 0; i < r->n_cases; i++)
        put_case(f, r, &r->cases[i], nth[i]);
    if (broken) {
        fputs("  <testcase classname=\"kernel\" name=\"build\" time=\"0\">\n    <error "
              "type=\"build\"",
              f);
        put_attribute(f, "message", broken);
        fputs("/>\n  </testcase>\n", f);
    }
    fputs("</testsuite>\n</testsuites>\n", f);
}

qm_status qm_kernel_junit(const struct qm_kernel_run *r, const char *path, const char *broken)
{
    struct qm_atomic_file part;
    char *text = NULL;
    size_t size = 0;
    int *nth = numbers_of(r);
    FILE *f = nth ? open_memstream(&text, &size) : NULL;
    if (!f) {
        free(nth);
        return qm_fail(QM_NO_MEMORY, "%s", path);
    }
    put_all(f, r, nth, broken);
    free(nth);
    int bad = fclose(f) != 0;
    qm_status st = bad ? qm_fail(QM_NO_MEMORY, "%s", path) : qm_atomic_file_open(path, &part);
    if (st == QM_OK) {
        st = qm_atomic_file_write(&part, text, size);
        if (st == QM_OK)
            st = qm_atomic_file_commit(&part);
        qm_atomic_file_abort(&part);
    }
    free(text);
    return st;
}
