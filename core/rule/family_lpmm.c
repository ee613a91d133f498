/* family_lpmm.c - The optimizers of low-bit-optimizers (lpmm): rules and their scalars. */
#include <math.h>

#include "core/rule/element_loops.h"
#include "core/rule/factor_lpmm.h"
#include "core/rule/packed_loops.h"

/* The scalars of the source are doubles, each rounded once, where it meets a tensor. */
static void prepare_adamw(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    double bc1 = 1.0 - pow(h->beta1, (double)t), bc2 = 1.0 - pow(h->beta2, (double)t);
    float w1 = (float)(1.0 - h->beta1);
    *s = (struct qm_rule_step){.t = t,
                               .c = {[QM_LPMM_KEEP] = (float)(1.0 - h->lr * h->weight_decay),
                                     [QM_LPMM_W1] = w1,
                                     [QM_LPMM_W1_MINUS_1] = w1 - 1.0f,
                                     [QM_LPMM_BETA2] = (float)h->beta2,
                                     [QM_LPMM_ONE_MINUS_BETA2] = (float)(1.0 - h->beta2),
                                     [QM_LPMM_ROOT_BC2] = (float)sqrt(bc2),
                                     [QM_LPMM_EPS] = (float)h->eps,
                                     [QM_LPMM_STEP] = (float)(-h->lr / bc1)},
                               .flag = {[QM_FLAG_MAXIMIZE] = h->maximize}};
    qm_rule_reciprocal(s, QM_LPMM_ROOT_BC2);
}

/* The kernels take all scalars as float32, the step number too, and form 1 - beta from them: 1 -
 * 0.999f lies a relative 1.3e-5 below 0.001. */
static void prepare_fused(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    float beta1 = (float)h->beta1, beta2 = (float)h->beta2, step = (float)t;
    *s = (struct qm_rule_step){.t = t,
                               .c = {[QM_LPMM_FUSED_BETA1] = beta1,
                                     [QM_LPMM_FUSED_ONE_MINUS_BETA1] = 1.0f - beta1,
                                     [QM_LPMM_FUSED_BETA2] = beta2,
                                     [QM_LPMM_FUSED_ONE_MINUS_BETA2] = 1.0f - beta2,
                                     [QM_LPMM_FUSED_ROOT_BC2] = sqrtf(1.0f - powf(beta2, step)),
                                     [QM_LPMM_FUSED_EPS] = (float)h->eps,
                                     [QM_LPMM_FUSED_BC1] = 1.0f - powf(beta1, step),
                                     [QM_LPMM_FUSED_LR] = (float)h->lr,
                                     [QM_LPMM_FUSED_DECAY] = (float)h->weight_decay},
                               .flag = {[QM_FLAG_MAXIMIZE] = h->maximize}};
    qm_rule_reciprocal(s, QM_LPMM_FUSED_ROOT_BC2);
}

/* The source takes a state of at most one element for one that does not exist yet. */
static void single_moment(struct qm_rule_step *s, int i)
{
    if (i < 2)
        s->flag[QM_FLAG_ABSENT + i] = 1;
}

static void single_buffer(struct qm_rule_step *s, int i) { s->flag[QM_FLAG_FIRST] |= i == 0; }

#define MOMENTS .n_slots = 2, .slot = {"exp_avg", "exp_avg_sq"}, .slot_sign = {1, 0}

static const struct qm_rule rules[] = {
    {.name = "adamw_lpmm",
     .family = "adamw",
     .reads = "lr beta1 beta2 eps weight_decay maximize",
     .order = QM_ORDER_lerp_m,
     MOMENTS,
     .summary = "AdamW in lpmm's order, not fused: lerp first moment",
     .source = "lpmm/optim/adamw.py _single_tensor_adamw4bit",
     .prepare = prepare_adamw,
     .mark_absent = single_moment,
     QM_ELEMENTWISE_PACKED(adamw_lpmm, qm_packed_second_adamw_lpmm)},
    {.name = "adamw_lpmm_fused",
     .family = "adamw",
     .reads = "lr beta1 beta2 eps weight_decay maximize",
     .order = QM_ORDER_fused,
     MOMENTS,
     .summary = "AdamW in lpmm's fused kernel, float32 scalars, contracted as nvcc does for sm_80",
     .source = "lpmm/cpp_extension/fused_adamw_kernel.cu adamw4bit_cuda_kernel",
     .prepare = prepare_fused,
     .mark_absent = single_moment,
     QM_ELEMENTWISE_PACKED(adamw_lpmm_fused, NULL)},
    {.name = "adamw_lpmm_fused_strict",
     .family = "adamw",
     .reads = "lr beta1 beta2 eps weight_decay maximize",
     .order = QM_ORDER_fused,
     MOMENTS,
     .summary = "AdamW in lpmm's fused kernel, every operation rounded",
     .source = "lpmm/cpp_extension/fused_adamw_kernel.cu adamw4bit_cuda_kernel",
     .prepare = prepare_fused,
     .mark_absent = single_moment,
     QM_ELEMENTWISE_ADAM(adamw_lpmm_fused_strict)},
    {.name = "adamw_coat",
     .family = "adamw",
     .reads = "lr beta1 beta2 eps weight_decay maximize",
     .order = QM_ORDER_fused,
     MOMENTS,
     .summary = "AdamW in the order of COAT's kernels: adamw_lpmm_fused_strict, of one element too",
     .source = "arXiv:2410.19313; coat/optimizer/kernels/fp8_adamw_expand_cuda_kernel.cu",
     .prepare = prepare_fused,
     QM_ELEMENTWISE_ADAM(adamw_lpmm_fused_strict)},
    {.name = "adamw_lpmm_factor",
     .family = "adamw_factor",
     .reads = "lr beta1 beta2 eps weight_decay maximize factored",
     .order = QM_ORDER_lerp_m,
     .n_slots = QM_FACTOR_SLOTS,
     .slot = {"exp_avg", "exp_avg_sq", "exp_avg_sq_row", "exp_avg_sq_col"},
     .slot_sign = {1, 0, 0, 0},
     .summary = "AdamW with the second moment of matrices factored into rows and columns (lpmm)",
     .source =
         "arXiv:2309.01507 (4-bit Factor); lpmm/optim/adamw.py _single_quantized_factored_update",
     .prepare = prepare_adamw,
     .mark_absent = single_moment,
     .tensor = &(const struct qm_tensor_ops){.states = qm_factor_lpmm_states,
                                             .apply = qm_factor_lpmm_apply,
                                             .on_device = 1,
                                             .extra_passes = 1},
     .slot_shape = qm_factor_lpmm_shape},
    {.name = "sgdm_lpmm",
     .family = "sgdm",
     .reads = "lr weight_decay momentum dampening nesterov maximize",
     .n_slots = 1,
     .slot = {"momentum_buffer"},
     .slot_sign = {1},
     .summary = "SGD with momentum as lpmm has it: PyTorch's, but a float32 buffer of one element "
                "is the gradient of each step",
     .source = "lpmm/optim/sgd.py _single_tensor_sgd4bit",
     .prepare = qm_sgdm_prepare,
     .mark_absent = single_buffer,
     QM_ELEMENTWISE(sgdm_lpmm)},
};

const struct qm_rule_family qm_family_lpmm = {sizeof rules / sizeof *rules, rules};
