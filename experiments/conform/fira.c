/* fira.c - Replays the golden vectors of Fira with Adam and with RMSProp.
 *
 * Runs use the recorded projections, because signs of singular vectors depend on the library.
 * tests/golden/README.md states the tolerances, relative to a tensor's largest magnitude. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/rule/lowrank.h"
#include "experiments/conform/tensor_rule_run.h"

enum { AVG, SQUARE, NORM = 3 };                         /* slots with Adam */
enum { RMS_SQUARE, RMS_BUFFER, RMS_AVG, RMS_NORM = 4 }; /* with RMSProp */

/* ---- what sums of products in another order make of a step of FiraAdamW ---------------------- */

/* A step in double: the projected gradient R, the adapted one A and what each may be off by, of a
 * channel the ratio of their norms.  Adam: A = m / (sqrt(v) + eps).  RMSProp: X = R / (sqrt(v) +
 * eps), centered with v less the square of the average of R; A = X, or its momentum mu A + X. */
struct step {
    const struct qm_tensor_run_case *w;
    const struct qm_tensor_run_at *at;
    struct qm_lowrank l;
    int is_rms, norm_slot;
    int64_t channels;
    double u;                      /* the unit roundoff of the recording */
    double least;                  /* and twice its least number */
    double *r, *r_off, *a, *a_off; /* [rows][cols] */
    double *ratio, *ratio_off;     /* [channels] */
    double off[QM_MAX_SLOTS];      /* the most that a number of each state is off by */
    double norm, share;            /* of the scaled residual; of the step, its errors' share */
    int is_open;                   /* a centered variance may have either sign */
};

/* Entry of the projection for number j of a line of the state and number q of the gradient's. */
static double entry(const struct step *s, int64_t j, int64_t q)
{
    return s->at->proj[s->l.right ? j * s->l.n + q : q * s->l.r + j];
}

/* What float32 makes of the sum of n squares besides: each is rounded to a count of 2^-149. */
static double underflow(const struct step *s, double norm, double n)
{
    double least = sqrt(n * s->least * 0.5);
    return norm > least ? n * s->least * 0.5 / norm : least;
}

/* Number k of a state after the step; *old: before it, both 0 where they are not finite. */
static double state_at(const struct step *s, int slot, int64_t k, double *old)
{
    int64_t from = (s->at->t - 1) * s->l.rows * s->l.cols, before = from - s->l.rows * s->l.cols;
    const double *x = s->at->state[slot];
    *old = before >= 0 && isfinite(x[before + k]) ? x[before + k] : 0.0;
    return isfinite(x[from + k]) ? x[from + k] : 0.0;
}

/* What the size of the quotient of x, off by x_off, and sqrt(v) + eps, v off by v_off, may differ
 * by from |x| / (sqrt(v) + eps), with four roundings. */
static double quotient_off(const struct step *s, double x, double x_off, double v, double v_off)
{
    double eps = s->w->hyper.eps, root = sqrt(v) + eps, least = sqrt(fmax(v - v_off, 0.0)) + eps;
    if (x == 0.0 && x_off == 0.0)
        return 0.0;
    return (fabs(x) + x_off) * (1.0 + 8.0 * s->u) / fmax(least, DBL_MIN) -
           fabs(x) / fmax(root, DBL_MIN);
}

/* Adam: the averages of number k, which is x and off by x_off, and their quotient. */
static void adapt_adam(struct step *s, int64_t k, double x, double x_off)
{
    const struct qm_hyper *h = &s->w->hyper;
    double m0, v0, m = state_at(s, AVG, k, &m0), v = state_at(s, SQUARE, k, &v0), u = s->u;
    double of_m = (1.0 - h->beta1) * (x_off + 2.0 * u * fabs(x)) + 4.0 * u * h->beta1 * fabs(m0);
    double of_v = (1.0 - h->beta2) * x_off * (2.0 * fabs(x) + x_off) + 4.0 * u * v + s->least;
    double all_m = of_m + s->at->before[AVG], all_v = of_v + s->at->before[SQUARE];
    double root = sqrt(v) + h->eps;
    s->a[k] = root > 0.0 ? m / root : 0.0;
    s->a_off[k] = fmin(quotient_off(s, m, all_m, v, all_v),
                       root > 0.0 ? all_m / root + fabs(s->a[k]) : HUGE_VAL);
    s->off[AVG] = fmax(s->off[AVG], of_m);
    s->off[SQUARE] = fmax(s->off[SQUARE], of_v);
}

/* RMSProp: likewise.  As v is at least (1 - beta) x^2, an uncentered quotient is no larger than
 * 1 / sqrt(1 - beta). */
