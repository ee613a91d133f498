/* trial.c - Compiles a kernel of the registry and has a worker judge it in every regime. */
#include "experiments/mutants/trial.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/user_kernel/backend_file.h"
#include "experiments/kernel/child.h"
#include "experiments/kernel/wire.h"

static const struct qm_child_limits limits = {.seconds = 60.0, .mebibytes = 2048.0};

struct worker {
    struct qm_mutant_trial *t;
    struct qm_child child;
    json_t *job;
    struct qm_subject subject; /* only its recipe is set */
    const volatile int *stop;
    int is_up;
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

/* ---- the worker ------------------------------------------------------------------------------ */

static qm_status worker_up(struct worker *s)
{
    char why[400];
    int old;
    json_t *reply = NULL;
    if (s->is_up)
        return QM_OK;
    QM_TRY(qm_child_start(&s->child, "check", s->job, s->stop));
    enum qm_end how = qm_child_ask(&s->child, NULL, &limits, &reply, why, sizeof why, &old);
    if (how != QM_END_answered) {
        qm_child_stop(&s->child);
        return how == QM_END_stopped ? qm_fail(QM_INTERRUPTED, "interrupted")
                                     : qm_fail(QM_BAD_ARG, "while it was loaded: %s", why);
    }
    const char *as = json_string_value(json_object_get(reply, "as"));
    qm_status st =
        as ? qm_recipe_parse(as, &s->subject.recipe)
           : qm_fail(QM_BAD_ARG, "%s", json_string_value(json_object_get(reply, "error")));
    json_decref(reply);
    s->is_up = st == QM_OK;
    if (st != QM_OK)
        qm_child_stop(&s->child);
    return st;
}

/* The result of a case, from the worker's answer.  finding: its text, or NULL; the caller owns
 * it. */
static enum qm_cell_is read_answer(struct worker *s, const json_t *reply, char **finding)
{
    struct qm_tally *t = calloc(1, sizeof *t);
    enum qm_cell_is is = QM_CELL_refused;
    const char *text = json_string_value(json_object_get(reply, "refused"));
    if (!text)
        text = json_string_value(json_object_get(reply, "error"));
    if (t && !text && qm_wire_add(t, json_object_get(reply, "tally"))) {
        qm_judge_end(&s->subject, t);
        is = t->failed_cases ? QM_CELL_killed : t->judged > 0 ? QM_CELL_survives : is;
        text = t->failed_cases ? t->finding[0].text : NULL;
    }
    *finding = text ? strdup(text) : NULL;
    free(t);
    return is;
}

static qm_status one_case(struct worker *s, int regime, uint64_t seed, struct qm_kill_cell *c)
{
    char name[QM_CASE_TEXT], why[400];
    int old;
    json_t *reply = NULL;
    qm_mutant_regime_case(regime, s->t->entry->shape, name, sizeof name);
    QM_TRY(worker_up(s));
    json_t *request = json_pack("{s:s, s:s, s:o, s:b}", "do", "judge", "case", name, "seed",
                                qm_wire_seed(seed), "peer_rules", 1);
    enum qm_end how = qm_child_ask(&s->child, request, &limits, &reply, why, sizeof why, &old);
    if (how == QM_END_stopped)
        return qm_fail(QM_INTERRUPTED, "interrupted");
    if (how != QM_END_answered) {
        qm_child_stop(&s->child);
        s->is_up = 0;
        *c = (struct qm_kill_cell){.is = QM_CELL_killed, .finding = strdup(why)};
        return QM_OK;
    }
    *c = (struct qm_kill_cell){.digest = qm_wire_seed_of(json_object_get(reply, "digest"))};
    c->rejected_by = (unsigned)json_integer_value(json_object_get(reply, "killed"));
    c->is = read_answer(s, reply, &c->finding);
    json_decref(reply);
    return QM_OK;
}

static qm_status all_cases(struct worker *s, uint64_t seed, int seeds)
{
    struct qm_mutant_trial *t = s->t;
    for (int k = 0; k < seeds; k++)
        for (int i = 0; i < QM_MUTANT_REGIME_COUNT; i++) {
            struct qm_kill_cell c;
            QM_TRY(one_case(s, i, seed + (uint64_t)k, &c));
            t->runs++;
            t->alarms += c.is == QM_CELL_killed;
            if (k == 0 || (c.is == QM_CELL_killed && t->cell[i].is != QM_CELL_killed)) {
                free(t->cell[i].finding);
                t->cell[i] = c;
            } else {
                free(c.finding);
            }
        }
    return QM_OK;
}

qm_status qm_mutant_trial_run(struct qm_mutant_trial *t, const char *folder, uint64_t seed,
                              int seeds, const volatile int *stop)
{
    struct worker *s = calloc(1, sizeof *s);
    char object[PATH_MAX];
    if (!s)
        return qm_fail(QM_NO_MEMORY, "a trial");
    s->t = t;
    s->stop = stop;
    for (int i = 0; i < QM_MUTANT_REGIME_COUNT; i++)
        t->cell[i] = (struct qm_kill_cell){.is = QM_CELL_none};
    qm_status st = build(t->entry, folder, object, sizeof object);
    if (st == QM_OK) {
        s->job = json_pack("{s:s}", "object", object);
        st = all_cases(s, seed, seeds);
    }
    qm_child_stop(&s->child);
    json_decref(s->job);
    free(s);
    remove_files(folder);
    if (st != QM_BAD_ARG && st != QM_BAD_FILE)
        return st;
    t->broken = strdup(qm_message());
    return QM_OK;
}

/* ---- comparison ------------------------------------------------------------------------------ */

/* Adds the counts.  A quantized slot differs by its codes and scales, another array by its
 * values. */
static void count_differences(const json_t *against, struct qm_mutant_difference *to)
{
    size_t i;
    const json_t *c;
    json_array_foreach(against, i, c)
    {
        int64_t codes =
            json_integer_value(json_array_get(c, 1)) + json_integer_value(json_array_get(c, 2));
        to->outputs += json_integer_value(json_array_get(c, 0));
        to->differ += codes > 0 ? codes : json_integer_value(json_array_get(c, 3));
    }
}

static qm_status ask_both(struct worker *s, int regime, uint64_t seed)
{
    char name[QM_CASE_TEXT], why[400];
    int old;
    json_t *reply = NULL;
    struct qm_tally *t = calloc(1, sizeof *t);
    if (!t)
        return qm_fail(QM_NO_MEMORY, "a tally");
    qm_mutant_regime_case(regime, s->t->entry->shape, name, sizeof name);
    qm_status st = worker_up(s);
    json_t *request = json_pack("{s:s, s:s, s:o, s:b}", "do", "judge", "case", name, "seed",
                                qm_wire_seed(seed), "against", 1);
    enum qm_end how = st == QM_OK
                          ? qm_child_ask(&s->child, request, &limits, &reply, why, sizeof why, &old)
                          : QM_END_stopped;
    if (how == QM_END_answered && qm_wire_add(t, json_object_get(reply, "tally"))) {
        struct qm_mutant_difference *to = &s->t->cell[regime].difference;
        count_differences(json_object_get(reply, "against"), to);
        to->judged = t->judged;
        to->unbounded = t->unbounded;
        to->worst = t->worst_ratio;
    } else if (st == QM_OK) {
        st = how == QM_END_stopped
                 ? qm_fail(QM_INTERRUPTED, "interrupted")
                 : qm_fail(QM_INTERNAL, "%s: beside its template: %s", s->t->entry->id, why);
    }
    json_decref(reply);
    free(t);
    return st;
}

qm_status qm_mutant_trial_compare(struct qm_mutant_trial *t, const struct qm_mutant_entry *template,
                                  int regime, const char *folder, uint64_t seed,
                                  const volatile int *stop)
{
    struct worker *s = calloc(1, sizeof *s);
    char object[PATH_MAX], other[PATH_MAX], own[PATH_MAX - 32];
    if (!s)
        return qm_fail(QM_NO_MEMORY, "a trial");
    s->t = t;
    s->stop = stop;
    snprintf(own, sizeof own, "%s/template", folder);
    qm_status st = mkdir(own, 0700) == 0 ? build(template, own, other, sizeof other)
                                         : qm_fail(QM_BAD_FILE, "%s: %s", own, strerror(errno));
    if (st == QM_OK)
        st = build(t->entry, folder, object, sizeof object);
    if (st == QM_OK) {
        s->job = json_pack("{s:s, s:s}", "object", object, "against", other);
        st = ask_both(s, regime, seed);
    }
    qm_child_stop(&s->child);
    json_decref(s->job);
    free(s);
    remove_files(own);
    rmdir(own);
    remove_files(folder);
    return st;
}

void qm_mutant_trial_free(struct qm_mutant_trial *t)
{
    for (int i = 0; i < QM_MUTANT_REGIME_COUNT; i++)
        free(t->cell[i].finding);
    free(t->broken);
}
