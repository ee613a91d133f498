/* gpu_run.c - Starts measuring processes, records how each row ended, writes the report as rows
 * come. */
#include "experiments/gpu/gpu_run.h"
#include "core/base/clock.h"

#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/gpu/bench.h"

enum { MOST_FAILURES = 2, PEER_FACTOR = 3 };

static const double FLUSH = 0.5, GRACE = 2.0; /* seconds */

/* The end of the run by the clock of qm_seconds. */
static double end_of(const struct qm_gpu_run *run)
{
    return run->seconds > 0.0 ? run->started + run->seconds : 1e300;
}

static int is_over(const struct qm_gpu_run *run)
{
    return (run->stop && *run->stop) || qm_seconds() >= end_of(run);
}

double qm_gpu_run_left(const struct qm_gpu_run *run, double most)
{
    double left = end_of(run) - qm_seconds();
    return left < 0.0 ? 0.0 : left < most ? left : most;
}

double qm_gpu_nvml_limit(const struct qm_gpu_run *run)
{
    double limit, quarter = 0.25 * run->options.limit;
    if (qm_cuda_limit(&limit) != QM_OK || limit > 5.0)
        limit = 5.0;
    return limit < quarter ? limit : quarter;
}

/* Waits for the process that describes the GPU, at most `wait` seconds; late: it was, or a call in
 * it took longer than call_limit. */
static enum qm_gpu_wait await_device(struct qm_gpu_child *c, const struct qm_gpu_run *run,
                                     double wait, double call_limit, json_t **value)
{
    struct qm_cuda_watch watch = {{0}, {0}};
    char call[QM_CUDA_CALL_NAME];
    const double tick = 0.05;
    double last = qm_seconds(), until = last + wait;
    enum qm_gpu_wait end = QM_GPU_WAIT_late;
    while (end == QM_GPU_WAIT_late && last < until) {
        double left = until - last;
        end = qm_gpu_child_wait(c, last + (left < tick ? left : tick), run->stop, value);
        double now = qm_seconds(), passed = now - last < tick ? now - last : tick;
        last = now;
        if (qm_cuda_calls_late(c->calls, &watch, passed, call_limit + tick, call))
            break;
    }
    if (end == QM_GPU_WAIT_ended) /* its last breath is not to be cut off */
        end = qm_gpu_child_wait(c, qm_seconds() + 0.2, run->stop, value);
    return end;
}

qm_status qm_gpu_describe(struct qm_gpu_run *run, json_t **device)
{
    struct qm_gpu_child c;
    json_t *value = NULL;
    char how[200] = "";
    const char *error;
    double wait = qm_gpu_run_left(run, run->options.limit), limit;
    QM_TRY(qm_cuda_limit(&limit));
    QM_TRY(qm_gpu_child_start(&c, qm_gpu_measure_device, run));
    enum qm_gpu_wait end = await_device(&c, run, wait, limit, &value);
    int is_over = qm_gpu_run_left(run, 1.0) <= 0.0;
    qm_gpu_child_end(&c, how, sizeof how);
    if (end == QM_GPU_WAIT_stopped)
        return qm_fail(QM_INTERRUPTED, "interrupted before anything was measured");
    if (end == QM_GPU_WAIT_late && is_over)
        return qm_fail(QM_INTERRUPTED,
                       "the time (--seconds %g) was over before the GPU had answered: %s",
                       run->seconds, how);
    if (end != QM_GPU_WAIT_line)
        return qm_fail(QM_INTERNAL, "the GPU cannot be described: %s%s",
                       end == QM_GPU_WAIT_late
                           ? "no answer within the limit (QM_CUDA_LIMIT, --time-limit); "
                           : "",
                       how);
    qm_status st = QM_OK;
    if ((error = json_string_value(json_object_get(value, "error"))))
        st = qm_fail((qm_status)json_integer_value(json_object_get(value, "status")), "%s", error);
    if (st == QM_OK) {
        *device = json_incref(json_object_get(value, "device"));
        const char *nvml = json_string_value(json_object_get(*device, "nvml"));
        run->nvml_has_failed = !nvml || strncmp(nvml, "answers", 7) != 0;
        run->options.n = (int64_t)json_integer_value(json_object_get(value, "elements"));
        run->flush_bytes = (size_t)json_integer_value(json_object_get(value, "flush_bytes"));
    }
    json_decref(value);
    return st;
}

/* ---- the report ------------------------------------------------------------------------------ */

/* The tasks that are still open and were not tried in this run. */
static int gpu_run_missing(const struct qm_gpu_run *run)
{
    int missing = 0;
    for (int i = 0; i < run->tasks.n; i++)
        missing += !run->tasks.at[i].tried && qm_gpu_task_is_open(&run->tasks.at[i]);
    return missing;
}

