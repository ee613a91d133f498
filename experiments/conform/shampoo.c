/* shampoo.c - Replays the golden vectors of 4-bit Shampoo.
 *
 * maps, quant/NAME and optim/NAME.  A quantizer is replayed to the bit.  A run is taken step by
 * step and part by part from what is recorded: eigenvectors and eigenvalues from those of the step
 * before, roots from the recorded eigenvectors, the preconditioned gradient from the recorded
 * roots, moments and parameter from that; then whole steps of the rule.  TURN: the share of the
 * oracle's bound that a number of an eigenvector, of either sign, may be off by: the bound of a
 * roundoff so much smaller, for a row is certain whose share is small.  It is measured: of 240
 * drawn recordings the furthest used 1/56, and the shipped one 1/800.  Sums of n products are off
 * by n u of the sizes of their terms (tests/golden/README.md).  A code may be any that its number
 * has within its tolerance; where nothing of an eigenvector is certain, its length is. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "experiments/conform/shampoo_run.h"
#include "experiments/recipes/oracle_hyper.h"
#include "oracle/rule/shampoo.h"

#define TURN (1.0 / 32.0)
#define ULP  0x1p-23

/* ---- tables and quantizers ------------------------------------------------------------------- */

static void replay_map(struct qm_conform *c, const char *name)
{
    int64_t n = qm_golden_case_numel(c, name), is_linear = strncmp(name, "linear2", 7) == 0;
    float *table = qm_golden_case_floats(c, name, n);
    if (is_linear || strncmp(name, "dynamic", 7) == 0)
        qm_match_map(c, is_linear ? "lin2" : "dyn", n == 16 ? 4 : 8, 1, table, n);
    else
        qm_golden_case_skip(c, "map %s is not built", name);
}

/* The codec of vectors and roots of the registered variant, with the recorded width and blocks; 0:
 * skipped. */
static int codec_of(struct qm_conform *c, int bits, int64_t block, struct qm_codec *codec)
{
    struct qm_recipe own;
    char text[QM_QUANTIZER_TEXT];
    if (qm_recipe_parse("shampoo4_adamw", &own) == QM_OK) {
        struct qm_quantizer q = own.slot[2];
        q.bits = bits;
        q.block = block;
        qm_quantizer_print(&q, text);
        return qm_golden_case_codec(c, codec, "%s", text);
    }
    qm_golden_case_skip(c, "%.250s", qm_message());
    return 0;
}

static void replay_quantizer(struct qm_conform *c)
{
    struct qm_codec codec;
    struct qm_shape shape;
    int bits = qm_golden_case_int(c, "bits", 4);
    if (!qm_golden_case_shape(c, "x", &shape) || shape.rank != 2 ||
        !codec_of(c, bits, qm_golden_case_whole(c, "block_size", 64), &codec))
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
        qm_match_floats(c, "diagonal", diagonal, qm_golden_case_floats(c, "diag", order), order);
        qm_match_floats(c, "decoded diagonal", diagonal, diagonal + order, order);
    }
    struct qm_golden_run want = {.n_dequant = n, .dequant = dequant};
    want.scales = qm_golden_case_floats(c, "absmax", qm_scale_count(&codec, &shape));
    want.codes = qm_golden_case_ints(c, "codes", n);
    want.packed_bytes = qm_golden_case_numel(c, "packed");
    want.packed = qm_golden_case_ints(c, "packed", want.packed_bytes);
    qm_match_quantizer(c, &codec, &shape, x, &want);
}

/* ---- runs ------------------------------------------------------------------------------------ */

static const float *floats_of(struct qm_conform *c, const char *kind, int i, const char *what,
                              int64_t n)
{
    char name[64];
    snprintf(name, sizeof name, "state/%s%d%s", kind, i, what);
    return qm_golden_case_floats(c, name, n);
}

