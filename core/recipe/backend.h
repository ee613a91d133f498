/* backend.h - a backend binds a recipe to a shape and runs its steps. */
#ifndef QM_RECIPE_BACKEND_H
#define QM_RECIPE_BACKEND_H

#include "core/recipe/recipe.h"

#define QM_RESIDUAL (-1) /* in place of a slot's number, for save and load */

struct qm_backend {
    const char *name;
    qm_status (*probe)(void); /* QM_OK, or QM_SKIPPED with why it cannot run here */

    /* One tensor's plan: owns codes, scales and scratch.  tensor: its number in the problem, part
     * of the random counter.  States start as the recipe says. */
    qm_status (*open)(const struct qm_recipe *r, const struct qm_shape *shape, uint32_t tensor,
                      void **plan);

    /* Step t >= 1 of p (in place; f32, or as the recipe stores it) with gradient g (f32, bf16 or
     * f16).  g->data NULL: there is no gradient, and the tensor is skipped whole, decay too.  seed:
     * of this run. */
    qm_status (*step)(void *plan, struct qm_tensor *p, const struct qm_tensor *g, int64_t t,
                      uint64_t seed);

    /* Slot i as it decodes: numel floats. */
    qm_status (*decode)(void *plan, int slot, float *out);

    /* Raw state for bit verdicts; for an f32 slot codes is NULL and scales its numel values.
     * codes: unpacked, numel bytes; scales: qm_scale_count floats.  NULL: not wanted.
     * slot QM_RESIDUAL: what the write-back keeps beside the parameter; codes takes its
     * numel * qm_param_residual bytes, scales is not touched. */
    qm_status (*save)(void *plan, int slot, uint8_t *codes, float *scales);
    qm_status (*load)(void *plan, int slot, const uint8_t *codes, const float *scales);

    int64_t (*bytes)(const void *plan); /* what the state really costs */
    void (*close)(void *plan);          /* accepts NULL */
};

extern const struct qm_backend qm_backend_cpu;

/* Rules on a GPU (those over whole tensors: whole.h), compiled by NVRTC when a plan is opened, and the same kernels on the CPU by
 * the emulator (core/device/step.cu).  open: QM_SKIPPED where there is no GPU, compiler or kernel. */
extern const struct qm_backend qm_backend_cuda, qm_backend_emu;

/* Replaces hyper-parameters of an open plan (a learning-rate schedule).  initial_lr 0 keeps the
 * plan's own, which is the learning rate that it was opened with. */
void qm_plan_cpu_hyper(void *plan, const struct qm_hyper *h);

/* The residuals that the parameter's write-back keeps (kahan: 16-bit floats, ecc8: int8, ecc16:
 * int16), one per element, to read or to replace; NULL where there are none. */
void *qm_plan_cpu_residual(void *plan);

/* The instruction set the CPU kernels run at: "sse2", "avx2", "avx512"; QM_ISA lowers it. */
const char *qm_cpu_isa(void);

#endif
