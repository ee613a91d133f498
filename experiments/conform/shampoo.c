/* shampoo.c - Replays the golden vectors of 4-bit Shampoo.
 *
 * maps, quant/NAME and optim/NAME.  A quantizer is replayed to the bit.  A run is taken step by
 * step and part by part from what is recorded: eigenvectors and eigenvalues from those of the step
 * before, roots from the recorded eigenvectors, the preconditioned gradient from the recorded
 * roots, moments and parameter from that; then whole steps of the rule.  TURN: the share of the
 * oracle's bound that a number of an eigenvector, of either sign, may be off by; SHARE: of a
 * tensor's largest; PARAM and ULP: of parameters; WHOLE: of what a whole step gives
 * (tests/golden/README.md).  Codes are equal, but that a number nearer to a mid-point than its
 * tolerance may have either. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/rule/shampoo.h"
#include "experiments/conform/run.h"
#include "experiments/recipes/oracle_hyper.h"
#include "oracle/rule/shampoo.h"

#define TURN  (1.0 / 64.0)
#define SHARE 1e-6
#define PARAM 1e-7
#define ULP   0x1p-23
#define WHOLE 1e-5
#define WORDS "lin2:%ds/rowblock:%lld/bisect/even/lo/recip/nanzero"

/* ---- tables and quantizers ------------------------------------------------------------------- */

static void replay_map(struct qm_conform *c, const char *name)
{
    int64_t n = qm_golden_case_numel(c, name), is_linear = strncmp(name, "linear2", 7) == 0;
    float *table = qm_golden_case_floats(c, name, n);
    if (is_linear || strncmp(name, "dynamic", 7) == 0)
        qm_judge_map(c, is_linear ? "lin2" : "dyn", n == 16 ? 4 : 8, 1, table, n);
    else
        qm_golden_case_skip(c, "map %s is not built", name);
}

static void replay_quantizer(struct qm_conform *c)
{
    struct qm_codec codec;
    struct qm_shape shape;
    int bits = (int)qm_golden_case_whole(c, "bits", 4);
    if (!qm_golden_case_shape(c, "x", &shape) || shape.rank != 2 ||
        !qm_golden_case_codec(c, &codec, WORDS, bits,
                              (long long)qm_golden_case_whole(c, "block_size", 64)))
        return;
    int64_t n = qm_shape_numel(&shape), order = shape.dim[1];
    int is_apart = qm_golden_case_whole(c, "diagonal_real", 0) != 0;
    float *x = qm_golden_case_floats(c, "x", n);
    float *dequant = qm_golden_case_floats(c, "dequant", n);
    if (!x || !dequant)
        return;
    if (is_apart) {
        float *diagonal = qm_golden_case_memory(c, 2 * order, sizeof *diagonal);
        for (int64_t i = 0; diagonal && i < order; i++) {
            diagonal[i] = x[i * (order + 1)];
            diagonal[order + i] = dequant[i * (order + 1)];
            x[i * (order + 1)] = dequant[i * (order + 1)] = 0.0f;
        }
        if (!diagonal)
            return;
        qm_judge_floats(c, "diagonal", diagonal, qm_golden_case_floats(c, "diag", order), order);
        qm_judge_floats(c, "decoded diagonal", diagonal, diagonal + order, order);
    }
    struct qm_golden_run want = {.n_dequant = n, .dequant = dequant};
    want.scales = qm_golden_case_floats(c, "absmax", qm_scale_count(&codec, &shape));
    want.codes = qm_golden_case_ints(c, "codes", n);
    want.packed_bytes = qm_golden_case_numel(c, "packed");
    want.packed = qm_golden_case_ints(c, "packed", want.packed_bytes);
    qm_judge_quantizer(c, &codec, &shape, x, &want);
}

/* ---- runs ------------------------------------------------------------------------------------ */

