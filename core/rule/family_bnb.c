/* family_bnb.c - The elementwise updates of bitsandbytes: rules and the scalars of their steps.
 *
 * Adam, AdEMAMix and Lion decay by beta1 and beta2 (and beta3), momentum by `momentum`, RMSprop by
 * beta2 (its class calls it alpha).
 *
 * gnorm_scale is 1 in every call of the source since it dropped clipping by percentiles (0.50.0).
 * The rules of family adamw have no gnorm_scale and obey maximize instead, as that family does. */
#include "core/rule/rule.h"

#include <math.h>

#include "core/rule/element_loops.h"

/* ---- scalars ------------------------------------------------------------------------------- */

/* optim/ademamix.py update_step: alpha rises linearly; beta3 rises such that its half-life
 * rises linearly. */
static double alpha_at(const struct qm_hyper *h, int64_t t)
{
    double alpha = (double)t * h->alpha / h->t_alpha;
    return h->t_alpha > 0.0 && alpha < h->alpha ? alpha : h->alpha;
}

static double beta3_at(const struct qm_hyper *h, int64_t t)
{
    if (!(h->t_beta3 > 0.0))
        return h->beta3;
    double ln1 = log(h->beta1), ln3 = log(h->beta3), share = (double)t / h->t_beta3;
    double beta3 = exp((ln1 * ln3) / (((1.0 - share) * ln3) + (share * ln1)));
    return beta3 < h->beta3 ? beta3 : h->beta3;
}

/* 0 stands for 1, as it does where the hyper-parameter was not named. */
static double gnorm_scale(const struct qm_hyper *h)
{
    return h->gnorm_scale != 0.0 ? h->gnorm_scale : 1.0;
}

/* The CPU and default back ends: doubles of Python, each rounded once, where it meets a tensor. */
static void set(struct qm_rule_step *s, const struct qm_hyper *h, int64_t t)
{
    double beta3 = beta3_at(h, t);
    const double c[QM_BNB_SCALARS] = {[QM_BNB_GNORM_SCALE] = gnorm_scale(h),
                                      [QM_BNB_DECAY] = 1.0 - h->lr * h->weight_decay,
                                      [QM_BNB_BETA1] = h->beta1,
                                      [QM_BNB_ONE_MINUS_BETA1] = 1.0 - h->beta1,
                                      [QM_BNB_BETA2] = h->beta2,
                                      [QM_BNB_ONE_MINUS_BETA2] = 1.0 - h->beta2,
                                      [QM_BNB_EPS] = h->eps,
                                      [QM_BNB_STEP] = -h->lr,
                                      [QM_BNB_BC1] = 1.0 - pow(h->beta1, (double)t),
                                      [QM_BNB_ROOT_BC2] = sqrt(1.0 - pow(h->beta2, (double)t)),
                                      [QM_BNB_ALPHA] = alpha_at(h, t),
                                      [QM_BNB_BETA3] = beta3,
                                      [QM_BNB_ONE_MINUS_BETA3] = 1.0 - beta3};
    *s = (struct qm_rule_step){.t = t};
    for (int i = 0; i < QM_BNB_SCALARS; i++)
        s->c[i] = (float)c[i];
    s->flag[QM_FLAG_BNB_FIRST] = t == 1;
    s->flag[QM_FLAG_BNB_COUPLED] = h->weight_decay > 0.0;
}

/* The CUDA kernels get float32 scalars and compute the others from them in float32. */
static void set_cuda(struct qm_rule_step *s, const struct qm_hyper *h, int64_t t)
{
    set(s, h, t);
    float *c = s->c;
    c[QM_BNB_DECAY] = 1.0f - (float)h->lr * (float)h->weight_decay;
    c[QM_BNB_ONE_MINUS_BETA1] = 1.0f - c[QM_BNB_BETA1];
    c[QM_BNB_ONE_MINUS_BETA2] = 1.0f - c[QM_BNB_BETA2];
    c[QM_BNB_BC1] = 1.0f - (float)pow((double)c[QM_BNB_BETA1], (double)t);
    c[QM_BNB_ROOT_BC2] = sqrtf(1.0f - (float)pow((double)c[QM_BNB_BETA2], (double)t));
    c[QM_BNB_ONE_MINUS_BETA3] = 1.0f - c[QM_BNB_BETA3];
}

