/* test_emu.c - Tests backend emu: no finding in the templates, one in each planted bug, and
 * CUDA's primitives against their definitions. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/fp8.h"
#include "core/base/half.h"
#include "core/emu/emu_rewrite.h"
#include "core/user_kernel/backend_file.h"
#include "core/user_kernel/large_index.h"
#include "tests/support/drawn.h"
#include "tests/support/emulated.h"

/* ---- no finding ------------------------------------------------------------------------------ */

static void clean(const char *name)
{
    static const int64_t sizes[] = {0, 1, 31, 127, 128, 129, 4096, 4097, 4223, 20000};
    struct qm_kernel_file *k;
    char *text = source_of(name);
    assert_int_equal(build(text, &k), QM_OK);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        qm_status st = steps(k, NULL, sizes[i], 3, NULL);
        if (st != QM_OK && !(st == QM_SKIPPED && strstr(qm_message(), "refuses")))
            fail_msg("%s, %lld elements: %s", name, (long long)sizes[i], qm_message());
    }
    struct qm_recipe r;
    int64_t judged;
    assert_int_equal(qm_recipe_parse(qm_kernel_file_as(k), &r), QM_OK);
    if (qm_large_index(k, &r, QM_FAR_N, &judged) != QM_OK)
        fail_msg("%s: %s", name, qm_message());
    free(text);
    qm_kernel_file_close(k);
}

static void templates_are_clean(void **state)
{
    const char *name;
    int count = 0;
    (void)state;
    for (int i = 0; (name = qm_kernel_file_name(i)); i++)
        if (strstr(name, ".cu") && is_drawn(count++))
            clean(name);
    assert_true(count >= 4);
    clean("two_streams.cu");
    clean("grid_stride.cu");
}

/* ---- planted bugs ---------------------------------------------------------------------------- */

