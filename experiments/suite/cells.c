/* cells.c - Makes the cells of a suite: the product of its axes, with reasons for skipped cells. */
#include "core/base/name.h"
#include "experiments/problems/problem_wrapper.h"
#include "experiments/source/tensor_class.h"
#include "experiments/suite/cell_items.h"
#include "experiments/suite/control_cells.h"
#include "experiments/suite/unread.h"
#include "oracle/oracle.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- one cell -------------------------------------------------------------------------------- */

static qm_status integer(const struct qm_suite *s, const struct qm_cell *c, const char *key,
                         int64_t least, int64_t otherwise, int64_t *out)
{
    int a = qm_suite_axis(s, key);
    *out = otherwise;
    if (a < 0)
        return QM_OK;
    const struct qm_axis_value *v = &s->axis[a].value[qm_cell_value(s, c, a)];
    char *end;
    errno = 0;
    long long x = strtoll(v->text, &end, 10);
    if (*end || end == v->text || errno || x < least)
        return qm_suite_fail_at(
            s, v->line,
            qm_fail(QM_BAD_ARG,
                    "'%s' is '%.100s', expected an integer of at least %lld (1..4 lists four)", key,
                    v->text, (long long)least));
    *out = x;
    return QM_OK;
}

static const struct qm_axis_value *chosen(const struct qm_suite *s, const struct qm_cell *c,
                                          const char *key)
{
    int a = qm_suite_axis(s, key);
    return a < 0 ? NULL : &s->axis[a].value[qm_cell_value(s, c, a)];
}

static qm_status choose_start(const struct qm_suite *s, struct qm_cell *c)
{
    static const char *const words[] = {"problem", "ulp"};
    const struct qm_axis_value *v = chosen(s, c, "start"), *lr = chosen(s, c, "lr_scale");
    char *end;
    int i = v ? qm_name_find(v->text, words, 2) : 0;
    if (i < 0)
        return qm_suite_fail_at(s, v->line, qm_name_none_of("start", v->text, words, 2));
    c->start_ulp = i;
    c->lr_scale = lr ? strtod(lr->text, &end) : 1.0;
    if (lr && (*end || end == lr->text || !(c->lr_scale > 0.0 && c->lr_scale < 1e30)))
        return qm_suite_fail_at(
            s, lr->line,
            qm_fail(QM_BAD_ARG, "'lr_scale' is '%.99s', expected above 0, below 1e30", lr->text));
    return QM_OK;
}

static const char *const schedules[] = {
#define X(name, text) #name,
    QM_SCHEDULE_LIST(X)
#undef X
};

const char *qm_schedule_name(enum qm_schedule s) { return schedules[s]; }

static qm_status choose_training(const struct qm_suite *s, struct qm_cell *c)
{
    int64_t rank;
    QM_TRY(integer(s, c, "warmup", 0, 0, &c->warmup));
    QM_TRY(integer(s, c, "decay_rank", 0, 0, &rank));
    c->decay_rank = rank > QM_MAX_RANK ? QM_MAX_RANK + 1 : (int)rank;
    const struct qm_axis_value *schedule = chosen(s, c, "schedule"), *clip = chosen(s, c, "clip");
    int i = schedule ? qm_name_find(schedule->text, schedules, QM_SCHEDULE_COUNT) : 0;
    if (i < 0)
        return qm_suite_fail_at(
            s, schedule->line,
            qm_name_none_of("schedule", schedule->text, schedules, QM_SCHEDULE_COUNT));
    c->schedule = (enum qm_schedule)i;
    char *end = NULL;
    c->clip = clip ? strtod(clip->text, &end) : 0.0;
    if (clip && (*end || end == clip->text || !(c->clip >= 0.0 && c->clip < 1e30)))
        return qm_suite_fail_at(
            s, clip->line,
            qm_fail(QM_BAD_ARG, "'clip' is '%.100s', expected a number of at least 0", clip->text));
    return QM_OK;
}

