/* cover.c - Counts which values of the cases' coordinates were exercised, alone and in pairs. */
#include "experiments/vectors/cover.h"

#include <stdio.h>
#include <string.h>

static const char *const coordinate_names[] = {
#define X(name, text) #name,
    QM_COVER_LIST(X)
#undef X
};

/* The ranges of first steps: from this number up to before the next. */
static const int64_t first_from[] = {1, 2, 100, 10000};
enum { FIRSTS = sizeof first_from / sizeof *first_from, RANKS = 6 /* the last one: 5 and more */ };

static void value(struct qm_cover *v, int coordinate, const char *format, const char *a,
                  const char *b)
{
    if (v->n[coordinate] < QM_COVER_VALUES)
        snprintf(v->name[coordinate][v->n[coordinate]++], QM_COVER_NAME, format, a, b);
}

/* The kinds of state that slot i can meet: coded; with a short last block; as floats. */
enum { CODED, SHORT, FLOATS, KINDS };

/* Whether some tensor has slot i. */
static int exists(const struct qm_recipe *r, int i)
{
    static const struct qm_shape shapes[] = {{2, {64, 68}}, {1, {300}}};
    struct qm_shape own[2] = {shapes[0], shapes[1]};
    for (int k = 0; k < 2; k++)
        qm_rule_slot_shape(r->rule, &r->hyper, i, &shapes[k], &own[k]);
    return qm_shape_numel(&own[0]) > 0 || qm_shape_numel(&own[1]) > 0;
}

static int can_be(const struct qm_recipe *r, int i, int kind)
{
    if (r->slot[i].bits == 0 || !exists(r, i))
        return 0;
    switch (kind) {
    case SHORT: return r->slot[i].norm == QM_NORM_block && r->slot[i].block > 1;
    case FLOATS: return r->min_numel[i] > 0 || r->whole_blocks[i];
    default: return 1;
    }
}

void qm_cover_start(const struct qm_recipe *r, struct qm_cover *out)
{
    static const char *const kinds[] = {"%s coded", "%s with a short block", "%s as floats"};
    static const char *const firsts[] = {"1", "2..99", "100..9999", "10000.."};
    static const char *const ranks[] = {"0", "1", "2", "3", "4", "5.."};
    memset(out, 0, sizeof *out);
#define X(name, text) value(out, QM_COVER_class, "%s%s", #name, "");
    QM_CLASS_LIST(X)
#undef X
#define X(name, lr, b1, b2, eps, wd, text) value(out, QM_COVER_setting, "%s%s", #name, "");
    QM_SETTING_LIST(X)
#undef X
    for (int i = 0; i < FIRSTS; i++)
        value(out, QM_COVER_first_step, "%s%s", firsts[i], "");
    for (int i = 0; i < RANKS; i++)
        value(out, QM_COVER_rank, "%s%s", ranks[i], "");
    value(out, QM_COVER_mode, "%s%s", "own", "");
    value(out, QM_COVER_mode, "%s%s", "forced", "");
    for (int i = 0; i < r->rule->n_slots; i++)
        for (int kind = 0; kind < KINDS; kind++)
            if (can_be(r, i, kind))
                value(out, QM_COVER_state, kinds[kind], r->rule->slot[i], "");
}

static void meet_states(struct qm_cover *v, const struct qm_recipe *r, const struct qm_case *c)
{
    struct qm_recipe at = *r;
    int k = 0;
    qm_case_apply(c, &at);
    for (int i = 0; i < r->rule->n_slots; i++) {
        struct qm_quantizer q = qm_recipe_slot(&at, i, &c->shape);
        struct qm_shape own = c->shape;
        qm_rule_slot_shape(r->rule, &at.hyper, i, &c->shape, &own);
        int64_t n = qm_shape_numel(&own);
        const int is[KINDS] = {q.bits && n > 0, q.bits && n > 0 && q.block > 0 && n % q.block != 0,
                               q.bits == 0 && n > 0};
        for (int kind = 0; kind < KINDS; kind++)
            if (can_be(r, i, kind) && k < v->n[QM_COVER_state])
                v->met[QM_COVER_state][k++] |= is[kind];
    }
}

