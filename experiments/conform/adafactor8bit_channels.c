/* adafactor8bit_channels.c - Computes what the channels of APOLLO's steps may be off by. */
#include "experiments/conform/adafactor8bit_channels.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/conform/adafactor8bit_tolerance.h"

#define COUNT      0x1p-149
#define DIVISOR    1e-8    /* what the package adds to the norm of a projected channel */
#define LEAST_ROOT 0x1p-63 /* smaller numbers have squares of counts */

/* The squares of the finite numbers: others are projected as 0. */
static double squares_of(const float *x, int64_t n, int64_t stride)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += isfinite(x[i * stride]) ? (double)x[i * stride] * (double)x[i * stride] : 0.0;
    return sum;
}

/* One step: the shape of the gradient, its channels, of `inner` elements each, and the projection,
 * rank vectors of as many numbers. */
struct projection {
    const float *g, *p;
    int64_t rows, cols, rank, inner, channels;
    int is_right;  /* channels are rows */
    double *x, *e; /* numbers of the projection, [channels][rank], and what they may be off by */
    struct qm_adafactor8_moments low; /* each NULL where it is not kept; not factored */
    /* Factored second moments, of each channel and of each vector of the projection, what they may
     * be off by, and the same of the mean that their product is divided by. */
    const float *of_channel, *of_vector;
    double *channel_off, *vector_off, mean, mean_off;
    int maximizes;
    /* A number y of the projection makes w(y) = (keeps m + takes y) / (sqrt(v) + eps) of the moment
     * m with v = max(kept v + fresh (y^2 + added), least). */
    double keeps, takes, kept, fresh, added, least, eps;
    int is_stored; /* v is read back as it is stored, whatever y */
};

static struct projection projection_of(const struct qm_adafactor8_replay *r, int64_t t)
{
    const struct qm_hyper *h = &r->recipe.hyper;
    struct projection a = {.rows = r->shape.dim[0], .rank = (int64_t)h->rank, .inner = r->terms};
    a.cols = r->n / a.rows;
    a.is_right = a.rows >= a.cols;
    a.channels = a.is_right ? a.rows : a.cols;
    a.g = r->grads + (t - 1) * r->n;
    a.p = r->proj + r->proj_index[t - 1] * a.rank * a.inner;
    a.maximizes = h->maximize != 0;
    return a;
}

static int begins_at(const struct qm_adafactor8_replay *r, int64_t t)
{
    int64_t gap = (int64_t)fmax(fabs(r->recipe.hyper.gap), 1.0);
    return t == 1 || (!r->is_026 && (t - 1) % gap == 0);
}

int qm_adafactor8_reads_back(const struct qm_adafactor8_replay *r, int64_t t)
{
    const struct qm_adafactor8_recorded *s = &r->slot[QM_ADAFACTOR8_V];
    return r->terms > 0 && s->n > 0 && s->codes && !s->is_two && !begins_at(r, t);
}

/* How the moments take a number of the projection in: core/rule/adafactor8_apollo.c. */
static void moments_of(const struct qm_adafactor8_replay *r, int64_t t,
                       const struct qm_adafactor8_moments *moments, struct projection *a)
{
    const struct qm_hyper *h = &r->recipe.hyper;
    const char *rule = r->recipe.rule->name;
    int is_046 = strncmp(rule, "adafactor8_046", 14) == 0, begins = begins_at(r, t);
    int64_t low = a->rank * a->channels;
    int has_first = r->slot[QM_ADAFACTOR8_M].n == low,
        has_second = r->slot[QM_ADAFACTOR8_V].n == low;
    a->low = (struct qm_adafactor8_moments){.first = has_first ? moments->first : NULL,
                                            .second = has_second ? moments->second : NULL,
                                            .old_first = has_first ? moments->old_first : NULL,
                                            .old_second = has_second ? moments->old_second : NULL};
    const float *row = moments->row, *col = moments->col;
    a->of_channel = row && col && !a->low.second ? (a->is_right ? row : col) : NULL;
    a->of_vector = a->is_right ? col : row;
    a->keeps = a->low.first ? qm_adafactor8_keeps(r) : 0.0;
    a->takes = a->low.first ? 1.0 - h->beta1 : 1.0;
    a->fresh = h->beta2 >= 0.0 ? 1.0 - h->beta2 : pow((double)t, h->beta2_decay);
    a->kept = begins ? 0.0 : 1.0 - a->fresh;
    if (begins && strncmp(rule, "adafactor8_021", 14) == 0)
        a->fresh = 1.0;
    a->added = r->is_026 && !is_046 && !begins ? (h->eps1 < 0.0 ? h->eps : h->eps1) : 0.0;
    a->least = begins && !is_046 ? (double)FLT_MIN : 0.0;
    a->eps = h->eps;
    a->is_stored = qm_adafactor8_reads_back(r, t);
}

