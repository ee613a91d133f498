/* searches.c - Times the searches for a code and counts codes that differ from those of scan. */
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/quant/search_loops.h"
#include "experiments/bench/bench.h"
#include "experiments/cli/cli.h"

enum { MAX_SEARCHES = 96, N = 1 << 14 };

struct search_row {
    char quantizer[QM_QUANTIZER_TEXT];
    const char *map, *search;
    struct qm_search_cost cost;
    double seconds[QM_BENCH_ROUNDS]; /* per N codes */
    double differ;                   /* share of codes that differ from scan/mid */
};

struct searches {
    int count;
    struct search_row row[MAX_SEARCHES];
};

static const char *const search_maps[] = {"int:4s", "nf4:4s", "nf4a8:4s", "dyn:4s",
                                          "lin:4u", "dyn:8s", "dyn:8u",   "lint:8u"};
static const char *const search_words[] = {"scan",   "bisect", "argmin", "mids",
                                           "ladder", "grid",   "arith",  "edges"};

/* Fills rows with every search that applies to each map, the engine's edges last; returns
 * their number. */
static int search_rows(struct search_row *rows, struct qm_codec *codecs)
{
    int n = 0;
    for (size_t m = 0; m < sizeof search_maps / sizeof *search_maps; m++)
        for (size_t s = 0; s < sizeof search_words / sizeof *search_words; s++) {
            char text[64];
            int edges = strcmp(search_words[s], "edges") == 0;
            int arith = strcmp(search_words[s], "arith") == 0;
            snprintf(text, sizeof text, "%s/block:128/%s/%s", search_maps[m],
                     edges ? "scan" : search_words[s], arith ? "even" : "mid");
            if (n == MAX_SEARCHES || qm_codec_parse(&codecs[n], text) != QM_OK)
                continue;
            qm_quantizer_print(&codecs[n].q, rows[n].quantizer);
            rows[n].map = search_maps[m];
            rows[n].search = search_words[s];
            rows[n].cost = qm_search_cost(&codecs[n]);
            if (edges) {
                int k = codecs[n].cb.n, levels = 0;
                while (1 << levels < k)
                    levels++;
                rows[n].cost = (struct qm_search_cost){levels, 4 * (k - 1)};
            }
            n++;
        }
    return n;
}

/* Fills y with values in the unit range of a codec (int: in code units), bell-shaped as normalized
 * states are. */
static void fill_values(const struct qm_codec *c, float *y)
{
    float top = c->cb.value[c->cb.n - 1];
    for (int i = 0; i < N; i++) {
        uint32_t w = qm_philox_stream(7, 3, (uint64_t)i);
        float bell = (float)(w & 1023) + (float)(w >> 10 & 1023) + (float)(w >> 20 & 1023);
        bell = (bell - 1534.5f) / 1534.5f;
        y[i] = (c->q.sign ? bell : bell * bell) * (top > 1.0f ? top : 1.0f);
    }
}

/* The share of codes that differ from those of scan with round mid. */
static double differing(const struct qm_codec *c, const float *y, const uint8_t *got)
{
    int differ = 0;
    for (int i = 0; i < N; i++) {
        int k = qm_search_scan(y[i], &c->cb);
        if (k + 1 < c->cb.n && y[i] > c->cb.value[0])
            k += qm_round_up(QM_ROUND_mid, y[i], c->cb.value[k], c->cb.value[k + 1], k, 0);
        differ += got[i] != k;
    }
    return (double)differ / N;
}

/* Times round r of one search; round -1 is the warm-up. */
static void search_once(const struct qm_bench *b, struct search_row *row, const struct qm_codec *c,
                        int r, float *y, uint8_t *got, uint8_t *grid)
{
    qm_search_fn *f =
        strcmp(row->search, "edges") == 0 ? qm_searches()->edges : qm_searches()->by[c->q.search];
    int repeats = b->quick ? 8 : 40;
    fill_values(c, y);
    if (c->q.search == QM_SEARCH_grid)
        qm_search_grid_table(c, grid);
    f(c, y, N, got, grid);
    double start = qm_seconds();
    for (int i = 0; i < repeats; i++)
        f(c, y, N, got, grid);
    if (r >= 0)
        row->seconds[r] = (qm_seconds() - start) / repeats;
    row->differ = differing(c, y, got);
}

