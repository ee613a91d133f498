/* search_loops.h - Each search as the loop that its name says, one table per instruction set.
 *
 * Encoding uses the edges of a codec (quantizer.h) for every search.  These loops show what a
 * kernel costs that searches by the named method, and they are a second implementation that tests
 * compare with the definition. */
#ifndef QM_QUANT_SEARCH_LOOPS_H
#define QM_QUANT_SEARCH_LOOPS_H

#include "core/base/isa.h"
#include "core/quant/quantizer.h"

/* Computes position[i] of unit value y[i] for n elements without NaN.  grid: the 65,536 entries of
 * qm_search_grid_table, read by search grid only. */
typedef void qm_search_fn(const struct qm_codec *c, const float *y, int64_t n, uint8_t *position,
                          const uint8_t *grid);

struct qm_searches {
    qm_search_fn *by[QM_SEARCH_COUNT];
    qm_search_fn *edges; /* by the edges of the codec, as encoding does */
};

/* The table of the instruction set that qm_isa() chose. */
const struct qm_searches *qm_searches(void);

/* Fills table[65536] as the CPU code of bitsandbytes does. */
void qm_search_grid_table(const struct qm_codec *c, uint8_t *table);

/* The cost of one element by the search's own method: compares, and bytes of the table searched. */
struct qm_search_cost {
    int compares;
    int64_t table_bytes;
};
struct qm_search_cost qm_search_cost(const struct qm_codec *c);

#endif
