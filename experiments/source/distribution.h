/* distribution.h - Distributions by name and seed, and the streams of random draws of problems.
 *
 * Element i of a distribution is a function of (name, arguments, seed, i) alone; ranges, threads
 * and order do not matter.  Everything is computed in double from Philox4x32-10 blocks with libm's
 * log, exp, sin and cos; with another libm, whose last bits may differ, about one float in 1e8 may
 * differ by an ULP. */
#ifndef QM_SOURCE_DISTRIBUTION_H
#define QM_SOURCE_DISTRIBUTION_H

#include "core/base/status.h"
#include "oracle/theory/law.h"

#include <stdint.h>

struct qm_dist {
    const char *name;    /* "gauss", "student", ... */
    const char *args;    /* arguments with their defaults: "nu=3", or "" */
    const char *summary; /* one line, with the density or the construction */
    int sign;            /* 1: both signs (a first moment); 0: never negative (a second one) */
};

int qm_dist_count(void);
const struct qm_dist *qm_dist_at(int i);

/* A distribution with its arguments; plain data. */
struct qm_dist_bound {
    int id;
    double arg[4];
};

/* Parses "gauss", "student:3", "student:nu=3", "loguniform:-8:0" or "loguniform:lo=-8,hi=0".
 * QM_NO_MATCH names the nearest distribution; QM_BAD_ARG names the faulty argument. */
qm_status qm_dist_parse(const char *text, struct qm_dist_bound *out);

/* The law of the elements up to a constant factor, which does not change relative errors.  Returns
 * 0 when oracle/theory/law.h has none, or the elements are not independent. */
int qm_dist_law(const struct qm_dist_bound *d, struct qm_law *out);

/* Elements [from, from + n) of the distribution under this seed; from >= 0.  All are finite. */
void qm_dist_fill(const struct qm_dist_bound *d, uint64_t seed, int64_t from, int64_t n,
                  float *out);

/* ---- streams ---------------------------------------------------------------------------------
 * Each purpose of draws has a tensor number that no parameter has (those count from 0), so that its
 * draws differ from those of stochastic rounding, whose counters hold (seed, step) too: the Philox
 * counter is (block, block >> 32, step, 4 * stream), the key the seed. */
enum qm_stream {
    QM_STREAM_heavy = 0xFFFFFB, /* noise added to another problem's gradient, step = step */
    QM_STREAM_rows = 0xFFFFFC,  /* rows of a minibatch, step = step */
    QM_STREAM_start = 0xFFFFFD, /* a random start, step = 0 */
    QM_STREAM_noise = 0xFFFFFE, /* gradient noise, step = step */
    QM_STREAM_dist = 0xFFFFFF   /* distributions, step = part of the construction */
};

/* Standard normals [from, from + n) of a stream, by Box-Muller from 53-bit uniforms: cosine and
 * sine of block k are elements 2k and 2k + 1.  |z| <= 8.66. */
void qm_normals(uint64_t seed, enum qm_stream stream, int64_t step, int64_t from, int64_t n,
                double *out);

/* Student's t with nu > 0 degrees of freedom, one block per element: the cosine branch of the
 * polar form, exact for every nu.  R. W. Bailey, Math. Comp. 62 (1994) 779. */
void qm_students(uint64_t seed, enum qm_stream stream, int64_t step, double nu, int64_t from,
                 int64_t n, double *out);

/* Draw i of whole numbers from 0 to below - 1, below <= 2^32; the bias is at most below / 2^32. */
int64_t qm_pick(uint64_t seed, enum qm_stream stream, int64_t step, int64_t i, int64_t below);

#endif
