/* lockstep.c - the loop over steps: variant and twin. */
#include "experiments/lockstep.h"

#include "core/base/half.h"
#include "core/engine/backend.h"
#include "oracle/oracle.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- columns --------------------------------------------------------------------------------- */

static const struct {
    const char *name, *unit, *text;
} extras[] = {
#define X(name, unit, text) {#name, unit, text},
    QM_EXTRA_LIST(X)
#undef X
};

int qm_value_count(void) { return qm_metric_count() + QM_EXTRA_COUNT; }

const char *qm_value_name(int i)
{
    int n = qm_metric_count();
    return i < n ? qm_metric_at(i)->name : extras[i - n].name;
}

const char *qm_value_unit(int i)
{
    int n = qm_metric_count();
    return i < n ? qm_metric_at(i)->unit : extras[i - n].unit;
}

const char *qm_value_text(int i)
{
    int n = qm_metric_count();
    return i < n ? qm_metric_at(i)->text : extras[i - n].text;
}

int qm_value_find(const char *name)
{
    for (int i = 0; i < qm_value_count(); i++)
        if (strcmp(qm_value_name(i), name) == 0)
            return i;
    return -1;
}

/* ---- outcomes -------------------------------------------------------------------------------- */

qm_status qm_outcome_skip(struct qm_outcome *o, const char *reason)
{
    o->reason = strdup(reason);
    return o->reason ? QM_OK : qm_fail(QM_NO_MEMORY, "outcome");
}

void qm_outcome_measure(struct qm_outcome *o, const struct qm_metrics *m)
{
    for (int i = 0; i < qm_metric_count(); i++)
        o->value[i] = qm_metric_at(i)->value(m);
    qm_metrics_decades(m, o->decade);
}

void qm_outcome_free(struct qm_outcome *o)
{
    free(o->reason);
    free(o->value);
    for (int i = 0; i < QM_TRACK_COUNT; i++)
        free(o->track[i]);
    memset(o, 0, sizeof *o);
}

/* ---- the two sides --------------------------------------------------------------------------- */

struct pair {
    const struct qm_cell *c;
    struct qm_recipe recipe; /* with the source's hyper-parameters */
    struct qm_oracle_hyper twin_hyper;
    const struct qm_oracle *oracle;
    int n_tensors, n_slots;
    struct qm_shape shape[QM_PROBLEM_TENSORS];
    int64_t first[QM_PROBLEM_TENSORS], numel[QM_PROBLEM_TENSORS], total;
    void *plan[QM_PROBLEM_TENSORS];
    void *problem; /* self of c->problem */
    int64_t t0;    /* the first update's number */
    double floor, start_loss;
    /* [total]; the variant's side in float, the twin's in double */
    float *p, *g, *got;
    uint16_t *g16;
    uint8_t *codes;
    double *twin_p, *twin_g, *start, *twin_slot[QM_MAX_SLOTS], *scratch;
    double *m, *v, *update, *got_update;
};

static void pair_close(struct pair *a)
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
    free(a->codes);
    free(a->twin_p);
    free(a->twin_g);
    free(a->start);
    free(a->scratch);
    free(a->m);
    free(a->v);
    free(a->update);
    free(a->got_update);
    for (int s = 0; s < QM_MAX_SLOTS; s++)
        free(a->twin_slot[s]);
    free(a);
}

static qm_status pair_buffers(struct pair *a)
{
    size_t n = (size_t)(a->total > 0 ? a->total : 1);
    float **floats[] = {&a->p, &a->g, &a->got};
    double **doubles[] = {&a->twin_p, &a->twin_g, &a->start,  &a->scratch,
                          &a->m,      &a->v,      &a->update, &a->got_update};
    int ok = (a->g16 = calloc(n, sizeof(uint16_t))) && (a->codes = calloc(n, 1));
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
        ok = (*floats[i] = calloc(n, sizeof(float))) && ok;
    for (size_t i = 0; i < sizeof doubles / sizeof *doubles; i++)
        ok = (*doubles[i] = calloc(n, sizeof(double))) && ok;
    for (int s = 0; s < a->n_slots; s++)
        ok = (a->twin_slot[s] = calloc(n, sizeof(double))) && ok;
    return ok ? QM_OK : qm_fail(QM_NO_MEMORY, "%lld elements in lockstep", (long long)a->total);
}

