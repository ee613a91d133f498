/* gpu.h - The checks of `qualm gpu-check`: the CPU's bits, the code of every float, speed.
 *
 * The first two also run on the emulator, and so in the tests. */
#ifndef QM_EXPERIMENTS_GPU_GPU_H
#define QM_EXPERIMENTS_GPU_GPU_H

#include <jansson.h>

#include "core/device/batch.h"
#include "core/recipe/backend.h"
#include "experiments/prove/routine.h"

/* ---- exact.c: steps against the CPU's -------------------------------------------------------- */

/* Makes `steps` steps with both backends from equal starts, with gradients of many scales, and
 * compares parameter, residual, codes, scales and decoded states bit for bit after each.
 * Projections of large tensors are loaded.  difference[size]: "" or the first difference.
 * QM_SKIPPED: the other backend has no kernel for this recipe and shape. */
qm_status qm_exact_compare(const struct qm_backend *other, const struct qm_recipe *r,
                           const struct qm_shape *shape, int steps, uint64_t seed, char *difference,
                           size_t size);

/* The slot that holds the projection of a tensor of this shape, or -1.  Where there is one, r is
 * changed to make no new projections and the caller loads one, because the singular vectors of a
 * thousand columns take minutes. */
int qm_given_projection(struct qm_recipe *r, const struct qm_shape *shape);

/* The gradient of step t: g[n] with many scales, zeros of both signs, a block of zeros and an
 * outlier. */
void qm_exact_gradient(uint64_t seed, int64_t t, int64_t n, float *g);

/* Compares every variant that has kernels, with and without its fallbacks, on tensors of 1 to 2^20
 * + 3 elements and on matrices.  Rows are {variant, forced, shape, equal, difference}.  *differ:
 * number of rows that are not equal. */
qm_status qm_exact_all(const struct qm_backend *other, json_t **rows, int *differ);

/* ---- experiments/prove/device_codes.c: every float ------------------------------------------- */

struct qm_codes_result {
    uint64_t inputs, runs;    /* floats that the device coded; runs of equal codes */
    uint64_t compared, wrong; /* floats compared with the CPU's search; with another code */
    uint32_t first_wrong;     /* bits of the first */
    double device_seconds;
};

/* Has a device code the unit values with bits [first, first + count), and appends the runs to out,
 * whose bits so far are smaller.  QM_CHECK_FAILED: the codes change too often for a search.  The
 * caller frees out->change. */
qm_status qm_codes_runs(const struct qm_device *d, const struct qm_quantizer *q, uint64_t first,
                        uint64_t count, struct qm_code_runs *out);

/* Compares a device's codes of the unit values with bits [first, first + count) with qm_code_of:
 * all of them, or, where sampled is 1, both ends of every run and a few inside.  q: 4 or 8 bits,
 * any deterministic search. */
qm_status qm_codes_compare(const struct qm_device *d, const struct qm_quantizer *q, uint64_t first,
                           uint64_t count, int sampled, struct qm_codes_result *out);

/* Compares every registered and published 4-bit routine (those of `qualm prove --all`) over all
 * 2^32 floats.  *wrong: number of routines with a wrong code. */
qm_status qm_codes_all(const struct qm_device *d, int sampled, json_t **rows, int *wrong);

/* ---- speed.c: on a GPU only ------------------------------------------------------------------ */

struct qm_speed {
    double copy;            /* bytes/s of a device-to-device copy, reads and writes */
    int64_t n, flush_bytes; /* parameters of the large tensor; bytes written between rounds */
    int rounds;             /* least number of rounds (bench.h) */
    json_t *rows;           /* per recipe and mode; owned by the caller */
    json_t *tables;         /* per recipe and way of launching many small tensors; likewise */
};

/* Times steps of n parameters (0: as qm_gpu_bench_open says) in at least `rounds` rounds.  only:
 * one recipe; NULL: every variant that has kernels, and a few recipes with 16-bit parameters. */
qm_status qm_speed_measure(const char *only, int64_t n, int rounds, struct qm_speed *out);

/* ---- peers.c: other projects' optimizers, timed by tests/peers/peers.py ---------------------- */

/* Runs the command with the sizes, rounds and flush of `s` and merges its output.  QM_BAD_FILE: the
 * command did not start, failed, or printed no such JSON. */
qm_status qm_peers_measure(const char *command, const struct qm_speed *s, json_t *rows,
                           json_t *skipped);

/* Adds a row {peer, version, recipe, mode, tensors, elements, seconds, peer_seconds, ratio} for
 * each of Qualm's times with a peer's recipe and sizes; ratio = seconds / peer_seconds.  skipped
 * gets {peer, reason}. */
qm_status qm_peers_merge(json_t *from, const struct qm_speed *s, json_t *rows, json_t *skipped);

/* ---- report.c -------------------------------------------------------------------------------- */

/* Writes GPU-DATE.h5 and GPU-DATE.md into `folder`.  all: the measurements, with the keys device,
 * exact, check, codes, speed, tables, peers, peers_skipped (each may be missing).  path[size]: the
 * .md file. */
qm_status qm_gpu_report(const char *folder, json_t *all, int argc, char **argv, char *path,
                        size_t size);

#endif
