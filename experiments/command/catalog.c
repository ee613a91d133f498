/* catalog.c - Gathers every named thing from the lists and registries. */
#include "experiments/command/catalog.h"

#include <glob.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/grow.h"
#include "core/base/number.h"
#include "experiments/check/cases.h"
#include "experiments/command/command.h"
#include "experiments/lockstep/lockstep.h"
#include "experiments/machine/shipped_files.h"
#include "experiments/problems/problem.h"
#include "experiments/run/suite_load.h"
#include "experiments/source/distribution.h"
#include "oracle/metric/metric.h"

static const struct {
    const char *plural, *singular;
} kinds[] = {
#define X(plural, singular) {#plural, #singular},
    QM_KIND_LIST(X)
#undef X
};

static const char *const kind_files[QM_KIND_COUNT] = {
    [QM_KIND_map] = "core/quant/map.h",
    [QM_KIND_search] = "core/quant/search.h",
    [QM_KIND_norm] = "core/quant/norm.h",
    [QM_KIND_round] = "core/quant/round.h",
    [QM_KIND_unit] = "core/quant/unit.h",
    [QM_KIND_scale] = "core/quant/scale.h",
    [QM_KIND_curve] = "core/quant/curve.h",
    [QM_KIND_pack] = "core/quant/pack.h",
    [QM_KIND_param] = "core/rule/param.h",
    [QM_KIND_hyper] = "core/rule/rule.h",
    [QM_KIND_metric] = "oracle/metric/metric_list.c",
    [QM_KIND_outcome] = "experiments/lockstep/lockstep.h",
    [QM_KIND_rule] = "core/rule",
    [QM_KIND_problem] = "experiments/problems",
    [QM_KIND_distribution] = "experiments/source/distribution.c",
    [QM_KIND_variant] = "variants",
    [QM_KIND_command] = "experiments/command",
    [QM_KIND_word] = "experiments/README.md",
};

/* Words of core/quant/scale.h, which has no enum for them because they combine freely. */
enum {
#define X(word, setting, value, number, text) SCALE_##word,
    QM_SCALE_WORD_LIST(X)
#undef X
};

struct word {
    const char *name, *text;
};
static const struct word scale_words[] = {
#define X(word, setting, value, number, text) {#word, text},
    QM_SCALE_WORD_LIST(X)
#undef X
};
static const struct word map_words[] = {
#define X(name, from, to, signs, text) {#name, text},
    QM_MAP_LIST(X)
#undef X
};
static const struct word round_words[] = {
#define X(name, text, kind) {#name, text},
    QM_ROUND_LIST(X)
#undef X
};
#define X(name, text) {#name, text},
static const struct word search_words[] = {QM_SEARCH_LIST(X)};
static const struct word norm_words[] = {QM_NORM_LIST(X)};
static const struct word unit_words[] = {QM_UNIT_LIST(X)};
static const struct word curve_words[] = {QM_CURVE_LIST(X)};
static const struct word pack_words[] = {QM_PACK_LIST(X)};
#undef X

static const struct word param_words[] = {
#define X(name, bytes, mantissa, least, text) {#name, text},
    QM_PARAM_FORMAT_LIST(X)
#undef X
#define X(name, bytes, text) {#name, text},
        QM_PARAM_WRITE_LIST(X)
#undef X
};
static const struct word hyper_words[] = {
#define X(name, value, text) {#name, text},
    QM_HYPER_LIST(X) QM_HYPER_FLAG_LIST(X)
#undef X
};

static const char *const command_texts[] = {
#define X(name, text) text,
    QM_COMMAND_LIST(X)
#undef X
};

static const struct word glossary[] = {
#define QM_WORD(name, text) {name, text},
#include "glossary.inc"
#undef QM_WORD
};

