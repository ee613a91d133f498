/* suite.c - Reads a suite: the keys of its document, and its sizes. */
#include "experiments/suite/suite_yaml.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/name.h"
#include "experiments/foreign/text_file.h"

static const char *const coupling_names[] = {
#define X(name, text) #name,
    QM_COUPLING_LIST(X)
#undef X
};

const char *qm_coupling_name(enum qm_coupling c) { return coupling_names[c]; }

/* Keys other than those of recipes. */
static const char *const axis_keys[] = {
    "variant", "coupling",      "slot",   "source",     "seed",     "steps",    "n",   "lr_scale",
    "start",   "rounding_seed", "warmup", "decay_rank", "instance", "schedule", "clip"};
/* The keys that are no axes, and how the value of each is read. */
/* clang-format off */
#define PLAIN_KEY_LIST(X)                                         \
    X(title, qm_yaml_scalar(w, value, key, &s->title))            \
    X(question, qm_yaml_scalar(w, value, key, &s->question))      \
    X(data, data_globs(w, value))                                 \
    X(min_numel, qm_yaml_integer(w, value, key, 0, &s->min_numel)) \
    X(min_rank, qm_yaml_integer(w, value, key, 0, &s->min_rank))  \
    X(every, qm_yaml_integer(w, value, key, 1, &s->every))        \
    X(summary, qm_suite_summaries(w, value))                      \
    X(claim, qm_yaml_scalar(w, value, key, &s->claim))            \
    X(claim_source, qm_yaml_scalar(w, value, key, &s->claim_source)) \
    X(expect, qm_suite_expects(w, value))                         \
    X(protocol, protocol(w, value))                               \
    X(budget, budget(w, value))                                   \
    X(delta, margin(w, value))                                    \
    X(sizes, sizes(w, value))                                     \
    X(contrast, qm_suite_contrasts(w, value))                     \
    X(rates, qm_suite_read_rates(w, value))
static const char *const plain_keys[] = {
#define X(name, read) #name,
    PLAIN_KEY_LIST(X)
#undef X
};
enum plain_key {
#define X(name, read) KEY_##name,
    PLAIN_KEY_LIST(X)
#undef X
};
static const char *const hyper_keys[] = {
#define X(name, value, text) #name,
    QM_HYPER_LIST(X) QM_HYPER_FLAG_LIST(X)
#undef X
    "grad", "param", "state_used", "whole_blocks"};
/* clang-format on */
#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))
enum { NOT_GIVEN = -1 };

/* Whether a key is one of recipes: a hyper-parameter such as "lr", or "exp_avg.norm" when some rule
 * has the slot exp_avg. */
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

/* What a misspelt SLOT.AXIS means by the slots of all rules, in out; NULL: none is near. */
static const char *slot_meant(const char *key, char *out, size_t size)
{
    const char *all[256], *dot = strchr(key, '.'); /* several rules have a slot */
    int n = 0;
    char stem[64];
    if (!dot || (size_t)(dot - key) >= sizeof stem)
        return NULL;
    snprintf(stem, sizeof stem, "%.*s", (int)(dot - key), key);
    for (int r = 0; r < qm_rule_count(); r++)
        for (int i = 0; i < qm_rule_at(r)->n_slots && n < COUNT(all); i++)
            all[n++] = qm_rule_at(r)->slot[i];
    const char *slot = qm_name_nearest(stem, all, n);
    return slot && (size_t)snprintf(out, size, "%s%s", slot, dot) < size ? out : NULL;
}

static qm_status unknown_key(struct qm_yaml_walk *w, const char *key, const yaml_node_t *at)
{
    char meant[128];
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
    const char *nearest = slot_meant(key, meant, sizeof meant);
    nearest = nearest ? nearest : qm_name_nearest(key, all, n);
    return qm_yaml_fail(w, at, QM_BAD_ARG, "no key '%s'%s%s%s", key,
                        nearest ? "; did you mean '" : "", nearest ? nearest : "",
                        nearest ? "'?" : "; `qualm run --help` lists them");
}

