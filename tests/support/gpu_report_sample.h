/* gpu_report_sample.h - A report of gpu-check that agrees with itself, made without a GPU. */
#ifndef QM_SUPPORT_GPU_REPORT_SAMPLE_H
#define QM_SUPPORT_GPU_REPORT_SAMPLE_H

#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/gpu/bench.h"
#include "experiments/gpu/gpu_tasks.h"

enum { SAMPLE_N = 8192, SAMPLE_ROUNDS = 2, SAMPLE_PEERS = 1 };

static inline void sample_set(json_t *row, const char *name, double x)
{
    json_t *at = json_object_get(row, name);
    json_object_set_new(row, name,
                        json_is_integer(at) ? json_integer((json_int_t)x) : json_real(x));
}

/* Makes rate, share and ratio those of the other figures. */
static inline void sample_derive(enum qm_gpu_part part, json_t *row)
{
    double seconds = json_number_value(json_object_get(row, "seconds"));
    double n = json_number_value(json_object_get(row, "elements"));
    double bytes = json_number_value(json_object_get(row, "bytes_per_parameter"));
    double copy = json_number_value(json_object_get(row, "copy_rate"));
    if (part == QM_GPU_speed) {
        sample_set(row, "rate", n / seconds);
        sample_set(row, "share_of_copy", bytes * n / seconds / copy);
    }
    if (part == QM_GPU_peers)
        sample_set(row, "ratio", seconds / json_number_value(json_object_get(row, "peer_seconds")));
}

/* The row of a part, with its key, whose status is ok. */
static inline json_t *sample_row(enum qm_gpu_part part, json_t *key)
{
    json_t *row = json_object();
    double bytes = 0.0;
    for (const struct qm_gpu_column *c = qm_gpu_columns(part); c->name; c++)
        json_object_set_new(row, c->name,
                            c->type == 't'   ? json_string("adamw_f32")
                            : c->type == 'f' ? json_real(0.5)
                            : c->type == 'b' ? json_true()
                                             : json_integer(7));
    json_object_update(row, key);
    json_object_set_new(row, "status", json_string("ok"));
    sample_set(row, "took", 100.0);
    if (json_object_get(row, "wait_seconds"))
        sample_set(row, "wait_seconds", 1e-3);
    json_object_del(row, "first_wrong");
    json_object_del(row, "difference");
    if (part == QM_GPU_speed || part == QM_GPU_tables || part == QM_GPU_peers) {
        sample_set(row, "elements",
                   (double)(part == QM_GPU_tables ? qm_speed_small(SAMPLE_N) : SAMPLE_N));
        sample_set(row, "tensors", part == QM_GPU_tables ? QM_BENCH_TENSORS : 1);
    }
    if (part == QM_GPU_speed && qm_speed_bytes(json_string_value(json_object_get(key, "recipe")),
                                               SAMPLE_N, &bytes) == QM_OK) {
        json_object_del(row, "tensors");
        sample_set(row, "copy_rate", 1e6);
        sample_set(row, "bytes_per_parameter", bytes);
    }
    if (part == QM_GPU_tables)
        json_object_set_new(row, "mode", json_string("exact"));
    if (part == QM_GPU_codes || part == QM_GPU_check)
        json_object_set_new(row, "wrong", json_integer(0));
    for (int k = 0; part == QM_GPU_check && k < 3; k++)
        json_object_set_new(row, (const char *[]){"within_bound", "boundary", "off_by_one"}[k],
                            json_integer(0));
    if (part == QM_GPU_codes)
        json_object_set_new(row, "inputs", json_integer(INT64_C(1) << 32));
    sample_derive(part, row);
    return row;
}

/* A quick report of all parts for one recipe, and of codes. */
static inline struct qm_gpu_report sample_report(const char *name)
{
    static char recipe[] = "adamw_f32", *recipes[] = {recipe};
    struct qm_gpu_report r = {0};
    struct qm_gpu_options o = {.quick = 1,
                               .rounds = SAMPLE_ROUNDS,
                               .n = SAMPLE_N,
                               .limit = 60.0,
                               .has_only = 1,
                               .recipes = recipes,
                               .n_recipes = 1};
    struct qm_gpu_tasks tasks;
    for (int i = 0; i < QM_GPU_PARTS; i++) {
        o.only[i] = 1;
        r.rows[i] = json_array();
    }
    if (qm_gpu_tasks_make(&o, NULL, &tasks) != QM_OK)
        return r;
    o.peers = "a program";
    r.device = json_pack("{s:o, s:s, s:f, s:i}", "name", qm_json_text(name), "uuid", "GPU-1",
                         "memory_bytes", 1e9, "multiprocessors", 100);
    r.plan = qm_gpu_plan(&o);
    json_object_set_new(r.plan, "state", json_string("complete"));
    json_object_set_new(r.plan, "tasks", json_integer(tasks.n + SAMPLE_PEERS));
    json_object_set_new(r.plan, "missing", json_integer(0));
    for (int i = 0; i < tasks.n; i++)
        json_array_append_new(r.rows[tasks.at[i].part],
                              sample_row(tasks.at[i].part, tasks.at[i].key));
    json_t *key = json_pack("{s:s}", "peer", "torch.optim.AdamW");
    json_array_append_new(r.rows[QM_GPU_peers], sample_row(QM_GPU_peers, key));
    json_decref(key);
    qm_gpu_tasks_free(&tasks);
    return r;
}

#endif
