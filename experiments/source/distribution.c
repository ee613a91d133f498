/* distribution.c - Counter-based random draws, and the list of distributions. */
#include "experiments/source/distribution.h"

#include "core/base/name.h"
#include "core/base/philox.h"
#include "experiments/cli/key_value_args.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define CHUNK 256 /* elements drawn in double at a time */

/* ---- draws --------------------------------------------------------------------------------- */

/* A stream of draws: Philox key and upper half of the counter. */
struct source {
    uint64_t seed;
    uint32_t step, stream;
};

static struct source source_of(uint64_t seed, enum qm_stream stream, int64_t step)
{
    struct qm_draws d = qm_draws_for(seed, step, (uint32_t)stream, QM_ROLE_param);
    struct source s = {seed, d.step, d.stream};
    return s;
}

static struct qm_philox_block block(const struct source *s, int64_t k)
{
    return qm_philox((uint32_t)k, (uint32_t)((uint64_t)k >> 32), s->step, s->stream,
                     (uint32_t)s->seed, (uint32_t)(s->seed >> 32));
}

/* Uniform in (0, 1): (k + 1/2) 2^-53 for 53-bit k; the low 11 bits of `low` are unused. */
static double open01(uint32_t high, uint32_t low)
{
    return ((double)(((uint64_t)high << 32 | low) >> 11) + 0.5) * 0x1p-53;
}

/* The uniform of element i from a block of two elements; *spare_bits: the 11 bits it does
 * not use. */
static double half_block(const struct qm_philox_block *b, int64_t i, uint32_t *spare_bits)
{
    int half = (int)(i & 1) * 2;
    *spare_bits = b->word[half + 1] & 0x7FFu;
    return open01(b->word[half], b->word[half + 1]);
}

static void normal_pair(const struct source *s, int64_t k, double z[2])
{
    struct qm_philox_block b = block(s, k);
    double r = sqrt(-2 * log(open01(b.word[0], b.word[1])));
    double angle = 2 * M_PI * open01(b.word[2], b.word[3]), sine, cosine;
    sincos(angle, &sine, &cosine);
    z[0] = r * cosine;
    z[1] = r * sine;
}

void qm_normals(uint64_t seed, enum qm_stream stream, int64_t step, int64_t from, int64_t n,
                double *out)
{
    struct source s = source_of(seed, stream, step);
    int64_t i = 0;
    double z[2];
    assert(from >= 0);
    if (n > 0 && (from & 1)) {
        normal_pair(&s, from >> 1, z);
        out[i++] = z[1];
    }
    for (; i + 1 < n; i += 2)
        normal_pair(&s, (from + i) >> 1, out + i);
    if (i < n) {
        normal_pair(&s, (from + i) >> 1, z);
        out[i] = z[0];
    }
}

void qm_students(uint64_t seed, enum qm_stream stream, int64_t step, double nu, int64_t from,
                 int64_t n, double *out)
{
    struct source s = source_of(seed, stream, step);
    for (int64_t i = 0; i < n; i++) {
        struct qm_philox_block b = block(&s, from + i);
        double log_u = log(open01(b.word[0], b.word[1]));
        double r = sqrt(nu * expm1(-2 / nu * log_u));
        out[i] = r * cos(2 * M_PI * open01(b.word[2], b.word[3]));
    }
}

int64_t qm_pick(uint64_t seed, enum qm_stream stream, int64_t step, int64_t i, int64_t below)
{
    struct source s = source_of(seed, stream, step);
    struct qm_philox_block b = block(&s, i >> 2);
    return (int64_t)((uint64_t)b.word[i & 3] * (uint64_t)below >> 32);
}

/* ---- distributions --------------------------------------------------------------------------
 * A fill function writes n <= CHUNK elements in double. */

/* Parts of a distribution's construction; they are the `step` of stream QM_STREAM_dist. */
enum part { VALUES, PLACES, ROWS, COLUMNS, ATTEMPTS };