struct record {
    struct qm_hyper h;
    struct qm_recipe recipe;
    struct qm_oracle_hyper wide;
    struct qm_shape shape;
    struct qm_shampoo_tiles tiles; /* down 0: no preconditioner */
    struct qm_codec codec;
    int is_adam, open_codes; /* open_codes: codes near a mid-point that fell the other way */
    int64_t n, steps;
    const float *p0, *grads, *params, *preconditioned;
};

/* A factor: the recorded state of one side of one tile, or of its root, after every step. */
struct matrix {
    int64_t n, n_scales;
    const int64_t *codes;                 /* NULL: values */
    const float *scales, *values, *apart; /* apart: eigenvalues, or the diagonal of a coded root */
};

static const float *floats_of(struct qm_conform *c, const char *kind, int i, const char *what,
                              int64_t n)
{
    char name[64];
    snprintf(name, sizeof name, "state/%s%d%s", kind, i, what);
    return qm_golden_case_has(c, name) ? qm_golden_case_floats(c, name, n) : NULL;
}

/* kind: "stat" or "root" of factor i, of order n. */
static int read_matrix(struct qm_conform *c, const struct record *r, const char *kind, int i,
                       int64_t n, struct matrix *out)
{
    char name[64];
    int is_root = *kind == 'r';
    *out = (struct matrix){.n = n};
    snprintf(name, sizeof name, "state/%s%d_codes", kind, i);
    if (qm_golden_case_has(c, name)) {
        struct qm_shape s = {2, {n, n}};
        out->n_scales = qm_scale_count(&r->codec, &s);
        out->codes = qm_golden_case_ints(c, name, r->steps * n * n);
        out->scales = floats_of(c, kind, i, "_absmax", r->steps * out->n_scales);
        out->apart = floats_of(c, kind, i, is_root ? "_diag" : "_eigenvalues", r->steps * n);
        return out->codes && out->scales && out->apart;
    }
    out->values = floats_of(c, kind, i, "", r->steps * n * n);
    out->apart = is_root ? NULL : floats_of(c, kind, i, "_eigenvalues", r->steps * n);
    if (out->values && (is_root || out->apart))
        return 1;
    qm_golden_case_skip(c, "%s%d: neither codes nor values are recorded", kind, i);
    return 0;
}

/* x[n][n] <- the matrix after step t: the identity before the first one. */
static void matrix_at(struct qm_conform *c, const struct record *r, const struct matrix *m,
                      int is_root, int64_t t, float *x)
{
    int64_t n = m->n, nn = n * n;
    struct qm_shape s = {2, {n, n}};
    uint8_t *codes = qm_golden_case_memory(c, nn, 1);
    if (t == 0 || !codes) {
        for (int64_t i = 0; i < nn; i++)
            x[i] = i % (n + 1) == 0 ? 1.0f : 0.0f;
        return;
    }
    if (m->values) {
        memcpy(x, m->values + (t - 1) * nn, sizeof *x * (size_t)nn);
        return;
    }
    for (int64_t i = 0; i < nn; i++)
        codes[i] = (uint8_t)m->codes[(t - 1) * nn + i];
    qm_decode(&r->codec, &s, codes, m->scales + (t - 1) * m->n_scales, x);
    for (int64_t i = 0; i < n && is_root; i++)
        x[i * (n + 1)] = m->apart[(t - 1) * n + i];
}

static double largest(const float *x, int64_t n)
{
    double most = 0.0;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)x[i]));
    return most;
}

/* 1: both codes stand next to a mid-point that x over its scale may lie on either side of. */
static int is_open(const struct qm_codebook *cb, double x, double scale, double allowed, int a,
                   int b)
{
    int low = a < b ? a : b;
    double mid = 0.5 * ((double)cb->value[low] + (double)cb->value[low + 1]);
    return (a - b == 1 || b - a == 1) && scale > 0.0 &&
           fabs(x / scale - mid) <= 2.0 * allowed / scale + 4.0 * QM_U;
}

