/* problem_wrapper.h - Problems that change the gradients of another problem, their base.
 *
 * The arguments of a wrapper end in base=NAME:ARGS, where ARGS are the arguments of the base and
 * take the rest of the text: "at=100,times=1e4,base=quad:n=64,cond=100".  A base may be a wrapper
 * in turn. */
#ifndef QM_PROBLEMS_PROBLEM_WRAPPER_H
#define QM_PROBLEMS_PROBLEM_WRAPPER_H

#include "experiments/problems/problem.h"

struct qm_problem_wrapper {
    const struct qm_problem *base;
    void *self;    /* the open base */
    int64_t numel; /* elements of all tensors of the base together */
    char own[256]; /* the wrapper's own arguments: the text before base=, for qm_args_read */
};

/* Opens the problem that follows base= in args (base_default where args has no base=) and sets the
 * number of tensors and their shapes.  who: the wrapper's name, for messages.  QM_BAD_ARG: the base
 * is unknown, has no loss, or the text is too long. */
qm_status qm_problem_wrapper_open(const char *who, const char *args, const char *base_default,
                                  uint64_t seed, struct qm_problem_wrapper *out, int *n_tensors,
                                  struct qm_shape *shapes);

/* The last argument of a wrapper's table; qm_args_read leaves it to qm_problem_wrapper_open. */
#define QM_WRAPPER_BASE_ARG                                                                        \
    {                                                                                              \
        .key = "base", .words = "NAME:ARGS", .text = "the problem, with the rest as its arguments" \
    }

/* Checks the syntax of args for p, a wrapper or not, and for the bases in them: the keys exist, and
 * values are words and numbers where these are due.  Ranges of numbers are left to open.
 * QM_BAD_ARG otherwise. */
qm_status qm_problem_wrapper_check(const struct qm_problem *p, const char *args);

/* 1: p with args a is the problem that q with args b is: all arguments have the same values, those
 * that a text leaves out their defaults.  Both texts have passed qm_problem_wrapper_check. */
int qm_problem_is_same(const struct qm_problem *p, const char *a, const struct qm_problem *q,
                       const char *b);

/* Member work of struct qm_problem for the base; 0 where the base is unknown or states none. */
double qm_problem_wrapper_work(const char *args, const char *base_default);

/* The problem whose suggested steps and learning rates serve p with these args: p itself, or the
 * base where p is a wrapper whose base is not its default one. */
const struct qm_problem *qm_problem_wrapper_suggests(const struct qm_problem *p, const char *args);

/* Writes to *out (the caller frees it) the arguments of instance `instance` >= 1 of p with these
 * args: those with data_seed, of p or of the innermost base, raised by instance - 1.  Sets
 * *has_data to whether there is a data_seed; without one *out equals args. */
qm_status qm_problem_instance(const struct qm_problem *p, const char *args, int64_t instance,
                              char **out, int *has_data);

void qm_problem_wrapper_close(struct qm_problem_wrapper *w); /* accepts a zeroed one */

#endif
