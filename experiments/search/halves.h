/* halves.h - The recorded states of a search in two halves: one is searched on, one reports.
 *
 * A half consists of whole models, where a model is a run of a file; where all files together hold
 * one run, of whole tensors with all their recorded steps.  Without files for the report, the
 * halves are drawn: models in the order of Philox words of the seed, the first half (rounded up) to
 * the search.  Either half has an order of its own, from which rounds take their first tensors:
 * drawn within each model, then one tensor of each model in turn. */
#ifndef QM_SEARCH_HALVES_H
#define QM_SEARCH_HALVES_H

#include "experiments/source/replay.h"

enum qm_half { QM_HALF_search, QM_HALF_report, QM_HALF_COUNT };

struct qm_halving_tensor {
    char *file, *name; /* owned: "gpt.h5", "run/s000400/h.0.weight" */
    int64_t numel;
    int model;    /* its number over both halves */
    int half;     /* enum qm_half */
    uint64_t key; /* places it in the order of its model */
    int place;    /* in that order */
};

struct qm_halves {
    int n;
    int64_t room;
    struct qm_halving_tensor *tensor; /* those of the search first, each half in its order */
    int count[QM_HALF_COUNT], models[QM_HALF_COUNT];
    int n_models, by_tensor; /* by_tensor: one run alone, halves are of whole tensors */
    int64_t left_out;        /* states that are no input of AdamW, too small, or not asked for */
};

struct qm_halves_options {
    char *const *files[QM_HALF_COUNT]; /* globs; none for the report: both halves are drawn */
    int n_files[QM_HALF_COUNT];
    const char *filter; /* regular expression of names, or NULL */
    int64_t min_numel;
    uint64_t seed;
};

/* Finds and divides the states.  QM_NO_MATCH: a half is empty; QM_BAD_ARG: two states have one
 * name, by which suites tell them.  The caller frees *out in any case. */
qm_status qm_halves_open(const struct qm_halves_options *o, struct qm_halves *out);
void qm_halves_free(struct qm_halves *h);

#endif