/* The suggested learning rate of a problem for a family, or the recipe's. */
static double problem_lr(const struct qm_problem *p, const char *family, const struct qm_hyper *h)
{
    double lr = strcmp(family, "adamw") == 0  ? p->lr_adamw
                : strcmp(family, "lion") == 0 ? 0.1 * p->lr_adamw
                : strcmp(family, "sgdm") == 0 ? p->lr_sgdm
                                              : 0.0;
    return lr > 0.0 ? lr : h->lr;
}

static void set_hyper(struct pair *a)
{
    const struct qm_cell *c = a->c;
    struct qm_hyper *h = &a->recipe.hyper;
    if (c->recorded) {
        *h = c->recorded->hyper;
        if (strcmp(a->recipe.rule->family, "ema") == 0 &&
            strcmp(c->recorded->optimizer, "lion") == 0)
            h->beta1 = h->beta2;
    } else if (c->problem && !c->lr_given) {
        h->lr = problem_lr(c->problem, a->recipe.rule->family, h);
    }
    a->twin_hyper = (struct qm_oracle_hyper){.lr = h->lr,
                                             .beta1 = h->beta1,
                                             .beta2 = h->beta2,
                                             .eps = h->eps,
                                             .weight_decay = h->weight_decay,
                                             .momentum = h->momentum,
                                             .dampening = h->dampening,
                                             .nesterov = h->nesterov,
                                             .maximize = h->maximize};
}

static qm_status set_shapes(struct pair *a)
{
    const struct qm_cell *c = a->c;
    a->n_tensors = 1;
    a->t0 = c->recorded ? c->recorded->first_step : 1;
    if (c->problem)
        QM_TRY(c->problem->open(c->problem_args, c->seed, &a->problem, &a->n_tensors, a->shape));
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

/* Puts a recorded state into slot s of the only plan, encoded as the recipe says. */
static qm_status load_state(struct pair *a, int s)
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
        qm_draws_for(a->c->seed, a->t0 - 1, 0, s == 0 ? QM_ROLE_slot0 : QM_ROLE_slot1);
    if (st == QM_OK)
        st = qm_encode(codec, &a->shape[0], x, &draws, a->codes, scales);
    if (st == QM_OK)
        st = qm_backend_cpu.load(a->plan[0], s, a->codes, scales);
    free(scales);
    free(codec);
    return st;
}

static qm_status set_start(struct pair *a)
{
    const struct qm_recorded *r = a->c->recorded;
    if (a->problem)
        a->c->problem->start(a->problem, a->twin_p);
    for (int64_t i = 0; i < a->total; i++) {
        a->p[i] = r ? r->param[i] : (float)a->twin_p[i];
        a->twin_p[i] = (double)a->p[i]; /* both sides start from the same float32 values */
        a->start[i] = a->twin_p[i];
    }
    for (int s = 0; r && s < a->n_slots; s++) {
        for (int64_t i = 0; i < a->total; i++)
            a->twin_slot[s][i] = (double)r->slot[s][i];
        QM_TRY(load_state(a, s));
    }
    if (a->problem) {
        a->floor = a->c->problem->optimum(a->problem);
        a->start_loss = a->c->problem->eval(a->problem, a->start, 1, NULL) - a->floor;
    }
    return QM_OK;
}

static qm_status pair_open(const struct qm_cell *c, struct pair *a)
{
    a->c = c;
    a->recipe = c->recipe;
    a->n_slots = c->recipe.rule->n_slots;
    a->oracle = qm_oracle_find(c->recipe.rule->family);
    if (!a->oracle)
        return qm_fail(QM_BAD_ARG, "rule %s (family %s) has no oracle", c->recipe.rule->name,
                       c->recipe.rule->family);
    set_hyper(a);
    QM_TRY(set_shapes(a));
    QM_TRY(pair_buffers(a));
    for (int i = 0; i < a->n_tensors; i++)
        QM_TRY(qm_backend_cpu.open(&a->recipe, &a->shape[i], (uint32_t)i, &a->plan[i]));
    return set_start(a);
}

