/* family_adafactor8.c - The rules of adafactor8bit 0.2.1 to 0.4.6: scalars and shapes of states. */
#include "core/rule/adafactor8.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* ---- scalars and geometry ------------------------------------------------------------------- */

/* The geometry alone, which says which slots there are. */
static void adafactor8_shape(struct qm_adafactor8 *a, const struct qm_hyper *h,
                             const struct qm_shape *shape)
{
    int last = shape->rank - 1;
    a->h = h;
    a->n = qm_shape_numel(shape);
    a->has_m = h->beta1 >= 0.0;
    a->is_sgd = h->beta2 < 0.0 && h->beta2_decay > 0.0;
    a->is_apollo = h->rank > 0.0 && shape->rank >= 2 && !a->is_sgd;
    a->is_factored = !a->is_apollo && !a->is_sgd && h->factored && shape->rank >= 2;
    a->is_came = a->is_factored && h->beta3 > 0.0 && a->has_m;
    a->batch = 1;
    a->rows = a->is_apollo ? shape->dim[0] : shape->rank >= 2 ? shape->dim[last - 1] : 1;
    a->cols = a->is_apollo      ? (a->rows > 0 ? a->n / a->rows : 0)
              : shape->rank > 0 ? shape->dim[last]
                                : 1;
    for (int i = 0; !a->is_apollo && i < last - 1; i++)
        a->batch *= shape->dim[i];
    a->is_right = a->rows >= a->cols;
    a->rank = a->is_apollo ? (int64_t)h->rank : 0;
}

struct qm_adafactor8 qm_adafactor8_open(const struct qm_tensor_rule_args *w)
{
    struct qm_adafactor8 a = {.w = w};
    const struct qm_hyper *h = w->s->hyper;
    adafactor8_shape(&a, h, w->shape);
    a.is_024 = w->s->flag[QM_ADAFACTOR8_RELEASE] >= 24;
    a.is_025 = w->s->flag[QM_ADAFACTOR8_RELEASE] >= 25;
    a.is_026 = w->s->flag[QM_ADAFACTOR8_RELEASE] >= 26;
    a.is_cuda =
        w->s->flag[QM_ADAFACTOR8_CUDA] && !(a.is_factored && w->slot_is_f32[QM_ADAFACTOR8_ROW]);
    a.is_046 = w->s->flag[QM_ADAFACTOR8_RELEASE] >= 46;
    a.is_adam = a.is_046 && !h->factored && h->beta2 >= 0.0 && !(h->beta3 > 0.0);
    a.is_unit = a.is_046 && a.has_m && !a.is_factored && !a.is_sgd &&
                a.is_adam == w->s->flag[QM_ADAFACTOR8_OTHER_1D];
    a.is_old_came = a.is_came && !a.is_026;
    /* 0.2.2 to 0.2.5 do not recognize their state of apollo_factorize and make a new one */
    int is_forgotten = a.is_apollo && h->factored && a.is_024 && !a.is_026;
    a.t = is_forgotten ? 1 : w->s->t;
    double t = (double)a.t;
    a.eps1 = h->eps1 >= 0.0 ? h->eps1 : a.is_046 ? 1e-30 : (double)FLT_EPSILON;
    a.eps_sq = fmax(a.eps1 * a.eps1, (double)QM_ADAFACTOR8_TINY);
    if (a.is_046 && a.is_factored)
        a.eps_sq = 0.0;
    a.adam_eps = a.eps1;
    a.b = h->beta2 >= 0.0 ? 1.0 - h->beta2 : pow(t, h->beta2_decay);
    a.rho = h->relative_step ? fmin(h->lr, 1.0 / sqrt(t)) : h->lr;
    a.correction = 1.0;
    if (a.has_m && !h->relative_step && !a.is_sgd && (!a.is_046 || h->correct_bias)) {
        double root = h->beta2 >= 0.0 ? sqrt(1.0 - pow(h->beta2, t)) : 1.0;
        a.correction = 1.0 / (1.0 - pow(h->beta1, t));
        if (h->beta2 >= 0.0)
            a.correction *= root;
        a.adam_eps = a.eps1 * root;
    }
    return a;
}

