/* vectors.h - Golden vectors: files with inputs of steps, and verdicts on a program's answers.
 *
 * Format qualm-golden, version 2; its description for users is results/GOLDEN.md.  Named arrays,
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
 *     {"format": "qualm-golden", "version": 2, "recipe": "adamw4_ao", "rule": "adamw",
 *      "seed": "1", "grad": "f32", "param": "f32", "count": {"cases": 1, "steps": 3},
 *      "codebooks": {"exp_avg": HASH, ...},
 *      "cases": [{"name": "t0", "id": "64x64/normal/default/t1/own", "shape": [64, 64],
 *                 "first_step": 1, "steps": 3, "hyper": [{"lr": 0.001, ...}, one per step],
 *                 "slots": [{"name": "exp_avg", "quantizer": "dyn:4s/block:128/...", "bits": 4,
 *                            "shape": [64, 64], "first_code": "high"}, ...],
 *                 "inputs": {"in/param": HASH, ..., "grad/1": HASH, ...}}],
 *      "digest": HASH}
 *
 * HASH of an array is SHA-256 over its type and shape as text ("f32 64x64\n", "u8 2048\n"), then
 * over its elements as little-endian float32, every NaN as 0x7fc00000.  digest is SHA-256 over this
 * object without "digest", in jansson's compact form with sorted keys.
 *
 * Step K is judged from the program's own state after step K - 1. */
#ifndef QM_VECTORS_VECTORS_H
#define QM_VECTORS_VECTORS_H

#include "experiments/check/judge.h"
#include "experiments/state/state_file.h"
#include "experiments/store/array_file.h"
#include "experiments/vectors/cover.h"

#define QM_VECTORS_FORMAT "qualm-golden"
enum { QM_VECTORS_VERSION = 2, QM_VECTORS_STEPS = 1000, QM_VECTORS_CASES = 4000 };

/* A case of a file: a tensor and its steps. */
struct qm_vectors_case {
    char name[24];
    struct qm_case c;
    int64_t steps;
};

/* ---- choosing cases (vectors_cases.c) -------------------------------------------------------- */

enum { QM_VECTORS_VALUES = 32 }; /* values of a coordinate */

enum qm_vectors_extent {
    QM_VECTORS_QUICK, /* every value of every coordinate in some case */
    QM_VECTORS_PAIRS, /* every pair of values of two coordinates in some case */
    QM_VECTORS_ALL    /* the same, and the core of `qualm check` */
};

/* The values that cases are put together from.  A list of no values stands for all of them. */
struct qm_vectors_choice {
    enum qm_vectors_extent extent;
    int64_t steps;
    int draws;     /* cases of the domain (experiments/check/domain.h), beside the others */
    uint64_t seed; /* of the draws */
    int n_shapes, n_classes, n_settings, n_firsts, n_modes;
    struct qm_shape shape[QM_VECTORS_VALUES];
    int kind[QM_VECTORS_VALUES], setting[QM_VECTORS_VALUES];
    int64_t first[QM_VECTORS_VALUES];
    int forced[2];
};

/* The cases of a choice, named t0, t1, ...; class exact always has setting exact.  Cases whose
 * shape a quantizer of r does not take, or whose state is more than 16 times the tensor, are left
 * out and counted in *left_out.  The caller frees *out.  QM_BAD_ARG: more than QM_VECTORS_CASES
 * cases, or none. */
qm_status qm_vectors_choose(const struct qm_recipe *r, const struct qm_vectors_choice *choice,
                            struct qm_vectors_case **out, int *n, int *left_out);

/* ---- making -------------------------------------------------------------------------------- */

/* Starts as {0}; owns everything. */
struct qm_vectors {
    struct qm_state states; /* t0/in, t0/want/1, ... */
    int n;                  /* arrays in other */
    struct qm_array *other; /* golden, codebook/..., t0/grad/1, ... */
};

/* Runs the reference over the *n cases, with the inputs that `qualm check --case ID --seed SEED`
 * draws.  Cases that the recipe does not take, or that the reference itself does not pass, are
 * taken out of c, the others are named anew, and *n becomes their number.  QM_SKIPPED: no
 * judgement is possible for this recipe; QM_BAD_ARG: no case is left. */
qm_status qm_vectors_make(const struct qm_recipe *r, struct qm_vectors_case *c, int *n,
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
    struct qm_cover cover;     /* of the cases whose steps are all answered */
    struct qm_coverage domain; /* the same, of the domain that `qm check` draws from */
};

/* Judges the answers in path, or stdin for "-".  QM_BAD_FILE, with one line: the file is missing or
 * of another version; an array or `golden` that `gen` wrote, except for want, was changed, deleted,
 * renamed or added to (attributes are not looked at); an answer has another type or size, belongs
 * to no case or step, or is there in part.  QM_NO_MATCH: no step is answered.  QM_SKIPPED: no
 * judgement is possible for this recipe. */
qm_status qm_vectors_judge(const char *path, struct qm_vectors_verdict *out);

/* Whether every step is answered and within bounds. */
int qm_vectors_passed(const struct qm_vectors_verdict *v);

#endif
