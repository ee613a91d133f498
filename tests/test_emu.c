/* test_emu.c - backend emu: the templates without an alarm, ten planted bugs with one, CUDA's primitives
 * against what they are defined to give. */
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

#include "core/base/dual.h"
#include "core/engine/backend_file.h"
#include "core/engine/emu_far.h"

static char folder[64];

static int open_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/qualm-test-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int close_folder(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    return system(command);
}

/* ---- sources --------------------------------------------------------------------------------- */

static char *joined(const char *const *lines)
{
    size_t size = 1;
    for (const char *const *l = lines; *l; l++)
        size += strlen(*l);
    char *text = malloc(size), *to = text;
    assert_non_null(text);
    *text = '\0';
    for (; *lines; lines++)
        to = stpcpy(to, *lines);
    return text;
}

static char *file_text(const char *path)
{
    FILE *f = fopen(path, "r");
    char *text = calloc(1, 1 << 16);
    assert_non_null(f);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 16) - 1, f) > 0);
    fclose(f);
    return text;
}

/* A template, or a file of tests/emu. */
static char *source_of(const char *name)
{
    char path[80];
    const char *const *lines = qm_kernel_file_text(name);
    snprintf(path, sizeof path, "tests/emu/%s", name);
    return lines ? joined(lines) : file_text(path);
}

/* Replaces a piece that stands there exactly once; text is freed. */
static char *patched(char *text, const char *from, const char *to)
{
    char *at = strstr(text, from);
    if (!at || strstr(at + 1, from))
        fail_msg("'%s' does not stand there once", from);
    char *out = malloc(strlen(text) + strlen(to) + 1);
    assert_non_null(out);
    sprintf(out, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    free(text);
    return out;
}

static qm_status build(const char *text, struct qm_kernel_file **out)
{
    static int count; /* dlopen knows files by their names */
    char source[128], object[256], own[320];
    snprintf(source, sizeof source, "%s/bug.cu", folder);
    FILE *f = fopen(source, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    QM_TRY(qm_kernel_file_build(source, folder, object, sizeof object));
    snprintf(own, sizeof own, "%s/%d.so", folder, count++);
    assert_int_equal(rename(object, own), 0);
    return qm_kernel_file_open(own, out);
}

/* ---- steps ------------------------------------------------------------------------------------ */

/* Three steps of n elements with fixed numbers; a copy of p goes to *out where out is given. */
static qm_status steps(struct qm_kernel_file *k, const char *as, int64_t n, int count, float **out)
{
    struct qm_recipe r;
    struct qm_shape shape = {1, {n}};
    void *plan = NULL;
    float *p = calloc((size_t)n + 1, sizeof *p), *g = calloc((size_t)n + 1, sizeof *g);
    assert_non_null(p);
    assert_non_null(g);
    assert_int_equal(qm_recipe_parse(as ? as : qm_kernel_file_as(k), &r), QM_OK);
    qm_kernel_file_use(k);
    assert_int_equal(qm_backend_file.open(&r, &shape, 0, &plan), QM_OK);
    for (int64_t i = 0; i < n; i++) {
        p[i] = (float)(i % 1009 - 504) / 504.0f;
        g[i] = (float)(i % 757 - 378) / 37800.0f;
    }
    struct qm_tensor tp = {p, QM_DTYPE_f32, shape}, tg = {g, QM_DTYPE_f32, shape};
    qm_status st = QM_OK;
    for (int t = 1; st == QM_OK && t <= count; t++)
        st = qm_backend_file.step(plan, &tp, &tg, t, 1);
    qm_backend_file.close(plan);
    free(g);
    if (out)
        *out = p;
    else
        free(p);
    return st;
}

/* ---- no alarm --------------------------------------------------------------------------------- */

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
    if (strcmp(name, "two_streams.cu") != 0) { /* it would copy 2^31 elements */
        struct qm_recipe r;
        assert_int_equal(qm_recipe_parse(qm_kernel_file_as(k), &r), QM_OK);
        if (qm_emu_far(k, &r) != QM_OK)
            fail_msg("%s: %s", name, qm_message());
    }
    free(text);
    qm_kernel_file_close(k);
}

static void templates_are_clean(void **state)
{
    const char *name;
    int count = 0;
    (void)state;
    for (int i = 0; (name = qm_kernel_file_name(i)); i++)
        if (strstr(name, ".cu")) {
            clean(name);
            count++;
        }
    assert_true(count >= 4);
    clean("two_streams.cu");
}

/* ---- planted bugs ------------------------------------------------------------------------------ */

static const struct bug {
    const char *what, *name, *from, *to;
    const char *says; /* a part of the finding */
} bugs[] = {
    {"missing barrier", "adamw4_ao.cu", "of_warp[threadIdx.x / 32] = top;\n    __syncthreads();",
     "of_warp[threadIdx.x / 32] = top;",
     "of shared of_warp, which no thread of the block has written"},
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
     "which update wrote in another stream, and nothing orders the two launches"},
    {"unwritten pad", "two_streams.cu", "cudaMemset(x.v, 0, bytes);",
     "cudaMemset(x.v, 0, sizeof(float) * a->n);",
     "of memory of cudaMalloc, which nothing has written"},
    {"divergent barrier", "adamw8_bnb.cu", "    if (!is_there)\n        return;\n    if (s->bits)",
     "    if (!is_there)\n        return;\n    if (threadIdx.x < 32)\n        __syncthreads();\n   "
     " if "
     "(s->bits)",
     "divergent barrier: thread (0,0,0) of block (0,0,0) waits here"},
    {"divergent warp", "lion8_fused.cu", "    float top = warp_max(m);",
     "    float top = i % 32 < 16 ? warp_max(m) : 1.0f; __syncthreads();", "divergent warp: "},
    {"the last step is not waited for", "two_streams.cu",
     "    cudaStreamSynchronize(second);\n    "
     "cudaFree(x.m);\n    cudaFree(x.v);\n",
     "", "returns without having waited for update"},
    {"shared memory that was not asked for", "two_streams.cu",
     "BLOCK * sizeof(float), second>>>(a, x.m)", "BLOCK, second>>>(a, x.m)",
     "of the launch's 128 bytes of dynamic shared memory"},
    {"too many elements a block", "adamw4_ao.cu", "QM_CUDA_LAUNCH(qm_cuda_step, BLOCK, BLOCK, 0)",
     "QM_CUDA_LAUNCH(qm_cuda_step, BLOCK, BLOCK / 2, 0)", ""},
    {"writes a constant", "lion8_fused.cu", "float x = g[i],",
     "((float *)g)[i] *= 0.5f; float x = g[i],", "of gradients, which is constant"},
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
        const struct bug *b = &bugs[i];
        struct qm_kernel_file *k;
        struct qm_recipe r;
        char *text = patched(source_of(b->name), b->from, b->to);
        assert_int_equal(build(text, &k), QM_OK);
        assert_int_equal(qm_recipe_parse(qm_kernel_file_as(k), &r), QM_OK);
        qm_status st = steps(k, NULL, 4103, 2, NULL);
        if (st == QM_OK)
            st = qm_emu_far(k, &r);
        if (st != QM_VERDICT)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(templates_are_clean),
        cmocka_unit_test(planted_bugs_are_found),
    };
    if (system("c++ --version >/dev/null 2>&1") != 0) { /* NOLINT */
        puts("SKIP: no C++ compiler (c++)");
        return 77;
    }
    return cmocka_run_group_tests(tests, open_folder, close_folder);
}
