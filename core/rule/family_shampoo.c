/* family_shampoo.c - Shampoo in eigenvector form, on top of AdamW and of SGD with momentum.
 *
 * The gradient of a matrix is multiplied from both sides by inverse fourth roots of running
 * covariances, scaled to the gradient's norm, and taken by AdamW or SGD.  The covariances are kept
 * as eigenvalues and eigenvectors.  Steps count from 1; the covariances are updated where stat_gap
 * divides the step, the roots where root_gap does.
 *
 * A slot of matrices has those of one order, one above the other.  The shorter last pieces of a
 * side have slots of their own, which are empty where all pieces are equal.  Eigenvalues and
 * diagonals stand in the order of tiles, first those of all left sides. */
#include "core/rule/shampoo.h"

#include <math.h>
#include <string.h>

#include "core/rule/tensor_rule.h"

enum { OF_STATISTIC, OF_ROOT, OF_MOMENTS }; /* rounds of `states` */
enum { ADAM_MOMENTS = 2, SGD_MOMENTS = 1 };

/* c[]: the scalars of AdamW, of which SGD has its learning rate and decay. */
enum { BETA1, WEIGHT1, BETA2, WEIGHT2, ROOT_BC2, EPS, RATE, KEEP, DECAY, MOMENTUM };

static int moments_of(const struct qm_rule_step *s) { return s->flag[0]; }

/* ---- shapes ---------------------------------------------------------------------------------- */

/* Whether a preconditioner of order n is quantized. */
static int is_coded(const struct qm_hyper *h, int64_t n)
{
    return h->min_lowbit > 0.0 && (double)n * (double)n >= h->min_lowbit;
}

static int vectors_slot(int right, int last)
{
    return (last ? QM_SHAMPOO_LAST_VECTORS : QM_SHAMPOO_LEFT_VECTORS) + right;
}

static int root_slot(int right, int last)
{
    return (last ? QM_SHAMPOO_LAST_ROOT : QM_SHAMPOO_LEFT_ROOT) + right;
}

/* The matrices of slot i; none in a slot of numbers. */
static struct qm_shampoo_group group_in(const struct qm_shampoo_tiles *s, int i)
{
    for (int right = 0; right < 2; right++)
        for (int last = 0; last < 2; last++)
            if (i == vectors_slot(right, last) || i == root_slot(right, last))
                return qm_shampoo_group_of(s, right, last);
    return (struct qm_shampoo_group){0, 0};
}

/* The diagonals of one side of all tiles. */
static int64_t diagonals_of(const struct qm_hyper *h, const struct qm_shampoo_tiles *s, int right)
{
    int64_t sum = 0;
    for (int last = 0; last < 2; last++) {
        struct qm_shampoo_group of = qm_shampoo_group_of(s, right, last);
        sum += is_coded(h, of.n) ? of.n * of.count : 0;
    }
    return sum;
}

static int is_plain(const struct qm_hyper *h, int i, const struct qm_shape *param)
{
    struct qm_shampoo_tiles s;
    if (i < 0 || !qm_shampoo_tiles_of(h, param, &s))
        return 0;
    struct qm_shampoo_group of = group_in(&s, i);
    return of.count > 0 && !is_coded(h, of.n);
}

static int adam_plain(const struct qm_hyper *h, int i, const struct qm_shape *param)
{
    return is_plain(h, i - ADAM_MOMENTS, param);
}

static int sgd_plain(const struct qm_hyper *h, int i, const struct qm_shape *param)
{
    return is_plain(h, i - SGD_MOMENTS, param);
}

static void shape_of(const struct qm_hyper *h, int i, const struct qm_shape *param,
                     struct qm_shape *out)
{
    struct qm_shampoo_tiles s;
    int is_matrix = i != QM_SHAMPOO_EIGENVALUES && i != QM_SHAMPOO_DIAGONALS;
    *out = i < 0 ? *param : is_matrix ? (struct qm_shape){2, {0, 0}} : qm_shape_none();
    if (i < 0 || !qm_shampoo_tiles_of(h, param, &s))
        return;
    struct qm_shampoo_group of = group_in(&s, i);
    if (i == QM_SHAMPOO_EIGENVALUES)
        *out = (struct qm_shape){1, {s.across * s.rows + s.down * s.cols}};
    else if (i == QM_SHAMPOO_DIAGONALS)
        *out = (struct qm_shape){1, {diagonals_of(h, &s, 0) + diagonals_of(h, &s, 1)}};
    else
        *out = (struct qm_shape){2, {of.count * of.n, of.n}};
}

