/* stats.h - Locations, intervals, verdicts and false discovery rates of paired comparisons.
 *
 * d[n] are differences of independent pairs: log10 gap of a variant minus log10 gap of its twin,
 * one per seed.  Their location is the trimmed mean, because no interval of the plain mean covers
 * it where one run in ten ends far off: with eight seeds none of these is seen in 43 % of cases.
 * Runs far off are counted beside it.  Sources: K. Yuen, Biometrika 61 (1974) 165 (standard error
 * of a trimmed mean, Student's t); D. Schuirmann, J. Pharmacokin. Biopharm. 15 (1987) 657 (two
 * one-sided tests); Y. Benjamini, Y. Hochberg, J. R. Stat. Soc. B 57 (1995) 289. */
#ifndef QM_EXPERIMENTS_PROTOCOL_STATS_H
#define QM_EXPERIMENTS_PROTOCOL_STATS_H

#include "core/base/status.h"

#include <stdint.h>

enum { QM_LEAST_PAIRS = 6 };

/* The location of n differences with its intervals, infinite for n = 1; all NaN for n = 0. */
struct qm_paired {
    int64_t n;
    double mean;                         /* without the floor(n / 5) least and largest of d */
    double plain_mean, sd;               /* of all n */
    double error, df;                    /* standard error of `mean`, degrees of freedom */
    double lo95, hi95, lo90, hi90;       /* of `mean`: Student's t with df */
    double median, median_lo, median_hi; /* order statistics that enclose it with at least 95 % */
    double p;                            /* two-sided, of location 0, by the same t */
    int64_t far;                         /* numbers that qm_paired_make counts as far off */
    int64_t instances;                   /* of qm_paired_levels; 1: the interval is over pairs */
};

/* With g = floor(n / 5), h = n - 2 g and the Winsorized sum of squares S (the g least numbers are
 * set to the next one, the g largest likewise) the standard error is the larger one of Yuen's
 * sqrt(S / (h (h - 1))) and, for g > 0, of sqrt(S / (n (n - 1))) / 0.6, and df = h - 1.  Without
 * spread the interval is a point, and p is 1 or 0.  far counts numbers more than 8 robust standard
 * deviations (1.4826 median |d - median|) and more than log10 1.05 from the median.  d must be
 * finite and is not changed. */
qm_status qm_paired_make(const double *d, int64_t n, struct qm_paired *out);

/* Two levels: instance[i] says which instance of its problem d[i] belongs to.  Location, interval
 * and p are those of qm_paired_make for the locations of the instances, one number each, which
 * covers what instances and seeds add to the spread, in whatever proportion; the other members are
 * those of all d.  With one instance it is qm_paired_make. */
qm_status qm_paired_levels(const double *d, const int *instance, int64_t n, struct qm_paired *out);

/* The largest rank r (from 1) such that the r-th smallest and the r-th largest of n numbers enclose
 * the median with at least this probability, for every distribution; 0: no rank does. */
int64_t qm_median_rank(int64_t n, double level);
double qm_median_coverage(int64_t n, int64_t rank); /* 1 - 2 P(Bin(n, 1/2) < rank) */

/* The location, in standard errors, that a two-sided t test with df >= 1 degrees of freedom at
 * level alpha detects with this power. */
double qm_detectable(double df, double alpha, double power);

/* Benjamini-Hochberg: rejecting all q[i] <= rate keeps the false discovery rate at `rate`.  Tests
 * with p NaN are not part of the family; their q is NaN. */
qm_status qm_false_discovery(const double *p, int64_t n, double *q);

/* What is decided about a mean, in this order; of a family that means q <= 0.05 besides for better
 * and worse.  The families of judged.c make these two undecided where the float32 runs of the same
 * seeds leave 0 as well, and equivalent where more pairs lie far off than of those runs. */
/* clang-format off */
#define QM_DECISION_LIST(X)         /* name, words */                                               \
    X(equivalent, "equivalent")     /* the 90 % interval lies within +- delta */                   \
    X(better,     "better")         /* the 95 % interval lies below 0 */                           \
    X(worse,      "worse")          /* it lies above 0 */                                          \
    X(undecided,  "undecided")      /* none of these */                                            \
    X(few,        "too few")        /* fewer than six different pairs: before all others */        \
    X(plain,      "not quantized")  /* what the suite varies has no codes in these runs */         \
    X(same,       "same results")   /* of a contrast: each pair of runs has equal outcomes */      \
    X(uneven,     "uneven rates")   /* of a contrast: one side's rate is tuned, the other's not */
/* clang-format on */

enum qm_decision {
#define X(name, words) QM_DECISION_##name,
    QM_DECISION_LIST(X)
#undef X
        QM_DECISION_COUNT
};
const char *qm_decision_text(enum qm_decision d);

/* log10 1.05, the delta where nothing else is known: gaps that differ by less than 5 % count as
 * equivalent, and a d within it is never far from the median. */
#define QM_USUAL_DELTA 0.021189299069938092

/* Decides `few` first, then in the order of the list; never `plain`, `same` or
 * `uneven`, which the caller decides.  q NaN: the row is not part of a family, and the interval
 * decides alone. */
enum qm_decision qm_decide(const struct qm_paired *x, double delta, double q);

/* Whether float32 states, whose d is null, are not equivalent either: a verdict is then not due to
 * the format alone. */
int qm_is_apart(const struct qm_paired *null, double delta);

/* The quantile q in [0, 1] of ascending x[n], linear between order statistics; NaN for n = 0. */
double qm_quantile(const double *x, int64_t n, double q);

#endif
