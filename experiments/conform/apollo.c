/* apollo.c - Replays the golden vectors of APOLLO and APOLLO-Mini.
 *
 * Runs use the recorded projections; case NAME/proj judges the projections drawn here, seeds
 * exactly and entries within 2e-6.  tests/golden/README.md states the other tolerances, relative to
 * a tensor's largest magnitude. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/rule/lowrank.h"
#include "experiments/conform/tensor_rule_run.h"

#define ENTRY_TOLERANCE 2e-6

enum { AVG, SQUARE, NORM = 3 };

/* ---- what sums of products in another order make of a step ----------------------------------- */

static int is_double(const struct qm_tensor_run_at *at) { return at->unit < 0x1p-50; }

/* The least number of the recording's format. */
static double least_of(const struct qm_tensor_run_at *at)
{
    return is_double(at) ? DBL_TRUE_MIN : 0x1p-149;
}

/* Projected number j of channel i, a sum of k terms, which is off by k u of their *sizes. */
static double projected(const struct qm_tensor_run_at *at, const struct qm_lowrank *l, int64_t i,
                        int64_t j, double *sizes)
{
    int64_t inner = l->right ? l->n : l->m;
    double sum = 0.0;
    *sizes = 0.0;
    for (int64_t q = 0; q < inner; q++) {
        double term = at->grad[l->right ? i * l->n + q : q * l->n + i] *
                      at->proj[l->right ? j * l->n + q : q * l->r + j];
        sum += isfinite(term) ? term : 0.0;
        *sizes += isfinite(term) ? fabs(term) : 0.0;
    }
    return sum;
}

/* What the averages of the projected numbers, or of their squares, are off by. */
static double average_error(const struct qm_tensor_run_case *w, const struct qm_tensor_run_at *at,
                            const struct qm_lowrank *l, int is_square)
{
    double e = (double)(l->right ? l->n : l->m) * at->unit, most = 0.0;
    for (int64_t i = 0; i < (l->right ? l->m : l->n); i++)
        for (int64_t j = 0; j < l->r; j++) {
            double sizes, x = fabs(projected(at, l, i, j, &sizes)), off = e * sizes;
            most = fmax(most, is_square ? off * (2.0 * x + off) : off);
        }
    return (1.0 - (is_square ? w->hyper.beta2 : w->hyper.beta1)) * most;
}

/* Sums over the numbers of a channel, or of the tensor: of squares of the projected numbers R and
 * of their errors E, of the adapted ones m / (sqrt(v) + eps) and of theirs, of the gradient. */
struct channel {
    double r, r_off, adapted, adapted_off, g;
};

/* Adds number j of channel i.  E of it is k u times the sizes of the k terms of its sum. */
static void add_number(const struct qm_tensor_run_case *w, const struct qm_tensor_run_at *at,
                       const struct qm_lowrank *l, int64_t i, int64_t j, struct channel *to)
{
    const struct qm_hyper *h = &w->hyper;
    int64_t inner = l->right ? l->n : l->m, k = l->right ? i * l->r + j : j * l->n + i;
    double sizes, sum = projected(at, l, i, j, &sizes);
    int64_t from = (at->t - 1) * l->rows * l->cols;
    double v = at->state[SQUARE][from + k], root = sqrt(v) + h->eps, e = (double)inner * at->unit;
    double adapted = at->state[AVG][from + k] / root, off = e * sizes;
    double old = at->t > 1 ? fabs(at->state[AVG][from - l->rows * l->cols + k]) : 0.0;
    double of_sum =
        4.0 * at->unit * h->beta1 * (isfinite(old) ? old : 0.0); /* three roundings, 4 u */
    double of_v = v > 0.0 ? ((1.0 - h->beta2) * fabs(sum) * off + 2.0 * least_of(at)) / v : 0.0;
    double of_adapted = ((1.0 - h->beta1) * off + of_sum) / root + fabs(adapted) * fmin(of_v, 1.0);
    to->r += sum * sum;
    to->r_off += off * off;
    to->adapted += isfinite(adapted) ? adapted * adapted : 0.0;
    to->adapted_off += isfinite(of_adapted) ? of_adapted * of_adapted : 0.0;
}

/* The norm of what the scale makes of the gradient of a channel, and *off, what it is off by:
 * HUGE_VAL where the squares of a norm overflow the package's format, which makes it infinite. */
static double scaled(const struct qm_tensor_run_at *at, const struct channel *x, double *off)
{
    double norm = sqrt(x->r) + 1e-8, size = sqrt(x->adapted) / norm * sqrt(x->g);
    double most = is_double(at) ? DBL_MAX : (double)FLT_MAX;
    double above = sqrt(x->adapted) + sqrt(x->adapted_off),
           least = fmax(norm - sqrt(x->r_off), 1e-8);
    *off = above / least * sqrt(x->g) - size;
    if (!(x->r <= most && x->adapted <= most))
        *off = HUGE_VAL;
    return size;
}

