/* step_form.c - Chooses how each slot is folded, and writes the recipe's constants as CUDA text. */
#include "core/device/step_form.h"

#include <stdlib.h>
#include <string.h>

#include "core/device/tensor_rule_form.h"
#include "core/quant/block_numbers.h"

enum { TILE = QM_STEP_THREADS * QM_STEP_EACH, WARP = 32 };

/* ---- the form ------------------------------------------------------------------------------- */

static int64_t gcd(int64_t a, int64_t b) { return b ? gcd(b, a % b) : a; }

static int is_placed(enum qm_norm n)
{
    return n != QM_NORM_id && n != QM_NORM_tensor && n != QM_NORM_block;
}

/* *step: the number of elements that the tile must be a multiple of, so far. */
static enum qm_way way_of(const struct qm_quantizer *q, int64_t *step)
{
    if (q->bits == 0)
        return QM_WAY_PLAIN;
    if (q->norm == QM_NORM_id)
        return QM_WAY_NONE;
    if (q->norm != QM_NORM_block || q->block > TILE)
        return QM_WAY_TWICE;
    int64_t both = *step / gcd(*step, q->block) * q->block, threads = q->block / QM_STEP_EACH;
    if (both > TILE)
        return QM_WAY_TWICE;
    *step = both;
    int by_lanes = q->block % QM_STEP_EACH == 0 && threads <= WARP &&
                   (threads & (threads - 1)) == 0 && !qm_curve_needs_block(q->curve);
    return by_lanes ? QM_WAY_LANES : QM_WAY_SHARED;
}

static qm_status slot_form(const struct qm_recipe *r, int i, const struct qm_shape *shape,
                           int64_t *step, struct qm_slot_form *s)
{
    struct qm_quantizer q = qm_recipe_slot(r, i, shape);
    QM_TRY(qm_codec_init(&s->codec, &q));
    QM_TRY(qm_codec_fits(&s->codec, shape));
    if (q.bits && q.scale.nest)
        return qm_fail(QM_SKIPPED, "nested scales have no kernel");
    s->codec.q.norm = qm_norm_of_rank(q.norm, shape->rank, &s->codec.q.block);
    s->way = way_of(&s->codec.q, step);
    s->placed = q.bits && is_placed(s->codec.q.norm);
    s->numbers = q.bits ? qm_block_numbers(&s->codec) : 1;
    s->needs_block = q.bits && qm_curve_needs_block(q.curve);
    if (s->needs_block && s->way == QM_WAY_TWICE)
        return qm_fail(QM_SKIPPED, "curve %s has no kernel for blocks that fit no tile of %d",
                       "qlog", TILE);
    s->folds = s->way == QM_WAY_TWICE ? qm_folds(&s->codec) : 0;
    return QM_OK;
}

qm_status qm_step_form(const struct qm_recipe *r, const struct qm_shape *shape, enum qm_dtype grad,
                       struct qm_step_form *out)
{
    int64_t step = QM_STEP_EACH;
    struct qm_recipe at = qm_recipe_at(r, shape);
    r = &at;
    if (!r->rule->elementwise)
        return qm_fail(QM_SKIPPED, "rule %s sums over whole tensors: no single kernel",
                       r->rule->name);
    memset(out, 0, sizeof *out);
    out->rule = r->rule;
    out->param = r->param;
    out->grad = grad;
    out->tensor_rule = r->rule->tensor != NULL;
    out->n_slots = r->rule->n_slots;
    out->rank = 1;
    for (int i = 0; i < out->n_slots; i++) {
        QM_TRY(slot_form(r, i, shape, &step, &out->slot[i]));
        if (out->slot[i].placed)
            out->rank = shape->rank;
        if (out->slot[i].folds > out->folds)
            out->folds = out->slot[i].folds;
    }
    out->tile = (int)(TILE / step * step);
    for (int i = 0; i < out->n_slots; i++)
        if (out->slot[i].way == QM_WAY_SHARED) {
            out->slot[i].room = out->room;
            out->room += (int)(out->tile / out->slot[i].codec.q.block) * out->slot[i].numbers;
        }
    for (int i = 0; i < out->n_slots; i++)
        if (out->slot[i].needs_block) {
            out->slot[i].fresh = out->fresh;
            out->fresh += out->tile;
        }
    out->words = QM_DESC_DIMS + 2 * out->rank + QM_SLOT_COUNT * out->n_slots;
    int each = 8 * out->words + 4 * (int)sizeof(struct qm_chunk);
    out->by_value_tensors = QM_STEP_BY_VALUE / each;
    out->by_value_chunks =
        (QM_STEP_BY_VALUE - 8 * out->words * out->by_value_tensors) / (int)sizeof(struct qm_chunk);
    return QM_OK;
}

/* ---- the text ------------------------------------------------------------------------------- */

