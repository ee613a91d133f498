/* peer_rules.c - Backend that judges a kernel by the acceptance rules of other projects. */
#include "experiments/kernel/peer_rules.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/fnv1a.h"

enum { LOCAL_STEPS = 3, TORCHAO_STEPS = 2, FLASH_STEPS = 20 };

struct plan {
    void *kernel; /* the judged kernel's plan */
    void *cpu;    /* the composed step, restarted from the kernel's state each step */
    void *free_cpu, *free_kernel; /* both without restarts */
    struct qm_recipe r;
    struct qm_shape shape;
    int64_t n, most; /* elements of the parameter; most of it and of all slots */
    int is_judged, steps;
    float *p, *p0, *p_free_cpu, *p_free_kernel, *x, *y, *g[LOCAL_STEPS]; /* one allocation */
    uint8_t *codes, *other;
};

/* The state of the case.  Each thread has one, because the functions of a qm_backend receive no
 * argument of their caller and a thread judges one case at a time. */
static _Thread_local struct {
    struct qm_kernel_file *kernel;
    struct qm_peer_rules_result result;
    int next_is_judged; /* 1: the plan that is opened next is judged */
} current;

static const char *const names[] = {
#define X(name, text) #name,
    QM_PEER_RULE_LIST(X)
#undef X
};
static const char *const texts[] = {
#define X(name, text) text,
    QM_PEER_RULE_LIST(X)
#undef X
};

const char *qm_peer_rule_name(int rule) { return names[rule]; }
const char *qm_peer_rule_text(int rule) { return texts[rule]; }

void qm_peer_rules_begin(struct qm_kernel_file *kernel)
{
    current.kernel = kernel;
    current.next_is_judged = 1;
    current.result = (struct qm_peer_rules_result){.digest = QM_FNV1A};
}

struct qm_peer_rules_result qm_peer_rules_result(void) { return current.result; }

/* ---- the rules ------------------------------------------------------------------------------- */

static void reject(enum qm_peer_rule rule) { current.result.killed |= 1u << rule; }

int qm_peer_rule_nmse(const float *got, const float *want, int64_t n, double limit)
{
    double off = 0.0, size = 0.0;
    for (int64_t i = 0; i < n; i++) {
        double d = (double)got[i] - (double)want[i];
        off += got[i] == want[i] ? 0.0 : d * d;
        size += (double)want[i] * (double)want[i];
    }
    return off == 0.0 || off / size <= limit;
}

int qm_peer_rule_close(const float *got, const float *want, int64_t n, double atol, double rtol,
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
    if (!qm_peer_rule_nmse(got, want, n, 1e-7))
        reject(QM_PEER_RULE_ggml_p);
    if (!qm_peer_rule_close(got, want, n, 1e-5, 1e-3, 0) || !bnb_means(got, want, n))
        reject(QM_PEER_RULE_bnb);
    if (!qm_peer_rule_close(got, want, n, 1e-6, 5e-6, 0))
        reject(QM_PEER_RULE_te);
}

/* FlashOptim's rules: NMSE and cosine of the change from p0. */
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
        reject(QM_PEER_RULE_flash2);
    if (!(nmse < 5e-4 && cosine > 0.999))
        reject(QM_PEER_RULE_flash4);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static struct qm_shape slot_shape(const struct plan *p, int i)
{
    struct qm_shape s;
    qm_rule_slot_shape(p->r.rule, &p->r.hyper, i, &p->shape, &s);
    return s;
}

static void digest(const void *data, size_t bytes)
{
    current.result.digest = qm_fnv1a(current.result.digest, data, bytes);
}

/* Judges one slot of the kernel against the composed step's. */
static qm_status judge_slot(struct plan *p, int i)
{
    struct qm_quantizer q = qm_recipe_slot(&p->r, i, &p->shape);
    struct qm_shape shape = slot_shape(p, i);
    struct qm_codec c;
    int64_t n = qm_shape_numel(&shape), n_scales;
    QM_TRY(qm_backend_file.decode(p->kernel, i, p->x));
    QM_TRY(qm_backend_cpu.decode(p->cpu, i, p->y));
    if (!qm_peer_rule_nmse(p->x, p->y, n, 5e-4))
        reject(QM_PEER_RULE_ggml_s);
    if (!qm_peer_rule_close(p->x, p->y, n, 3e-3, 1e-3, 19))
        reject(QM_PEER_RULE_bnb);
    if (q.bits == 0) {
        digest(p->x, sizeof(float) * (size_t)n);
        if (!qm_peer_rule_close(p->x, p->y, n, 1e-6, 5e-6, 0))
            reject(QM_PEER_RULE_te);
        return QM_OK;
    }
    QM_TRY(qm_codec_init(&c, &q));
    n_scales = qm_scale_count(&c, &shape);
    QM_TRY(qm_backend_file.save(p->kernel, i, p->codes, p->x));
    QM_TRY(qm_backend_cpu.save(p->cpu, i, p->other, p->y));
    digest(p->codes, (size_t)n);
    digest(p->x, sizeof(float) * (size_t)n_scales);
    int adjacent = qm_peer_rule_close(p->x, p->y, n_scales, 1e-6, 5e-6, 0);
    for (int64_t k = 0; k < n; k++)
        adjacent &= abs(c.cb.position_of[p->codes[k]] - c.cb.position_of[p->other[k]]) <= 1;
    if (!adjacent)
        reject(QM_PEER_RULE_te);
    return QM_OK;
}