static void fill_gauss(const double *arg, uint64_t seed, int64_t from, int64_t n, double *out)
{
    (void)arg;
    qm_normals(seed, QM_STREAM_dist, VALUES, from, n, out);
}

static void fill_laplace(const double *arg, uint64_t seed, int64_t from, int64_t n, double *out)
{
    (void)arg;
    struct source s = source_of(seed, QM_STREAM_dist, VALUES);
    for (int64_t i = 0; i < n; i++) {
        struct qm_philox_block b = block(&s, (from + i) >> 1);
        uint32_t bits;
        double size = -log(half_block(&b, from + i, &bits));
        out[i] = bits & 1u ? -size : size;
    }
}

static void fill_student(const double *arg, uint64_t seed, int64_t from, int64_t n, double *out)
{
    qm_students(seed, QM_STREAM_dist, VALUES, arg[0], from, n, out);
}

/* Draws 24 bits, so that elements are exact floats in the open interval (-1, 1). */
static void fill_uniform(const double *arg, uint64_t seed, int64_t from, int64_t n, double *out)
{
    (void)arg;
    struct source s = source_of(seed, QM_STREAM_dist, VALUES);
    for (int64_t i = 0; i < n; i++) {
        struct qm_philox_block b = block(&s, (from + i) >> 2);
        out[i] = (2.0 * (b.word[(from + i) & 3] >> 8) + 1) * 0x1p-24 - 1;
    }
}

static void fill_lognormal(const double *arg, uint64_t seed, int64_t from, int64_t n, double *out)
{
    fill_gauss(arg, seed, from, n, out);
    for (int64_t i = 0; i < n; i++)
        out[i] = exp(arg[0] * out[i]);
}

static void fill_loguniform(const double *arg, uint64_t seed, int64_t from, int64_t n, double *out)
{
    struct source s = source_of(seed, QM_STREAM_dist, VALUES);
    for (int64_t i = 0; i < n; i++) {
        struct qm_philox_block b = block(&s, (from + i) >> 1);
        uint32_t bits;
        double u = half_block(&b, from + i, &bits);
        double size = exp(M_LN10 * (arg[0] + (arg[1] - arg[0]) * u));
        out[i] = bits & 1u ? -size : size;
    }
}

static void fill_outlier(const double *arg, uint64_t seed, int64_t from, int64_t n, double *out)
{
    int64_t length = (int64_t)arg[0];
    fill_gauss(arg, seed, from, n, out);
    for (int64_t run = from / length; run * length < from + n; run++) {
        int64_t at = run * length + qm_pick(seed, QM_STREAM_dist, PLACES, run, length) - from;
        if (at >= 0 && at < n)
            out[at] *= arg[1];
    }
}

static void fill_sparse(const double *arg, uint64_t seed, int64_t from, int64_t n, double *out)
{
    struct source s = source_of(seed, QM_STREAM_dist, PLACES);
    fill_gauss(arg, seed, from, n, out);
    for (int64_t i = 0; i < n; i++) {
        struct qm_philox_block b = block(&s, (from + i) >> 2);
        if (b.word[(from + i) & 3] < arg[0] * 0x1p32)
            out[i] = 0;
    }
}

static void fill_rowcol(const double *arg, uint64_t seed, int64_t from, int64_t n, double *out)
{
    int64_t width = (int64_t)arg[1], row_now = -1;
    double row = 0, column[CHUNK];
    fill_gauss(arg, seed, from, n, out);
    for (int64_t i = 0; i < n;) {
        int64_t r = (from + i) / width, c = (from + i) % width;
        int64_t m = width - c < n - i ? width - c : n - i;
        if (r != row_now)
            qm_normals(seed, QM_STREAM_dist, ROWS, r, 1, &row);
        row_now = r;
        qm_normals(seed, QM_STREAM_dist, COLUMNS, c, m, column);
        for (int64_t j = 0; j < m; j++)
            out[i + j] *= exp(arg[0] * (row + column[j]));
        i += m;
    }
}

