/* matrix.c - Judges all entries in parallel and derives the faults of the judge. */
#include "experiments/mutants/matrix.h"
#include "core/base/clock.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/grow.h"
#include "core/base/interrupt.h"
#include "core/base/name.h"
#include "core/base/threads.h"
#include "experiments/check/cases.h"
#include "experiments/cli/cli.h"
#include "experiments/mutants/judge_entry.h"

enum { QUICK = 4, DRAWN = QM_CHECK_DRAWS, QUICK_DRAWN = 128 };

static volatile int stop;

static void on_signal(int sig)
{
    (void)sig;
    stop = 1;
}

/* ---- selection ------------------------------------------------------------------------------- */

/* Position of entry i among the entries of its kind and template. */
static int position(const struct qm_registry *r, int i)
{
    int k = 0;
    for (int j = r->entry[i].of; j < i; j++)
        k += r->entry[j].kind == r->entry[i].kind;
    return k;
}

static int is_taken(const struct qm_matrix_options *o, int i)
{
    const struct qm_mutant_entry *e = &o->registry->entry[i];
    if (e->kind == QM_MUTANT_template)
        return 0; /* taken with the entries made from it */
    return qm_name_matches(e->id, o->only) && (!o->quick || position(o->registry, i) % QUICK == 0);
}

static qm_status choose(struct qm_matrix *m)
{
    const struct qm_registry *r = m->o.registry;
    char *taken = calloc((size_t)r->n + 1, 1);
    m->result = calloc((size_t)r->n + 1, sizeof *m->result);
    if (!taken || !m->result) {
        free(taken);
        return qm_fail(QM_NO_MEMORY, "%d mutants", r->n);
    }
    for (int i = 0; i < r->n; i++)
        if (is_taken(&m->o, i))
            taken[i] = taken[r->entry[i].of] = 1;
    for (int i = 0; i < r->n; i++) {
        if (!taken[i])
            continue;
        m->mutants += r->entry[i].kind == QM_MUTANT_mutant;
        m->benign += r->entry[i].kind == QM_MUTANT_benign;
        m->result[m->n++].entry = &r->entry[i];
    }
    free(taken);
    return m->n ? QM_OK
                : qm_fail(QM_NO_MATCH,
                          "no mutant matches '%s'; `qualm mutate --list` "
                          "names them",
                          m->o.only ? m->o.only : "");
}

/* Number of seeds of an entry: of a benign one, such that all benign entries have `runs` cases. */
static int seeds_of(const struct qm_matrix *m, const struct qm_mutant_result *t)
{
    int64_t each = QM_MUTANT_REGIME_COUNT * (int64_t)(m->benign ? m->benign : 1);
    if (t->entry->kind != QM_MUTANT_benign || m->o.quick)
        return 1;
    int64_t seeds = (m->o.runs + each - 1) / each;
    return seeds < 1 ? 1 : (int)seeds;
}

/* ---- running --------------------------------------------------------------------------------- */

/* A quick run judges few cases; conditions that only large or rare cases meet need them all, so
 * that a mutant which survives the few is judged again. */
static qm_status one_entry(struct qm_matrix *m, int i, const char *folder)
{
    char own[PATH_MAX];
    struct qm_mutant_result *t = &m->result[i];
    const int64_t few[QM_CASE_SET_COUNT] = {[QM_CASE_SET_drawn] = QUICK_DRAWN};
    const int64_t all[QM_CASE_SET_COUNT] = {
        [QM_CASE_SET_listed] = qm_case_count(), [QM_CASE_SET_drawn] = DRAWN};
    snprintf(own, sizeof own, "%s/%d", folder, i);
    if (mkdir(own, 0700) != 0)
        return qm_fail(QM_BAD_FILE, "%s: %s", own, strerror(errno));
    qm_status st =
        qm_mutant_judge(t, own, m->o.seed, seeds_of(m, t), m->o.quick ? few : all, &stop);
    if (st == QM_OK && m->o.quick && t->entry->kind == QM_MUTANT_mutant && !t->broken &&
        !qm_mutant_kills(t)) {
        st = qm_mutant_judge(t, own, m->o.seed, 1, all, &stop);
#pragma omp atomic
        m->in_full++;
    }
    rmdir(own);
    return st;
}

/* Messages are kept per thread, so the text of the first failure is copied to the
 * caller's thread. */
static qm_status all_entries(struct qm_matrix *m, const char *folder)
{
    struct qm_progress progress;
    qm_status worst = QM_OK;
    char text[400] = "";
    int threads = m->o.threads > 0 ? m->o.threads : qm_processors();
    qm_progress_start(&progress, "mutate", m->n);
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (int i = 0; i < m->n; i++) {
        qm_status st = stop ? qm_fail(QM_INTERRUPTED, "interrupted") : one_entry(m, i, folder);
#pragma omp critical
        {
            if (st != QM_OK && worst == QM_OK) {
                worst = st;
                snprintf(text, sizeof text, "%s", qm_message());
            }
            qm_progress_add(&progress, 1, m->result[i].broken != NULL);
        }
    }
    qm_progress_end(&progress);
    return worst == QM_OK ? QM_OK : qm_fail(worst, "%s", text);
}

static const struct qm_mutant_result *template_of(const struct qm_matrix *m,
                                                  const struct qm_mutant_result *t)
{
    const struct qm_mutant_entry *e = &m->o.registry->entry[t->entry->of];
    for (int i = 0; i < m->n; i++)
        if (m->result[i].entry == e)
            return &m->result[i];
    return NULL;
}

