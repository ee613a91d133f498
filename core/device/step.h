/* step.h - What the host hands to the kernels of core/device/step.cu (dual): descriptors, chunks,
 * scalars.
 *
 * A tensor is described by 64-bit words in device memory, which are written once, so that one
 * launch serves any number of tensors; chunks divide the elements among the blocks.  A
 * descriptor's length depends on the recipe: all tensors of a launch have the same slots,
 * quantizers and rank. */
#ifndef QM_DEVICE_STEP_H
#define QM_DEVICE_STEP_H

#include "core/base/dual.h"
#include "core/rule/scalars.h"

/* A block has THREADS threads of EACH elements; a tile is at most their product.  CHUNK: the most
 * elements of a chunk by default.  BY_VALUE: bytes of descriptors and chunks that fit into a
 * kernel's parameters, next to the others. */
enum { QM_STEP_THREADS = 256, QM_STEP_EACH = 8, QM_STEP_CHUNK = 32768, QM_STEP_BY_VALUE = 3840 };

/* The first words of a descriptor.  From QM_DESC_DIMS on follow the dims, as many as the form's
 * rank, their inverses as doubles, and QM_SLOT_COUNT words for each slot. */
enum qm_desc_word {
    QM_DESC_P,
    QM_DESC_G,
    QM_DESC_RESIDUAL,
    QM_DESC_N,
    QM_DESC_ID, /* the tensor's number, plus 2^32 for a tensor of one element */
    QM_DESC_DIMS
};
enum qm_slot_word {
    QM_SLOT_CODES,
    QM_SLOT_SCALES, /* float32 values of the scales; the values of a slot without codes */
    QM_SLOT_STAT,   /* raw maxima of a folded slot, 0 between steps */
    QM_SLOT_N_SCALES,
    QM_SLOT_COUNT
};

/* Elements [first, first + count) of a tensor; first is a multiple of the tile. */
struct qm_chunk {
    int64_t tensor, first, count;
};

/* Scalars of one step, from struct qm_rule_step; flag[1]: the flags for tensors of one element. */
struct qm_step_scalars {
    float c[QM_STEP_SCALARS];
    int flag[2][QM_STEP_FLAGS];
    uint64_t seed;
    uint32_t step;
};

QM_ASSERT_BYTES(struct qm_chunk, 24);
QM_ASSERT_BYTES(struct qm_step_scalars, 112);
QM_ASSERT_PLACE(struct qm_step_scalars, flag, 64);
QM_ASSERT_PLACE(struct qm_step_scalars, seed, 96);

/* Every module has a variable of this name, a 64-bit number to which each launch adds 1 on the
 * device: a launch that never began is not counted. */
#define QM_LAUNCHES "qm_launches"

/* The evidence that qm_codes visited every float: sums over the floats, modulo 2^64, of 1, w and
 * w^2, where w = bits + 2^32 code.  The kernel adds them, in any order, to what the host put there,
 * and the host computes them in closed form from the list of runs.  A launch that left floats out
 * has a smaller count; one that visited others in their place would need the same sums of w and of
 * w^2 too. */
enum { QM_CODES_SUMS = 3 };

/* Memory that a launch may touch; the emulator checks every access against it. */
struct qm_step_region {
    const char *name;
    void *at;
    uint64_t bytes;
};

#endif
