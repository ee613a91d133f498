/* rule.h - AXIS rule: what an optimizer's rule is, and what it needs (rule.c finds rules).
 *
 * A rule states the order of operations of its source: where an fma stands, where eps stands, in
 * which precision 1 - beta is formed.  Rules of one family compute the same mathematics and are
 * judged by the same oracle. */
#ifndef QM_RULE_RULE_H
#define QM_RULE_RULE_H

#include "core/base/inverse.h"
#include "core/base/order.h"
#include "core/base/tensor.h"
#include "core/rule/param.h"
#include "core/rule/scalars.h"

#define QM_MAX_SLOTS 12

/* The type of tensors that hold parameters of this format; for e4m3 u8. */
enum qm_dtype qm_param_type(enum qm_param_format format);

/* The hyper-parameters of all rules; a rule reads those that its paper names.  They are doubles, as
 * in the sources; each rule rounds where its source rounds. */
/* clang-format off */
#define QM_HYPER_LIST(X) /* name, default, what */                                                 \
    X(lr,           1e-3,  "learning rate")                                                        \
    X(beta1,        0.9,   "decay of the first moment")                                            \
    X(beta2,        0.999, "decay of the second moment")                                           \
    X(beta3,        0.0,   "decay of CAME's confidence, or of AdEMAMix' slow moment; 0: none")     \
    X(eps,          1e-8,  "added to the denominator")                                             \
    X(eps1,         1e-30, "Adafactor: regularizer of the squared gradient")                       \
    X(eps2,         1e-3,  "Adafactor: least scale of the parameter; CAME: of the confidence")     \
    X(weight_decay, 1e-2,  "decay of the parameters")                                              \
    X(momentum,     0.9,   "SGD: weight of the old buffer")                                        \
    X(dampening,    0.0,   "SGD: 1 minus the weight of the gradient")                              \
    X(alpha,        0.0,   "AdEMAMix: weight of the slow moment; MicroAdam: share of the error " \
                           "that a step takes, or -2: it takes what quantizing the error loses")   \
    X(clip,         1.0,   "Adafactor: largest RMS of the update")                                 \
    X(t_alpha,      0.0,   "AdEMAMix: steps over which alpha rises to its value; 0: none")         \
    X(t_beta3,      0.0,   "AdEMAMix: steps over which beta3 rises to its value; 0: none")         \
    X(beta2_decay, -0.8,   "Adafactor: exponent of the decay schedule")                            \
    X(rank,         0.0,   "APOLLO, Fira: rank; below 1: share of the smaller side; 0: no projection") \
    X(side,         0.0,   "APOLLO, Fira: 0 std, 1 reverse_std, 2 right, 3 left")                  \
    X(gap,          200.0, "APOLLO, Fira: steps between projections; 0: slot proj is given")       \
    X(scale,        1.0,   "APOLLO, Fira: scale of the projected update")                          \
    X(margin,       0.01,  "Fira, APOLLO: growth of the norm that the limiter allows")             \
    X(max_unorm,    0.0,   "LAMB, LARS: largest update norm over the parameter's; 0: none")        \
    X(gnorm_scale,  1.0,   "bitsandbytes: factor on the gradient; 0: 1")                           \
    X(initial_lr,   0.0,   "Lion 8-bit, decouple_lr: learning rate that decay is relative to; 0: lr itself") \
    X(momentum_decay, 4e-3, "NAdam: exponent of 0.96 by which its momentum rises")                 \
    X(adjust,       0.0,   "Muon: lr times 1 (0), sqrt(rows / cols) (1) or 0.2 sqrt(the larger) (2)") \
    X(window,       10.0,  "MicroAdam: gradients in the window")                                  \
    X(k_init,       0.01,  "MicroAdam: share of each block that the window keeps of a gradient")  \
    X(d_block,      20864.0, "MicroAdam: elements of such a block (20864: GPUs with 164 KiB of shared memory)") \
    X(stat_decay,   0.95,  "Shampoo: decay of the covariances")                                    \
    X(matrix_eps,   1e-6,  "Shampoo: first eigenvalues; share of the largest added under the root") \
    X(stat_gap,     100.0, "Shampoo: steps between updates of the covariances (T1)")               \
    X(root_gap,     500.0, "Shampoo: steps between updates of the inverse roots (T2)")             \
    X(start,        1.0,   "Shampoo: first step whose gradient is preconditioned")                 \
    X(rect_stat,    1.0,   "Shampoo: orthogonalizations of the eigenvectors before an update")     \
    X(rect_root,    4.0,   "Shampoo: orthogonalizations before an inverse root")                   \
    X(max_order,    1200.0, "Shampoo: longer sides are cut into pieces of so many rows or columns") \
    X(min_lowbit,   4096.0, "Shampoo: preconditioners of fewer elements keep float32; 0: all do")