static void print_floats(FILE *f, const char *name, int i, const float *x, int n)
{
    fprintf(f, "static __device__ const float %s_%d[] = {", name, i);
    for (int k = 0; k < n; k++)
        fprintf(f, "%s%af,", k % 8 ? " " : "\n    ", (double)x[k]);
    fputs("};\n", f);
}

static void print_bytes(FILE *f, const char *name, int i, const uint8_t *x, int n)
{
    fprintf(f, "static __device__ const uint8_t %s_%d[] = {", name, i);
    for (int k = 0; k < n; k++)
        fprintf(f, "%d,", x[k]);
    fputs("};\n", f);
}

static int is_e4m3(const struct qm_codec *c)
{
    return c->cb.is_float && c->q.round == QM_ROUND_even && c->has_edges;
}

/* The number of codes rounded up to a power of two, at least 16, n: the search bisects n - 1 edges.
 * 0: the slot does not search edges. */
static int edge_count(const struct qm_codec *c)
{
    int n = 16;
    if (!c->has_edges || c->q.search == QM_SEARCH_arith || is_e4m3(c))
        return 0;
    while (n < c->cb.n)
        n *= 2;
    return n;
}

/* Whether the edges decide every number: a monotone search gives beyond the limit, up to which
 * edges were sought, the code that it gives at the limit. */
static int edges_suffice(const struct qm_codec *c)
{
    float limit = qm_codec_limit(c);
    return c->has_edges && c->q.search != QM_SEARCH_argmin &&
           qm_code_of(c, INFINITY, 0) == qm_code_of(c, limit, 0) &&
           qm_code_of(c, -INFINITY, 0) == qm_code_of(c, -limit, 0);
}

/* Prints the edges as bits; a missing edge is a NaN, which no number reaches. */
static void print_edges(FILE *f, const struct qm_codec *c, int i)
{
    int n = edge_count(c);
    if (n == 0)
        return;
    fprintf(f, "static __device__ const uint32_t edge_%d[] = {", i);
    for (int k = 0; k < n - 1; k++) {
        int is_there = k + 1 < c->cb.n && c->edge[k] < INFINITY;
        fprintf(f, "%s0x%08x,", k % 8 ? " " : "\n    ",
                is_there ? qm_bits(c->edge[k]) : 0x7fc00000u);
    }
    fputs("};\n", f);
}

static void print_quantizer(FILE *f, const struct qm_quantizer *q)
{
    const struct qm_scale_rule *s = &q->scale;
    char text[QM_QUANTIZER_TEXT];
    fprintf(f, "    /* %s */\n", qm_quantizer_print(q, text));
    fprintf(f,
            "    QM_DEV struct qm_quantizer q()\n    {\n"
            "        struct qm_quantizer q = {(enum qm_plain)%d, (enum qm_map)%d, %d, %d, "
            "(enum qm_norm)%d, %d, %lld, (enum qm_curve)%d, (enum qm_search)%d, (enum qm_round)%d, "
            "(enum qm_unit)%d, {%a, %af, %af, %af, %af, %d, %d, %d, %d, (enum qm_f16)%d, (enum "
            "qm_nan)%d, "
            "%lld}, (enum qm_pack)%d};\n        return q;\n    }\n",
            (int)q->plain, (int)q->map, q->bits, q->sign, (int)q->norm, q->expand,
            (long long)q->block, (int)q->curve, (int)q->search, (int)q->round, (int)q->unit,
            s->plus, (double)s->floor, (double)s->guard, (double)s->cap, (double)s->quantile,
            s->zero, s->least, s->max_skips_nan, s->keep_sign, (int)s->f16, (int)s->nan,
            (long long)s->nest, (int)q->pack);
}

static void print_codebook(FILE *f, const struct qm_codec *c, int i)
{
    const struct qm_codebook *b = &c->cb;
    char cut[24] = "0", perm[24] = "0", position[24] = "0";
    if (b->has_cuts)
        snprintf(cut, sizeof cut, "cut_%d", i);
    if (b->is_permuted) {
        snprintf(perm, sizeof perm, "perm_%d", i);
        snprintf(position, sizeof position, "position_%d", i);
    }
    fprintf(f,
            "    QM_DEV struct qm_codebook book(const float *value)\n    {\n"
            "        struct qm_codebook b = {%d, value, %s, %s, %s, %d, %d, %d, %d, %af, %af, %af, "
            "%af, %d};\n        return b;\n    }\n",
            b->n, cut, perm, position, b->has_cuts, b->is_permuted, b->is_float, b->zero,
            (double)b->gain, (double)b->over, (double)b->post, (double)b->steps, b->base);
}

