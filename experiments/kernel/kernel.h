/* kernel.h - qualm check --kernel: a kernel file judged in place of its variant's step. */
#ifndef QM_EXPERIMENTS_KERNEL_KERNEL_H
#define QM_EXPERIMENTS_KERNEL_KERNEL_H

#include "experiments/check/judge.h"
#include "experiments/kernel/child.h"
#include "experiments/kernel/kernel_compare.h"

enum { QM_REGIMES = 32, QM_HANGS = 3 };

/* Beside the cases of the list, of CUDA sources alone: see core/user_kernel/emu_large_index.h. */
#define QM_FAR_CASE "2147483655/far"

int qm_kernel_is_cuda(const char *file); /* by its name: FILE.cu */

struct qm_kernel_options {
    const char *file, *as, *against, *junit, *one_case, *backend; /* all but file may be NULL */
    const char *regime[QM_REGIMES];
    int n_regimes, forever, has_seed, no_shrink;
    int on_gpu; /* of a .cu file: on the GPU, else emulated */
    uint64_t seed;
    double time; /* seconds; 0: no end */
    struct qm_child_limits limits;
};

/* How a case went: as its worker ended, or what the judge says. */
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
int qm_case_result_is_bad(enum qm_case_result r);

struct qm_kernel_case {
    char name[QM_CASE_TEXT];
    uint64_t seed;
    double seconds;
    enum qm_case_result result;
    char *text; /* owned; what was found, or why it was refused; may be NULL */
};

/* A whole check.  Of a run without end only the cases that are not passed are kept. */
struct qm_kernel_run {
    const struct qm_kernel_options *o;
    char recipe[QM_RECIPE_TEXT], old_trouble[400];
    struct qm_subject subject; /* for its recipe only */
    struct qm_tally tally;
    struct qm_kernel_case *cases;
    int n_cases, room;
    int64_t count[QM_CASE_RESULT_COUNT], left_out;
    struct qm_kernel_compare_count versus[QM_MAX_SLOTS + 1];
    json_t *speed; /* {"new": [...], "old": [...]} or NULL */
    int64_t speed_n;
    double seconds;
    uint64_t seed;
    int interrupted, hangs;
};

/* Runs it; the caller frees with qm_kernel_run_free even on failure. */
qm_status qm_kernel_run(const struct qm_kernel_options *o, struct qm_kernel_run *r);
void qm_kernel_run_free(struct qm_kernel_run *r);

/* 1: everything judged was right, nothing crashed, and something was judged. */
int qm_kernel_run_passed(const struct qm_kernel_run *r);

/* The command line that runs one case again alone; text of `size` bytes. */
void qm_kernel_again(const struct qm_kernel_run *r, const struct qm_kernel_case *c, char *text,
                     size_t size);

/* To stdout, as text or as JSON. */
void qm_kernel_report(const struct qm_kernel_run *r);

/* JUnit's XML, to a temporary name first. */
qm_status qm_kernel_junit(const struct qm_kernel_run *r, const char *path);

/* All of it: the exit code. */
int qm_kernel_check(const struct qm_kernel_options *o);

/* A template, or kernel_abi.h, to stdout; "list" names them.  The exit code. */
int qm_kernel_template(const char *name);

#endif
