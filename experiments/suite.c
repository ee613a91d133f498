/* suite.c - reading suites: the YAML document walk, with line numbers. */
#include "experiments/suite.h"

#include "core/base/name.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

static const char *const coupling_names[] = {
#define X(name, text) #name,
    QM_COUPLING_LIST(X)
#undef X
};

const char *qm_coupling_name(enum qm_coupling c) { return coupling_names[c]; }

/* Keys besides those of recipes. */
static const char *const axis_keys[] = {"variant", "coupling",      "slot",   "source",
                                        "seed",    "steps",         "n",      "lr_scale",
                                        "start",   "rounding_seed", "warmup", "decay_rank"};
static const char *const plain_keys[] = {
    "title", "question",     "data",   "min_numel", "min_rank", "every", "summary",
    "claim", "claim_source", "expect", "protocol",  "budget",   "delta", "sizes"};
/* clang-format off */
static const char *const hyper_keys[] = {
#define X(name, value, text) #name,
    QM_HYPER_LIST(X) QM_HYPER_FLAG_LIST(X)
#undef X
    "grad", "param", "state_used"};
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
/* clang-format on */
#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

/* One document being walked. */
struct walk {
    struct qm_suite *s;
    yaml_document_t doc;
    const char *size;         /* that is asked for, or NULL */
    const yaml_node_t *other; /* what the suite says of it */
};

static int line_of(const yaml_node_t *n) { return (int)n->start_mark.line + 1; }

#define fail_at(w, node, code, ...)      fail_line((w)->s->path, line_of(node), code, __VA_ARGS__)
#define fail_line(path, line, code, ...) (qm_fail(code, __VA_ARGS__), fail_prefix(path, line, code))

static qm_status fail_prefix(const char *path, int line, qm_status code)
{
    char where[512];
    snprintf(where, sizeof where, "%s:%d", path, line);
    return qm_fail_in(code, where);
}

static const char *text_of(const yaml_node_t *n) { return (const char *)n->data.scalar.value; }

static yaml_node_t *node(struct walk *w, int id) { return yaml_document_get_node(&w->doc, id); }

static qm_status copy(const char *text, char **out)
{
    char *c = strdup(text);
    if (!c)
        return qm_fail(QM_NO_MEMORY, "suite");
    free(*out);
    *out = c;
    return QM_OK;
}

static qm_status scalar(struct walk *w, const yaml_node_t *n, const char *key, char **out)
{
    if (n->type != YAML_SCALAR_NODE)
        return fail_at(w, n, QM_BAD_ARG, "'%s' takes one value, not a list or map", key);
    return copy(text_of(n), out);
}

static qm_status integer(struct walk *w, const yaml_node_t *n, const char *key, int64_t least,
                         int64_t *out)
{
    char *end;
    if (n->type != YAML_SCALAR_NODE)
        return fail_at(w, n, QM_BAD_ARG, "'%s' takes one integer", key);
    errno = 0;
    long long x = strtoll(text_of(n), &end, 10);
    if (*end || end == text_of(n) || errno || x < least)
        return fail_at(w, n, QM_BAD_ARG, "'%s' is '%s', expected an integer of at least %lld", key,
                       text_of(n), (long long)least);
    *out = x;
    return QM_OK;
}

/* One value of an axis: a scalar, or a map of one pair, label: value. */
static qm_status axis_value(struct walk *w, const yaml_node_t *n, const char *key,
                            struct qm_axis_value *v)
{
    const yaml_node_t *value = n;
    v->line = line_of(n);
    if (n->type == YAML_MAPPING_NODE &&
        n->data.mapping.pairs.top - n->data.mapping.pairs.start == 1) {
        const yaml_node_t *label = node(w, n->data.mapping.pairs.start->key);
        value = node(w, n->data.mapping.pairs.start->value);
        if (label->type == YAML_SCALAR_NODE)
            QM_TRY(copy(text_of(label), &v->label));
    }
    if (value->type != YAML_SCALAR_NODE || (value != n && !v->label))
        return fail_at(w, n, QM_BAD_ARG, "a value of '%s' is neither a word nor 'label: word'",
                       key);
    QM_TRY(copy(text_of(value), &v->text));
    return v->label ? QM_OK : copy(v->text, &v->label);
}

