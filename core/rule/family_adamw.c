/* family_adamw.c - AdamW, Adam, SGD with momentum and the average: rules and their scalars. */
#include "core/rule/rule.h"

#include <math.h>

#include "core/rule/element_loops.h"
#include "core/rule/packed_loops.h"

/* PyTorch keeps scalars in double and rounds each once, where it meets a tensor. */
static void prepare_adamw(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    double bc1 = 1.0 - pow(h->beta1, (double)t), bc2 = 1.0 - pow(h->beta2, (double)t);
    *s = (struct qm_rule_step){
        .t = t,
        .c = {[QM_ADAMW_KEEP] = (float)(1.0 - h->lr * h->weight_decay),
              [QM_ADAMW_BETA1] = (float)h->beta1,
              [QM_ADAMW_ONE_MINUS_BETA1] = (float)(1.0 - h->beta1),
              [QM_ADAMW_BETA2] = (float)h->beta2,
              [QM_ADAMW_ONE_MINUS_BETA2] = (float)(1.0 - h->beta2),
              [QM_ADAMW_ROOT_BC2] = (float)sqrt(bc2),
              [QM_ADAMW_EPS] = (float)h->eps,
              [QM_ADAMW_STEP] = (float)(-h->lr / bc1),
              [QM_ADAMW_L2] = (float)h->weight_decay,
              [QM_ADAMW_W1_MINUS_1] = (float)(1.0 - h->beta1) - 1.0f},
        .flag = {[QM_FLAG_MAXIMIZE] = h->maximize, [QM_FLAG_AMSGRAD] = h->amsgrad}};
    qm_rule_reciprocal(s, QM_ADAMW_ROOT_BC2);
}

/* The fused kernel's compiler contracts 1 - lr weight_decay: one rounding to double, not two, which
 * is all that remains where lr weight_decay is 1. */
static void prepare_adamw_fused(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    prepare_adamw(h, t, s);
    s->c[QM_ADAMW_KEEP] = (float)fma(-h->lr, h->weight_decay, 1.0);
}

/* Adam: the source leaves the coupled decay out where it is zero. */
static void prepare_adam(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    prepare_adamw(h, t, s);
    s->flag[QM_FLAG_COUPLED] = h->weight_decay != 0.0;
    s->c[QM_ADAMW_KEEP] = 1.0f;
}

/* SOLO's Adam adds the L2 term even where weight_decay is zero: 0 times NaN is NaN. */
static void prepare_adam_solo(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    prepare_adam(h, t, s);
    s->flag[QM_FLAG_COUPLED] = 1;
}

/* torchao: lr and the step number are float32 tensors, so products with them are float32. */
static void prepare_adamw_ao(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    float lr = (float)h->lr, w1 = (float)(1.0 - h->beta1), w2 = (float)(1.0 - h->beta2);
    float c1 = 1.0f - (float)pow((double)(float)h->beta1, (double)t);
    float c2 = 1.0f - (float)pow((double)(float)h->beta2, (double)t);
    *s = (struct qm_rule_step){
        .t = t,
        .c = {[QM_ADAMW_AO_DECAY] = lr * (float)h->weight_decay,
              [QM_ADAMW_AO_W1] = w1,
              [QM_ADAMW_AO_W1_MINUS_1] = w1 - 1.0f,
              [QM_ADAMW_AO_W2] = w2,
              [QM_ADAMW_AO_W2_MINUS_1] = w2 - 1.0f,
              [QM_ADAMW_AO_BC1] = c1,
              [QM_ADAMW_AO_ROOT_BC2] = sqrtf(c2),
              [QM_ADAMW_AO_EPS] = (float)h->eps,
              [QM_ADAMW_AO_LR] = lr,
              [QM_ADAMW_AO_L2] = (float)h->weight_decay},
        .flag = {[QM_FLAG_MAXIMIZE] = h->maximize, [QM_FLAG_AMSGRAD] = h->amsgrad}};
    qm_rule_reciprocal(s, QM_ADAMW_AO_ROOT_BC2);
    qm_rule_reciprocal(s, QM_ADAMW_AO_BC1);
}

/* The compiled step has the weights as double constants: w - 1 is rounded once. */
static void prepare_adamw_ao_compiled(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    prepare_adamw_ao(h, t, s);
    s->c[QM_ADAMW_AO_W1_MINUS_1] = (float)((1.0 - h->beta1) - 1.0);
    s->c[QM_ADAMW_AO_W2_MINUS_1] = (float)((1.0 - h->beta2) - 1.0);
}

