/* batch.c - The host's side of a step: buffers, descriptors, chunks, launches, the state. */
#include "core/device/batch.h"

#include <stdlib.h>
#include <string.h>

#include "core/device/tensor_rule_form.h"
#include "core/recipe/backend.h"

enum { CODES, SCALES, STAT, BUFFERS };

struct slot {
    int64_t n_scales;
    qm_address buffer[BUFFERS]; /* SCALES: of a slot without codes, its values */
};

struct tensor {
    struct qm_shape shape;
    int64_t n;
    uint32_t id;
    int64_t first_chunk, n_chunks;
    qm_address p, g, residual;
    struct slot slot[QM_MAX_SLOTS];
};

struct qm_batch {
    const struct qm_device *d;
    enum qm_mode mode;
    struct qm_recipe r;
    struct qm_step_form form;
    void *module;                     /* the kernels for gradients of type form.grad */
    int n, blocks, by_value, is_wide; /* is_wide: qm_batch_load_wide has made room for gradients */
    int64_t chunk, n_chunks;
    struct tensor *tensor;
    uint64_t *desc;
    struct qm_chunk *chunks;
    qm_address desc_at, chunks_at;
};

const struct qm_step_form *qm_batch_form(const struct qm_batch *b) { return &b->form; }
void *qm_batch_module(const struct qm_batch *b) { return b->module; }

/* ---- buffers --------------------------------------------------------------------------------- */

void qm_batch_close(struct qm_batch *b)
{
    if (!b)
        return;
    for (int k = 0; b->tensor && k < b->n; k++) {
        struct tensor *t = &b->tensor[k];
        for (int i = 0; i < b->form.n_slots; i++)
            for (int j = 0; j < BUFFERS; j++)
                b->d->release(t->slot[i].buffer[j]);
        b->d->release(t->p);
        b->d->release(t->g);
        b->d->release(t->residual);
    }
    b->d->release(b->desc_at);
    b->d->release(b->chunks_at);
    free(b->tensor);
    free(b->desc);
    free(b->chunks);
    free(b);
}

static size_t floats(int64_t n) { return sizeof(float) * (size_t)n; }

/* Writes n equal codes into zeroed bytes: eight codes are whole bytes in every order, and
 * are copied. */
static void fill_codes(const struct qm_codec *c, uint32_t code, uint8_t *codes, int64_t n)
{
    int64_t first = n < 8 ? n : 8, done, bytes = qm_pack_bytes(c->q.pack, c->q.bits, n / 8 * 8);
    for (int64_t k = 0; k < first; k++)
        qm_pack_put(c->q.pack, c->q.bits, codes, k, code);
    done = n < 8 ? bytes : qm_pack_bytes(c->q.pack, c->q.bits, 8);
    for (int64_t more; done < bytes; done += more) {
        more = done < bytes - done ? done : bytes - done;
        memcpy(codes + done, codes, (size_t)more);
    }
    for (int64_t k = n < 8 ? n : n / 8 * 8; k < n; k++)
        qm_pack_put(c->q.pack, c->q.bits, codes, k, code);
}

/* Fills a slot with the code and the scale that the recipe starts with. */
static qm_status slot_fill(struct qm_batch *b, const struct tensor *t, int i)
{
    const struct qm_codec *c = &b->form.slot[i].codec;
    const struct slot *s = &t->slot[i];
    int init = b->r.init_code[i] < c->cb.n ? b->r.init_code[i]
                                           : 0; /* an override may give a smaller map */
    int64_t bytes = qm_code_bytes(c, t->n);
    uint8_t *codes = calloc((size_t)(init ? bytes : 0) + 1, 1);
    float *scales = malloc(floats(s->n_scales + 1));
    qm_status st = codes && scales ? QM_OK : qm_fail(QM_NO_MEMORY, "a state's first content");
    if (st == QM_OK && init)
        fill_codes(c, (uint32_t)init, codes, t->n);
    for (int64_t k = 0; st == QM_OK && k < s->n_scales; k++)
        scales[k] = b->r.init_scale[i];
    if (st == QM_OK && init)
        st = b->d->put(s->buffer[CODES], codes, (size_t)bytes);
    if (st == QM_OK)
        st = b->d->put(s->buffer[SCALES], scales, floats(s->n_scales));
    free(codes);
    free(scales);
    return st;
}

