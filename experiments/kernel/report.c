/* report.c - Prints the result of a kernel check as text or JSON. */
#include <gsl/gsl_sort.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/check/check_table.h"
#include "experiments/cli/cli.h"
#include "experiments/kernel/counts.h"
#include "experiments/kernel/kernel.h"

enum {
    SHOWN = 8,        /* failing cases printed one by one, without -v */
    COUNTS_SHOWN = 8, /* words of a coordinate, likewise */
    LINE = 90
};

static const char *const verdict_names[] = {
#define X(name) #name,
    QM_VERDICT_LIST(X)
#undef X
};

void qm_kernel_again(const struct qm_kernel_run *r, const struct qm_kernel_case *c, char *text,
                     size_t size)
{
    char one[QM_CASE_TEXT + 64] = "", as[QM_RECIPE_TEXT + 16] = "", form[32] = "", options[64];
    if (strchr(c->name, '/'))
        snprintf(one, sizeof one, " --case %s --seed %llu", c->name, (unsigned long long)c->seed);
    if (*r->recipe)
        snprintf(as, sizeof as, " --as '%s'", r->recipe);
    if (qm_kernel_is_cuda(r->o->file) && !r->forms.is_same && c->form != QM_FMADS)
        snprintf(form, sizeof form, " --fmad=%s", c->form == QM_FMAD_true ? "true" : "false");
    const struct qm_check_run on = qm_kernel_on(r->o);
    snprintf(text, size, "qualm check --kernel %s%s%s%s%s", r->o->file,
             qm_check_options(&on, options, sizeof options), as, form, one);
}

/* ---- speed and errors of two kernels --------------------------------------------------------- */

struct times {
    double least, median;
};

static struct times times_of(const json_t *list)
{
    size_t n = json_array_size(list), i;
    const json_t *item;
    double *all = malloc(sizeof *all * (n + 1));
    struct times t = {0.0, 0.0};
    if (all && n > 0) {
        json_array_foreach (list, i, item)
            all[i] = json_number_value(item);
        gsl_sort(all, 1, n);
        t = (struct times){all[0], n % 2 ? all[n / 2] : 0.5 * (all[n / 2 - 1] + all[n / 2])};
    }
    free(all);
    return t;
}

/* Relative RMSE over the steps; NaN where there are none. */
static double rms(double sum, int64_t steps)
{
    return steps > 0 ? sqrt(sum / (double)steps) : (double)NAN;
}

static json_t *compared_json(const struct qm_kernel_run *r)
{
    json_t *tensors = json_array(), *out = json_object();
    int slots = r->subject.recipe.rule ? r->subject.recipe.rule->n_slots : -1;
    for (int i = 0; i <= slots; i++) {
        const struct qm_kernel_compare_count *c = &r->compared[i < slots ? i : QM_MAX_SLOTS];
        double now = rms(c->error_new, c->steps), old = rms(c->error_old, c->steps);
        json_array_append_new(
            tensors, json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o}", "tensor",
                               i < slots ? r->subject.recipe.rule->slot[i] : "parameter",
                               "elements", (json_int_t)c->n, "codes_changed", (json_int_t)c->codes,
                               "scales_changed", (json_int_t)c->scales, "values_changed",
                               (json_int_t)c->values, "steps", (json_int_t)c->steps, "better",
                               (json_int_t)c->better, "worse", (json_int_t)c->worse, "rmse_new",
                               qm_json_number(now), "rmse_old", qm_json_number(old), "rmse_ratio",
                               qm_json_number(old > 0.0    ? now / old
                                              : now == old ? 1.0
                                                           : HUGE_VAL)));
    }
    json_object_set_new(out, "old", json_string(r->o->against));
    json_object_set_new(out, "tensors", tensors);
    if (*r->old_trouble)
        json_object_set_new(out, "old_fails", json_string(r->old_trouble));
    if (r->speed) {
        struct times now = times_of(json_object_get(r->speed, "new"));
        struct times old = times_of(json_object_get(r->speed, "old"));
        json_object_set_new(out, "speed",
                            json_pack("{s:I, s:I, s:f, s:f, s:f, s:f, s:o, s:o}", "elements",
                                      (json_int_t)r->speed_n, "rounds",
                                      (json_int_t)json_array_size(json_object_get(r->speed, "new")),
                                      "new_min", now.least, "new_median", now.median, "old_min",
                                      old.least, "old_median", old.median, "times_as_fast_min",
                                      qm_json_number(old.least / now.least), "times_as_fast_median",
                                      qm_json_number(old.median / now.median)));
    }
    return out;
}