static void prepare_adamw(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    double c1 = 1.0 - pow(h->beta1, (double)t), c2 = sqrt(1.0 - pow(h->beta2, (double)t));
    set(s, h, t);
    s->c[QM_BNB_GNORM_SCALE] = h->maximize ? -1.0f : 1.0f;
    s->c[QM_BNB_EPS] = (float)(h->eps * c2);
    s->c[QM_BNB_STEP] = (float)(-h->lr * c2 / c1);
}

static void prepare_adamw_cuda(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    set_cuda(s, h, t);
    s->c[QM_BNB_EPS] = s->c[QM_BNB_ROOT_BC2] * s->c[QM_BNB_EPS];
    s->c[QM_BNB_STEP] = s->c[QM_BNB_STEP] * s->c[QM_BNB_ROOT_BC2] / s->c[QM_BNB_BC1];
}

static void prepare_plain(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    set(s, h, t);
}

static void prepare_cuda(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    set_cuda(s, h, t);
}

/* The decay is an L2 term. */
static void prepare_momentum(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    set(s, h, t);
    s->c[QM_BNB_DECAY] = (float)h->weight_decay;
    s->c[QM_BNB_BETA1] = (float)h->momentum;
}

/* The 8-bit CPU forms add the L2 term even where it is zero. */
static void prepare_momentum_8(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    prepare_momentum(h, t, s);
    s->flag[QM_FLAG_BNB_COUPLED] = 1;
}

static void prepare_rmsprop(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    set(s, h, t);
    s->c[QM_BNB_DECAY] = (float)h->weight_decay;
}

static void prepare_rmsprop_8(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    prepare_rmsprop(h, t, s);
    s->flag[QM_FLAG_BNB_COUPLED] = 1;
}

static void prepare_rmsprop_cuda(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    set_cuda(s, h, t);
    s->c[QM_BNB_DECAY] = (float)h->weight_decay;
}

static void prepare_adagrad(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    prepare_rmsprop(h, t, s);
    s->c[QM_BNB_BETA2] = s->c[QM_BNB_ONE_MINUS_BETA2] = 1.0f;
}

static void prepare_adagrad_8(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    prepare_adagrad(h, t, s);
    s->flag[QM_FLAG_BNB_COUPLED] = 1;
}

/* ---- rules --------------------------------------------------------------------------------- */

#define CPU_8   "bitsandbytes/backends/cpu/ops.py _optimizer_update_8bit_blockwise_cpu"
#define CPU_32  "bitsandbytes/backends/cpu/ops.py _optimizer_update_32bit_cpu"
#define PLAIN   "bitsandbytes/backends/default/ops.py _optimizer_update_32bit"
#define CUDA_2  "bitsandbytes/csrc/kernels.cu kOptimizerStatic8bit2StateBlockwise"
#define CUDA_1  "bitsandbytes/csrc/kernels.cu kOptimizerStatic8bit1StateBlockwise"
#define MOMENTS .n_slots = 2, .slot = {"exp_avg", "exp_avg_sq"}, .slot_sign = {1, 0}
#define THREE \
    .n_slots = 3, .slot = {"exp_avg", "exp_avg_slow", "exp_avg_sq"}, .slot_sign = {1, 1, 0}
#define ONE(which, sign) .n_slots = 1, .slot = {which}, .slot_sign = {sign}