static qm_status slot_open(struct qm_batch *b, struct tensor *t, int i)
{
    const struct qm_slot_form *f = &b->form.slot[i];
    struct slot *s = &t->slot[i];
    if (f->way == QM_WAY_PLAIN)
        return b->d->reserve(floats(t->n), &s->buffer[SCALES]);
    s->n_scales = qm_scale_count(&f->codec, &t->shape);
    QM_TRY(b->d->reserve((size_t)qm_code_bytes(&f->codec, t->n), &s->buffer[CODES]));
    QM_TRY(b->d->reserve(floats(s->n_scales), &s->buffer[SCALES]));
    if (f->way == QM_WAY_TWICE)
        QM_TRY(b->d->reserve(floats(s->n_scales), &s->buffer[STAT]));
    return slot_fill(b, t, i);
}

static qm_status tensor_open(struct qm_batch *b, struct tensor *t)
{
    int residual = qm_param_residual(&b->r.param);
    for (int i = 0; i < b->form.n_slots; i++)
        QM_TRY(slot_open(b, t, i));
    if (qm_tensor_rule_is_slot(b->r.rule))
        return b->d->reserve(qm_tensor_rule_is_plain(&b->r) ? 0 : floats(t->n), &t->g);
    QM_TRY(b->d->reserve((size_t)(t->n * qm_param_bytes(&b->r.param)), &t->p));
    QM_TRY(b->d->reserve(floats(t->n), &t->g)); /* room for any type */
    return residual ? b->d->reserve((size_t)(t->n * residual), &t->residual) : QM_OK;
}

/* ---- tables ---------------------------------------------------------------------------------- */

static uint64_t *desc_of(const struct qm_batch *b, int k)
{
    return b->desc + (int64_t)b->form.words * k;
}

static void desc_fill(const struct qm_batch *b, int k)
{
    const struct tensor *t = &b->tensor[k];
    uint64_t *w = desc_of(b, k);
    int rank = b->form.rank;
    w[QM_DESC_P] = t->p ? t->p : t->g;
    w[QM_DESC_G] = t->g;
    w[QM_DESC_RESIDUAL] = t->residual;
    w[QM_DESC_N] = (uint64_t)t->n;
    w[QM_DESC_ID] = t->id | (uint64_t)(t->n == 1) << 32;
    for (int i = 0; i < rank; i++) {
        int64_t d = i < t->shape.rank ? t->shape.dim[i] : 1;
        double inverse = d > 0 ? 1.0 / (double)d : 0.0;
        w[QM_DESC_DIMS + i] = (uint64_t)d;
        memcpy(&w[QM_DESC_DIMS + rank + i], &inverse, sizeof inverse);
    }
    for (int i = 0; i < b->form.n_slots; i++) {
        uint64_t *s = w + QM_DESC_DIMS + 2 * rank + QM_SLOT_COUNT * i;
        s[QM_SLOT_CODES] = t->slot[i].buffer[CODES];
        s[QM_SLOT_SCALES] = t->slot[i].buffer[SCALES];
        s[QM_SLOT_STAT] = t->slot[i].buffer[STAT];
        s[QM_SLOT_N_SCALES] = (uint64_t)t->slot[i].n_scales;
    }
}

/* Elements of a chunk: a whole number of tiles; wanted = 0: small enough to keep the
 * device busy. */
static int64_t chunk_of(const struct qm_batch *b, int64_t wanted)
{
    int64_t total = 0, tile = b->form.tile;
    for (int k = 0; k < b->n; k++)
        total += b->tensor[k].n;
    if (wanted == 0) {
        wanted = total / (4 * (int64_t)b->d->blocks()) + 1;
        wanted = wanted < QM_STEP_CHUNK ? wanted : QM_STEP_CHUNK;
    }
    return wanted <= tile ? tile : wanted / tile * tile;
}

qm_status qm_batch_cut(struct qm_batch *b, int64_t chunk, int blocks)
{
    int64_t n = 0, at = 0;
    b->blocks = blocks;
    b->chunk = chunk_of(b, chunk);
    for (int k = 0; k < b->n; k++)
        n += (b->tensor[k].n + b->chunk - 1) / b->chunk;
    struct qm_chunk *chunks = malloc(sizeof *chunks * (size_t)(n + 1));
    if (!chunks)
        return qm_fail(QM_NO_MEMORY, "%lld chunks", (long long)n);
    for (int k = 0; k < b->n; k++) {
        struct tensor *t = &b->tensor[k];
        t->first_chunk = at;
        for (int64_t from = 0; from < t->n; from += b->chunk) {
            int64_t left = t->n - from;
            chunks[at++] = (struct qm_chunk){k, from, left < b->chunk ? left : b->chunk};
        }
        t->n_chunks = at - t->first_chunk;
    }
    free(b->chunks);
    b->d->release(b->chunks_at);
    b->chunks = chunks;
    b->chunks_at = 0;
    b->n_chunks = n;
    QM_TRY(b->d->reserve(sizeof *chunks * (size_t)(n + 1), &b->chunks_at));
    return b->d->put(b->chunks_at, chunks, sizeof *chunks * (size_t)n);
}

