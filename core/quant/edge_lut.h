/* edge_lut.h - 4-bit codes by table look-ups instead of a search, for maps of at most 16 entries.
 *
 * A straight line takes the unit value y to a whole number of 23 bits, rounded down; its upper seven
 * bits are a cell, its lower sixteen the place in it.  A cell holds one edge or none:
 *
 *     z    = floor(128 (QM_EDGE_LUT_SLOPE y + QM_EDGE_LUT_OFFSET))     one fmaf, rounded down
 *     code = base[z >> 16] + ((z & 65535) >= edge[z >> 16])    modulo 256
 *
 * The slope may be folded with the division that makes y: with s = SLOPE / d rounded,
 * floor(128 (s x + OFFSET)) is at most one away from z, since two roundings of 2^-24 each, times
 * 128 SLOPE, are below 1/2.  So the code is exact wherever z is not the edge's own place or next to it
 * ("doubt"); there the caller divides and searches. */
#ifndef QM_QUANT_EDGE_LUT_H
#define QM_QUANT_EDGE_LUT_H

#include "core/base/dual.h"

enum { QM_EDGE_LUT_CELLS = 128 };

#define QM_EDGE_LUT_SLOPE  32640.0f
#define QM_EDGE_LUT_OFFSET 32768.5f /* 0, of which there are many, is no edge of a cell */
#define QM_EDGE_LUT_LIMIT  1.003f   /* |y| may be this large */

struct qm_edge_lut {
    int usable; /* no cell has two edges, none is next to its end; all else is undefined when 0 */
    uint8_t base
        [QM_EDGE_LUT_CELLS]; /* code below the cell's edge; where it has none, the code less 1 */
    uint8_t edge_high[QM_EDGE_LUT_CELLS],
        edge_low[QM_EDGE_LUT_CELLS]; /* its place; where there is none, 0 */
};

/* From n - 1 ascending edges, n <= 16: edge[k] = the smallest float32 of code k + 1, +Inf where there
 * is none. */
void qm_edge_lut_build(const float *edge, int n, struct qm_edge_lut *c);

/* z of a y within the limit, exactly. */
int qm_edge_lut_index(float y);

#endif
