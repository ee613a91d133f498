/* backend_file.c - The backend "file": plans of a user's kernel, in this process or another. */
#include "core/user_kernel/backend_file.h"
#include "core/base/clock.h"

#include <assert.h>
#include <fenv.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/abi/kernel_abi.h"
#include "core/user_kernel/arena.h"
#include "core/user_kernel/kernel_object.h"

/* kernel_abi.h repeats the lists of rule.h; a test compares every member. */
_Static_assert(QM_KERNEL_SLOTS == QM_MAX_SLOTS && QM_KERNEL_RANK == QM_MAX_RANK, "kernel_abi.h");

struct plan;

/* One of object and host is not NULL. */
struct qm_kernel_file {
    struct qm_kernel_object *object; /* loaded into this process */
    struct qm_host *host;            /* in a process of its own */
    struct plan *plans;              /* the open ones */
    int keeps_open;                  /* 1: arrays stay accessible between steps */
};

enum { CODES, SCALES, CODEBOOK, DRAWS, SLOT_BUFFERS };
static const char *const buffer_text[] = {"codes", "scales", "codebook", "draws"};

/* The arguments and the texts that they point to; array 0 of an arena. */
struct head {
    struct qm_kernel_args args;
    char recipe[QM_RECIPE_TEXT], param[24];
    struct {
        char name[32], quantizer[QM_QUANTIZER_TEXT];
    } slot[QM_MAX_SLOTS];
};

struct slot {
    struct qm_codec c;
    struct qm_shape shape;
    int64_t n, n_scales;      /* n_scales of a plain slot: 0 */
    int buffer[SLOT_BUFFERS]; /* numbers of arrays, -1: there is none; SCALES of a plain slot: its
                               * values */
};

struct plan {
    struct plan *next;
    struct qm_kernel_file *kernel;
    struct qm_recipe r, given; /* given: without the initial_lr that r has */
    struct qm_shape shape;
    int64_t n;
    uint32_t tensor;
    int n_slots;
    struct slot slot[QM_MAX_SLOTS];
    struct qm_arena arena;
    int p, g, residual, draws; /* numbers of arrays */
    int place;                 /* in the host; -1: not mapped there yet */
    uint64_t base, total;      /* of the mapping that the kernel sees */
    double seconds;
};

static _Thread_local struct qm_kernel_file *current; /* of plans that are opened from now on */

/* ---- the file -------------------------------------------------------------------------------- */

qm_status qm_kernel_file_open(const char *object, struct qm_kernel_file **out)
{
    struct qm_kernel_file *k = calloc(1, sizeof *k);
    qm_status st =
        k ? qm_kernel_object_open(object, &k->object) : qm_fail(QM_NO_MEMORY, "%s", object);
    if (st == QM_OK)
        *out = k;
    else
        free(k);
    return st;
}

qm_status qm_kernel_file_apart(const char *object, const struct qm_host_limits *limits,
                               struct qm_kernel_file **out)
{
    struct qm_kernel_file *k = calloc(1, sizeof *k);
    qm_status st = k ? qm_host_open(object, limits, &k->host) : qm_fail(QM_NO_MEMORY, "%s", object);
    if (st == QM_OK)
        *out = k;
    else
        free(k);
    return st;
}

void qm_kernel_file_close(struct qm_kernel_file *k)
{
    if (!k)
        return;
    if (current == k)
        current = NULL;
    qm_kernel_object_close(k->object);
    qm_host_close(k->host);
    free(k);
}

const char *qm_kernel_file_as(const struct qm_kernel_file *k)
{
    return k->host ? qm_host_as(k->host) : qm_kernel_object_as(k->object);
}

struct qm_host *qm_kernel_file_host(const struct qm_kernel_file *k) { return k->host; }

void *qm_kernel_file_symbol(const struct qm_kernel_file *k, const char *name)
{
    return k->object ? qm_kernel_object_symbol(k->object, name) : NULL;
}

void qm_kernel_file_use(struct qm_kernel_file *k) { current = k; }
void qm_kernel_file_keep_open(struct qm_kernel_file *k, int on) { k->keeps_open = on; }

/* ---- plans ----------------------------------------------------------------------------------- */

static struct head *head_of(const struct plan *p) { return qm_arena_data(&p->arena, 0); }

static void *data(const struct plan *p, int array)
{
    return array < 0 ? NULL : qm_arena_data(&p->arena, array);
}

