/* check_table.c - The result of a checked recipe as JSON, and the table of all of them. */
#include "experiments/check/check_table.h"

#include <math.h>
#include <string.h>

#include "core/device/device_cuda.h"
#include "experiments/check/coverage.h"
#include "experiments/cli/cli.h"

static int has_modes(const struct qm_check_run *run)
{
    return strcmp(run->backend, "cuda") == 0 || strcmp(run->backend, "emu") == 0;
}

static const char *mode_of(const struct qm_check_run *run)
{
    return run->mode == QM_MODE_fast ? "fast" : "exact";
}

const char *qm_check_options(const struct qm_check_run *run, char *text, size_t size)
{
    *text = '\0';
    if (has_modes(run))
        snprintf(text, size, " --backend %s%s", run->backend,
                 run->mode == QM_MODE_fast ? " --mode fast" : "");
    return text;
}

qm_status qm_check_unload(const struct qm_backend *backend)
{
    return backend == &qm_backend_cuda ? qm_cuda_unload_idle() : QM_OK;
}

json_t *qm_check_head(const struct qm_check_run *run, int passed)
{
    return json_pack("{s:I, s:s, s:s*, s:b}", "seed", (json_int_t)run->seed, "backend",
                     run->backend, "mode", has_modes(run) ? mode_of(run) : NULL, "passed", passed);
}

void qm_check_end(const struct qm_check_run *run)
{
    qm_print("seed %llu, backend %s", (unsigned long long)run->seed, run->backend);
    if (has_modes(run))
        qm_print(", mode %s", mode_of(run));
    qm_print("\n");
}

/* The failed cases, with the commands that repeat them. */
static json_t *findings(const char *recipe, const struct qm_tally *t,
                        const struct qm_check_run *run)
{
    char on[64];
    json_t *all = json_array();
    for (int i = 0; i < t->n_findings; i++) {
        const struct qm_finding *f = &t->finding[i];
        char again[QM_RECIPE_TEXT + 3 * QM_CASE_TEXT], part[QM_CASE_TEXT + 16] = "";
        if (strchr(f->name, '/'))
            snprintf(part, sizeof part, " --case %s", f->name);
        snprintf(again, sizeof again, "qualm check '%s'%s%s --seed %llu", recipe,
                 qm_check_options(run, on, sizeof on), part, (unsigned long long)run->seed);
        json_array_append_new(
            all, json_pack("{s:s, s:s, s:s}", "case", f->name, "what", f->text, "again", again));
    }
    return all;
}

/* 1: a rate of this slot's draws is a finding. */
static int has_failed(const struct qm_tally *t, const char *slot)
{
    size_t n = strlen(slot);
    int is = 0;
    for (int i = 0; i < t->n_findings; i++)
        is |= strcmp(t->finding[i].name, QM_RATES_NAME) == 0 &&
              strncmp(t->finding[i].text, slot, n) == 0 && t->finding[i].text[n] == ':';
    return is;
}

json_t *qm_draws_json(const struct qm_rule *rule, const struct qm_tally *t)
{
    json_t *out = NULL;
    for (int i = 0; i <= QM_MAX_SLOTS; i++) {
        const char *what = i < rule->n_slots ? rule->slot[i] : "parameter";
        double n = t->stoch_n[2 * i] + t->stoch_n[2 * i + 1] + t->still_n[i];
        if (n == 0.0)
            continue;
        out = out ? out : json_object();
        json_object_set_new(out, what,
                            json_pack("{s:I, s:o, s:b}", "draws", (json_int_t)n, "detectable_bias",
                                      qm_json_number(qm_tally_detectable(t, i)), "failed",
                                      has_failed(t, what)));
    }
    return out;
}

json_t *qm_check_row(const struct qm_rule *rule, const char *recipe, const struct qm_tally *t,
                     const struct qm_check_run *run, json_t *coverage)
{
    return json_pack(
        "{s:s, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:s, s:s, s:o, "
        "s:o, s:o*, s:o*}",
        "variant", recipe, "passed", qm_tally_passed(t), "cases", (json_int_t)t->cases, "skipped",
        (json_int_t)t->skipped, "judged", (json_int_t)t->judged, "equal",
        (json_int_t)t->verdict[QM_VERDICT_EQUAL], "within_bound",
        (json_int_t)t->verdict[QM_VERDICT_WITHIN_BOUND], "boundary",
        (json_int_t)t->verdict[QM_VERDICT_BOUNDARY], "off_by_one",
        (json_int_t)t->verdict[QM_VERDICT_OFF_BY_ONE], "wrong",
        (json_int_t)t->verdict[QM_VERDICT_WRONG], "deviations", (json_int_t)t->deviations,
        "unbounded", (json_int_t)t->unbounded, "failed_cases", (json_int_t)t->failed_cases,
        "worst_ratio", qm_json_number(t->worst_ratio), "worst_case", t->worst_case, "worst",
        t->worst_what, "rmse", qm_rmse_json(t->rmse, rule), "failures", findings(recipe, t, run),
        "coverage", coverage, "draws", qm_draws_json(rule, t));
}