static qm_status write_report(struct qm_gpu_run *run, const char *state)
{
    json_t *plan = run->report.plan;
    qm_gpu_tasks_rows(&run->tasks, &run->report);
    if (run->tasks.n) { /* else they are not listed yet */
        json_object_set_new(plan, "tasks", json_integer(run->tasks.n));
        json_object_set_new(plan, "missing", json_integer(gpu_run_missing(run)));
    }
    json_object_set_new(plan, "state", json_string(state));
    run->is_changed = 0;
    run->written = qm_seconds();
    return qm_gpu_report_write(&run->report, run->path, run->argc, run->argv);
}

static qm_status write_often(struct qm_gpu_run *run)
{
    if (!run->is_changed || qm_seconds() - run->written < FLUSH)
        return QM_OK;
    return write_report(run, QM_GPU_STATE_running);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* The row of a task that could not be measured.  Codes that were compared in part are kept. */
static void record_failure(struct qm_gpu_run *run, int k, const char *status)
{
    struct qm_gpu_task *t = &run->tasks.at[k];
    char text[256];
    json_t *row = json_array_get(t->rows, 0);
    if (t->tried == 2) { /* half of it came in this run */
        snprintf(text, sizeof text, "%s; all floats: %s", QM_GPU_PART_OF_CODES, status);
        json_object_set_new(row, "status", qm_json_text(text));
    } else {
        row = json_deep_copy(t->key);
        json_object_set_new(row, "status", qm_json_text(status));
        json_decref(t->rows);
        t->rows = json_pack("[o]", row);
    }
    t->tried = 1;
    run->is_changed = 1;
}

static int are_rows(const json_t *rows)
{
    size_t i;
    const json_t *row;
    json_array_foreach (rows, i, row)
        if (!json_is_object(row))
            return 0;
    return json_is_array(rows);
}

/* Takes a line of the child over; returns 1 where the child says that it cannot go on, also after a
 * good row. */
static int take(struct qm_gpu_run *run, json_t *line)
{
    int k = -1, is_fatal = 0, more = 0;
    json_t *rows = NULL, *nvml = NULL;
    if (json_unpack(line, "{s:i, s:o, s?b, s?b, s?o}", "task", &k, "rows", &rows, "fatal",
                    &is_fatal, "more", &more, "nvml", &nvml) != 0 ||
        k < 0 || k >= run->tasks.n || !are_rows(rows))
        return 0;
    struct qm_gpu_task *t = &run->tasks.at[k];
    json_decref(t->rows);
    t->rows = json_incref(rows);
    if (json_is_string(nvml)) {
        json_object_set(run->report.device, "nvml", nvml);
        run->nvml_has_failed = 1;
    }
    t->tried = more ? 2 : 1;
    run->is_changed = 1;
    return is_fatal;
}

/* The next task of [from, end) that is to be measured, or end. */
static int next_of(const struct qm_gpu_run *run, int from, int end)
{
    while (from < end && (!run->tasks.at[from].selected || run->tasks.at[from].tried == 1))
        from++;
    return from;
}

static double limit_of(const struct qm_gpu_run *run, int k)
{
    return run->options.limit * (run->tasks.at[k].part == QM_GPU_peers ? PEER_FACTOR : 1);
}

/* Runs one child from task k on.  Returns how many rows failed: 0 or 1.  The report cannot be
 * written: *st. */
static int run_child(struct qm_gpu_run *run, int k, int end, struct qm_progress *p, qm_status *st)
{
    struct qm_gpu_work_list list = {run, k, end};
    struct qm_gpu_child c;
    char how[200] = "", status[256], call[80];
    int failed = 0, is_open = 1;
    double since = qm_seconds();
    if (qm_gpu_child_start(&c, qm_gpu_measure, &list) != QM_OK) {
        snprintf(status, sizeof status, "failed: %s", qm_message());
        record_failure(run, k, status);
        return 1;
    }
    while (is_open && !failed && *st == QM_OK && next_of(run, k, end) < end) {
        k = next_of(run, k, end);
        double late = since + limit_of(run, k), until = late < end_of(run) ? late : end_of(run);
        double tick =
            run->is_changed && qm_seconds() + FLUSH < until ? qm_seconds() + FLUSH : until;
        json_t *line = NULL;
        enum qm_gpu_wait w = qm_gpu_child_wait(&c, tick, run->stop, &line);
        if (w == QM_GPU_WAIT_line) {
            failed = take(run, line);
            since = run->tasks.at[k].tried == 2 ? since : qm_seconds();
            qm_progress_add(p, run->tasks.at[k].tried != 2, failed);
        } else if (w == QM_GPU_WAIT_late && qm_seconds() >= late) {
            snprintf(status, sizeof status, "timed out after %g s%s", limit_of(run, k),
                     qm_gpu_child_call(&c, call, sizeof call));
            record_failure(run, k, status);
            qm_progress_add(p, 1, failed = 1);
        } else if (w == QM_GPU_WAIT_ended) {
            qm_gpu_child_end(&c, how, sizeof how);
            snprintf(status, sizeof status, "failed: %s", how);
            record_failure(run, k, status);
            qm_progress_add(p, 1, failed = 1);
        } else if (is_over(run)) {
            is_open = 0;
            if (run->tasks.at[k].tried == 2) {
                record_failure(run, k, "the run ended");
                run->tasks.at[k].tried = 0; /* it is missing */
            }
        }
        json_decref(line);
        *st = write_often(run);
    }
    if (is_open && next_of(run, k, end) == end) { /* it leaves by itself */
        json_t *rest = NULL;
        (void)qm_gpu_child_wait(&c, qm_seconds() + qm_gpu_run_left(run, GRACE), run->stop, &rest);
        json_decref(rest);
    }
    qm_gpu_child_end(&c, how, sizeof how);
    return failed && qm_gpu_task_is_open(&run->tasks.at[k]);
}

static qm_status run_group(struct qm_gpu_run *run, int first, int end, struct qm_progress *p)
{
    char status[256];
    int failures = 0;
    qm_status st = QM_OK;
    if (run->tasks.at[first].part == QM_GPU_speed) /* before the fork: once for all */
        (void)qm_gpu_bench_inputs(run->options.n); /* where it fails, its rows say so */
    for (int k = next_of(run, first, end); k < end && st == QM_OK && !is_over(run);
         k = next_of(run, k, end)) {
        if (failures == MOST_FAILURES) {
            snprintf(status, sizeof status, "failed: not run, because %d rows of %s failed before",
                     MOST_FAILURES, run->tasks.at[k].name);
            record_failure(run, k, status);
            qm_progress_add(p, 1, 1);
        } else {
            failures += run_child(run, k, end, p, &st);
        }
    }
    if (st == QM_OK)
        st = write_often(run);
    return st;
}

/* Measures the selected tasks, group by group. */
static qm_status run_selected(struct qm_gpu_run *run, struct qm_progress *p)
{
    qm_status st = QM_OK;
    for (int i = 0, end; i < run->tasks.n && st == QM_OK && !is_over(run); i = end) {
        for (end = i; end < run->tasks.n && run->tasks.at[end].group == run->tasks.at[i].group;)
            end++;
        if (next_of(run, i, end) < end) {
            if (run->tasks.at[i].part == QM_GPU_peers) /* ratios need the rows so far */
                qm_gpu_tasks_rows(&run->tasks, &run->report);
            st = run_group(run, i, end, p);
        }
    }
    return st;
}

qm_status qm_gpu_run_begun(struct qm_gpu_run *run, const char *state)
{
    return write_report(run, state);
}

qm_status qm_gpu_run_tasks(struct qm_gpu_run *run)
{
    struct qm_progress progress;
    QM_TRY(write_report(run, QM_GPU_STATE_begun)); /* an unwritable folder is found at once */
    qm_status st = QM_OK;
    struct qm_gpu_child ahead[QM_GPU_AHEAD];
    int n_ahead = qm_gpu_ahead_start(run, ahead);
    char how[200];
    qm_progress_start(&progress, "gpu-check", gpu_run_missing(run));
    for (int again = 0; again < 2 && st == QM_OK; again++) {
        for (int i = 0; i < run->tasks.n; i++) {
            struct qm_gpu_task *t = &run->tasks.at[i];
            t->selected = !t->tried && qm_gpu_task_is_open(t) && (t->rows != NULL) == again;
        }
        st = run_selected(run, &progress);
    }
    qm_progress_end(&progress);
    for (int i = 0; i < n_ahead; i++)
        qm_gpu_child_kill(&ahead[i]);
    for (int i = 0; i < n_ahead; i++)
        qm_gpu_child_end(&ahead[i], how, sizeof how);
    QM_TRY(st);
    int missing = gpu_run_missing(run);
    char state[160];
    snprintf(state, sizeof state, QM_GPU_STATE_ended,
             run->stop && *run->stop ? QM_GPU_ENDED_stop : QM_GPU_ENDED_time, missing,
             run->tasks.n);
    QM_TRY(write_report(run, missing ? state : QM_GPU_STATE_complete));
    return missing || (run->stop && *run->stop) ? qm_fail(QM_INTERRUPTED, "%s", state) : QM_OK;
}
