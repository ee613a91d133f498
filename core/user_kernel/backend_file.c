/* backend_file.c - The backend "file": loads a user's kernel file and runs its steps. */
#include "core/user_kernel/backend_file.h"

#include <assert.h>
#include <dlfcn.h>
#include <fenv.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/abi/kernel_abi.h"
#include "core/user_kernel/guarded_memory.h"
#include "core/user_kernel/user_cuda.h"

/* kernel_abi.h repeats the lists of rule.h; a test compares every member. */
_Static_assert(QM_KERNEL_SLOTS == QM_MAX_SLOTS && QM_KERNEL_RANK == QM_MAX_RANK, "kernel_abi.h");

struct qm_kernel_file {
    void *object;
    int (*step)(const struct qm_kernel_args *a);
    const char *as;
    struct qm_user_cuda *gpu; /* kernels on the GPU, in place of `step`; else NULL */

    /* Of a kernel of backend emu, else NULL: the last step's finding, or ""; where a signal
     * struck. */
    const char *(*finding)(void);
    void (*where)(char *text, size_t size);
};

enum { CODES, SCALES, CODEBOOK, DRAWS, SLOT_BUFFERS };
static const char *const buffer_text[] = {"codes", "scales", "codebook", "draws"};

struct slot {
    struct qm_codec c;
    struct qm_shape shape;
    int64_t n, n_scales; /* n_scales of a plain slot: 0 */
    char quantizer[QM_QUANTIZER_TEXT];
    char what[SLOT_BUFFERS][40];
    struct qm_guarded buffer[SLOT_BUFFERS]; /* SCALES: of a plain slot, its values */
};

struct plan {
    struct qm_kernel_file *kernel;
    struct qm_recipe r;
    struct qm_shape shape;
    int64_t n;
    uint32_t tensor;
    int n_slots;
    struct slot slot[QM_MAX_SLOTS];
    struct qm_guarded p, g, residual, draws, args;
    char recipe[QM_RECIPE_TEXT], param[24];
    double seconds;
};

static struct qm_kernel_file *current; /* of plans that are opened from now on */
static const struct plan *running;     /* the plan within a step; read by signal handlers */

/* ---- the file ------------------------------------------------------------------------------ */

/* Opens a cubin of qm_user_cuda_build. */
static qm_status open_on_gpu(const char *object, struct qm_kernel_file **out)
{
    struct qm_kernel_file *k = calloc(1, sizeof *k);
    qm_status st = k ? qm_user_cuda_open(object, &k->gpu) : qm_fail(QM_NO_MEMORY, "%s", object);
    if (st == QM_OK) {
        k->as = qm_user_cuda_as(k->gpu);
        *out = k;
    } else {
        free(k);
    }
    return st;
}

