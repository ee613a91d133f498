/* kernel_compare.c - Backend that runs a new and an old kernel and compares their results. */
#include "experiments/kernel/kernel_compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/check/stored.h"
#include "experiments/recipes/oracle_hyper.h"
#include "oracle/oracle.h"

enum { PARAMETER = QM_MAX_SLOTS };

struct plan {
    void *now, *old; /* the plans of both kernels */
    struct qm_recipe r;
    struct qm_shape shape;
    int64_t n, most; /* elements of the parameter; most of it and of all slots */
    uint32_t tensor;
    int counts;              /* 1: its steps are compared */
    struct qm_stored format; /* of the parameter */
    void *p, *residual[2];   /* the old kernel's stored parameter; residuals of both */
    float *x, *y;
    uint8_t *codes, *other;
    double *want[QM_MAX_SLOTS + 1], *g;
};

/* The state of the comparison.  Each thread has one, because the functions of a qm_backend receive
 * no argument of their caller and a thread compares one pair of kernels, one case at a time. */
static _Thread_local struct {
    struct qm_kernel_file *now, *old;
    struct qm_kernel_compare_count count[QM_MAX_SLOTS + 1];
    int next_counts; /* 1: the plan that is opened next is compared */
} comparison;

void qm_kernel_compare_begin(struct qm_kernel_file *now, struct qm_kernel_file *old)
{
    comparison.now = now;
    comparison.old = old;
    memset(comparison.count, 0, sizeof comparison.count);
    comparison.next_counts = 1;
}

const struct qm_kernel_compare_count *qm_kernel_compare_counts(void) { return comparison.count; }

/* Number of elements of slot i. */
static int64_t slot_n(const struct plan *p, int i)
{
    struct qm_shape s;
    qm_rule_slot_shape(p->r.rule, &p->r.hyper, i, &p->shape, &s);
    return qm_shape_numel(&s);
}

static void compare_close(void *plan)
{
    struct plan *p = plan;
    if (!p)
        return;
    qm_backend_file.close(p->now);
    qm_backend_file.close(p->old);
    free(p->p);
    free(p->x);
    free(p->codes);
    free(p->g);
    free(p);
}

static qm_status memory(struct plan *p)
{
    int slots = p->r.rule->n_slots;
    p->most = p->n;
    for (int i = 0; i < slots; i++)
        p->most = slot_n(p, i) > p->most ? slot_n(p, i) : p->most;
    size_t room = 2 * (size_t)p->most + 512; /* a tiny tensor may have more scales than elements */
    size_t residual_bytes = (size_t)p->format.residual_bytes * room;
    p->p = malloc((size_t)p->format.bytes * room + 2 * residual_bytes);
    p->x = malloc(2 * sizeof(float) * room);
    p->codes = malloc(2 * room);
    p->g = malloc((size_t)(slots + 2) * sizeof(double) * room);
    if (!p->p || !p->x || !p->codes || !p->g)
        return qm_fail(QM_NO_MEMORY, "buffers of %lld elements", (long long)p->most);
    p->residual[0] = (char *)p->p + (size_t)p->format.bytes * room;
    p->residual[1] = (char *)p->residual[0] + residual_bytes;
    p->y = p->x + room;
    p->other = p->codes + room;
    for (int i = 0; i < slots; i++)
        p->want[i] = p->g + (size_t)(i + 1) * room;
    p->want[PARAMETER] = p->g + (size_t)(slots + 1) * room;
    return QM_OK;
}

static qm_status compare_open(const struct qm_recipe *r, const struct qm_shape *shape,
                              uint32_t tensor, void **plan)
{
    struct plan *p = calloc(1, sizeof *p);
    if (!p)
        return qm_fail(QM_NO_MEMORY, "plan for %s", r->base->name);
    p->r = *r;
    p->shape = *shape;
    p->n = qm_shape_numel(shape);
    p->tensor = tensor;
    p->format = qm_stored_of(&r->param);
    p->counts = comparison.next_counts;
    comparison.next_counts = 0;
    qm_kernel_file_use(comparison.now);
    qm_status st = qm_backend_file.open(r, shape, tensor, &p->now);
    qm_kernel_file_use(comparison.old);
    if (st == QM_OK)
        st = qm_backend_file.open(r, shape, tensor, &p->old);
    if (st == QM_OK)
        st = memory(p);
    if (st == QM_OK)
        *plan = p;
    else
        compare_close(p);
    return st;
}

