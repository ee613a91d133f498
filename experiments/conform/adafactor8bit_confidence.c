/* adafactor8bit_confidence.c - Computes what the numbers of CAME's confidence may be off by.
 *
 * COUNTS  To 0.2.5 the package forms a mean of ((g - M) / sqrt(V))^2, V = row col / mean, as
 *         by (t1 - 2 t2 + t3), where t1, t2, t3 are sums of w g^2, w g M and w M^2 over n; of a row
 *         by = mean / row and w = 1 / col, of a column by = 1 / col and w = mean / row.  Squares
 *         below 2^-126 are whole counts q = 2^-149, each of g^2, g M, M^2 off by q / 2; but they
 *         are the same on both sides, for each is one operation on numbers that are, so nothing of
 *         that is an error.  Three things are:
 *         - the rule floors the count of each element, (g g) - 2 (g M) + (M M), at 0, where the
 *           package floors that of their sum: by the sum of w times those below 0, over n, `shift`,
 *           which is known and has a sign;
 *         - a product w p or a quotient t that is below 2^-126 itself, as that of a normal square
 *           may be, is rounded to q: by (1 + 2 + 1) q, `counts`; nothing where all products are 0
 *           or normal;
 *         - a mean of rows below 2^-126 is a count, too, and divides all V of its matrix: it is
 *           rounded here as the package rounds it, and belongs to `shift`.
 *         An average takes in 1 - beta3 of them.  The factor of a step is max(row conf, eps1^2), so
 *         these, like the errors of sums that cancel, reach a step only above that floor: rows
 *         whose squares vanish have the floor whatever their confidence is, and the step is
 *         certain.  Where shift and counts are half of a factor and more, none of its digits is
 *         known, and the case is skipped.
 *         A step that divides by the factors without a confidence, or as CAME from 0.2.6 on before
 *         it averages, has the root of the mean's rounding: sqrt(rounded / mean) - 1
 *         (`mean_counts`), once for its size and once for its norm.  Such means are only where eps1
 *         is below 2^-126.
 *         A product g sqrt(mean / row) below 2^-126 is off by q / 2, over the root of col
 *         (`direction`), which a momentum of updates takes in.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "experiments/conform/adafactor8bit_tolerance.h"

/* The largest mean of the terms of a row (or column), and of what they add up to. */
struct sizes {
    double terms, sum;
};

static void add_line(struct sizes *s, double terms, double sum, int64_t n, double *of_line)
{
    *of_line = terms / (double)n;
    if (isfinite(terms) && isfinite(sum)) {
        s->terms = fmax(s->terms, terms / (double)n);
        s->sum = fmax(s->sum, sum / (double)n);
    }
}

/* The matrices that a confidence is of: second moments after a step, the momentum m before it, of
 * which the step keeps `keep`. clip: what the direction is divided by; 0: CAME to 0.2.5, whose
 * momentum is of gradients. Second moments count as `floor` at least, means as `least`. */
struct matrices {
    const float *g, *m, *row, *col;
    int64_t batch, rows, cols;
    double clip, keep, floor, least, eps; /* eps: what is added to each square */
    int turns;
    double *terms[2]; /* [batch rows], [batch cols]: the means of the terms */
    const float *now; /* the momentum after the step, where products are counts, or NULL */
    double *shift[2], *counts[2]; /* as COUNTS has them, of means that the confidence takes in */
    double factor;                /* the least factor of a step; 0: confidences are factors */
};

enum { COUNTS_OF_SUM = 4 }; /* t1 - 2 t2 + t3 */

/* The two numbers of element i, j of matrix b whose difference is squared; mean: of its rows. */
static void pair_of(const struct matrices *a, int64_t b, int64_t i, int64_t j, double mean,
                    double pair[2])
{
    int64_t e = (b * a->rows + i) * a->cols + j;
    double row = fmax((double)a->row[b * a->rows + i], a->floor);
    double v = row * fmax((double)a->col[b * a->cols + j], a->floor) / mean;
    double g = (double)(a->turns ? -a->g[e] : a->g[e]) / sqrt(v);
    pair[0] = a->clip > 0.0 ? g / a->clip : g;
    pair[1] = a->clip > 0.0 ? (double)a->m[e] : (double)a->m[e] / sqrt(v);
    pair[1] = a->keep * pair[1] + (1.0 - a->keep) * pair[0];
}

