/* quad.c - Problem `quad`: an ill-conditioned quadratic in three layouts.
 *
 * f = 1/2 sum_i lambda_i z_i^2, lambda_i = lambda_max cond^(-i / (n - 1)), x = Q z.
 *
 *   layout=sorted    Q = I: neighbours have similar scales, easy for block-wise quantization
 *   layout=shuffled  Q is a permutation, a function of n alone: every block spans all scales
 *   layout=dct       Q is the orthonormal inverse DCT-II: all coordinates have similar scales
 *
 *   start=one     z = 1; nothing is random, and the seed is not read
 *   start=normal  z_i ~ N(0, 1), a function of (seed, i): one instance per seed.  E z_i^2 = 1 as
 *                 for start=one, so that `expected` is the mean over seeds */
#include "experiments/cli/key_value_args.h"
#include "experiments/problems/problem.h"
#include "experiments/source/distribution.h"

#include <gsl/gsl_errno.h>
#include <gsl/gsl_fft_halfcomplex.h>
#include <gsl/gsl_fft_real.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char defaults[] = "n=1024,cond=1e4,lambda_max=1,layout=sorted,rows=0,start=one";

static const struct qm_arg known[] = {
    {.key = "n", .lo = 1, .hi = 0x1p26, .whole = 1, .text = "elements"},
    {.key = "cond", .lo = 1, .hi = 1e30, .text = "the largest eigenvalue over the smallest"},
    {.key = "lambda_max", .lo = 1e-30, .hi = 1e30, .text = "the largest eigenvalue"},
    {.key = "layout",
     .words = "sorted|shuffled|dct",
     .text = "eigenvectors: the axes in order, shuffled, or rotated by a DCT"},
    {.key = "rows", .lo = 0, .hi = 0x1p26, .whole = 1, .text = QM_ROWS_TEXT},
    {.key = "start", .words = "one|normal", .text = "eigencoordinates: 1, or normals by the seed"},
};
enum { ARGS = sizeof known / sizeof *known };

enum layout { SORTED, SHUFFLED, DCT };

struct quad {
    int64_t n;
    enum layout layout;
    int start_at_one;
    uint64_t seed;
    double *lambda, *z, *scratch; /* n each; scratch for the transform */
    double *cosine, *sine;        /* of pi k / 2n, for k <= n / 2; dct only */
    int64_t *place;               /* z[i] is x[place[i]]; shuffled only */
    gsl_fft_real_wavetable *forward;
    gsl_fft_halfcomplex_wavetable *backward;
    gsl_fft_real_workspace *work;
};

/* ---- the rotation ----------------------------------------------------------------------------
 * DCT-II by one real FFT of length n: J. Makhoul, IEEE Trans. ASSP 28 (1980) 27.  GSL packs the
 * spectrum as Re V0, Re V1, Im V1, ..., with Re V(n/2) last for even n. */

static double weight(int64_t n, int64_t k) { return sqrt((k ? 2.0 : 1.0) / (double)n); }

/* z = Q' x */
static void dct(struct quad *q, const double *x, double *z)
{
    int64_t n = q->n;
    double *v = q->scratch;
    for (int64_t j = 0; 2 * j < n; j++)
        v[j] = x[2 * j];
    for (int64_t j = 0; 2 * j + 1 < n; j++)
        v[n - 1 - j] = x[2 * j + 1];
    gsl_fft_real_transform(v, 1, (size_t)n, q->forward, q->work);
    z[0] = weight(n, 0) * v[0];
    for (int64_t k = 1; 2 * k <= n; k++) {
        double re = v[2 * k - 1], im = 2 * k < n ? v[2 * k] : 0;
        double w = weight(n, k);
        z[n - k] = w * (re * q->sine[k] - im * q->cosine[k]);
        z[k] = w * (re * q->cosine[k] + im * q->sine[k]);
    }
}

/* x = Q z */
static void inverse_dct(struct quad *q, const double *z, double *x)
{
    int64_t n = q->n;
    double *v = q->scratch;
    v[0] = z[0] / weight(n, 0);
    for (int64_t k = 1; 2 * k <= n; k++) {
        double a = z[k] / weight(n, k), b = z[n - k] / weight(n, k);
        v[2 * k - 1] = a * q->cosine[k] + b * q->sine[k];
        if (2 * k < n)
            v[2 * k] = a * q->sine[k] - b * q->cosine[k];
    }
    gsl_fft_halfcomplex_inverse(v, 1, (size_t)n, q->backward, q->work);
    for (int64_t j = 0; 2 * j < n; j++)
        x[2 * j] = v[j];
    for (int64_t j = 0; 2 * j + 1 < n; j++)
        x[2 * j + 1] = v[n - 1 - j];
}

static void to_eigen(struct quad *q, const double *x, double *z)
{
    if (q->layout == DCT)
        dct(q, x, z);
    else
        for (int64_t i = 0; i < q->n; i++)
            z[i] = x[q->place ? q->place[i] : i];
}

static void from_eigen(struct quad *q, const double *z, double *x)
{
    if (q->layout == DCT)
        inverse_dct(q, z, x);
    else
        for (int64_t i = 0; i < q->n; i++)
            x[q->place ? q->place[i] : i] = z[i];
}

/* ---- the problem ----------------------------------------------------------------------------- */