/* A gamma variate of mean 1 and this shape: chi-squared with k = 2 shape >= 2 degrees of freedom,
 * over k. For k = (1 + beta) / (1 - beta) an exponential average of squared normals has the same
 * mean, 1, and variance, 2 / k.  Rejection of G. Marsaglia and W. W. Tsang, ACM TOMS 26 (2000) 363;
 * attempt a of element i uses block i of part ATTEMPTS + a. */
static double gamma_mean_one(uint64_t seed, double shape, int64_t i)
{
    double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (int64_t attempt = 0;; attempt++) {
        struct source s = source_of(seed, QM_STREAM_dist, ATTEMPTS + attempt);
        struct qm_philox_block b = block(&s, i);
        double r = sqrt(-2 * log(open01(b.word[0], b.word[1])));
        double z = r * cos(2 * M_PI * (b.word[2] + 0.5) * 0x1p-32);
        double v = (1 + c * z) * (1 + c * z) * (1 + c * z);
        if (v > 0 && log((b.word[3] + 0.5) * 0x1p-32) < 0.5 * z * z + d - d * v + d * log(v))
            return d * v / shape;
    }
}

static void fill_chi2(const double *arg, uint64_t seed, int64_t from, int64_t n, double *out)
{
    if (arg[0] == 1.0)
        fill_gauss(arg, seed, from, n, out);
    for (int64_t i = 0; i < n; i++)
        out[i] =
            arg[0] == 1.0 ? out[i] * out[i] : arg[0] * gamma_mean_one(seed, 0.5 * arg[0], from + i);
}

static void fill_ema2(const double *arg, uint64_t seed, int64_t from, int64_t n, double *out)
{
    double shape = 0.5 * (1 + arg[0]) / (1 - arg[0]);
    for (int64_t i = 0; i < n; i++)
        out[i] = gamma_mean_one(seed, shape, from + i);
}

static void fill_studentsq(const double *arg, uint64_t seed, int64_t from, int64_t n, double *out)
{
    fill_student(arg, seed, from, n, out);
    for (int64_t i = 0; i < n; i++)
        out[i] *= out[i];
}

/* The ranges of arguments keep every element finite in float: |z| <= 8.66, uniforms are
 * >= 2^-54. */
/* clang-format off */
static const struct {
    struct qm_dist dist;
    void (*fill)(const double *arg, uint64_t seed, int64_t from, int64_t n, double *out);
    struct qm_arg arg[3];
} list[] = {
    {{"gauss", "", "standard normal, exp(-x^2/2) / sqrt(2 pi)", 1}, fill_gauss, {{0}}},
    {{"laplace", "", "exp(-|x|) / 2", 1}, fill_laplace, {{0}}},
    {{"student", "nu=3", "Student's t, proportional to (1 + x^2/nu)^(-(nu+1)/2)", 1},
     fill_student, {{.key = "nu", .lo = 0.5, .hi = 1e6}}},
    {{"uniform", "", "the 2^24 odd multiples of 2^-24 in (-1, 1)", 1}, fill_uniform, {{0}}},
    {{"lognormal", "sigma=1", "exp(sigma z), z standard normal", 0},
     fill_lognormal, {{.key = "sigma", .lo = 0, .hi = 10}}},
    {{"chi2", "k=1", "chi-squared with k degrees of freedom; k = 1 is the square of gauss", 0},
     fill_chi2, {{.key = "k", .lo = 1, .hi = 1e4, .whole = 1}}},
    {{"loguniform", "lo=-8,hi=0", "|x| log-uniform in [10^lo, 10^hi], either sign", 1},
     fill_loguniform, {{.key = "lo", .lo = -45, .hi = 38}, {.key = "hi", .lo = -45, .hi = 38}}},
    {{"outlier", "run=128,factor=1e4", "gauss, one element of each run times factor", 1},
     fill_outlier,
     {{.key = "run", .lo = 1, .hi = 0x1p32, .whole = 1}, {.key = "factor", .lo = 0, .hi = 1e30}}},
    {{"sparse", "zeros=0.9", "gauss, each element exactly zero with probability zeros", 1},
     fill_sparse, {{.key = "zeros", .lo = 0, .hi = 1}}},
    {{"rowcol", "sigma=2,width=256", "gauss times exp(sigma a[row]) exp(sigma b[column])", 1},
     fill_rowcol,
     {{.key = "sigma", .lo = 0, .hi = 4}, {.key = "width", .lo = 1, .hi = 0x1p31, .whole = 1}}},
    {{"ema2", "beta=0.95", "chi-squared over its k = (1+beta)/(1-beta): an average of squares", 0},
     fill_ema2, {{.key = "beta", .lo = 1.0 / 3, .hi = 0.9999999}}},
    {{"studentsq", "nu=3", "the square of student", 0},
     fill_studentsq, {{.key = "nu", .lo = 1, .hi = 1e6}}},
};
/* clang-format on */
#define COUNT ((int)(sizeof list / sizeof list[0]))

