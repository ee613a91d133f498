/* microadam.c - Replays the golden vectors of MicroAdam.
 *
 * quant/NAME and optim/NAME; every array of floats is recorded as the bits of bfloat16.  A run is
 * taken step by step from the recorded state and parameter.  To the bit: codes, minima, maxima, and
 * the sets of (index, value) of each block; their order is that of torch.topk, and of equal
 * magnitudes the recorded ones are followed.  So is the parameter: torch multiplies by lr and adds
 * in float32 in whole vectors of 32 elements (64 with AVX-512), and rounds the product to bfloat16
 * first in what is left over; both are formed here, and a number of the rest may be either.  Of
 * tensors that torch may share out to threads any number may.  A zero that is an end of a block may
 * have either sign, for the package takes the minimum in no stated order. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "experiments/conform/run.h"

enum { ERROR, INDEX, VALUE };

/* n numbers whose bfloat16 bits are recorded. */
static float *halves(struct qm_conform *c, const char *name, int64_t n)
{
    const uint64_t *bits = qm_golden_case_halves(c, name, n);
    float *x = qm_golden_case_memory(c, n, sizeof *x);
    for (int64_t i = 0; bits && x && i < n; i++)
        x[i] = qm_bf16_to_float((uint16_t)bits[i]);
    return bits ? x : NULL;
}

static float narrow(float x) { return qm_bf16_to_float(qm_float_to_bf16(x)); }

/* ---- quantizer ------------------------------------------------------------------------------- */

static int affine(struct qm_conform *c, struct qm_codec *codec)
{
    return qm_golden_case_codec(c, codec, "affine:4s/block:%lld/arith/near/hi/affine/bf16",
                                (long long)qm_golden_case_whole(c, "quant_block_size", 0));
}

/* lo and hi side by side, from recorded minima and maxima, which may be one too many. */
static float *ends_of(struct qm_conform *c, const float *min, const float *max, int64_t blocks)
{
    float *ends = qm_golden_case_memory(c, 2 * blocks, sizeof *ends);
    for (int64_t b = 0; ends && b < blocks; b++) {
        ends[2 * b] = min[b];
        ends[2 * b + 1] = max[b];
    }
    return ends;
}

/* Encodes x and compares with recorded codes and ends. */
static void judge_codes(struct qm_conform *c, const struct qm_codec *codec, const float *x,
                        const int64_t *want, const float *ends, int64_t n)
{
    const struct qm_shape flat = qm_shape_flat(n);
    int64_t count = qm_scale_count(codec, &flat);
    uint8_t *codes = qm_golden_case_memory(c, n, 1);
    float *got = qm_golden_case_memory(c, count, sizeof *got), *same;
    if (!codes || !got || !(same = qm_golden_case_memory(c, count, sizeof *same)))
        return;
    if (qm_encode(codec, &flat, x, NULL, codes, got) != QM_OK) {
        qm_golden_case_failed(c);
        return;
    }
    for (int64_t i = 0; i < count; i++) { /* -0 + 0 is +0 */
        got[i] = got[i] + 0.0f;
        same[i] = ends[i] + 0.0f;
    }
    qm_match_floats(c, "end of a block", got, same, count);
    qm_match_codes(c, "code", codes, want, n);
}

static void replay_quantizer(struct qm_conform *c)
{
    static const struct qm_golden_need needs[] = {
        {"x", QM_NEED_data, 0, 0, 0},       {"min", QM_NEED_data, 0, 0, 0},
        {"max", QM_NEED_data, 0, 0, 0},     {"codes", QM_NEED_data, 0, 0, 0},
        {"dequant", QM_NEED_data, 0, 0, 0}, {"quant_block_size", QM_NEED_number, 1, 1e9, 0}};
    struct qm_codec codec;
    if (!qm_golden_case_needs(c, needs, sizeof needs / sizeof *needs) || !affine(c, &codec))
        return;
    int64_t n = qm_golden_case_numel(c, "x"), stored = qm_golden_case_numel(c, "min");
    const struct qm_shape flat = qm_shape_flat(n);
    int64_t blocks = qm_scale_count(&codec, &flat) / 2;
    const float *x = halves(c, "x", n), *min = halves(c, "min", stored),
                *max = halves(c, "max", stored), *dequant = halves(c, "dequant", n);
    const int64_t *codes = qm_golden_case_ints(c, "codes", n);
    uint8_t *bytes = qm_golden_case_memory(c, n, 1), *packed = qm_golden_case_memory(c, n, 1);
    float *out = qm_golden_case_memory(c, n, sizeof *out), *ends;
    if (!x || !min || !max || !dequant || !codes || !bytes || !packed || !out)
        return;
    if (stored < blocks) {
        qm_golden_case_differs(c, "%lld minima for %lld blocks", (long long)stored,
                               (long long)blocks);
        return;
    }
    if (!(ends = ends_of(c, min, max, blocks)))
        return;
    judge_codes(c, &codec, x, codes, ends, n);
    for (int64_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)codes[i];
    qm_decode(&codec, &flat, bytes, ends, out);
    for (int64_t i = 0; i < n; i++) /* recorded as a sum with zero */
        out[i] = narrow(out[i]) + 0.0f;
    qm_match_floats(c, "decoded", out, dequant, n);
    if (qm_golden_case_has(c, "packed")) {
        int64_t size = qm_code_bytes(&codec, n);
        qm_pack_range(&codec, bytes, n, packed);
        qm_match_codes(c, "packed", packed, qm_golden_case_ints(c, "packed", size), size);
    }
}

