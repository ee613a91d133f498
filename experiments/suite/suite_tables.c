/* suite_tables.c - Reads the tables of a suite (summary) and the expectations of its claim. */
#include "experiments/suite/suite_yaml.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/name.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

/* ---- summary --------------------------------------------------------------------------------- */

static qm_status where_pair(struct qm_yaml_walk *w, const char *key, const yaml_node_t *at,
                            const yaml_node_t *value, void *to)
{
    struct qm_summary_plan *p = to;
    if (p->n_where == QM_SUITE_BY)
        return qm_yaml_fail(w, at, QM_BAD_ARG, "'where' takes at most %d keys", QM_SUITE_BY);
    int i = p->n_where++;
    QM_TRY(qm_yaml_copy(key, &p->where_key[i]));
    return qm_yaml_scalar(w, value, "where", &p->where_label[i]);
}

static qm_status versus_pair(struct qm_yaml_walk *w, const char *key, const yaml_node_t *at,
                             const yaml_node_t *value, void *to)
{
    struct qm_summary_plan *p = to;
    if (p->versus_key)
        return qm_yaml_fail(w, at, QM_BAD_ARG, "'versus' takes one key");
    QM_TRY(qm_yaml_copy(key, &p->versus_key));
    return qm_yaml_scalar(w, value, "versus", &p->versus_label);
}

static const char *const summary_keys[] = {"name", "by",     "across", "value",
                                           "stat", "versus", "where",  "headline"};

static qm_status summary_pair(struct qm_yaml_walk *w, const char *key, const yaml_node_t *at,
                              const yaml_node_t *value, void *to)
{
    struct qm_summary_plan *p = to;
    switch (qm_name_find(key, summary_keys, COUNT(summary_keys))) {
    case 0: return qm_yaml_scalar(w, value, key, &p->name);
    case 1: return qm_yaml_words(w, value, key, QM_SUITE_BY, p->by, &p->n_by);
    case 2: return qm_yaml_scalar(w, value, key, &p->across);
    case 3: return qm_yaml_words(w, value, key, QM_SUITE_VALUES, p->value, &p->n_values);
    case 4: return qm_yaml_words(w, value, key, QM_SUITE_VALUES, p->stat, &p->n_stats);
    case 5: return qm_yaml_pairs(w, value, "versus", versus_pair, p);
    case 6: return qm_yaml_pairs(w, value, "where", where_pair, p);
    case 7: return qm_yaml_scalar(w, value, key, &p->headline);
    default:
        qm_name_unknown("key of a summary", key, summary_keys, COUNT(summary_keys));
        return qm_yaml_place(w->s->path, qm_yaml_line(at), QM_BAD_ARG);
    }
}

qm_status qm_suite_summaries(struct qm_yaml_walk *w, const yaml_node_t *n)
{
    struct qm_suite *s = w->s;
    if (n->type != YAML_SEQUENCE_NODE)
        return qm_yaml_fail(w, n, QM_BAD_ARG, "'summary' takes a list of {by, value, stat}");
    int count = qm_yaml_items(n);
    s->summary = calloc((size_t)(count > 0 ? count : 1), sizeof *s->summary);
    if (!s->summary)
        return qm_fail(QM_NO_MEMORY, "suite");
    for (int i = 0; i < count; i++) {
        const yaml_node_t *item = qm_yaml_item(w, n, i);
        struct qm_summary_plan *p = &s->summary[s->n_summaries++];
        p->line = qm_yaml_line(item);
        QM_TRY(qm_yaml_pairs(w, item, "a summary", summary_pair, p));
        if (p->n_values == 0)
            return qm_yaml_fail(w, item, QM_BAD_ARG, "a summary needs 'value'");
        for (int j = 0; j < p->n_by; j++)
            for (int k = 0; k <= j; k++) {
                const char *other = k < j ? p->by[k] : p->across;
                if (other && strcmp(p->by[j], other) == 0)
                    return qm_yaml_fail(w, item, QM_BAD_ARG,
                                        "'%s' twice, in 'by' and '%s' of one summary", other,
                                        k < j ? "by" : "across");
            }
        char name[32];
        snprintf(name, sizeof name, "table%d", i + 1);
        if (!p->name)
            QM_TRY(qm_yaml_copy(name, &p->name));
        if (p->n_stats == 0) {
            QM_TRY(qm_yaml_copy("median", &p->stat[0]));
            p->n_stats = 1;
        }
        if (strchr(p->name, '/') || !*p->name || strcmp(p->name, ".") == 0)
            return qm_yaml_fail(w, item, QM_BAD_ARG, "'%s' is no name for a table", p->name);
        for (int j = 0; j < i; j++)
            if (strcmp(s->summary[j].name, p->name) == 0)
                return qm_yaml_fail(w, item, QM_BAD_ARG, "two summaries are called '%s'", p->name);
    }
    return QM_OK;
}

