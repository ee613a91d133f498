/* vectors.h - golden vectors: a step's inputs in a file, and the verdict on what comes back.
 *
 * Format qualm-golden, version 1; for its users: results/GOLDEN.md.  Arrays by name, the same in .h5,
 * .npz and .safetensors, CASE being t0, t1, ...:
 *
 *     golden                    u8: a JSON text (below)
 *     codebook/SLOT             f32[2^bits]: unit value of each stored code; none for curves
 *     CASE/in/param             before the first step; ARRAYs are those of state_file.h:
 *     CASE/in/ARRAY             SLOT.codes and SLOT.scales, or SLOT where it is kept as floats;
 *                               residual beside parameters of 16 bits that have one
 *     CASE/grad/K               the gradient of step K = 1, 2, ... of the case, as the recipe takes it
 *     CASE/want/K/ARRAY         after it, by the reference on the CPU: for people
 *     CASE/out/K/ARRAY          after it, by the program under test: these are judged
 *
 *     {"format": "qualm-golden", "version": 1, "recipe": "adamw4_ao", "seed": "1", "grad": "f32", "param": "f32",
 *      "cases": [{"name": "t0", "id": "64x64/normal/default/t1/own", "shape": [64, 64],
 *                 "first_step": 1, "steps": 3, "hyper": {"lr": 0.001, ...}, "inputs": SHA-256,
 *                 "slots": [{"name": "exp_avg", "quantizer": "dyn:4s/block:128/...", "bits": 4,
 *                            "shape": [64, 64], "first_code": "high"}, ...]}]}
 *
 * Step K is judged from what the program itself had after step K - 1. */
#ifndef QM_VECTORS_VECTORS_H
#define QM_VECTORS_VECTORS_H

#include "experiments/check/judge.h"
#include "experiments/state/state_file.h"
#include "experiments/store/array_file.h"

#define QM_VECTORS_FORMAT "qualm-golden"
enum { QM_VECTORS_VERSION = 1, QM_VECTORS_STEPS = 1000, QM_VECTORS_CASES = 1000 };

/* A case of a file. */
struct qm_vectors_case {
    char name[24];
    struct qm_case c;
    int64_t steps;
};

/* ---- making ----------------------------------------------------------------------------------- */

/* Starts as {0}; owns everything. */
struct qm_vectors {
    struct qm_state states; /* t0/in, t0/want/1, ... */
    int n;                  /* the other arrays */
    struct qm_array *other;
};

/* Runs the reference over the cases.  QM_SKIPPED: nothing can be judged of this recipe. */
qm_status qm_vectors_make(const struct qm_recipe *r, const struct qm_vectors_case *c, int n_cases,
                          uint64_t seed, struct qm_vectors *out);
void qm_vectors_free(struct qm_vectors *v);

/* path "-": stdout (not h5).  argv: for the provenance of an .h5 file. */
qm_status qm_vectors_write(const struct qm_vectors *v, const char *path, enum qm_container form,
                           int argc, char **argv);

/* ---- judging ---------------------------------------------------------------------------------- */

struct qm_vectors_verdict {
    char recipe[QM_RECIPE_TEXT];
    int64_t steps, missing;            /* of the file; without an answer */
    char first_missing[QM_STATE_NAME]; /* array, or "" */
    struct qm_tally tally;
};

/* path "-": stdin.  QM_BAD_FILE: no such file, another version, inputs that are not those that were
 * written, an array of another type or size, a step half answered.  QM_NO_MATCH: no answer at all.
 * QM_SKIPPED: nothing can be judged of this recipe. */
qm_status qm_vectors_judge(const char *path, struct qm_vectors_verdict *out);

/* 1: every step is answered and within bounds. */
int qm_vectors_passed(const struct qm_vectors_verdict *v);

#endif
