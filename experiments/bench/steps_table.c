/* steps_table.c - what the samples of steps say, for people, as JSON and in a file. */
#include <math.h>
#include <stdlib.h>

#include "core/engine/backend.h"
#include "experiments/bench/bench.h"
#include "experiments/cli.h"

enum { ROWS = 2 * (QM_BENCH_STEPS + 1) }; /* in the table: first one thread, then all */

struct summary {
    double rate, to_f32, of_yardstick, scaling;
};

static struct summary summary(const struct qm_bench *b, const struct qm_bench_row *row, int h)
{
    const double *t = row->time[h];
    double x[QM_BENCH_ROUNDS];
    struct summary s = {
        .rate = (double)b->n / qm_bench_median(t, row->rounds),
        .to_f32 = qm_bench_ratio(row->rounds, row->f32[h], t, 1.0),
        .of_yardstick = qm_bench_ratio(row->rounds, row->yard[h], t, row->moved / 12.0),
    };
    /* how this step speeds up from one thread to all, over how the yardstick does */
    for (int r = 0; r < row->rounds; r++)
        x[r] = (row->time[0][r] / row->time[1][r]) / (row->yard[0][r] / row->yard[1][r]);
    s.scaling = qm_bench_median(x, row->rounds);
    return s;
}

json_t *qm_bench_steps_print(const struct qm_bench *b, const void *rows)
{
    static const char *const heads[] = {"step",        "threads",     "Gparam/s", "x adamw_f32",
                                        "bytes moved", "% yardstick", "scaling"};
    const struct qm_bench_rows *s = rows;
    qm_note("steps: %lld M parameters, %d rounds, %s, in-place bandwidth %.1f GB/s on %d threads",
            (long long)(b->n >> 20), b->rounds, qm_cpu_isa(),
            12e-9 * (double)b->n / qm_bench_median(s->row[s->count].time[1], b->rounds),
            b->threads);
    json_t *list = json_array();
    struct qm_table *table = qm_cli.json ? NULL : qm_table_open(7, heads);
    for (int h = 0; h < 2; h++)
        for (int v = 0; v <= s->count; v++) {
            const struct qm_bench_row *row = &s->row[v];
            struct summary sum = summary(b, row, h);
            int threads = h ? b->threads : 1;
            if (table) {
                qm_table_cell(table, "%s", row->name);
                qm_table_cell(table, "%d", threads);
                qm_table_cell(table, "%.3f", sum.rate * 1e-9);
                qm_table_cell(table, "%.2f", sum.to_f32);
                qm_table_cell(table, "%.2f", row->moved);
                qm_table_cell(table, "%.0f", sum.of_yardstick * 100.0);
                if (h)
                    qm_table_cell(table, "%.2f", sum.scaling);
                else
                    qm_table_cell(table, "%s", "");
            }
            json_t *o = json_pack("{s:s, s:i, s:f, s:f, s:f, s:f}", "step", row->name, "threads",
                                  threads, "params_per_s", sum.rate, "to_adamw_f32", sum.to_f32,
                                  "bytes_moved", row->moved, "of_yardstick", sum.of_yardstick);
            if (h)
                json_object_set_new(o, "scaling", json_real(sum.scaling));
            json_array_append_new(list, o);
        }
    if (table)
        qm_table_close(table);
    return list;
}

/* The columns of all rows, in the table's order. */
struct columns {
    int64_t threads[ROWS];
    const char *name[ROWS];
    double moved[ROWS], state[ROWS], summary[4][ROWS];
};

static void fill_columns(const struct qm_bench *b, const struct qm_bench_rows *s, struct columns *c,
                         double *raw)
{
    int k = 0;
    for (int h = 0; h < 2; h++)
        for (int v = 0; v <= s->count; v++, k++) {
            const struct qm_bench_row *row = &s->row[v];
            struct summary sum = summary(b, row, h);
            c->name[k] = row->name;
            c->threads[k] = h ? b->threads : 1;
            c->moved[k] = row->moved;
            c->state[k] = row->state_bytes;
            for (int r = 0; r < b->rounds; r++)
                raw[k * b->rounds + r] = r < row->rounds ? row->time[h][r] : (double)NAN;
            c->summary[0][k] = sum.rate;
            c->summary[1][k] = sum.to_f32;
            c->summary[2][k] = sum.of_yardstick;
            c->summary[3][k] = h ? sum.scaling : (double)NAN;
        }
}

static qm_status write_columns(struct qm_store *f, int64_t rows, const struct columns *c)
{
    static const char *const name[] = {"step_rate", "step_to_adamw_f32", "step_of_yardstick",
                                       "step_scaling"};
    static const char *const unit[] = {"1/s", "1", "1", "1"};
    static const char *const text[] = {
        "parameters per second, median over rounds",
        "rate over adamw_f32's in the same round and threads, median",
        "declared bytes per second over the yardstick's, median",
        "speed-up from one thread to all over the yardstick's, median; NaN for one thread"};
    const struct qm_column columns[] = {
        {"step", QM_COLUMN_text, "", "variant, or the yardstick a += s*b", c->name},
        {"threads", QM_COLUMN_i64, "1", "threads", c->threads},
        {"bytes_moved", QM_COLUMN_f64, "B", "bytes read and written per parameter, declared",
         c->moved},
        {"state_bytes", QM_COLUMN_f64, "B", "state per parameter", c->state},
    };
    QM_TRY(qm_store_table(f, "/bench/steps",
                          "what was timed; row k of /timing/step_seconds belongs to row k", rows, 4,
                          columns));
    for (size_t i = 0; i < sizeof name / sizeof *name; i++)
        QM_TRY(qm_store_timing(f, name[i], rows, c->summary[i], unit[i], text[i]));
    return QM_OK;
}

qm_status qm_bench_steps_store(const struct qm_bench *b, const void *rows, struct qm_store *f)
{
    const struct qm_bench_rows *s = rows;
    int64_t n = 2 * (s->count + 1);
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
