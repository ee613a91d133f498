/* kernel.h - qualm check --kernel: judges a kernel file in place of its variant's step. */
#ifndef QM_EXPERIMENTS_KERNEL_KERNEL_H
#define QM_EXPERIMENTS_KERNEL_KERNEL_H

#include <jansson.h>

#include "core/compile/kernel_build.h"
#include "experiments/check/check_table.h"
#include "experiments/kernel/kernel_case.h"
#include "experiments/kernel/kernel_compare.h"

enum { QM_REGIMES = 32, QM_HANGS = 3, QM_PROCESSES = 64 };

/* Additional cases with large indices (core/user_kernel/large_index.h), N/far for N = 2^k + 1 to
 * 2^k + 7.  By default a .cu file has the case of 2^31 + 7 elements, and a .c file one of 2^24 + 1
 * to 2^28 + 1,
 * by its block size: 2^31 + 7 elements take it a minute, and are judged with `--case` of this
 * name. */
#define QM_LARGE_INDEX_CASE "2147483655/far"

int qm_kernel_is_cuda(const char *file); /* 1: the name ends in .cu */

/* As qm_user_cuda_build, with a note where the kernel is not cached. */
qm_status qm_kernel_cuda_build(const char *file, const char *object);

/* The freedoms with which a user's kernel is judged, shrunk and timed: every order that README
 * permits, and quotients and roots as inexact as `fast` says. */
struct qm_reorder qm_kernel_freedoms(const struct qm_reorder *fast);

struct qm_kernel_options {
    const char *file, *as, *against, *junit, *one_case, *backend; /* NULL but for file: not given */
    const char *fmad; /* "true" or "false": the one form of a .cu file that is judged; or NULL */
    const char *regime[QM_REGIMES];
    int n_regimes, forever, quick, draws, has_seed, no_shrink; /* draws: cases beside the core */
    int on_gpu;             /* 1: a .cu file runs on the GPU, 0: in the emulator */
    int specials;           /* 1: the table of special values in place of the cases */
    struct qm_reorder fast; /* more freedoms of mode fast; 0: none */
    uint64_t seed;
    double time;           /* seconds; 0: no limit */
    int64_t allow_refused; /* cases that the kernel may refuse */
    struct qm_host_limits limits;
};

/* The backend that runs the file, its mode, and the seed. */
struct qm_check_run qm_kernel_on(const struct qm_kernel_options *o);

struct qm_kernel_case {
    char name[QM_CASE_TEXT];
    uint64_t seed;
    double seconds;
    enum qm_case_result result;
    int slot;            /* of the finding; QM_SLOT_ANY: there is none */
    int severity;        /* of the finding (slot.h); 0: there is none */
    enum qm_place place; /* of the finding */
    enum qm_fmad form;   /* of a .cu file */
    char *text;          /* the finding, or why the case was refused; owned, may be NULL */
};

/* The forms of a .cu file (core/compile/kernel_build.h) that a check judges, and the bad cases of
 * each. */
struct qm_kernel_forms {
    int has[QM_FMADS],
        is_same; /* is_same: the compiler contracts nothing, so one run judges both */
    int64_t bad[QM_FMADS], judged[QM_FMADS]; /* cases; judged: that ended in a verdict */
    const char *left_out;                    /* why the contracted form is not judged, or NULL */
    char lines[4096];                        /* what is contracted (qm_fmad_lines) */
};

/* A whole check.  Under --forever only the failing cases are kept. */
struct qm_kernel_run {
    const struct qm_kernel_options *o;
    char recipe[QM_RECIPE_TEXT];
    char old_trouble[400]; /* why the old kernel no longer runs, or "" */
    struct qm_subject subject;
    struct qm_tally tally;
    struct qm_kernel_case *cases;
    int n_cases, room;                             /* of cases[] */
    int64_t count[QM_CASE_RESULT_COUNT], left_out; /* left_out: cases that were not run */
    int64_t excused; /* refused cases that the shipped template refuses too */
    struct qm_kernel_forms forms;
    char not_far[400]; /* why no tensor of 2^31 + 7 elements was judged, or "" */
    struct qm_kernel_compare_count compared[QM_MAX_SLOTS + 1];
    struct qm_coverage coverage; /* of the cases that were judged */
    json_t *covered;             /* qm_coverage_json of it, or NULL */
    json_t *specials;            /* rows of qm_specials_rows, or NULL */
    json_t *speed;               /* {"new": [...], "old": [...]} or NULL */
    int64_t speed_n;
    double seconds;
    uint64_t seed;
    int interrupted, hangs;
};

/* Runs the check; the caller calls qm_kernel_run_free even on failure. */
qm_status qm_kernel_run(const struct qm_kernel_options *o, struct qm_kernel_run *r);
void qm_kernel_run_free(struct qm_kernel_run *r);

/* 1: a case failed or its process ended, a number is OFF_BY_ONE or WRONG, or more cases were
 * refused than allowed. */
int qm_kernel_run_failed(const struct qm_kernel_run *r);
int qm_kernel_run_passed(const struct qm_kernel_run *r); /* not so, and something was judged */

/* Prints the command line that runs one case again alone into text[size]. */
void qm_kernel_again(const struct qm_kernel_run *r, const struct qm_kernel_case *c, char *text,
                     size_t size);

/* " (contracted)", " (uncontracted)" or " (both forms)" of a .cu file, else "": text[size]. */
const char *qm_kernel_form(const struct qm_kernel_run *r, enum qm_fmad form, char *text,
                           size_t size);

/* 1: finding i of the tally belongs to no single case, nor to one of two forms (the codebook, the
 * rates of stochastic rounding); *c is it as a case, which owns nothing. */
int qm_kernel_general(const struct qm_kernel_run *r, int i, struct qm_kernel_case *c);

/* Prints the report to stdout, as text or JSON. */
void qm_kernel_report(const struct qm_kernel_run *r);

/* Writes JUnit XML, under a temporary name first.  No two test cases have one name: it ends in the
 * form of a .cu file, and in " 2", " 3", ... where a case came again.  broken: why the kernel could
 * not be built or loaded, the error of a test case "build"; or NULL. */
qm_status qm_kernel_junit(const struct qm_kernel_run *r, const char *path, const char *broken);

/* Runs, reports and shrinks; returns the exit code. */
int qm_kernel_check(const struct qm_kernel_options *o);

/* Prints a template, or a header of core/abi, to stdout; "list" prints their names.  Returns the
 * exit code. */
int qm_kernel_template(const char *name);

#endif
