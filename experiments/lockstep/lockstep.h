/* lockstep.h - Runs one cell: a variant and its double-precision twin, step by step.
 *
 * The twin is the oracle of the variant's rule.  The coupling of a cell (suite.h) says how the
 * variant and the twin depend on each other:
 *
 *   oneshot  There are no steps.  The quantizer of one slot encodes and decodes a recorded state or
 *            random draws once: the error of the codec.
 *   local    Before each step the twin takes over the variant's decoded states and parameter; then
 *            both do the step with the same gradient: the error of one step.
 *   global   The variant and the twin start from the same state, keep their own states and get the
 *            same gradients; the gradients of a problem are evaluated at the twin's parameter:
 *            drift.
 *   closed   The variant and the twin start from the same state, and each evaluates the gradient of
 *            a problem at its own parameter: convergence.
 *   update   The twin starts from a recorded state, the variant from the same state with every slot
 *            encoded as its recipe says; both do the next update with the recorded gradient: the
 *            error that a whole recipe makes in what the user gets.
 *
 * Metrics compare a state `got` of the variant with a state `want`, and the two updates that follow
 * from these states:
 *
 *   oneshot  want: the recorded or drawn float32 values; got: their decoded codes.  Update:
 *            m / (sqrt(v / (1 - beta2^(t-1))) + eps) of the recorded state before update t, with
 *            this slot quantized and the other one exact (records with both states of Adam); for a
 *            rule of family lion on a record of Lion, sign(beta1 m + (1 - beta1) g); otherwise NaN.
 *   local    want: the twin's state; got: the variant's decoded state, each after one step from the
 *            variant's state.  All measured steps are one sample.
 *   global,  want: the twin's state; got: the variant's decoded state, each after the last step.
 *   closed   Curves hold the same comparison along the run.
 *
 *   update   want: what the twin's update takes off the parameter, over the learning rate, which is
 *            1 where the recipe's parameter is float32 and else the run's; got: the same of the
 *            variant.  Weight decay is 0 on both sides.  The update is the same two arrays.  A
 *            record of Adam without gradient or parameter (steps is 0) has the update that the
 *            state itself stands for, m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) after t
 *            updates, instead.  state0_sqnr and state1_sqnr are of the states before the update.
 *
 * The update in local, global and closed: Adam and AdamW take m and v with their bias corrections
 * at step t; other rules take (parameter before - parameter after) / learning rate, decay included;
 * rule ema has no update.
 *
 * Hyper-parameters.  Recorded sources bring those of their run, learning-rate schedule included
 * (rule ema averages with the run's beta1, for Lion with its beta2).  Problems bring a learning
 * rate per family (adamw, sgdm, lion) when the suite sets none.  In local and global the twin gets
 * the variant's gradient, rounded to the recipe's dtype; in closed it gets its own in double. */
#ifndef QM_LOCKSTEP_LOCKSTEP_H
#define QM_LOCKSTEP_LOCKSTEP_H

#include <signal.h>

#include "experiments/lockstep/twin_cache.h"
#include "experiments/suite/suite.h"

#include "oracle/metric/metric.h"

/* A run has diverged where its normalised gap exceeds this or is not finite, or a parameter is not;
 * its gap is then set to this. */
#define QM_DIVERGED_GAP 1e3

/* Columns of /metrics in addition to those of oracle/metric/metric.h, then the curves.  Result
 * files store the texts, and digests cover them. */
/* clang-format off */
/* Columns from late_gap on are stored only in files of which some cell has them. */
#define QM_EXTRA_LIST(X) /* name, unit, better (metric.h), text */                                                \
    X(state0_sqnr,     "dB",    higher, "SQNR of the first state after the last step (local, global, closed)")    \
    X(state1_sqnr,     "dB",    higher, "SQNR of the second state after the last step")                           \
    X(param_sqnr,      "dB",    higher, "SQNR of the parameter's movement since the start, against the twin's")   \
    X(loss,            "1",     none,   "loss of the variant after the last step, above the problem's floor")     \
    X(twin_loss,       "1",     none,   "the same of the double-precision twin")                                  \
    X(loss_ratio,      "log10", lower,  "log10 of loss / twin_loss after the last step")                          \
    X(loss_ratio_mean, "log10", lower,  "its mean over the points of the curve after the start")                  \
    X(start_gap,       "1",     none,   "loss of the start above the floor; closed, as the six that follow")      \
    X(gap,             "1",     none,   "loss after the last step over start_gap; 1000 once diverged")            \
    X(twin_gap,        "1",     none,   "the same of the double-precision twin")                                  \
    X(log_gap,         "log10", lower,  "log10 of gap / twin_gap")                                                \
    X(area,            "log10", none,   "mean of log10 gap / twin_gap over the logarithm of the step")            \
    X(basin,           "1",     none,   "basin in which the variant ended, 0: that of the floor; diverged: NaN")  \
    X(twin_basin,      "1",     none,   "the same of the double-precision twin")                                  \
    X(theory_nmse,     "1",     none,   "NMSE by quadrature (oracle/theory.h), oneshot of closed-form laws")      \
    X(theory_sqnr,     "dB",    none,   "SQNR by quadrature: -10 log10 of theory_nmse")                           \
    X(theory_z,        "1",     none,   "standard errors (by block) between measured and theoretical NMSE")       \
    X(peak,            "log10", none,   "largest log10 of gap / twin_gap at any step; closed, as all below")      \
    X(recovery,        "steps", none,   "from that step on until gap <= 1.05 twin_gap; never: Inf")               \
    X(moved,           "1",     none,   "largest distance of an element from its start at any step")              \
    X(twin_moved,      "1",     none,   "the same of the double-precision twin")                                  \
    X(late_gap,        "1",     none,   "mean gap over the last eighth of the steps")                             \
    X(twin_late_gap,   "1",     none,   "the same of the double-precision twin")                                  \
    X(late,            "log10", none,   "log10 of late_gap / twin_late_gap")                                      \
    X(twin_area,       "log10", none,   "mean of log10 of the twin's gap over the logarithm of the step")