/* ---- opening --------------------------------------------------------------------------------- */

/* The form of the first tensor, which every other one must have. */
static qm_status form_of_all(struct qm_batch *b, int n, const struct qm_shape *shapes)
{
    struct qm_step_form *other = malloc(sizeof *other);
    char *first = NULL, *text = NULL;
    qm_status st = other ? qm_step_form(&b->r, &shapes[0], b->r.grad, &b->form)
                         : qm_fail(QM_NO_MEMORY, "a form");
    if (st == QM_OK && n > 1)
        first = qm_step_text(&b->form);
    for (int k = 1; k < n && st == QM_OK; k++) {
        st = qm_step_form(&b->r, &shapes[k], b->r.grad, other);
        text = st == QM_OK ? qm_step_text(other) : NULL;
        if (st == QM_OK && (!first || !text))
            st = qm_fail(QM_NO_MEMORY, "a form");
        else if (st == QM_OK && strcmp(first, text) != 0)
            st =
                qm_fail(QM_BAD_ARG, "tensor %d of the batch wants other kernels than the first", k);
        free(text);
    }
    free(first);
    free(other);
    return st;
}

static qm_status open_all(struct qm_batch *b, int n, const struct qm_shape *shapes,
                          const uint32_t *ids)
{
    QM_TRY(b->d->probe());
    QM_TRY(form_of_all(b, n, shapes)); /* tells the rules of small and large tensors apart */
    b->r = qm_recipe_at(&b->r, &shapes[0]);
    b->tensor = calloc((size_t)n, sizeof *b->tensor);
    b->desc = calloc((size_t)n * (size_t)b->form.words, sizeof *b->desc);
    if (!b->tensor || !b->desc)
        return qm_fail(QM_NO_MEMORY, "a batch of %d tensors", n);
    b->n = n;
    for (int k = 0; k < n; k++) {
        struct tensor *t = &b->tensor[k];
        t->shape = shapes[k];
        t->n = qm_shape_numel(&shapes[k]);
        t->id = ids[k];
        QM_TRY(tensor_open(b, t));
        desc_fill(b, k);
    }
    size_t bytes = sizeof *b->desc * (size_t)n * (size_t)b->form.words;
    QM_TRY(b->d->reserve(bytes, &b->desc_at));
    QM_TRY(b->d->put(b->desc_at, b->desc, bytes));
    QM_TRY(qm_batch_cut(b, 0, 0));
    return qm_tensor_rule_is_plain(&b->r) ? QM_OK : b->d->load(&b->form, b->mode, &b->module);
}

qm_status qm_batch_open(const struct qm_device *d, enum qm_mode mode, const struct qm_recipe *r,
                        int n, const struct qm_shape *shapes, const uint32_t *ids,
                        struct qm_batch **out)
{
    for (int k = 0; k < n; k++)
        if (qm_shape_numel(&shapes[k]) < 0)
            return qm_fail(QM_BAD_ARG, "tensor has more than 2^63 elements");
    struct qm_batch *b = calloc(1, sizeof *b);
    if (!b)
        return qm_fail(QM_NO_MEMORY, "a batch");
    b->d = d;
    b->mode = mode;
    b->r = *r;
    if (r->hyper.initial_lr == 0.0)
        b->r.hyper.initial_lr = r->hyper.lr;
    qm_status st = open_all(b, n, shapes, ids);
    if (st == QM_OK)
        *out = b;
    else
        qm_batch_close(b);
    return st;
}

qm_status qm_batch_by_value(struct qm_batch *b, int is_by_value)
{
    b->by_value = b->form.by_value = is_by_value;
    return b->d->load(&b->form, b->mode, &b->module);
}

/* ---- a step ---------------------------------------------------------------------------------- */