/* ---- forms ----------------------------------------------------------------------------------- */

/* "contracted", "uncontracted", or "both" where they are the same code or QM_FMADS is asked for. */
static const char *form_name(const struct qm_kernel_run *r, enum qm_fmad form)
{
    return r->forms.is_same || form == QM_FMADS ? "both"
           : form == QM_FMAD_true               ? "contracted"
                                                : "uncontracted";
}

const char *qm_kernel_form(const struct qm_kernel_run *r, enum qm_fmad form, char *text,
                           size_t size)
{
    const char *name = form_name(r, form);
    *text = '\0';
    if (qm_kernel_is_cuda(r->o->file))
        snprintf(text, size, " (%s%s)", name, strcmp(name, "both") == 0 ? " forms" : "");
    return text;
}

/* Of a form; nothing judged is no pass. */
static const char *form_verdict(const struct qm_kernel_forms *f, int form)
{
    int ran = f->is_same ? QM_FMAD_true : form;
    return !f->has[form] || !f->judged[ran] ? "not judged" : f->bad[ran] ? "failed" : "passed";
}

static json_t *forms_json(const struct qm_kernel_run *r)
{
    const struct qm_kernel_forms *f = &r->forms;
    json_t *out = json_object();
    for (int i = 0; i < QM_FMADS; i++) {
        int64_t bad = f->bad[f->is_same ? QM_FMAD_true : i];
        json_object_set_new(out, i == QM_FMAD_true ? "contracted" : "uncontracted",
                            json_pack("{s:s, s:I}", "verdict", form_verdict(f, i), "failed_cases",
                                      (json_int_t)(f->has[i] ? bad : 0)));
    }
    json_object_set_new(out, "contraction_changes", json_string(f->lines));
    if (f->left_out)
        json_object_set_new(out, "left_out", json_string(f->left_out));
    return out;
}

/* Of a form, in words.  Where only all cases together fail, no form has passed. */
static const char *form_words(const struct qm_kernel_run *r, int form)
{
    const int64_t *bad = r->forms.bad;
    int only_together = qm_kernel_run_failed(r) && !bad[QM_FMAD_true] && !bad[QM_FMAD_false];
    return bad[form] ? "FAILED" : only_together ? "no case failed" : form_verdict(&r->forms, form);
}

/* Prints which forms of a .cu file were judged, and, where one alone fails, what contraction does
 * to it. */