/* Computes the oracle's step from the state that both kernels start from. */
static qm_status run_oracle(struct plan *p, const struct qm_tensor *param,
                            const struct qm_tensor *g, int64_t t)
{
    const struct qm_oracle_hyper hyper = qm_oracle_hyper_of(&p->r.hyper);
    const struct qm_oracle *o = qm_oracle_find(p->r.rule->family);
    if (!o)
        return qm_fail(QM_SKIPPED, "no oracle for family %s", p->r.rule->family);
    for (int i = 0; i < p->r.rule->n_slots; i++) {
        QM_TRY(qm_backend_file.decode(p->now, i, p->x));
        qm_to_double(p->x, QM_DTYPE_f32, 0, slot_n(p, i), p->want[i]);
    }
    for (int64_t i = 0; i < p->n; i++)
        p->want[PARAMETER][i] = qm_stored_seen(&p->format, param->data, p->residual[0], i);
    qm_to_double(g->data, g->dtype, 0, p->n, p->g);
    return qm_oracle_step(o, p->want[PARAMETER], p->want, p->g, &p->shape, p->tensor, &hyper, t);
}

static void add_errors(struct qm_kernel_compare_count *c, const float *now, const float *old,
                       const double *want, int64_t n)
{
    double error_now = 0.0, error_old = 0.0, size = 0.0;
    c->n += n;
    for (int64_t i = 0; i < n; i++) {
        double a = (double)now[i] - want[i], b = (double)old[i] - want[i];
        c->values += memcmp(&now[i], &old[i], sizeof *now) != 0;
        error_now += a * a;
        error_old += b * b;
        size += want[i] * want[i];
    }
    if (!(size > 0.0 && size < HUGE_VAL && error_now < HUGE_VAL && error_old <= size))
        return;
    c->steps++;
    c->better += error_now < error_old;
    c->worse += error_now > error_old;
    c->error_new += error_now / size;
    c->error_old += error_old / size;
}

static int64_t differ(const void *a, const void *b, int64_t n, size_t size)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++)
        count += memcmp((const char *)a + (size_t)i * size, (const char *)b + (size_t)i * size,
                        size) != 0;
    return count;
}

static qm_status compare_slot(struct plan *p, int i)
{
    struct qm_quantizer q = qm_recipe_slot(&p->r, i, &p->shape);
    struct qm_kernel_compare_count *c = &comparison.count[i];
    int64_t n = slot_n(p, i), n_scales = 0;
    QM_TRY(qm_backend_file.decode(p->now, i, p->x));
    QM_TRY(qm_backend_file.decode(p->old, i, p->y));
    add_errors(c, p->x, p->y, p->want[i], n);
    if (q.bits == 0)
        return QM_OK;
    struct qm_codec codec = {.q = q};
    struct qm_shape shape;
    qm_rule_slot_shape(p->r.rule, &p->r.hyper, i, &p->shape, &shape);
    n_scales = qm_scale_count(&codec, &shape);
    QM_TRY(qm_backend_file.save(p->now, i, p->codes, p->x));
    QM_TRY(qm_backend_file.save(p->old, i, p->other, p->y));
    c->codes += differ(p->codes, p->other, n, 1);
    c->scales += differ(p->x, p->y, n_scales, sizeof(float));
    return QM_OK;
}