static qm_status data_globs(struct qm_yaml_walk *w, const yaml_node_t *n)
{
    struct qm_suite *s = w->s;
    int max = qm_yaml_items(n);
    s->data = calloc((size_t)(max > 0 ? max : 1), sizeof *s->data);
    if (!s->data)
        return qm_fail(QM_NO_MEMORY, "suite");
    return qm_yaml_words(w, n, "data", max, s->data, &s->n_data);
}

static qm_status protocol(struct qm_yaml_walk *w, const yaml_node_t *n)
{
    char *word = NULL;
    QM_TRY(qm_yaml_scalar(w, n, "protocol", &word));
    w->s->paired = strcmp(word, "paired") == 0;
    qm_status st = w->s->paired
                       ? QM_OK
                       : qm_yaml_fail(w, n, QM_BAD_ARG, "protocol '%s'; there is paired", word);
    free(word);
    return st;
}

static qm_status budget(struct qm_yaml_walk *w, const yaml_node_t *n)
{
    QM_TRY(qm_yaml_integer(w, n, "budget", 0, &w->s->budget));
    return w->s->budget < 2 ? QM_OK
                            : qm_yaml_fail(w, n, QM_BAD_ARG, "'budget' is %lld, expected 0 or 1",
                                           (long long)w->s->budget);
}

static qm_status margin(struct qm_yaml_walk *w, const yaml_node_t *n)
{
    char *word = NULL, *end;
    QM_TRY(qm_yaml_scalar(w, n, "delta", &word));
    w->s->delta = strtod(word, &end);
    qm_status st = end != word && !*end && w->s->delta > 0.0 && isfinite(w->s->delta)
                       ? QM_OK
                       : qm_yaml_fail(w, n, QM_BAD_ARG,
                                      "'delta' is '%s', expected a number above 0 (log10)", word);
    free(word);
    return st;
}

static const char *const size_names[] = {"small", "normal", "large"};

static qm_status check_size(const char *size)
{
    return qm_name_find(size, size_names, COUNT(size_names)) >= 0
               ? QM_OK
               : qm_fail(QM_NO_MATCH, "no size '%s'; there are small, normal and large", size);
}

static int is_known_key(const char *key)
{
    return qm_name_find(key, axis_keys, COUNT(axis_keys)) >= 0 ||
           qm_name_find(key, plain_keys, COUNT(plain_keys)) >= 0 || is_recipe_key(key);
}

static qm_status known_pair(struct qm_yaml_walk *w, const char *key, const yaml_node_t *at,
                            const yaml_node_t *value, void *to)
{
    (void)value;
    (void)to;
    return is_known_key(key) ? QM_OK : unknown_key(w, key, at);
}

/* Stores the keys of one size in w->other where the suite is read at this size; those of the others
 * have to be known. */
static qm_status size_pair(struct qm_yaml_walk *w, const char *key, const yaml_node_t *at,
                           const yaml_node_t *value, void *to)
{
    (void)to;
    if (check_size(key) != QM_OK)
        return qm_yaml_place(w->s->path, qm_yaml_line(at), QM_BAD_ARG);
    if (value->type != YAML_MAPPING_NODE)
        return qm_yaml_fail(w, value, QM_BAD_ARG,
                            "size '%s' is not a map of keys, {KEY: VALUE, ...}", key);
    if (strcmp(key, w->size ? w->size : "normal") == 0) {
        w->other = value;
        return QM_OK;
    }
    return qm_yaml_pairs(w, value, "a size", known_pair, NULL);
}

static qm_status sizes(struct qm_yaml_walk *w, const yaml_node_t *n)
{
    return qm_yaml_pairs(w, n, "'sizes'", size_pair, NULL);
}

