/* cover.h - Counts which values of the cases' coordinates were exercised, alone and in pairs. */
#ifndef QM_VECTORS_COVER_H
#define QM_VECTORS_COVER_H

#include <jansson.h>

#include "experiments/check/cases.h"

/* clang-format off */
#define QM_COVER_LIST(X)                                                                            \
    X(class,      "class of gradients")                                                             \
    X(setting,    "hyper-parameters")                                                               \
    X(first_step, "number of the first step")                                                       \
    X(rank,       "number of the tensor's dimensions")                                              \
    X(mode,       "fallbacks to float32 of the variant's own, or none (forced)")                    \
    X(state,      "how a slot is kept: coded, with a short last block, as floats")
/* clang-format on */

enum {
#define X(name, text) QM_COVER_##name,
    QM_COVER_LIST(X)
#undef X
        QM_COVER_COUNT,
    QM_COVER_VALUES = 32, /* values of a coordinate */
    QM_COVER_NAME = 64,
    QM_COVER_GAPS = 256
};

struct qm_cover {
    int n[QM_COVER_COUNT]; /* values of each coordinate that the recipe can meet */
    char name[QM_COVER_COUNT][QM_COVER_VALUES][QM_COVER_NAME];
    unsigned char met[QM_COVER_COUNT][QM_COVER_VALUES];
    /* Pairs of two coordinates before `state`, the smaller index first: 1 where they were met. */
    unsigned char pair[QM_COVER_state][QM_COVER_state][QM_COVER_VALUES][QM_COVER_VALUES];
};

/* Lists the values that cases of the recipe can meet; nothing is met yet. */
void qm_cover_start(const struct qm_recipe *r, struct qm_cover *out);

/* Counts a case. */
void qm_cover_add(struct qm_cover *v, const struct qm_recipe *r, const struct qm_case *c);

/* Pairs of values of two different coordinates, without `state`: those met, those there are. */
void qm_cover_pairs(const struct qm_cover *v, int *met, int *of);

/* One line of how many values were not met, "9 of 10 setting, 488 of 507 pairs", or "nothing of the
 * list".  Returns text. */
char *qm_cover_gaps(const struct qm_cover *v, char text[QM_COVER_GAPS]);

/* [{"coordinate": "class", "exercised": [...], "not_exercised": [...]}, ...]; as text the lists are
 * strings that suit a table, and pairs are the last row. */
json_t *qm_cover_report(const struct qm_cover *v, int as_text);

#endif
