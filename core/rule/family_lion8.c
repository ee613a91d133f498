/* family_lion8.c - Lion 8-bit and FlashOptim's rules: what they refuse, and their scalars.
 *
 * Lion 8-bit is DecoupledLionW_8bit. */
#include "core/rule/rule.h"

#include <math.h>

#include "core/rule/element_loops.h"

/* ---- what the sources refuse ----------------------------------------------------------------- */

static int is_16(enum qm_dtype d) { return d == QM_DTYPE_bf16 || d == QM_DTYPE_f16; }

/* Gradients of 16 bits go with parameters of the same format or float32. */
static qm_status check_types(const struct qm_rule_use *u)
{
    enum qm_dtype stored_as = qm_param_type(u->param.format);
    if (u->param.format == QM_PARAM_e4m3)
        return qm_fail(QM_BAD_ARG, "parameters must be f32, bf16 or f16, not e4m3");
    if (is_16(u->grad) && u->param.format != QM_PARAM_f32 && u->grad != stored_as)
        return qm_fail(QM_BAD_ARG,
                       "gradients in %s go with parameters in %s or f32, not with parameters in %s",
                       qm_dtype_name(u->grad), qm_dtype_name(u->grad), qm_dtype_name(stored_as));
    return QM_OK;
}

static qm_status check_rate(const struct qm_hyper *h)
{
    if (!(h->lr >= 0.0 && h->lr < (double)INFINITY))
        return qm_fail(QM_BAD_ARG, "lr: expected a finite number of at least 0, got %g", h->lr);
    if (!(h->weight_decay >= 0.0 && h->weight_decay < (double)INFINITY))
        return qm_fail(QM_BAD_ARG, "weight_decay: expected a finite number of at least 0, got %g",
                       h->weight_decay);
    if (!(h->initial_lr >= 0.0))
        return qm_fail(QM_BAD_ARG, "initial_lr: expected at least 0, got %g", h->initial_lr);
    if (h->initial_lr == 0.0 && h->lr == 0.0)
        return qm_fail(QM_BAD_ARG,
                       "lr is 0 from the start: the decay weight_decay * lr / initial_lr "
                       "would divide by zero; give an initial_lr");
    return QM_OK;
}

/* Both ends of the interval are legal: with beta 1 the momentum never changes, with 0 the step is
 * sign descent. */
static qm_status check_betas(const struct qm_hyper *h)
{
    if (!(h->beta1 >= 0.0 && h->beta1 <= 1.0))
        return qm_fail(QM_BAD_ARG, "beta1: expected a number in [0, 1], got %g", h->beta1);
    if (!(h->beta2 >= 0.0 && h->beta2 <= 1.0))
        return qm_fail(QM_BAD_ARG, "beta2: expected a number in [0, 1], got %g", h->beta2);
    return QM_OK;
}

static qm_status check_flash_lion(const struct qm_rule_use *u)
{
    QM_TRY(check_rate(u->hyper));
    QM_TRY(check_betas(u->hyper));
    return check_types(u);
}

static int is_residual(enum qm_param_write w)
{
    return w == QM_WRITE_kahan || w == QM_WRITE_ecc8 || w == QM_WRITE_ecc16;
}

/* The source allocates errors and then ignores them outside its fused quantized step. */
static qm_status check_fused(const struct qm_rule_use *u)
{
    QM_TRY(check_flash_lion(u));
    if (is_residual(u->param.write) && !u->slot_bits[0])
        return qm_fail(QM_BAD_ARG, "error correction works with a quantized exp_avg only");
    return QM_OK;
}

static qm_status check_unfused(const struct qm_rule_use *u)
{
    QM_TRY(check_flash_lion(u));
    if (is_residual(u->param.write))
        return qm_fail(QM_BAD_ARG,
                       "the unfused step has no errors: error correction wants rule lion8_fused");
    return QM_OK;
}

/* The source would divide by zero. */
static qm_status check_decay(const struct qm_hyper *h)
{
    if (h->decouple_lr && !(h->initial_lr > 0.0 || (h->initial_lr == 0.0 && h->lr > 0.0)))
        return qm_fail(QM_BAD_ARG, "decouple_lr wants an initial_lr above 0, got %g",
                       h->initial_lr != 0.0 ? h->initial_lr : h->lr);
    return QM_OK;
}

static qm_status check_flash_adam(const struct qm_rule_use *u)
{
    const struct qm_hyper *h = u->hyper;
    QM_TRY(check_decay(h));
    QM_TRY(qm_rule_from_0("lr", h->lr));
    QM_TRY(qm_rule_from_0("eps", h->eps));
    QM_TRY(qm_rule_from_0("weight_decay", h->weight_decay));
    if (!(h->beta1 >= 0.0 && h->beta1 < 1.0 && h->beta2 >= 0.0 && h->beta2 < 1.0))
        return qm_fail(QM_BAD_ARG, "beta1 and beta2 must be in [0, 1)");
    return check_types(u);
}

