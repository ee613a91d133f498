/* large_index.c - Runs a step of 2^31 + 7 elements or fewer, to find indices that overflow. */
#include "core/user_kernel/large_index.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/abi/kernel_abi.h"
#include "core/base/half.h"

/* SMALL divides n - tail, so that a kernel treats the tails of both tensors alike.  BLOCK: elements
 * looked at in each window, at least; a multiple of the blocks that share a scale.  EMULATED: the
 * tail that core/emu/emu_far.hpp knows.  CHUNK: bytes of memory behind an array of a .c kernel.
 * BEYOND: the byte that stands between the end of an array and the next page.  ELSEWHERE: the bytes
 * outside the windows, of ordinary numbers in every format (a float32 of 0.0115): zeros would make
 * the averages subnormal, which are many times as slow. */
enum { SMALL = 1 << 16, BLOCK = 256, EMULATED = 7, ARRAYS = 4 * QM_KERNEL_SLOTS + 4 };
enum { CHUNK = 8 << 20, BEYOND = 0xa5, ELSEWHERE = 0x3c };
static const size_t before = (size_t)8 << 30; /* bytes without access before an array */

/* An array of both tensors; `per` elements share `bytes` bytes, or of codes that are packed, one
 * after the other, 8 elements do. */
struct array {
    const char *what, *of;
    unsigned char *small, *far, *map;
    size_t map_bytes;
    int64_t per, bytes;
    int is_const, is_float, is_packed;
    size_t beyond; /* bytes from the end of the large array to a page without access */
};

struct far {
    struct qm_kernel_args small, a;
    struct array array[ARRAYS];
    int n_arrays, is_emulated;
    int is_filled; /* with ELSEWHERE; not where norms are over all, the small tensor's of windows */
    int64_t n, tail, block, residual_bytes, judged;
    int windows, is_row;           /* is_row: the shape is [1, n], for the rule takes no vectors */
    char name[32], small_name[32]; /* of the n elements: "2^25 + 1", and "2^16 + 1" */
};

/* The windows are the first elements, the last ones, and of a kernel that runs over all elements
 * some of the middle, in the large tensor beyond half of its elements. */
enum window { FIRST, LAST, MIDDLE };

static int64_t first_of(const struct far *f, int64_t n, int window)
{
    return window == FIRST  ? 0
           : window == LAST ? n - f->tail - f->block
                            : n / 2 / SMALL * SMALL + SMALL / 2;
}

static int64_t end_of(const struct far *f, int64_t n, int window)
{
    return window == LAST ? n : first_of(f, n, window) + f->block;
}

/* Bytes of an array of `element` elements: where that element lies in it. */
static size_t offset(const struct array *x, int64_t element)
{
    return (size_t)(x->is_packed ? (element * x->bytes + 7) / 8
                                 : (element + x->per - 1) / x->per * x->bytes);
}

static struct qm_shape shape_of(int is_row, int64_t n)
{
    return is_row ? (struct qm_shape){2, {1, n}} : (struct qm_shape){1, {n}};
}

/* ---- arrays ---------------------------------------------------------------------------------- */

static qm_status no_space(void)
{
    return qm_fail(QM_SKIPPED, "no address space for so many elements: %s", strerror(errno));
}

/* Maps [from, to) of an array, whole pages, to one piece of memory again and again. */
static qm_status map_again(unsigned char *from, unsigned char *to)
{
    int fd = memfd_create("qualm", MFD_CLOEXEC), failed = fd < 0 || ftruncate(fd, CHUNK) != 0;
    for (; !failed && from < to; from += CHUNK) {
        size_t n = to - from < CHUNK ? (size_t)(to - from) : CHUNK;
        failed = mmap(from, n, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_SHARED, fd, 0) == MAP_FAILED;
    }
    qm_status st = failed ? no_space() : QM_OK;
    if (fd >= 0)
        close(fd);
    return st;
}

