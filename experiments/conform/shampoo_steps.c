/* shampoo_steps.c - The preconditioned gradient and whole steps of 4-bit Shampoo.
 *
 * Both are replayed from recorded states, the steps by the registered rule. */
#include <math.h>
#include <string.h>

#include "core/rule/shampoo.h"
#include "experiments/conform/shampoo_run.h"

#define ULP 0x1p-23

/* Adds to allowed what sums of as many products as both orders are off by: that many u of the sizes
 * of the terms of L G R. */
static void allow_tile(const struct qm_shampoo_tile *tile, int64_t cols, const float *l,
                       const float *right, const float *g, double *room, double *allowed)
{
    int64_t m = tile->rows, n = tile->cols;
    double by = (double)(m + n + 16) * QM_U;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            room[i * n + j] = 0.0;
            for (int64_t k = 0; k < m; k++)
                room[i * n + j] +=
                    fabs((double)l[i * m + k] * (double)g[(tile->row + k) * cols + tile->col + j]);
        }
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            for (int64_t k = 0; k < n; k++)
                allowed[(tile->row + i) * cols + tile->col + j] +=
                    by * room[i * n + k] * fabs((double)right[k * n + j]) + 0x1p-148;
}

/* out, allowed[n] <- the gradient of step t by the recorded roots, and what it may be off by. */
static void precondition(struct qm_conform *c, const struct qm_shampoo_record *r,
                         const struct qm_shampoo_matrix *root, int64_t t, float *out,
                         double *allowed)
{
    const float *g = r->grads + (t - 1) * r->n;
    double *room = qm_golden_case_memory(c, r->n, sizeof *room);
    for (int64_t k = 0; out && allowed && room && k < r->tiles.down * r->tiles.across; k++) {
        struct qm_shampoo_tile tile = qm_shampoo_tile_at(&r->tiles, k);
        const struct qm_shampoo_matrix *of = root + 2 * k;
        float *l = qm_golden_case_memory(c, tile.rows * tile.rows, sizeof *l);
        float *right = qm_golden_case_memory(c, tile.cols * tile.cols, sizeof *right);
        if (!l || !right)
            return;
        qm_shampoo_matrix_at(c, r, &of[0], 1, t, l);
        qm_shampoo_matrix_at(c, r, &of[1], 1, t, right);
        const struct qm_shampoo_factor left = {l, NULL}, other = {right, NULL};
        if (qm_shampoo_precondition(&tile, r->tiles.cols, left, other, g, out) != QM_OK)
            qm_golden_case_failed(c);
        allow_tile(&tile, r->tiles.cols, l, right, g, room, allowed);
    }
}

/* Before start_prec_step the source uses the gradient as it is, and a recording has that, what the
 * roots would make of it, or NaN for nothing. */
static int is_unused(const struct qm_shampoo_record *r, int64_t t)
{
    const float *g = r->grads + (t - 1) * r->n, *p = r->preconditioned + (t - 1) * r->n;
    int is_absent = 1, is_same = memcmp(g, p, sizeof *g * (size_t)r->n) == 0;
    for (int64_t k = 0; k < r->n; k++)
        is_absent &= isnan(p[k]) != 0;
    return (double)t < r->h.start && (is_same || is_absent);
}

void qm_shampoo_judge_preconditioned(struct qm_conform *c, const struct qm_shampoo_record *r,
                                     const struct qm_shampoo_matrix *root, int64_t t)
{
    float *out = qm_golden_case_memory(c, r->n, sizeof *out);
    double *allowed = qm_golden_case_memory(c, r->n, sizeof *allowed);
    if (is_unused(r, t) || !out || !allowed)
        return;
    precondition(c, r, root, t, out, allowed);
    qm_match_close_each(c, "preconditioned gradient", out, r->preconditioned + (t - 1) * r->n,
                        allowed, r->n);
}

/* How many times larger the terms of L G R are than what they add up to, which the errors of a
 * whole step are larger; at least 1. */
