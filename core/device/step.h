/* step.h - what a step's kernels are handed (dual): the host fills it in, core/device/step.cu reads.
 *
 * Tensors lie as descriptors of 64-bit words in device memory, built once, so that one launch serves
 * any number of them; chunks say who does what.  A descriptor's length depends on the recipe: all in
 * one launch have the same slots, quantizers and rank. */
#ifndef QM_DEVICE_STEP_H
#define QM_DEVICE_STEP_H

#include "core/base/dual.h"

/* THREADS of EACH elements: a tile is at most their product.  BY_VALUE: the bytes of tensors and chunks
 * that fit in the kernel's parameters beside the rest. */
enum { QM_STEP_THREADS = 256, QM_STEP_EACH = 8, QM_STEP_CHUNK = 32768, QM_STEP_BY_VALUE = 3840 };

/* Words of a descriptor, then as many dims as the form's rank, then their inverses as doubles, then
 * QM_SLOT_COUNT words per slot. */
enum qm_desc_word {
    QM_DESC_P,
    QM_DESC_G,
    QM_DESC_RESIDUAL,
    QM_DESC_N,
    QM_DESC_ID, /* the tensor's number, + 2^32 where the rule treats its one element otherwise */
    QM_DESC_DIMS
};
enum qm_slot_word {
    QM_SLOT_CODES,
    QM_SLOT_SCALES, /* as they decode; values of a slot without codes */
    QM_SLOT_STAT,   /* raw maxima, 0 between steps; of slots that take two passes */
    QM_SLOT_N_SCALES,
    QM_SLOT_COUNT
};

/* Elements [first, first + count) of a tensor; first: a multiple of the tile. */
struct qm_chunk {
    int64_t tensor, first, count;
};

/* Scalars of one step: struct qm_rule_step's, flag[1] those of a tensor of one element. */
struct qm_step_scalars {
    float c[16];
    int flag[2][4];
    uint64_t seed;
    uint32_t step;
};

/* Memory that a launch may touch; of the emulator, which asks. */
struct qm_step_region {
    const char *name;
    void *at;
    uint64_t bytes;
};

#endif