/* Compares x[n][n], whose number i may be off by allowed[i / n], with the matrix after step t. */
static void judge_matrix(struct qm_conform *c, struct record *r, const char *what,
                         const struct matrix *m, int64_t t, const float *x, const double *allowed)
{
    int64_t n = m->n, nn = n * n, block = r->codec.q.block, per = (n + block - 1) / block, open = 0;
    struct qm_shape s = {2, {n, n}};
    char name[48];
    snprintf(name, sizeof name, "%s, step %lld", what, (long long)t);
    uint8_t *codes = qm_golden_case_memory(c, nn, 1);
    float *scales = qm_golden_case_memory(c, m->n_scales, sizeof *scales);
    double *each = qm_golden_case_memory(c, nn, sizeof *each);
    for (int64_t i = 0; each && i < nn; i++)
        each[i] = m->values ? allowed[i / n] : allowed[i % m->n_scales / per];
    if (!codes || !scales || !each)
        return;
    if (m->values) {
        qm_judge_close_each(c, name, x, m->values + (t - 1) * nn, each, nn);
        return;
    }
    if (qm_encode(&r->codec, &s, x, NULL, codes, scales) != QM_OK) {
        qm_golden_case_failed(c);
        return;
    }
    qm_judge_close_each(c, name, scales, m->scales + (t - 1) * m->n_scales, each, m->n_scales);
    for (int64_t i = 0; i < nn && qm_golden_case_open(c); i++) {
        int want = (int)m->codes[(t - 1) * nn + i];
        double scale = (double)scales[i / n * per + i % n / block];
        if (codes[i] == want)
            continue;
        if (!is_open(&r->codec.cb, (double)x[i], scale, allowed[i / n], codes[i], want))
            qm_golden_case_differs(c,
                                   "%s: code %lld is %d, want %d; value %.9g of scale %.9g, "
                                   "tolerance %.2g",
                                   name, (long long)i, codes[i], want, (double)x[i], scale,
                                   allowed[i / n]);
        open++;
    }
    r->open_codes += (int)open;
    qm_judge_count(c, name, open, nn, (double)nn);
}

/* Rows of x get the sign that the rows of `like` have. */
static void align(int64_t n, const float *like, float *x)
{
    for (int64_t j = 0; j < n; j++) {
        double dot = 0.0;
        for (int64_t i = 0; i < n; i++)
            dot += (double)x[j * n + i] * (double)like[j * n + i];
        for (int64_t i = 0; i < n && dot < 0.0; i++)
            x[j * n + i] = -x[j * n + i];
    }
}

static int is_due(int64_t t, double gap) { return t % (int64_t)gap == 0; }

/* allowed[n] <- the tolerance of each row of the eigenvectors after the step: the oracle's. */
static int turns(struct qm_conform *c, const struct record *r, const struct qm_shampoo_tile *tile,
                 int right, const float *g, const float *vt, const float *ev, double *allowed)
{
    int64_t n = right ? tile->cols : tile->rows, inner = right ? tile->rows : tile->cols;
    double *x = qm_golden_case_memory(c, n * inner + n * n + 2 * n, sizeof *x);
    if (!x)
        return 0;
    double *v = x + n * inner, *e = v + n * n;
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < inner; k++)
            x[i * inner + k] = (double)
                g[(tile->row + (right ? k : i)) * r->tiles.cols + tile->col + (right ? i : k)];
    for (int64_t i = 0; i < n * n; i++)
        v[i] = (double)vt[i];
    for (int64_t i = 0; i < n; i++)
        e[i] = (double)ev[i];
    const struct qm_eigenbasis to = {v, e, allowed, e + n};
    if (qm_kronecker_statistic(&r->wide, n, inner, x, QM_U / sqrt((double)n), &to) == QM_OK)
        return 1;
    qm_golden_case_failed(c);
    return 0;
}