/* ---- claims ---------------------------------------------------------------------------------- */

static qm_status of_pair(struct qm_yaml_walk *w, const char *key, const yaml_node_t *at,
                         const yaml_node_t *value, void *to)
{
    struct qm_expect *e = to;
    if (e->n_of == QM_SUITE_BY)
        return qm_yaml_fail(w, at, QM_BAD_ARG, "'of' takes at most %d keys", QM_SUITE_BY);
    int i = e->n_of++;
    QM_TRY(qm_yaml_copy(key, &e->of_key[i]));
    return qm_yaml_scalar(w, value, "of", &e->of_label[i]);
}

static qm_status expect_versus(struct qm_yaml_walk *w, const char *key, const yaml_node_t *at,
                               const yaml_node_t *value, void *to)
{
    struct qm_expect *e = to;
    if (e->versus_key)
        return qm_yaml_fail(w, at, QM_BAD_ARG, "'versus' takes one key");
    QM_TRY(qm_yaml_copy(key, &e->versus_key));
    return qm_yaml_scalar(w, value, "versus", &e->versus_label);
}

static const char *const relations[] = {
#define X(name, bounds, text) #name,
    QM_RELATION_LIST(X)
#undef X
};
static const int relation_bounds[] = {
#define X(name, bounds, text) bounds,
    QM_RELATION_LIST(X)
#undef X
};

/* Reads a relation such as "above 0" or "between -7.7 -6.7". */
static qm_status relation(struct qm_yaml_walk *w, const yaml_node_t *n, struct qm_expect *e)
{
    char word[16] = "", *rest;
    QM_TRY(qm_yaml_scalar(w, n, "relation", &e->relation_text));
    sscanf(e->relation_text, "%15s", word);
    int which = qm_name_find(word, relations, QM_RELATION_COUNT), ok = which >= 0;
    rest = e->relation_text + strspn(e->relation_text, " ") + strlen(word);
    for (int i = 0; ok && i < relation_bounds[which]; i++) {
        char *from = rest;
        e->bound[i] = strtod(from, &rest);
        ok = rest != from && isfinite(e->bound[i]);
    }
    if (!ok || *rest || (which == QM_RELATION_between && !(e->bound[0] < e->bound[1])))
        return qm_yaml_fail(w, n, QM_BAD_ARG,
                            "'%s': expected 'above X', 'below X' or 'between X Y' with X < Y",
                            e->relation_text);
    e->relation = (enum qm_relation)which;
    return QM_OK;
}

static const char *const expect_keys[] = {"value", "of", "versus", "unit", "relation", "each"};

static qm_status expect_pair(struct qm_yaml_walk *w, const char *key, const yaml_node_t *at,
                             const yaml_node_t *value, void *to)
{
    struct qm_expect *e = to;
    switch (qm_name_find(key, expect_keys, COUNT(expect_keys))) {
    case 0: return qm_yaml_scalar(w, value, key, &e->value);
    case 1: return qm_yaml_pairs(w, value, "'of'", of_pair, e);
    case 2: return qm_yaml_pairs(w, value, "'versus'", expect_versus, e);
    case 3: return qm_yaml_scalar(w, value, key, &e->unit);
    case 4: return relation(w, value, e);
    case 5: return qm_yaml_scalar(w, value, key, &e->each);
    default:
        return qm_yaml_fail(w, at, QM_BAD_ARG, "no key '%s' in expect; there are %s", key,
                            "value, of, versus, unit, relation and each");
    }
}

