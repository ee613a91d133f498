/* tables.h - The tables of the protocol, for the files of experiments/protocol only. */
#ifndef QM_EXPERIMENTS_PROTOCOL_TABLES_H
#define QM_EXPERIMENTS_PROTOCOL_TABLES_H

#include "experiments/protocol/judged.h"
#include "experiments/protocol/protocol.h"

/* A closed cell that ran, diverged or failed. */
struct qm_run_row {
    int64_t cell;
    int problem, label, scale; /* indices of the lists in struct qm_protocol */
    double start_gap, gap, twin_gap, d, basin, twin_basin;
    double d_of[QM_OUTCOME_COUNT]; /* d by every outcome; the first is d */
    double late_gap, twin_late_gap, twin_area;
    int ok;        /* d is finite: the run did not fail */
    int elsewhere; /* the run or its twin ended in another basin than most twins of its group */
};

/* A list of distinct texts. */
struct qm_words {
    int n;
    int64_t room;
    char **word;
};

/* The runs of one comparison: run[order[first]] to run[order[first + n - 1]], by seed. */
struct qm_comparison_group {
    int problem, label, scale;
    int basin; /* the basin in which most of its twins ended */
    int64_t first, n;
};

/* clang-format off */
/* The learning rates of a comparison. */
#define QM_RATES_LIST(X) /* name, words, text */                                                  \
    X(uneven,  "one side tuned", "of a contrast: a rate that was tuned against one that was not") \
    X(untuned, "not tuned",    "the problem's rate; none was tuned for these steps and schedule") \
    X(same,    "same rate",    "the rate that was tuned for the twin")                            \
    X(best,    "best against best", "each at the rate that was tuned for it (rate_search.h)")
/* clang-format on */

enum qm_rates {
#define X(name, words, text) QM_RATES_##name,
    QM_RATES_LIST(X)
#undef X
};
const char *qm_rates_text(enum qm_rates r);

struct qm_verdict_row {
    struct qm_comparison_group of;
    int64_t failed, diverged, elsewhere, twin_diverged;
    double bits;   /* of state per element; NaN where no run succeeded */
    double coded;  /* share of elements with codes, of those that the recipe gives any */
    double varied; /* the same over the slots that the suite varies (coded_share.h) */
    enum qm_rates rates;
    struct qm_judged by[QM_OUTCOME_COUNT];   /* at these rates */
    struct qm_judged same[QM_OUTCOME_COUNT]; /* both at the twin's */
    struct qm_paired null; /* d of float32 states; n 0: the comparison has no null pairs */
    double delta, detectable;
};

/* The runs of group a against those of group b, which differ on one axis alone; the numbers are of
 * log10 gap of a minus log10 gap of b, pair by pair. */
struct qm_contrast_row {
    const struct qm_comparison_group *a, *b;
    const char *axis;
    enum qm_rates rates;
    struct qm_judged by[QM_OUTCOME_COUNT], same[QM_OUTCOME_COUNT];
    int is_same[2]; /* at the rates of by, of same: every pair of runs is equal to the bit */
    int two_twins;  /* the runs of a pair have twins that differ: another rule, or another rate */
    double delta, detectable;
};

/* A point of an ECDF (tau in steps) or of a performance profile (tau a ratio of runtimes). */
struct qm_curve_row {
    int label; /* index of p->label, or -2 - index of p->family for the twins of a family */
    int is_twin_kind;
    double tau, share;
};

struct qm_score_row {
    int label;
    int64_t n[2]; /* classical, twin */
    double score[2];
};

struct qm_sensitivity_row {
    struct qm_comparison_group of;
    int twin_best;          /* at this scale the twin's median gap is smallest */
    double gap[3], twin[3]; /* first quartile, median, third quartile */
};

struct qm_budget_row {
    int problem, label;
    const char *part;
    struct qm_paired share;
};

struct qm_protocol {
    const struct qm_results *r;
    struct qm_words problem, label, family;
    int n_scales;
    double *scale; /* ascending */
    int one;       /* index of the scale of targets, profiles and budget: 1, or the nearest to it */
    int64_t n_runs, n_groups;
    struct qm_run_row *run;
    int64_t *order;                    /* [runs]: indices of run, sorted by group, then seed */
    int64_t *row_of;                   /* [cells]: index of run; -1: the cell has no row */
    struct qm_comparison_group *group; /* ascending by problem, label, scale */
    int64_t (*target)[QM_TARGETS];     /* [problems]: levels */
    int64_t *hits[QM_HITS_COUNT];      /* [runs][QM_TARGETS] */
    int64_t n_verdicts, n_ecdf, n_profiles, n_scores, n_sensitivity, n_budget;
    struct qm_verdict_row *verdict;
    struct qm_curve_row *ecdf, *profile;
    struct qm_score_row *score;
    struct qm_sensitivity_row *sensitivity;
    struct qm_budget_row *budget;
    int64_t n_contrasts, n_apart; /* n_apart: contrasts of which one side has no runs */
    struct qm_contrast_row *contrast;
};

const struct qm_cell *qm_run_cell(const struct qm_protocol *p, const struct qm_run_row *run);

/* The group of this problem, label and scale, or NULL. */
const struct qm_comparison_group *qm_group_find(const struct qm_protocol *p, int problem, int label,
                                                int scale);

/* The i-th run of a group. */
const struct qm_run_row *qm_group_run(const struct qm_protocol *p,
                                      const struct qm_comparison_group *g, int64_t i);

/* Sets the numbers of a pair; 0 where it does not count in verdicts (both runs diverged, one
 * failed or ended in another basin).  is_best: the variant's run is that at its own rate. */
int qm_observe(const struct qm_protocol *p, const struct qm_run_row *run, int is_best,
               struct qm_observed *out);

/* The rates of all runs of a group: the least of untuned, same, best that all of them have. */
enum qm_rates qm_rates_of(const struct qm_protocol *p, const struct qm_comparison_group *g);

double qm_most_d(void);                                                 /* the largest |d| */
double qm_margin(const struct qm_protocol *p, const struct qm_cell *c); /* of equivalence */
double qm_detectable_of(const struct qm_paired *d); /* with 80 % power at 5 %; NaN: n < 2 */

/* Each function fills its part of p; call them in this order. */
qm_status qm_protocol_runs(struct qm_protocol *p);     /* rows, groups */
qm_status qm_protocol_targets(struct qm_protocol *p);  /* targets, hits */
qm_status qm_protocol_verdicts(struct qm_protocol *p); /* verdicts, sensitivity, budget */
qm_status qm_protocol_contrasts(struct qm_protocol *p);
qm_status qm_protocol_profiles(struct qm_protocol *p); /* ecdf, profiles, scores */

#endif
