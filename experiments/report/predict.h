/* predict.h - Whether errors without training order the outcomes of training.
 *
 * Two result files are joined by the formats of their recipes (rule, states, parameter; not by
 * hyper-parameters and limits of sizes): one with cells of the couplings oneshot, local, global or
 * update (ERRORS), one with a suite of protocol paired (TRAINING), whose d (protocol.h) is, for
 * each problem and label, the gap to the float64 twin at lr_scale 1.
 *
 *     error    of a recipe: the median over its cells that are ok and have codes, of one metric of
 *              one coupling and slot; with the sign at which larger is worse.  The error `bits` is
 *              minus the bits per parameter, as a control that needs no measurement.
 *     rho      Spearman's rank correlation of error and d over recipes: 1 where the error orders
 *              them as training does.  Recipes that were not quantized in training, and those
 *              without a finite error or d, are left out and counted.
 *     interval tanh(atanh(rho) -+ 1.96 sqrt((1 + rho^2 / 2) / (n - 3))) (D. G. Bonett and
 *              T. A. Wright, Sample size requirements for estimating Pearson, Kendall and Spearman
 *              correlations, Psychometrika 65, 2000); at |rho| = 1 around the next value that n
 *              recipes without ties can have.  It takes recipes for independent draws; those that
 *              share an axis value are not quite.
 *     pairs    of recipes whose d differ by more than sqrt(w_i^2 + w_j^2), w the half width of the
 *              95 % interval of d: those that training tells apart.  right: those of them that the
 *              error orders likewise; equal errors count one half.
 *
 * The problem `all` ranks each recipe that ran on all problems by the mean of its ranks over them,
 * among these recipes alone; its pairs are those of all problems. */
#ifndef QM_REPORT_PREDICT_H
#define QM_REPORT_PREDICT_H

#include "experiments/store/result_reader.h"

/* clang-format off */
#define QM_PREDICTED_LIST(X)                                                                      \
    X(predicts, "predicts")   /* the interval lies above 0 */                                     \
    X(reversed, "reversed")   /* below 0 */                                                       \
    X(undecided, "undecided") X(few, "too few") /* fewer than QM_PREDICT_LEAST recipes */
/* clang-format on */
enum qm_predicted {
#define X(name, text) QM_PREDICTED_##name,
    QM_PREDICTED_LIST(X)
#undef X
};
const char *qm_predicted_name(enum qm_predicted p);

#define QM_PREDICT_LEAST 6

/* A recipe under one error on one problem. */
struct qm_predict_point {
    char *error, *problem, *label, *recipe;
    double value;         /* the error, larger is worse */
    double measured;      /* the same with the metric's own sign */
    double d, lo95, hi95; /* decades */
    int64_t diverged;     /* runs of training, which count with the gap 1000 */
};

struct qm_predict_row {
    char *error, *problem; /* "update sqnr", "oneshot exp_avg sqnr", "bits"; "all" */
    int64_t n;
    double rho, lo95, hi95; /* NaN for too few, or where all errors or all d are equal */
    double pairs, right;
    enum qm_predicted verdict;
};

struct qm_prediction {
    int64_t n_rows, n_points;
    struct qm_predict_row *row; /* by error, then problem, `all` last */
    struct qm_predict_point *point;
    int64_t recipes, left_out; /* labels of TRAINING that were joined, and those that were not */
};

/* metric: names of metrics, with '+' (larger is better) or '-' after it; n_metrics 0: sqnr,
 * step_sqnr and param_sqnr, where the cells have them.  QM_BAD_ARG: a metric without a direction.
 * QM_NO_MATCH: a file without such cells or verdicts, or no recipe in common.  The caller frees
 * *out with qm_prediction_free. */
qm_status qm_predict(const char *errors, const char *training, char *const *metric, int n_metrics,
                     struct qm_prediction *out);
void qm_prediction_free(struct qm_prediction *p); /* accepts zeros */

/* Writes /prediction/correlations and /prediction/points to a result file of kind `predict`;
 * argv[argc] is the command line. */
qm_status qm_prediction_write(const struct qm_prediction *p, const char *path, int argc,
                              char **argv);

#endif