/* Marks the cells whose outputs have the template's bits in every step: there is no bug to find. */
static void mark_equal(const struct qm_matrix *m)
{
    for (int i = 0; i < m->n; i++) {
        struct qm_mutant_result *t = &m->result[i];
        const struct qm_mutant_result *base = template_of(m, t);
        for (int k = 0; k < QM_MUTANT_REGIME_COUNT && base && base != t; k++)
            if (t->cell[k].is == QM_MATRIX_CELL_survives &&
                t->cell[k].digest == base->cell[k].digest)
                t->cell[k].is = QM_MATRIX_CELL_equal;
    }
}

/* Compares every surviving mutant with its template. */
static qm_status compare_survivors(struct qm_matrix *m, const char *folder)
{
    char own[PATH_MAX];
    qm_status st = QM_OK;
    snprintf(own, sizeof own, "%s/apart", folder);
    for (int i = 0; i < m->n && st == QM_OK; i++)
        for (int k = 0; k < QM_MUTANT_REGIME_COUNT && st == QM_OK; k++) {
            struct qm_mutant_result *t = &m->result[i];
            if (t->entry->kind != QM_MUTANT_mutant || t->cell[k].is != QM_MATRIX_CELL_survives)
                continue;
            if (mkdir(own, 0700) != 0)
                return qm_fail(QM_BAD_FILE, "%s: %s", own, strerror(errno));
            st = qm_mutant_compare(t, template_of(m, t)->entry, k, own, m->o.seed, &stop);
            rmdir(own);
        }
    return st;
}

static qm_status run(struct qm_matrix *m)
{
    char folder[64];
    struct sigaction act = {.sa_handler = on_signal}, was_int, was_term;
    if (!qm_interrupt_folder(folder, sizeof folder, "mutate"))
        return qm_fail(QM_BAD_FILE, "%s: %s", folder, strerror(errno));
    stop = 0;
    sigemptyset(&act.sa_mask);
    sigaction(SIGINT, &act, &was_int);
    sigaction(SIGTERM, &act, &was_term);
    qm_status st = all_entries(m, folder);
    mark_equal(m);
    if (st == QM_OK)
        st = compare_survivors(m, folder);
    sigaction(SIGINT, &was_int, NULL);
    sigaction(SIGTERM, &was_term, NULL);
    rmdir(folder);
    qm_interrupt_forget(folder);
    return st;
}

/* ---- the gate -------------------------------------------------------------------------------- */

static void fault(struct qm_matrix *m, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void fault(struct qm_matrix *m, const char *format, ...)
{
    va_list args;
    char *text = NULL;
    if (qm_grow((void **)&m->fault, &m->room, m->n_faults + 1, sizeof *m->fault) != QM_OK)
        return; /* the faults before this one fail the run */
    va_start(args, format);
    int n = vasprintf(&text, format, args);
    va_end(args);
    if (n >= 0)
        m->fault[m->n_faults++] = text;
}

static void gate_mutant(struct qm_matrix *m, const struct qm_mutant_result *t)
{
    for (int k = 0; k < QM_MUTANT_REGIME_COUNT; k++) {
        enum qm_matrix_cell is = t->cell[k].is;
        if (is == QM_MATRIX_CELL_refused)
            fault(m, "%s: refused in %s: %s", t->entry->id, qm_mutant_regime_name(k),
                  t->cell[k].finding);
        if (is == QM_MATRIX_CELL_survives && !t->entry->within[k])
            fault(m, "%s: survives in %s, where its results differ from the template's",
                  t->entry->id, qm_mutant_regime_name(k));
    }
    if (!qm_mutant_kills(t))
        fault(m, "%s: survives everywhere", t->entry->id);
}

static void gate_correct(struct qm_matrix *m, const struct qm_mutant_result *t)
{
    m->runs += t->runs;
    m->alarms += t->alarms;
    for (int k = 0; k < QM_MUTANT_REGIME_COUNT; k++)
        if (t->cell[k].is == QM_MATRIX_CELL_killed || t->cell[k].is == QM_MATRIX_CELL_refused)
            fault(m, "%s: false alarm in %s: %s", t->entry->id, qm_mutant_regime_name(k),
                  t->cell[k].finding ? t->cell[k].finding : "refused");
    for (int k = 0; k < QM_CASE_SET_COUNT; k++)
        if (t->set[k].is == QM_MATRIX_CELL_killed)
            fault(m, "%s: false alarm: %s", t->entry->id, t->set[k].finding);
}

static void gate(struct qm_matrix *m)
{
    for (int i = 0; i < m->n; i++) {
        const struct qm_mutant_result *t = &m->result[i];
        if (t->broken)
            fault(m, "%s: %s", t->entry->id, t->broken);
        else if (t->entry->kind == QM_MUTANT_mutant)
            gate_mutant(m, t);
        else
            gate_correct(m, t);
    }
}

qm_status qm_matrix_run(const struct qm_matrix_options *o, struct qm_matrix *m)
{
    double from = qm_seconds();
    *m = (struct qm_matrix){.o = *o};
    QM_TRY(choose(m));
    QM_TRY(run(m));
    gate(m);
    m->seconds = qm_seconds() - from;
    return QM_OK;
}

void qm_matrix_free(struct qm_matrix *m)
{
    for (int i = 0; i < m->n; i++)
        qm_mutant_result_free(&m->result[i]);
    for (int i = 0; i < m->n_faults; i++)
        free(m->fault[i]);
    free(m->result);
    free(m->fault);
    *m = (struct qm_matrix){0};
}
