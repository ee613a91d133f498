/* cc -O2 -ffp-contract=off ao-repro.c -lm -ldl -o repro && ./repro
 *
 * ao.so of adamw4_ao (case 4097/nonfinite/wd/t1/forced, seed 20240501), shrunk to 1 step of a tensor of shape 129.
 * Found: parameter 128 is 0x0p+0, want -nan within inf; step 1, p 0x0p+0, g 0x0p+0, exp_avg
 *   0x0p+0, exp_avg_sq 0x1p-4.
 * Prints what is expected and what comes; exits 1 while they differ. */
typedef unsigned char uint8_t; typedef unsigned int uint32_t; typedef unsigned long long uint64_t;
typedef long long int64_t;
#include <stdint.h>
#define QM_KERNEL_ABI 1
#define QM_KERNEL_SLOTS 8
#define QM_KERNEL_RANK 8
enum qm_kernel_dtype { QM_KERNEL_F32, QM_KERNEL_BF16, QM_KERNEL_F16, QM_KERNEL_E4M3 };
struct qm_kernel_slot { const char *name; const char *quantizer; int bits, is_signed; int64_t
block; int64_t n; int ndim; int64_t dim[QM_KERNEL_RANK]; uint8_t *codes; int64_t code_bytes; float
*scales; int64_t n_scales; float *values; const float *codebook; const uint32_t *draws; };
struct qm_kernel_args { int abi; const char *recipe; int64_t n; int ndim; int64_t
dim[QM_KERNEL_RANK]; void *p; int p_dtype; const char *param; const void *g; int g_dtype; void
*residual; const uint32_t *p_draws; int n_slots; struct qm_kernel_slot slot[QM_KERNEL_SLOTS];
int64_t t; uint64_t seed; uint32_t tensor; double lr, beta1, beta2, beta3, eps, eps1, eps2,
weight_decay, momentum, dampening, alpha, clip, t_alpha, t_beta3, beta2_decay, rank, side, gap,
scale, margin, max_unorm, gnorm_scale, initial_lr; int nesterov, maximize, amsgrad, relative_step,
scale_parameter, scale_weight_decay, factored, limiter, tensor_scale, scale_front, correct_bias,
svd, centered, warmup, clip_twice, decouple_lr; };
int qm_kernel_step(const struct qm_kernel_args *a); extern const int qm_kernel_abi; extern const
char qm_kernel_as[];
#define QM_KERNEL(recipe) const int qm_kernel_abi = QM_KERNEL_ABI; const char qm_kernel_as[] = recipe

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int qm_kernel_step(const struct qm_kernel_args *a)
{
    int (*step)(const struct qm_kernel_args *);
    void *object = dlopen("/work/wt/emu/build/scratch/ao.so", RTLD_NOW);
    void *at = object ? dlsym(object, "qm_kernel_step") : NULL;
    if (!at) {
        fprintf(stderr, "%s\n", dlerror());
        exit(3);
    }
    memcpy(&step, &at, sizeof at);
    return step(a);
}

/* ---- what the step gets, and what it must leave ---- */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const float repro_p[1][129] = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}};
static const float repro_g[1][129] = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}};
static const uint8_t repro_codes0[1][65] = {{0x77, 0x77, 0x77, 0x77, 0x77, 0x77, 0x77, 0x77, 0x77,
    0x77, 0x77, 0x77, 0x77, 0x77, 0x77, 0x77, 0x77, 0x77, 0x77, 0x77, 0x77, 0x77, 0x77, 0x77,
    0x77, 0x77, 0x77, 0x77, 0x77, 0x77, 0x77, 0x77, 0x77, 0x77, 0x77, 0x77, 0x77, 0x77, 0x77,
    0x77, 0x77, 0x77, 0x77, 0x77, 0x77, 0x77, 0x77, 0x77, 0x77, 0x77, 0x77, 0x77, 0x77, 0x77,
    0x77, 0x77, 0x77, 0x77, 0x77, 0x77, 0x77, 0x77, 0x77, 0x77, 0x70}};
static const float repro_scales0[1][2] = {{0x1p+0f, 0x1p+0f}};
static const float repro_codebook0[1][16] = {{-0x1.c66666p-1f, -0x1.533334p-1f, -0x1.cp-2f,
    -0x1.b33332p-3f, -0x1.3d70a4p-4f, -0x1.0a3d72p-5f, -0x1.6872bp-8f, 0, 0x1.6872bp-8f,
    0x1.0a3d72p-5f, 0x1.3d70a4p-4f, 0x1.b33332p-3f, 0x1.cp-2f, 0x1.533334p-1f, 0x1.c66666p-1f,
    0x1p+0f}};
static const uint8_t repro_codes1[1][65] = {{0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0,
    0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0,
    0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0,
    0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0}};
static const float repro_scales1[1][2] = {{0x1p+0f, 0x1p+0f}};
static const float repro_codebook1[1][16] = {{0x1p-4f, 0x1p-3f, 0x1.8p-3f, 0x1p-2f, 0x1.4p-2f,
    0x1.8p-2f, 0x1.cp-2f, 0x1p-1f, 0x1.2p-1f, 0x1.4p-1f, 0x1.6p-1f, 0x1.8p-1f, 0x1.ap-1f,
    0x1.cp-1f, 0x1.ep-1f, 0x1p+0f}};

/* A copy at a multiple of 64 bytes. */
static void *repro_place(const void *data, size_t bytes)
{
    void *at = aligned_alloc(64, (bytes + 64) / 64 * 64);
    return at ? memcpy(at, data, bytes) : NULL;
}

static void repro_step(int call, struct qm_kernel_args *out)
{
    *out = (struct qm_kernel_args){.abi = QM_KERNEL_ABI,
        .recipe = "adamw4_ao,exp_avg.min_numel=0,exp_avg_sq.min_numel=0,lr=1,beta1=0,beta2=0,eps=0,weight_decay=0",
        .n = 129, .ndim = 1, .dim = {129}, .p_dtype = 0, .param = "f32", .g_dtype = 0, .n_slots = 2,
        .t = 1, .seed = 0u, .tensor = 1, .lr = 1, .initial_lr = 1,
        .p = repro_place(repro_p[call], 516),
        .g = repro_place(repro_g[call], 516),
        .slot[0] = {.name = "exp_avg", .bits = 4, .is_signed = 1, .block = 128,
        .quantizer = "dyn:4s/block:128/bisect/near/hi/floor:1e-12",
        .n = 129, .ndim = 1, .dim = {129}, .code_bytes = 65, .n_scales = 2,
        .codebook = repro_place(repro_codebook0, 64),
        .codes = repro_place(repro_codes0[call], 65),
        .scales = repro_place(repro_scales0[call], 8)},
        .slot[1] = {.name = "exp_avg_sq", .bits = 4, .is_signed = 0, .block = 128,
        .quantizer = "lin:4u/block:128/bisect/near/hi/floor:1e-12",
        .n = 129, .ndim = 1, .dim = {129}, .code_bytes = 65, .n_scales = 2,
        .codebook = repro_place(repro_codebook1, 64),
        .codes = repro_place(repro_codes1[call], 65),
        .scales = repro_place(repro_scales1[call], 8)}};
    qm_kernel_step(out);
}

int main(void)
{
    struct qm_kernel_args a[2];
    repro_step(0, a);
    float got = ((float *)a->p)[128];
    printf("parameter 128: expected NaN or Inf, got %a\n", (double)got);
    return got - got == 0.0f;
}