/* ---- one step -------------------------------------------------------------------------------- */

static qm_status decode_slot(struct pair *a, int s)
{
    for (int i = 0; i < a->n_tensors; i++)
        QM_TRY(qm_backend_cpu.decode(a->plan[i], s, a->got + a->first[i]));
    return QM_OK;
}

/* The oracle takes over what the variant holds. */
static qm_status take_over(struct pair *a)
{
    for (int s = 0; s < a->n_slots; s++) {
        QM_TRY(decode_slot(a, s));
        for (int64_t i = 0; i < a->total; i++)
            a->twin_slot[s][i] = (double)a->got[i];
    }
    for (int64_t i = 0; i < a->total; i++)
        a->twin_p[i] = (double)a->p[i];
    return QM_OK;
}

/* Gradients of update k (from 0): a->g for the variant, a->twin_g for the twin. */
static void gradients(struct pair *a, int64_t k)
{
    const struct qm_cell *c = a->c;
    if (c->recorded) {
        memcpy(a->g, c->recorded->grad + k * a->total, (size_t)a->total * sizeof *a->g);
    } else if (!a->problem) {
        qm_dist_fill(&c->dist, c->seed, k * a->total, a->total, a->g);
    } else {
        double *g = a->twin_g;
        const double *x = a->twin_p;
        if (c->coupling != QM_COUPLING_global) {
            for (int64_t i = 0; i < a->total; i++)
                a->scratch[i] = (double)a->p[i];
            x = a->scratch;
        }
        c->problem->eval(a->problem, x, k + 1, g);
        for (int64_t i = 0; i < a->total; i++)
            a->g[i] = (float)g[i];
    }
    for (int64_t i = 0; i < a->total; i++)
        if (a->recipe.grad == QM_DTYPE_bf16) {
            a->g16[i] = qm_float_to_bf16(a->g[i]);
            a->g[i] = qm_bf16_to_float(a->g16[i]);
        } else if (a->recipe.grad == QM_DTYPE_f16) {
            a->g16[i] = qm_float_to_f16(a->g[i]);
            a->g[i] = qm_f16_to_float(a->g16[i]);
        }
    if (c->coupling == QM_COUPLING_closed)
        c->problem->eval(a->problem, a->twin_p, k + 1, a->twin_g);
    else
        for (int64_t i = 0; i < a->total; i++)
            a->twin_g[i] = (double)a->g[i];
}

static qm_status both_step(struct pair *a, int64_t k)
{
    int64_t t = a->t0 + k;
    if (a->c->recorded) {
        a->recipe.hyper.lr = a->twin_hyper.lr = a->c->recorded->lr[k];
        qm_plan_cpu_hyper(a->plan[0], &a->recipe.hyper);
    }
    for (int i = 0; i < a->n_tensors; i++) {
        int64_t at = a->first[i], rows = a->shape[i].rank > 0 ? a->shape[i].dim[0] : 1;
        int is_f32 = a->recipe.grad == QM_DTYPE_f32;
        struct qm_tensor p = {a->p + at, QM_DTYPE_f32, a->shape[i]};
        struct qm_tensor g = {is_f32 ? (void *)(a->g + at) : (void *)(a->g16 + at), a->recipe.grad,
                              a->shape[i]};
        QM_TRY(qm_backend_cpu.step(a->plan[i], &p, &g, t, a->c->seed));
        double *slot[QM_MAX_SLOTS] = {NULL};
        for (int s = 0; s < a->n_slots; s++)
            slot[s] = a->twin_slot[s] + at;
        a->oracle->step(a->twin_p + at, slot, a->twin_g + at, rows,
                        rows > 0 ? a->numel[i] / rows : 0, &a->twin_hyper, t);
    }
    return QM_OK;
}

/* ---- measuring ------------------------------------------------------------------------------- */

static double sqnr_db(const double *want, const double *from, const float *got, int64_t n)
{
    double signal = 0.0, noise = 0.0;
    for (int64_t i = 0; i < n; i++) {
        double start = from ? from[i] : 0.0;
        double x = want[i] - start, e = ((double)got[i] - start) - x;
        signal += x * x;
        noise += e * e;
    }
    return 10.0 * log10(signal / noise);
}

