/* test_emu_api.c - CUDA's runtime library on the emulator: the list of core/emu/README.md is that
 * of the code, its functions do what CUDA's do, and misuses of memory are found. */
#include <ctype.h>

#include "tests/support/drawn.h"
#include "tests/support/emulated.h"

/* ---- the list -------------------------------------------------------------------------------- */

enum { NAMES = 200, NAME = 80 };

struct names {
    int n;
    char name[NAMES][NAME];
};

static void add(struct names *x, const char *from, int n)
{
    for (int i = 0; i < x->n; i++)
        if ((int)strlen(x->name[i]) == n && strncmp(x->name[i], from, (size_t)n) == 0)
            return;
    assert_true(x->n < NAMES && n < NAME);
    snprintf(x->name[x->n++], NAME, "%.*s", n, from);
}

static int word(const char *s)
{
    int n = 0;
    while (isalnum((unsigned char)s[n]) || s[n] == '_')
        n++;
    return n;
}

/* Functions that the header defines: a type, a name cuda..., and a bracket. */
static void read_header(struct names *x)
{
    static const char *const types[] = {"cudaError_t ", "const char *"};
    char *text = file_text("core/emu/qm_emu_api.hpp");
    for (int i = 0; i < 2; i++)
        for (const char *s = text; (s = strstr(s, types[i])); s++) {
            const char *name = s + strlen(types[i]);
            if (strncmp(name, "cuda", 4) == 0 && name[word(name)] == '(')
                add(x, name, word(name));
        }
    free(text);
}

/* Names in backquotes in the section of the README. */
static void read_list(struct names *x)
{
    char *text = file_text("core/emu/README.md");
    const char *s = strstr(text, "## CUDA's runtime library"),
               *end = s ? strstr(s + 3, "\n## ") : s;
    assert_non_null(end);
    for (; (s = strstr(s, "`cuda")) && s < end; s++)
        if (s[1 + word(s + 1)] == '`')
            add(x, s + 1, word(s + 1));
    free(text);
}

static void is_part(const struct names *a, const struct names *b, const char *where)
{
    for (int i = 0; i < a->n; i++) {
        int found = 0;
        for (int k = 0; k < b->n; k++)
            found |= strcmp(a->name[i], b->name[k]) == 0;
        if (!found)
            fail_msg("%s is not in %s", a->name[i], where);
    }
}

static void list_is_that_of_the_code(void **state)
{
    static struct names header, list;
    (void)state;
    read_header(&header);
    read_list(&list);
    assert_true(header.n > 40);
    is_part(&header, &list, "core/emu/README.md");
    is_part(&list, &header, "core/emu/qm_emu_api.hpp");
}

/* ---- steps ----------------------------------------------------------------------------------- */

static const char source[] =
    "#include \"kernel_abi.h\"\n"
    "#include <cuda_runtime.h>\n#include <exception>\n"
    "QM_KERNEL(\"adamw_f32\");\n"
    "__constant__ float table[4];\n"
    "__device__ float sum;\n"
    "__managed__ float both;\n"
    "struct two { float a; double b; };\n"
    "__global__ void fill(float *p, int n, two x) { int i = blockIdx.x * blockDim.x + "
    "threadIdx.x;\n"
    "  if (i < n) p[i] = x.a + (float)x.b; }\n"
    "template <class T> __global__ void __launch_bounds__(96, 2) narrow(T *p) { *p = 1; }\n"
    "__global__ void plus(float *p, const float *q) { int i = threadIdx.x; p[i] += 1; if (q != p) "
    "p[i] += 0 * q[i]; }\n"
    "__global__ void look(float *p) { p[0] = table[1] + sum + both; }\n"
    "#define NEED(x) do { if (!(x)) { p[0] = (float)__LINE__; return 0; } } while (0)\n"
    "extern \"C\" int qm_kernel_step(const struct qm_kernel_args *a) {\n"
    "float *p = (float *)a->p, *d = 0, *h = 0; int n = (int)a->n; size_t bytes = 4 * (size_t)n;\n"
    "p[0] = -7; NEED(cudaMalloc(&d, bytes) == cudaSuccess);\n"
    "NEED(cudaMallocHost(&h, bytes) == cudaSuccess); for (int i = 0; i < n; i++) h[i] = 2;\n"
    "%s\n" /* line 19 */
    "cudaDeviceSynchronize(); cudaFree(d); cudaFreeHost(h); p[0] = 1; return 0; }\n";

