/* cmd_bench.c - `qualm bench`: speed of steps and searches.
 *
 * Everything is measured interleaved in one run and reported as ratios taken within each round:
 * bandwidth on shared machines swings twofold between runs, ratios hardly.  The yardstick is this
 * machine's own in-place bandwidth, a += s * b over arrays far larger than the caches. */
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/engine/backend.h"
#include "core/quant/searches.h"
#include "experiments/analysis.h"
#include "experiments/cli.h"
#include "experiments/command.h"
#include "experiments/store.h"

enum { MAX_VARIANTS = 96, MAX_ROUNDS = 101, MAX_SEARCHES = 96, SEARCH_N = 1 << 14 };

struct bench {
    int64_t n;
    int rounds, quick, threads, steps, searches, analyze;
    int64_t gib;
    const char *out;
    int argc;
    char **argv;
};

static const struct argp_option options[] = {
    {"quick", 'q' + 256, NULL, 0,
     "Elementwise steps of 16 M parameters and searches, few rounds; no rules over whole tensors",
     0},
    {"size", 's', "M", 0, "Millions of parameters (default 64)", 0},
    {"rounds", 'r', "N", 0, "Interleaved rounds (default 9)", 0},
    {"threads", 't', "N", 0, "Threads of the many-threads half (default: all cores)", 0},
    {"gib", 'g', "N", 0, "Size of the file that analyze streams (default 4, in TMPDIR)", 0},
    {"only", 'o', "WHAT", 0, "steps, searches or analyze", 0},
    {"out", 'O', "FILE", 0, "Write an HDF5 file with every raw sample", 0},
    {0},
};

static qm_status read_int(const char *what, const char *text, long low, long high, long *out)
{
    char *end;
    long v = strtol(text, &end, 10);
    if (end == text || *end || v < low || v > high)
        return qm_fail(QM_BAD_ARG, "--%s: expected a whole number from %ld to %ld, got '%s'", what,
                       low, high, text);
    *out = v;
    return QM_OK;
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct bench *b = state->input;
    long v = 0;
    qm_status st = QM_OK;
    switch (key) {
    case 'q' + 256:
        b->quick = 1;
        b->n = 16 << 20;
        b->rounds = 5;
        b->analyze = 0;
        break;
    case 'g':
        st = read_int("gib", arg, 1, 64, &v);
        b->gib = v;
        break;
    case 's':
        st = read_int("size", arg, 1, 4096, &v);
        b->n = (int64_t)v << 20;
        break;
    case 'r':
        st = read_int("rounds", arg, 1, MAX_ROUNDS, &v);
        b->rounds = (int)v;
        break;
    case 't':
        st = read_int("threads", arg, 1, 1024, &v);
        b->threads = (int)v;
        break;
    case 'o':
        b->steps = strcmp(arg, "steps") == 0;
        b->searches = strcmp(arg, "searches") == 0;
        b->analyze = strcmp(arg, "analyze") == 0;
        if (!b->steps && !b->searches && !b->analyze)
            st = qm_fail(QM_BAD_ARG, "--only: expected steps, searches or analyze, got '%s'", arg);
        break;
    case 'O': b->out = arg; break;
    case ARGP_KEY_ARG: st = qm_fail(QM_BAD_ARG, "bench takes no argument '%s'", arg); break;
    case ARGP_KEY_INIT: state->child_inputs[0] = NULL; break;
    default: return ARGP_ERR_UNKNOWN;
    }
    if (st != QM_OK)
        argp_failure(state, 2, 0, "%s", qm_message());
    return 0;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *x, int n)
{
    double copy[MAX_ROUNDS];
    memcpy(copy, x, sizeof *x * (size_t)n);
    qsort(copy, (size_t)n, sizeof *copy, by_value);
    return n % 2 ? copy[n / 2] : 0.5 * (copy[n / 2 - 1] + copy[n / 2]);
}

/* ---- steps --------------------------------------------------------------------------------- */

/* [h][v][r]: half h (0: one thread, 1: all), row v (count: the yardstick), round r of rounds[v].
 * f32, yard: adamw_f32 and the yardstick in the same round. */
struct steps {
    int count;
    const char *name[MAX_VARIANTS + 1];
    int rounds[MAX_VARIANTS + 1];
    struct qm_param param[MAX_VARIANTS];
    double state_bytes[MAX_VARIANTS], moved[MAX_VARIANTS + 1];
    double time[2][MAX_VARIANTS + 1][MAX_ROUNDS], f32[2][MAX_VARIANTS + 1][MAX_ROUNDS],
        yard[2][MAX_VARIANTS + 1][MAX_ROUNDS];
};

