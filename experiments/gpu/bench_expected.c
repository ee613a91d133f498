/* bench_expected.c - Makes the steps that were timed on a GPU once more, and compares bits. */
#include "experiments/gpu/bench_expected.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/device/step_kernels.h"
#include "core/recipe/backend.h"
#include "experiments/gpu/gpu.h"

/* WHOLE: tensors of no more elements are made anew as a whole. */
enum { BLOCK = QM_BENCH_COLUMNS, WHOLE = QM_GPU_EXPECTED_ROWS * BLOCK };

/* A backend's plan of one tensor, and its parameters. */
struct side {
    const struct qm_backend *b;
    void *plan;
    uint8_t *p;
};

/* side[1]: of mode fast only. */
struct one {
    int tensor; /* of all of the work's */
    struct side side[2];
};

/* The stored numbers of one slot, or the parameters or residuals: what they are and what they must
 * be. */
struct stored {
    size_t most; /* numbers of each */
    uint8_t *codes[2];
    float *scales[2];
};

struct qm_gpu_expected {
    struct qm_shape shape; /* of a tensor, or of its first rows */
    int64_t n, steps;
    void *g; /* n gradients */
    int is_whole, is_alike, n_ones;
    struct one one[QM_BENCH_PLACES];
    struct stored room;
};

/* ---- which part ------------------------------------------------------------------------------ */

int qm_gpu_stays_alike(const struct qm_gpu_work *w)
{
    int is = !w->r->rule->tensor && w->r->param.write != QM_WRITE_stoch;
    for (int i = 0; i < w->r->rule->n_slots && is; i++) {
        struct qm_quantizer q = qm_recipe_slot(w->r, i, &w->shape);
        is = !qm_round_draws(q.round) && (q.block == 0 || BLOCK % q.block == 0);
    }
    return is;
}

/* Whether the first rows have, in a tensor of their own, the bits that they have in the whole one:
 * the same rule and quantizers, and scales of blocks that end with them, or, where all rows stay
 * alike, of any maximum. */
static int is_alone_as_within(const struct qm_gpu_work *w, const struct qm_shape *rows)
{
    const int64_t n = qm_shape_numel(rows);
    const struct qm_recipe small = qm_recipe_at(w->r, rows), large = qm_recipe_at(w->r, &w->shape);
    int is = !w->r->rule->tensor && small.rule == large.rule;
    for (int i = 0; i < w->r->rule->n_slots && is; i++) {
        struct qm_quantizer q = qm_recipe_slot(w->r, i, &w->shape),
                            of = qm_recipe_slot(w->r, i, rows);
        q = qm_quantizer_at(&q, &w->shape);
        of = qm_quantizer_at(&of, rows);
        is =
            qm_quantizer_equal(&q, &of) &&
            (q.bits == 0 || (q.scale.nest == 0 && (qm_gpu_stays_alike(w) ||
                                                   (q.norm == QM_NORM_block && n % q.block == 0))));
    }
    return is;
}