qm_status qm_batch_give(struct qm_batch *b, int k, const void *param, const void *g,
                        enum qm_dtype g_type)
{
    const struct tensor *t = &b->tensor[k];
    if (g_type != QM_DTYPE_f32 && g_type != QM_DTYPE_bf16 && g_type != QM_DTYPE_f16)
        return qm_fail(QM_BAD_ARG, "gradients must be f32, bf16 or f16, got %s",
                       qm_dtype_name(g_type));
    if (g_type != b->form.grad) {
        b->form.grad = g_type;
        QM_TRY(b->d->load(&b->form, b->mode, &b->module));
    }
    QM_TRY(b->d->put(t->p, param, (size_t)(t->n * qm_param_bytes(&b->r.param))));
    return b->d->put(t->g, g, (size_t)t->n * qm_dtype_size(g_type));
}

qm_status qm_batch_take(struct qm_batch *b, int k, void *param)
{
    return qm_batch_take_part(b, k, 0, b->tensor[k].n, param);
}

qm_status qm_batch_take_part(struct qm_batch *b, int k, int64_t first, int64_t n, void *param)
{
    const int64_t each = qm_param_bytes(&b->r.param);
    return b->d->get(param, b->tensor[k].p + (qm_address)(first * each), (size_t)(n * each));
}

/* The rule's scalars; flag[1] for tensors of one element (qm_rule.single). */
static struct qm_step_scalars scalars_of(const struct qm_batch *b, int64_t t, uint64_t seed)
{
    struct qm_step_scalars s = {.seed = seed, .step = (uint32_t)t};
    struct qm_rule_step step;
    b->r.rule->prepare(&b->r.hyper, t, &step);
    memcpy(s.c, step.c, sizeof s.c);
    memcpy(s.flag[0], step.flag, sizeof step.flag);
    for (int i = 0; i < b->form.n_slots && b->r.rule->mark_absent; i++)
        if (b->form.slot[i].way == QM_WAY_PLAIN)
            b->r.rule->mark_absent(&step, i);
    memcpy(s.flag[1], step.flag, sizeof step.flag);
    return s;
}

static unsigned grid_of(const struct qm_batch *b, int64_t chunks)
{
    int64_t most = b->blocks ? b->blocks : 1 << 30;
    return (unsigned)(chunks < most ? chunks : most);
}

static qm_status launch(const struct qm_batch *b, enum qm_step_kernel k, struct qm_step_scalars *s)
{
    qm_address desc = b->desc_at, chunks = b->chunks_at;
    int64_t n = b->n_chunks;
    void *args[] = {&desc, &chunks, &n, s};
    return b->d->launch(b->module, k, grid_of(b, n), 1, args);
}

/* Hands the tables over by value, in as many launches as that takes; a tensor may be split
 * between two. */
static qm_status launch_by_value(const struct qm_batch *b, struct qm_step_scalars *s)
{
    unsigned char table[QM_STEP_BY_VALUE];
    const struct qm_step_form *f = &b->form;
    size_t bytes = sizeof *b->desc * (size_t)f->words;
    struct qm_chunk *chunks =
        (struct qm_chunk *)(void *)(table + bytes * (size_t)f->by_value_tensors);
    for (int64_t at = 0; at < b->n_chunks;) {
        int64_t first = b->chunks[at].tensor, n = 0;
        while (at + n < b->n_chunks && n < f->by_value_chunks &&
               b->chunks[at + n].tensor - first < f->by_value_tensors) {
            struct qm_chunk c = b->chunks[at + n];
            memcpy(table + bytes * (size_t)(c.tensor - first), desc_of(b, (int)c.tensor), bytes);
            c.tensor -= first;
            memcpy(&chunks[n++], &c, sizeof c);
        }
        void *args[] = {table, &n, s};
        QM_TRY(b->d->launch(b->module, QM_KERNEL_step_by_value, grid_of(b, n), 1, args));
        at += n;
    }
    return QM_OK;
}

/* The stored scales of folded slots, a row of blocks for each tensor: a launch takes at
 * most 65,535. */
static qm_status launch_scales(const struct qm_batch *b)
{
    int64_t most = 1;
    for (int k = 0; k < b->n; k++)
        for (int i = 0; i < b->form.n_slots; i++)
            if (b->form.slot[i].way == QM_WAY_TWICE && b->tensor[k].slot[i].n_scales > most)
                most = b->tensor[k].slot[i].n_scales;
    int64_t blocks = (most + QM_STEP_THREADS - 1) / QM_STEP_THREADS;
    for (int first = 0; first < b->n; first += 65535) {
        qm_address desc = b->desc_at + sizeof *b->desc * (size_t)first * (size_t)b->form.words;
        void *args[] = {&desc};
        int rows = b->n - first < 65535 ? b->n - first : 65535;
        QM_TRY(b->d->launch(b->module, QM_KERNEL_scales, (unsigned)(blocks < 1024 ? blocks : 1024),
                            (unsigned)rows, args));
    }
    return QM_OK;
}