/* Whether factor i has codes, which dataset rootI_lowbit says of each step: how many bits they
 * have (prec_bits), or 1; 0 or 32: none.  -1: it is missing, another number, or does not stay the
 * same. */
static int is_coded(struct qm_conform *c, const struct qm_shampoo_record *r, int i)
{
    char name[64];
    snprintf(name, sizeof name, "state/root%d_lowbit", i);
    const int64_t *flag = qm_golden_case_ints(c, name, r->steps);
    const int64_t bits = r->codec.q.bits;
    for (int64_t t = 0; flag && t < r->steps; t++)
        if (flag[t] != flag[0] ||
            (flag[t] != 0 && flag[t] != 1 && flag[t] != bits && flag[t] != 32)) {
            qm_golden_case_unreadable(c, "%s: expected 0, 1, %lld or 32, the same in each step",
                                      name, (long long)bits);
            return -1;
        }
    return flag ? flag[0] == 1 || flag[0] == bits : -1;
}

/* kind: "stat" or "root" of factor i, of order n. */
static int read_matrix(struct qm_conform *c, const struct qm_shampoo_record *r, const char *kind,
                       int i, int64_t n, struct qm_shampoo_matrix *out)
{
    char name[64];
    int is_root = *kind == 'r', coded = is_coded(c, r, i);
    *out = (struct qm_shampoo_matrix){.n = n};
    if (coded < 0)
        return 0;
    if (coded) {
        struct qm_shape s = {2, {n, n}};
        snprintf(name, sizeof name, "state/%s%d_codes", kind, i);
        out->n_scales = qm_scale_count(&r->codec, &s);
        out->codes = qm_golden_case_ints(c, name, r->steps * n * n);
        out->scales = floats_of(c, kind, i, "_absmax", r->steps * out->n_scales);
        out->apart = floats_of(c, kind, i, is_root ? "_diag" : "_eigenvalues", r->steps * n);
        return out->codes && out->scales && out->apart;
    }
    out->values = floats_of(c, kind, i, "", r->steps * n * n);
    out->apart = is_root ? NULL : floats_of(c, kind, i, "_eigenvalues", r->steps * n);
    return out->values && (is_root || out->apart);
}

void qm_shampoo_matrix_at(struct qm_conform *c, const struct qm_shampoo_record *r,
                          const struct qm_shampoo_matrix *m, int is_root, int64_t t, float *x)
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

/* 1: the code may be that of a number within its error over the recorded scale; of a scale of 0, of
 * the number 0. */
static int may_have(const struct qm_shampoo_record *r, double x, double scale, double allowed,
                    int want)
{
    if (allowed == HUGE_VAL) /* nothing of the row is certain */
        return 1;
    if (scale == 0.0)
        return fabs(x) <= allowed && want == qm_code_of(&r->codec, 0.0f, 0);
    double off = allowed / scale + 4.0 * QM_U, at = x / scale;
    return scale > 0.0 && qm_code_of(&r->codec, (float)(at - off), 0) <= want &&
           want <= qm_code_of(&r->codec, (float)(at + off), 0);
}

/* The ends of |x| / scale of the numbers that a code stands for. */
static void cell_of(const struct qm_codebook *cb, int code, double ends[2])
{
    double below = code > 0 ? 0.5 * ((double)cb->value[code - 1] + (double)cb->value[code]) : -1.0;
    double above =
        code + 1 < cb->n ? 0.5 * ((double)cb->value[code] + (double)cb->value[code + 1]) : 1.0;
    ends[1] = fmax(fabs(below), fabs(above));
    ends[0] = below <= 0.0 && above >= 0.0 ? 0.0 : fmin(fabs(below), fabs(above));
}