/* The norm of the scaled gradient, the largest of a channel, and what both are off by. */
struct sizes {
    double norm, norm_off, largest, largest_off;
};

static struct sizes sizes_of(const struct qm_tensor_run_case *w, const struct qm_tensor_run_at *at,
                             const struct qm_lowrank *l)
{
    struct channel all = {0.0, 0.0, 0.0, 0.0, 0.0};
    struct sizes to = {0.0, 0.0, 0.0, 0.0};
    int64_t channels = l->right ? l->m : l->n;
    /* Left of a square gradient at full rank, where the state is square, its rows are channels. */
    int is_row = l->right || (!w->hyper.tensor_scale && l->r == l->n && l->m == l->n);
    for (int64_t i = 0; i < channels; i++) {
        struct channel one = {0.0, 0.0, 0.0, 0.0, 0.0}, *x = w->hyper.tensor_scale ? &all : &one;
        for (int64_t j = 0; j < l->r; j++)
            add_number(w, at, l, is_row && !l->right ? j : i, is_row && !l->right ? i : j, x);
        for (int64_t q = 0; q < (l->right ? l->n : l->m); q++) {
            double g = at->grad[is_row ? i * l->n + q : q * l->n + i];
            x->g += isfinite(g) ? g * g : 0.0;
        }
        if (w->hyper.tensor_scale && i < channels - 1)
            continue;
        double off, size = scaled(at, x, &off);
        to.norm += size * size;
        to.norm_off += off * off;
        to.largest = fmax(to.largest, size);
        to.largest_off = fmax(to.largest_off, off);
    }
    to.norm = sqrt(to.norm);
    to.norm_off = sqrt(to.norm_off);
    return to;
}

/* What the scaled gradient is multiplied by in a step. */
static double rate(const struct qm_tensor_run_case *w, int64_t t)
{
    const struct qm_hyper *h = &w->hyper;
    double by = h->correct_bias
                    ? sqrt(1.0 - pow(h->beta2, (double)t)) / (1.0 - pow(h->beta1, (double)t))
                    : 1.0;
    return fabs(h->lr * h->scale) * by;
}

/* A projected number is a sum of products, whose order differs; where they cancel, the scale of its
 * channel is off, the norm of what it scales, and the step.  That norm is one of float32 squares,
 * counts of 2^-149, besides.  Where most of a channel is uncertain, the step made here may be
 * smaller than the recorded one: its error is absolute then. */
static double more(const struct qm_tensor_run_case *w, const struct qm_tensor_run_at *at, int slot)
{
    const struct qm_hyper *h = &w->hyper;
    struct qm_lowrank l;
    if (!at->proj || !at->state[AVG] || !at->state[SQUARE] ||
        !qm_lowrank_of(h, h->svd, at->shape, &l))
        return 0.0;
    if (slot == AVG || slot == SQUARE)
        return average_error(w, at, &l, slot == SQUARE);
    if (slot >= 0 && slot != NORM)
        return 0.0;
    struct sizes x = sizes_of(w, at, &l);
    if (x.norm_off == HUGE_VAL)
        return HUGE_VAL;
    double norm = at->state[NORM] ? at->state[NORM][at->t - 1] : 0.0;
    double n = (double)(l.m * l.n), squares = n * least_of(at), off = sqrt(squares);
    norm = isfinite(norm) ? norm : 0.0;
    if (norm > off)
        off = squares / norm;
    if (is_double(at)) /* of float32 runs this is in their tolerance */
        off += (n / 16.0 + 8.0) * at->unit * norm;
    double of_norm = x.norm > 0.0 ? x.norm_off / x.norm : HUGE_VAL,
           of_largest = x.largest > 0.0 ? x.largest_off / x.largest : HUGE_VAL;
    if (slot >= 0)
        return off + (of_norm <= 1.0 ? of_norm * norm
                                     : x.norm_off * (h->scale_front ? fabs(h->scale) : 1.0));
    if (of_largest > 0.5 && at->change > 0.0)
        of_largest = x.largest_off * rate(w, at->t) / at->change;
    else
        of_largest = fmin(of_largest, 2.0);
    if (!h->limiter || at->t == 1) /* the norm divides nothing */
        return of_largest;
    return of_largest + (norm > 0.0 ? fmin(of_norm + off / norm, 2.0) : 2.0);
}

/* ---- a case ---------------------------------------------------------------------------------- */

/* The side of proj_type; -1, and the case skipped, for a type that the source does not run. */
static int side_of(struct qm_conform *c)
{
    static const char *const names[] = {"std", "reverse_std", "right", "left"};
    char type[32] = "std";
    if (qm_golden_text(c->file, c->group, "proj_type", type, sizeof type) == 0)
        strcpy(type, "std");
    for (int i = 0; i < 4; i++)
        if (strcmp(type, names[i]) == 0)
            return i;
    qm_golden_case_skip(c, "proj_type '%s': the random projector does not implement it", type);
    return -1;
}

