/* search_loops.h - each search as the loop that its name stands for, one table per instruction set.
 *
 * The engine encodes by edges whatever the search is called; these are what a kernel that really
 * searches this way costs, and a second implementation that tests compare with the definition. */
#ifndef QM_QUANT_SEARCH_LOOPS_H
#define QM_QUANT_SEARCH_LOOPS_H

#include "core/base/isa.h"
#include "core/quant/quantizer.h"

/* position[i] of unit value y[i], for n elements without NaN.  grid: the 65,536 entries made by
 * qm_search_grid_table, used by search grid only. */
typedef void qm_search_fn(const struct qm_codec *c, const float *y, int64_t n, uint8_t *position,
                          const uint8_t *grid);

struct qm_searches {
    qm_search_fn *by[QM_SEARCH_COUNT];
    qm_search_fn *edges; /* the engine's own */
};

const struct qm_searches *qm_searches(void);

/* Fills table[65536] as bitsandbytes' CPU code builds it. */
void qm_search_grid_table(const struct qm_codec *c, uint8_t *table);

/* What one element costs in the source's terms: compares, and bytes of tables read. */
struct qm_search_cost {
    int compares;
    int64_t table_bytes;
};
struct qm_search_cost qm_search_cost(const struct qm_codec *c);

#endif
