/* run.h - Replays a recorded optimizer run, step by step from the recorded states. */
#ifndef QM_CONFORM_RUN_H
#define QM_CONFORM_RUN_H

#include "core/recipe/backend.h"
#include "experiments/conform/conform.h"

struct qm_code_range; /* code_edges.h */

/* One state tensor.  Quantized: codes (unpacked) and scales after every step; float32: values
 * after the steps that were kept.  Arrays are [step][...]. */
struct qm_run_slot {
    const int64_t *codes;
    const float *scales;
    int64_t n_scales; /* per step */
    const float *values;
    float first;        /* every value before the first step; not of quantized slots */
    int every_step;     /* values of every step, in the slot's own shape: numel is the dataset's */
    const float *table; /* not NULL: the entries of the recorded table, in place of the map's */
    int entries;
};

/* How a float32 state takes the gradient in: not (or it is not said), itself, its square, or its
 * quotient by root of slot 0 and eps. */
enum qm_run_takes { QM_TAKES_NOTHING, QM_TAKES_MEAN, QM_TAKES_SQUARE, QM_TAKES_QUOTIENT };

/* The tolerances of one step; 0: every bit. */
struct qm_run_tolerance {
    double param_relative, param_absolute; /* absolute: in the value's unit */
    double scale_relative;
    double value_largest;   /* of float32 states, times the tensor's largest magnitude */
    double factor_relative; /* of float32 states recorded after every step */
    double param_of_step;   /* of parameters, times the step of each: its recorded change, and */
    int is_decoupled;       /* where the decay stands beside the step, lr weight_decay times it: the
                             * two may cancel in the change */
    double value_relative;  /* of float32 states, times the larger of old and new value of each,
                             * or 5/4 of their sum where a state takes in a quotient */
    int value_from;         /* the first slot that has value_relative; those before have no root */
    double value_absolute;  /* of float32 states */
    int is_narrow;          /* states are rounded to bfloat16 before they are used: where one is
                             * infinite that is finite in float32, the whole step may be missing */
    /* Codes that a number x, `off` off, has in a block of this scale (code_edges.h); NULL: every
     * code is that of here.  number_relative: what coded numbers are off by before they are coded,
     * times new number and twice the old one of each, for their terms may cancel. */
    struct qm_code_range (*range)(const struct qm_codec *codec, double x, double off, double scale);
    double number_relative;
    double param_of_values; /* of parameters, times lr and the sizes of old and new value of slot */
    int slot;               /* that slot */
    double l2_relative; /* of weight_decay times the parameter, where the gradient takes it in: the
                             * error of the gradient, which states take in with a weight */
    enum qm_run_takes takes[3];
    double weight[3];
    int has_moment; /* slot 0 is the moment that steps go along (of squares, the gradient
                           * is): a parameter is off by as much of its step as the states
                           * may be of theirs, and by all of it where the moment is no larger */
    int has_parts;  /* NAdam: the step has a part along the gradient, which may cancel */
    double beside;  /* parameters may be what the step makes of them at 1 + beside or 1 - beside
                           * times the learning rate, with the same lr weight_decay, or between */
    double sign_relative; /* Lion: the sign of a sum that is smaller than this share of its terms
                             * and value_absolute may be any: parameters may be 2 lr off */
};

struct qm_run {
    int mixes; /* 1: a step makes a number of an element from all of the tensor, as Muon does */
    struct qm_recipe recipe;
    struct qm_shape shape;
    int64_t steps;
    const float *p0, *grads; /* [numel], [steps][numel] */
    const double *lr;        /* [steps], or NULL: the recipe's */
    struct qm_run_slot slot[QM_MAX_SLOTS];
    const float *params; /* [n_kept][numel] */
    const int64_t *kept; /* the steps (from 1) that params and float32 states were kept for */
    int64_t n_kept;
    struct qm_run_tolerance within;
    /* Parameters that are rounded stochastically to bfloat16: the 16 recorded random bits of each
     * step and element, [steps][numel]; NULL: as the recipe says. */
    const int64_t *draws;
    /* Parameters of bfloat16 that are rounded here (with draws: by them), to the recorded number
     * where one within the tolerance of a float32 parameter is rounded to that; the recipe's are
     * float32. */
    int is_rounded;
    /* Where a function that may be an ulp off made a scalar of the recorded step: makes the step's
     * scalars by candidate k, from 0, which is the value as it is; 0: there is no such candidate.
     * The first that gives every bit of the recorded parameter is taken. */
    int (*candidate)(int k);
    /* Judges the parameters of step t in place of the tolerances; NULL: these do. */
    void (*judge)(struct qm_conform *c, const void *context, int64_t t, const char *what);
    const void *context; /* of judge */
    /* Where a rule that is not elementwise writes the numbers of each coded slot before they are
     * coded; NULL: of an elementwise rule they are made here. */
    float *const *seen;
    int is_free; /* 1: the run goes on from its own values; no recorded state is loaded */
};

/* A recipe of the named rule with every slot in float32 and the default hyper-parameters; 0, and
 * the case skipped, when the rule is not built. */
int qm_run_recipe(struct qm_conform *c, const char *rule, struct qm_recipe *out);

/* Gives slot i a quantizer, for tensors of any size, starting at code and scale; 0: skipped. */
int qm_run_quantizer(struct qm_conform *c, struct qm_recipe *r, int i, const char *quantizer,
                     int init_code, float init_scale);

/* Steps 1..steps of the CPU backend.  Unless the run is free, the recorded state after t - 1,
 * and the recorded parameter where it was kept, are loaded before step t; where nothing was
 * kept the run goes on from its own values.  After step t codes, scales, states and parameters
 * are compared. */
void qm_run_replay(struct qm_conform *c, const struct qm_run *run);

/* The attribute "shape"; without it, and of [0] where there is one element (a tensor of rank 0), a
 * flat shape.  One that is no shape of numel elements makes the case unreadable. */
struct qm_shape qm_run_shape(struct qm_conform *c, const char *attribute, int64_t numel);

/* The shape of dataset p0, or where that has one dimension the attribute "shape", as above; 0, and
 * the case unreadable, where p0 is missing or a matrix is expected (is_matrix) and this is none. */
int qm_run_param_shape(struct qm_conform *c, int is_matrix, struct qm_shape *out);

/* The attribute betas; 0, and the case unreadable, where it is not two numbers from 0 to 1. */
int qm_run_betas(struct qm_conform *c, double betas[2]);

/* The same, where they may be absent: betas stay as they are then. */
int qm_run_betas_or(struct qm_conform *c, double betas[2]);

/* A copy of part `part`, from 0, of `parts` of each of `rows` rows; a row has n elements of `size`
 * bytes, a part n / parts.  NULL where all is NULL or there is no memory. */
void *qm_run_rows_part(struct qm_conform *c, const void *all, size_t size, int64_t rows, int64_t n,
                       int part, int parts);

/* Whether element k of n is still in the step of a row: its gradient, its decay and its states
 * before the step are 0.  Every term of its new states and of its step is a product with one of
 * these or a power or sum of such then, so 0 to the bit in any order of operations, whatever its
 * divisor; where the rule makes 0 of a state, and the old number of the parameter, no rounding
 * took part and nothing is allowed.  Slots that were not recorded are those that the class does not
 * keep; of codes, of steps that were not kept and of states of another shape the answer is 0. */
int qm_run_is_still(const struct qm_run *run, int64_t row, int64_t n, int64_t k);

/* Steps 1..steps as a list, for runs that kept all of them. */
int64_t *qm_run_all_steps(struct qm_conform *c, int64_t steps);

#endif
