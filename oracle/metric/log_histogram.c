/* log_histogram.c - Fills, merges and compares histograms with log-spaced bins. */
#include "oracle/metric/log_histogram.h"
#include "oracle/metric/compensated_sum.h"
#include <assert.h>
#include <math.h>
#include <string.h>

/* bits >> SHIFT leaves bits 63 to 46 of a double: sign, exponent and the first six of
 * the fraction. */
enum { SHIFT = 46, FIRST = (1023 - 126) << 6 };

static int bin_of(double magnitude)
{
    int64_t bits;
    memcpy(&bits, &magnitude, sizeof bits);
    int k = (int)(bits >> SHIFT) - FIRST + 1;
    k = k < 0 ? 0 : k;
    return k < QM_LOG_HISTOGRAM_BINS - 1 ? k : QM_LOG_HISTOGRAM_BINS - 1;
}

static double bin_low(int k)
{
    int64_t bits = k > 0 ? (int64_t)(k - 1 + FIRST) << SHIFT : 0;
    double low;
    memcpy(&low, &bits, sizeof low);
    return low;
}

void qm_log_histogram_add(struct qm_log_histogram *h, const double *x, int64_t n)
{
    double least = h->n ? h->min : HUGE_VAL, most = h->max;
    for (int64_t i = 0; i < n; i++) {
        int some = x[i] != 0.0;
        least = x[i] < least ? x[i] : least;
        most = x[i] > most ? x[i] : most;
        h->zero += !some;
        h->count[bin_of(x[i])] += some;
    }
    h->n += n;
    h->min = least;
    h->max = most;
}

void qm_log_histogram_merge(struct qm_log_histogram *into, const struct qm_log_histogram *from)
{
    if (from->n == 0)
        return;
    into->min = into->n == 0 ? from->min : fmin(into->min, from->min);
    into->max = fmax(into->max, from->max);
    into->n += from->n;
    into->zero += from->zero;
    for (int k = 0; k < QM_LOG_HISTOGRAM_BINS; k++)
        into->count[k] += from->count[k];
}

double qm_log_histogram_quantile(const struct qm_log_histogram *h, double p)
{
    if (h->n == 0)
        return nan("");
    double rank = fmax(1.0, ceil(p * (double)h->n));
    int64_t below = h->zero;
    if (rank <= (double)below)
        return 0.0;
    if (rank >= (double)h->n)
        return h->max;
    int k = 0;
    for (; k < QM_LOG_HISTOGRAM_BINS - 1; k++) {
        below += h->count[k];
        if (rank <= (double)below)
            break;
    }
    if (k == QM_LOG_HISTOGRAM_BINS - 1)
        return h->max;
    return fmin(fmax(0.5 * (bin_low(k) + bin_low(k + 1)), h->min), h->max);
}

void qm_signed_log_histogram_add(struct qm_signed_log_histogram *d, const double *x, int64_t n)
{
    double most = d->max;
    d->n += n;
    for (int64_t i = 0; i < n; i++) {
        double a = fabs(x[i]);
        int k = bin_of(a), s = signbit(x[i]) != 0, some = a != 0.0;
        most = a > most ? a : most;
        d->zero += !some;
        d->bin[s][k].count += some; /* no branch on the sign, which is random */
        d->bin[s][k].over += a - bin_low(k);
    }
    d->max = most;
}

void qm_signed_log_histogram_merge(struct qm_signed_log_histogram *into,
                                   const struct qm_signed_log_histogram *from)
{
    into->n += from->n;
    into->zero += from->zero;
    into->max = fmax(into->max, from->max);
    for (int s = 0; s < 2; s++)
        for (int k = 0; k < QM_LOG_HISTOGRAM_BINS; k++) {
            into->bin[s][k].count += from->bin[s][k].count;
            into->bin[s][k].over += from->bin[s][k].over;
        }
}

/* The bins of both signs in ascending order: negative, zero, positive. */
enum { CELLS = 2 * QM_LOG_HISTOGRAM_BINS + 1 };

struct cell {
    double width; /* 0 for the bin of the zero */
    int64_t nf, ng;
    double over_f, over_g; /* sums of distances from the end that is nearer to 0 */
    double low;            /* magnitude of that end */
    int negative;
};