#define QM_HYPER_FLAG_LIST(X)                                                                      \
    X(nesterov,           0, "SGD: Nesterov's form")                                               \
    X(maximize,           0, "turn the gradient's sign")                                           \
    X(amsgrad,            0, "Adam: keep the maximum of the second moment")                        \
    X(relative_step,      0, "Adafactor: lr is a cap on 1 / sqrt(t)")                              \
    X(scale_parameter,    0, "Adafactor: lr is relative to the parameter's RMS")                   \
    X(scale_weight_decay, 0, "adafactor8bit: decay is scaled as the step is")                      \
    X(factored,           1, "Adafactor: row and column second moments for two and more dims")     \
    X(limiter,            1, "Fira, APOLLO: limit the growth of the update's norm")                \
    X(tensor_scale,       0, "APOLLO: one scale per tensor instead of per channel")                \
    X(scale_front,        0, "APOLLO: scale before the limiter")                                   \
    X(correct_bias,       1, "APOLLO, Fira: correct the bias of Adam's moments")                   \
    X(svd,                0, "APOLLO: project on singular vectors instead of at random")           \
    X(centered,           0, "RMSprop, Fira's RMSProp: take the mean gradient's square off")                \
    X(warmup,             0, "Adafactor: the relative step is capped by 1e-6 t instead of lr")     \
    X(clip_twice,         0, "adafactor8bit's CAME: clip behind the confidence too, as its quantized path") \
    X(decouple_lr,        0, "FlashAdamW, FlashSGDW: decay by lr / initial_lr instead of lr")      \
    X(flatten,            0, "Muon: more than two dims are one matrix [d0, rest], not a batch")
/* clang-format on */

struct qm_hyper {
#define X(name, value, text) double name;
    QM_HYPER_LIST(X)
#undef X
#define X(name, value, text) int name;
    QM_HYPER_FLAG_LIST(X)
#undef X
};

/* The defaults of the lists; whether one of them has the name. */
struct qm_hyper qm_hyper_default(void);
int qm_hyper_has(const char *name);

/* Scalars of one step, prepared once per step.  The rule's element header names the indices of c[]
 * and flag[]. */
struct qm_rule_step {
    float c[QM_STEP_SCALARS];
    int flag[QM_STEP_FLAGS];
    int64_t t;
    enum qm_param_format param; /* how the parameter is stored; set by the engine after prepare */
    const struct qm_hyper *hyper;

    /* reciprocal[k] stands for a division by c[divisor[k]], as long as reciprocal[k].c is equal
     * to that. */
    int n_reciprocals;
    int divisor[2];
    struct qm_inverse reciprocal[2];
};

/* For `prepare`: makes the next reciprocal, of c[at]. */
static inline void qm_rule_reciprocal(struct qm_rule_step *s, int at)
{
    s->divisor[s->n_reciprocals] = at;
    s->reciprocal[s->n_reciprocals++] = qm_inverse_of(s->c[at]);
}

/* What a recipe asks of its rule. */
struct qm_rule_use {
    const struct qm_hyper *hyper;
    struct qm_param param;
    enum qm_dtype grad;
    const int *slot_bits; /* [n_slots]; 0: float32 */
};

/* The arguments of a tensor rule: everything as float32, slots in their own shapes. */
struct qm_tensor_rule_args {
    const struct qm_rule_step *s;
    const struct qm_shape *shape; /* of p and g */
    uint32_t tensor;              /* its number in the problem, from 0 */

    /* bf16 or f16 where p is stored in that format, rounded to nearest; otherwise f32.  For sources
     * that round more than once in a step. */
    enum qm_dtype param;

    float *p; /* the caller's own array where it is float32; so is g */
    const float *g;

    /* As many elements as p, for the rule's use; kept from round to round of `states`, and of rules
     * of the host alone from there to `apply`. */
    float *room;

    float *slot[QM_MAX_SLOTS];
    struct qm_shape slot_shape[QM_MAX_SLOTS];
    int slot_is_f32
        [QM_MAX_SLOTS]; /* 1: kept unquantized; some sources treat such a state otherwise */
    int round;          /* of `states`, from 0 */
};

/* The packed codes of a slot from element `first` on: whole blocks (qm_codec_is_fused) or, where
 * slope is not NULL, a part of a matrix with norm rank1. */
