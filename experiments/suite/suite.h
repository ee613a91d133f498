/* suite.h - Reads a suite, a YAML file of experiments, and makes its cells, one run each.
 *
 *     title: how momentum formats compare          # text
 *     question: which map carries the error?       # text
 *     variant: [ema4_uniform, adamw4_ao]           # names or recipes; required
 *     exp_avg:                                     # any recipe key (recipe.h): a slot,
 *       - nf4: "nf4:4s/block:128"                  # one axis of it, lr, grad ... but clip, start
 *                                                  # and warmup, which are as below: a variant's
 *                                                  # own is "variant: adafactor_torch,clip=2";
 *       - "dyn:4s/block:128"                       # "label: value" names a value
 *     exp_avg.norm: ["block:64", "block:128"]
 *     coupling: oneshot                            # oneshot | local | global | closed | update
 *     slot: exp_avg                                # the state measured; default: see below
 *     source: ["states:gpt_*", "dist:student:3"]   # required; see below
 *     seed: [1, 2, 3]                              # default 1
 *     instance: 1..4                               # other data: data_seed of the problem plus
 *                                                  # instance - 1, and other starts and noise
 *     steps: 200                                   # default: a trace's or problem's own, or 100
 *     n: 65536                                     # elements of a dist: source
 *     data: ["experiments/data/x.h5"]              # globs; default: all .h5 in experiments/data
 *     min_numel: 128                               # smaller recorded tensors are left out, and an
 *                                                  # error where none is recorded: the size below
 *                                                  # which a state stays in float32 is
 *                                                  # "exp_avg.min_numel" or "NAME,min_numel=0"
 *     min_rank: 1                                  # recorded tensors of lower rank are left out
 *     every: 10                                    # steps between two points of a curve
 *     protocol: paired                             # statistics against twins; protocol/protocol.h
 *     lr_scale: [0.25, 0.5, 1, 2, 4]               # factors of the problem's learning rate
 *     warmup: 100                                  # steps over which lr rises to its value; 0
 *     schedule: cosine                             # constant | linear | cosine, after the warm-up
 *     clip: 1                                      # largest norm of the gradient; 0: none
 *     decay_rank: 2                                # tensors of lower rank have no weight decay; 0
 *     start: ulp                                   # the variant is the twin, its start one ulp off
 *     rounding_seed: 1..8                          # other draws of rounding, same data; default 0
 *     budget: 1                                    # adds cells for the error budget
 *     delta: 0.0212                                # equivalent within +- delta (log10 of the gap)
 *     contrast:                                    # value against value, paired; by default each
 *       exp_avg: {against: nf4}                    # value of a format's axis against its first;
 *                                                  # {pairs: all}, {pairs: [[a, b], ...]}; none
 *     rates: none                                  # no tuned rates; else those of qualm tune,
 *                                                  # found for this suite or the one named here
 *     sizes: {small: {seed: 1..2, steps: 50}}      # other values for --size small
 *     summary:                                     # tables, printed and stored; summary.h
 *       - {name: a, by: [class, exp_avg.norm], across: exp_avg, value: sqnr, stat: median}
 *     claim: NF4 momentum loses less than uniform int4     # what a paper or a release says
 *     claim_source: "arXiv:2305.14314"             # where the claim stands
 *     expect:                                      # what the cells show if it holds; claim.h
 *       - {value: sqnr, of: {exp_avg: nf4}, versus: {exp_avg: int4}, unit: tensor,
 *          relation: above 0}                      # each: source: one for every source
 *
 * A cell that does not train measures, where the suite has no slot, the first state of the rule
 * that an axis varies (exp_avg_sq.norm: the second moment), else the first state.
 *
 * Any key of variant, coupling, slot, source, seed, instance, steps, n, lr_scale, warmup,
 * schedule, clip, decay_rank, start, rounding_seed and the recipe keys takes a list and is then an
 * axis (A..B: whole numbers from A to B).  The cells are the product of the axes in the file's
 * order, the last axis fastest.  Of T updates, update t of a warm-up of N <= T takes the learning
 * rate lr t / N, and a later one lr f(s), s = (t - 1 - N) / (T - N): f is 1, 1 - s (linear) or
 * (1 + cos(pi s)) / 2 (cosine); rules that set their own step ignore it.  With clip C the gradient
 * of all tensors together is multiplied by min(1, C / (norm + 1e-6)), as
 * torch.nn.utils.clip_grad_norm_ does, before the variant rounds it.  Sources:
 *
 *     states:GLOB       recorded states, GLOB over "run/sNNNNNN/tensor" ('*' crosses '/')
 *     trace:GLOB        recorded gradients, GLOB over "run/trace/tensor"
 *     dist:NAME[:ARG]   a distribution (distribution.h)
 *     problem:NAME[:k=v,...]   a problem with its own gradients (problem.h)
 *
 * A source that matches several recorded tensors makes one cell per tensor.  Whole quantizers are
 * set before single axes of them, whatever the file's order.  lockstep/lockstep.h tells the
 * couplings.
 *
 * Unknown and doubled keys and misspelt words are errors that name file and line.  A composition
 * that makes no sense is a skipped cell with its reason. */
