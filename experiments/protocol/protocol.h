/* protocol.h - paired comparison: what a variant changes against the same rule in full precision.
 *
 * A suite with `protocol: paired` judges its cells of coupling closed so:
 *
 *   pairs      every run stands beside its float64 twin: same start, data, noise, hyper-parameters.
 *              The gap of a run is (f(x_T) - f*) / (f(x_0) - f*) after the last step T, at least
 *              2^-52; a run whose loss is not finite or exceeds 1000 times its start has diverged,
 *              and has gap 1000
 *   d          log10 gap - log10 gap of the twin, one per seed
 *   basins     of a problem with several, verdicts, sensitivity and budget are of the pairs that
 *              ended, both, in the basin where most twins of that comparison did; the others are
 *              counted
 *   null       cells that the suite does not name, once for every source, seed, lr_scale and set of
 *              hyper-parameters: the rule with float32 states, and the twin beside itself with its
 *              start moved by one float32 ulp.  How far apart equal things come to be.  Printed with
 *              a verdict where float32 states are not equivalent either
 *   budget     with `budget: 1`, at lr_scale 1: each variant with one part at full precision
 *   label      the variant, or where axes override recipes their labels joined by "; ".  A null pair
 *              is called after its rule's variant: "adamw_f32; float32", "adamw_f32; start ulp"
 *   verdict    per problem, label and lr_scale, over seeds (stats.h): `equivalent` where the 90 %
 *              interval of the mean of d lies in +- delta (log10 1.05, or as suite or problem
 *              state); `better` or `worse` where the 95 % interval leaves out 0 and the false
 *              discovery rate over all plain cells of the suite is 5 %; else `undecided`.  Runs that
 *              are equal to the bit in the start's loss and both gaps count once, pairs that both
 *              diverged do not; under six `too few`.  Intervals end where d does: 18.65 decades
 *   targets    51 per problem, levels of hitting_times.h in equal ratios from 10^0 to the smallest that
 *              at least half the twins of some rule reach (lr_scale 1).  A problem on which they reach
 *              nothing below their start is in no ECDF, profile or score
 *   runtime    the first step at which a target is reached; never, or where the run failed: infinite
 *   ecdf       share of (problem, seed, target) reached within so many steps
 *   profiles   share whose runtime is at most tau times the best label's (classical; of nulls too) or the own
 *              twin's (twin), over (problem, seed, target) that the best, or the label or its twin,
 *              reach; runtimes below 1 count as 1.  Score: the integral over tau from 1 to 4, by 3
 *   budget     d of the variant minus d without the part: its share; `rest` is what the shares leave:
 *              above 0 where any of several parts alone costs as much, below where they cost only
 *              together.  Of the runs of which every part is known
 *
 * All is computed from outcomes in the order of cells, whoever ran them. */
#ifndef QM_EXPERIMENTS_PROTOCOL_PROTOCOL_H
#define QM_EXPERIMENTS_PROTOCOL_PROTOCOL_H

#include <jansson.h>

#include "experiments/run/run_cells.h"

enum { QM_TARGETS = 51 };

/* Adds the null and budget cells to the product of a paired suite's axes; what is there already, with
 * the same recipe, source and seeds, is not added again.  cells grows by realloc. */
qm_status qm_protocol_cells(const struct qm_suite *s, struct qm_cell **cells, int64_t *n_cells);

/* How many cells from the first on are the suite's own product. */
int64_t qm_protocol_own(const struct qm_cell *cells, int64_t n_cells);

/* What a cell is called in tables and legends; text holds QM_LABEL_TEXT bytes. */
#define QM_LABEL_TEXT 512
char *qm_cell_label(const struct qm_suite *s, const struct qm_cell *c, char *text);

/* The label of an axis for a cell; "" where it has none. */
const char *qm_cell_choice(const struct qm_suite *s, const struct qm_cell *c, int axis);

struct qm_protocol; /* opaque; refers to the results */

/* *out NULL where the suite is not paired or no closed cell ran. */
qm_status qm_protocol_make(const struct qm_results *r, struct qm_protocol **out);
void qm_protocol_free(struct qm_protocol *p); /* accepts NULL */

void qm_protocol_print(const struct qm_protocol *p);   /* on stdout; accepts NULL */
json_t *qm_protocol_json(const struct qm_protocol *p); /* NULL: null */
qm_status qm_protocol_store(const struct qm_protocol *p,
                            struct qm_store *store); /* NULL: nothing */

#endif