/* Gives the pages of one window their own memory. */
static qm_status map_window(const struct far *f, const struct array *x, int window)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t low = (uintptr_t)x->far + offset(x, first_of(f, f->n, window));
    uintptr_t high = (uintptr_t)x->far + offset(x, end_of(f, f->n, window));
    low = low / page * page;
    high = (high + page - 1) / page * page;
    return mmap((void *)low, high - low, PROT_READ | PROT_WRITE,
                MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED
               ? no_space()
               : QM_OK;
}

/* Reserves the address space of the large array, after bytes without access.  Of a .c kernel it
 * ends at a page without access, but for alignment to 64 bytes. */
static qm_status reserve(const struct far *f, struct array *x)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = offset(x, f->n);
    size_t room = (bytes + 63) / 64 * 64, inner = (room + page - 1) / page * page;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    x->map_bytes = before + inner + page;
    void *map = mmap(NULL, x->map_bytes, PROT_NONE, flags, -1, 0);
    if (map == MAP_FAILED)
        return no_space();
    x->map = map;
    x->far = x->map + before + inner - room;
    if (f->is_emulated)
        return mprotect(x->map + before, inner, PROT_READ | PROT_WRITE) == 0 ? QM_OK : no_space();
    QM_TRY(map_again(x->map + before, x->map + before + inner));
    if (f->is_filled)
        memset(x->map + before, ELSEWHERE, inner < CHUNK ? inner : CHUNK);
    for (int w = 0; w < f->windows; w++)
        QM_TRY(map_window(f, x, w));
    x->beyond = room - bytes; /* in the last page, which is the last window's own */
    memset(x->far + bytes, BEYOND, x->beyond);
    return QM_OK;
}

static void copy_windows(const struct far *f, const struct array *x)
{
    for (int w = 0; w < f->windows; w++) {
        size_t from = offset(x, first_of(f, SMALL + f->tail, w));
        memcpy(x->far + offset(x, first_of(f, f->n, w)), x->small + from,
               offset(x, end_of(f, SMALL + f->tail, w)) - from);
    }
}

/* Adds an array whose small form is at `small` (NULL: there is none); the address of the large one
 * goes to *out, a pointer. */
static qm_status add(struct far *f, struct array x, const void *small, void *out)
{
    if (!small)
        return QM_OK;
    struct array *to = &f->array[f->n_arrays++];
    *to = x;
    to->small = (unsigned char *)(uintptr_t)small;
    QM_TRY(reserve(f, to));
    copy_windows(f, to);
    if (x.is_const)
        mprotect(to->far - (uintptr_t)to->far % (uintptr_t)sysconf(_SC_PAGESIZE), offset(to, f->n),
                 PROT_READ);
    memcpy(out, &to->far, sizeof to->far);
    return QM_OK;
}

static void far_close(struct far *f)
{
    for (int i = 0; i < f->n_arrays; i++)
        if (f->array[i].map)
            munmap(f->array[i].map, f->array[i].map_bytes);
}

/* Consecutive elements that share a scale; 0: the scales need the whole tensor.  A norm of several
 * axes has blocks of its own where there is one. */
static int64_t block_of(const struct qm_kernel_slot *s)
{
    int64_t own = 1;
    (void)qm_norm_of_rank(QM_NORM_rank1, 1, &own);
    int has_own = s->block <= 0 && s->n_scales == (s->n + own - 1) / own;
    return s->block > 0 ? s->block : has_own ? own : 0;
}

/* Blocks that share a scale divide the windows. */
static qm_status slot_fits(struct far *f, const struct qm_kernel_slot *s)
{
    int64_t block = block_of(s);
    if (s->n == 0)
        return QM_OK;
    if (s->ndim != 1 + f->is_row || s->n != SMALL + f->tail || (s->bits && block == 0))
        return qm_fail(QM_SKIPPED, "%s has scales that need the whole tensor", s->name);
    while (s->bits && f->block % block != 0 && f->block < SMALL / 4)
        f->block *= 2;
    if (s->bits && f->block % block != 0)
        return qm_fail(QM_SKIPPED, "%s has blocks of %lld elements", s->name, (long long)block);
    return QM_OK;
}

