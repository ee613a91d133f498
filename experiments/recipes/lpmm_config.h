/* lpmm_config.h - Configuration files of low-bit-optimizers (lpmm), translated to recipes.
 *
 * A file is YAML with the keys of lpmm/config.py: QUANT.M (first moment, momentum) and QUANT.SQM
 * (second moment), each with ENABLE, THRESHOLD, BITS, SCALE_TYPE.DEFAULT, QUANT_TYPE.DEFAULT,
 * ROUND_TYPE, GROUP_SIZE and SIGNED.  Keys that a file leaves out keep the library's default; BASE
 * lists files that are read before it, relative to its own folder. */
#ifndef QM_RECIPES_LPMM_CONFIG_H
#define QM_RECIPES_LPMM_CONFIG_H

#include "core/recipe/recipe.h"

/* The configuration of one state.  The words are the source's, in static memory. */
struct qm_lpmm_state {
    int enable, bits, sign;
    int64_t threshold, group_size; /* tensors of more than threshold elements are quantized */
    const char *scale_type, *quant_type, *round_type;
};

struct qm_lpmm_config {
    struct qm_lpmm_state m, sqm; /* QUANT.M, QUANT.SQM */
};

/* The library's defaults (lpmm/config.py). */
struct qm_lpmm_config qm_lpmm_config_default(void);

/* Sets SCALE_TYPE, QUANT_TYPE or ROUND_TYPE (key) to a word; QM_NO_MATCH names the nearest word. */
qm_status qm_lpmm_state_set(struct qm_lpmm_state *s, const char *key, const char *word);

/* The quantizer string of an enabled state; text holds QM_QUANTIZER_TEXT bytes.  QM_BAD_ARG: linear
 * with nearest or real-nearest, which the source refuses too. */
qm_status qm_lpmm_state_quantizer(const struct qm_lpmm_state *s, char *text);

/* Reads a file and its BASE files over the defaults.  warn (or NULL) gets a line, "FILE:LINE: ...",
 * for every key that the published optimizers never read.  QM_BAD_FILE when a file cannot be read,
 * QM_BAD_ARG ("FILE:LINE: ...") for unknown keys, misspelt words and values of the wrong kind. */
qm_status qm_lpmm_config_read(const char *path, void (*warn)(void *context, const char *line),
                              void *context, struct qm_lpmm_config *out);

/* The recipe of AdamW with a configuration, the shortest one over lpmm's variants; text holds
 * QM_RECIPE_TEXT bytes.  default.yml gives "adamw4_lpmm". */
qm_status qm_lpmm_config_recipe(const struct qm_lpmm_config *c, char *text);

#endif
