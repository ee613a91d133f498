/* protocol.h - Paired statistics: compares a variant with its rule in full precision, over seeds.
 *
 * A suite with `protocol: paired` judges its cells of coupling closed as follows:
 *
 *   pairs      Every run is paired with its float64 twin: start, data, noise and hyper-parameters
 *              are equal.  The gap of a run is (f(x_T) - f*) / (f(x_0) - f*) after the last step T,
 *              at least 2^-52.  A run has diverged when its gap exceeds 1000, or its loss or a
 *              parameter is not finite; its gap is then 1000.
 *   d          log10 gap - log10 gap of the twin, one number per seed.
 *   basins     On a problem with several basins of attraction, verdicts, sensitivity and budget use
 *              the pairs of which both runs end in the basin where most twins of the comparison
 *              end; the other pairs are counted as `elsewhere`.
 *   null       Control cells that the suite does not name, once for every source, seed, lr_scale
 *              and set of hyper-parameters: the rule with float32 states, and the twin against
 *              itself with one start moved by one float32 ulp.  They show how far apart equivalent
 *              runs end.  `better` and `worse` have to leave this null too: the 95 % interval of d
 *              minus the d of float32 states of the same seeds excludes 0 as well; else the verdict
 *              is `undecided`, printed with the remark `as float32`.  Another remark says where
 *              float32 states are not equivalent either.
 *   instances  On problems with a data seed the location and intervals are those of the instances'
 *              locations (qm_paired_levels); other problems have more seeds instead.
 *   outcomes   d after the last step, which gives the verdict; of the mean gap over the last eighth
 *              of the steps (late); its mean over the logarithm of the step (area).  A verdict that
 *              hangs on the outcome is printed with those of the others.
 *   codes      A row says how many bits a state really has, and which share of the elements to
 *              which the recipe gives codes had any.  Where what the suite varies (the slots in
 *              which its recipes differ) has no codes the verdict is `not quantized`; where less
 *              than half has codes, it is not `equivalent`.
 *   label      The variant, or where axes override recipes their labels joined by "; ".  A null
 *              pair is labelled by the variant of its rule: "adamw_f32; float32", "adamw_f32; start
 *              ulp".
 *   verdict    One per problem, label and lr_scale, over seeds (stats.h): `equivalent` where the
 *              90 % interval of the trimmed mean of d lies in +- delta (log10 1.05, or the margin
 *              of the suite or problem), and no more runs are far off than with float32 states;
 *              `better` or `worse` where the 95 % interval excludes 0 and the
 *              false discovery rate over all plain cells of the suite is 5 %; else `undecided`.
 *              Runs that are equal to the bit in the start's loss and both gaps count once; pairs
 *              that both diverged do not count; fewer than six pairs are `too few`.  Intervals are
 *              cut to the range of d, +- 18.65 decades.
 *   rates      Where a rate was tuned for the twin (qualm tune; suite.h, rates) both run at it: the
 *              same rate.  Where one was tuned for the variant's recipe too, a control cell runs it
 *              there, and d is that run's log10 gap minus that of the twin at the twin's rate: best
 *              against best, by which verdicts and contrasts are then given, with those at the same
 *              rate beside them.  Nulls, profiles, sensitivity and budget stay at the same rate.
 *   contrasts  Value against value on one axis of formats, all else equal: log10 gap of one minus
 *              log10 gap of the other, pair by pair, judged as above (without a null) in a family
 *              of its own.  Where both have the same twin that is d minus d; values with rules or
 *              rates of their own have a twin each, and the table says where.  Where the rate of
 *              one side was tuned and that of the other is the problem's own, or set by the suite,
 *              nothing is decided: `uneven rates`.  The key `contrast` of a suite chooses the
 *              values; else each stands against the first.
 *   targets    51 per problem: levels of hitting_times.h in equal ratios from 10^0 to the smallest
 *              gap that at least half the twins of some rule reach (at lr_scale 1).  A problem
 *              whose twins reach nothing below their start is in no ECDF, profile or score.
 *   runtime    The hitting time of a target; infinite where the target is never reached or the run
 *              failed.
 *   ecdf       The share of (problem, seed, target) reached within a number of steps.
 *   profiles   The share of (problem, seed, target) whose runtime is at most tau times a reference:
 *              that of the best label, nulls included (classical), or of the run's own twin (twin).
 *              Triples that neither the label nor the reference reaches do not count; runtimes
 *              below 1 count as 1.  The score is the integral over tau from 1 to 4, divided by 3.
 *   budget     With `budget: 1`, at lr_scale 1: control cells run each variant with one part at
 *              full precision.  The share of a part is d of the variant minus d without the part;
 *              `rest` is d minus all shares: above 0 where any of several parts alone costs as
 *              much, below 0 where they cost only together.  Only runs of which every part is known
 *              count.
 *
 * All numbers are computed from outcomes in the order of cells and do not depend on which process
 * ran them. */
#ifndef QM_EXPERIMENTS_PROTOCOL_PROTOCOL_H
#define QM_EXPERIMENTS_PROTOCOL_PROTOCOL_H

#include <jansson.h>

#include "experiments/lockstep/results.h"
#include "experiments/store/store.h"
#include "experiments/suite/control_cells.h"

enum { QM_TARGETS = 51 };

struct qm_protocol; /* opaque; refers to the results */

/* Computes all tables; *out is NULL where the suite is not paired or no closed cell ran. */
qm_status qm_protocol_make(const struct qm_results *r, struct qm_protocol **out);
void qm_protocol_free(struct qm_protocol *p); /* accepts NULL */

void qm_protocol_print(const struct qm_protocol *p);   /* on stdout; accepts NULL */
json_t *qm_protocol_json(const struct qm_protocol *p); /* NULL: null */
qm_status qm_protocol_store(const struct qm_protocol *p,
                            struct qm_store *store); /* NULL: nothing */

#endif