/* The bits that a code takes in the bytes of a slot. */
static int width_of(const struct qm_kernel_slot *s)
{
    int width = s->bits;
    while (width < 8 && (s->n * width + 7) / 8 < s->code_bytes)
        width++;
    return width;
}

static qm_status slot_add(struct far *f, int i)
{
    const struct qm_kernel_slot *from = &f->small.slot[i];
    struct qm_kernel_slot *to = &f->a.slot[i];
    if (from->n == 0)
        return QM_OK;
    int64_t block = from->bits ? block_of(from) : 1;
    int64_t blocks = from->bits ? (from->n + block - 1) / block : 0;
    int64_t scales = blocks ? from->n_scales / blocks : 0; /* of a block */
    struct array draws = {"draws", from->name, .per = 1, .bytes = 4, .is_const = 1};
    struct array values = {"value", from->name, .per = 1, .bytes = 4, .is_float = 1};
    struct array codes = {"code byte", from->name, .per = 8, .bytes = width_of(from),
                          .is_packed = 1};
    struct array scale = {"scale", from->name, .per = block, .bytes = 4 * scales, .is_float = 1};
    if (from->code_bytes == from->n)
        codes = (struct array){"code byte", from->name, .per = 1, .bytes = 1};
    to->n = to->dim[f->is_row] = f->n;
    QM_TRY(add(f, draws, from->draws, &to->draws));
    if (!from->bits)
        return add(f, values, from->values, &to->values);
    to->n_scales = scales * ((f->n + block - 1) / block);
    to->code_bytes = (int64_t)offset(&codes, f->n);
    QM_TRY(add(f, codes, from->codes, &to->codes));
    return add(f, scale, from->scales, &to->scales);
}

/* Chooses the windows. */
static qm_status fit(struct far *f, const struct qm_kernel_args *a)
{
    f->block = BLOCK;
    for (int i = 0; i < a->n_slots; i++)
        QM_TRY(slot_fits(f, &a->slot[i]));
    return QM_OK;
}

static int64_t bytes_of(int dtype)
{
    return dtype == QM_KERNEL_F32 ? 4 : dtype == QM_KERNEL_E4M3 ? 1 : 2;
}

static qm_status arrays_reserve(struct far *f)
{
    struct qm_kernel_args *a = &f->a;
    struct array p = {"parameter", "", .per = 1, .bytes = bytes_of(a->p_dtype)};
    struct array g = {"gradient", "", .per = 1, .bytes = bytes_of(a->g_dtype), .is_const = 1};
    struct array draws = {"draws", "parameter", .per = 1, .bytes = 4, .is_const = 1};
    struct array rest = {"byte of the residual", "parameter", .per = 1, .bytes = f->residual_bytes};
    p.is_float = a->p_dtype == QM_KERNEL_F32;
    p.what = p.is_float ? "parameter" : "byte of the parameter";
    a->n = a->dim[f->is_row] = f->n;
    QM_TRY(add(f, p, f->small.p, &a->p));
    QM_TRY(add(f, g, f->small.g, &a->g));
    QM_TRY(add(f, draws, f->small.p_draws, &a->p_draws));
    QM_TRY(add(f, rest, f->residual_bytes ? f->small.residual : NULL, &a->residual));
    for (int i = 0; i < a->n_slots; i++)
        QM_TRY(slot_add(f, i));
    return QM_OK;
}

/* ---- comparing ------------------------------------------------------------------------------- */

/* How the large tensor is compared: to the bit, within rounding where the rule has norms of the
 * whole tensor, and of a row, whose update is divided by its norm, by the ratio of the updates. */