/* rounded: NULL, or what float32 has of a mean below 2^-126 over the mean. */
static double mean_of_rows(const struct matrices *a, int64_t b, double *rounded)
{
    double mean = 0.0;
    for (int64_t i = 0; i < a->rows; i++)
        mean += (double)a->row[b * a->rows + i] / (double)a->rows;
    mean = mean < a->least ? a->least : mean;
    if (rounded)
        *rounded = mean > 0.0 && mean < (double)FLT_MIN ? (double)(float)mean / mean : 1.0;
    return mean;
}

/* The floors of the package, of a second moment and of a mean. 0.4.x has none of the former. */
static void set_floors(const struct qm_adafactor8_replay *r, struct matrices *a)
{
    double eps1 = r->recipe.hyper.eps1;
    int is_046 = strncmp(r->recipe.rule->name, "adafactor8_046", 14) == 0;
    a->least = eps1 >= 0.0 ? eps1 : is_046 ? 1e-30 : (double)FLT_EPSILON;
    a->floor = is_046 ? 0.0 : fmax(a->least * a->least, (double)FLT_MIN);
}

/* The RMS of the direction before it is clipped. */
static double rms_of(const struct matrices *a)
{
    double squares = 0.0, x[2];
    for (int64_t b = 0; b < a->batch; b++) {
        double mean = mean_of_rows(a, b, NULL);
        for (int64_t k = 0; k < a->rows * a->cols; k++) {
            pair_of(a, b, k / a->cols, k % a->cols, mean, x);
            squares += x[0] * x[0];
        }
    }
    return sqrt(squares / (double)(a->batch * a->rows * a->cols));
}

/* What an element adds to its row and its column: the size of its terms; what they add up to, in
 * the package (`sum`) and here (`here`); the least size of its products that is not 0. */
struct element {
    double size, sum, here, least;
};

/* Of element e of V = v: where its products may be counts, each rounded to float32. */
static struct element element_of(const struct matrices *a, int64_t e, double v, const double x[2])
{
    float g = a->turns ? -a->g[e] : a->g[e], m = a->now ? a->now[e] : 0.0f;
    double both = fabs(x[0]) + fabs(x[1]), off = x[0] - x[1];
    struct element one = {both * both, off * off, off * off, HUGE_VAL};
    if (a->clip > 0.0) {
        one.size = 2.0 * fabs(x[0] * off);
        one.sum = one.here = off * off + a->eps;
    }
    if (!a->now)
        return one;
    double gg = (double)(g * g), gm = (double)(g * m), mm = (double)(m * m);
    const double size[3] = {gg, fabs(gm), mm};
    for (int k = 0; k < 3; k++)
        one.least = size[k] > 0.0 ? fmin(one.least, size[k]) : one.least;
    if (!(fabsf(g) < 0x1p-63f) || !(fabsf(m) < 0x1p-63f)) /* the rule forms their difference */
        return one;
    one.size = (gg + 2.0 * fabs(gm) + mm) / v;
    one.sum = (gg - 2.0 * gm + mm) / v;
    one.here = fmax(one.sum, 0.0);
    return one;
}

/* The sums over a row or a column of n elements, which is number k of its axis. */
struct line {
    double size, sum, here, least;
};

static void add_element(struct line *s, struct element one, double w)
{
    s->size += one.size;
    s->sum += one.sum;
    s->here += one.here;
    s->least = fmin(s->least, one.least * w);
}

/* rounded: as mean_of_rows has it. */
static void end_line(const struct matrices *a, int axis, int64_t k, const struct line *s, int64_t n,
                     double by, double rounded, struct sizes *most)
{
    double shift = (fmax(s->sum * rounded, 0.0) - s->here) / (double)n,
           counts = s->least < (double)n * (double)FLT_MIN ? COUNTS_OF_SUM * 0x1p-149 * by : 0.0;
    add_line(most, s->size, s->here, n, &a->terms[axis][k]);
    a->shift[axis][k] = a->now && isfinite(shift) ? shift : 0.0;
    a->counts[axis][k] = a->now && isfinite(counts) ? counts : 0.0;
}

