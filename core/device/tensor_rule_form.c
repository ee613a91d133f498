/* tensor_rule_form.c - Recipes and forms of a tensor rule's slots and of its parameter. */
#include "core/device/tensor_rule_form.h"

#include <string.h>

static void prepare(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    (void)h;
    memset(s, 0, sizeof *s);
    s->t = t;
}

static const struct qm_elementwise_ops replace = {.element = "replace"};
static const struct qm_tensor_ops with_sweeps = {.on_device = 1};

/* A rule that stores the gradient in its one slot.  Random draws depend on the number of the slot
 * in its tensor rule (qm_tensor_rule_slot_number); all slots from the third on share one. */
#define RULE(text, ops)                                                                       \
    {                                                                                         \
        .name = text, .n_slots = 1, .slot = {"values"}, .slot_sign = {1}, .prepare = prepare, \
        .elementwise = &replace, .tensor = ops                                                \
    }
static const struct qm_rule slot_rule[] = {RULE("slot 0", NULL), RULE("slot 1", NULL),
                                           RULE("slot 2", NULL)};
static const struct qm_rule body_rule = RULE("body", &with_sweeps);

int qm_tensor_rule_is_slot(const struct qm_rule *r)
{
    return r >= slot_rule && r < slot_rule + sizeof slot_rule / sizeof *slot_rule;
}

int qm_tensor_rule_slot_number(const struct qm_rule *r)
{
    return qm_tensor_rule_is_slot(r) ? (int)(r - slot_rule) : 0;
}

int qm_tensor_rule_is_plain(const struct qm_recipe *r)
{
    return qm_tensor_rule_is_slot(r->rule) && r->slot[0].bits == 0 &&
           r->slot[0].plain == QM_PLAIN_f32;
}

qm_status qm_tensor_rule_recipe(const struct qm_recipe *r, int i, const struct qm_shape *shape,
                                struct qm_recipe *out, struct qm_shape *slot)
{
    const struct qm_quantizer f32 = {.plain = QM_PLAIN_f32};
    if (!r->rule->tensor || !r->rule->tensor->on_device)
        return qm_fail(QM_SKIPPED,
                       "host only: rule %s works on whole tensors there, and has no kernel",
                       r->rule->name);
    QM_TRY(qm_rule_takes(r->rule, &r->hyper, shape));
    *out = *r;
    *slot = *shape;
    memset(out->min_numel, 0, sizeof out->min_numel);
    memset(out->whole_blocks, 0, sizeof out->whole_blocks);
    if (i == QM_TENSOR_RULE_BODY) {
        out->rule = &body_rule;
        out->slot[0] = out->plain[0] = f32;
        return QM_OK;
    }
    qm_rule_slot_shape(r->rule, &r->hyper, i, shape, slot);
    out->rule = &slot_rule[i < 2 ? i : 2];
    out->slot[0] = out->plain[0] = qm_recipe_slot(r, i, shape);
    out->init_code[0] = r->init_code[i];
    out->init_scale[0] = r->init_scale[i];
    out->param = (struct qm_param){QM_PARAM_f32, QM_WRITE_near};
    out->grad = QM_DTYPE_f32;
    return QM_OK;
}

/* The form of the recipe of qm_tensor_rule_recipe.  *is_needed: 0 for a slot that the rule changes
 * in place, or that this tensor does not have. */
static qm_status form_of_slot(const struct qm_recipe *r, int i, const struct qm_shape *shape,
                              enum qm_dtype grad, struct qm_step_form *out, int *is_needed)
{
    struct qm_recipe one;
    struct qm_shape slot;
    QM_TRY(qm_tensor_rule_recipe(r, i, shape, &one, &slot));
    *is_needed =
        i == QM_TENSOR_RULE_BODY || (!qm_tensor_rule_is_plain(&one) && qm_shape_numel(&slot) > 0);
    return qm_step_form(&one, &slot, i == QM_TENSOR_RULE_BODY ? grad : QM_DTYPE_f32, out);
}

qm_status qm_recipe_form(const struct qm_recipe *r, int part, const struct qm_shape *shape,
                         enum qm_dtype grad, struct qm_step_form *out, int *is_there)
{
    int is_needed = 0, left = part;
    *is_there = !r->rule->tensor && part == 0;
    if (!r->rule->tensor)
        return part == 0 ? qm_step_form(r, shape, grad, out) : QM_OK;
    for (int i = QM_TENSOR_RULE_BODY; i < r->rule->n_slots; i++) {
        QM_TRY(form_of_slot(r, i, shape, grad, out, &is_needed));
        if (is_needed && left-- == 0) {
            *is_there = 1;
            return QM_OK;
        }
    }
    return QM_OK;
}