static qm_status top_pair(struct qm_yaml_walk *w, const char *key, const yaml_node_t *at,
                          const yaml_node_t *value, void *to)
{
    struct qm_suite *s = to;
    if (strcmp(key, "min_numel") == 0 ||
        (strcmp(key, "min_rank") == 0 && s->min_numel == NOT_GIVEN))
        s->least_line = qm_yaml_line(at);
    if (qm_name_find(key, axis_keys, COUNT(axis_keys)) >= 0)
        return qm_suite_read_axis(w, key, qm_yaml_line(at), value, 0);
    switch (qm_name_find(key, plain_keys, COUNT(plain_keys))) {
#define X(name, read) \
    case KEY_##name: return read;
        PLAIN_KEY_LIST(X)
#undef X
    default:
        return is_recipe_key(key) ? qm_suite_read_axis(w, key, qm_yaml_line(at), value, 1)
                                  : unknown_key(w, key, at);
    }
}

/* Replaces a key of the suite by that of the size. */
static qm_status resize_pair(struct qm_yaml_walk *w, const char *key, const yaml_node_t *at,
                             const yaml_node_t *value, void *to)
{
    struct qm_suite *s = to;
    int a = qm_suite_axis(s, key), was = s->n_axes;
    if (strcmp(key, "sizes") == 0 || strcmp(key, "summary") == 0 || strcmp(key, "expect") == 0 ||
        strcmp(key, "contrast") == 0 || strcmp(key, "rates") == 0)
        return qm_yaml_fail(w, at, QM_BAD_ARG, "a size does not change '%s'", key);
    if (strcmp(key, "data") == 0 && s->data) {
        qm_suite_free_words(s->data, s->n_data);
        free(s->data);
        s->data = NULL;
        s->n_data = 0;
    }
    QM_TRY(top_pair(w, key, at, value, s));
    if (a >= 0 && s->n_axes > was) { /* moves the new axis to the place of the old one */
        qm_suite_free_axis(&s->axis[a]);
        s->axis[a] = s->axis[--s->n_axes];
        s->axis[s->n_axes] = (struct qm_axis){0};
    }
    return QM_OK;
}

/* ---- reading --------------------------------------------------------------------------------- */

static qm_status set_path(const char *path, struct qm_suite *s)
{
    const char *base = strrchr(path, '/');
    base = base ? base + 1 : path;
    const char *dot = strrchr(base, '.');
    s->stem = dot && dot > base ? strndup(base, (size_t)(dot - base)) : strdup(base);
    s->path = strdup(path);
    return s->stem && s->path ? QM_OK : qm_fail(QM_NO_MEMORY, "suite");
}

static qm_status next_document(yaml_parser_t *parser, const struct qm_suite *s,
                               yaml_document_t *out)
{
    if (yaml_parser_load(parser, out))
        return QM_OK;
    size_t line = parser->problem_mark.line ? parser->problem_mark.line : parser->context_mark.line;
    return qm_yaml_fail_line(s->path, (int)line + 1, QM_BAD_ARG, "not YAML: %s",
                             parser->problem ? parser->problem : "cannot be parsed");
}

/* Checks that the file has no second document, which would be ignored silently. */
static qm_status expect_end(yaml_parser_t *parser, const struct qm_suite *s)
{
    yaml_document_t doc;
    QM_TRY(next_document(parser, s, &doc));
    const yaml_node_t *root = yaml_document_get_root_node(&doc);
    qm_status st = root ? qm_yaml_fail_line(s->path, qm_yaml_line(root), QM_BAD_ARG,
                                            "a second document; a suite is one")
                        : QM_OK;
    yaml_document_delete(&doc);
    return st;
}

/* Refuses a text with a NUL in it, of which only what stands before that would be read. */
static qm_status check_texts(const struct qm_yaml_walk *w)
{
    for (const yaml_node_t *n = w->doc.nodes.start; n < w->doc.nodes.top; n++)
        if (n->type == YAML_SCALAR_NODE && memchr(n->data.scalar.value, 0, n->data.scalar.length))
            return qm_yaml_fail(w, n, QM_BAD_ARG, "'%.100s...' has a NUL in it", qm_yaml_text(n));
    return QM_OK;
}

