/* tables.c - Times many small tensors on a GPU by three ways of launching. */
#include <string.h>

#include "experiments/gpu/bench.h"
#include "experiments/gpu/gpu.h"

/* The first recipe is timed by every way, the others mostly by the first way, which peers.c
 * compares with other projects' optimizers.  Rules over whole tensors have a launch for each phase,
 * or for each phase of each tensor. */
static const char *const ways[] = {"one launch, tables in memory", "tables by value",
                                   "a launch for each tensor"};
static const struct {
    const char *name;
    int ways; /* bit k: by way k */
} recipes[] = {{"adamw4_lpmm_group", 7}, {"adamw_f32", 1}, {"adamw8_bnb_cuda", 1},
               {"adamw8_ao", 1},         {"adamw4_ao", 1}, {"adamw4_lpmm_factor", 5},
               {"adafactor8_026", 5}};

static qm_status measure_way(struct qm_gpu_bench *b, const char *recipe, int way, json_t *rows)
{
    struct qm_shape shapes[QM_BENCH_TENSORS];
    uint32_t ids[QM_BENCH_TENSORS];
    struct qm_gpu_work w = {0};
    struct qm_gpu_time time;
    struct qm_recipe r;
    int elements = qm_speed_small(b->n), n = way == 2 ? 1 : QM_BENCH_TENSORS;
    qm_status st = qm_recipe_parse(recipe, &r);
    for (int k = 0; k < QM_BENCH_TENSORS; k++) {
        shapes[k] = (struct qm_shape){1, {elements}};
        ids[k] = (uint32_t)k;
    }
    for (int k = 0; k < QM_BENCH_TENSORS && st == QM_OK; k += n)
        st = qm_gpu_work_add(&w, QM_MODE_exact, &r, n, shapes + k, ids + k);
    for (int turn = 0; turn < QM_BENCH_TURNS && st == QM_OK && way == 1; turn++)
        st = qm_batch_by_value(w.part[turn][0].batch, 1);
    if (st == QM_OK)
        st = qm_gpu_bench_time(b, qm_gpu_work_run, &w, &time);
    if (st == QM_OK)
        json_array_append_new(rows, json_pack("{s:s, s:s, s:s, s:i, s:i, s:f, s:f, s:i}", "recipe",
                                              recipe, "mode", "exact", "way", ways[way], "tensors",
                                              QM_BENCH_TENSORS, "elements", elements, "seconds",
                                              time.median, "least_seconds", time.least, "rounds",
                                              time.rounds));
    qm_gpu_work_close(&w);
    return st;
}

int qm_speed_small(int64_t n)
{
    return n < QM_BENCH_TENSORS * QM_BENCH_SMALL ? QM_BENCH_SMALL / 256 : QM_BENCH_SMALL;
}

qm_status qm_speed_tables(struct qm_gpu_bench *b, const char *only, json_t *rows)
{
    for (size_t k = 0; k < sizeof recipes / sizeof *recipes; k++)
        for (int way = 0; way < 3; way++)
            if (recipes[k].ways >> way & 1 &&
                (!only || k == 0 || strcmp(only, recipes[k].name) == 0))
                QM_TRY(measure_way(b, recipes[k].name, way, rows));
    return QM_OK;
}
