/* hitting_times.c - Hitting times of all levels, and area and peak between two curves. */
#include "experiments/lockstep/hitting_times.h"

#include <math.h>
#include <stdlib.h>

double qm_level_gap(int64_t level) { return pow(10.0, -(double)level / QM_LEVELS_PER_DECADE); }

/* The largest of `persistence` gaps from gap[k] on; NaN where one of them is NaN. */
static double worst(const double *gap, int64_t k, int persistence)
{
    double most = gap[k];
    for (int i = 1; i < persistence; i++)
        most = isnan(most) || gap[k + i] <= most ? most : gap[k + i];
    return most;
}

qm_status qm_hitting_times_make(const double *gap, const int64_t *step, int64_t n, int persistence,
                                int64_t *n_out, double **out)
{
    int64_t room = 64, used = 0, next = 0;
    double *hits = malloc((size_t)room * sizeof *hits), target = 1.0;
    for (int64_t k = 0; hits && k + persistence <= n; k++) {
        if (!(gap[k] <= target)) /* the usual case */
            continue;
        double x = worst(gap, k, persistence);
        if (!(x <= target))
            continue;
        for (; x <= target; target = qm_level_gap(next))
            next++;
        if (used + 2 > room) {
            room *= 2;
            double *more = realloc(hits, (size_t)room * sizeof *more);
            if (!more)
                free(hits);
            hits = more;
        }
        if (hits) {
            hits[used++] = (double)(next - 1);
            hits[used++] = (double)step[k];
        }
    }
    if (!hits)
        return qm_fail(QM_NO_MEMORY, "hits");
    *n_out = used;
    *out = hits;
    return QM_OK;
}

int64_t qm_hitting_times_step(const double *hits, int64_t n, int64_t level)
{
    for (int64_t i = 0; i + 1 < n; i += 2)
        if (hits[i] >= (double)level)
            return (int64_t)hits[i + 1];
    return -1;
}

int64_t qm_hitting_times_level(const double *hits, int64_t n)
{
    return n >= 2 ? (int64_t)hits[n - 2] : -1;
}

double qm_gap_area(const double *gap, const double *twin, const int64_t *step, int64_t n)
{
    double sum = 0.0, ratio = log10(gap[1] / (twin ? twin[1] : 1.0));
    double first = log10((double)step[1]), at = first;
    for (int64_t i = 2; i < n; i++) {
        double next = log10((double)step[i]), then = log10(gap[i] / (twin ? twin[i] : 1.0));
        sum += 0.5 * (ratio + then) * (next - at);
        at = next;
        ratio = then;
    }
    return n > 2 ? sum / (at - first) : ratio;
}

double qm_late_gap(const double *gap, const int64_t *step, int64_t n)
{
    double sum = 0.0;
    int64_t i = n;
    while (i > 0 && (i == n || 8 * step[i - 1] > 7 * step[n - 1]))
        sum += gap[--i];
    return sum / (double)(n - i);
}

double qm_gap_peak(const double *gap, const double *twin, const int64_t *step, int64_t n,
                   double *recovery)
{
    double most = gap[0] / twin[0];
    int64_t at = 0;
    for (int64_t i = 1; i < n; i++)
        if (gap[i] / twin[i] > most) {
            most = gap[i] / twin[i];
            at = i;
        }
    int64_t back = at;
    while (back < n && !(gap[back] <= 1.05 * twin[back]))
        back++;
    *recovery = back < n ? (double)(step[back] - step[at]) : HUGE_VAL;
    return log10(most);
}