static void adapt_rms(struct step *s, int64_t k, double x, double x_off)
{
    const struct qm_hyper *h = &s->w->hyper;
    double v0, old, u = s->u, v = state_at(s, RMS_SQUARE, k, &v0), most = HUGE_VAL;
    double of_v = (1.0 - h->beta2) * x_off * (2.0 * fabs(x) + x_off) + 4.0 * u * v + s->least;
    double all_v = of_v + s->at->before[RMS_SQUARE], of_x;
    s->off[RMS_SQUARE] = fmax(s->off[RMS_SQUARE], of_v);
    if (h->centered) {
        double a = state_at(s, RMS_AVG, k, &old);
        double of_a =
            (1.0 - h->beta2) * (x_off + 2.0 * u * fabs(x)) + 4.0 * u * h->beta2 * fabs(old);
        double all_a = of_a + s->at->before[RMS_AVG];
        s->off[RMS_AVG] = fmax(s->off[RMS_AVG], of_a);
        all_v += (2.0 * fabs(a) + all_a) * all_a + 2.0 * u * (v + a * a) + s->least;
        /* v and a are of one x, so v - a a is at least 0 but for their own roundings. */
        s->is_open |= v - a * a <= 16.0 * u * v + s->least && v > s->least;
        v = fmax(v - a * a, 0.0);
    } else if (h->beta2 < 1.0) {
        most = (2.0 + 16.0 * u) / sqrt(1.0 - h->beta2);
    }
    of_x = fmin(quotient_off(s, x, x_off, v, all_v), most);
    s->a[k] = sqrt(v) + h->eps > 0.0 ? x / (sqrt(v) + h->eps) : 0.0;
    s->a_off[k] = of_x;
    if (h->momentum > 0.0) {
        double now = s->a[k];
        s->a[k] = state_at(s, RMS_BUFFER, k, &old);
        of_x += 4.0 * u * (fabs(now) + h->momentum * fabs(old));
        s->off[RMS_BUFFER] = fmax(s->off[RMS_BUFFER], of_x);
        s->a_off[k] = of_x + s->at->before[RMS_BUFFER];
    }
}

/* Number j of line i of the state: a sum of as many products as the line has elements, off by u
 * of their sizes for each, and what is made of it. */
static void project(struct step *s, int64_t i, int64_t j)
{
    const struct qm_lowrank *l = &s->l;
    int64_t inner = l->right ? l->n : l->m, k = l->right ? i * l->r + j : j * l->n + i;
    double sum = 0.0, sizes = 0.0;
    for (int64_t q = 0; q < inner; q++) {
        double term = s->at->grad[l->right ? i * l->n + q : q * l->n + i] * entry(s, j, q);
        sum += isfinite(term) ? term : 0.0;
        sizes += isfinite(term) ? fabs(term) : 0.0;
    }
    s->r[k] = sum;
    s->r_off[k] = (double)inner * s->u * sizes;
    (s->is_rms ? adapt_rms : adapt_adam)(s, k, sum, s->r_off[k]);
}

/* The ratio of a channel's norms, whose denominator is at least 1e-8. */
static void channel(struct step *s, int axis, int64_t c)
{
    int64_t n = axis ? s->l.cols : s->l.rows;
    double r = 0.0, r_off = 0.0, a = 0.0, a_off = 0.0;
    for (int64_t i = 0; i < n; i++) {
        int64_t k = axis ? c * s->l.cols + i : i * s->l.cols + c;
        r += s->r[k] * s->r[k];
        r_off += s->r_off[k] * s->r_off[k];
        a += s->a[k] * s->a[k];
        a_off += s->a_off[k] * s->a_off[k];
    }
    double sums = ((double)n / 16.0 + 8.0) * s->u, above = sqrt(a), below = sqrt(r) + 1e-8;
    double of_below = sqrt(r_off) + underflow(s, sqrt(r), (double)n) + sums * below;
    double of_above = sqrt(a_off) + underflow(s, above, (double)n) + sums * above;
    s->ratio[c] = above / below;
    s->ratio_off[c] = fmax((above + of_above) / fmax(below - of_below, 1e-8) - s->ratio[c],
                           s->ratio[c] - fmax(above - of_above, 0.0) / (below + of_below));
}

/* One element of the gradient: *rest, what its scaled residual is, and *step, what the adapted
 * number is projected back, with their errors. */