/* Chooses the shape; 0: there is none. */
static int choose(const struct qm_gpu_work *w, struct qm_gpu_expected *x)
{
    x->is_alike = qm_gpu_stays_alike(w);
    x->is_whole = w->numel <= WHOLE;
    x->shape = w->shape;
    for (int rows = 1; !x->is_whole && rows <= QM_GPU_EXPECTED_ROWS; rows *= 2) {
        x->shape = (struct qm_shape){2, {rows, BLOCK}};
        if (w->shape.rank == 2 && w->shape.dim[1] == BLOCK && is_alone_as_within(w, &x->shape))
            break;
        x->shape.rank = 0;
    }
    x->n = x->shape.rank ? qm_shape_numel(&x->shape) : 0;
    return x->n > 0;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static qm_status side_open(const struct qm_gpu_bench *b, const struct qm_gpu_work *w,
                           const struct qm_gpu_expected *x, int tensor, struct side *s)
{
    const struct qm_param *param = &w->r->param;
    s->p = malloc((size_t)(x->n * qm_param_bytes(param)));
    if (!s->p)
        return qm_fail(QM_NO_MEMORY, "%lld parameters", (long long)x->n);
    qm_param_from_float(param, x->n, b->p, s->p);
    qm_backend_device_mode(w->mode);
    qm_status st = s->b->open(w->r, &x->shape, (uint32_t)tensor, &s->plan);
    qm_backend_device_mode(QM_MODE_exact);
    return st == QM_OK && w->projection
               ? s->b->load(s->plan, w->projection_slot, NULL, w->projection)
               : st;
}

/* Room for the longest of what is compared. */
static int room_open(const struct qm_gpu_work *w, const struct qm_gpu_expected *x,
                     struct stored *room)
{
    int64_t most = 4 * x->n;
    for (int i = 0; i < w->r->rule->n_slots; i++) {
        struct qm_quantizer q = qm_recipe_slot(w->r, i, &x->shape);
        struct qm_codec c = {.q = q};
        struct qm_shape own = x->shape;
        qm_rule_slot_shape(w->r->rule, &w->r->hyper, i, &x->shape, &own);
        int64_t n = qm_shape_numel(&own), scales = q.bits ? qm_scale_count(&c, &own) : 0;
        most = n > most ? n : most;
        most = scales > most ? scales : most;
    }
    int is = 1;
    room->most = (size_t)most;
    for (int k = 0; k < 2; k++)
        is = (room->codes[k] = calloc((size_t)most, 1)) &&
             (room->scales[k] = calloc((size_t)most, sizeof(float))) && is;
    return is;
}

void qm_gpu_expected_close(struct qm_gpu_expected *x)
{
    for (int i = 0; x && i < QM_BENCH_PLACES; i++)
        for (int k = 0; k < 2; k++) {
            struct side *s = &x->one[i].side[k];
            if (s->plan)
                s->b->close(s->plan);
            free(s->p);
        }
    for (int k = 0; x && k < 2; k++) {
        free(x->room.codes[k]);
        free(x->room.scales[k]);
    }
    if (x)
        free(x->g);
    free(x);
}

qm_status qm_gpu_expected_open(const struct qm_gpu_bench *b, struct qm_gpu_work *w)
{
    const int all = w->n * w->tensors;
    struct qm_gpu_expected *x = calloc(1, sizeof *x);
    if (!x)
        return qm_fail(QM_NO_MEMORY, "a comparison");
    if (!choose(w, x)) {
        free(x);
        return QM_OK;
    }
    w->expected = x;
    x->g = malloc(sizeof(float) * (size_t)x->n);
    if (!x->g || !room_open(w, x, &x->room))
        return qm_fail(QM_NO_MEMORY, "%lld parameters", (long long)x->n);
    qm_exact_narrow(b->g, x->n, w->r->grad, x->g);
    x->n_ones = x->is_alike || all == 1 ? 1 : QM_BENCH_PLACES;
    for (int i = 0; i < x->n_ones; i++) {
        struct one *o = &x->one[i];
        o->tensor = i * (all - 1) / (QM_BENCH_PLACES - 1);
        o->side[0].b = &qm_backend_cpu;
        o->side[1].b = &qm_backend_cuda;
        for (int k = 0; k <= (w->mode == QM_MODE_fast); k++)
            QM_TRY(side_open(b, w, x, o->tensor, &o->side[k]));
    }
    return QM_OK;
}

/* Makes the steps of one side that follow the first x->steps. */
static qm_status side_run(const struct qm_gpu_work *w, const struct qm_gpu_expected *x,
                          const struct side *s)
{
    struct qm_tensor p = {s->p, qm_param_dtype(&w->r->param), x->shape};
    const struct qm_tensor g = {x->g, w->r->grad, x->shape};
    for (int64_t i = x->steps + 1; i <= w->made[0]; i++) {
        int64_t t = w->recorded && i > w->recorded ? w->recorded : i;
        QM_TRY(s->b->step(s->plan, &p, &g, t, QM_BENCH_SEED));
    }
    return QM_OK;
}

/* ---- comparing ------------------------------------------------------------------------------- */

static const char *of_what(const struct qm_gpu_work *w)
{
    return w->mode == QM_MODE_exact ? "the CPU's steps give"
                                    : "the same steps give one at a time on this device";
}

/* n numbers of `size` bytes of a tensor, the first of which is number `first`; format: as
 * qm_exact_difference has it. */
struct numbers {
    const char *what;
    int tensor, format;
    size_t size;
    int64_t n, first;
};

static qm_status expect_equal(const struct qm_gpu_work *w, const struct numbers *of,
                              const void *now, const void *want)
{
    int64_t at = qm_exact_difference(now, want, of->format, of->size, of->n);
    return at < 0 ? QM_OK
                  : qm_fail(QM_INTERNAL,
                            "implausible: after %lld steps of a timed tensor, %s %lld of tensor %d "
                            "is not what %s",
                            (long long)w->made[0], of->what, (long long)(of->first + at),
                            of->tensor, of_what(w));
}

/* Where the scales of elements [first, first + n) lie; none, of scales that other elements have
 * part in and that are not as many as in a part: these are seen by the codes. */
static struct qm_batch_range range_of(const struct qm_gpu_work *w, const struct qm_gpu_expected *x,
                                      int slot, int64_t first)
{
    struct qm_quantizer q = qm_recipe_slot(w->r, slot, &w->shape);
    struct qm_codec c = {.q = qm_quantizer_at(&q, &w->shape)};
    struct qm_batch_range at = {.first = first, .n = x->n};
    int64_t block = c.q.block, each = qm_block_numbers(&c);
    enum qm_norm norm = qm_norm_of_rank(c.q.norm, w->shape.rank, &block);
    if (c.q.bits == 0)
        return at;
    if (x->is_whole || norm == QM_NORM_tensor || norm == QM_NORM_col)
        at.n_scales = qm_scale_count(&c, &x->shape);
    else if (norm == QM_NORM_block) {
        at.first_scale = first / block * each;
        at.n_scales = x->n / block * each;
    } else if (norm == QM_NORM_row) {
        at.first_scale = first / BLOCK;
        at.n_scales = x->n / BLOCK;
    }
    return at;
}

/* One tensor of a turn. */
struct where {
    struct qm_batch *batch; /* or whole */
    struct qm_tensor_rule_plan *whole;
    int tensor, k; /* of all of the work's; of the batch */
};

static struct where where_is(const struct qm_gpu_work *w, int turn, int tensor)
{
    const int part = tensor / w->tensors;
    return (struct where){w->part[turn][part].batch, w->part[turn][part].whole, tensor,
                          tensor % w->tensors};
}

static qm_status save(const struct where *at, int slot, const struct qm_batch_range *range,
                      struct stored *to)
{
    memset(to->codes[0], 0xa5, to->most); /* a copy that does nothing leaves no right answer */
    memset(to->scales[0], 0xa5, sizeof(float) * to->most);
    return at->whole
               ? qm_tensor_rule_save(at->whole, at->k, slot, to->codes[0], to->scales[0])
               : qm_batch_save_part(at->batch, at->k, slot, range, to->codes[0], to->scales[0]);
}

static qm_status compare_residuals(const struct qm_gpu_work *w, struct qm_gpu_expected *x,
                                   const struct side *want, const struct where *at, int64_t first)
{
    const struct qm_param *param = &w->r->param;
    const struct qm_batch_range range = {.first = first, .n = x->n};
    const struct numbers of = {"residual",
                               at->tensor,
                               param->write == QM_WRITE_kahan ? (int)param->format : QM_EXACT_BYTES,
                               (size_t)qm_param_residual(param),
                               x->n,
                               first};
    QM_TRY(want->b->save(want->plan, QM_RESIDUAL, x->room.codes[1], NULL));
    QM_TRY(save(at, QM_RESIDUAL, &range, &x->room));
    return expect_equal(w, &of, x->room.codes[0], x->room.codes[1]);
}

/* Compares slot i of elements [first, first + x->n); of a plan of whole tensors all of it. */
static qm_status compare_slot(const struct qm_gpu_work *w, struct qm_gpu_expected *x,
                              const struct side *want, const struct where *at, int i, int64_t first)
{
    const struct stored *s = &x->room;
    struct qm_codec c = {.q = qm_recipe_slot(w->r, i, &x->shape)};
    struct qm_shape own = x->shape;
    qm_rule_slot_shape(w->r->rule, &w->r->hyper, i, &x->shape, &own);
    struct qm_batch_range range = {.n = qm_shape_numel(&own), .n_scales = qm_scale_count(&c, &own)};
    if (!w->r->rule->tensor)
        range = range_of(w, x, i, first);
    const struct numbers codes = {"code", at->tensor, QM_EXACT_BYTES, 1, range.n, first},
                         states = {"state",       at->tensor, QM_PARAM_f32,
                                   sizeof(float), range.n,    first},
                         scales = {"scale",       at->tensor,     QM_PARAM_f32,
                                   sizeof(float), range.n_scales, range.first_scale};
    QM_TRY(want->b->save(want->plan, i, s->codes[1], s->scales[1]));
    QM_TRY(save(at, i, &range, &x->room));
    if (c.q.bits == 0)
        return expect_equal(w, &states, s->scales[0], s->scales[1]);
    QM_TRY(expect_equal(w, &codes, s->codes[0], s->codes[1]));
    return expect_equal(w, &scales, s->scales[0], s->scales[1]);
}

/* Compares the elements of a tensor from number `first` on. */
static qm_status compare_part(const struct qm_gpu_work *w, struct qm_gpu_expected *x,
                              const struct side *want, const struct where *at, int64_t first)
{
    const struct qm_param *param = &w->r->param;
    const size_t size = (size_t)qm_param_bytes(param);
    const struct numbers of = {"parameter", at->tensor, (int)param->format, size, x->n, first};
    uint8_t *now = x->room.codes[0];
    memset(now, 0xa5, size * (size_t)x->n);
    QM_TRY(at->whole ? qm_tensor_rule_take_part(at->whole, at->k, first, x->n, now)
                     : qm_batch_take_part(at->batch, at->k, first, x->n, now));
    QM_TRY(expect_equal(w, &of, now, want->p));
    if (qm_param_residual(param))
        QM_TRY(compare_residuals(w, x, want, at, first));
    for (int i = 0; i < w->r->rule->n_slots; i++)
        QM_TRY(compare_slot(w, x, want, at, i, first));
    return QM_OK;
}

/* The numbers of a side that the rule changes: the parameters, or the state of an average. */
static qm_status numbers_of(const struct qm_gpu_work *w, const struct qm_gpu_expected *x,
                            const struct side *s, float *out)
{
    if (strcmp(w->r->rule->family, "ema") == 0)
        return s->b->decode(s->plan, 0, out);
    qm_param_to_float(&w->r->param, x->n, s->p, out);
    return QM_OK;
}

/* Mode fast: where the device's single steps leave more than an eighth of the numbers by more than
 * a quarter of what the CPU's change farther than these, they are no such steps. */
static qm_status expect_near(const struct qm_gpu_bench *b, const struct qm_gpu_work *w,
                             const struct qm_gpu_expected *x, const struct one *o)
{
    const double share = 0.25, slack = 0x1p-8; /* of the number itself: roundings of 16 bits */
    const int is_average = strcmp(w->r->rule->family, "ema") == 0;
    float *cpu = x->room.scales[0], *device = x->room.scales[1];
    int64_t far = 0;
    QM_TRY(numbers_of(w, x, &o->side[0], cpu));
    QM_TRY(numbers_of(w, x, &o->side[1], device));
    for (int64_t i = 0; i < x->n; i++) {
        double given = is_average ? 0.0 : (double)b->p[i], want = (double)cpu[i];
        double most = share * fabs(want - given) + slack * fabs(given);
        far += isfinite(want) && !(fabs((double)device[i] - want) <= most);
    }
    return far <= x->n / 8 ? QM_OK
                           : qm_fail(QM_INTERNAL,
                                     "implausible: after %lld steps one at a time on this device "
                                     "%lld of %lld numbers are far from what the CPU's give",
                                     (long long)w->made[0], (long long)far, (long long)x->n);
}

/* Compares all rows of all tensors of a turn, which are to have what one part has. */
static qm_status compare_all(const struct qm_gpu_work *w, struct qm_gpu_expected *x, int turn)
{
    const struct side *want = &x->one[0].side[w->mode == QM_MODE_fast];
    for (int tensor = 0; tensor < w->n * w->tensors; tensor++) {
        const struct where at = where_is(w, turn, tensor);
        for (int64_t first = 0, next; first < w->numel; first = next) {
            if (first > w->numel - x->n)
                first = w->numel - x->n;
            next = first + x->n;
            QM_TRY(compare_part(w, x, want, &at, first));
        }
    }
    return QM_OK;
}

/* Compares the first, middle and last tensor of a turn, or the first rows of a single one. */
static qm_status compare_places(const struct qm_gpu_work *w, struct qm_gpu_expected *x, int turn)
{
    const int all = w->n * w->tensors;
    for (int place = 0; place < QM_BENCH_PLACES && (place == 0 || all > 1); place++) {
        const struct one *o = &x->one[x->n_ones > 1 ? place : 0];
        const struct where at = where_is(w, turn, place * (all - 1) / (QM_BENCH_PLACES - 1));
        QM_TRY(compare_part(w, x, &o->side[w->mode == QM_MODE_fast], &at, 0));
    }
    return QM_OK;
}

qm_status qm_gpu_expected_compare(const struct qm_gpu_bench *b, struct qm_gpu_work *w)
{
    struct qm_gpu_expected *x = w->expected;
    if (!x)
        return QM_OK;
    for (int i = 0; i < x->n_ones; i++)
        for (int k = 0; k < 2 && x->one[i].side[k].plan; k++)
            QM_TRY(side_run(w, x, &x->one[i].side[k]));
    x->steps = w->made[0];
    for (int i = 0; i < x->n_ones && w->mode == QM_MODE_fast; i++)
        QM_TRY(expect_near(b, w, x, &x->one[i]));
    for (int turn = 0; turn < QM_BENCH_TURNS; turn++)
        QM_TRY(x->is_alike ? compare_all(w, x, turn) : compare_places(w, x, turn));
    return QM_OK;
}

const void *qm_gpu_expected_parameters(const struct qm_gpu_work *w)
{
    return w->expected ? w->expected->one[0].side[w->mode == QM_MODE_fast].p : NULL;
}
