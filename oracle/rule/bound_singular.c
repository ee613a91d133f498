/* bound_singular.c - Decides whether the vectors of a projection are leading singular vectors.
 *
 * Singular vectors cannot be compared entry by entry: their signs are free, and so is the basis of
 * the space that belongs to equal singular values.  So a property of all correct answers is tested.
 * P is correct if its vectors p_i are, up to rounding, leading singular vectors of some matrix
 * G + E with |E| <= h s_1, where s_1 >= s_2 >= ... are the singular values of G.  With
 * p_i = v_i + d_i, where (G + E)'(G + E) v_i = z_i^2 v_i and |v_i| = 1,
 *
 *   |z_i - s_i| <= |E|                            (Weyl)
 *   |G'G p_i - s_i^2 p_i| <= 2 |G| |E| + 3 |E|^2 + |z_i^2 - s_i^2| + s_1^2 |d_i|
 *                         <= (4 h + 4 h^2 + |d_i|) s_1^2          (because |G'G - s_i^2| <= s_1^2)
 *   |p_i p_j - [i = j]|   <= 2 |d_i| + |d_i|^2
 *
 * for any gaps between the singular values.  Conversely, orthonormal vectors with residual 0 at
 * s_1 ... s_r are leading singular vectors in order; a vector p_i turned by a small angle a towards
 * p_j has a residual of a |s_i^2 - s_j^2| to first order.
 *
 * |d_i|: the rounding to float32, u.  h: the rules of this tree compute P in double from G'G, so
 * h = 0, and the rounding of G'G and of its eigenvectors, (m + n + 64 k) 2^-52 |G|_F^2 (k the side
 * of G'G; 64 for the sweeps of rotations), is added to the residual.  A judged side whose sums may
 * be float32 may compute its vectors in float32, too: then h = p(m, n) u, as of a backward stable
 * method, with p "a modestly growing function" (LAPACK Users' Guide, 4.9.1), here max(m, n), and
 * the vectors are orthonormal to within that.  The singular values, GSL's of G itself, are off by
 * less than 2^-52 max(m, n) s_1. */
#include "oracle/rule/projection.h"

#include <gsl/gsl_errno.h>
#include <gsl/gsl_linalg.h>
#include <stdlib.h>

#include "oracle/bound/factored_sums.h"

struct vectors {
    const struct qm_projection *q;
    const double *g, *p;
    int64_t k;                    /* length of a vector */
    double residual, orthonormal; /* the bounds; that of the residual in units of s_1^2 */
    gsl_matrix *u, *v; /* singular vectors of the longer and of the shorter side, columns */
    gsl_vector *s;
};

/* Entry j of vector i of the judged P. */
static double given(const struct vectors *a, int64_t i, int64_t j)
{
    return a->p[a->q->right ? i * a->k + j : j * a->q->r + i];
}

/* Entry j of singular vector i by GSL. */
static double wanted(const struct vectors *a, int64_t i, int64_t j)
{
    int shorter = a->q->right == (a->q->m >= a->q->n);
    return gsl_matrix_get(shorter ? a->v : a->u, (size_t)j, (size_t)i);
}

static void vectors_close(struct vectors *a)
{
    if (a->u)
        gsl_matrix_free(a->u);
    if (a->v)
        gsl_matrix_free(a->v);
    if (a->s)
        gsl_vector_free(a->s);
}

static qm_status decompose(struct vectors *a)
{
    int64_t m = a->q->m, n = a->q->n, tall = m >= n;
    size_t most = (size_t)(tall ? m : n), least = (size_t)(tall ? n : m);
    gsl_error_handler_t *before = gsl_set_error_handler_off();
    gsl_vector *room = gsl_vector_alloc(least);
    a->u = gsl_matrix_alloc(most, least);
    a->v = gsl_matrix_alloc(least, least);
    a->s = gsl_vector_alloc(least);
    int failed = !room || !a->u || !a->v || !a->s;
    for (int64_t i = 0; i < m && !failed; i++)
        for (int64_t j = 0; j < n; j++)
            gsl_matrix_set(a->u, (size_t)(tall ? i : j), (size_t)(tall ? j : i), a->g[i * n + j]);
    failed = failed || gsl_linalg_SV_decomp(a->u, a->v, a->s, room) != GSL_SUCCESS;
    if (room)
        gsl_vector_free(room);
    gsl_set_error_handler(before);
    return failed
               ? qm_fail(QM_INTERNAL, "singular values of %lld x %lld", (long long)m, (long long)n)
               : QM_OK;
}