static double cancelling(struct qm_conform *c, const struct qm_shampoo_record *r,
                         const struct qm_shampoo_matrix *root, int64_t t)
{
    float *out = qm_golden_case_memory(c, r->n, sizeof *out);
    double *allowed = qm_golden_case_memory(c, r->n, sizeof *allowed);
    if (!out || !allowed || (double)t < r->h.start)
        return 1.0;
    precondition(c, r, root, t, out, allowed);
    struct qm_shampoo_tile tile = qm_shampoo_tile_at(&r->tiles, 0);
    double of_terms = qm_match_largest_double(allowed, r->n),
           sum = qm_match_largest(r->preconditioned + (t - 1) * r->n, r->n) *
                 (double)(tile.rows + tile.cols + 16) * QM_U;
    return sum > 0.0 ? fmax(of_terms / sum, 1.0) : 1.0;
}

/* The recorded matrices of one side of all tiles after step t, those of last pieces or the others,
 * as a slot holds them.  codes, scales: NULL where there is no memory. */
struct side {
    int64_t n_codes; /* 0: numbers, which stand in scales */
    uint8_t *codes;
    float *scales;
};

static struct side side_of(struct qm_conform *c, const struct qm_shampoo_record *r,
                           const struct qm_shampoo_matrix *all, int right, int last, int64_t t)
{
    struct qm_shampoo_group of = qm_shampoo_group_of(&r->tiles, right, last);
    int64_t nn = of.n * of.n, tiles = r->tiles.down * r->tiles.across, n = of.count * nn + 1;
    struct side s = {0, qm_golden_case_memory(c, n, 1),
                     qm_golden_case_memory(c, n, sizeof *s.scales)};
    for (int64_t k = 0, at = 0; s.codes && s.scales && k < tiles; k++) {
        const struct qm_shampoo_matrix *m = &all[2 * k + right];
        if (qm_shampoo_place_of(&r->tiles, right, k).last != last)
            continue;
        int64_t per = m->codes ? m->n_scales : nn;
        for (int64_t i = 0; m->codes && i < nn; i++)
            s.codes[s.n_codes++] = (uint8_t)m->codes[(t - 1) * nn + i];
        memcpy(s.scales + at++ * per, (m->codes ? m->scales : m->values) + (t - 1) * per,
               sizeof *s.scales * (size_t)per);
    }
    return s;
}

static qm_status load_side(const struct side *s, void *plan, int slot)
{
    return qm_backend_cpu.load(plan, slot, s->n_codes ? s->codes : NULL, s->scales);
}

/* The eigenvalues, or the diagonals of coded roots: of all left sides, then of all right ones. */
static qm_status load_apart(struct qm_conform *c, const struct qm_shampoo_record *r,
                            const struct qm_shampoo_matrix *all, int64_t t, void *plan, int slot)
{
    const struct qm_shampoo_tiles *s = &r->tiles;
    int64_t tiles = s->down * s->across, at = 0;
    float *x = qm_golden_case_memory(c, s->across * s->rows + s->down * s->cols, sizeof *x);
    for (int64_t i = 0; x && i < 2 * tiles; i++) {
        const struct qm_shampoo_matrix *m = &all[2 * (i % tiles) + i / tiles];
        if (m->apart)
            memcpy(x + at, m->apart + (t - 1) * m->n, sizeof *x * (size_t)m->n);
        at += m->apart ? m->n : 0;
    }
    return x ? qm_backend_cpu.load(plan, slot, NULL, x) : QM_NO_MEMORY;
}

static int vectors_slot(int at, int right, int last)
{
    return at + right + (last ? QM_SHAMPOO_LAST_VECTORS : QM_SHAMPOO_LEFT_VECTORS);
}

static int root_slot(int at, int right, int last)
{
    return at + right + (last ? QM_SHAMPOO_LAST_ROOT : QM_SHAMPOO_LEFT_ROOT);
}

/* Loads everything that is recorded after step t; nothing at t = 0, when all of it is zero. */
static qm_status load_all(struct qm_conform *c, const struct qm_shampoo_record *r,
                          const struct qm_shampoo_matrix *stat,
                          const struct qm_shampoo_matrix *root, const float *const *moment,
                          int64_t t, void *plan)
{
    int at = r->is_adam ? 2 : 1;
    if (t == 0)
        return QM_OK;
    for (int i = 0; i < at; i++)
        QM_TRY(qm_backend_cpu.load(plan, i, NULL, moment[i] + (t - 1) * r->n));
    for (int k = 0; k < 4; k++) {
        int right = k / 2, last = k % 2;
        struct side of[2] = {side_of(c, r, stat, right, last, t),
                             side_of(c, r, root, right, last, t)};
        if (qm_shampoo_group_of(&r->tiles, right, last).count == 0)
            continue;
        if (!of[0].scales || !of[1].scales || !of[0].codes || !of[1].codes)
            return QM_NO_MEMORY;
        QM_TRY(load_side(&of[0], plan, vectors_slot(at, right, last)));
        QM_TRY(load_side(&of[1], plan, root_slot(at, right, last)));
    }
    QM_TRY(load_apart(c, r, stat, t, plan, at + QM_SHAMPOO_EIGENVALUES));
    return load_apart(c, r, root, t, plan, at + QM_SHAMPOO_DIAGONALS);
}

