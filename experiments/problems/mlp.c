/* mlp.c - Problem `mlp`: a two-layer network learns another one from fresh samples.
 *
 * x ~ N(0, I_d), y = sum_m v*_m phi(w*_m x) + sigma eps, student sum_k v_k phi(w_k x), loss half
 * the square of the difference.  With c = (v, -v*), the stacked weights A and C = A A' the
 * population loss has the closed form 1/2 c' I(C) c + sigma^2 / 2, where
 *   phi=erf   phi(z) = erf(z / sqrt 2): I_ij = (2 / pi) asin(C_ij / sqrt((1 + C_ii)(1 + C_jj)))
 *             D. Saad, S. A. Solla, Phys. Rev. E 52 (1995) 4225
 *   phi=relu  I_ij = sqrt(C_ii C_jj) / (2 pi) (sin a + (pi - a) cos a),
 *             cos a = C_ij / sqrt(C_ii C_jj): Y. Cho, L. K. Saul, NIPS 2009
 * Its floor is sigma^2 / 2: the student is at least as wide as the teacher.
 *
 * data_seed chooses the teacher (portable generator): w* = N(0, 1) / sqrt(d), then v* = N(0, 1).
 * The seed chooses the start, w = N(0, 1) / sqrt(d) and v = N(0, 1) / sqrt(student), and fresh
 * samples at each step: element (b, j) of the batch is normal b d + j of the noise stream, eps_b is
 * normal batch d + b.  Parameters: w student x d, then v. */
#include "experiments/cli/key_value_args.h"
#include "experiments/network/dense.h"
#include "experiments/network/layers.h"
#include "experiments/problems/problem.h"
#include "experiments/source/distribution.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char defaults[] =
    "d=64,teacher=8,student=16,batch=32,phi=erf,sigma=0.1,data_seed=12345";

static const struct qm_arg known[] = {
    {.key = "d", .lo = 1, .hi = 4096, .whole = 1, .text = "inputs"},
    {.key = "teacher", .lo = 1, .hi = 4096, .whole = 1, .text = "the teacher's units"},
    {.key = "student",
     .lo = 1,
     .hi = 4096,
     .whole = 1,
     .text = "the student's units, at least as many"},
    {.key = "batch", .lo = 1, .hi = 65536, .whole = 1, .text = "fresh samples a step"},
    {.key = "phi", .words = "erf|relu", .text = "activation"},
    {.key = "sigma", .lo = 0, .hi = 1e6, .text = "standard deviation of the noise on the labels"},
    {.key = "data_seed", .lo = 1, .hi = 4294967295.0, .whole = 1, .text = "seed of the teacher"},
};
enum { ARGS = sizeof known / sizeof *known };

struct mlp {
    int64_t d, teacher, student, batch;
    int relu;
    uint64_t seed;
    double sigma;
    double *stack; /* (student + teacher) x d: a copy of the student's weights, the teacher's */
    double *out;   /* [student + teacher]: v and -v* */
    double *gram;  /* (student + teacher)^2, scratch */
    double *transposed; /* d x (student + teacher): the transpose of stack */
    double *x, *eps;    /* batch x d, [batch] */
    double *hidden;     /* batch x (student + teacher), scratch */
};

static double phi(const struct mlp *s, double z)
{
    return s->relu ? (z > 0 ? z : 0) : erf(z * M_SQRT1_2);
}

static double phi_slope(const struct mlp *s, double z)
{
    return s->relu ? (double)(z > 0) : sqrt(2 / M_PI) * exp(-0.5 * z * z);
}

static void mlp_close(void *self)
{
    struct mlp *s = self;
    if (!s)
        return;
    free(s->stack);
    free(s);
}

static qm_status make_teacher(struct mlp *s, uint32_t data_seed)
{
    void *data;
    double *w = s->stack + s->student * s->d;
    QM_TRY(qm_data_open(data_seed, &data));
    qm_data_normals(data, s->teacher * s->d, w);
    qm_data_normals(data, s->teacher, s->out + s->student);
    qm_data_close(data);
    for (int64_t i = 0; i < s->teacher * s->d; i++)
        w[i] /= sqrt((double)s->d);
    for (int64_t m = 0; m < s->teacher; m++)
        s->out[s->student + m] *= -1;
    return QM_OK;
}

static qm_status mlp_open(const char *args, uint64_t seed, void **self, int *n_tensors,
                          struct qm_shape *shapes)
{
    double value[ARGS];
    QM_TRY(qm_args_read("mlp", defaults, args, known, ARGS, value));
    if (value[2] < value[1])
        return qm_fail(QM_BAD_ARG, "mlp: student is %g, expected at least teacher = %g", value[2],
                       value[1]);
    struct mlp *s = calloc(1, sizeof *s);
    if (!s)
        return qm_fail(QM_NO_MEMORY, "mlp");
    s->d = (int64_t)value[0];
    s->teacher = (int64_t)value[1];
    s->student = (int64_t)value[2];
    s->batch = (int64_t)value[3];
    s->relu = value[4] > 0;
    s->sigma = value[5];
    s->seed = seed;
    int64_t units = s->student + s->teacher;
    s->stack = malloc((size_t)(units * (2 * s->d + units + 1) + s->batch * (s->d + units + 1)) *
                      sizeof *s->stack);
    qm_status st = s->stack ? QM_OK : qm_fail(QM_NO_MEMORY, "mlp: %lld units", (long long)units);
    if (st == QM_OK) {
        s->transposed = s->stack + units * s->d;
        s->gram = s->transposed + units * s->d;
        s->out = s->gram + units * units;
        s->x = s->out + units;
        s->eps = s->x + s->batch * s->d; /* right behind x: one fill draws both */
        s->hidden = s->eps + s->batch;
        st = make_teacher(s, (uint32_t)value[6]);
    }
    if (st != QM_OK) {
        mlp_close(s);
        return st;
    }
    *self = s;
    *n_tensors = 2;
    shapes[0] = (struct qm_shape){.rank = 2, .dim = {s->student, s->d}};
    shapes[1] = (struct qm_shape){.rank = 1, .dim = {s->student}};
    return QM_OK;
}