/* "1..16" is the whole numbers from 1 to 16: how many; 0 for all else. */
static int64_t range_of(const yaml_node_t *n, int64_t *first)
{
    long long a, b;
    int end = 0;
    if (n->type != YAML_SCALAR_NODE || sscanf(text_of(n), "%lld..%lld%n", &a, &b, &end) != 2 ||
        text_of(n)[end] || a < 0 || b < a || b - a >= 1000000)
        return 0;
    *first = a;
    return b - a + 1;
}

static qm_status axis(struct walk *w, const char *key, int line, const yaml_node_t *n,
                      int is_recipe)
{
    struct qm_suite *s = w->s;
    if (s->n_axes == QM_SUITE_AXES)
        return fail_line(s->path, line, QM_BAD_ARG, "more than %d axes", QM_SUITE_AXES);
    int is_list = n->type == YAML_SEQUENCE_NODE;
    int count = is_list ? (int)(n->data.sequence.items.top - n->data.sequence.items.start) : 1;
    if (count == 0)
        return fail_line(s->path, line, QM_BAD_ARG, "'%s' is an empty list", key);
    struct qm_axis *a = &s->axis[s->n_axes++];
    a->line = line;
    a->is_recipe = is_recipe;
    int64_t first = 0, range = is_list || is_recipe ? 0 : range_of(n, &first);
    count = range ? (int)range : count;
    a->value = calloc((size_t)count, sizeof *a->value);
    if (!a->value)
        return qm_fail(QM_NO_MEMORY, "suite");
    QM_TRY(copy(key, &a->key));
    a->n = count;
    for (int i = 0; i < range; i++) {
        char text[24];
        snprintf(text, sizeof text, "%lld", (long long)(first + i));
        a->value[i].line = line_of(n);
        QM_TRY(copy(text, &a->value[i].text));
        QM_TRY(copy(text, &a->value[i].label));
    }
    if (range)
        return QM_OK;
    for (int i = 0; i < count; i++)
        QM_TRY(axis_value(w, is_list ? node(w, n->data.sequence.items.start[i]) : n, key,
                          &a->value[i]));
    for (int i = 0; i < count; i++)
        for (int j = 0; j < i; j++)
            if (strcmp(a->value[i].label, a->value[j].label) == 0)
                return fail_line(s->path, a->value[i].line, QM_BAD_ARG, "'%s' lists '%s' twice",
                                 key, a->value[i].label);
    return QM_OK;
}

/* A word or a list of words into an array of at most max. */
static qm_status words(struct walk *w, const yaml_node_t *n, const char *key, int max, char **out,
                       int *n_out)
{
    int is_list = n->type == YAML_SEQUENCE_NODE;
    int count = is_list ? (int)(n->data.sequence.items.top - n->data.sequence.items.start) : 1;
    if (count > max)
        return fail_at(w, n, QM_BAD_ARG, "'%s' takes at most %d words", key, max);
    for (int i = 0; i < count; i++) {
        QM_TRY(scalar(w, is_list ? node(w, n->data.sequence.items.start[i]) : n, key, &out[i]));
        *n_out = i + 1;
    }
    return QM_OK;
}

/* Calls each pair of a map; doubled keys are errors. */
typedef qm_status pair_fn(struct walk *w, const char *key, const yaml_node_t *at,
                          const yaml_node_t *value, void *to);

static qm_status each_pair(struct walk *w, const yaml_node_t *map, const char *what, pair_fn *fn,
                           void *to)
{
    if (map->type != YAML_MAPPING_NODE)
        return fail_at(w, map, QM_BAD_ARG, "%s is not a map of keys", what);
    yaml_node_pair_t *first = map->data.mapping.pairs.start, *last = map->data.mapping.pairs.top;
    for (yaml_node_pair_t *p = first; p < last; p++) {
        const yaml_node_t *key = node(w, p->key), *value = node(w, p->value);
        if (key->type != YAML_SCALAR_NODE)
            return fail_at(w, key, QM_BAD_ARG, "a key of %s is not a word", what);
        for (yaml_node_pair_t *q = first; q < p; q++)
            if (strcmp(text_of(node(w, q->key)), text_of(key)) == 0)
                return fail_at(w, key, QM_BAD_ARG, "'%s' appears twice, first on line %d",
                               text_of(key), line_of(node(w, q->key)));
        QM_TRY(fn(w, text_of(key), key, value, to));
    }
    return QM_OK;
}

