/* judge_entry.c - Compiles a kernel of the registry, judges it in every regime in its process. */
#include "experiments/mutants/judge_entry.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/user_kernel/backend_file.h"
#include "experiments/check/domain.h"
#include "experiments/kernel/kernel_case.h"
#include "experiments/kernel/kernel_compare.h"
#include "experiments/kernel/peer_rules.h"

static const struct qm_host_limits limits = {.seconds = 60.0, .mebibytes = 2048.0, .processes = 64};

struct judge {
    struct qm_mutant_result *t;
    struct qm_kernel_file *kernel, *template; /* template: NULL unless both are compared */
    struct qm_subject subject;
    struct qm_tally tally;
};

/* ---- the file -------------------------------------------------------------------------------- */

static qm_status write_source(const struct qm_mutant_entry *e, const char *path)
{
    FILE *f = fopen(path, "w");
    if (!f)
        return qm_fail(QM_BAD_FILE, "%s: %s", path, strerror(errno));
    fputs(e->source, f);
    return fclose(f) == 0 ? QM_OK : qm_fail(QM_BAD_FILE, "%s: %s", path, strerror(errno));
}

static qm_status build(const struct qm_mutant_entry *e, const char *folder, char *object,
                       size_t size)
{
    char source[PATH_MAX];
    snprintf(source, sizeof source, "%s/kernel.c", folder);
    QM_TRY(write_source(e, source));
    return qm_kernel_file_build(source, folder, object, size);
}

static void remove_files(const char *folder)
{
    static const char *const made[] = {"kernel.c", "kernel.so", "kernel_abi.h", "kernel_nearest.h"};
    char path[PATH_MAX + 32];
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, made[i]);
        unlink(path);
    }
}

/* ---- the judge ------------------------------------------------------------------------------- */

static void judge_close(struct judge *j)
{
    if (!j)
        return;
    qm_kernel_file_close(j->kernel);
    qm_kernel_file_close(j->template);
    free(j);
}

/* Loads a kernel into a process of its own. */
static qm_status up(const char *object, const volatile int *stop, struct qm_kernel_file **out)
{
    struct qm_host_limits own = limits;
    own.stop = stop;
    QM_TRY(qm_kernel_file_apart(object, &own, out));
    qm_status st = qm_host_up(qm_kernel_file_host(*out));
    return st == QM_CHECK_FAILED ? qm_fail(QM_BAD_ARG, "while it was loaded: %s",
                                           qm_host_why(qm_kernel_file_host(*out)))
                                 : st;
}

static qm_status judge_begin(struct judge *j, const char *object, const volatile int *stop)
{
    QM_TRY(up(object, stop, &j->kernel));
    const char *as = qm_kernel_file_as(j->kernel);
    if (!as)
        return qm_fail(QM_BAD_ARG, "the kernel does not say which variant it is");
    QM_TRY(qm_recipe_parse(as, &j->subject.recipe));
    j->subject.backend = &qm_backend_file;
    j->subject.reorder = qm_reorder_any();
    qm_kernel_file_use(j->kernel);
    return qm_judge_begin(&j->subject, &j->tally);
}

static qm_status one_case(struct judge *j, int regime, uint64_t seed, struct qm_kill_cell *c)
{
    char name[QM_CASE_TEXT];
    struct qm_kernel_verdict v;
    struct qm_tally *t = &j->tally;
    struct qm_case which;
    qm_mutant_regime_case(regime, j->t->entry->shape, name, sizeof name);
    QM_TRY(qm_case_parse(name, &which));
    memset(t, 0, sizeof *t);
    j->subject.backend = &qm_backend_peer_rules;
    qm_peer_rules_begin(j->kernel);
    qm_status st = qm_kernel_judge(&j->subject, j->kernel, &which, seed, t, &v);
    if (st == QM_INTERRUPTED)
        return st;
    struct qm_peer_rules_result rules = qm_peer_rules_result();
    *c = (struct qm_kill_cell){.digest = rules.digest, .rejected_by = rules.killed};
    if (st == QM_OK && !qm_case_result_is_bad(v.how) && v.how != QM_CASE_refused)
        qm_judge_end(&j->subject, t);
    c->is = st != QM_OK || v.how == QM_CASE_refused               ? QM_MATRIX_CELL_refused
            : qm_case_result_is_bad(v.how) || t->failed_cases > 0 ? QM_MATRIX_CELL_killed
            : t->judged > 0                                       ? QM_MATRIX_CELL_survives
                                                                  : QM_MATRIX_CELL_refused;
    const char *text = st != QM_OK           ? qm_message()
                       : t->failed_cases > 0 ? t->finding[0].text
                                             : v.text;
    c->finding = *text ? strdup(text) : NULL;
    return QM_OK;
}