/* What the names of cases say. */
static const struct word case_words[] = {
#define X(name, text) {#name, "class of a case's gradients: " text},
    QM_CLASS_LIST(X)
#undef X
#define X(name, lr, b1, b2, eps, wd, text) {#name, "setting of a case: " text},
        QM_SETTING_LIST(X)
#undef X
#define X(name, text) {#name, "part of a case's name: " text},
            QM_PART_LIST(X)
#undef X
};

static const struct qm_metric outcomes[] = {
#define X(name, unit, better, text) {#name, unit, text, QM_METRICS_brief, QM_BETTER_##better, NULL},
    QM_EXTRA_LIST(X)
#undef X
};

const char *const *qm_command_names(void)
{
    static char words[][32] = {
#define X(name, text) #name,
        QM_COMMAND_LIST(X)
#undef X
    };
    static const char *names[sizeof words / sizeof *words];
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        for (char *c = words[i]; *c; c++)
            *c = *c == '_' ? '-' : *c;
        names[i] = words[i];
    }
    return names;
}

const char *qm_kind_plural(enum qm_kind kind) { return kinds[kind].plural; }

const char *qm_kind_singular(enum qm_kind kind) { return kinds[kind].singular; }

int qm_kind_find(const char *word, enum qm_kind *out)
{
    for (int i = 0; i < QM_KIND_COUNT; i++)
        if (strcmp(word, kinds[i].plural) == 0 || strcmp(word, kinds[i].singular) == 0) {
            *out = (enum qm_kind)i;
            return 1;
        }
    return 0;
}

/* ---- gathering ----------------------------------------------------------------------------- */

struct list {
    struct qm_item *item;
    int64_t room;
    int n, failed;
};

static void add(struct list *l, enum qm_kind kind, const char *name, const char *text,
                const void *data)
{
    if (qm_grow((void **)&l->item, &l->room, l->n + 1, sizeof *l->item) != QM_OK) {
        l->failed = 1;
        return;
    }
    struct qm_item *item = &l->item[l->n++];
    *item = (struct qm_item){.kind = kind, .name = name, .text = text, .data = data};
    const char *file = kind == QM_KIND_rule      ? qm_rule_file(data)
                       : kind == QM_KIND_variant ? qm_variant_file(data)
                                                 : kind_files[kind];
    if (kind == QM_KIND_problem || kind == QM_KIND_command)
        snprintf(item->file, sizeof item->file, "%s/%s.c", file, name);
    else
        snprintf(item->file, sizeof item->file, "%s", file ? file : "");
}

