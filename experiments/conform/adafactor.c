/* adafactor.c - Replays the golden vectors of Adafactor: PyTorch core, transformers.
 *
 * Groups torch_* are PyTorch core's, hf_* those of transformers.  tests/golden/README.md states the
 * tolerances, which are relative to a tensor's largest magnitude. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "experiments/conform/adafactor_narrow.h"

/* PyTorch rounds to bfloat16 after each operation, which is off by at most h = 2^-9 of the result.
 * Of a factor that makes 5 h: the norm has h, its square 3 h, the quotient by n 4 h, the average
 * 5 h.  The estimate of the second moment is a product of two factors over the mean of one: 5 h +
 * 5 h + 6 h, and h each for product and quotient, 18 h together.  The reciprocal root halves them
 * and adds h: 10 h; the product with the gradient makes the update's 11 h, and its norm, which
 * clips it, has 12 h.  With h for the rate and h for the last product the step has 25 h; this side
 * rounds once, which is at most half an h.  A parameter has h for the decay, h for the sum, and h
 * for the sum of this side.  `bf16_states` allows 32 h of the step, 4 h of a parameter, and 8 h
 * of a factor; a free run adds 6 h of the factors in each step. */
static const struct qm_tensor_run_tolerance f64 = {5e-15, 5e-15, 5e-15, 5e-15, 0.0, 0.0},
                                            f32 = {2e-6, 2e-6, 2e-6, 2e-6, 0.0, 0.0},
                                            bf16 = {2e-6, 0.0, 1e-2, 1e-2, 0.0, 0.0},
                                            bf16_states = {0x1p-6, 0x1p-7, 0x1p-6,
                                                           0x1p-7, 0x1p-4, 0x1p-4};

/* PyTorch 2 keeps the states of a bfloat16 parameter in bfloat16, PyTorch 1 in float32. */
static int has_bf16_states(struct qm_conform *c)
{
    char version[32];
    return qm_golden_text(c->file, "", "torch_version", version, sizeof version) &&
           strncmp(version, "1.", 2) != 0;
}

/* NaN stands for None: no first moment, or the machine epsilon of the dtype. */
static double machine_epsilon(struct qm_conform *c)
{
    char dtype[16] = "";
    qm_golden_case_text(c, "dtype", dtype, sizeof dtype);
    return strcmp(dtype, "f64") == 0   ? DBL_EPSILON
           : strcmp(dtype, "f32") == 0 ? (double)FLT_EPSILON
                                       : 0x1p-7;
}

/* A beta1 of 0 is not that of None: transformers keeps a moment then, 0 times the old one and the
 * update, which is what a beta1 that float32 rounds to 0 makes here. */
static void setup_hf(struct qm_conform *c, struct qm_tensor_run_case *w)
{
    static const struct qm_golden_need needs[] = {{"state_RMS", QM_NEED_data, 0, 0, 0},
                                                  {"lr", QM_NEED_number, 0, 1e30, 0}};
    struct qm_hyper *h = &w->hyper;
    int is_relative = qm_golden_case_int(c, "relative_step", 1);
    if (!qm_golden_case_needs(c, needs, is_relative ? 1 : 2))
        return;
    w->rule = qm_rule_find("adafactor");
    double beta1 = qm_tensor_run_number(c, "beta1", 0, 1, -1.0);
    h->beta1 = beta1 < 0.0 ? 0.0 : fmax(beta1, DBL_TRUE_MIN);
    h->beta2_decay = qm_tensor_run_number(c, "decay_rate", 0, 1, -0.8);
    h->clip = qm_tensor_run_number(c, "clip_threshold", 0, 1, 1.0);
    h->eps1 = qm_tensor_run_number(c, "eps", 0, 2, 1e-30);
    w->added[0] = w->added[1] = w->added[2] = h->eps1; /* PyTorch adds none to its squares */
    h->relative_step = is_relative;
    h->scale_parameter = qm_golden_case_int(c, "scale_parameter", 1);
    h->warmup = qm_golden_case_int(c, "warmup_init", 0);
    h->lr = qm_tensor_run_number(c, "lr", 0, 1, 1e-2); /* the cap of a relative step */
    w->scales = h->scale_parameter;
    w->state[0] = "state_exp_avg_sq_row";
    w->state[1] = "state_exp_avg_sq_col";
    w->state[2] = "state_exp_avg_sq";
    w->state[3] = "state_exp_avg";
    w->average = 3;
    w->keep = fmax(beta1, 0.0);
}

/* PyTorch's mean of the squares of a line in bfloat16 is the square of their norm, each rounded to
 * 2^-8 of itself, over their count: whether it is infinite is up to these roundings where the sum
 * is within 2^-6 of the largest number, and an infinity makes every parameter NaN. */
