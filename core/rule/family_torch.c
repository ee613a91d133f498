/* family_torch.c - RMSprop, Adagrad, NAdam and RAdam of PyTorch 2: rules and their scalars.
 *
 * RMSprop decays by beta2, which its class calls alpha.  Adagrad's lr_decay is a schedule of lr,
 * lr / (1 + (t - 1) lr_decay), and is left to the caller. */
#include "core/rule/rule.h"

#include <math.h>

#include "core/rule/element_loops.h"

/* PyTorch keeps scalars in double and rounds each once, where it meets a tensor. */
static void prepare_rmsprop(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    float w = (float)(1.0 - h->beta2);
    *s = (struct qm_rule_step){
        .t = t,
        .c = {[QM_TORCH_L2] = (float)h->weight_decay,
              [QM_TORCH_STEP] = (float)-h->lr,
              [QM_TORCH_EPS] = (float)h->eps,
              [QM_TORCH_KEEP] = (float)h->beta2,
              [QM_TORCH_ONE_MINUS_KEEP] = w,
              [QM_TORCH_ONE_MINUS_KEEP_LESS] = w - 1.0f},
        .flag = {
            [QM_FLAG_TORCH_COUPLED] = h->weight_decay != 0.0, [QM_FLAG_MAXIMIZE] = h->maximize}};
}

static void prepare_rmsprop_full(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    prepare_rmsprop(h, t, s);
    s->c[QM_TORCH_MOMENTUM] = (float)h->momentum;
    s->flag[QM_FLAG_CENTERED] = h->centered;
    s->flag[QM_FLAG_MOMENTUM] = h->momentum > 0.0;
}

/* What NAdam and RAdam share with AdamW; coupled: the decay is an L2 term. */
static void prepare_moments(const struct qm_hyper *h, int64_t t, int coupled,
                            struct qm_rule_step *s)
{
    float w = (float)(1.0 - h->beta1);
    coupled = coupled && h->weight_decay != 0.0;
    *s = (struct qm_rule_step){
        .t = t,
        .c = {[QM_ADAMW_KEEP] = (float)(1.0 - h->lr * h->weight_decay),
              [QM_ADAMW_ONE_MINUS_BETA1] = w,
              [QM_ADAMW_W1_MINUS_1] = w - 1.0f,
              [QM_ADAMW_BETA2] = (float)h->beta2,
              [QM_ADAMW_ONE_MINUS_BETA2] = (float)(1.0 - h->beta2),
              [QM_ADAMW_EPS] = (float)h->eps,
              [QM_ADAMW_L2] = (float)h->weight_decay},
        .flag = {[QM_FLAG_COUPLED] = coupled, [QM_FLAG_MAXIMIZE] = h->maximize}};
}

/* mu_t of NAdam, the momentum of step t. */
static double momentum_at(const struct qm_hyper *h, int64_t t)
{
    return h->beta1 * (1.0 - 0.5 * pow(0.96, (double)t * h->momentum_decay));
}

/* mu_1 ... mu_t as the source keeps it, a float32 number that each step multiplies.  It is formed
 * anew in every step, with this step's beta1 and momentum_decay.  Below 2^-60 it is nothing beside
 * 1; after 2^20 steps above that, mu is beta1 in double. */
static double momentum_product(const struct qm_hyper *h, int64_t t)
{
    float product = 1.0f;
    int64_t i = 1;
    for (; i <= t && i <= 1 << 20 && product >= 0x1p-60f; i++)
        product *= (float)momentum_at(h, i);
    if (i <= t && product >= 0x1p-60f)
        product = (float)((double)product * pow(h->beta1, (double)(t - i + 1)));
    return (double)product;
}