void qm_cover_add(struct qm_cover *v, const struct qm_recipe *r, const struct qm_case *c)
{
    int is[QM_COVER_state] = {[QM_COVER_class] = (int)c->kind,
                              [QM_COVER_setting] = (int)c->setting,
                              [QM_COVER_rank] = c->shape.rank < RANKS ? c->shape.rank : RANKS - 1,
                              [QM_COVER_mode] = c->forced != 0};
    for (int i = 0; i < FIRSTS; i++)
        if (c->t >= first_from[i])
            is[QM_COVER_first_step] = i;
    for (int a = 0; a < QM_COVER_state; a++) {
        v->met[a][is[a]] = 1;
        for (int b = a + 1; b < QM_COVER_state; b++)
            v->pair[a][b][is[a]][is[b]] = 1;
    }
    meet_states(v, r, c);
}

/* Class exact has no other setting than exact. */
static int is_possible(int a, int i, int b, int k)
{
    return !(a == QM_COVER_class && b == QM_COVER_setting && i == QM_CLASS_exact) ||
           k == QM_SETTING_exact;
}

void qm_cover_pairs(const struct qm_cover *v, int *met, int *of)
{
    *met = *of = 0;
    for (int a = 0; a < QM_COVER_state; a++)
        for (int b = a + 1; b < QM_COVER_state; b++)
            for (int i = 0; i < v->n[a]; i++)
                for (int k = 0; k < v->n[b]; k++)
                    if (is_possible(a, i, b, k)) {
                        *met += v->pair[a][b][i][k];
                        ++*of;
                    }
}

/* The value names of a coordinate that were met (1) or not (0). */
static json_t *names(const struct qm_cover *v, int coordinate, int met)
{
    json_t *out = json_array();
    for (int i = 0; i < v->n[coordinate]; i++)
        if (v->met[coordinate][i] == met)
            json_array_append_new(out, json_string(v->name[coordinate][i]));
    return out;
}

static json_t *row(const char *coordinate, json_t *met, json_t *not_met)
{
    return json_pack("{s:s, s:o, s:o}", "coordinate", coordinate, "exercised", met, "not_exercised",
                     not_met);
}

/* The rows of a coordinate as text: how many values were met, and names of the others, as many to a
 * row as LINE characters hold. */
static void add_text(const struct qm_cover *v, int a, json_t *out)
{
    enum { LINE = 80 };
    char line[LINE + QM_COVER_NAME + 2] = "";
    int met = 0, first = 1;
    for (int i = 0; i < v->n[a]; i++)
        met += v->met[a][i];
    json_t *count = json_sprintf("%d of %d", met, v->n[a]);
    for (int i = 0, left = v->n[a] - met; i < v->n[a]; i++) {
        size_t used = strlen(line);
        if (v->met[a][i])
            continue;
        snprintf(line + used, sizeof line - used, "%s%s", v->name[a][i], --left ? ", " : "");
        if (strlen(line) < LINE - 16 && left)
            continue;
        json_array_append_new(out,
                              row(first ? coordinate_names[a] : "",
                                  first ? json_incref(count) : json_string(""), json_string(line)));
        first = 0;
        *line = '\0';
    }
    if (first)
        json_array_append_new(out, row(coordinate_names[a], json_incref(count), json_string("-")));
    json_decref(count);
}

json_t *qm_cover_report(const struct qm_cover *v, int as_text)
{
    json_t *out = json_array();
    int met, of;
    char pairs[32];
    for (int a = 0; a < QM_COVER_COUNT; a++)
        if (v->n[a] > 0 && as_text)
            add_text(v, a, out);
        else if (v->n[a] > 0)
            json_array_append_new(out, row(coordinate_names[a], names(v, a, 1), names(v, a, 0)));
    qm_cover_pairs(v, &met, &of);
    snprintf(pairs, sizeof pairs, "%d of %d", met, of);
    if (as_text)
        json_array_append_new(
            out, row("pairs", json_string(pairs),
                     met < of ? json_sprintf("%d pairs of values", of - met) : json_string("-")));
    return out;
}

char *qm_cover_gaps(const struct qm_cover *v, char text[QM_COVER_GAPS])
{
    size_t used = 0;
    int met, of;
    *text = '\0';
    for (int a = 0; a < QM_COVER_COUNT; a++) {
        int missing = 0;
        for (int i = 0; i < v->n[a]; i++)
            missing += !v->met[a][i];
        if (missing)
            used += (size_t)snprintf(text + used, QM_COVER_GAPS - used, "%s%d of %d %s",
                                     used ? ", " : "", missing, v->n[a], coordinate_names[a]);
    }
    qm_cover_pairs(v, &met, &of);
    if (met < of)
        snprintf(text + used, QM_COVER_GAPS - used, "%s%d of %d pairs", used ? ", " : "", of - met,
                 of);
    else if (!used)
        snprintf(text, QM_COVER_GAPS, "nothing of the list");
    return text;
}