static void add_words(struct list *l)
{
#define ADD(axis)                                                           \
    for (size_t i = 0; i < sizeof axis##_words / sizeof *axis##_words; i++) \
    add(l, QM_KIND_##axis, axis##_words[i].name, axis##_words[i].text, NULL)
    ADD(map);
    ADD(search);
    ADD(norm);
    ADD(round);
    ADD(unit);
    ADD(scale);
    ADD(curve);
    ADD(pack);
    ADD(param);
    ADD(hyper);
#undef ADD
}

static void add_registries(struct list *l)
{
    for (int i = 0; i < qm_rule_count(); i++)
        add(l, QM_KIND_rule, qm_rule_at(i)->name, qm_rule_at(i)->summary, qm_rule_at(i));
    for (int i = 0; i < qm_problem_count(); i++)
        add(l, QM_KIND_problem, qm_problem_at(i)->name, qm_problem_at(i)->summary,
            qm_problem_at(i));
    for (int i = 0; i < qm_dist_count(); i++)
        add(l, QM_KIND_distribution, qm_dist_at(i)->name, qm_dist_at(i)->summary, qm_dist_at(i));
    for (int i = 0; i < qm_metric_count(); i++)
        add(l, QM_KIND_metric, qm_metric_at(i)->name, qm_metric_at(i)->text, qm_metric_at(i));
    for (size_t i = 0; i < sizeof outcomes / sizeof *outcomes; i++)
        add(l, QM_KIND_outcome, outcomes[i].name, outcomes[i].text, &outcomes[i]);
}

/* Adds each of the words that a line of the glossary explains together: "forced, own". */
static void add_glossary(struct list *l)
{
    for (size_t i = 0; i < sizeof glossary / sizeof *glossary && !l->failed; i++) {
        char *names = strdup(glossary[i].name), *rest = NULL;
        l->failed |= !names;
        for (char *name = names ? strtok_r(names, ",", &rest) : NULL; name;
             name = strtok_r(NULL, ",", &rest)) {
            name += strspn(name, " ");
            name[strcspn(name, "(")] = '\0';
            for (size_t n = strlen(name); n > 0 && name[n - 1] == ' '; n--)
                name[n - 1] = '\0';
            if (*name) /* it lives as long as the list */
                add(l, QM_KIND_word, name, glossary[i].text, NULL);
        }
    }
    for (size_t i = 0; i < sizeof case_words / sizeof *case_words; i++) {
        add(l, QM_KIND_word, case_words[i].name, case_words[i].text, NULL);
        if (!l->failed)
            snprintf(l->item[l->n - 1].file, sizeof l->item->file, "experiments/check/cases.h");
    }
}

static void add_commands(struct list *l)
{
    for (size_t i = 0; i < sizeof command_texts / sizeof *command_texts; i++) {
        add(l, QM_KIND_command, qm_command_names()[i], command_texts[i], NULL);
        if (!l->failed) /* the file of `gpu-check` is gpu_check.c */
            for (char *c = l->item[l->n - 1].file; *c; c++)
                *c = *c == '-' ? '_' : *c;
    }
}

/* A suite that cannot be read is listed with the reason as its text. */
static void add_suites(struct list *l)
{
    glob_t found = {0};
    char pattern[PATH_MAX];
    glob(qm_shipped_pattern(QM_SUITES "*.yaml", pattern, sizeof pattern), 0, NULL, &found);
    for (size_t i = 0; i < found.gl_pathc && !l->failed; i++) {
        struct qm_suite *s = NULL;
        qm_status st = qm_suite_read(found.gl_pathv[i], &s);
        char *name = strdup(strrchr(found.gl_pathv[i], '/') + 1);
        char *text = strdup(st != QM_OK ? qm_message() : s->title ? s->title : "");
        l->failed |= !name || !text;
        if (!l->failed) {
            *strrchr(name, '.') = 0;
            add(l, QM_KIND_suite, name, text, NULL); /* name and text live as long as the list */
            snprintf(l->item[l->n - 1].file, sizeof l->item->file, "%s", found.gl_pathv[i]);
        }
        qm_suite_free(s);
    }
    globfree(&found);
}

const struct qm_item *qm_catalog(int *n)
{
    static struct list all;
    if (all.n == 0 && !all.failed) {
        for (int i = 0; i < qm_variant_count(); i++)
            add(&all, QM_KIND_variant, qm_variant_at(i)->name, qm_variant_at(i)->summary,
                qm_variant_at(i));
        add_words(&all);
        add_registries(&all);
        add_suites(&all);
        add_commands(&all);
        add_glossary(&all);
    }
    *n = all.failed ? 0 : all.n;
    return all.failed ? NULL : all.item;
}

/* ---- a quantizer, word by word ------------------------------------------------------------- */

static void explain(json_t *out, enum qm_kind kind, const char *word, const char *text,
                    int is_default)
{
    char meaning[400];
    snprintf(meaning, sizeof meaning, "%s%s", text, is_default ? " (default)" : "");
    json_array_append_new(out,
                          json_pack("{s:s, s:s, s:s, s:s}", "axis", qm_kind_singular(kind), "word",
                                    word, "meaning", meaning, "file", kind_files[kind]));
}

static void explain_value(json_t *out, int which, double v)
{
    char word[64], number[QM_NUMBER_TEXT];
    snprintf(word, sizeof word, "%s:%s", scale_words[which].name, qm_float_text((float)v, number));
    explain(out, QM_KIND_scale, word, strstr(scale_words[which].text, " - ") + 3, 0);
}

static void explain_scale(json_t *out, const struct qm_scale_rule *s)
{
    size_t before = json_array_size(out);
    const struct word *nan = &scale_words[s->nan == QM_NAN_top ? SCALE_nantop : SCALE_nanzero];
    const struct word *f16 = &scale_words[s->f16 == QM_F16_both   ? SCALE_f16both
                                          : s->f16 == QM_F16_bf16 ? SCALE_bf16
                                                                  : SCALE_f16];
    if (s->floor > 0)
        explain_value(out, SCALE_floor, (double)s->floor);
    if (s->plus > 0)
        explain_value(out, SCALE_plus, s->plus);
    if (s->quantile > 0)
        explain_value(out, SCALE_quantile, (double)s->quantile);
    if (s->guard > 0)
        explain_value(out, SCALE_guard, (double)s->guard);
    if (s->cap > 0)
        explain_value(out, SCALE_cap, (double)s->cap);
    if (s->zero >= 0)
        explain_value(out, SCALE_zero, (double)s->zero);
    if (s->least > 0)
        explain_value(out, SCALE_least, (double)s->least);
    if (s->max_skips_nan)
        explain(out, QM_KIND_scale, "maxskip", scale_words[SCALE_maxskip].text, 0);
    if (s->nan != QM_NAN_low)
        explain(out, QM_KIND_scale, nan->name, nan->text, 0);
    if (s->keep_sign)
        explain(out, QM_KIND_scale, "keepsign", scale_words[SCALE_keepsign].text, 0);
    if (s->f16)
        explain(out, QM_KIND_scale, f16->name, f16->text, 0);
    if (s->nest)
        explain_value(out, SCALE_nest, (double)s->nest);
    if (json_array_size(out) == before)
        explain(out, QM_KIND_scale, "f32", "the maximum as it is, in float32", 1);
}

json_t *qm_explain(const struct qm_quantizer *q)
{
    json_t *out = json_array();
    char word[QM_QUANTIZER_TEXT];
    if (q->bits == 0) {
        const char *text = q->plain == QM_PLAIN_f32 ? "not quantized: 32-bit floats"
                           : q->plain == QM_PLAIN_i16
                               ? "not quantized: whole numbers of 16 bits"
                               : "not quantized: 16-bit floats, to nearest even";
        json_array_append_new(out, json_pack("{s:s, s:s, s:s, s:s}", "axis", "-", "word",
                                             qm_quantizer_print(q, word), "meaning", text, "file",
                                             "core/quant/quantizer.h"));
        return out;
    }
    snprintf(word, sizeof word, "%s:%d%c", map_words[q->map].name, q->bits, q->sign ? 's' : 'u');
    explain(out, QM_KIND_map, word, map_words[q->map].text, 0);
    if (qm_norm_has_block(q->norm))
        snprintf(word, sizeof word, "%s:%lld", norm_words[q->norm].name, (long long)q->block);
    else
        snprintf(word, sizeof word, "%s", norm_words[q->norm].name);
    explain(out, QM_KIND_norm, word, norm_words[q->norm].text, 0);
    explain(out, QM_KIND_search, search_words[q->search].name, search_words[q->search].text, 0);
    explain(out, QM_KIND_round, round_words[q->round].name, round_words[q->round].text, 0);
    explain(out, QM_KIND_unit, unit_words[q->unit].name, unit_words[q->unit].text,
            q->unit == QM_UNIT_div);
    explain_scale(out, &q->scale);
    snprintf(word, sizeof word, q->curve == QM_CURVE_expand ? "%s:%d" : "%s",
             curve_words[q->curve].name, q->expand);
    explain(out, QM_KIND_curve, word, curve_words[q->curve].text, q->curve == QM_CURVE_none);
    explain(out, QM_KIND_pack, pack_words[q->pack].name, pack_words[q->pack].text, 0);
    return out;
}
