/* tables.h - the inside of a judged campaign: for the files of experiments/protocol only. */
#ifndef QM_EXPERIMENTS_PROTOCOL_TABLES_H
#define QM_EXPERIMENTS_PROTOCOL_TABLES_H

#include "experiments/protocol/protocol.h"
#include "experiments/protocol/stats.h"

/* A closed cell that ran, diverged or failed. */
struct qm_run_row {
    int64_t cell;
    int problem, label, scale; /* of the lists in struct qm_protocol */
    double start_gap, gap, twin_gap, d, area, basin, twin_basin;
    int ok;        /* it has a twin to be compared with: not failed */
    int elsewhere; /* it or its twin ended in another basin than most twins of its comparison */
};

/* A list of distinct texts. */
struct qm_words {
    int n, room;
    char **word;
};

/* Which runs are one comparison: run[order[first]] to run[order[first + n - 1]], by seed. */
struct qm_comparison_group {
    int problem, label, scale;
    int basin; /* where most of its twins ended */
    int64_t first, n;
};

struct qm_verdict_row {
    struct qm_comparison_group of;
    int64_t failed, diverged, elsewhere, twin_diverged;
    double bits;              /* of state per element; NaN where none ran */
    int is_float32;           /* it has codes, but on none of these tensors: all were too small */
    struct qm_paired d, null; /* null.n 0: there is none */
    double q, delta, detectable;
    enum qm_decision verdict;
};

struct qm_curve_row {
    int label; /* of p->label, or below -1: -2 - family of p->family */
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
    int twin_best;
    double gap[3], twin[3]; /* q25, median, q75 */
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
    int one;       /* the scale that targets, profiles and budget are of: 1, or the nearest to it */
    int64_t n_runs, n_groups;
    struct qm_run_row *run;
    int64_t *order;  /* of groups, then seeds */
    int64_t *row_of; /* [cells]: its row of run, -1: none */
    struct qm_comparison_group *group;
    int64_t (*target)[QM_TARGETS]; /* [problems]: levels */
    int64_t *hits[QM_HITS_COUNT];  /* [runs][QM_TARGETS] */
    int64_t n_verdicts, n_ecdf, n_profiles, n_scores, n_sensitivity, n_budget;
    struct qm_verdict_row *verdict;
    struct qm_curve_row *ecdf, *profile;
    struct qm_score_row *score;
    struct qm_sensitivity_row *sensitivity;
    struct qm_budget_row *budget;
};

const struct qm_cell *qm_run_cell(const struct qm_protocol *p, const struct qm_run_row *run);

/* The group of these, or NULL. */
const struct qm_comparison_group *qm_group_find(const struct qm_protocol *p, int problem, int label,
                                                int scale);

/* The i-th run of a group. */
const struct qm_run_row *qm_group_run(const struct qm_protocol *p,
                                      const struct qm_comparison_group *g, int64_t i);

/* Each fills its part of p; in this order. */
qm_status qm_protocol_runs(struct qm_protocol *p);     /* rows, groups */
qm_status qm_protocol_targets(struct qm_protocol *p);  /* targets, hits */
qm_status qm_protocol_verdicts(struct qm_protocol *p); /* verdicts, sensitivity, budget */
qm_status qm_protocol_profiles(struct qm_protocol *p); /* ecdf, profiles, scores */

#endif