static qm_status check_flash_sgd(const struct qm_rule_use *u)
{
    const struct qm_hyper *h = u->hyper;
    QM_TRY(check_decay(h));
    QM_TRY(qm_rule_from_0("lr", h->lr));
    QM_TRY(qm_rule_from_0("momentum", h->momentum));
    QM_TRY(qm_rule_from_0("weight_decay", h->weight_decay));
    if (h->nesterov && (h->momentum <= 0.0 || h->dampening != 0.0))
        return qm_fail(QM_BAD_ARG, "nesterov wants momentum > 0 and dampening 0");
    return check_types(u);
}

/* ---- scalars --------------------------------------------------------------------------------- */

static void start(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    *s = (struct qm_rule_step){.t = t, .flag = {[QM_FLAG_MAXIMIZE] = h->maximize}};
}

/* The decay of one step, which the host forms in double, the quotient first; for initial_lr 1 it
 * is weight_decay * lr. */
static double decay(const struct qm_hyper *h)
{
    return h->initial_lr != 0.0 ? h->weight_decay * (h->lr / h->initial_lr) : h->weight_decay;
}

static void prepare_lion8_unfused(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    start(h, t, s);
    s->c[QM_LION8_LR] = (float)h->lr;
    s->c[QM_LION8_KEEP] = (float)(1.0 - decay(h));
    s->c[QM_LION8_W1] = (float)(1.0 - h->beta1);
    s->c[QM_LION8_W1_MINUS_1] = s->c[QM_LION8_W1] - 1.0f;
    s->c[QM_LION8_W2] = (float)(1.0 - h->beta2);
    s->c[QM_LION8_W2_MINUS_1] = s->c[QM_LION8_W2] - 1.0f;
}

/* torch 1.13 on CPU rounds the scalar of an in-place product to the tensor's type; torch 2.15 keeps
 * it in float32, as lion8_unfused does. */
static void prepare_lion8_cpu(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    prepare_lion8_unfused(h, t, s);
    s->flag[QM_FLAG_ROUND_FACTOR] = 1;
}

/* The scalars of kernels are float32, and so are their differences from 1. */
static void prepare_lion8_fused(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    start(h, t, s);
    s->c[QM_LION_LR] = (float)h->lr;
    s->c[QM_LION_KEEP] = 1.0f - (float)decay(h);
    s->c[QM_LION_BETA1] = (float)h->beta1;
    s->c[QM_LION_ONE_MINUS_BETA1] = 1.0f - s->c[QM_LION_BETA1];
    s->c[QM_LION_BETA2] = (float)h->beta2;
    s->c[QM_LION_ONE_MINUS_BETA2] = 1.0f - s->c[QM_LION_BETA2];
}

/* FlashAdamW, FlashSGDW: 1 - decay, the factor on the parameter. */
static float kept(const struct qm_hyper *h)
{
    double ratio = h->initial_lr != 0.0 ? h->lr / h->initial_lr : 1.0;
    return 1.0f - (float)(h->weight_decay * (h->decouple_lr ? ratio : h->lr));
}

/* 1 - beta^t, where the power of the float32 beta is formed in double and rounded. */
static float correction(float beta, int64_t t)
{
    return 1.0f - (float)pow((double)beta, (double)t);
}

static void prepare_flash_adamw(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    start(h, t, s);
    s->c[QM_FLASH_LR] = (float)h->lr;
    s->c[QM_FLASH_KEEP] = kept(h);
    s->c[QM_FLASH_BETA1] = (float)h->beta1;
    s->c[QM_FLASH_ONE_MINUS_BETA1] = 1.0f - s->c[QM_FLASH_BETA1];
    s->c[QM_FLASH_BETA2] = (float)h->beta2;
    s->c[QM_FLASH_ONE_MINUS_BETA2] = 1.0f - s->c[QM_FLASH_BETA2];
    s->c[QM_FLASH_BC1] = correction(s->c[QM_FLASH_BETA1], t);
    s->c[QM_FLASH_BC2] = correction(s->c[QM_FLASH_BETA2], t);
    s->c[QM_FLASH_EPS] = (float)h->eps;
    s->c[QM_FLASH_L2] = (float)h->weight_decay;
    qm_rule_reciprocal(s, QM_FLASH_BC1);
    qm_rule_reciprocal(s, QM_FLASH_BC2);
}

static void prepare_flash_adam(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    prepare_flash_adamw(h, t, s);
    s->flag[QM_FLAG_COUPLED] = 1;
}

static void prepare_flash_sgdw(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    start(h, t, s);
    s->c[QM_FLASH_LR] = (float)h->lr;
    s->c[QM_FLASH_KEEP] = kept(h);
    s->c[QM_FLASH_MOMENTUM] = (float)h->momentum;
    s->c[QM_FLASH_ONE_MINUS_DAMPENING] =
        h->momentum != 0.0 ? (float)(1.0 - h->dampening) : 1.0f; /* no buffer: no dampening */
    s->c[QM_FLASH_L2] = (float)h->weight_decay;
    s->flag[QM_FLAG_NESTEROV] = h->nesterov;
}

