/* lockstep_pair.c - Opens a variant and its twin, computes their gradients and does their steps. */
#include "experiments/lockstep/lockstep_pair.h"

#include "experiments/lockstep/lockstep_internal.h"

#include "core/base/half.h"
#include "core/recipe/backend.h"
#include "experiments/problems/problem_wrapper.h"
#include "experiments/recipes/oracle_hyper.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void qm_lockstep_pair_close(struct qm_lockstep_pair *a)
{
    for (int i = 0; i < a->n_tensors; i++)
        if (a->plan[i])
            qm_backend_cpu.close(a->plan[i]);
    if (a->problem)
        a->c->problem->close(a->problem);
    free(a->p);
    free(a->g);
    free(a->got);
    free(a->g16);
    free(a->stored);
    free(a->codes);
    free(a->twin_p);
    free(a->twin_g);
    free(a->start);
    free(a->scratch);
    free(a->m);
    free(a->v);
    free(a->update);
    free(a->got_update);
    free(a->grad);
    free(a->double_p);
    for (int s = 0; s < QM_MAX_SLOTS; s++) {
        free(a->twin_slot[s]);
        free(a->double_slot[s]);
    }
    free(a);
}

static qm_status buffers(struct qm_lockstep_pair *a)
{
    size_t n = (size_t)(a->total > 0 ? a->total : 1);
    float **floats[] = {&a->p, &a->g, &a->got};
    double **doubles[] = {&a->twin_p, &a->twin_g, &a->start,      &a->scratch, &a->m,
                          &a->v,      &a->update, &a->got_update, &a->grad};
    int ok = (a->g16 = calloc(n, sizeof(uint16_t))) && (a->codes = calloc(n, 1)) &&
             (a->stored = calloc(n, (size_t)qm_param_bytes(&a->recipe.param)));
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
        ok = (*floats[i] = calloc(n, sizeof(float))) && ok;
    for (size_t i = 0; i < sizeof doubles / sizeof *doubles; i++)
        ok = (*doubles[i] = calloc(n, sizeof(double))) && ok;
    for (int s = 0; s < a->n_slots; s++)
        ok = (a->twin_slot[s] = calloc(n, sizeof(double))) && ok;
    if (a->is_double)
        ok = (a->double_p = calloc(n, sizeof(double))) && ok;
    for (int s = 0; s < a->n_slots && a->is_double; s++)
        ok = (a->double_slot[s] = calloc(n, sizeof(double))) && ok;
    return ok ? QM_OK : qm_fail(QM_NO_MEMORY, "%lld elements in lockstep", (long long)a->total);
}

/* The learning rate that the problem suggests for a family; without one, the recipe's. */
static double problem_lr(const struct qm_problem *p, const char *family, const struct qm_hyper *h)
{
    const struct {
        const char *family;
        double lr;
    } suggested[] = {
        {"adamw", p->lr_adamw},        {"adam", p->lr_adamw},     {"adamw_after", p->lr_adamw},
        {"adamw_factor", p->lr_adamw}, {"ademamix", p->lr_adamw}, {"ademamix_after", p->lr_adamw},
        {"lion", p->lr_lion},          {"lion8", p->lr_lion},     {"sgdm", p->lr_sgdm},
        {"momentum", p->lr_sgdm},      {"sgdw", p->lr_sgdm},      {"sgd_zero", p->lr_sgdm},
    };
    for (size_t i = 0; i < sizeof suggested / sizeof *suggested; i++)
        if (strcmp(family, suggested[i].family) == 0 && suggested[i].lr > 0.0)
            return suggested[i].lr;
    return h->lr;
}

static void set_hyper(struct qm_lockstep_pair *a)
{
    const struct qm_cell *c = a->c;
    struct qm_hyper *h = &a->recipe.hyper;
    if (c->recorded) {
        double initial_lr = h->initial_lr;
        *h = c->recorded->hyper;
        h->initial_lr = initial_lr;
        if (strcmp(a->recipe.rule->family, "ema") == 0 &&
            strcmp(c->recorded->optimizer, "lion") == 0)
            h->beta1 = h->beta2;
        if (c->coupling == QM_COUPLING_update)
            h->weight_decay = 0.0;
    } else if (c->problem && !c->lr_given) {
        h->lr = problem_lr(qm_problem_wrapper_suggests(c->problem, c->problem_args),
                           a->recipe.rule->family, h);
    }
    if (c->problem)
        h->lr *= c->lr_scale * c->rate;
    if (h->initial_lr == 0.0) /* as a plan does */
        h->initial_lr = h->lr;
    a->full_lr = h->lr;
    a->twin_hyper = qm_oracle_hyper_of(h);
}

