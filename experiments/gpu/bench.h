/* bench.h - Times work on a GPU: events or a CUDA graph, after a warm-up, with the L2 cache read
 * full of other data.
 *
 * Every round is preceded by reading twice the L2 cache: that evicts what the last round left,
 * writes its dirty lines back before the clock starts, and leaves only clean lines.  Two sets of
 * tensors take turns, and one rule ends the rounds (qm_gpu_bench_time).  tests/peers/peers.py
 * times other projects' optimizers by the same method. */
#ifndef QM_EXPERIMENTS_GPU_BENCH_H
#define QM_EXPERIMENTS_GPU_BENCH_H

#include <jansson.h>

#include "core/cuda/nvml.h"
#include "core/device/batch.h"
#include "core/device/device_cuda.h"
#include "core/device/tensor_rule_plan.h"

enum {
    QM_BENCH_COLUMNS = 4096,    /* of the large tensor */
    QM_BENCH_WARM = 3,          /* warm-up rounds */
    QM_BENCH_LEAST = 3,         /* rounds that are made however long they take */
    QM_GPU_BENCH_ROUNDS = 1000, /* most that --rounds takes */
    QM_BENCH_TURNS = 2,         /* sets of tensors that take turns */
    QM_BENCH_PLACES = 3,        /* where parameters are compared with those before the steps */
    QM_BENCH_SAMPLE = 1024,     /* elements at each place, at most */
    QM_BENCH_SEED = 1           /* of the drawn roundings of steps */
};

/* The seconds by which waits for the GPU may be late, and those from which on a row says it. */
#define QM_BENCH_LATEST     20e-3
#define QM_BENCH_USUAL_WAIT 100e-6

/* Number of the small tensors, and elements of each. */
enum { QM_BENCH_TENSORS = 100, QM_BENCH_SMALL = 16384 };

struct qm_gpu_bench {
    const struct qm_cuda *cu;
    void *stream, *start, *from, *to; /* events: before the cache is read, and around the work */
    void *module, *reader;            /* the kernel that reads the cache full */
    int device, threads_per_sm, sms, rounds;
    double cap;  /* seconds of timed rounds, at most */
    double wait; /* the longest that was measured of how late a wait for the device is */
    int64_t n;   /* parameters of a large tensor, whole rows of QM_BENCH_COLUMNS */
    char pci[32];
    qm_address flush;
    size_t flush_bytes;
    uint64_t reads;     /* launches of the reader that the device must have begun */
    const float *p, *g; /* n of each */
};

/* Parameters of the large tensor for --size n (0: at most 2^27, halved until they fit into
 * free_bytes), and bytes read between rounds for an L2 cache. */
int64_t qm_gpu_bench_size(int64_t n, size_t free_bytes);
size_t qm_gpu_bench_flush(int l2_bytes);

/* Prepares parameters and gradients of n elements, once for this process and those that it forks
 * afterwards; qm_gpu_bench_open does so where it was not done. */
qm_status qm_gpu_bench_inputs(int64_t n);

/* Compiles the kernel that reads the cache full; arch: an int, ten times the compute capability.
 * Statuses as qm_device_compile. */
qm_status qm_gpu_bench_compile_reader(const void *arch, struct qm_device_binary *b);

/* n: parameters of the large tensor, 0: as qm_gpu_bench_size says; rounds: 1 to
 * QM_GPU_BENCH_ROUNDS; cap: seconds of the rounds of one measurement.  b is zeroed beforehand;
 * close accepts a half-opened one. */
qm_status qm_gpu_bench_open(int64_t n, int rounds, double cap, struct qm_gpu_bench *b);
void qm_gpu_bench_close(struct qm_gpu_bench *b);

/* Adds the row's wait_seconds where waits were later than is usual, since the last call. */
void qm_gpu_bench_say_wait(struct qm_gpu_bench *b, json_t *row);

/* Seconds of one round: median and least over `rounds` rounds. */
struct qm_gpu_time {
    double median, least;
    int rounds;
};

/* Whether a time, ours or another optimizer's, can be true: nothing that is launched takes less
 * than a tenth of a microsecond, and no GPU moves more than 10^14 bytes per second (the fastest
 * memory of 2026 moves 8 10^12, caches some 10^13).  Where copy > 0, the rate of a copy in bytes
 * per second, work that must touch `bytes` takes no less than half of what the copy would take for
 * them, less 20 microseconds, because small work is all latency, which a copy has too.  `what`
 * names the time.  QM_INTERNAL: "implausible: ...". */
qm_status qm_gpu_bench_plausible(const char *what, double seconds, double bytes, double copy);

/* The most floats per second that a search codes on so many multiprocessors: 128 lanes each, of 4
 * GHz, and 16 instructions for a float and the sums over it. */
double qm_gpu_most_floats(int multiprocessors);

/* Calls get(of, out), which copies `bytes`, at most 4 QM_BENCH_SAMPLE, from the device to `out`,
 * twice, over different contents of the buffer.  QM_INTERNAL: "implausible: ...": the two differ,
 * as where a copy does nothing. */
qm_status qm_gpu_bench_get(qm_status (*get)(void *of, void *out), void *of, size_t bytes,
                           void *out);

/* Work to be timed; before and after, where they are not NULL, are called around each round,
 * outside the events, to see that its work was done. */
struct qm_gpu_timed {
    qm_status (*work)(void *arg), (*before)(void *arg), (*after)(void *arg);
    void *arg;
};