static qm_status run(const struct qm_bench *b, void **data)
{
    struct searches *s = calloc(1, sizeof *s);
    struct qm_codec *codecs = malloc(sizeof *codecs * MAX_SEARCHES);
    float *y = aligned_alloc(64, sizeof *y * N);
    uint8_t *got = malloc(N), *grid = malloc(65536);
    qm_status st = QM_OK;
    *data = s;
    if (!s || !codecs || !y || !got || !grid)
        st = qm_fail(QM_NO_MEMORY, "the search benchmark");
    if (st == QM_OK) {
        s->count = search_rows(s->row, codecs);
        struct qm_progress bar;
        qm_progress_start(&bar, "searches", (int64_t)s->count * (b->rounds + 1));
        for (int r = -1; r < b->rounds; r++)
            for (int k = 0; k < s->count; k++) {
                search_once(b, &s->row[k], &codecs[k], r, y, got, grid);
                qm_progress_add(&bar, 1, 0);
            }
        qm_progress_end(&bar);
    }
    free(codecs);
    free(y);
    free(got);
    free(grid);
    return st;
}

static double rate(const struct qm_bench *b, const struct search_row *row)
{
    return N / qm_bench_median(row->seconds, b->rounds);
}

static json_t *print(const struct qm_bench *b, const void *data)
{
    static const char *const heads[] = {"map",      "search",      "Gcodes/s",    "x scan",
                                        "compares", "table bytes", "codes differ"};
    const struct searches *s = data;
    const struct search_row *scan = s->row;
    qm_note("searches: one thread, codes from the first-level cache; x scan within a map");
    json_t *list = json_array();
    struct qm_table *table = qm_cli.json ? NULL : qm_table_open(7, heads);
    for (int k = 0; k < s->count; k++) {
        const struct search_row *row = &s->row[k];
        scan = strcmp(row->search, "scan") == 0 ? row : scan;
        double to_scan = qm_bench_ratio(b->rounds, scan->seconds, row->seconds, 1.0);
        if (table) {
            qm_table_cell(table, "%s", row->map);
            qm_table_cell(table, "%s", row->search);
            qm_table_cell(table, "%.2f", rate(b, row) * 1e-9);
            qm_table_cell(table, "%.1f", to_scan);
            qm_table_cell(table, "%d", row->cost.compares);
            qm_table_cell(table, "%lld", (long long)row->cost.table_bytes);
            qm_table_cell(table, "%.3f %%", 100.0 * row->differ);
        }
        json_array_append_new(
            list, json_pack("{s:s, s:s, s:f, s:f, s:i, s:I, s:f}", "map", row->map, "search",
                            row->search, "codes_per_s", rate(b, row), "to_scan", to_scan,
                            "compares", row->cost.compares, "table_bytes",
                            (json_int_t)row->cost.table_bytes, "codes_differ", row->differ));
    }
    if (table)
        qm_table_close(table);
    return list;
}

static qm_status store(const struct qm_bench *b, const void *data, struct qm_store *f)
{
    const struct searches *s = data;
    const char *map[MAX_SEARCHES], *search[MAX_SEARCHES], *quantizer[MAX_SEARCHES];
    int64_t compares[MAX_SEARCHES], bytes[MAX_SEARCHES];
    double differ[MAX_SEARCHES], rates[MAX_SEARCHES];
    double *raw = malloc(sizeof *raw * (size_t)(s->count * b->rounds));
    if (!raw)
        return qm_fail(QM_NO_MEMORY, "raw samples");
    for (int k = 0; k < s->count; k++) {
        const struct search_row *row = &s->row[k];
        map[k] = row->map;
        search[k] = row->search;
        quantizer[k] = row->quantizer;
        compares[k] = row->cost.compares;
        bytes[k] = row->cost.table_bytes;
        differ[k] = row->differ;
        rates[k] = rate(b, row);
        memcpy(raw + k * b->rounds, row->seconds, sizeof *raw * (size_t)b->rounds);
    }
    const struct qm_column columns[] = {
        {"map", QM_COLUMN_text, "", "map", map},
        {"search", QM_COLUMN_text, "", "search; edges: the engine's own", search},
        {"quantizer", QM_COLUMN_text, "", "quantizer string", quantizer},
        {"compares", QM_COLUMN_i64, "1", "compares per code", compares},
        {"table_bytes", QM_COLUMN_i64, "B", "bytes of tables", bytes},
        {"codes_differ", QM_COLUMN_f64, "1", "share of codes that differ from scan with mid",
         differ},
    };
    qm_status st =
        qm_store_table(f, "/bench/searches", "row k of /timing/search_rate belongs to row k",
                       s->count, sizeof columns / sizeof *columns, columns);
    if (st == QM_OK)
        st = qm_store_timing(f, "search_rate", s->count, rates, "1/s",
                             "codes per second, one thread, median");
    if (st == QM_OK)
        st = qm_store_timing(f, "search_seconds", (int64_t)s->count * b->rounds, raw, "s",
                             "raw samples for 16384 codes: rounds of row 0, then of row 1, ...");
    free(raw);
    return st;
}

const struct qm_bench_part qm_bench_searches = {"searches", run, print, store};
