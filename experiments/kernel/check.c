/* check.c - Runs qualm check --kernel, from its options to its exit code. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/name.h"
#include "experiments/check/slot.h"
#include "experiments/check/specials_table.h"
#include "experiments/cli/cli.h"
#include "experiments/kernel/kernel.h"
#include "experiments/kernel/reduce.h"
#include "experiments/kernel/template.h"

#define SHRINK_SECONDS 10.0

static qm_status finish(const struct qm_kernel_run *r)
{
    qm_kernel_report(r);
    if (r->o->junit)
        QM_TRY(qm_kernel_junit(r, r->o->junit, NULL));
    if (qm_kernel_run_failed(r))
        return QM_CHECK_FAILED;
    if (r->interrupted && !r->o->forever) {
        qm_note("interrupted: the verdict is on the cases so far, and not on those that are left");
        return qm_kernel_run_passed(r) ? QM_INTERRUPTED : qm_fail(QM_INTERRUPTED, "interrupted");
    }
    return qm_kernel_run_passed(r) ? QM_OK : qm_fail(QM_SKIPPED, "nothing could be judged");
}

/* The first case that ended its process, else that damages something, else whose finding is of
 * finite numbers, else any that fails, each the first in the order of the report; NULL: no failing
 * case can be run again alone. */
static const struct qm_kernel_case *case_to_shrink(const struct qm_kernel_run *r)
{
    const struct qm_kernel_case *chosen = NULL;
    int rank = -1;
    for (int i = 0; i < r->n_cases; i++) {
        const struct qm_kernel_case *c = &r->cases[i];
        int own = c->severity == QM_BAD_MACHINERY ? 2 : c->severity != QM_BAD_SPECIAL;
        if (!qm_case_result_is_bad(c->result) || !strchr(c->name, '/') ||
            strcmp(c->name, QM_LARGE_INDEX_CASE) == 0)
            continue;
        if (c->result != QM_CASE_failed)
            return c;
        if (own > rank) {
            rank = own;
            chosen = c;
        }
    }
    return chosen;
}

/* Shrinks one failing case; a failure here is a note, because the verdict is printed already. */
static void shrink_one(const struct qm_kernel_run *r)
{
    const struct qm_kernel_case *c = r->interrupted ? NULL : case_to_shrink(r);
    static struct qm_reduction n;
    char out[256];
    if (!c) {
        qm_note("not shrunk: %s", r->interrupted ? "interrupted" : "no case fails alone");
        return;
    }
    qm_fmad_use(r->forms.is_same ? QM_FMAD_true : c->form);
    qm_reduction_name(r->o->file, out, sizeof out);
    n = (struct qm_reduction){.file = r->o->file,
                              .as = r->o->as,
                              .out = out,
                              .one_case = c->name,
                              .fast = r->o->fast,
                              .seed = c->seed,
                              .steps = QM_CHECK_STEPS,
                              .seconds = SHRINK_SECONDS,
                              .mebibytes = r->o->limits.mebibytes};
    qm_status st = qm_reduce(&n);
    if (st != QM_OK || !n.is_written)
        qm_note("not shrunk: %s (case %s)", st != QM_OK ? qm_message() : n.why, c->name);
    else
        qm_note("shrunk to %d step%s, %lld element%s: %s%s, from case %s (--no-shrink leaves this "
                "out)",
                n.shrunk.trial.n_calls, n.shrunk.trial.n_calls > 1 ? "s" : "",
                (long long)n.shrunk.trial.n, n.shrunk.trial.n == 1 ? "" : "s", out,
                n.is_verified ? ", which compiles and exits 1" : "", c->name);
    qm_reduction_tell_cut(&n);
    qm_reduction_free(&n);
}

struct qm_check_run qm_kernel_on(const struct qm_kernel_options *o)
{
    const char *backend = o->on_gpu ? "cuda" : qm_kernel_is_cuda(o->file) ? "emu" : "cpu";
    return (struct qm_check_run){backend, o->fast.div_ulp > 0.0 ? QM_MODE_fast : QM_MODE_exact,
                                 o->seed};
}