static void slot_shape(const struct qm_hyper *h, int i, const struct qm_shape *param,
                       struct qm_shape *out)
{
    struct qm_adafactor8 a = {.w = NULL};
    adafactor8_shape(&a, h, param);
    int64_t side = a.is_right ? a.rows : a.cols, low = a.rank * side;
    int64_t rows = a.is_apollo ? (a.is_right ? a.rows : a.rank) : a.batch * a.rows;
    int64_t cols = a.is_apollo ? (a.is_right ? a.rank : a.cols) : a.batch * a.cols;
    int factors = a.is_factored || (a.is_apollo && h->factored);
    int64_t n = 0;
    switch ((enum qm_adafactor8_slot)i) {
    case QM_ADAFACTOR8_M:
        if (a.has_m && !a.is_apollo) {
            *out = *param;
            return;
        }
        n = a.has_m ? low : 0;
        break;
    case QM_ADAFACTOR8_ROW: n = factors ? rows : 0; break;
    case QM_ADAFACTOR8_COL: n = factors ? cols : 0; break;
    case QM_ADAFACTOR8_V:
        if (!factors && !a.is_apollo && !a.is_sgd) {
            *out = *param;
            return;
        }
        n = factors ? 0 : low;
        break;
    case QM_ADAFACTOR8_CONF_ROW: n = a.is_came ? rows : 0; break;
    case QM_ADAFACTOR8_CONF_COL: n = a.is_came ? cols : 0; break;
    case QM_ADAFACTOR8_NORM: n = a.n > 0 && (a.is_apollo ? h->margin >= 0.0 : h->limiter); break;
    case QM_ADAFACTOR8_PROJ:
        n = a.is_apollo && h->gap < 0.0 ? a.rank * (a.is_right ? a.cols : a.rows) : 0;
        break;
    default: break;
    }
    *out = (struct qm_shape){.rank = 1, .dim = {n}};
}

/* ---- rules ---------------------------------------------------------------------------------- */

/* The PyTorch path too applies the projected second moment as it is stored, except on the step that
 * begins it and in 0.4.6. */
static int applies_stored(const struct qm_tensor_rule_args *w, int i)
{
    struct qm_adafactor8 a = qm_adafactor8_open(w);
    return i == QM_ADAFACTOR8_V && a.is_apollo && !a.is_046 && !qm_adafactor8_starts(&a);
}

/* CAME on the CUDA path encodes the second moment before it forms the momentum from it, and the
 * momentum before it forms the residual.  Before 0.2.6 the momentum does not depend on the
 * second moment. */
static int update_round(const struct qm_tensor_rule_args *w, int i)
{
    struct qm_adafactor8 a = qm_adafactor8_open(w);
    if (!a.is_came || !a.is_cuda)
        return 0;
    if (i == QM_ADAFACTOR8_CONF_ROW || i == QM_ADAFACTOR8_CONF_COL)
        return a.is_old_came ? 1 : 2;
    return i == QM_ADAFACTOR8_M && !a.is_old_came;
}

static void prepare(int64_t t, int release, int is_cuda, struct qm_rule_step *s)
{
    memset(s, 0, sizeof *s);
    s->t = t;
    s->flag[QM_ADAFACTOR8_RELEASE] = release;
    s->flag[QM_ADAFACTOR8_CUDA] = is_cuda;
}

#define PREPARE(name, release, is_cuda)                                                     \
    static void prepare_##name(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s) \
    {                                                                                       \
        (void)h;                                                                            \
        prepare(t, release, is_cuda, s);                                                    \
    }
PREPARE(046, 46, 0)
PREPARE(026, 26, 0)
PREPARE(025, 25, 0)
PREPARE(024, 24, 0)
PREPARE(021, 21, 0)
PREPARE(026_cuda, 26, 1)
PREPARE(025_cuda, 25, 1)
PREPARE(024_cuda, 24, 1)
PREPARE(021_cuda, 21, 1)
#undef PREPARE

static void prepare_046_1d(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    prepare_046(h, t, s);
    s->flag[QM_ADAFACTOR8_OTHER_1D] = 1;
}

