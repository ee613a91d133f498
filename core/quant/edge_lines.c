/* edge_lines.c - Fits the straight lines of 8-bit dynamic maps, and proves that they are exact. */
#include "core/quant/edge_lines.h"

#include <string.h>

enum { EDGES = 255, DECADES = 7, HALF_DOUBT = 4 };

/* The bits of u at which code k begins. */
static uint32_t begin_bits(int k) { return 0x43000000u + ((uint32_t)k << 16); }

/* The value that a line should have at the edge below code k: the middle of the doubtful bits. */
static double target(int k) { return (double)qm_float(begin_bits(k) + HALF_DOUBT); }

/* Line i has this slope and the value u at x. */
static void line_through(struct qm_edge_lines *s, int i, double x, double u, double slope)
{
    s->slope[i] = (float)slope;
    s->offset[i] = (float)(u - slope * x);
    s->bend[i] = 1e9f; /* the bent line is never the smaller one */
}

/* Fits the lines to the edges of the side that has the code of 1.0: e[k] is the smallest magnitude
 * of code k + 1 there. */
static void fit(const float *e, int is_signed, struct qm_edge_lines *s)
{
    for (int i = 0, first = 1; i < DECADES; i++) {
        int cells = 1 << (is_signed ? i : i + 1);
        int low = i ? first : 0, high = first + cells - 2, next = high + 1;
        double x = (double)e[low], after = (double)e[next];
        /* a decade with a single edge: the next edge is two of this decade's steps away */
        double slope = low < high ? (target(high + 1) - target(low + 1)) / ((double)e[high] - x)
                                  : 2.0 / (after - x);
        line_through(s, i, x, target(low + 1), slope);
        first += cells;
        if (i + 1 < DECADES) {
            double at = (double)s->slope[i] * after + (double)s->offset[i];
            s->bend[i] = (float)(target(next + 1) - (double)QM_EDGE_LINES_BEND * at);
            s->end[i] = (float)(after + 0.55 * ((double)e[next + 1] - after));
        } else {
            double before = (double)e[high];
            s->end[i] = (float)(before + 0.5 * (after - before));
            line_through(s, i + 1, after, target(next + 1),
                         (target(next + 1) - target(high + 1)) / (after - before));
        }
    }
    s->end[QM_EDGE_LINES_SEGMENTS - 1] = qm_float(0x7f000000u);
    for (uint32_t i = 0; i < QM_EDGE_LINES_SEGMENTS; i++) {
        s->end[i] = qm_float((qm_bits(s->end[i]) & ~15u) | i);
        s->slope[i + QM_EDGE_LINES_SEGMENTS] = s->slope[i];
        s->offset[i + QM_EDGE_LINES_SEGMENTS] = s->offset[i];
        s->bend[i + QM_EDGE_LINES_SEGMENTS] = s->bend[i];
    }
}

static uint32_t line_bits(const struct qm_edge_lines *s, int i, float m)
{
    float line = fmaf(m, s->slope[i], s->offset[i]);
    float bent = fmaf(line, QM_EDGE_LINES_BEND, s->bend[i]);
    return qm_bits(line < bent ? line : bent);
}

/* Proves segment i against the edges e[0 .. n): compares both ends of the segment and both sides of
 * each edge.  If is_saturated, magnitudes above all n edges may have codes beyond n. */
static int is_proved(const struct qm_edge_lines *s, int i, const float *e, int n, int is_saturated)
{
    float low = i ? qm_unordered(qm_ordered(s->end[i - 1]) + 1) : QM_EDGE_LINES_TINY;
    float high = i + 1 < QM_EDGE_LINES_SEGMENTS ? s->end[i] : 1.0f;
    int k = 0;
    while (k < n && e[k] <= low)
        k++;
    if (!(low < high) || line_bits(s, i, low) < begin_bits(k))
        return 0;
    for (; k < n && e[k] <= high; k++) {
        float before = qm_unordered(qm_ordered(e[k]) - 1);
        if (line_bits(s, i, before) >= begin_bits(k + 1) + 2 * HALF_DOUBT ||
            line_bits(s, i, e[k]) < begin_bits(k + 1))
            return 0;
    }
    return (k == n && is_saturated) || line_bits(s, i, high) < begin_bits(k + 1) + 2 * HALF_DOUBT;
}

static int guess(const struct qm_edge_lines *s, float m)
{
    return (int)fmaf((float)(int32_t)qm_bits(m), s->guess_slope, s->guess_offset);
}

/* Builds and proves the two ways to find the segment of m: the guess and the ends by binade. */
static int index_ends(struct qm_edge_lines *s)
{
    double per_decade = 3.3219280948873623 * 8388608.0; /* bits of a float per factor of ten */
    s->guess_slope = (float)(1.0 / per_decade);
    /* the guess becomes 1 a quarter of a decade above the first end, so it always changes between
     * two ends */
    s->guess_offset = (float)(0.75 - (double)(int32_t)qm_bits(s->end[0]) / per_decade);
    for (int i = 0; i + 1 < QM_EDGE_LINES_SEGMENTS; i++)
        if (guess(s, s->end[i]) > i || guess(s, qm_unordered(qm_ordered(s->end[i]) + 1)) < i)
            return 0;
    if (guess(s, QM_EDGE_LINES_TINY) != 0 || guess(s, 1.0f) > QM_EDGE_LINES_SEGMENTS - 1)
        return 0;
    for (uint32_t field = 104; field < 136; field++) { /* 2^-23 to 1, then binades never met */
        float low = qm_float(field << 23), high = qm_float((field + 1) << 23);
        uint32_t i = 0;
        while (i + 1 < QM_EDGE_LINES_SEGMENTS && s->end[i] < low)
            i++;
        if (i + 2 < QM_EDGE_LINES_SEGMENTS && s->end[i + 1] < high)
            return 0;
        s->end_by_binade[field & 31] = s->end[i] < high ? s->end[i] : qm_float(0x7f000000u | i);
    }
    return 1;
}

void qm_edge_lines_build(const float *edge, struct qm_edge_lines *s)
{
    float up[EDGES], down[EDGES];
    int zero = 0;
    memset(s, 0, sizeof *s);
    while (zero < EDGES && edge[zero] <= 0.0f)
        zero++;
    s->zero = zero;
    if (zero != 0 && zero != 127)
        return;
    for (int k = 0; k < EDGES - zero; k++)
        up[k] = edge[zero + k];
    /* y = -m lies below the edge e < 0, which then counts, from the float after |e| on */
    for (int k = 0; k < zero; k++)
        down[k] = qm_unordered(qm_ordered(-edge[zero - 1 - k]) + 1);
    for (int k = 0; k < EDGES - zero; k++)
        if (!(up[k] > QM_EDGE_LINES_TINY && up[k] < 1.0f))
            return;
    for (int k = 0; k < zero; k++)
        if (!(down[k] > QM_EDGE_LINES_TINY && down[k] < 1.0f))
            return;
    fit(up, zero > 0, s);
    if (!index_ends(s))
        return;
    for (int i = 0; i < QM_EDGE_LINES_SEGMENTS; i++)
        if (!is_proved(s, i, up, EDGES - zero, 0) || (zero > 0 && !is_proved(s, i, down, zero, 1)))
            return;
    s->usable = 1;
}