static void quad_close(void *self)
{
    struct quad *q = self;
    if (!q)
        return;
    free(q->lambda);
    free(q->place);
    free(q->cosine);
    if (q->forward)
        gsl_fft_real_wavetable_free(q->forward);
    if (q->backward)
        gsl_fft_halfcomplex_wavetable_free(q->backward);
    if (q->work)
        gsl_fft_real_workspace_free(q->work);
    free(q);
}

static qm_status open_dct(struct quad *q)
{
    size_t n = (size_t)q->n, half = n / 2 + 1;
    gsl_set_error_handler_off(); /* by default it aborts */
    q->forward = gsl_fft_real_wavetable_alloc(n);
    q->backward = gsl_fft_halfcomplex_wavetable_alloc(n);
    q->work = gsl_fft_real_workspace_alloc(n);
    q->cosine = malloc(2 * half * sizeof *q->cosine);
    if (!q->forward || !q->backward || !q->work || !q->cosine)
        return qm_fail(QM_NO_MEMORY, "quad: transform of length %zu", n);
    q->sine = q->cosine + half;
    for (size_t k = 0; k < half; k++) {
        q->cosine[k] = cos(M_PI * (double)k / (2 * (double)n));
        q->sine[k] = sin(M_PI * (double)k / (2 * (double)n));
    }
    return QM_OK;
}

static qm_status quad_open(const char *args, uint64_t seed, void **self, int *n_tensors,
                           struct qm_shape *shapes)
{
    double value[ARGS];
    QM_TRY(qm_args_read("quad", defaults, args, known, ARGS, value));
    int64_t n = (int64_t)value[0];
    struct qm_shape shape;
    QM_TRY(qm_problem_shape("quad", n, (int64_t)value[4], &shape));

    struct quad *q = calloc(1, sizeof *q);
    if (!q)
        return qm_fail(QM_NO_MEMORY, "quad");
    q->n = n;
    q->layout = (enum layout)value[3];
    q->start_at_one = value[5] == 0;
    q->seed = seed;
    q->lambda = malloc(3 * (size_t)n * sizeof *q->lambda);
    qm_status st = q->lambda ? QM_OK : qm_fail(QM_NO_MEMORY, "quad: n = %lld", (long long)n);
    if (st == QM_OK && q->layout == SHUFFLED)
        st = qm_problem_shuffle("quad", n, &q->place);
    if (st == QM_OK && q->layout == DCT)
        st = open_dct(q);
    if (st != QM_OK) {
        quad_close(q);
        return st;
    }
    q->z = q->lambda + n;
    q->scratch = q->z + n;
    for (int64_t i = 0; i < n; i++)
        q->lambda[i] = value[2] * pow(value[1], n > 1 ? -(double)i / (double)(n - 1) : 0);
    *self = q;
    *n_tensors = 1;
    shapes[0] = shape;
    return QM_OK;
}

static void quad_start(void *self, double *x)
{
    struct quad *q = self;
    if (!q->start_at_one)
        qm_normals(q->seed, QM_STREAM_start, 0, 0, q->n, q->z);
    for (int64_t i = 0; q->start_at_one && i < q->n; i++)
        q->z[i] = 1;
    from_eigen(q, q->z, x);
}

static double quad_eval(void *self, const double *x, int64_t t, double *grad)
{
    struct quad *q = self;
    double sum = 0;
    (void)t;
    to_eigen(q, x, q->z);
    for (int64_t i = 0; i < q->n; i++) {
        double slope = q->lambda[i] * q->z[i];
        sum += slope * q->z[i];
        q->z[i] = slope;
    }
    if (grad)
        from_eigen(q, q->z, grad);
    return 0.5 * sum;
}

static double quad_optimum(void *self)
{
    (void)self;
    return 0;
}

static void quad_argmin(void *self, double *x)
{
    memset(x, 0, (size_t)((struct quad *)self)->n * sizeof *x);
}

/* Gradient descent and heavy ball act on each z separately: v' = momentum v - lr lambda z and
 * z' = z + v' move (z, v) by a 2 x 2 matrix, from z = 1, v = 0. */
static double quad_expected(void *self, const char *family, double lr, double momentum, int64_t t)
{
    struct quad *q = self;
    double sum = 0;
    if (strcmp(family, "sgdm") != 0)
        return (double)NAN;
    for (int64_t i = 0; i < q->n; i++) {
        double x = lr * q->lambda[i];
        double step[9] = {1 - x, momentum, 0, -x, momentum, 0, 0, 0, 1};
        qm_problem_power(step, t);
        sum += q->lambda[i] * step[0] * step[0];
    }
    return 0.5 * sum;
}

const struct qm_problem qm_problem_quad = {
    .name = "quad",
    .summary = "ill-conditioned quadratic, sorted, shuffled or rotated; deterministic",
    .source = "closed form: one linear recurrence per eigenvalue",
    .args = defaults,
    .arg = known,
    .n_args = ARGS,
    .open = quad_open,
    .start = quad_start,
    .eval = quad_eval,
    .gives_loss = qm_problem_gives_loss,
    .optimum = quad_optimum,
    .argmin = quad_argmin,
    .expected = quad_expected,
    .close = quad_close,
    .steps = 2000,
    .lr_adamw = 0.00316227766,
    .lr_sgdm = 1,
    .lr_lion = 0.01,
};
