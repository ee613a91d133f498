/* recipe_error.h - The error that whole recipes make in the next update of recorded states.
 *
 * A row is a tensor under a recipe, by coupling update (lockstep/lockstep.h): every slot encoded as
 * the recipe says, then the recorded gradient applied.  A summary takes the rows of one recipe in
 * which every element that the recipe gives codes has them; the others count as not quantized. */
#ifndef QM_ANALYZE_RECIPE_ERROR_H
#define QM_ANALYZE_RECIPE_ERROR_H

#include <jansson.h>
#include <stdint.h>

#include "experiments/protocol/stats.h"
#include "experiments/recipes/recipe_list.h"
#include "experiments/store/store.h"
#include "oracle/metric/metric.h"

struct qm_recipe_error {
    char *file, *tensor, *skipped; /* owned; skipped "": it was measured */
    int recipe, model;             /* indices; a model is a run of a file */
    int has_gradient; /* 0: none is recorded, and the update is that of the state itself */
    int is_coded;     /* 0: some or all elements that the recipe gives codes are plain floats */
    int64_t n;
    int64_t left_out; /* elements whose exact or decoded update is NaN or infinite: in no metric */
    double bits;      /* of state per element */
    double sqnr;      /* dB, of the update */
    double *value;    /* owned; one per metric */
};

/* The rows of one recipe.  Locations are trimmed means (protocol/stats.h), over the models'
 * locations where there are two models or more, else over tensors; in dB. */
struct qm_recipe_summary {
    int64_t tensors, models, not_quantized, skipped;
    int64_t not_finite;    /* left out: the SQNR is -Inf (decoded to NaN or Inf), Inf or NaN */
    double bits;           /* mean of the tensors, by elements; NaN for none */
    struct qm_paired sqnr; /* of the next update */
    struct qm_paired difference; /* from the first recipe, on the tensors of both */
    int64_t better;   /* tensors with a higher SQNR than the first recipe has, -Inf and Inf too */
    int64_t compared; /* of so many */
};

struct qm_recipe_errors {
    const struct qm_recipes *recipes;
    const struct qm_metric *const *metric;
    int n_metrics;
    int64_t n, room;
    struct qm_recipe_error *row;
};

/* Called before each tensor with the number of elements that are done, out of all. */
typedef void qm_recipe_error_progress(int64_t done, int64_t total, void *context);

/* Called before the first tensor with what there is to say about a file (qm_file_remark). */
typedef qm_status qm_recipe_error_remark(const char *path, const char *text, void *context);

struct qm_recipe_error_options {
    const char *filter; /* regular expression of tensors' names, or NULL */
    uint64_t seed;      /* of stochastic rounding */
    qm_recipe_error_progress *progress;
    void *context;
    qm_recipe_error_remark *remark; /* or NULL */
    void *remark_context;
};

/* Measures every recorded state of the files (globs, as source/replay.h reads them) whose name
 * matches; `e` brings recipes and metrics.  One record is in memory at a time.  QM_NO_MATCH: no
 * state matches.  The caller frees *e, also after a failure. */
qm_status qm_recipe_errors_measure(char *const *paths, int n_paths,
                                   const struct qm_recipe_error_options *o,
                                   struct qm_recipe_errors *e);
void qm_recipe_errors_free(struct qm_recipe_errors *e);

int64_t qm_recipe_errors_measured(const struct qm_recipe_errors *e); /* rows not skipped */

/* Sets *out to the summary of one recipe. */
qm_status qm_recipe_errors_summary(const struct qm_recipe_errors *e, int recipe,
                                   struct qm_recipe_summary *out);

/* Prints rows, what was skipped, and summaries on stdout; with --json one object of these, with
 * "remarks" where there are any (text by path). */
qm_status qm_recipe_errors_report(const struct qm_recipe_errors *e, json_t *remarks);

/* Stores tables /next_update/rows, /next_update/skipped and /next_update/summary. */
qm_status qm_recipe_errors_store(const struct qm_recipe_errors *e, struct qm_store *s);

#endif