/* Loss above the floor; what double cannot tell from the floor counts as its resolution. */
static double above_floor(const struct pair *a, double loss)
{
    double gap = loss - a->floor, least = DBL_EPSILON * a->start_loss;
    return gap < least ? least : gap;
}

static void add_sample(struct pair *a, struct qm_metrics *m, int64_t t)
{
    const struct qm_cell *c = a->c;
    int has_update = strcmp(a->recipe.rule->family, "adamw") == 0;
    for (int i = 0; i < a->n_tensors; i++) {
        int64_t at = a->first[i];
        struct qm_quantizer q = qm_recipe_slot(&a->recipe, c->slot, &a->shape[i]);
        struct qm_sample sample = {.n = a->numel[i],
                                   .want = a->twin_slot[c->slot] + at,
                                   .got = a->got + at,
                                   .grad = a->twin_g + at,
                                   .bits = q.bits,
                                   .eps = a->recipe.hyper.eps};
        if (has_update) {
            qm_adam_update(a->numel[i], a->twin_slot[0] + at, a->twin_slot[1] + at,
                           &a->recipe.hyper, t, t, a->update + at);
            qm_adam_update(a->numel[i], a->m + at, a->v + at, &a->recipe.hyper, t, t,
                           a->got_update + at);
            sample.want_step = a->update + at;
            sample.got_step = a->got_update + at;
        }
        if (q.bits && qm_backend_cpu.save(a->plan[i], c->slot, a->codes + at, NULL) == QM_OK)
            sample.code = a->codes + at;
        qm_metrics_add(m, &sample);
    }
}

/* One point of the curves after k updates; m: the metrics of this state are wanted too. */
static qm_status measure(struct pair *a, int64_t k, struct qm_metrics *m, struct qm_outcome *out)
{
    int64_t at = out->n_points++;
    double *sqnr[2] = {out->track[QM_TRACK_state0_sqnr], out->track[QM_TRACK_state1_sqnr]};
    for (int i = 0; i < QM_TRACK_COUNT; i++)
        out->track[i][at] = nan("");
    out->track[QM_TRACK_step][at] = (double)k;
    for (int s = 0; s < a->n_slots && s < 2; s++) {
        double *keep = s == 0 ? a->m : a->v;
        QM_TRY(decode_slot(a, s));
        for (int64_t i = 0; i < a->total; i++)
            keep[i] = (double)a->got[i];
        sqnr[s][at] = sqnr_db(a->twin_slot[s], NULL, a->got, a->total);
    }
    out->track[QM_TRACK_param_sqnr][at] = sqnr_db(a->twin_p, a->start, a->p, a->total);
    if (a->problem) {
        for (int64_t i = 0; i < a->total; i++)
            a->scratch[i] = (double)a->p[i];
        double loss = a->c->problem->eval(a->problem, a->scratch, k + 1, NULL);
        double twin = a->c->problem->eval(a->problem, a->twin_p, k + 1, NULL);
        out->track[QM_TRACK_loss][at] = above_floor(a, loss);
        out->track[QM_TRACK_twin_loss][at] = above_floor(a, twin);
        out->diverged |= !isfinite(loss) || loss - a->floor > 1e3 * a->start_loss;
    }
    for (int64_t i = 0; i < a->total; i++)
        out->diverged |= !isfinite((double)a->p[i]);
    if (m) {
        QM_TRY(decode_slot(a, a->c->slot));
        add_sample(a, m, a->t0 + k - 1);
    }
    return QM_OK;
}