static void setup(struct qm_conform *c, struct qm_tensor_run_case *w)
{
    static const char *const scales[] = {"channel", "tensor"}, *const projs[] = {"random", "svd"};
    struct qm_hyper *h = &w->hyper;
    if (!qm_golden_case_needs(c, &(struct qm_golden_need){"lr", QM_NEED_number, 0, 1e30, 0}, 1))
        return;
    w->rule = qm_rule_find("apollo");
    w->f64 = (struct qm_tensor_run_tolerance){2e-15, 2e-15, 2e-15, 2e-15, 0.0, 0.0};
    w->f32 = (struct qm_tensor_run_tolerance){2e-6, 2e-6, 2e-6, 2e-6, 0.0, 0.0};
    w->bf16 = w->f32;
    qm_tensor_run_norms(c, w);
    w->tensor = (uint32_t)qm_golden_case_whole(c, "param_index", 1) - 1;
    w->proj = 2;
    w->average = AVG;
    w->has_sums = 1;
    w->state[AVG] = "state_exp_avg";
    w->state[SQUARE] = "state_exp_avg_sq";
    w->state[NORM] = "state_scaled_grad_norm";
    w->more = more;
    w->has_more_doubles = 1;
    h->lr = qm_tensor_run_number(c, "lr", 0, 1, 0.0);
    h->beta1 = qm_tensor_run_number(c, "betas", 0, 2, 0.9);
    w->keep = h->beta1;
    h->beta2 = qm_tensor_run_number(c, "betas", 1, 2, 0.999);
    h->eps = qm_tensor_run_number(c, "eps", 0, 1, 1e-6);
    h->weight_decay = qm_tensor_run_number(c, "weight_decay", 0, 1, 0.0);
    h->correct_bias = qm_golden_case_int(c, "correct_bias", 1);
    h->scale_front = qm_golden_case_int(c, "scale_front", 0);
    h->limiter = !qm_golden_case_whole(c, "disable_nl", 0);
    h->rank = qm_tensor_run_number(c, "rank", 0, 1, 0.0);
    h->scale = qm_tensor_run_number(c, "scale", 0, 1, 1.0);
    h->side = (double)side_of(c);
    h->gap = 0.0; /* the recorded matrices are used */
    h->tensor_scale = qm_golden_case_choice(c, "scale_type", scales, 2, 0) == 1;
    h->svd = qm_golden_case_choice(c, "proj", projs, 2, 0) == 1;
}

/* Draws the projections again from the parameter's number. */
static void replay_proj(struct qm_conform *c)
{
    struct qm_tensor_run_case w = {.hyper = qm_hyper_default()};
    struct qm_shape shape;
    struct qm_lowrank l;
    setup(c, &w);
    if (!qm_golden_case_open(c) || !qm_tensor_run_shape(c, &shape) ||
        !qm_lowrank_of(&w.hyper, 0, &shape, &l))
        return;
    int64_t count = qm_golden_case_numel(c, "proj_seed"),
            gap = qm_golden_case_whole(c, "update_proj_gap", 200);
    int64_t n = l.r * (l.right ? l.n : l.m);
    const uint64_t *want_seed = qm_golden_case_words(c, "proj_seed", count);
    const int64_t *step = qm_golden_case_ints(c, "proj_step", count);
    const float *want = qm_golden_case_floats(c, "proj", count * n);
    uint64_t *seed = qm_golden_case_memory(c, count, sizeof *seed);
    float *got = qm_golden_case_memory(c, count * n, sizeof *got);
    if (!qm_golden_case_open(c))
        return;
    for (int64_t k = 0; k < count; k++) {
        seed[k] = qm_lowrank_seed((uint64_t)w.tensor + 1, gap > 0 ? step[k] / gap : k);
        qm_lowrank_random(seed[k], n, l.r, got + k * n);
    }
    snprintf(c->now.how, sizeof c->now.how, "MT19937 from seed %d", (int)w.tensor + 1);
    qm_match_words(c, "seed", seed, want_seed, count);
    qm_match_close(c, "entry", got, want, count * n, 0.0, ENTRY_TOLERANCE);
}

static void replay_group(struct qm_conform *c, const struct qm_golden_place *at)
{
    char path[2 * QM_GOLDEN_PATH];
    qm_tensor_run_replay(c, at->path, setup);
    snprintf(path, sizeof path, "%s/proj_seed", at->path);
    if (qm_golden_at(c->file, path) != QM_GOLDEN_DATASET ||
        !qm_golden_case_begin(c, at->path, "proj"))
        return;
    replay_proj(c);
    qm_golden_case_end(c);
}

void qm_conform_apollo(struct qm_conform *c) { qm_golden_each(c, "", replay_group); }