/* Judges the eigenvectors and eigenvalues of one side of a tile after step t. */
static void judge_statistic(struct qm_conform *c, struct record *r, const struct matrix *m,
                            const struct qm_shampoo_tile *tile, int right, int64_t t)
{
    int64_t n = m->n, nn = n * n;
    const float *g = r->grads + (t - 1) * r->n, *want_ev = m->apart + (t - 1) * n;
    float *vt = qm_golden_case_memory(c, 2 * nn + n, sizeof *vt);
    double *allowed = qm_golden_case_memory(c, n, sizeof *allowed);
    if (!vt || !allowed)
        return;
    float *want = vt + nn, *ev = want + nn;
    matrix_at(c, r, m, 0, t - 1, vt);
    matrix_at(c, r, m, 0, t, want);
    for (int64_t i = 0; i < n; i++)
        ev[i] = t > 1 ? m->apart[(t - 2) * n + i] : (float)r->h.matrix_eps;
    if (is_due(t, r->h.stat_gap)) {
        if (!turns(c, r, tile, right, g, vt, ev, allowed))
            return;
        for (int64_t i = 0; i < n; i++)
            allowed[i] = TURN * allowed[i] + 4.0 * QM_U;
        if (qm_shampoo_statistic(&r->h, tile, r->tiles.cols, g, right, vt, ev) != QM_OK)
            qm_golden_case_failed(c);
        align(n, want, vt);
    }
    judge_matrix(c, r, right ? "right vectors" : "left vectors", m, t, vt, allowed);
    qm_judge_close(c, "eigenvalue", ev, want_ev, n, 0.0,
                   is_due(t, r->h.stat_gap) ? SHARE * largest(want_ev, n) : 0.0);
}

/* Judges the root, from the recorded statistic s. */
static void judge_root(struct qm_conform *c, struct record *r, const struct matrix *m,
                       const struct matrix *s, int right, int64_t t)
{
    int64_t n = m->n, nn = n * n;
    float *root = qm_golden_case_memory(c, 2 * nn + n, sizeof *root);
    double *allowed = qm_golden_case_memory(c, n, sizeof *allowed);
    if (!root || !allowed)
        return;
    float *vt = root + nn, *diagonal = vt + nn;
    matrix_at(c, r, m, 1, t - 1, root);
    if (is_due(t, r->h.root_gap)) {
        matrix_at(c, r, s, 0, t, vt);
        if (qm_shampoo_root(&r->h, n, vt, s->apart + (t - 1) * n, root) != QM_OK)
            qm_golden_case_failed(c);
        for (int64_t i = 0; i < n; i++)
            allowed[i] = SHARE * largest(root, nn);
    }
    for (int64_t i = 0; i < n && m->codes; i++) {
        diagonal[i] = root[i * (n + 1)];
        root[i * (n + 1)] = 0.0f;
    }
    judge_matrix(c, r, right ? "right root" : "left root", m, t, root, allowed);
    if (m->codes)
        qm_judge_close(c, "diagonal", diagonal, m->apart + (t - 1) * n, n, 0.0, allowed[0]);
}

/* Judges the preconditioned gradient of every step, from the recorded roots. */
static void judge_preconditioned(struct qm_conform *c, const struct record *r,
                                 const struct matrix *root, int64_t t)
{
    const float *g = r->grads + (t - 1) * r->n, *want = r->preconditioned + (t - 1) * r->n;
    float *out = qm_golden_case_memory(c, r->n, sizeof *out);
    for (int64_t k = 0; out && k < r->tiles.down * r->tiles.across; k++) {
        struct qm_shampoo_tile tile = qm_shampoo_tile_at(&r->tiles, k);
        const struct matrix *of = root + 2 * k;
        float *l = qm_golden_case_memory(c, tile.rows * tile.rows, sizeof *l);
        float *right = qm_golden_case_memory(c, tile.cols * tile.cols, sizeof *right);
        if (!l || !right)
            return;
        matrix_at(c, r, &of[0], 1, t, l);
        matrix_at(c, r, &of[1], 1, t, right);
        const struct qm_shampoo_factor left = {l, NULL}, other = {right, NULL};
        if (qm_shampoo_precondition(&tile, r->tiles.cols, left, other, g, out) != QM_OK)
            qm_golden_case_failed(c);
    }
    if (out)
        qm_judge_close(c, "preconditioned gradient", out, want, r->n, 0.0,
                       SHARE * largest(want, r->n));
}

