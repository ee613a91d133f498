/* list.c - qualm list: lists named things, filtered by kind and regular expression. */
#include <string.h>

#include "core/base/name.h"
#include "experiments/cli/cli.h"
#include "experiments/command/catalog.h"
#include "experiments/command/command.h"
#include "experiments/problems/problem.h"
#include "experiments/source/distribution.h"
#include "oracle/metric/metric.h"

struct options {
    const char *word[2];
    int names;
};

enum { KEY_NAMES = 256 };

static const struct argp_option options[] = {
    {"names", KEY_NAMES, NULL, 0, "names only, one per line", 0}, {0}};

static error_t option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case KEY_NAMES: o->names = 1; return 0;
    case ARGP_KEY_ARG:
        if (state->arg_num >= 2)
            argp_error(state, "too many words; expected [KIND] [FILTER]");
        o->word[state->arg_num] = arg;
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* Whether an item's name or text matches, or a variant's rule, source or quantizers. */
static int matches(const struct qm_item *item, const char *filter)
{
    if (qm_name_matches(item->name, filter) || qm_name_matches(item->text, filter))
        return 1;
    if (item->kind != QM_KIND_variant)
        return 0;
    const struct qm_variant *v = item->data;
    if (qm_name_matches(v->rule, filter) || qm_name_matches(v->source, filter))
        return 1;
    for (int i = 0; i < QM_MAX_SLOTS && v->slot[i].name; i++)
        if (qm_name_matches(v->slot[i].quantizer, filter))
            return 1;
    return 0;
}

static json_t *row(const struct qm_item *item)
{
    json_t *o = json_object();
    if (qm_cli.json)
        json_object_set_new(o, "kind", json_string(qm_kind_singular(item->kind)));
    json_object_set_new(o, "name", json_string(item->name));
    if (item->kind == QM_KIND_variant) {
        const struct qm_variant *v = item->data;
        json_object_set_new(o, "bits_at_1024x1024", qm_json_number(v->state_bits));
        json_object_set_new(o, "rule", json_string(v->rule));
    } else if (item->kind == QM_KIND_problem) {
        json_object_set_new(o, "args", json_string(((const struct qm_problem *)item->data)->args));
    } else if (item->kind == QM_KIND_distribution) {
        const struct qm_dist *d = item->data;
        json_object_set_new(o, "args", json_string(d->args));
        json_object_set_new(o, "sign", json_string(d->sign ? "both" : "never negative"));
    } else if (item->kind == QM_KIND_metric || item->kind == QM_KIND_outcome) {
        const struct qm_metric *m = item->data;
        json_object_set_new(o, "unit", json_string(m->unit));
        json_object_set_new(o, "better", json_string(qm_better_text(m->better)));
    } else if (item->kind == QM_KIND_rule) {
        json_object_set_new(o, "family", json_string(((const struct qm_rule *)item->data)->family));
    }
    json_object_set_new(o, "file", json_string(item->file));
    json_object_set_new(o, "summary", json_string(item->text));
    return o;
}

/* Prints the matching items of the kinds first .. last, several in sections, and returns their
 * number. */
static int print(enum qm_kind first, enum qm_kind last, const char *filter, int names)
{
    int n, hits = 0;
    const struct qm_item *item = qm_catalog(&n);
    json_t *all = json_array();
    for (int k = (int)first; k <= (int)last; k++) {
        json_t *section = qm_cli.json ? json_incref(all) : json_array();
        int before = hits;
        for (int i = 0; i < n; i++) {
            if ((int)item[i].kind != k || !matches(&item[i], filter))
                continue;
            hits++;
            if (names && !qm_cli.json)
                puts(item[i].name);
            else
                json_array_append_new(section, row(&item[i]));
        }
        if (json_array_size(section) && !qm_cli.json) {
            if (first != last)
                qm_print("%s%s (%d)\n", before ? "\n" : "", qm_kind_plural((enum qm_kind)k),
                         hits - before);
            qm_report(section);
        } else {
            json_decref(section);
        }
    }
    if (qm_cli.json && hits)
        qm_report(all);
    else
        json_decref(all);
    return hits;
}

