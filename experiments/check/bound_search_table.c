/* bound_search_table.c - Searches recipes or a kernel with every format of their states, and prints
 * the largest ratios. */
#include "experiments/check/bound_search_table.h"
#include "core/base/interrupt.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/user_kernel/backend_file.h"
#include "experiments/check/bound_search.h"
#include "experiments/cli/cli.h"

static json_t *row(const char *recipe, const char *states, const struct qm_bound_search_found *f)
{
    int failed = f->ratio > 1.0 || *f->failure;
    const char *verdict = f->steps == 0 ? "refused" : failed ? "FAILED" : "passed";
    return json_pack("{s:s, s:s, s:s, s:I, s:o, s:s, s:s, s:s}", "variant", recipe, "states",
                     states, "verdict", verdict, "steps", (json_int_t)f->steps, "ratio",
                     qm_json_number(f->ratio), "start", f->start, "what", f->what, "failure",
                     f->failure);
}

/* Appends a row per format of the states of one subject; those that change nothing are left out. */
static qm_status search(const struct qm_subject *s, const char *name, double seconds, uint64_t seed,
                        json_t *rows)
{
    for (int states = 0; states < QM_BOUND_STATES_COUNT; states++) {
        struct qm_bound_search_found f;
        qm_status st = qm_bound_search(s, (enum qm_bound_states)states,
                                       seconds / QM_BOUND_STATES_COUNT, seed, &f);
        if (st == QM_SKIPPED)
            continue;
        QM_TRY(st);
        json_array_append_new(rows, row(name, qm_bound_states_names[states], &f));
    }
    return QM_OK;
}

static qm_status search_recipes(const struct qm_bound_search_job *job, json_t *rows)
{
    struct qm_progress progress;
    qm_progress_start(&progress, "search", job->recipes->n);
    for (int i = 0; i < job->recipes->n; i++) {
        struct qm_subject s = {
            .backend = job->backend, .recipe = job->recipes->recipe[i], .reorder = job->reorder};
        char name[QM_RECIPE_TEXT];
        qm_recipe_print(&s.recipe, name);
        QM_TRY(search(&s, name, job->seconds / job->recipes->n, job->run.seed, rows));
        QM_TRY(qm_check_unload(s.backend));
        qm_progress_add(&progress, 1, 0);
    }
    qm_progress_end(&progress);
    return QM_OK;
}

/* ---- a kernel -------------------------------------------------------------------------------- */

/* In a child process: the rows of the kernel, or an error, as JSON on `out`. */
static void search_kernel(const struct qm_bound_search_job *job, const char *object, FILE *out)
{
    static struct qm_subject s = {.backend = &qm_backend_file};
    struct qm_kernel_file *kernel;
    char name[QM_RECIPE_TEXT];
    json_t *rows = json_array(), *reply;
    s.reorder = job->reorder;
    qm_status st = qm_kernel_file_open(object, &kernel);
    const char *as = st != QM_OK || job->as ? job->as : qm_kernel_file_as(kernel);
    if (st == QM_OK && !as)
        st = qm_fail(QM_BAD_ARG, "the kernel does not say which variant it is; give --as");
    if (st == QM_OK)
        st = qm_recipe_parse(as, &s.recipe);
    if (st == QM_OK) {
        qm_kernel_file_use(kernel);
        st = search(&s, qm_recipe_print(&s.recipe, name), job->seconds, job->run.seed, rows);
    }
    reply = json_pack("{s:s, s:i, s:o}", "error", st == QM_OK ? "" : qm_message(), "status",
                      (int)st, "rows", rows);
    json_dumpf(reply, out, JSON_COMPACT);
    json_decref(reply);
}

