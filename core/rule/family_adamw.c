/* family_adamw.c - AdamW, Adam, SGD with momentum and the plain average: rules and the scalars of
 * their steps. */
#include "core/rule/rule.h"

#include <math.h>
#include <string.h>

#include "core/rule/element_loops.h"
#include "core/rule/packed.h"

/* PyTorch keeps scalars in double and rounds each once when it meets a tensor. */
static void prepare_adamw(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    double bc1 = 1.0 - pow(h->beta1, (double)t), bc2 = 1.0 - pow(h->beta2, (double)t);
    const float c[12] = {(float)(1.0 - h->lr * h->weight_decay),
                         (float)h->beta1,
                         (float)(1.0 - h->beta1),
                         (float)h->beta2,
                         (float)(1.0 - h->beta2),
                         (float)sqrt(bc2),
                         (float)h->eps,
                         (float)(-h->lr / bc1),
                         (float)h->weight_decay};
    memset(s, 0, sizeof *s);
    memcpy(s->c, c, sizeof c);
    qm_rule_reciprocal(s, 5);
    s->flag[1] = h->maximize;
    s->flag[2] = h->amsgrad;
    s->t = t;
}

/* Adam's coupled decay is left out where it is zero, as the source does. */
static void prepare_adam(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    prepare_adamw(h, t, s);
    s->flag[0] = h->weight_decay != 0.0;
    s->c[0] = 1.0f;
}

/* torchao: lr and the step are float32 tensors, so products with them are float32. */
static void prepare_adamw_ao(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    float lr = (float)h->lr, w1 = (float)(1.0 - h->beta1), w2 = (float)(1.0 - h->beta2);
    float c1 = 1.0f - (float)pow((double)(float)h->beta1, (double)t);
    float c2 = 1.0f - (float)pow((double)(float)h->beta2, (double)t);
    const float c[12] = {
        lr * (float)h->weight_decay, w1, w1 - 1.0f, w2, w2 - 1.0f, c1, sqrtf(c2), (float)h->eps, lr,
        (float)h->weight_decay};
    memset(s, 0, sizeof *s);
    memcpy(s->c, c, sizeof c);
    qm_rule_reciprocal(s, 6);
    qm_rule_reciprocal(s, 5);
    s->flag[1] = h->maximize;
    s->flag[2] = h->amsgrad;
    s->t = t;
}

/* Adam of torchao adds the L2 term even where it is zero. */
static void prepare_adam_ao(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    prepare_adamw_ao(h, t, s);
    s->flag[0] = 1;
}

static void prepare_sgdm(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    memset(s, 0, sizeof *s);
    s->c[0] = (float)h->weight_decay;
    s->c[1] = (float)h->momentum;
    s->c[2] = (float)(1.0 - h->dampening);
    s->c[3] = (float)-h->lr;
    s->flag[0] = t == 1;
    s->flag[1] = h->maximize;
    s->flag[2] = h->nesterov;
    s->t = t;
}

static void prepare_ema(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    memset(s, 0, sizeof *s);
    s->c[0] = (float)(1.0 - h->beta1);
    s->c[1] = s->c[0] - 1.0f;
    s->flag[1] = h->maximize;
    s->t = t;
}

#define MOMENTS .n_slots = 2, .slot = {"exp_avg", "exp_avg_sq"}, .slot_sign = {1, 0}
#define MOMENTS_AND_TOP \
    .n_slots = 3, .slot = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}, .slot_sign = {1, 0, 0}