/* ---- runs ------------------------------------------------------------------------------------ */

struct record {
    struct qm_recipe recipe;
    struct qm_codec codec;
    struct qm_shape flat, row;
    int64_t n, steps, blocks, stored; /* stored: recorded minima of a step */
    int64_t block, many, few, cells;  /* cells: window times k */
    const float *p0, *grads, *params, *min, *max, *index, *value;
    const int64_t *codes;
};

static int read_recipe(struct qm_conform *c, struct record *r)
{
    double betas[2];
    char text[32] = "";
    struct qm_recipe *to = &r->recipe;
    qm_golden_case_text(c, "param_dtype", text, sizeof text);
    if (strcmp(text, "bfloat16") != 0) {
        qm_golden_case_skip(c, "parameters of %.20s: the source takes bfloat16 alone", text);
        return 0;
    }
    if (!qm_run_betas(c, betas) || !affine(c, &r->codec) ||
        qm_recipe_parse("microadam4", to) != QM_OK)
        return 0;
    to->grad = QM_DTYPE_bf16;
    to->slot[ERROR] = r->codec.q;
    to->hyper.lr = qm_golden_case_number(c, "lr", 1e-3);
    to->hyper.beta1 = betas[0];
    to->hyper.beta2 = betas[1];
    to->hyper.eps = qm_golden_case_number(c, "eps", 1e-8);
    to->hyper.weight_decay = qm_golden_case_number(c, "weight_decay", 0.0);
    to->hyper.alpha = qm_golden_case_number(c, "alpha", 0.0);
    to->hyper.window = qm_golden_case_number(c, "m", 10.0);
    to->hyper.k_init = qm_golden_case_number(c, "k_init", 0.01);
    to->hyper.d_block = qm_golden_case_number(c, "d_block_size", 0.0);
    if (qm_recipe_applicable(to) != QM_OK) {
        qm_golden_case_skip(c, "%s", qm_message());
        return 0;
    }
    return 1;
}

/* The recorded numbers of elements that a step takes are those of the rule.  A tensor that is
 * smaller than d_block_size is one block. */
static int sizes_agree(struct qm_conform *c, struct record *r)
{
    int64_t k = qm_golden_case_whole(c, "k", -1);
    r->block = qm_golden_case_whole(c, "d_block_size", 0);
    r->block = r->block < r->n ? r->block : r->n;
    r->many = qm_golden_case_whole(c, "k_block_size_many", 0);
    r->few = qm_golden_case_whole(c, "k_block_size_few", 0);
    qm_rule_slot_shape(r->recipe.rule, &r->recipe.hyper, INDEX, &r->flat, &r->row);
    r->cells = qm_shape_numel(&r->row);
    int64_t made = r->n > 0 ? r->n / r->block * r->many + r->few : 0;
    if (r->row.dim[1] == k && made == k)
        return 1;
    qm_golden_case_differs(c,
                           "k is %lld, k_block_size_many and k_block_size_few make %lld, the rule "
                           "takes %lld",
                           (long long)k, (long long)made, (long long)r->row.dim[1]);
    return 0;
}

