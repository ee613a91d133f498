/* against_pairs.h - The runs of a result file, and their partners in an archive. */
#ifndef QM_REPORT_AGAINST_PAIRS_H
#define QM_REPORT_AGAINST_PAIRS_H

#include "experiments/report/distinct_texts.h"
#include "experiments/store/result_reader.h"

/* The runs of one file. */
struct qm_run_rows {
    int64_t rows, cells;
    char **problem, **label, **status;
    int64_t *cell, *seed, *instance; /* instance NULL: 1 of all, in older files */
    double *scale, *start, *twin, *d;
    char **recipe, **role; /* [cells]; role may be NULL */
    int64_t *steps;        /* [cells] */
};

/* QM_BAD_FILE: a row has no cell.  qm_runs_free accepts what was read in part. */
qm_status qm_runs_read(struct qm_result *r, struct qm_run_rows *s);
void qm_runs_free(struct qm_run_rows *s);

/* Whether the suite names run i: not a null pair or a part of an error budget. */
int qm_run_is_plain(const struct qm_run_rows *s, int64_t i);
int64_t qm_run_instance(const struct qm_run_rows *s, int64_t i);

/* The conditions that a partner must meet; the furthest one that any run of an archived variant
 * reaches is the reason why a run has no partner in it. */
/* clang-format off */
#define QM_STAGE_LIST(X)                                                                     \
    X(problem, "no runs on this problem there")                                                   \
    X(scale,   "no such multiple of the learning rate there")                             \
    X(seed,    "no such seed of this instance there")                                     \
    X(family,  "the rules differ, and so do the twins")                                   \
    X(start,   "the starts differ: parameters of another precision, or other data")       \
    X(steps,   "another number of steps there")                                           \
    X(twin,    "the twins differ")                                                         \
    X(result,  "failed, here or there")                                                   \
    X(lost,    "diverged, here and there")                                                \
    X(basin,   "ended in another basin than most twins did, here or there")               \
    X(paired,  "paired")
/* clang-format on */

enum qm_stage {
#define X(name, text) QM_STAGE_##name,
    QM_STAGE_LIST(X)
#undef X
        QM_STAGE_COUNT
};

extern const char *const qm_stage_text[]; /* the reason of each stage */

/* What differs between the twins of run i of a and run k of b, as far as recipes say it, in words
 * that follow those of QM_STAGE_twin; returns how many hyper-parameters do. */
int qm_run_twins_told(const struct qm_run_rows *a, int64_t i, const struct qm_run_rows *b,
                      int64_t k, char *text, size_t size);

struct qm_pair {
    int64_t mine, theirs; /* rows */
    double d;             /* mine minus theirs */
};

struct qm_pairs {
    const struct qm_run_rows *a, *b;
    struct qm_pair *pair;
    int64_t n, room;
    enum qm_stage *stage; /* [a->rows], of any archived variant; QM_STAGE_COUNT: not compared */
    struct qm_distinct_texts mine, theirs, problem; /* labels of a, of b; problems of a */
    char *is_plain;    /* [theirs.n]: the archive's suite names the variant */
    unsigned char *of; /* [a->rows][theirs.n]: the stage of each archived variant */
};

/* Finds all pairs of p->a and p->b.  The caller frees, after a failure too. */
qm_status qm_pairs_find(struct qm_pairs *p);
void qm_pairs_free(struct qm_pairs *p);

#endif
