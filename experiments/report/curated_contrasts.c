/* curated_contrasts.c - Makes the table of contrasts that a page starts with. */
#include "experiments/report/curated.h"

#include <math.h>
#include <stdlib.h>

#define CONTRASTS "/protocol/contrasts"

enum { TEXTS = 8, NUMBERS = 8 };
static const char *const texts[TEXTS] = {"problem",      "label",        "against", "verdict",
                                         "verdict_late", "verdict_area", "rates",   "same_verdict"};
static const char *const numbers[NUMBERS] = {"lr_scale", "n", "mean",       "lo95",
                                             "hi95",     "q", "detectable", "same_mean"};

static void rows_to(struct qm_text_grid *g, int64_t rows, char **text[TEXTS],
                    double *number[NUMBERS])
{
    for (int64_t i = 0; i < rows; i++) {
        char interval[80];
        double lo = number[3][i], hi = number[4][i];
        snprintf(interval, sizeof interval, "[%.3g, %.3g]", lo, hi);
        for (int k = 0; k < 3; k++)
            qm_grid_text(g, text[k][i]);
        qm_grid_number(g, number[0][i], "%g");
        qm_grid_number(g, number[1][i], "%g");
        qm_grid_number(g, number[2][i], "%.3g");
        qm_grid_keyed(g, isfinite(lo) ? lo : nan(""),
                      isfinite(lo) && isfinite(hi) ? interval : "-");
        qm_grid_number(g, number[6][i], "%.2g");
        qm_grid_number(g, number[5][i], "%.2g");
        for (int k = 3; k < 7; k++)
            qm_grid_text(g, text[k][i]);
        qm_grid_number(g, number[7][i], "%.3g");
        qm_grid_text(g, text[7][i]);
    }
}

static void columns_of(struct qm_text_grid *g)
{
    qm_grid_open(g, "Contrasts",
                 "Value against value on one axis, pair by pair: log10 of the gap over that of the "
                 "other value; positive is worse.");
    qm_grid_column(g, "problem", "", "", 0);
    qm_grid_column(g, "variant", "", "", 0);
    qm_grid_column(g, "against", "", "", 0);
    qm_grid_column(g, "lr", "", "multiple of the learning rate", 1);
    qm_grid_column(g, "n", "", "different pairs", 1);
    qm_grid_column(g, "d", "log10", "trimmed mean over pairs", 1);
    qm_grid_column(g, "95 %", "log10", "its interval", 1);
    qm_grid_column(g, "finds", "log10", "d that so many pairs would show with 80 % power", 1);
    qm_grid_column(g, "q", "", "p after Benjamini and Hochberg over all contrasts", 1);
    qm_grid_column(g, "verdict", "", "after the last step", 0);
    qm_grid_column(g, "late", "", "the verdict over the last eighth of the steps", 0);
    qm_grid_column(g, "area", "", "the verdict over the logarithm of the step", 0);
    qm_grid_column(g, "rates", "", "as in Verdicts", 0);
    qm_grid_column(g, "same rate", "log10", "d with both at the twin's rate", 1);
    qm_grid_column(g, "verdict there", "", "the verdict at the same rate", 0);
}

qm_status qm_contrasts_table(struct qm_result *r, struct qm_text_grid *out)
{
    int64_t rows = 0;
    char **text[TEXTS] = {NULL};
    double *number[NUMBERS] = {NULL};
    struct qm_text_grid g = {0};
    qm_status st = QM_OK;
    for (int k = 0; st == QM_OK && k < TEXTS; k++)
        st = qm_result_texts(r, CONTRASTS, texts[k], &rows, &text[k]);
    for (int k = 0; st == QM_OK && k < NUMBERS; k++)
        st = qm_result_f64(r, CONTRASTS, numbers[k], &rows, &number[k]);
    if (st == QM_OK) {
        columns_of(&g);
        rows_to(&g, rows, text, number);
        st = qm_grid_check(&g);
    }
    for (int k = 0; k < TEXTS; k++)
        free(text[k]);
    for (int k = 0; k < NUMBERS; k++)
        free(number[k]);
    if (st == QM_OK)
        *out = g;
    else
        qm_grid_close(&g);
    return st;
}