static const struct qm_rule rules[] = {
    {.name = "adamw",
     .family = "adamw",
     MOMENTS,
     .summary = "AdamW, decoupled decay before the step, float32 as PyTorch on CPU",
     .source = "arXiv:1711.05101; torch/optim/adamw.py _single_tensor_adamw",
     .prepare = prepare_adamw,
     QM_ELEMENTWISE_ADAM(adamw)},
    {.name = "adam",
     .family = "adam",
     MOMENTS,
     .summary = "Adam with coupled L2 decay, float32 as PyTorch on CPU",
     .source = "arXiv:1412.6980; torch/optim/adam.py _single_tensor_adam",
     .prepare = prepare_adam,
     QM_ELEMENTWISE_ADAM(adamw)},
    {.name = "adamw_ao",
     .family = "adamw",
     .order = QM_ORDER_lerp_m | QM_ORDER_lerp_v | QM_ORDER_torchao,
     MOMENTS,
     .summary = "AdamW in torchao's order: lerp moments, float32 bias corrections",
     .source = "torchao/optim/adam.py single_param_adam",
     .prepare = prepare_adamw_ao,
     QM_ELEMENTWISE_ADAM(adamw_ao),
     .packed = qm_packed_adamw_ao},
    {.name = "adam_ao",
     .family = "adam",
     .order = QM_ORDER_lerp_m | QM_ORDER_lerp_v | QM_ORDER_torchao,
     MOMENTS,
     .summary = "Adam in torchao's order",
     .source = "torchao/optim/adam.py single_param_adam",
     .prepare = prepare_adam_ao,
     QM_ELEMENTWISE_ADAM(adamw_ao),
     .packed = qm_packed_adamw_ao},
    {.name = "adamw_bnb",
     .family = "adamw",
     MOMENTS,
     .summary = "AdamW in the order of bitsandbytes' CPU 8-bit update",
     .source = "bitsandbytes/backends/cpu/ops.py",
     .prepare = prepare_adamw,
     QM_ELEMENTWISE_ADAM(adamw_bnb),
     .packed = qm_packed_adamw_bnb},
    {.name = "adamw_amsgrad",
     .family = "adamw",
     MOMENTS_AND_TOP,
     .summary = "adamw that keeps the maximum of the second moment",
     .source = "arXiv:1904.09237; torch/optim/adamw.py _single_tensor_adamw",
     .prepare = prepare_adamw,
     QM_ELEMENTWISE(adamw_amsgrad)},
    {.name = "adam_amsgrad",
     .family = "adam",
     MOMENTS_AND_TOP,
     .summary = "adam that keeps the maximum of the second moment",
     .source = "arXiv:1904.09237; torch/optim/adam.py _single_tensor_adam",
     .prepare = prepare_adam,
     QM_ELEMENTWISE(adamw_amsgrad)},
    {.name = "adamw_ao_amsgrad",
     .family = "adamw",
     .order = QM_ORDER_lerp_m | QM_ORDER_lerp_v | QM_ORDER_torchao,
     MOMENTS_AND_TOP,
     .summary = "adamw_ao that keeps the maximum of the second moment",
     .source = "torchao/optim/adam.py single_param_adam",
     .prepare = prepare_adamw_ao,
     QM_ELEMENTWISE(adamw_ao_amsgrad)},
    {.name = "adam_ao_amsgrad",
     .family = "adam",
     .order = QM_ORDER_lerp_m | QM_ORDER_lerp_v | QM_ORDER_torchao,
     MOMENTS_AND_TOP,
     .summary = "adam_ao that keeps the maximum of the second moment",
     .source = "torchao/optim/adam.py single_param_adam",
     .prepare = prepare_adam_ao,
     QM_ELEMENTWISE(adamw_ao_amsgrad)},
    {.name = "sgdm",
     .family = "sgdm",
     .n_slots = 1,
     .slot = {"momentum_buffer"},
     .slot_sign = {1},
     .summary = "SGD with heavy-ball or Nesterov momentum, float32 as PyTorch on CPU",
     .source = "torch/optim/sgd.py _single_tensor_sgd",
     .prepare = prepare_sgdm,
     QM_ELEMENTWISE(sgdm)},
    {.name = "ema",
     .family = "ema",
     .order = QM_ORDER_lerp_m,
     .n_slots = 1,
     .slot = {"exp_avg"},
     .slot_sign = {1},
     .summary = "exponential moving average of the gradient; the parameter stays",
     .source = "torch.lerp on CPU; adafactor8bit optimizer.py, momentum path",
     .prepare = prepare_ema,
     QM_ELEMENTWISE(ema)},
};

const struct qm_rule_family qm_family_adamw = {sizeof rules / sizeof *rules, rules};