static const struct qm_tensor_ops tensor = {.states = qm_adafactor8_states,
                                            .apply = qm_adafactor8_apply,
                                            .on_device = 1,
                                            .extra_passes = 2,
                                            .applies_stored = applies_stored,
                                            .update_round = update_round};

static qm_status takes_no_sgd(const struct qm_hyper *h, const struct qm_shape *param)
{
    (void)param;
    return h->beta2 >= 0.0 || h->beta2_decay <= 0.0
               ? QM_OK
               : qm_fail(QM_BAD_ARG, "before 0.4.3 adafactor8bit has no SGD: without beta2 the "
                                     "exponent beta2_decay is at most 0");
}

#define SLOTS_AND_STEPS                                                                       \
    .n_slots = QM_ADAFACTOR8_SLOTS, .slot = {"exp_avg",  "row_var",  "col_var",   "variance", \
                                             "conf_row", "conf_col", "prev_norm", "proj"},    \
    .slot_sign = {1, 0, 0, 0, 0, 0, 0, 1}, .betas_optional = 1, .slot_shape = slot_shape,     \
    .tensor = &tensor

/* 0.2.1 has no CAME; with beta3 its rules compute the CAME of 0.2.2. */
static const struct qm_rule rules[] = {
    {.name = "adafactor8",
     .family = "adafactor8",
     .reads = "lr beta1 beta2 beta3 eps eps1 eps2 weight_decay clip beta2_decay rank "
              "gap scale margin maximize relative_step scale_parameter scale_weight_decay factored "
              "limiter tensor_scale scale_front clip_twice",
     .order = QM_ORDER_rounds,
     SLOTS_AND_STEPS,
     .takes = takes_no_sgd,
     .summary = "Adafactor, CAME, APOLLO of adafactor8bit 0.2.6, PyTorch path",
     .source = "adafactor8bit 0.2.6 optimizer.py, use_cuda_kernel=False",
     .prepare = prepare_026},
    {.name = "adafactor8_021",
     .family = "adafactor8_021",
     .reads = "lr beta1 beta2 beta3 eps eps1 eps2 weight_decay clip beta2_decay rank "
              "gap scale margin maximize relative_step scale_parameter scale_weight_decay factored "
              "limiter tensor_scale scale_front",
     .order = QM_ORDER_rounds,
     SLOTS_AND_STEPS,
     .takes = takes_no_sgd,
     .summary = "Adafactor, APOLLO of adafactor8bit 0.2.1, PyTorch path",
     .source = "adafactor8bit 0.2.1 optimizer.py, use_cuda_kernel=False",
     .prepare = prepare_021},
    {.name = "adafactor8_024",
     .family = "adafactor8_024",
     .reads = "lr beta1 beta2 beta3 eps eps1 eps2 weight_decay clip beta2_decay rank "
              "gap scale margin maximize relative_step scale_parameter scale_weight_decay factored "
              "limiter tensor_scale scale_front",
     .order = QM_ORDER_rounds,
     SLOTS_AND_STEPS,
     .takes = takes_no_sgd,
     .summary = "Adafactor, CAME, APOLLO of adafactor8bit 0.2.2 and 0.2.4, PyTorch path",
     .source = "adafactor8bit 0.2.4 optimizer.py, use_cuda_kernel=False",
     .prepare = prepare_024},
    {.name = "adafactor8_025",
     .family = "adafactor8_025",
     .reads = "lr beta1 beta2 beta3 eps eps1 eps2 weight_decay clip beta2_decay rank "
              "gap scale margin maximize relative_step scale_parameter scale_weight_decay factored "
              "limiter tensor_scale scale_front",
     .order = QM_ORDER_rounds,
     SLOTS_AND_STEPS,
     .takes = takes_no_sgd,
     .summary = "Adafactor, CAME, APOLLO of adafactor8bit 0.2.5, PyTorch path",
     .source = "adafactor8bit 0.2.5 optimizer.py, use_cuda_kernel=False",
     .prepare = prepare_025},
    {.name = "adafactor8_cuda",
     .family = "adafactor8",
     .reads = "lr beta1 beta2 beta3 eps eps1 eps2 weight_decay clip beta2_decay rank "
              "gap scale margin maximize relative_step scale_parameter scale_weight_decay factored "
              "limiter tensor_scale scale_front clip_twice",
     .order = QM_ORDER_cuda | QM_ORDER_rounds,
     SLOTS_AND_STEPS,
     .takes = takes_no_sgd,
     .summary = "Adafactor, CAME of adafactor8bit 0.2.6, arithmetic of its CUDA kernels",
     .source = "adafactor8bit 0.2.6 kernels.cu",
     .prepare = prepare_026_cuda},
    {.name = "adafactor8_021_cuda",
     .family = "adafactor8_021",
     .reads = "lr beta1 beta2 beta3 eps eps1 eps2 weight_decay clip beta2_decay rank "
              "gap scale margin maximize relative_step scale_parameter scale_weight_decay factored "
              "limiter tensor_scale scale_front",
     .order = QM_ORDER_cuda | QM_ORDER_rounds,
     SLOTS_AND_STEPS,
     .takes = takes_no_sgd,
     .summary = "Adafactor of adafactor8bit 0.2.1, arithmetic of its CUDA kernels",
     .source = "adafactor8bit 0.2.1 kernels.cu",
     .prepare = prepare_021_cuda},
    {.name = "adafactor8_024_cuda",
     .family = "adafactor8_024",
     .reads = "lr beta1 beta2 beta3 eps eps1 eps2 weight_decay clip beta2_decay rank "
              "gap scale margin maximize relative_step scale_parameter scale_weight_decay factored "
              "limiter tensor_scale scale_front",
     .order = QM_ORDER_cuda | QM_ORDER_rounds,
     SLOTS_AND_STEPS,
     .takes = takes_no_sgd,
     .summary = "Adafactor, CAME of adafactor8bit 0.2.2 and 0.2.4, their CUDA kernels",
     .source = "adafactor8bit 0.2.4 optimizer.py, kernels.cu",
     .prepare = prepare_024_cuda},
    {.name = "adafactor8_025_cuda",
     .family = "adafactor8_025",
     .reads = "lr beta1 beta2 beta3 eps eps1 eps2 weight_decay clip beta2_decay rank "
              "gap scale margin maximize relative_step scale_parameter scale_weight_decay factored "
              "limiter tensor_scale scale_front",
     .order = QM_ORDER_cuda | QM_ORDER_rounds,
     SLOTS_AND_STEPS,
     .takes = takes_no_sgd,
     .summary = "Adafactor, CAME of adafactor8bit 0.2.5, its CUDA kernels",
     .source = "adafactor8bit 0.2.5 optimizer.py, kernels.cu",
     .prepare = prepare_025_cuda},
    {.name = "adafactor8_046",
     .family = "adafactor8_046",
     .reads = "lr beta1 beta2 beta3 eps eps1 eps2 weight_decay clip beta2_decay rank gap scale "
              "margin maximize relative_step scale_parameter scale_weight_decay factored limiter "
              "tensor_scale scale_front correct_bias",
     .order = QM_ORDER_rounds,
     SLOTS_AND_STEPS,
     .summary = "Adafactor, CAME, AdamW, RMSprop, SGD, APOLLO of adafactor8bit 0.4.3 to 0.4.6, "
                "PyTorch path",
     .source = "adafactor8bit 0.4.6 optimizer.py, use_cuda_kernel=False",
     .prepare = prepare_046},
    {.name = "adafactor8_046_1d",
     .family = "adafactor8_046_1d",
     .reads = "lr beta1 beta2 beta3 eps eps1 eps2 weight_decay clip beta2_decay rank gap scale "
              "margin maximize relative_step scale_parameter scale_weight_decay factored limiter "
              "tensor_scale scale_front correct_bias",
     .order = QM_ORDER_rounds,
     SLOTS_AND_STEPS,
     .summary = "adafactor8_046 with momentum_only_1d against its default: vectors average the "
                "gradient, Adam's average the clipped update",
     .source = "adafactor8bit 0.4.6 optimizer.py _fallback_1d_update",
     .prepare = prepare_046_1d},
};

extern const struct qm_rule_family qm_family_adafactor8;
const struct qm_rule_family qm_family_adafactor8 = {sizeof rules / sizeof *rules, rules};
