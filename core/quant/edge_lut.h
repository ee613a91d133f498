/* edge_lut.h - 4-bit codes by table look-up instead of a search, for maps of at most 16 entries.
 *
 * An edge is the smallest unit value of a code.  A straight line maps the unit value y to an
 * integer z of 23 bits, rounded down.  The upper seven bits of z are a cell, its lower sixteen a
 * place in this cell.  A cell holds at most one edge:
 *
 *     z    = floor(128 (QM_EDGE_LUT_SLOPE y + QM_EDGE_LUT_OFFSET))     one fmaf, rounded down
 *     code = base[z >> 16] + ((z & 65535) >= edge[z >> 16])            modulo 256
 *
 * The slope may be folded with the division y = x / d: with s = SLOPE / d rounded, floor(128 (s x +
 * OFFSET)) differs from z by at most one, because two roundings of 2^-24 each, times 128 SLOPE, are
 * below 1/2.  So the code is exact unless z is the place of the edge or next to it.  In this case,
 * "doubt", the caller divides and searches. */
#ifndef QM_QUANT_EDGE_LUT_H
#define QM_QUANT_EDGE_LUT_H

#include "core/base/dual.h"

enum { QM_EDGE_LUT_CELLS = 128 };

#define QM_EDGE_LUT_SLOPE  32640.0f
#define QM_EDGE_LUT_OFFSET 32768.5f /* y = 0, which is frequent, is at place 64 of its cell */
#define QM_EDGE_LUT_LIMIT  1.003f   /* largest |y| that the table covers */

struct qm_edge_lut {
    /* 1: no cell has two edges, and no edge is next to an end of its cell; 0: all other members
     * are undefined */
    int usable;
    uint8_t base[QM_EDGE_LUT_CELLS]; /* code below the cell's edge; without an edge, code - 1 */
    /* The place of the cell's edge, upper and lower byte; without an edge, 0, which every
     * place reaches. */
    uint8_t edge_high[QM_EDGE_LUT_CELLS], edge_low[QM_EDGE_LUT_CELLS];
};

/* Builds the table from n - 1 ascending edges, n <= 16: edge[k] = the smallest float32 of code k +
 * 1, +Inf if there is none. */
void qm_edge_lut_build(const float *edge, int n, struct qm_edge_lut *t);

#endif
