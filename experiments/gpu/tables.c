/* tables.c - Times many small tensors on a GPU by three ways of launching. */
#include <string.h>

#include "experiments/gpu/bench.h"
#include "experiments/gpu/gpu.h"

/* The first recipe is timed by every way, the others mostly by the first way, which peers.c
 * compares with other projects' optimizers.  Rules over whole tensors have a launch for each phase,
 * or for each phase of each tensor. */
static const char *const ways[QM_SPEED_WAYS] = {"one launch, tables in memory", "tables by value",
                                                "a launch for each tensor"};
static const struct {
    const char *name;
    int ways; /* bit k: by way k */
} recipes[] = {{"adamw4_lpmm_group", 7}, {"adamw_f32", 1}, {"adamw8_bnb_cuda", 1},
               {"adamw8_ao", 1},         {"adamw4_ao", 1}, {"adamw4_lpmm_factor", 5},
               {"adafactor8_026", 5}};

const char *qm_speed_way(int way) { return ways[way]; }

const char *qm_speed_table_recipe(int i, int *bits)
{
    if (i >= (int)(sizeof recipes / sizeof *recipes))
        return NULL;
    *bits = recipes[i].ways;
    return recipes[i].name;
}

int qm_speed_small(int64_t n)
{
    return n < QM_BENCH_TENSORS * QM_BENCH_SMALL ? QM_BENCH_SMALL / 256 : QM_BENCH_SMALL;
}

static qm_status open_way(struct qm_gpu_bench *b, const char *recipe, int way, struct qm_recipe *r,
                          struct qm_gpu_work *w)
{
    struct qm_shape shapes[QM_BENCH_TENSORS];
    uint32_t ids[QM_BENCH_TENSORS];
    int n = way == 2 ? 1 : QM_BENCH_TENSORS;
    QM_TRY(qm_recipe_parse(recipe, r));
    for (int k = 0; k < QM_BENCH_TENSORS; k++) {
        shapes[k] = (struct qm_shape){1, {qm_speed_small(b->n)}};
        ids[k] = (uint32_t)k;
    }
    for (int k = 0; k < QM_BENCH_TENSORS; k += n)
        QM_TRY(qm_gpu_work_add(w, QM_MODE_exact, r, n, shapes + k, ids + k));
    for (int turn = 0; turn < QM_BENCH_TURNS && way == 1; turn++)
        QM_TRY(qm_batch_by_value(w->part[turn][0].batch, 1));
    return qm_gpu_work_give(b, w);
}

qm_status qm_speed_table_row(struct qm_gpu_bench *b, const char *recipe, int way, json_t *row)
{
    struct qm_gpu_work w = {0};
    struct qm_gpu_time time, graph;
    struct qm_recipe r;
    /* every parameter is read and written */
    const double least = 2.0 * QM_BENCH_TENSORS * qm_speed_small(b->n);
    qm_status st = open_way(b, recipe, way, &r, &w);
    if (st == QM_OK)
        st = qm_gpu_work_time(b, &w, &time);
    if (st == QM_OK)
        st = qm_gpu_bench_plausible("a step", time.median, least * qm_param_bytes(&r.param), 0.0);
    if (st == QM_OK) {
        json_object_set_new(row, "mode", json_string("exact"));
        json_object_set_new(row, "tensors", json_integer(QM_BENCH_TENSORS));
        json_object_set_new(row, "elements", json_integer(qm_speed_small(b->n)));
        json_object_set_new(row, "seconds", json_real(time.median));
        json_object_set_new(row, "least_seconds", json_real(time.least));
        json_object_set_new(row, "rounds", json_integer(time.rounds));
        st = qm_gpu_work_time_graph(b, &w, &graph);
        if (st == QM_OK)
            st = qm_gpu_bench_plausible("a graph's step", graph.median,
                                        least * qm_param_bytes(&r.param), 0.0);
        if (st == QM_OK)
            json_object_set_new(row, "graph_seconds", json_real(graph.median));
        qm_gpu_bench_say_wait(b, row);
    }
    qm_gpu_work_close(&w);
    return st == QM_SKIPPED ? QM_OK : st;
}