/* Copies the kernel's raw state to the composed step's plan.  Not QM_OK: the plan refuses the
 * state. */
static qm_status start_cpu(struct plan *p)
{
    for (int i = 0; i < p->r.rule->n_slots; i++) {
        struct qm_quantizer q = qm_recipe_slot(&p->r, i, &p->shape);
        QM_TRY(qm_backend_file.save(p->kernel, i, q.bits ? p->codes : NULL, p->x));
        QM_TRY(qm_backend_cpu.load(p->cpu, i, q.bits ? p->codes : NULL, p->x));
    }
    if (qm_param_residual(&p->r.param)) {
        QM_TRY(qm_backend_file.save(p->kernel, QM_RESIDUAL, p->codes, NULL));
        QM_TRY(qm_backend_cpu.load(p->cpu, QM_RESIDUAL, p->codes, NULL));
    }
    return QM_OK;
}

/* Converts a parameter to float32 in `to`; returns it. */
static const float *widened(const struct plan *p, const void *param, float *to)
{
    qm_to_float(param, qm_param_type(p->r.param.format), 0, p->n, to);
    return to;
}

/* Steps the two plans that run without restarts. */
static qm_status step_free(struct plan *p, const struct qm_tensor *like, const void *g, int64_t t,
                           uint64_t seed)
{
    struct qm_tensor tg = *like,
                     now = {p->p_free_kernel, qm_param_type(p->r.param.format), p->shape};
    struct qm_tensor want = {p->p_free_cpu, now.dtype, p->shape};
    tg.data = (void *)(uintptr_t)g;
    QM_TRY(qm_backend_file.step(p->free_kernel, &now, &tg, t, seed));
    return qm_backend_cpu.step(p->free_cpu, &want, &tg, t, seed);
}

static qm_status judge_free(struct plan *p, const struct qm_tensor *g, int64_t t, uint64_t seed)
{
    QM_TRY(step_free(p, g, g->data, t, seed));
    if (p->steps == TORCHAO_STEPS &&
        !qm_peer_rule_close(widened(p, p->p_free_kernel, p->x), widened(p, p->p_free_cpu, p->y),
                            p->n, 1e-5, 1e-5, 0))
        reject(QM_PEER_RULE_torchao);
    if (p->steps < LOCAL_STEPS)
        return QM_OK;
    for (int k = LOCAL_STEPS; k < FLASH_STEPS; k++)
        QM_TRY(step_free(p, g, p->g[k % LOCAL_STEPS], t + 1 + k - LOCAL_STEPS, seed));
    judge_change(widened(p, p->p_free_kernel, p->x), widened(p, p->p_free_cpu, p->y),
                 widened(p, p->p0, p->p), p->n);
    return QM_OK;
}

static qm_status peer_step(void *plan, struct qm_tensor *param, const struct qm_tensor *g,
                           int64_t t, uint64_t seed)
{
    struct plan *p = plan;
    size_t n = (size_t)p->n, bytes = n * (size_t)qm_param_bytes(&p->r.param);
    if (!p->is_judged || p->steps == LOCAL_STEPS)
        return qm_backend_file.step(p->kernel, param, g, t, seed);
    if (start_cpu(p) != QM_OK) { /* a code that does not exist: every rule rejects the kernel */
        current.result.killed = (1u << QM_PEER_RULE_COUNT) - 1u;
        p->is_judged = 0;
        return qm_backend_file.step(p->kernel, param, g, t, seed);
    }
    memcpy(p->p, param->data, bytes);
    if (p->steps == 0) {
        memcpy(p->p0, param->data, bytes);
        memcpy(p->p_free_cpu, param->data, bytes);
        memcpy(p->p_free_kernel, param->data, bytes);
    }
    memcpy(p->g[p->steps++], g->data, n * qm_dtype_size(g->dtype));
    QM_TRY(qm_backend_file.step(p->kernel, param, g, t, seed));
    struct qm_tensor want = {p->p, param->dtype, p->shape};
    QM_TRY(qm_backend_cpu.step(p->cpu, &want, g, t, seed));
    digest(param->data, bytes);
    if (qm_param_residual(&p->r.param)) {
        QM_TRY(qm_backend_file.save(p->kernel, QM_RESIDUAL, p->codes, NULL));
        digest(p->codes, n * (size_t)qm_param_residual(&p->r.param));
    }
    judge_parameters(widened(p, param->data, p->x), widened(p, p->p, p->y), p->n);
    for (int i = 0; i < p->r.rule->n_slots; i++)
        QM_TRY(judge_slot(p, i));
    return judge_free(p, g, t, seed);
}