static qm_status set_shapes(struct qm_lockstep_pair *a)
{
    const struct qm_cell *c = a->c;
    a->n_tensors = 1;
    a->t0 = c->recorded ? c->recorded->first_step : 1;
    if (c->problem)
        QM_TRY(c->problem->open(c->problem_args, qm_cell_seed(c), &a->problem, &a->n_tensors,
                                a->shape));
    else if (c->recorded)
        a->shape[0] = c->recorded->shape;
    else
        a->shape[0] = (struct qm_shape){.rank = 1, .dim = {c->n}};
    for (int i = 0; i < a->n_tensors; i++) {
        a->first[i] = a->total;
        a->numel[i] = qm_shape_numel(&a->shape[i]);
        a->total += a->numel[i];
    }
    return QM_OK;
}

/* The rule of tensors that are all small, where the recipe has another one for these; its family
 * differs for some of bitsandbytes' CUDA kernels. */
static void set_oracle(struct qm_lockstep_pair *a)
{
    struct qm_recipe at = a->recipe;
    for (int i = 0; i < a->n_tensors; i++)
        if ((at = qm_recipe_at(&a->recipe, &a->shape[i])).rule == a->recipe.rule)
            break;
    a->oracle = qm_oracle_find(at.rule->family);
}

int64_t qm_lockstep_pair_slot_numel(const struct qm_lockstep_pair *a, int tensor, int s)
{
    struct qm_shape own;
    qm_rule_slot_shape(a->recipe.rule, &a->recipe.hyper, s, &a->shape[tensor], &own);
    return qm_shape_numel(&own);
}

/* Checks that every slot has at most as many elements as its parameter, which the arrays have room
 * for; a projection may ask for more. */
static qm_status slots_fit(const struct qm_recipe *r, const struct qm_shape *shape)
{
    int64_t most = qm_shape_numel(shape);
    for (int s = 0; s < r->rule->n_slots; s++) {
        struct qm_shape own;
        qm_rule_slot_shape(r->rule, &r->hyper, s, shape, &own);
        if (qm_shape_numel(&own) > most)
            return qm_fail(QM_BAD_ARG, "slot %s has %lld elements, its parameter %lld: lower rank",
                           r->rule->slot[s], (long long)qm_shape_numel(&own), (long long)most);
    }
    return QM_OK;
}

qm_status qm_lockstep_fits(const struct qm_cell *c, int n_tensors, const struct qm_shape *shape)
{
    struct qm_codec slot = {.q = c->recipe->slot[c->slot]};
    int64_t bytes;
    if (c->coupling == QM_COUPLING_oneshot)
        return qm_codec_fits(&slot, &shape[0]);
    for (int i = 0; i < n_tensors; i++) {
        QM_TRY(slots_fit(c->recipe, &shape[i]));
        QM_TRY(qm_recipe_bytes(c->recipe, &shape[i], &bytes));
    }
    return QM_OK;
}

/* Encodes a recorded state as the recipe says and loads it into slot s of the only plan. */
static qm_status load_state(struct qm_lockstep_pair *a, int s)
{
    const float *x = a->c->recorded->slot[s];
    struct qm_quantizer q = qm_recipe_slot(&a->recipe, s, &a->shape[0]);
    if (q.bits == 0)
        return qm_backend_cpu.load(a->plan[0], s, NULL, x);
    struct qm_codec *codec = malloc(sizeof *codec);
    qm_status st = codec ? qm_codec_init(codec, &q) : qm_fail(QM_NO_MEMORY, "codec");
    float *scales = NULL;
    if (st == QM_OK) {
        scales = malloc((size_t)(qm_scale_count(codec, &a->shape[0]) + 1) * sizeof *scales);
        st = scales ? QM_OK : qm_fail(QM_NO_MEMORY, "scales");
    }
    struct qm_draws draws =
        qm_draws_for(qm_cell_rounding(a->c), a->t0 - 1, 0, s == 0 ? QM_ROLE_slot0 : QM_ROLE_slot1);
    if (st == QM_OK)
        st = qm_encode(codec, &a->shape[0], x, &draws, a->codes, scales);
    if (st == QM_OK)
        st = qm_backend_cpu.load(a->plan[0], s, a->codes, scales);
    free(scales);
    free(codec);
    return st;
}