qm_status qm_suite_expects(struct qm_yaml_walk *w, const yaml_node_t *n)
{
    struct qm_suite *s = w->s;
    if (n->type != YAML_SEQUENCE_NODE)
        return qm_yaml_fail(w, n, QM_BAD_ARG,
                            "'expect' takes a list of {value, of, versus, relation}");
    int count = qm_yaml_items(n);
    s->expect = calloc((size_t)(count > 0 ? count : 1), sizeof *s->expect);
    if (!s->expect)
        return qm_fail(QM_NO_MEMORY, "suite");
    for (int i = 0; i < count; i++) {
        const yaml_node_t *item = qm_yaml_item(w, n, i);
        struct qm_expect *e = &s->expect[s->n_expects++];
        e->line = qm_yaml_line(item);
        QM_TRY(qm_yaml_pairs(w, item, "an expectation", expect_pair, e));
        if (!e->value || !e->relation_text)
            return qm_yaml_fail(w, item, QM_BAD_ARG, "an expectation needs 'value' and 'relation'");
        if (!e->unit)
            QM_TRY(qm_yaml_copy("tensor", &e->unit));
    }
    return QM_OK;
}

void qm_suite_free_expect(struct qm_expect *e)
{
    qm_suite_free_words(e->of_key, QM_SUITE_BY);
    qm_suite_free_words(e->of_label, QM_SUITE_BY);
    free(e->value);
    free(e->unit);
    free(e->relation_text);
    free(e->each);
    free(e->versus_key);
    free(e->versus_label);
}

/* Copies e, restricted to cells that have this label on the axis e->each.  On failure *out holds
 * parts, which the caller frees. */
static qm_status restrict_to(const struct qm_expect *e, const char *label, struct qm_expect *out)
{
    char **const to[] = {&out->value, &out->unit, &out->relation_text, &out->versus_key,
                         &out->versus_label};
    char *const from[] = {e->value, e->unit, e->relation_text, e->versus_key, e->versus_label};
    *out = (struct qm_expect){.line = e->line, .relation = e->relation};
    memcpy(out->bound, e->bound, sizeof out->bound);
    for (int i = 0; i < COUNT(to); i++)
        if (from[i])
            QM_TRY(qm_yaml_copy(from[i], to[i]));
    for (int i = 0; i <= e->n_of; i++, out->n_of++) {
        QM_TRY(qm_yaml_copy(i < e->n_of ? e->of_key[i] : e->each, &out->of_key[i]));
        QM_TRY(qm_yaml_copy(i < e->n_of ? e->of_label[i] : label, &out->of_label[i]));
    }
    return QM_OK;
}

static qm_status spread(const struct qm_suite *s, const struct qm_expect *e, struct qm_expect *to,
                        int *n)
{
    int a = qm_suite_axis(s, e->each);
    if (a < 0)
        return qm_yaml_fail_line(s->path, e->line, QM_BAD_ARG, "'each' is '%s', which is no axis",
                                 e->each);
    if (e->n_of == QM_SUITE_BY)
        return qm_yaml_fail_line(s->path, e->line, QM_BAD_ARG, "'of' and 'each' take %d keys",
                                 QM_SUITE_BY);
    for (int i = 0; i < s->axis[a].n; i++)
        QM_TRY(restrict_to(e, s->axis[a].value[i].label, &to[(*n)++]));
    return QM_OK;
}

qm_status qm_suite_spread(struct qm_suite *s)
{
    int room = 0, n = 0;
    for (int i = 0; i < s->n_expects; i++) {
        int a = s->expect[i].each ? qm_suite_axis(s, s->expect[i].each) : -1;
        room += a < 0 ? 1 : s->axis[a].n;
    }
    struct qm_expect *all = calloc((size_t)room + 1, sizeof *all);
    qm_status st = all ? QM_OK : qm_fail(QM_NO_MEMORY, "suite");
    for (int i = 0; st == QM_OK && i < s->n_expects; i++) {
        if (s->expect[i].each)
            st = spread(s, &s->expect[i], all, &n);
        else
            all[n++] = s->expect[i], s->expect[i] = (struct qm_expect){0};
    }
    for (int i = 0; all && i < s->n_expects; i++)
        qm_suite_free_expect(&s->expect[i]);
    if (all) {
        free(s->expect);
        s->expect = all;
        s->n_expects = n;
    }
    return st;
}
