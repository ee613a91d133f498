/* projection.c - The projection matrices of APOLLO and Fira: random ones and singular vectors. */
#include "core/rule/lowrank.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/mt19937.h"
#include "core/rule/tensor_rule.h"

#define PI 3.14159265358979323846

/* ---- random ---------------------------------------------------------------------------------- */

static uint64_t next64(struct qm_mt19937 *r)
{
    uint64_t high = qm_mt_next(r);
    return high << 32 | qm_mt_next(r);
}

/* A chain goes on from the nearest link before k that this thread has kept.  A link that is one
 * step further replaces that one, and any other replaces the oldest. */
uint64_t qm_lowrank_seed(uint64_t index, int64_t k)
{
    enum { KEPT = 64 };
    static _Thread_local struct {
        uint64_t index, seed;
        int64_t k;
    } kept[KEPT];
    static _Thread_local int next;
    uint64_t seed = index;
    int64_t at = 0, from;
    int nearest = -1;
    for (int i = 0; i < KEPT; i++)
        if (kept[i].k > at && kept[i].k <= k && kept[i].index == index) {
            at = kept[i].k;
            seed = kept[i].seed;
            nearest = i;
        }
    for (from = at; at < k; at++) {
        struct qm_mt19937 r;
        qm_mt_seed(&r, (uint32_t)seed);
        for (int draw = 0; draw < 15; draw++)
            seed = next64(&r) % 0x7fffffffffffffffu;
    }
    if (k == from)
        return seed;
    if (nearest < 0 || k > from + 1)
        nearest = next++ % KEPT;
    kept[nearest].index = index;
    kept[nearest].seed = seed;
    kept[nearest].k = k;
    return seed;
}

/* Turns sixteen uniform numbers into sixteen normal ones: the first eight give radii, the
 * others angles. */
static void normals_16(const double u[16], float out[16])
{
    for (int j = 0; j < 8; j++) {
        double radius = sqrt(-2.0 * log(1.0 - u[j])), angle = 2.0 * PI * u[j + 8];
        out[j] = (float)(radius * cos(angle));
        out[j + 8] = (float)(radius * sin(angle));
    }
}

/* n >= 16: all n uniform numbers are drawn first, of 24 bits each; the last 16 normal numbers,
 * where n is no multiple of 16, are made from 16 more. */
static void normals_many(struct qm_mt19937 *r, int64_t n, float *out)
{
    double u[16];
    for (int64_t i = 0; i < n; i++)
        out[i] = (float)(qm_mt_next(r) & 0xffffffu) * 0x1p-24f;
    for (int64_t from = 0; from + 16 <= n; from += 16) {
        for (int k = 0; k < 16; k++)
            u[k] = (double)out[from + k];
        normals_16(u, out + from);
    }
    if (n % 16 == 0)
        return;
    for (int k = 0; k < 16; k++)
        u[k] = (double)(qm_mt_next(r) & 0xffffffu) * 0x1p-24;
    normals_16(u, out + n - 16);
}

/* n < 16: pairs from two uniform numbers of 53 bits; the second gives the radius. */
static void normals_few(struct qm_mt19937 *r, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i += 2) {
        double u1 = (double)(next64(r) & 0x1fffffffffffffu) * 0x1p-53;
        double u2 = (double)(next64(r) & 0x1fffffffffffffu) * 0x1p-53;
        double radius = sqrt(-2.0 * log1p(-u2));
        out[i] = (float)(radius * cos(2.0 * PI * u1));
        if (i + 1 < n)
            out[i + 1] = (float)(radius * sin(2.0 * PI * u1));
    }
}

void qm_lowrank_random(uint64_t seed, int64_t n, int64_t r, float *out)
{
    struct qm_mt19937 mt;
    qm_mt_seed(&mt, (uint32_t)seed);
    if (n >= 16)
        normals_many(&mt, n, out);
    else
        normals_few(&mt, n, out);
    float root = (float)sqrt((double)r);
    for (int64_t i = 0; i < n; i++)
        out[i] = out[i] / root;
}

/* ---- singular vectors ------------------------------------------------------------------------ */

enum { SWEEPS = 60 };

/* G^T G (n x n) for right vectors, G G^T (m x m) for left ones. */
static void gram(const struct qm_lowrank *l, const float *g, int64_t k, double *a)
{
    int64_t inner = l->right ? l->m : l->n, along = l->right ? l->n : 1,
            across = l->right ? 1 : l->n;
    for (int64_t i = 0; i < k; i++)
        for (int64_t j = i; j < k; j++) {
            double sum = 0.0;
            for (int64_t x = 0; x < inner; x++)
                sum += (double)g[i * across + x * along] * (double)g[j * across + x * along];
            a[i * k + j] = a[j * k + i] = sum;
        }
}

/* One rotation of rows and columns p and q of the symmetric a, which makes a[p][q] zero; the rows
 * of v collect the rotations. */