/* Adds the rows and the columns of matrix b; of_col: room for cols lines. */
static void add_matrix(const struct matrices *a, int64_t b, struct line *of_col,
                       struct sizes most[2])
{
    double rounded, mean = mean_of_rows(a, b, &rounded), x[2];
    for (int64_t j = 0; j < a->cols; j++)
        of_col[j] = (struct line){0.0, 0.0, 0.0, HUGE_VAL};
    for (int64_t i = 0; i < a->rows; i++) {
        struct line of_row = {0.0, 0.0, 0.0, HUGE_VAL};
        double here = mean / fmax((double)a->row[b * a->rows + i], a->floor), by = here * rounded;
        for (int64_t j = 0; j < a->cols; j++) {
            double col = fmax((double)a->col[b * a->cols + j], a->floor);
            pair_of(a, b, i, j, mean, x);
            struct element one = element_of(a, (b * a->rows + i) * a->cols + j, col / here, x);
            add_element(&of_row, one, 1.0 / col);
            add_element(&of_col[j], one, by);
        }
        end_line(a, 0, b * a->rows + i, &of_row, a->cols, by, rounded, &most[0]);
    }
    for (int64_t j = 0; j < a->cols; j++)
        end_line(a, 1, b * a->cols + j, &of_col[j], a->rows,
                 1.0 / fmax((double)a->col[b * a->cols + j], a->floor), rounded, &most[1]);
}

/* The relative error of a number of which only the ends are known: of its inverse root. */
static double relative_of(double low, double at, double high)
{
    return high <= low ? 0.0 : at > 0.0 ? fmax(1.0 - low / at, high / at - 1.0) : HUGE_VAL;
}

/* The relative error of the mean of the rows' factors, of each matrix; off: the errors of the
 * confidences. */
static void set_mean_off(struct qm_adafactor8_replay *r, const struct matrices *a,
                         const float *conf, const double *off, double *mean)
{
    for (int64_t b = 0; b < a->batch; b++) {
        double low = 0.0, at = 0.0, high = 0.0, least = a->factor > 0.0 ? a->least : 0.0;
        for (int64_t k = b * a->rows; k < (b + 1) * a->rows; k++) {
            double row = (double)a->row[k], both = row * (double)conf[k], of = row * off[k];
            if (!isfinite(both))
                continue;
            low += fmax(both - of, a->factor) / (double)a->rows;
            at += fmax(both, a->factor) / (double)a->rows;
            high += fmax(both + of, a->factor) / (double)a->rows;
        }
        mean[b] =
            at > 0.0 ? relative_of(fmax(low, least), fmax(at, least), fmax(high, least)) : 0.0;
    }
    r->mean_off = mean;
}

/* The numbers of slot i after a step, before they are coded where x has them. */
static const float *numbers_of(struct qm_conform *c, const struct qm_adafactor8_replay *r,
                               void *plan, float *const *x, int i)
{
    if (r->slot[i].codes && x && x[i])
        return x[i];
    float *out = qm_golden_case_memory(c, r->slot[i].n, sizeof *out);
    return out && qm_backend_cpu.decode(plan, i, out) == QM_OK ? out : NULL;
}

