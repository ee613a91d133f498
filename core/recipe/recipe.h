/* recipe.h - A recipe is a variant with overrides applied: any point of the space.  Plain data.
 *
 *     adamw4_ao                                              the variant
 *     adamw4_ao,exp_avg=nf4/block:64/bisect/near/hi          one slot's quantizer replaced
 *     adamw4_ao,exp_avg.map=nf4,exp_avg.norm=block:64        single axes replaced
 *     adamw4_ao,lr=1e-2,weight_decay=0                       hyper-parameters replaced
 *     adamw4_ao,min_numel=0,whole_blocks=0                   no fallback to plain floats
 */
#ifndef QM_RECIPE_RECIPE_H
#define QM_RECIPE_RECIPE_H

#include "core/quant/quantizer.h"
#include "core/recipe/variant.h"
#include "core/rule/param.h"

struct qm_recipe {
    const struct qm_variant *base;
    const struct qm_rule *rule;
    const struct qm_rule *small; /* of tensors below every min_numel; NULL: `rule` */
    struct qm_quantizer slot[QM_MAX_SLOTS];
    int64_t min_numel[QM_MAX_SLOTS];
    int whole_blocks[QM_MAX_SLOTS];          /* 1: tensors of partial blocks get plain[] as well */
    struct qm_quantizer plain[QM_MAX_SLOTS]; /* for tensors smaller than min_numel[] */
    int init_code[QM_MAX_SLOTS];
    float init_scale[QM_MAX_SLOTS];
    enum qm_dtype grad;    /* f32, bf16 or f16 */
    struct qm_param param; /* how the parameter is stored */
    int state_stored;      /* 1: tensor rules apply the stored state, not the fresh one */
    struct qm_hyper hyper;
};

#define QM_RECIPE_TEXT 768 /* bytes of a recipe's text, its final NUL included */

/* A variant without overrides, and the recipe that a text names.  QM_NO_MATCH: no such variant or
 * key; QM_BAD_ARG: a value cannot be read, a key comes twice, or the composition makes no sense. */
qm_status qm_recipe_from(const struct qm_variant *v, struct qm_recipe *out);
qm_status qm_recipe_parse(const char *text, struct qm_recipe *out);

/* Writes the variant's name and every override, in canonical order, to text[QM_RECIPE_TEXT], which
 * it returns; the text parses back to an equal recipe.  Hyper-parameters that the rule does not
 * read are left out, unless they have the default of QM_HYPER_LIST. */
char *qm_recipe_print(const struct qm_recipe *r, char *text);

/* The parameter's format from a text such as "bf16/stoch", and back.  QM_NO_MATCH names the
 * nearest word. */
qm_status qm_param_parse(const char *text, struct qm_param *out);
const char *qm_param_text(const struct qm_param *p, char text[24]);

/* Bytes of the residual that write-back keeps for each parameter; 0: none. */
int qm_param_residual(const struct qm_param *p);

/* Bytes of one stored parameter, without its residual. */
int qm_param_bytes(const struct qm_param *p);

/* The type of tensors that hold such parameters (e4m3: u8). */
enum qm_dtype qm_param_dtype(const struct qm_param *p);

/* n parameters from float32, rounded to nearest, and to float32; residuals play no part. */
void qm_param_from_float(const struct qm_param *p, int64_t n, const float *x, void *out);
void qm_param_to_float(const struct qm_param *p, int64_t n, const void *x, float *out);

/* Applies one override.  Keys: "exp_avg", "exp_avg.map" (or another axis), "exp_avg.min_numel",
 * "exp_avg.whole_blocks" (0 or 1), "exp_avg.plain", "min_numel" and "whole_blocks" of all slots at
 * once, "lr" and the other hyper-parameters, "grad", "param", "state_used" (fresh or stored).
 * An override of a slot goes to the slots that are like it, too (qm_rule_slot_like).
 * QM_BAD_ARG also for a hyper-parameter that the rule does not read (qm_rule_reads), unless the
 * value is the one it has or the default. */
qm_status qm_recipe_set(struct qm_recipe *r, const char *key, const char *value);

/* Whether a value of such a key is wrong in itself, whatever the rest of the recipe is: not a
 * number, out of the range that all rules have, or no word of its axis.  The message names the key
 * and the value.  QM_OK also for keys that the recipe does not have. */
qm_status qm_recipe_check_value(const struct qm_recipe *r, const char *key, const char *value);

/* QM_OK, or why the composition makes no sense (an unsigned map on a signed slot, ...). */
qm_status qm_recipe_applicable(const struct qm_recipe *r);

/* Replaces the hyper-parameters in the recipe of an open plan of a tensor of this shape, as member
 * `hyper` of struct qm_backend says.  QM_BAD_ARG: a flag, rank, side, window, k_init or d_block
 * differs, a slot would have another shape, or the rule refuses h; r is then untouched. */
qm_status qm_recipe_schedule(struct qm_recipe *r, const struct qm_shape *shape,
                             const struct qm_hyper *h);

/* Whether every state, the parameter and the gradient are float32. */
int qm_recipe_is_full(const struct qm_recipe *r);

/* The quantizer of slot i for a tensor of this shape, which may be too small for slot[i] or not fit
 * its blocks: then plain[i]. */
struct qm_quantizer qm_recipe_slot(const struct qm_recipe *r, int i, const struct qm_shape *shape);

/* The recipe of a tensor of this shape: r with the rule that such a tensor has. */
struct qm_recipe qm_recipe_at(const struct qm_recipe *r, const struct qm_shape *shape);

/* Bytes of optimizer state for one tensor of this shape, all slots. */
qm_status qm_recipe_bytes(const struct qm_recipe *r, const struct qm_shape *shape, int64_t *bytes);

/* Bytes that the source of the recipe's variant holds beyond that (enum qm_pads). */
int64_t qm_recipe_padding(const struct qm_recipe *r, const struct qm_shape *shape);

#endif