static const struct bug {
    const char *what, *name, *from, *to;
    const char *says; /* a part of the finding */
} bugs[] = {
    {"missing barrier", "adamw4_ao.cu", "of_warp[threadIdx.x / 32] = top;\n    __syncthreads();",
     "of_warp[threadIdx.x / 32] = top;",
     "of shared of_warp, which no thread of the block has written"},
    {"race in a function that asks not to be watched", "adamw4_lpmm_group.cu",
     "atomicMax(top, __float_as_uint(x[k]) & 0x7fffffffu);",
     "[&]() __attribute__((no_sanitize(\"thread\"))) { *top = max(*top, __float_as_uint(x[k]) & "
     "0x7fffffffu); }();",
     "data race: thread (1,0,0) of block (0,0,0) reads 4 bytes at byte 0 of shared top"},
    {"wrong shuffle mask", "adamw8_bnb.cu", "__shfl_xor_sync(0xffffffffu",
     "__shfl_xor_sync(0xffffu", "reads lane 16, which does not take part: it is not in the mask"},
    {"tail thread out of range", "adamw8_bnb.cu", "if (i < a->n) {", "if (i <= a->n) {",
     "reads 4 bytes out of bounds, 0 bytes past the end of the gradients"},
    {"race on the block maximum", "adamw4_lpmm_group.cu",
     "atomicMax(top, __float_as_uint(x[k]) & 0x7fffffffu);",
     "*top = max(*top, __float_as_uint(x[k]) & 0x7fffffffu);",
     "data race: thread (1,0,0) of block (0,0,0) reads 4 bytes at byte 0 of shared top, which "
     "thread "
     "(0,0,0) of block (0,0,0) wrote"},
    {"index of 32 bits", "lion8_fused.cu", "int64_t i = (int64_t)blockIdx.x",
     "int i = (int)blockIdx.x", "signed overflow"},
    {"index of 32 bits without a sign", "adamw8_bnb.cu",
     "int64_t from = (int64_t)blockIdx.x * BLOCK, i", "int from = blockIdx.x * BLOCK, i",
     "out of bounds"},
    {"misaligned vector load", "adamw4_lpmm_group.cu", "a->maximize ? -g[i + k] : g[i + k];",
     "a->maximize ? -g[i + k] : (*(const float2 *)(g + i + k - (i + k > 0))).x;",
     "misaligned access of 'const struct float2'"},
    {"stale shared memory", "adamw4_lpmm_group.cu",
     "    if (threadIdx.x == 0)\n        *top = 0;\n", "",
     "of shared top, which no thread of the block has written"},
    {"wrong order of two streams", "two_streams.cu", "    cudaStreamWaitEvent(second, done);\n", "",
     "which update wrote in another stream, and nothing orders the two"},
    {"a fill in the default stream", "two_streams.cu", "cudaMemsetAsync(x.v, 0, bytes, first)",
     "cudaMemset(x.v, 0, bytes)", "which cudaMemset at bug.cu:86 wrote in another stream"},
    {"unwritten pad", "two_streams.cu", "cudaMemsetAsync(x.v, 0, bytes,",
     "cudaMemsetAsync(x.v, 0, sizeof(float) * a->n,",
     "of memory of cudaMalloc, which nothing has written"},
    {"divergent barrier", "adamw8_bnb.cu", "    if (!is_there)\n        return;\n    if (s->bits)",
     "    if (!is_there)\n        return;\n    if (threadIdx.x < 32)\n        __syncthreads();\n   "
     " if "
     "(s->bits)",
     "divergent barrier: thread (0,0,0) of block (0,0,0) waits here"},
    {"divergent barriers in one line", "adamw8_bnb.cu",
     "    if (!is_there)\n        return;\n    if (s->bits)",
     "    if (!is_there)\n        return;\n#define BOTH(t) if (t) { __syncthreads(); } else { "
     "__syncthreads(); }\n    BOTH(threadIdx.x & 1)\n    if (s->bits)",
     "in __syncthreads, and thread (1,0,0) of block (0,0,0) in another __syncthreads of this line"},
    {"divergent warp", "lion8_fused.cu", "    float top = warp_max(m);",
     "    float top = i % 32 < 16 ? warp_max(m) : 1.0f; __syncthreads();", "divergent warp: "},
    {"the last step is not waited for", "two_streams.cu",
     "    cudaStreamSynchronize(second);\n    "
     "cudaFree(x.m);\n    cudaFree(x.v);\n",
     "", "returns without having waited for update"},
    {"shared memory that was not asked for", "two_streams.cu",
     "BLOCK * sizeof(float), second>>>(a, x.m)", "BLOCK, second>>>(a, x.m)",
     "of the launch's 128 bytes of dynamic shared memory"},
    {"writes a constant", "lion8_fused.cu", "float x = a->maximize",
     "((float *)g)[i] *= 0.5f; float x = a->maximize", "of gradients, which is constant"},
    {"index beyond a shared array", "adamw4_ao.cu", "of_warp[threadIdx.x / 32] = top;",
     "of_warp[threadIdx.x / 16] = top;", "index 4 is out of bounds of 'unsigned int [4]'"},
    {"blocks that write the same bytes", "lion8_fused.cu", "s->scales[i / BLOCK] = half_of(top);",
     "s->scales[i / (8 * BLOCK)] = half_of(top);", "data race: "},
    {"reads a lane that is gone", "lion8_fused.cu", "    float top = warp_max(m);",
     "    if (i >= a->n) return; float top = warp_max(m);", "does not take part: it has ended"},
};

static void planted_bugs_are_found(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bugs / sizeof *bugs; i++) {
        if (!is_drawn((int)i))
            continue;
        const struct bug *b = &bugs[i];
        struct qm_kernel_file *k;
        struct qm_recipe r;
        int64_t judged;
        char *text = patched(source_of(b->name), b->from, b->to);
        assert_int_equal(build(text, &k), QM_OK);
        assert_int_equal(qm_recipe_parse(qm_kernel_file_as(k), &r), QM_OK);
        qm_status st = steps(k, NULL, 4103, 2, NULL);
        if (st == QM_OK)
            st = qm_large_index(k, &r, QM_FAR_N, &judged);
        if (st != QM_CHECK_FAILED)
            fail_msg("%s: %s", b->what, st == QM_OK ? "not found" : qm_message());
        if (!strstr(qm_message(), b->says))
            fail_msg("%s: %s", b->what, qm_message());
        if (!strstr(qm_message(), "bug.cu:") && strstr(b->says, "thread"))
            fail_msg("%s: no line: %s", b->what, qm_message());
        print_message("%-38s %s\n", b->what, strstr(qm_message(), "step "));
        free(text);
        qm_kernel_file_close(k);
    }
}

