/* backend.h - The interface of a backend, which binds a recipe to a tensor's shape and runs its
 * steps.
 *
 * Functions return QM_OK or the reason of a failure (core/base/status.h). */
#ifndef QM_RECIPE_BACKEND_H
#define QM_RECIPE_BACKEND_H

#include "core/recipe/recipe.h"

/* For save and load, in place of a slot's number: the residuals of the parameter. */
#define QM_RESIDUAL (-1)

struct qm_backend {
    const char *name;
    qm_status (*probe)(void); /* QM_OK, or QM_SKIPPED: cannot run here */

    /* Opens one tensor's plan, which owns codes, scales and scratch; states start as the recipe
     * says.  tensor: its number in the problem, which is part of the random counter. */
    qm_status (*open)(const struct qm_recipe *r, const struct qm_shape *shape, uint32_t tensor,
                      void **plan);

    /* Step t >= 1 of parameter p (in place; f32, or as the recipe stores it) with gradient g (f32,
     * bf16 or f16).  g->data NULL: there is no gradient; nothing changes, not even by weight decay.
     * seed: the run's. */
    qm_status (*step)(void *plan, struct qm_tensor *p, const struct qm_tensor *g, int64_t t,
                      uint64_t seed);

    /* Decodes slot i into out[numel]. */
    qm_status (*decode)(void *plan, int slot, float *out);

    /* The raw state, for comparisons of bits, out of a plan and into it; NULL: not wanted.
     *   codes    numel bytes, unpacked; not touched for an f32 slot
     *   scales   qm_scale_count floats; for an f32 slot its numel values
     * Slot QM_RESIDUAL: codes takes the numel * qm_param_residual bytes of the residuals, scales is
     * not touched. */
    qm_status (*save)(void *plan, int slot, uint8_t *codes, float *scales);
    qm_status (*load)(void *plan, int slot, const uint8_t *codes, const float *scales);

    int64_t (*bytes)(const void *plan); /* of state, as stored */
    void (*close)(void *plan);          /* accepts NULL */

    /* OPTIONAL.  Replaces the hyper-parameters of an open plan between two steps, as a schedule
     * does; the state stays.  What decides on the slots' shapes and on kernels stays too, else
     * QM_BAD_ARG: flags, rank, side, window, k_init and d_block, and for some rules whether a beta
     * is 0.
     * h->initial_lr 0: the plan keeps its own, which is at first the lr that it was opened with.
     * NULL: the backend cannot. */
    qm_status (*hyper)(void *plan, const struct qm_hyper *h);

    /* OPTIONAL.  The backend loses all memory that outlives a plan (static variables of kernels,
     * buffers, counters), as when its process ends and a fresh one starts.  No plan is open during
     * the call; a state survives by save before it and load after it.  NULL: the backend lives in
     * this process. */
    qm_status (*restart)(void);
};

extern const struct qm_backend qm_backend_cpu;

/* Steps on a GPU by kernels that NVRTC compiles when a plan is opened (core/device/step.cu), and
 * the same kernels on the CPU by the emulator.  open: QM_SKIPPED where there is no GPU, compiler
 * or kernel. */
extern const struct qm_backend qm_backend_cuda, qm_backend_emu;

/* The residuals that write-back of the parameter keeps in a plan of backend cpu, one per element,
 * to read or to replace (kahan: 16-bit floats, ecc8: int8, ecc16: int16); NULL: there are none.
 * They belong to the plan. */
void *qm_plan_cpu_residual(void *plan);

/* The codec of a slot in a plan of backend cpu, to replace its table by that of another release of
 * its source; it belongs to the plan. */
struct qm_codec *qm_plan_cpu_codec(void *plan, int slot);

/* The instruction set that backend cpu uses: "sse2", "avx2" or "avx512"; $QM_ISA lowers it. */
const char *qm_cpu_isa(void);

#endif