/* Adam of torchao adds the L2 term even where weight_decay is zero. */
static void prepare_adam_ao(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    prepare_adamw_ao(h, t, s);
    s->flag[QM_FLAG_COUPLED] = 1;
}

static void prepare_adam_ao_compiled(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    prepare_adamw_ao_compiled(h, t, s);
    s->flag[QM_FLAG_COUPLED] = 1;
}

void qm_sgdm_prepare(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    *s = (struct qm_rule_step){.t = t,
                               .c = {[QM_SGDM_L2] = (float)h->weight_decay,
                                     [QM_SGDM_MOMENTUM] = (float)h->momentum,
                                     [QM_SGDM_ONE_MINUS_DAMPENING] = (float)(1.0 - h->dampening),
                                     [QM_SGDM_STEP] = (float)-h->lr},
                               .flag = {[QM_FLAG_FIRST] = t == 1,
                                        [QM_FLAG_MAXIMIZE] = h->maximize,
                                        [QM_FLAG_NESTEROV] = h->nesterov}};
}

static void prepare_ema(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    float w = (float)(1.0 - h->beta1);
    *s = (struct qm_rule_step){.t = t,
                               .c = {[QM_EMA_W] = w, [QM_EMA_W_MINUS_1] = w - 1.0f},
                               .flag = {[QM_FLAG_MAXIMIZE] = h->maximize}};
}

#define MOMENTS .n_slots = 2, .slot = {"exp_avg", "exp_avg_sq"}, .slot_sign = {1, 0}
#define MOMENTS_AND_TOP \
    .n_slots = 3, .slot = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}, .slot_sign = {1, 0, 0}

/* PyTorch's AdamW and Adam: name, family, prepare, order, summary, source, element. */
#define TORCH(called, of, how, orders, says, from, does)                                   \
    {                                                                                      \
        .name = called, .family = of, .reads = "lr beta1 beta2 eps weight_decay maximize", \
        .order = orders, MOMENTS, .summary = says, .source = from, .prepare = how,         \
        QM_ELEMENTWISE_ADAM(does)                                                          \
    }
#define TORCH_AMSGRAD(called, of, how, orders, says, from, does)                                   \
    {                                                                                              \
        .name = called, .family = of, .reads = "lr beta1 beta2 eps weight_decay maximize amsgrad", \
        .order = orders, MOMENTS_AND_TOP, .summary = says, .source = "arXiv:1904.09237; " from,    \
        .prepare = how, QM_ELEMENTWISE(does)                                                       \
    }

