/* rule.h - AXIS rule: the optimizer's element function and what it needs (the list is rule.c).
 *
 * A rule states its order of operations per source: where an fma stands, where eps stands, in
 * which precision 1 - beta is formed.  Rules of one family compute the same mathematics and are
 * judged by the same oracle. */
#ifndef QM_RULE_RULE_H
#define QM_RULE_RULE_H

#include "core/base/tensor.h"

#define QM_MAX_SLOTS 4

/* One set of hyper-parameters for every rule; a rule reads what its paper names.  Doubles, as the
 * sources keep them; each rule rounds where its source rounds. */
struct qm_hyper {
    double lr, beta1, beta2, eps, weight_decay;
    double momentum, dampening; /* sgdm */
    int nesterov, maximize;
};

/* lr 1e-3, betas (0.9, 0.999), eps 1e-8, weight decay 1e-2, momentum 0.9, the rest 0. */
struct qm_hyper qm_hyper_default(void);

/* Scalars of one step, prepared once per step; meaning of c[] is the rule's own. */
struct qm_rule_step {
    float c[12];
    int flag[4];
    int64_t t;
};

struct qm_rule {
    const char *name;    /* "adamw_ao" */
    const char *family;  /* "adamw": the oracle that judges it */
    const char *summary; /* one line */
    const char *source;  /* project, file, function */
    int n_slots;
    const char *slot[QM_MAX_SLOTS]; /* "exp_avg", "exp_avg_sq" */
    int slot_sign[QM_MAX_SLOTS];    /* 1: takes both signs; 0: never negative */

    /* Step number t >= 1 of hyper h. */
    void (*prepare)(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s);

    /* n consecutive elements in place: p, slot[0 .. n_slots - 1]; g is read.  Element i depends on
     * element i only, so any split of a tensor gives the same bits.  No two arrays overlap. */
    void (*block)(const struct qm_rule_step *s, int64_t n, float *p, const float *g,
                  float *const *slot);

    /* Slot 1 alone, to the same bits; NULL where it depends on slot 0.  Lets a global norm of slot
     * 1 be folded without reading slot 0. */
    void (*second)(const struct qm_rule_step *s, int64_t n, const float *p, const float *g,
                   float *slot1);
};

const struct qm_rule *qm_rule_find(const char *name); /* NULL when there is none */
int qm_rule_count(void);
const struct qm_rule *qm_rule_at(int i);

#endif