static qm_status where_pair(struct walk *w, const char *key, const yaml_node_t *at,
                            const yaml_node_t *value, void *to)
{
    struct qm_summary_plan *p = to;
    if (p->n_where == QM_SUITE_BY)
        return fail_at(w, at, QM_BAD_ARG, "'where' takes at most %d keys", QM_SUITE_BY);
    int i = p->n_where++;
    QM_TRY(copy(key, &p->where_key[i]));
    return scalar(w, value, "where", &p->where_label[i]);
}

static qm_status versus_pair(struct walk *w, const char *key, const yaml_node_t *at,
                             const yaml_node_t *value, void *to)
{
    struct qm_summary_plan *p = to;
    if (p->versus_key)
        return fail_at(w, at, QM_BAD_ARG, "'versus' takes one key");
    QM_TRY(copy(key, &p->versus_key));
    return scalar(w, value, "versus", &p->versus_label);
}

static const char *const summary_keys[] = {"name", "by",     "across", "value",
                                           "stat", "versus", "where",  "headline"};

static qm_status summary_pair(struct walk *w, const char *key, const yaml_node_t *at,
                              const yaml_node_t *value, void *to)
{
    struct qm_summary_plan *p = to;
    switch (qm_name_find(key, summary_keys, COUNT(summary_keys))) {
    case 0: return scalar(w, value, key, &p->name);
    case 1: return words(w, value, key, QM_SUITE_BY, p->by, &p->n_by);
    case 2: return scalar(w, value, key, &p->across);
    case 3: return words(w, value, key, QM_SUITE_VALUES, p->value, &p->n_values);
    case 4: return words(w, value, key, QM_SUITE_VALUES, p->stat, &p->n_stats);
    case 5: return each_pair(w, value, "versus", versus_pair, p);
    case 6: return each_pair(w, value, "where", where_pair, p);
    case 7: return scalar(w, value, key, &p->headline);
    default:
        qm_name_unknown("key of a summary", key, summary_keys, COUNT(summary_keys));
        return fail_prefix(w->s->path, line_of(at), QM_BAD_ARG);
    }
}

static qm_status summaries(struct walk *w, const yaml_node_t *n)
{
    struct qm_suite *s = w->s;
    if (n->type != YAML_SEQUENCE_NODE)
        return fail_at(w, n, QM_BAD_ARG, "'summary' takes a list of {by, value, stat}");
    int count = (int)(n->data.sequence.items.top - n->data.sequence.items.start);
    s->summary = calloc((size_t)(count > 0 ? count : 1), sizeof *s->summary);
    if (!s->summary)
        return qm_fail(QM_NO_MEMORY, "suite");
    for (int i = 0; i < count; i++) {
        const yaml_node_t *item = node(w, n->data.sequence.items.start[i]);
        struct qm_summary_plan *p = &s->summary[s->n_summaries++];
        p->line = line_of(item);
        QM_TRY(each_pair(w, item, "a summary", summary_pair, p));
        if (p->n_values == 0)
            return fail_at(w, item, QM_BAD_ARG, "a summary needs 'value'");
        char name[32];
        snprintf(name, sizeof name, "table%d", i + 1);
        if (!p->name)
            QM_TRY(copy(name, &p->name));
        if (p->n_stats == 0) {
            QM_TRY(copy("median", &p->stat[0]));
            p->n_stats = 1;
        }
        if (strchr(p->name, '/') || !*p->name)
            return fail_at(w, item, QM_BAD_ARG, "'%s' is no name for a table", p->name);
        for (int j = 0; j < i; j++)
            if (strcmp(s->summary[j].name, p->name) == 0)
                return fail_at(w, item, QM_BAD_ARG, "two summaries are called '%s'", p->name);
    }
    return QM_OK;
}

