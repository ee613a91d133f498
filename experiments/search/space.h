/* space.h - The space that `qualm search` searches: the members of each axis, and the formats of
 * each moment that they make.
 *
 * A format is a quantizer MAP/NORM/bisect/ROUND/hi with its scale words and curve, one member of
 * each of the axes map, norm, round, scale and curve; a member of axis `format` is a whole
 * quantizer, for those that compose otherwise (map qlog).  A composition is a format of exp_avg
 * with one of exp_avg_sq. */
#ifndef QM_SEARCH_SPACE_H
#define QM_SEARCH_SPACE_H

#include "core/recipe/recipe.h"

enum { QM_HALVING_SLOTS = 2, QM_HALVING_SIDE = 1024 };

/* clang-format off */
#define QM_HALVING_AXIS_LIST(X) /* name, members for exp_avg, for exp_avg_sq */                                            \
    X(map,    "nf4:4s, nf4a8:4s, af4:4s, fp4:4s, intm:4s, de:3s, de:4s, de:5s, lint:3s, lint:4s, lint:5s, lint:6s, "       \
              "linb:3s, linb:4s, linb:5s, linb:6s, pow2:4s, pow2:5s",                                                      \
              "lin:2u, lin:3u, lin:4u, lin:5u, lint:3u, lint:4u, lint:5u, de:3u, de:4u, de0:3u, de0:4u, "                  \
              "pow2:2u, pow2:3u, pow2:4u, pow2:5u, pow3:3u, pow3:4u")                                                      \
    X(norm,   "block:32, block:64, block:128, block:256, rank1, rank1block:128",                                           \
              "block:32, block:64, block:128, block:256, rank1, rank1block:128")                                           \
    X(round,  "mid, stoch", "mid, stoch")                                                                                  \
    X(scale,  "none, f16both", "none, f16both")                                                                            \
    X(curve,  "none, softsign", "none, sqrt, softsign")                                                                    \
    X(format, "", "qlog:2u/block:128/arith/even/hi/qlog/quantile:0.1, qlog:3u/block:128/arith/even/hi/qlog/quantile:0.1, " \
                  "qlog:4u/block:128/arith/even/hi/qlog/quantile:0.1, qlog:4u/block:64/arith/even/hi/qlog/quantile:0.1")
/* clang-format on */

enum qm_halving_axis {
#define X(name, first, second) QM_HALVING_AXIS_##name,
    QM_HALVING_AXIS_LIST(X)
#undef X
        QM_HALVING_AXIS_COUNT
};

struct qm_halving_format {
    char text[QM_QUANTIZER_TEXT]; /* canonical */
    double bits;                  /* per element of a tensor of 1024 x 1024, scales included */
};

/* The members of each axis, separated by commas with or without spaces behind them, and the formats
 * that make sense. */
struct qm_halving_space {
    const char *member[QM_HALVING_SLOTS][QM_HALVING_AXIS_COUNT]; /* borrowed */
    int64_t combined[QM_HALVING_SLOTS];                          /* before any is refused */
    int64_t n[QM_HALVING_SLOTS], room[QM_HALVING_SLOTS];
    struct qm_halving_format *format[QM_HALVING_SLOTS]; /* in the order of the members, each once */
};

/* Sets the default members. */
void qm_halving_space_start(struct qm_halving_space *s);

/* Replaces the members of one axis by a text such as "exp_avg.norm=block:64,rank1"; the text stays
 * the caller's.  QM_BAD_ARG: another form; QM_NO_MATCH: no such axis. */
qm_status qm_halving_space_set(struct qm_halving_space *s, const char *text);

/* Makes the formats.  QM_BAD_ARG: a format with a word that no axis has; QM_NO_MATCH: a moment has
 * no format that makes sense.  The caller frees the space in any case. */
qm_status qm_halving_space_make(struct qm_halving_space *s);
void qm_halving_space_free(struct qm_halving_space *s);

/* The recipe of a composition, an index of each moment's formats; -1: that moment is float32. */
void qm_halving_recipe(const struct qm_halving_space *s, const int64_t format[QM_HALVING_SLOTS],
                       char text[QM_RECIPE_TEXT]);

/* Bits of state per element of a tensor of 1024 x 1024 under a recipe. */
qm_status qm_halving_bits(const struct qm_recipe *r, double *bits);

#endif