static void mlp_start(void *self, double *p)
{
    struct mlp *s = self;
    int64_t weights = s->student * s->d;
    qm_normals(s->seed, QM_STREAM_start, 0, 0, weights + s->student, p);
    for (int64_t i = 0; i < weights + s->student; i++)
        p[i] /= sqrt((double)(i < weights ? s->d : s->student));
}

/* ---- the population loss --------------------------------------------------------------------- */

/* E phi(a x) phi(b x) from the inner products aa = |a|^2, bb = |b|^2 and ab = a b. */
static double correlation(const struct mlp *s, double aa, double bb, double ab)
{
    if (!s->relu)
        return 2 / M_PI * asin(ab / sqrt((1 + aa) * (1 + bb)));
    double size = sqrt(aa * bb);
    if (!(size > 0))
        return 0;
    double c = fmin(fmax(ab / size, -1), 1), angle = acos(c);
    return size / (2 * M_PI) * (sqrt(1 - c * c) + (M_PI - angle) * c);
}

/* Copies the student p into stack and out, which hold the teacher, and transposes stack. */
static void set_student(struct mlp *s, const double *p)
{
    memcpy(s->stack, p, (size_t)(s->student * s->d) * sizeof *p);
    memcpy(s->out, p + s->student * s->d, (size_t)s->student * sizeof *p);
    qm_dense_transpose(s->stack, s->d, s->student + s->teacher, s->d, s->transposed);
}

static double population(struct mlp *s)
{
    int64_t units = s->student + s->teacher;
    double sum = 0;
    memset(s->gram, 0, (size_t)(units * units) * sizeof *s->gram);
    qm_dense_add(s->stack, s->transposed, s->gram, units, s->d, units);
    for (int64_t i = 0; i < units; i++)
        for (int64_t j = 0; j <= i; j++)
            sum += (i == j ? 0.5 : 1) * s->out[i] * s->out[j] *
                   correlation(s, s->gram[i * units + i], s->gram[j * units + j],
                               s->gram[i * units + j]);
    return sum + 0.5 * s->sigma * s->sigma;
}

/* ---- the loss of a step ---------------------------------------------------------------------- */

static double mlp_eval(void *self, const double *p, int64_t t, double *grad)
{
    struct mlp *s = self;
    int64_t units = s->student + s->teacher, weights = s->student * s->d;
    double sum = 0, *value = s->gram;
    set_student(s, p);
    if (!grad)
        return population(s);
    qm_normals(s->seed, QM_STREAM_noise, t, 0, s->batch * (s->d + 1), s->x);
    memset(grad, 0, (size_t)(weights + s->student) * sizeof *grad);
    memset(s->hidden, 0, (size_t)(s->batch * units) * sizeof *s->hidden);
    qm_dense_add(s->x, s->transposed, s->hidden, s->batch, s->d, units);
    for (int64_t b = 0; b < s->batch; b++) {
        double *z = s->hidden + b * units, error = -s->sigma * s->eps[b];
        for (int64_t k = 0; k < units; k++) {
            value[k] = phi(s, z[k]);
            error += s->out[k] * value[k];
        }
        sum += error * error;
        error /= (double)s->batch;
        for (int64_t k = 0; k < s->student; k++) {
            grad[weights + k] += error * value[k];
            z[k] = error * s->out[k] * phi_slope(s, z[k]);
        }
    }
    qm_dense_of()(&(struct qm_dense_product){.m = s->student,
                                             .depth = s->batch,
                                             .n = s->d,
                                             .row = 1,
                                             .col = units,
                                             .ldb = s->d,
                                             .ldc = s->d},
                  s->hidden, s->x, grad);
    return 0.5 * sum / (double)s->batch;
}

static double mlp_optimum(void *self)
{
    double sigma = ((struct mlp *)self)->sigma;
    return 0.5 * sigma * sigma;
}

/* The teacher's units; further units of the student have weight 0. */
static void mlp_argmin(void *self, double *p)
{
    struct mlp *s = self;
    int64_t weights = s->student * s->d;
    memset(p, 0, (size_t)(weights + s->student) * sizeof *p);
    memcpy(p, s->stack + weights, (size_t)(s->teacher * s->d) * sizeof *p);
    for (int64_t m = 0; m < s->teacher; m++)
        p[weights + m] = -s->out[s->student + m];
}

const struct qm_problem qm_problem_mlp = {
    .name = "mlp",
    .summary = "two-layer network taught by another, fresh samples, population loss exact",
    .source = "Phys. Rev. E 52 (1995) 4225 (erf); Cho, Saul, NIPS 2009 (ReLU)",
    .args = defaults,
    .arg = known,
    .n_args = ARGS,
    .open = mlp_open,
    .start = mlp_start,
    .eval = mlp_eval,
    .optimum = mlp_optimum,
    .argmin = mlp_argmin,
    .expected = qm_problem_unexpected,
    .close = mlp_close,
    .steps = 10000,
    .lr_adamw = 0.001,
    .lr_sgdm = 0.01,
    .lr_lion = 0.000316227766,
};