/* Recorded eigenvectors have the length 1: the numbers that their codes stand for can have it. */
static void judge_lengths(struct qm_conform *c, const struct qm_shampoo_record *r,
                          const struct qm_shampoo_matrix *m, int64_t t)
{
    int64_t n = m->n, block = r->codec.q.block, per = (n + block - 1) / block;
    double off = 4.0 * (double)(n + 16) * QM_U;
    for (int64_t i = 0; i < n; i++) {
        double least = 0.0, most = 0.0, ends[2] = {0.0, 0.0};
        int is_negative = 0;
        for (int64_t k = 0; k < n; k++) {
            int64_t at = (t - 1) * n * n + i * n + k;
            double scale = 1.0;
            if (m->codes) {
                scale = (double)m->scales[(t - 1) * m->n_scales + i * per + k / block];
                cell_of(&r->codec.cb, (int)m->codes[at] & (r->codec.cb.n - 1), ends);
            } else {
                ends[0] = ends[1] = (double)m->values[at];
            }
            is_negative |= scale < 0.0;
            least += scale * scale * ends[0] * ends[0];
            most += scale * scale * ends[1] * ends[1];
        }
        if (is_negative)
            qm_golden_case_differs(c, "step %lld: a scale of eigenvector %lld is negative",
                                   (long long)t, (long long)i);
        if (least > 1.0 + off || most < 1.0 - off)
            qm_golden_case_differs(c, "step %lld: eigenvector %lld has a length from %.6g to %.6g",
                                   (long long)t, (long long)i, sqrt(least), sqrt(most));
    }
}

/* Compares x[n][n], whose number i may be off by allowed[i / n], with the matrix after step t. */
static void judge_matrix(struct qm_conform *c, struct qm_shampoo_record *r, const char *what,
                         const struct qm_shampoo_matrix *m, int64_t t, const float *x,
                         const double *allowed)
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
        qm_match_close_each(c, name, x, m->values + (t - 1) * nn, each, nn);
        return;
    }
    if (qm_encode(&r->codec, &s, x, NULL, codes, scales) != QM_OK) {
        qm_golden_case_failed(c);
        return;
    }
    qm_match_close_each(c, name, scales, m->scales + (t - 1) * m->n_scales, each, m->n_scales);
    for (int64_t i = 0; i < nn && qm_golden_case_open(c); i++) {
        int want = (int)m->codes[(t - 1) * nn + i];
        double scale = (double)m->scales[(t - 1) * m->n_scales + i / n * per + i % n / block];
        if (codes[i] == want)
            continue;
        if (!may_have(r, (double)x[i], scale, allowed[i / n], want))
            qm_golden_case_differs(c,
                                   "%s: code %lld is %d, want %d; value %.9g of scale %.9g, "
                                   "tolerance %.2g",
                                   name, (long long)i, codes[i], want, (double)x[i], scale,
                                   allowed[i / n]);
        open++;
    }
    r->open_codes += (int)open;
    qm_match_count(c, name, open, nn);
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

/* Sums of n products of numbers whose sizes add up to at most the largest of the result. */
static double share_of(int64_t n) { return (double)(n + 16) * QM_U; }

static int is_due(int64_t t, double gap) { return t % (int64_t)gap == 0; }

/* allowed[2 n] <- the tolerance of each row of the eigenvectors after the step, and of each
 * eigenvalue: that share of the oracle's. */
static int turns(struct qm_conform *c, const struct qm_shampoo_record *r,
                 const struct qm_shampoo_tile *tile, int right, const float *g, const float *vt,
                 const float *ev, double *allowed)
{
    int64_t n = right ? tile->cols : tile->rows, inner = right ? tile->rows : tile->cols;
    double *x = qm_golden_case_memory(c, n * inner + n * n + n, sizeof *x);
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
    const struct qm_eigenbasis to = {v, e, allowed, allowed + n, NULL, 0};
    if (qm_kronecker_statistic(&r->wide, n, inner, x, TURN * QM_U / sqrt((double)n), &to) == QM_OK)
        return 1;
    qm_golden_case_failed(c);
    return 0;
}