/* *same: whether the plan's roots have the recorded codes of step t, if they are new in it.  A root
 * is formed from vectors and eigenvalues that are a rounding off here, so that a number near an
 * edge between codes may fall to its other side; the codes are judged beside, from the recorded
 * statistic. */
static qm_status compare_roots(struct qm_conform *c, const struct qm_shampoo_record *r,
                               const struct qm_shampoo_matrix *root, int at, int64_t t, void *plan,
                               int *same)
{
    *same = 1;
    for (int k = 0; k < 4 && t % (int64_t)r->h.root_gap == 0; k++) {
        struct side of = side_of(c, r, root, k / 2, k % 2, t);
        uint8_t *codes = qm_golden_case_memory(c, of.n_codes + 1, 1);
        float *scales = qm_golden_case_memory(c, of.n_codes + 1, sizeof *scales);
        if (!of.codes || !of.scales || !codes || !scales)
            return QM_NO_MEMORY;
        if (of.n_codes == 0)
            continue;
        QM_TRY(qm_backend_cpu.save(plan, root_slot(at, k / 2, k % 2), codes, scales));
        *same &= memcmp(codes, of.codes, (size_t)of.n_codes) == 0;
    }
    return QM_OK;
}

/* The share of the largest moment that a whole step may be off by: sums of n products in each of
 * its three parts, and where a root is new what an eigenvalue's error is of the least one, of which
 * the inverse fourth root has a quarter: of a left root and of a right one. */
static double whole_share(const struct qm_shampoo_record *r, const struct qm_shampoo_matrix *stat,
                          int64_t t)
{
    double most[2] = {1.0, 1.0};
    int64_t order = 1;
    for (int64_t i = 0; i < 2 * r->tiles.down * r->tiles.across; i++) {
        const float *ev = stat[i].apart + (t - 1) * stat[i].n;
        double high = qm_match_largest(ev, stat[i].n), low = high;
        for (int64_t k = 0; k < stat[i].n; k++)
            low = fmin(low, fabs((double)ev[k]));
        low += r->h.matrix_eps * high;
        most[i % 2] = low > 0.0 ? fmax(most[i % 2], high / low) : HUGE_VAL;
        order = stat[i].n > order ? stat[i].n : order;
    }
    int is_new = t % (int64_t)r->h.root_gap == 0;
    return (double)(order + 16) * QM_U * (3.0 + (is_new ? 0.25 * (most[0] + most[1]) : 0.0));
}

/* allowed[n] <- what that makes of the parameters in step t. */
static void allow_step(const struct qm_shampoo_record *r, const float *const *moment, int64_t t,
                       double share, double *allowed)
{
    const struct qm_hyper *h = &r->recipe.hyper;
    const float *m = moment[0] + (t - 1) * r->n, *v = NULL;
    const float *p = r->params + (t - 1) * r->n, *before = t > 1 ? p - r->n : r->p0;
    double of_m = share * qm_match_largest(m, r->n), of_v = 0.0, c1 = 1.0, c2 = 1.0;
    if (r->is_adam) {
        v = moment[1] + (t - 1) * r->n;
        of_v = share * qm_match_largest(v, r->n);
        c1 = 1.0 - pow(h->beta1, (double)t);
        c2 = 1.0 - pow(h->beta2, (double)t);
    }
    for (int64_t k = 0; k < r->n; k++) {
        double size = fabs((double)m[k]) + of_m, den = 1.0, least = 1.0;
        if (v) {
            den = (sqrt((double)v[k] / c2) + h->eps) * c1;
            least = (sqrt(fmax((double)v[k] - of_v, 0.0) / c2) + h->eps) * c1;
        }
        double off = least > 0.0 ? size / least - (size - of_m) / den : HUGE_VAL;
        off = isnan(off) ? HUGE_VAL : (r->is_adam ? off : 2.0 * off) + 8.0 * QM_U * size / den;
        allowed[k] = fabs(h->lr) * off + ULP * fmax(fabs((double)p[k]), fabs((double)before[k]));
    }
}

