/* microadam.c - MicroAdam in double (arXiv:2405.15593, algorithm 1, as its package runs it).
 *
 *   a     <- g + e
 *   I, V  <- the k largest |a| of each block, in row (t - 1) mod m of the window;  a at I <- 0
 *   e     <- a
 *   theta <- theta (1 - lr lambda);  alpha = -2: theta <- theta - a + e, with e as it is stored
 *   M      = sum over the rows of beta1^age V,  S = sum over the rows of beta2^age V^2
 *   u      = M (1 - beta1) / (1 - beta1^t) / (sqrt(S (1 - beta2) / (1 - beta2^t)) + eps); 0 where
 *            no row has an element
 *   u     <- u + alpha e, e <- (1 - alpha) e, where 0 < alpha < 1
 *   theta <- theta - lr u
 *
 * m = window.  A block has min(d, d_block) of the d elements, the last what is left; k is ceil(its
 * size times k_init).  g, e, a and u are rounded to bfloat16, which is a part of the method; M, S
 * and theta are not.  An index that is not below the size of its block counts for nothing.
 * Slots: error, of theta's shape; index and value, m rows of the k of all blocks. */
#include "oracle/rule/microadam.h"

#include <stdlib.h>

const struct qm_float_format qm_microadam_bf16 = QM_FORMAT_bf16;

static int64_t share(double k_init, int64_t n)
{
    return (int64_t)fmin(ceil((double)n * k_init), (double)n);
}

struct qm_microadam_block qm_microadam_block(const struct qm_oracle_hyper *h, int64_t n, int64_t b)
{
    int64_t most = (double)n > h->d_block ? (int64_t)h->d_block : n;
    struct qm_microadam_block out = {b * most, 0, 0, 0};
    if (n <= 0 || out.from >= n)
        return out;
    out.size = n - out.from < most ? n - out.from : most;
    out.at = b * share(h->k_init, most);
    out.k = share(h->k_init, out.size);
    return out;
}

int64_t qm_microadam_row(const struct qm_oracle_hyper *h, int64_t n)
{
    int64_t sum = 0;
    for (int64_t b = 0; qm_microadam_block(h, n, b).size > 0; b++)
        sum += qm_microadam_block(h, n, b).k;
    return sum;
}

/* ---- the largest elements -------------------------------------------------------------------- */

struct ranked {
    double size;
    int64_t at;
};

static int by_size(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->size != y->size)
        return x->size > y->size ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

static int by_index(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

qm_status qm_microadam_largest(const double *x, int64_t n, int64_t k, int64_t *pick)
{
    struct ranked *all = malloc(sizeof *all * (size_t)(n + 1));
    if (!all)
        return qm_fail(QM_NO_MEMORY, "oracle of %lld elements", (long long)n);
    for (int64_t i = 0; i < n; i++) /* NaN is above Inf */
        all[i] = (struct ranked){isnan(x[i]) ? 1.0 : isinf(x[i]) ? 0x1p-1 : 0.0, i};
    double top = 0.0;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(x[i]))
            top = fmax(top, fabs(x[i]));
    for (int64_t i = 0; i < n; i++)
        all[i].size = isfinite(x[i]) ? fabs(x[i]) : (2.0 * top + 1.0) * (1.0 + all[i].size);
    qsort(all, (size_t)n, sizeof *all, by_size);
    for (int64_t j = 0; j < k; j++)
        pick[j] = all[j].at;
    free(all);
    qsort(pick, (size_t)k, sizeof *pick, by_index);
    return QM_OK;
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* M and S of a block from the rows that steps have written; S is -1 where no row has an element. */
static void moments(const struct qm_oracle_hyper *h, const struct qm_microadam_block *of, int64_t k,
                    int64_t t, double *const *slot, double *m, double *s)
{
    int64_t window = (int64_t)h->window;
    for (int64_t i = 0; i < of->size; i++) {
        m[i] = 0.0;
        s[i] = -1.0;
    }
    for (int64_t r = 0; r < window && r < t; r++) {
        double age = (double)((t - 1 - r) % window);
        for (int64_t j = r * k + of->at; j < r * k + of->at + of->k; j++) {
            double at = slot[QM_MICROADAM_INDEX][j], v = slot[QM_MICROADAM_VALUE][j];
            if (!(at >= 0.0 && at < (double)of->size))
                continue;
            int64_t i = (int64_t)at;
            m[i] += pow(h->beta1, age) * v;
            s[i] = fmax(s[i], 0.0) + pow(h->beta2, age) * v * v;
            if (isnan(v))
                s[i] = v;
        }
    }
}

static void one_block(const struct qm_oracle_hyper *h, const struct qm_microadam_block *of,
                      int64_t k, int64_t t, double *theta, double *const *slot, const int64_t *pick,
                      double *room)
{
    double *e = slot[QM_MICROADAM_ERROR] + of->from, *m = room, *s = room + of->size;
    int64_t row = (t - 1) % (int64_t)h->window * k + of->at;
    for (int64_t j = 0; j < of->k; j++) {
        slot[QM_MICROADAM_INDEX][row + j] = (double)pick[j];
        slot[QM_MICROADAM_VALUE][row + j] = e[pick[j]];
        e[pick[j]] = 0.0;
    }
    moments(h, of, k, t, slot, m, s);
    double c1 = (1.0 - h->beta1) / qm_oracle_correction(h->beta1, t);
    double c2 = (1.0 - h->beta2) / qm_oracle_correction(h->beta2, t);
    for (int64_t i = 0; i < of->size; i++) {
        double u = 0.0;
        if (!(s[i] == -1.0))
            u = qm_microadam_round(c1 * m[i] / (sqrt(c2 * s[i]) + h->eps));
        if (h->alpha > 0.0) {
            u = qm_microadam_round(u + qm_microadam_round(h->alpha * e[i]));
            e[i] = qm_microadam_round((1.0 - h->alpha) * e[i]);
        }
        theta[of->from + i] = theta[of->from + i] * (1.0 - h->lr * h->weight_decay) - h->lr * u;
    }
}

static qm_status whole(double *theta, double *const *slot, const double *g,
                       const struct qm_shape *shape, uint32_t tensor,
                       const struct qm_oracle_hyper *h, int64_t t)
{
    int64_t n = qm_shape_numel(shape), k = qm_microadam_row(h, n);
    double *room = malloc(sizeof *room * (size_t)(2 * n + 1)), *e = slot[QM_MICROADAM_ERROR];
    int64_t *pick = malloc(sizeof *pick * (size_t)(n + 1));
    qm_status st = room && pick ? QM_OK : qm_fail(QM_NO_MEMORY, "oracle of %lld", (long long)n);
    (void)tensor;
    for (int64_t b = 0; st == QM_OK; b++) {
        struct qm_microadam_block of = qm_microadam_block(h, n, b);
        if (of.size == 0)
            break;
        for (int64_t i = of.from; i < of.from + of.size; i++)
            e[i] = qm_microadam_round(qm_microadam_round(g[i]) + qm_microadam_round(e[i]));
        st = qm_microadam_largest(e + of.from, of.size, of.k, pick);
        if (st == QM_OK)
            one_block(h, &of, k, t, theta, slot, pick, room);
    }
    free(room);
    free(pick);
    return st;
}

extern const struct qm_oracle qm_oracle_microadam;
const struct qm_oracle qm_oracle_microadam = {
    .family = "microadam",
    .source = "arXiv:2405.15593, algorithm 1; ista-daslab-optimizers 1.1.3, micro_adam.py",
    .n_slots = 3,
    .slot = {"error", "index", "value"},
    .whole = whole,
    .bound = qm_microadam_bound,
};
