/* adafactor8bit_steps.h - A recorded run of adafactor8bit, and its replay step by step. */
#ifndef QM_CONFORM_ADAFACTOR8BIT_STEPS_H
#define QM_CONFORM_ADAFACTOR8BIT_STEPS_H

#include "core/rule/adafactor8.h"
#include "experiments/conform/adafactor8bit.h"

/* A recorded state tensor, cut to the elements that the slot has. */
struct qm_adafactor8_recorded {
    int64_t n, n_scales;
    const int64_t *codes; /* [steps][n] */
    const float *scales;  /* [steps][n_scales] */
    const float *values;  /* [kept][n] */
    const double *kept;   /* the kept steps, counted from 0; NULL: all */
    int64_t n_kept;
    int is_two;  /* two scales per block: span and least logarithm */
    int is_wide; /* 16-bit codes, which no slot holds: values has what they decode to, and the slot
                  * is float32 */
    int64_t block;
    float floor; /* of wide codes from step 2 on: their lower end, or 0 */
};

/* Of one step and an axis of the confidence; NULL: of none. */
struct qm_adafactor8_off {
    const double *of;     /* the relative error of each number where its terms cancel */
    double most;          /* the largest of these */
    const double *shift;  /* how far above each that of the package is, for its counts of 2^-149 */
    const double *counts; /* by how many of them it may be off besides */
    const double *step;   /* what all these make of the factor of a step, relative */
    const float *x;       /* the numbers, before they are coded */
};

/* The channels of one step of APOLLO (adafactor8bit_channels.h). */
struct qm_adafactor8_channels {
    const struct qm_adafactor8_channel *of; /* NULL: nothing is projected */
    double mean_sum;                        /* the root mean square of their E */
    double most_share;                      /* the largest SHARE */
    double norm_share;                      /* what SHARE makes of N, relative */
    double norm_counts;   /* what counts among the squares of channels make of it, relative */
    double norm_absolute; /* what COUNTS make of it, in its own unit */
};

struct qm_adafactor8_replay {
    struct qm_recipe recipe, first; /* first: of step 1, where its rule is not NULL */
    struct qm_shape shape;
    int64_t steps, n;
    const float *p0, *grads, *params;
    struct qm_adafactor8_recorded slot[QM_ADAFACTOR8_SLOTS];
    int64_t terms; /* APOLLO: of each sum of the projection; else 0 */
    const float *proj;
    const int64_t *proj_index;
    int is_026; /* that release or a later one */
    /* 1: the momentum averages updates (APOLLO: projected gradients); 0: gradients. */
    int is_update;
    /* CAME to 0.2.5 takes means by products with vectors: their longest sum, or 0. */
    int64_t products;
    /* Of one step: how many times larger the terms of those sums are than the sums. */
    double cancels;
    double mean_counts; /* of one step: what a mean of rows that is few counts of 2^-149 makes of
                         * it, relative */
    /* Of one step, SMALL: what counts of 2^-149 make of any number of a momentum of updates,
     * absolute; and of the update that the step takes, relative to its largest number. */
    double update_counts, small;
    const double *direction; /* of one step: what counts of 2^-149 make of each of them, or NULL */
    int is_lost; /* of one step: a factor is known to no digit for its counts of 2^-149 */
    struct qm_adafactor8_off off[2]; /* of rows [batch rows] and of columns [batch cols] */
    const double *mean_off;          /* [batch]: what those of rows make of a mean of rows */
    const double *channel_off; /* of one step: the relative error of each channel of APOLLO whose
                                * codes are off by one (of tensor_scale: one); NULL: of none */
    struct qm_adafactor8_channels channels;
    double norm_off;    /* of one step: the relative error of the update's norm that they make */
    int is_exp2;        /* it averages updates of the CUDA path */
    int is_bf16;        /* parameters are rounded to bfloat16 after each step */
    const float *draws; /* the recorded draws of stochastic rounding, or NULL: to nearest */
};

enum { QM_ADAFACTOR8_WIDE_LEVELS = 65536 }; /* codes of 16 bits */

/* Number of elements of slot i of the recorded tensor. */
int64_t qm_adafactor8_slot_numel(const struct qm_adafactor8_replay *r, int i);

/* Read slot i, of which r->slot[i].n is set, from datasets NAME_q and NAME_scale (and
 * NAME_min_log), or from NAME at the steps that attribute step_index_NAME lists; 0, and the
 * case is skipped, where they do not fit. They set the slot's quantizer in the recipe; text: of
 * the codes. */
int qm_adafactor8_quantized_read(struct qm_conform *c, struct qm_adafactor8_replay *r, int i,
                                 const char *name, const char *text, int init_code,
                                 float init_scale);
int qm_adafactor8_wide_read(struct qm_conform *c, struct qm_adafactor8_replay *r, int i,
                            const char *name, int64_t block);
int qm_adafactor8_values_read(struct qm_conform *c, struct qm_adafactor8_replay *r, int i,
                              const char *name);

/* Judges whether slot i, by name, has codes as _init_group of 0.2.2 to 0.4.6 makes them: where
 * hp_quantize is set and the parameter, of a projection too, has hp_min_8bit_size elements at
 * least; in 0.4.x not where the format of the slot is fp32.  Norms, and the factors of APOLLO's
 * projected second moment, never have codes.  is_coded: the recorded one has.  0: it differs.
 * Where one of both attributes is absent, nothing is judged. */
int qm_adafactor8_format_judge(struct qm_conform *c, const struct qm_adafactor8_replay *r, int i,
                               const char *name, int is_apollo, int is_coded);

/* Steps and judges. */
void qm_adafactor8_run_replay(struct qm_conform *c, const struct qm_adafactor8_replay *r);

/* The two numbers of a block of the 16-bit adaptive log code; a NaN makes both NaN. */
void qm_adafactor8_wide_numbers(const float *x, int64_t n, float floor, float *span, float *low);

#endif
