/* vectors.h - Golden vectors: files with inputs of steps, and verdicts on a program's answers.
 *
 * Format qualm-golden, version 1; its description for users is results/GOLDEN.md.  Named arrays,
 * with equal names in .h5, .npz and .safetensors; CASE is t0, t1, ...:
 *
 *     golden                u8: a JSON text (below)
 *     codebook/SLOT         f32[2^bits]: unit value of each stored code; absent for curves
 *     CASE/in/ARRAY         before the first step; ARRAY as in state_file.h: param; SLOT.codes and
 *                           SLOT.scales, or SLOT for a slot of floats; residual where there is one
 *     CASE/grad/K           the gradient of step K = 1, 2, ..., in the recipe's type
 *     CASE/want/K/ARRAY     after step K, by the reference on the CPU: for information
 *     CASE/out/K/ARRAY      after step K, by the program under test: these are judged
 *
 *     {"format": "qualm-golden", "version": 1, "recipe": "adamw4_ao", "rule": "adamw",
 *      "seed": "1", "grad": "f32", "param": "f32",
 *      "cases": [{"name": "t0", "id": "64x64/normal/default/t1/own", "shape": [64, 64],
 *                 "first_step": 1, "steps": 3, "hyper": {"lr": 0.001, ...}, "inputs": SHA-256,
 *                 "slots": [{"name": "exp_avg", "quantizer": "dyn:4s/block:128/...", "bits": 4,
 *                            "shape": [64, 64], "first_code": "high"}, ...]}]}
 *
 * Step K is judged from the program's own state after step K - 1. */
#ifndef QM_VECTORS_VECTORS_H
#define QM_VECTORS_VECTORS_H

#include "experiments/check/judge.h"
#include "experiments/state/state_file.h"
#include "experiments/store/array_file.h"

#define QM_VECTORS_FORMAT "qualm-golden"
enum { QM_VECTORS_VERSION = 1, QM_VECTORS_STEPS = 1000, QM_VECTORS_CASES = 1000 };

/* A case of a file: a tensor and its steps. */
struct qm_vectors_case {
    char name[24];
    struct qm_case c;
    int64_t steps;
};

/* ---- making -------------------------------------------------------------------------------- */

/* Starts as {0}; owns everything. */
struct qm_vectors {
    struct qm_state states; /* t0/in, t0/want/1, ... */
    int n;                  /* arrays in other */
    struct qm_array *other; /* golden, codebook/..., t0/grad/1, ... */
};

/* Runs the reference over the cases.  QM_SKIPPED: no judgement is possible for this recipe. */
qm_status qm_vectors_make(const struct qm_recipe *r, const struct qm_vectors_case *c, int n_cases,
                          uint64_t seed, struct qm_vectors *out);
void qm_vectors_free(struct qm_vectors *v);

/* Writes path, or stdout for "-" (not h5).  argv[argc]: for the provenance of an .h5 file. */
qm_status qm_vectors_write(const struct qm_vectors *v, const char *path, enum qm_container form,
                           int argc, char **argv);

/* ---- judging ------------------------------------------------------------------------------- */

struct qm_vectors_verdict {
    char recipe[QM_RECIPE_TEXT];
    int64_t steps, missing;            /* steps of the file; those without an answer */
    char first_missing[QM_STATE_NAME]; /* name of the first missing array, or "" */
    struct qm_tally tally;
};

/* Judges the answers in path, or stdin for "-".  QM_BAD_FILE: the file is missing or of another
 * version, its inputs were changed, an array has another type or size, or a step is answered in
 * part. QM_NO_MATCH: no step is answered.  QM_SKIPPED: no judgement is possible for this recipe. */
qm_status qm_vectors_judge(const char *path, struct qm_vectors_verdict *out);

/* Whether every step is answered and within bounds. */
int qm_vectors_passed(const struct qm_vectors_verdict *v);

#endif