static qm_status walk_file(FILE *f, const char *size, struct qm_suite *s)
{
    yaml_parser_t parser;
    struct qm_yaml_walk w = {.s = s, .size = size};
    if (!yaml_parser_initialize(&parser))
        return qm_fail(QM_NO_MEMORY, "suite");
    yaml_parser_set_input_file(&parser, f);
    qm_status st = next_document(&parser, s, &w.doc);
    if (st == QM_OK) {
        const yaml_node_t *root = yaml_document_get_root_node(&w.doc);
        st =
            root ? check_texts(&w) : qm_yaml_fail_line(s->path, 1, QM_BAD_ARG, "the file is empty");
        if (st == QM_OK)
            st = qm_yaml_pairs(&w, root, "a suite", top_pair, s);
        s->is_sized = w.other != NULL;
        if (st == QM_OK && w.other)
            st = qm_yaml_pairs(&w, w.other, "a size", resize_pair, s);
        if (st == QM_OK)
            st = expect_end(&parser, s);
        yaml_document_delete(&w.doc);
    }
    yaml_parser_delete(&parser);
    return st;
}

/* Refuses the keys that leave recorded tensors out where no source is recorded: whoever writes
 * `min_numel: 0` there wants codes for small tensors, which is a recipe's.  A printed plan
 * (suite_print.c) has both keys, as 0. */
static qm_status settle_least(struct qm_suite *s)
{
    int least = s->min_numel != NOT_GIVEN ? KEY_min_numel : KEY_min_rank;
    int is_plan = s->min_numel == 0 && s->min_rank == 0;
    int is_given = s->min_numel != NOT_GIVEN || s->min_rank != NOT_GIVEN;
    if (is_given && !is_plan && !qm_suite_wants_data(s))
        return qm_yaml_fail_line(s->path, s->least_line, QM_BAD_ARG,
                                 "'%s' leaves recorded tensors out, and no source of this suite is "
                                 "recorded; a state has codes whatever its size with "
                                 "'SLOT.min_numel: 0' (SLOT as exp_avg) or "
                                 "'variant: \"NAME,min_numel=0,whole_blocks=0\"'",
                                 plain_keys[least]);
    s->min_numel = s->min_numel == NOT_GIVEN ? 0 : s->min_numel;
    s->min_rank = s->min_rank == NOT_GIVEN ? 0 : s->min_rank;
    return QM_OK;
}

qm_status qm_suite_read(const char *path, struct qm_suite **out)
{
    return qm_suite_read_size(path, NULL, out);
}

qm_status qm_suite_read_size(const char *path, const char *size, struct qm_suite **out)
{
    if (size)
        QM_TRY(check_size(size));
    struct qm_suite *s = calloc(1, sizeof *s);
    FILE *f = NULL;
    if (s)
        s->min_numel = s->min_rank = NOT_GIVEN;
    qm_status st = s ? qm_text_open(path, &f) : qm_fail(QM_NO_MEMORY, "suite");
    if (st == QM_OK)
        st = set_path(path, s);
    if (st == QM_OK)
        st = walk_file(f, size, s);
    if (st == QM_OK && s->every == 0 && !s->paired)
        s->every = 1;
    for (int i = 0; st == QM_OK && i < 2; i++)
        if (qm_suite_axis(s, i ? "source" : "variant") < 0)
            st = qm_yaml_fail_line(path, 1, QM_BAD_ARG, "the suite has no '%s'",
                                   i ? "source" : "variant");
    if (st == QM_OK)
        st = qm_suite_check_keys(s);
    if (st == QM_OK)
        st = settle_least(s);
    if (st == QM_OK && s->n_expects > 0 && !s->claim)
        st = qm_yaml_fail_line(path, s->expect[0].line, QM_BAD_ARG, "'expect' without a 'claim'");
    if (st == QM_OK)
        st = qm_suite_spread(s);
    if (st == QM_OK)
        st = qm_suite_check_contrasts(s);
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