/* What steps work on. */
struct arrays {
    struct qm_shape shape;
    float *p, *g;
    void *stored; /* narrow parameters */
};

static double yardstick(float *a, const float *b, int64_t n, int threads)
{
    double start = qm_seconds();
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t piece = 0; piece < n; piece += 4096) {
        int64_t end = piece + 4096 < n ? piece + 4096 : n;
#pragma omp simd
        for (int64_t i = piece; i < end; i++)
            a[i] += 1e-20f * b[i];
    }
    return qm_seconds() - start;
}

/* Bytes that must move per parameter: p and g, the states both ways, and what another pass reads
 * again (the gradient and the slots with a global norm; of rules over whole tensors the gradient and
 * the states, once for each sum that must be complete before). */
static double bytes_moved(const struct qm_recipe *r, const struct qm_shape *shape)
{
    double n = (double)qm_shape_numel(shape), again = r->rule->sums,
           sum = 4.0 + 2.0 * qm_param_bytes(&r->param) + 2.0 * qm_param_residual(&r->param);
    sum += again * 4.0;
    for (int i = 0; i < r->rule->n_slots; i++) {
        struct qm_quantizer q = qm_recipe_slot(r, i, shape);
        struct qm_codec c = {.q = q};
        struct qm_shape own = *shape;
        if (r->rule->slot_shape)
            r->rule->slot_shape(&r->hyper, i, shape, &own);
        double slot = (double)qm_state_bytes(&c, &own) / n;
        sum += (2.0 + again) * slot;
        if (q.bits && q.norm != QM_NORM_block && q.norm != QM_NORM_id)
            sum += qm_folds(&c) * (4.0 + slot);
    }
    return sum;
}

/* Gradients of every scale from 2^-4 to 2^4, and start values of about 1. */
static void fill(float *p, float *g, int64_t n)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++) {
        uint64_t h = (uint64_t)i * 0x9E3779B97F4A7C15u;
        h ^= h >> 29;
        p[i] = 1.0f + (float)(h & 0xffff) * 1e-6f;
        g[i] = ((float)(h >> 40) * 0x1p-23f - 1.0f) * ldexpf(1.0f, (int)(i / 4096 % 9) - 4);
    }
}

/* A row for variant k and its plans for one thread and for all. */
static qm_status row_open(const struct bench *b, struct steps *s, const struct arrays *a,
                          struct qm_recipe *r, void *plan[2])
{
    int v = s->count++;
    s->name[v] = r->base->name;
    s->rounds[v] = b->rounds;
    s->param[v] = r->param;
    for (int h = 0; h < 2; h++) {
        omp_set_num_threads(h ? b->threads : 1);
        QM_TRY(qm_backend_cpu.open(r, &a->shape, 0, &plan[h]));
    }
    s->state_bytes[v] = (double)qm_backend_cpu.bytes(plan[0]) / (double)b->n;
    s->moved[v] = bytes_moved(r, &a->shape);
    return QM_OK;
}

/* Seconds of one step, or of the yardstick where there is no plan. */
static qm_status timed(const struct bench *b, const struct arrays *a, void *plan,
                       const struct qm_param *param, int h, int r, double *seconds)
{
    int threads = h ? b->threads : 1;
    struct qm_tensor pt = {a->p, QM_DTYPE_f32, a->shape}, gt = {a->g, QM_DTYPE_f32, a->shape};
    qm_status st = QM_OK;
    if (plan && param->format != QM_PARAM_f32) {
        pt = (struct qm_tensor){a->stored, qm_param_dtype(param), a->shape};
        qm_param_from_float(param, b->n, a->p, a->stored);
    }
    omp_set_num_threads(threads);
    double start = qm_seconds();
    if (plan)
        st = qm_backend_cpu.step(plan, &pt, &gt, r + 2, 1);
    else
        yardstick(a->p, a->g, b->n, threads);
    *seconds = qm_seconds() - start;
    return st;
}

static int is_f32(const char *name) { return strcmp(name, "adamw_f32") == 0; }