/* The errors of one axis of the confidence, from the means of the terms. */
static int off_axis(struct qm_conform *c, struct qm_adafactor8_replay *r, void *plan,
                    float *const *x, int axis, const struct matrices *a)
{
    int64_t n = a->batch * (axis ? a->cols : a->rows);
    double *off = a->terms[axis], *shift = a->shift[axis], *counts = a->counts[axis],
           *step = qm_golden_case_memory(c, n, sizeof *step),
           *mean = qm_golden_case_memory(c, a->batch, sizeof *mean),
           keep = 1.0 - r->recipe.hyper.beta3;
    const float *factor = axis ? a->col : a->row,
                *conf = numbers_of(c, r, plan, x,
                                   axis ? QM_ADAFACTOR8_CONF_COL : QM_ADAFACTOR8_CONF_ROW);
    double one = QM_STEP_CONF_LARGEST + 4.5 * QM_STEP_U * (double)r->products +
                 (r->products > 0 ? 0.0 : QM_STEP_NORM(r->n) + r->mean_counts);
    if (!conf || !mean || !step)
        return 0;
    for (int64_t k = 0; k < n; k++) {
        off[k] *= keep * one;
        shift[k] *= keep;
        counts[k] *= keep;
        step[k] = (isfinite(off[k]) ? off[k] : 0.0) + fabs(shift[k]) + counts[k];
    }
    if (axis == 0)
        set_mean_off(r, a, conf, step, mean);
    for (int64_t k = 0; k < n; k++) {
        double size = off[k], of = (double)conf[k], row = (double)factor[k], all = step[k],
               small = fabs(shift[k]) + counts[k];
        off[k] = !(size > 0.0) || !isfinite(of) ? 0.0 : of > 0.0 ? size / of : HUGE_VAL;
        r->off[axis].most = fmax(r->off[axis].most, off[k]);
        step[k] = !isfinite(of) ? 0.0
                  : a->factor > 0.0
                      ? relative_of(fmax(row * (of - all), a->factor), fmax(row * of, a->factor),
                                    fmax(row * (of + all), a->factor))
                      : off[k];
        if (!(step[k] < 0.5) && small > 0.0 &&
            !(relative_of(fmax(row * (of - small), a->factor), fmax(row * of, a->factor),
                          fmax(row * (of + small), a->factor)) < 0.5))
            r->is_lost = 1;
    }
    r->off[axis].of = off;
    r->off[axis].step = step;
    r->off[axis].shift = shift;
    r->off[axis].counts = counts;
    r->off[axis].x = conf;
    return 1;
}

/* The root of what the rounding of a mean of rows makes of a matrix, at most. */
static double mean_counts(const struct matrices *a)
{
    double most = 0.0, rounded;
    for (int64_t b = 0; b < a->batch; b++) {
        mean_of_rows(a, b, &rounded);
        most = fmax(most, fabs(sqrt(rounded) - 1.0));
    }
    return 2.0 * most;
}

/* What the rounding of g sqrt(mean / row) to a count of 2^-149 makes of each direction, which is
 * that over the root of col; NULL: no memory. */
static const double *direction_counts(struct qm_conform *c, const struct matrices *a)
{
    int64_t n = a->batch * a->rows * a->cols;
    double *out = qm_golden_case_memory(c, n, sizeof *out);
    double mean = 0.0;
    for (int64_t e = 0; out && e < n; e++) {
        int64_t row = e / a->cols, b = row / a->rows;
        mean = e % (a->rows * a->cols) == 0 ? mean_of_rows(a, b, NULL) : mean;
        double by = fmax((double)a->row[row], a->floor),
               col = fmax((double)a->col[b * a->cols + e % a->cols], a->floor),
               x = fabs((double)a->g[e]) * sqrt(mean / by);
        out[e] = x > 0.0 && x < (double)FLT_MIN && col > 0.0 ? 0x1p-150 / sqrt(col) : 0.0;
    }
    return out;
}

/* Room for the numbers of both axes; 0: no memory. */
static int axes_open(struct qm_conform *c, struct matrices *a)
{
    for (int k = 0; k < 2; k++) {
        int64_t n = a->batch * (k ? a->cols : a->rows);
        a->terms[k] = qm_golden_case_memory(c, n, sizeof(double));
        a->shift[k] = qm_golden_case_memory(c, n, sizeof(double));
        a->counts[k] = qm_golden_case_memory(c, n, sizeof(double));
        if (!a->terms[k] || !a->shift[k] || !a->counts[k])
            return 0;
    }
    return 1;
}