/* Members of a JSON object. */
static long long whole(json_t *from, const char *key)
{
    return (long long)json_integer_value(json_object_get(from, key));
}

static const char *text_of(json_t *from, const char *key)
{
    return json_string_value(json_object_get(from, key));
}

/* The pairs of bins of all rows together. */
static void print_all_coverage(json_t *rows)
{
    long long pairs = 0, reachable = 0;
    json_t *r;
    size_t i;
    json_array_foreach (rows, i, r) {
        pairs += whole(json_object_get(r, "coverage"), "pairs");
        reachable += whole(json_object_get(r, "coverage"), "reachable");
    }
    if (reachable)
        qm_print(
            "coverage: %lld of %lld pairs of bins (%lld %%); -v has it for each variant, --json "
            "for each coordinate and pair\n",
            pairs, reachable, 100 * pairs / reachable);
}

/* Which bias of stochastic rounding would have been found. */
static void print_draws(json_t *row)
{
    const char *what;
    json_t *one;
    json_object_foreach (json_object_get(row, "draws"), what, one) {
        double bias = json_number_value(json_object_get(one, "detectable_bias"));
        qm_print("%s: %s: %lld draws of stochastic rounding; ", text_of(row, "variant"), what,
                 whole(one, "draws"));
        if (bias > 0.0)
            qm_print("a bias of 2^%.1f would have been found\n", log2(bias));
        else
            qm_print("too few to find a bias\n");
    }
}

void qm_check_print(json_t *rows)
{
    static const char *const heads[] = {"variant",      "cases",        "judged",      "EQUAL",
                                        "WITHIN_BOUND", "BOUNDARY",     "OFF_BY_ONE",  "WRONG",
                                        "by ladder",    "may overflow", "worst/bound", "worst case",
                                        "RMSE/f32",     "of states",    "verdict"};
    struct qm_table *t = qm_table_open(15, heads);
    json_t *r, *f;
    size_t i, k;
    json_array_foreach (rows, i, r) {
        static const char *const counts[] = {"cases",        "judged",     "equal",
                                             "within_bound", "boundary",   "off_by_one",
                                             "wrong",        "deviations", "unbounded"};
        qm_table_cell(t, "%s", text_of(r, "variant"));
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
            qm_table_cell(t, "%lld", whole(r, counts[c]));
        qm_table_cell(t, "%.3f", json_real_value(json_object_get(r, "worst_ratio")));
        qm_table_cell(t, "%s", *text_of(r, "worst_case") ? text_of(r, "worst_case") : "-");
        for (int slots = 0; slots < 2; slots++) {
            char ratio[32];
            qm_rmse_text(json_object_get(r, "rmse"), slots, ratio, sizeof ratio);
            qm_table_cell(t, "%s", ratio);
        }
        qm_table_cell(t, "%s",
                      json_is_true(json_object_get(r, "passed")) ? "passed"
                      : whole(r, "failed_cases") > 0             ? "FAILED"
                                                                 : "not judged");
    }
    qm_table_close(t);
    json_array_foreach (rows, i, r) {
        json_t *list = json_object_get(r, "failures");
        json_array_foreach (list, k, f)
            qm_print("FAILED %s %s: %s\n       again: %s\n", text_of(r, "variant"),
                     text_of(f, "case"), text_of(f, "what"), text_of(f, "again"));
        if (whole(r, "judged") == 0 && whole(r, "failed_cases") == 0)
            qm_print("not judged %s: no number of these cases has a bound, as where a tensor is "
                     "empty\n",
                     text_of(r, "variant"));
        long long more = whole(r, "failed_cases") - (long long)json_array_size(list);
        if (more > 0)
            qm_print("FAILED %s: %lld more cases\n", text_of(r, "variant"), more);
    }
    json_array_foreach (rows, i, r) {
        if (json_object_get(r, "coverage") && (json_array_size(rows) == 1 || qm_cli.verbose))
            qm_coverage_print(json_object_get(r, "coverage"), text_of(r, "variant"));
    }
    if (json_array_size(rows) > 1)
        print_all_coverage(rows);
    json_array_foreach (rows, i, r) {
        print_draws(r);
    }
}

void qm_check_print_skipped(json_t *skipped)
{
    json_t *r;
    size_t i;
    json_array_foreach (skipped, i, r)
        qm_print("skipped %s: %s\n", text_of(r, "variant"), text_of(r, "reason"));
}

json_t *qm_check_cases(const struct qm_recipes *recipes, const struct qm_backend *backend,
                       int stride, int draws, uint64_t seed)
{
    json_t *all = json_array();
    char name[QM_CASE_TEXT];
    for (int i = 0; i < qm_case_count(); i += stride) {
        struct qm_case c = qm_case_at(i);
        qm_case_print(&c, name);
        json_array_append_new(all, json_string(name));
    }
    for (int k = 0; k < recipes->n; k++) {
        struct qm_domain d;
        qm_domain_of(&recipes->recipe[k], backend, &d);
        for (int i = 0; i < draws; i++) {
            struct qm_case c = qm_domain_draw(&d, seed, i);
            qm_case_print(&c, name);
            json_array_append_new(all, json_string(name));
        }
    }
    return all;
}
