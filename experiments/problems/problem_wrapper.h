/* problem_wrapper.h - problems that change the gradients of another one.
 *
 * Their arguments end in base=NAME:ARGS, where ARGS are the base's own and take the rest of the
 * text: "at=100,times=1e4,base=quad:n=64,cond=100".  Bases may be wrappers in turn. */
#ifndef QM_PROBLEMS_PROBLEM_WRAPPER_H
#define QM_PROBLEMS_PROBLEM_WRAPPER_H

#include "experiments/problems/problem.h"

enum { QM_WRAP_OWN = 256 }; /* bytes of a wrapper's own arguments */

struct qm_problem_wrapper {
    const struct qm_problem *base;
    void *self;    /* the base's */
    int64_t numel; /* of all its tensors together */
};

/* Opens what stands behind base= in args (base_default where args has none).  own[size]: the text
 * before it, for qm_args_read.  QM_BAD_ARG: unknown base, one without a loss, too long a text. */
qm_status qm_problem_wrapper_open(const char *who, const char *args, const char *base_default,
                                  uint64_t seed, char *own, size_t size,
                                  struct qm_problem_wrapper *out, int *n_tensors,
                                  struct qm_shape *shapes);

/* The last argument of a wrapper's table; qm_args_read leaves it to qm_problem_wrapper_open. */
#define QM_WRAP_ARG                                                                                \
    {                                                                                              \
        .key = "base", .words = "NAME:ARGS", .text = "the problem, with the rest as its arguments" \
    }

/* Whether args are well written for p, a wrapper or not, and for the bases in them: arguments that
 * there are, words and numbers.  A number out of range is for open to say.  QM_BAD_ARG. */
qm_status qm_problem_wrapper_check(const struct qm_problem *p, const char *args);

/* What the base's gradient costs (struct qm_problem, work). */
double qm_problem_wrapper_work(const char *args, const char *base_default);

/* The problem whose suggested steps and learning rates serve p with these args: p, or the base where
 * p is a wrapper around another problem than the one that its own were found on. */
const struct qm_problem *qm_problem_wrapper_suggests(const struct qm_problem *p, const char *args);

void qm_problem_wrapper_close(struct qm_problem_wrapper *w); /* a zeroed one too */

#endif