qm_status qm_batch_run(struct qm_batch *b, int64_t t, uint64_t seed)
{
    struct qm_step_scalars s = scalars_of(b, t, seed);
    if (t < 1)
        return qm_fail(QM_BAD_ARG, "steps count from 1, got %lld", (long long)t);
    if (b->n_chunks == 0)
        return QM_OK;
    if (b->form.folds > 0)
        QM_TRY(launch(b, QM_KERNEL_fold_1, &s));
    if (b->form.folds > 1)
        QM_TRY(launch(b, QM_KERNEL_fold_2, &s));
    QM_TRY(b->by_value ? launch_by_value(b, &s) : launch(b, QM_KERNEL_step, &s));
    return b->form.folds > 0 ? launch_scales(b) : QM_OK;
}

qm_status qm_batch_hyper(struct qm_batch *b, const struct qm_hyper *h)
{
    struct qm_recipe next = b->r;
    for (int k = 0; k < b->n; k++) {
        next = b->r;
        QM_TRY(qm_recipe_schedule(&next, &b->tensor[k].shape, h));
    }
    b->r = next;
    return QM_OK;
}

/* ---- state ----------------------------------------------------------------------------------- */

struct qm_batch_place qm_batch_place(const struct qm_batch *b, int k)
{
    const struct tensor *t = &b->tensor[k];
    return (struct qm_batch_place){t->p ? t->p : t->g, t->g, t->slot[0].buffer[SCALES],
                                   t->slot[0].buffer[CODES]};
}

/* Launches a kernel whose arguments begin with descriptors and chunks, over chunks [first, first +
 * n). more, yet_more: its further arguments. */
static qm_status launch_chunks(struct qm_batch *b, enum qm_step_kernel kernel, int64_t first,
                               int64_t n, void *more, void *yet_more)
{
    qm_address chunks = b->chunks_at + sizeof *b->chunks * (size_t)first;
    void *args[] = {&b->desc_at, &chunks, &n, more, yet_more};
    return n > 0 ? b->d->launch(b->module, kernel, grid_of(b, n), 1, args) : QM_OK;
}

static qm_status unpack(struct qm_batch *b, int k, int slot, qm_address out)
{
    const struct tensor *t = &b->tensor[k];
    return launch_chunks(b, QM_KERNEL_decode, t->first_chunk, t->n_chunks, &slot, &out);
}

qm_status qm_batch_unpack(struct qm_batch *b, int slot)
{
    qm_address own = 0;
    return launch_chunks(b, QM_KERNEL_decode, 0, b->n_chunks, &slot, &own);
}

qm_status qm_batch_load_wide(struct qm_batch *b, int param, int gradient)
{
    for (int k = 0; k < b->n && gradient && !b->is_wide; k++) {
        QM_TRY(b->d->reserve(floats(b->tensor[k].n), &b->tensor[k].slot[0].buffer[CODES]));
        desc_fill(b, k);
    }
    if (gradient && !b->is_wide)
        QM_TRY(
            b->d->put(b->desc_at, b->desc, sizeof *b->desc * (size_t)b->n * (size_t)b->form.words));
    b->is_wide |= gradient;
    return launch_chunks(b, QM_KERNEL_whole_load, 0, b->n_chunks, &param, &gradient);
}

qm_status qm_batch_store_wide(struct qm_batch *b, int64_t t, uint64_t seed)
{
    struct qm_step_scalars s = {.seed = seed, .step = (uint32_t)t};
    return launch_chunks(b, QM_KERNEL_whole_store, 0, b->n_chunks, &s, NULL);
}

qm_status qm_batch_decode(struct qm_batch *b, int k, int slot, float *out)
{
    const struct tensor *t = &b->tensor[k];
    QM_TRY(qm_rule_slot_check(b->r.rule, slot));
    if (t->n == 0)
        return QM_OK;
    if (b->form.slot[slot].way == QM_WAY_PLAIN)
        return b->d->get(out, t->slot[slot].buffer[SCALES], floats(t->n));
    qm_address room;
    QM_TRY(b->d->reserve(floats(t->n), &room));
    qm_status st = unpack(b, k, slot, room);
    if (st == QM_OK)
        st = b->d->get(out, room, floats(t->n));
    b->d->release(room);
    return st;
}