static void element(const struct step *s, int axis, int64_t row, int64_t col, double rest[2],
                    double step[2])
{
    const struct qm_lowrank *l = &s->l;
    double alpha = s->w->hyper.scale, back = 0.0, off = 0.0, sizes = 0.0;
    double terms = (double)l->r * s->u, u = s->u;
    step[0] = step[1] = 0.0;
    for (int64_t j = 0; j < l->r; j++) {
        int64_t k = l->right ? row * l->r + j : j * l->n + col;
        double p = entry(s, j, l->right ? col : row), size = fabs(p);
        back += p * s->r[k];
        sizes += size * fabs(s->r[k]);
        off += size * s->r_off[k];
        step[0] += p * s->a[k];
        step[1] += size * (s->a_off[k] + terms * fabs(s->a[k]));
    }
    int64_t c = s->channels == 1 ? 0 : axis ? row : col;
    double g = s->at->grad[row * l->n + col], x = g - alpha * back;
    double of_x = fabs(alpha) * (off + (terms + 2.0 * u) * sizes) + u * fabs(x);
    rest[0] = s->ratio[c] * x;
    rest[1] = s->ratio[c] * of_x + s->ratio_off[c] * (fabs(x) + of_x) + u * fabs(rest[0]);
    step[0] *= alpha;
    step[1] = fabs(alpha) * step[1] + u * fabs(step[0]);
}

/* What a step is multiplied by. */
static double rate(const struct step *s)
{
    const struct qm_hyper *h = &s->w->hyper;
    double t = (double)s->at->t;
    return s->is_rms || !h->correct_bias
               ? h->lr
               : h->lr * sqrt(1.0 - pow(h->beta2, t)) / (1.0 - pow(h->beta1, t));
}

/* The norm of the residual, which the limiter divides by its growth, and the step. */
static void tensor(struct step *s, int axis)
{
    const struct qm_lowrank *l = &s->l;
    const double *norms = s->at->state[s->norm_slot];
    double sum = 0.0, of_sum = 0.0, most = 0.0, most_off = 0.0, rest[2], step[2];
    double n = (double)(l->m * l->n), before = 0.0, of_before, grown = 1.0, of_grown = 0.0, off;
    for (int64_t k = 0; k < l->m * l->n; k++) {
        element(s, axis, k / l->n, k % l->n, rest, step);
        sum += rest[0] * rest[0];
        of_sum += rest[1] * rest[1];
    }
    s->norm = sqrt(sum);
    off = sqrt(of_sum) + underflow(s, s->norm, n) + (n / 16.0 + 8.0) * s->u * s->norm;
    of_before = 1.01 * s->at->before[s->norm_slot];
    if (s->at->t > 1 && norms) {
        before = 1.01 * (norms[s->at->t - 2] + 1e-8);
        of_before += 4.0 * s->u * before;
        grown = fmax(s->norm / before, 1.0);
        if (s->norm + off > before - of_before)
            of_grown = off / fmax(s->norm, before) + of_before / before;
    }
    for (int64_t k = 0; k < l->m * l->n; k++) {
        element(s, axis, k / l->n, k % l->n, rest, step);
        most = fmax(most, fabs(step[0] + rest[0] / grown));
        most_off = fmax(most_off, step[1] + (rest[1] + of_grown * fabs(rest[0])) / grown);
    }
    s->share = s->at->change > 0.0 ? most_off * rate(s) / s->at->change
               : most > 0.0        ? fmin(most_off / most, 2.0)
                                   : 2.0;
    if (s->norm - off > before + of_before &&
        before > 0.0) /* it is what the limiter lets through */
        off = of_before;
    s->off[s->norm_slot] = off;
}

/* Where the products of a sum cancel (a gradient of low rank is its own projection, and its
 * residual rounding alone), the states, the limiter's norm and the step are off. */
static double more(const struct qm_tensor_run_case *w, const struct qm_tensor_run_at *at, int slot)
{
    int is_rms = strcmp(w->rule->name, "fira_rms") == 0;
    struct step s = {.w = w,
                     .at = at,
                     .is_rms = is_rms,
                     .norm_slot = is_rms ? RMS_NORM : NORM,
                     .u = at->unit,
                     .least = at->unit > 0x1p-50 ? 0x1p-148 : 0x1p-1073};
    if (!at->proj || !at->state[is_rms ? RMS_SQUARE : AVG] || (!is_rms && !at->state[SQUARE]) ||
        !qm_lowrank_of(&w->hyper, 1, at->shape, &s.l))
        return 0.0;
    int axis = s.l.rows < s.l.cols ? 0 : 1;
    int64_t size = s.l.rows * s.l.cols, channels = axis ? s.l.rows : s.l.cols;
    double *room = calloc((size_t)(4 * size + 2 * channels), sizeof *room);
    s.channels = channels;
    if (!room || (channels != 1 && channels != (axis ? s.l.m : s.l.n))) {
        free(room);
        return 0.0;
    }
    s.r = room;
    s.r_off = s.r + size;
    s.a = s.r_off + size;
    s.a_off = s.a + size;
    s.ratio = s.a_off + size;
    s.ratio_off = s.ratio + channels;
    for (int64_t i = 0; i < (s.l.right ? s.l.m : s.l.n); i++)
        for (int64_t j = 0; j < s.l.r; j++)
            project(&s, i, j);
    if (slot < 0 || slot == s.norm_slot) {
        for (int64_t c = 0; c < channels; c++)
            channel(&s, axis, c);
        tensor(&s, axis);
    }
    free(room);
    return slot < 0 && s.is_open ? HUGE_VAL : slot < 0 ? s.share : s.off[slot];
}

