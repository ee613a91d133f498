/* search_cost.c - The cost of each search, and the table of search loops. */
#include "core/quant/search_loops.h"

QM_ISA_TABLE(const struct qm_searches, qm_searches)

const struct qm_searches *qm_searches(void) { return qm_searches_by_isa(); }

void qm_search_grid_table(const struct qm_codec *c, uint8_t *table)
{
    int k = 0;
    for (int j = 0; j < 65536; j++) {
        float at = -1.0f + 2.0f * (float)j / 65535.0f;
        while (k + 1 < c->cb.n && 0.5f * (c->cb.value[k] + c->cb.value[k + 1]) < at)
            k++;
        table[j] = (uint8_t)k;
    }
}

struct qm_search_cost qm_search_cost(const struct qm_codec *c)
{
    int n = c->cb.n, levels = 0;
    while (1 << levels < n)
        levels++;
    switch (c->q.search) {
    case QM_SEARCH_scan: return (struct qm_search_cost){n, 4 * n};
    case QM_SEARCH_bisect: return (struct qm_search_cost){levels + 1, 4 * n};
    case QM_SEARCH_arith: return (struct qm_search_cost){2, 0};
    case QM_SEARCH_ladder:
    case QM_SEARCH_mids: return (struct qm_search_cost){n - 1, 4 * (n - 1)};
    case QM_SEARCH_argmin: return (struct qm_search_cost){n - 1, 4 * n};
    case QM_SEARCH_grid:
    case QM_SEARCH_lower:
    case QM_SEARCH_COUNT: break;
    }
    return (struct qm_search_cost){2, 65536};
}