/* ---- indices beyond 2^31 --------------------------------------------------------------------- */

/* Sound in smaller tensors; says NULL: right in large ones too; ?TEXT: not judged, because. */
static const struct bug far_bugs[] = {
    {"leaves at once", "lion8_fused.cu", "    float *p = (float *)a->p, m = 0.0f,",
     "    if (a->n > 0x7fffffff) return;\n    float *p = (float *)a->p, m = 0.0f,",
     "parameter 0 stays as it is"},
    {"host leaves at once", "grid_stride.cu", "    if (a->n == 0)", "    if ((int)a->n <= 0)",
     "parameter 0 stays as it is"},
    {"loop with an int index", "grid_stride.cu", "for (int64_t i = (int64_t)blockIdx.x",
     "for (int i = (int)blockIdx.x", "out of bounds"},
    {"loop with an int index and end", "grid_stride.cu",
     "int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;",
     "int i = blockIdx.x * blockDim.x + threadIdx.x; i < (int)n;", "parameter 0 stays as it is"},
    {"end as an int, at least 2^31 - 1", "grid_stride.cu", "threadIdx.x; i < n;",
     "threadIdx.x; i < min(n, (int64_t)0x7fffffff);", "parameter 2147483647 stays as it is"},
    {"byte offset of 32 bits", "grid_stride.cu", "-g[i] : g[i];",
     "-g[i] : *(const float *)((const char *)g + (unsigned)(4 * i));",
     "where the same numbers stand in a tensor of 2^16 + 7"},
    {"size of 32 bits", "grid_stride.cu", "size_t bytes = sizeof(float) * (size_t)a->n;",
     "unsigned bytes = (unsigned)(sizeof(float) * (size_t)a->n);", "out of bounds"},
    {"grid of 32 bits", "grid_stride.cu", "int64_t blocks = (a->n + THREADS - 1) / THREADS;",
     "int blocks = ((int)a->n + THREADS - 1) / THREADS;", "a grid's x is at most 2147483647"},
    {"more blocks than elements", "adamw4_ao.cu", "QM_CUDA_LAUNCH(qm_cuda_step, BLOCK, BLOCK, 0)",
     "QM_CUDA_LAUNCH(qm_cuda_step, BLOCK, BLOCK / 2, 0)", NULL},
    {"a thread for each element", "grid_stride.cu", "MOST_BLOCKS = 1024", "MOST_BLOCKS = 1 << 30",
     NULL},
    {"few threads", "grid_stride.cu", "MOST_BLOCKS = 1024", "MOST_BLOCKS = 8",
     "?its thread blocks loop over too many elements"},
    {"four elements a thread", "grid_stride.cu",
     "for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {",
     "for (int64_t from = 4 * ((int64_t)blockIdx.x * blockDim.x + threadIdx.x); from < n; from += "
     "4 "
     "* stride) for (int64_t i = from; i < from + 4 && i < n; i++) {",
     NULL},
    {"a stretch of the tensor for each block", "grid_stride.cu",
     "for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {",
     "int64_t each = (n + gridDim.x - 1) / gridDim.x, end = (blockIdx.x + 1) * each < n ? "
     "(blockIdx.x + 1) * each : n; (void)stride;\n"
     "for (int64_t i = blockIdx.x * each + threadIdx.x; i < end; i += blockDim.x) {",
     NULL},
    {"an unsigned index", "grid_stride.cu", "for (int64_t i = (int64_t)blockIdx.x",
     "for (unsigned i = blockIdx.x", NULL},
    {"two launches that split the tensor", "grid_stride.cu",
     "    update<<<grid, THREADS>>>(p, g, m, v, a->n, c);",
     "    (void)grid; int64_t h = a->n / 2, r = a->n - h;\n"
     "    if (h) update<<<(unsigned)((h + 63) / 64), 64>>>(p, g, m, v, h, c);\n"
     "    update<<<(unsigned)((r + 63) / 64), 64>>>(p + h, g + h, m + h, v + h, r, c);",
     NULL},
    {"two launches, of which one is too short", "grid_stride.cu",
     "    update<<<grid, THREADS>>>(p, g, m, v, a->n, c);",
     "    (void)grid; int64_t h = a->n / 2, r = a->n - h;\n"
     "    if (h) update<<<(unsigned)((h + 63) / 64), 64>>>(p, g, m, v, h, c);\n"
     "    update<<<(unsigned)((r + 63) / 64), 64>>>(p + h, g + h, m + h, v + h, r - (h > 70000), "
     "c);",
     "parameter 2147483654 stays as it is"},
    {"parts of the tensor in one buffer", "grid_stride.cu",
     "    update<<<grid, THREADS>>>(p, g, m, v, a->n, c);",
     "    (void)grid; const int64_t part = 100000033;\n"
     "    for (int64_t i = 0; i < a->n; i += part) {\n"
     "        int64_t n = a->n - i < part ? a->n - i : part;\n"
     "        update<<<(unsigned)((n + 63) / 64), 64>>>(p + i, g + i, m + i, v + i, n, c);\n    }",
     NULL},
    {"a ticket that the last block resets", "grid_stride.cu",
     "        p[i] = p[i] * c.decay + c.step * m[i] / (sqrtf(v[i]) / c.root_bc2 + c.eps);\n    "
     "}\n}",
     "        p[i] = p[i] * c.decay + c.step * m[i] / (sqrtf(v[i]) / c.root_bc2 + c.eps);\n    }\n"
     "    static __device__ unsigned int ticket;\n"
     "    if (threadIdx.x == 0 && atomicAdd(&ticket, 1u) == gridDim.x - 1) atomicExch(&ticket, "
     "0u);\n"
     "    else if (threadIdx.x == 0 && blockIdx.x == gridDim.x - 1 && n < 100000) *(float *)0 = "
     "7.0f;\n}",
     NULL},
};