enum match { EXACT, NORMS, RATIO };

/* 1: a large tensor's numbers are those of a small one at the same place. */
static int is_local(const struct qm_rule *rule)
{
    return rule->elementwise || qm_rule_reads(rule, "clip");
}

/* What a matrix is multiplied by depends on its sides, and its momentum does not. */
static enum match match_of(const struct far *f, const struct qm_rule *rule, const struct array *x)
{
    return f->is_row ? *x->of ? EXACT : RATIO : is_local(rule) ? EXACT : NORMS;
}

/* Means over all elements depend on n: an update is not clipped, nor scaled by the parameters. */
static void without_means(struct qm_recipe *r)
{
    if (!qm_rule_reads(r->rule, "clip"))
        return;
    r->hyper.clip = 1e30;
    r->hyper.scale_parameter = 0;
    if (qm_rule_reads(r->rule, "eps2"))
        r->hyper.eps2 = 1.0; /* above the root mean square of the parameters */
}

/* Whether two floats agree: to the bit, or within rounding where the rule has norms of the
 * whole tensor. */
static int agree(float x, float y, int is_exact)
{
    return memcmp(&x, &y, sizeof x) == 0 ||
           (!is_exact && fabsf(x - y) <= 1e-5f * fmaxf(fabsf(x), fabsf(y)));
}

/* 1: the rounding of an array's numbers takes draws. */
static int takes_draws(const struct far *f, const struct array *x)
{
    int is = 0;
    for (int i = 0; i < f->n_arrays; i++)
        is |= strcmp(f->array[i].what, "draws") == 0 &&
              strcmp(f->array[i].of, *x->of ? x->of : "parameter") == 0;
    return is;
}