/* Moves each element of the start by one float32 ulp up or down, by a draw per element.  A 0
 * moves by 2^-24 of the largest element (of 1 where all are 0), since the ulp of 0 is lost in the
 * first update. */
static void perturb_start(struct qm_lockstep_pair *a)
{
    float most = 0.0f;
    for (int64_t i = 0; i < a->total; i++)
        most = fmaxf(most, fabsf(a->p[i]));
    double step = 0x1p-24 * (most > 0.0f ? (double)most : 1.0);
    for (int64_t i = 0; i < a->total; i++) {
        int up = qm_pick(qm_cell_seed(a->c), QM_STREAM_start, 1, i, 2) == 1;
        a->double_p[i] = a->p[i] == 0.0f ? (up ? step : -step)
                                         : (double)nextafterf(a->p[i], up ? INFINITY : -INFINITY);
        a->p[i] = (float)a->double_p[i];
    }
}

static qm_status set_start(struct qm_lockstep_pair *a)
{
    const struct qm_recorded *r = a->c->recorded;
    if (a->problem)
        a->c->problem->start(a->problem, a->twin_p);
    for (int64_t i = 0; i < a->total; i++) {
        float x = !r ? (float)a->twin_p[i] : r->param ? r->param[i] : 0.0f;
        a->p[i] =
            qm_param_widen(a->recipe.param.format, qm_param_nearest(a->recipe.param.format, x));
        a->twin_p[i] = (double)a->p[i]; /* variant and twin start from the same stored values */
        a->start[i] = a->twin_p[i];
    }
    qm_param_from_float(&a->recipe.param, a->total, a->p, a->stored);
    for (int s = 0; r && s < a->n_slots; s++) {
        for (int64_t i = 0; i < a->total; i++)
            a->twin_slot[s][i] = (double)r->slot[s][i];
        QM_TRY(load_state(a, s));
    }
    if (!r) /* a variant's initial state need not be 0 */
        QM_TRY(qm_lockstep_pair_take_over(a));
    if (a->problem && a->c->problem->optimum) {
        a->floor = a->c->problem->optimum(a->problem);
        a->start_loss = a->c->problem->eval(a->problem, a->start, 1, NULL) - a->floor;
    }
    for (int s = 0; s < a->n_slots && a->is_double; s++)
        memcpy(a->double_slot[s], a->twin_slot[s], (size_t)a->total * sizeof(double));
    if (a->is_double)
        perturb_start(a);
    return QM_OK;
}

qm_status qm_lockstep_pair_open(const struct qm_cell *c, struct qm_lockstep_pair *a)
{
    a->c = c;
    a->recipe = *c->recipe;
    a->n_slots = c->recipe->rule->n_slots;
    a->is_double = c->start_ulp;
    a->steps = qm_cell_steps(c);
    a->oracle = qm_oracle_find(c->recipe->rule->family);
    if (!a->oracle)
        return qm_fail(QM_BAD_ARG, "rule %s (family %s) has no oracle", c->recipe->rule->name,
                       c->recipe->rule->family);
    set_hyper(a);
    QM_TRY(set_shapes(a));
    set_oracle(a);
    QM_TRY(buffers(a));
    for (int i = 0; i < a->n_tensors; i++)
        QM_TRY(slots_fit(&a->recipe, &a->shape[i]));
    for (int i = 0; i < a->n_tensors; i++)
        QM_TRY(qm_backend_cpu.open(&a->recipe, &a->shape[i], (uint32_t)i, &a->plan[i]));
    return set_start(a);
}

/* ---- one step -------------------------------------------------------------------------------- */

qm_status qm_lockstep_pair_decode(struct qm_lockstep_pair *a, int s)
{
    for (int64_t i = 0; i < a->total && a->is_double; i++)
        a->got[i] = (float)a->double_slot[s][i];
    if (a->is_double)
        return QM_OK;
    memset(a->got, 0, (size_t)a->total * sizeof *a->got); /* a slot may be smaller or absent */
    for (int i = 0; i < a->n_tensors; i++)
        QM_TRY(qm_backend_cpu.decode(a->plan[i], s, a->got + a->first[i]));
    return QM_OK;
}

