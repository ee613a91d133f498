/* gpu_tasks.h - What gpu-check measures, in the order in which people want to know it.
 *
 * A task is one row of a report (of peers: one peer).  The order is: the CPU's bits of each of the
 * ten best-known variants, and its speed against a copy; every float through each 4-bit search;
 * their verdicts in both modes; many small tensors; other projects' optimizers; and then bits,
 * speed and verdicts of all other variants. */
#ifndef QM_EXPERIMENTS_GPU_GPU_TASKS_H
#define QM_EXPERIMENTS_GPU_GPU_TASKS_H

#include <signal.h>

#include "experiments/gpu/gpu.h"
#include "experiments/gpu/gpu_report.h"

/* What was asked for.  It is stored in a report, so that a later call can go on with it. */
struct qm_gpu_options {
    int only[QM_GPU_PARTS], has_only; /* has_only 0: all parts */
    int quick, rounds;
    int64_t n;         /* parameters of speed; 0: as many as fit */
    double limit;      /* seconds of a row */
    int ahead;         /* processes that compile for the tasks to come; -1: half the cores */
    const char *peers; /* command; NULL: none */
    char **recipes;    /* instead of all variants; n_recipes 0: all */
    int n_recipes;
};

#define QM_GPU_MOST_ELEMENTS INT64_C(1000000000000) /* of speed's tensor */

/* ---- gpu_plan.c: the options in a report ----------------------------------------------------- */

/* What a report says of the run.  NULL: there is no memory. */
json_t *qm_gpu_plan(const struct qm_gpu_options *o);

/* Its inverse, for parts, recipes, quick, n and rounds; *words: what the recipes point into, which
 * the caller frees, as o->recipes, in any case.  QM_BAD_FILE: it is no plan. */
qm_status qm_gpu_plan_read(json_t *plan, struct qm_gpu_options *o, char **words);

/* What no row shows of a large tensor of n elements; "": nothing. */
const char *qm_gpu_not_covered(int64_t n);

/* ---- the tasks ------------------------------------------------------------------------------- */

struct qm_gpu_task {
    enum qm_gpu_part part;
    int group;        /* tasks of a group follow each other in one process */
    const char *name; /* recipe, routine or peer; of the key */
    int forced, shape, way;
    enum qm_gradients gradients;
    enum qm_mode mode;
    const struct qm_quantizer *q; /* of a routine; lives as long as the list */
    json_t *key;                  /* the key columns of its row */
    json_t *rows;                 /* NULL: not measured yet */
    int selected, tried;          /* to be measured now; was tried in this run */
};

struct qm_gpu_tasks {
    struct qm_gpu_task *at;
    int n;
    void *routines; /* owned */
};

/* Lists the tasks.  Where the peers' command fails, its one task is named by the command.
 * QM_INTERRUPTED: *stop was set meanwhile; stop may be NULL. */
qm_status qm_gpu_tasks_make(const struct qm_gpu_options *o, const volatile sig_atomic_t *stop,
                            struct qm_gpu_tasks *out);
void qm_gpu_tasks_free(struct qm_gpu_tasks *t);

/* Takes over the rows of an earlier report, also those that could not be measured, and adds tasks
 * for peers that the earlier report has measured and this list has not; _own: adds none.
 * QM_BAD_FILE: a row of another part is of no task. */
qm_status qm_gpu_tasks_take(struct qm_gpu_tasks *t, const struct qm_gpu_report *from);
qm_status qm_gpu_tasks_take_own(struct qm_gpu_tasks *t, const struct qm_gpu_report *from);

/* 1: the task has no row, or one that could not be measured, or only in part. */
int qm_gpu_task_is_open(const struct qm_gpu_task *t);

/* Fills the rows of the report from the tasks, in their order. */
void qm_gpu_tasks_rows(const struct qm_gpu_tasks *t, struct qm_gpu_report *out);

/* Shape number i of part exact; the first QM_GPU_SMALL_SHAPES are small. */
enum { QM_GPU_SMALL_SHAPES = 10 };
const struct qm_shape *qm_gpu_shape(int i);

#endif
