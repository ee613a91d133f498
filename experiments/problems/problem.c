/* problem.c - The list of problems, and helper functions that several problems share. */
#include "experiments/problems/problem.h"

#include "core/base/name.h"
#include "experiments/source/distribution.h"

#include <gsl/gsl_rng.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define QM_ENTRY(stem, file) extern const struct qm_problem qm_problem_##stem;
#include "problems.inc"
#undef QM_ENTRY

static const struct qm_problem *const list[] = {
#define QM_ENTRY(stem, file) &qm_problem_##stem,
#include "problems.inc"
#undef QM_ENTRY
};
#define COUNT ((int)(sizeof list / sizeof list[0]))

int qm_problem_count(void) { return COUNT; }

const struct qm_problem *qm_problem_at(int i) { return i >= 0 && i < COUNT ? list[i] : NULL; }

qm_status qm_problem_find(const char *name, const struct qm_problem **out)
{
    const char *names[COUNT];
    for (int i = 0; i < COUNT; i++)
        names[i] = list[i]->name;
    int i = qm_name_find(name, names, COUNT);
    if (i < 0)
        return qm_name_unknown("problem", name, names, COUNT);
    *out = list[i];
    return QM_OK;
}

qm_status qm_problem_shape(const char *name, int64_t n, int64_t rows, struct qm_shape *out)
{
    if (rows > 0 && n % rows != 0)
        return qm_fail(QM_BAD_ARG, "%s: rows is %lld, expected a divisor of n = %lld", name,
                       (long long)rows, (long long)n);
    if (rows == 0)
        for (int64_t d = 1; d * d <= n; d++)
            rows = n % d == 0 ? d : rows;
    struct qm_shape shape = {.rank = 2, .dim = {rows, n / rows}};
    if (rows == 1) {
        shape.rank = 1;
        shape.dim[0] = n;
        shape.dim[1] = 0;
    }
    *out = shape;
    return QM_OK;
}

int qm_problem_gives_loss(void *self)
{
    (void)self;
    return 1;
}

double qm_problem_unexpected(void *self, const char *family, double lr, double momentum, int64_t t)
{
    (void)self, (void)family, (void)lr, (void)momentum, (void)t;
    return (double)NAN;
}

static void multiply(double out[9], const double a[9], const double b[9])
{
    double c[9];
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++)
            c[3 * i + j] = a[3 * i] * b[j] + a[3 * i + 1] * b[3 + j] + a[3 * i + 2] * b[6 + j];
    memcpy(out, c, sizeof c);
}

void qm_problem_power(double s[9], int64_t t)
{
    double result[9] = {1, 0, 0, 0, 1, 0, 0, 0, 1};
    for (; t > 0; t >>= 1) {
        if (t & 1)
            multiply(result, result, s);
        multiply(s, s, s);
    }
    memcpy(s, result, sizeof result);
}

qm_status qm_data_open(uint32_t seed, void **data)
{
    gsl_rng *rng = gsl_rng_alloc(gsl_rng_mt19937);
    if (!rng)
        return qm_fail(QM_NO_MEMORY, "data generator");
    gsl_rng_set(rng, seed);
    *data = rng;
    return QM_OK;
}

void qm_data_normals(void *data, int64_t n, double *out)
{
    for (int64_t i = 0; i < n; i += 2) {
        double u1 = ((double)gsl_rng_get(data) + 0.5) * 0x1p-32;
        double u2 = ((double)gsl_rng_get(data) + 0.5) * 0x1p-32;
        double r = sqrt(-2 * log(u1));
        out[i] = r * cos(2 * M_PI * u2);
        if (i + 1 < n)
            out[i + 1] = r * sin(2 * M_PI * u2);
    }
}

void qm_data_uniforms(void *data, int64_t n, double *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = ((double)gsl_rng_get(data) + 0.5) * 0x1p-32;
}

void qm_data_close(void *data) { gsl_rng_free(data); }

qm_status qm_problem_shuffle(const char *who, int64_t n, int64_t **out)
{
    int64_t *place = malloc((size_t)n * sizeof *place);
    if (!place)
        return qm_fail(QM_NO_MEMORY, "%s: permutation of %lld", who, (long long)n);
    for (int64_t i = 0; i < n; i++)
        place[i] = i;
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t j = qm_pick(0, QM_STREAM_start, 0, i, i + 1), keep = place[i];
        place[i] = place[j];
        place[j] = keep;
    }
    *out = place;
    return QM_OK;
}
