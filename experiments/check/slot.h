/* slot.h - Judges one quantized slot after one step: scales, codes, decoded values. */
#ifndef QM_EXPERIMENTS_CHECK_SLOT_H
#define QM_EXPERIMENTS_CHECK_SLOT_H

#include "experiments/check/judge.h"

/* Severities of findings, ascending. */
enum {
    QM_BAD_OFF_BY_ONE = 1,
    QM_BAD_BOUND,
    QM_BAD_WRONG,
    QM_BAD_SCALE,
    QM_BAD_SPECIAL,
    QM_BAD_MACHINERY
};

/* A slot of n elements and qm_groups_count scales: the oracle's values and the judged ones. */
struct qm_slot_view {
    const struct qm_decider *d;
    const struct qm_shape *shape;
    int64_t n;
    const double *want, *error; /* the fresh state before it is quantized, and its bound */
    const float *before; /* the state before the step, where it is a sum; NULL: an average, whose
                            forms may make a NaN of an infinity, or not known */
    const uint8_t *codes;
    const float *scales, *decoded;
    float *draw_error;         /* [n]: takes the draw errors (draws.h); NULL: not wanted */
    struct qm_reorder reorder; /* freedoms of the judged backend */
};

/* Number of scales of a tensor of this shape and n elements: two per block under curves allog, qlog
 * and affine, three under expand. */
int64_t qm_groups_count(const struct qm_quantizer *q, const struct qm_shape *shape, int64_t n);

/* How many elements from i on, i among them, have element i's scales: at least 1, perhaps more than
 * there are. */
int64_t qm_groups_stay(const struct qm_quantizer *q, const struct qm_shape *shape, int64_t i);

/* Writes the indices of element i's scales to group[QM_MAX_RANK]; returns how many (0 to
 * QM_MAX_RANK). */
int qm_groups_of(const struct qm_quantizer *q, const struct qm_shape *shape, int64_t i,
                 int64_t *group);

/* Relative error of a quotient, k QM_U; in the subnormal range its absolute error is k QM_ETA. */
double qm_slot_quotient_error(const struct qm_slot_view *v);

/* Whether a quotient need not be the nearest number: x / x may be one beside 1. */
static inline int qm_slot_quotient_is_near(const struct qm_slot_view *v)
{
    return v->reorder.recip || v->reorder.div_ulp > 0.0;
}

/* Judges the slot, number `slot` of the rule: adds to the counts of t, keeps the worst finding in f
 * and its element in *at (-1: a scale).  lo, hi, flag: scratch of one entry per scale. */
void qm_slot_judge(const struct qm_slot_view *v, int slot, double *lo, double *hi, int *flag,
                   struct qm_tally *t, struct qm_finding *f, int64_t *at);

/* 1: a curve with several numbers per block, which is judged by a file of its own. */
int qm_slot_has_numbers(const struct qm_quantizer *q);

/* Judges a slot of curve qlog; called by qm_slot_judge. */
void qm_slot_judge_quantile_log(const struct qm_slot_view *v, int slot, struct qm_tally *t,
                                struct qm_finding *f, int64_t *at);

/* Judges a slot of curve expand; called by qm_slot_judge. */
void qm_slot_judge_expand(const struct qm_slot_view *v, int slot, struct qm_tally *t,
                          struct qm_finding *f, int64_t *at);

/* Judges a slot of curve affine; called by qm_slot_judge. */
void qm_slot_judge_affine(const struct qm_slot_view *v, struct qm_tally *t, struct qm_finding *f,
                          int64_t *at);

/* Judges a slot of curve allog; called by qm_slot_judge. */
void qm_slot_judge_adaptive_log(const struct qm_slot_view *v, struct qm_tally *t,
                                struct qm_finding *f, int64_t *at);

/* Replaces the finding if `severity` is larger than its own, and forgets its place; 1: it was
 * replaced. */
int qm_finding_set(struct qm_finding *f, int severity, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Makes "-nan", which printf writes of a NaN with its sign bit, "nan", and a range of equal printed
 * ends, "A to A", "A". */
void qm_finding_tidy(char *text);

/* What was wanted, in words: "NaN", "-Inf" or "0x1.8p-1 within 1e-08"; text is returned. */
enum { QM_WANT_TEXT = 64 };
char *qm_want_text(double want, double error, char text[QM_WANT_TEXT]);

/* Sets the place of a finding after qm_finding_set. */
void qm_finding_place(struct qm_finding *f, enum qm_place place, int slot, int64_t at, double low,
                      double high);

#endif
