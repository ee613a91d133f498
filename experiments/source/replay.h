/* replay.h - Recorded states and traces of real training runs.
 *
 * Records are found by path in files of any format of readers/.  Layout and time convention:
 *
 *     /RUN                  attributes optimizer, beta1, beta2, eps, momentum, dampening, nesterov
 *     /RUN/sNNNNNN          attributes step, lr: the state before update t = NNNNNN, t >= 1
 *     /RUN/sNNNNNN/TENSOR   grad, param, exp_avg, exp_avg_sq; attribute weight_decay
 *     /RUN/trace            attributes first_step, n_steps; lr[T]
 *     /RUN/trace/TENSOR     grad[T, ...], param_init, exp_avg_init, exp_avg_sq_init: T updates
 *
 * A state is a trace of one update.  exp_avg is the first state of any optimizer (Lion's average,
 * SGD's momentum buffer), exp_avg_sq the second.
 *
 * A file without such paths is a checkpoint: TENSOR/exp_avg, momentum_buffer or state1 is the first
 * state of a parameter, TENSOR/exp_avg_sq or state2 the second, TENSOR/param its value, TENSOR/step
 * the number of updates done; its RUN is the file's name without ending. */
#ifndef QM_SOURCE_REPLAY_H
#define QM_SOURCE_REPLAY_H

#include "core/base/tensor.h"
#include "core/rule/rule.h"
#include "experiments/readers/reader.h"

struct qm_replay; /* opaque; owns files and loaded arrays */

struct qm_recorded {
    char *file;   /* name of the file without folder: "gpt_austen.h5" */
    char *name;   /* "run/s000400/tensor", "run/trace/tensor" */
    char *group;  /* "run/s000400" */
    char *tensor; /* "h.2.qkv.weight" */
    int is_trace;
    struct qm_shape shape; /* of one gradient */
    int64_t numel, first_step, n_steps;
    char optimizer[16];    /* "adamw", "lion", "sgdm" or "" */
    struct qm_hyper hyper; /* of the run, with this tensor's weight decay */
    const char *unknown;   /* the first of step, beta1, beta2, eps that the file does not say, for
                              runs of Adam's kind; NULL: it says them all */
    char *lacking;         /* of a trace: what its replay needs and the file does not say, with the
                              line to add; NULL: nothing */
    char states[64];     /* of a checkpoint: its names of the states, "exp_avg, exp_avg_sq"; "": of
                              another file, where exp_avg is the first state of any optimizer */
    const char *made_by; /* of a checkpoint: amsgrad, nadam or radam, whose update is another than
                              that of their two averages; NULL: none of these */
    int file_number;     /* of the globs, counted from 0, as in qm_replay_remark */
    int has_grad, has_param, has_slot[2];
    /* Set by qm_replay_load; NULL before, and where the file has no such array. */
    float *grad; /* [n_steps][numel] */
    float *param, *slot[2];
    double *lr; /* [n_steps] */
};

/* Opens all files that match the globs (sorted, each once).  QM_NO_MATCH: a glob matches none. */
qm_status qm_replay_open(char *const *globs, int n_globs, struct qm_replay **out);
void qm_replay_close(struct qm_replay *r); /* accepts NULL */

/* As qm_file_remark, of file i of the globs, counted from 0; *path is its path.  0 as well where
 * there is no file i, and *path is then NULL. */
int qm_replay_remark(struct qm_replay *r, int i, const char **path, char out[QM_FILE_REMARK]);

/* The records, in the files' order: how many, and number i, which belongs to r. */
int qm_replay_count(const struct qm_replay *r);
struct qm_recorded *qm_replay_at(const struct qm_replay *r, int i);

/* Reads the arrays of one record, unless they are loaded.  One thread at a time. */
qm_status qm_replay_load(struct qm_replay *r, struct qm_recorded *rec);

/* Frees the arrays of one record. */
void qm_replay_unload(struct qm_recorded *rec);

#endif
