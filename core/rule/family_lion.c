/* family_lion.c - Lion, full precision. */
#include "core/rule/rule.h"

#include "core/rule/element_loops.h"

static void prepare(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s)
{
    *s = (struct qm_rule_step){.t = t,
                               .c = {[QM_LION_KEEP] = (float)(1.0 - h->lr * h->weight_decay),
                                     [QM_LION_BETA1] = (float)h->beta1,
                                     [QM_LION_ONE_MINUS_BETA1] = (float)(1.0 - h->beta1),
                                     [QM_LION_BETA2] = (float)h->beta2,
                                     [QM_LION_ONE_MINUS_BETA2] = (float)(1.0 - h->beta2),
                                     [QM_LION_LR] = (float)h->lr}};
}

static const struct qm_rule rules[] = {
    {.name = "lion",
     .family = "lion",
     .reads = "lr beta1 beta2 weight_decay",
     .summary = "Lion, decoupled decay before the step, float32 as PyTorch on CPU",
     .source = "arXiv:2302.06675; google/automl lion/lion_pytorch.py",
     .n_slots = 1,
     .slot = {"exp_avg"},
     .slot_sign = {1},
     .prepare = prepare,
     QM_ELEMENTWISE(lion)},
    {.name = "lion_025",
     .family = "lion",
     .reads = "lr beta1 beta2 weight_decay",
     .summary = "lion as lion-pytorch 0.2.5: the sum that decides the sign is fused",
     .source = "arXiv:2302.06675; lion-pytorch 0.2.5 lion_pytorch/lion_pytorch.py, update_fn",
     .n_slots = 1,
     .slot = {"exp_avg"},
     .slot_sign = {1},
     .prepare = prepare,
     QM_ELEMENTWISE(lion_025)},
};

const struct qm_rule_family qm_family_lion = {sizeof rules / sizeof *rules, rules};
