/* adafactor.c - Replays the golden vectors of Adafactor: PyTorch core, transformers.
 *
 * Groups torch_* are PyTorch core's, hf_* those of transformers.  tests/golden/README.md states the
 * tolerances, which are relative to a tensor's largest magnitude. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/half.h"
#include "experiments/conform/tensor_rule_run.h"

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
    int is_relative = (int)qm_golden_case_whole(c, "relative_step", 1);
    if (!qm_golden_case_needs(c, needs, is_relative ? 1 : 2))
        return;
    w->rule = qm_rule_find("adafactor");
    double beta1 = qm_tensor_run_number(c, "beta1", 0, -1.0);
    h->beta1 = beta1 < 0.0 ? 0.0 : fmax(beta1, DBL_TRUE_MIN);
    h->beta2_decay = qm_tensor_run_number(c, "decay_rate", 0, -0.8);
    h->clip = qm_tensor_run_number(c, "clip_threshold", 0, 1.0);
    h->eps1 = qm_tensor_run_number(c, "eps", 0, 1e-30);
    h->relative_step = is_relative;
    h->scale_parameter = (int)qm_golden_case_whole(c, "scale_parameter", 1);
    h->warmup = (int)qm_golden_case_whole(c, "warmup_init", 0);
    h->lr = qm_tensor_run_number(c, "lr", 0, 1e-2); /* the cap of a relative step */
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

/* ---- a step in bfloat16 ---------------------------------------------------------------------- */

static double narrow(double x) { return (double)qm_bf16_to_float(qm_float_to_bf16((float)x)); }

/* PyTorch's norm of bfloat16 numbers: of one number its size, else a root of a sum in float32. */
static double norm_of(const double *x, int64_t n)
{
    float sum = 0.0f;
    for (int64_t i = 0; i < n; i++)
        sum += (float)x[i] * (float)x[i];
    return narrow(n == 1 ? fabs(x[0]) : sqrt((double)sum));
}

/* The estimate of the second moment of element k of a matrix, row times column over the mean of the
 * rows, from the recorded factors: each operation is rounded to bfloat16. */
static double estimate(const struct qm_tensor_run_at *at, const struct qm_hyper *h, int64_t k)
{
    const struct qm_shape *s = at->shape;
    int64_t n = qm_shape_numel(s), cols = s->dim[s->rank - 1], rows = s->dim[s->rank - 2];
    const double *row = at->state[0] + (at->t - 1) * (n / cols) + k / (rows * cols) * rows,
                 *col = at->state[1] + (at->t - 1) * (n / rows) + k / (rows * cols) * cols;
    double mean = 0.0, least = narrow(h->eps1);
    for (int64_t i = 0; i < rows; i++)
        mean += row[i];
    mean = narrow(mean / (double)rows);
    return narrow(narrow(row[k / cols % rows] * col[k % cols]) / (mean < least ? least : mean));
}

/* Numbers below 2^-134 vanish in bfloat16: a second moment of them is 0, its reciprocal root
 * infinite, so is the norm of the update, by which it is clipped to 0 or NaN. */
static void vanished(const struct qm_tensor_run_case *w, const struct qm_tensor_run_at *at,
                     const double *before, const double *want, double *p)
{
    const struct qm_hyper *h = &w->hyper;
    int64_t n = qm_shape_numel(at->shape);
    double *u = malloc(sizeof *u * (size_t)(n + 1)), least = narrow(h->eps1 * h->eps1);
    int is_matrix = at->shape->rank >= 2, is_special = 0;
    if (!u || (is_matrix ? !at->state[0] || !at->state[1] : !at->state[2])) {
        free(u);
        return;
    }
    for (int64_t k = 0; k < n; k++) {
        double v = is_matrix ? estimate(at, h, k) : at->state[2][(at->t - 1) * n + k];
        u[k] = narrow(narrow(1.0 / sqrt(v < least ? least : v)) *
                      (h->maximize ? -at->grad[k] : at->grad[k]));
        is_special |= !isfinite(u[k]);
    }
    double root = sqrt((double)n), rho = fmin(h->lr, 1.0 / sqrt((double)at->t)),
           size = norm_of(before, n) / root, by = norm_of(u, n) / (root * h->clip);
    double rate = (size > h->eps2 ? size : h->eps2) * rho / (by > 1.0 ? by : 1.0);
    for (int64_t k = 0; k < n && is_special; k++) {
        double decayed = narrow(before[k] * (1.0 - h->lr * h->weight_decay)),
               made = narrow(decayed - rate * u[k]);
        int is_as_made = isnan(made)
                             ? isnan(want[k])
                             : want[k] == made || fabs(want[k] - made) <= 0x1p-7 * fabs(made);
        p[k] = is_as_made ? want[k] : made;
    }
    free(u);
}

static void setup_torch(struct qm_conform *c, struct qm_tensor_run_case *w)
{
    struct qm_hyper *h = &w->hyper;
    if (!qm_golden_case_needs(c, &(struct qm_golden_need){"lr", QM_NEED_number, 0, 1e30, 0}, 1))
        return;
    w->rule = qm_rule_find("adafactor_torch");
    h->beta2_decay = qm_tensor_run_number(c, "beta2_decay", 0, -0.8);
    h->clip = qm_tensor_run_number(c, "d", 0, 1.0);
    h->eps1 = qm_tensor_run_number(c, "eps", 0, machine_epsilon(c));
    h->maximize = (int)qm_golden_case_whole(c, "maximize", 0);
    h->lr = qm_tensor_run_number(c, "lr", 0, 1e-2);
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
        w->narrow = vanished;
        w->has_narrow_states = 1;
    }
}

static void setup(struct qm_conform *c, struct qm_tensor_run_case *w)
{
    char optimizer[64] = "";
    qm_golden_case_text(c, "optimizer", optimizer, sizeof optimizer);
    w->f64 = f64;
    w->f32 = f32;
    w->has_own_steps = 1;
    int is_hf = strcmp(optimizer, "Adafactor(hf)") == 0;
    w->bf16 = has_bf16_states(c) ? bf16_states : bf16;
    if (is_hf) /* its states are float32 in every release */
        w->bf16.state = bf16.state;
    qm_tensor_run_norms(c, w);
    w->hyper.weight_decay = qm_tensor_run_number(c, "weight_decay", 0, 0.0);
    w->hyper.eps2 = qm_tensor_run_number(c, "eps", 1, 1e-3);
    if (is_hf)
        setup_hf(c, w);
    else if (strncmp(optimizer, "Adafactor", 9) == 0)
        setup_torch(c, w);
    else
        qm_golden_case_skip(c, "optimizer '%s' is not one of this file's", optimizer);
}

void qm_conform_adafactor_group(struct qm_conform *c, const char *group)
{
    qm_tensor_run_group(c, group, setup, NULL);
}

void qm_conform_adafactor(struct qm_conform *c) { qm_tensor_run_replay(c, setup, NULL); }