#define QM_TRACK_LIST(X) /* name, unit, text */                                                   \
    X(step,        "1",  "number of updates done")                                                \
    X(loss,        "1",  "loss of the variant above the floor")                                   \
    X(twin_loss,   "1",  "loss of the double-precision twin above the floor")                     \
    X(state0_sqnr, "dB", "SQNR of the first state against the twin's")                            \
    X(state1_sqnr, "dB", "SQNR of the second state against the twin's")                           \
    X(param_sqnr,  "dB", "SQNR of the movement of the parameter against the twin's")
/* Hitting times of the normalised gap (hitting_times.h); closed only. */
#define QM_HITS_LIST(X) /* name, twin, persistence, text */                                       \
    X(hits,        0, 1,  "of the variant")                                                       \
    X(twin_hits,   1, 1,  "of the double-precision twin")                                         \
    X(hits10,      0, 10, "of the variant, held for ten evaluations")                             \
    X(twin_hits10, 1, 10, "of the double-precision twin, held for ten evaluations")
/* clang-format on */

enum qm_extra {
#define X(name, unit, better, text) QM_EXTRA_##name,
    QM_EXTRA_LIST(X)
#undef X
        QM_EXTRA_COUNT
};

enum qm_track {
#define X(name, unit, text) QM_TRACK_##name,
    QM_TRACK_LIST(X)
#undef X
        QM_TRACK_COUNT
};

enum qm_hits {
#define X(name, twin, persistence, text) QM_HITS_##name,
    QM_HITS_LIST(X)
#undef X
        QM_HITS_COUNT
};

/* Values of a cell in the order of columns: the metrics qm_metric_at(0 ...), then QM_EXTRA_LIST. */
int qm_value_count(void);
const char *qm_value_name(int i);
const char *qm_value_unit(int i);
const char *qm_value_text(int i);
enum qm_better qm_value_better(int i);
int qm_value_find(const char *name); /* -1: no value has this name */

struct qm_outcome {
    char *reason;       /* NULL: the cell ran; else why it was skipped */
    int done, diverged; /* diverged: the variant's loss or parameter became non-finite, or its gap
                           exceeded QM_DIVERGED_GAP; values cover the steps up to this one
                           (closed: the loss alone at this step; the twin goes on) */
    int64_t n, steps;
    double bits;                   /* of state per element: of the slot (oneshot) or of all slots */
    int64_t wanted[QM_MAX_SLOTS];  /* elements of each slot to which the recipe gives codes */
    int64_t uncoded[QM_MAX_SLOTS]; /* those of them that are plain floats (coded_share.h) */
    int failed;    /* reason is an error, or how the process ended that ran the cell (campaign/) */
    double *value; /* [qm_value_count()]; NaN: not defined for this cell */
    struct qm_decade decade[QM_DECADES], unit_decade[QM_DECADES];
    int64_t n_points;
    double *track[QM_TRACK_COUNT]; /* [n_points] each; NULL for oneshot */
    int64_t n_hits[QM_HITS_COUNT];
    double *hits[QM_HITS_COUNT]; /* [n_hits]: pairs (level, step); closed only, else NULL */
};

/* Whether the recipe of the cell takes tensors of these shapes, which its source has.  QM_BAD_ARG:
 * qm_lockstep_run refuses the cell with this message. */
qm_status qm_lockstep_fits(const struct qm_cell *c, int n_tensors, const struct qm_shape *shape);

/* Runs one cell.  m is scratch of the calling thread; twins is its cache of twins (NULL: the bits
 * are the same, the run takes longer); stop (may be NULL) is polled between steps.  Recorded
 * sources must be loaded.  A refusal is QM_OK with out->reason; QM_INTERRUPTED when stopped.  The
 * caller frees *out with qm_outcome_free. */
qm_status qm_lockstep_run(const struct qm_cell *c, struct qm_metrics *m,
                          struct qm_twin_cache *twins, const volatile sig_atomic_t *stop,
                          struct qm_outcome *out);
void qm_outcome_free(struct qm_outcome *o);

/* From now on a cell of this process that takes more seconds of wall clock ends with
 * QM_INTERRUPTED, between steps or, where it is not polled, when it is done.  0: no limit, as at
 * the start.  Not while cells run. */
void qm_lockstep_limit(double seconds);

/* The part of qm_lockstep_run for coupling oneshot. */
qm_status qm_oneshot_run(const struct qm_cell *c, struct qm_metrics *m, struct qm_outcome *out);

/* Copies the reason why a cell is skipped into o; QM_OK. */
qm_status qm_outcome_skip(struct qm_outcome *o, const char *reason);

/* Sets o->value[] of all metrics, and the decades. */
void qm_outcome_measure(struct qm_outcome *o, const struct qm_metrics *m);

/* update = m / (1 - beta1^t1) / (sqrt(v / (1 - beta2^t2)) + eps), element by element; t1 = 0 or
 * t2 = 0: without that correction. */
void qm_adam_update(int64_t n, const double *m, const double *v, const struct qm_hyper *h,
                    int64_t t1, int64_t t2, double *update);

#endif