static void print_slot(FILE *f, const struct qm_slot_form *s, int i)
{
    const struct qm_codec *c = &s->codec;
    int coded = c->q.bits > 0, n_edges = coded ? edge_count(c) : 0;
    int n_values = coded ? c->cb.n : 0;
    if (coded) {
        print_floats(f, "value", i, c->cb.value, n_values);
        print_edges(f, c, i);
        if (c->cb.has_cuts)
            print_floats(f, "cut", i, c->cb.cut, c->cb.n - 1);
        if (c->cb.is_permuted) {
            print_bytes(f, "perm", i, c->cb.perm, 256);
            print_bytes(f, "position", i, c->cb.position_of, 256);
        }
    }
    fprintf(f, "template <> struct slot<%d> {\n", i);
    fprintf(f,
            "    static constexpr int way = %d, n_values = %d, n_edges = %d, is_e4m3 = %d, "
            "draws = %d, placed = %d, numbers = %d, folds = %d, room = %d, n_negative = %d, "
            "eight = %d, edges_suffice = %d, needs_block = %d, fresh = %d;\n",
            (int)s->way, n_values, n_edges, coded && is_e4m3(c),
            coded && qm_round_draws(c->q.round), s->placed, s->numbers, s->folds, s->room,
            c->n_negative, coded ? qm_pack_eight_bytes(c->q.pack, c->q.bits) : 0,
            coded && edges_suffice(c), s->needs_block, s->fresh);
    fprintf(f,
            "    static constexpr long long block = %lld;\n"
            "    static constexpr enum qm_norm norm = (enum qm_norm)%d;\n"
            "    static constexpr enum qm_curve curve = (enum qm_curve)%d;\n"
            "    static constexpr float limit = %af;\n",
            (long long)(c->q.block > 0 ? c->q.block : QM_STEP_EACH), (int)c->q.norm,
            (int)c->q.curve, coded ? (double)qm_codec_limit(c) : 0.0);
    print_quantizer(f, &c->q);
    if (coded) {
        print_codebook(f, c, i);
        fprintf(f, "    QM_DEV float value(int k) { return value_%d[k]; }\n", i);
    }
    if (n_edges)
        fprintf(f, "    QM_DEV float edge(int k) { return qm_float(edge_%d[k]); }\n", i);
    fputs("};\n", f);
}

static const char *format_of(enum qm_dtype grad)
{
    return grad == QM_DTYPE_bf16 ? "bf16" : grad == QM_DTYPE_f16 ? "f16" : "f32";
}

/* 0 for slots without random draws, so that their texts do not depend on the slot. */
static int first_slot(const struct qm_step_form *s)
{
    const struct qm_quantizer *q = &s->slot[0].codec.q;
    return q->bits && qm_round_draws(q->round) ? qm_tensor_rule_slot_number(s->rule) : 0;
}

static void print_form(FILE *f, const struct qm_step_form *s)
{
    int values = 1, edges = 1, shared = 0;
    for (int i = 0; i < s->n_slots; i++) {
        const struct qm_codec *c = &s->slot[i].codec;
        int n = c->q.bits ? c->cb.n : 0, e = c->q.bits ? edge_count(c) : 0;
        values = n > values ? n : values;
        edges = e > 16 && e > edges ? e : edges;
        shared |= s->slot[i].way == QM_WAY_SHARED;
    }
    fprintf(
        f,
        "#define QM_SLOTS %d\n#define QM_RANK %d\n#define QM_TILE %d\n#define QM_FOLDS %d\n"
        "#define QM_ROOM %d\n#define QM_FRESH %d\n#define QM_SHARED_WAY %d\n#define QM_VALUES %d\n"
        "#define QM_EDGES %d\n#define QM_FIRST_SLOT %d\n#define QM_BY_VALUE_TENSORS "
        "%d\n#define QM_BY_VALUE_CHUNKS %d\n"
        "#define QM_ELEMENT_FN qm_element_%s\n",
        s->n_slots, s->rank, s->tile, s->folds, s->room > 0 ? s->room : 1, s->fresh, shared, values,
        edges, first_slot(s), s->by_value_tensors, s->by_value_chunks,
        s->rule->elementwise->element);
    fprintf(f,
            "#define QM_FORMAT ((enum qm_param_format)%d)\n"
            "#define QM_WRITE ((enum qm_param_write)%d)\n#define QM_GRADIENT QM_PARAM_%s\n",
            (int)s->param.format, (int)s->param.write, format_of(s->grad));
    if (s->by_value)
        fputs("#define QM_BY_VALUE\n", f);
    if (s->codes)
        fputs("#define QM_CODES\n", f);
    if (s->tensor_rule)
        fputs("#define QM_TENSOR_RULE\n", f);
    for (int i = 0; i < s->n_slots; i++)
        print_slot(f, &s->slot[i], i);
}

char *qm_step_text(const struct qm_step_form *f)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return NULL;
    print_form(out, f);
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}