static qm_status all_cases(struct judge *s, uint64_t seed, int seeds)
{
    struct qm_mutant_result *t = s->t;
    for (int k = 0; k < seeds; k++)
        for (int i = 0; i < QM_MUTANT_REGIME_COUNT; i++) {
            struct qm_kill_cell c;
            QM_TRY(one_case(s, i, seed + (uint64_t)k, &c));
            t->runs++;
            t->alarms += c.is == QM_MATRIX_CELL_killed;
            if (k == 0 ||
                (c.is == QM_MATRIX_CELL_killed && t->cell[i].is != QM_MATRIX_CELL_killed)) {
                free(t->cell[i].finding);
                t->cell[i] = c;
            } else {
                free(c.finding);
            }
        }
    return QM_OK;
}

/* ---- the sets of check ----------------------------------------------------------------------- */

static void set_finds(struct qm_mutant_result *t, struct qm_case_set_result *set, const char *text)
{
    t->alarms++;
    set->is = QM_MATRIX_CELL_killed;
    if (!set->finding)
        set->finding = strdup(text);
}

/* Judges one case; a kernel may refuse it, as check lets it where its template does. */
static qm_status set_case(struct judge *j, const struct qm_case *c, uint64_t seed,
                          struct qm_case_set_result *set)
{
    struct qm_kernel_verdict v;
    char name[QM_CASE_TEXT], text[QM_CASE_TEXT + QM_VERDICT_TEXT];
    qm_status st = qm_kernel_judge(&j->subject, j->kernel, c, seed, &j->tally, &v);
    if (st == QM_INTERRUPTED)
        return st;
    set->cases += st == QM_OK && v.how != QM_CASE_refused && v.how != QM_CASE_unfit;
    if (st == QM_OK && !qm_case_result_is_bad(v.how))
        return QM_OK;
    snprintf(text, sizeof text, "%s: %s", qm_case_print(c, name),
             st == QM_OK ? v.text : qm_message());
    set_finds(j->t, set, text);
    return QM_OK;
}

static qm_status one_set(struct judge *j, enum qm_case_set which, int64_t count, uint64_t seed)
{
    struct qm_case_set_result *set = &j->t->set[which];
    struct qm_tally *t = &j->tally;
    struct qm_domain domain;
    int is_mutant = j->t->entry->kind == QM_MUTANT_mutant;
    if (which == QM_CASE_SET_listed && count > qm_case_count())
        count = qm_case_count();
    if (count == 0)
        return QM_OK;
    memset(t, 0, sizeof *t);
    j->subject.backend = &qm_backend_file;
    qm_domain_of(&j->subject.recipe, j->subject.backend, &domain);
    set->is = QM_MATRIX_CELL_survives;
    for (int64_t i = 0; i < count && !(is_mutant && set->is == QM_MATRIX_CELL_killed); i++) {
        struct qm_case c =
            which == QM_CASE_SET_listed ? qm_case_at((int)i) : qm_domain_draw(&domain, seed, i);
        QM_TRY(set_case(j, &c, seed, set));
    }
    if (set->is == QM_MATRIX_CELL_survives)
        qm_judge_end(&j->subject, t);
    if (set->is == QM_MATRIX_CELL_survives && t->failed_cases > 0)
        set_finds(j->t, set, t->finding[0].text);
    j->t->runs += set->cases;
    return QM_OK;
}

