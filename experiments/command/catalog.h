/* catalog.h - everything that has a name: variants, axis words, rules, problems, suites, ... */
#ifndef QM_COMMAND_CATALOG_H
#define QM_COMMAND_CATALOG_H

#include <jansson.h>

#include "core/recipe/recipe.h"

/* clang-format off */
#define QM_KIND_LIST(X)  /* plural, singular */                                        \
    X(variants, variant)   X(maps, map)       X(searches, search)  X(norms, norm)      \
    X(rounds, round)       X(units, unit)     X(scales, scale)     X(curves, curve)    \
    X(packs, pack)         X(params, param)   X(hypers, hyper)                         \
    X(rules, rule)         X(problems, problem)                                        \
    X(distributions, distribution)            X(metrics, metric)                       \
    X(outcomes, outcome)   X(suites, suite)
/* clang-format on */

enum qm_kind {
#define X(plural, singular) QM_KIND_##singular,
    QM_KIND_LIST(X)
#undef X
        QM_KIND_COUNT
};

const char *qm_kind_plural(enum qm_kind kind);
const char *qm_kind_singular(enum qm_kind kind);
int qm_kind_find(const char *word, enum qm_kind *out); /* either number; 0 when it is none */

/* One named thing.  data: the const struct qm_variant, qm_rule, qm_problem, qm_dist or qm_metric;
 * for an outcome (what runs have beside metrics) a qm_metric too; NULL for the words of an axis and
 * for suites, which are those of the tree that the program runs in. */
struct qm_item {
    enum qm_kind kind;
    const char *name, *text;
    char file[96]; /* where it is defined */
    const void *data;
};

/* All of them, kind by kind, each kind in its registry's order.  Built at the first call (not for
 * several threads at once) and kept; NULL when out of memory. */
const struct qm_item *qm_catalog(int *n);

/* The file that defines a word of an axis, "core/quant/map.h". */
const char *qm_kind_file(enum qm_kind kind);

/* A JSON array with one object per axis of a quantizer: axis, word, meaning, file; axes at their
 * default, which the printed string leaves out, say so.  "f32" gives one line. */
json_t *qm_explain(const struct qm_quantizer *q);

#endif
