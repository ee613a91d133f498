/* bench.h - how work on a GPU is timed: events around it after a warm-up, the L2 cache emptied before each
 * round, inputs in turn; enough is enough by one rule.  tests/peers/peers.py times others' optimizers in the
 * same way. */
#ifndef QM_EXPERIMENTS_GPU_BENCH_H
#define QM_EXPERIMENTS_GPU_BENCH_H

#include <jansson.h>

#include "core/device/batch.h"
#include "core/device/device_cuda.h"
#include "core/device/tensor_rule_plan.h"

/* A tensor's columns, warm-up rounds, most of what --rounds takes, sets of tensors that take turns. */
enum { QM_BENCH_COLUMNS = 4096, QM_BENCH_WARM = 3, QM_GPU_BENCH_ROUNDS = 1000, QM_BENCH_TURNS = 2 };

/* Many small tensors. */
enum { QM_BENCH_TENSORS = 100, QM_BENCH_SMALL = 16384 };

struct qm_gpu_bench {
    const struct qm_cuda *cu;
    void *stream, *from, *to;
    int device, threads_per_sm, rounds;
    int64_t n; /* parameters of a large tensor, whole rows of QM_BENCH_COLUMNS */
    char pci[32];
    qm_address flush;
    size_t flush_bytes;
    float *p, *g; /* n of each */
};

/* n: parameters, 0: as many as fit well; rounds: 1 to QM_GPU_BENCH_ROUNDS.  close accepts what open left. */
qm_status qm_gpu_bench_open(int64_t n, int rounds, struct qm_gpu_bench *b);
void qm_gpu_bench_close(struct qm_gpu_bench *b);

/* Seconds of one round, over so many. */
struct qm_gpu_time {
    double median, least;
    int rounds;
};

/* At least b->rounds rounds; then until the middle half of them lies within 2 % of the median, at most four
 * times as many. */
qm_status qm_gpu_bench_time(struct qm_gpu_bench *b, qm_status (*work)(void *), void *arg,
                            struct qm_gpu_time *out);

/* What is stepped: parts, each a batch or a rule over whole tensors; and as many that take turns with
 * them. */
struct qm_gpu_work {
    int n;
    int64_t t; /* the last step */
    struct {
        struct qm_batch *batch;
        struct qm_tensor_rule_plan *whole;
    } part[QM_BENCH_TURNS][QM_BENCH_TENSORS];
};

/* Another part with its own states, in each turn, of n tensors.  The statuses of qm_batch_open. */
qm_status qm_gpu_work_add(struct qm_gpu_work *w, enum qm_mode mode, const struct qm_recipe *r,
                          int n, const struct qm_shape *shapes, const uint32_t *ids);
void qm_gpu_work_close(struct qm_gpu_work *w);
qm_status qm_gpu_work_run(void *work); /* a step of the parts whose turn it is */

/* tables.c: a row per way and recipe; of `only`, where not NULL, and the recipe with every way. */
qm_status qm_speed_tables(struct qm_gpu_bench *b, const char *only, json_t *rows);

/* Elements of each of the small tensors where the large one has n: a rehearsal takes few. */
int qm_speed_small(int64_t n);

#endif