static double overflow(const struct qm_tensor_run_case *w, const struct qm_tensor_run_at *at,
                       int slot)
{
    const struct qm_shape *s = at->shape;
    int64_t n = qm_shape_numel(s);
    (void)w;
    if (slot >= 0 || s->rank < 2)
        return 0.0;
    int64_t cols = s->dim[s->rank - 1], rows = s->dim[s->rank - 2];
    for (int axis = 0; axis < 2; axis++)
        for (int64_t i = 0; i < n / (axis ? rows : cols); i++) {
            int64_t from = axis ? i / cols * rows * cols + i % cols : i * cols;
            double sum = 0.0;
            for (int64_t k = 0; k < (axis ? rows : cols); k++) {
                double g = at->grad[from + k * (axis ? cols : 1)];
                sum += g * g;
            }
            if (fabs(sum * 0x1p-128 - 1.0) <= 0x1p-6)
                return HUGE_VAL;
        }
    return 0.0;
}

static void setup_torch(struct qm_conform *c, struct qm_tensor_run_case *w)
{
    struct qm_hyper *h = &w->hyper;
    if (!qm_golden_case_needs(c, &(struct qm_golden_need){"lr", QM_NEED_number, 0, 1e30, 0}, 1))
        return;
    w->rule = qm_rule_find("adafactor_torch");
    h->beta2_decay = qm_tensor_run_number(c, "beta2_decay", 0, 1, -0.8);
    h->clip = qm_tensor_run_number(c, "d", 0, 1, 1.0);
    h->eps1 = qm_tensor_run_number(c, "eps", 0, 2, machine_epsilon(c));
    h->maximize = qm_golden_case_int(c, "maximize", 0);
    h->lr = qm_tensor_run_number(c, "lr", 0, 1, 1e-2);
    if (qm_golden_case_whole(c, "tensor_lr", 0)) /* products with it are float32, in float64 too */
        h->lr = (double)(float)h->lr;
    if (qm_golden_case_whole(c, "tensor_lr", 0) && machine_epsilon(c) == DBL_EPSILON)
        qm_golden_case_skip(c, "a rate that is a tensor (tensor_lr): float32 numbers in a run of "
                               "float64");
    w->scales = 1;
    w->state[0] = "state_row_var";
    w->state[1] = "state_col_var";
    w->state[2] = "state_variance";
    char dtype[16];
    qm_golden_case_text(c, "dtype", dtype, sizeof dtype);
    if (strcmp(dtype, "bf16") == 0 && has_bf16_states(c)) {
        w->more = overflow;
        w->narrow = qm_adafactor_narrow;
        w->has_narrow_states = 1;
    }
}

/* What both packages have; TORCH and HF: what each has besides. */
#define BOTH  "steps optimizer dtype lr weight_decay eps shape ndim impl device sqrt tensor_lr "
#define TORCH "d beta2_decay maximize"
#define HF    "beta1 decay_rate clip_threshold relative_step scale_parameter warmup_init"

static void setup(struct qm_conform *c, struct qm_tensor_run_case *w)
{
    char optimizer[64] = "";
    qm_golden_case_text(c, "optimizer", optimizer, sizeof optimizer);
    w->f64 = f64;
    w->f32 = f32;
    w->has_own_steps = 1;
    w->squares = 2;
    memcpy(w->squares_of, "rce", 3);
    int is_hf = strcmp(optimizer, "Adafactor(hf)") == 0;
    w->bf16 = has_bf16_states(c) ? bf16_states : bf16;
    if (is_hf) /* its states and its step are float32 in every release */
        w->bf16 = bf16;
    qm_tensor_run_norms(c, w);
    w->hyper.weight_decay = qm_tensor_run_number(c, "weight_decay", 0, 1, 0.0);
    w->hyper.eps2 = qm_tensor_run_number(c, "eps", 1, 2, 1e-3);
    qm_golden_case_unread(c, is_hf ? BOTH HF : BOTH TORCH,
                          is_hf ? "grads params state_step state_RMS state_exp_avg "
                                  "state_exp_avg_sq state_exp_avg_sq_row state_exp_avg_sq_col"
                                : "grads params state_step state_row_var state_col_var "
                                  "state_variance");
    if (is_hf)
        setup_hf(c, w);
    else if (strncmp(optimizer, "Adafactor", 9) == 0)
        setup_torch(c, w);
    else
        qm_golden_case_skip(c, "optimizer '%s' is not one of this file's", optimizer);
}

void qm_conform_adafactor_group(struct qm_conform *c, const struct qm_golden_place *at)
{
    qm_tensor_run_replay(c, at->path, setup);
}

void qm_conform_adafactor(struct qm_conform *c)
{
    qm_golden_each(c, "", qm_conform_adafactor_group);
}