/* QM_CHECK_FAILED: a byte behind an array has another value than before the step. */
static qm_status beyond_check(const struct far *f, const struct array *x)
{
    const unsigned char *end = x->far + offset(x, f->n);
    for (size_t k = 0; k < x->beyond; k++)
        if (end[k] != BEYOND)
            return qm_fail(QM_CHECK_FAILED,
                           "step 2 of %s elements: wrote outside the buffer of %s%s%s, byte %zu "
                           "behind its end",
                           f->name, *x->of ? x->of : "the parameters", *x->of ? ": " : "",
                           *x->of ? x->what : "", k);
    return QM_OK;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The updates of a row's elements but for the decay, p - p' - lr wd p, are about those of the small
 * tensor times one factor, the median of their ratios: by up to four times that and the median
 * update off, for Newton-Schulz takes differences of what it rounded to bfloat16 (of the project's
 * own kernels the ratios are 1/6 to 3 times their median).  An element that is not updated, or
 * updated twice, is further off by its decay.  p_before: the parameters before the step, room: as
 * many numbers. */
static qm_status compare_row(struct far *f, const struct array *x, const float *p_before,
                             double *room)
{
    const double decay = f->a.lr * f->a.weight_decay;
    double factor = 0.0, half = 0.0;
    int64_t n = 0;
    for (int pass = 0; pass < 3; pass++) { /* the median update, the factor, the comparison */
        for (int w = 0; w < f->windows; w++)
            for (int64_t k = first_of(f, SMALL + f->tail, w); k < end_of(f, SMALL + f->tail, w);
                 k++) {
                int64_t at = first_of(f, f->n, w) + k - first_of(f, SMALL + f->tail, w);
                float got, small;
                memcpy(&got, x->far + offset(x, at), sizeof got);
                memcpy(&small, x->small + offset(x, k), sizeof small);
                double p = (double)p_before[k], rest = p - decay * p, slack = fabs(p) * 0x1p-21;
                double one = rest - (double)got, of = rest - (double)small, want = factor * of;
                if (pass == 0)
                    room[n++] = fabs(of);
                else if (pass == 1 && fabs(of) >= half && of != 0.0)
                    room[n++] = one / of;
                f->judged += pass == 2;
                double within = 4.0 * (fabs(want) + fabs(factor) * half) + slack;
                if (pass == 2 && !(fabs(one - want) <= within))
                    return qm_fail(QM_CHECK_FAILED,
                                   "step 2 of %s elements: parameter %lld is %a, want %a, whose "
                                   "update is %g times that of the same numbers in a tensor of %s, "
                                   "as those of the others are",
                                   f->name, (long long)at, (double)got, rest - want, factor,
                                   f->small_name);
            }
        if (pass == 1 && n == 0)
            return QM_OK; /* nothing is updated but by the decay */
        if (pass == 2)
            continue;
        qsort(room, (size_t)n, sizeof *room, by_size);
        *(pass == 0 ? &half : &factor) = room[n / 2];
        n = 0;
    }
    return factor != 0.0
               ? QM_OK
               : qm_fail(QM_CHECK_FAILED, "step 2 of %s elements: parameters decay alone", f->name);
}

/* Compares one array's window with the small tensor's.  p_before: the parameters before the
 * step. */
static qm_status compare(struct far *f, const struct array *x, int w, enum match match,
                         const float *p_before)
{
    int is_exact = match == EXACT, is_parameter = x->is_float && !*x->of;
    int drawn = takes_draws(f, x);
    char head[64];
    size_t at = offset(x, first_of(f, f->n, w)), from = offset(x, first_of(f, SMALL + f->tail, w));
    size_t end = offset(x, end_of(f, SMALL + f->tail, w));
    size_t size = x->is_float ? sizeof(float) : 1;
    snprintf(head, sizeof head, "step 2 of %s elements: ", f->name);
    for (size_t k = from; k < end && (x->is_float || is_exact); k += size) {
        const unsigned char *far = x->far + at + (k - from), *small = x->small + k;
        long long number = (long long)((at + (k - from)) / size);
        float got = 0.0f, want = 0.0f;
        f->judged++;
        if (!x->is_float && *far != *small)
            return qm_fail(QM_CHECK_FAILED,
                           "%s%s %lld%s%s is 0x%02x, and 0x%02x where the same numbers%s stand in "
                           "a tensor of %s%s",
                           head, x->what, number, *x->of ? " of " : "", x->of, *far, *small,
                           drawn ? " and draws" : "", f->small_name,
                           drawn ? ": draws that repeat, or an index that is cut off" : "");
        if (!x->is_float)
            continue;
        memcpy(&got, far, sizeof got);
        memcpy(&want, small, sizeof want);
        if (agree(got, want, is_exact))
            continue;
        if (is_parameter && got == p_before[k / size])
            return qm_fail(QM_CHECK_FAILED, "%sparameter %lld stays as it is", head, number);
        return qm_fail(QM_CHECK_FAILED,
                       "%s%s %lld%s%s is %a, and %a where the same numbers stand in a tensor of "
                       "%s",
                       head, x->what, number, *x->of ? " of " : "", x->of, (double)got,
                       (double)want, f->small_name);
    }
    return QM_OK;
}

/* ---- a step ---------------------------------------------------------------------------------- */

struct kernel {
    int (*step)(const struct qm_kernel_args *a);
    int (*far_step)(const struct qm_kernel_args *a, int64_t block, const char **left,
                    const char **doubt);
    const char *(*finding)(void);
};

static void bind(struct qm_kernel_file *k, struct kernel *out)
{
    void *step = qm_kernel_file_symbol(k, "qm_kernel_step");
    void *far_step = qm_kernel_file_symbol(k, "qm_emu_far_step");
    void *finding = qm_kernel_file_symbol(k, "qm_emu_finding");
    memcpy(&out->step, &step, sizeof step);
    memcpy(&out->far_step, &far_step, sizeof far_step);
    memcpy(&out->finding, &finding, sizeof finding);
}

static qm_status run_small(const struct far *f, const struct kernel *k,
                           const struct qm_kernel_args *a)
{
    if (k->step(a))
        return qm_fail(QM_SKIPPED, "the kernel refuses %s elements", f->small_name);
    if (k->finding && *k->finding())
        return qm_fail(QM_CHECK_FAILED, "step %lld of %s elements: %s", (long long)a->t,
                       f->small_name, k->finding());
    return QM_OK;
}

/* *doubt: why the emulator's numbers may differ without a fault of the kernel, or NULL. */
static qm_status run_far(const struct kernel *k, struct far *f, const char **doubt)
{
    const char *left = NULL;
    int refused = k->far_step ? k->far_step(&f->a, f->block, &left, doubt) : k->step(&f->a);
    if (k->finding && *k->finding())
        return qm_fail(QM_CHECK_FAILED, "step 2 of %s elements: %s", f->name, k->finding());
    if (left)
        return qm_fail(QM_SKIPPED, "%s", left);
    f->judged = refused ? QM_FAR_REFUSED : 0;
    return refused ? qm_fail(QM_SKIPPED, "the kernel refuses %s elements, and takes %s", f->name,
                             f->small_name)
                   : QM_OK;
}

/* A number for element i of the small tensor, not 0; 0 outside of the windows. */
static float number(const struct far *f, int64_t i, int64_t prime, float most)
{
    int is_there = 0;
    for (int w = 0; w < f->windows; w++)
        is_there |= i >= first_of(f, SMALL + f->tail, w) && i < end_of(f, SMALL + f->tail, w);
    return is_there ? most * ((float)((i * 7919 + 3571) % prime - prime / 2) + 0.5f) / (float)prime
                    : 0.0f;
}

/* Stores the values as the gradients' type has them. */
static void store_gradients(enum qm_dtype type, int64_t n, const float *x, void *out)
{
    uint16_t *half = out;
    for (int64_t i = 0; i < n && type != QM_DTYPE_f32; i++)
        half[i] = type == QM_DTYPE_bf16 ? qm_float_to_bf16(x[i]) : qm_float_to_f16(x[i]);
    if (type == QM_DTYPE_f32)
        memcpy(out, x, (size_t)n * sizeof *x);
}

static qm_status steps(const struct kernel *k, struct far *f, void *plan, const struct qm_recipe *r)
{
    const int64_t N = SMALL + f->tail;
    const char *doubt = NULL;
    int is_compared;
    const struct qm_shape shape = shape_of(f->is_row, N);
    const struct qm_kernel_args *small;
    float *all = calloc((size_t)(4 * N), sizeof *all), *values = all + 2 * N, *g = all + 3 * N;
    double *room = calloc((size_t)N, sizeof *room);
    struct qm_tensor p = {all, qm_param_dtype(&r->param), shape}, tg = {all + N, r->grad, shape};
    qm_status st = all && room ? qm_plan_file_args(plan, &p, &tg, 1, 1, &small)
                               : qm_fail(QM_NO_MEMORY, "a step");
    if (st == QM_OK)
        st = fit(f, small);
    for (int64_t i = 0; st == QM_OK && i < N; i++) {
        values[i] = number(f, i, 1009, f->is_row ? 0x1p-12f : 1.0f); /* a row's update is small */
        g[i] = number(f, i, 757, 0.01f);
    }
    if (st == QM_OK) {
        qm_param_from_float(&r->param, N, values, p.data);
        store_gradients(r->grad, N, g, tg.data);
        st = qm_plan_file_args(plan, &p, &tg, 1, 1, &small);
    }
    if (st == QM_OK)
        st = run_small(f, k, small);
    if (st == QM_OK) {
        memcpy(p.data, small->p, (size_t)N * (size_t)bytes_of(small->p_dtype));
        for (int64_t i = 0; i < N; i++) /* other gradients, so that codes change too */
            g[i] = number(f, i, 613, 0.02f);
        store_gradients(r->grad, N, g, tg.data);
        st = qm_plan_file_args(plan, &p, &tg, 2, 1, &small);
    }
    if (st == QM_OK) {
        f->small = f->a = *small;
        st = arrays_reserve(f);
    }
    if (st == QM_OK)
        st = run_far(k, f, &doubt);
    if (st == QM_OK)
        st = run_small(f, k, small);
    is_compared = st == QM_OK;
    for (int i = 0; i < f->n_arrays && st == QM_OK; i++)
        st = beyond_check(f, &f->array[i]);
    for (int i = 0; i < f->n_arrays && st == QM_OK; i++) {
        const struct array *x = &f->array[i];
        enum match match = match_of(f, r->rule, x);
        if (match == RATIO && x->is_float && !x->is_const)
            st = compare_row(f, x, p.data, room);
        for (int w = 0; w < f->windows && st == QM_OK && match != RATIO && !x->is_const; w++)
            st = compare(f, x, w, match, p.data);
    }
    if (is_compared && st == QM_CHECK_FAILED && doubt)
        st = qm_fail(QM_SKIPPED, "%s", doubt);
    free(all);
    free(room);
    return st;
}

int qm_large_index_is_row(const struct qm_recipe *r)
{
    const struct qm_shape flat = shape_of(0, SMALL + 1), row = shape_of(1, SMALL + 1);
    return qm_rule_takes(r->rule, &r->hyper, &flat) != QM_OK &&
           qm_rule_takes(r->rule, &r->hyper, &row) == QM_OK;
}

int64_t qm_large_index_least(const struct qm_recipe *r)
{
    int64_t n = (int64_t)1 << (qm_large_index_is_row(r) ? 24 : 25); /* a factor is slow */
    for (int i = 0; i < r->rule->n_slots; i++)
        while (r->slot[i].bits && r->slot[i].norm == QM_NORM_block &&
               n < (int64_t)r->slot[i].block << 16 && n < (int64_t)1 << 28)
            n *= 2;
    return n + 1;
}

qm_status qm_large_index(struct qm_kernel_file *k, const struct qm_recipe *recipe, int64_t n,
                         int64_t *judged)
{
    struct qm_recipe codes = *recipe, *r = &codes; /* short blocks have codes too */
    const int is_row = qm_large_index_is_row(recipe);
    const struct qm_shape shape = shape_of(is_row, SMALL + n % SMALL);
    struct kernel kernel;
    void *plan = NULL;
    struct far *f = calloc(1, sizeof *f);
    if (!f)
        return qm_fail(QM_NO_MEMORY, "a step");
    for (int i = 0; i < QM_MAX_SLOTS; i++)
        r->min_numel[i] = r->whole_blocks[i] = 0;
    bind(k, &kernel);
    f->n = n;
    f->is_row = is_row;
    f->residual_bytes = qm_param_residual(&r->param);
    f->tail = n % SMALL;
    snprintf(f->name, sizeof f->name, "2^%d + %d", ilogb((double)n), (int)f->tail);
    snprintf(f->small_name, sizeof f->small_name, "2^16 + %d", (int)f->tail);
    f->is_emulated = kernel.far_step != NULL;
    f->is_filled = f->is_row || is_local(r->rule);
    without_means(r);
    f->windows = f->is_emulated ? MIDDLE : MIDDLE + 1;
    qm_kernel_file_use(k);
    qm_status st = !kernel.step ? qm_fail(QM_SKIPPED, "not tried on a GPU")
                   : f->is_emulated && f->tail != EMULATED
                       ? qm_fail(QM_SKIPPED, "the emulator runs tensors of 2^k + 7 elements")
                       : qm_backend_file.open(r, &shape, 0, &plan);
    if (st == QM_OK)
        st = steps(&kernel, f, plan, r);
    *judged = f->judged;
    qm_backend_file.close(plan);
    far_close(f);
    free(f);
    return st;
}