/* The nearest names of a kind (QM_KIND_COUNT: any name or kind), or "". */
static const char *nearest_of(enum qm_kind kind, const char *filter, char near[QM_NAME_NEAR])
{
    int n, k = 0;
    const struct qm_item *item = qm_catalog(&n);
    const char *candidate[QM_KIND_COUNT + 1024];
    for (int i = 0; kind == QM_KIND_COUNT && i < QM_KIND_COUNT; i++)
        candidate[k++] = qm_kind_plural((enum qm_kind)i);
    for (int i = 0; i < n && k < QM_KIND_COUNT + 1024; i++)
        if (kind == QM_KIND_COUNT || item[i].kind == kind)
            candidate[k++] = item[i].name;
    return qm_name_near(filter, candidate, k, near);
}

static int unmatched(enum qm_kind kind, const char *filter)
{
    const char *what = kind == QM_KIND_COUNT ? "name" : qm_kind_singular(kind);
    if (!filter || !*filter)
        return qm_cli_failed("list", qm_fail(QM_NO_MATCH, "there is no %s", what));
    char near[QM_NAME_NEAR];
    int is_map = (kind == QM_KIND_COUNT || kind == QM_KIND_map) && qm_map_meant(filter, near);
    if (!is_map && !*nearest_of(kind, filter, near))
        nearest_of(QM_KIND_COUNT, filter, near);
    return qm_cli_failed("list", *near
                                     ? qm_fail(QM_NO_MATCH, "no %s matches '%s'; did you mean %s?",
                                               what, filter, near)
                                     : qm_fail(QM_NO_MATCH, "no %s matches '%s'", what, filter));
}

int qm_cmd_list(int argc, char **argv)
{
    static const struct argp_child children[] = {{&qm_cli_argp, 0, "Common options:", -1}, {0}};
    static const struct argp argp = {
        options,
        option,
        "[KIND] [FILTER]",
        "Lists what has a name: variants, maps, searches, norms, rounds, units, scales, curves, "
        "packs, params, hypers, rules, problems, distributions, metrics, outcomes (what runs have "
        "beside metrics), suites, commands, words (the glossary); axes is all kinds of words that "
        "a quantizer's string is made of.  FILTER is a regular expression, matched "
        "without case in name, summary and quantizers; without KIND it goes over everything."
        "\vExamples:\n"
        "  qualm list  # everything, kind by kind\n"
        "  qualm list variants  # with their bits per parameter at 1024 x 1024\n"
        "  qualm list nf4  # whatever has to do with nf4\n"
        "  qualm list variants '^adamw4'\n"
        "  qualm list suites  # what there is to run\n"
        "  qualm list axes  # the words of a format, axis by axis\n"
        "  qualm list metrics --json  # for programs\n"
        "  qualm list variants --names  # for shell loops\n",
        children,
        NULL,
        NULL};
    struct options o = {{NULL, NULL}, 0};
    int code = qm_cli_parse(&argp, argc, argv, &o);
    if (code)
        return code;
    enum qm_kind kind = QM_KIND_COUNT;
    const char *filter = o.word[0];
    int n;
    if (!qm_catalog(&n))
        return qm_cli_failed("list", qm_fail(QM_NO_MEMORY, "out of memory"));
    int is_axes = o.word[0] && (strcmp(o.word[0], "axes") == 0 || strcmp(o.word[0], "axis") == 0);
    if (is_axes || (o.word[0] && qm_kind_find(o.word[0], &kind))) {
        filter = o.word[1];
    } else if (o.word[1]) {
        const char *plural[QM_KIND_COUNT];
        for (int i = 0; i < QM_KIND_COUNT; i++)
            plural[i] = qm_kind_plural((enum qm_kind)i);
        return qm_cli_failed("list", qm_name_unknown("kind", o.word[0], plural, QM_KIND_COUNT));
    }
    if (filter && qm_name_check_filter(filter) != QM_OK)
        return qm_cli_failed("list", QM_BAD_ARG);
    int is_one = kind != QM_KIND_COUNT;
    enum qm_kind first = is_axes ? QM_KIND_map : is_one ? kind : 0;
    enum qm_kind last = is_axes ? QM_KIND_pack : is_one ? kind : QM_KIND_COUNT - 1;
    return print(first, last, filter, o.names) ? 0 : unmatched(kind, filter);
}