static void print_forms(const struct qm_kernel_run *r)
{
    const struct qm_kernel_forms *f = &r->forms;
    int has_both = f->has[QM_FMAD_true] && f->has[QM_FMAD_false];
    if (f->left_out)
        qm_print("judged uncontracted (--fmad=false) alone: %s\n", f->left_out);
    else if (!has_both)
        qm_print("judged %s alone, as --fmad asks; nvcc and NVRTC contract by default\n",
                 qm_fmad_text(f->has[QM_FMAD_true] ? QM_FMAD_true : QM_FMAD_false));
    else if (f->is_same)
        qm_print(
            "the compiler contracts nothing in this kernel: --fmad=true and --fmad=false are the "
            "same code\n");
    else
        qm_print("judged %s, as nvcc and NVRTC compile by default: %s; %s: %s\n",
                 qm_fmad_text(QM_FMAD_true), form_words(r, QM_FMAD_true),
                 qm_fmad_text(QM_FMAD_false), form_words(r, QM_FMAD_false));
    if (f->bad[QM_FMAD_true] && f->judged[QM_FMAD_false] && !f->bad[QM_FMAD_false] && *f->lines) {
        char text[sizeof f->lines];
        snprintf(text, sizeof text, "%s", f->lines);
        qm_print("a product and a sum become one fused operation in\n");
        for (char *line, *rest = text; (line = strsep(&rest, "\n"));)
            qm_print("    %s\n", line);
        qm_print("    (__fmul_rn, __fadd_rn and __fsub_rn are never contracted)\n");
    }
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *failure(const struct qm_kernel_run *r, const struct qm_kernel_case *c)
{
    char again[QM_RECIPE_TEXT + 1024];
    qm_kernel_again(r, c, again, sizeof again);
    json_t *out =
        json_pack("{s:s, s:s, s:s, s:s}", "case", c->name, "result", qm_case_result_name(c->result),
                  "what", c->text ? c->text : "", "again", again);
    if (qm_kernel_is_cuda(r->o->file))
        json_object_set_new(out, "form", json_string(form_name(r, c->form)));
    return out;
}

int qm_kernel_general(const struct qm_kernel_run *r, int i, struct qm_kernel_case *c)
{
    const struct qm_finding *f = &r->tally.finding[i];
    const int *has = r->forms.has;
    if (strchr(f->name, '/'))
        return 0;
    *c = (struct qm_kernel_case){.result = QM_CASE_failed,
                                 .text = (char *)(uintptr_t)f->text,
                                 .form = has[QM_FMAD_true] && has[QM_FMAD_false] ? QM_FMADS
                                         : has[QM_FMAD_true]                     ? QM_FMAD_true
                                                                                 : QM_FMAD_false};
    snprintf(c->name, sizeof c->name, "%s", f->name);
    return 1;
}

/* Adds the findings that belong to no single case; returns how many. */
static int add_general(const struct qm_kernel_run *r, json_t *list)
{
    int n = 0;
    struct qm_kernel_case c;
    for (int i = 0; i < r->tally.n_findings; i++)
        if (qm_kernel_general(r, i, &c)) {
            json_array_append_new(list, failure(r, &c));
            n++;
        }
    return n;
}

static json_t *to_json(const struct qm_kernel_run *r)
{
    json_t *out = json_object(), *verdict = json_object(), *results = json_object();
    json_t *failures = json_array();
    const struct qm_tally *t = &r->tally;
    struct qm_check_run on = qm_kernel_on(r->o);
    on.seed = r->seed;
    int beside = add_general(r, failures);
    for (int i = 0; i < r->n_cases; i++)
        if (qm_case_result_is_bad(r->cases[i].result))
            json_array_append_new(failures, failure(r, &r->cases[i]));
    for (int i = 0; i < QM_VERDICT_COUNT; i++)
        json_object_set_new(verdict, verdict_names[i], json_integer((json_int_t)t->verdict[i]));
    for (int i = 0; i < QM_CASE_RESULT_COUNT; i++)
        json_object_set_new(results, qm_case_result_name((enum qm_case_result)i),
                            json_integer((json_int_t)r->count[i]));
    json_object_set_new(out, "kernel", json_string(r->o->file));
    json_object_set_new(out, "as", json_string(r->recipe));
    json_object_update_new(out, qm_check_head(&on, qm_kernel_run_passed(r)));
    json_object_set_new(out, "seconds", json_real(r->seconds));
    json_object_set_new(out, "interrupted", json_boolean(r->interrupted));
    json_object_set_new(out, "left_out", json_integer((json_int_t)r->left_out));
    json_object_set_new(out, "results", results);
    json_object_set_new(out, "beside_cases", json_integer(beside));
    const struct qm_rule *rule = r->subject.recipe.rule; /* NULL: the kernel was not loaded */
    json_t *draws = rule ? qm_draws_json(rule, t) : NULL;
    if (draws)
        json_object_set_new(out, "draws", draws);
    json_object_set_new(out, "judged", json_integer((json_int_t)t->judged));
    json_object_set_new(out, "verdicts", verdict);
    json_object_set_new(out, "deviations", json_integer((json_int_t)t->deviations));
    json_object_set_new(out, "unbounded", json_integer((json_int_t)t->unbounded));
    json_object_set_new(out, "worst_ratio", qm_json_number(t->worst_ratio));
    json_object_set_new(out, "worst_case", json_string(t->worst_case));
    json_object_set_new(out, "rmse", qm_rmse_json(t->rmse, r->subject.recipe.rule));
    json_object_set_new(out, "failures", failures);
    json_object_set_new(out, "failed", json_boolean(qm_kernel_run_failed(r)));
    json_object_set_new(out, "refused_as_the_template", json_integer((json_int_t)r->excused));
    json_object_set_new(out, "failed_by", qm_kernel_counts(r, 0));
    json_object_set_new(out, "refused_by", qm_kernel_counts(r, 1));
    if (r->covered)
        json_object_set(out, "coverage", r->covered);
    if (r->o->against)
        json_object_set_new(out, "against", compared_json(r));
    if (*r->not_far)
        json_object_set_new(out, "beyond_2_31", json_string(r->not_far));
    if (qm_kernel_is_cuda(r->o->file))
        json_object_set_new(out, "forms", forms_json(r));
    return out;
}

/* ---- text ------------------------------------------------------------------------------------ */

static const char *text_of(const json_t *from, const char *key)
{
    const char *text = json_string_value(json_object_get(from, key));
    return text ? text : "";
}

static long long whole(const json_t *from, const char *key)
{
    return (long long)json_integer_value(json_object_get(from, key));
}

static void put_number(struct qm_table *t, const json_t *from, const char *key)
{
    const json_t *x = json_object_get(from, key);
    if (json_is_number(x))
        qm_table_cell(t, "%.4g", json_number_value(x));
    else
        qm_table_cell(t, "-");
}

static const char *verdict_of(const json_t *all)
{
    int has_failed = json_is_true(json_object_get(all, "failed"));
    return has_failed                                          ? "FAILED"
           : !json_is_true(json_object_get(all, "passed"))     ? "nothing judged"
           : json_is_true(json_object_get(all, "interrupted")) ? "passed so far"
                                                               : "passed";
}

/* Adds "2 cases refused" to a list of reasons, or "1 case refused": what is the noun without its s,
 * more what follows it. */
static void add_reason(char *text, size_t size, long long n, const char *what, const char *more)
{
    size_t used = strlen(text);
    if (n > 0)
        snprintf(text + used, size - used, "%s%lld %s%s %s", used ? ", " : ": ", n, what,
                 n == 1 ? "" : "s", more);
}

/* Why it failed: bad cases, what no single case shows, numbers that are wrong in cases that did not
 * fail by themselves, and refusals; "" where it did not fail. */
static void print_reasons(const struct qm_kernel_run *r, const json_t *all)
{
    char text[512] = "", what[96];
    long long wrong = r->tally.verdict[QM_VERDICT_OFF_BY_ONE] + r->tally.verdict[QM_VERDICT_WRONG];
    long long refused = (long long)r->count[QM_CASE_refused] - (long long)r->excused;
    for (int i = 0; i < QM_CASE_RESULT_COUNT; i++) {
        enum qm_case_result is = (enum qm_case_result)i;
        add_reason(text, sizeof text, qm_case_result_is_bad(is) ? (long long)r->count[i] : 0,
                   "case", qm_case_result_name(is));
    }
    snprintf(what, sizeof what, "that no single case shows (%s)",
             text_of(json_array_get(json_object_get(all, "failures"), 0), "case"));
    add_reason(text, sizeof text, whole(all, "beside_cases"), "finding", what);
    if (!*text)
        add_reason(text, sizeof text, wrong, "number", "OFF_BY_ONE or WRONG");
    if (refused > r->o->allow_refused)
        add_reason(text, sizeof text, refused, "case", "refused that the variant takes");
    int is_idle = !qm_kernel_run_failed(r) && !qm_kernel_run_passed(r);
    if (is_idle) {
        *text = '\0';
        add_reason(text, sizeof text, (long long)r->count[QM_CASE_refused], "case", "refused");
        add_reason(text, sizeof text, (long long)r->count[QM_CASE_unfit], "case", "unfit");
        add_reason(text, sizeof text, (long long)r->left_out, "case", "left out");
        add_reason(text, sizeof text, (long long)r->count[QM_CASE_passed], "case",
                   "without a number that has a bound");
    }
    qm_print("%s\n", !is_idle && !qm_kernel_run_failed(r) ? ""
                     : *text                              ? text
                                                          : ": no case was run");
}

/* Prints the verdict and two rows: cases by their results, numbers by their verdicts. */
static void print_rows(const struct qm_kernel_run *r, const json_t *all)
{
    const char *heads[5 + QM_CASE_RESULT_COUNT + QM_VERDICT_COUNT] = {"cases"};
    const json_t *results = json_object_get(all, "results"),
                 *verdicts = json_object_get(all, "verdicts");
    int n = 1, shown[QM_CASE_RESULT_COUNT];
    long long cases = 0;
    qm_print("as %s: %s", *text_of(all, "as") ? text_of(all, "as") : "-", verdict_of(all));
    print_reasons(r, all);
    for (int i = 0; i < QM_CASE_RESULT_COUNT; i++) {
        const char *name = qm_case_result_name((enum qm_case_result)i);
        shown[i] = i == QM_CASE_passed || i == QM_CASE_failed || whole(results, name) > 0;
        cases += whole(results, name);
        if (shown[i])
            heads[n++] = name;
    }
    long long beside = whole(all, "beside_cases");
    if (beside > 0)
        heads[n++] = "beside cases";
    heads[n++] = "worst/bound";
    heads[n++] = "RMSE/f32";
    heads[n++] = "of states";
    struct qm_table *t = qm_table_open(n, heads);
    qm_table_cell(t, "%lld", cases);
    for (int i = 0; i < QM_CASE_RESULT_COUNT; i++)
        if (shown[i])
            qm_table_cell(t, "%lld", whole(results, qm_case_result_name((enum qm_case_result)i)));
    if (beside > 0)
        qm_table_cell(t, "%lld", beside);
    put_number(t, all, "worst_ratio");
    for (int slots = 0; slots < 2; slots++) {
        char ratio[32];
        qm_rmse_text(json_object_get(all, "rmse"), slots, ratio, sizeof ratio);
        qm_table_cell(t, "%s", ratio);
    }
    qm_table_close(t);
    heads[0] = "numbers";
    for (int i = 0; i < QM_VERDICT_COUNT; i++)
        heads[i + 1] = verdict_names[i];
    heads[QM_VERDICT_COUNT + 1] = "may overflow";
    t = qm_table_open(QM_VERDICT_COUNT + 2, heads);
    qm_table_cell(t, "%lld", whole(all, "judged"));
    for (int i = 0; i < QM_VERDICT_COUNT; i++)
        qm_table_cell(t, "%lld", whole(verdicts, verdict_names[i]));
    qm_table_cell(t, "%lld", whole(all, "unbounded"));
    qm_table_close(t);
}

static void print_compared(const json_t *v)
{
    static const char *const heads[] = {
        "tensor",   "elements", "codes changed", "scales changed", "values changed",
        "RMSE old", "RMSE new", "new/old",       "steps better",   "worse"};
    struct qm_table *t = qm_table_open(10, heads);
    const json_t *row, *speed = json_object_get(v, "speed");
    size_t i;
    json_array_foreach (json_object_get(v, "tensors"), i, row) {
        qm_table_cell(t, "%s", text_of(row, "tensor"));
        qm_table_cell(t, "%lld", whole(row, "elements"));
        qm_table_cell(t, "%lld", whole(row, "codes_changed"));
        qm_table_cell(t, "%lld", whole(row, "scales_changed"));
        qm_table_cell(t, "%lld", whole(row, "values_changed"));
        put_number(t, row, "rmse_old");
        put_number(t, row, "rmse_new");
        const json_t *ratio = json_object_get(row, "rmse_ratio");
        if (json_is_number(ratio))
            qm_table_cell(t, "%.6f", json_number_value(ratio));
        else
            qm_table_cell(t, "-");
        qm_table_cell(t, "%lld", whole(row, "better"));
        qm_table_cell(t, "%lld", whole(row, "worse"));
    }
    qm_print("against %s; RMSE: of one step from the same state, relative to the oracle's\n",
             text_of(v, "old"));
    qm_table_close(t);
    if (*text_of(v, "old_fails"))
        qm_print("the old kernel fails: %s\n", text_of(v, "old_fails"));
    if (speed)
        qm_print(
            "speed, %lld elements, %lld rounds in turn: min %.3f ms, was %.3f ms (%.2f times as "
            "fast); median %.3f ms, was %.3f ms (%.2f times)\n",
            whole(speed, "elements"), whole(speed, "rounds"),
            1e3 * json_number_value(json_object_get(speed, "new_min")),
            1e3 * json_number_value(json_object_get(speed, "old_min")),
            json_number_value(json_object_get(speed, "times_as_fast_min")),
            1e3 * json_number_value(json_object_get(speed, "new_median")),
            1e3 * json_number_value(json_object_get(speed, "old_median")),
            json_number_value(json_object_get(speed, "times_as_fast_median")));
}

/* Prints the draws of stochastic rounding over all cases, and what their test would see. */
static void print_draws(const json_t *all)
{
    const char *slot;
    json_t *one;
    json_object_foreach (json_object_get(all, "draws"), slot, one) {
        const json_t *least = json_object_get(one, "detectable_bias");
        char bias[64] = "too few for a test";
        if (json_is_number(least))
            snprintf(bias, sizeof bias, "a bias from %.2g on is seen", json_number_value(least));
        qm_print("stochastic rounding of %s: %lld draws, %s: %s\n", slot, whole(one, "draws"), bias,
                 json_is_true(json_object_get(one, "failed")) ? "FAILED" : "passed");
    }
}

/* Prints "failed by class    exact 9 of 20, ..." for each coordinate. */
static void print_counts(const json_t *all, const char *what)
{
    char key[32];
    const char *axis;
    json_t *counts;
    snprintf(key, sizeof key, "%s_by", what);
    json_object_foreach (json_object_get(all, key), axis, counts) {
        size_t i, column = 0;
        json_t *one;
        qm_print("%s by %-8s", what, axis);
        json_array_foreach (counts, i, one) {
            char text[96];
            long long of = whole(one, "of");
            if (i == COUNTS_SHOWN && !qm_cli.verbose) {
                qm_print(", and %zu more", json_array_size(counts) - i);
                break;
            }
            size_t n = (size_t)snprintf(text, sizeof text, "%s %lld", text_of(one, "name"),
                                        whole(one, "cases"));
            if (of > 0)
                n += (size_t)snprintf(text + n, sizeof text - n, " of %lld", of);
            qm_print("%s%s",
                     i == 0              ? " "
                     : column + n > LINE ? ",\n                    "
                                         : ", ",
                     text);
            column = column + n > LINE ? n : column + n + 2;
        }
        putc('\n', qm_out());
    }
}

static void print_refused(const struct qm_kernel_run *r, const json_t *all)
{
    for (int i = 0; i < r->n_cases; i++)
        if (r->cases[i].result == QM_CASE_refused) {
            print_counts(all, "refused");
            long long n = (long long)r->count[QM_CASE_refused];
            qm_print("refused %lld case%s: the shipped template of this variant, if it has one, "
                     "refuses %lld, "
                     "--allow-refused permits %lld; %s: %s\n",
                     n, n == 1 ? "" : "s", (long long)r->excused, (long long)r->o->allow_refused,
                     r->cases[i].name, r->cases[i].text ? r->cases[i].text : "");
            return;
        }
}

/* Prints why the judge asked some cases of no kernel; a large one has a line of its own. */
static void print_unfit(const struct qm_kernel_run *r)
{
    for (int i = 0; i < r->n_cases; i++)
        if (r->cases[i].result == QM_CASE_unfit && r->cases[i].text &&
            !strstr(r->cases[i].name, "/far")) {
            long long n = (long long)r->count[QM_CASE_unfit];
            qm_print("unfit %lld case%s, which no kernel of this variant is asked for; %s: %s\n", n,
                     n == 1 ? "" : "s", r->cases[i].name, r->cases[i].text);
            return;
        }
}

/* Whether two failures in turn are of one case whose two forms fail alike. */
static int fail_alike(const json_t *f, const json_t *next)
{
    static const char *const same[] = {"case", "result", "what"};
    int is_alike = strcmp(text_of(f, "form"), "contracted") == 0 &&
                   strcmp(text_of(next, "form"), "uncontracted") == 0;
    for (size_t i = 0; is_alike && i < sizeof same / sizeof *same; i++)
        is_alike = strcmp(text_of(f, same[i]), text_of(next, same[i])) == 0;
    return is_alike;
}

/* Prints the failures; of a .cu file with the form, and once where both forms fail alike. */
static void print_failures(const json_t *failures)
{
    static const char option[] = " --fmad=true"; /* of the contracted form, in "again" */
    size_t n = json_array_size(failures), shown = 0, left = 0;
    for (size_t i = 0; i < n; i++) {
        const json_t *f = json_array_get(failures, i);
        int is_twice = fail_alike(f, json_array_get(failures, i + 1)); /* NULL after the last */
        const char *form = is_twice ? "both" : text_of(f, "form"), *again = text_of(f, "again");
        const char *cut = is_twice ? strstr(again, option) : NULL;
        i += (size_t)is_twice;
        if (shown == SHOWN && !qm_cli.verbose) {
            left++;
            continue;
        }
        shown++;
        qm_print("FAILED %s %s%s%s%s: %s\n       again: %.*s%s\n", text_of(f, "case"),
                 text_of(f, "result"), *form ? " (" : "", form,
                 !*form                      ? ""
                 : strcmp(form, "both") == 0 ? " forms)"
                                             : ")",
                 text_of(f, "what"), cut ? (int)(cut - again) : (int)strlen(again), again,
                 cut ? cut + sizeof option - 1 : "");
    }
    if (left)
        qm_print("FAILED: %zu more cases (-v prints them)\n", left);
}

void qm_kernel_report(const struct qm_kernel_run *r)
{
    json_t *all = to_json(r);
    if (qm_cli.json) {
        qm_json_print(all);
        return;
    }
    print_rows(r, all);
    print_draws(all);
    if (qm_kernel_is_cuda(r->o->file))
        print_forms(r);
    print_counts(all, "failed");
    print_failures(json_object_get(all, "failures"));
    print_refused(r, all);
    print_unfit(r);
    if (*r->not_far)
        qm_print("not judged: indices beyond 2^31 (%s)\n", r->not_far);
    if (r->covered)
        qm_coverage_print(r->covered, r->recipe);
    if (r->hangs >= QM_HANGS)
        qm_print("stopped: %d cases hung\n", r->hangs);
    if (r->left_out)
        qm_print("left out: %lld cases\n", (long long)r->left_out);
    if (r->interrupted)
        qm_print("interrupted\n");
    if (r->o->against)
        print_compared(json_object_get(all, "against"));
    qm_print("seed %llu%s\n", (unsigned long long)r->seed,
             r->o->forever ? ", raised by one with each case" : "");
    json_decref(all);
}