/* ---- claims ---------------------------------------------------------------------------------- */

static qm_status of_pair(struct walk *w, const char *key, const yaml_node_t *at,
                         const yaml_node_t *value, void *to)
{
    struct qm_expect *e = to;
    if (e->n_of == QM_SUITE_BY)
        return fail_at(w, at, QM_BAD_ARG, "'of' takes at most %d keys", QM_SUITE_BY);
    int i = e->n_of++;
    QM_TRY(copy(key, &e->of_key[i]));
    return scalar(w, value, "of", &e->of_label[i]);
}

static qm_status expect_versus(struct walk *w, const char *key, const yaml_node_t *at,
                               const yaml_node_t *value, void *to)
{
    struct qm_expect *e = to;
    if (e->versus_key)
        return fail_at(w, at, QM_BAD_ARG, "'versus' takes one key");
    QM_TRY(copy(key, &e->versus_key));
    return scalar(w, value, "versus", &e->versus_label);
}

/* "above 0", "between -7.7 -6.7". */
static qm_status relation(struct walk *w, const yaml_node_t *n, struct qm_expect *e)
{
    char word[16] = "", *rest;
    QM_TRY(scalar(w, n, "relation", &e->relation_text));
    sscanf(e->relation_text, "%15s", word);
    int which = qm_name_find(word, relations, QM_RELATION_COUNT), ok = which >= 0;
    rest = e->relation_text + strspn(e->relation_text, " ") + strlen(word);
    for (int i = 0; ok && i < relation_bounds[which]; i++) {
        char *from = rest;
        e->bound[i] = strtod(from, &rest);
        ok = rest != from && isfinite(e->bound[i]);
    }
    if (!ok || *rest || (which == QM_RELATION_between && !(e->bound[0] < e->bound[1])))
        return fail_at(w, n, QM_BAD_ARG,
                       "'%s': expected 'above X', 'below X' or 'between X Y' with X < Y",
                       e->relation_text);
    e->relation = (enum qm_relation)which;
    return QM_OK;
}

static const char *const expect_keys[] = {"value", "of", "versus", "unit", "relation"};

static qm_status expect_pair(struct walk *w, const char *key, const yaml_node_t *at,
                             const yaml_node_t *value, void *to)
{
    struct qm_expect *e = to;
    switch (qm_name_find(key, expect_keys, COUNT(expect_keys))) {
    case 0: return scalar(w, value, key, &e->value);
    case 1: return each_pair(w, value, "'of'", of_pair, e);
    case 2: return each_pair(w, value, "'versus'", expect_versus, e);
    case 3: return scalar(w, value, key, &e->unit);
    case 4: return relation(w, value, e);
    default:
        return fail_at(w, at, QM_BAD_ARG, "no key '%s' in expect; there are %s", key,
                       "value, of, versus, unit and relation");
    }
}

static qm_status expects(struct walk *w, const yaml_node_t *n)
{
    struct qm_suite *s = w->s;
    if (n->type != YAML_SEQUENCE_NODE)
        return fail_at(w, n, QM_BAD_ARG, "'expect' takes a list of {value, of, versus, relation}");
    int count = (int)(n->data.sequence.items.top - n->data.sequence.items.start);
    s->expect = calloc((size_t)(count > 0 ? count : 1), sizeof *s->expect);
    if (!s->expect)
        return qm_fail(QM_NO_MEMORY, "suite");
    for (int i = 0; i < count; i++) {
        const yaml_node_t *item = node(w, n->data.sequence.items.start[i]);
        struct qm_expect *e = &s->expect[s->n_expects++];
        e->line = line_of(item);
        QM_TRY(each_pair(w, item, "an expectation", expect_pair, e));
        if (!e->value || !e->relation_text)
            return fail_at(w, item, QM_BAD_ARG, "an expectation needs 'value' and 'relation'");
        if (!e->unit)
            QM_TRY(copy("tensor", &e->unit));
    }
    return QM_OK;
}

