/* steps_table.c - Summarises the samples of steps: as a table, as JSON and in the result file. */
#include <math.h>
#include <stdlib.h>

#include "core/recipe/backend.h"
#include "experiments/bench/bench.h"
#include "experiments/cli/cli.h"

enum { ROWS = 2 * (QM_BENCH_STEPS + QM_BENCH_ROOFS) }; /* first one thread, then all */

struct qm_bench_summary qm_bench_summary(const struct qm_bench *b, const struct qm_bench_rows *rows,
                                         int v, int h)
{
    const struct qm_bench_row *row = &rows->row[v];
    const double *t = row->time[h];
    int registers = v == rows->count + QM_BENCH_REGISTERS;
    double x[QM_BENCH_ROUNDS];
    struct qm_bench_summary s = {
        .rate = (registers ? QM_BENCH_OPS : 1) * (double)b->n / qm_bench_median(t, row->rounds),
        .to_f32 = (double)NAN,
        .of_yardstick = (double)NAN,
        .speedup = qm_bench_ratio(row->rounds, row->time[0], row->time[1], 1.0),
    };
    if (!registers) {
        const double *bandwidth = row->roof[QM_BENCH_MEMORY][h];
        s.to_f32 = qm_bench_ratio(row->rounds, row->f32[h], t, 1.0);
        s.of_yardstick = qm_bench_ratio(row->rounds, bandwidth, t, row->moved / 12.0);
    }
    for (int y = 0; y < QM_BENCH_ROOFS; y++) {
        for (int r = 0; r < row->rounds; r++)
            x[r] = (row->time[0][r] / row->time[1][r]) / (row->roof[y][0][r] / row->roof[y][1][r]);
        s.scaling[y] = qm_bench_median(x, row->rounds);
    }
    return s;
}

/* Prints x, "-" where it is NaN, and nothing where the column does not apply to this half. */
static void cell(struct qm_table *table, int applies, int digits, double x)
{
    if (applies && !isnan(x))
        qm_table_cell(table, "%.*f", digits, x);
    else
        qm_table_cell(table, "%s", applies ? "-" : "");
}

static void print_row(struct qm_table *table, const struct qm_bench_row *row, int threads, int h,
                      const struct qm_bench_summary *s)
{
    int registers = isnan(s->of_yardstick);
    qm_table_cell(table, registers ? "%s (Gop/s)" : "%s", row->name);
    qm_table_cell(table, "%d", threads);
    cell(table, 1, 3, s->rate * 1e-9);
    cell(table, 1, 2, s->to_f32);
    cell(table, 1, 2, registers ? (double)NAN : row->moved);
    cell(table, 1, 0, s->of_yardstick * 100.0);
    cell(table, h, 2, s->speedup);
    for (int y = 0; y < QM_BENCH_ROOFS; y++)
        cell(table, h, 2, s->scaling[y]);
}

static json_t *json_row(const struct qm_bench_row *row, int threads, int h,
                        const struct qm_bench_summary *s)
{
    const char *rate = isnan(s->of_yardstick) ? "ops_per_s" : "params_per_s";
    json_t *o = json_pack("{s:s, s:i, s:f, s:o, s:f, s:o}", "step", row->name, "threads", threads,
                          rate, s->rate, "to_adamw_f32", qm_json_number(s->to_f32), "bytes_moved",
                          row->moved, "of_yardstick", qm_json_number(s->of_yardstick));
    if (h) {
        json_object_set_new(o, "speedup", json_real(s->speedup));
        json_object_set_new(o, "scaling", json_real(s->scaling[QM_BENCH_MEMORY]));
        json_object_set_new(o, "scaling_registers", json_real(s->scaling[QM_BENCH_REGISTERS]));
    }
    return o;
}

json_t *qm_bench_steps_print(const struct qm_bench *b, const void *rows)
{
    static const char *const heads[] = {"step",        "threads",     "Gparam/s",
                                        "x adamw_f32", "bytes moved", "% yardstick",
                                        "speed-up",    "scaling",     "scaling in registers"};
    const struct qm_bench_rows *s = rows;
    const double *memory = s->row[s->count + QM_BENCH_MEMORY].time[1];
    qm_note("steps: %lld M parameters, %d rounds, %s, in-place bandwidth %.1f GB/s on %d threads",
            (long long)(b->n >> 20), b->rounds, qm_cpu_isa(),
            12e-9 * (double)b->n / qm_bench_median(memory, b->rounds), b->threads);
    json_t *list = json_array();
    struct qm_table *table =
        qm_cli.json ? NULL : qm_table_open(sizeof heads / sizeof *heads, heads);
    for (int h = 0; h < 2; h++)
        for (int v = 0; v < s->count + QM_BENCH_ROOFS; v++) {
            struct qm_bench_summary sum = qm_bench_summary(b, s, v, h);
            int threads = h ? b->threads : 1;
            if (table)
                print_row(table, &s->row[v], threads, h, &sum);
            json_array_append_new(list, json_row(&s->row[v], threads, h, &sum));
        }
    if (table)
        qm_table_close(table);
    return list;
}

