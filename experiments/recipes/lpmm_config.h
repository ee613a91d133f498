/* lpmm_config.h - configuration files of low-bit-optimizers (lpmm), as they are, as recipes.
 *
 * A file is YAML with the keys of lpmm/config.py: QUANT.M (first moment, momentum) and QUANT.SQM
 * (second moment), each with ENABLE, THRESHOLD, BITS, SCALE_TYPE.DEFAULT, QUANT_TYPE.DEFAULT,
 * ROUND_TYPE, GROUP_SIZE and SIGNED; what a file does not say keeps the library's default, and BASE
 * lists files that are read before it, relative to its own folder. */
#ifndef QM_RECIPES_LPMM_CONFIG_H
#define QM_RECIPES_LPMM_CONFIG_H

#include "core/recipe/recipe.h"

/* One state; the words are those of the source, in static memory. */
struct qm_lpmm_state {
    int enable, bits, sign;
    int64_t threshold, group_size; /* quantized are tensors of more than threshold elements */
    const char *scale_type, *quant_type, *round_type;
};

struct qm_lpmm_config {
    struct qm_lpmm_state m, sqm;
};

/* What the library does without a file (lpmm/config.py). */
struct qm_lpmm_config qm_lpmm_config_default(void);

/* SCALE_TYPE, QUANT_TYPE or ROUND_TYPE by its word; QM_NO_MATCH with the nearest one. */
qm_status qm_lpmm_state_set(struct qm_lpmm_state *s, const char *key, const char *word);

/* The quantizer string of a state that is enabled; text holds QM_QUANTIZER_TEXT.  QM_BAD_ARG for
 * what the source refuses: linear with nearest or real-nearest. */
qm_status qm_lpmm_state_quantizer(const struct qm_lpmm_state *s, char *text);

/* Reads a file and its BASE files over the defaults.  warn (or NULL) gets a line, "FILE:LINE: ...",
 * for every key that the published optimizers never read.  QM_BAD_FILE when a file cannot be read,
 * QM_BAD_ARG ("FILE:LINE: ...") for unknown keys, misspelt words and values of the wrong kind. */
qm_status qm_lpmm_config_read(const char *path, void (*warn)(void *context, const char *line),
                              void *context, struct qm_lpmm_config *out);

/* AdamW with that configuration: the shortest recipe over lpmm's own variants; text holds
 * QM_RECIPE_TEXT.  default.yml gives "adamw4_lpmm". */
qm_status qm_lpmm_config_recipe(const struct qm_lpmm_config *c, char *text);

#endif