static void file_close(void *plan)
{
    struct plan *p = plan;
    if (!p)
        return;
    for (struct plan **at = &p->kernel->plans; *at; at = &(*at)->next)
        if (*at == p) {
            *at = p->next;
            break;
        }
    if (p->kernel->host && qm_arena_settle(&p->arena) != QM_OK)
        qm_host_add_note(p->kernel->host, "%s", qm_message() + strlen("it "));
    if (p->kernel->host && p->place >= 0)
        qm_host_unmap(p->kernel->host, p->place);
    if (p->kernel->object && p->base)
        munmap((void *)(uintptr_t)p->base, p->total);
    qm_arena_close(&p->arena);
    free(p);
}

/* The codebook: what each stored code decodes to at scale 1 (under a curve, its unit value); NaN
 * for codes that do not exist. */
static void fill_codebook(const struct slot *s, float *out)
{
    const struct qm_codebook *cb = &s->c.cb;
    for (int code = 0; code < 1 << s->c.q.bits; code++) {
        int k = cb->position_of[code], exists = cb->perm[k] == code || cb->is_float;
        float value = cb->is_float ? qm_e4m3_to_float((uint8_t)code) : cb->value[k] * cb->post;
        out[code] = exists ? value : qm_float(0x7fc00000u);
    }
}

static int add(struct plan *p, size_t bytes, int is_const, enum qm_poison poison, const char *what)
{
    return qm_arena_add(&p->arena, bytes, 0, is_const, poison, what);
}

static int add_buffer(struct plan *p, int slot, int which, size_t bytes)
{
    char what[48];
    snprintf(what, sizeof what, "%s of %s", p->slot[slot].c.q.bits ? buffer_text[which] : "values",
             p->r.rule->slot[slot]);
    return add(p, bytes, which == CODEBOOK || which == DRAWS,
               which == CODES || which == DRAWS ? QM_POISON_CODES : QM_POISON_F32, what);
}

static qm_status slot_lay_out(struct plan *p, int i)
{
    struct slot *s = &p->slot[i];
    struct qm_quantizer q = qm_recipe_slot(&p->r, i, &p->shape);
    s->shape = p->shape;
    qm_rule_slot_shape(p->r.rule, &p->r.hyper, i, &p->shape, &s->shape);
    s->n = qm_shape_numel(&s->shape);
    for (int k = 0; k < SLOT_BUFFERS; k++)
        s->buffer[k] = -1;
    QM_TRY(qm_codec_init(&s->c, &q));
    QM_TRY(qm_codec_fits(&s->c, &s->shape));
    if (q.bits == 0) {
        s->buffer[SCALES] = add_buffer(p, i, SCALES, sizeof(float) * (size_t)s->n);
        return QM_OK;
    }
    s->n_scales = qm_scale_count(&s->c, &s->shape);
    s->buffer[CODES] = add_buffer(p, i, CODES, (size_t)qm_code_bytes(&s->c, s->n));
    s->buffer[SCALES] = add_buffer(p, i, SCALES, sizeof(float) * (size_t)s->n_scales);
    s->buffer[CODEBOOK] = add_buffer(p, i, CODEBOOK, sizeof(float) << q.bits);
    if (qm_round_draws(q.round))
        s->buffer[DRAWS] = add_buffer(p, i, DRAWS, sizeof(uint32_t) * (size_t)s->n);
    return QM_OK;
}

static void slot_fill(struct plan *p, int i)
{
    struct slot *s = &p->slot[i];
    const struct qm_quantizer *q = &s->c.q;
    snprintf(head_of(p)->slot[i].name, sizeof head_of(p)->slot[i].name, "%s", p->r.rule->slot[i]);
    qm_quantizer_print(q, head_of(p)->slot[i].quantizer);
    if (!q->bits)
        return;
    fill_codebook(s, data(p, s->buffer[CODEBOOK]));
    int init = p->r.init_code[i] < s->c.cb.n ? p->r.init_code[i]
                                             : 0; /* an override may give a smaller map */
    for (int64_t k = 0; k < s->n && init; k++)
        qm_pack_put(q->pack, q->bits, data(p, s->buffer[CODES]), k, (uint32_t)init);
    for (int64_t k = 0; k < s->n_scales; k++)
        ((float *)data(p, s->buffer[SCALES]))[k] = p->r.init_scale[i];
}

/* Adds every array, opens the arena and fills what is constant.  Of two plans of one tensor the
 * first has arrays that end at a page without access, the second arrays that start at one. */