static void finish(const struct pair *a, const struct qm_metrics *m, struct qm_outcome *out)
{
    double *extra = out->value + qm_metric_count();
    int64_t last = out->n_points - 1, n = 0;
    double sum = 0.0;
    qm_outcome_measure(out, m);
    extra[QM_EXTRA_state0_sqnr] = out->track[QM_TRACK_state0_sqnr][last];
    extra[QM_EXTRA_state1_sqnr] = out->track[QM_TRACK_state1_sqnr][last];
    extra[QM_EXTRA_param_sqnr] = out->track[QM_TRACK_param_sqnr][last];
    if (!a->problem)
        return;
    const double *loss = out->track[QM_TRACK_loss], *twin = out->track[QM_TRACK_twin_loss];
    extra[QM_EXTRA_loss] = loss[last];
    extra[QM_EXTRA_twin_loss] = twin[last];
    extra[QM_EXTRA_loss_ratio] = log10(loss[last] / twin[last]);
    for (int64_t i = 1; i <= last; i++, n++)
        sum += log10(loss[i] / twin[i]);
    extra[QM_EXTRA_loss_ratio_mean] = n ? sum / (double)n : nan("");
}

/* ---- the loop -------------------------------------------------------------------------------- */

static int64_t steps_of(const struct qm_cell *c)
{
    int64_t own = c->recorded ? c->recorded->n_steps : c->problem ? c->problem->steps : 100;
    return c->steps == 0 || (c->recorded && c->steps > own) ? own : c->steps;
}

static qm_status loop(struct pair *a, struct qm_metrics *m, const volatile sig_atomic_t *stop,
                      struct qm_outcome *out)
{
    const struct qm_cell *c = a->c;
    int64_t steps = steps_of(c);
    int is_local = c->coupling == QM_COUPLING_local;
    qm_metrics_reset(m);
    if (a->problem)
        QM_TRY(measure(a, 0, NULL, out));
    for (int64_t k = 0; k < steps; k++) {
        int is_last = k + 1 == steps;
        if (stop && *stop)
            return qm_fail(QM_INTERRUPTED, "interrupted");
        if (is_local)
            QM_TRY(take_over(a));
        gradients(a, k);
        QM_TRY(both_step(a, k));
        out->steps = k + 1;
        if (is_last || (k + 1) % c->every == 0)
            QM_TRY(measure(a, k + 1, is_local || is_last ? m : NULL, out));
        if (out->diverged)
            break;
    }
    finish(a, m, out);
    return QM_OK;
}

static qm_status run_pair(const struct qm_cell *c, struct qm_metrics *m,
                          const volatile sig_atomic_t *stop, struct qm_outcome *out)
{
    struct pair *a = calloc(1, sizeof *a);
    if (!a)
        return qm_fail(QM_NO_MEMORY, "lockstep");
    size_t points = (size_t)(steps_of(c) / c->every + 2);
    qm_status st = QM_OK;
    for (int i = 0; st == QM_OK && i < QM_TRACK_COUNT; i++)
        if (!(out->track[i] = malloc(points * sizeof(double))))
            st = qm_fail(QM_NO_MEMORY, "curves");
    if (st == QM_OK)
        st = pair_open(c, a);
    if (st == QM_BAD_ARG) /* a shape or a problem's argument that does not go with the recipe */
        st = qm_outcome_skip(out, qm_message());
    else if (st == QM_OK)
        st = loop(a, m, stop, out);
    if (st == QM_OK && !out->reason) {
        int64_t bytes = 0;
        for (int i = 0; i < a->n_tensors; i++)
            bytes += qm_backend_cpu.bytes(a->plan[i]);
        out->n = a->total;
        out->bits = a->total ? 8.0 * (double)bytes / (double)a->total : 0.0;
    }
    pair_close(a);
    return st;
}

qm_status qm_lockstep_run(const struct qm_cell *c, struct qm_metrics *m,
                          const volatile sig_atomic_t *stop, struct qm_outcome *out)
{
    memset(out, 0, sizeof *out);
    out->value = malloc((size_t)qm_value_count() * sizeof *out->value);
    if (!out->value)
        return qm_fail(QM_NO_MEMORY, "values");
    for (int i = 0; i < qm_value_count(); i++)
        out->value[i] = nan("");
    for (int i = 0; i < QM_DECADES; i++)
        out->decade[i] = (struct qm_decade){0, nan(""), nan(""), nan("")};
    if (c->reason)
        return qm_outcome_skip(out, c->reason);
    qm_status st =
        c->coupling == QM_COUPLING_oneshot ? qm_oneshot_run(c, m, out) : run_pair(c, m, stop, out);
    out->done = st == QM_OK;
    return st;
}