struct qm_codec;
struct qm_packed_slot {
    const struct qm_codec *c;
    uint8_t *packed;
    float *scales; /* from the first block on; rank1: all */
    const struct qm_shape *shape;
    int64_t first;
    float *fold;        /* rank1: maxima that are being folded */
    const float *stat;  /* rank1: maxima by which to encode */
    const float *slope; /* rank1: qm_unit_slopes of them */
};

/* The operations of a rule whose element i depends on element i only, so that any split of a tensor
 * gives the same bits. No two arrays of a call overlap. */
struct qm_elementwise_ops {
    /* REQUIRED.  The step of one element, for kernels: qm_element_NAME in core/rule/element.h. */
    const char *element;

    /* REQUIRED but for rules that only devices run.  The step of n consecutive elements in place:
     * p, slot[0 .. n_slots - 1]; g is read. */
    void (*block)(const struct qm_rule_step *s, int64_t n, float *p, const float *g,
                  float *const *slot);

    /* OPTIONAL.  The step of slot 1 alone, with the bits of `block`: lets a global norm of slot
     * 1 be folded without reading slot 0.  NULL: slot 1 depends on slot 0, or is not updated
     * alone. */
    void (*second)(const struct qm_rule_step *s, int64_t n, const float *p, const float *g,
                   float *slot1);

    /* OPTIONAL.  Decoding, `block` and encoding in one loop over n elements of whole blocks of
     * packed slots, with the same bits.  Returns 0 and does nothing if it does not know these
     * codecs, this step or this instruction set.  NULL: never. */
    int (*packed)(const struct qm_rule_step *s, int64_t n, float *p, const float *g,
                  const struct qm_packed_slot *slot);

    /* OPTIONAL.  Decoding and `second` of a packed slot 1 with norm rank1, whose new maxima are
     * folded into slot->fold.  Returns 0 as `packed` does.  NULL: never. */
    int (*packed_second)(const struct qm_rule_step *s, int64_t n, const float *g,
                         const struct qm_packed_slot *slot);
};

/* The operations of a rule that needs sums over a tensor (factored second moments, clipping).  Sums
 * are taken in one fixed order. */
struct qm_tensor_ops {
    /* REQUIRED.  `states` updates the slots, `apply` the parameter.  Between the two the engine
     * encodes the slots and, for a recipe with state_used = stored, decodes them again. */
    qm_status (*states)(const struct qm_tensor_rule_args *w);
    qm_status (*apply)(const struct qm_tensor_rule_args *w);

    /* 1: both do everything they do to elements by operations that a device has too
     * (core/rule/sweep.h); the host computes scalars, and a projection when a new one is due
     * (core/rule/lowrank.h).  0: the rule runs on the host only. */
    int on_device;

    /* How many times more often than an elementwise rule it must read the gradient and the states:
     * once for each sum over a tensor that must be complete before something needs it.  `qualm
     * bench` counts bytes by it. */
    int extra_passes;

    /* OPTIONAL.  1 for a slot that `apply` uses as it is stored whatever state_used says, where a
     * source does so for some of its states.  NULL: no slot. */
    int (*applies_stored)(const struct qm_tensor_rule_args *w, int i);

    /* OPTIONAL.  1 for a slot that `apply` changes too: it is encoded once more behind it.  NULL:
     * no slot.  Rules of the host alone. */
    int (*encodes_again)(const struct qm_tensor_rule_args *w, int i);

    /* OPTIONAL.  The round in which `states` updates slot i, where a source encodes one state
     * before it computes the next: `states` is called for rounds 0, 1, ... in turn, and after each
     * the engine encodes the slots of that round, and decodes them again if they are used as
     * stored.  -1: not at this step, so that the slot keeps its codes (rules of the host only).
     * NULL: round 0. */
    int (*update_round)(const struct qm_tensor_rule_args *w, int i);
};

struct qm_rule {
    /* Identity: REQUIRED. */
    const char *name;    /* "adamw_ao" */
    const char *family;  /* "adamw": the oracle that judges it */
    const char *summary; /* one line */
    const char *source;  /* project, file, function */
    unsigned order;      /* QM_ORDER_...: in which order, where the family's sources differ */
    int n_slots;
    const char *slot[QM_MAX_SLOTS]; /* "exp_avg", "exp_avg_sq" */
    int slot_sign[QM_MAX_SLOTS];    /* 1: takes both signs; 0: never negative */
    int slot_whole[QM_MAX_SLOTS];   /* 1: whole numbers of 16 bits, in format i16 or f32 alone */

