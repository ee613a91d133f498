/* check.c - Runs qualm check --kernel, from its options to its exit code. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/name.h"
#include "experiments/cli/cli.h"
#include "experiments/kernel/kernel.h"
#include "experiments/kernel/reduce.h"

#define SHRINK_SECONDS 10.0

/* The status that says why nothing was judged. */
static qm_status nothing_judged(const struct qm_kernel_run *r)
{
    if (r->interrupted && !r->o->forever)
        return qm_fail(QM_INTERRUPTED, "interrupted");
    if (r->count[QM_CASE_refused] > 0)
        return qm_fail(QM_SKIPPED, "the kernel refuses every case");
    return qm_fail(QM_SKIPPED, "nothing could be judged");
}

static qm_status finish(const struct qm_kernel_run *r)
{
    int bad = 0;
    for (int i = 0; i < QM_CASE_RESULT_COUNT; i++)
        bad |= qm_case_result_is_bad((enum qm_case_result)i) && r->count[i] > 0;
    qm_kernel_report(r);
    if (r->o->junit)
        QM_TRY(qm_kernel_junit(r, r->o->junit));
    if (bad || r->tally.failed_cases > 0)
        return QM_CHECK_FAILED;
    if (!qm_kernel_run_passed(r))
        return nothing_judged(r);
    return r->interrupted && !r->o->forever ? QM_INTERRUPTED : QM_OK;
}

/* The first case that ended its worker, else the case with the worst finding; NULL: no failing case
 * can be run again alone. */
static const struct qm_kernel_case *worst_case(const struct qm_kernel_run *r)
{
    const struct qm_kernel_case *worst = NULL;
    int severity = -1;
    for (int i = 0; i < r->n_cases; i++) {
        const struct qm_kernel_case *c = &r->cases[i];
        int own = 0;
        if (!qm_case_result_is_bad(c->result) || !strchr(c->name, '/') ||
            strcmp(c->name, QM_LARGE_INDEX_CASE) == 0)
            continue;
        if (c->result != QM_CASE_failed)
            return c;
        for (int k = 0; k < r->tally.n_findings; k++)
            if (strcmp(r->tally.finding[k].name, c->name) == 0)
                own = r->tally.finding[k].severity;
        if (own > severity) {
            severity = own;
            worst = c;
        }
    }
    return worst;
}

/* Shrinks the worst case; a failure here is a note, because the verdict is printed already. */
static void shrink_worst(const struct qm_kernel_run *r)
{
    const struct qm_kernel_case *c = r->interrupted ? NULL : worst_case(r);
    static struct qm_reduction n;
    char out[256];
    if (!c) {
        qm_note("not shrunk: %s", r->interrupted ? "interrupted" : "no case fails alone");
        return;
    }
    qm_reduction_name(r->o->file, out, sizeof out);
    n = (struct qm_reduction){.file = r->o->file,
                              .as = r->recipe,
                              .out = out,
                              .one_case = c->name,
                              .seed = c->seed,
                              .steps = QM_CHECK_STEPS,
                              .seconds = SHRINK_SECONDS,
                              .mebibytes = r->o->limits.mebibytes};
    qm_status st = qm_reduce(&n);
    if (st != QM_OK || !n.is_written)
        qm_note("not shrunk: %s", st != QM_OK ? qm_message() : n.why);
    else
        qm_note("shrunk to %d step%s, %lld element%s: %s%s (--no-shrink leaves this out)",
                n.shrunk.trial.n_calls, n.shrunk.trial.n_calls > 1 ? "s" : "",
                (long long)n.shrunk.trial.n, n.shrunk.trial.n == 1 ? "" : "s", out,
                n.is_verified ? ", which compiles and exits 1" : "");
    qm_reduction_free(&n);
}

int qm_kernel_check(const struct qm_kernel_options *o)
{
    static struct qm_kernel_run r;
    if (qm_kernel_is_cuda(o->file) && !o->backend)
        qm_note("%s: backend emu, on the CPU; no GPU is asked for (--backend cuda)", o->file);
    qm_status st = qm_kernel_run(o, &r);
    int ran = st == QM_OK;
    if (ran)
        st = finish(&r);
    if (st == QM_CHECK_FAILED && !o->no_shrink)
        shrink_worst(&r);
    qm_kernel_run_free(&r);
    if (st == QM_OK || st == QM_CHECK_FAILED || (ran && st == QM_INTERRUPTED))
        return qm_exit_code(st);
    if (ran) { /* the report is printed: add the message alone */
        fprintf(stderr, "qualm check: %s\n", qm_message());
        return qm_exit_code(st);
    }
    return qm_cli_failed("check", st);
}

/* Length of a file's name without .c; names with other endings count in full. */
static int name_length(const char *file)
{
    const char *dot = strrchr(file, '.');
    return dot && strcmp(dot, ".c") == 0 ? (int)(dot - file) : (int)strlen(file);
}

static void list_templates(void)
{
    const char *name;
    for (int i = 0; (name = qm_kernel_file_name(i)); i++)
        printf("%.*s\n", name_length(name), name);
}

int qm_kernel_template(const char *name)
{
    enum { MOST = 64 };
    static char texts[MOST][64];
    const char *names[MOST], *file;
    char wanted[64];
    int n = 0;
    if (strcmp(name, "list") == 0) {
        list_templates();
        return 0;
    }
    snprintf(wanted, sizeof wanted, "%s.c", name);
    const char *const *lines = qm_kernel_file_text(name);
    if (!lines)
        lines = qm_kernel_file_text(wanted);
    for (; (file = qm_kernel_file_name(n)) && n < MOST; n++) {
        snprintf(texts[n], sizeof texts[n], "%.*s", name_length(file), file);
        names[n] = texts[n];
    }
    if (!lines) {
        const char *near = qm_name_nearest(name, names, n);
        return qm_cli_failed("check", qm_fail(QM_NO_MATCH,
                                              "no template '%s'%s%s%s; `qualm check --template "
                                              "list` names them",
                                              name, near ? "; did you mean '" : "",
                                              near ? near : "", near ? "'?" : ""));
    }
    for (; *lines; lines++)
        fputs(*lines, stdout);
    return 0;
}