/* Every elementwise rule in turn, round by round; round -1 warms up. */
static qm_status run_elementwise(const struct bench *b, struct steps *s, const struct arrays *a)
{
    void *plan[MAX_VARIANTS + 1][2] = {{NULL}};
    qm_status st = QM_OK;
    int f32 = 0;
    for (int k = 0; st == QM_OK && k < qm_variant_count() && s->count < MAX_VARIANTS; k++) {
        struct qm_recipe r;
        st = qm_recipe_parse(qm_variant_at(k)->name, &r);
        if (st != QM_OK || !r.rule->block)
            continue;
        f32 = is_f32(r.base->name) ? s->count : f32;
        st = row_open(b, s, a, &r, plan[s->count]);
    }
    struct qm_progress bar;
    qm_progress_start(&bar, "steps", (int64_t)(b->rounds + 1) * 2 * (s->count + 1));
    for (int r = -1; st == QM_OK && r < b->rounds; r++)
        for (int h = 0; st == QM_OK && h < 2; h++) {
            for (int v = 0; st == QM_OK && v <= s->count; v++) {
                double seconds;
                st = timed(b, a, plan[v][h], &s->param[v], h, r, &seconds);
                if (r >= 0)
                    s->time[h][v][r] = seconds;
                qm_progress_add(&bar, 1, 0);
            }
            for (int v = 0; r >= 0 && v <= s->count; v++) {
                s->f32[h][v][r] = s->time[h][f32][r];
                s->yard[h][v][r] = s->time[h][s->count][r];
            }
        }
    qm_progress_end(&bar);
    for (int v = 0; v < s->count; v++)
        for (int h = 0; h < 2; h++)
            qm_backend_cpu.close(plan[v][h]);
    return st;
}

enum { WHOLE_ROUNDS = 5 };
#define SLOW_SECONDS \
    10.0 /* what the rounds of one rule over whole tensors may take, but for the first */

/* One rule over whole tensors: it, adamw_f32 and the yardstick in turn.  A projection is given (the
 * sources make a new one every 200 steps). */
static qm_status run_whole(const struct bench *b, struct steps *s, const struct arrays *a,
                           void *const f32[2], struct qm_recipe *recipe)
{
    const struct qm_param plain = {0};
    void *plan[2] = {NULL};
    int v = s->count;
    double warm = 0.0, t[3];
    recipe->hyper.gap = 0.0;
    qm_status st = row_open(b, s, a, recipe, plan);
    for (int i = 0; st == QM_OK && i < recipe->rule->n_slots; i++)
        for (int h = 0; h < 2 && strcmp(recipe->rule->slot[i], "proj") == 0; h++)
            st = qm_backend_cpu.load(plan[h], i, NULL, a->g);
    s->rounds[v] = b->rounds < WHOLE_ROUNDS ? b->rounds : WHOLE_ROUNDS;
    for (int r = -1; st == QM_OK && r < s->rounds[v]; r++) {
        for (int h = 0; st == QM_OK && h < 2; h++) {
            st = timed(b, a, f32[h], &plain, h, r, &t[0]);
            if (st == QM_OK)
                st = timed(b, a, plan[h], &s->param[v], h, r, &t[1]);
            if (st == QM_OK)
                st = timed(b, a, NULL, NULL, h, r, &t[2]);
            warm += t[1];
            if (r < 0 || st != QM_OK)
                continue;
            s->f32[h][v][r] = t[0];
            s->time[h][v][r] = t[1];
            s->yard[h][v][r] = t[2];
        }
        while (r < 0 && s->rounds[v] > 1 && s->rounds[v] * warm > SLOW_SECONDS)
            s->rounds[v]--;
    }
    for (int h = 0; h < 2; h++)
        qm_backend_cpu.close(plan[h]);
    return st;
}

/* Rules over whole tensors, one after the other: the state of one at a time is in memory. */
static qm_status run_wholes(const struct bench *b, struct steps *s, const struct arrays *a)
{
    struct qm_recipe r;
    void *f32[2] = {NULL};
    int total = 0;
    QM_TRY(qm_recipe_parse("adamw_f32", &r));
    qm_status st = QM_OK;
    for (int h = 0; st == QM_OK && h < 2; h++) {
        omp_set_num_threads(h ? b->threads : 1);
        st = qm_backend_cpu.open(&r, &a->shape, 0, &f32[h]);
    }
    for (int k = 0; k < qm_variant_count(); k++)
        total += qm_recipe_parse(qm_variant_at(k)->name, &r) == QM_OK && !r.rule->block;
    struct qm_progress bar;
    qm_progress_start(&bar, "steps over whole tensors", total);
    for (int k = 0; st == QM_OK && k < qm_variant_count() && s->count < MAX_VARIANTS; k++) {
        st = qm_recipe_parse(qm_variant_at(k)->name, &r);
        if (st != QM_OK || r.rule->block)
            continue;
        st = run_whole(b, s, a, f32, &r);
        qm_progress_add(&bar, 1, 0);
    }
    qm_progress_end(&bar);
    for (int h = 0; h < 2; h++)
        qm_backend_cpu.close(f32[h]);
    return st;
}