/* The indices of the window, integers of any width, as the slot holds them; NULL: unreadable. */
static float *indices(struct qm_conform *c, int64_t n)
{
    const int64_t *recorded = qm_golden_case_ints(c, "state/index", n);
    float *x = recorded ? qm_golden_case_memory(c, n, sizeof *x) : NULL;
    for (int64_t i = 0; i < n && x; i++)
        x[i] = (float)recorded[i];
    return x;
}

static int read_record(struct qm_conform *c, struct record *r)
{
    static const struct qm_golden_need needs[] = {{"steps", QM_NEED_number, 1, 1e6, 0},
                                                  {"lr", QM_NEED_number, 0, 1e30, 0},
                                                  {"m", QM_NEED_number, 1, 4096, 0},
                                                  {"k", QM_NEED_number, 0, 1e9, 0},
                                                  {"k_block_size_many", QM_NEED_number, 0, 1e9, 0},
                                                  {"k_block_size_few", QM_NEED_number, 0, 1e9, 0},
                                                  {"param_dtype", QM_NEED_text, 0, 0, 0},
                                                  {"eps", QM_NEED_number, 0, 1e30, 1},
                                                  {"weight_decay", QM_NEED_number, 0, 1e9, 1},
                                                  {"d_block_size", QM_NEED_number, 1, 1e9, 0},
                                                  {"quant_block_size", QM_NEED_number, 1, 1e9, 0},
                                                  {"p0", QM_NEED_data, 0, 0, 0},
                                                  {"grads", QM_NEED_data, 0, 0, 0},
                                                  {"params", QM_NEED_data, 0, 0, 0}};
    if (!qm_golden_case_needs(c, needs, sizeof needs / sizeof *needs) || !read_recipe(c, r))
        return 0;
    r->n = qm_golden_case_numel(c, "p0");
    r->flat = qm_shape_flat(r->n);
    if (!sizes_agree(c, r))
        return 0;
    r->steps = qm_golden_case_whole(c, "steps", 0);
    r->blocks = qm_scale_count(&r->codec, &r->flat) / 2;
    r->stored = qm_golden_case_per(c, "state/min", r->steps);
    r->p0 = halves(c, "p0", r->n);
    r->grads = halves(c, "grads", r->steps * r->n);
    r->params = halves(c, "params", r->steps * r->n);
    r->min = halves(c, "state/min", r->steps * r->stored);
    r->max = halves(c, "state/max", r->steps * r->stored);
    r->value = halves(c, "state/value", r->steps * r->cells);
    r->index = indices(c, r->steps * r->cells);
    r->codes = qm_golden_case_ints(c, "state/error_codes", r->steps * r->n);
    return r->p0 && r->grads && r->params && r->min && r->max && r->value && r->index && r->codes &&
           r->stored >= r->blocks;
}

/* slot[] <- the recorded state after step t; zeros before the first. */
static int state_after(struct qm_conform *c, const struct record *r, int64_t t, float *const *slot)
{
    uint8_t *codes = qm_golden_case_memory(c, r->n, 1);
    size_t cells = sizeof(float) * (size_t)r->cells;
    memset(slot[ERROR], 0, sizeof(float) * (size_t)r->n);
    memset(slot[INDEX], 0, cells);
    memset(slot[VALUE], 0, cells);
    if (t == 0 || !codes)
        return codes != NULL;
    const float *ends =
        ends_of(c, r->min + (t - 1) * r->stored, r->max + (t - 1) * r->stored, r->blocks);
    for (int64_t i = 0; i < r->n; i++)
        codes[i] = (uint8_t)r->codes[(t - 1) * r->n + i];
    memcpy(slot[INDEX], r->index + (t - 1) * r->cells, cells);
    memcpy(slot[VALUE], r->value + (t - 1) * r->cells, cells);
    if (ends)
        qm_decode(&r->codec, &r->flat, codes, ends, slot[ERROR]);
    return ends != NULL;
}

static uint32_t size_of(float x) { return qm_bits(x) & 0x7fffffffu; }

/* Judges the k elements that a step took of x[n], a block of the error, whose places hold 0 now;
 * then takes the recorded ones instead.  row, want: index and value; marks: n of them. */