static int read_hyper(struct qm_conform *c, struct record *r)
{
    static const struct qm_golden_need needs[] = {
        {"steps", QM_NEED_number, 1, 1e6, 0},
        {"lr", QM_NEED_number, 0, 1e30, 0},
        {"weight_decay", QM_NEED_number, 0, 1e9, 0},
        {"stat_compute_steps", QM_NEED_number, 1, 1e15, 0},
        {"prec_compute_steps", QM_NEED_number, 1, 1e15, 0},
        {"prec_maxorder", QM_NEED_number, 1, 1 << 20, 0},
        {"rect_t1", QM_NEED_number, 0, 100, 0},
        {"rect_t2", QM_NEED_number, 0, 100, 0},
        {"prec_bits", QM_NEED_number, 2, 32, 0},
        {"quan_blocksize", QM_NEED_number, 1, 1 << 20, 0},
        {"optimizer", QM_NEED_text, 0, 0, 0},
        {"p0", QM_NEED_data, 0, 0, 0},
        {"grads", QM_NEED_data, 0, 0, 0},
        {"params", QM_NEED_data, 0, 0, 0},
    };
    char text[32];
    double betas[2] = {0.9, 0.999};
    if (!qm_golden_case_needs(c, needs, sizeof needs / sizeof *needs))
        return 0;
    qm_golden_case_text(c, "optimizer", text, sizeof text);
    r->is_adam = strcmp(text, "ShampooAdamW") == 0;
    if (!r->is_adam && strcmp(text, "ShampooSGD") != 0) {
        qm_golden_case_skip(c, "optimizer '%s' is not built", text);
        return 0;
    }
    if (qm_golden_case_whole(c, "inv_root_mode", 0) != 0) {
        qm_golden_case_skip(c, "inv_root_mode 1 starts at random: not built");
        return 0;
    }
    if (!qm_run_recipe(c, r->is_adam ? "shampoo_adamw" : "shampoo_sgd", &r->recipe))
        return 0;
    qm_golden_numbers(c->file, c->group, "betas", betas, 2);
    struct qm_hyper *h = &r->recipe.hyper;
    h->lr = qm_golden_case_number(c, "lr", 1e-3);
    h->beta1 = betas[0];
    h->beta2 = betas[1];
    h->eps = qm_golden_case_number(c, "eps", 1e-8);
    h->weight_decay = qm_golden_case_number(c, "weight_decay", 0.0);
    h->momentum = qm_golden_case_number(c, "momentum", 0.9);
    h->nesterov = qm_golden_case_whole(c, "nesterov", 0) != 0;
    h->stat_decay = qm_golden_case_number(c, "stat_decay", 0.95);
    h->matrix_eps = qm_golden_case_number(c, "matrix_eps", 1e-6);
    h->stat_gap = qm_golden_case_number(c, "stat_compute_steps", 1.0);
    h->root_gap = qm_golden_case_number(c, "prec_compute_steps", 1.0);
    h->start = qm_golden_case_number(c, "start_prec_step", 1.0);
    h->rect_stat = qm_golden_case_number(c, "rect_t1", 1.0);
    h->rect_root = qm_golden_case_number(c, "rect_t2", 4.0);
    h->max_order = qm_golden_case_number(c, "prec_maxorder", 1200.0);
    h->min_lowbit = 0.0; /* what is quantized is read from the recorded states */
    r->h = *h;
    r->wide = qm_oracle_hyper_of(h);
    return 1;
}

