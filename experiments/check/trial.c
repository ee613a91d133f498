/* trial.c - Allocates, copies, reshapes and prints trials. */
#include "experiments/check/trial.h"

#include <string.h>
#include <sys/mman.h>

#include "core/rule/param.h"
#include "experiments/check/slot.h"

enum { ALIGN = 64 };

/* ---- memory ---------------------------------------------------------------------------------- */

static size_t rounded(size_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

/* Lays the arrays of one call out from `at` on; returns their bytes. */
static size_t lay_out(const struct qm_trial *t, unsigned char *at, struct qm_call *out)
{
    unsigned char *from = at;
    size_t n = (size_t)t->n;
    out->t = (int64_t *)(void *)at;
    at += ALIGN;
    out->hyper = (struct qm_hyper *)(void *)at;
    at += rounded(sizeof *out->hyper);
    out->p = at;
    at += rounded(n * (size_t)qm_param_bytes(&t->recipe.param));
    out->residual = at;
    at += rounded(n * (size_t)qm_param_residual(&t->recipe.param));
    out->g = at;
    at += rounded(n * qm_dtype_size(t->recipe.grad));
    for (int i = 0; i < t->recipe.rule->n_slots; i++) {
        out->codes[i] = at;
        at += rounded((size_t)t->slot_n[i]);
        out->scales[i] = (float *)(void *)at;
        at += rounded(sizeof(float) * (size_t)t->n_scales[i]);
    }
    return (size_t)(at - from);
}

qm_status qm_trial_open(struct qm_trial *out)
{
    static unsigned char nowhere[ALIGN];
    const struct qm_rule *rule = out->recipe.rule;
    struct qm_call call;
    out->n = qm_shape_numel(&out->shape);
    if (out->n < 0)
        return qm_fail(QM_BAD_ARG, "a trial's shape has no number of elements");
    for (int i = 0; i < rule->n_slots; i++) {
        out->slot_shape[i] = out->shape;
        qm_rule_slot_shape(rule, &out->recipe.hyper, i, &out->shape, &out->slot_shape[i]);
        out->slot[i] = qm_recipe_slot(&out->recipe, i, &out->shape);
        struct qm_codec c = {.q = out->slot[i]};
        QM_TRY(qm_codec_fits(&c, &out->slot_shape[i]));
        out->slot_n[i] = qm_shape_numel(&out->slot_shape[i]);
        out->n_scales[i] = out->slot[i].bits
                               ? qm_groups_count(&out->slot[i], &out->slot_shape[i], out->slot_n[i])
                               : out->slot_n[i];
    }
    out->call_bytes = lay_out(out, nowhere, &call);
    size_t bytes = out->call_bytes * (size_t)out->n_calls;
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    out->data = map == MAP_FAILED ? NULL : map;
    return out->data ? QM_OK : qm_fail(QM_NO_MEMORY, "a trial of %zu bytes", bytes);
}

void qm_trial_close(struct qm_trial *t)
{
    if (t->data)
        munmap(t->data, t->call_bytes * (size_t)t->n_calls);
    t->data = NULL;
}

struct qm_call qm_trial_call(const struct qm_trial *t, int k)
{
    struct qm_call call;
    lay_out(t, t->data + t->call_bytes * (size_t)k, &call);
    return call;
}

qm_status qm_trial_of_case(const struct qm_recipe *recipe, const struct qm_case *c, uint64_t seed,
                           int n_calls, struct qm_trial *out)
{
    struct qm_trial t = {.recipe = *recipe,
                         .shape = c->shape,
                         .seed = qm_case_seed(c, seed),
                         .part = c->part & ~(1u << QM_PART_podd | 1u << QM_PART_sodd |
                                             1u << QM_PART_godd | 1u << QM_PART_gfirst),
                         .tensor_after_one = c->tensor_after_one,
                         .n_calls = n_calls,
                         .n_plans = 2};
    qm_case_apply(c, &t.recipe);
    for (int i = 0; i < t.recipe.rule->n_slots; i++) {
        t.recipe.slot[i] = qm_recipe_slot(&t.recipe, i, &c->shape);
        t.recipe.min_numel[i] = t.recipe.whole_blocks[i] = 0;
    }
    QM_TRY(qm_trial_open(&t));
    *out = t;
    return QM_OK;
}

struct qm_case qm_trial_case(const struct qm_trial *t)
{
    return (struct qm_case){
        .shape = t->shape, .part = t->part, .tensor_after_one = t->tensor_after_one};
}

qm_status qm_trial_copy(const struct qm_trial *old, const int *from, int n, struct qm_trial *out)
{
    struct qm_trial t = *old;
    t.n_calls = from ? n : old->n_calls;
    QM_TRY(qm_trial_open(&t));
    for (int k = 0; k < t.n_calls; k++)
        memcpy(t.data + t.call_bytes * (size_t)k,
               old->data + t.call_bytes * (size_t)(from ? from[k] : k), t.call_bytes);
    *out = t;
    return QM_OK;
}

int64_t qm_trial_block(const struct qm_trial *t)
{
    int64_t block = 0;
    for (int i = 0; i < t->recipe.rule->n_slots; i++) {
        const struct qm_quantizer *q = &t->slot[i];
        int is_run = q->norm == QM_NORM_block || (q->norm == QM_NORM_rank1 && t->shape.rank < 2);
        int64_t own = !q->bits || !is_run ? 0 : q->norm == QM_NORM_block ? q->block : 128;
        block = own > block ? own : block;
    }
    return block;
}

/* ---- other shapes ---------------------------------------------------------------------------- */

static int64_t dim(const struct qm_shape *s, int from_last)
{
    return s->rank > from_last ? s->dim[s->rank - 1 - from_last] : 1;
}

enum kind { WHOLE, ROWS, COLUMNS, OTHER };

/* Whether slot i has the number of entries of this kind. */
static int is_kind(const struct qm_trial *t, int i, enum kind kind)
{
    int64_t n = t->slot_n[i];
    return kind == WHOLE  ? n == t->n
           : kind == ROWS ? n * dim(&t->shape, 0) == t->n
                          : kind == COLUMNS && n * dim(&t->shape, 1) == t->n;
}

/* Slot i's number of entries: one per element, row or column, or any other number.  For a square
 * matrix the first slot of one entry per row or column counts as rows. */
static enum kind kind_of(const struct qm_trial *t, int i, int *has_rows)
{
    if (is_kind(t, i, WHOLE))
        return WHOLE;
    if (is_kind(t, i, ROWS) && !*has_rows) {
        *has_rows = 1;
        return ROWS;
    }
    return is_kind(t, i, COLUMNS) ? COLUMNS : OTHER;
}

/* The element of the old slot that element k of the new slot comes from. */
static int64_t source(const struct qm_trial *old, const struct qm_trial *t, int i, enum kind kind,
                      const int64_t *map, int64_t k)
{
    int64_t cols = dim(&t->shape, 0), rows = dim(&t->shape, 1), m;
    int64_t old_cols = dim(&old->shape, 0), old_rows = dim(&old->shape, 1);
    switch (kind) {
    case WHOLE: return map[k];
    case ROWS: return map[k * cols] / old_cols;
    case COLUMNS:
        m = map[k / cols * rows * cols + k % cols];
        return m / (old_rows * old_cols) * old_cols + m % old_cols;
    default: return old->slot_n[i] ? k % old->slot_n[i] : 0;
    }
}

static void remap_slot(const struct qm_trial *old, const struct qm_call *a,
                       const struct qm_trial *t, const struct qm_call *b, int i, enum kind kind,
                       const int64_t *map)
{
    const struct qm_quantizer *q = &t->slot[i];
    if (old->slot_n[i] == 0)
        return;
    for (int64_t k = t->slot_n[i] - 1; k >= 0;
         k--) { /* descending, so that the first element decides a scale */
        int64_t from = source(old, t, i, kind, map, k), to[QM_MAX_RANK], was[QM_MAX_RANK];
        if (!q->bits) {
            b->scales[i][k] = a->scales[i][from];
            continue;
        }
        b->codes[i][k] = a->codes[i][from];
        int n_to = qm_groups_of(q, &t->slot_shape[i], k, to);
        int n_was = qm_groups_of(q, &old->slot_shape[i], from, was);
        for (int j = 0; j < n_to; j++)
            b->scales[i][to[j]] = a->scales[i][was[j < n_was ? j : n_was - 1]];
    }
}

static void remap_plain(void *to, const void *from, size_t size, int64_t n, const int64_t *map)
{
    for (int64_t i = 0; i < n; i++)
        memcpy((char *)to + (size_t)i * size, (const char *)from + (size_t)map[i] * size, size);
}

qm_status qm_trial_remap(const struct qm_trial *old, const struct qm_shape *shape,
                         const int64_t *map, struct qm_trial *out)
{
    struct qm_trial t = *old;
    t.shape = *shape;
    QM_TRY(qm_trial_open(&t));
    for (int k = 0; k < t.n_calls; k++) {
        struct qm_call a = qm_trial_call(old, k), b = qm_trial_call(&t, k);
        int has_rows = 0;
        *b.t = *a.t;
        remap_plain(b.p, a.p, (size_t)qm_param_bytes(&t.recipe.param), t.n, map);
        remap_plain(b.residual, a.residual, (size_t)qm_param_residual(&t.recipe.param), t.n, map);
        remap_plain(b.g, a.g, qm_dtype_size(t.recipe.grad), t.n, map);
        for (int i = 0; i < t.recipe.rule->n_slots; i++) {
            enum kind kind = kind_of(old, i, &has_rows);
            remap_slot(old, &a, &t, &b, i, is_kind(&t, i, kind) ? kind : OTHER, map);
        }
    }
    *out = t;
    return QM_OK;
}

/* ---- text ------------------------------------------------------------------------------------ */

static void print_floats(FILE *to, const char *what, enum qm_dtype type, const void *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double value;
        qm_to_double(x, type, i, 1, &value);
        if (value != 0.0)
            fprintf(to, "  %s[%lld] = %a\n", what, (long long)i, value);
    }
}