#ifndef QM_SUITE_SUITE_H
#define QM_SUITE_SUITE_H

#include "core/recipe/recipe.h"
#include "experiments/problems/problem.h"
#include "experiments/source/distribution.h"
#include "experiments/source/replay.h"

enum { QM_SUITE_AXES = 24, QM_SUITE_BY = 6, QM_SUITE_VALUES = 8, QM_SUITE_CELLS = 10000000 };

/* clang-format off */
#define QM_COUPLING_LIST(X)                                                          \
    X(oneshot, "the quantizer applied once")                                         \
    X(local,   "the oracle takes over the variant's state before each step")         \
    X(global,  "the same gradients, each with its own states")                       \
    X(closed,  "variant and twin evaluate gradients at their own parameters")        \
    X(update,  "one update from a recorded state that is quantized as a whole")
/* clang-format on */

enum qm_coupling {
#define X(name, text) QM_COUPLING_##name,
    QM_COUPLING_LIST(X)
#undef X
        QM_COUPLING_COUNT
};
const char *qm_coupling_name(enum qm_coupling c);

struct qm_axis_value {
    char *text, *label; /* label is text itself unless the suite gives one */
    int line;
};

struct qm_axis {
    char *key;
    int line, n;
    int is_recipe; /* a key for qm_recipe_set */
    struct qm_axis_value *value;
};

/* One table of `summary`; run/summary.h defines its keys. */
struct qm_summary_plan {
    char *name;
    int line, n_by, n_values, n_stats, n_where;
    char *by[QM_SUITE_BY], *value[QM_SUITE_VALUES], *stat[QM_SUITE_VALUES];
    char *across;                    /* or NULL */
    char *versus_key, *versus_label; /* or NULL */
    char *where_key[QM_SUITE_BY], *where_label[QM_SUITE_BY];
    char *headline;   /* what the table answers; printed by `qualm run --headline`; or NULL */
    int at_best;      /* cells of a paired suite stand at the rates that were tuned for them */
    int counts_cells; /* the values of an axis that is no key are values of their own */
};

/* clang-format off */
#define QM_RELATION_LIST(X) /* name, bounds, text */                                      \
    X(above,   1, "the whole interval above the bound")                                   \
    X(below,   1, "the whole interval below the bound")                                   \
    X(between, 2, "the whole interval between the bounds")
/* clang-format on */

enum qm_relation {
#define X(name, bounds, text) QM_RELATION_##name,
    QM_RELATION_LIST(X)
#undef X
        QM_RELATION_COUNT
};

/* One expectation of a claim; run/claim.h defines its keys. */
struct qm_expect {
    int line, n_of;
    char *value, *unit, *relation_text; /* unit: default "tensor" */
    char *each;                         /* an axis; NULL after qm_suite_spread */
    char *of_key[QM_SUITE_BY], *of_label[QM_SUITE_BY];
    char *versus_key, *versus_label; /* or NULL */
    enum qm_relation relation;
    double bound[2];
};

/* Which values of an axis are tested against each other: each against one, all pairs, or pairs. */
struct qm_contrast {
    char *axis, *against; /* against: a label; NULL: all, or pair[] */
    int line, all, n_pairs;
    char *(*pair)[2]; /* [n_pairs]: labels; the first is tested against the second */
};

/* A tuned learning rate: the factor of the recipe's or problem's rate for cells of this key. */
struct qm_rate {
    char *key;
    double rate;
    int is_used; /* some cell has asked for it */
};

