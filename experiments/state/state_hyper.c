/* state_hyper.c - Hyper-parameters of a stored tensor, carried over to another recipe. */
#include <stdlib.h>
#include <string.h>

#include "core/base/number.h"
#include "experiments/state/state_file.h"

/* clang-format off */
static const char *const names[] = {
#define X(name, initial, text) #name,
    QM_HYPER_LIST(X) QM_HYPER_FLAG_LIST(X)
#undef X
};
#define X(name, initial, text) + 1
enum { NAMES = sizeof names / sizeof *names, NUMBERS = QM_HYPER_LIST(X) };
#undef X
/* clang-format on */

static double value(const struct qm_hyper *h, int i)
{
    const double all[] = {
#define X(name, initial, text) h->name,
        QM_HYPER_LIST(X) QM_HYPER_FLAG_LIST(X)
#undef X
    };
    return all[i];
}

/* Whether the text of a recipe has ",name=". */
static int states(const char *recipe, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = strchr(recipe, ','); at; at = strchr(at + 1, ','))
        if (strncmp(at + 1, name, n) == 0 && at[1 + n] == '=')
            return 1;
    return 0;
}

/* A list of "name=value" in the making. */
struct list {
    char text[512];
    size_t n;
};

static void add(struct list *l, int i, double x)
{
    char number[QM_NUMBER_TEXT];
    int n = snprintf(l->text + l->n, sizeof l->text - l->n, "%s%s=%s", l->n ? ", " : "", names[i],
                     qm_double_text(x, number));
    l->n = l->n + (size_t)n < sizeof l->text ? l->n + (size_t)n : sizeof l->text - 1;
}

/* Sets hyper-parameter i of r; 0: the composition makes no sense, or no matrix can have it, and r
 * is as it was. */
static int set(struct qm_recipe *r, int i, double x)
{
    static const struct qm_shape matrix = {2, {64, 64}};
    struct qm_recipe next = *r;
    char number[QM_NUMBER_TEXT];
    if (qm_recipe_set(&next, names[i], qm_double_text(x, number)) != QM_OK ||
        qm_recipe_applicable(&next) != QM_OK ||
        qm_rule_takes(next.rule, &next.hyper, &matrix) != QM_OK)
        return 0;
    *r = next;
    return 1;
}

static void say(qm_state_note *note, void *context, const struct list *l, const char *what,
                const char *of)
{
    char line[640];
    if (!note || l->n == 0)
        return;
    snprintf(line, sizeof line, "%s: %s %s", l->text, what, of);
    note(line, context);
}

void qm_state_keep_hyper(const struct qm_state_tensor *t, const char *target, struct qm_recipe *r,
                         qm_state_note *note, void *context)
{
    const struct qm_hyper usual = qm_hyper_default();
    struct qm_recipe from;
    struct list unread = {"", 0}, refused = {"", 0};
    char line[2 * QM_RECIPE_TEXT + 80];
    if (qm_recipe_parse(t->recipe, &from) != QM_OK) {
        snprintf(line, sizeof line, "hyper-parameters are those of %s: recipe '%s' is refused: %s",
                 r->base->name, t->recipe, qm_message());
        if (note)
            note(line, context);
        return;
    }
    for (int i = 0; i < NAMES; i++) {
        int has = qm_rule_reads(from.rule, names[i]), reads = qm_rule_reads(r->rule, names[i]);
        double x = value(&from.hyper, i);
        int is_usual_flag = i >= NUMBERS && x == value(&usual, i);
        if (!has || states(target, names[i]))
            continue;
        if (!reads && !is_usual_flag)
            add(&unread, i, x);
        else if (reads && x != value(&r->hyper, i) && !set(r, i, x))
            add(&refused, i, x);
    }
    if (note && strcmp(from.rule->family, r->rule->family) != 0 && from.hyper.weight_decay != 0.0 &&
        !states(target, "weight_decay") && qm_rule_reads(r->rule, "weight_decay")) {
        snprintf(line, sizeof line,
                 "weight_decay=%g: kept as a number; rule %s may decay otherwise than %s (L2, or "
                 "decoupled)",
                 from.hyper.weight_decay, r->rule->name, from.rule->name);
        note(line, context);
    }
    say(note, context, &unread, "dropped, not read by rule", r->rule->name);
    say(note, context, &refused, "dropped, not possible in", r->base->name);
}
