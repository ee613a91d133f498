/* judged.c - Judges paired numbers by outcome: differences, what exceeds float32, families. */
#include "experiments/protocol/judged.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {
#define X(name, text) #name,
    QM_OUTCOME_LIST(X)
#undef X
};

const char *qm_outcome_name(int kind) { return names[kind]; }

static int by_gaps(const void *a, const void *b)
{
    const struct qm_observed *x = a, *y = b;
    int d = (x->gap > y->gap) - (x->gap < y->gap);
    d = d ? d : (x->twin > y->twin) - (x->twin < y->twin);
    return d ? d : (x->start > y->start) - (x->start < y->start);
}

static int64_t distinct(struct qm_observed *o, int64_t n)
{
    int64_t kept = 0;
    qsort(o, (size_t)n, sizeof *o, by_gaps);
    for (int64_t i = 0; i < n; i++)
        if (i == 0 || by_gaps(&o[i], &o[kept - 1]) != 0)
            o[kept++] = o[i];
    return kept;
}

/* Cuts the intervals to +- most. */
static void cut(struct qm_paired *x, double most)
{
    double *const ends[] = {&x->lo95, &x->hi95, &x->lo90, &x->hi90};
    for (int i = 0; i < 4 && x->n > 1; i++)
        *ends[i] = fmin(fmax(*ends[i], -most), most);
}

/* Sets out from the numbers of one outcome; x and instance are scratch of n. */
static qm_status judge_outcome(const struct qm_observed *o, int64_t n, int k, double *x,
                               int *instance, struct qm_judged *out)
{
    struct qm_paired null;
    int64_t m = 0;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(o[i].x[k])) {
            x[m] = o[i].x[k];
            instance[m++] = o[i].instance;
        }
    QM_TRY(qm_paired_levels(x, instance, m, &out->d));
    m = 0;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(o[i].x[k]) && isfinite(o[i].null[k]))
            x[m++] = o[i].null[k];
    QM_TRY(qm_paired_make(x, m, &null));
    out->null_far = null.far;
    m = 0;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(o[i].x[k]) && isfinite(o[i].null[k])) {
            x[m] = o[i].x[k] - o[i].null[k];
            instance[m++] = o[i].instance;
        }
    return qm_paired_levels(x, instance, m, &out->beyond);
}

qm_status qm_judge(struct qm_observed *o, int64_t n, double most, struct qm_judged *out)
{
    n = distinct(o, n);
    double *x = malloc((size_t)(n + 1) * sizeof *x);
    int *instance = malloc((size_t)(n + 1) * sizeof *instance);
    qm_status st = x && instance ? QM_OK : qm_fail(QM_NO_MEMORY, "%lld pairs", (long long)n);
    for (int k = 0; st == QM_OK && k < QM_OUTCOME_COUNT; k++) {
        out[k].q = nan("");
        st = judge_outcome(o, n, k, x, instance, &out[k]);
        cut(&out[k].d, most);
    }
    free(instance);
    free(x);
    return st;
}

static int has_null(const struct qm_judged *j) { return j->beyond.n >= QM_LEAST_PAIRS; }

static int leaves_zero(const struct qm_paired *x) { return x->lo95 > 0.0 || x->hi95 < 0.0; }

/* Whether d and beyond leave 0 out on the same side. */
static int exceeds_null(const struct qm_judged *j)
{
    return !has_null(j) || (j->d.mean < 0.0 ? j->beyond.hi95 < 0.0 : j->beyond.lo95 > 0.0);
}

int qm_is_as_null(const struct qm_judged *j)
{
    return j->d.n >= QM_LEAST_PAIRS && leaves_zero(&j->d) && !exceeds_null(j);
}

/* The judgement of a row in family k: outcome k / 2, at the same rate where k is odd. */
static struct qm_judged *in_family(const struct qm_judged_row *row, int k)
{
    return k % 2 ? &row->same[k / 2] : &row->by[k / 2];
}

static enum qm_decision decision(const struct qm_judged *j, const struct qm_judged_row *row,
                                 int is_same)
{
    enum qm_decision v = qm_decide(&j->d, row->delta, j->q);
    int is_apart = v == QM_DECISION_better || v == QM_DECISION_worse;
    int is_far = !row->is_control && j->d.far > j->null_far;
    if ((is_apart && !exceeds_null(j)) || (v == QM_DECISION_equivalent && is_far))
        v = QM_DECISION_undecided;
    int is_plain = row->varied == 0.0 || (row->varied < 0.5 && v == QM_DECISION_equivalent);
    if (is_plain || is_same)
        return is_plain ? QM_DECISION_plain : QM_DECISION_same;
    return row->is_uneven && v != QM_DECISION_few ? QM_DECISION_uneven : v;
}

qm_status qm_decide_rows(const struct qm_judged_row *row, int64_t n)
{
    double *p = calloc(2 * (size_t)(n + 1), sizeof *p), *q = p ? p + n + 1 : NULL;
    qm_status st = p ? QM_OK : qm_fail(QM_NO_MEMORY, "verdicts");
    for (int k = 0; st == QM_OK && k < 2 * QM_OUTCOME_COUNT; k++) {
        for (int64_t i = 0; i < n; i++) {
            const struct qm_judged *j = in_family(&row[i], k);
            int counts = row[i].in_family && !row[i].is_same[k % 2] && !row[i].is_uneven &&
                         j->d.n >= QM_LEAST_PAIRS;
            p[i] = !counts ? nan("") : has_null(j) ? fmax(j->d.p, j->beyond.p) : j->d.p;
        }
        st = qm_false_discovery(p, n, q);
        for (int64_t i = 0; st == QM_OK && i < n; i++) {
            struct qm_judged *j = in_family(&row[i], k);
            j->q = q[i];
            j->verdict = decision(j, &row[i], row[i].is_same[k % 2]);
        }
    }
    for (int64_t i = 0; st == QM_OK && i < n; i++)
        if (!row[i].is_own)
            memcpy(row[i].same, row[i].by, QM_OUTCOME_COUNT * sizeof *row[i].by);
    free(p);
    return st;
}

int qm_hangs_on_outcome(const struct qm_judged *by)
{
    for (int k = 1; k < QM_OUTCOME_COUNT; k++)
        if (by[k].d.n >= QM_LEAST_PAIRS && by[k].verdict != by[0].verdict)
            return 1;
    return 0;
}