static qm_status run_steps(const struct bench *b, struct steps *s)
{
    size_t bytes = sizeof(float) * (size_t)b->n;
    struct arrays a = {{2, {b->n / 1024, 1024}},
                       aligned_alloc(64, bytes),
                       aligned_alloc(64, bytes),
                       aligned_alloc(64, bytes)};
    qm_status st = QM_OK;
    if (!a.p || !a.g || !a.stored)
        st = qm_fail(QM_NO_MEMORY, "three arrays of %lld floats", (long long)b->n);
    omp_set_num_threads(b->threads);
    if (st == QM_OK) {
        fill(a.p, a.g, b->n);
        st = run_elementwise(b, s, &a);
    }
    double f32[2][MAX_ROUNDS], yard[2][MAX_ROUNDS]; /* the yardstick's row stays the last */
    for (int h = 0; h < 2; h++) {
        memcpy(f32[h], s->f32[h][s->count], sizeof f32[h]);
        memcpy(yard[h], s->yard[h][s->count], sizeof yard[h]);
    }
    if (st == QM_OK && !b->quick)
        st = run_wholes(b, s, &a);
    for (int h = 0; h < 2; h++) {
        memcpy(s->f32[h][s->count], f32[h], sizeof f32[h]);
        memcpy(s->yard[h][s->count], yard[h], sizeof yard[h]);
        memcpy(s->time[h][s->count], yard[h], sizeof yard[h]);
    }
    omp_set_num_threads(b->threads);
    s->name[s->count] = "a += s*b";
    s->moved[s->count] = 12.0;
    s->rounds[s->count] = b->rounds;
    free(a.p);
    free(a.g);
    free(a.stored);
    return st;
}

/* Median over rounds of (numerator's time / denominator's time) * factor. */
static double ratio(int rounds, const double *over, const double *under, double factor)
{
    double x[MAX_ROUNDS];
    for (int r = 0; r < rounds; r++)
        x[r] = over[r] / under[r] * factor;
    return median(x, rounds);
}

struct step_row {
    double rate, to_f32, of_yardstick, scaling;
};

static struct step_row step_row(const struct bench *b, const struct steps *s, int h, int v)
{
    const double *t = s->time[h][v];
    int rounds = s->rounds[v];
    struct step_row row;
    row.rate = (double)b->n / median(t, rounds);
    row.to_f32 = ratio(rounds, s->f32[h][v], t, 1.0);
    row.of_yardstick = ratio(rounds, s->yard[h][v], t, s->moved[v] / 12.0);
    /* how this step speeds up from one thread to all, over how the yardstick does */
    double x[MAX_ROUNDS];
    for (int r = 0; r < rounds; r++)
        x[r] = (s->time[0][v][r] / s->time[1][v][r]) / (s->yard[0][v][r] / s->yard[1][v][r]);
    row.scaling = median(x, rounds);
    return row;
}

static json_t *print_steps(const struct bench *b, const struct steps *s)
{
    static const char *const heads[] = {"step",        "threads",     "Gparam/s", "x adamw_f32",
                                        "bytes moved", "% yardstick", "scaling"};
    json_t *list = json_array();
    struct qm_table *table = qm_cli.json ? NULL : qm_table_open(7, heads);
    for (int h = 0; h < 2; h++)
        for (int v = 0; v <= s->count; v++) {
            struct step_row row = step_row(b, s, h, v);
            int threads = h ? b->threads : 1;
            double bytes = s->moved[v];
            if (table) {
                qm_table_cell(table, "%s", s->name[v]);
                qm_table_cell(table, "%d", threads);
                qm_table_cell(table, "%.3f", row.rate * 1e-9);
                qm_table_cell(table, "%.2f", row.to_f32);
                qm_table_cell(table, "%.2f", bytes);
                qm_table_cell(table, "%.0f", row.of_yardstick * 100.0);
                if (h)
                    qm_table_cell(table, "%.2f", row.scaling);
                else
                    qm_table_cell(table, "%s", "");
            }
            json_t *o = json_pack("{s:s, s:i, s:f, s:f, s:f, s:f}", "step", s->name[v], "threads",
                                  threads, "params_per_s", row.rate, "to_adamw_f32", row.to_f32,
                                  "bytes_moved", bytes, "of_yardstick", row.of_yardstick);
            if (h)
                json_object_set_new(o, "scaling", json_real(row.scaling));
            json_array_append_new(list, o);
        }
    if (table)
        qm_table_close(table);
    return list;
}

/* ---- searches ------------------------------------------------------------------------------- */