qm_status qm_lockstep_pair_take_over(struct qm_lockstep_pair *a)
{
    for (int s = 0; s < a->n_slots; s++) {
        QM_TRY(qm_lockstep_pair_decode(a, s));
        for (int64_t i = 0; i < a->total; i++)
            a->twin_slot[s][i] = (double)a->got[i];
    }
    for (int64_t i = 0; i < a->total; i++)
        a->twin_p[i] = (double)a->p[i];
    return QM_OK;
}

/* The variant's parameter in double. */
static const double *parameter(struct qm_lockstep_pair *a)
{
    if (a->is_double)
        return a->double_p;
    for (int64_t i = 0; i < a->total; i++)
        a->scratch[i] = (double)a->p[i];
    return a->scratch;
}

double qm_lockstep_pair_basin(struct qm_lockstep_pair *a, int is_twin)
{
    const struct qm_problem *p = a->c->problem;
    return p->basin ? p->basin(a->problem, is_twin ? a->twin_p : parameter(a)) : 0;
}

double qm_lockstep_pair_loss(struct qm_lockstep_pair *a, int64_t k)
{
    return a->c->problem->eval(a->problem, parameter(a), k + 1, NULL);
}

/* Rounds a->g to the recipe's type of gradients where this is not float32, and sets a->g16. */
static void narrow_gradient(struct qm_lockstep_pair *a)
{
    for (int64_t i = 0; i < a->total && a->recipe.grad != QM_DTYPE_f32; i++)
        if (a->recipe.grad == QM_DTYPE_bf16) {
            a->g16[i] = qm_float_to_bf16(a->g[i]);
            a->g[i] = qm_bf16_to_float(a->g16[i]);
        } else if (a->recipe.grad == QM_DTYPE_f16) {
            a->g16[i] = qm_float_to_f16(a->g[i]);
            a->g[i] = qm_f16_to_float(a->g16[i]);
        }
}

/* Clips the gradient of all tensors together to the cell's norm. */
static void clip(const struct qm_lockstep_pair *a, double *grad)
{
    double squares = 0.0;
    if (a->c->clip <= 0.0)
        return;
    for (int64_t i = 0; i < a->total; i++)
        squares += grad[i] * grad[i];
    double factor = a->c->clip / (sqrt(squares) + 1e-6);
    for (int64_t i = 0; i < a->total && factor < 1.0; i++)
        grad[i] *= factor;
}

double qm_lockstep_pair_gradient(struct qm_lockstep_pair *a, int64_t k)
{
    const struct qm_cell *c = a->c;
    double loss = 0.0;
    if (c->recorded) {
        memcpy(a->g, c->recorded->grad + k * a->total, (size_t)a->total * sizeof *a->g);
    } else if (!a->problem) {
        qm_dist_fill(c->dist, c->seed, k * a->total, a->total, a->g);
    } else {
        const double *x = c->coupling == QM_COUPLING_global ? a->twin_p : parameter(a);
        loss = c->problem->eval(a->problem, x, k + 1, a->grad);
        clip(a, a->grad);
        for (int64_t i = 0; i < a->total; i++)
            a->g[i] = (float)a->grad[i];
    }
    narrow_gradient(a);
    for (int64_t i = 0; i < a->total && c->coupling != QM_COUPLING_closed; i++)
        a->twin_g[i] = (double)a->g[i];
    return loss;
}

double qm_lockstep_pair_twin_gradient(struct qm_lockstep_pair *a, int64_t k)
{
    double loss = a->c->problem->eval(a->problem, a->twin_p, k + 1, a->twin_g);
    clip(a, a->twin_g);
    return loss;
}

static int is_decayed(const struct qm_lockstep_pair *a, int tensor)
{
    return a->shape[tensor].rank >= a->c->decay_rank;
}