static void follow(struct qm_conform *c, int64_t n, int64_t k, float *x, float *const *row,
                   const float *const *want, uint8_t *marks)
{
    float *index = row[0], *value = row[1];
    const float *want_index = want[0], *want_value = want[1];
    uint32_t least = 0xffffffffu;
    memset(marks, 0, (size_t)n);
    for (int64_t j = 0; j < k; j++) {
        x[(int64_t)index[j]] = value[j];
        least = size_of(value[j]) < least ? size_of(value[j]) : least;
    }
    for (int64_t j = 0; j < k && qm_golden_case_open(c); j++) {
        int64_t i = (int64_t)want_index[j];
        if (i < 0 || i >= n || marks[i] || size_of(x[i]) < least)
            qm_golden_case_differs(c, "index %lld is recorded, which is not among the largest %lld",
                                   (long long)i, (long long)k);
        else if (qm_bits(x[i]) != qm_bits(want_value[j]) && !qm_isnan(x[i]))
            qm_golden_case_differs(c, "index %lld has the value %a, recorded %a", (long long)i,
                                   (double)x[i], (double)want_value[j]);
        else
            marks[i] = 1;
    }
    for (int64_t j = 0; j < k && qm_golden_case_open(c); j++)
        if (size_of(value[j]) > least && !marks[(int64_t)index[j]])
            qm_golden_case_differs(c, "index %lld is not recorded", (long long)index[j]);
    for (int64_t j = 0; j < k && qm_golden_case_open(c); j++) {
        x[(int64_t)want_index[j]] = 0.0f;
        index[j] = want_index[j];
        value[j] = want_value[j];
    }
}

/* Judges the window after step t; the recorded choice of equal magnitudes is taken over. */
static void judge_window(struct qm_conform *c, const struct record *r, int64_t t,
                         float *const *slot, uint8_t *marks)
{
    int64_t k = r->row.dim[1], row = (t - 1) % r->row.dim[0] * k, at = row;
    const float *index = r->index + (t - 1) * r->cells, *value = r->value + (t - 1) * r->cells;
    for (int64_t from = 0; from < r->n; from += r->block) {
        int is_full = r->n - from >= r->block;
        int64_t taken = is_full ? r->many : r->few;
        float *const mine[] = {slot[INDEX] + at, slot[VALUE] + at};
        const float *const want[] = {index + at, value + at};
        follow(c, is_full ? r->block : r->n - from, taken, slot[ERROR] + from, mine, want, marks);
        at += taken;
    }
    qm_match_floats(c, "index", slot[INDEX], index, r->cells);
    qm_match_floats(c, "value", slot[VALUE], value, r->cells);
}

static void judge_error(struct qm_conform *c, const struct record *r, int64_t t, const float *error)
{
    const float *ends =
        ends_of(c, r->min + (t - 1) * r->stored, r->max + (t - 1) * r->stored, r->blocks);
    if (ends)
        judge_codes(c, &r->codec, error, r->codes + (t - 1) * r->n, ends, r->n);
}

/* error <- itself encoded and decoded. */
static void recode(struct qm_conform *c, const struct record *r, float *error)
{
    uint8_t *codes = qm_golden_case_memory(c, r->n, 1);
    float *ends = qm_golden_case_memory(c, 2 * r->blocks, sizeof *ends);
    if (codes && ends && qm_encode(&r->codec, &r->flat, error, NULL, codes, ends) == QM_OK)
        qm_decode(&r->codec, &r->flat, codes, ends, error);
}

/* One application of the stored state by other hyper-parameters, which leaves that as it is. */
static qm_status apply_by(struct qm_conform *c, const struct record *r, const struct qm_hyper *h,
                          const struct qm_tensor_rule_args *w, float *p)
{
    struct qm_rule_step s;
    struct qm_tensor_rule_args by = *w;
    float *error = qm_golden_case_memory(c, r->n, sizeof *error);
    if (!error)
        return QM_NO_MEMORY;
    memcpy(error, w->slot[ERROR], sizeof *error * (size_t)r->n);
    r->recipe.rule->prepare(h, w->s->t, &s);
    by.s = &s;
    by.p = p;
    by.slot[ERROR] = error;
    return r->recipe.rule->tensor->apply(&by);
}

/* out[n] <- the parameters whose product lr u is rounded to bfloat16 before the sum: of the one
 * application the decay alone is left, of the other the product alone. */
