/* gpu.h - what `qualm gpu-check` asks of a device: the CPU's bits, every code, speed.
 *
 * The first two also run on the emulator, and so in the tests. */
#ifndef QM_EXPERIMENTS_GPU_GPU_H
#define QM_EXPERIMENTS_GPU_GPU_H

#include <jansson.h>

#include "core/device/batch.h"
#include "core/recipe/backend.h"
#include "experiments/prove/routine.h"

/* ---- exact.c: steps beside the CPU's ------------------------------------------------------------ */

/* `steps` steps of both backends from the same start with gradients of many scales; parameter, residual,
 * codes, scales and decoded states are compared bit for bit after each; projections of large tensors are
 * given.  difference[size]: "" or the first one, as text.  QM_SKIPPED: the other backend has no kernel for this. */
qm_status qm_exact_compare(const struct qm_backend *other, const struct qm_recipe *r,
                           const struct qm_shape *shape, int steps, uint64_t seed, char *difference,
                           size_t size);

/* The slot that holds the projection of a tensor of this shape, or -1.  With one r makes no new ones, and the
 * caller loads it: the singular vectors of a thousand columns take minutes. */
int qm_given_projection(struct qm_recipe *r, const struct qm_shape *shape);

/* Gradient t of such a run. */
void qm_exact_gradient(uint64_t seed, int64_t t, int64_t n, float *g);

/* Every variant that has kernels, as it is and without fallbacks, over sizes 1 to 2^20 + 3 and matrices; rows
 * {variant, forced, shape, difference}.  *differ: how many are not equal. */
qm_status qm_exact_all(const struct qm_backend *other, json_t **rows, int *differ);

/* ---- device_codes.c: every float ------------------------------------------------------------------------ */

struct qm_codes_result {
    uint64_t inputs, runs,
        wrong;            /* floats that the device coded; runs of equal codes; floats compared
                                   * with the CPU whose code is another */
    uint64_t compared;    /* by the CPU's defining search */
    uint32_t first_wrong; /* bits */
    double device_seconds;
};

/* Codes of unit values with bits [first, first + count) by a device, added to the runs behind those that are
 * there (whose bits are smaller).  QM_CHECK_FAILED: they change too often for a search.  free(out->change). */
qm_status qm_codes_runs(const struct qm_device *d, const struct qm_quantizer *q, uint64_t first,
                        uint64_t count, struct qm_code_runs *out);

/* Codes of unit values with bits [first, first + count) by a device, against qm_code_of: all of them, or
 * (sampled) both ends of every run and a few inside.  q: 4 or 8 bits, any deterministic search. */
qm_status qm_codes_compare(const struct qm_device *d, const struct qm_quantizer *q, uint64_t first,
                           uint64_t count, int sampled, struct qm_codes_result *out);

/* Every registered and published 4-bit routine (`qualm prove --all`) over all 2^32 floats. */
qm_status qm_codes_all(const struct qm_device *d, int sampled, json_t **rows, int *wrong);

/* ---- speed.c: on a GPU only ----------------------------------------------------------------------- */

struct qm_speed {
    double copy;            /* bytes a second of a device-to-device copy, reads and writes */
    int64_t n, flush_bytes; /* parameters of the large tensor; written between rounds */
    int rounds;             /* at least; bench.h says when it is enough */
    json_t *rows;           /* per recipe and mode; the caller's */
    json_t *tables;         /* per recipe and way of stepping many small tensors */
};

/* Steps of n parameters (0: as many as fit well) in `rounds` rounds or more; of one recipe only, or (NULL) of
 * every variant that has kernels and a few recipes with 16-bit parameters. */
qm_status qm_speed_measure(const char *only, int64_t n, int rounds, struct qm_speed *out);

/* ---- peers.c: others' optimizers, timed by another program (tests/peers/peers.py) ---------------------- */

/* Runs the command with the sizes, rounds and flush of `s` and merges what it prints.  QM_BAD_FILE: it did not
 * start, failed, or printed something else. */
qm_status qm_peers_measure(const char *command, const struct qm_speed *s, json_t *rows,
                           json_t *skipped);

/* rows: {peer, version, recipe, mode, tensors, elements, seconds, peer_seconds, ratio}, one for each time of ours
 * that is of a peer's recipe and sizes; ratio: our seconds over theirs.  skipped: {peer, reason}. */
qm_status qm_peers_merge(json_t *from, const struct qm_speed *s, json_t *rows, json_t *skipped);

/* ---- report.c -------------------------------------------------------------------------------------- */

/* results/gpu/GPU-DATE.h5 and .md in `folder`; what was measured as JSON with the keys device, exact, check,
 * codes, speed, tables, peers, peers_skipped (any may be missing).  path[size]: the .md. */
qm_status qm_gpu_report(const char *folder, json_t *all, int argc, char **argv, char *path,
                        size_t size);

#endif