/* Whether any factor has codes. */
static int has_codes(const struct qm_shampoo_record *r, const struct qm_shampoo_matrix *stat)
{
    int any = 0;
    for (int64_t i = 0; i < 2 * r->tiles.down * r->tiles.across; i++)
        any |= stat[i].codes != NULL;
    return any;
}

/* Whether those factors have codes to which the rule gives some, by their order. */
static int are_coded_by_order(const struct qm_shampoo_record *r,
                              const struct qm_shampoo_matrix *stat)
{
    double least = r->recipe.hyper.min_lowbit;
    int all = 1;
    for (int64_t i = 0; i < 2 * r->tiles.down * r->tiles.across; i++) {
        double n = (double)stat[i].n;
        all &= (stat[i].codes != NULL) == (least > 0.0 && n * n >= least);
    }
    return all;
}

void qm_shampoo_judge_steps(struct qm_conform *c, struct qm_shampoo_record *r,
                            const struct qm_shampoo_matrix *stat,
                            const struct qm_shampoo_matrix *root)
{
    int at = r->is_adam ? 2 : 1, is_coded = has_codes(r, stat);
    float *p = qm_golden_case_memory(c, 2 * r->n, sizeof *p);
    double *allowed = qm_golden_case_memory(c, r->n, sizeof *allowed);
    const float *moment[2] = {NULL, NULL};
    moment[0] =
        qm_golden_case_floats(c, r->is_adam ? "state/exp_avg" : "state/momentum", r->steps * r->n);
    moment[1] = r->is_adam ? qm_golden_case_floats(c, "state/exp_avg_sq", r->steps * r->n) : NULL;
    r->recipe.hyper.min_lowbit = is_coded ? qm_golden_case_number(c, "min_lowbit_size", 4096.0) : 0;
    for (int i = 0; i < QM_SHAMPOO_SLOTS && is_coded; i++)
        if (i != QM_SHAMPOO_EIGENVALUES && i != QM_SHAMPOO_DIAGONALS)
            r->recipe.slot[at + i] = r->codec.q;
    if (!p || !allowed || !moment[0] || (r->is_adam && !moment[1]) || r->open_codes ||
        !are_coded_by_order(r, stat))
        return;
    for (int64_t t = 1; t <= r->steps && qm_golden_case_open(c); t++) {
        const float *before = t > 1 ? r->params + (t - 2) * r->n : r->p0;
        const float *want = r->params + (t - 1) * r->n;
        struct qm_tensor param = {p, QM_DTYPE_f32, r->shape};
        struct qm_tensor g = {(void *)(uintptr_t)(r->grads + (t - 1) * r->n), QM_DTYPE_f32,
                              r->shape};
        void *plan = NULL;
        int is_same = 0;
        double share = whole_share(r, stat, t) * cancelling(c, r, root, t);
        if (share == HUGE_VAL) /* nothing of a root is certain but what its parts were judged by */
            continue;
        r->recipe.hyper.lr = r->rates ? r->rates[t - 1] : r->recipe.hyper.lr;
        memcpy(p, before, sizeof *p * (size_t)r->n);
        qm_status st = qm_backend_cpu.open(&r->recipe, &r->shape, 0, &plan);
        if (st == QM_OK)
            st = load_all(c, r, stat, root, moment, t - 1, plan);
        if (st == QM_OK)
            st = qm_backend_cpu.step(plan, &param, &g, t, 0);
        if (st == QM_OK)
            st = compare_roots(c, r, root, at, t, plan, &is_same);
        for (int i = 0; i < at && st == QM_OK && is_same; i++) {
            const float *m = moment[i] + (t - 1) * r->n;
            st = qm_backend_cpu.decode(plan, i, p + r->n);
            qm_match_close(c, "moment after a whole step", p + r->n, m, r->n, 0.0,
                           share * qm_match_largest(m, r->n));
        }
        if (plan)
            qm_backend_cpu.close(plan);
        if (st != QM_OK)
            qm_golden_case_failed(c);
        if (!is_same)
            continue;
        allow_step(r, moment, t, share, allowed);
        qm_match_close_each(c, "parameter after a whole step", p, want, allowed, r->n);
    }
}
