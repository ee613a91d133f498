/* kernel_compare.c - runs an old kernel beside the one that is judged. */
#include "experiments/kernel/kernel_compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/check/stored.h"
#include "experiments/recipes/oracle_hyper.h"
#include "oracle/oracle.h"

enum { PARAMETER = QM_MAX_SLOTS };

struct plan {
    void *now, *old;
    struct qm_recipe r;
    struct qm_shape shape;
    int64_t n, most; /* most: of the parameter and all slots */
    uint32_t tensor;
    int counts;
    struct qm_stored format; /* of the parameter */
    void *p, *residual[2];   /* of the old kernel: as stored; residuals of both */
    float *x, *y;
    uint8_t *codes, *other;
    double *want[QM_MAX_SLOTS + 1], *g;
};

static struct qm_kernel_file *kernel_now, *kernel_old;
static struct qm_kernel_compare_count counts[QM_MAX_SLOTS + 1];
static int next_counts;

void qm_kernel_compare_use(struct qm_kernel_file *now, struct qm_kernel_file *old)
{
    kernel_now = now;
    kernel_old = old;
    memset(counts, 0, sizeof counts);
}

void qm_kernel_compare_case(void)
{
    memset(counts, 0, sizeof counts);
    next_counts = 1;
}

const struct qm_kernel_compare_count *qm_kernel_compare_counts(void) { return counts; }

/* Elements of slot i, as the rule shapes it. */
static int64_t slot_n(const struct plan *p, int i)
{
    struct qm_shape s;
    qm_rule_slot_shape(p->r.rule, &p->r.hyper, i, &p->shape, &s);
    return qm_shape_numel(&s);
}

static void versus_close(void *plan)
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
    size_t room = 2 * (size_t)p->most + 512; /* of tiny tensors there may be more scales */
    size_t beside = (size_t)p->format.residual_bytes * room;
    p->p = malloc((size_t)p->format.bytes * room + 2 * beside);
    p->x = malloc(2 * sizeof(float) * room);
    p->codes = malloc(2 * room);
    p->g = malloc((size_t)(slots + 2) * sizeof(double) * room);
    if (!p->p || !p->x || !p->codes || !p->g)
        return qm_fail(QM_NO_MEMORY, "buffers of %lld elements", (long long)p->most);
    p->residual[0] = (char *)p->p + (size_t)p->format.bytes * room;
    p->residual[1] = (char *)p->residual[0] + beside;
    p->y = p->x + room;
    p->other = p->codes + room;
    for (int i = 0; i < slots; i++)
        p->want[i] = p->g + (size_t)(i + 1) * room;
    p->want[PARAMETER] = p->g + (size_t)(slots + 1) * room;
    return QM_OK;
}

static qm_status versus_open(const struct qm_recipe *r, const struct qm_shape *shape,
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
    p->counts = next_counts;
    next_counts = 0;
    qm_kernel_file_use(kernel_now);
    qm_status st = qm_backend_file.open(r, shape, tensor, &p->now);
    qm_kernel_file_use(kernel_old);
    if (st == QM_OK)
        st = qm_backend_file.open(r, shape, tensor, &p->old);
    if (st == QM_OK)
        st = memory(p);
    if (st == QM_OK)
        *plan = p;
    else
        versus_close(p);
    return st;
}

/* The oracle's step from the state that both start from. */
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

static void compare(struct qm_kernel_compare_count *c, const float *now, const float *old,
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
    struct qm_kernel_compare_count *c = &counts[i];
    int64_t n = slot_n(p, i), n_scales = 0;
    QM_TRY(qm_backend_file.decode(p->now, i, p->x));
    QM_TRY(qm_backend_file.decode(p->old, i, p->y));
    compare(c, p->x, p->y, p->want[i], n);
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

/* The old kernel from the new one's state, which is copied raw. */
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

/* Parameters as the rule sees them. */
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
    compare(&counts[PARAMETER], p->x, p->y, p->want[PARAMETER], p->n);
    return QM_OK;
}

static qm_status versus_step(void *plan, struct qm_tensor *param, const struct qm_tensor *g,
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
        return QM_OK; /* it refuses, or writes where it should not: not compared */
    QM_TRY(compare_params(p, param));
    for (int i = 0; i < p->r.rule->n_slots; i++)
        QM_TRY(compare_slot(p, i));
    return QM_OK;
}

static qm_status versus_decode(void *plan, int slot, float *out)
{
    return qm_backend_file.decode(((struct plan *)plan)->now, slot, out);
}

static qm_status versus_save(void *plan, int slot, uint8_t *codes, float *scales)
{
    return qm_backend_file.save(((struct plan *)plan)->now, slot, codes, scales);
}

static qm_status versus_load(void *plan, int slot, const uint8_t *codes, const float *scales)
{
    return qm_backend_file.load(((struct plan *)plan)->now, slot, codes, scales);
}

static int64_t versus_bytes(const void *plan)
{
    return qm_backend_file.bytes(((const struct plan *)plan)->now);
}

static qm_status versus_probe(void) { return QM_OK; }

const struct qm_backend qm_backend_versus = {
    .name = "versus",
    .probe = versus_probe,
    .open = versus_open,
    .step = versus_step,
    .decode = versus_decode,
    .save = versus_save,
    .load = versus_load,
    .bytes = versus_bytes,
    .close = versus_close,
};
