/* dist.h - distributions by name and seed, from counter-based draws.
 *
 * Element i of a source is a function of (name, arguments, seed, i) alone. */
#ifndef QM_EXPERIMENTS_DIST_H
#define QM_EXPERIMENTS_DIST_H

#include "core/base/status.h"

#include <stdint.h>

struct qm_dist {
    const char *name;    /* "gauss", "student", ... */
    const char *args;    /* "nu=3" or "" */
    const char *summary; /* one line, with the density */
    int sign;            /* 1: both signs (a first moment); 0: never negative (a second one) */
};

int qm_dist_count(void);
const struct qm_dist *qm_dist_at(int i);

/* A distribution bound to its arguments; plain data. */
struct qm_dist_bound {
    int id;
    double arg[4];
};

/* "student:3", "gauss", "lognormal:2"; QM_NO_MATCH names the nearest. */
qm_status qm_dist_parse(const char *text, struct qm_dist_bound *out);

/* Elements [from, from + n) of the stream of this seed. */
void qm_dist_fill(const struct qm_dist_bound *d, uint64_t seed, int64_t from, int64_t n,
                  float *out);

#endif