static void prepare_flash_sgd(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    prepare_flash_sgdw(h, t, s);
    s->flag[QM_FLAG_COUPLED] = 1;
}

#define LION    .n_slots = 1, .slot = {"exp_avg"}, .slot_sign = {1}
#define MOMENTS .n_slots = 2, .slot = {"exp_avg", "exp_avg_sq"}, .slot_sign = {1, 0}
#define BUFFER  .n_slots = 1, .slot = {"momentum_buffer"}, .slot_sign = {1}

static const struct qm_rule rules[] = {
    {.name = "lion8_fused",
     .family = "lion8",
     .reads = "lr beta1 beta2 weight_decay initial_lr maximize",
     .order = QM_ORDER_flash,
     LION,
     .summary = "Lion in one kernel, decay by lr / initial_lr, the parameter in float32 throughout",
     .source = "arXiv:2302.06675; llm-foundry optim/lion8b.py; FlashOptim optimizers.py",
     .check = check_fused,
     .prepare = prepare_lion8_fused,
     QM_ELEMENTWISE(lion8_fused)},
    {.name = "lion8_unfused",
     .family = "lion8",
     .reads = "lr beta1 beta2 weight_decay initial_lr maximize",
     .order = QM_ORDER_lerp_m | QM_ORDER_rounds,
     LION,
     .summary = "Lion in steps of its own: 16-bit parameters are rounded after the decay too",
     .source = "llm-foundry optim/lion8b.py lion_step_unfused, scalars as on CUDA",
     .check = check_unfused,
     .prepare = prepare_lion8_unfused,
     QM_ELEMENTWISE(lion8_unfused)},
    {.name = "lion8_cpu",
     .family = "lion8",
     .reads = "lr beta1 beta2 weight_decay initial_lr maximize",
     .order = QM_ORDER_lerp_m | QM_ORDER_rounds | QM_ORDER_factor,
     LION,
     .summary = "lion8_unfused with the decay factor rounded to the parameter's format",
     .source = "llm-foundry optim/lion8b.py lion_step_unfused, on CPU under torch 1.13",
     .check = check_unfused,
     .prepare = prepare_lion8_cpu,
     QM_ELEMENTWISE(lion8_unfused)},
    {.name = "flash_lion",
     .family = "lion8",
     .reads = "lr beta1 beta2 weight_decay initial_lr maximize",
     .order = QM_ORDER_flash,
     LION,
     .summary = "FlashOptim's Lion; initial_lr 1 is its default decay lr * weight_decay",
     .source = "arXiv:2602.23349; FlashOptim optimizers.py, fused momentum step",
     .check = check_flash_lion,
     .prepare = prepare_lion8_fused,
     QM_ELEMENTWISE(lion8_fused)},
    {.name = "flash_adamw",
     .family = "adamw",
     .reads = "lr beta1 beta2 eps weight_decay initial_lr maximize decouple_lr",
     .order = QM_ORDER_torchao | QM_ORDER_flash,
     MOMENTS,
     .summary = "FlashOptim's AdamW: no fused multiply-adds, float32 scalars",
     .source = "arXiv:2602.23349; FlashOptim optimizers.py, fused Adam step",
     .check = check_flash_adam,
     .prepare = prepare_flash_adamw,
     QM_ELEMENTWISE_ADAM(flash_adam)},
    {.name = "flash_adam",
     .family = "adam",
     .reads = "lr beta1 beta2 eps weight_decay maximize",
     .order = QM_ORDER_torchao | QM_ORDER_flash,
     MOMENTS,
     .summary = "FlashOptim's Adam with coupled L2 decay",
     .source = "arXiv:2602.23349; FlashOptim optimizers.py, fused Adam step",
     .check = check_flash_adam,
     .prepare = prepare_flash_adam,
     QM_ELEMENTWISE_ADAM(flash_adam)},
    {.name = "flash_sgd",
     .family = "sgd_zero",
     .reads = "lr weight_decay momentum dampening nesterov maximize",
     .order = QM_ORDER_flash,
     BUFFER,
     .summary = "FlashOptim's SGD with coupled L2 decay; the buffer starts at 0, dampened at once",
     .source = "arXiv:2602.23349; FlashOptim optimizers.py, fused momentum step",
     .check = check_flash_sgd,
     .prepare = prepare_flash_sgd,
     QM_ELEMENTWISE(flash_sgd)},
    {.name = "flash_sgdw",
     .family = "sgdw",
     .reads = "lr weight_decay momentum dampening initial_lr nesterov maximize decouple_lr",
     .order = QM_ORDER_flash,
     BUFFER,
     .summary = "FlashOptim's SGD with decoupled decay lr * weight_decay",
     .source = "arXiv:2602.23349; FlashOptim optimizers.py, fused momentum step",
     .check = check_flash_sgd,
     .prepare = prepare_flash_sgdw,
     QM_ELEMENTWISE(flash_sgd)},
};

const struct qm_rule_family qm_family_lion8 = {sizeof rules / sizeof *rules, rules};
