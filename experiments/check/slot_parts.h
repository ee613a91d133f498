/* slot_parts.h - Functions of the files slot*.c and finding.c, for these and for other judges
 * of single elements. */
#ifndef QM_EXPERIMENTS_CHECK_SLOT_PARTS_H
#define QM_EXPERIMENTS_CHECK_SLOT_PARTS_H

#include "experiments/check/slot.h"
#include "oracle/bound/bound.h"

/* Flags of a group: it holds NaN, infinities, elements with an infinite bound, or an infinity that
 * no order makes a NaN, because the state was finite before the step. */
enum { QM_HAS_NAN = 1, QM_HAS_INF = 2, QM_HAS_UNBOUNDED = 4, QM_HAS_SURE_INF = 8 };

/* slot_adaptive_log.c.  Judges one number of a block; 1: it became the finding. */
struct qm_interval {
    double low, high;
};
int qm_slot_judge_number(double got, struct qm_interval want, const char *what, int64_t at,
                         struct qm_tally *t, struct qm_finding *f);

/* slot_groups.c.  Elements per scale where they are consecutive; 0: they are not. */
int64_t qm_slot_run(const struct qm_quantizer *q, const struct qm_shape *shape);

/* 1: an element is divided by two scales, one after the other (rowcol, colrow).  The second scale
 * is the maximum of the quotients by the first; group[qm_slot_first_scale] is the first. */
int qm_slot_has_two_scales(const struct qm_quantizer *q);
static inline int qm_slot_first_scale(const struct qm_quantizer *q)
{
    return q->norm == QM_NORM_colrow;
}

/* slot_scales.c.  The interval of the fresh state of element i, with the curve applied. */
void qm_slot_fresh(const struct qm_slot_view *v, int64_t i, double *low, double *high);

/* lo and hi: max(|x| - e) and max(|x| + e) over each group; flag: its QM_HAS_* flags.  All are 0
 * beforehand.  Of two scales, qm_slot_fold takes the first; qm_slot_fold_quotients takes the
 * second, from the quotients by the stored first. */
void qm_slot_fold(const struct qm_slot_view *v, double *lo, double *hi, int *flag);
void qm_slot_fold_quotients(const struct qm_slot_view *v, double *lo, double *hi, int *flag);

/* The divisor of a group with maximum m, before the guard.  rounding: relative error of the product
 * with the gain, which may be a quotient. */
double qm_slot_divisor(const struct qm_decider *d, double m, double rounding);

/* 1: a group of consecutive elements ends beyond the tensor. */
int qm_slot_is_short(const struct qm_slot_view *v, int64_t group);

/* Judges the `count` stored scales; *at becomes -1 where the finding is a scale. */
void qm_slot_judge_scales(const struct qm_slot_view *v, const double *lo, const double *hi,
                          const int *flag, int64_t count, struct qm_tally *t, struct qm_finding *f,
                          int64_t *at);

/* The scale of one element: encoding divides by it, decoding multiplies. */
struct qm_element_scale {
    double divisor_low, divisor_high; /* interval of the divisor; NaN where any scale is NaN */
    double stored;
    double max_low, max_high; /* interval of the group's maximum */
    double first, second;     /* the two scales; 0: there is one */
    int is_short;             /* the group ends beyond the tensor */
};

/* slot_unit.c.  The scale of element i.  is_wide: the divisor's interval follows from the fresh
 * state alone, not from the stored scale. */
struct qm_element_scale qm_element_scale_of(const struct qm_slot_view *v, int64_t i,
                                            const double *lo, const double *hi, const int *flag,
                                            int is_wide);

/* Knowledge about the unit value of element i: an interval [*low, *high]; certainly NaN; certainly
 * the code of scale word `zero`; nothing. */
enum qm_unit_known { QM_KNOWN_INTERVAL, QM_KNOWN_NAN, QM_KNOWN_ZERO_CODE, QM_KNOWN_NOTHING };

enum qm_unit_known qm_slot_unit_of(const struct qm_slot_view *v, int64_t i,
                                   const struct qm_element_scale *s, double *low, double *high);

/* slot_codes.c.  Judges the code of element i and its decoded value; 1: the code became the
 * finding. */
int qm_slot_judge_code(const struct qm_slot_view *v, int slot, int64_t i,
                       const struct qm_element_scale *s, struct qm_tally *t, struct qm_finding *f,
                       int64_t *at);

/* What the code of a position decodes to by the element's scale, before it is rounded; *error: the
 * bound on the float32 result's distance from it. */
double qm_slot_value(const struct qm_slot_view *v, int position, const struct qm_element_scale *s,
                     double *error);

/* The verdict on a position whose unit value lies in [low, high].  t: counts draws of stochastic
 * rounding; or NULL. */
enum qm_verdict qm_slot_verdict(const struct qm_decider *d, int slot, double low, double high,
                                int position, struct qm_tally *t);

/* Sets the place of a wrong code and the codes that are allowed there: those allowed with the
 * stored scale, and those allowed with any scale of the fresh state, unless these include the wrong
 * code. */
void qm_slot_place_code(const struct qm_slot_view *v, int64_t i, const struct qm_element_scale *s,
                        const struct qm_element_scale *wide, struct qm_finding *f);

#endif
