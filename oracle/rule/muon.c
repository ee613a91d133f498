/* muon.c - Muon with momentum in low bits, in double, in the two published forms.
 *
 *   M     <- mu M + G                       U = M, or mu M + G with Nesterov's form
 *   X     <- bf16(U) / (|bf16(U)| + eps)    (muon_bnb: over max(|bf16(U)|, eps)); |.| Frobenius
 *   A = X X',  B = b A + c A A,  X <- a X + B X, five times with the triples below, wide
 *   theta <- theta (1 - lr lambda) - lr r X
 *
 * r = 1, sqrt(rows / cols) or 0.2 sqrt(max(rows, cols)) for adjust 0, 1, 2.  A rounding to bfloat16
 * is a part of the method: muon_lin rounds every product, every sum and lr r X, muon_bnb A, B
 * and X once each.  Tensors of more than two dimensions: muon_lin takes the last two as a batch of
 * matrices, or with flatten [d0, rest]; muon_bnb three as a batch, more as [d0, rest].
 * Slot: M, of the tensor's number of elements. */
#include "oracle/rule/muon.h"

#include <stdlib.h>

static double lin_triple[QM_MUON_ITERATIONS][3] = {{4.0848, -6.8946, 2.9270},
                                                   {3.9505, -6.3029, 2.6377},
                                                   {3.7418, -5.5913, 2.3037},
                                                   {2.8769, -3.1427, 1.2046},
                                                   {2.8366, -3.0525, 1.2012}};
/* Polar Express (arXiv:2505.16932), a, b, c over 1.05, 1.05^3, 1.05^5. */
static double bnb_triple[QM_MUON_ITERATIONS][3] = {
    {7.892582874424408, -20.38301394587957, 13.555306149406924},
    {3.911484868135431, -2.5464635929060884, 0.4268988319673074},
    {3.760657955697423, -2.512819018216563, 0.4323647349070073},
    {3.160399673686287, -2.149649518898498, 0.3996366907664389},
    {2.1910971618617303, -1.441662010214663, 0.328146487623155}};

const struct qm_muon_kind qm_muon_lin = {1, lin_triple};
const struct qm_muon_kind qm_muon_bnb = {0, bnb_triple};
const struct qm_float_format qm_muon_bf16 = QM_FORMAT_bf16;

qm_status qm_muon_shape_of(const struct qm_muon_kind *kind, const struct qm_oracle_hyper *h,
                           const struct qm_shape *shape, struct qm_muon_shape *out)
{
    int rank = shape->rank;
    if (rank < 2)
        return qm_fail(QM_BAD_ARG, "Muon wants matrices, not a tensor of %d dimensions", rank);
    int is_one = kind->rounds_all ? h->flatten : rank > 3;
    struct qm_muon_shape s = {1, 1, 1, 1.0};
    for (int i = 0; i < rank; i++) {
        if (is_one ? i == 0 : i == rank - 2)
            s.rows *= shape->dim[i];
        else if (is_one || i == rank - 1)
            s.cols *= shape->dim[i];
        else
            s.batch *= shape->dim[i];
    }
    if (h->adjust == 1.0)
        s.ratio = sqrt((double)s.rows / (double)s.cols);
    if (h->adjust == 2.0)
        s.ratio = 0.2 * sqrt(fmax((double)s.rows, (double)s.cols));
    *out = s;
    return QM_OK;
}

/* x[k][n], k <= n, <- the matrix u[rows][cols], transposed where it has more rows than columns. */
static void muon_wide(const double *u, const struct qm_muon_shape *s, double *x)
{
    for (int64_t i = 0; i < s->rows; i++)
        for (int64_t j = 0; j < s->cols; j++)
            x[s->rows > s->cols ? j * s->rows + i : i * s->cols + j] = u[i * s->cols + j];
}

/* out[rows][cols] = x[rows][inner] y; y[inner][cols], or y transposed [cols][inner]. */
static void product(const double *x, const double *y, int transposed, int64_t rows, int64_t inner,
                    int64_t cols, double *out)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            double sum = 0.0;
            for (int64_t k = 0; k < inner; k++)
                sum += x[i * inner + k] * (transposed ? y[j * inner + k] : y[k * cols + j]);
            out[i * cols + j] = sum;
        }
}

void qm_muon_iterate(const struct qm_muon_kind *kind, int iterations, int rounded, int64_t k,
                     int64_t n, double *x, double *room)
{
    double *a = room, *b = a + k * k, *bx = b + k * k;
    double (*outer)(double) = rounded ? qm_muon_round : NULL;
    double (*inner)(double) = rounded && kind->rounds_all ? qm_muon_round : NULL;
#define OUTER(v) (outer ? outer(v) : (v))
#define INNER(v) (inner ? inner(v) : (v))
    for (int t = 0; t < iterations; t++) {
        const double *c = kind->triple[t];
        product(x, x, 1, k, n, k, a);
        for (int64_t i = 0; i < k * k; i++)
            a[i] = OUTER(a[i]);
        product(a, a, 0, k, k, k, b);
        for (int64_t i = 0; i < k * k; i++)
            b[i] = OUTER(INNER(c[1] * a[i]) + INNER(c[2] * INNER(b[i])));
        product(b, x, 0, k, k, n, bx);
        for (int64_t i = 0; i < k * n; i++)
            x[i] = OUTER(INNER(c[0] * x[i]) + INNER(bx[i]));
    }
#undef OUTER
#undef INNER
}