static void adam_shape(const struct qm_hyper *h, int i, const struct qm_shape *param,
                       struct qm_shape *out)
{
    shape_of(h, i - ADAM_MOMENTS, param, out);
}

static void sgd_shape(const struct qm_hyper *h, int i, const struct qm_shape *param,
                      struct qm_shape *out)
{
    shape_of(h, i - SGD_MOMENTS, param, out);
}

/* ---- scalars --------------------------------------------------------------------------------- */

static int is_whole(double x, double least, double most)
{
    return x >= least && x <= most && x == floor(x);
}

static qm_status check(const struct qm_rule_use *use)
{
    const struct qm_hyper *h = use->hyper;
    QM_TRY(qm_rule_from_0("lr", h->lr));
    QM_TRY(qm_rule_from_0("eps", h->eps));
    QM_TRY(qm_rule_from_0("weight_decay", h->weight_decay));
    QM_TRY(qm_rule_from_0("matrix_eps", h->matrix_eps));
    if (!(h->beta1 >= 0 && h->beta1 < 1 && h->beta2 >= 0 && h->beta2 < 1))
        return qm_fail(QM_BAD_ARG, "beta1 and beta2 must be in [0, 1)");
    if (!(h->momentum >= 0 && h->momentum <= 1 && h->stat_decay >= 0 && h->stat_decay <= 1))
        return qm_fail(QM_BAD_ARG, "momentum and stat_decay must be in [0, 1]");
    if (!is_whole(h->stat_gap, 1, 1e15) || !is_whole(h->root_gap, 1, 1e15) ||
        !is_whole(h->start, 0, 1e15))
        return qm_fail(QM_BAD_ARG, "stat_gap and root_gap must be whole numbers from 1 to 1e15, "
                                   "start one from 0");
    if (!is_whole(h->rect_stat, 0, 100) || !is_whole(h->rect_root, 0, 100))
        return qm_fail(QM_BAD_ARG, "rect_stat and rect_root must be whole numbers from 0 to 100");
    if (!is_whole(h->max_order, 1, 1 << 20) || !is_whole(h->min_lowbit, 0, 1e15))
        return qm_fail(QM_BAD_ARG, "max_order must be a whole number from 1 to 2^20, min_lowbit "
                                   "one from 0 to 1e15");
    return QM_OK;
}

static void prepare_adam(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    memset(s, 0, sizeof *s);
    s->hyper = h;
    s->t = t;
    s->flag[0] = ADAM_MOMENTS;
    double bc1 = 1.0 - pow(h->beta1, (double)t), bc2 = 1.0 - pow(h->beta2, (double)t);
    s->c[BETA1] = (float)h->beta1;
    s->c[WEIGHT1] = (float)(1.0 - h->beta1);
    s->c[BETA2] = (float)h->beta2;
    s->c[WEIGHT2] = (float)(1.0 - h->beta2);
    s->c[ROOT_BC2] = (float)sqrt(bc2);
    s->c[EPS] = (float)h->eps;
    s->c[RATE] = (float)(h->lr / bc1);
    s->c[KEEP] = (float)(1.0 - h->lr * h->weight_decay);
}

static void prepare_sgd(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    memset(s, 0, sizeof *s);
    s->hyper = h;
    s->t = t;
    s->flag[0] = SGD_MOMENTS;
    s->c[RATE] = (float)h->lr;
    s->c[DECAY] = (float)h->weight_decay;
    s->c[MOMENTUM] = (float)h->momentum;
}

/* Whether this step updates the statistics, or the roots. */
static int is_due(const struct qm_rule_step *s, int round)
{
    double gap = round == OF_STATISTIC ? s->hyper->stat_gap : s->hyper->root_gap;
    return s->t % (int64_t)gap == 0;
}

/* What is not due keeps its codes. */
static int update_round(const struct qm_tensor_rule_args *w, int i)
{
    int k = i - moments_of(w->s),
        is_vectors = k == QM_SHAMPOO_LAST_VECTORS || k == QM_SHAMPOO_LAST_VECTORS + 1;
    int round = k < QM_SHAMPOO_LEFT_ROOT || is_vectors ? OF_STATISTIC : OF_ROOT;
    return k < 0 ? OF_MOMENTS : is_due(w->s, round) ? round : -1;
}

static int applies_stored(const struct qm_tensor_rule_args *w, int i)
{
    return i >= moments_of(w->s);
}

/* ---- preconditioners ------------------------------------------------------------------------- */

/* One side of one tile. */
struct side {
    int right;
    int64_t n;       /* order */
    float *vt, *ev;  /* [n][n], [n] */
    float *root, *d; /* [n][n]; [n], or NULL where the root keeps its diagonal */
};

