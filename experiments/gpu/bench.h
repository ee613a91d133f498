/* bench.h - Times work on a GPU: events, after a warm-up, with the L2 cache flushed.
 *
 * Every round is preceded by a flush of the L2 cache, two sets of tensors take turns, and one rule
 * ends the rounds (qm_gpu_bench_time).  tests/peers/peers.py times other projects' optimizers by
 * the same method. */
#ifndef QM_EXPERIMENTS_GPU_BENCH_H
#define QM_EXPERIMENTS_GPU_BENCH_H

#include <jansson.h>

#include "core/device/batch.h"
#include "core/device/device_cuda.h"
#include "core/device/tensor_rule_plan.h"

enum {
    QM_BENCH_COLUMNS = 4096,    /* of the large tensor */
    QM_BENCH_WARM = 3,          /* warm-up rounds */
    QM_GPU_BENCH_ROUNDS = 1000, /* most that --rounds takes */
    QM_BENCH_TURNS = 2          /* sets of tensors that take turns */
};

/* Number of the small tensors, and elements of each. */
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

/* n: parameters of the large tensor, 0: at most 2^27, halved until they fit; rounds: 1 to
 * QM_GPU_BENCH_ROUNDS.  b is zeroed beforehand; close accepts a half-opened one. */
qm_status qm_gpu_bench_open(int64_t n, int rounds, struct qm_gpu_bench *b);
void qm_gpu_bench_close(struct qm_gpu_bench *b);

/* Seconds of one round: median and least over `rounds` rounds. */
struct qm_gpu_time {
    double median, least;
    int rounds;
};

/* Times `work` for at least b->rounds rounds, then until the middle half of them lies within 2 % of
 * the median, at most 4 b->rounds. */
qm_status qm_gpu_bench_time(struct qm_gpu_bench *b, qm_status (*work)(void *), void *arg,
                            struct qm_gpu_time *out);

/* The work of a step: parts, each a batch or a plan of a rule over whole tensors, in every turn. */
struct qm_gpu_work {
    int n;
    int64_t t; /* number of the last step */
    struct {
        struct qm_batch *batch;
        struct qm_tensor_rule_plan *whole;
    } part[QM_BENCH_TURNS][QM_BENCH_TENSORS];
};

/* Adds a part of n tensors with its own states in each turn.  Statuses are those of
 * qm_batch_open. */
qm_status qm_gpu_work_add(struct qm_gpu_work *w, enum qm_mode mode, const struct qm_recipe *r,
                          int n, const struct qm_shape *shapes, const uint32_t *ids);
void qm_gpu_work_close(struct qm_gpu_work *w);
qm_status qm_gpu_work_run(void *work); /* one step of the parts of the current turn */

/* tables.c.  Adds a row per way of launching and recipe.  only, where not NULL: this recipe and the
 * first one, which has every way. */
qm_status qm_speed_tables(struct qm_gpu_bench *b, const char *only, json_t *rows);

/* Elements of each small tensor where the large one has n; fewer where n is small. */
int qm_speed_small(int64_t n);

#endif