/* "exp_avg.norm" is a recipe's key when some rule has the slot; "lr" is one always. */
static int is_recipe_key(const char *key)
{
    if (qm_name_find(key, hyper_keys, COUNT(hyper_keys)) >= 0)
        return 1;
    size_t n = strcspn(key, ".");
    for (int r = 0; r < qm_rule_count(); r++)
        for (int i = 0; i < qm_rule_at(r)->n_slots; i++) {
            const char *slot = qm_rule_at(r)->slot[i];
            if (strncmp(slot, key, n) == 0 && slot[n] == 0)
                return 1;
        }
    return 0;
}

static qm_status unknown_key(struct walk *w, const char *key, const yaml_node_t *at)
{
    const char *all[COUNT(axis_keys) + COUNT(plain_keys) + COUNT(hyper_keys) + 2];
    int n = 0;
    for (int i = 0; i < COUNT(axis_keys); i++)
        all[n++] = axis_keys[i];
    for (int i = 0; i < COUNT(plain_keys); i++)
        all[n++] = plain_keys[i];
    for (int i = 0; i < COUNT(hyper_keys); i++)
        all[n++] = hyper_keys[i];
    all[n++] = "exp_avg";
    all[n++] = "exp_avg_sq";
    const char *nearest = qm_name_nearest(key, all, n);
    return fail_at(w, at, QM_BAD_ARG, "no key '%s'%s%s%s", key, nearest ? "; did you mean '" : "",
                   nearest ? nearest : "", nearest ? "'?" : "; `qualm run --help` lists them");
}

static qm_status data_globs(struct walk *w, const yaml_node_t *n)
{
    struct qm_suite *s = w->s;
    int max = n->type == YAML_SEQUENCE_NODE
                  ? (int)(n->data.sequence.items.top - n->data.sequence.items.start)
                  : 1;
    s->data = calloc((size_t)(max > 0 ? max : 1), sizeof *s->data);
    if (!s->data)
        return qm_fail(QM_NO_MEMORY, "suite");
    return words(w, n, "data", max, s->data, &s->n_data);
}

static qm_status protocol(struct walk *w, const yaml_node_t *n)
{
    char *word = NULL;
    QM_TRY(scalar(w, n, "protocol", &word));
    w->s->paired = strcmp(word, "paired") == 0;
    qm_status st =
        w->s->paired ? QM_OK : fail_at(w, n, QM_BAD_ARG, "protocol '%s'; there is paired", word);
    free(word);
    return st;
}

static qm_status margin(struct walk *w, const yaml_node_t *n)
{
    char *word = NULL, *end;
    QM_TRY(scalar(w, n, "delta", &word));
    w->s->delta = strtod(word, &end);
    qm_status st =
        end != word && !*end && w->s->delta > 0.0 && isfinite(w->s->delta)
            ? QM_OK
            : fail_at(w, n, QM_BAD_ARG, "'delta' is '%s', expected a number above 0 (log10)", word);
    free(word);
    return st;
}

static const char *const size_names[] = {"small", "normal", "large"};

/* Other values of some keys, for one size: kept until all keys are read. */
static qm_status size_pair(struct walk *w, const char *key, const yaml_node_t *at,
                           const yaml_node_t *value, void *to)
{
    (void)to;
    if (qm_name_find(key, size_names, COUNT(size_names)) < 0) {
        qm_name_unknown("size", key, size_names, COUNT(size_names));
        return fail_prefix(w->s->path, line_of(at), QM_BAD_ARG);
    }
    if (value->type != YAML_MAPPING_NODE)
        return fail_at(w, value, QM_BAD_ARG, "size '%s' is not a map of keys", key);
    if (strcmp(key, w->size ? w->size : "normal") == 0)
        w->other = value;
    return QM_OK;
}

static qm_status sizes(struct walk *w, const yaml_node_t *n)
{
    return each_pair(w, n, "'sizes'", size_pair, NULL);
}