struct search_row {
    char quantizer[QM_QUANTIZER_TEXT];
    const char *map, *search;
    struct qm_search_cost cost;
    double seconds[MAX_ROUNDS]; /* for SEARCH_N codes */
    double differ;              /* share of codes that differ from scan/mid */
};

static const char *const search_maps[] = {"int:4s", "nf4:4s", "nf4a8:4s", "dyn:4s",
                                          "lin:4u", "dyn:8s", "dyn:8u",   "lint:8u"};
static const char *const search_words[] = {"scan",   "bisect", "argmin", "mids",
                                           "ladder", "grid",   "arith",  "edges"};

/* Fills rows with every search that applies to every map; the engine's edges come last. */
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

static qm_status run_searches(const struct bench *b, struct search_row *rows, int *count)
{
    struct qm_codec *codecs = malloc(sizeof *codecs * MAX_SEARCHES);
    float *y = aligned_alloc(64, sizeof *y * SEARCH_N);
    uint8_t *got = malloc(SEARCH_N), *want = malloc(SEARCH_N), *grid = malloc(65536);
    if (!codecs || !y || !got || !want || !grid) {
        free(codecs), free(y), free(got), free(want), free(grid);
        return qm_fail(QM_NO_MEMORY, "the search benchmark");
    }
    *count = search_rows(rows, codecs);
    struct qm_progress bar;
    qm_progress_start(&bar, "searches", (int64_t)*count * (b->rounds + 1));
    for (int r = -1; r < b->rounds; r++)
        for (int k = 0; k < *count; k++) {
            const struct qm_codec *c = &codecs[k];
            float top = c->cb.value[c->cb.n - 1]; /* int: in code units */
            for (int i = 0; i < SEARCH_N; i++) {  /* bell-shaped, as normalized states are */
                uint32_t w = qm_philox_stream(7, 3, (uint64_t)i);
                float bell = (float)(w & 1023) + (float)(w >> 10 & 1023) + (float)(w >> 20 & 1023);
                bell = (bell - 1534.5f) / 1534.5f;
                y[i] = (c->q.sign ? bell : bell * bell) * (top > 1.0f ? top : 1.0f);
            }
            if (c->q.search == QM_SEARCH_grid)
                qm_search_grid_table(c, grid);
            qm_search_fn *f = strcmp(rows[k].search, "edges") == 0 ? qm_searches()->edges
                                                                   : qm_searches()->by[c->q.search];
            int repeats = b->quick ? 8 : 40;
            f(c, y, SEARCH_N, got, grid);
            double start = qm_seconds();
            for (int i = 0; i < repeats; i++)
                f(c, y, SEARCH_N, got, grid);
            if (r >= 0)
                rows[k].seconds[r] = (qm_seconds() - start) / repeats;
            int differ = 0;
            for (int i = 0; i < SEARCH_N; i++) {
                int k0 = qm_search_scan(y[i], &c->cb);
                if (k0 + 1 < c->cb.n && y[i] > c->cb.value[0])
                    k0 += qm_round_up(QM_ROUND_mid, y[i], c->cb.value[k0], c->cb.value[k0 + 1], k0,
                                      0);
                differ += got[i] != k0;
            }
            rows[k].differ = (double)differ / SEARCH_N;
            qm_progress_add(&bar, 1, 0);
        }
    qm_progress_end(&bar);
    free(codecs), free(y), free(got), free(want), free(grid);
    return QM_OK;
}

static json_t *print_searches(const struct bench *b, const struct search_row *rows, int n)
{
    static const char *const heads[] = {"map",      "search",      "Gcodes/s",    "x scan",
                                        "compares", "table bytes", "codes differ"};
    json_t *list = json_array();
    struct qm_table *table = qm_cli.json ? NULL : qm_table_open(7, heads);
    int scan = 0;
    for (int k = 0; k < n; k++) {
        scan = strcmp(rows[k].search, "scan") == 0 ? k : scan;
        double rate = SEARCH_N / median(rows[k].seconds, b->rounds);
        double to_scan = ratio(b->rounds, rows[scan].seconds, rows[k].seconds, 1.0);
        if (table) {
            qm_table_cell(table, "%s", rows[k].map);
            qm_table_cell(table, "%s", rows[k].search);
            qm_table_cell(table, "%.2f", rate * 1e-9);
            qm_table_cell(table, "%.1f", to_scan);
            qm_table_cell(table, "%d", rows[k].cost.compares);
            qm_table_cell(table, "%lld", (long long)rows[k].cost.table_bytes);
            qm_table_cell(table, "%.3f %%", 100.0 * rows[k].differ);
        }
        json_array_append_new(
            list, json_pack("{s:s, s:s, s:f, s:f, s:i, s:I, s:f}", "map", rows[k].map, "search",
                            rows[k].search, "codes_per_s", rate, "to_scan", to_scan, "compares",
                            rows[k].cost.compares, "table_bytes",
                            (json_int_t)rows[k].cost.table_bytes, "codes_differ", rows[k].differ));
    }
    if (table)
        qm_table_close(table);
    return list;
}

