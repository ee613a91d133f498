/* fira.c - Replays the golden vectors of Fira with Adam and with RMSProp.
 *
 * Runs use the recorded projections, because signs of singular vectors depend on the library.
 * tests/golden/README.md states the tolerances, relative to a tensor's largest magnitude. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/rule/lowrank.h"
#include "experiments/conform/tensor_rule_run.h"

#define U 0x1p-24

enum { AVG, SQUARE, NORM = 3 };

/* ---- what sums of products in another order make of a step of FiraAdamW ---------------------- */

/* A step in double: the projected gradient R, the adapted one A = m / (sqrt(v) + eps) and what each
 * may be off by, of a channel the ratio of their norms. */
struct step {
    const struct qm_tensor_run_case *w;
    const struct qm_tensor_run_at *at;
    struct qm_lowrank l;
    double *r, *r_off, *a, *a_off;  /* [rows][cols] */
    double *ratio, *ratio_off;      /* [channels] */
    double average_off, square_off; /* the most that a number of each average is off by */
    double norm, norm_off, share;   /* of the scaled residual; of the step, its errors' share */
};

/* Entry of the projection for number j of a line of the state and number q of the gradient's. */
static double entry(const struct step *s, int64_t j, int64_t q)
{
    return s->at->proj[s->l.right ? j * s->l.n + q : q * s->l.r + j];
}

/* What float32 makes of the sum of n squares besides: each is rounded to a count of 2^-149. */
static double underflow(double norm, double n)
{
    double least = sqrt(n * 0x1p-149);
    return norm > least ? n * 0x1p-149 / norm : least;
}

/* Number j of line i of the state: a sum of as many products as the line has elements, off by u
 * of their sizes for each, and its averages. */
static void project(struct step *s, int64_t i, int64_t j)
{
    const struct qm_lowrank *l = &s->l;
    const struct qm_hyper *h = &s->w->hyper;
    int64_t inner = l->right ? l->n : l->m, k = l->right ? i * l->r + j : j * l->n + i;
    double sum = 0.0, sizes = 0.0;
    for (int64_t q = 0; q < inner; q++) {
        double term = s->at->grad[l->right ? i * l->n + q : q * l->n + i] * entry(s, j, q);
        sum += isfinite(term) ? term : 0.0;
        sizes += isfinite(term) ? fabs(term) : 0.0;
    }
    int64_t from = (s->at->t - 1) * l->rows * l->cols, before = from - l->rows * l->cols;
    double m = s->at->state[AVG][from + k], v = s->at->state[SQUARE][from + k];
    double old = before >= 0 ? fabs(s->at->state[AVG][before + k]) : 0.0;
    double off = (double)inner * U * sizes, root = sqrt(v) + h->eps;
    double of_m = (1.0 - h->beta1) * (off + 2.0 * U * fabs(sum)) + 4.0 * U * h->beta1 * old;
    double of_v = (1.0 - h->beta2) * off * (2.0 * fabs(sum) + off);
    s->r[k] = sum;
    s->r_off[k] = off;
    s->a[k] = isfinite(m / root) ? m / root : 0.0;
    /* The root of v is off by half of v's relative error, or by the root of all of it. */
    double of_root = v > of_v ? 0.5 * (of_v + 0x1p-148) / v * sqrt(v) : sqrt(of_v + 0x1p-148);
    s->a_off[k] = of_m / root + fabs(s->a[k]) * fmin(of_root / root + 8.0 * U, 1.0);
    s->average_off = fmax(s->average_off, of_m);
    s->square_off = fmax(s->square_off, of_v);
}

/* The ratio of a channel's norms.  Where nothing of the denominator is certain it may be any. */
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
    double sums = ((double)n / 16.0 + 8.0) * U, below = sqrt(r) + 1e-8;
    double of_below = (sqrt(r_off) + underflow(sqrt(r), (double)n)) / below + sums;
    s->ratio[c] = sqrt(a) / below;
    s->ratio_off[c] = (sqrt(a_off) + underflow(sqrt(a), (double)n) + sums * sqrt(a)) / below +
                      s->ratio[c] * (of_below < 0.5 ? of_below / (1.0 - of_below) : 2.0);
}

/* One element of the gradient: *rest, what its scaled residual is, and *step, what the adapted
 * number is projected back, with their errors. */