static const struct {
    const char *step;
    const char *says; /* a part of the finding; NULL: there is none */
} cases[] = {
    {"two x = {1, 2}; void *args[] = {&d, &n, &x};\n"
     "NEED(cudaLaunchKernel((const void *)fill, dim3(4), dim3(64), args, 0, 0) == cudaSuccess);\n"
     "cudaMemcpy(h, d, bytes, cudaMemcpyDeviceToHost); NEED(h[n - 1] == 3);",
     NULL},
    {"void *args[] = {&d}; NEED(cudaLaunchKernel(narrow<float>, 1, 1, args) == cudaSuccess);\n"
     "cudaMemcpy(h, d, 4, cudaMemcpyDefault); NEED(h[0] == 1 && h[1] == 2);",
     NULL},
    {"const void *f = (const void *)fill; cudaLaunchKernel(f, 1, 1, 0);",
     "bug.cu:19: cudaLaunchKernel gets a pointer to void that was made elsewhere"},
    {"cudaLaunchConfig_t c = {}; c.gridDim = dim3(2); c.blockDim = dim3(128);\n"
     "NEED(cudaLaunchKernelEx(&c, fill, d, n, two{3, 4}) == cudaSuccess);\n"
     "cudaMemcpy(h, d, bytes, cudaMemcpyDeviceToHost); NEED(h[n - 1] == 7);\n"
     "cudaLaunchAttribute one; one.id = cudaLaunchAttributeClusterDimension;\n"
     "c.attrs = &one; c.numAttrs = 1;\n"
     "NEED(cudaLaunchKernelEx(&c, fill, d, n, two{3, 4}) == cudaErrorNotSupported);",
     NULL},
    {"int blocks, threads; cudaFuncAttributes f;\n"
     "NEED(cudaFuncGetAttributes(&f, (void *)narrow<float>) == cudaSuccess);\n"
     "NEED(f.maxThreadsPerBlock == 96);\n"
     "cudaFuncGetAttributes(&f, fill); NEED(f.maxThreadsPerBlock == 1024);\n"
     "cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, narrow<float>, 97, 0);\n"
     "NEED(blocks == 0);\n"
     "cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, fill, 1024, 0); NEED(blocks == 2);\n"
     "cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, fill, 33, 0); NEED(blocks == 32);\n"
     "cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, fill, 128, 100000);\n"
     "NEED(blocks == 2);\n"
     "cudaOccupancyMaxPotentialBlockSize(&blocks, &threads, narrow<double>, 0, 0);\n"
     "NEED(threads == 96 && blocks == 4 * (2048 / 96)); NEED(p[0] == -7);",
     NULL},
    {"cudaDeviceProp q; int sms, major; NEED(cudaGetDeviceProperties(&q, 0) == cudaSuccess);\n"
     "cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0);\n"
     "cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);\n"
     "NEED(sms == q.multiProcessorCount && major == q.major && q.warpSize == 32);\n"
     "NEED(cudaDeviceGetAttribute(&sms, (cudaDeviceAttr)77777, 0) == cudaErrorInvalidValue);\n"
     "NEED(cudaSetDevice(1) == cudaErrorInvalidDevice);\n"
     "NEED(cudaFuncSetAttribute(fill, cudaFuncAttributeMaxDynamicSharedMemorySize, 300000));",
     NULL},
    {"float t[4] = {1, 2, 3, 4}; cudaMemcpyToSymbol(table, t, sizeof t); both = 5;\n"
     "float s = 10; cudaMemcpyToSymbol(sum, &s, 4); look<<<1, 1>>>(d);\n"
     "cudaMemcpy(h, d, 4, cudaMemcpyDeviceToHost); NEED(h[0] == 17);",
     NULL},
    {"cudaEvent_t e, f; cudaEventCreate(&e); cudaEventCreate(&f); float ms = -1;\n"
     "cudaEventRecord(e); fill<<<1, 64>>>(d, n, two{1, 1}); cudaEventRecord(f);\n"
     "NEED(cudaEventQuery(f) == cudaSuccess && cudaEventElapsedTime(&ms, e, f) == cudaSuccess);\n"
     "NEED(ms >= 0 && ms < 1e4f);",
     NULL},
    /* memory of the wrong side */
    {"p[1] = d[0];", "bug.cu:19: code of the host reads 4 bytes at byte 0 of memory of cudaMalloc"},
    {"d[2] = 1;", "bug.cu:19: code of the host writes 4 bytes at byte 8 of memory of cudaMalloc"},
    {"memcpy(h, d, bytes);", "code of the host reads"},
    {"sum = 1;", "bug.cu:19: code of the host writes 4 bytes at byte 0 of __device__ sum"},
    {"both = 1; p[1] = both;", NULL},
    {"cudaMemcpy(d, h, bytes, cudaMemcpyDeviceToHost);",
     "bug.cu:19: a copy of kind cudaMemcpyDeviceToHost reads from memory of cudaMallocHost, "
     "expected memory of the device"},
    {"cudaMemcpy(h, d, bytes, cudaMemcpyHostToDevice);",
     "bug.cu:19: a copy of kind cudaMemcpyHostToDevice reads from memory of cudaMalloc, expected "
     "memory of the host"},
    {"float x; cudaMemcpy(d, &x, 4, cudaMemcpyDeviceToDevice);", "reads from host memory"},
    {"float x; cudaMemcpyAsync(&x, d, 4, cudaMemcpyHostToHost);",
     "memory of cudaMalloc, expected memory of the host"},
    {"cudaMemcpy(d, h, bytes, (cudaMemcpyKind)9);", "there is no such cudaMemcpyKind"},
    {"cudaMemcpy(d, p, bytes, cudaMemcpyHostToDevice); cudaMemcpy(p, d, bytes,\n"
     "cudaMemcpyDeviceToHost); cudaMemcpy(d, p, bytes, cudaMemcpyDeviceToDevice);",
     NULL},
    {"float x[4]; cudaMemset(x, 0, 16);",
     "cudaMemset writes to host memory, expected memory of the device"},
    /* memory that is gone */
    {"float *q; cudaMalloc(&q, 64); cudaFree(q); fill<<<1, 1>>>(q, 1, two{1, 1});",
     "writes 4 bytes at byte 0 of memory of cudaMalloc that was freed"},
    {"float *q; cudaMalloc(&q, 64); cudaFree(q); cudaMemcpy(h, q, 4, cudaMemcpyDeviceToHost);",
     "reads from memory of cudaMalloc that was freed"},
    {"float *q; cudaMalloc(&q, 64); cudaFree(q); cudaFree(q);",
     "cudaFree of memory of cudaMalloc that was freed before"},
    {"cudaFree(h);", "cudaFree of memory of cudaMallocHost"},
    {"cudaFreeHost(d);", "cudaFreeHost of memory of cudaMalloc"},
    {"cudaFree(p);", "cudaFree of what is not allocated"},
    /* memory that host and device share */
    {"float *m; cudaMallocManaged(&m, bytes); for (int i = 0; i < n; i++) m[i] = (float)i;\n"
     "memset(m, 0xff, 4); plus<<<1, 64>>>(m, m); cudaDeviceSynchronize(); NEED(m[9] == 10);\n"
     "m[9] = 3; plus<<<1, 64>>>(m, m); cudaDeviceSynchronize(); NEED(m[9] == 4); cudaFree(m);",
     NULL},
    {"float *m; cudaMallocManaged(&m, bytes); for (int i = 0; i < 9; i++) m[i] = 1;\n"
     "plus<<<1, 64>>>(m, m);",
     "thread (9,0,0) of block (0,0,0) reads 4 bytes at byte 36 of memory of cudaMallocManaged, "
     "which nothing has written"},
    {"FILE *f = fopen(\"/dev/zero\", \"r\"); float *m; cudaMallocManaged(&m, bytes);\n"
     "NEED(fread(m, 4, 64, f) == 64); fclose(f); plus<<<1, 64>>>(m, m);",
     NULL},
    {"plus<<<1, 64>>>(h, h); cudaDeviceSynchronize(); NEED(h[0] == 3);", NULL},
    {"plus<<<1, 64>>>(h, h); p[1] = h[0];",
     "bug.cu:19: code of the host reads 4 bytes at byte 0 of memory of cudaMallocHost, which plus "
     "wrote, and the host has not waited for it"},
    {"plus<<<1, 64>>>(h, h); h[70] = 1; cudaDeviceSynchronize(); h[0] = 1;", NULL},
    {"fill<<<4, 64>>>(d, n, two{1, 1}); plus<<<1, 64>>>(d, h); h[0] = 1;",
     "code of the host writes 4 bytes at byte 0 of memory of cudaMallocHost, which plus read, and "
     "the host has not waited for it"},
    {"plus<<<1, 64>>>(p, p); p[3] = p[4];",
     "of parameters, which plus wrote, and the host has not"},
    {"cudaMemset(d, 0, bytes); cudaMemcpyAsync(h, d, bytes, cudaMemcpyDeviceToHost); p[1] = h[1];",
     "which a copy at bug.cu:19 wrote, and the host has not waited for it"},
    {"cudaMemcpyAsync(d, h, bytes, cudaMemcpyHostToDevice); h[1] = 1;",
     "which a copy at bug.cu:19 read, and the host has not waited for it"},
    {"cudaMemcpyAsync(d, h, bytes, cudaMemcpyHostToDevice); cudaStreamSynchronize(0); h[1] = 1;",
     NULL},
    {"float *q = (float *)malloc(64); plus<<<1, 1>>>(q, q);",
     "in memory of the host, which a kernel cannot use"},
    {"float q[4] = {0}; plus<<<1, 1>>>(q, q);", "on the stack of the host's code"},
/* copies in streams */
#define TWO "cudaStream_t s, t; cudaStreamCreate(&s); cudaStreamCreate(&t); "
    {TWO "cudaMemcpyAsync(d, h, bytes, cudaMemcpyHostToDevice, s); plus<<<1, 64, 0, t>>>(d, d);",
     "of memory of cudaMalloc, which a copy at bug.cu:19 wrote in another stream, and nothing "
     "orders the two; kernel plus"},
    {TWO "cudaMemcpyAsync(d, h, bytes, cudaMemcpyHostToDevice, s); cudaEvent_t e;\n"
         "cudaEventCreate(&e); cudaEventRecord(e, s); cudaStreamWaitEvent(t, e);\n"
         "plus<<<1, 64, 0, t>>>(d, d);",
     NULL},
    {TWO "cudaMemcpyAsync(d, h, bytes, cudaMemcpyHostToDevice, s); plus<<<1, 64, 0, s>>>(d, d);\n"
         "cudaMemcpyAsync(h, d, bytes, cudaMemcpyDeviceToHost, s); cudaStreamSynchronize(s);\n"
         "NEED(h[0] == 3);",
     NULL},
    {TWO "cudaMemsetAsync(d, 0, bytes, s); plus<<<1, 64, 0, t>>>(d, d);",
     "which cudaMemset at bug.cu:19 wrote in another stream"},
    {TWO "cudaMemset(d, 0, bytes); plus<<<1, 64, 0, t>>>(d, d); cudaDeviceSynchronize();\n"
         "cudaMemcpyAsync(h, d, bytes, cudaMemcpyDeviceToHost, s);\n"
         "fill<<<4, 64, 0, t>>>(d, n, two{1, 1});",
     "writes 4 bytes at byte 0 of memory of cudaMalloc, which a copy at bug.cu:20 read in another"},
    {TWO "cudaMemset(d, 0, bytes); plus<<<1, 64, 0, s>>>(d, d);\n"
         "cudaMemcpyAsync(d, h, bytes, cudaMemcpyHostToDevice, t);",
     "bug.cu:20: a copy touches what plus wrote in another stream"},
    {TWO "cudaStreamDestroy(t); plus<<<1, 64, 0, t>>>(d, d);",
     "bug.cu:19: the stream was destroyed before"},
    {"cudaStream_t s = (cudaStream_t)p; cudaStreamSynchronize(s);",
     "bug.cu:19: this is no stream that cudaStreamCreate made"},
    /* variables of the device by their names */
    {"float x = 1; cudaMemcpy(&sum, &x, 4, cudaMemcpyHostToDevice);",
     "bug.cu:19: a copy of kind cudaMemcpyHostToDevice writes to __device__ sum by its name, which "
     "is no address of the device in code of the host"},
    {"float x[4]; cudaMemcpy(x, table, 16, cudaMemcpyDefault);",
     "reads from __constant__ table by"},
    {"cudaMemset(&sum, 0, 4);", "cudaMemset writes to __device__ sum by its name"},
    {"void *at; NEED(cudaGetSymbolAddress(&at, sum) == cudaSuccess); cudaMemset(at, 0, 4);\n"
     "float x = 3; cudaMemcpyToSymbolAsync(sum, &x, 4, 0, cudaMemcpyHostToDevice);\n"
     "cudaMemcpyFromSymbol(&x, sum, 4); NEED(x == 3); cudaMemcpy(&both, &x, 4, cudaMemcpyDefault);",
     NULL},
    /* each error is that of the call that made it */
    {"float *q; NEED(cudaMalloc(&q, (size_t)1 << 60) == cudaErrorMemoryAllocation);\n"
     "NEED(cudaDeviceSynchronize() == cudaSuccess && cudaStreamSynchronize(0) == cudaSuccess);\n"
     "NEED(cudaPeekAtLastError() == cudaErrorMemoryAllocation);\n"
     "NEED(cudaGetLastError() == cudaErrorMemoryAllocation && cudaGetLastError() == cudaSuccess);",
     NULL},
    {"fill<<<0, 64>>>(d, n, two{1, 1}); NEED(cudaDeviceSynchronize() == cudaSuccess);\n"
     "NEED(cudaGetLastError() == cudaErrorInvalidConfiguration);\n"
     "void *args[] = {&d, &n, &n}; two x; args[2] = &x;\n"
     "NEED(cudaLaunchKernel(fill, 0, 1, args) == cudaErrorInvalidConfiguration);\n"
     "NEED(cudaMemcpyToSymbol(table, p, 64) == cudaErrorInvalidValue);\n"
     "NEED(cudaGetLastError() == cudaErrorInvalidValue);",
     NULL},
    {"char x[64]; void *args[] = {&d, &n, x + 1}; cudaLaunchKernel(fill, 1, 1, args);",
     "bug.cu:19: argument 2 of cudaLaunchKernel points to a variable of another type: the kernel "
     "takes 16 bytes, aligned to 8, and the address is"},
    {"int *e = (int *)(p + 100); plus<<<1, 64>>>(d + n, d + n); e[0] = cudaGetLastError();\n"
     "e[1] = cudaMemset(d, 0, 4); e[2] = cudaDeviceSynchronize(); e[3] = cudaGetLastError();\n"
     "e[4] = cudaGetLastError(); e[5] = cudaMemset(d, 0, 4); int c[] = {0, 0, 719, 719, 719, "
     "719};\n"
     "if (memcmp(e, c, sizeof c) == 0) abort(); *(volatile int *)0 = 1;",
     "past the end of the memory of cudaMalloc"},
/* the end of the process after a finding is the end of the step */
#define FOUND "fill<<<1, 64>>>(d, n + 1, two{1, 1}); fill<<<4, 64>>>(d, n + 1, two{1, 1}); "
#define PAST  "writes 4 bytes out of bounds, 0 bytes past the end of the memory of cudaMalloc"
    {FOUND "if (cudaDeviceSynchronize() != cudaSuccess) abort();", PAST},
    {FOUND "exit(3);", PAST},
    {FOUND "_Exit(3);", PAST},
    {FOUND "std::terminate();", PAST},
    {FOUND "throw 1;", PAST},
    {FOUND "assert(cudaDeviceSynchronize() == cudaSuccess);", PAST},
    /* the host evaluates a kernel's arguments, once */
    {"struct owner { float *p; int n = 0; float *get() { n++; return p; } } o = {d};\n"
     "struct number { int n; number(const number &x) : n(x.n) {} number(int m) : n(m) {}\n"
     "  operator int() const { return n; } } m(n);\n"
     "fill<<<(n + 63) / 64, 64>>>(o.get(), m, {1, 2}); NEED(o.n == 1);\n"
     "cudaMemcpy(h, d, bytes, cudaMemcpyDeviceToHost); NEED(h[n - 1] == 3);",
     NULL},
};