/* ---- analyze --------------------------------------------------------------------------------- */

/* Reading a float32 file in the page cache by read(2) into 1 MiB, and analyzing it: seconds. */
struct analyze {
    double read[MAX_ROUNDS], run[MAX_ROUNDS];
    int rounds;
};

static qm_status write_file(FILE *f, int64_t gib)
{
    enum { N = 1 << 18 };
    float *x = malloc(sizeof *x * N);
    char head[128];
    int64_t n = gib << 28;
    /* a .npy header of 128 bytes: magic, version 1.0, length 118, a padded dictionary */
    int used = snprintf(head, sizeof head,
                        "\x93NUMPY%c%c%c%c{'descr': '<f4', 'fortran_order': "
                        "False, 'shape': (%lld,), }",
                        1, 0, 118, 0, (long long)n);
    if (!x)
        return qm_fail(QM_NO_MEMORY, "a file of %lld GiB", (long long)gib);
    memset(head + used, ' ', sizeof head - (size_t)used);
    head[127] = '\n';
    fill(x, x + N / 2, N / 2);
    int ok = fwrite(head, 1, sizeof head, f) == sizeof head;
    for (int64_t i = 0; ok && i < n; i += N)
        ok = fwrite(x, sizeof *x, N, f) == N;
    free(x);
    return ok && fflush(f) == 0 ? QM_OK
                                : qm_fail(QM_BAD_FILE, "the temporary file cannot be written");
}

static qm_status read_plainly(const char *path, double *seconds)
{
    char *room = malloc(1 << 20);
    FILE *f = fopen(path, "rb");
    double start = qm_seconds();
    qm_status st = QM_OK;
    if (!room || !f)
        st = qm_fail(QM_BAD_FILE, "%s cannot be read", path);
    while (st == QM_OK && read(fileno(f), room, 1 << 20) > 0)
        ;
    *seconds = qm_seconds() - start;
    if (f)
        fclose(f);
    free(room);
    return st;
}

static qm_status analyze_once(const struct bench *b, const char *path, double *seconds)
{
    struct qm_file *f = NULL;
    struct qm_analysis a = {.skipped = ""};
    struct qm_census census;
    double start = qm_seconds();
    QM_TRY(qm_codec_parse(&a.codec, "nf4:4s/block:128/bisect/mid/hi"));
    qm_status st = qm_file_open(path, &f);
    a.metrics = qm_metrics_open(QM_METRICS_brief);
    if (st == QM_OK && !a.metrics)
        st = qm_fail(QM_NO_MEMORY, "metrics");
    if (st == QM_OK)
        st = qm_analyze_tensor(f, 0, &a, 1, QM_METRICS_brief, 1, b->threads, NULL, NULL, &census);
    *seconds = qm_seconds() - start;
    qm_metrics_close(a.metrics);
    qm_file_close(f);
    return st;
}

static qm_status run_analyze(const struct bench *b, struct analyze *a)
{
    const char *folder = getenv("TMPDIR");
    char path[512];
    snprintf(path, sizeof path, "%s/qualm-bench-XXXXXX", folder && *folder ? folder : "/tmp");
    int fd = mkstemp(path);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "wb");
    if (!f)
        return qm_fail(QM_BAD_FILE, "no temporary file in %s; set TMPDIR",
                       folder ? folder : "/tmp");
    qm_status st = write_file(f, b->gib);
    fclose(f);
    double cold;
    if (st == QM_OK)
        st = read_plainly(path, &cold); /* into the page cache, if it was not */
    a->rounds = b->rounds < 5 ? b->rounds : 5;
    for (int r = 0; st == QM_OK && r < a->rounds; r++) {
        st = read_plainly(path, &a->read[r]);
        if (st == QM_OK)
            st = analyze_once(b, path, &a->run[r]);
    }
    unlink(path);
    return st;
}

static double analyze_ratio(const struct analyze *a)
{
    double x[MAX_ROUNDS];
    for (int r = 0; r < a->rounds; r++)
        x[r] = a->run[r] / a->read[r];
    return median(x, a->rounds);
}

