/* user_cuda.c - Builds, loads and launches a user's kernels on the GPU. */
#include "core/user_kernel/user_cuda.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "core/abi/kernel_abi.h"
#include "core/abi/kernel_cuda.h"
#include "core/compile/cubin_cache.h"
#include "core/compile/includes.h"
#include "core/compile/kernel_build.h"
#include "core/device/device_cuda.h"

/* FENCE: bytes on both sides of each buffer, compared after a step; a multiple of the 64 bytes that
 * kernel_cuda.h promises. */
enum { FENCE = 256, FENCE_BYTE = 0x5a, DEFAULT_ARCH = 90, BUFFERS = 64 };
enum { NOT_FOUND = 500 }; /* CUDA_ERROR_NOT_FOUND */
enum { INVALID_VALUE = 1, OUT_OF_RESOURCES = 701, MOST_THREADS = 1024 };

struct qm_user_cuda {
    const struct qm_cuda *cu;
    void *module, *stream, *kernel[QM_CUDA_STEPS];
    int launch[QM_CUDA_STEPS][3], n_kernels;
    char as[512];
};

static volatile int nobody, *is_launched = &nobody;

void qm_user_cuda_tell(volatile int *launched) { is_launched = launched; }

/* ---- building -------------------------------------------------------------------------------- */

/* Of the device, which the process that runs the kernel opens, and no other. */
static int arch_here(void)
{
    struct qm_cuda_gpu gpu;
    return qm_cuda_gpu_asked(&gpu) == QM_OK ? gpu.arch : DEFAULT_ARCH;
}

static char uncached[QM_INCLUDES_WHY];

const char *qm_user_cuda_uncached(void)
{
    char path[PATH_MAX];
    return qm_cache_path("", path, sizeof path) ? uncached : "";
}

