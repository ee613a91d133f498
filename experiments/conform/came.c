/* came.c - Replays the golden vectors of CAME.
 *
 * tests/golden/README.md states the tolerances, relative to a tensor's largest magnitude. */
#include <math.h>
#include <string.h>

#include "experiments/conform/tensor_rule_run.h"

enum { AVG, SQUARES = 3, RES_ROW = 4, RES_COL = 5 };

/* The residual U - M of step t is b (U - M0) for M = M0 + (1 - b) (U - M0), b = beta1, which
 * cancels where b is near 0: of it remain 6 roundings of U and M by the unit roundoff, 2^-24 or
 * 2^-53, and b times the relative errors of U and M0.  Where M is U to the bit, as with b = 0, the
 * residual is 0; where U and M0 are 0 so is it.  Returns the error of its square, U and M0 from the
 * recorded momenta. */
static double square_error(const struct qm_tensor_run_case *w, const struct qm_tensor_run_at *at,
                           int64_t n, int64_t k)
{
    const double *m = at->state[AVG];
    int64_t t = at->t;
    double b = w->hyper.beta1, now = m[(t - 1) * n + k], old = t > 1 ? m[(t - 2) * n + k] : 0.0;
    if (qm_tensor_run_is_new(b, old, now, at->unit))
        return 0.0;
    double off = b < 1.0 ? b * (now - old) / (1.0 - b) : 0.0, u = now + off;
    double e = 6.0 * at->unit * (fabs(u) + fabs(now)) + b * at->relative * (fabs(u) + fabs(old));
    return isfinite(e) ? (2.0 * fabs(off) + e) * e : 0.0;
}

/* The lines of an axis: rows, or with axis 1 columns. */
static int64_t lines_of(const struct qm_shape *shape, int axis)
{
    int64_t n = qm_shape_numel(shape), side = shape->dim[shape->rank - (axis ? 2 : 1)];
    return side > 0 ? n / side : 0;
}

/* The error of the mean of squares of a step over line i of an axis, times 1 - beta3, by the
 * elements of that line: those of others are in none of its terms but by factors, whose error each
 * element has in its own. */
static double line_error(const struct qm_tensor_run_case *w, const struct qm_tensor_run_at *at,
                         int axis, int64_t i)
{
    const struct qm_shape *shape = at->shape;
    int64_t cols = shape->dim[shape->rank - 1], rows = shape->dim[shape->rank - 2];
    int64_t n = qm_shape_numel(shape), len = axis ? rows : cols;
    int64_t from = axis ? i / cols * rows * cols + i % cols : i * cols, step = axis ? cols : 1;
    double sum = 0.0;
    for (int64_t k = 0; k < len; k++)
        sum += square_error(w, at, n, from + k * step);
    return sum * (1.0 - w->hyper.beta3) / (double)len;
}

/* The largest of these over the averages of the lines. */
static double line_share(const struct qm_tensor_run_case *w, const struct qm_tensor_run_at *at,
                         int axis)
{
    int64_t lines = lines_of(at->shape, axis);
    const double *average = at->state[axis ? RES_COL : RES_ROW] + (at->t - 1) * lines;
    double most = 0.0;
    for (int64_t i = 0; i < lines; i++)
        if (average[i] > 0.0 && isfinite(average[i]))
            most = fmax(most, line_error(w, at, axis, i) / average[i]);
    return most;
}

/* The step that is divided by the roots of the averages of the residual. */
static double more(const struct qm_tensor_run_case *w, const struct qm_tensor_run_at *at, int slot)
{
    const double *const *state = at->state;
    if (slot >= 0 || at->shape->rank < 2 || !state[AVG] || !state[RES_ROW] || !state[RES_COL])
        return 0.0;
    return fmin(line_share(w, at, 0) + line_share(w, at, 1), 2.0);
}

/* The averages of the residual, each by its own line. */
static int more_each(const struct qm_tensor_run_case *w, const struct qm_tensor_run_at *at,
                     int slot, double *out)
{
    int axis = slot == RES_COL;
    if ((!axis && slot != RES_ROW) || at->shape->rank < 2 || !at->state[AVG])
        return 0;
    for (int64_t i = 0; i < lines_of(at->shape, axis); i++)
        out[i] = line_error(w, at, axis, i);
    return 1;
}

static void setup(struct qm_conform *c, struct qm_tensor_run_case *w)
{
    static const char *const states[] = {"state_exp_avg",         "state_exp_avg_sq_row",
                                         "state_exp_avg_sq_col",  "state_exp_avg_sq",
                                         "state_exp_avg_res_row", "state_exp_avg_res_col"};
    struct qm_hyper *h = &w->hyper;
    char text[32];
    if (!qm_golden_case_needs(c, &(struct qm_golden_need){"lr", QM_NEED_number, 0, 1e30, 0}, 1))
        return;
    if (qm_golden_case_text(c, "optimizer", text, sizeof text) && strcmp(text, "CAME") != 0) {
        qm_golden_case_skip(c, "optimizer '%s' is not CAME", text);
        return;
    }
    qm_golden_case_unread(c,
                          "steps optimizer dtype lr weight_decay eps betas clip_threshold shape "
                          "ndim impl device sqrt",
                          "grads params state_step state_RMS state_exp_avg "
                          "state_exp_avg_sq state_exp_avg_sq_row state_exp_avg_sq_col "
                          "state_exp_avg_res_row state_exp_avg_res_col");
    w->rule = qm_rule_find("came");
    w->f64 = (struct qm_tensor_run_tolerance){5e-15, 5e-15, 5e-15, 5e-15, 0.0, 0.0};
    w->f32 = (struct qm_tensor_run_tolerance){2e-6, 2e-6, 2e-6, 2e-6, 0.0, 0.0};
    w->bf16 = (struct qm_tensor_run_tolerance){2e-6, 0.0, 2e-6, 2e-2, 0.0, 0.0};
    qm_tensor_run_norms(c, w);
    w->more = more;
    w->more_each = more_each;
    w->has_more_doubles = 1;
    w->has_own_steps = 1;
    w->average = AVG;
    w->squares = SQUARES;
    memcpy(w->squares_of, "\0rceRC", 6);
    memcpy(w->state, states, sizeof states);
    h->lr = qm_tensor_run_number(c, "lr", 0, 1, 0.0);
    h->eps1 = qm_tensor_run_number(c, "eps", 0, 2, 1e-30);
    h->eps2 = qm_tensor_run_number(c, "eps", 1, 2, 1e-16);
    for (int i = 1; i <= RES_COL; i++)
        w->added[i] = i < RES_ROW ? h->eps1 : h->eps2;
    h->clip = qm_tensor_run_number(c, "clip_threshold", 0, 1, 1.0);
    h->beta1 = qm_tensor_run_number(c, "betas", 0, 3, 0.9);
    w->keep = h->beta1;
    h->beta2 = qm_tensor_run_number(c, "betas", 1, 3, 0.999);
    h->beta3 = qm_tensor_run_number(c, "betas", 2, 3, 0.9999);
    h->weight_decay = qm_tensor_run_number(c, "weight_decay", 0, 1, 0.0);
}

static void replay_group(struct qm_conform *c, const struct qm_golden_place *at)
{
    qm_tensor_run_replay(c, at->path, setup);
}

void qm_conform_came(struct qm_conform *c) { qm_golden_each(c, "", replay_group); }