/* Sets the bounds of the residual and of orthonormality. */
static void set_bounds(const struct qm_bound_step *b, struct vectors *a)
{
    double m = (double)a->q->m, n = (double)a->q->n, most = fmax(m, n);
    double top = gsl_vector_get(a->s, 0), all = qm_norm_of(a->g, b->n, 1), h = 0.0;
    double gram =
        top > 0.0 ? (m + n + 64.0 * (double)a->k) * 0x1p-52 * all * all / (top * top) : 0.0;
    if (b->reorder.tree)
        h = most * QM_U;
    a->residual = 4.0 * h * (1.0 + h) + (h + QM_U) * (1.0 + 0x1p-20) + gram;
    a->orthonormal = 2.0 * (h + QM_U) * (1.0 + 0x1p-20) + (64.0 * (double)a->k) * 0x1p-52;
}

/* |G'G p - s^2 p| / s_1^2 of vector i; x, y: work space of m + n numbers each. */
static double residual(const struct vectors *a, int64_t i, double *x, double *y)
{
    const struct qm_projection *q = a->q;
    double top = gsl_vector_get(a->s, 0), s = gsl_vector_get(a->s, (size_t)i), sum = 0.0;
    int64_t across = q->right ? q->m : q->n;
    int64_t along = q->right ? 1 : q->n, step = q->right ? q->n : 1;
    if (!(top > 0.0))
        return 0.0;
    for (int64_t c = 0; c < across; c++) {
        x[c] = 0.0;
        for (int64_t j = 0; j < a->k; j++)
            x[c] += a->g[c * step + j * along] / top * given(a, i, j);
    }
    for (int64_t j = 0; j < a->k; j++) {
        y[j] = -(s / top) * (s / top) * given(a, i, j);
        for (int64_t c = 0; c < across; c++)
            y[j] += a->g[c * step + j * along] / top * x[c];
        sum += y[j] * y[j];
    }
    return sqrt(sum);
}

/* The largest ratio to its bound of vector i's residual, of its length minus 1, and of its products
 * with the vectors before it; at most 1 if the vector is correct, NaN if an entry is NaN. */
static double share(const struct vectors *a, int64_t i, double *room)
{
    double most = residual(a, i, room, room + a->q->m + a->q->n) / a->residual;
    for (int64_t j = 0; j <= i; j++) {
        double sum = j == i ? -1.0 : 0.0;
        for (int64_t l = 0; l < a->k; l++)
            sum += given(a, i, l) * given(a, j, l);
        sum = fabs(sum) / a->orthonormal;
        most = sum <= most ? most : sum; /* NaN stays */
    }
    return most;
}

/* The wanted entries are GSL's, with the sign that is nearer to the judged vector.  The bound of
 * every entry is the largest distance of an entry divided by `taken` (share): the furthest entry
 * then uses the fraction of its bound that the whole vector uses. */
static void set_entries(const struct qm_bound_step *b, const struct vectors *a, int slot, int64_t i,
                        double taken)
{
    double product = 0.0, apart = 0.0;
    for (int64_t j = 0; j < a->k; j++)
        product += given(a, i, j) * wanted(a, i, j);
    double sign = product < 0.0 ? -1.0 : 1.0;
    for (int64_t j = 0; j < a->k; j++)
        apart = fmax(apart, fabs(given(a, i, j) - sign * wanted(a, i, j)));
    for (int64_t j = 0; j < a->k; j++) {
        int64_t at = a->q->right ? i * a->k + j : j * a->q->r + i;
        b->want[slot][at] = sign * wanted(a, i, j);
        b->e_slot[slot][at] = isnan(taken) ? 0.0 : taken > 0.0 ? apart / taken : apart;
    }
}

qm_status qm_ball_project_singular(const struct qm_bound_step *b, const struct qm_projection *q,
                                   int slot)
{
    struct vectors a = {.q = q, .g = b->g, .p = b->stored[slot], .k = q->right ? q->n : q->m};
    double *room = malloc(2 * sizeof *room * (size_t)(q->m + q->n));
    if (!room)
        return qm_fail(QM_NO_MEMORY, "vectors of %lld x %lld", (long long)q->m, (long long)q->n);
    qm_status st = decompose(&a);
    if (st == QM_OK) {
        set_bounds(b, &a);
        for (int64_t i = 0; i < q->r; i++)
            set_entries(b, &a, slot, i, share(&a, i, room));
    }
    vectors_close(&a);
    free(room);
    return st;
}