qm_status qm_user_cuda_build(const char *source, const char *object)
{
    struct qm_argv options = {0};
    char path[PATH_MAX], include[PATH_MAX + 2], *text;
    size_t size;
    int arch = arch_here(); /* before NVRTC is chosen, which wants the driver's version */
    QM_TRY(qm_nvrtc_probe());
    QM_TRY(qm_build_read(source, &text, &size));
    snprintf(path, sizeof path, "%s", source);
    snprintf(include, sizeof include, "-I%s", dirname(path));
    qm_argv_add(&options, NULL, include);
    qm_argv_add(&options, NULL, qm_fmad_used() == QM_FMAD_true ? "--fmad=true" : "--fmad=false");
    qm_cuda_flags(&options, NULL);
    char includes[65];
    const char *const *words = (const char *const *)options.argv;
    struct qm_device_source s = {
        .name = source, .text = text, .options = words, .includes = includes, .arch = arch};
    struct qm_device_binary b = {0};
    qm_status st = qm_argv_status(&options);
    if (st == QM_OK)
        st = qm_includes_hash(source, text, words, includes, uncached);
    if (st == QM_OK)
        st = *uncached ? qm_nvrtc_compile(&s, &b) : qm_device_compile(&s, &b);
    FILE *f = st == QM_OK && object ? fopen(object, "we") : NULL;
    if (st == QM_OK && object && (!f || fwrite(b.data, 1, b.size, f) != b.size || fflush(f) != 0))
        st = qm_fail(QM_BAD_FILE, "%s: %s", object, strerror(errno));
    if (f)
        fclose(f);
    qm_device_binary_free(&b);
    free(text);
    return st;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Reads a variable of the module.  QM_NO_MATCH: the module has none of that name. */
static qm_status read_global(const struct qm_user_cuda *u, const char *name, void *out, size_t size)
{
    qm_device_pointer at = 0;
    size_t bytes = 0;
    int error = QM_CU_ERROR(u->cu, ModuleGetGlobal, (&at, &bytes, u->module, name));
    if (error == NOT_FOUND)
        return qm_fail(QM_NO_MATCH, "no variable %s", name);
    QM_TRY(qm_cuda_error(error, "cuModuleGetGlobal"));
    return qm_device_cuda.get(out, at, bytes < size ? bytes : size);
}

/* Finds a kernel of the module.  QM_NO_MATCH: the module has none of that name. */
static qm_status find_kernel(struct qm_user_cuda *u, int k, const char *name)
{
    int error = QM_CU_ERROR(u->cu, ModuleGetFunction, (&u->kernel[k], u->module, name));
    return error == NOT_FOUND ? qm_fail(QM_NO_MATCH, "no kernel %s", name)
                              : qm_cuda_error(error, "cuModuleGetFunction");
}

/* st, but for QM_NO_MATCH, which is a failure with this text. */
#define OR_FAIL(st, ...) ((st) == QM_NO_MATCH ? qm_fail(QM_BAD_ARG, __VA_ARGS__) : (st))

static qm_status bind_kernels(struct qm_user_cuda *u)
{
    int abi = 0;
    qm_status st = read_global(u, "qm_cuda_abi", &abi, sizeof abi);
    QM_TRY(OR_FAIL(st, "the kernel has no QM_CUDA_KERNEL(\"VARIANT\"); line (see kernel_cuda.h)"));
    if (abi != QM_KERNEL_ABI)
        return qm_fail(QM_BAD_ARG,
                       "the kernel was built for version %d of kernel_abi.h, this is %d", abi,
                       QM_KERNEL_ABI);
    st = read_global(u, "qm_cuda_as", u->as, sizeof u->as - 1);
    QM_TRY(st == QM_NO_MATCH ? QM_OK : st);
    for (int k = 0; k < QM_CUDA_STEPS; k++) {
        char name[32], launch[48];
        snprintf(name, sizeof name, k ? "qm_cuda_step_%d" : "qm_cuda_step", k + 1);
        snprintf(launch, sizeof launch, "%s_launch", name);
        st = find_kernel(u, k, name);
        if (st == QM_NO_MATCH)
            break;
        QM_TRY(st);
        st = read_global(u, launch, u->launch[k], sizeof u->launch[k]);
        QM_TRY(OR_FAIL(st, "%s has no QM_CUDA_LAUNCH line (see kernel_cuda.h)", name));
        u->n_kernels++;
    }
    return u->n_kernels ? QM_OK
                        : qm_fail(QM_BAD_ARG, "the kernel has no extern \"C\" __global__ "
                                              "qm_cuda_step (see kernel_cuda.h)");
}

static qm_status bind_nearest(struct qm_user_cuda *u)
{
    qm_status st = find_kernel(u, 0, "qm_cuda_nearest");
    if (st == QM_OK)
        st = read_global(u, "qm_cuda_nearest_launch", u->launch[0], sizeof u->launch[0]);
    QM_TRY(OR_FAIL(st, "the kernel has no extern \"C\" __global__ qm_cuda_nearest with a "
                       "QM_CUDA_LAUNCH line (see kernel_cuda.h)"));
    u->n_kernels = 1;
    return QM_OK;
}

static qm_status open_with(const char *object, qm_status (*bind)(struct qm_user_cuda *u),
                           struct qm_user_cuda **out)
{
    char *image = NULL;
    size_t size = 0;
    int device;
    struct qm_user_cuda *u = calloc(1, sizeof *u);
    if (!u)
        return qm_fail(QM_NO_MEMORY, "kernel %s", object);
    qm_status st = qm_cuda_context(&u->cu, &u->stream, &device);
    if (st == QM_OK)
        st = qm_build_read(object, &image, &size);
    if (st == QM_OK)
        st = qm_cuda_error(QM_CU_ERROR(u->cu, ModuleLoadData, (&u->module, image)),
                           "cuModuleLoadData");
    free(image);
    if (st == QM_OK)
        st = bind(u);
    if (st == QM_OK)
        *out = u;
    else
        qm_user_cuda_close(u);
    return st;
}

qm_status qm_user_cuda_open(const char *object, struct qm_user_cuda **out)
{
    return open_with(object, bind_kernels, out);
}

qm_status qm_user_cuda_nearest_open(const char *object, struct qm_user_cuda **out)
{
    return open_with(object, bind_nearest, out);
}

void qm_user_cuda_close(struct qm_user_cuda *u)
{
    if (u && u->module)
        qm_cuda_clean_up(QM_CU_ERROR(u->cu, ModuleUnload, (u->module)), "cuModuleUnload");
    free(u);
}

const char *qm_user_cuda_as(const struct qm_user_cuda *u) { return *u->as ? u->as : NULL; }

/* ---- a step ---------------------------------------------------------------------------------- */

/* A buffer of the host, and its copy on the device between fences. */
struct buffer {
    const char *what, *of;
    void *host;
    size_t bytes;
    int is_const;
    qm_address base;
};

struct buffers {
    int n;
    struct buffer at[BUFFERS];
};

/* Copies a buffer to the device between fences; its device address goes to *out, a pointer.  host
 * NULL: *out is NULL. */
static qm_status add(struct buffers *b, const char *what, const char *of, const void *host,
                     size_t bytes, int is_const, void *out)
{
    unsigned char fence[FENCE];
    struct buffer *x = &b->at[b->n];
    void *at = NULL;
    memset(fence, FENCE_BYTE, sizeof fence);
    if (host) {
        *x = (struct buffer){what, of, (void *)(uintptr_t)host, bytes, is_const, 0};
        QM_TRY(qm_device_cuda.reserve(bytes + 2 * FENCE, &x->base));
        b->n++;
        QM_TRY(qm_device_cuda.put(x->base, fence, FENCE));
        QM_TRY(qm_device_cuda.put(x->base + FENCE, host, bytes));
        QM_TRY(qm_device_cuda.put(x->base + FENCE + bytes, fence, FENCE));
        at = (void *)(uintptr_t)(x->base + FENCE);
    }
    memcpy(out, &at, sizeof at);
    return QM_OK;
}

/* st, or where that is QM_OK the failure of a release. */
static qm_status release_all(struct buffers *b, qm_status st)
{
    for (int i = 0; i < b->n; i++)
        qm_device_cuda.release(b->at[i].base);
    return st == QM_OK ? qm_cuda_cleaned_up() : st;
}

/* Checks the fences, and copies back the buffers that are not const. */
static qm_status take_all(const struct buffers *b)
{
    unsigned char fence[FENCE], want[FENCE];
    memset(want, FENCE_BYTE, sizeof want);
    for (int i = 0; i < b->n; i++) {
        const struct buffer *x = &b->at[i];
        for (int side = 0; side < 2; side++) {
            QM_TRY(qm_device_cuda.get(fence, x->base + (side ? FENCE + x->bytes : 0), FENCE));
            if (memcmp(fence, want, FENCE) != 0)
                return qm_fail(QM_CHECK_FAILED, "the kernel wrote %s the %s%s%s",
                               side ? "past" : "before", x->what, *x->of ? " of " : "", x->of);
        }
        if (!x->is_const)
            QM_TRY(qm_device_cuda.get(x->host, x->base + FENCE, x->bytes));
    }
    return QM_OK;
}

static size_t type_bytes(int dtype)
{
    return dtype == QM_KERNEL_F32 ? 4 : dtype == QM_KERNEL_E4M3 ? 1 : 2;
}

static size_t residual_bytes(const struct qm_kernel_args *a)
{
    const char *write = strchr(a->param, '/');
    return write && strcmp(write, "/ecc8") == 0 ? 1 : 2;
}

static qm_status give_all(const struct qm_kernel_args *a, struct qm_cuda_args *c, struct buffers *b)
{
    size_t n = (size_t)a->n;
    c->a.recipe = c->a.param = NULL;
    QM_TRY(add(b, "parameters", "", a->p, n * type_bytes(a->p_dtype), 0, &c->a.p));
    QM_TRY(add(b, "gradients", "", a->g, n * type_bytes(a->g_dtype), 1, &c->a.g));
    QM_TRY(add(b, "residuals", "", a->residual, n * residual_bytes(a), 0, &c->a.residual));
    QM_TRY(add(b, "draws", "", a->p_draws, 4 * n, 1, &c->a.p_draws));
    for (int i = 0; i < a->n_slots; i++) {
        const struct qm_kernel_slot *from = &a->slot[i];
        struct qm_kernel_slot *to = &c->a.slot[i];
        size_t m = (size_t)from->n;
        to->name = to->quantizer = NULL;
        QM_TRY(add(b, "codes", from->name, from->codes, (size_t)from->code_bytes, 0, &to->codes));
        QM_TRY(
            add(b, "scales", from->name, from->scales, 4 * (size_t)from->n_scales, 0, &to->scales));
        QM_TRY(add(b, "values", from->name, from->values, 4 * m, 0, &to->values));
        QM_TRY(add(b, "codebook", from->name, from->codebook, (size_t)4 << from->bits, 1,
                   &to->codebook));
        QM_TRY(add(b, "draws", from->name, from->draws, 4 * m, 1, &to->draws));
    }
    return QM_OK;
}

/* Whether waiting for a launch gives this error because of what the kernel did: an address that is
 * illegal (700), misaligned (716) or of no memory space (717), a time limit (702), assert (710), a
 * stack or an instruction that is none (714, 715), a jump to nowhere (718), another fault (719). */
static int is_of_kernel(int error)
{
    return error == 700 || error == 702 || error == 710 || (error >= 714 && error <= 719);
}

/* Whether a launch gives this error because of the kernel's QM_CUDA_LAUNCH line. */
static int is_of_launch(int error, const int launch[3])
{
    return error == OUT_OF_RESOURCES ||
           (error == INVALID_VALUE &&
            (launch[0] < 1 || launch[0] > MOST_THREADS || launch[2] < 0 || launch[2] > 48 * 1024));
}

/* QM_CHECK_FAILED: the kernel failed; other statuses: the driver did. */
static qm_status launch(struct qm_user_cuda *u, int k, int64_t n, void **args)
{
    const int *l = u->launch[k];
    int64_t blocks = l[1] > 0 ? (n + l[1] - 1) / l[1] : 1;
    char name[48]; /* each launch is waited for: a fault is its own */
    snprintf(name, sizeof name, "kernel %d of the step", k + 1);
    int error = QM_CU_ERROR(u->cu, LaunchKernel,
                            (u->kernel[k], (unsigned)(blocks > 0 ? blocks : 1), 1, 1,
                             (unsigned)l[0], 1, 1, (unsigned)l[2], u->stream, args, NULL));
    int is_own = is_of_launch(error, l);
    if (error == 0) {
        *is_launched = 1;
        error = QM_CU_ERROR(u->cu, StreamSynchronize, (u->stream));
        *is_launched = 0;
        is_own = is_of_kernel(error);
    }
    qm_status st = qm_cuda_error(error, name);
    return st != QM_OK && is_own ? QM_CHECK_FAILED : st;
}

static qm_status launch_all(struct qm_user_cuda *u, struct qm_cuda_args *c)
{
    void *args[] = {c};
    for (int k = 0; k < u->n_kernels; k++)
        QM_TRY(launch(u, k, c->a.n, args));
    return QM_OK;
}

qm_status qm_user_cuda_step(struct qm_user_cuda *u, const struct qm_kernel_args *a, int *refused)
{
    struct qm_cuda_args c = {.a = *a, .n_scratch = QM_CUDA_SCRATCH_SPARE};
    struct buffers b = {0};
    uint32_t word = 0;
    for (int i = 0; i < a->n_slots; i++)
        c.n_scratch += a->slot[i].n_scales;
    float *zeros = calloc((size_t)c.n_scratch, sizeof *zeros);
    qm_status st = zeros ? give_all(a, &c, &b) : qm_fail(QM_NO_MEMORY, "scratch");
    if (st == QM_OK)
        st = add(&b, "refusal", "", &word, sizeof word, 0, &c.refused);
    if (st == QM_OK)
        st = add(&b, "scratch", "", zeros, sizeof *zeros * (size_t)c.n_scratch, 0, &c.scratch);
    if (st == QM_OK)
        st = launch_all(u, &c);
    if (st == QM_OK)
        st = take_all(&b);
    st = release_all(&b, st);
    free(zeros);
    *refused = word != 0;
    return st;
}

qm_status qm_user_cuda_nearest(struct qm_user_cuda *u, const float *y, int64_t n,
                               unsigned char *code)
{
    struct buffers b = {0};
    const float *at_y = NULL;
    unsigned char *at_code = NULL;
    void *args[] = {&at_y, &n, &at_code};
    qm_status st = add(&b, "values", "", y, sizeof *y * (size_t)n, 1, &at_y);
    if (st == QM_OK)
        st = add(&b, "codes", "", code, (size_t)n, 0, &at_code);
    if (st == QM_OK)
        st = launch(u, 0, n, args);
    if (st == QM_OK)
        st = take_all(&b);
    return release_all(&b, st);
}