static qm_status arrays_open(struct plan *p)
{
    size_t n = (size_t)p->n, residual = (size_t)qm_param_residual(&p->r.param);
    int is_f32 = p->r.param.format == QM_PARAM_f32, is_e4m3 = qm_param_bytes(&p->r.param) == 1;
    int has_draws = p->r.param.write == QM_WRITE_stoch, others = 0;
    enum qm_poison like_p = is_f32 ? QM_POISON_F32 : is_e4m3 ? QM_POISON_CODES : QM_POISON_16;
    add(p, sizeof(struct head), 1, QM_POISON_CODES, "arguments");
    p->p = add(p, n * (size_t)qm_param_bytes(&p->r.param), 0, like_p, "parameters");
    p->g = qm_arena_add(&p->arena, n * qm_dtype_size(p->r.grad), n * sizeof(float), 1,
                        p->r.grad == QM_DTYPE_f32 ? QM_POISON_F32 : QM_POISON_16, "gradients");
    p->residual = residual ? add(p, n * residual, 0, QM_POISON_16, "residuals") : -1;
    p->draws = has_draws
                   ? add(p, n * sizeof(uint32_t), 1, QM_POISON_CODES, "draws of the parameters")
                   : -1;
    for (int i = 0; i < p->n_slots; i++)
        QM_TRY(slot_lay_out(p, i));
    for (const struct plan *other = p->kernel->plans; other; other = other->next)
        others += other->tensor == p->tensor && other->n == p->n;
    QM_TRY(qm_arena_open(&p->arena, others % 2));
    qm_recipe_print(&p->given, head_of(p)->recipe);
    qm_param_text(&p->r.param, head_of(p)->param);
    for (int i = 0; i < p->n_slots; i++)
        slot_fill(p, i);
    return QM_OK;
}

static qm_status file_open(const struct qm_recipe *r, const struct qm_shape *shape, uint32_t tensor,
                           void **plan)
{
    if (!current)
        return qm_fail(QM_BAD_ARG, "no kernel file is in use");
    QM_TRY(qm_rule_takes(r->rule, &r->hyper, shape));
    if (qm_shape_numel(shape) < 0)
        return qm_fail(QM_BAD_ARG, "tensor has more than 2^63 elements");
    struct plan *p = calloc(1, sizeof *p);
    if (!p)
        return qm_fail(QM_NO_MEMORY, "plan for %s", r->base->name);
    p->kernel = current;
    p->r = p->given = *r;
    if (r->hyper.initial_lr == 0.0)
        p->r.hyper.initial_lr = r->hyper.lr;
    p->shape = *shape;
    p->n = qm_shape_numel(shape);
    p->tensor = tensor;
    p->n_slots = r->rule->n_slots;
    p->place = -1;
    qm_status st = arrays_open(p);
    if (st == QM_OK) {
        p->next = current->plans;
        current->plans = p;
        *plan = p;
    } else {
        file_close(p);
    }
    return st;
}

static qm_status file_hyper(void *plan, const struct qm_hyper *h)
{
    struct plan *p = plan;
    QM_TRY(qm_recipe_schedule(&p->r, &p->shape, h));
    QM_TRY(qm_arena_settle(&p->arena));
    p->given.hyper = *h;
    qm_recipe_print(&p->given, head_of(p)->recipe);
    return QM_OK;
}

static qm_status file_restart(void)
{
    if (!current || !current->host)
        return qm_fail(QM_SKIPPED, "a kernel within this process cannot be started afresh");
    QM_TRY(qm_host_settle(current->host)); /* what the process left is asked while it is there */
    qm_host_down(current->host);
    return QM_OK;
}

/* ---- a step ---------------------------------------------------------------------------------- */

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

/* An array as the kernel sees it; base 0: as this process sees its copy. */
static void *seen(const struct plan *p, int array, uint64_t base)
{
    if (array < 0 || !base)
        return data(p, array);
    return (void *)(uintptr_t)qm_arena_address(&p->arena, array, base);
}

/* A text of the head, likewise. */
static const char *text(const struct plan *p, const char *at, uint64_t base)
{
    return (const char *)seen(p, 0, base) + (at - (const char *)head_of(p));
}

/* Writes the random draws of one role into an array. */
static void fill_draws(const struct plan *p, int array, int64_t n, uint64_t seed, int64_t t,
                       enum qm_role role)
{
    struct qm_draws d = qm_draws_for(seed, t, p->tensor, role);
    uint32_t *out = data(p, array);
    for (int64_t i = 0; out && i < n; i++)
        out[i] = qm_draws_are_planted(p->tensor) ? qm_draw_planted(&d, i) : qm_draw(&d, i);
}

