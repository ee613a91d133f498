/* long_search_all_floats.c - Compares every search with the edges on all floats in [-2, 2].
 *
 * The loop of the search and the edges that encoding uses must give the same code.  It takes some
 * minutes; `make check-long` runs it. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/isa.h"
#include "core/quant/search_loops.h"

enum { PIECE = 1 << 14 };

static const char *const maps[] = {"int:4s", "nf4:4s", "nf4a8:4s", "dyn:4s", "lin:4u",
                                   "de0:4u", "dyn:8s", "dyn:8u",   "lint:8u"};
static const char *const searches[] = {"scan/near",   "scan/mid",   "scan/even",   "scan/away",
                                       "bisect/near", "bisect/mid", "bisect/even", "mids/mid",
                                       "ladder/mid",  "argmin/mid", "grid/mid",    "arith/even"};

/* The number of floats in [-2, 2] (map int: times 8) whose two codes differ. */
static int64_t differences(const struct qm_codec *c, const uint8_t *grid)
{
    int32_t from = qm_ordered(-2.0f), to = qm_ordered(2.0f);
    float top = c->cb.value[c->cb.n - 1]; /* above 2 for map int, which is in code units */
    int64_t pieces = ((int64_t)to - from) / PIECE + 1, differ = 0;
#pragma omp parallel for schedule(dynamic, 64) reduction(+ : differ)
    for (int64_t k = 0; k < pieces; k++) {
        float y[PIECE];
        uint8_t a[PIECE], b[PIECE];
        int64_t first = from + k * PIECE, n = to - first + 1 < PIECE ? to - first + 1 : PIECE;
        for (int64_t i = 0; i < n; i++)
            y[i] = qm_unordered((int32_t)(first + i)) * (top > 2.0f ? 8.0f : 1.0f);
        qm_searches()->by[c->q.search](c, y, n, a, grid);
        qm_searches()->edges(c, y, n, b, grid);
        for (int64_t i = 0; i < n; i++)
            differ += a[i] != b[i];
    }
    return differ;
}

int main(void)
{
    static uint8_t grid[65536];
    static struct qm_codec c;
    int failed = 0, passed = 0;
    printf("%s, %d threads: every float32 in [-2, 2]\n", qm_isa_text(qm_isa()),
           omp_get_max_threads());
    for (size_t m = 0; m < sizeof maps / sizeof *maps; m++)
        for (size_t s = 0; s < sizeof searches / sizeof *searches; s++) {
            char text[96];
            snprintf(text, sizeof text, "%s/block:128/%s", maps[m], searches[s]);
            if (qm_codec_parse(&c, text) != QM_OK)
                continue;
            qm_search_grid_table(&c, grid);
            double start = omp_get_wtime();
            int64_t differ = differences(&c, grid);
            printf("%-36s %12lld differ  %6.1f s\n", text, (long long)differ,
                   omp_get_wtime() - start);
            fflush(stdout);
            failed += differ != 0;
            passed += differ == 0;
        }
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