/* Unpacks the n codes on the device from number `first` on, a multiple of 8, into out[n] (one byte
 * each), or packs in[n] into them. */
static qm_status codes_move(struct qm_batch *b, const struct tensor *t, int slot, int64_t first,
                            int64_t n, uint8_t *out, const uint8_t *in)
{
    const struct qm_codec *c = &b->form.slot[slot].codec;
    size_t bytes = (size_t)qm_code_bytes(c, n);
    qm_address at = t->slot[slot].buffer[CODES] + (qm_address)qm_code_bytes(c, first);
    uint8_t *packed = malloc(bytes + 1);
    if (!packed)
        return qm_fail(QM_NO_MEMORY, "codes of %lld elements", (long long)n);
    if (in)
        qm_pack_range(c, in, n, packed);
    qm_status st = in ? b->d->put(at, packed, bytes) : b->d->get(packed, at, bytes);
    if (st == QM_OK && out)
        qm_unpack_range(c, packed, n, out);
    free(packed);
    return st;
}

qm_status qm_batch_save_part(struct qm_batch *b, int k, int slot, const struct qm_batch_range *at,
                             uint8_t *codes, float *scales)
{
    const struct tensor *t = &b->tensor[k];
    const size_t residual = (size_t)qm_param_residual(&b->r.param);
    if (slot == QM_RESIDUAL)
        return codes && t->residual ? b->d->get(codes, t->residual + residual * (size_t)at->first,
                                                residual * (size_t)at->n)
                                    : QM_OK;
    QM_TRY(qm_rule_slot_check(b->r.rule, slot));
    const qm_address from = t->slot[slot].buffer[SCALES];
    if (b->form.slot[slot].way == QM_WAY_PLAIN)
        return scales ? b->d->get(scales, from + floats(at->first), floats(at->n)) : QM_OK;
    if (codes)
        QM_TRY(codes_move(b, t, slot, at->first, at->n, codes, NULL));
    return scales ? b->d->get(scales, from + floats(at->first_scale), floats(at->n_scales)) : QM_OK;
}

qm_status qm_batch_save(struct qm_batch *b, int k, int slot, uint8_t *codes, float *scales)
{
    struct qm_batch_range all = {.n = b->tensor[k].n};
    if (slot >= 0 && slot < b->form.n_slots)
        all.n_scales = b->tensor[k].slot[slot].n_scales;
    return qm_batch_save_part(b, k, slot, &all, codes, scales);
}

static qm_status load_plain(struct qm_batch *b, const struct tensor *t, int slot,
                            const float *values)
{
    float *x = malloc(floats(t->n + 1));
    if (!x)
        return qm_fail(QM_NO_MEMORY, "a state of %lld elements", (long long)t->n);
    memcpy(x, values, floats(t->n));
    qm_plain_round(b->form.slot[slot].codec.q.plain, t->n, x);
    qm_status st = b->d->put(t->slot[slot].buffer[SCALES], x, floats(t->n));
    free(x);
    return st;
}

qm_status qm_batch_load(struct qm_batch *b, int k, int slot, const uint8_t *codes,
                        const float *scales)
{
    const struct tensor *t = &b->tensor[k];
    if (slot == QM_RESIDUAL)
        return codes && t->residual
                   ? b->d->put(t->residual, codes, (size_t)(t->n * qm_param_residual(&b->r.param)))
                   : QM_OK;
    QM_TRY(qm_rule_slot_check(b->r.rule, slot));
    if (b->form.slot[slot].way == QM_WAY_PLAIN)
        return scales ? load_plain(b, t, slot, scales) : QM_OK;
    if (codes) {
        QM_TRY(qm_codec_codes_exist(&b->form.slot[slot].codec, codes, t->n));
        QM_TRY(codes_move(b, t, slot, 0, t->n, NULL, codes));
    }
    return scales ? b->d->put(t->slot[slot].buffer[SCALES], scales, floats(t->slot[slot].n_scales))
                  : QM_OK;
}

int64_t qm_batch_bytes(const struct qm_batch *b)
{
    int64_t sum = 0;
    for (int k = 0; k < b->n; k++) {
        sum += qm_param_residual(&b->r.param) * b->tensor[k].n;
        for (int i = 0; i < b->form.n_slots; i++)
            sum += qm_state_bytes(&b->form.slot[i].codec, &b->tensor[k].shape);
    }
    return sum;
}
