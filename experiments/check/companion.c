/* companion.c - Other tensors that are stepped between the steps of the judged one.
 *
 * What they compute is not judged.  A kernel that keeps something per process (whether a step was
 * the first, the hyper-parameters of a call, a scratch buffer of a size) shows in the judged tensor
 * once another tensor comes in between. */
#include <math.h>
#include <stdlib.h>

#include "core/base/half.h"
#include "core/base/philox.h"
#include "experiments/check/case_run.h"
#include "experiments/check/slot.h"

enum {
    STREAM = 201,
    WARM_STEP = 1000003,
    PROJECTED_WARM_STEP = 1003,
    GROUP_SCHEDULE = 1000,
    BUSY_CALLS = 4096,
    ALIKE_MOST = 4096 /* elements */
};

static const enum qm_part part_of[QM_COMPANIONS] = {QM_PART_warm, QM_PART_second, QM_PART_group,
                                                    QM_PART_busy};

static uint32_t word(const struct qm_case_run *r, enum qm_companion_role role, uint64_t i)
{
    return qm_philox_stream(r->seed, (uint64_t)STREAM + role, i);
}

/* A shape of the judged one's rank (1 for a scalar), of other sizes; of eight small tensors
 * that are stepped before or in between three have the judged one's and two these with the last two
 * exchanged: a kernel might keep something by sizes, or by their product. */
static struct qm_shape shape_of(const struct qm_case_run *r, enum qm_companion_role role)
{
    struct qm_shape s = {r->c->shape.rank ? r->c->shape.rank : 1, {0}};
    if (role == QM_COMPANION_busy)
        return (struct qm_shape){1, {3}};
    if (r->c->shape.rank && qm_shape_numel(&r->c->shape) <= ALIKE_MOST) {
        uint32_t alike = word(r, role, 49) % 8;
        struct qm_shape own = r->c->shape;
        int last = own.rank - 1;
        if (alike < 3)
            return own;
        if (alike < 5 && last > 0) {
            own.dim[last] = r->c->shape.dim[last - 1];
            own.dim[last - 1] = r->c->shape.dim[last];
            return own;
        }
    }
    uint32_t sizes = s.rank > 5 ? 1 : s.rank > 3 ? 2 : 4; /* that a side may have */
    for (int a = 0; a < s.rank; a++)
        s.dim[a] = s.rank == 1   ? 60 + word(r, role, (uint64_t)a) % 200
                   : s.rank == 2 ? 3 + word(r, role, (uint64_t)a) % 20
                                 : 2 + word(r, role, (uint64_t)a) % sizes;
    return s;
}

static qm_status plan_open(const struct qm_case_run *r, struct qm_companion *c)
{
    return r->s->backend->open(&c->recipe, &c->shape, c->tensor, &c->plan);
}

static qm_status step(const struct qm_case_run *r, enum qm_companion_role role)
{
    struct qm_companion *c = &((struct qm_case_run *)(uintptr_t)r)->companion[role];
    struct qm_tensor p = {c->p, qm_param_dtype(&c->recipe.param), c->shape};
    struct qm_tensor g = {c->g, c->recipe.grad, c->shape};
    for (int64_t i = 0; i < c->n; i++)
        c->values[i] =
            (float)ldexp((double)(int32_t)word(r, role, 100 + (uint64_t)(c->t * c->n + i)), -36);
    for (int64_t i = 0; i < c->n; i++) {
        if (c->recipe.grad == QM_DTYPE_f32)
            c->g[i] = c->values[i];
        else
            ((uint16_t *)(void *)c->g)[i] = c->recipe.grad == QM_DTYPE_bf16
                                                ? qm_float_to_bf16(c->values[i])
                                                : qm_float_to_f16(c->values[i]);
    }
    return r->s->backend->step(c->plan, &p, &g, c->t++, r->seed);
}

qm_status qm_company_open(struct qm_case_run *r, enum qm_companion_role role)
{
    struct qm_companion *c = &r->companion[role];
    if (!qm_case_takes(r->c, part_of[role]))
        return QM_OK;
    c->recipe = r->run;
    if (role == QM_COMPANION_group)
        c->recipe.hyper = qm_hyper_schedule(&r->run, r->seed, GROUP_SCHEDULE);
    c->shape = shape_of(r, role);
    if (qm_rule_takes(c->recipe.rule, &c->recipe.hyper, &c->shape) != QM_OK) { /* its own shape */
        c->recipe.hyper = r->run.hyper;
        c->shape = r->c->shape;
    }
    c->n = qm_shape_numel(&c->shape);
    c->tensor = r->tensor + 1u + role;
    if (role == QM_COMPANION_group && word(r, role, 51) % 2) /* the first of another run */
        c->tensor = r->tensor;
    int projects = qm_rule_reads(r->run.rule, "rank"); /* draws the seeds of all steps before */
    c->t = role == QM_COMPANION_warm     ? (projects ? PROJECTED_WARM_STEP : WARM_STEP)
           : role == QM_COMPANION_second ? 1 + word(r, role, 50) % 2000
                                         : r->c->t;
    c->p = malloc(sizeof(float) * (size_t)c->n);
    c->g = malloc(2 * sizeof(float) * (size_t)c->n);
    if (!c->p || !c->g)
        return qm_fail(QM_NO_MEMORY, "a tensor beside the judged one");
    c->values = c->g + c->n;
    for (int64_t i = 0; i < c->n; i++)
        c->values[i] = (float)ldexp((double)(int32_t)word(r, role, 100 + (uint64_t)i), -30);
    qm_param_from_float(&c->recipe.param, c->n, c->values, c->p);
    QM_TRY(plan_open(r, c));
    for (int k = 0; k < BUSY_CALLS && role == QM_COMPANION_busy; k++)
        QM_TRY(step(r, role));
    return role == QM_COMPANION_warm ? step(r, role) : QM_OK;
}