static void set_nadam(const struct qm_hyper *h, int64_t t, int coupled, struct qm_rule_step *s)
{
    double mu = momentum_at(h, t), next = momentum_at(h, t + 1), all = momentum_product(h, t);
    prepare_moments(h, t, coupled, s);
    s->c[QM_NADAM_BC2] = (float)(1.0 - pow(h->beta2, (double)t));
    s->c[QM_NADAM_ROOT_BC2] = (float)sqrt(1.0 - pow(h->beta2, (double)t));
    s->c[QM_NADAM_STEP] = (float)(-h->lr * (1.0 - mu) / (1.0 - all));
    s->c[QM_NADAM_STEP_MEAN] = (float)((-h->lr * next) / (1.0 - all * next));
}

static void prepare_nadam(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    set_nadam(h, t, 1, s);
}

static void prepare_nadamw(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    set_nadam(h, t, 0, s);
}

static void set_radam(const struct qm_hyper *h, int64_t t, int coupled, struct qm_rule_step *s)
{
    double power = pow(h->beta2, (double)t), bc2 = 1.0 - power,
           limit = 2.0 / (1.0 - h->beta2) - 1.0;
    double length = limit - 2.0 * (double)t * power / bc2;
    prepare_moments(h, t, coupled, s);
    s->c[QM_RADAM_BC1] = (float)(1.0 - pow(h->beta1, (double)t));
    s->c[QM_RADAM_LR] = (float)h->lr;
    s->c[QM_RADAM_ROOT_BC2] = (float)sqrt(bc2);
    s->flag[QM_FLAG_RECTIFIED] = length > 5.0;
    double bc1 = 1.0 - pow(h->beta1, (double)t), rect = 0.0;
    if (length > 5.0)
        rect = sqrt((length - 4.0) * (length - 2.0) * limit /
                    ((limit - 4.0) * (limit - 2.0) * length));
    s->c[QM_RADAM_RECT] = (float)rect;
    s->c[QM_RADAM_RATE] = (float)-(sqrt(bc2) * (h->lr * rect / bc1));
    s->c[QM_RADAM_PLAIN] = (float)-(h->lr * (rect > 0.0 ? 0.0 : 1.0) / bc1);
}

static void prepare_radam(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    set_radam(h, t, 1, s);
}

static void prepare_radamw(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    set_radam(h, t, 0, s);
}

#define MOMENTS .n_slots = 2, .slot = {"exp_avg", "exp_avg_sq"}, .slot_sign = {1, 0}

