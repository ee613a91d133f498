/* predict_output.c - Stores the rank correlations of errors and outcomes, and their points. */
#include "experiments/report/predict.h"
#include "experiments/store/columns.h"

static qm_status store_rows(const struct qm_prediction *p, struct qm_store *store)
{
    struct qm_columns t = {.rows = p->n_rows};
    const char **error = qm_columns_text(&t, "error", "coupling, slot and metric; or bits");
    const char **problem = qm_columns_text(&t, "problem", "as the suite names it; all: mean ranks");
    int64_t *n = qm_columns_whole(&t, "n", "recipes");
    double *rho = qm_columns_number(&t, "rho", "1", "Spearman's rank correlation of error and d");
    double *lo = qm_columns_number(&t, "lo95", "1", "lower end of its 95 % interval");
    double *hi = qm_columns_number(&t, "hi95", "1", "upper end");
    double *pairs = qm_columns_number(&t, "pairs", "1", "pairs that training tells apart");
    double *right = qm_columns_number(&t, "right", "1", "of them ordered as the error says");
    const char **verdict = qm_columns_text(&t, "verdict", "predicts, reversed, undecided, too few");
    for (int64_t i = 0; !t.failed && i < p->n_rows; i++) {
        const struct qm_predict_row *r = &p->row[i];
        error[i] = r->error;
        problem[i] = r->problem;
        n[i] = r->n;
        rho[i] = r->rho;
        lo[i] = r->lo95;
        hi[i] = r->hi95;
        pairs[i] = r->pairs;
        right[i] = r->right;
        verdict[i] = qm_predicted_name(r->verdict);
    }
    return qm_columns_store(&t, store, "/prediction/correlations",
                            "How well an error without training orders the outcomes of training.");
}

static qm_status store_points(const struct qm_prediction *p, struct qm_store *store)
{
    struct qm_columns t = {.rows = p->n_points};
    const char **error = qm_columns_text(&t, "error", "coupling, slot and metric; or bits");
    const char **problem = qm_columns_text(&t, "problem", "as the suite names it");
    const char **label = qm_columns_text(&t, "label", "the recipe, as the suite names it");
    const char **recipe = qm_columns_text(&t, "recipe", "the recipe");
    double *value = qm_columns_number(&t, "measured", "1", "the metric: median over its tensors");
    double *d = qm_columns_number(&t, "d", "log10", "gap of training over that of its twin");
    double *lo = qm_columns_number(&t, "lo95", "log10", "lower end of its 95 % interval");
    double *hi = qm_columns_number(&t, "hi95", "log10", "upper end");
    int64_t *diverged = qm_columns_whole(&t, "diverged", "runs that count with gap 1000");
    for (int64_t i = 0; !t.failed && i < p->n_points; i++) {
        const struct qm_predict_point *at = &p->point[i];
        error[i] = at->error;
        problem[i] = at->problem;
        label[i] = at->label;
        recipe[i] = at->recipe;
        value[i] = at->measured;
        d[i] = at->d;
        lo[i] = at->lo95;
        hi[i] = at->hi95;
        diverged[i] = at->diverged;
    }
    return qm_columns_store(&t, store, "/prediction/points",
                            "Every recipe's error and outcome of training, by problem.");
}

qm_status qm_prediction_write(const struct qm_prediction *p, const char *path, int argc,
                              char **argv)
{
    struct qm_store *store = NULL;
    QM_TRY(qm_store_open(path, "predict", argc, argv, &store));
    qm_status st = store_rows(p, store);
    if (st == QM_OK)
        st = store_points(p, store);
    if (st == QM_OK)
        return qm_store_commit(store);
    qm_store_abort(store);
    return st;
}