static void fill_slot(const struct plan *p, int i, uint64_t base, struct qm_kernel_slot *out)
{
    const struct slot *s = &p->slot[i];
    *out = (struct qm_kernel_slot){
        .name = text(p, head_of(p)->slot[i].name, base),
        .quantizer = text(p, head_of(p)->slot[i].quantizer, base),
        .bits = s->c.q.bits,
        .is_signed = p->r.rule->slot_sign[i],
        .block = s->c.q.bits ? s->c.q.block : 0,
        .n = s->n,
        .ndim = s->shape.rank,
        .codes = seen(p, s->buffer[CODES], base),
        .code_bytes = s->c.q.bits ? qm_code_bytes(&s->c, s->n) : 0,
        .n_scales = s->n_scales,
        .codebook = seen(p, s->buffer[CODEBOOK], base),
        .draws = seen(p, s->buffer[DRAWS], base),
    };
    *(s->c.q.bits ? &out->scales : &out->values) = seen(p, s->buffer[SCALES], base);
    memcpy(out->dim, s->shape.dim, sizeof out->dim);
}

/* Writes gradient, draws and arguments, with addresses in the mapping at `base`. */
static void fill_args(struct plan *p, const struct qm_tensor *g, int64_t t, uint64_t seed,
                      uint64_t base)
{
    const struct qm_hyper *h = &p->r.hyper;
    struct qm_kernel_args *a = &head_of(p)->args;
    uint64_t g_bytes = (uint64_t)p->n * qm_dtype_size(g->dtype);
    if (p->arena.array[p->g].bytes != g_bytes) /* of another type than in the last step */
        qm_arena_resize(&p->arena, p->g, g_bytes);
    memcpy(data(p, p->g), g->data, g_bytes);
    *a = (struct qm_kernel_args){.abi = QM_KERNEL_ABI,
                                 .recipe = text(p, head_of(p)->recipe, base),
                                 .n = p->n,
                                 .ndim = p->shape.rank,
                                 .p = seen(p, p->p, base),
                                 .p_dtype = (int)param_dtype(p->r.param.format),
                                 .param = text(p, head_of(p)->param, base),
                                 .g = seen(p, p->g, base),
                                 .g_dtype = (int)gradient_dtype(g->dtype),
                                 .residual = seen(p, p->residual, base),
                                 .p_draws = seen(p, p->draws, base),
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
        fill_draws(p, p->slot[i].buffer[DRAWS], p->slot[i].n, seed, t, role);
        fill_slot(p, i, base, &a->slot[i]);
    }
    fill_draws(p, p->draws, p->n, seed, t, QM_ROLE_param);
}

/* Puts "step T" and a word before the text of the last failure. */
static qm_status fail_in_step(qm_status st, int64_t t, const char *word)
{
    char why[QM_HOST_TEXT];
    snprintf(why, sizeof why, "%s", qm_message());
    return qm_fail(st, "step %lld%s%s", (long long)t, word, why);
}

/* Maps the arrays where the kernel sees them, unless they are. */
static qm_status map(struct plan *p)
{
    if (p->kernel->host)
        return qm_host_is_mapped(p->kernel->host, p->place, &p->arena)
                   ? QM_OK
                   : qm_host_map(p->kernel->host, &p->arena, &p->place, &p->base);
    if (p->base)
        return QM_OK;
    void *base = qm_arena_map(p->arena.fd, &p->arena.view, NULL, &p->total);
    p->base = (uint64_t)(uintptr_t)base;
    return base ? QM_OK : qm_fail(QM_NO_MEMORY, "address space for the arrays");
}

/* Calls a kernel in this process. */
static qm_status call_here(struct plan *p)
{
    unsigned char *base = (unsigned char *)(uintptr_t)p->base;
    enum qm_float_mode mode;
    fenv_t before;
    fegetenv(&before);
    qm_arena_access(base, &p->arena.view, p->total, 1);
    double from = qm_seconds();
    qm_status st = qm_kernel_object_step(p->kernel->object, seen(p, 0, p->base), &mode);
    p->seconds = qm_seconds() - from;
    qm_arena_access(base, &p->arena.view, p->total, 0);
    fesetenv(&before);
    return st != QM_OK || mode == QM_FLOAT_PLAIN
               ? st
               : qm_fail(QM_CHECK_FAILED,
                         "it left the rounding mode or the treatment of denormals changed");
}