qm_status qm_kernel_file_open(const char *object, struct qm_kernel_file **out)
{
    const char *dot = strrchr(object, '.');
    if (dot && strcmp(dot, ".cubin") == 0)
        return open_on_gpu(object, out);
    void *handle = dlopen(object, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return qm_fail(QM_BAD_FILE, "%s", dlerror());
    const int *abi = dlsym(handle, "qm_kernel_abi");
    void *step = dlsym(handle, "qm_kernel_step");
    struct qm_kernel_file *k = calloc(1, sizeof *k);
    qm_status st = QM_OK;
    if (!k)
        st = qm_fail(QM_NO_MEMORY, "kernel %s", object);
    else if (!step)
        st = qm_fail(QM_BAD_ARG, "the kernel does not export qm_kernel_step (see kernel_abi.h)");
    else if (!abi)
        st = qm_fail(QM_BAD_ARG, "the kernel does not export qm_kernel_abi; put "
                                 "QM_KERNEL(\"VARIANT\"); into it (see kernel_abi.h)");
    else if (*abi != QM_KERNEL_ABI)
        st = qm_fail(QM_BAD_ARG, "the kernel was built for version %d of kernel_abi.h, this is %d",
                     *abi, QM_KERNEL_ABI);
    if (st != QM_OK) {
        free(k);
        dlclose(handle);
        return st;
    }
    k->object = handle;
    memcpy(&k->step, &step, sizeof k->step);
    k->as = dlsym(handle, "qm_kernel_as");
    void *finding = dlsym(handle, "qm_emu_finding"), *where = dlsym(handle, "qm_emu_where");
    memcpy(&k->finding, &finding, sizeof k->finding);
    memcpy(&k->where, &where, sizeof k->where);
    *out = k;
    return QM_OK;
}

void qm_kernel_file_close(struct qm_kernel_file *k)
{
    if (!k)
        return;
    if (current == k)
        current = NULL;
    if (k->object)
        dlclose(k->object);
    qm_user_cuda_close(k->gpu);
    free(k);
}

const char *qm_kernel_file_as(const struct qm_kernel_file *k) { return k->as; }

void *qm_kernel_file_symbol(const struct qm_kernel_file *k, const char *name)
{
    return k->object ? dlsym(k->object, name) : NULL;
}

void qm_kernel_file_use(struct qm_kernel_file *k) { current = k; }

/* ---- plans --------------------------------------------------------------------------------- */

static void file_close(void *plan)
{
    struct plan *p = plan;
    if (!p)
        return;
    for (int i = 0; i < p->n_slots; i++)
        for (int k = 0; k < SLOT_BUFFERS; k++)
            qm_guarded_close(&p->slot[i].buffer[k]);
    qm_guarded_close(&p->p);
    qm_guarded_close(&p->g);
    qm_guarded_close(&p->residual);
    qm_guarded_close(&p->draws);
    qm_guarded_close(&p->args);
    free(p);
}

/* The codebook: what each stored code decodes to at scale 1 (under a curve, its unit value); NaN
 * for codes that do not exist. */
static void fill_codebook(struct slot *s)
{
    float *out = (float *)s->buffer[CODEBOOK].at;
    const struct qm_codebook *cb = &s->c.cb;
    for (int code = 0; code < 1 << s->c.q.bits; code++) {
        int k = cb->position_of[code], exists = cb->perm[k] == code || cb->is_float;
        float value = cb->is_float ? qm_e4m3_to_float((uint8_t)code) : cb->value[k] * cb->post;
        out[code] = exists ? value : qm_float(0x7fc00000u);
    }
    qm_guarded_protect(&s->buffer[CODEBOOK], 1);
}

static qm_status buffer_open(struct slot *s, int which, size_t bytes, const char *slot)
{
    snprintf(s->what[which], sizeof s->what[which], "%s of %s",
             s->c.q.bits ? buffer_text[which] : "values", slot);
    return qm_guarded_open(&s->buffer[which], bytes, s->what[which]);
}

static qm_status slot_open(struct plan *p, int i)
{
    struct slot *s = &p->slot[i];
    struct qm_quantizer q = qm_recipe_slot(&p->r, i, &p->shape);
    const char *name = p->r.rule->slot[i];
    s->shape = p->shape;
    qm_rule_slot_shape(p->r.rule, &p->r.hyper, i, &p->shape, &s->shape);
    s->n = qm_shape_numel(&s->shape);
    qm_quantizer_print(&q, s->quantizer);
    QM_TRY(qm_codec_init(&s->c, &q));
    QM_TRY(qm_codec_fits(&s->c, &s->shape));
    if (q.bits == 0)
        return buffer_open(s, SCALES, sizeof(float) * (size_t)s->n, name);
    s->n_scales = qm_scale_count(&s->c, &s->shape);
    QM_TRY(buffer_open(s, CODES, (size_t)qm_code_bytes(&s->c, s->n), name));
    QM_TRY(buffer_open(s, SCALES, sizeof(float) * (size_t)s->n_scales, name));
    QM_TRY(buffer_open(s, CODEBOOK, sizeof(float) << q.bits, name));
    fill_codebook(s);
    if (qm_round_draws(q.round))
        QM_TRY(buffer_open(s, DRAWS, sizeof(uint32_t) * (size_t)s->n, name));
    int init = p->r.init_code[i] < s->c.cb.n ? p->r.init_code[i]
                                             : 0; /* an override may give a smaller map */
    for (int64_t k = 0; k < s->n && init; k++)
        qm_pack_put(q.pack, q.bits, s->buffer[CODES].at, k, (uint32_t)init);
    for (int64_t k = 0; k < s->n_scales; k++)
        ((float *)s->buffer[SCALES].at)[k] = p->r.init_scale[i];
    return QM_OK;
}

static qm_status buffers_open(struct plan *p)
{
    size_t n = (size_t)p->n, residual = (size_t)qm_param_residual(&p->r.param);
    for (int i = 0; i < p->n_slots; i++)
        QM_TRY(slot_open(p, i));
    QM_TRY(qm_guarded_open(&p->p, n * (size_t)qm_param_bytes(&p->r.param), "parameters"));
    QM_TRY(qm_guarded_open(&p->g, n * sizeof(float), "gradients"));
    QM_TRY(qm_guarded_open(&p->args, sizeof(struct qm_kernel_args), "arguments"));
    if (residual)
        QM_TRY(qm_guarded_open(&p->residual, n * residual, "residuals"));
    if (p->r.param.write == QM_WRITE_stoch)
        QM_TRY(qm_guarded_open(&p->draws, n * sizeof(uint32_t), "draws of the parameters"));
    return QM_OK;
}

static qm_status file_open(const struct qm_recipe *r, const struct qm_shape *shape, uint32_t tensor,
                           void **plan)
{
    if (!current)
        return qm_fail(QM_BAD_ARG, "no kernel file is in use");
    if (qm_shape_numel(shape) < 0)
        return qm_fail(QM_BAD_ARG, "tensor has more than 2^63 elements");
    struct plan *p = calloc(1, sizeof *p);
    if (!p)
        return qm_fail(QM_NO_MEMORY, "plan for %s", r->base->name);
    p->kernel = current;
    p->r = *r;
    if (r->hyper.initial_lr == 0.0)
        p->r.hyper.initial_lr = r->hyper.lr;
    p->shape = *shape;
    p->n = qm_shape_numel(shape);
    p->tensor = tensor;
    p->n_slots = r->rule->n_slots;
    qm_recipe_print(r, p->recipe);
    qm_param_text(&r->param, p->param);
    qm_status st = buffers_open(p);
    if (st == QM_OK)
        *plan = p;
    else
        file_close(p);
    return st;
}

/* ---- a step -------------------------------------------------------------------------------- */

static enum qm_kernel_dtype param_dtype(enum qm_param_format f)
{
    return f == QM_PARAM_f32    ? QM_KERNEL_F32
           : f == QM_PARAM_bf16 ? QM_KERNEL_BF16
           : f == QM_PARAM_f16  ? QM_KERNEL_F16
                                : QM_KERNEL_E4M3;
}

static enum qm_kernel_dtype gradient_dtype(enum qm_dtype d)
{
    return d == QM_DTYPE_f32 ? QM_KERNEL_F32 : d == QM_DTYPE_bf16 ? QM_KERNEL_BF16 : QM_KERNEL_F16;
}

static void *memory(const struct qm_guarded *g) { return g->map ? g->at : NULL; }

/* Writes the random draws of one role into a buffer and makes it read-only. */
static void fill_draws(struct qm_guarded *g, int64_t n, uint64_t seed, int64_t t, uint32_t tensor,
                       enum qm_role role)
{
    struct qm_draws d = qm_draws_for(seed, t, tensor, role);
    if (!g->map)
        return;
    qm_guarded_protect(g, 0);
    for (int64_t i = 0; i < n; i++)
        ((uint32_t *)g->at)[i] = qm_draw(&d, i);
    qm_guarded_protect(g, 1);
}

static void fill_slot(struct slot *s, const char *name, int is_signed, struct qm_kernel_slot *out)
{
    *out = (struct qm_kernel_slot){
        .name = name,
        .quantizer = s->quantizer,
        .bits = s->c.q.bits,
        .is_signed = is_signed,
        .block = s->c.q.bits ? s->c.q.block : 0,
        .n = s->n,
        .ndim = s->shape.rank,
        .codes = memory(&s->buffer[CODES]),
        .code_bytes = s->c.q.bits ? (int64_t)s->buffer[CODES].bytes : 0,
        .n_scales = s->n_scales,
        .codebook = memory(&s->buffer[CODEBOOK]),
        .draws = memory(&s->buffer[DRAWS]),
    };
    *(s->c.q.bits ? &out->scales : &out->values) = memory(&s->buffer[SCALES]);
    memcpy(out->dim, s->shape.dim, sizeof out->dim);
}

static void fill_args(struct plan *p, const struct qm_tensor *g, int64_t t, uint64_t seed,
                      struct qm_kernel_args *a)
{
    const struct qm_hyper *h = &p->r.hyper;
    *a = (struct qm_kernel_args){.abi = QM_KERNEL_ABI,
                                 .recipe = p->recipe,
                                 .n = p->n,
                                 .ndim = p->shape.rank,
                                 .p = p->p.at,
                                 .p_dtype = (int)param_dtype(p->r.param.format),
                                 .param = p->param,
                                 .g = p->g.at,
                                 .g_dtype = (int)gradient_dtype(g->dtype),
                                 .residual = memory(&p->residual),
                                 .p_draws = memory(&p->draws),
                                 .n_slots = p->n_slots,
                                 .t = t,
                                 .seed = seed,
                                 .tensor = p->tensor,
#define X(name, value, text) .name = h->name,
                                 QM_HYPER_LIST(X) QM_HYPER_FLAG_LIST(X)
#undef X
    };
    memcpy(a->dim, p->shape.dim, sizeof a->dim);
    for (int i = 0; i < p->n_slots; i++) {
        enum qm_role role = i == 0 ? QM_ROLE_slot0 : i == 1 ? QM_ROLE_slot1 : QM_ROLE_spare;
        fill_draws(&p->slot[i].buffer[DRAWS], p->slot[i].n, seed, t, p->tensor, role);
        fill_slot(&p->slot[i], p->r.rule->slot[i], p->r.rule->slot_sign[i], &a->slot[i]);
    }
    fill_draws(&p->draws, p->n, seed, t, p->tensor, QM_ROLE_weight);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static const char *first_damaged(const struct plan *p)
{
    const struct qm_guarded *alone[] = {&p->p, &p->residual};
    for (int i = 0; i < 2; i++)
        if (!qm_guarded_is_intact(alone[i]))
            return alone[i]->what;
    for (int i = 0; i < p->n_slots; i++)
        for (int k = 0; k <= SCALES; k++)
            if (!qm_guarded_is_intact(&p->slot[i].buffer[k]))
                return p->slot[i].buffer[k].what;
    return NULL;
}

/* Whether arithmetic rounds to nearest and keeps denormals. */
static int arithmetic_is_plain(void)
{
    volatile float tiny = 0x1p-140f, one = 1.0f, product = tiny * one;
    return fegetround() == FE_TONEAREST && qm_bits(product) == qm_bits(0x1p-140f);
}

/* Writes gradient, draws and arguments into memory that the kernel can only read. */
static qm_status prepare(struct plan *p, const struct qm_tensor *g, int64_t t, uint64_t seed)
{
    size_t g_bytes = (size_t)p->n * qm_dtype_size(g->dtype);
    if (p->g.bytes != g_bytes) { /* of another type than in the last step */
        qm_guarded_close(&p->g);
        QM_TRY(qm_guarded_open(&p->g, g_bytes, "gradients"));
    }
    qm_guarded_protect(&p->g, 0);
    qm_guarded_protect(&p->args, 0);
    memcpy(p->g.at, g->data, g_bytes);
    fill_args(p, g, t, seed, (struct qm_kernel_args *)p->args.at);
    qm_guarded_protect(&p->g, 1);
    qm_guarded_protect(&p->args, 1);
    return QM_OK;
}

static qm_status call(struct plan *p, const struct qm_tensor *g, int64_t t, uint64_t seed)
{
    QM_TRY(prepare(p, g, t, seed));
    fenv_t before;
    fegetenv(&before);
    running = p;
    double from = now();
    int refused = 0;
    qm_status st = QM_OK;
    if (p->kernel->gpu)
        st = qm_user_cuda_step(p->kernel->gpu, (const struct qm_kernel_args *)p->args.at, &refused);
    else
        refused = p->kernel->step((const struct qm_kernel_args *)p->args.at);
    p->seconds = now() - from;
    running = NULL;
    int is_plain = arithmetic_is_plain();
    fesetenv(&before);
    QM_TRY(st);
    if (p->kernel->finding && *p->kernel->finding())
        return qm_fail(QM_CHECK_FAILED, "step %lld: %s", (long long)t, p->kernel->finding());
    if (refused)
        return qm_fail(QM_SKIPPED, "the kernel refuses this input: it returned %d", refused);
    if (!is_plain)
        return qm_fail(QM_CHECK_FAILED,
                       "step %lld left the rounding mode or the treatment of denormals "
                       "changed",
                       (long long)t);
    return QM_OK;
}

static qm_status file_step(void *plan, struct qm_tensor *param, const struct qm_tensor *g,
                           int64_t t, uint64_t seed)
{
    struct plan *p = plan;
    enum qm_dtype stored_as = qm_param_type(p->r.param.format);
    if (param->dtype != stored_as)
        return qm_fail(QM_BAD_ARG, "parameters must be %s, got %s", qm_dtype_name(stored_as),
                       qm_dtype_name(param->dtype));
    if (g->dtype != QM_DTYPE_f32 && g->dtype != QM_DTYPE_bf16 && g->dtype != QM_DTYPE_f16)
        return qm_fail(QM_BAD_ARG, "gradients must be f32, bf16 or f16, got %s",
                       qm_dtype_name(g->dtype));
    if (t < 1)
        return qm_fail(QM_BAD_ARG, "steps count from 1, got %lld", (long long)t);
    if (!g->data)
        return QM_OK;
    memcpy(p->p.at, param->data, p->p.bytes);
    QM_TRY(call(p, g, t, seed));
    memcpy(param->data, p->p.at, p->p.bytes);
    const char *damaged = first_damaged(p);
    if (damaged)
        return qm_fail(QM_CHECK_FAILED, "step %lld wrote outside the buffer of the %s",
                       (long long)t, damaged);
    return QM_OK;
}

qm_status qm_plan_file_args(void *plan, const struct qm_tensor *param, const struct qm_tensor *g,
                            int64_t t, uint64_t seed, const struct qm_kernel_args **out)
{
    struct plan *p = plan;
    memcpy(p->p.at, param->data, p->p.bytes);
    QM_TRY(prepare(p, g, t, seed));
    *out = (const struct qm_kernel_args *)p->args.at;
    return QM_OK;
}

double qm_plan_file_seconds(const void *plan) { return ((const struct plan *)plan)->seconds; }

/* ---- faults -------------------------------------------------------------------------------- */

static void append(char *text, size_t size, const char *more)
{
    size_t used = strlen(text);
    for (; *more && used + 1 < size; more++)
        text[used++] = *more;
    text[used] = '\0';
}

static void append_number(char *text, size_t size, size_t x)
{
    char digits[24] = {0}, *d = digits + sizeof digits - 1;
    do
        *--d = (char)('0' + x % 10);
    while (x /= 10);
    append(text, size, d);
}

/* Describes an address that lies in a buffer's mapping, its unmapped pages included; 0: it does
 * not. */
static int describe(const struct qm_guarded *g, const unsigned char *at, char *text, size_t size)
{
    if (!g->map || at < g->map || at >= g->map + g->map_bytes)
        return 0;
    append(text, size,
           at < g->at              ? "before the "
           : at < g->at + g->bytes ? "within the "
                                   : "past the ");
    append(text, size, g->what);
    if (at >= g->at) {
        append(text, size, at < g->at + g->bytes ? ", byte " : ", end plus ");
        append_number(text, size, (size_t)(at - g->at) - (at < g->at + g->bytes ? 0 : g->bytes));
    }
    append(text, size, at >= g->at && at < g->at + g->bytes ? " (read-only)" : "");
    return 1;
}

const struct qm_kernel_file *qm_kernel_file_running(void)
{
    return running ? running->kernel : NULL;
}

void qm_kernel_file_where(const void *address, char *text, size_t size)
{
    const struct plan *p = running;
    *text = '\0';
    if ((uintptr_t)address < 65536)
        append(text, size, "at a null pointer");
    if (!p || *text)
        return;
    const struct qm_guarded *alone[] = {&p->p, &p->g, &p->residual, &p->draws, &p->args};
    for (int i = 0; i < 5; i++)
        if (describe(alone[i], address, text, size))
            return;
    for (int i = 0; i < p->n_slots; i++)
        for (int k = 0; k < SLOT_BUFFERS; k++)
            if (describe(&p->slot[i].buffer[k], address, text, size))
                return;
}

/* ---- state --------------------------------------------------------------------------------- */

static qm_status slot_check(const struct plan *p, int slot)
{
    if (slot < 0 || slot >= p->n_slots)
        return qm_fail(QM_BAD_ARG, "rule %s has slots 0 to %d, not %d", p->r.rule->name,
                       p->n_slots - 1, slot);
    return QM_OK;
}

static qm_status file_decode(void *plan, int slot, float *out)
{
    struct plan *p = plan;
    QM_TRY(slot_check(p, slot));
    const struct slot *s = &p->slot[slot];
    const float *scales = (const float *)s->buffer[SCALES].at;
    if (s->c.q.bits == 0) {
        memcpy(out, scales, sizeof(float) * (size_t)s->n);
        return QM_OK;
    }
    uint8_t *codes = malloc((size_t)s->n + 1);
    if (!codes)
        return qm_fail(QM_NO_MEMORY, "codes of %lld elements", (long long)s->n);
    qm_unpack_range(&s->c, s->buffer[CODES].at, s->n, codes);
    qm_decode(&s->c, &s->shape, codes, scales, out);
    free(codes);
    return QM_OK;
}

static qm_status file_save(void *plan, int slot, uint8_t *codes, float *scales)
{
    struct plan *p = plan;
    if (slot == QM_RESIDUAL) {
        if (codes && p->residual.map)
            memcpy(codes, p->residual.at, p->residual.bytes);
        return QM_OK;
    }
    QM_TRY(slot_check(p, slot));
    const struct slot *s = &p->slot[slot];
    if (codes && s->c.q.bits)
        qm_unpack_range(&s->c, s->buffer[CODES].at, s->n, codes);
    if (scales)
        memcpy(scales, s->buffer[SCALES].at, s->buffer[SCALES].bytes);
    return QM_OK;
}

static qm_status file_load(void *plan, int slot, const uint8_t *codes, const float *scales)
{
    struct plan *p = plan;
    if (slot == QM_RESIDUAL) {
        if (codes && p->residual.map)
            memcpy(p->residual.at, codes, p->residual.bytes);
        return QM_OK;
    }
    QM_TRY(slot_check(p, slot));
    struct slot *s = &p->slot[slot];
    if (codes && s->c.q.bits)
        qm_pack_range(&s->c, codes, s->n, s->buffer[CODES].at);
    if (scales)
        memcpy(s->buffer[SCALES].at, scales, s->buffer[SCALES].bytes);
    if (s->c.q.bits == 0)
        qm_plain_round(s->c.q.plain, s->n, (float *)s->buffer[SCALES].at);
    return QM_OK;
}

static int64_t file_bytes(const void *plan)
{
    const struct plan *p = plan;
    int64_t sum = qm_param_residual(&p->r.param) * p->n;
    for (int i = 0; i < p->n_slots; i++)
        sum += qm_state_bytes(&p->slot[i].c, &p->slot[i].shape);
    return sum;
}

static qm_status file_probe(void)
{
    return current ? QM_OK : qm_fail(QM_SKIPPED, "no kernel file is in use");
}

const struct qm_backend qm_backend_file = {
    .name = "file",
    .probe = file_probe,
    .open = file_open,
    .step = file_step,
    .decode = file_decode,
    .save = file_save,
    .load = file_load,
    .bytes = file_bytes,
    .close = file_close,
};