static double gradient_squares(const struct projection *a, const float *x, int64_t k)
{
    return a->is_right ? squares_of(x + k * a->cols, a->cols, 1)
                       : squares_of(x + k, a->rows, a->cols);
}

/* Number j of the projection of channel k, and the sizes of its terms. */
static double project(const struct projection *a, int64_t k, int64_t j, double *size)
{
    double sum = 0.0;
    *size = 0.0;
    for (int64_t i = 0; i < a->inner; i++) {
        double x = (double)a->g[a->is_right ? k * a->cols + i : i * a->cols + k];
        double term = x * (double)a->p[a->is_right ? j * a->cols + i : i * a->rank + j];
        sum += isfinite(x) ? term : 0.0;
        *size += isfinite(x) ? fabs(term) : 0.0;
    }
    return a->maximizes ? -sum : sum;
}

static void project_all(const struct projection *a)
{
    for (int64_t k = 0; k < a->channels; k++)
        for (int64_t j = 0; j < a->rank; j++) {
            double size, *x = a->x + k * a->rank + j;
            *x = project(a, k, j, &size);
            a->e[k * a->rank + j] = (double)a->inner * QM_STEP_U * size;
        }
}

/* What factored second moments may be off by: their share of the errors of the squares. */
static void factors_off(struct projection *a)
{
    int64_t rows = a->is_right ? a->channels : a->rank;
    const float *of_row = a->is_right ? a->of_channel : a->of_vector;
    const double *row_off = a->is_right ? a->channel_off : a->vector_off;
    for (int64_t k = 0; k < a->channels; k++)
        for (int64_t j = 0; j < a->rank; j++) {
            double x = fabs(a->x[k * a->rank + j]), e = a->e[k * a->rank + j],
                   off = a->fresh * e * (2.0 * x + e);
            a->channel_off[k] += off / (double)a->rank;
            a->vector_off[j] += off / (double)a->channels;
        }
    for (int64_t k = 0; k < rows; k++) {
        a->mean += (double)of_row[k] / (double)rows;
        a->mean_off += row_off[k] / (double)rows;
    }
}

/* 0 where the squares certainly overflow in float32, a tenth beyond its range, as their sums are
 * off by far less: the factor is then a quotient by infinity. */
static double counts_over(double numbers, double squares)
{
    return squares > 1.1 * (double)FLT_MAX ? 0.0
                                           : sqrt(numbers * COUNT) / (sqrt(squares) + DIVISOR);
}

/* The relative error of the root of a sum of squares, so many of which are counts. */
static double counts_within(double numbers, double squares)
{
    double share = numbers * COUNT / squares;
    return squares > 0.0 ? fmin(share, sqrt(share)) : 0.0;
}

/* Sums of the squares of adapted numbers w: here, and at least and at most. */
struct adapted {
    double now, low, high;
};

/* Number `at` of the adapted channel, of a projected number within e of x.  Between the ends of
 * that range w^2 has its extremes where w is 0 and where its derivative is, with v0 the part of v
 * that y is not in: (keeps m fresh y - takes v0)^2 = takes^2 eps^2 (v0 + fresh y^2). */