static void indices_beyond_32_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof far_bugs / sizeof *far_bugs; i++) {
        const struct bug *b = &far_bugs[i];
        if (!is_drawn((int)i))
            continue;
        struct qm_kernel_file *k;
        struct qm_recipe r;
        int64_t judged;
        char *text = patched(source_of(b->name), b->from, b->to);
        assert_int_equal(build(text, &k), QM_OK);
        assert_int_equal(qm_recipe_parse(qm_kernel_file_as(k), &r), QM_OK);
        if (steps(k, NULL, 4103, 2, NULL) != QM_OK)
            fail_msg("%s: %s", b->what, qm_message());
        qm_status st = qm_large_index(k, &r, QM_FAR_N, &judged);
        int is_left = b->says && *b->says == '?';
        if (st != (is_left   ? QM_SKIPPED
                   : b->says ? QM_CHECK_FAILED
                             : QM_OK) ||
            (b->says && !strstr(qm_message(), b->says + is_left)))
            fail_msg("%s: %s", b->what, st == QM_OK ? "not found" : qm_message());
        assert_true(b->says || judged > 1000);
        print_message("%-38s %s\n", b->what, b->says ? qm_message() : "right");
        free(text);
        qm_kernel_file_close(k);
    }
}

/* ---- primitives: each row of tests/emu/primitives.cu ----------------------------------------- */

static float x_of(int i) { return (float)(i * i % 37) - 11.5f; }

static int count_bits(unsigned int x) { return __builtin_popcount(x); }

static float sum_of_row(int i, int row)
{
    int warp = i / 32 * 32, lane = i % 32, n = 0;
    float f = 0.0f;
    switch (row) {
    case 0: return x_of(warp + 5);
    case 1: return x_of(i / 8 * 8 + (i + 3) % 8);
    case 2: return x_of(lane < 3 ? i : i - 3);
    case 3: return x_of(i % 16 + 5 > 15 ? i : i + 5);
    case 4: return x_of(warp + (lane ^ 9));
    case 5:
        for (int k = 0; k < 32; k++)
            n += x_of(warp + k) > 0.0f;
        return (float)n;
    case 6: return i >= 32 ? 1.0f : 2.0f;
    case 7:
        for (int k = 0; k < 32; k++)
            n += (warp + k) % 5 == i % 5;
        return (float)n;
    case 8:
        for (int k = 0; k < 32; k++)
            n += k % 2 == i % 2 ? warp + k : 0;
        return (float)n;
    case 9:
        for (int k = 0; k < 32; k++)
            n += (warp + k) % 3 == 0;
        return i % 3 == 0 ? (float)n : 0.0f;
    case 10: return 10.0f; /* 0, 7, ..., 63 */
    case 11: return 3.0f;
    case 12: return x_of((i + 1) % 64) + (float)((i + 1) % 64);
    case 13: return 32.0f + 192.0f;
    case 14: return 63.0f + 128.0f + 4.0f; /* 64 increments modulo 10 */
    case 15: return 0x1.921fb6p+1f;
    case 16: return x_of(i / 4 * 4 + 2);
    case 17:
        for (int k = 0; k < 64; k++)
            f += x_of(k); /* halves: exact in any order */
        return i == 0 ? f : 0.0f;
    default: return 0.0f;
    }
}