/* Update t of all tensors by the oracle. */
static qm_status oracle_step(struct qm_lockstep_pair *a, double *p, double *const *slots,
                             const double *g, int64_t t)
{
    for (int i = 0; i < a->n_tensors; i++) {
        int64_t at = a->first[i];
        double *slot[QM_MAX_SLOTS] = {NULL};
        for (int s = 0; s < a->n_slots; s++)
            slot[s] = slots[s] + at;
        struct qm_oracle_hyper h = a->twin_hyper;
        h.weight_decay = is_decayed(a, i) ? h.weight_decay : 0.0;
        QM_TRY(qm_oracle_step(a->oracle, p + at, slot, g + at, &a->shape[i], (uint32_t)i, &h, t));
    }
    return QM_OK;
}

/* The part of the full rate that update k (from 0) of a problem's run takes. */
static double schedule_part(const struct qm_lockstep_pair *a, int64_t k)
{
    const struct qm_cell *c = a->c;
    if (k < c->warmup)
        return (double)(k + 1) / (double)c->warmup;
    if (c->schedule == QM_SCHEDULE_constant)
        return 1.0;
    double done = (double)(k - c->warmup) / (double)(a->steps - c->warmup);
    return c->schedule == QM_SCHEDULE_linear ? 1.0 - done : 0.5 * (1.0 + cos(M_PI * done));
}

/* The learning rate of update k: the recorded run's, or the part of the full rate that warm-up and
 * schedule give.  In coupling update it is 1 where the parameter is float32, so that the rounding
 * of the parameter, which float32 AdamW has as well, does not hide the error of the states. */
static double rate_of(const struct qm_lockstep_pair *a, int64_t k)
{
    const struct qm_cell *c = a->c;
    if (c->coupling == QM_COUPLING_update && qm_param_dtype(&a->recipe.param) == QM_DTYPE_f32)
        return 1.0;
    return c->recorded ? c->recorded->lr[k] : schedule_part(a, k) * a->full_lr;
}

/* Sets the learning rate of update k of variant and twin. */
static qm_status follow_schedule(struct qm_lockstep_pair *a, int64_t k)
{
    const struct qm_cell *c = a->c;
    double lr = rate_of(a, k);
    if (lr == a->recipe.hyper.lr && k > 0 && !c->recorded)
        return QM_OK;
    a->recipe.hyper.lr = a->twin_hyper.lr = lr;
    for (int i = 0; i < a->n_tensors; i++) {
        struct qm_hyper h = a->recipe.hyper;
        h.weight_decay = is_decayed(a, i) ? h.weight_decay : 0.0;
        QM_TRY(qm_backend_cpu.hyper(a->plan[i], &h));
    }
    return QM_OK;
}

qm_status qm_lockstep_pair_twin_step(struct qm_lockstep_pair *a, int64_t k)
{
    QM_TRY(follow_schedule(a, k));
    return oracle_step(a, a->twin_p, a->twin_slot, a->twin_g, a->t0 + k);
}

static qm_status double_step(struct qm_lockstep_pair *a, int64_t k)
{
    QM_TRY(oracle_step(a, a->double_p, a->double_slot, a->grad, a->t0 + k));
    for (int64_t i = 0; i < a->total; i++)
        a->p[i] = (float)a->double_p[i];
    return QM_OK;
}

qm_status qm_lockstep_pair_step(struct qm_lockstep_pair *a, int64_t k)
{
    int64_t t = a->t0 + k;
    follow_schedule(a, k);
    if (a->is_double)
        return double_step(a, k);
    for (int i = 0; i < a->n_tensors; i++) {
        int64_t at = a->first[i];
        int is_f32 = a->recipe.grad == QM_DTYPE_f32;
        enum qm_dtype type = qm_param_dtype(&a->recipe.param);
        char *stored = (char *)a->stored + at * qm_param_bytes(&a->recipe.param);
        struct qm_tensor p = {type == QM_DTYPE_f32 ? (void *)(a->p + at) : (void *)stored, type,
                              a->shape[i]};
        struct qm_tensor g = {is_f32 ? (void *)(a->g + at) : (void *)(a->g16 + at), a->recipe.grad,
                              a->shape[i]};
        QM_TRY(qm_backend_cpu.step(a->plan[i], &p, &g, t, qm_cell_rounding(a->c)));
        if (type != QM_DTYPE_f32)
            qm_param_to_float(&a->recipe.param, a->numel[i], stored, a->p + at);
    }
    return QM_OK;
}