static qm_status rounded_apart(struct qm_conform *c, const struct record *r,
                               const struct qm_tensor_rule_args *w, float *out)
{
    struct qm_hyper decay = r->recipe.hyper, product = decay;
    struct qm_tensor_rule_args alone = *w;
    float *minus = qm_golden_case_memory(c, 2 * r->n, sizeof *minus);
    if (!minus)
        return QM_NO_MEMORY;
    if (decay.lr > 0.0) { /* a rate that float32 has as 0 */
        decay.weight_decay *= decay.lr / 1e-200;
        decay.lr = 1e-200;
    }
    product.lr = (double)narrow((float)product.lr);
    product.weight_decay = 0.0;
    alone.param = QM_DTYPE_f32;
    alone.room = minus + r->n; /* what alpha = -2 takes off and adds again */
    for (int64_t i = 0; i < r->n; i++)
        alone.room[i] = narrow(w->slot[ERROR][i]);
    memcpy(out, w->p, sizeof *out * (size_t)r->n);
    QM_TRY(apply_by(c, r, &decay, w, out));
    QM_TRY(apply_by(c, r, &product, &alone, minus));
    for (int64_t i = 0; i < r->n; i++)
        out[i] = narrow(out[i] + narrow(minus[i]));
    return QM_OK;
}

/* apart: the parameters by the other order of roundings. */
static void judge_params(struct qm_conform *c, float *got, const float *apart, const float *want,
                         int64_t n)
{
    enum { LANES = 64, SHARED = 32768 };
    for (int64_t i = n >= SHARED ? 0 : n - n % LANES; i < n; i++) {
        if (qm_bits(got[i]) == qm_bits(want[i]) || qm_bits(apart[i]) != qm_bits(want[i]))
            continue;
        got[i] = want[i];
        if (c->now.outcome != QM_CONFORM_equal)
            continue;
        c->now.outcome = QM_CONFORM_near;
        snprintf(c->now.text, sizeof c->now.text, "parameter[%lld]: the product is rounded first",
                 (long long)i);
    }
    qm_match_floats(c, "parameter", got, want, n);
}

static void replay_run(struct qm_conform *c)
{
    struct record r = {.n = 0};
    float *p, *room, *apart, *slot[3];
    uint8_t *marks;
    if (!read_record(c, &r))
        return;
    const double *rates = qm_golden_case_rates(c, r.steps);
    const struct qm_tensor_ops *ops = r.recipe.rule->tensor;
    for (int i = 0; i < 3; i++)
        if (!(slot[i] = qm_golden_case_memory(c, i ? r.cells : r.n, sizeof *p)))
            return;
    if (!(p = qm_golden_case_memory(c, r.n, sizeof *p)) ||
        !(room = qm_golden_case_memory(c, r.n, sizeof *p)) ||
        !(apart = qm_golden_case_memory(c, r.n, sizeof *p)) ||
        !(marks = qm_golden_case_memory(c, r.n, 1)))
        return;
    for (int64_t t = 1; t <= r.steps && qm_golden_case_open(c); t++) {
        struct qm_rule_step s;
        struct qm_tensor_rule_args w = {.s = &s,
                                        .shape = &r.flat,
                                        .param = QM_DTYPE_bf16,
                                        .p = p,
                                        .g = r.grads + (t - 1) * r.n,
                                        .room = room};
        r.recipe.hyper.lr = rates ? rates[t - 1] : r.recipe.hyper.lr;
        r.recipe.rule->prepare(&r.recipe.hyper, t, &s);
        memcpy(p, t > 1 ? r.params + (t - 2) * r.n : r.p0, sizeof *p * (size_t)r.n);
        memcpy(w.slot, slot, sizeof slot);
        if (!state_after(c, &r, t - 1, slot) || ops->states(&w) != QM_OK)
            return;
        judge_window(c, &r, t, slot, marks);
        if (r.recipe.hyper.alpha == -2.0)
            memcpy(room, slot[ERROR], sizeof *room * (size_t)r.n);
        if (!ops->encodes_again(&w, ERROR))
            judge_error(c, &r, t, slot[ERROR]);
        if (ops->applies_stored(&w, ERROR))
            recode(c, &r, slot[ERROR]);
        if (rounded_apart(c, &r, &w, apart) != QM_OK || ops->apply(&w) != QM_OK)
            return;
        if (ops->encodes_again(&w, ERROR))
            judge_error(c, &r, t, slot[ERROR]);
        judge_params(c, p, apart, r.params + (t - 1) * r.n, r.n);
    }
    char text[QM_RECIPE_TEXT];
    snprintf(c->now.how, sizeof c->now.how, "%.250s", qm_recipe_print(&r.recipe, text));
}

void qm_conform_microadam(struct qm_conform *c)
{
    qm_golden_read_all(
        c, &(struct qm_golden_readers){.run = replay_run, .quantizer = replay_quantizer});
}