static void rotate(double *a, double *v, int64_t k, int64_t p, int64_t q)
{
    double theta = (a[q * k + q] - a[p * k + p]) / (2.0 * a[p * k + q]);
    double t = (theta < 0.0 ? -1.0 : 1.0) / (fabs(theta) + sqrt(theta * theta + 1.0));
    double c = 1.0 / sqrt(t * t + 1.0), s = t * c;
    for (int64_t i = 0; i < k; i++) {
        double x = a[p * k + i], y = a[q * k + i];
        a[p * k + i] = c * x - s * y;
        a[q * k + i] = s * x + c * y;
        x = v[p * k + i], y = v[q * k + i];
        v[p * k + i] = c * x - s * y;
        v[q * k + i] = s * x + c * y;
    }
    for (int64_t i = 0; i < k; i++) {
        double x = a[i * k + p], y = a[i * k + q];
        a[i * k + p] = c * x - s * y;
        a[i * k + q] = s * x + c * y;
    }
    a[p * k + q] = a[q * k + p] = 0.0;
}

/* Cyclic Jacobi: eigenvectors of a as rows of v, eigenvalues on a's diagonal.  What is below 1e-17
 * of the trace is below the rounding of a itself. */
static void jacobi(double *a, double *v, int64_t k)
{
    int moved = 1;
    double trace = 0.0;
    for (int64_t i = 0; i < k; i++)
        trace += a[i * k + i];
    for (int sweep = 0; sweep < SWEEPS && moved; sweep++) {
        moved = 0;
        for (int64_t p = 0; p < k; p++)
            for (int64_t q = p + 1; q < k; q++)
                if (fabs(a[p * k + q]) > 1e-17 * trace) {
                    rotate(a, v, k, p, q);
                    moved = 1;
                }
    }
}

/* Writes vector x to every step-th number of out, with the sign that makes its first entry of
 * largest magnitude positive. */
static void put_vector(const double *x, int64_t k, float *out, int64_t step)
{
    int64_t at = 0;
    for (int64_t i = 1; i < k; i++)
        at = fabs(x[i]) > fabs(x[at]) ? i : at;
    for (int64_t i = 0; i < k; i++)
        out[i * step] = (float)(x[at] < 0.0 ? -x[i] : x[i]);
}

qm_status qm_lowrank_svd(const struct qm_lowrank *l, const float *g, float *out)
{
    int64_t k = l->right ? l->n : l->m;
    double *a = calloc(2 * (size_t)k * (size_t)k, sizeof *a), *v = a + k * k;
    if (!a)
        return qm_fail(QM_NO_MEMORY, "singular vectors of %lld x %lld", (long long)l->m,
                       (long long)l->n);
    gram(l, g, k, a);
    for (int64_t i = 0; i < k; i++)
        v[i * k + i] = 1.0;
    jacobi(a, v, k);
    for (int64_t i = 0; i < l->r; i++) { /* the next largest; the first of equal ones */
        int64_t best = -1;
        for (int64_t j = 0; j < k; j++)
            if (!isnan(a[j * k + j]) && (best < 0 || a[j * k + j] > a[best * k + best]))
                best = j;
        if (best < 0)
            best = i;
        put_vector(v + best * k, k, l->right ? out + i * l->n : out + i, l->right ? 1 : l->r);
        a[best * k + best] = nan("");
    }
    free(a);
    return QM_OK;
}

/* Looks from the front, where a projection that was ever made differs from 0 at once. */
static int is_all_zero(const float *p, int64_t n)
{
    enum { AT_ONCE = 256 };
    float here[AT_ONCE];
    for (int64_t i = 0; i < n; i += AT_ONCE) {
        int64_t count = n - i < AT_ONCE ? n - i : AT_ONCE;
        qm_tensor_rule_read(here, p + i, sizeof *p * (size_t)count);
        for (int64_t k = 0; k < count; k++)
            if (here[k] != 0.0f)
                return 0;
    }
    return 1;
}

qm_status qm_lowrank_renew(const struct qm_hyper *h, int svd, const struct qm_lowrank *l,
                           const float *g, uint32_t tensor, int64_t t, float *p)
{
    int64_t n = l->r * (l->right ? l->n : l->m), n_g = l->m * l->n, gap = (int64_t)h->gap;
    if (gap < 1 || ((t - 1) % gap != 0 && !is_all_zero(p, n)))
        return QM_OK;
    float *here = malloc(sizeof *here * (size_t)(svd ? n + n_g : n));
    if (!here)
        return qm_fail(QM_NO_MEMORY, "a projection of rank %lld", (long long)l->r);
    qm_status st = QM_OK;
    if (svd) {
        qm_tensor_rule_read(here + n, g, sizeof *g * (size_t)n_g);
        st = qm_lowrank_svd(l, here + n, here);
    } else {
        qm_lowrank_random(qm_lowrank_seed((uint64_t)tensor + 1, (t - 1) / gap), n, l->r, here);
    }
    if (st == QM_OK)
        qm_tensor_rule_write(p, here, sizeof *here * (size_t)n);
    free(here);
    return st;
}