static int read_record(struct qm_conform *c, struct record *r)
{
    int bits;
    if (!read_hyper(c, r) || !qm_golden_case_shape(c, "p0", &r->shape))
        return 0;
    bits = (int)qm_golden_case_whole(c, "prec_bits", 32);
    char words[128];
    snprintf(words, sizeof words, WORDS, bits <= 8 ? bits : 4,
             (long long)qm_golden_case_whole(c, "quan_blocksize", 64));
    if (qm_codec_parse(&r->codec, words) != QM_OK) {
        qm_golden_case_skip(c, "%.200s", qm_message());
        return 0;
    }
    r->steps = qm_golden_case_whole(c, "steps", 0);
    r->n = qm_shape_numel(&r->shape);
    r->p0 = qm_golden_case_floats(c, "p0", r->n);
    r->grads = qm_golden_case_floats(c, "grads", r->steps * r->n);
    r->params = qm_golden_case_floats(c, "params", r->steps * r->n);
    r->preconditioned = r->grads; /* of a tensor without preconditioner */
    if (qm_shampoo_tiles_of(&r->h, &r->shape, &r->tiles))
        r->preconditioned = qm_golden_case_floats(c, "preconditioned_grad", r->steps * r->n);
    snprintf(c->now.how + strlen(c->now.how), sizeof c->now.how - strlen(c->now.how), " %s",
             bits <= 8 ? words : "f32");
    return r->p0 && r->grads && r->params && r->preconditioned;
}

/* Moments and parameters, which the rule forms of a vector as it does of a matrix, from the
 * recorded preconditioned gradients, grafted here. */
static void judge_moments(struct qm_conform *c, const struct record *r)
{
    float *u = qm_golden_case_memory(c, r->steps * r->n, sizeof *u);
    if (!u)
        return;
    memcpy(u, r->grads, sizeof *u * (size_t)(r->steps * r->n));
    for (int64_t t = 1; t <= r->steps; t++) {
        int64_t at = (t - 1) * r->n;
        if (r->tiles.down == 0 || (double)t < r->h.start)
            continue;
        memcpy(u + at, r->preconditioned + at, sizeof *u * (size_t)r->n);
        qm_shampoo_graft(r->n, r->grads + at, u + at);
    }
    struct qm_run run = {.recipe = r->recipe,
                         .shape = qm_shape_flat(r->n),
                         .steps = r->steps,
                         .p0 = r->p0,
                         .grads = u,
                         .params = r->params,
                         .kept = qm_run_all_steps(c, r->steps),
                         .n_kept = r->steps};
    run.slot[0].values =
        qm_golden_case_floats(c, r->is_adam ? "state/exp_avg" : "state/momentum", r->steps * r->n);
    if (r->is_adam)
        run.slot[1].values = qm_golden_case_floats(c, "state/exp_avg_sq", r->steps * r->n);
    run.within.value_largest = SHARE;
    run.within.param_absolute = PARAM;
    run.within.param_relative = ULP;
    if (run.slot[0].values && run.kept)
        qm_run_replay(c, &run);
}

/* ---- whole steps ----------------------------------------------------------------------------- */