qm_status qm_mutant_judge(struct qm_mutant_result *t, const char *folder, uint64_t seed, int seeds,
                          const int64_t count[QM_CASE_SET_COUNT], const volatile int *stop)
{
    struct judge *j = calloc(1, sizeof *j);
    char object[PATH_MAX];
    if (!j)
        return qm_fail(QM_NO_MEMORY, "the judge of an entry");
    j->t = t;
    qm_mutant_result_free(t);
    t->broken = NULL;
    for (int i = 0; i < QM_MUTANT_REGIME_COUNT; i++)
        t->cell[i] = (struct qm_kill_cell){.is = QM_MATRIX_CELL_none};
    for (int i = 0; i < QM_CASE_SET_COUNT; i++)
        t->set[i] = (struct qm_case_set_result){.is = QM_MATRIX_CELL_none};
    qm_status st = build(t->entry, folder, object, sizeof object);
    if (st == QM_OK)
        st = judge_begin(j, object, stop);
    if (st == QM_OK)
        st = all_cases(j, seed, seeds);
    for (int i = 0; i < QM_CASE_SET_COUNT && st == QM_OK; i++)
        st = one_set(j, (enum qm_case_set)i, count[i], seed);
    judge_close(j);
    remove_files(folder);
    if (st != QM_BAD_ARG && st != QM_BAD_FILE)
        return st;
    t->broken = strdup(qm_message());
    return QM_OK;
}

/* ---- comparison ------------------------------------------------------------------------------ */

/* Adds the counts.  A quantized slot differs by its codes and scales, another array by
 * its values. */
static void count_differences(const struct qm_kernel_compare_count *c,
                              struct qm_mutant_difference *to)
{
    for (int i = 0; i <= QM_MAX_SLOTS; i++) {
        to->outputs += c[i].n;
        to->differ += c[i].codes + c[i].scales > 0 ? c[i].codes + c[i].scales : c[i].values;
    }
}

static qm_status judge_both(struct judge *j, int regime, uint64_t seed)
{
    char name[QM_CASE_TEXT];
    struct qm_kernel_verdict v;
    struct qm_tally *t = &j->tally;
    struct qm_case which;
    struct qm_mutant_difference *to = &j->t->cell[regime].difference;
    qm_mutant_regime_case(regime, j->t->entry->shape, name, sizeof name);
    QM_TRY(qm_case_parse(name, &which));
    memset(t, 0, sizeof *t);
    j->subject.backend = &qm_backend_compare;
    qm_kernel_compare_begin(j->kernel, j->template);
    qm_host_begin(qm_kernel_file_host(j->template));
    QM_TRY(qm_kernel_judge(&j->subject, j->kernel, &which, seed, t, &v));
    if (qm_case_result_is_bad(v.how) && v.how != QM_CASE_failed)
        return qm_fail(QM_INTERNAL, "%s: beside its template: %s", j->t->entry->id, v.text);
    count_differences(qm_kernel_compare_counts(), to);
    to->judged = t->judged;
    to->unbounded = t->unbounded;
    to->worst = t->worst_ratio;
    return QM_OK;
}

qm_status qm_mutant_compare(struct qm_mutant_result *t, const struct qm_mutant_entry *template,
                            int regime, const char *folder, uint64_t seed, const volatile int *stop)
{
    struct judge *j = calloc(1, sizeof *j);
    char object[PATH_MAX], other[PATH_MAX], own[PATH_MAX - 32];
    if (!j)
        return qm_fail(QM_NO_MEMORY, "the judge of an entry");
    j->t = t;
    snprintf(own, sizeof own, "%s/template", folder);
    qm_status st = mkdir(own, 0700) == 0 ? build(template, own, other, sizeof other)
                                         : qm_fail(QM_BAD_FILE, "%s: %s", own, strerror(errno));
    if (st == QM_OK)
        st = build(t->entry, folder, object, sizeof object);
    if (st == QM_OK)
        st = judge_begin(j, object, stop);
    if (st == QM_OK)
        st = up(other, stop, &j->template);
    if (st == QM_OK)
        st = judge_both(j, regime, seed);
    judge_close(j);
    remove_files(own);
    rmdir(own);
    remove_files(folder);
    return st;
}

int qm_mutant_kills(const struct qm_mutant_result *t)
{
    int count = 0;
    for (int k = 0; k < QM_MUTANT_REGIME_COUNT; k++)
        count += t->cell[k].is == QM_MATRIX_CELL_killed;
    for (int k = 0; k < QM_CASE_SET_COUNT; k++)
        count += t->set[k].is == QM_MATRIX_CELL_killed;
    return count;
}

void qm_mutant_result_free(struct qm_mutant_result *t)
{
    for (int i = 0; i < QM_MUTANT_REGIME_COUNT; i++)
        free(t->cell[i].finding);
    for (int i = 0; i < QM_CASE_SET_COUNT; i++)
        free(t->set[i].finding);
    free(t->broken);
}