static qm_status top_pair(struct walk *w, const char *key, const yaml_node_t *at,
                          const yaml_node_t *value, void *to)
{
    struct qm_suite *s = to;
    if (qm_name_find(key, axis_keys, COUNT(axis_keys)) >= 0)
        return axis(w, key, line_of(at), value, 0);
    switch (qm_name_find(key, plain_keys, COUNT(plain_keys))) {
    case 0: return scalar(w, value, key, &s->title);
    case 1: return scalar(w, value, key, &s->question);
    case 2: return data_globs(w, value);
    case 3: return integer(w, value, key, 0, &s->min_numel);
    case 4: return integer(w, value, key, 0, &s->min_rank);
    case 5: return integer(w, value, key, 1, &s->every);
    case 6: return summaries(w, value);
    case 7: return scalar(w, value, key, &s->claim);
    case 8: return scalar(w, value, key, &s->claim_source);
    case 9: return expects(w, value);
    case 10: return protocol(w, value);
    case 11: return integer(w, value, key, 0, &s->budget);
    case 12: return margin(w, value);
    case 13: return sizes(w, value);
    default:
        return is_recipe_key(key) ? axis(w, key, line_of(at), value, 1) : unknown_key(w, key, at);
    }
}

static void words_free(char **word, int n)
{
    for (int i = 0; i < n; i++)
        free(word[i]);
}

static void axis_free(struct qm_axis *a)
{
    for (int j = 0; j < a->n; j++) {
        free(a->value[j].text);
        free(a->value[j].label);
    }
    free(a->value);
    free(a->key);
}

/* A key of the size that is asked for takes the place of the suite's. */
static qm_status resize_pair(struct walk *w, const char *key, const yaml_node_t *at,
                             const yaml_node_t *value, void *to)
{
    struct qm_suite *s = to;
    int a = qm_suite_axis(s, key), was = s->n_axes;
    if (strcmp(key, "sizes") == 0 || strcmp(key, "summary") == 0 || strcmp(key, "expect") == 0)
        return fail_at(w, at, QM_BAD_ARG, "a size does not change '%s'", key);
    if (strcmp(key, "data") == 0 && s->data) {
        words_free(s->data, s->n_data);
        free(s->data);
        s->data = NULL;
        s->n_data = 0;
    }
    QM_TRY(top_pair(w, key, at, value, s));
    if (a >= 0 && s->n_axes > was) { /* at the old one's place */
        axis_free(&s->axis[a]);
        s->axis[a] = s->axis[--s->n_axes];
        s->axis[s->n_axes] = (struct qm_axis){0};
    }
    return QM_OK;
}

/* ---- reading --------------------------------------------------------------------------------- */

int qm_suite_axis(const struct qm_suite *s, const char *key)
{
    for (int i = 0; i < s->n_axes; i++)
        if (strcmp(s->axis[i].key, key) == 0)
            return i;
    return -1;
}

static qm_status named(const char *path, struct qm_suite *s)
{
    const char *base = strrchr(path, '/');
    base = base ? base + 1 : path;
    const char *dot = strrchr(base, '.');
    s->stem = dot && dot > base ? strndup(base, (size_t)(dot - base)) : strdup(base);
    s->path = strdup(path);
    return s->stem && s->path ? QM_OK : qm_fail(QM_NO_MEMORY, "suite");
}

static qm_status walk_file(FILE *f, const char *size, struct qm_suite *s)
{
    yaml_parser_t parser;
    struct walk w = {.s = s, .size = size};
    if (!yaml_parser_initialize(&parser))
        return qm_fail(QM_NO_MEMORY, "suite");
    yaml_parser_set_input_file(&parser, f);
    qm_status st = QM_OK;
    if (!yaml_parser_load(&parser, &w.doc)) {
        int line =
            (int)(parser.problem_mark.line ? parser.problem_mark.line : parser.context_mark.line) +
            1;
        st = fail_line(s->path, line, QM_BAD_ARG, "not YAML: %s",
                       parser.problem ? parser.problem : "cannot be parsed");
    } else {
        const yaml_node_t *root = yaml_document_get_root_node(&w.doc);
        st = root ? each_pair(&w, root, "a suite", top_pair, s)
                  : fail_line(s->path, 1, QM_BAD_ARG, "the file is empty");
        if (st == QM_OK && w.other)
            st = each_pair(&w, w.other, "a size", resize_pair, s);
        yaml_document_delete(&w.doc);
    }
    yaml_parser_delete(&parser);
    return st;
}

qm_status qm_suite_read(const char *path, struct qm_suite **out)
{
    return qm_suite_read_size(path, NULL, out);
}