/* Loads the recorded matrices of one side of all tiles after step t into a slot of the plan. */
static qm_status load_side(struct qm_conform *c, const struct record *r, const struct matrix *all,
                           int right, int64_t t, void *plan, int slot)
{
    int64_t tiles = r->tiles.down * r->tiles.across, n = all[right].n, nn = n * n;
    int64_t per = all[right].n_scales;
    uint8_t *codes = qm_golden_case_memory(c, tiles * nn, 1);
    float *scales = qm_golden_case_memory(c, tiles * (per + nn), sizeof *scales);
    for (int64_t k = 0; codes && scales && k < tiles; k++) {
        const struct matrix *m = &all[2 * k + right];
        for (int64_t i = 0; m->codes && i < nn; i++)
            codes[k * nn + i] = (uint8_t)m->codes[(t - 1) * nn + i];
        if (m->codes)
            memcpy(scales + k * per, m->scales + (t - 1) * per, sizeof *scales * (size_t)per);
        else
            memcpy(scales + k * nn, m->values + (t - 1) * nn, sizeof *scales * (size_t)nn);
    }
    return codes && scales
               ? qm_backend_cpu.load(plan, slot, all[right].codes ? codes : NULL, scales)
               : QM_NO_MEMORY;
}

/* The eigenvalues, or the diagonals of coded roots: of all left sides, then of all right ones. */
static qm_status load_apart(struct qm_conform *c, const struct record *r, const struct matrix *all,
                            int64_t t, void *plan, int slot)
{
    int64_t tiles = r->tiles.down * r->tiles.across, at = 0;
    float *x = qm_golden_case_memory(c, tiles * (all[0].n + all[1].n), sizeof *x);
    for (int right = 0; x && right < 2; right++)
        for (int64_t k = 0; k < tiles && all[right].apart; k++, at += all[right].n)
            memcpy(x + at, all[2 * k + right].apart + (t - 1) * all[right].n,
                   sizeof *x * (size_t)all[right].n);
    return x ? qm_backend_cpu.load(plan, slot, NULL, x) : QM_NO_MEMORY;
}

/* Loads everything that is recorded after step t; nothing at t = 0, when all of it is zero. */
static qm_status load_all(struct qm_conform *c, const struct record *r, const struct matrix *stat,
                          const struct matrix *root, const float *const *moment, int64_t t,
                          void *plan)
{
    int at = r->is_adam ? 2 : 1;
    if (t == 0)
        return QM_OK;
    for (int i = 0; i < at; i++)
        QM_TRY(qm_backend_cpu.load(plan, i, NULL, moment[i] + (t - 1) * r->n));
    QM_TRY(load_side(c, r, stat, 0, t, plan, at));
    QM_TRY(load_side(c, r, stat, 1, t, plan, at + 1));
    QM_TRY(load_apart(c, r, stat, t, plan, at + 2));
    QM_TRY(load_side(c, r, root, 0, t, plan, at + 3));
    QM_TRY(load_side(c, r, root, 1, t, plan, at + 4));
    return load_apart(c, r, root, t, plan, at + 5);
}

/* The steps of the registered rule, each from the recorded state before it, where it takes the
 * shape and no code was open. */