    /* OPTIONAL.  The name of an earlier slot whose quantizer, fallbacks and first codes this one
     * has unless a recipe says otherwise; such slots are the last ones, and variants do not name
     * them.  To be called through qm_rule_slot_like. */
    const char *slot_like[QM_MAX_SLOTS];

    /* REQUIRED.  The hyper-parameters that change what the rule does, separated by spaces: "lr
     * beta1 eps".  A recipe that changes another one is refused. */
    const char *reads;

    /* 1: beta1 = -1 or beta2 = -1 stand for "none", gap < 0 for a projection of the caller's. */
    int betas_optional;

    /* OPTIONAL.  QM_OK, or why the source refuses this use; replaces the general bounds on lr, eps,
     * weight_decay and the betas.  NULL: those bounds. */
    qm_status (*check)(const struct qm_rule_use *use);

    /* OPTIONAL.  QM_OK, or why the source refuses a tensor of this shape.  NULL: it takes any.
     * To be called through qm_rule_takes. */
    qm_status (*takes)(const struct qm_hyper *h, const struct qm_shape *param);

    /* REQUIRED.  Scalars of step number t >= 1 with h. */
    void (*prepare)(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s);

    /* OPTIONAL.  Changes s, after prepare, for a slot i that is a single float32 number of a
     * tensor of one element: lpmm takes such a state for one that does not exist yet.  NULL:
     * nothing changes. */
    void (*mark_absent)(struct qm_rule_step *s, int i);

    /* OPTIONAL.  Shape of slot i for a parameter of this shape; a slot that the tensor does not
     * have is empty.  NULL: the parameter's shape.  To be called through qm_rule_slot_shape. */
    void (*slot_shape)(const struct qm_hyper *h, int i, const struct qm_shape *param,
                       struct qm_shape *out);

    /* OPTIONAL.  1: the source keeps slot i of a parameter of this shape in plain floats, and that
     * does not depend on the number of elements (min_numel).  NULL: never. */
    int (*slot_plain)(const struct qm_hyper *h, int i, const struct qm_shape *param);

    /* One of the two is REQUIRED, the other NULL. */
    const struct qm_elementwise_ops *elementwise;
    const struct qm_tensor_ops *tensor;
};

/* Whether the rule lists this hyper-parameter among those that it reads. */
int qm_rule_reads(const struct qm_rule *r, const char *hyper);

/* QM_OK, or QM_BAD_ARG where the rule refuses tensors of this shape. */
qm_status qm_rule_takes(const struct qm_rule *r, const struct qm_hyper *h,
                        const struct qm_shape *param);

/* The slot that slot_like names for slot i; -1: none. */
int qm_rule_slot_like(const struct qm_rule *r, int i);

/* The prepare function of SGD with momentum (c[] as core/rule/sgdm.h names it), which PyTorch and
 * low-bit-optimizers share. */
void qm_sgdm_prepare(const struct qm_hyper *h, int64_t t, struct qm_rule_step *s);

/* QM_BAD_ARG, and the message says which slots there are: the rule has no slot i. */
qm_status qm_rule_slot_check(const struct qm_rule *r, int i);

/* QM_BAD_ARG, with the name and the value, for a hyper-parameter that is negative or NaN. */
qm_status qm_rule_from_0(const char *name, double value);

/* The shape of slot i for a parameter of this shape. */
void qm_rule_slot_shape(const struct qm_rule *r, const struct qm_hyper *h, int i,
                        const struct qm_shape *param, struct qm_shape *out);

/* applies_stored, encodes_again and update_round of a tensor rule, 0 where they are NULL. */
int qm_rule_applies_stored(const struct qm_rule *r, const struct qm_tensor_rule_args *w, int i);
int qm_rule_encodes_again(const struct qm_rule *r, const struct qm_tensor_rule_args *w, int i);
int qm_rule_update_round(const struct qm_rule *r, const struct qm_tensor_rule_args *w, int i);

/* What a file core/rule/family_NAME.c provides, as qm_family_NAME; the file is its registration.
 * Loops over elements are generated from core/rule/element.h. */
struct qm_rule_family {
    int n;
    const struct qm_rule *rule;
};

const struct qm_rule *qm_rule_find(const char *name); /* NULL when there is none */
int qm_rule_count(void);
const struct qm_rule *qm_rule_at(int i);
const char *qm_rule_file(const struct qm_rule *r); /* "core/rule/family_adamw.c" */

#endif
