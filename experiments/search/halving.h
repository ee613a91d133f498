/* halving.h - Searches compositions of axes by the error of the next update, by successive halving.
 *
 * Rounds, of which each is a suite of coupling update in a campaign of its own, so that a search
 * that is stopped goes on where it was and needs no code of its own to be resumed:
 *
 *   references  registered variants, on all tensors of the search half
 *   singles     each format alone, the other moment float32, on the first eighth of these tensors
 *   pairs1      the best pairs by prediction, on a quarter
 *   pairs2      the best quarter of them, on half of the tensors
 *   pairs3      the best quarter of these, on all of the search half
 *   report      these and the references on the report half, which plays no part before
 *
 * A round has at least `least` tensors and two of each model.
 *
 * Prediction: noise-to-signal ratios of the two moments add up, because each perturbs the update
 * m / sqrt(v) in first order; how well that holds is measured in pairs1.  A pair is kept among
 * those of its half bit of state, so that each budget keeps its best.  A score is the location of
 * the SQNR over models (qm_paired_levels).  K. Jamieson, A. Talwalkar, AISTATS 2016, PMLR 51, 240
 * (successive halving, factor 4 here). */
#ifndef QM_SEARCH_HALVING_H
#define QM_SEARCH_HALVING_H

#include <jansson.h>
#include <signal.h>

#include "experiments/analyze/recipe_error.h"
#include "experiments/run/run_cells.h"
#include "experiments/run/suite_load.h"
#include "experiments/search/halves.h"
#include "experiments/search/space.h"

/* clang-format off */
#define QM_HALVING_ROUND_LIST(X) \
    X(references) X(singles) X(pairs1) X(pairs2) X(pairs3) X(report)
/* clang-format on */

enum qm_halving_round {
#define X(name) QM_HALVING_ROUND_##name,
    QM_HALVING_ROUND_LIST(X)
#undef X
        QM_HALVING_ROUND_COUNT
};
const char *qm_halving_round_name(int round);

/* A composition, a single format or a reference, with what was measured of it. */
struct qm_halving_entry {
    int64_t format[QM_HALVING_SLOTS]; /* of the space; -1: float32, or a reference */
    char *label, *recipe;             /* owned */
    double bits;
    int is_reference, is_frontier;
    int round;        /* the last that it was in */
    int is_undefined; /* somewhere it has no finite SQNR, or elements without codes */
    double predicted; /* dB on the tensors of singles; NaN: no pair */
    double measured;  /* dB: location over the tensors of the search half that it was measured on */
    double *sqnr;     /* owned, per tensor of the halves; NaN: not measured, or undefined */
};

struct qm_halving {
    struct qm_halving_space space;
    struct qm_halves halves;
    struct qm_halves_options files;
    double most_bits;
    int first, least; /* pairs of round pairs1; least number of tensors of a round */
    struct qm_recipes reference;
    const char *folder; /* of the rounds' suites and campaigns */
    int workers, fresh;
    const volatile sig_atomic_t *stop;
    /* results */
    int64_t composed, legal; /* pairs of the members; of those that make sense, within the budget */
    int n;
    int64_t room;
    struct qm_halving_entry *entry; /* references, singles, pairs */
    double prediction_error;        /* median of |predicted - measured| in pairs1, dB */
    struct qm_loaded_suite job;     /* of round report */
    struct qm_results report;
};

/* Refuses a budget that even the two smallest formats exceed: QM_NO_MATCH. */
qm_status qm_halving_check(const struct qm_halving *s);

/* Runs all rounds; space and halves are made.  QM_INTERRUPTED: *stop was set, the same call goes
 * on.  QM_NO_MATCH: no composition is within the budget.  The caller frees *s in any case. */
qm_status qm_halving_run(struct qm_halving *s);
void qm_halving_free(struct qm_halving *s);

/* Runs a round: the entries on the tensors [from, to) of the halves. */
struct qm_halving_part {
    int round, n, from, to;
    const int *entry; /* [n] */
};
qm_status qm_halving_round(struct qm_halving *s, const struct qm_halving_part *p);

/* Removes the rounds' suites and campaigns. */
void qm_halving_clear(const char *folder);

/* Writes a suite of the n entries as JSON, which is YAML; more: its further keys, released.  */
qm_status qm_halving_suite(const struct qm_halving *s, const char *path, const int *entry, int n,
                           json_t *more);

/* The entries of round report, the best reference first (against which others stand), the others by
 * rising bits; *n of them.  The caller frees the array. */
qm_status qm_halving_final(const struct qm_halving *s, int **entry, int *n);

/* Stores /search/{compositions,tensors,values} and the cells of round report. */
qm_status qm_halving_store(const struct qm_halving *s, struct qm_store *store);

/* Prints frontier and references, or with --json one object; path: of the result file. */
qm_status qm_halving_print(const struct qm_halving *s, const char *path, const char *const *next,
                           int n_next);

#endif