/* ---- a case ---------------------------------------------------------------------------------- */

static void setup_adam(struct qm_conform *c, struct qm_tensor_run_case *w)
{
    struct qm_hyper *h = &w->hyper;
    w->rule = qm_rule_find("fira");
    w->proj = 2;
    w->state[0] = "state_exp_avg";
    w->state[1] = "state_exp_avg_sq";
    w->state[3] = "state_scaling_grad_norm";
    w->average = AVG;
    h->beta1 = qm_tensor_run_number(c, "betas", 0, 2, 0.9);
    h->beta2 = qm_tensor_run_number(c, "betas", 1, 2, 0.999);
    h->correct_bias = qm_golden_case_int(c, "correct_bias", 1);
    w->keep = h->beta1;
}

static void setup_rms(struct qm_conform *c, struct qm_tensor_run_case *w)
{
    struct qm_hyper *h = &w->hyper;
    w->rule = qm_rule_find("fira_rms");
    w->proj = 3;
    w->state[0] = "state_square_avg";
    w->state[1] = "state_momentum_buffer";
    w->state[2] = "state_grad_avg";
    w->state[4] = "state_scaling_grad_norm";
    h->beta2 = qm_tensor_run_number(c, "beta", 0, 1, 0.9);
    h->momentum = qm_tensor_run_number(c, "momentum", 0, 1, 0.0);
    h->centered = qm_golden_case_int(c, "centered", 0);
}

static void setup(struct qm_conform *c, struct qm_tensor_run_case *w)
{
    static const char *const sides[] = {"std", "reverse_std", "right", "left"};
    struct qm_hyper *h = &w->hyper;
    char text[32] = "";
    if (!qm_golden_case_needs(c, &(struct qm_golden_need){"lr", QM_NEED_number, 0, 1e30, 0}, 1))
        return;
    w->f64 = (struct qm_tensor_run_tolerance){2e-15, 2e-15, 2e-15, 2e-15, 0.0, 0.0};
    w->f32 = (struct qm_tensor_run_tolerance){2e-6, 2e-6, 2e-6, 2e-6, 0.0, 0.0};
    w->bf16 = w->f32;
    qm_tensor_run_norms(c, w);
    w->has_sums = 1;
    w->more = more;
    w->has_more_doubles = 1;
    h->lr = qm_tensor_run_number(c, "lr", 0, 1, 0.0);
    h->eps = qm_tensor_run_number(c, "eps", 0, 1, 1e-6);
    h->weight_decay = qm_tensor_run_number(c, "weight_decay", 0, 1, 0.0);
    h->rank = qm_tensor_run_number(c, "rank", 0, 1, 0.0);
    h->scale = qm_tensor_run_number(c, "alpha", 0, 1, 1.0);
    h->gap = 0.0; /* the recorded matrices are used */
    h->side = -1.0;
    if (!qm_golden_case_text(c, "proj_type", text, sizeof text))
        strcpy(text, "std");
    for (int i = 0; i < 4; i++)
        h->side = strcmp(text, sides[i]) == 0 ? (double)i : h->side;
    if (h->side < 0.0)
        qm_golden_case_skip(c, "proj_type '%s' keeps two matrices, the file one", text);
    if (qm_golden_case_text(c, "optimizer", text, sizeof text) && strcmp(text, "FiraAdamW") == 0)
        setup_adam(c, w);
    else if (strcmp(text, "FiraRMSProp") == 0)
        setup_rms(c, w);
    else
        qm_golden_case_skip(c, "optimizer '%s' is not one of this file's", text);
}

static void replay_group(struct qm_conform *c, const struct qm_golden_place *at)
{
    qm_tensor_run_replay(c, at->path, setup);
}

void qm_conform_fira(struct qm_conform *c) { qm_golden_each(c, "", replay_group); }
