/* peer_rules.c - runs the composed step beside a kernel and asks the rules of the field. */
#include "experiments/kernel/peer_rules.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LOCAL_STEPS = 3, TORCHAO_STEPS = 2, FLASH_STEPS = 20 };

struct plan {
    void *now;                  /* the kernel */
    void *near, *far, *far_now; /* composed from the kernel's state; both running free */
    struct qm_recipe r;
    struct qm_shape shape;
    int64_t n, most;
    int watched, steps;
    float *p, *p0, *p_far, *p_far_now, *x, *y, *g[LOCAL_STEPS]; /* one allocation */
    uint8_t *codes, *other;
};

static struct qm_kernel_file *kernel_now;
static struct qm_watch_result result;
static int next_is_watched;

static const char *const names[] = {
#define X(name, text) #name,
    QM_FIELD_LIST(X)
#undef X
};
static const char *const texts[] = {
#define X(name, text) text,
    QM_FIELD_LIST(X)
#undef X
};

const char *qm_field_name(int rule) { return names[rule]; }
const char *qm_field_text(int rule) { return texts[rule]; }

void qm_watch_case(struct qm_kernel_file *kernel)
{
    kernel_now = kernel;
    next_is_watched = 1;
    result = (struct qm_watch_result){.digest = 0xcbf29ce484222325u};
}

struct qm_watch_result qm_watch_result(void) { return result; }

/* ---- the rules ----------------------------------------------------------------------------- */

static void reject(enum qm_field rule) { result.killed |= 1u << rule; }

int qm_field_nmse(const float *got, const float *want, int64_t n, double limit)
{
    double off = 0.0, size = 0.0;
    for (int64_t i = 0; i < n; i++) {
        double d = (double)got[i] - (double)want[i];
        off += got[i] == want[i] ? 0.0 : d * d;
        size += (double)want[i] * (double)want[i];
    }
    return off == 0.0 || off / size <= limit;
}

int qm_field_close(const float *got, const float *want, int64_t n, double atol, double rtol,
                   int64_t allowed)
{
    int64_t far = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = fabs((double)got[i] - (double)want[i]);
        far += got[i] != want[i] && !(d <= atol + rtol * fabs((double)want[i]));
    }
    return far <= allowed;
}

static int bnb_means(const float *got, const float *want, int64_t n)
{
    double error = 0.0, relative = 0.0;
    for (int64_t i = 0; i < n; i++) {
        double d = got[i] == want[i] ? 0.0 : fabs((double)got[i] - (double)want[i]);
        error += d;
        relative += d / (fabs((double)want[i]) + 1e-9);
    }
    return error < 6e-5 * (double)n && relative < 6e-4 * (double)n;
}

static void judge_parameters(const float *got, const float *want, int64_t n)
{
    if (!qm_field_nmse(got, want, n, 1e-7))
        reject(QM_FIELD_ggml_p);
    if (!qm_field_close(got, want, n, 1e-5, 1e-3, 0) || !bnb_means(got, want, n))
        reject(QM_FIELD_bnb);
    if (!qm_field_close(got, want, n, 1e-6, 5e-6, 0))
        reject(QM_FIELD_te);
}

/* NMSE and cosine of the change from p0. */
static void judge_change(const float *got, const float *want, const float *p0, int64_t n)
{
    double off = 0.0, size = 0.0, other = 0.0, dot = 0.0;
    for (int64_t i = 0; i < n; i++) {
        double a = (double)want[i] - (double)p0[i], b = (double)got[i] - (double)p0[i];
        off += got[i] == want[i] ? 0.0 : (a - b) * (a - b);
        size += a * a;
        other += b * b;
        dot += a * b;
    }
    double nmse = off / size, cosine = dot / sqrt(size * other);
    if (off == 0.0)
        return;
    if (!(nmse < 0.01 && cosine > 0.99))
        reject(QM_FIELD_flash2);
    if (!(nmse < 5e-4 && cosine > 0.999))
        reject(QM_FIELD_flash4);
}

/* ---- steps --------------------------------------------------------------------------------- */

static struct qm_shape slot_shape(const struct plan *p, int i)
{
    struct qm_shape s;
    qm_rule_slot_shape(p->r.rule, &p->r.hyper, i, &p->shape, &s);
    return s;
}

static void digest(const void *data, size_t bytes)
{
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++)
        result.digest = (result.digest ^ at[i]) * 0x100000001b3u;
}