static struct adapted range_of(const struct projection *a, int64_t at, double x, double e)
{
    double m = a->low.first ? a->keeps * (double)a->low.old_first[at] : 0.0,
           v = a->is_stored ? (double)a->low.second[at]
                            : a->kept * (double)a->low.old_second[at] + a->fresh * a->added,
           b = a->is_stored ? 0.0 : a->fresh, k = a->takes, mb = m * b, ke = k * a->eps,
           y[6] = {x - e, x + e, -m / k};
    double square = mb * mb - ke * ke * b, half = mb * k * v, rest = k * k * v * v - ke * ke * v;
    double root = sqrt(fmax(half * half - square * rest, 0.0));
    y[3] = square != 0.0 ? (half + root) / square : rest / (2.0 * half);
    y[4] = square != 0.0 ? (half - root) / square : y[3];
    y[5] = fabs(x) <= e ? 0.0 : x;
    struct adapted all = {.low = HUGE_VAL};
    for (int i = 0; i < 6; i++) {
        if (!(y[i] >= x - e && y[i] <= x + e))
            continue;
        double s = sqrt(fmax(v + b * y[i] * y[i], a->least)) + a->eps;
        double w = s > 0.0 ? (m + k * y[i]) / s : 0.0;
        all.low = fmin(all.low, w * w);
        all.high = fmax(all.high, w * w);
    }
    return all;
}

/* The same of factored second moments, each at its ends. */
static struct adapted factored_range_of(const struct projection *a, int64_t k, int64_t j, double m,
                                        double e)
{
    double row = (double)a->of_channel[k], col = (double)a->of_vector[j],
           low = fmax(row - a->channel_off[k], 0.0) * fmax(col - a->vector_off[j], 0.0) /
                 (a->mean + a->mean_off),
           high = (row + a->channel_off[k]) * (col + a->vector_off[j]) /
                  fmax(a->mean - a->mean_off, 0.0),
           least = fmax(fabs(m) - a->takes * e, 0.0) / (sqrt(high) + a->eps),
           most = (fabs(m) + a->takes * e) / (sqrt(low) + a->eps);
    return (struct adapted){.low = least * least, .high = isnan(most) ? 0.0 : most * most};
}

/* Adds number j of adapted channel k to `all`.  Where the moments are not those of x, as codes may
 * have changed them, m is off by its weight times e, and sqrt(v) by no more than e. */
static void add_adapted(const struct projection *a, int64_t k, int64_t j, struct adapted *all)
{
    int64_t at = a->is_right ? k * a->rank + j : j * a->channels + k;
    double x = a->x[k * a->rank + j], e = a->e[k * a->rank + j],
           m = a->low.first ? (double)a->low.first[at] : x,
           v = a->low.second ? (double)a->low.second[at]
                             : (double)a->of_channel[k] * (double)a->of_vector[j] / a->mean,
           root = sqrt(v) + a->eps;
    if (!isfinite(m) || !(root > 0.0) || !isfinite(root))
        return;
    double w = fabs(m) / root, near = 1e-4 * w * w; /* only chooses between the two bounds */
    struct adapted one = a->low.second ? range_of(a, at, x, e) : factored_range_of(a, k, j, m, e);
    if (!(w * w >= one.low - near && w * w <= one.high + near)) {
        double off = e / root < 0.25 ? e / root * (a->takes + 4.0 / 3.0 * w) : a->takes + w;
        one.low = fmax(w - off, 0.0) * fmax(w - off, 0.0);
        one.high = (w + off) * (w + off);
    }
    all->now += w * w;
    all->low += fmin(one.low, w * w);
    all->high += fmax(one.high, w * w);
}

/* The relative error of the norm of the adapted numbers. */
static double adapted_share(const struct adapted *a)
{
    return a->now > 0.0 ? fmax(sqrt(a->high / a->now) - 1.0, 1.0 - sqrt(a->low / a->now)) : 0.0;
}

/* The root of the errors' squares over that of the numbers'. */
static double share_of(double errors, double squares)
{
    return squares > 0.0 ? sqrt(errors / squares) : 0.0;
}