/* u[rows][cols] <- the orthogonal factor; room: 2 k k + 2 k n. */
static void orthogonalize(const struct qm_muon_kind *kind, const struct qm_muon_shape *s,
                          double eps, double *u, double *room)
{
    int64_t k = s->rows < s->cols ? s->rows : s->cols, n = s->rows + s->cols - k;
    double *x = room + 2 * k * k + k * n, sum = 0.0, norm, by;
    for (int64_t i = 0; i < k * n; i++) {
        u[i] = qm_muon_round(u[i]);
        sum += u[i] * u[i];
    }
    norm = qm_muon_round(sqrt(sum));
    by = kind->rounds_all ? qm_muon_round(norm + eps) : norm;
    if (!kind->rounds_all && by < qm_muon_round(eps))
        by = qm_muon_round(eps);
    for (int64_t i = 0; i < k * n; i++)
        u[i] = qm_muon_round(u[i] / by);
    muon_wide(u, s, x);
    qm_muon_iterate(kind, QM_MUON_ITERATIONS, 1, k, n, x, room);
    const struct qm_muon_shape back = {1, s->cols, s->rows, 1.0};
    if (s->rows > s->cols)
        for (int64_t i = 0; i < s->rows; i++)
            for (int64_t j = 0; j < s->cols; j++)
                u[i * s->cols + j] = x[j * back.cols + i];
    else
        for (int64_t i = 0; i < k * n; i++)
            u[i] = x[i];
}

static qm_status step(const struct qm_muon_kind *kind, double *theta, double *m, const double *g,
                      const struct qm_shape *shape, const struct qm_oracle_hyper *h)
{
    struct qm_muon_shape s;
    QM_TRY(qm_muon_shape_of(kind, h, shape, &s));
    int64_t size = s.rows * s.cols, k = s.rows < s.cols ? s.rows : s.cols;
    if (size == 0)
        return QM_OK;
    double *u = malloc((size_t)(3 * size + 2 * k * k) * sizeof *u);
    if (!u)
        return qm_fail(QM_NO_MEMORY, "oracle of %lld elements", (long long)size);
    for (int64_t at = 0; at < s.batch * size; at += size) {
        for (int64_t i = 0; i < size; i++) {
            m[at + i] = h->momentum * m[at + i] + g[at + i];
            u[i] = h->nesterov ? h->momentum * m[at + i] + g[at + i] : m[at + i];
        }
        orthogonalize(kind, &s, h->eps, u, u + size);
        for (int64_t i = 0; i < size; i++) {
            double update = h->lr * s.ratio * u[i];
            theta[at + i] = theta[at + i] * (1.0 - h->lr * h->weight_decay) -
                            (kind->rounds_all ? qm_muon_round(update) : update);
        }
    }
    free(u);
    return QM_OK;
}

static qm_status lin_whole(double *p, double *const *slot, const double *g,
                           const struct qm_shape *shape, uint32_t tensor,
                           const struct qm_oracle_hyper *h, int64_t t)
{
    (void)tensor;
    (void)t;
    return step(&qm_muon_lin, p, slot[0], g, shape, h);
}

static qm_status bnb_whole(double *p, double *const *slot, const double *g,
                           const struct qm_shape *shape, uint32_t tensor,
                           const struct qm_oracle_hyper *h, int64_t t)
{
    (void)tensor;
    (void)t;
    return step(&qm_muon_bnb, p, slot[0], g, shape, h);
}

static qm_status lin_bound(const struct qm_bound_step *b) { return qm_muon_bound(b, &qm_muon_lin); }
static qm_status bnb_bound(const struct qm_bound_step *b) { return qm_muon_bound(b, &qm_muon_bnb); }

extern const struct qm_oracle qm_oracle_muon_lin, qm_oracle_muon_bnb;
const struct qm_oracle qm_oracle_muon_lin = {
    .family = "muon_lin",
    .source = "axolotl-contribs-mit muon/dist_muon.py (after microsoft/dion); arXiv:2509.23106",
    .n_slots = 1,
    .slot = {"momentum_buffer"},
    .whole = lin_whole,
    .bound = lin_bound,
};
const struct qm_oracle qm_oracle_muon_bnb = {
    .family = "muon_bnb",
    .source = "bitsandbytes fork feature/muon, optim/muon.py; arXiv:2505.16932",
    .n_slots = 1,
    .slot = {"momentum_buffer"},
    .whole = bnb_whole,
    .bound = bnb_bound,
};
