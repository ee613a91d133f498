/* emu_host.cpp - Steps of a kernel file: its buffers, its kernels. */
#include "emu_far.hpp"
#include "emu_streams.hpp"
#include "kernel_cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the buffers of a step ------------------------------------------------------------------- */

static size_t type_bytes(int dtype)
{
    return dtype == QM_KERNEL_F32 ? 4 : dtype == QM_KERNEL_E4M3 ? 1 : 2;
}

static size_t residual_bytes(const struct qm_kernel_args *a)
{
    const char *word = a->param ? strchr(a->param, '/') : NULL;
    return word && strcmp(word, "/ecc8") == 0    ? 1
           : word && strcmp(word, "/ecc16") == 0 ? 2
                                                 : type_bytes(a->p_dtype);
}

static void add_slot(const struct qm_kernel_slot *s, int i)
{
    static char names[QM_KERNEL_SLOTS][5][48];
    static const char *const words[] = {"codes", "scales", "values", "codebook", "draws"};
    const void *at[] = {s->codes, s->scales, s->values, s->codebook, s->draws};
    size_t bytes[] = {(size_t)s->code_bytes, 4 * (size_t)s->n_scales, 4 * (size_t)s->n,
                      (size_t)4 << s->bits, 4 * (size_t)s->n};
    for (int k = 0; k < 5; k++) {
        snprintf(names[i][k], sizeof names[i][k], "%s of %.20s", words[k], s->name);
        qm_region_add(names[i][k], at[k], bytes[k],
                      QM_REGION_STEP | (k >= 3 ? QM_REGION_CONST : 0));
    }
}

static void add_args(const struct qm_kernel_args *a)
{
    size_t n = (size_t)a->n;
    qm_region_drop_step();
    qm_region_add("arguments", a, sizeof *a, QM_REGION_STEP | QM_REGION_CONST);
    qm_region_add("parameters", a->p, n * type_bytes(a->p_dtype), QM_REGION_STEP);
    qm_region_add("gradients", a->g, n * type_bytes(a->g_dtype), QM_REGION_STEP | QM_REGION_CONST);
    qm_region_add("residuals", a->residual, n * residual_bytes(a), QM_REGION_STEP);
    qm_region_add("draws of the parameters", a->p_draws, 4 * n, QM_REGION_STEP | QM_REGION_CONST);
    for (int i = 0; i < a->n_slots; i++)
        add_slot(&a->slot[i], i);
}

/* ---- a step ---------------------------------------------------------------------------------- */

typedef void step_fn(struct qm_cuda_args c);
extern "C" {
void qm_emu_wait(struct qm_emu_stream *stream, int for_all, struct qm_emu_at at);
int qm_emu_user_step(const struct qm_kernel_args *a) __attribute__((weak));
int qm_emu_launch(struct qm_index grid, struct qm_index block, size_t shared, void *stream,
                  const char *name, struct qm_emu_call call, struct qm_emu_at at);
#define STEP(name)                                          \
    void name(struct qm_cuda_args c) __attribute__((weak)); \
    extern int name##_launch[3] __attribute__((weak));
STEP(qm_cuda_step)
STEP(qm_cuda_step_2)
STEP(qm_cuda_step_3)
STEP(qm_cuda_step_4)
STEP(qm_cuda_step_5)
STEP(qm_cuda_step_6)
STEP(qm_cuda_step_7)
STEP(qm_cuda_step_8)
#undef STEP
}

extern "C" {
void qm_cuda_nearest(const float *y, int64_t n, unsigned char *code) __attribute__((weak));
extern int qm_cuda_nearest_launch[3] __attribute__((weak));
}

struct nearest_call {
    const float *y;
    int64_t n;
    unsigned char *code;
};

static void call_nearest(void *closure)
{
    const struct nearest_call *c = (const struct nearest_call *)closure;
    qm_cuda_nearest(c->y, c->n, c->code);
}

static const struct step {
    const char *name;
    step_fn *kernel;
    const int *launch;
} steps[QM_CUDA_STEPS] = {
#define STEP(name)                 \
    {                              \
#name, name, name##_launch \
    }
    STEP(qm_cuda_step),   STEP(qm_cuda_step_2), STEP(qm_cuda_step_3),
    STEP(qm_cuda_step_4), STEP(qm_cuda_step_5), STEP(qm_cuda_step_6),
    STEP(qm_cuda_step_7), STEP(qm_cuda_step_8)
#undef STEP
};

struct call {
    step_fn *kernel;
    struct qm_cuda_args args;
};

static void call_step(void *closure)
{
    const struct call *c = (const struct call *)closure;
    c->kernel(c->args);
}