/* Where the diagonal of that side of tile k begins in its slot. */
static int64_t diagonal_at(const struct qm_hyper *h, const struct qm_shampoo_tiles *s, int64_t k,
                           int right)
{
    struct qm_shampoo_place p = qm_shampoo_place_of(s, right, k);
    if (!right)
        return p.before; /* last pieces stand behind all others */
    int64_t rest = qm_shampoo_group_of(s, 1, 1).n;
    return diagonals_of(h, s, 0) + p.before - (is_coded(h, rest) ? 0 : k / s->across * rest);
}

static struct side side_of(const struct qm_tensor_rule_args *w, const struct qm_shampoo_tiles *s,
                           int64_t k, int right)
{
    const struct qm_hyper *h = w->s->hyper;
    float *const *slot = w->slot + moments_of(w->s);
    struct qm_shampoo_place p = qm_shampoo_place_of(s, right, k);
    int64_t first = p.at * p.n * p.n;
    struct side at = {.right = right, .n = p.n};
    at.vt = slot[vectors_slot(right, p.last)] + first;
    at.ev = slot[QM_SHAMPOO_EIGENVALUES] + (right ? s->across * s->rows : 0) + p.before;
    at.root = slot[root_slot(right, p.last)] + first;
    if (is_coded(h, p.n))
        at.d = slot[QM_SHAMPOO_DIAGONALS] + diagonal_at(h, s, k, right);
    return at;
}

/* A root that is quantized has zeros on its diagonal, which is a slot of its own. */
static qm_status renew_root(const struct qm_hyper *h, const struct side *at)
{
    QM_TRY(qm_shampoo_root(h, at->n, at->vt, at->ev, at->root));
    for (int64_t i = 0; i < at->n && at->d; i++) {
        at->d[i] = at->root[i * (at->n + 1)];
        at->root[i * (at->n + 1)] = 0.0f;
    }
    return QM_OK;
}

static qm_status renew(const struct qm_tensor_rule_args *w)
{
    const struct qm_hyper *h = w->s->hyper;
    struct qm_shampoo_tiles s;
    if (!is_due(w->s, w->round) || !qm_shampoo_tiles_of(h, w->shape, &s))
        return QM_OK;
    for (int64_t k = 0; k < 2 * s.down * s.across; k++) {
        struct qm_shampoo_tile tile = qm_shampoo_tile_at(&s, k / 2);
        struct side at = side_of(w, &s, k / 2, (int)(k % 2));
        if (w->round == OF_ROOT)
            QM_TRY(renew_root(h, &at));
        else
            QM_TRY(qm_shampoo_statistic(h, &tile, s.cols, w->g, at.right, at.vt, at.ev));
    }
    return QM_OK;
}

/* out <- the preconditioned gradient, grafted; the gradient itself before step `start` and where
 * there is no preconditioner. */
static qm_status direction(const struct qm_tensor_rule_args *w, float *out)
{
    const struct qm_hyper *h = w->s->hyper;
    int64_t n = qm_shape_numel(w->shape);
    struct qm_shampoo_tiles s;
    if (n > 0)
        memcpy(out, w->g, sizeof *out * (size_t)n);
    if (!qm_shampoo_tiles_of(h, w->shape, &s) || (double)w->s->t < h->start)
        return QM_OK;
    for (int64_t k = 0; k < s.down * s.across; k++) {
        struct qm_shampoo_tile tile = qm_shampoo_tile_at(&s, k);
        struct side l = side_of(w, &s, k, 0), r = side_of(w, &s, k, 1);
        const struct qm_shampoo_factor left = {l.root, l.d}, right = {r.root, r.d};
        QM_TRY(qm_shampoo_precondition(&tile, s.cols, left, right, w->g, out));
    }
    qm_shampoo_graft(n, w->g, out);
    return QM_OK;
}

/* ---- AdamW ----------------------------------------------------------------------------------- */

static qm_status adam_states(const struct qm_tensor_rule_args *w)
{
    const float *c = w->s->c;
    float *m = w->slot[0], *v = w->slot[1], *u = w->room;
    if (w->round != OF_MOMENTS)
        return renew(w);
    QM_TRY(direction(w, u));
    for (int64_t i = 0; i < qm_shape_numel(w->shape); i++) {
        m[i] = m[i] * c[BETA1] + u[i] * c[WEIGHT1];
        v[i] = v[i] * c[BETA2] + (c[WEIGHT2] * u[i]) * u[i];
    }
    return QM_OK;
}