/* Copies the new kernel's raw state and parameter to the old kernel's plan. */
static qm_status start_old(struct plan *p, const struct qm_tensor *param)
{
    for (int i = 0; i < p->r.rule->n_slots; i++) {
        struct qm_quantizer q = qm_recipe_slot(&p->r, i, &p->shape);
        QM_TRY(qm_backend_file.save(p->now, i, q.bits ? p->codes : NULL, p->x));
        QM_TRY(qm_backend_file.load(p->old, i, q.bits ? p->codes : NULL, p->x));
    }
    memcpy(p->p, param->data, (size_t)p->format.bytes * (size_t)p->n);
    if (p->format.residual_bytes) {
        QM_TRY(qm_backend_file.save(p->now, QM_RESIDUAL, p->residual[0], NULL));
        QM_TRY(qm_backend_file.load(p->old, QM_RESIDUAL, p->residual[0], NULL));
    }
    return QM_OK;
}

/* Compares the float32 values of the parameters, with their residuals. */
static qm_status compare_params(struct plan *p, const struct qm_tensor *param)
{
    if (p->format.residual_bytes) {
        QM_TRY(qm_backend_file.save(p->now, QM_RESIDUAL, p->residual[0], NULL));
        QM_TRY(qm_backend_file.save(p->old, QM_RESIDUAL, p->residual[1], NULL));
    }
    for (int64_t i = 0; i < p->n; i++) {
        p->x[i] = (float)qm_stored_seen(&p->format, param->data, p->residual[0], i);
        p->y[i] = (float)qm_stored_seen(&p->format, p->p, p->residual[1], i);
    }
    add_errors(&comparison.count[PARAMETER], p->x, p->y, p->want[PARAMETER], p->n);
    return QM_OK;
}

static qm_status compare_step(void *plan, struct qm_tensor *param, const struct qm_tensor *g,
                              int64_t t, uint64_t seed)
{
    struct plan *p = plan;
    if (!p->counts)
        return qm_backend_file.step(p->now, param, g, t, seed);
    QM_TRY(start_old(p, param));
    QM_TRY(run_oracle(p, param, g, t));
    QM_TRY(qm_backend_file.step(p->now, param, g, t, seed));
    struct qm_tensor other = {p->p, param->dtype, p->shape};
    if (qm_backend_file.step(p->old, &other, g, t, seed) != QM_OK)
        return QM_OK; /* the old kernel refuses or writes outside a buffer: not compared */
    QM_TRY(compare_params(p, param));
    for (int i = 0; i < p->r.rule->n_slots; i++)
        QM_TRY(compare_slot(p, i));
    return QM_OK;
}

static qm_status compare_decode(void *plan, int slot, float *out)
{
    return qm_backend_file.decode(((struct plan *)plan)->now, slot, out);
}

static qm_status compare_save(void *plan, int slot, uint8_t *codes, float *scales)
{
    return qm_backend_file.save(((struct plan *)plan)->now, slot, codes, scales);
}

static qm_status compare_load(void *plan, int slot, const uint8_t *codes, const float *scales)
{
    return qm_backend_file.load(((struct plan *)plan)->now, slot, codes, scales);
}

static int64_t compare_bytes(const void *plan)
{
    return qm_backend_file.bytes(((const struct plan *)plan)->now);
}

static qm_status compare_hyper(void *plan, const struct qm_hyper *h)
{
    struct plan *p = plan;
    QM_TRY(qm_backend_file.hyper(p->now, h));
    QM_TRY(qm_recipe_schedule(&p->r, &p->shape, h));
    return qm_backend_file.hyper(p->old, h);
}

static qm_status compare_restart(void)
{
    qm_kernel_file_use(comparison.old);
    QM_TRY(qm_backend_file.restart());
    qm_kernel_file_use(comparison.now);
    return qm_backend_file.restart();
}

static qm_status compare_probe(void) { return QM_OK; }

const struct qm_backend qm_backend_compare = {
    .name = "compare",
    .probe = compare_probe,
    .open = compare_open,
    .step = compare_step,
    .decode = compare_decode,
    .save = compare_save,
    .load = compare_load,
    .bytes = compare_bytes,
    .close = compare_close,
    .hyper = compare_hyper,
    .restart = compare_restart,
};