struct qm_suite {
    char *path, *stem, *title, *question;
    int is_sized; /* the suite was read at a size that it has values for */
    int n_axes, n_data, n_summaries;
    struct qm_axis axis[QM_SUITE_AXES];
    char **data;
    int64_t min_numel, min_rank, every; /* every 0: points by the logarithm of the step */
    int least_line;                     /* of min_numel, else of min_rank, in the file */
    int paired;                         /* protocol: paired */
    int64_t budget;
    double delta;                  /* 0: as the problems state */
    int has_contrast, n_contrasts; /* has_contrast 0: each value against its axis' first */
    struct qm_contrast contrast[QM_SUITE_AXES];
    int has_rates;     /* the suite says which rates are tuned, or that none are */
    char *other_rates; /* the suite that they were tuned for; NULL: this one */
    int n_rates;
    int64_t rates_room;
    struct qm_rate *rate; /* ascending by key */
    struct qm_summary_plan *summary;
    char *claim, *claim_source; /* or NULL */
    int n_expects;
    struct qm_expect *expect;
    char *data_folder;  /* in which relative globs of data are looked for first, or NULL */
    char *data_remarks; /* "FILE: REMARK; ..." of the opened data (qm_file_remark), or NULL */
    char *plan;         /* canonical text: equal for two files with the same meaning */
};

/* Reads a suite.  QM_BAD_FILE when it cannot be read; QM_BAD_ARG ("FILE:LINE: ...") for YAML
 * errors, unknown or doubled keys and values of the wrong kind. */
qm_status qm_suite_read(const char *path, struct qm_suite **out);

/* Reads a suite at a size, "small", "normal" or "large": the keys that its `sizes` give for this
 * size replace those of the suite.  NULL is "normal".  QM_NO_MATCH for another word. */
qm_status qm_suite_read_size(const char *path, const char *size, struct qm_suite **out);

void qm_suite_free(struct qm_suite *s); /* accepts NULL */

/* Writes s->plan anew from the other members of s; reading the text back gives the same plan. */
qm_status qm_suite_print(struct qm_suite *s);

/* Appends a variant or recipe to the axis "variant", and to the plan.  QM_BAD_ARG where the axis
 * has the label already. */
qm_status qm_suite_add_variant(struct qm_suite *s, const char *label, const char *recipe);

/* Replaces the data globs (n > 0) in s and in its plan. */
qm_status qm_suite_data(struct qm_suite *s, char *const *globs, int n);

/* Index of the axis of that key, or -1; index of the value with that label, or -1. */
int qm_suite_axis(const struct qm_suite *s, const char *key);
int qm_axis_find(const struct qm_axis *a, const char *label);

/* Whether an axis changes how states are stored: the variant, or a key of recipes that is
 * no hyper-parameter. */
int qm_suite_is_format_axis(const struct qm_suite *s, int axis);

enum qm_source_kind {
    QM_SOURCE_none,
    QM_SOURCE_states,
    QM_SOURCE_trace,
    QM_SOURCE_dist,
    QM_SOURCE_problem,
    QM_SOURCE_empty /* empty_source.h: for tests of the runner */
};

/* clang-format off */
#define QM_SCHEDULE_LIST(X)                                                      \
    X(constant, "the rate stays")                                                \
    X(linear,   "the rate falls to 0 in a straight line")                        \
    X(cosine,   "the rate falls to 0 as half a cosine")
/* clang-format on */

enum qm_schedule {
#define X(name, text) QM_SCHEDULE_##name,
    QM_SCHEDULE_LIST(X)
#undef X
        QM_SCHEDULE_COUNT
};
const char *qm_schedule_name(enum qm_schedule s);

/* Why a cell exists.  Controls are cells that a paired suite adds to the product of its axes
 * (control_cells.c; protocol/protocol.h says which). */
enum qm_cell_role {
    QM_CELL_plain,   /* a cell of the product */
    QM_CELL_float32, /* control: the family's rule with float32 states, with the same twin */
    QM_CELL_ulp,     /* control: the twin against itself, one start moved by one float32 ulp */
    QM_CELL_own,     /* control: a plain cell at the rate that was tuned for its recipe */
    QM_CELL_without  /* control: a plain cell with one part at full precision (error budget) */
};

/* clang-format off */
#define QM_BUDGET_LIST(X) /* name, label, text */                                                 \
    X(first,     "first-moment codes",  "codes of slot 0")                                        \
    X(second,    "second-moment codes", "codes of all other slots")                               \
    X(scales,    "scales",              "scales stored as float16, or quantized themselves")      \
    X(parameter, "parameter",           "the parameter as it is stored")
/* clang-format on */

enum qm_budget {
#define X(name, label, text) QM_BUDGET_##name,
    QM_BUDGET_LIST(X)
#undef X
        QM_BUDGET_COUNT
};

/* One experiment.  Pointers are borrowed from the suite and the replay, or shared (shared.h).  A
 * suite may have 10 million cells, so each member has the least width that its values need. */