static struct cell cell_at(const struct qm_signed_log_histogram *f,
                           const struct qm_signed_log_histogram *g, int i)
{
    struct cell c = {0};
    if (i == QM_LOG_HISTOGRAM_BINS) {
        c.nf = f->zero;
        c.ng = g->zero;
        return c;
    }
    c.negative = i < QM_LOG_HISTOGRAM_BINS;
    int k = c.negative ? QM_LOG_HISTOGRAM_BINS - 1 - i : i - QM_LOG_HISTOGRAM_BINS - 1;
    c.low = bin_low(k);
    double high =
        k < QM_LOG_HISTOGRAM_BINS - 1 ? bin_low(k + 1) : fmax(fmax(f->max, g->max), c.low);
    c.width = high - c.low;
    c.nf = f->bin[c.negative][k].count;
    c.ng = g->bin[c.negative][k].count;
    c.over_f = f->bin[c.negative][k].over;
    c.over_g = g->bin[c.negative][k].over;
    return c;
}

/* Reads one sample in ascending order, the elements of a bin at their mean. */
struct cursor {
    const struct qm_signed_log_histogram *d;
    int cell;
    int64_t left;
    double at;
};

static void cursor_fill(struct cursor *c)
{
    while (c->left == 0 && c->cell < CELLS) {
        struct cell x = cell_at(c->d, c->d, c->cell++);
        c->left = x.nf;
        if (x.nf > 0)
            c->at = (x.negative ? -1.0 : 1.0) * (x.low + x.over_f / (double)x.nf);
    }
}

static double wasserstein2(const struct qm_signed_log_histogram *f,
                           const struct qm_signed_log_histogram *g)
{
    struct cursor a = {f, 0, 0, 0.0}, b = {g, 0, 0, 0.0};
    struct qm_sum sum = {0.0, 0.0};
    for (;;) {
        cursor_fill(&a);
        cursor_fill(&b);
        if (a.left == 0 || b.left == 0)
            return sqrt(qm_sum_value(&sum) / (double)f->n);
        int64_t move = a.left < b.left ? a.left : b.left;
        qm_sum_add(&sum, (double)move * (a.at - b.at) * (a.at - b.at));
        a.left -= move;
        b.left -= move;
    }
}

/* Bounds the sum of squared moves of n elements in [0, width] to their mean; over: their sum. */
static double moves(int64_t n, double over, double width)
{
    return n > 1 ? fmax(0.0, over * (width - over / (double)n)) : 0.0;
}

struct qm_signed_log_histogram_gap
qm_signed_log_histogram_compare(const struct qm_signed_log_histogram *f,
                                const struct qm_signed_log_histogram *g)
{
    struct qm_signed_log_histogram_gap gap = {nan(""), nan(""), nan(""), nan(""), nan(""), nan("")};
    assert(f->n == g->n);
    if (f->n == 0)
        return gap;
    double n = (double)f->n, ks = 0.0, ks_high = 0.0;
    int64_t fa = 0, ga = 0; /* elements before the cell */
    struct qm_sum w1 = {0.0, 0.0}, w1_high = w1, move_f = w1, move_g = w1;
    for (int i = 0; i < CELLS; i++) {
        struct cell c = cell_at(f, g, i);
        if (c.nf == 0 && c.ng == 0 && fa == ga)
            continue;
        int64_t fb = fa + c.nf, gb = ga + c.ng;
        /* integral over the cell of the increments of F and G within it, times n */
        double tail_f = c.negative ? c.over_f : (double)c.nf * c.width - c.over_f;
        double tail_g = c.negative ? c.over_g : (double)c.ng * c.width - c.over_g;
        double open = (double)(fa - ga) * c.width;
        double low = fabs(open + (tail_f - tail_g));
        double most = fmax((double)(fb - ga), (double)(gb - fa));
        double high = fmax(low, fmin(fabs(open) + tail_f + tail_g, most * c.width));
        int apart = fa >= gb || ga >= fb; /* F - G keeps its sign */
        ks = fmax(ks, fabs((double)(fb - gb)));
        /* the cell of the zero is a point: only its ends count, and both are exact */
        ks_high = fmax(ks_high, c.width > 0.0 ? most : fabs((double)(fb - gb)));
        qm_sum_add(&w1, low);
        qm_sum_add(&w1_high, apart ? low : high);
        qm_sum_add(&move_f, moves(c.nf, c.over_f, c.width));
        qm_sum_add(&move_g, moves(c.ng, c.over_g, c.width));
        fa = fb;
        ga = gb;
    }
    gap.ks = ks / n;
    gap.ks_high = ks_high / n;
    gap.w1 = qm_sum_value(&w1) / n;
    gap.w1_high = qm_sum_value(&w1_high) / n;
    gap.w2 = wasserstein2(f, g);
    gap.w2_error = sqrt(qm_sum_value(&move_f) / n) + sqrt(qm_sum_value(&move_g) / n);
    return gap;
}