static float number_of_row(int i, int row)
{
    float x = x_of(i), far = x * 1e9f;
    int top = far >= 0x1p31f ? 0x7fffffff : far <= -0x1p31f ? (int)-0x80000000ll : (int)rintf(far);
    unsigned int turned = 0;
    switch (row) {
    case 18: return (float)top + truncf(x);
    case 19:
        for (int k = 0; k < 6; k++)
            turned |= ((unsigned)i >> k & 1u) << (5 - k);
        return (float)turned + (float)(i ? 31 - (int)log2((double)i) : 32) +
               (float)(i ? count_bits((unsigned)(i & -i) - 1u) + 1 : 0);
    case 20: return (float)0x4400 + (float)(i ? i - 1 : 0);
    case 21:
        return qm_f16_to_float(qm_float_to_f16(x * 1.0009765f)) +
               qm_bf16_to_float(qm_float_to_bf16(x * 1.01f)) +
               qm_e4m3_to_float(qm_float_to_e4m3(x * 1.1f, 1));
    case 22:
        return (x > -3.0f ? x : -3.0f) + (float)(i < 20 ? i : 20) + (x < 2.0f ? x : 2.0f) + 0.5f +
               (x < 0.0f   ? 0.0f
                : x > 1.0f ? 1.0f
                           : x);
    default: fail(); return 0.0f;
    }
}

static void primitives_are_right(void **state)
{
    enum { ROWS = 23 };
    struct qm_kernel_file *k;
    char *text = file_text("tests/emu/primitives.cu");
    float *p;
    (void)state;
    assert_int_equal(build(text, &k), QM_OK);
    if (steps(k, NULL, 64 * ROWS, 1, &p) != QM_OK)
        fail_msg("%s", qm_message());
    for (int row = 0; row < ROWS; row++)
        for (int i = 0; i < 64; i++) {
            float want = row < 18 ? sum_of_row(i, row) : number_of_row(i, row);
            if (p[64 * row + i] != want)
                fail_msg("row %d, thread %d: %a, want %a", row, i, (double)p[64 * row + i],
                         (double)want);
        }
    free(p);
    free(text);
    qm_kernel_file_close(k);
}

/* ---- intrinsics: each row of tests/emu/intrinsics.cu ----------------------------------------- */

/* The true result of a row for operand x, and how far the CUDA C++ Programming Guide lets an
 * intrinsic be off there (table of single-precision intrinsic functions). */
static double intrinsic(int row, int i, double x, double *limit)
{
    static const double logs[] = {0x1.8157d9d08a78dp-22, 0x1p-22, 0x1p-24};
    static const double units[] = {3.0, 2.0, 3.0};
    double y = row < 2    ? exp(row ? (double)(-20.0f * (float)x) : x)
               : row == 2 ? pow(10.0, x)
               : row == 3 ? log(x)
               : row == 4 ? log2(x)
               : row == 5 ? log10(x)
               : row == 8 ? tanh(x)
                          : (row == 6 || row == 9 ? sin(x) : cos(x));
    int e;
    if (row == 11)
        y = pow((double)0.999f, i + 1);
    frexp(y, &e);
    double ulp = ldexp(1.0, e - 24), of = row == 1 ? 20.0 * x : x;
    *limit = row < 3    ? ulp * (2.0 + floor((row < 2 ? 1.173 : 2.97) * of))
             : row < 6  ? (x >= 0.5 && x <= 2.0 ? logs[row - 3] : units[row - 3] * ulp)
             : row == 8 ? 0x1p-11 * y
             : row < 11 ? (row == 6 || row == 9 ? 0x1.8157d9d08a78dp-22 : 0x1.c0d2771113e52p-22)
                        : 2.0 * ulp + (i + 1) * 0x1p-22 * log(2.0);
    return y;
}