/* The columns of all rows, in the table's order. */
enum { SUMMARIES = 4 + QM_BENCH_ROOFS };
struct columns {
    int64_t threads[ROWS];
    const char *name[ROWS];
    double moved[ROWS], state[ROWS], summary[SUMMARIES][ROWS];
};

static void fill_columns(const struct qm_bench *b, const struct qm_bench_rows *s, struct columns *c,
                         double *raw)
{
    int k = 0;
    for (int h = 0; h < 2; h++)
        for (int v = 0; v < s->count + QM_BENCH_ROOFS; v++, k++) {
            const struct qm_bench_row *row = &s->row[v];
            struct qm_bench_summary sum = qm_bench_summary(b, s, v, h);
            c->name[k] = row->name;
            c->threads[k] = h ? b->threads : 1;
            c->moved[k] = row->moved;
            c->state[k] = row->state_bytes;
            for (int r = 0; r < b->rounds; r++)
                raw[k * b->rounds + r] = r < row->rounds ? row->time[h][r] : (double)NAN;
            const double all[SUMMARIES] = {
                sum.rate,
                sum.to_f32,
                sum.of_yardstick,
                h ? sum.speedup : (double)NAN,
                h ? sum.scaling[QM_BENCH_MEMORY] : (double)NAN,
                h ? sum.scaling[QM_BENCH_REGISTERS] : (double)NAN,
            };
            for (int i = 0; i < SUMMARIES; i++)
                c->summary[i][k] = all[i];
        }
}

static qm_status write_columns(struct qm_store *f, int64_t rows, const struct columns *c)
{
    static const struct {
        const char *name, *unit, *text;
    } timing[SUMMARIES] = {
        {"step_rate", "1/s", "parameters per second (registers: operations), median over rounds"},
        {"step_to_adamw_f32", "1", "rate over adamw_f32's in the same round and threads, median"},
        {"step_of_yardstick", "1", "declared bytes per second over the yardstick's, median"},
        {"step_speedup", "1", "from one thread to all, median; NaN for one thread"},
        {"step_scaling", "1", "speed-up over that of a += s*b, median; NaN for one thread"},
        {"step_scaling_registers", "1",
         "speed-up over that of registers, median; NaN for one thread"},
    };
    const struct qm_column columns[] = {
        {"step", QM_COLUMN_text, "",
         "variant, or a yardstick: a += s*b in memory, arithmetic in registers", c->name},
        {"threads", QM_COLUMN_i64, "1", "threads", c->threads},
        {"bytes_moved", QM_COLUMN_f64, "B", "bytes read and written per parameter, declared",
         c->moved},
        {"state_bytes", QM_COLUMN_f64, "B", "state per parameter", c->state},
    };
    QM_TRY(qm_store_table(f, "/bench/steps",
                          "what was timed; row k of /timing/step_seconds belongs to row k", rows, 4,
                          columns));
    for (int i = 0; i < SUMMARIES; i++)
        QM_TRY(qm_store_timing(f, timing[i].name, rows, c->summary[i], timing[i].unit,
                               timing[i].text));
    return QM_OK;
}

qm_status qm_bench_steps_store(const struct qm_bench *b, const void *rows, struct qm_store *f)
{
    const struct qm_bench_rows *s = rows;
    int64_t n = 2 * (s->count + QM_BENCH_ROOFS);
    double *raw = malloc(sizeof *raw * (size_t)(n * b->rounds));
    struct columns c;
    if (!raw)
        return qm_fail(QM_NO_MEMORY, "raw samples");
    fill_columns(b, s, &c, raw);
    qm_status st =
        qm_store_timing(f, "step_seconds", n * b->rounds, raw, "s",
                        "raw samples: rounds of row 0, then of row 1, ...; NaN: round left out");
    free(raw);
    return st == QM_OK ? write_columns(f, n, &c) : st;
}