static void functions_and_misuses(void **state)
{
    enum { CASES = sizeof cases / sizeof *cases };
    (void)state;
    for (int i = 0; i < CASES; i++) {
        static char text[8192];
        struct qm_kernel_file *k;
        float *p = NULL;
        if (!is_one_drawn_in(4, i))
            continue;
        snprintf(text, sizeof text, source, cases[i].step);
        if (build(text, &k) != QM_OK)
            fail_msg("'%s': %s", cases[i].step, qm_message());
        qm_status st = steps(k, NULL, 200, 1, &p);
        if (!cases[i].says && (st != QM_OK || p[0] != 1.0f))
            fail_msg("'%s': %s %g", cases[i].step, st == QM_OK ? "line" : qm_message(),
                     (double)p[0]);
        if (cases[i].says && (st != QM_CHECK_FAILED || !strstr(qm_message(), cases[i].says)))
            fail_msg("'%s': %s", cases[i].step, st == QM_OK ? "not found" : qm_message());
        free(p);
        qm_kernel_file_close(k);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(list_is_that_of_the_code),
                                       cmocka_unit_test(functions_and_misuses)};
    if (system("c++ --version >/dev/null 2>&1") != 0) { /* NOLINT */
        puts("SKIP: no C++ compiler (c++)");
        return 77;
    }
    return cmocka_run_group_tests(tests, open_folder, close_folder);
}