/* No result is further off than that, and half of each row is off by half as much. */
static void intrinsics_are_inexact(void **state)
{
    enum { ROWS = 12 };
    struct qm_kernel_file *k;
    char *text = file_text("tests/emu/intrinsics.cu");
    float *p;
    (void)state;
    assert_int_equal(build(text, &k), QM_OK);
    if (steps(k, NULL, 64 * ROWS, 1, &p) != QM_OK)
        fail_msg("%s", qm_message());
    for (int row = 0; row < ROWS; row++) {
        int far = 0;
        for (int i = 0; i < 64; i++) {
            double limit, want = intrinsic(row, i, (double)(0.04f * (float)(i + 1)), &limit);
            double off = fabs((double)p[64 * row + i] - want);
            if (off > limit + 0x1p-24 * fabs(want))
                fail_msg("row %d, thread %d: off by %g, not %g", row, i, off, limit);
            far += off > 0.5 * limit;
        }
        if (far < 32)
            fail_msg("row %d: %d of 64 are off by half of the limit", row, far);
    }
    free(p);
    free(text);
    qm_kernel_file_close(k);
}

/* ---- errors name what cannot be emulated ----------------------------------------------------- */

static void the_rewriter(void **state)
{
    static const struct {
        const char *from, *to; /* to: a part of what it becomes; NULL: it is refused */
    } cases[] = {
        {"k<<<1, 2>>>(a, b);", "qm_emu::config(1, 2), \"k\", [&, qm_a1 = ::qm_emu::copied(a), "
                               "qm_a2 = ::qm_emu::copied( b)]()"},
        {"ns::k<float, (3 > 2)><<<dim3(n >> 3), 2, f(1, 2), s>>>(a);",
         "{ ns::k<float, (3 > 2)>(qm_a1.value); }"},
        {"if (x < y) k<T<int>><<<1, 2>>>();", "if (x < y) ::qm_emu::launch("},
        {"__syncthreads(); x = __syncthreads_or (y);",
         "__syncthreads(::qm_emu::barrier{1}); x = __syncthreads_or (::qm_emu::barrier{2}, y);"},
        {"a.__syncthreads(); __syncthreads;", "a.__syncthreads(); __syncthreads;"},
        {"__shared__ float a[2][3], b;", "qm_t2 &a = *(qm_t2 *)qm_emu_shared("},
        {"static __shared__ alignas(16) T<2, 3> t;",
         "__attribute__((aligned(16))) T<2, 3>  qm_b1; typedef qm_b1 qm_t2;"},
        {"extern __shared__ int all[];", "static qm_b1 *const all = (qm_b1 *)qm_emu_dynamic;"},
        {"f(\"__shared__ <<<\");", "f(\"__shared__ <<<\");"},
        {"# 3 \"h.h\" 1 3\nasm(\"x\");\n", "asm(\"x\");"},
        {"asm volatile(\"mov %0, 1;\");", NULL},
        {"__shared__ float a = 1.0f;", NULL},
        {"__shared__ float a[2]{1.0f, 2.0f};", NULL},
        {"__shared__ union { float f; int i; } both;", "}  qm_b1; typedef qm_b1 qm_t2;"},
        {"__qm_global__ int k(void (*f)());", NULL},
        {"__qm_global__ __launch_bounds__(8) void k() { f(); }",
         "{::qm_emu::launch_bounds(::qm_emu::bounds(8)); f(); }"},
        {"template <int N> static void __qm_global__ k(int n = f({})) { g(); }",
         "k(int n = f({})) {::qm_emu::launch_bounds(::qm_emu::bounds(1024)); g(); }"},
        {"extern \"C\" __qm_global__ auto k() -> void;", "auto k() -> void;"},
        {"static __qm_host__ __qm_device__ inline __qm_always__ int f();",
         "inline __attribute__((always_inline)) int f();"},
        {"f([=] __qm_host__ __qm_device__ (int i) { return i; });", "f([=]   (int i)"},
        {"k<<<1, 2>>>([=] __qm_device__ (int i) { return i; });",
         "[&, qm_a1 = ::qm_emu::copied([=]  (int i) { return i; })]()"},
        {"k<<<1, 2>>>([=] __qm_device__ (int i) { return i; });", "{ k(qm_a1.value); })"},
        {"k<<<1, 2>>>(p.get(), 3, f<a, 2>(x), {1, 2}, a < b, c > d, x...);",
         "[&, qm_a1 = ::qm_emu::copied(p.get()), qm_a3 = ::qm_emu::copied( f<a, 2>(x)), qm_a5 = "
         "::qm_emu::copied( a < b), qm_a6 = ::qm_emu::copied( c > d)]()"},
        {"k<<<1, 2>>>(p.get(), 3, f<a, 2>(x), {1, 2}, a < b, c > d, x...);",
         "{ k(qm_a1.value, 3, qm_a3.value, {1, 2}, qm_a5.value, qm_a6.value, x...); }"},
        {"k<<<1, 2>>>(0,\n# 9 \"b\"\nnullptr,\n f(\n2));",
         "[&\n# 9 \"b\"\n, qm_a3 = ::qm_emu::copied(\n f(\n2))]()"},
        {"cudaLaunchKernel((const void *)k<T>, g, b, a);", "cudaLaunchKernel(k<T>, g, b, a);"},
        {"cudaFuncGetAttributes(&a, reinterpret_cast<const void *>(k));",
         "cudaFuncGetAttributes(&a, (k));"},
        {"cudaLaunchKernel((f)(k), g, b, a);", "cudaLaunchKernel((f)(k), g, b, a);"},
        {"# 1 \"/layer/mma.h\" 1 3\n#pragma qualm_refuses tensor cores\n", NULL},
        {"k<<<1, 2(a);", NULL},
        {"__shared__ float (*;", NULL},
        {"(f())<<<1, 2>>>(a);", NULL},
        {"__launch_bounds__(2 * n, 1) void k(int x = f({}))\n{ g(); }",
         " void k(int x = f({}))\n{::qm_emu::launch_bounds(::qm_emu::bounds(2 * n, 1)); g(); }"},
        {"__launch_bounds__(8) void k(); int f() { }", " void k(); int f() { }"},
        {"__attribute__((noinline, no_sanitize(\"thread\"))) f();",
         "__attribute__((noinline, unused)) f();"},
        {"[[gnu::no_sanitize(\"thread\"), gnu::cold]] int f();", "[[gnu::unused, gnu::cold]] int"},
        {"__attribute__((__optimize__(\"fast-math\"))) f();", "__attribute__((unused)) f();"},
        {"int f(int optimize, int target(int));", "int f(int optimize, int target(int));"},
        {"int g;\n#pragma GCC optimize(\"fast-math\")\nint f;", "int g;\n\nint f;"},
        {"int g;\n#pragma unroll 4\nint f;", "int g;\n#pragma unroll 4\nint f;"},
        {"# 3 \"h.h\" 1 3\n__attribute__((no_sanitize_thread)) f();\n",
         "__attribute__((unused)) f();"},
        {"# 3 \"/layer/h.h\" 1 3\n__attribute__((no_sanitize_thread)) f();\n",
         "__attribute__((no_sanitize_thread)) f();"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *out = NULL;
        qm_status st = qm_emu_rewrite(cases[i].from, "/layer", QM_EMU_RUN, &out);
        if (st != (cases[i].to ? QM_OK : QM_BAD_ARG))
            fail_msg("'%s': %s", cases[i].from, st == QM_OK ? out : qm_message());
        if (st != QM_OK)
            continue;
        if (!strstr(out, cases[i].to))
            fail_msg("'%s' becomes '%s'", cases[i].from, out);
        free(out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rewriter),           cmocka_unit_test(primitives_are_right),
        cmocka_unit_test(intrinsics_are_inexact), cmocka_unit_test(templates_are_clean),
        cmocka_unit_test(planted_bugs_are_found), cmocka_unit_test(indices_beyond_32_bits),
    };
    if (system("c++ --version >/dev/null 2>&1") != 0) { /* NOLINT */
        puts("SKIP: no C++ compiler (c++)");
        return 77;
    }
    return cmocka_run_group_tests(tests, open_folder, close_folder);
}