static json_t *print_analyze(const struct bench *b, const struct analyze *a)
{
    static const char *const heads[] = {"GiB", "threads", "read s", "analyze s", "x read"};
    double read = median(a->read, a->rounds), run = median(a->run, a->rounds);
    if (!qm_cli.json) {
        struct qm_table *table = qm_table_open(5, heads);
        qm_table_cell(table, "%lld", (long long)b->gib);
        qm_table_cell(table, "%d", b->threads);
        qm_table_cell(table, "%.3f", read);
        qm_table_cell(table, "%.3f", run);
        qm_table_cell(table, "%.2f", analyze_ratio(a));
        qm_table_close(table);
    }
    return json_pack("{s:I, s:i, s:f, s:f, s:f}", "gib", (json_int_t)b->gib, "threads", b->threads,
                     "read_s", read, "analyze_s", run, "to_read", analyze_ratio(a));
}

/* ---- storing -------------------------------------------------------------------------------- */

static qm_status store_steps(struct qm_store *f, const struct bench *b, const struct steps *s)
{
    int64_t rows = 2 * (s->count + 1), k = 0, threads[2 * (MAX_VARIANTS + 1)];
    const char *name[2 * (MAX_VARIANTS + 1)];
    double moved[2 * (MAX_VARIANTS + 1)], state[2 * (MAX_VARIANTS + 1)];
    double *raw = malloc(sizeof *raw * (size_t)(rows * b->rounds));
    double summary[4][2 * (MAX_VARIANTS + 1)];
    if (!raw)
        return qm_fail(QM_NO_MEMORY, "raw samples");
    for (int h = 0; h < 2; h++)
        for (int v = 0; v <= s->count; v++, k++) {
            struct step_row row = step_row(b, s, h, v);
            name[k] = s->name[v];
            threads[k] = h ? b->threads : 1;
            moved[k] = s->moved[v];
            state[k] = v == s->count ? 0.0 : s->state_bytes[v];
            for (int r = 0; r < b->rounds; r++)
                raw[k * b->rounds + r] = r < s->rounds[v] ? s->time[h][v][r] : (double)NAN;
            summary[0][k] = row.rate;
            summary[1][k] = row.to_f32;
            summary[2][k] = row.of_yardstick;
            summary[3][k] = h ? row.scaling : (double)NAN;
        }
    const struct qm_column columns[] = {
        {"step", QM_COLUMN_text, "", "variant, or the yardstick a += s*b", name},
        {"threads", QM_COLUMN_i64, "1", "threads", threads},
        {"bytes_moved", QM_COLUMN_f64, "B", "bytes read and written per parameter, declared",
         moved},
        {"state_bytes", QM_COLUMN_f64, "B", "state per parameter", state},
    };
    qm_status st = qm_store_table(f, "/bench/steps",
                                  "what was timed; row k of /timing/step_seconds belongs to row k",
                                  rows, 4, columns);
    static const char *const names[] = {"step_rate", "step_to_adamw_f32", "step_of_yardstick",
                                        "step_scaling"};
    static const char *const units[] = {"1/s", "1", "1", "1"};
    static const char *const texts[] = {
        "parameters per second, median over rounds",
        "rate over adamw_f32's in the same round and threads, median",
        "declared bytes per second over the yardstick's, median",
        "speed-up from one thread to all over the yardstick's, median; NaN for one thread"};
    if (st == QM_OK)
        st = qm_store_timing(
            f, "step_seconds", rows * b->rounds, raw, "s",
            "raw samples: rounds of row 0, then of row 1, ...; NaN: round left out");
    for (int i = 0; st == QM_OK && i < 4; i++)
        st = qm_store_timing(f, names[i], rows, summary[i], units[i], texts[i]);
    free(raw);
    return st;
}