/* Times the work for at least b->rounds rounds, then until the middle half of them lies within 2 %
 * of the median, at most 4 b->rounds; fewer, but QM_BENCH_LEAST, where b->cap seconds are over.
 * QM_INTERNAL: a call failed, or a time between events is not above 0, not finite, or longer than
 * what the host's clock shows around the events (by more than 2 % and 50 microseconds), or, in
 * every round, shorter (by more than a tenth, 300 microseconds and what a wait is late, from the
 * events around the read of the cache and the work; where no timed round is in time, further rounds
 * are made, and chains of them); or the read of the cache and the work do not add up to both; or
 * the device began fewer reads of the cache than it was given; or waits are later than
 * QM_BENCH_LATEST.  All times of each round are looked at, those of the warm-up too.
 *
 * And QM_INTERNAL: median or least are too short for n rounds that are queued at once, where n is
 * what takes 20 l, at most 64 l / 100 microseconds, and l = 100 microseconds and what a wait is
 * late: median < 0.75 x or least < 0.5 x, with x = (with - l) / n - 1.5 (without - l) / n, by the
 * host's clock, with the work and without it, the least of up to 6 such chains, which become twice
 * as long each; or the read of the cache is too long (in the median) for such chains without the
 * work: by more than half, a tenth of the work and 100 microseconds; or shorter than half of them,
 * as many as take 20 l by themselves; in each of 3 tries, of rounds and chains.
 *
 * _warm_up and _rounds are its two parts; start: when the warm-up began. */
qm_status qm_gpu_bench_time(struct qm_gpu_bench *b, const struct qm_gpu_timed *t,
                            struct qm_gpu_time *out);
qm_status qm_gpu_bench_warm_up(struct qm_gpu_bench *b, const struct qm_gpu_timed *t);
qm_status qm_gpu_bench_rounds(struct qm_gpu_bench *b, const struct qm_gpu_timed *t, double start,
                              struct qm_gpu_time *out);

/* QM_INTERNAL: the device began another number of launches `of` this than it was asked for. */
qm_status qm_gpu_bench_begun(const char *of, uint64_t begun, uint64_t asked);

/* Clocks and power while the GPU works: `seconds` of work are queued, and NVML is asked before they
 * are done.  one: the seconds of one round. */
qm_status qm_gpu_bench_load(struct qm_gpu_bench *b, qm_status (*work)(void *), void *arg,
                            double one, struct qm_gpu_now *out);

/* The work of a step: parts, each a batch or a plan of a rule over whole tensors, in every turn. */
struct qm_gpu_work {
    int n, tensors; /* parts, and tensors of each */
    int64_t t;      /* steps so far, in turn of each set of tensors */
    int64_t numel;  /* elements of each tensor */
    struct qm_shape shape;
    enum qm_mode mode;
    const struct qm_recipe *r;
    int64_t made[QM_BENCH_TURNS];     /* steps of each turn that the device was asked to make */
    int64_t recorded;                 /* the step that graphs repeat; 0: none was recorded */
    int is_recording;                 /* 1: what is launched is not made yet */
    struct qm_gpu_expected *expected; /* bench_expected.h */
    float *projection;                /* that was loaded into a slot, or NULL */
    int projection_slot;
    struct {
        struct qm_batch *batch;
        struct qm_tensor_rule_plan *whole;
    } part[QM_BENCH_TURNS][QM_BENCH_TENSORS];
    unsigned char sample[QM_BENCH_TURNS][QM_BENCH_PLACES][4 * QM_BENCH_SAMPLE];
};

/* Adds a part of n tensors of one shape with its own states in each turn; all parts are alike.  The
 * recipe must outlive the work.  Statuses are those of qm_batch_open. */
qm_status qm_gpu_work_add(struct qm_gpu_work *w, enum qm_mode mode, const struct qm_recipe *r,
                          int n, const struct qm_shape *shapes, const uint32_t *ids);

/* Sets the parameters and gradients of all tensors, from b->p and b->g, rounded to nearest. */
qm_status qm_gpu_work_give(struct qm_gpu_bench *b, struct qm_gpu_work *w);

void qm_gpu_work_close(struct qm_gpu_work *w);
qm_status qm_gpu_work_run(void *work); /* one step of the parts of the current turn */

/* Times steps as qm_gpu_bench_time does.  QM_INTERNAL also: "implausible: ...", because what was
 * timed was no step: between the warm-up and the last round, or, of float32, in one more step of
 * each turn, the parameters of one of QM_BENCH_PLACES places (of one tensor its begin, middle and
 * end, of several the first, the middle and the last one) of a turn stay as they were; or as
 * qm_gpu_work_all_done (bench_done.h), which looks at what all steps so far must leave; or the
 * device counted fewer launches than it was given; or as qm_gpu_bench_get.  Both turns have made
 * equally many steps afterwards. */
qm_status qm_gpu_work_time(struct qm_gpu_bench *b, struct qm_gpu_work *w, struct qm_gpu_time *out);

/* Times the launches of a step without the CPU's share: they are recorded as a CUDA graph for each
 * turn, and the graph is launched.  QM_SKIPPED: the driver has no graphs, or the rule waits for
 * numbers on the host within a step, which a graph cannot.  QM_INTERNAL also as
 * qm_gpu_work_time. */
qm_status qm_gpu_work_time_graph(struct qm_gpu_bench *b, struct qm_gpu_work *w,
                                 struct qm_gpu_time *out);

/* Elements of each small tensor where the large one has n; fewer where n is small. */
int qm_speed_small(int64_t n);

#endif