/* One slot of the kernel's against the composed step's. */
static qm_status judge_slot(struct plan *p, int i)
{
    struct qm_quantizer q = qm_recipe_slot(&p->r, i, &p->shape);
    struct qm_shape shape = slot_shape(p, i);
    struct qm_codec c;
    int64_t n = qm_shape_numel(&shape), n_scales;
    QM_TRY(qm_backend_file.decode(p->now, i, p->x));
    QM_TRY(qm_backend_cpu.decode(p->near, i, p->y));
    if (!qm_field_nmse(p->x, p->y, n, 5e-4))
        reject(QM_FIELD_ggml_s);
    if (!qm_field_close(p->x, p->y, n, 3e-3, 1e-3, 19))
        reject(QM_FIELD_bnb);
    if (q.bits == 0) {
        digest(p->x, sizeof(float) * (size_t)n);
        if (!qm_field_close(p->x, p->y, n, 1e-6, 5e-6, 0))
            reject(QM_FIELD_te);
        return QM_OK;
    }
    QM_TRY(qm_codec_init(&c, &q));
    n_scales = qm_scale_count(&c, &shape);
    QM_TRY(qm_backend_file.save(p->now, i, p->codes, p->x));
    QM_TRY(qm_backend_cpu.save(p->near, i, p->other, p->y));
    digest(p->codes, (size_t)n);
    digest(p->x, sizeof(float) * (size_t)n_scales);
    int adjacent = qm_field_close(p->x, p->y, n_scales, 1e-6, 5e-6, 0);
    for (int64_t k = 0; k < n; k++)
        adjacent &= abs(c.cb.position_of[p->codes[k]] - c.cb.position_of[p->other[k]]) <= 1;
    if (!adjacent)
        reject(QM_FIELD_te);
    return QM_OK;
}

/* The composed step from the kernel's state, which is copied raw.  QM_BAD_ARG or so: it cannot take
 * that state. */
static qm_status start_near(struct plan *p)
{
    for (int i = 0; i < p->r.rule->n_slots; i++) {
        struct qm_quantizer q = qm_recipe_slot(&p->r, i, &p->shape);
        QM_TRY(qm_backend_file.save(p->now, i, q.bits ? p->codes : NULL, p->x));
        QM_TRY(qm_backend_cpu.load(p->near, i, q.bits ? p->codes : NULL, p->x));
    }
    if (qm_param_residual(&p->r.param)) {
        QM_TRY(qm_backend_file.save(p->now, QM_RESIDUAL, p->codes, NULL));
        QM_TRY(qm_backend_cpu.load(p->near, QM_RESIDUAL, p->codes, NULL));
    }
    return QM_OK;
}

/* A parameter as floats. */
static const float *widened(const struct plan *p, const void *param, float *to)
{
    qm_to_float(param, qm_param_type(p->r.param.format), 0, p->n, to);
    return to;
}

/* Both sides free from the same start. */
static qm_status step_far(struct plan *p, const struct qm_tensor *like, const void *g, int64_t t,
                          uint64_t seed)
{
    struct qm_tensor tg = *like, now = {p->p_far_now, qm_param_type(p->r.param.format), p->shape};
    struct qm_tensor want = {p->p_far, now.dtype, p->shape};
    tg.data = (void *)(uintptr_t)g;
    QM_TRY(qm_backend_file.step(p->far_now, &now, &tg, t, seed));
    return qm_backend_cpu.step(p->far, &want, &tg, t, seed);
}

static qm_status far(struct plan *p, const struct qm_tensor *g, int64_t t, uint64_t seed)
{
    QM_TRY(step_far(p, g, g->data, t, seed));
    if (p->steps == TORCHAO_STEPS &&
        !qm_field_close(widened(p, p->p_far_now, p->x), widened(p, p->p_far, p->y), p->n, 1e-5,
                        1e-5, 0))
        reject(QM_FIELD_torchao);
    if (p->steps < LOCAL_STEPS)
        return QM_OK;
    for (int k = LOCAL_STEPS; k < FLASH_STEPS; k++)
        QM_TRY(step_far(p, g, p->g[k % LOCAL_STEPS], t + 1 + k - LOCAL_STEPS, seed));
    judge_change(widened(p, p->p_far_now, p->x), widened(p, p->p_far, p->y),
                 widened(p, p->p0, p->p), p->n);
    return QM_OK;
}

