/* slot_parts.h - the parts of a slot's verdict.  For the files slot*.c alone. */
#ifndef QM_EXPERIMENTS_CHECK_SLOT_PARTS_H
#define QM_EXPERIMENTS_CHECK_SLOT_PARTS_H

#include "experiments/check/slot.h"
#include "oracle/bound/bound.h"

/* What a group of one scale holds beside numbers. */
enum { QM_HAS_NAN = 1, QM_HAS_INF = 2, QM_HAS_UNBOUNDED = 4 };

/* slot_groups.c: elements per scale where they are consecutive, or 0. */
int64_t qm_slot_run(const struct qm_quantizer *q, const struct qm_shape *shape);

/* Whether an element is divided by two scales, one after the other; the first of them is number
 * qm_slot_first of its groups. */
int qm_slot_is_twice(const struct qm_quantizer *q);
static inline int qm_slot_first(const struct qm_quantizer *q) { return q->norm == QM_NORM_colrow; }

/* slot_scales.c: the interval of the curved fresh state. */
void qm_slot_fresh(const struct qm_slot_view *v, int64_t i, double *low, double *high);

/* Largest |x| - e and |x| + e of every group, into lo, hi and flag, which are 0; then, of what the
 * stored first scales leave, where there are two. */
void qm_slot_fold(const struct qm_slot_view *v, double *lo, double *hi, int *flag);
void qm_slot_fold_quotients(const struct qm_slot_view *v, double *lo, double *hi, int *flag);

/* From a maximum to what is divided by, before the guard; its gain may be a quotient. */
double qm_slot_divisor(const struct qm_decider *d, double m, double rounding);

/* Whether a group of consecutive elements ends beyond the tensor. */
int qm_slot_is_short(const struct qm_slot_view *v, int64_t group);

void qm_slot_judge_scales(const struct qm_slot_view *v, const double *lo, const double *hi,
                          const int *flag, int64_t count, struct qm_tally *t, struct qm_finding *f,
                          int64_t *at);

/* What an element is divided by and multiplied by. */
struct qm_element_scale {
    double by_low, by_high; /* NaN where any is */
    double stored;
    double max_low, max_high; /* of the raw maximum */
    double first, second;     /* of two scales; 0: there is one */
    int is_short;
};

/* slot_unit.c.  is_wide: whatever scale is stored, from the fresh state alone. */
struct qm_element_scale qm_element_scale_of(const struct qm_slot_view *v, int64_t i,
                                            const double *lo, const double *hi, const int *flag,
                                            int is_wide);

/* What is known about the unit value of element i: an interval, certainly NaN, or nothing. */
enum qm_unit_known { QM_KNOWN_INTERVAL, QM_KNOWN_NAN, QM_KNOWN_ZERO_CODE, QM_KNOWN_NOTHING };

enum qm_unit_known qm_slot_unit_of(const struct qm_slot_view *v, int64_t i,
                                   const struct qm_element_scale *s, double *low, double *high);

/* slot_codes.c.  1: f and *at are of this code now. */
int qm_slot_judge_code(const struct qm_slot_view *v, int slot, int64_t i,
                       const struct qm_element_scale *s, struct qm_tally *t, struct qm_finding *f,
                       int64_t *at);

/* Where a wrong code is, and which ones a step may leave there: beside the stored scale, and beside
 * any that the fresh state allows unless that would take the wrong one too. */
void qm_slot_place_code(const struct qm_slot_view *v, int64_t i, const struct qm_element_scale *s,
                        const struct qm_element_scale *wide, struct qm_finding *f);

#endif
