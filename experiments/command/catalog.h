/* catalog.h - The catalog of named things: variants, axis words, rules, problems, suites, ... */
#ifndef QM_COMMAND_CATALOG_H
#define QM_COMMAND_CATALOG_H

#include <limits.h>

#include <jansson.h>

#include "core/recipe/recipe.h"

/* clang-format off */
#define QM_KIND_LIST(X)  /* plural, singular */                                        \
    X(variants, variant)   X(maps, map)       X(searches, search)  X(norms, norm)      \
    X(rounds, round)       X(units, unit)     X(scales, scale)     X(curves, curve)    \
    X(packs, pack)         X(params, param)   X(hypers, hyper)                         \
    X(rules, rule)         X(problems, problem)                                        \
    X(distributions, distribution)            X(metrics, metric)                       \
    X(outcomes, outcome)   X(suites, suite)   X(commands, command)                      \
    X(words, word)
/* clang-format on */

enum qm_kind {
#define X(plural, singular) QM_KIND_##singular,
    QM_KIND_LIST(X)
#undef X
        QM_KIND_COUNT
};

const char *qm_kind_plural(enum qm_kind kind);
const char *qm_kind_singular(enum qm_kind kind);
int qm_kind_find(const char *word, enum qm_kind *out); /* singular or plural; 0: no kind */

/* One named thing.  data: its const struct qm_variant, qm_rule, qm_problem, qm_dist or qm_metric;
 * an outcome (a quantity of runs besides the metrics) has a qm_metric too; NULL for words of an
 * axis, for suites, for commands and for words (the glossary of experiments/README.md, and what
 * names of cases say).  qm_shipped finds the suites in the folder QM_SUITES. */
struct qm_item {
    enum qm_kind kind;
    const char *name, *text;
    char file[PATH_MAX]; /* the file, or folder, that defines it */
    const void *data;
};

/* All *n items, kind by kind, each kind in its registry's order.  Built at the first call (by one
 * thread) and kept; NULL without memory. */
const struct qm_item *qm_catalog(int *n);

/* A JSON array of objects {axis, word, meaning, file}, one per word of a quantizer.  Axes at their
 * default, which the quantizer string leaves out, are marked as such.  "f32" gives one object. */
json_t *qm_explain(const struct qm_quantizer *q);

#endif