static void judge_steps(struct qm_conform *c, struct record *r, const struct matrix *stat,
                        const struct matrix *root)
{
    int at = r->is_adam ? 2 : 1, is_coded = stat[0].codes || stat[1].codes;
    float *p = qm_golden_case_memory(c, 2 * r->n, sizeof *p);
    const float *moment[2] = {NULL, NULL};
    moment[0] =
        qm_golden_case_floats(c, r->is_adam ? "state/exp_avg" : "state/momentum", r->steps * r->n);
    moment[1] = r->is_adam ? qm_golden_case_floats(c, "state/exp_avg_sq", r->steps * r->n) : NULL;
    r->recipe.hyper.min_lowbit = is_coded ? qm_golden_case_number(c, "min_lowbit_size", 4096.0) : 0;
    for (int i = 0; i < 6 && is_coded; i++)
        if (i != 2 && i != 5)
            r->recipe.slot[at + i] = r->codec.q;
    if (!p || !moment[0] || (r->is_adam && !moment[1]) || r->open_codes ||
        qm_rule_takes(r->recipe.rule, &r->recipe.hyper, &r->shape) != QM_OK)
        return;
    for (int64_t t = 1; t <= r->steps && qm_golden_case_open(c); t++) {
        const float *before = t > 1 ? r->params + (t - 2) * r->n : r->p0;
        const float *want = r->params + (t - 1) * r->n;
        struct qm_tensor param = {p, QM_DTYPE_f32, r->shape};
        struct qm_tensor g = {(void *)(uintptr_t)(r->grads + (t - 1) * r->n), QM_DTYPE_f32,
                              r->shape};
        void *plan = NULL;
        memcpy(p, before, sizeof *p * (size_t)r->n);
        qm_status st = qm_backend_cpu.open(&r->recipe, &r->shape, 0, &plan);
        if (st == QM_OK)
            st = load_all(c, r, stat, root, moment, t - 1, plan);
        if (st == QM_OK)
            st = qm_backend_cpu.step(plan, &param, &g, t, 0);
        for (int i = 0; i < at && st == QM_OK; i++) {
            const float *m = moment[i] + (t - 1) * r->n;
            st = qm_backend_cpu.decode(plan, i, p + r->n);
            qm_judge_close(c, "moment after a whole step", p + r->n, m, r->n, 0.0,
                           WHOLE * largest(m, r->n));
        }
        if (plan)
            qm_backend_cpu.close(plan);
        if (st != QM_OK)
            qm_golden_case_failed(c);
        qm_judge_close(c, "parameter after a whole step", p, want, r->n, ULP,
                       PARAM + WHOLE * r->h.lr);
    }
}

static void replay_run(struct qm_conform *c)
{
    struct record r = {.n = 0};
    if (!read_record(c, &r))
        return;
    int count = (int)(2 * r.tiles.down * r.tiles.across);
    struct matrix *stat = qm_golden_case_memory(c, 2 * (int64_t)count + 1, sizeof *stat);
    struct matrix *root = stat ? stat + count : NULL;
    for (int i = 0; i < count && stat; i++) {
        struct qm_shampoo_tile tile = qm_shampoo_tile_at(&r.tiles, i / 2);
        int64_t n = i % 2 ? tile.cols : tile.rows;
        if (!read_matrix(c, &r, "stat", i, n, &stat[i]) ||
            !read_matrix(c, &r, "root", i, n, &root[i]))
            return;
    }
    for (int64_t t = 1; stat && t <= r.steps; t++) {
        for (int i = 0; i < count && qm_golden_case_open(c); i++) {
            struct qm_shampoo_tile tile = qm_shampoo_tile_at(&r.tiles, i / 2);
            judge_statistic(c, &r, &stat[i], &tile, i % 2, t);
            judge_root(c, &r, &root[i], &stat[i], i % 2, t);
        }
        if (count && (double)t >= r.h.start && qm_golden_case_open(c))
            judge_preconditioned(c, &r, root, t);
    }
    if (qm_golden_case_open(c))
        judge_moments(c, &r);
    if (count && qm_golden_case_open(c))
        judge_steps(c, &r, stat, root);
}

/* ---- the file -------------------------------------------------------------------------------- */

void qm_conform_shampoo(struct qm_conform *c)
{
    char group[128], name[128], path[QM_GOLDEN_PATH];
    for (int i = 0; i < qm_golden_members(c->file, ""); i++) {
        if (!qm_golden_member(c->file, "", i, group, sizeof group))
            continue;
        int is_map = strcmp(group, "maps") == 0, is_run = strcmp(group, "optim") == 0;
        for (int k = 0; k < qm_golden_members(c->file, group); k++) {
            if (!qm_golden_member(c->file, group, k, name, sizeof name))
                continue;
            snprintf(path, sizeof path, "%s/%s", group, name);
            if (!(is_map ? qm_golden_case_begin(c, group, name)
                         : qm_golden_case_begin(c, path, NULL)))
                continue;
            if (is_map)
                replay_map(c, name);
            else if (is_run)
                replay_run(c);
            else
                replay_quantizer(c);
            qm_golden_case_end(c);
        }
    }
}