static qm_status watch_step(void *plan, struct qm_tensor *param, const struct qm_tensor *g,
                            int64_t t, uint64_t seed)
{
    struct plan *p = plan;
    size_t n = (size_t)p->n, bytes = n * (size_t)qm_param_bytes(&p->r.param);
    if (!p->watched || p->steps == LOCAL_STEPS)
        return qm_backend_file.step(p->now, param, g, t, seed);
    if (start_near(p) != QM_OK) { /* a code that does not exist: no number is right any more */
        result.killed = (1u << QM_FIELD_COUNT) - 1u;
        p->watched = 0;
        return qm_backend_file.step(p->now, param, g, t, seed);
    }
    memcpy(p->p, param->data, bytes);
    if (p->steps == 0) {
        memcpy(p->p0, param->data, bytes);
        memcpy(p->p_far, param->data, bytes);
        memcpy(p->p_far_now, param->data, bytes);
    }
    memcpy(p->g[p->steps++], g->data, n * qm_dtype_size(g->dtype));
    QM_TRY(qm_backend_file.step(p->now, param, g, t, seed));
    struct qm_tensor want = {p->p, param->dtype, p->shape};
    QM_TRY(qm_backend_cpu.step(p->near, &want, g, t, seed));
    digest(param->data, bytes);
    if (qm_param_residual(&p->r.param)) {
        QM_TRY(qm_backend_file.save(p->now, QM_RESIDUAL, p->codes, NULL));
        digest(p->codes, n * (size_t)qm_param_residual(&p->r.param));
    }
    judge_parameters(widened(p, param->data, p->x), widened(p, p->p, p->y), p->n);
    for (int i = 0; i < p->r.rule->n_slots; i++)
        QM_TRY(judge_slot(p, i));
    return far(p, g, t, seed);
}

/* ---- plans --------------------------------------------------------------------------------- */

static void watch_close(void *plan)
{
    struct plan *p = plan;
    if (!p)
        return;
    qm_backend_file.close(p->now);
    qm_backend_file.close(p->far_now);
    qm_backend_cpu.close(p->near);
    qm_backend_cpu.close(p->far);
    free(p->p);
    free(p->codes);
    free(p);
}

static qm_status memory(struct plan *p)
{
    p->most = p->n;
    for (int i = 0; i < p->r.rule->n_slots; i++) {
        struct qm_shape s = slot_shape(p, i);
        p->most = qm_shape_numel(&s) > p->most ? qm_shape_numel(&s) : p->most;
    }
    size_t room = 2 * (size_t)p->most + 512; /* of tiny tensors there may be more scales */
    float **part[] = {&p->p, &p->p0,   &p->p_far, &p->p_far_now, &p->x,
                      &p->y, &p->g[0], &p->g[1],  &p->g[2]};
    enum { PARTS = sizeof part / sizeof *part };
    float *all = malloc(PARTS * sizeof(float) * room);
    p->codes = malloc(4 * room); /* residuals have two bytes */
    if (!all || !p->codes) {
        free(all);
        return qm_fail(QM_NO_MEMORY, "buffers of %lld elements", (long long)p->most);
    }
    for (size_t i = 0; i < PARTS; i++)
        *part[i] = all + i * room;
    p->other = p->codes + 2 * room;
    return QM_OK;
}

static qm_status watch_open(const struct qm_recipe *r, const struct qm_shape *shape,
                            uint32_t tensor, void **plan)
{
    struct plan *p = calloc(1, sizeof *p);
    if (!p)
        return qm_fail(QM_NO_MEMORY, "plan for %s", r->base->name);
    p->r = *r;
    p->shape = *shape;
    p->n = qm_shape_numel(shape);
    p->watched = next_is_watched;
    next_is_watched = 0;
    qm_kernel_file_use(kernel_now);
    qm_status st = qm_backend_file.open(r, shape, tensor, &p->now);
    if (st == QM_OK && p->watched)
        st = qm_backend_file.open(r, shape, tensor, &p->far_now);
    if (st == QM_OK && p->watched)
        st = qm_backend_cpu.open(r, shape, tensor, &p->near);
    if (st == QM_OK && p->watched)
        st = qm_backend_cpu.open(r, shape, tensor, &p->far);
    if (st == QM_OK)
        st = memory(p);
    if (st == QM_OK)
        *plan = p;
    else
        watch_close(p);
    return st;
}

static qm_status watch_decode(void *plan, int slot, float *out)
{
    return qm_backend_file.decode(((struct plan *)plan)->now, slot, out);
}

static qm_status watch_save(void *plan, int slot, uint8_t *codes, float *scales)
{
    return qm_backend_file.save(((struct plan *)plan)->now, slot, codes, scales);
}

static qm_status watch_load(void *plan, int slot, const uint8_t *codes, const float *scales)
{
    struct plan *p = plan;
    QM_TRY(qm_backend_file.load(p->now, slot, codes, scales));
    if (!p->watched)
        return QM_OK;
    QM_TRY(qm_backend_file.load(p->far_now, slot, codes, scales));
    return qm_backend_cpu.load(p->far, slot, codes, scales);
}

static int64_t watch_bytes(const void *plan)
{
    return qm_backend_file.bytes(((const struct plan *)plan)->now);
}

static qm_status watch_probe(void) { return QM_OK; }

const struct qm_backend qm_backend_watch = {
    .name = "watch",
    .probe = watch_probe,
    .open = watch_open,
    .step = watch_step,
    .decode = watch_decode,
    .save = watch_save,
    .load = watch_load,
    .bytes = watch_bytes,
    .close = watch_close,
};
