/* reduce.c - Finds a failing case, shrinks it, writes its reproducer. */
#include "experiments/kernel/reduce.h"
#include "core/base/clock.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "core/user_kernel/backend_file.h"
#include "experiments/cli/cli.h"
#include "experiments/kernel/files.h"
#include "experiments/kernel/repro.h"
#include "experiments/store/atomic_file.h"

static volatile int stop;

static void on_signal(int sig)
{
    (void)sig;
    stop = 1;
}

/* ---- the subject ----------------------------------------------------------------------------- */

static qm_status begin(struct qm_reduction *r, struct qm_attempts *a)
{
    static struct qm_tally t;
    if (a->kernel) {
        QM_TRY(qm_host_up(qm_kernel_file_host(a->kernel)));
        const char *as = r->as ? r->as : qm_kernel_file_as(a->kernel);
        if (!as)
            return qm_fail(QM_BAD_ARG, "the kernel does not say which variant it is; give --as");
        QM_TRY(qm_recipe_parse(as, &r->recipe));
        a->subject->reorder = qm_kernel_freedoms(&r->fast);
    }
    a->subject->recipe = r->recipe;
    a->subject->backend = &qm_backend_cpu; /* plans of kernel files decode by the same table */
    QM_TRY(qm_judge_begin(a->subject, &t));
    if (a->kernel)
        a->subject->backend = &qm_backend_file;
    return QM_OK;
}

/* ---- cases ----------------------------------------------------------------------------------- */

/* Case i of the list, or class i for the given shape; 0: there are no more. */
static int case_at(const struct qm_reduction *r, const struct qm_shape *shape, int i,
                   struct qm_case *out)
{
    if (!r->shape && i < qm_case_count()) {
        *out = qm_case_at(i);
        return 1;
    }
    if (!r->shape || i >= QM_CLASS_COUNT)
        return 0;
    *out = (struct qm_case){.shape = *shape, .kind = (enum qm_class)i, .t = 1, .forced = 1};
    out->setting = out->kind == QM_CLASS_exact ? QM_SETTING_exact : QM_SETTING_default;
    return 1;
}

static qm_status first_failing(struct qm_reduction *r, struct qm_attempts *a, double until)
{
    struct qm_shape shape = {0};
    qm_status st;
    if (r->one_case) {
        QM_TRY(qm_case_parse(r->one_case, &r->c));
        return qm_shrink(a, &r->c, r->seed, r->steps, until, &r->shrunk);
    }
    if (r->shape)
        QM_TRY(qm_shape_parse(r->shape, &shape));
    int64_t n = qm_shape_numel(&shape);
    if (n < 0 || n > 1 << 24)
        return qm_fail(QM_BAD_ARG, "shape '%s': at most 2^24 elements", r->shape);
    for (int i = 0; case_at(r, &shape, i, &r->c); i++) {
        if (stop)
            return qm_fail(QM_INTERRUPTED, "interrupted");
        if (qm_seconds() >= until)
            return qm_fail(QM_NO_MATCH, "no case failed within %g s; --time gives more",
                           r->seconds);
        st = qm_shrink(a, &r->c, r->seed, r->steps, until, &r->shrunk);
        if (st != QM_NO_MATCH && st != QM_SKIPPED)
            return st;
    }
    return qm_fail(QM_NO_MATCH, "nothing to shrink: no case fails");
}

/* ---- all ------------------------------------------------------------------------------------- */

/* Copies the shared object that emulates a CUDA source to FILE-repro.so, which the reproducer
 * loads; path: its absolute path. */
static qm_status keep_object(const struct qm_reduction *r, const char *from, char *path)
{
    char chunk[8192], near[PATH_MAX];
    struct qm_atomic_file part;
    size_t n;
    const char *dot = strrchr(r->out, '.');
    snprintf(near, sizeof near, "%.*s.so", dot ? (int)(dot - r->out) : (int)strlen(r->out), r->out);
    FILE *f = fopen(from, "rb");
    if (!f)
        return qm_fail(QM_BAD_FILE, "%s: %s", from, strerror(errno));
    qm_status st = qm_atomic_file_open(near, &part);
    if (st == QM_OK) {
        while (st == QM_OK && (n = fread(chunk, 1, sizeof chunk, f)) > 0)
            st = qm_atomic_file_write(&part, chunk, n);
        if (st == QM_OK)
            st = qm_atomic_file_commit(&part);
        qm_atomic_file_abort(&part);
    }
    fclose(f);
    if (st == QM_OK && !realpath(near, path))
        st = qm_fail(QM_BAD_FILE, "%s: %s", near, strerror(errno));
    return st;
}

static qm_status write_program(struct qm_reduction *r, struct qm_attempts *a,
                               const struct qm_kernel_files *files)
{
    char name[QM_CASE_TEXT], origin[QM_CASE_TEXT + 48], object[PATH_MAX] = "";
    const char *end = r->file ? strrchr(r->file, '.') : NULL;
    snprintf(origin, sizeof origin, "case %s, seed %llu", qm_case_print(&r->c, name),
             (unsigned long long)r->seed);
    if (qm_kernel_is_cuda(r->file))
        QM_TRY(keep_object(r, files->object, object));
    struct qm_repro repro = {.source = end && strcmp(end, ".c") == 0 ? r->file : NULL,
                             .object = *object ? object : files->object,
                             .origin = origin,
                             .path = r->out,
                             .folder = files->folder};
    qm_status st = qm_repro_write(a, &r->shrunk, &repro, &r->is_verified);
    if (st == QM_SKIPPED) {
        snprintf(r->why, sizeof r->why, "%s", qm_message());
        return QM_OK;
    }
    r->is_written = st == QM_OK;
    return st;
}

