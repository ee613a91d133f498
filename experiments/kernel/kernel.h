/* kernel.h - qualm check --kernel: judges a kernel file in place of its variant's step. */
#ifndef QM_EXPERIMENTS_KERNEL_KERNEL_H
#define QM_EXPERIMENTS_KERNEL_KERNEL_H

#include "experiments/check/judge.h"
#include "experiments/kernel/child.h"
#include "experiments/kernel/kernel_compare.h"

enum { QM_REGIMES = 32, QM_HANGS = 3 };

/* An additional case for CUDA sources, with indices beyond 32 bits
 * (core/user_kernel/emu_large_index.h). */
#define QM_LARGE_INDEX_CASE "2147483655/far"

int qm_kernel_is_cuda(const char *file); /* 1: the name ends in .cu */

struct qm_kernel_options {
    const char *file, *as, *against, *junit, *one_case, *backend; /* NULL but for file: not given */
    const char *regime[QM_REGIMES];
    int n_regimes, forever, quick, draws, has_seed, no_shrink; /* draws: cases beside the core */
    int on_gpu; /* 1: a .cu file runs on the GPU, 0: in the emulator */
    uint64_t seed;
    double time; /* seconds; 0: no limit */
    struct qm_child_limits limits;
};

/* The result of a case: the judge's, or how its worker ended. */
/* clang-format off */
#define QM_CASE_RESULT_LIST(X) \
    X(passed) X(failed) X(refused) X(crashed) X(hung) X(memory) X(left) X(garbage) X(unfit)
/* clang-format on */
enum qm_case_result {
#define X(name) QM_CASE_##name,
    QM_CASE_RESULT_LIST(X)
#undef X
        QM_CASE_RESULT_COUNT
};
const char *qm_case_result_name(enum qm_case_result r);
int qm_case_result_is_bad(enum qm_case_result r); /* 1: not passed, refused or unfit */

struct qm_kernel_case {
    char name[QM_CASE_TEXT];
    uint64_t seed;
    double seconds;
    enum qm_case_result result;
    char *text; /* the finding, or why the case was refused; owned, may be NULL */
};

/* A whole check.  Under --forever only the failing cases are kept. */
struct qm_kernel_run {
    const struct qm_kernel_options *o;
    char recipe[QM_RECIPE_TEXT];
    char old_trouble[400];     /* why the old kernel no longer runs, or "" */
    struct qm_subject subject; /* its recipe alone is set */
    struct qm_tally tally;
    struct qm_kernel_case *cases;
    int n_cases, room;                             /* of cases[] */
    int64_t count[QM_CASE_RESULT_COUNT], left_out; /* left_out: cases that were not run */
    struct qm_kernel_compare_count compared[QM_MAX_SLOTS + 1];
    struct qm_coverage coverage; /* of the cases that were judged */
    json_t *covered;             /* qm_coverage_json of it, or NULL */
    enum qm_case_result last;    /* of the last case */
    json_t *speed;               /* {"new": [...], "old": [...]} or NULL */
    int64_t speed_n;
    double seconds;
    uint64_t seed;
    int interrupted, hangs;
};

/* Runs the check; the caller calls qm_kernel_run_free even on failure. */
qm_status qm_kernel_run(const struct qm_kernel_options *o, struct qm_kernel_run *r);
void qm_kernel_run_free(struct qm_kernel_run *r);

/* 1: no case failed, no worker ended, and at least one number was judged. */
int qm_kernel_run_passed(const struct qm_kernel_run *r);

/* Prints the command line that runs one case again alone into text[size]. */
void qm_kernel_again(const struct qm_kernel_run *r, const struct qm_kernel_case *c, char *text,
                     size_t size);

/* Prints the report to stdout, as text or JSON. */
void qm_kernel_report(const struct qm_kernel_run *r);

/* Writes JUnit XML, under a temporary name first. */
qm_status qm_kernel_junit(const struct qm_kernel_run *r, const char *path);

/* Runs, reports and shrinks; returns the exit code. */
int qm_kernel_check(const struct qm_kernel_options *o);

/* Prints a template, or kernel_abi.h, to stdout; "list" prints their names.  Returns the exit
 * code. */
int qm_kernel_template(const char *name);

#endif