/* Judges the eigenvectors and eigenvalues of one side of a tile after step t. */
static void judge_statistic(struct qm_conform *c, struct qm_shampoo_record *r,
                            const struct qm_shampoo_matrix *m, const struct qm_shampoo_tile *tile,
                            int right, int64_t t)
{
    int64_t n = m->n, nn = n * n;
    const float *g = r->grads + (t - 1) * r->n, *want_ev = m->apart + (t - 1) * n;
    float *vt = qm_golden_case_memory(c, 2 * nn + n, sizeof *vt);
    double *allowed = qm_golden_case_memory(c, 2 * n, sizeof *allowed);
    if (!vt || !allowed)
        return;
    float *want = vt + nn, *ev = want + nn;
    qm_shampoo_matrix_at(c, r, m, 0, t - 1, vt);
    qm_shampoo_matrix_at(c, r, m, 0, t, want);
    for (int64_t i = 0; i < n; i++)
        ev[i] = t > 1 ? m->apart[(t - 2) * n + i] : (float)r->h.matrix_eps;
    if (is_due(t, r->h.stat_gap)) {
        if (!turns(c, r, tile, right, g, vt, ev, allowed))
            return;
        for (int64_t i = 0; i < n; i++) {
            allowed[i] = allowed[i] + 4.0 * QM_U;
            allowed[n + i] = fmin(allowed[n + i], qm_match_largest(want_ev, n)) +
                             share_of(n) * qm_match_largest(want_ev, n);
        }
        if (qm_shampoo_statistic(&r->h, tile, r->tiles.cols, g, right, vt, ev) != QM_OK)
            qm_golden_case_failed(c);
        align(n, want, vt);
    }
    judge_matrix(c, r, right ? "right vectors" : "left vectors", m, t, vt, allowed);
    judge_lengths(c, r, m, t);
    qm_match_close_each(c, "eigenvalue", ev, want_ev, allowed + n, n);
}

/* Judges the root, from the recorded statistic s. */
static void judge_root(struct qm_conform *c, struct qm_shampoo_record *r,
                       const struct qm_shampoo_matrix *m, const struct qm_shampoo_matrix *s,
                       int right, int64_t t)
{
    int64_t n = m->n, nn = n * n;
    float *root = qm_golden_case_memory(c, 2 * nn + n, sizeof *root);
    double *allowed = qm_golden_case_memory(c, n, sizeof *allowed);
    if (!root || !allowed)
        return;
    float *vt = root + nn, *diagonal = vt + nn;
    qm_shampoo_matrix_at(c, r, m, 1, t - 1, root);
    if (is_due(t, r->h.root_gap)) {
        qm_shampoo_matrix_at(c, r, s, 0, t, vt);
        if (qm_shampoo_root(&r->h, n, vt, s->apart + (t - 1) * n, root) != QM_OK)
            qm_golden_case_failed(c);
        for (int64_t i = 0; i < n; i++)
            allowed[i] = share_of(n) * qm_match_largest(root, nn);
    }
    for (int64_t i = 0; i < n && m->codes; i++) {
        diagonal[i] = root[i * (n + 1)];
        root[i * (n + 1)] = 0.0f;
    }
    judge_matrix(c, r, right ? "right root" : "left root", m, t, root, allowed);
    if (m->codes)
        qm_match_close(c, "diagonal", diagonal, m->apart + (t - 1) * n, n, 0.0, allowed[0]);
}

static int read_hyper(struct qm_conform *c, struct qm_shampoo_record *r)
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
        {"min_lowbit_size", QM_NEED_number, 0, 1e15, 0},
        {"stat_decay", QM_NEED_number, 0, 1, 0},
        {"matrix_eps", QM_NEED_number, 0, 1e30, 0},
        {"start_prec_step", QM_NEED_number, 0, 1e15, 0},
        {"inv_root_mode", QM_NEED_number, 0, 1, 0},
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
    if (!qm_run_betas_or(c, betas))
        return 0;
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

