/* check_table.h - The result of a checked recipe as JSON, and the table of all of them. */
#ifndef QM_EXPERIMENTS_CHECK_CHECK_TABLE_H
#define QM_EXPERIMENTS_CHECK_CHECK_TABLE_H

#include <jansson.h>

#include "core/device/step_kernels.h"
#include "experiments/check/judge.h"
#include "experiments/recipes/recipe_list.h"

/* What a check ran on, and the seed of its inputs: what its last line says, and what the command
 * that repeats a failure must say. */
struct qm_check_run {
    const char *backend; /* name of a backend */
    enum qm_mode mode;   /* of backends cuda and emu */
    uint64_t seed;
};

/* The options that choose this backend and mode: "", " --backend emu --mode fast", ... */
const char *qm_check_options(const struct qm_check_run *run, char *text, size_t size);

/* Between recipes on backend cuda: lets go of the kernels of the one before, so that its late fault
 * is no verdict on the next.  Statuses are those of qm_cuda_unload_idle. */
qm_status qm_check_unload(const struct qm_backend *backend);

/* {"seed", "backend", "mode", "passed"}: the head of a check's JSON; a backend without modes has
 * none. */
json_t *qm_check_head(const struct qm_check_run *run, int passed);

/* Prints "seed 1, backend emu, mode fast", the last line of a check. */
void qm_check_end(const struct qm_check_run *run);

/* The names of every stride-th listed case, then of the first `draws` drawn ones of each recipe. */
json_t *qm_check_cases(const struct qm_recipes *recipes, const struct qm_backend *backend,
                       int stride, int draws, uint64_t seed);

/* The result of one recipe: its counts, the worst number, failures, coverage and draws.  Takes over
 * coverage, which may be NULL.  The caller owns the object. */
json_t *qm_check_row(const struct qm_rule *rule, const char *recipe, const struct qm_tally *t,
                     const struct qm_check_run *run, json_t *coverage);

/* {SLOT: {"draws", "detectable_bias", "failed"}} of the slots that are rounded stochastically, and
 * of the parameter.  NULL: nothing was drawn. */
json_t *qm_draws_json(const struct qm_rule *rule, const struct qm_tally *t);

/* Prints the rows to stdout: the table, the failures, the coverage and the draws. */
void qm_check_print(json_t *rows);

/* Prints the recipes that were skipped ({"variant", "reason"}; NULL: none). */
void qm_check_print_skipped(json_t *skipped);

#endif