int qm_dist_count(void) { return COUNT; }

const struct qm_dist *qm_dist_at(int i) { return i >= 0 && i < COUNT ? &list[i].dist : NULL; }

qm_status qm_dist_parse(const char *text, struct qm_dist_bound *out)
{
    const char *names[COUNT];
    for (int i = 0; i < COUNT; i++)
        names[i] = list[i].dist.name;
    char name[64];
    size_t length = strcspn(text, ":");
    snprintf(name, sizeof name, "%.*s", (int)(length < 63 ? length : 63), text);
    int id = qm_name_find(name, names, COUNT);
    if (strcmp(name, "normal") == 0 || strcmp(name, "gaussian") == 0)
        return qm_fail(QM_NO_MATCH, "no distribution '%s'; did you mean 'gauss'?", name);
    if (id < 0)
        return qm_name_unknown("distribution", name, names, COUNT);

    struct qm_dist_bound bound = {.id = id};
    const struct qm_arg *arg = list[id].arg;
    int n = 0;
    while (n < 3 && arg[n].key)
        n++;
    QM_TRY(qm_args_read(name, list[id].dist.args, text[length] ? text + length + 1 : "", arg, n,
                        bound.arg));
    if (list[id].fill == fill_loguniform && bound.arg[0] > bound.arg[1])
        return qm_fail(QM_BAD_ARG, "%s: lo %g is above hi %g", name, bound.arg[0], bound.arg[1]);
    *out = bound;
    return QM_OK;
}

int qm_dist_law(const struct qm_dist_bound *d, struct qm_law *out)
{
    static const struct {
        const char *dist;
        enum qm_law_kind law;
    } laws[] = {{"gauss", QM_LAW_normal},    {"laplace", QM_LAW_laplace},
                {"uniform", QM_LAW_uniform}, {"student", QM_LAW_student},
                {"chi2", QM_LAW_chisq},      {"lognormal", QM_LAW_lognormal},
                {"ema2", QM_LAW_chisq}};
    const char *name = qm_dist_at(d->id)->name;
    for (size_t i = 0; i < sizeof laws / sizeof *laws; i++)
        if (strcmp(laws[i].dist, name) == 0) {
            int is_average = strcmp(name, "ema2") == 0;
            out->kind = laws[i].law;
            out->shape = is_average ? (1 + d->arg[0]) / (1 - d->arg[0]) : d->arg[0];
            return 1;
        }
    return 0;
}

void qm_dist_fill(const struct qm_dist_bound *d, uint64_t seed, int64_t from, int64_t n, float *out)
{
    double buffer[CHUNK];
    assert(d->id >= 0 && d->id < COUNT && from >= 0);
    for (int64_t i = 0; i < n; i += CHUNK) {
        int64_t m = n - i < CHUNK ? n - i : CHUNK;
        list[d->id].fill(d->arg, seed, from + i, m, buffer);
        for (int64_t j = 0; j < m; j++)
            out[i + j] = (float)buffer[j];
    }
}