qm_status qm_company_step(struct qm_case_run *r)
{
    for (int role = 0; role < QM_COMPANIONS; role++)
        if (r->companion[role].plan)
            QM_TRY(step(r, (enum qm_companion_role)role));
    return QM_OK;
}

void qm_company_close(struct qm_case_run *r)
{
    for (int role = 0; role < QM_COMPANIONS; role++) {
        struct qm_companion *c = &r->companion[role];
        if (c->plan)
            r->s->backend->close(c->plan);
        free(c->p);
        free(c->g);
        *c = (struct qm_companion){.plan = NULL};
    }
}

/* ---- a restart ------------------------------------------------------------------------------- */

/* The slots of each companion and its residuals. */
struct qm_company_states {
    struct one {
        uint8_t *codes[QM_MAX_SLOTS + 1]; /* the last: residuals */
        float *scales[QM_MAX_SLOTS];
    } of[QM_COMPANIONS];
};

/* Numbers that hold slot i's codes or scales, or (QM_RESIDUAL) the residuals. */
static size_t room(const struct qm_companion *c, int i)
{
    struct qm_shape slot = c->shape;
    if (i == QM_RESIDUAL)
        return (size_t)(c->n * qm_param_residual(&c->recipe.param)) + 1;
    qm_rule_slot_shape(c->recipe.rule, &c->recipe.hyper, i, &c->shape, &slot);
    struct qm_quantizer q = qm_recipe_slot(&c->recipe, i, &c->shape);
    int64_t n = qm_shape_numel(&slot), scales = q.bits ? qm_groups_count(&q, &slot, n) : n;
    return (size_t)(n > scales ? n : scales) + 1;
}

void qm_company_forget(struct qm_company_states *s)
{
    for (int role = 0; role < QM_COMPANIONS && s; role++)
        for (int i = 0; i <= QM_MAX_SLOTS; i++) {
            free(s->of[role].codes[i]);
            if (i < QM_MAX_SLOTS)
                free(s->of[role].scales[i]);
        }
    free(s);
}

static qm_status save(const struct qm_case_run *r, const struct qm_companion *c, struct one *to)
{
    const struct qm_backend *b = r->s->backend;
    to->codes[QM_MAX_SLOTS] = calloc(room(c, QM_RESIDUAL), 1);
    if (!to->codes[QM_MAX_SLOTS])
        return qm_fail(QM_NO_MEMORY, "the states beside the judged one");
    QM_TRY(b->save(c->plan, QM_RESIDUAL, to->codes[QM_MAX_SLOTS], NULL));
    for (int i = 0; i < r->n_slots; i++) {
        int is_plain = qm_recipe_slot(&c->recipe, i, &c->shape).bits == 0;
        to->codes[i] = is_plain ? NULL : calloc(room(c, i), 1);
        to->scales[i] = calloc(room(c, i), sizeof(float));
        if (!to->scales[i] || (!is_plain && !to->codes[i]))
            return qm_fail(QM_NO_MEMORY, "the states beside the judged one");
        QM_TRY(b->save(c->plan, i, to->codes[i], to->scales[i]));
    }
    return QM_OK;
}

qm_status qm_company_save(struct qm_case_run *r, struct qm_company_states **out)
{
    struct qm_company_states *s = calloc(1, sizeof *s);
    qm_status st = s ? QM_OK : qm_fail(QM_NO_MEMORY, "the states beside the judged one");
    for (int role = 0; role < QM_COMPANIONS && st == QM_OK; role++) {
        struct qm_companion *c = &r->companion[role];
        if (!c->plan)
            continue;
        st = save(r, c, &s->of[role]);
        r->s->backend->close(c->plan);
        c->plan = NULL;
    }
    if (st == QM_OK)
        *out = s;
    else
        qm_company_forget(s);
    return st;
}

qm_status qm_company_load(struct qm_case_run *r, const struct qm_company_states *from)
{
    const struct qm_backend *b = r->s->backend;
    qm_status st = QM_OK;
    for (int role = 0; role < QM_COMPANIONS && st == QM_OK; role++) {
        struct qm_companion *c = &r->companion[role];
        const struct one *of = &from->of[role];
        if (!c->p)
            continue;
        st = plan_open(r, c);
        if (st == QM_OK)
            st = b->load(c->plan, QM_RESIDUAL, of->codes[QM_MAX_SLOTS], NULL);
        for (int i = 0; i < r->n_slots && st == QM_OK; i++)
            st = b->load(c->plan, i, of->codes[i], of->scales[i]);
    }
    return st;
}