/* Sets the reason why the cell is skipped, unless it has one already. */
static qm_status skip(struct qm_cell *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static qm_status skip(struct qm_cell *c, const char *format, ...)
{
    va_list args;
    char *text = NULL;
    if (c->reason)
        return QM_OK;
    va_start(args, format);
    int n = vasprintf(&text, format, args);
    va_end(args);
    c->reason = n < 0 ? NULL : qm_shared_text(text);
    if (n >= 0)
        free(text);
    return c->reason ? QM_OK : qm_fail(QM_NO_MEMORY, "cells");
}

/* Skips a cell whose recipe has no such state; name[n]. */
static qm_status skip_state(struct qm_cell *c, const struct qm_recipe *r, const char *name, int n)
{
    char has[256] = "";
    for (int i = 0; i < r->rule->n_slots; i++) {
        size_t used = strlen(has);
        snprintf(has + used, sizeof has - used, "%s%s", i ? ", " : "; it has ", r->rule->slot[i]);
    }
    return skip(c, "%s has no state %.*s%s", r->base->name, n, name, has);
}

static int has_slot(const struct qm_rule *rule, const char *key)
{
    size_t n = strcspn(key, ".");
    for (int i = 0; i < rule->n_slots; i++)
        if (strncmp(rule->slot[i], key, n) == 0 && rule->slot[i][n] == 0)
            return 1;
    return 0;
}

static int is_slot_key(const char *key)
{
    for (int r = 0; r < qm_rule_count(); r++)
        if (has_slot(qm_rule_at(r), key))
            return 1;
    return 0;
}

static int is_number(const char *text)
{
    char *end;
    double x = strtod(text, &end);
    return end != text && !*end && isfinite(x);
}

/* Sets one recipe key.  What its slot refuses, or the rule does not read, makes the cell skipped;
 * misspelt words, and values that no recipe takes (lr: inf, block:abc), are errors. */
static qm_status override(const struct qm_suite *s, struct qm_cell *c, struct qm_recipe *r,
                          const struct qm_axis *axis, const struct qm_axis_value *v)
{
    if (is_slot_key(axis->key) && !has_slot(r->rule, axis->key))
        return skip_state(c, r, axis->key, (int)strcspn(axis->key, "."));
    c->lr_given |= strcmp(axis->key, "lr") == 0;
    qm_status st = qm_recipe_check_value(r, axis->key, v->text);
    if (st != QM_OK)
        return qm_suite_fail_at(s, v->line, st);
    st = qm_recipe_set(r, axis->key, v->text);
    int unread =
        qm_hyper_has(axis->key) && !qm_rule_reads(r->rule, axis->key) && is_number(v->text);
    if (st != QM_OK && (st != QM_BAD_ARG || !(is_slot_key(axis->key) || unread)))
        return qm_suite_fail_at(s, v->line, st);
    return st == QM_OK ? QM_OK : skip(c, "%s", qm_message());
}

enum { INSTANCES = 4096 };

/* What cells share.  at: what build_recipe makes of each choice on the axes of recipes, where the
 * cell has no reason before; instance: the problem's arguments, by instance modulo INSTANCES. */
struct parts_made {
    struct instance_made {
        const struct qm_cell_item *item; /* NULL: not made yet */
        int64_t instance;
        const char *args;
        int has_data;
    } instance[INSTANCES];
    int64_t n; /* the product of those axes; 0: too many to keep */
    struct made {
        const struct qm_recipe *recipe; /* NULL: not made yet */
        const char *reason;
        int lr_given;
    } * at;
};

static int is_of_recipe(const struct qm_axis *a)
{
    return a->is_recipe || strcmp(a->key, "variant") == 0;
}

static qm_status parts_made_open(const struct qm_suite *s, struct parts_made *m)
{
    enum { MOST = 1000000 };
    m->n = 1;
    for (int a = 0; a < s->n_axes && m->n <= MOST; a++)
        m->n *= is_of_recipe(&s->axis[a]) ? s->axis[a].n : 1;
    if (m->n > MOST)
        m->n = 0;
    m->at = calloc((size_t)m->n + 1, sizeof *m->at);
    return m->at ? QM_OK : qm_fail(QM_NO_MEMORY, "recipes");
}

/* The place of the cell's recipe in m; NULL: it has none. */
static struct made *made_at(const struct qm_suite *s, const struct parts_made *m,
                            const struct qm_cell *c)
{
    int64_t at = 0;
    if (c->reason || m->n == 0)
        return NULL;
    for (int a = 0; a < s->n_axes; a++)
        if (is_of_recipe(&s->axis[a]))
            at = at * s->axis[a].n + qm_cell_value(s, c, a);
    return &m->at[at];
}

/* Builds the cell's recipe: the variant with all recipe keys of the suite. */
static qm_status make_recipe(const struct qm_suite *s, struct qm_cell *c)
{
    int a = qm_suite_axis(s, "variant");
    struct qm_recipe r;
    const struct qm_axis_value *name = &s->axis[a].value[qm_cell_value(s, c, a)];
    qm_status st = qm_recipe_parse(name->text, &r);
    c->lr_given |= strstr(name->text, ",lr=") != NULL;
    if (st != QM_OK)
        return qm_suite_fail_at(s, name->line, st);
    for (int i = 0; i < 2 * s->n_axes; i++) { /* first whole slots, then single axes of slots */
        const struct qm_axis *axis = &s->axis[i % s->n_axes];
        if (axis->is_recipe && (strchr(axis->key, '.') != NULL) == (i >= s->n_axes) && !c->reason)
            QM_TRY(override(s, c, &r, axis, &axis->value[qm_cell_value(s, c, i % s->n_axes)]));
    }
    if (!c->reason && qm_recipe_applicable(&r) != QM_OK)
        QM_TRY(skip(c, "%s", qm_message()));
    const struct qm_recipe *shared = qm_shared_recipe(&r);
    if (!shared)
        return qm_fail(QM_NO_MEMORY, "cells");
    c->recipe = shared;
    return QM_OK;
}

/* As make_recipe, once for each choice. */
static qm_status build_recipe(const struct qm_suite *s, struct parts_made *m, struct qm_cell *c)
{
    struct made *made = made_at(s, m, c);
    if (!made || !made->recipe) {
        QM_TRY(make_recipe(s, c));
        if (made)
            *made = (struct made){c->recipe, c->reason, c->lr_given};
        return QM_OK;
    }
    c->recipe = made->recipe;
    c->reason = made->reason;
    c->lr_given = made->lr_given != 0;
    return QM_OK;
}

/* Fails with the slots of all rules that `name` may mean. */
static qm_status no_slot(const char *name)
{
    const char *all[64];
    int n = 0;
    for (int r = 0; r < qm_rule_count(); r++)
        for (int i = 0; i < qm_rule_at(r)->n_slots && n < 64; i++)
            if (qm_name_find(qm_rule_at(r)->slot[i], all, n) < 0)
                all[n++] = qm_rule_at(r)->slot[i];
    char near[QM_NAME_NEAR];
    qm_name_near(name, all, n, near);
    if (!*near)
        return qm_name_none_of("slot", name, all, n);
    return qm_fail(QM_NO_MATCH, "no rule has a slot '%s'; did you mean %s?", name, near);
}

/* The first state of the rule that an axis with several values varies; 0: none is. */
static uint8_t varied_slot(const struct qm_suite *s, const struct qm_rule *rule)
{
    for (int i = 0; i < rule->n_slots; i++)
        for (int a = 0; a < s->n_axes; a++) {
            const char *key = s->axis[a].key;
            size_t n = strlen(rule->slot[i]);
            if (s->axis[a].n > 1 && strncmp(key, rule->slot[i], n) == 0 &&
                (key[n] == '.' || !key[n]))
                return (uint8_t)i;
        }
    return 0;
}

static qm_status choose_slot(const struct qm_suite *s, struct qm_cell *c)
{
    int a = qm_suite_axis(s, "slot");
    int trains = c->coupling == QM_COUPLING_closed || c->coupling == QM_COUPLING_update;
    c->slot = trains ? 0 : varied_slot(s, c->recipe->rule);
    if (a < 0)
        return c->recipe->rule->n_slots > 0 ? QM_OK : skip(c, "the rule has no state");
    const struct qm_axis_value *v = &s->axis[a].value[qm_cell_value(s, c, a)];
    if (!is_slot_key(v->text))
        return qm_suite_fail_at(s, v->line, no_slot(v->text));
    for (int i = 0; i < c->recipe->rule->n_slots; i++)
        if (strcmp(c->recipe->rule->slot[i], v->text) == 0) {
            c->slot = i;
            return QM_OK;
        }
    return skip_state(c, c->recipe, v->text, (int)strlen(v->text));
}

static qm_status choose_coupling(const struct qm_suite *s, struct qm_cell *c)
{
    int a = qm_suite_axis(s, "coupling");
    c->coupling = QM_COUPLING_oneshot;
    if (a < 0)
        return QM_OK;
    const char *names[QM_COUPLING_COUNT];
    const struct qm_axis_value *v = &s->axis[a].value[qm_cell_value(s, c, a)];
    for (int i = 0; i < QM_COUPLING_COUNT; i++)
        names[i] = qm_coupling_name((enum qm_coupling)i);
    int i = qm_name_find(v->text, names, QM_COUPLING_COUNT);
    if (i < 0)
        return qm_suite_fail_at(s, v->line,
                                qm_name_none_of("coupling", v->text, names, QM_COUPLING_COUNT));
    c->coupling = (enum qm_coupling)i;
    return QM_OK;
}

/* Whether a state that the run recorded is one that the rule can go on from.  Rules that differ in
 * weight decay alone go on from each other's in coupling update, which has none. */
static int goes_on(const struct qm_cell *c, const struct qm_rule *rule, const struct qm_recorded *r)
{
    if (strcmp(rule->family, "ema") == 0)
        return strcmp(r->optimizer, "sgdm") != 0;
    return !*r->optimizer || strcmp(r->optimizer, rule->family) == 0 ||
           (c->coupling == QM_COUPLING_update && qm_oracle_has_adam_states(r->optimizer) &&
            qm_oracle_has_adam_states(rule->family));
}

/* Skips where a checkpoint's states are another rule's, by their number and the first one's name;
 * the names of bitsandbytes are the same for all rules. */
static qm_status check_states(struct qm_cell *c, const struct qm_rule *rule,
                              const struct qm_recorded *r)
{
    char want[256] = "";
    if (!*r->states || rule->n_slots == 0 || strcmp(rule->family, "ema") == 0)
        return QM_OK;
    size_t first = strcspn(r->states, ",");
    int is_named = strncmp(r->states, "state1", first) == 0 ||
                   (strncmp(r->states, rule->slot[0], first) == 0 && !rule->slot[0][first]);
    if (is_named && r->has_slot[0] + r->has_slot[1] == rule->n_slots)
        return QM_OK;
    for (int i = 0; i < rule->n_slots; i++) {
        size_t n = strlen(want);
        snprintf(want + n, sizeof want - n, "%s%s", n ? ", " : "", rule->slot[i]);
    }
    if (rule->n_slots > 2)
        return skip(c, "%s are read, and rule %s has more: %s", r->states, rule->name, want);
    return skip(c, "the file's states are %s, those of rule %s are %s", r->states, rule->name,
                want);
}

/* Skips where the record lacks what the next update takes. */
static qm_status check_update(struct qm_cell *c, const struct qm_rule *rule,
                              const struct qm_recorded *r)
{
    int has_next = r->has_grad && r->has_param;
    if (!has_next &&
        !(c->coupling == QM_COUPLING_update && qm_oracle_has_adam_states(rule->family)))
        return r->has_grad || !*r->states
                   ? skip(c, "the run recorded no %s", r->has_grad ? "param" : "grad")
                   : skip(c,
                          "a checkpoint has no gradient, which the next update by rule %s needs; "
                          "`qualm analyze` without --recipe, or coupling oneshot, measures states "
                          "without one",
                          rule->name);
    for (int i = 0; i < rule->n_slots; i++)
        if (i >= 2 || !r->has_slot[i])
            return skip(c, "the run recorded no %s", rule->slot[i]);
    if (rule->n_slots == 2 && r->unknown && !*r->states)
        return skip(c, "the run recorded no %s, as its group's attributes should", r->unknown);
    if (rule->n_slots == 2 && r->unknown)
        return skip(
            c,
            "the file does not say %s, which the next update needs: a checkpoint does, and "
            "its `qualm import` as .h5 or .safetensors, not arrays; `qualm analyze` without "
            "--recipe measures states without it",
            r->unknown);
    return QM_OK;
}

qm_status qm_cell_check_source(struct qm_cell *c)
{
    const struct qm_rule *rule = c->recipe->rule;
    const struct qm_recorded *r = c->recorded;
    const char *coupling = qm_coupling_name(c->coupling);
    if (c->kind == QM_SOURCE_empty)
        return QM_OK;
    if (c->coupling == QM_COUPLING_closed && c->kind != QM_SOURCE_problem)
        return skip(c, "closed needs a problem: source, which has its own gradients");
    if (c->coupling == QM_COUPLING_closed && c->lr_given && c->recipe->hyper.lr == 0.0)
        return skip(c, "lr is 0, with which nothing is trained");
    if (c->lr_scale != 1.0 && c->kind != QM_SOURCE_problem)
        return skip(c, "lr_scale needs a problem: source, which has a learning rate");
    const char *training = c->warmup          ? "warmup"
                           : c->decay_rank    ? "decay_rank"
                           : c->schedule != 0 ? "schedule"
                           : c->clip > 0.0    ? "clip"
                                              : NULL;
    if (training && c->kind != QM_SOURCE_problem)
        return skip(c, "%s needs a problem: source", training);
    if (c->start_ulp && c->coupling != QM_COUPLING_closed)
        return skip(c, "start: ulp needs coupling closed");
    if (c->start_ulp && !qm_recipe_is_full(c->recipe))
        return skip(c, "start: ulp needs a variant with float32 states, parameter and gradient");
    if (c->coupling == QM_COUPLING_closed && !c->problem->optimum)
        return skip(c, "problem %s prescribes its gradients and has no loss; take local or global",
                    c->problem->name);
    if (c->coupling == QM_COUPLING_update && c->kind != QM_SOURCE_states)
        return skip(c, "update needs a states: source, which has the gradient of the next update");
    if ((c->coupling == QM_COUPLING_closed || c->coupling == QM_COUPLING_update) &&
        strcmp(rule->family, "ema") == 0)
        return skip(c, "rule %s never moves the parameter", rule->name);
    if (c->coupling == QM_COUPLING_oneshot && c->kind != QM_SOURCE_states &&
        c->kind != QM_SOURCE_dist)
        return skip(c, "oneshot needs a states: or dist: source");
    if (c->kind == QM_SOURCE_dist) {
        const struct qm_dist *d = qm_dist_at(c->dist->id);
        if (c->coupling == QM_COUPLING_oneshot && d->sign && !rule->slot_sign[c->slot])
            return skip(c, "%s has both signs, %s is never negative", d->name, rule->slot[c->slot]);
    }
    if (!r)
        return QM_OK;
    if (c->coupling == QM_COUPLING_oneshot)
        return r->has_slot[c->slot]
                   ? QM_OK
                   : skip(c, "the run (%s) recorded no %s", r->optimizer, rule->slot[c->slot]);
    if (r->lacking)
        return qm_fail(QM_BAD_FILE, "%s", r->lacking);
    if (!goes_on(c, rule, r))
        return skip(c, "the run was made by %s, the variant's rule is %s, of family %s, not %s",
                    r->optimizer, rule->name, rule->family, r->optimizer);
    QM_TRY(check_states(c, rule, r));
    if (!c->reason)
        QM_TRY(check_update(c, rule, r));
    if (!c->reason && c->lr_given)
        return skip(c, "%s replays the run's own lr; the suite sets another", coupling);
    return QM_OK;
}

static qm_status choose_instance(const struct qm_suite *s, const struct qm_cell_item *item,
                                 struct parts_made *made, struct qm_cell *c)
{
    QM_TRY(integer(s, c, "instance", 1, 1, &c->instance));
    if (c->problem) {
        struct instance_made *m = &made->instance[c->instance % INSTANCES];
        if (m->item != item || m->instance != c->instance) {
            char *args;
            int has_data;
            QM_TRY(qm_problem_instance(c->problem, item->rest, c->instance, &args, &has_data));
            *m = (struct instance_made){item, c->instance, qm_shared_text(args), has_data != 0};
            free(args);
        }
        c->has_data = m->has_data != 0;
        c->problem_args = m->args;
        return c->problem_args ? QM_OK : qm_fail(QM_NO_MEMORY, "cells");
    }
    if (c->kind == QM_SOURCE_empty && !(c->problem_args = qm_shared_text(item->rest)))
        return qm_fail(QM_NO_MEMORY, "cells");
    return c->instance == 1 ? QM_OK : skip(c, "instance needs a problem: source");
}

static qm_status build_cell(const struct qm_suite *s, const struct qm_cell_item *item,
                            struct parts_made *made, struct qm_cell *c)
{
    int64_t seed, rounding;
    c->kind = item->kind;
    c->dist = item->dist;
    c->problem = item->problem;
    c->recorded = item->recorded;
    c->every = s->every;
    c->float32 = c->ulp = c->own = -1;
    c->rate = 1.0;
    for (int i = 0; i < QM_BUDGET_COUNT; i++)
        c->without[i] = -1;
    c->tensor = item->tensor ? item->tensor : "";
    c->class_name = item->recorded  ? qm_tensor_class(c->tensor, &item->recorded->shape)
                    : item->problem ? "problem"
                    : item->kind == QM_SOURCE_dist ? "dist"
                                                   : "";
    c->source_text = item->text;
    QM_TRY(integer(s, c, "seed", 0, 1, &seed));
    QM_TRY(integer(s, c, "steps", 1, 0, &c->steps));
    QM_TRY(integer(s, c, "n", 1, 65536, &c->n));
    if (c->n >> 38) /* the counters of draws have room for so many, and no machine has */
        return qm_fail(QM_BAD_ARG, "%s: n: %lld, expected less than 2^38", s->path,
                       (long long)c->n);
    QM_TRY(integer(s, c, "rounding_seed", 0, 0, &rounding));
    QM_TRY(choose_instance(s, item, made, c));
    c->seed = (uint64_t)seed;
    c->rounding_seed = (uint64_t)rounding;
    QM_TRY(choose_start(s, c));
    QM_TRY(choose_training(s, c));
    QM_TRY(choose_coupling(s, c));
    if (item->reason)
        QM_TRY(skip(c, "%s", item->reason));
    QM_TRY(build_recipe(s, made, c));
    QM_TRY(choose_slot(s, c));
    return c->reason ? QM_OK : qm_cell_check_source(c);
}

uint64_t qm_cell_seed(const struct qm_cell *c)
{
    return c->seed + ((uint64_t)(c->instance - 1) << 24);
}

uint64_t qm_cell_rounding(const struct qm_cell *c)
{
    return qm_cell_seed(c) + (c->rounding_seed << 32);
}

/* ---- the product ----------------------------------------------------------------------------- */

_Static_assert(sizeof(struct qm_cell) <= 216, "10 million cells are to fit in 3 GiB");

/* The weight of an axis in c->choices: its digit is 0 where the cell has no value of it. */
static uint64_t weight(const struct qm_suite *s, int axis)
{
    uint64_t w = 1;
    for (int a = s->n_axes - 1; a > axis; a--)
        w *= (uint64_t)s->axis[a].n + 1;
    return w;
}

int qm_cell_value(const struct qm_suite *s, const struct qm_cell *c, int axis)
{
    return (int)(c->choices / weight(s, axis) % ((uint64_t)s->axis[axis].n + 1)) - 1;
}

void qm_cell_take(const struct qm_suite *s, struct qm_cell *c, int axis, int value)
{
    c->choices += weight(s, axis) * (uint64_t)(value - qm_cell_value(s, c, axis));
}

/* Skips all cells where none of them reads a key of the suite. */
static qm_status skip_unread(const struct qm_suite *s, struct qm_cell *cell, int64_t n)
{
    char text[QM_UNREAD_TEXT];
    qm_suite_unread(s, cell, n, text);
    for (int64_t i = 0; i < n && *text; i++)
        QM_TRY(skip(&cell[i], "%s", text));
    return QM_OK;
}

qm_status qm_suite_cells(const struct qm_suite *s, const struct qm_replay *replay,
                         struct qm_cell **cells, int64_t *n_cells)
{
    static const struct qm_recipe none; /* until a cell gets its own */
    struct qm_cell_items items = {0};
    struct parts_made made = {0};
    struct qm_cell *list = NULL;
    int64_t total = 1;
    int source = qm_suite_axis(s, "source");
    qm_status st = qm_cell_items_find(s, replay, &items);
    for (int a = 0; st == QM_OK && a < s->n_axes; a++) {
        total *= a == source ? items.n : s->axis[a].n;
        if (total > QM_SUITE_CELLS)
            st = qm_suite_fail_at(
                s, s->axis[a].line,
                qm_fail(QM_BAD_ARG, "more than 10 million cells; split the suite"));
    }
    if (st == QM_OK) {
        list = calloc((size_t)(total > 0 ? total : 1), sizeof *list);
        st = list ? parts_made_open(s, &made)
                  : qm_fail(QM_NO_MEMORY, "%lld cells", (long long)total);
    }
    for (int64_t i = 0; st == QM_OK && i < total; i++) {
        int64_t rest = i;
        int item = 0;
        list[i].index = i;
        list[i].recipe = &none;
        for (int a = s->n_axes - 1; a >= 0; a--) {
            int n = a == source ? items.n : s->axis[a].n;
            int k = (int)(rest % n);
            rest /= n;
            item = a == source ? k : item;
            qm_cell_take(s, &list[i], a, a == source ? items.item[k].value : k);
        }
        st = build_cell(s, &items.item[item], &made, &list[i]);
    }
    if (st == QM_OK)
        st = skip_unread(s, list, total);
    qm_cell_items_free(&items);
    free(made.at);
    if (st != QM_OK) {
        free(list);
        return st;
    }
    *cells = list;
    *n_cells = total;
    st = s->paired ? qm_protocol_cells(s, cells, n_cells) : QM_OK;
    if (st != QM_OK) {
        free(*cells);
        *cells = NULL;
        *n_cells = 0;
    }
    return st;
}
