/* predict.c - qualm predict: do errors without training order the outcomes of training? */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "experiments/cli/cli.h"
#include "experiments/command/command.h"
#include "experiments/report/predict.h"

struct options {
    char *file[2], **metric, *out;
    int n, n_metrics;
};

static const struct argp_option options[] = {
    {"metric", 'm', "NAME[+|-]", 0,
     "this metric of the errors; may be repeated (default: sqnr, step_sqnr, param_sqnr).  '+': "
     "larger is better, '-': smaller is",
     0},
    {"out", 'o', "FILE", 0, "write the correlations and their points to an HDF5 file as well", 0},
    {0}};

static const char doc[] =
    "Whether errors that take no training order recipes as training does: their rank correlation "
    "with the tuned outcome.\v"
    "ERRORS is the result of a suite of coupling oneshot, local, global or update, TRAINING that "
    "of a suite with protocol: paired; recipes that are in both are compared.  The error of a "
    "recipe is the median of a metric over its tensors; its outcome is d, the gap to the float64 "
    "twin in decades, at tuned rates where TRAINING has them.\n"
    "\n"
    "rho is Spearman's rank correlation over n recipes, 1 where a larger error always ends further "
    "off, with its 95 % interval (Bonett and Wright); `predicts` where that lies above 0, "
    "`reversed` where below.  pairs are those of recipes that training tells apart, right the "
    "share of them that the error orders likewise.  The error `bits` (fewer bits per parameter are "
    "worse) stands beside them as a control; `all` ranks recipes by their mean rank over the "
    "problems.\n"
    "\n"
    "Examples:\n"
    "  # after: qualm run prediction_errors prediction_training --out results/\n"
    "  qualm predict results/prediction_errors.h5 results/prediction_training.h5\n"
    "  qualm predict errors.h5 training.h5 --metric angle- -o results/prediction.h5\n"
    "  qualm plot results/prediction.h5\n"
    "\n"
    "Exit codes: 0 done, whatever the correlations are, 2 usage, 3 a file cannot be read or is "
    "damaged, 4 no such cells, verdicts or metric, or no recipe in common.";

static error_t option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case 'o': o->out = arg; return 0;
    case 'm': return qm_cli_append(&o->metric, &o->n_metrics, arg) == QM_OK ? 0 : ENOMEM;
    case ARGP_KEY_ARG:
        if (o->n == 2)
            argp_error(state, "expected two files");
        o->file[o->n++] = arg;
        return 0;
    case ARGP_KEY_END:
        if (o->n != 2)
            argp_error(state, "expected two files");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static void print_table(const struct qm_prediction *p)
{
    static const char *const heads[] = {"error", "problem", "n",     "rank correlation",
                                        "95 %",  "pairs",   "right", "verdict"};
    struct qm_table *t = qm_table_open((int)(sizeof heads / sizeof *heads), heads);
    for (int64_t i = 0; i < p->n_rows; i++) {
        const struct qm_predict_row *r = &p->row[i];
        qm_table_cell(t, "%s", r->error);
        qm_table_cell(t, "%s", r->problem);
        qm_table_cell(t, "%lld", (long long)r->n);
        if (isnan(r->rho)) {
            qm_table_cell(t, "-");
            qm_table_cell(t, "-");
        } else {
            qm_table_cell(t, "%.2f", r->rho);
            qm_table_cell(t, "%.2f to %.2f", r->lo95, r->hi95);
        }
        qm_table_cell(t, "%.0f", r->pairs);
        if (r->pairs > 0.0)
            qm_table_cell(t, "%.0f %%", 100.0 * r->right / r->pairs);
        else
            qm_table_cell(t, "-");
        qm_table_cell(t, "%s", qm_predicted_name(r->verdict));
    }
    qm_table_close(t);
    fprintf(qm_notes(), "%lld recipes in both files", (long long)p->recipes);
    if (p->left_out)
        fprintf(qm_notes(), "; %lld of the training without an error or not quantized",
                (long long)p->left_out);
    fputs("\n", qm_notes());
}

static void print_json(const struct qm_prediction *p)
{
    json_t *rows = json_array();
    for (int64_t i = 0; i < p->n_rows; i++) {
        const struct qm_predict_row *r = &p->row[i];
        json_array_append_new(
            rows, json_pack("{s:s, s:s, s:I, s:o, s:o, s:o, s:o, s:o, s:s}", "error", r->error,
                            "problem", r->problem, "n", (json_int_t)r->n, "rho",
                            qm_json_number(r->rho), "lo95", qm_json_number(r->lo95), "hi95",
                            qm_json_number(r->hi95), "pairs", qm_json_number(r->pairs), "right",
                            qm_json_number(r->right), "verdict", qm_predicted_name(r->verdict)));
    }
    qm_json_print(json_pack("{s:I, s:I, s:o}", "recipes", (json_int_t)p->recipes, "left_out",
                            (json_int_t)p->left_out, "correlations", rows));
}

int qm_cmd_predict(int argc, char **argv)
{
    static const struct argp_child children[] = {{&qm_cli_argp, 0, "Common options:", -1}, {0}};
    static const struct argp argp = {options, option, "ERRORS.h5 TRAINING.h5", doc, children,
                                     NULL,    NULL};
    struct options o = {0};
    struct qm_prediction p = {0};
    int code = qm_cli_parse(&argp, argc, argv, &o);
    if (code == 0) {
        qm_status st = qm_predict(o.file[0], o.file[1], o.metric, o.n_metrics, &p);
        if (st == QM_OK && o.out)
            st = qm_prediction_write(&p, o.out, argc, argv);
        if (st != QM_OK)
            code = qm_cli_failed("predict", st);
        else if (qm_cli.json)
            print_json(&p);
        else
            print_table(&p);
    }
    qm_prediction_free(&p);
    free(o.metric);
    return code;
}
