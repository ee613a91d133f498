/* slot.h - the verdict on one quantized slot after one step: scales, codes, decoded values. */
#ifndef QM_EXPERIMENTS_CHECK_SLOT_H
#define QM_EXPERIMENTS_CHECK_SLOT_H

#include "experiments/check/judge.h"

/* How bad a finding is. */
enum {
    QM_BAD_OFF_BY_ONE = 1,
    QM_BAD_BOUND,
    QM_BAD_WRONG,
    QM_BAD_SCALE,
    QM_BAD_SPECIAL,
    QM_BAD_MACHINERY
};

/* What the oracle says and what was found; n elements each, scales qm_groups_count. */
struct qm_slot_view {
    const struct qm_decider *d;
    const struct qm_shape *shape;
    int64_t n;
    const double *want, *error; /* the fresh state before it is quantized, and its bound */
    const uint8_t *codes;
    const float *scales, *decoded;
    float *left; /* [n]: gets the choices of stochastic rounding (draws.h); NULL: not wanted */
    struct qm_reorder reorder; /* what the judged side may do beside the words */
};

/* Scales that a tensor of this shape has under q: two for each block of curve allog. */
int64_t qm_groups_count(const struct qm_quantizer *q, const struct qm_shape *shape, int64_t n);

/* The scales of element i; returns how many (0 to QM_MAX_RANK). */
int qm_groups_of(const struct qm_quantizer *q, const struct qm_shape *shape, int64_t i,
                 int64_t *group);

/* Of a quotient, relative; in the subnormal range as many times QM_ETA as this is QM_U. */
double qm_slot_quotient_error(const struct qm_slot_view *v);

/* Judges the slot; i-th entries of the counts go to t, the worst finding to f, its element to *at
 * (-1: none, or a scale).  lo and hi: scratch of one double per scale each; flag: one int. */
void qm_slot_judge(const struct qm_slot_view *v, int slot, double *lo, double *hi, int *flag,
                   struct qm_tally *t, struct qm_finding *f, int64_t *at);

/* The same of curve allog; qm_slot_judge calls it. */
void qm_slot_judge_al(const struct qm_slot_view *v, struct qm_tally *t, struct qm_finding *f,
                      int64_t *at);

/* Replaces the finding by a worse one; 1 when it did. */
int qm_finding_set(struct qm_finding *f, int severity, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Says where it is, after it was set. */
void qm_finding_place(struct qm_finding *f, enum qm_place place, int slot, int64_t at, double low,
                      double high);

#endif