/* SHARE and COUNTS of all channels; up: what a factor is multiplied by at most. */
static void factors_of(struct qm_adafactor8_replay *r, const struct projection *a, double up,
                       struct qm_adafactor8_channel *channel)
{
    double all = 0.0, all_errors = 0.0, most = 0.0;
    int is_known = a->low.second || a->of_channel;
    struct adapted whole = {0};
    for (int64_t k = 0; k < a->channels; k++) {
        double squares = 0.0, errors = 0.0;
        struct adapted adapted = {0};
        for (int64_t j = 0; j < a->rank; j++) {
            double x = a->x[k * a->rank + j], e = a->e[k * a->rank + j];
            squares += x * x;
            errors += e * e;
            if (is_known)
                add_adapted(a, k, j, &adapted);
        }
        channel[k].share = 0.5 * (share_of(errors, squares) + adapted_share(&adapted));
        whole.now += adapted.now;
        whole.low += adapted.low;
        whole.high += adapted.high;
        channel[k].factor = up * counts_over((double)a->rank, squares);
        most = fmax(most, channel[k].share);
        all += squares;
        all_errors += errors;
    }
    int is_one = r->recipe.hyper.tensor_scale;
    if (is_one)
        most = 0.5 * (share_of(all_errors, all) + adapted_share(&whole));
    for (int64_t k = 0; is_one && k < a->channels; k++) {
        channel[k].share = most;
        channel[k].factor = up * counts_over((double)(a->rank * a->channels), all);
    }
    r->channels.most_share = most;
}

/* Sets the three errors of N (the header) from those of the channels.  A channel's step is its
 * factor times |g|, multiplied by at most `rate` and `up`: the learning rate, and what else a
 * factor is multiplied by. */
static void norm_of(struct qm_adafactor8_replay *r, const struct projection *a, double rate,
                    double up, const float *step, const struct qm_adafactor8_channel *channel)
{
    struct qm_adafactor8_channels *n = &r->channels;
    double all = squares_of(step, r->n, 1), all_g = squares_of(a->g, r->n, 1), most = 0.0,
           counts = 0.0, absolute = 0.0;
    int is_one = r->recipe.hyper.tensor_scale;
    for (int64_t k = 0; k < a->channels; k++) {
        double of_g = gradient_squares(a, a->g, k), of_step = gradient_squares(a, step, k);
        double w = of_g > 0.0 ? (all > 0.0 ? of_step / all : 1.0) : 0.0;
        double share = fmin(2.0 * channel[k].share, 1.0), c = counts_within((double)a->inner, of_g);
        int is_small = !(sqrt(of_step / of_g) >= LEAST_ROOT * rate * up) && !is_one;
        double factor =
            channel[k].factor > 0.0 ? channel[k].factor + (is_small ? sqrt(COUNT) : 0.0) : 0.0;
        n->norm_share += w * share;
        most = w > 0.0 ? fmax(most, share) : most;
        counts += w * c * c;
        absolute += of_g > 0.0 ? factor * factor * of_g : 0.0;
    }
    n->norm_share = fmin(n->norm_share, most);
    n->norm_counts = is_one ? counts_within((double)r->n, all_g) : sqrt(counts);
    n->norm_absolute = sqrt(absolute);
}

qm_status qm_adafactor8_channels_of(struct qm_adafactor8_replay *r, int64_t t, const float *before,
                                    const float *step, const struct qm_adafactor8_moments *moments,
                                    struct qm_adafactor8_channel *channel)
{
    const struct qm_hyper *h = &r->recipe.hyper;
    r->channels = (struct qm_adafactor8_channels){.of = NULL};
    if (r->terms == 0 || !r->proj)
        return QM_OK;
    struct projection a = projection_of(r, t);
    int64_t low = a.rank * a.channels;
    double *room = calloc((size_t)(2 * low + a.rank + a.channels) + 1, sizeof *room);
    if (!room)
        return qm_fail(QM_NO_MEMORY, "a projection of %lld numbers", (long long)low);
    a.x = room;
    a.e = room + low;
    a.channel_off = a.e + low;
    a.vector_off = a.channel_off + a.channels;
    moments_of(r, t, moments, &a);
    project_all(&a);
    if (a.of_channel)
        factors_off(&a);
    double up = fmax(h->scale, 1.0) / (1.0 - pow(fmax(h->beta1, 0.0), (double)t)), most_p = 0.0,
           rate = qm_adafactor8_rate_of(r, before, h->scale_parameter), sum = 0.0;
    for (int64_t k = 0; k < a.rank; k++)
        most_p = fmax(most_p, a.is_right ? squares_of(a.p + k * a.cols, a.cols, 1)
                                         : squares_of(a.p + k, a.rows, a.rank));
    for (int64_t k = 0; k < a.channels; k++) {
        channel[k].sum =
            (double)a.inner * QM_STEP_U * sqrt(gradient_squares(&a, a.g, k)) * sqrt(most_p);
        sum += channel[k].sum * channel[k].sum / (double)a.channels;
    }
    r->channels.of = channel;
    r->channels.mean_sum = sqrt(sum);
    factors_of(r, &a, up, channel);
    norm_of(r, &a, rate, up, step, channel);
    free(room);
    return QM_OK;
}