/* ---- plans ----------------------------------------------------------------------------------- */

static void peer_close(void *plan)
{
    struct plan *p = plan;
    if (!p)
        return;
    qm_backend_file.close(p->kernel);
    qm_backend_file.close(p->free_kernel);
    qm_backend_cpu.close(p->cpu);
    qm_backend_cpu.close(p->free_cpu);
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
    size_t room = 2 * (size_t)p->most + 512; /* a tiny tensor may have more scales than elements */
    float **part[] = {&p->p, &p->p0,   &p->p_free_cpu, &p->p_free_kernel, &p->x,
                      &p->y, &p->g[0], &p->g[1],       &p->g[2]};
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

static qm_status peer_open(const struct qm_recipe *r, const struct qm_shape *shape, uint32_t tensor,
                           void **plan)
{
    struct plan *p = calloc(1, sizeof *p);
    if (!p)
        return qm_fail(QM_NO_MEMORY, "plan for %s", r->base->name);
    p->r = *r;
    p->shape = *shape;
    p->n = qm_shape_numel(shape);
    p->is_judged = current.next_is_judged;
    current.next_is_judged = 0;
    qm_kernel_file_use(current.kernel);
    qm_status st = qm_backend_file.open(r, shape, tensor, &p->kernel);
    if (st == QM_OK && p->is_judged)
        st = qm_backend_file.open(r, shape, tensor, &p->free_kernel);
    if (st == QM_OK && p->is_judged)
        st = qm_backend_cpu.open(r, shape, tensor, &p->cpu);
    if (st == QM_OK && p->is_judged)
        st = qm_backend_cpu.open(r, shape, tensor, &p->free_cpu);
    if (st == QM_OK)
        st = memory(p);
    if (st == QM_OK)
        *plan = p;
    else
        peer_close(p);
    return st;
}

static qm_status peer_decode(void *plan, int slot, float *out)
{
    return qm_backend_file.decode(((struct plan *)plan)->kernel, slot, out);
}

static qm_status peer_save(void *plan, int slot, uint8_t *codes, float *scales)
{
    return qm_backend_file.save(((struct plan *)plan)->kernel, slot, codes, scales);
}

static qm_status peer_load(void *plan, int slot, const uint8_t *codes, const float *scales)
{
    struct plan *p = plan;
    QM_TRY(qm_backend_file.load(p->kernel, slot, codes, scales));
    if (!p->is_judged)
        return QM_OK;
    QM_TRY(qm_backend_file.load(p->free_kernel, slot, codes, scales));
    return qm_backend_cpu.load(p->free_cpu, slot, codes, scales);
}

static int64_t peer_bytes(const void *plan)
{
    return qm_backend_file.bytes(((const struct plan *)plan)->kernel);
}

static qm_status peer_hyper(void *plan, const struct qm_hyper *h)
{
    struct plan *p = plan;
    QM_TRY(qm_backend_file.hyper(p->kernel, h));
    QM_TRY(qm_recipe_schedule(&p->r, &p->shape, h));
    if (!p->is_judged)
        return QM_OK;
    QM_TRY(qm_backend_file.hyper(p->free_kernel, h));
    QM_TRY(qm_backend_cpu.hyper(p->cpu, h));
    return qm_backend_cpu.hyper(p->free_cpu, h);
}

static qm_status peer_restart(void)
{
    qm_kernel_file_use(current.kernel);
    return qm_backend_file.restart();
}

static qm_status peer_probe(void) { return QM_OK; }

const struct qm_backend qm_backend_peer_rules = {
    .name = "peer_rules",
    .probe = peer_probe,
    .open = peer_open,
    .step = peer_step,
    .decode = peer_decode,
    .save = peer_save,
    .load = peer_load,
    .bytes = peer_bytes,
    .close = peer_close,
    .hyper = peer_hyper,
    .restart = peer_restart,
};