static void element(const struct step *s, int axis, int64_t row, int64_t col, double rest[2],
                    double step[2])
{
    const struct qm_lowrank *l = &s->l;
    double alpha = s->w->hyper.scale, back = 0.0, off = 0.0, sizes = 0.0;
    double terms = (double)l->r * U;
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
    int64_t c = axis ? row : col;
    double g = s->at->grad[row * l->n + col], x = g - alpha * back;
    double of_x = fabs(alpha) * (off + (terms + 2.0 * U) * sizes) + U * fabs(x);
    rest[0] = s->ratio[c] * x;
    rest[1] = s->ratio[c] * of_x + s->ratio_off[c] * (fabs(x) + of_x) + U * fabs(rest[0]);
    step[0] *= alpha;
    step[1] = fabs(alpha) * step[1] + U * fabs(step[0]);
}

/* The norm of the residual, which the limiter divides by its growth, and the step. */
static void tensor(struct step *s, int axis)
{
    const struct qm_lowrank *l = &s->l;
    double sum = 0.0, of_sum = 0.0, most = 0.0, most_off = 0.0, rest[2], step[2];
    double n = (double)(l->m * l->n), before = 0.0, grown = 1.0, of_grown = 0.0;
    for (int64_t k = 0; k < l->m * l->n; k++) {
        element(s, axis, k / l->n, k % l->n, rest, step);
        sum += rest[0] * rest[0];
        of_sum += rest[1] * rest[1];
    }
    s->norm = sqrt(sum);
    s->norm_off = sqrt(of_sum) + underflow(s->norm, n) + (n / 16.0 + 8.0) * U * s->norm;
    if (s->at->t > 1 && s->at->state[NORM]) {
        before = 1.01 * (s->at->state[NORM][s->at->t - 2] + 1e-8);
        grown = fmax(s->norm / before, 1.0);
        of_grown = s->norm + s->norm_off > before ? s->norm_off / fmax(s->norm, before) : 0.0;
    }
    for (int64_t k = 0; k < l->m * l->n; k++) {
        element(s, axis, k / l->n, k % l->n, rest, step);
        most = fmax(most, fabs(step[0] + rest[0] / grown));
        most_off = fmax(most_off, step[1] + (rest[1] + of_grown * fabs(rest[0])) / grown);
    }
    s->share = most > 0.0 ? fmin(most_off / most, 2.0) : 2.0;
    if (s->norm - s->norm_off > before && before > 0.0) /* it is what the limiter lets through */
        s->norm_off = 4.0 * U * before;
}

/* Where the products of a sum cancel (a gradient of low rank is its own projection, and its
 * residual rounding alone), the states, the limiter's norm and the step are off. */
static double more(const struct qm_tensor_run_case *w, const struct qm_tensor_run_at *at, int slot)
{
    struct step s = {.w = w, .at = at};
    if (!at->proj || !at->state[AVG] || !at->state[SQUARE] ||
        !qm_lowrank_of(&w->hyper, 1, at->shape, &s.l))
        return 0.0;
    int axis = s.l.rows < s.l.cols ? 0 : 1;
    int64_t size = s.l.rows * s.l.cols, channels = axis ? s.l.rows : s.l.cols;
    double *room = calloc((size_t)(4 * size + 2 * channels), sizeof *room);
    if (!room || channels != (axis ? s.l.m : s.l.n)) {
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
    if (slot != AVG && slot != SQUARE) {
        for (int64_t c = 0; c < channels; c++)
            channel(&s, axis, c);
        tensor(&s, axis);
    }
    free(room);
    return slot == AVG      ? s.average_off
           : slot == SQUARE ? s.square_off
           : slot == NORM   ? s.norm_off
           : slot < 0       ? s.share
                            : 0.0;
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
    w->more = more;
    h->beta1 = qm_tensor_run_number(c, "betas", 0, 0.9);
    h->beta2 = qm_tensor_run_number(c, "betas", 1, 0.999);
    h->correct_bias = (int)qm_golden_case_whole(c, "correct_bias", 1);
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
    h->beta2 = qm_tensor_run_number(c, "beta", 0, 0.9);
    h->momentum = qm_tensor_run_number(c, "momentum", 0, 0.0);
    h->centered = (int)qm_golden_case_whole(c, "centered", 0);
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
    h->lr = qm_tensor_run_number(c, "lr", 0, 0.0);
    h->eps = qm_tensor_run_number(c, "eps", 0, 1e-6);
    h->weight_decay = qm_tensor_run_number(c, "weight_decay", 0, 0.0);
    h->rank = qm_tensor_run_number(c, "rank", 0, 0.0);
    h->scale = qm_tensor_run_number(c, "alpha", 0, 1.0);
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

void qm_conform_fira(struct qm_conform *c) { qm_tensor_run_replay(c, setup, NULL); }
