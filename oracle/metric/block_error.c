/* block_error.c - the distribution of error over blocks, rows or columns. */
#include "oracle/metric/block_error.h"
#include <math.h>

/* Whether a comes before b among the worst. */
static int worse(const struct qm_block_worst *a, const struct qm_block_worst *b)
{
    return a->nmse > b->nmse || (a->nmse == b->nmse && a->index < b->index);
}

static void keep_worst(struct qm_block_stats *b, struct qm_block_worst w)
{
    int at = b->n_worst;
    while (at > 0 && worse(&w, &b->worst[at - 1]))
        at--;
    if (at == QM_BLOCK_WORST)
        return;
    b->n_worst += b->n_worst < QM_BLOCK_WORST;
    for (int i = b->n_worst - 1; i > at; i--)
        b->worst[i] = b->worst[i - 1];
    b->worst[at] = w;
}

/* Chan's merge of (n, means by sums, spreads); from may be a single block with spread 0. */
static void merge_moments(struct qm_block_stats *into, const struct qm_block_stats *from)
{
    double na = (double)into->n, nb = (double)from->n;
    if (na > 0.0 && nb > 0.0) {
        double weight = na / (na + nb) * nb;
        double dm = qm_sum_value(&from->mse) / nb - qm_sum_value(&into->mse) / na;
        double dp = qm_sum_value(&from->power) / nb - qm_sum_value(&into->power) / na;
        into->mse_spread += dm * dm * weight;
        into->power_spread += dp * dp * weight;
        into->joint_spread += dm * dp * weight;
    }
    into->mse_spread += from->mse_spread;
    into->power_spread += from->power_spread;
    into->joint_spread += from->joint_spread;
    qm_sum_merge(&into->mse, &from->mse);
    qm_sum_merge(&into->power, &from->power);
    into->n += from->n;
}

/* The same for one more block. */
static void add_moments(struct qm_block_stats *b, double mse, double power)
{
    double n = (double)b->n;
    if (b->n > 0) {
        double weight = n / (n + 1.0);
        double dm = mse - qm_sum_value(&b->mse) / n, dp = power - qm_sum_value(&b->power) / n;
        b->mse_spread += dm * dm * weight;
        b->power_spread += dp * dp * weight;
        b->joint_spread += dm * dp * weight;
    }
    qm_sum_add(&b->mse, mse);
    qm_sum_add(&b->power, power);
    b->n++;
}

static void add_block(struct qm_block_stats *b, int64_t index, const double *want, const float *got,
                      int64_t size, int64_t stride)
{
    struct qm_sum e2 = {0.0, 0.0}, x2 = {0.0, 0.0};
    double most = 0.0;
    int64_t n = 0;
    for (int64_t k = 0; k < size; k++) {
        double x = want[k * stride], y = (double)got[k * stride];
        if (!isfinite(x) || !isfinite(y)) {
            b->nonfinite++;
            continue;
        }
        qm_sum_add(&e2, (y - x) * (y - x));
        qm_sum_add(&x2, x * x);
        most = fmax(most, fabs(x));
        n++;
    }
    if (n == 0)
        return;
    double mse = qm_sum_value(&e2) / (double)n, power = qm_sum_value(&x2) / (double)n;
    double nmse = mse == 0.0 ? 0.0 : power == 0.0 ? HUGE_VAL : mse / power;
    double crest = power > 0.0 ? most / sqrt(power) : 0.0;
    struct qm_block_worst w = {index, nmse, crest};
    b->infinite += isinf(nmse) != 0;
    qm_log_histogram_add(&b->nmse, &nmse, 1);
    add_moments(b, mse, power);
    keep_worst(b, w);
    if (power > 0.0) {
        int bin = (int)floor(2.0 * log2(crest)); /* crest >= 1 up to rounding */
        bin = bin < 0 ? 0 : bin < QM_BLOCK_CRESTS ? bin : QM_BLOCK_CRESTS - 1;
        b->crest[bin].count++;
        qm_sum_add(&b->crest[bin].nmse, nmse);
    }
}

void qm_block_stats_add(struct qm_block_stats *b, const struct qm_block_view *at,
                        const double *want, const float *got)
{
    for (int64_t j = 0; j < at->count; j++)
        add_block(b, at->first + j, want + j * at->step, got + j * at->step, at->size, at->stride);
}

void qm_block_stats_merge(struct qm_block_stats *into, const struct qm_block_stats *from)
{
    merge_moments(into, from);
    into->infinite += from->infinite;
    into->nonfinite += from->nonfinite;
    qm_log_histogram_merge(&into->nmse, &from->nmse);
    for (int i = 0; i < from->n_worst; i++)
        keep_worst(into, from->worst[i]);
    for (int k = 0; k < QM_BLOCK_CRESTS; k++) {
        into->crest[k].count += from->crest[k].count;
        qm_sum_merge(&into->crest[k].nmse, &from->crest[k].nmse);
    }
}

double qm_block_stats_quantile(const struct qm_block_stats *b, double p)
{
    return qm_log_histogram_quantile(&b->nmse, p);
}

double qm_block_stats_nmse(const struct qm_block_stats *b)
{
    double mse = qm_sum_value(&b->mse), power = qm_sum_value(&b->power);
    if (b->n == 0)
        return nan("");
    return mse == 0.0 ? 0.0 : power == 0.0 ? HUGE_VAL : mse / power;
}

double qm_block_stats_nmse_se(const struct qm_block_stats *b)
{
    if (b->n < 2)
        return nan("");
    double n = (double)b->n, r = qm_block_stats_nmse(b), power = qm_sum_value(&b->power) / n;
    double spread = b->mse_spread - 2.0 * r * b->joint_spread + r * r * b->power_spread;
    return sqrt(fmax(0.0, spread) / (n - 1.0) / n) / power;
}