/* A step of a file of device code alone: its kernels, one after the other. */
static int device_step(const struct qm_kernel_args *a)
{
    static struct call c;
    static uint32_t refused;
    struct qm_emu_at nowhere = {NULL, 0, 0};
    refused = 0;
    c.args.a = *a;
    c.args.a.recipe = c.args.a.param = NULL;
    c.args.refused = &refused;
    c.args.n_scratch = QM_CUDA_SCRATCH_SPARE;
    for (int i = 0; i < a->n_slots; i++) {
        c.args.a.slot[i].name = c.args.a.slot[i].quantizer = NULL;
        c.args.n_scratch += a->slot[i].n_scales;
    }
    size_t bytes = sizeof(float) * (size_t)c.args.n_scratch;
    c.args.scratch = (float *)calloc(1, bytes); /* of 2^31 elements: most pages are never touched */
    qm_region_add("scratch", c.args.scratch, bytes, QM_REGION_STEP);
    for (const struct step *s = steps; s < steps + QM_CUDA_STEPS && s->kernel && !refused; s++) {
        if (!s->launch) {
            qm_emu_fail(nowhere, "%s has no QM_CUDA_LAUNCH line", s->name);
            break;
        }
        uint64_t per = (uint64_t)s->launch[1], n = (uint64_t)a->n;
        uint64_t blocks = per > 0 && n > 0 ? (n + per - 1) / per : 1;
        qm_index grid = {blocks > 0xffffffffu ? 0xffffffffu : (unsigned int)blocks, 1, 1};
        qm_index block = {(unsigned int)s->launch[0], 1, 1};
        c.kernel = s->kernel;
        qm_emu_launch(grid, block, (size_t)s->launch[2], NULL, s->name, {call_step, &c, sizeof c},
                      nowhere);
    }
    free(c.args.scratch);
    qm_emu_wait(NULL, 1, nowhere);
    return (int)refused;
}

static int call_user(const void *a) { return qm_emu_user_step((const struct qm_kernel_args *)a); }

extern "C" {
/* Begin and end of a step, of a kernel file or of core/device/step_emu.cu. */
void qm_emu_step_begin(void)
{
    *qm_emu_text = '\0';
    qm_streams_forget();
    qm_now.step_epoch = ++qm_now.epoch;
    qm_region_drop_step();
}

void qm_emu_step_end(int is_refused)
{
    struct qm_emu_at nowhere = {NULL, 0, 0};
    const char *open = is_refused ? NULL : qm_streams_unwaited();
    if (open)
        qm_emu_fail(nowhere,
                    "the step returns without having waited for %s "
                    "(cudaDeviceSynchronize)",
                    open);
    qm_emu_wait(NULL, 1, nowhere);
    qm_streams_forget();
    qm_region_drop_step();
}

int qm_kernel_step(const struct qm_kernel_args *a)
{
    struct qm_emu_at nowhere = {NULL, 0, 0};
    int refused = 0;
    qm_emu_step_begin();
    add_args(a);
    if (qm_emu_user_step)
        refused = qm_step_call(call_user, a);
    else if (qm_cuda_step)
        refused = device_step(a);
    else
        qm_emu_fail(nowhere, "the file has neither qm_kernel_step nor qm_cuda_step");
    qm_emu_step_end(refused);
    return *qm_emu_text ? 0 : refused;
}

/* The nearest-code routine (kernel_nearest.h) of a file with the kernel qm_cuda_nearest. */
void qm_nearest(const float *y, long n, unsigned char *code)
{
    struct qm_emu_at nowhere = {NULL, 0, 0};
    qm_emu_step_begin();
    qm_region_add("values", y, sizeof *y * (size_t)n, QM_REGION_STEP | QM_REGION_CONST);
    qm_region_add("codes", code, (size_t)n, QM_REGION_STEP);
    if (!qm_cuda_nearest || !qm_cuda_nearest_launch) {
        qm_emu_fail(nowhere, "the file has no qm_cuda_nearest with a QM_CUDA_LAUNCH line");
    } else {
        struct nearest_call c = {y, n, code};
        long per = qm_cuda_nearest_launch[1];
        qm_index grid = {per > 0 ? (unsigned int)((n + per - 1) / per) : 1u, 1, 1};
        qm_index block = {(unsigned int)qm_cuda_nearest_launch[0], 1, 1};
        qm_emu_launch(grid, block, (size_t)qm_cuda_nearest_launch[2], NULL, "qm_cuda_nearest",
                      {call_nearest, &c, sizeof c}, nowhere);
        qm_emu_wait(NULL, 1, nowhere);
    }
    qm_emu_step_end(0);
}

/* A step of a tensor in reserved address space, of which only the blocks are run that work on the
 * first `block` elements and on those from 2^31 - block on.  *left: why it was left before its end,
 * or NULL; *doubt: why its numbers may be wrong without a fault of the kernel, or NULL. */
int qm_emu_far_step(const struct qm_kernel_args *a, int64_t block, const char **left,
                    const char **doubt)
{
    qm_far = {};
    qm_far.n = a->n;
    qm_far.block = block;
    int refused = qm_kernel_step(a);
    *left = qm_far.left;
    *doubt = qm_far.doubt;
    qm_far_end();
    return refused;
}

/* The first finding of the last step, or "". */
const char *qm_emu_finding(void) { return qm_emu_text; }
}