static const struct qm_rule rules[] = {
    {.name = "rmsprop",
     .family = "rmsprop_torch",
     .reads = "lr beta2 eps weight_decay maximize",
     .n_slots = 1,
     .slot = {"square_avg"},
     .summary = "RMSprop with L2 decay, float32 as PyTorch 2 on CPU; beta2 is its alpha",
     .source = "torch/optim/rmsprop.py _single_tensor_rmsprop",
     .prepare = prepare_rmsprop,
     QM_ELEMENTWISE(rmsprop_torch)},
    {.name = "rmsprop_full",
     .family = "rmsprop_full",
     .reads = "lr beta2 eps weight_decay momentum centered maximize",
     .order = QM_ORDER_lerp_m,
     .n_slots = 3,
     .slot = {"square_avg", "grad_avg", "momentum_buffer"},
     .slot_sign = {0, 1, 1},
     .summary = "rmsprop that may be centered and have momentum",
     .source = "torch/optim/rmsprop.py _single_tensor_rmsprop",
     .prepare = prepare_rmsprop_full,
     QM_ELEMENTWISE(rmsprop_torch_full)},
    {.name = "adagrad",
     .family = "adagrad_torch",
     .reads = "lr eps weight_decay maximize",
     .n_slots = 1,
     .slot = {"sum"},
     .summary = "Adagrad with L2 decay, float32 as PyTorch 2 on CPU",
     .source = "torch/optim/adagrad.py _single_tensor_adagrad",
     .prepare = prepare_rmsprop,
     QM_ELEMENTWISE(adagrad_torch)},
    {.name = "nadam",
     .family = "nadam",
     .reads = "lr beta1 beta2 eps weight_decay momentum_decay maximize",
     .order = QM_ORDER_lerp_m,
     MOMENTS,
     .summary = "NAdam with L2 decay, float32 as PyTorch 2 on CPU",
     .source = "Dozat 2016; torch/optim/nadam.py _single_tensor_nadam",
     .prepare = prepare_nadam,
     QM_ELEMENTWISE(nadam)},
    {.name = "nadam_foreach",
     .family = "nadam",
     .reads = "lr beta1 beta2 eps weight_decay momentum_decay maximize",
     .order = QM_ORDER_lerp_m,
     MOMENTS,
     .summary = "nadam by the functions for many tensors (foreach=True)",
     .source = "Dozat 2016; torch/optim/nadam.py _multi_tensor_nadam",
     .prepare = prepare_nadam,
     QM_ELEMENTWISE(nadam_foreach)},
    {.name = "nadamw",
     .family = "nadamw",
     .reads = "lr beta1 beta2 eps weight_decay momentum_decay maximize",
     .order = QM_ORDER_lerp_m,
     MOMENTS,
     .summary = "nadam with decoupled_weight_decay: the parameter decays before the step",
     .source = "Dozat 2016; torch/optim/nadam.py _single_tensor_nadam",
     .prepare = prepare_nadamw,
     QM_ELEMENTWISE(nadam)},
    {.name = "nadamw_foreach",
     .family = "nadamw",
     .reads = "lr beta1 beta2 eps weight_decay momentum_decay maximize",
     .order = QM_ORDER_lerp_m,
     MOMENTS,
     .summary = "nadamw by the functions for many tensors (foreach=True)",
     .source = "Dozat 2016; torch/optim/nadam.py _multi_tensor_nadam",
     .prepare = prepare_nadamw,
     QM_ELEMENTWISE(nadam_foreach)},
    {.name = "radam",
     .family = "radam",
     .reads = "lr beta1 beta2 eps weight_decay maximize",
     .order = QM_ORDER_lerp_m,
     MOMENTS,
     .summary = "RAdam with L2 decay, float32 as PyTorch 2 on CPU",
     .source = "arXiv:1908.03265; torch/optim/radam.py _single_tensor_radam",
     .prepare = prepare_radam,
     QM_ELEMENTWISE(radam)},
    {.name = "radam_foreach",
     .family = "radam",
     .reads = "lr beta1 beta2 eps weight_decay maximize",
     .order = QM_ORDER_lerp_m | QM_ORDER_foreach,
     MOMENTS,
     .summary = "radam by the functions for many tensors (foreach=True)",
     .source = "arXiv:1908.03265; torch/optim/radam.py _multi_tensor_radam",
     .prepare = prepare_radam,
     QM_ELEMENTWISE(radam_foreach)},
    {.name = "radamw",
     .family = "radamw",
     .reads = "lr beta1 beta2 eps weight_decay maximize",
     .order = QM_ORDER_lerp_m,
     MOMENTS,
     .summary = "radam with decoupled_weight_decay: the parameter decays before the step",
     .source = "arXiv:1908.03265; torch/optim/radam.py _single_tensor_radam",
     .prepare = prepare_radamw,
     QM_ELEMENTWISE(radam)},
    {.name = "radamw_foreach",
     .family = "radamw",
     .reads = "lr beta1 beta2 eps weight_decay maximize",
     .order = QM_ORDER_lerp_m | QM_ORDER_foreach,
     MOMENTS,
     .summary = "radamw by the functions for many tensors (foreach=True)",
     .source = "arXiv:1908.03265; torch/optim/radam.py _multi_tensor_radam",
     .prepare = prepare_radamw,
     QM_ELEMENTWISE(radam_foreach)},
};

const struct qm_rule_family qm_family_torch = {sizeof rules / sizeof *rules, rules};