static qm_status store_searches(struct qm_store *f, const struct bench *b,
                                const struct search_row *rows, int n)
{
    const char *map[MAX_SEARCHES], *search[MAX_SEARCHES], *quantizer[MAX_SEARCHES];
    int64_t compares[MAX_SEARCHES], bytes[MAX_SEARCHES];
    double differ[MAX_SEARCHES], rate[MAX_SEARCHES];
    double *raw = malloc(sizeof *raw * (size_t)(n * b->rounds));
    if (!raw)
        return qm_fail(QM_NO_MEMORY, "raw samples");
    for (int k = 0; k < n; k++) {
        map[k] = rows[k].map;
        search[k] = rows[k].search;
        quantizer[k] = rows[k].quantizer;
        compares[k] = rows[k].cost.compares;
        bytes[k] = rows[k].cost.table_bytes;
        differ[k] = rows[k].differ;
        rate[k] = SEARCH_N / median(rows[k].seconds, b->rounds);
        memcpy(raw + k * b->rounds, rows[k].seconds, sizeof *raw * (size_t)b->rounds);
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
    qm_status st = qm_store_table(f, "/bench/searches",
                                  "row k of /timing/search_rate belongs to row k", n, 6, columns);
    if (st == QM_OK)
        st = qm_store_timing(f, "search_rate", n, rate, "1/s",
                             "codes per second, one thread, median");
    if (st == QM_OK)
        st = qm_store_timing(f, "search_seconds", (int64_t)n * b->rounds, raw, "s",
                             "raw samples for 16384 codes: rounds of row 0, then of row 1, ...");
    free(raw);
    return st;
}

int qm_cmd_bench(int argc, char **argv)
{
    static const struct argp_child children[] = {{&qm_cli_argp, 0, "Common options:", -1}, {0}};
    static const struct argp argp = {
        .options = options,
        .parser = parse_option,
        .children = children,
        .doc =
            "Speed of every variant's step and of every search, as ratios within one run.\v"
            "Examples:\n"
            "  qualm bench --quick\n"
            "  qualm bench --size 64 --out results/bench.h5\n"
            "  qualm bench --only searches\n\n"
            "Steps run on one thread and on all, interleaved with the yardstick a += s*b; ratios "
            "are medians over rounds of ratios within a round. Rules over whole tensors (sums "
            "before "
            "the first update) come last, up to 5 rounds each, fewer where a step takes seconds, "
            "of a "
            "matrix with 1024 columns; bytes moved count a read more for every such sum. Exit "
            "codes: 0 done, 2 usage, 3 I/O.",
    };
    struct bench b = {.n = 64 << 20,
                      .gib = 4,
                      .analyze = 1,
                      .rounds = 9,
                      .threads = omp_get_max_threads(),
                      .steps = 1,
                      .searches = 1,
                      .argc = argc,
                      .argv = argv};
    int code = qm_cli_parse(&argp, argc, argv, &b);
    if (code)
        return code;
    struct steps *s = calloc(1, sizeof *s);
    struct search_row *rows = calloc(MAX_SEARCHES, sizeof *rows);
    json_t *out = json_object();
    struct qm_store *f = NULL;
    int n_searches = 0;
    struct analyze a = {.rounds = 0};
    qm_status st = s && rows ? QM_OK : qm_fail(QM_NO_MEMORY, "the benchmark");
    if (st == QM_OK && b.out)
        st = qm_store_open(b.out, "bench", argc, argv, &f);
    if (st == QM_OK && b.steps)
        st = run_steps(&b, s);
    if (st == QM_OK && b.searches)
        st = run_searches(&b, rows, &n_searches);
    if (st == QM_OK && b.analyze)
        st = run_analyze(&b, &a);
    if (st == QM_OK && b.steps) {
        qm_note(
            "steps: %lld M parameters, %d rounds, %s, in-place bandwidth %.1f GB/s on %d threads",
            (long long)(b.n >> 20), b.rounds, qm_cpu_isa(),
            12e-9 * (double)b.n / median(s->time[1][s->count], b.rounds), b.threads);
        json_object_set_new(out, "steps", print_steps(&b, s));
    }
    if (st == QM_OK && b.searches) {
        qm_note("searches: one thread, codes from the first-level cache; x scan within a map");
        json_object_set_new(out, "searches", print_searches(&b, rows, n_searches));
    }
    if (st == QM_OK && b.analyze) {
        qm_note("analyze: a .npy file in the page cache, nf4 with blocks of 128, default metrics; "
                "reading: read(2) into 1 MiB");
        json_object_set_new(out, "analyze", print_analyze(&b, &a));
    }
    if (st == QM_OK && f && b.analyze) {
        st = qm_store_timing(f, "analyze_seconds", a.rounds, a.run, "s", "analyzing the file");
        if (st == QM_OK)
            st = qm_store_timing(f, "read_seconds", a.rounds, a.read, "s", "reading it plainly");
    }
    if (st == QM_OK && f && b.steps)
        st = store_steps(f, &b, s);
    if (st == QM_OK && f && b.searches)
        st = store_searches(f, &b, rows, n_searches);
    if (st == QM_OK && f)
        st = qm_store_commit(f);
    else
        qm_store_abort(f);
    if (st == QM_OK && qm_cli.json)
        qm_json_print(out);
    else
        json_decref(out);
    free(s);
    free(rows);
    return st == QM_OK ? 0 : qm_cli_failed("bench", st);
}
