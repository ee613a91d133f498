/* gpu.h - The measurements of `qualm gpu-check`: the CPU's bits, the code of every float, verdicts,
 * speed, other projects' optimizers.
 *
 * gpu_report.h holds what was measured, gpu_tasks.h the order of measuring, gpu_run.h runs it in
 * processes of its own.  exact.c also runs on the emulator, and so in the tests. */
#ifndef QM_EXPERIMENTS_GPU_GPU_H
#define QM_EXPERIMENTS_GPU_GPU_H

#include <jansson.h>

#include "core/device/batch.h"
#include "core/recipe/backend.h"
#include "experiments/prove/device_codes.h"

/* ---- exact.c: steps against the CPU's -------------------------------------------------------- */

/* clang-format off */
#define QM_GRADIENTS_LIST(X)                                                              \
    X(finite, "normal numbers of many scales, zeros of both signs, an outlier")           \
    X(tiny,   "with denormals, the least normal numbers and zeros of both signs")         \
    X(inf,    "with infinities, the largest numbers and numbers whose square overflows, in step 2") \
    X(nan,    "with NaNs of both signs and several payloads, in step 2")
/* clang-format on */

enum qm_gradients {
#define X(name, text) QM_GRADIENTS_##name,
    QM_GRADIENTS_LIST(X)
#undef X
        QM_GRADIENTS_COUNT
};

const char *qm_gradients_name(enum qm_gradients kind);

/* Makes `steps` steps with both backends from equal starts, with gradients of many scales, and
 * compares parameter, residual, codes, scales and decoded states bit for bit after each; of floats
 * (not of codes) any two NaNs are equal.  Projections of large tensors are loaded.
 * difference[size]: "" or the first difference.  QM_SKIPPED: the other backend has no kernel for
 * this recipe and shape.  _of: with gradients of a class; without, for tests: finite ones. */
qm_status qm_exact_compare(const struct qm_backend *other, const struct qm_recipe *r,
                           const struct qm_shape *shape, int steps, uint64_t seed, char *difference,
                           size_t size);
qm_status qm_exact_compare_of(enum qm_gradients kind, const struct qm_backend *other,
                              const struct qm_recipe *r, const struct qm_shape *shape, int steps,
                              uint64_t seed, char *difference, size_t size);

/* Gradients of a type (f32, bf16 or f16) from float32, rounded to nearest. */
void qm_exact_narrow(const float *g, int64_t n, enum qm_dtype type, void *out);

/* The first of n elements of `size` bytes that differs; -1: none.  format: of floats (enum
 * qm_param_format), of which any two NaNs are equal, or QM_EXACT_BYTES. */
enum { QM_EXACT_BYTES = -1 };
int64_t qm_exact_difference(const void *a, const void *b, int format, size_t size, int64_t n);

/* The slot that holds the projection of a tensor of this shape, or -1.  Where there is one, r is
 * changed to make no new projections and the caller loads one, because the singular vectors of a
 * thousand columns take minutes. */
int qm_given_projection(struct qm_recipe *r, const struct qm_shape *shape);

/* The gradient of step t: g[n] with many scales, zeros of both signs, a block of zeros and an
 * outlier; _of: and, one in 48, numbers of a class. */
void qm_exact_gradient(uint64_t seed, int64_t t, int64_t n, float *g);
void qm_exact_gradient_of(enum qm_gradients kind, uint64_t seed, int64_t t, int64_t n, float *g);

/* ---- speed.c and tables.c: on a GPU only ----------------------------------------------------- */

struct qm_gpu_bench;

/* Times steps of a recipe on a large tensor, and a copy just before them, so that both see the same
 * clocks; fills the row's columns.  Statuses are those of qm_batch_open; QM_NO_MEMORY where not
 * even a small tensor fits. */
qm_status qm_speed_row(struct qm_gpu_bench *b, const char *recipe, enum qm_mode mode, json_t *row);

/* Bytes per parameter that a step of a recipe must read and write on the large tensor of n elements
 * (column bytes_per_parameter).  Statuses as qm_recipe_parse and qm_step_form. */
qm_status qm_speed_bytes(const char *recipe, int64_t n, double *bytes);

/* Times steps of a recipe on many small tensors, launched in one of QM_SPEED_WAYS ways. */
enum { QM_SPEED_WAYS = 3 };
const char *qm_speed_way(int way);
qm_status qm_speed_table_row(struct qm_gpu_bench *b, const char *recipe, int way, json_t *row);

/* Recipe i of those that are timed as many small tensors, and bit k of *ways: by way k; NULL after
 * the last. */
const char *qm_speed_table_recipe(int i, int *ways);

/* ---- peers.c: other projects' optimizers, timed by tests/peers/peers.py ---------------------- */

/* The command's own list of the peers it times (COMMAND --names), an array of texts. */
qm_status qm_peers_names(const char *command, json_t **names);

/* The sizes and the way of timing, which the command is told. */
struct qm_peers_sizes {
    int64_t n, flush_bytes; /* parameters of the large tensor; bytes read between rounds */
    int rounds;
};

/* Qualm's times: the rows of parts speed and tables so far; where they have none of a recipe,
 * `time` appends such rows for it, of the large tensor, or of the many small ones. */
struct qm_peers_ours {
    json_t *speed, *tables;
    qm_status (*time)(void *of, const char *recipe, int is_many, json_t *rows);
    void *of;
};

/* Runs the command for one peer and appends a row {peer, version, recipe, mode, tensors, elements,
 * seconds, peer_seconds, ratio, status} for each of Qualm's times with its recipe and sizes; ratio
 * = seconds / peer_seconds.  A peer that was not timed, whose time cannot be true
 * (qm_gpu_bench_plausible, beside a copy where one was timed; rounds that take more than the
 * command ran, or less than one of them; a least time above the median; two times of one thing;
 * times with the exit code for none), or for whose sizes there is no time here, gets a row whose
 * status says why.  Each row names the command as its program.  QM_BAD_FILE: the command did not
 * start, failed, or printed no such JSON, or a row of another peer. */
qm_status qm_peers_measure(const char *command, const char *peer, const struct qm_peers_sizes *s,
                           const struct qm_peers_ours *ours, json_t *rows);

#endif