struct qm_cell {
    int64_t index;
    uint64_t choices;                 /* the values of all axes: qm_cell_value */
    const struct qm_recipe *recipe;   /* shared by equal cells (shared.h); never NULL */
    const struct qm_dist_bound *dist; /* shared; NULL where the source is none */
    const struct qm_problem *problem;
    const char *problem_args; /* those of the instance; shared, NULL without a problem */
    int64_t instance;         /* of the problem's data, from 1 */
    struct qm_recorded *recorded;
    const char *source_text;         /* "gpt.h5:run/s000400", "dist:gauss"; shared */
    const char *tensor, *class_name; /* "" where the source has none */
    uint64_t seed;                   /* of start, data and noise */
    uint64_t rounding_seed;          /* selects the draws of rounding for this seed */
    double lr_scale;                 /* factor of a problem's learning rate */
    double rate;                     /* tuned factor of that; 1: none */
    int64_t warmup;                  /* steps of the warm-up; 0: none */
    double clip;                     /* largest norm of a gradient; 0: none */
    int64_t steps, n;   /* steps 0: those of the source; n: elements of a distribution */
    int64_t every;      /* steps between points of a curve; 0: by the logarithm of the step */
    const char *reason; /* NULL, or why this cell is skipped; shared */
    /* Indices of the controls of this cell in a paired suite; -1: none. */
    int32_t float32, ulp, own, without[QM_BUDGET_COUNT]; /* own: may be the cell itself */
    uint8_t coupling;                                    /* enum qm_coupling */
    uint8_t slot;       /* the measured state: an index of the rule's slots */
    uint8_t kind;       /* enum qm_source_kind */
    uint8_t role;       /* enum qm_cell_role */
    uint8_t part;       /* enum qm_budget, of role without */
    uint8_t schedule;   /* enum qm_schedule, after the warm-up */
    uint8_t decay_rank; /* tensors of lower rank have no weight decay */
    uint8_t start_ulp;  /* the variant is a second twin whose start is moved by one ulp */
    uint8_t has_data;   /* the problem has a data_seed, which the instance chooses */
    uint8_t lr_given;   /* the suite sets lr */
    uint8_t is_tuned;   /* rate was tuned for the twin of this cell */
};

/* The index of a cell's value of an axis; -1: it has none (controls).  c->choices holds them all as
 * digits, that of axis a from 0 to its number of values n_a: below 2^24 times 10 million in all,
 * because the product of (n_a + 1) is at most that of 2 n_a. */
int qm_cell_value(const struct qm_suite *s, const struct qm_cell *c, int axis);

/* Gives a cell the value of that index, or none (-1). */
void qm_cell_take(const struct qm_suite *s, struct qm_cell *c, int axis, int value);

/* What start and noise are drawn by: seed + 2^24 (instance - 1). */
uint64_t qm_cell_seed(const struct qm_cell *c);

/* The key of the tuned rate of recipe r in the place of cell c: source, instance, steps, warm-up
 * and the whole recipe, as text. */
#define QM_RATE_TEXT (QM_RECIPE_TEXT + 512)
char *qm_rate_key(const struct qm_cell *c, const struct qm_recipe *r, char text[QM_RATE_TEXT]);

/* The tuned rate of recipe r in the place of c; NaN: none was tuned. */
double qm_suite_rate(const struct qm_suite *s, const struct qm_cell *c, const struct qm_recipe *r);

/* Adds a rate (sort when all are added); leaves out those that no cell has asked for. */
qm_status qm_suite_add_rate(struct qm_suite *s, const char *key, double rate);
void qm_suite_sort_rates(struct qm_suite *s);
void qm_suite_prune_rates(struct qm_suite *s);

/* The key of stochastic rounding: qm_cell_seed + 2^32 rounding_seed.  Two seeds never share draws,
 * because shared draws would make them one observation. */
uint64_t qm_cell_rounding(const struct qm_cell *c);

/* Makes the cells: the product of the axes over the sources, then the controls of a paired suite;
 * QM_SUITE_CELLS at most, of 300 bytes each with all that is kept for them.
 * replay holds the recorded data of the suite (NULL: the suite needs none).  QM_BAD_ARG or
 * QM_NO_MATCH with file and line for words that name nothing; compositions that are refused become
 * cells with a reason.  The caller frees the cells with free(). */
qm_status qm_suite_cells(const struct qm_suite *s, const struct qm_replay *replay,
                         struct qm_cell **cells, int64_t *n_cells);

/* Sets c->reason where the cell's source does not serve its coupling and rule. */
qm_status qm_cell_check_source(struct qm_cell *c);

/* Whether any source of the suite needs recorded data. */
int qm_suite_wants_data(const struct qm_suite *s);

#endif