/* The kernel is no part of this process: it may crash or hang. */
static qm_status in_child(const struct qm_bound_search_job *job, const char *object, json_t *rows)
{
    int ends[2], how = 0;
    if (pipe(ends) != 0)
        return qm_fail(QM_INTERNAL, "no pipe");
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        FILE *out = fdopen(ends[1], "w");
        close(ends[0]);
        alarm((unsigned)job->seconds + 60);
        if (out)
            search_kernel(job, object, out);
        if (out)
            fclose(out);
        _exit(0);
    }
    close(ends[1]);
    FILE *in = fdopen(ends[0], "r");
    json_t *reply = in && child > 0 ? json_loadf(in, 0, NULL) : NULL;
    if (in)
        fclose(in);
    if (child > 0)
        waitpid(child, &how, 0);
    if (!reply)
        return qm_fail(QM_CHECK_FAILED,
                       "the kernel ended the search: %s; `qualm check --kernel` "
                       "says more",
                       WIFSIGNALED(how) ? strsignal(WTERMSIG(how)) : "it left the process");
    qm_status st = (qm_status)json_integer_value(json_object_get(reply, "status"));
    if (st != QM_OK)
        (void)qm_fail(st, "%s", json_string_value(json_object_get(reply, "error")));
    json_array_extend(rows, json_object_get(reply, "rows"));
    json_decref(reply);
    return st;
}

static qm_status search_file(const struct qm_bound_search_job *job, json_t *rows)
{
    static const char *const made[] = {"kernel.so", "kernel_abi.h", "kernel_nearest.h"};
    char folder[256], object[PATH_MAX], path[PATH_MAX];
    size_t n = strlen(job->kernel);
    if (n > 3 && strcmp(job->kernel + n - 3, ".so") == 0)
        return in_child(job, job->kernel, rows);
    if (!qm_interrupt_folder(folder, sizeof folder, "search"))
        return qm_fail(QM_INTERNAL, "no temporary folder");
    qm_status st = qm_kernel_file_build(job->kernel, folder, object, sizeof object);
    if (st == QM_OK)
        st = in_child(job, object, rows);
    unlink(object);
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, made[i]);
        unlink(path);
    }
    rmdir(folder);
    qm_interrupt_forget(folder);
    return st;
}

/* ---- text ------------------------------------------------------------------------------------ */

static const char *text_of(json_t *r, const char *key)
{
    return json_string_value(json_object_get(r, key));
}

static int is(json_t *r, const char *verdict)
{
    return strcmp(text_of(r, "verdict"), verdict) == 0;
}

static void print(json_t *rows)
{
    static const char *const heads[] = {"variant",     "states", "steps judged",
                                        "error/bound", "from",   "verdict"};
    struct qm_table *t = qm_table_open(6, heads);
    json_t *r;
    size_t i;
    json_array_foreach (rows, i, r) {
        double ratio = json_real_value(json_object_get(r, "ratio"));
        qm_table_cell(t, "%s", text_of(r, "variant"));
        qm_table_cell(t, "%s", text_of(r, "states"));
        qm_table_cell(t, "%lld", (long long)json_integer_value(json_object_get(r, "steps")));
        if (ratio > 0.0)
            qm_table_cell(t, "%.3f", ratio);
        else
            qm_table_cell(t, "-");
        qm_table_cell(t, "%s", *text_of(r, "start") ? text_of(r, "start") : "-");
        qm_table_cell(t, "%s", text_of(r, "verdict"));
    }
    qm_table_close(t);
    json_array_foreach (rows, i, r)
        if (is(r, "FAILED"))
            qm_print("FAILED %s, states %s: %s\n", text_of(r, "variant"), text_of(r, "states"),
                     *text_of(r, "failure") ? text_of(r, "failure") : text_of(r, "what"));
}

int qm_bound_search_print(const struct qm_bound_search_job *job)
{
    json_t *rows = json_array(), *r;
    size_t i;
    int failed = 0, judged = 0;
    qm_status st = job->kernel ? search_file(job, rows) : search_recipes(job, rows);
    json_array_foreach (rows, i, r)
        judged += !is(r, "refused");
    if (st == QM_OK && !judged)
        st = qm_fail(QM_SKIPPED, "nothing was judged: every input was refused");
    if (st != QM_OK) {
        json_decref(rows);
        return qm_cli_failed("check --search", st);
    }
    json_array_foreach (rows, i, r)
        failed |= is(r, "FAILED");
    if (qm_cli.json) {
        json_t *all = qm_check_head(&job->run, !failed);
        json_object_set_new(all, "searches", rows);
        if (job->skipped)
            json_object_set(all, "skipped", job->skipped);
        qm_json_print(all);
    } else {
        print(rows);
        qm_check_print_skipped(job->skipped);
        qm_check_end(&job->run);
        json_decref(rows);
    }
    return failed ? qm_exit_code(QM_CHECK_FAILED) : 0;
}