static qm_status adam_apply(const struct qm_tensor_rule_args *w)
{
    const float *c = w->s->c, *m = w->slot[0], *v = w->slot[1];
    for (int64_t i = 0; i < qm_shape_numel(w->shape); i++) {
        float den = sqrtf(v[i]) / c[ROOT_BC2] + c[EPS];
        w->p[i] = w->p[i] * c[KEEP] - (c[RATE] * m[i]) / den;
    }
    return QM_OK;
}

/* ---- SGD ------------------------------------------------------------------------------------- */

static qm_status decayed(const struct qm_tensor_rule_args *w, float *u)
{
    QM_TRY(direction(w, u));
    for (int64_t i = 0; i < qm_shape_numel(w->shape) && w->s->c[DECAY] != 0.0f; i++)
        u[i] = u[i] + w->s->c[DECAY] * w->p[i];
    return QM_OK;
}

static qm_status sgd_states(const struct qm_tensor_rule_args *w)
{
    float *buffer = w->slot[0], *u = w->room;
    if (w->round != OF_MOMENTS)
        return renew(w);
    QM_TRY(decayed(w, u));
    for (int64_t i = 0; i < qm_shape_numel(w->shape); i++)
        buffer[i] = buffer[i] * w->s->c[MOMENTUM] + u[i];
    return QM_OK;
}

static qm_status sgd_apply(const struct qm_tensor_rule_args *w)
{
    const float *c = w->s->c, *buffer = w->slot[0], *u = w->room;
    int nesterov = w->s->hyper->nesterov;
    if (nesterov)
        QM_TRY(decayed(w, w->room));
    for (int64_t i = 0; i < qm_shape_numel(w->shape); i++)
        w->p[i] = w->p[i] - c[RATE] * (nesterov ? u[i] + c[MOMENTUM] * buffer[i] : buffer[i]);
    return QM_OK;
}

/* ---- rules ----------------------------------------------------------------------------------- */

#define OF_SHAMPOO \
    " stat_decay matrix_eps stat_gap root_gap start rect_stat rect_root max_order min_lowbit"
#define PRECONDITIONER_SLOTS                                                                \
    "left_vectors", "right_vectors", "eigenvalues", "left_root", "right_root", "diagonals", \
        "left_vectors_last", "right_vectors_last", "left_root_last", "right_root_last"
#define LIKE "left_vectors", "right_vectors", "left_root", "right_root"

static const struct qm_rule rules[] = {
    {.name = "shampoo_adamw",
     .family = "shampoo_adamw",
     .reads = "lr beta1 beta2 eps weight_decay" OF_SHAMPOO,
     .summary = "Shampoo in eigenvector form, grafted, as the gradient of AdamW",
     .source = "low-bit-Shampoo optimizers/shampoo2.py ShampooAdamW; arXiv:2405.18144",
     .n_slots = ADAM_MOMENTS + QM_SHAMPOO_SLOTS,
     .slot = {"exp_avg", "exp_avg_sq", PRECONDITIONER_SLOTS},
     .slot_sign = {1, 0, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1},
     .slot_like = {[ADAM_MOMENTS + QM_SHAMPOO_LAST_VECTORS] = LIKE},
     .check = check,
     .prepare = prepare_adam,
     .slot_shape = adam_shape,
     .slot_plain = adam_plain,
     .tensor = &(const struct qm_tensor_ops){.states = adam_states,
                                             .apply = adam_apply,
                                             .extra_passes = 2,
                                             .applies_stored = applies_stored,
                                             .update_round = update_round}},
    {.name = "shampoo_sgd",
     .family = "shampoo_sgd",
     .reads = "lr momentum weight_decay nesterov" OF_SHAMPOO,
     .summary = "Shampoo in eigenvector form, grafted, as the gradient of SGD with momentum",
     .source = "low-bit-Shampoo optimizers/shampoo2.py ShampooSGD; arXiv:2405.18144",
     .n_slots = SGD_MOMENTS + QM_SHAMPOO_SLOTS,
     .slot = {"momentum_buffer", PRECONDITIONER_SLOTS},
     .slot_sign = {1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1},
     .slot_like = {[SGD_MOMENTS + QM_SHAMPOO_LAST_VECTORS] = LIKE},
     .check = check,
     .prepare = prepare_sgd,
     .slot_shape = sgd_shape,
     .slot_plain = sgd_plain,
     .tensor = &(const struct qm_tensor_ops){.states = sgd_states,
                                             .apply = sgd_apply,
                                             .extra_passes = 2,
                                             .applies_stored = applies_stored,
                                             .update_round = update_round}},
};

const struct qm_rule_family qm_family_shampoo = {sizeof rules / sizeof *rules, rules};