static const struct qm_rule rules[] = {
    {.name = "adamw_bnb32",
     .family = "adamw",
     .reads = "lr beta1 beta2 eps weight_decay maximize",
     .order = QM_ORDER_bnb,
     MOMENTS,
     .summary = "AdamW in the order of bitsandbytes' CPU 32-bit update",
     .source = CPU_32,
     .prepare = prepare_adamw,
     QM_ELEMENTWISE(bnb_adamw_32)},
    {.name = "adamw_bnb_plain",
     .family = "adamw",
     .reads = "lr beta1 beta2 eps weight_decay maximize",
     .order = QM_ORDER_bnb,
     MOMENTS,
     .summary = "AdamW in the order of bitsandbytes' default 32-bit update",
     .source = PLAIN,
     .prepare = prepare_adamw,
     QM_ELEMENTWISE(bnb_adamw_plain)},
    {.name = "adamw_bnb_cuda",
     .family = "adamw_after",
     .reads = "lr beta1 beta2 eps weight_decay gnorm_scale",
     .order = QM_ORDER_bnb | QM_ORDER_cuda,
     MOMENTS,
     .summary = "AdamW of bitsandbytes' CUDA 8-bit update: decay after the step",
     .source = CUDA_2,
     .prepare = prepare_adamw_cuda,
     QM_ELEMENTWISE(bnb_adamw_cuda)},
    {.name = "ademamix_bnb",
     .family = "ademamix",
     .reads = "lr beta1 beta2 beta3 eps weight_decay alpha t_alpha t_beta3 gnorm_scale",
     THREE,
     .summary = "AdEMAMix in the order of bitsandbytes' CPU updates, 8 and 32 bits",
     .source = "arXiv:2409.03137; " CPU_8 " and _optimizer_update_32bit_cpu",
     .prepare = prepare_plain,
     QM_ELEMENTWISE(bnb_ademamix_32)},
    {.name = "ademamix_bnb_plain",
     .family = "ademamix",
     .reads = "lr beta1 beta2 beta3 eps weight_decay alpha t_alpha t_beta3 gnorm_scale",
     THREE,
     .summary = "AdEMAMix in the order of bitsandbytes' default 32-bit update",
     .source = PLAIN,
     .prepare = prepare_plain,
     QM_ELEMENTWISE(bnb_ademamix_plain)},
    {.name = "ademamix_bnb_cuda",
     .family = "ademamix_after",
     .reads = "lr beta1 beta2 beta3 eps weight_decay alpha t_alpha t_beta3 gnorm_scale",
     .order = QM_ORDER_cuda,
     THREE,
     .summary = "AdEMAMix of bitsandbytes' CUDA 8-bit update: decay after the step",
     .source = CUDA_2,
     .prepare = prepare_cuda,
     QM_ELEMENTWISE(bnb_ademamix_cuda)},
    {.name = "momentum_bnb",
     .family = "momentum",
     .reads = "lr weight_decay momentum gnorm_scale",
     .order = QM_ORDER_zero_l2,
     ONE("momentum_buffer", 1),
     .summary = "SGD with momentum in the order of bitsandbytes' CPU 8-bit update",
     .source = CPU_8,
     .prepare = prepare_momentum_8,
     QM_ELEMENTWISE(bnb_momentum_8)},
    {.name = "momentum_bnb32",
     .family = "momentum",
     .reads = "lr weight_decay momentum gnorm_scale",
     ONE("momentum_buffer", 1),
     .summary = "SGD with momentum in the order of bitsandbytes' CPU 32-bit update",
     .source = CPU_32,
     .prepare = prepare_momentum,
     QM_ELEMENTWISE(bnb_momentum_32)},
    {.name = "momentum_bnb_plain",
     .family = "momentum",
     .reads = "lr weight_decay momentum gnorm_scale",
     ONE("momentum_buffer", 1),
     .summary = "SGD with momentum, bitsandbytes' default 32-bit and CUDA 8-bit updates",
     .source = PLAIN "; csrc/kernels.cu kOptimizerStatic8bit1StateBlockwise",
     .prepare = prepare_momentum,
     QM_ELEMENTWISE(bnb_momentum_plain)},
    {.name = "rmsprop_bnb",
     .family = "rmsprop",
     .reads = "lr beta2 eps weight_decay gnorm_scale",
     .order = QM_ORDER_zero_l2,
     ONE("square_avg", 0),
     .summary = "RMSprop in the order of bitsandbytes' CPU 8-bit update",
     .source = CPU_8,
     .prepare = prepare_rmsprop_8,
     QM_ELEMENTWISE(bnb_rmsprop_8)},
    {.name = "rmsprop_bnb32",
     .family = "rmsprop",
     .reads = "lr beta2 eps weight_decay gnorm_scale",
     ONE("square_avg", 0),
     .summary = "RMSprop in the order of bitsandbytes' CPU 32-bit update",
     .source = CPU_32,
     .prepare = prepare_rmsprop,
     QM_ELEMENTWISE(bnb_rmsprop_32)},
    {.name = "rmsprop_bnb_plain",
     .family = "rmsprop",
     .reads = "lr beta2 eps weight_decay gnorm_scale",
     ONE("square_avg", 0),
     .summary = "RMSprop in the order of bitsandbytes' default 32-bit update",
     .source = PLAIN,
     .prepare = prepare_rmsprop,
     QM_ELEMENTWISE(bnb_rmsprop_plain)},
    {.name = "rmsprop_bnb_cuda",
     .family = "rmsprop_raw",
     .reads = "lr beta2 eps weight_decay gnorm_scale",
     .order = QM_ORDER_cuda,
     ONE("square_avg", 0),
     .summary = "RMSprop of bitsandbytes' CUDA 8-bit update: the raw gradient is divided",
     .source = CUDA_1,
     .prepare = prepare_rmsprop_cuda,
     QM_ELEMENTWISE(bnb_rmsprop_cuda)},
    {.name = "adagrad_bnb",
     .family = "adagrad",
     .reads = "lr eps weight_decay gnorm_scale",
     .order = QM_ORDER_zero_l2,
     ONE("sum", 0),
     .summary = "Adagrad in the order of bitsandbytes' CPU 8-bit update",
     .source = CPU_8,
     .prepare = prepare_adagrad_8,
     QM_ELEMENTWISE(bnb_rmsprop_8)},
    {.name = "adagrad_bnb32",
     .family = "adagrad",
     .reads = "lr eps weight_decay gnorm_scale",
     ONE("sum", 0),
     .summary = "Adagrad in the order of bitsandbytes' CPU 32-bit update",
     .source = CPU_32,
     .prepare = prepare_adagrad,
     QM_ELEMENTWISE(bnb_rmsprop_32)},
    {.name = "adagrad_bnb_plain",
     .family = "adagrad",
     .reads = "lr eps weight_decay gnorm_scale",
     ONE("sum", 0),
     .summary = "Adagrad in the order of bitsandbytes' default 32-bit update",
     .source = PLAIN,
     .prepare = prepare_adagrad,
     QM_ELEMENTWISE(bnb_rmsprop_plain)},
    {.name = "adagrad_bnb_cuda",
     .family = "adagrad_raw",
     .reads = "lr eps weight_decay gnorm_scale",
     ONE("sum", 0),
     .summary = "Adagrad of bitsandbytes' CUDA 8-bit update: the raw gradient is divided",
     .source = CUDA_1,
     .prepare = prepare_adagrad,
     QM_ELEMENTWISE(bnb_rmsprop_cuda)},
    {.name = "lion_bnb",
     .family = "lion",
     .reads = "lr beta1 beta2 weight_decay gnorm_scale",
     ONE("exp_avg", 1),
     .summary = "Lion in the order of bitsandbytes' CPU 8-bit update",
     .source = CPU_8,
     .prepare = prepare_plain,
     QM_ELEMENTWISE(bnb_lion_8)},
    {.name = "lion_bnb32",
     .family = "lion",
     .reads = "lr beta1 beta2 weight_decay gnorm_scale",
     ONE("exp_avg", 1),
     .summary = "Lion in the order of bitsandbytes' CPU 32-bit update",
     .source = CPU_32,
     .prepare = prepare_plain,
     QM_ELEMENTWISE(bnb_lion_32)},
    {.name = "lion_bnb_plain",
     .family = "lion",
     .reads = "lr beta1 beta2 weight_decay gnorm_scale",
     ONE("exp_avg", 1),
     .summary = "Lion in the order of bitsandbytes' default 32-bit update",
     .source = PLAIN,
     .prepare = prepare_plain,
     QM_ELEMENTWISE(bnb_lion_plain)},
    {.name = "lion_bnb_cuda",
     .family = "lion",
     .reads = "lr beta1 beta2 weight_decay gnorm_scale",
     .order = QM_ORDER_cuda,
     ONE("exp_avg", 1),
     .summary = "Lion of bitsandbytes' CUDA 8-bit update",
     .source = CUDA_1,
     .prepare = prepare_cuda,
     QM_ELEMENTWISE(bnb_lion_plain)},
};

const struct qm_rule_family qm_family_bnb = {sizeof rules / sizeof *rules, rules};
