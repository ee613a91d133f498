/* show.c - qualm show: describes a name, a recipe, a quantizer or a configuration. */
#include <stdlib.h>
#include <string.h>

#include "core/base/name.h"
#include "experiments/check/domain.h"
#include "experiments/cli/cli.h"
#include "experiments/command/catalog.h"
#include "experiments/command/command.h"
#include "experiments/problems/problem.h"
#include "experiments/recipes/lpmm_config.h"
#include "experiments/source/distribution.h"
#include "oracle/metric/metric.h"

static error_t option(int key, char *arg, struct argp_state *state)
{
    const char **name = state->input;
    switch (key) {
    case ARGP_KEY_ARG:
        if (state->arg_num >= 1)
            argp_error(state,
                       "too many words; expected one NAME, one of several words in "
                       "quotes: qualm show '%s %s'",
                       *name, arg);
        *name = arg;
        return 0;
    case ARGP_KEY_NO_ARGS: argp_error(state, "NAME is missing"); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static void set_text(json_t *o, const char *key, const char *text)
{
    json_object_set_new(o, key, text ? json_string(text) : json_null());
}

static json_t *numbers(const float *value, int n)
{
    json_t *a = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(a, qm_json_number((double)value[i]));
    return a;
}

static double bits_at_1024(const struct qm_codec *c)
{
    struct qm_shape square = {2, {1024, 1024}};
    return (double)qm_state_bytes(c, &square) * 8.0 / (1024.0 * 1024.0);
}

/* ---- kinds of names ------------------------------------------------------------------------- */

static qm_status show_quantizer(const char *text, json_t **out)
{
    struct qm_codec c;
    char canonical[QM_QUANTIZER_TEXT];
    QM_TRY(qm_codec_parse(&c, text));
    json_t *o = json_object();
    set_text(o, "kind", "quantizer");
    set_text(o, "name", qm_quantizer_print(&c.q, canonical));
    json_object_set_new(o, "bits_per_element_at_1024x1024", qm_json_number(bits_at_1024(&c)));
    json_object_set_new(o, "words", qm_explain(&c.q));
    if (c.q.bits) {
        json_object_set_new(o, "codebook", numbers(c.cb.value, c.cb.n));
        if (c.cb.is_permuted) {
            json_t *code = json_array();
            for (int i = 0; i < c.cb.n; i++)
                json_array_append_new(code, json_integer(c.cb.perm[i]));
            json_object_set_new(o, "stored_code", code);
        }
        if (c.has_edges)
            json_object_set_new(o, "decision_boundaries", numbers(c.edge, c.cb.n - 1));
    }
    *out = o;
    return QM_OK;
}

/* Sets the hyper-parameters that the rule reads. */
static void hyper(json_t *o, const struct qm_rule *rule, const struct qm_hyper *h)
{
    json_t *list = json_object();
#define X(name, value, text)        \
    if (qm_rule_reads(rule, #name)) \
        json_object_set_new(list, #name, json_real(h->name));
    QM_HYPER_LIST(X)
#undef X
#define X(name, value, text)        \
    if (qm_rule_reads(rule, #name)) \
        json_object_set_new(list, #name, json_boolean(h->name));
    QM_HYPER_FLAG_LIST(X)
#undef X
    json_object_set_new(o, "hyper", list);
}

/* Sets the slots of a recipe: a row each, then the words of each quantizer. */
static void slots(json_t *o, const struct qm_recipe *r)
{
    json_t *list = json_array();
    char text[QM_QUANTIZER_TEXT], key[80];
    for (int i = 0; i < r->rule->n_slots; i++) {
        struct qm_codec c;
        double bits = qm_codec_init(&c, &r->slot[i]) == QM_OK ? bits_at_1024(&c) : 0.0;
        json_array_append_new(list, json_pack("{s:s, s:s, s:f, s:I, s:b}", "slot", r->rule->slot[i],
                                              "quantizer", qm_quantizer_print(&r->slot[i], text),
                                              "bits_at_1024x1024", bits, "f32_below_numel",
                                              (json_int_t)r->min_numel[i],
                                              "f32_unless_whole_blocks", r->whole_blocks[i]));
    }
    json_object_set_new(o, "slots", list);
    for (int i = 0; i < r->rule->n_slots; i++) {
        snprintf(key, sizeof key, "words_of_%s", r->rule->slot[i]);
        json_object_set_new(o, key, qm_explain(&r->slot[i]));
    }
}

static qm_status show_recipe(const char *text, json_t **out)
{
    struct qm_recipe r;
    char canonical[QM_RECIPE_TEXT];
    struct qm_shape square = {2, {1024, 1024}};
    int64_t bytes;
    QM_TRY(qm_recipe_parse(text, &r));
    QM_TRY(qm_recipe_applicable(&r));
    QM_TRY(qm_recipe_bytes(&r, &square, &bytes));
    json_t *o = json_object();
    set_text(o, "kind", strchr(text, ',') ? "recipe" : "variant");
    set_text(o, "name", qm_recipe_print(&r, canonical));
    set_text(o, "summary", r.base->summary);
    set_text(o, "source", r.base->source);
    set_text(o, "file", qm_variant_file(r.base));
    set_text(o, "rule", r.rule->name);
    set_text(o, "rule_summary", r.rule->summary);
    set_text(o, "rule_source", r.rule->source);
    char param[24];
    set_text(o, "grad", qm_dtype_name(r.grad));
    set_text(o, "param", qm_param_text(&r.param, param));
    if (r.rule->tensor)
        set_text(o, "state_used", r.state_stored ? "stored" : "fresh");
    json_object_set_new(o, "state_bits_per_param_at_1024x1024",
                        qm_json_number((double)bytes * 8.0 / (1024.0 * 1024.0)));
    json_object_set_new(o, "step_sqnr_floor_db", qm_json_number(r.base->step_sqnr_db));
    slots(o, &r);
    hyper(o, r.rule, &r.hyper);
    *out = o;
    return QM_OK;
}

/* Sets the variants that use this rule, or this word of an axis in a slot. */
static void used_by(json_t *o, const struct qm_item *item)
{
    json_t *list = json_array();
    for (int i = 0; i < qm_variant_count(); i++) {
        struct qm_recipe r;
        if (qm_recipe_from(qm_variant_at(i), &r) != QM_OK)
            continue;
        int hit = item->kind == QM_KIND_rule && strcmp(r.rule->name, item->name) == 0;
        for (int s = 0; s < r.rule->n_slots && !hit; s++) {
            json_t *words = qm_explain(&r.slot[s]);
            for (size_t w = 0; w < json_array_size(words) && !hit; w++) {
                json_t *word = json_array_get(words, w);
                const char *text = json_string_value(json_object_get(word, "word"));
                const char *axis = json_string_value(json_object_get(word, "axis"));
                size_t n = strcspn(text, ":");
                hit = strcmp(axis, qm_kind_singular(item->kind)) == 0 && n == strlen(item->name) &&
                      strncmp(text, item->name, n) == 0;
            }
            json_decref(words);
        }
        if (hit)
            json_array_append_new(list, json_string(r.base->name));
    }
    json_object_set_new(o, "used_by_variants", list);
}

static void map_widths(json_t *o, const char *name)
{
    json_t *list = json_array();
#define X(map, from, to, signs, text)                        \
    if (strcmp(name, #map) == 0)                             \
        for (int bits = from; bits <= (to); bits++)          \
            for (int sign = 1; sign >= 0; sign--)            \
                if (qm_map_allows(QM_MAP_##map, bits, sign)) \
                    json_array_append_new(list, json_sprintf(#map ":%d%c", bits, sign ? 's' : 'u'));
    QM_MAP_LIST(X)
#undef X
    json_object_set_new(o, "widths", list);
}

/* The default of an argument in a problem's defaults; a default of "base" extends to the end of
 * the text. */
static json_t *default_of(const char *defaults, const char *key)
{
    size_t n = strlen(key);
    const char *at = defaults;
    while (strncmp(at, key, n) != 0 || at[n] != '=')
        at += strcspn(at, ",") + 1;
    at += n + 1;
    return json_stringn(at, strcmp(key, "base") == 0 ? strlen(at) : strcspn(at, ","));
}

static json_t *takes_of(const struct qm_arg *a)
{
    return a->words ? json_string(a->words)
                    : json_sprintf("%s, %.10g to %.10g", a->whole ? "whole number" : "number",
                                   a->lo, a->hi);
}

static json_t *arguments(const struct qm_problem *p)
{
    json_t *list = json_array();
    for (int i = 0; i < p->n_args; i++) {
        const struct qm_arg *a = &p->arg[i];
        json_t *takes = takes_of(a);
        json_array_append_new(list, json_pack("{s:s, s:o, s:o, s:s}", "argument", a->key, "default",
                                              default_of(p->args, a->key), "takes", takes,
                                              "meaning", a->text));
    }
    return list;
}

/* Sets the floor of the loss, which depends on the arguments, for the defaults. */
static qm_status show_floor(json_t *o, const struct qm_problem *p)
{
    void *self;
    int n;
    struct qm_shape shapes[QM_PROBLEM_TENSORS];
    if (!p->optimum) {
        set_text(o, "floor", "none: gradients are prescribed, there is no loss");
        return QM_OK;
    }
    QM_TRY(p->open("", 1, &self, &n, shapes));
    json_object_set_new(o, "floor_at_defaults", qm_json_number(p->optimum(self)));
    p->close(self);
    return QM_OK;
}

static qm_status show_problem(json_t *o, const struct qm_problem *p)
{
    set_text(o, "source", p->source);
    set_text(o, "args", p->args);
    json_object_set_new(o, "arguments", arguments(p));
    QM_TRY(show_floor(o, p));
    json_object_set_new(o, "steps", json_integer(p->steps));
    json_object_set_new(o, "lr_adamw", qm_json_number(p->lr_adamw));
    json_object_set_new(o, "lr_sgdm", qm_json_number(p->lr_sgdm));
    json_object_set_new(o, "lr_lion", qm_json_number(p->lr_lion));
    return QM_OK;
}

/* Sets the names of a kind, where they fit a screen, and the command that tells them. */
static void members(json_t *o, enum qm_kind kind)
{
    enum { FEW = 40 };
    int n;
    const struct qm_item *item = qm_catalog(&n);
    json_t *list = json_array();
    for (int i = 0; item && i < n; i++)
        if (item[i].kind == kind)
            json_array_append_new(list, json_string(item[i].name));
    json_object_set_new(o, "told_by", json_sprintf("qualm list %s", qm_kind_plural(kind)));
    if (json_array_size(list) <= FEW)
        json_object_set(o, "members", list);
    json_decref(list);
}

static qm_status show_item(const struct qm_item *item, json_t **out)
{
    if (item->kind == QM_KIND_variant)
        return show_recipe(item->name, out);
    json_t *o = json_object();
    set_text(o, "kind", qm_kind_singular(item->kind));
    set_text(o, "name", item->name);
    set_text(o, "summary", item->text);
    set_text(o, "file", item->file);
    if (item->kind == QM_KIND_rule) {
        const struct qm_rule *r = item->data;
        set_text(o, "family", r->family);
        set_text(o, "source", r->source);
        json_t *list = json_array();
        for (int i = 0; i < r->n_slots; i++)
            json_array_append_new(list, json_pack("{s:s, s:s}", "slot", r->slot[i], "sign",
                                                  r->slot_sign[i] ? "both" : "never negative"));
        json_object_set_new(o, "slots", list);
    } else if (item->kind == QM_KIND_problem) {
        qm_status st = show_problem(o, item->data);
        if (st != QM_OK) {
            json_decref(o);
            return st;
        }
    } else if (item->kind == QM_KIND_distribution) {
        const struct qm_dist *d = item->data;
        set_text(o, "args", d->args);
        set_text(o, "sign", d->sign ? "both" : "never negative");
    } else if (item->kind == QM_KIND_metric || item->kind == QM_KIND_outcome) {
        const struct qm_metric *m = item->data;
        set_text(o, "unit", m->unit);
        set_text(o, "better", qm_better_text(m->better));
    }
    if (item->kind == QM_KIND_map)
        map_widths(o, item->name);
    if (item->kind == QM_KIND_command) {
        char help[64];
        snprintf(help, sizeof help, "qualm %s --help", item->name);
        set_text(o, "told_by", help);
    }
    enum qm_kind of;
    if (item->kind == QM_KIND_word && qm_kind_find(item->name, &of))
        members(o, of);
    if (item->kind <= QM_KIND_rule)
        used_by(o, item);
    *out = o;
    return QM_OK;
}

/* Whether `word` is one of "a|b|c". */
static int is_word_of(const char *words, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = words; at; at = strchr(at, '|')) {
        at += *at == '|';
        if (strcspn(at, "|") == n && strncmp(at, word, n) == 0)
            return 1;
    }
    return 0;
}

/* Whether "key=value,..." has the key. */
static int has_key(const char *args, const char *key)
{
    size_t n = strlen(key);
    for (const char *at = args; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, key, n) == 0 && at[n] == '=')
            return 1;
    }
    return 0;
}

/* Describes what an argument of problems and distributions, or a word that one takes, is: layout,
 * dct. */
static void show_argument(const char *name, json_t *found)
{
    for (int i = 0; i < qm_problem_count(); i++) {
        const struct qm_problem *p = qm_problem_at(i);
        for (int k = 0; k < p->n_args; k++) {
            const struct qm_arg *a = &p->arg[k];
            if (strcmp(a->key, name) == 0 || is_word_of(a->words, name))
                json_array_append_new(
                    found,
                    json_pack("{s:s, s:s, s:o, s:o, s:s}", "kind", "argument of a problem", "name",
                              a->key, "of", json_sprintf("problem:%s:%s=", p->name, a->key),
                              "takes", takes_of(a), "meaning", a->text ? a->text : ""));
        }
    }
    for (int i = 0; i < qm_dist_count(); i++) {
        const struct qm_dist *d = qm_dist_at(i);
        if (has_key(d->args, name))
            json_array_append_new(found, json_pack("{s:s, s:s, s:o, s:s}", "kind",
                                                   "argument of a distribution", "name", name, "of",
                                                   json_sprintf("dist:%s:%s", d->name, d->args),
                                                   "meaning", d->summary));
    }
}

/* ---- finding a name ------------------------------------------------------------------------- */

/* Whether the first n characters of `name` are the item's name; a key of JSON has '_' where a
 * column has a blank. */
static int is_named(const char *item, const char *name, size_t n)
{
    if (strlen(item) != n)
        return 0;
    for (size_t i = 0; i < n; i++)
        if (item[i] != name[i] && !(item[i] == ' ' && name[i] == '_') &&
            !(item[i] == '_' && name[i] == ' '))
            return 0;
    return 1;
}

/* QM_NO_MATCH where NAME:WIDTH names a map, alone, and no width of it. */
static qm_status expect_width(const char *name, const json_t *found)
{
    const json_t *one = json_array_get(found, 0), *widths = json_object_get(one, "widths");
    char all[200] = "";
    size_t i, n = 0;
    json_t *width;
    json_array_foreach (widths, i, width) {
        const char *text = json_string_value(width);
        if (strcmp(text, name) == 0)
            return QM_OK;
        if (n < sizeof all)
            n += (size_t)snprintf(all + n, sizeof all - n, "%s%s", i ? ", " : "", text);
    }
    return json_array_size(found) == 1 && widths
               ? qm_fail(QM_NO_MATCH, "no width '%s'; map %s has %s", strchr(name, ':') + 1,
                         json_string_value(json_object_get(one, "name")), all)
               : QM_OK;
}

/* Tells of a bin of the judge's domain as `qualm check` prints it: "sides two>64". */
static void show_bin(const char *name, json_t *found)
{
    const char *blank = strchr(name, ' ');
    for (int k = 0; blank && k < QM_COORDINATES; k++) {
        const char *of = qm_coordinate_name(k), *bin;
        char text[24], meaning[200];
        if (strlen(of) != (size_t)(blank - name) || strncmp(of, name, strlen(of)) != 0)
            continue;
        for (int i = 0; (bin = qm_coordinate_bin(k, i, text)) && strcmp(bin, blank + 1) != 0;)
            i++;
        snprintf(meaning, sizeof meaning,
                 "bin of the coordinate %s of the judge's domain, for coverage: its cases whose %s "
                 "is %s",
                 of, of, blank + 1);
        if (bin)
            json_array_append_new(found, json_pack("{s:s, s:s, s:s, s:s}", "kind", "word", "name",
                                                   name, "summary", meaning, "file",
                                                   "experiments/check/domain.h"));
    }
}

/* Describes every item of that name ("log" is a map and a curve).  Text from ':' on is ignored
 * where there is no '/', but for the width of a map. */
static qm_status show_named(const char *name, json_t *found)
{
    enum { NAME_MOST = 256 };
    static const char *const of_what[] = {"_lo95", "_hi95", "_low", "_high", "_median"},
                             words_of[] = "words_of_";
    int n;
    const struct qm_item *item = qm_catalog(&n);
    size_t stem = strchr(name, '/') ? strlen(name) : strcspn(name, ":");
    if (!item)
        return qm_fail(QM_NO_MEMORY, "out of memory");
    for (int i = 0; i < n; i++)
        if (is_named(item[i].name, name, stem)) {
            json_t *one;
            QM_TRY(show_item(&item[i], &one));
            json_array_append_new(found, one);
        }
    enum qm_kind kind; /* units: what a unit is, with all of them */
    if (!json_array_size(found) && qm_kind_find(name, &kind) &&
        strcmp(name, qm_kind_singular(kind)) != 0)
        return show_named(qm_kind_singular(kind), found);
    if (json_array_size(found))
        return name[stem] == ':' ? expect_width(name, found) : QM_OK;
    show_argument(name, found);
    if (json_array_size(found))
        return QM_OK;
    if (name[0] == 't' && name[1] && strspn(name + 1, "0123456789") == strlen(name + 1))
        return show_named("tN", found); /* t1, t12: a first step */
    show_bin(name, found);
    if (json_array_size(found))
        return QM_OK;
    const char *dot = strchr(name, '.');
    if (dot && dot - name < NAME_MOST) { /* exp_avg.norm, a slot and an axis of it */
        char slot[NAME_MOST];
        snprintf(slot, sizeof slot, "%.*s", (int)(dot - name), name);
        QM_TRY(show_named(slot, found));
        size_t slots = json_array_size(found);
        if (slots)
            QM_TRY(show_named(dot + 1, found));
        if (json_array_size(found) == slots)
            json_array_clear(found);
        return QM_OK;
    }
    /* Keys that say what of a value they have: collapse_median_lo95, words_of_exp_avg. */
    if (strncmp(name, words_of, sizeof words_of - 1) == 0)
        return show_named(name + sizeof words_of - 1, found);
    for (size_t k = 0; k < sizeof of_what / sizeof *of_what; k++)
        if (qm_name_ends(name, of_what[k])) {
            char value[NAME_MOST];
            snprintf(value, sizeof value, "%.*s", (int)(strlen(name) - strlen(of_what[k])), name);
            QM_TRY(show_named(value, found));
            return json_array_size(found) ? show_named(of_what[k] + 1, found) : QM_OK;
        }
    return QM_OK;
}

static qm_status unknown(const char *name)
{
    int n;
    const struct qm_item *item = qm_catalog(&n);
    const char **all = calloc((size_t)n + 1, sizeof *all);
    if (!all)
        return qm_fail(QM_NO_MEMORY, "out of memory");
    for (int i = 0; i < n; i++)
        all[i] = item[i].name;
    char near[QM_NAME_NEAR], *joined = strdup(name);
    if (!qm_map_meant(name, near))
        qm_name_near(name, all, n, near);
    for (char *c = joined; c && *c; c++) /* "adamw4/ao" and "adamw4 ao" mean adamw4_ao */
        *c = strchr("/ -", *c) ? '_' : *c;
    if (!*near && joined)
        qm_name_near(joined, all, n, near);
    free(joined);
    free(all);
    if (*near)
        return qm_fail(QM_NO_MATCH, "nothing is named '%s'; did you mean %s?", name, near);
    return qm_fail(QM_NO_MATCH, "nothing is named '%s'; `qualm list` shows every name", name);
}

static void warn(void *context, const char *line)
{
    (void)context;
    qm_note("warning: %s", line);
}

/* Describes the recipe of a low-bit-optimizers configuration. */
static qm_status show_config(const char *path, json_t **out)
{
    struct qm_lpmm_config config;
    char recipe[QM_RECIPE_TEXT];
    QM_TRY(qm_lpmm_config_read(path, warn, NULL, &config));
    QM_TRY(qm_lpmm_config_recipe(&config, recipe));
    QM_TRY(show_recipe(recipe, out));
    set_text(*out, "configuration", path);
    return QM_OK;
}

static qm_status show(const char *name, json_t *found)
{
    json_t *one = NULL;
    size_t length = strlen(name);
    if (length > 4 && strcmp(name + length - 4, ".yml") == 0) {
        QM_TRY(show_config(name, &one));
        json_array_append_new(found, one);
        return QM_OK;
    }
    if (strchr(name, ',')) { /* a part of a recipe may hold a '/' */
        QM_TRY(show_recipe(name, &one));
        json_array_append_new(found, one);
        return QM_OK;
    }
    int is_f32 = strcmp(name, "f32") == 0;
    if (!is_f32)
        QM_TRY(show_named(name, found));
    if (is_f32 || (strchr(name, '/') && !json_array_size(found))) {
        qm_status st = show_quantizer(name, &one);
        if (st == QM_NO_MATCH && !strchr(name, ':')) /* a name with a '/', mistaken for a map */
            return unknown(name);
        QM_TRY(st);
        json_array_append_new(found, one);
        return QM_OK;
    }
    return json_array_size(found) ? QM_OK : unknown(name);
}

int qm_cmd_show(int argc, char **argv)
{
    static const struct argp_child children[] = {{&qm_cli_argp, 0, "Common options:", -1}, {0}};
    static const struct argp argp = {
        NULL,
        option,
        "NAME",
        "Tells everything about a variant, a recipe (a variant with overrides), a quantizer "
        "string, a word of an axis, a rule, a problem, a distribution, a metric, a command or a "
        "word that the program prints: what it is, "
        "where it comes from and which file defines it."
        "\vExamples:\n"
        "  qualm show adamw4_lpmm  # a variant: slots, sources, bits of state\n"
        "  qualm show adamw4_ao,exp_avg.map=nf4  # a recipe\n"
        "  qualm show mine.yml  # a file of yours, as low-bit-optimizers reads it\n"
        "  qualm show dyn:4s/block:128/bisect/mid  # a quantizer: words, codebook\n"
        "  qualm show rank1  # a word of an axis\n"
        "  qualm show quad  # a problem: its arguments, floor, suggested rates\n"
        "  qualm show nf4 --json  # for programs: an array, one object per meaning\n",
        children,
        NULL,
        NULL};
    const char *name = NULL;
    int code = qm_cli_parse(&argp, argc, argv, &name);
    if (code)
        return code;
    json_t *found = json_array();
    qm_status st = show(name, found);
    if (st != QM_OK) {
        json_decref(found);
        return qm_cli_failed("show", st);
    }
    if (qm_cli.json) {
        qm_report(found);
        return 0;
    }
    for (size_t i = 0; i < json_array_size(found); i++) {
        if (i)
            putchar('\n');
        qm_report(json_incref(json_array_get(found, i)));
    }
    json_decref(found);
    return 0;
}