int64_t qm_adafactor8_channel_of(const struct qm_adafactor8_replay *r, int64_t k)
{
    int64_t rows = r->shape.dim[0], cols = r->n / rows;
    return rows >= cols ? k / cols : k % cols;
}

int64_t qm_adafactor8_projected_channel(const struct qm_adafactor8_replay *r, int64_t k)
{
    int64_t rows = r->shape.dim[0], cols = r->n / rows;
    return rows >= cols ? k / (int64_t)r->recipe.hyper.rank : k % cols;
}

double qm_adafactor8_projected_off(const struct qm_adafactor8_replay *r, int i, int64_t k)
{
    const struct qm_adafactor8_channel *of = r->channels.of;
    int64_t rows = r->shape.dim[0], cols = rows > 0 ? r->n / rows : 0;
    if (!of)
        return 0.0;
    if (i == QM_ADAFACTOR8_M || i == QM_ADAFACTOR8_V)
        return of[qm_adafactor8_projected_channel(r, k)].sum;
    if (i != QM_ADAFACTOR8_ROW && i != QM_ADAFACTOR8_COL)
        return 0.0;
    return (i == QM_ADAFACTOR8_ROW) == (rows >= cols) ? of[k].sum : r->channels.mean_sum;
}

double qm_adafactor8_squares_end_off(const struct qm_adafactor8_replay *r, const float *x,
                                     int64_t from, int64_t n, int is_least)
{
    double end = is_least ? HUGE_VAL : 0.0, low = end, high = end;
    if (!r->channels.of)
        return 0.0;
    for (int64_t k = from; k < from + n; k++) {
        double v = (double)x[k], e = qm_adafactor8_projected_off(r, QM_ADAFACTOR8_V, k),
               off = e * (2.0 * sqrt(v) + e);
        if (!isfinite(v) || !(v > 0.0))
            continue;
        end = is_least ? fmin(end, v) : fmax(end, v);
        low = is_least ? fmin(low, v - off) : fmax(low, v - off);
        high = is_least ? fmin(high, v + off) : fmax(high, v + off);
    }
    if (!(end > 0.0) || end == HUGE_VAL)
        return 0.0;
    return fmax(log2(high / end), log2(end / fmax(low, COUNT)));
}

double qm_adafactor8_moments_end_off(const struct qm_adafactor8_replay *r, const float *x,
                                     int64_t from, int64_t n)
{
    double end = 0.0, low = 0.0, high = 0.0, keep = fmin(1.0 - r->recipe.hyper.beta1, 1.0);
    for (int64_t k = from; r->channels.of && k < from + n; k++) {
        double m = fabs((double)x[k]);
        double off = keep * qm_adafactor8_projected_off(r, QM_ADAFACTOR8_M, k);
        if (!isfinite(m))
            continue;
        end = fmax(end, m);
        low = fmax(low, m - off);
        high = fmax(high, m + off);
    }
    return fmax(high - end, end - low);
}

double qm_adafactor8_rate_of(const struct qm_adafactor8_replay *r, const float *before,
                             int is_scaled)
{
    const struct qm_hyper *h = &r->recipe.hyper;
    double mean = squares_of(before, r->n, 1) / (double)r->n;
    return is_scaled ? fabs(h->lr) * fmax(h->eps2, sqrt(mean)) : fabs(h->lr);
}