qm_status qm_suite_read_size(const char *path, const char *size, struct qm_suite **out)
{
    if (size && qm_name_find(size, size_names, COUNT(size_names)) < 0)
        return qm_name_unknown("size", size, size_names, COUNT(size_names));
    struct qm_suite *s = calloc(1, sizeof *s);
    FILE *f = fopen(path, "rb");
    qm_status st = s ? QM_OK : qm_fail(QM_NO_MEMORY, "suite");
    if (st == QM_OK && !f)
        st = qm_fail(QM_BAD_FILE, "%s: %s", path, strerror(errno));
    if (st == QM_OK)
        st = named(path, s);
    if (st == QM_OK)
        st = walk_file(f, size, s);
    if (st == QM_OK && s->every == 0 && !s->paired)
        s->every = 1;
    for (int i = 0; st == QM_OK && i < 2; i++)
        if (qm_suite_axis(s, i ? "source" : "variant") < 0)
            st = fail_line(path, 1, QM_BAD_ARG, "the suite has no '%s'", i ? "source" : "variant");
    if (st == QM_OK && s->n_expects > 0 && !s->claim)
        st = fail_line(path, s->expect[0].line, QM_BAD_ARG, "'expect' without a 'claim'");
    if (st == QM_OK)
        st = qm_suite_print(s);
    if (f)
        fclose(f);
    if (st == QM_OK)
        *out = s;
    else
        qm_suite_free(s);
    return st;
}

void qm_suite_free(struct qm_suite *s)
{
    if (!s)
        return;
    for (int i = 0; i < s->n_axes; i++)
        axis_free(&s->axis[i]);
    for (int i = 0; i < s->n_summaries; i++) {
        struct qm_summary_plan *p = &s->summary[i];
        words_free(p->by, QM_SUITE_BY);
        words_free(p->where_key, QM_SUITE_BY);
        words_free(p->where_label, QM_SUITE_BY);
        words_free(p->value, QM_SUITE_VALUES);
        words_free(p->stat, QM_SUITE_VALUES);
        free(p->name);
        free(p->across);
        free(p->versus_key);
        free(p->versus_label);
        free(p->headline);
    }
    for (int i = 0; i < s->n_expects; i++) {
        struct qm_expect *e = &s->expect[i];
        words_free(e->of_key, QM_SUITE_BY);
        words_free(e->of_label, QM_SUITE_BY);
        free(e->value);
        free(e->unit);
        free(e->relation_text);
        free(e->versus_key);
        free(e->versus_label);
    }
    words_free(s->data, s->n_data);
    free(s->data);
    free(s->summary);
    free(s->expect);
    free(s->claim);
    free(s->claim_source);
    free(s->path);
    free(s->stem);
    free(s->title);
    free(s->question);
    free(s->plan);
    free(s);
}

qm_status qm_suite_add_variant(struct qm_suite *s, const char *label, const char *recipe)
{
    struct qm_axis *a = &s->axis[qm_suite_axis(s, "variant")];
    for (int i = 0; i < a->n; i++)
        if (strcmp(a->value[i].label, label) == 0)
            return qm_fail(QM_BAD_ARG, "%s: variant lists '%s' twice", s->path, label);
    struct qm_axis_value *more = realloc(a->value, (size_t)(a->n + 1) * sizeof *more);
    if (!more)
        return qm_fail(QM_NO_MEMORY, "suite");
    a->value = more;
    more[a->n] = (struct qm_axis_value){.line = a->line};
    a->n++;
    QM_TRY(copy(recipe, &more[a->n - 1].text));
    QM_TRY(copy(label, &more[a->n - 1].label));
    return qm_suite_print(s);
}

qm_status qm_suite_data(struct qm_suite *s, char *const *globs, int n)
{
    char **data = calloc((size_t)n, sizeof *data);
    if (!data)
        return qm_fail(QM_NO_MEMORY, "suite");
    words_free(s->data, s->n_data);
    free(s->data);
    s->data = data;
    s->n_data = n;
    for (int i = 0; i < n; i++)
        QM_TRY(copy(globs[i], &s->data[i]));
    return qm_suite_print(s);
}