void qm_trial_print(const struct qm_trial *t, FILE *to)
{
    char recipe[QM_RECIPE_TEXT], shape[64], name[64];
    fprintf(to, "recipe %s\nshape  %s\n", qm_recipe_print(&t->recipe, recipe),
            qm_shape_print(&t->shape, shape, sizeof shape));
    for (int k = 0; k < t->n_calls; k++) {
        struct qm_call c = qm_trial_call(t, k);
        fprintf(to, "step   %lld; what is not listed is 0\n", (long long)*c.t);
        enum qm_dtype stored = qm_param_dtype(&t->recipe.param);
        print_floats(to, stored == QM_DTYPE_u8 ? "parameter code" : "parameter", stored, c.p, t->n);
        print_floats(to, "gradient", t->recipe.grad, c.g, t->n);
        for (int i = 0; i < t->recipe.rule->n_slots; i++) {
            const char *slot = t->recipe.rule->slot[i];
            snprintf(name, sizeof name, "%s code", slot);
            if (t->slot[i].bits)
                print_floats(to, name, QM_DTYPE_u8, c.codes[i], t->slot_n[i]);
            snprintf(name, sizeof name, "%s%s", slot, t->slot[i].bits ? " scale" : "");
            print_floats(to, name, QM_DTYPE_f32, c.scales[i], t->n_scales[i]);
        }
    }
}