int qm_kernel_check(const struct qm_kernel_options *o)
{
    static struct qm_kernel_run r;
    if (qm_kernel_is_cuda(o->file) && !o->backend)
        qm_note("%s: backend emu, on the CPU; no GPU is asked for (--backend cuda)", o->file);
    qm_status st = qm_kernel_run(o, &r);
    int ran = st == QM_OK;
    if (ran && o->specials) {
        const struct qm_check_run on = qm_kernel_on(o);
        int code = qm_specials_end(json_incref(r.specials), NULL, &on, r.tally.failed_cases > 0);
        qm_kernel_run_free(&r);
        return code;
    }
    if (ran)
        st = finish(&r);
    if (st == QM_CHECK_FAILED && !o->no_shrink)
        shrink_one(&r);
    if (!ran && o->junit && st != QM_INTERRUPTED) {
        char why[480];
        snprintf(why, sizeof why, "%s", qm_message());
        r.o = o;
        if (qm_kernel_junit(&r, o->junit, why) == QM_OK)
            qm_fail(st, "%s", why);
    }
    qm_kernel_run_free(&r);
    if (st == QM_OK || st == QM_CHECK_FAILED || (ran && st == QM_INTERRUPTED))
        return qm_exit_code(st);
    if (ran) { /* the report is printed: add the message alone */
        fprintf(qm_notes(), "qualm check: %s\n", qm_message());
        return qm_exit_code(st);
    }
    return qm_cli_failed("check", st);
}

/* The variant of a template's name, which ends in .cu where is_cuda is 1; NULL: it is none. */
static const struct qm_variant *variant_of(const char *name, int is_cuda)
{
    char word[64];
    const struct qm_variant *v;
    size_t n = strcspn(name, ".");
    snprintf(word, sizeof word, "%.*s", (int)n, name);
    int is_such = strcmp(name + n, is_cuda ? ".cu" : "") == 0;
    return is_such && qm_variant_find(word, &v) == QM_OK ? v : NULL;
}

/* The words, of those that '/' parts, of both quantizers. */
static int common_words(const char *a, const char *b)
{
    int n = 0;
    for (size_t size; *a; a += size + (a[size] == '/')) {
        size = strcspn(a, "/");
        for (const char *at = b; at; at = strchr(at, '/')) {
            at += *at == '/';
            if (strcspn(at, "/") == size && strncmp(at, a, size) == 0) {
                n++;
                break;
            }
        }
    }
    return n;
}

/* How near a template of variant `other` is to variant v: 0: not of its family; else more with the
 * same rule, and then with each word that their quantizers share. */
static int nearness(const struct qm_variant *v, const struct qm_variant *other)
{
    const struct qm_rule *rule = qm_rule_find(v->rule), *its = qm_rule_find(other->rule);
    int words = 0;
    for (int i = 0; i < QM_MAX_SLOTS; i++)
        if (v->slot[i].quantizer && other->slot[i].quantizer)
            words += common_words(v->slot[i].quantizer, other->slot[i].quantizer);
    return strcmp(its->family, rule->family) != 0 ? 0 : 1 + words + (its == rule ? 1000 : 0);
}

/* Fails because variant v has no template, in CUDA or C; names the nearest one to start from. */
static qm_status no_template(const struct qm_variant *v, int is_cuda, const char *const *names,
                             int n)
{
    const struct qm_rule *rule = qm_rule_find(v->rule);
    const char *in = is_cuda ? " in CUDA" : "";
    int best = -1, most = 0;
    for (int i = 0; i < n; i++) {
        const struct qm_variant *other = variant_of(names[i], is_cuda);
        int near = other ? nearness(v, other) : 0;
        if (near > most) {
            most = near;
            best = i;
        }
    }
    if (best >= 0)
        return qm_fail(QM_NO_MATCH,
                       "variant %s has no template of its own%s; start from that of %s, %s %s",
                       v->name, in, names[best], most > 1000 ? "of the same rule" : "of the family",
                       most > 1000 ? rule->name : rule->family);
    return qm_fail(QM_NO_MATCH,
                   "variant %s has no template%s, and no template%s is of its rule %s or of its "
                   "family %s%s",
                   v->name, in, in, rule->name, rule->family,
                   is_cuda ? "; kernel_cuda.h says what a kernel must hold" : "");
}

int qm_kernel_template(const char *name)
{
    enum { MOST = 128 };
    static char texts[MOST][64];
    const char *names[MOST];
    int n = 0;
    for (; n < MOST && qm_template_name(n, texts[n], sizeof texts[n]); n++)
        names[n] = texts[n];
    if (strcmp(name, "list") == 0) {
        for (int i = 0; i < n; i++)
            qm_print("%s\n", names[i]);
        return 0;
    }
    if (qm_template_print(qm_out(), name))
        return 0;
    for (int is_cuda = 0; is_cuda < 2; is_cuda++)
        if (variant_of(name, is_cuda))
            return qm_cli_failed("check",
                                 no_template(variant_of(name, is_cuda), is_cuda, names, n));
    char near[QM_NAME_NEAR];
    qm_name_near(name, names, n, near);
    return qm_cli_failed("check",
                         qm_fail(QM_NO_MATCH,
                                 "no template '%s'%s%s%s; `qualm check --template list` names them",
                                 name, *near ? "; did you mean " : "", near, *near ? "?" : ""));
}