static qm_status call(struct plan *p, const struct qm_tensor *g, int64_t t, uint64_t seed)
{
    QM_TRY(map(p));
    fill_args(p, g, t, seed, p->base);
    qm_arena_publish(&p->arena);
    qm_status st = QM_OK;
    if (p->kernel->host) {
        st = qm_host_step(p->kernel->host, p->place, p->kernel->keeps_open);
        p->seconds = qm_host_seconds(p->kernel->host);
        if (qm_host_end(p->kernel->host) != QM_END_answered)
            return st;
    } else {
        st = call_here(p);
    }
    if (st == QM_SKIPPED && qm_arena_is_untouched(&p->arena) != QM_OK)
        return fail_in_step(QM_CHECK_FAILED, t, " ");
    if (st != QM_OK)
        return st == QM_CHECK_FAILED ? fail_in_step(st, t, ": ") : st;
    return qm_arena_take(&p->arena) == QM_OK ? QM_OK : fail_in_step(QM_CHECK_FAILED, t, " ");
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
    QM_TRY(qm_arena_settle(&p->arena));
    memcpy(data(p, p->p), param->data, p->arena.array[p->p].bytes);
    QM_TRY(call(p, g, t, seed));
    memcpy(param->data, data(p, p->p), p->arena.array[p->p].bytes);
    return QM_OK;
}

qm_status qm_plan_file_args(void *plan, const struct qm_tensor *param, const struct qm_tensor *g,
                            int64_t t, uint64_t seed, const struct qm_kernel_args **out)
{
    struct plan *p = plan;
    memcpy(data(p, p->p), param->data, p->arena.array[p->p].bytes);
    fill_args(p, g, t, seed, 0);
    *out = &head_of(p)->args;
    return QM_OK;
}

double qm_plan_file_seconds(const void *plan) { return ((const struct plan *)plan)->seconds; }

/* ---- state --------------------------------------------------------------------------------- */

static qm_status file_decode(void *plan, int slot, float *out)
{
    struct plan *p = plan;
    QM_TRY(qm_rule_slot_check(p->r.rule, slot));
    const struct slot *s = &p->slot[slot];
    const float *scales = data(p, s->buffer[SCALES]);
    if (s->c.q.bits == 0) {
        memcpy(out, scales, sizeof(float) * (size_t)s->n);
        return QM_OK;
    }
    uint8_t *codes = malloc((size_t)s->n + 1);
    if (!codes)
        return qm_fail(QM_NO_MEMORY, "codes of %lld elements", (long long)s->n);
    qm_unpack_range(&s->c, data(p, s->buffer[CODES]), s->n, codes);
    qm_decode(&s->c, &s->shape, codes, scales, out);
    free(codes);
    return QM_OK;
}

static qm_status file_save(void *plan, int slot, uint8_t *codes, float *scales)
{
    struct plan *p = plan;
    if (slot == QM_RESIDUAL) {
        if (codes && p->residual >= 0)
            memcpy(codes, data(p, p->residual), p->arena.array[p->residual].bytes);
        return QM_OK;
    }
    QM_TRY(qm_rule_slot_check(p->r.rule, slot));
    const struct slot *s = &p->slot[slot];
    if (codes && s->c.q.bits)
        qm_unpack_range(&s->c, data(p, s->buffer[CODES]), s->n, codes);
    if (scales)
        memcpy(scales, data(p, s->buffer[SCALES]), p->arena.array[s->buffer[SCALES]].bytes);
    return QM_OK;
}

static qm_status file_load(void *plan, int slot, const uint8_t *codes, const float *scales)
{
    struct plan *p = plan;
    QM_TRY(qm_arena_settle(&p->arena));
    if (slot == QM_RESIDUAL) {
        if (codes && p->residual >= 0)
            memcpy(data(p, p->residual), codes, p->arena.array[p->residual].bytes);
        return QM_OK;
    }
    QM_TRY(qm_rule_slot_check(p->r.rule, slot));
    struct slot *s = &p->slot[slot];
    if (codes && s->c.q.bits)
        qm_pack_range(&s->c, codes, s->n, data(p, s->buffer[CODES]));
    if (scales)
        memcpy(data(p, s->buffer[SCALES]), scales, p->arena.array[s->buffer[SCALES]].bytes);
    if (s->c.q.bits == 0)
        qm_plain_round(s->c.q.plain, s->n, data(p, s->buffer[SCALES]));
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
    .hyper = file_hyper,
    .restart = file_restart,
};