static const struct qm_rule rules[] = {
    TORCH("adamw", "adamw", prepare_adamw, QM_ORDER_lerp_m,
          "AdamW, decoupled decay before the step, float32 as PyTorch 2 on CPU",
          "arXiv:1711.05101; torch/optim/adamw.py, adam.py _single_tensor_adam", adamw),
    TORCH("adam", "adam", prepare_adam, QM_ORDER_lerp_m,
          "Adam with coupled L2 decay, float32 as PyTorch 2 on CPU",
          "arXiv:1412.6980; torch/optim/adam.py _single_tensor_adam", adamw),
    TORCH("adamw_fused", "adamw", prepare_adamw_fused, QM_ORDER_lerp_m,
          "adamw in PyTorch's fused CPU kernel: 1 - lr weight_decay is rounded to double once",
          "aten/src/ATen/native/cpu/FusedAdamKernel.cpp", adamw),
    TORCH("adamw_tail", "adamw", prepare_adamw_fused, QM_ORDER_lerp_m,
          "adamw_fused in the last n mod 8 elements of PyTorch's fused CPU kernel",
          "aten/src/ATen/native/cpu/FusedAdamKernel.cpp", adamw_tail),
    TORCH("adam_tail", "adam", prepare_adam, QM_ORDER_lerp_m,
          "adam in the last n mod 8 elements of PyTorch's fused CPU kernel",
          "aten/src/ATen/native/cpu/FusedAdamKernel.cpp", adamw_tail),
    TORCH("adamw_t113", "adamw", prepare_adamw, 0, "AdamW, float32 as PyTorch 1.13 on CPU",
          "arXiv:1711.05101; torch/optim/adamw.py _single_tensor_adamw", adamw_t113),
    TORCH("adam_t113", "adam", prepare_adam, 0, "Adam, float32 as PyTorch 1.13 on CPU",
          "arXiv:1412.6980; torch/optim/adam.py _single_tensor_adam", adamw_t113),
    TORCH("adamw_solo", "adamw", prepare_adamw, QM_ORDER_lerp_m | QM_ORDER_lerp_v,
          "AdamW in SOLO's order: both moments by torch.lerp",
          "arXiv:2505.00347; solo/adamw.py (package solow)", adamw_solo),
    TORCH("adam_solo", "adam", prepare_adam_solo,
          QM_ORDER_lerp_m | QM_ORDER_lerp_v | QM_ORDER_zero_l2, "Adam in SOLO's order",
          "arXiv:2505.00347; solo/adam.py (package solow)", adamw_solo),
    {.name = "adabelief_solo",
     .family = "adabelief",
     .reads = "lr beta1 beta2 eps weight_decay maximize",
     .order = QM_ORDER_lerp_m | QM_ORDER_lerp_v,
     MOMENTS,
     .summary = "AdaBelief as SOLO computes it: decoupled decay, no epsilon inside the average",
     .source = "arXiv:2010.07468; solo/adabelief.py (package solow)",
     .prepare = prepare_adamw,
     QM_ELEMENTWISE(adabelief_solo)},
    {.name = "adamw_ao",
     .family = "adamw",
     .reads = "lr beta1 beta2 eps weight_decay maximize",
     .order = QM_ORDER_lerp_m | QM_ORDER_lerp_v | QM_ORDER_torchao,
     MOMENTS,
     .summary = "AdamW in torchao's order: lerp moments, float32 bias corrections",
     .source = "torchao/optim/adam.py single_param_adam",
     .prepare = prepare_adamw_ao,
     QM_ELEMENTWISE_PACKED(adamw_ao, NULL)},
    {.name = "adam_ao",
     .family = "adam",
     .reads = "lr beta1 beta2 eps weight_decay maximize",
     .order = QM_ORDER_lerp_m | QM_ORDER_lerp_v | QM_ORDER_torchao,
     MOMENTS,
     .summary = "Adam in torchao's order",
     .source = "torchao/optim/adam.py single_param_adam",
     .prepare = prepare_adam_ao,
     QM_ELEMENTWISE_PACKED(adamw_ao, NULL)},
    {.name = "adamw_ao_compiled",
     .family = "adamw",
     .reads = "lr beta1 beta2 eps weight_decay maximize",
     .order = QM_ORDER_lerp_m | QM_ORDER_lerp_v | QM_ORDER_torchao,
     MOMENTS,
     .summary = "adamw_ao as torch.compile makes it for a CPU: averages without a fused product",
     .source = "torchao/optim/adam.py single_param_adam, compiled as _AdamBase.step does",
     .prepare = prepare_adamw_ao_compiled,
     QM_ELEMENTWISE_ADAM(adamw_ao_compiled)},
    {.name = "adam_ao_compiled",
     .family = "adam",
     .reads = "lr beta1 beta2 eps weight_decay maximize",
     .order = QM_ORDER_lerp_m | QM_ORDER_lerp_v | QM_ORDER_torchao,
     MOMENTS,
     .summary = "adam_ao as torch.compile makes it for a CPU",
     .source = "torchao/optim/adam.py single_param_adam, compiled as _AdamBase.step does",
     .prepare = prepare_adam_ao_compiled,
     QM_ELEMENTWISE_ADAM(adamw_ao_compiled)},
    {.name = "adamw_bnb",
     .family = "adamw",
     .reads = "lr beta1 beta2 eps weight_decay maximize",
     MOMENTS,
     .summary = "AdamW in the order of bitsandbytes' CPU 8-bit update",
     .source = "bitsandbytes/backends/cpu/ops.py",
     .prepare = prepare_adamw,
     QM_ELEMENTWISE_PACKED(adamw_bnb, NULL)},
    TORCH_AMSGRAD("adamw_amsgrad", "adamw", prepare_adamw, QM_ORDER_lerp_m,
                  "adamw that keeps the maximum of the second moment",
                  "torch/optim/adamw.py, adam.py _single_tensor_adam", adamw_amsgrad),
    TORCH_AMSGRAD("adam_amsgrad", "adam", prepare_adam, QM_ORDER_lerp_m,
                  "adam that keeps the maximum of the second moment",
                  "torch/optim/adam.py _single_tensor_adam", adamw_amsgrad),
    TORCH_AMSGRAD("adamw_amsgrad_fused", "adamw", prepare_adamw_fused, QM_ORDER_lerp_m,
                  "adamw_fused that keeps the maximum of the second moment",
                  "aten/src/ATen/native/cpu/FusedAdamKernel.cpp", adamw_amsgrad),
    TORCH_AMSGRAD("adamw_amsgrad_tail", "adamw", prepare_adamw_fused, QM_ORDER_lerp_m,
                  "adamw_tail that keeps the maximum of the second moment",
                  "aten/src/ATen/native/cpu/FusedAdamKernel.cpp", adamw_amsgrad_tail),
    TORCH_AMSGRAD("adam_amsgrad_tail", "adam", prepare_adam, QM_ORDER_lerp_m,
                  "adam_tail that keeps the maximum of the second moment",
                  "aten/src/ATen/native/cpu/FusedAdamKernel.cpp", adamw_amsgrad_tail),
    TORCH_AMSGRAD("adamw_amsgrad_t113", "adamw", prepare_adamw, 0,
                  "adamw_t113 that keeps the maximum of the second moment",
                  "torch/optim/adamw.py _single_tensor_adamw", adamw_amsgrad_t113),
    TORCH_AMSGRAD("adam_amsgrad_t113", "adam", prepare_adam, 0,
                  "adam_t113 that keeps the maximum of the second moment",
                  "torch/optim/adam.py _single_tensor_adam", adamw_amsgrad_t113),
    {.name = "adamw_ao_amsgrad",
     .family = "adamw",
     .reads = "lr beta1 beta2 eps weight_decay maximize amsgrad",
     .order = QM_ORDER_lerp_m | QM_ORDER_lerp_v | QM_ORDER_torchao,
     MOMENTS_AND_TOP,
     .summary = "adamw_ao that keeps the maximum of the second moment",
     .source = "torchao/optim/adam.py single_param_adam",
     .prepare = prepare_adamw_ao,
     QM_ELEMENTWISE(adamw_ao_amsgrad)},
    {.name = "adamw_ao_amsgrad_compiled",
     .family = "adamw",
     .reads = "lr beta1 beta2 eps weight_decay maximize amsgrad",
     .order = QM_ORDER_lerp_m | QM_ORDER_lerp_v | QM_ORDER_torchao,
     MOMENTS_AND_TOP,
     .summary = "adamw_ao_compiled that keeps the maximum of the second moment",
     .source = "torchao/optim/adam.py single_param_adam, compiled as _AdamBase.step does",
     .prepare = prepare_adamw_ao_compiled,
     QM_ELEMENTWISE(adamw_ao_amsgrad_compiled)},
    {.name = "adam_ao_amsgrad",
     .family = "adam",
     .reads = "lr beta1 beta2 eps weight_decay maximize amsgrad",
     .order = QM_ORDER_lerp_m | QM_ORDER_lerp_v | QM_ORDER_torchao,
     MOMENTS_AND_TOP,
     .summary = "adam_ao that keeps the maximum of the second moment",
     .source = "torchao/optim/adam.py single_param_adam",
     .prepare = prepare_adam_ao,
     QM_ELEMENTWISE(adamw_ao_amsgrad)},
    {.name = "adam_ao_amsgrad_compiled",
     .family = "adam",
     .reads = "lr beta1 beta2 eps weight_decay maximize amsgrad",
     .order = QM_ORDER_lerp_m | QM_ORDER_lerp_v | QM_ORDER_torchao,
     MOMENTS_AND_TOP,
     .summary = "adam_ao_compiled that keeps the maximum of the second moment",
     .source = "torchao/optim/adam.py single_param_adam, compiled as _AdamBase.step does",
     .prepare = prepare_adam_ao_compiled,
     QM_ELEMENTWISE(adamw_ao_amsgrad_compiled)},
    {.name = "sgdm",
     .family = "sgdm",
     .reads = "lr weight_decay momentum dampening nesterov maximize",
     .n_slots = 1,
     .slot = {"momentum_buffer"},
     .slot_sign = {1},
     .summary = "SGD with heavy-ball or Nesterov momentum, float32 as PyTorch on CPU",
     .source = "torch/optim/sgd.py _single_tensor_sgd",
     .prepare = qm_sgdm_prepare,
     QM_ELEMENTWISE(sgdm)},
    {.name = "sgdm_tail",
     .family = "sgdm",
     .reads = "lr weight_decay momentum dampening nesterov maximize",
     .n_slots = 1,
     .slot = {"momentum_buffer"},
     .slot_sign = {1},
     .summary = "sgdm in the last n mod 8 elements of PyTorch's fused CPU kernel",
     .source = "aten/src/ATen/native/cpu/FusedSGDKernel.cpp",
     .prepare = qm_sgdm_prepare,
     QM_ELEMENTWISE(sgdm_tail)},
    {.name = "ema",
     .family = "ema",
     .reads = "beta1 maximize",
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