double qm_adafactor8_cancels(struct qm_conform *c, struct qm_adafactor8_replay *r, void *plan,
                             const float *m, float *const *x, int64_t t)
{
    const struct qm_hyper *h = &r->recipe.hyper;
    const char *rule = r->recipe.rule->name;
    int is_cuda = strstr(rule, "_cuda") && r->slot[QM_ADAFACTOR8_ROW].codes,
        has_conf = r->slot[QM_ADAFACTOR8_CONF_ROW].n > 0 && (r->products > 0 || r->is_update);
    r->off[0] = r->off[1] = (struct qm_adafactor8_off){.of = NULL};
    r->norm_off = r->mean_counts = 0.0;
    r->is_lost = 0;
    r->direction = NULL;
    if (r->slot[QM_ADAFACTOR8_ROW].n == 0 || r->terms > 0)
        return 1.0;
    int64_t rows = r->shape.dim[r->shape.rank - 2], cols = r->shape.dim[r->shape.rank - 1];
    struct matrices a = {.g = r->grads + (t - 1) * r->n,
                         .m = m,
                         .batch = r->n / rows / cols,
                         .rows = rows,
                         .cols = cols,
                         .keep = h->beta1,
                         .turns = h->maximize};
    set_floors(r, &a);
    if (r->products > 0 && !is_cuda) {
        a.factor = a.floor;
        a.now = numbers_of(c, r, plan, x, QM_ADAFACTOR8_M);
    }
    a.row = numbers_of(c, r, plan, is_cuda ? NULL : x, QM_ADAFACTOR8_ROW);
    a.col = numbers_of(c, r, plan, is_cuda ? NULL : x, QM_ADAFACTOR8_COL);
    struct line *of_col = qm_golden_case_memory(c, cols, sizeof *of_col);
    if (!a.row || !a.col || !of_col || (r->products > 0 && !is_cuda && !a.now))
        return 1.0;
    if (r->products == 0 && a.floor > 0.0)
        r->mean_counts = mean_counts(&a);
    if (r->is_update)
        r->direction = direction_counts(c, &a);
    if (!has_conf || !axes_open(c, &a))
        return 1.0;
    struct sizes most[2] = {{0.0, 0.0}, {0.0, 0.0}};
    double ratio = 1.0;
    if (r->products == 0)
        a.clip = h->clip > 0.0 ? fmax(rms_of(&a) / h->clip, 1.0) : 1.0;
    a.eps = h->eps;
    for (int64_t b = 0; b < a.batch; b++)
        add_matrix(&a, b, of_col, most);
    for (int k = 0; k < 2; k++)
        ratio = most[k].sum > 0.0     ? fmax(ratio, most[k].terms / most[k].sum)
                : most[k].terms > 0.0 ? HUGE_VAL
                                      : ratio;
    if (!off_axis(c, r, plan, x, 0, &a) || !off_axis(c, r, plan, x, 1, &a))
        return 1.0;
    return ratio;
}

void qm_adafactor8_counts_of(const struct qm_adafactor8_replay *r, int i, int64_t k, double of[2])
{
    const struct qm_adafactor8_off *off = &r->off[i == QM_ADAFACTOR8_CONF_COL];
    int is_conf = i == QM_ADAFACTOR8_CONF_ROW || i == QM_ADAFACTOR8_CONF_COL;
    of[0] = of[1] = 0.0;
    if (!is_conf || !off->counts)
        return;
    of[0] = fmax(-off->shift[k], 0.0) + off->counts[k];
    of[1] = fmax(off->shift[k], 0.0) + off->counts[k];
}

double qm_adafactor8_counts_log(const struct qm_adafactor8_replay *r, int i, int64_t from,
                                int64_t n)
{
    double low = (double)FLT_MIN, high = low, of[2];
    const struct qm_adafactor8_off *off = &r->off[i == QM_ADAFACTOR8_CONF_COL];
    for (int64_t k = from; off->counts && k < from + n; k++) {
        qm_adafactor8_counts_of(r, i, k, of);
        low = fmax(low, (double)off->x[k] - of[0]);
        high = fmax(high, (double)off->x[k] + of[1]);
    }
    return isfinite(low) && isfinite(high) ? log2(high / low) : 0.0;
}
