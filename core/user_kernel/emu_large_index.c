/* emu_large_index.c - Runs a step of 2^31 + 7 elements, to find indices that overflow 32 bits.
 *
 * Only the blocks at certain elements are run, and the buffers are reserved address space, of which
 * the system backs only the touched pages with memory. */
#include "core/user_kernel/emu_large_index.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/abi/kernel_abi.h"

enum { SMALL = 1 << 16, NEAR = 1 << 14, MAPS = 64 };

/* Elements whose blocks are run. */
static const int64_t looked_at[] = {0, QM_FAR_N - 8, QM_FAR_N - 7, QM_FAR_N - 1};

struct far {
    struct qm_kernel_args a;
    struct {
        void *at;
        size_t bytes;
    } map[MAPS];
    int n_maps;
    size_t slot_bytes[QM_KERNEL_SLOTS];
};

static void far_close(struct far *f)
{
    for (int i = 0; i < f->n_maps; i++)
        munmap(f->map[i].at, f->map[i].bytes);
}

static qm_status reserve(struct far *f, void *where, int64_t bytes)
{
    void *at = f->n_maps < MAPS ? mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE,
                                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                                : MAP_FAILED;
    if (at == MAP_FAILED)
        return qm_fail(QM_SKIPPED, "no address space for 2^31 elements");
    f->map[f->n_maps].at = at;
    f->map[f->n_maps++].bytes = (size_t)bytes;
    memcpy(where, &at, sizeof at);
    return QM_OK;
}

/* Makes a slot of a tensor of SMALL elements a slot of the large tensor. */
static qm_status slot_reserve(struct far *f, struct qm_kernel_slot *s)
{
    int64_t n = QM_FAR_N, small = s->n;
    if (small == 0)
        return QM_OK;
    if (s->ndim != 1 || small != SMALL || (s->bits && s->block <= 0))
        return qm_fail(QM_SKIPPED, "%s has scales that need the whole tensor", s->name);
    s->n = s->dim[0] = n;
    if (s->draws)
        QM_TRY(reserve(f, &s->draws, 4 * n));
    if (!s->bits)
        return reserve(f, &s->values, 4 * n);
    int64_t per_block = s->n_scales / ((small + s->block - 1) / s->block);
    s->n_scales = per_block * ((n + s->block - 1) / s->block);
    s->code_bytes = s->code_bytes == small ? n : (n * s->bits + 7) / 8;
    QM_TRY(reserve(f, &s->codes, s->code_bytes));
    return reserve(f, &s->scales, 4 * s->n_scales);
}

static qm_status buffers_reserve(struct far *f)
{
    struct qm_kernel_args *a = &f->a;
    if (a->p_dtype != QM_KERNEL_F32 || a->g_dtype != QM_KERNEL_F32 || a->residual || a->p_draws)
        return qm_fail(QM_SKIPPED, "only float32 parameters and gradients are tried");
    a->n = a->dim[0] = QM_FAR_N;
    QM_TRY(reserve(f, &a->p, 4 * a->n));
    QM_TRY(reserve(f, &a->g, 4 * a->n));
    for (int i = 0; i < a->n_slots; i++)
        QM_TRY(slot_reserve(f, &a->slot[i]));
    for (size_t k = 0; k < sizeof looked_at / sizeof *looked_at; k++)
        for (int64_t i = looked_at[k] - NEAR; i < looked_at[k] + NEAR; i++)
            if (i >= 0 && i < a->n) {
                ((float *)(uintptr_t)a->g)[i] = 0.5f;
                ((float *)a->p)[i] = 1.0f;
            }
    return QM_OK;
}

/* Compares the parameters at looked_at[]: all elements had the same input. */
static qm_status compare(const struct qm_kernel_args *a)
{
    const float *p = a->p;
    if (p[0] == 1.0f)
        return qm_fail(QM_SKIPPED, "element 0 stays as it is");
    for (size_t k = 1; k < sizeof looked_at / sizeof *looked_at; k++)
        if (memcmp(&p[looked_at[k]], p, sizeof *p) != 0)
            return qm_fail(
                QM_CHECK_FAILED,
                "step 1 of 2^31 + 7 elements: parameter %lld is %a, and %a at index 0 of "
                "the same input",
                (long long)looked_at[k], (double)p[looked_at[k]], (double)p[0]);
    return QM_OK;
}

qm_status qm_emu_far(struct qm_kernel_file *k, const struct qm_recipe *r)
{
    int (*step)(const struct qm_kernel_args *a);
    const char *(*finding)(void);
    void *at = qm_kernel_file_symbol(k, "qm_emu_far_step"), *plan = NULL;
    void *said = qm_kernel_file_symbol(k, "qm_emu_finding");
    struct qm_shape shape = {1, {SMALL}};
    const struct qm_kernel_args *small;
    struct far *f = calloc(1, sizeof *f);
    float *zeros = calloc(SMALL, sizeof *zeros);
    qm_status st = !f || !zeros   ? qm_fail(QM_NO_MEMORY, "a step")
                   : !at || !said ? qm_fail(QM_SKIPPED, "not a kernel of backend emu")
                                  : QM_OK;
    memcpy(&step, &at, sizeof step);
    memcpy(&finding, &said, sizeof finding);
    qm_kernel_file_use(k);
    if (st == QM_OK)
        st = qm_backend_file.open(r, &shape, 0, &plan);
    struct qm_tensor p = {zeros, QM_DTYPE_f32, shape};
    if (st == QM_OK && qm_param_type(r->param.format) != QM_DTYPE_f32)
        st = qm_fail(QM_SKIPPED, "only float32 parameters and gradients are tried");
    if (st == QM_OK)
        st = qm_plan_file_args(plan, &p, &p, 1, 1, &small);
    if (st == QM_OK) {
        f->a = *small;
        st = buffers_reserve(f);
    }
    if (st == QM_OK && step(&f->a))
        st = qm_fail(QM_SKIPPED, "the kernel refuses 2^31 + 7 elements");
    if (st == QM_OK && *finding())
        st = qm_fail(QM_CHECK_FAILED, "step 1 of 2^31 + 7 elements: %s", finding());
    if (st == QM_OK)
        st = compare(&f->a);
    qm_backend_file.close(plan);
    if (f)
        far_close(f);
    free(f);
    free(zeros);
    return st;
}
