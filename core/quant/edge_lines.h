/* edge_lines.h - 8-bit dynamic codes without a search: straight lines that prove themselves.
 *
 * Within a decade the edges of a dynamic map are evenly spaced, so the code of |y| is the whole
 * part of a straight line; seven decades and the last cell make eight segments.  The edge between
 * two decades lies off both lines; a second line, flatter by QM_EDGE_LINES_BEND, meets it, and the
 * smaller of the two counts.  In float32, with m = min(max(|y|, 2^-23), 1) in segment s:
 *
 *     line = fmaf(m, slope[s], offset[s])
 *     u    = min(line, fmaf(line, QM_EDGE_LINES_BEND, bend[s]))
 *
 * u lies in [128, 512) so that bits 16 to 23 of it are the number of edges between 0 and y, unless
 * the bits of QM_EDGE_LINES_SURE are all zero: then an edge is too near to tell.  y below zero counts
 * downward from `zero`, not below 0.  Every step is monotone in m, so checking both sides of each
 * edge and the ends of each segment proves this for all floats; qm_edge_lines_build does. */
#ifndef QM_QUANT_EDGE_LINES_H
#define QM_QUANT_EDGE_LINES_H

#include "core/base/dual.h"

#define QM_EDGE_LINES_BEND 0.3f
#define QM_EDGE_LINES_TINY 1.1920928955078125e-7f /* 2^-23, below the first edge */
#define QM_EDGE_LINES_SURE 0xfff8

enum { QM_EDGE_LINES_SEGMENTS = 8 };

struct qm_edge_lines {
    int usable; /* proved for these edges; all else is undefined when 0 */
    int zero;   /* position of y = 0 */
    /* Segment i ends at end[i], inclusive; the low four bits of it are i.  end[7] is above 1. */
    float end[QM_EDGE_LINES_SEGMENTS];
    /* By the low five bits of m's exponent field: the end that lies in this binade or, where none
     * does, a large number; its low four bits are the segment at the binade's beginning. */
    float end_by_binade[32];
    /* The whole part of fmaf((float)bits of m, guess_slope, guess_offset) is the segment or one
     * less. */
    float guess_slope, guess_offset;
    float slope[2 * QM_EDGE_LINES_SEGMENTS], offset[2 * QM_EDGE_LINES_SEGMENTS],
        bend[2 * QM_EDGE_LINES_SEGMENTS]; /* twice */
};

/* Fits and proves segments for 255 ascending edges, edge[k] = the smallest float32 of code k + 1.
 * Any edges may be given; all but those of 8-bit dynamic maps end as not usable. */
void qm_edge_lines_build(const float *edge, struct qm_edge_lines *s);

#endif