static qm_status reduce(struct qm_reduction *r, const struct qm_kernel_files *files)
{
    static struct qm_subject subject;
    struct qm_progress progress;
    struct qm_attempts a = {.subject = &subject, .stop = &stop, .progress = &progress};
    double from = qm_seconds(), until = from + r->seconds;
    const struct qm_host_limits limits = {
        .seconds = r->seconds, .mebibytes = r->mebibytes, .processes = QM_PROCESSES, .stop = &stop};
    memset(&subject, 0, sizeof subject);
    qm_progress_start(&progress, "shrink", 0);
    qm_status st = r->file ? qm_kernel_file_apart(files->object, &limits, &a.kernel) : QM_OK;
    if (st == QM_OK)
        st = begin(r, &a);
    if (st == QM_OK)
        st = first_failing(r, &a, until);
    qm_progress_end(&progress);
    a.progress = NULL;
    double search = qm_seconds() - from - r->shrunk.seconds; /* the search for a failing case */
    r->shrunk.seconds += search;
    r->shrunk.case_seconds += search;
    if (st == QM_OK && stop)
        st = qm_fail(QM_INTERRUPTED, "interrupted");
    if (st == QM_OK && r->file && r->out)
        st = write_program(r, &a, files);
    qm_kernel_file_close(a.kernel);
    return st;
}

qm_status qm_reduce(struct qm_reduction *r)
{
    struct qm_kernel_options o = {.file = r->file};
    struct sigaction act = {.sa_handler = on_signal}, was_int, was_term;
    struct qm_kernel_files files = {0};
    stop = 0;
    sigemptyset(&act.sa_mask);
    sigaction(SIGINT, &act, &was_int);
    sigaction(SIGTERM, &act, &was_term);
    qm_status st = r->file ? qm_kernel_files_open(&o, &files) : QM_OK;
    if (st == QM_OK)
        st = reduce(r, &files);
    qm_kernel_files_close(&files);
    sigaction(SIGINT, &was_int, NULL);
    sigaction(SIGTERM, &was_term, NULL);
    return st;
}

void qm_reduction_free(struct qm_reduction *r) { qm_trial_close(&r->shrunk.trial); }

void qm_reduction_name(const char *file, char *text, size_t size)
{
    const char *slash = strrchr(file, '/'), *name = slash ? slash + 1 : file;
    const char *dot = strchr(name, '.');
    int n = dot && dot > name ? (int)(dot - name) : (int)strlen(name);
    snprintf(text, size, "%.*s-repro.c", n, name);
}

/* Writes the command that reduces the case for so many seconds. */
static void longer_command(const struct qm_reduction *r, double seconds, FILE *to)
{
    char name[QM_CASE_TEXT], recipe[QM_RECIPE_TEXT];
    if (r->file)
        fprintf(to, "qualm shrink --kernel %s", r->file);
    else
        fprintf(to, "qualm shrink '%s'", qm_recipe_print(&r->recipe, recipe));
    if (r->file && r->as)
        fprintf(to, " --as '%s'", r->as);
    fprintf(to, " --case %s", qm_case_print(&r->c, name));
    if (r->seed != QM_CHECK_SEED)
        fprintf(to, " --seed %llu", (unsigned long long)r->seed);
    if (r->steps != QM_CHECK_STEPS)
        fprintf(to, " --steps %d", r->steps);
    fprintf(to, " --time %g", seconds);
}

void qm_reduction_tell_cut(const struct qm_reduction *r)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = r->shrunk.is_cut ? open_memstream(&text, &size) : NULL;
    if (!to)
        return;
    longer_command(r, 4.0 * r->seconds, to);
    fclose(to);
    qm_note("not shrunk to the end, because time ran out after %g s: `%s` may make it smaller",
            r->seconds, text);
    free(text);
}

void qm_reduction_report(const struct qm_reduction *r)
{
    const struct qm_shrunk *s = &r->shrunk;
    char recipe[QM_RECIPE_TEXT], name[QM_CASE_TEXT], shape[64];
    json_t *out = json_pack(
        "{s:s*, s:s, s:s, s:I, s:s, s:s, s:i, s:I, s:i, s:I, s:I, s:s, s:I, s:f, s:f, s:b}",
        "kernel", r->file, "as", qm_recipe_print(&s->trial.recipe, recipe), "case",
        qm_case_print(&r->c, name), "seed", (json_int_t)r->seed, "result",
        qm_case_result_name(s->attempt.how), "what", s->attempt.text, "steps_before",
        s->steps_before, "elements_before", (json_int_t)s->elements_before, "steps",
        s->trial.n_calls, "blocks", (json_int_t)qm_shrunk_blocks(s), "elements",
        (json_int_t)s->trial.n, "shape", qm_shape_print(&s->trial.shape, shape, sizeof shape),
        "attempts", (json_int_t)s->attempts, "seconds", s->seconds, "case_seconds", s->case_seconds,
        "cut_short", s->is_cut);
    if (r->is_written) {
        json_object_set_new(out, "written", json_string(r->out));
        json_object_set_new(out, "verified", json_boolean(r->is_verified));
    } else if (*r->why) {
        json_object_set_new(out, "not_written", json_string(r->why));
    }
    qm_report(out);
    if (!qm_cli.json && !r->is_written)
        qm_trial_print(&s->trial, qm_out());
    qm_reduction_tell_cut(r);
}