static int read_record(struct qm_conform *c, struct qm_shampoo_record *r)
{
    int bits;
    if (!read_hyper(c, r) || !qm_run_param_shape(c, 0, &r->shape))
        return 0;
    bits = qm_golden_case_int(c, "prec_bits", 32);
    char how[sizeof c->now.how];
    snprintf(how, sizeof how, "%s", c->now.how);
    if (!codec_of(c, bits <= 8 ? bits : 4, qm_golden_case_whole(c, "quan_blocksize", 64),
                  &r->codec))
        return 0;
    snprintf(c->now.how, sizeof c->now.how, "%s", how);
    r->steps = qm_golden_case_whole(c, "steps", 0);
    r->n = qm_shape_numel(&r->shape);
    r->rates = qm_golden_case_rates(c, r->steps);
    r->p0 = qm_golden_case_floats(c, "p0", r->n);
    r->grads = qm_golden_case_floats(c, "grads", r->steps * r->n);
    r->params = qm_golden_case_floats(c, "params", r->steps * r->n);
    r->preconditioned = r->grads; /* of a tensor without preconditioner */
    if (qm_shampoo_tiles_of(&r->h, &r->shape, &r->tiles))
        r->preconditioned = qm_golden_case_floats(c, "preconditioned_grad", r->steps * r->n);
    qm_quantizer_print(&r->codec.q, how);
    snprintf(c->now.how + strlen(c->now.how), sizeof c->now.how - strlen(c->now.how), " %.100s",
             bits <= 8 ? how : "f32");
    return r->p0 && r->grads && r->params && r->preconditioned;
}

/* Moments and parameters, which the rule forms of a vector as it does of a matrix, from the
 * recorded preconditioned gradients, grafted here. */
static void judge_moments(struct qm_conform *c, const struct qm_shampoo_record *r)
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
    /* The grafted gradient has the error of two norms, which an average takes in, be its terms of
     * either sign, with at most twice its larger value; the step has that of its moment. */
    double of_norms = 2.0 * ((double)r->n / 16.0 + 8.0) * QM_U + 4.0 * QM_U;
    run.within.value_relative = 2.0 * of_norms + 4.0 * QM_U;
    run.within.value_absolute = 0x1p-148;
    run.within.has_moment = 1;
    run.within.takes[0] = QM_TAKES_MEAN;
    run.within.takes[1] = r->is_adam ? QM_TAKES_SQUARE : QM_TAKES_NOTHING;
    if (!r->is_adam) { /* the decay joins the gradient, which may cancel it */
        run.within.l2_relative = of_norms;
        run.within.weight[0] = 1.0;
    }
    run.within.param_of_step = 8.0 * QM_U;
    run.within.is_decoupled = 1;
    run.within.param_relative = ULP;
    run.within.param_absolute = 0x1p-148;
    run.lr = r->rates;
    if (run.slot[0].values && run.kept)
        qm_run_replay(c, &run);
}

static void replay_run(struct qm_conform *c)
{
    struct qm_shampoo_record r = {.n = 0};
    if (!read_record(c, &r))
        return;
    int count = (int)(2 * r.tiles.down * r.tiles.across);
    struct qm_shampoo_matrix *stat = qm_golden_case_memory(c, 2 * (int64_t)count + 1, sizeof *stat);
    struct qm_shampoo_matrix *root = stat ? stat + count : NULL;
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
        if (count && qm_golden_case_open(c))
            qm_shampoo_judge_preconditioned(c, &r, root, t);
    }
    if (qm_golden_case_open(c))
        judge_moments(c, &r);
    if (count && qm_golden_case_open(c))
        qm_shampoo_judge_steps(c, &r, stat, root);
}

void qm_conform_shampoo(struct qm_conform *c)
{
    qm_golden_read_all(c, &(struct qm_golden_readers){
                              .map = replay_map, .run = replay_run, .quantizer = replay_quantizer});
}
