/* edge_lut.c - Builds the tables of edge_lut.h. */
#include "core/quant/edge_lut.h"

enum { CELL = 65536 }; /* places that one cell of the table covers */

/* z of y, exactly, for |y| <= QM_EDGE_LUT_LIMIT. */
static int edge_lut_index(float y)
{
    double z = floor(128.0 * (double)QM_EDGE_LUT_SLOPE * (double)y); /* the product is exact */
    return (int)(z + 128.0 * (double)QM_EDGE_LUT_OFFSET);
}

void qm_edge_lut_build(const float *edge, int n, struct qm_edge_lut *t)
{
    int k = 0;
    t->usable = 0;
    while (k < n - 1 && edge[k] < -QM_EDGE_LUT_LIMIT)
        k++;
    for (int cell = 0; cell < QM_EDGE_LUT_CELLS; cell++) {
        int is_there = k < n - 1 && edge[k] <= QM_EDGE_LUT_LIMIT;
        int place = is_there ? edge_lut_index(edge[k]) - cell * CELL : CELL;
        t->base[cell] = (uint8_t)(place < CELL ? k : k - 1); /* every place is >= 0 */
        t->edge_high[cell] = (uint8_t)(place < CELL ? place >> 8 : 0);
        t->edge_low[cell] = (uint8_t)(place < CELL ? place & 255 : 0);
        if (place >= CELL)
            continue;
        if (place < 1 || place > CELL - 2)
            return;
        k++;
        if (k < n - 1 && edge[k] <= QM_EDGE_LUT_LIMIT &&
            edge_lut_index(edge[k]) < (cell + 1) * CELL)
            return;
    }
    t->usable = 1;
}
