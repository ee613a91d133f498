/* edge_lines.h - 8-bit dynamic codes by proved straight lines instead of a search.
 *
 * An edge is the smallest unit value of a code.  Within a decade the edges of a dynamic map are
 * evenly spaced, so the code of |y| is the integer part of a straight line.  Seven decades and the
 * last cell make eight segments.  The edge between two decades lies off both lines; a second line,
 * flatter by the factor QM_EDGE_LINES_BEND, meets it, and the smaller of the two lines counts.  In
 * float32, with m = min(max(|y|, 2^-23), 1) in segment s:
 *
 *     line = fmaf(m, slope[s], offset[s])
 *     u    = min(line, fmaf(line, QM_EDGE_LINES_BEND, bend[s]))
 *
 * u lies in [128, 512), so that its bits 16 to 23 are the number of edges between 0 and y, unless
 * its bits QM_EDGE_LINES_SURE are all zero: then an edge is too near to tell, and the caller
 * searches.  For y < 0 the number counts downward from position `zero`, and stops at 0.  Every step
 * is monotone in m, so checking both sides of each edge and both ends of each segment proves this
 * for all floats; qm_edge_lines_build does it. */
#ifndef QM_QUANT_EDGE_LINES_H
#define QM_QUANT_EDGE_LINES_H

#include "core/base/dual.h"

#define QM_EDGE_LINES_BEND 0.3f
#define QM_EDGE_LINES_TINY 1.1920928955078125e-7f /* 2^-23, below the first edge */
#define QM_EDGE_LINES_SURE 0xfff8

enum { QM_EDGE_LINES_SEGMENTS = 8 };

struct qm_edge_lines {
    int usable; /* 1: proved for these edges; 0: all other members are undefined */
    int zero;   /* position of y = 0 */
    /* Segment i ends at end[i], inclusive; the low four bits of end[i] are i.  end[7] is
     * above 1. */
    float end[QM_EDGE_LINES_SEGMENTS];
    /* Indexed by the low five bits of m's exponent field: the end that lies in this binade or, if
     * none does, a large number.  Its low four bits are the segment of the binade's first float. */
    float end_by_binade[32];
    /* The integer part of fmaf((float)bits of m, guess_slope, guess_offset) is the segment or
     * one less. */
    float guess_slope, guess_offset;
    /* The lines, stored twice: entry i + QM_EDGE_LINES_SEGMENTS repeats entry i. */
    float slope[2 * QM_EDGE_LINES_SEGMENTS], offset[2 * QM_EDGE_LINES_SEGMENTS];
    float bend[2 * QM_EDGE_LINES_SEGMENTS];
};

/* Fits and proves lines for 255 ascending edges, edge[k] = the smallest float32 of code k + 1.  Any
 * edges may be given; usable becomes 1 only for those of 8-bit dynamic maps. */
void qm_edge_lines_build(const float *edge, struct qm_edge_lines *s);

#endif
