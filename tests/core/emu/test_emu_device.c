/* test_emu_device.c - Sources that nvcc refuses are refused with their line, and right ones are
 * not; names of symbols. */
#include "core/emu/emu_symbol.h"
#include "tests/support/drawn.h"
#include "tests/support/emulated.h"

/* A file of host code and device code; %s: before the kernel, in it, and in the step. */
static const char source[] =
    "#include \"kernel_abi.h\"\n"
    "#include <algorithm>\n"
    "#include <array>\n"
    "#include <cuda_runtime.h>\n"
    "QM_KERNEL(\"adamw_f32\");\n"
    "%s\n" /* line 6 */
    "__global__ void k(float *p, int i) {\n"
    "%s\n" /* line 8 */
    "}\n"
    "extern \"C\" int qm_kernel_step(const struct qm_kernel_args *a) { float *p = (float *)a->p;\n"
    "%s\n" /* line 11 */
    "return 0; }\n";

#define LAUNCH "k<<<1, 1>>>(p, 1); cudaDeviceSynchronize();"

static const struct {
    const char *before, *in, *step;
    const char *says; /* NULL: it is right */
} cases[] = {
    /* functions */
    {"static float f(float x) { return 2 * x; }", "p[i] = f(p[i]);", LAUNCH,
     "bug.cu:8: kernel k calls f, a function of the host: it has no __device__"},
    {"static __device__ float f(float x) { return 2 * x; }", "p[i] = f(p[i]);", LAUNCH, NULL},
    {"static __host__ __device__ float f(float x) { return 2 * x; }", "p[i] = f(p[i]);",
     LAUNCH " p[0] = f(1.0f);", NULL},
    {"static __device__ float f(float x) { return 2 * x; }", "p[i] = f(p[i]);",
     LAUNCH " p[0] = f(1.0f);", "bug.cu:11: code of the host calls f, a function of the device"},
    {"template <class T> T f(T x) { return 2 * x; }", "p[i] = f(p[i]);", LAUNCH,
     "bug.cu:8: kernel k calls f, a function of the host"},
    {"struct s { float x; float twice() const { return 2 * x; } };", "s a{p[i]}; p[i] = a.twice();",
     LAUNCH, "bug.cu:8: kernel k calls s::twice, a function of the host"},
    {"struct s { float x; s(float y) : x(y) {} };", "s a(p[i]); p[i] = a.x;", LAUNCH,
     "bug.cu:8: kernel k calls s::s, a function of the host"},
    {"struct s { float x = 2; __device__ float twice() const { return 2 * x; } };",
     "s a; p[i] = a.twice();", LAUNCH, NULL},
    {"static float f(float x) { return x; }\nstatic __device__ float g(float x) { return f(x); }",
     "p[i] = g(p[i]);", LAUNCH, "bug.cu:7: device function g calls f, a function of the host"},
    {"namespace n { template <class T> __device__ T f(T x) { return x; } }\nint f(int);",
     "p[i] = n::f(p[i]) + std::max(1, i);", LAUNCH, NULL},
    {"constexpr int f(int x) { return 2 * x; }", "p[i] = f(3);", LAUNCH, NULL},
    {"", "auto f = [&](float x) { return x * p[i]; }; p[i] = f(2.0f);", LAUNCH, NULL},
    {"", "p[i] = (float)rand();", LAUNCH, "bug.cu:8: kernel k calls rand, which device code has"},
    {"", "cudaMalloc(&p, 4);", LAUNCH, "calls CUDA's runtime library, which is emulated for"},
    {"", "p[i] = sqrtf(p[i]) + std::exp(1.0f) + pow(2.0, 3.0) + __popcll(i); printf(\"%f\", p[i]);",
     LAUNCH, NULL},
    {"", "", LAUNCH " __syncthreads();",
     "bug.cu:11: code of the host calls __syncthreads, a function of the device"},
    {"", "", LAUNCH " atomicAdd(p, 1.0f);",
     "bug.cu:11: code of the host calls atomicAdd, a function of the device"},
    /* variables */
    {"static float x = 2;", "p[i] *= x;", LAUNCH,
     "bug.cu:8: kernel k uses x, a variable of the host"},
    {"namespace n { float x[3]; }", "p[i] *= n::x[i];", LAUNCH,
     "uses n::x, a variable of the host"},
    {"static __device__ float x = 2; __constant__ float y[3]; __managed__ int z;",
     "p[i] *= x + y[i] + z;", LAUNCH, NULL},
    {"static const float x = 2; constexpr double y = 3; const int z = 4; enum { W = 5 };",
     "p[i] *= x + y + z + W;", LAUNCH, NULL},
    {"constexpr float x[2] = {1, 2};", "p[i] *= x[i];", LAUNCH, "uses x, a variable of the host"},
    {"static const float x = 2;", "p[i] *= *(&x + i - 1);", LAUNCH,
     "uses x, a variable of the host"},
    {"static const float x[8] = {1, 2};", "p[i] *= x[i];", LAUNCH,
     "and no __constant__, and no plain number"},
    /* an array of 16 bytes, which the compiler aligns to 16 bytes */
    {"float x[4] = {1, 1, 1, 1};", "p[i] *= x[i];", LAUNCH, "kernel k uses x, a variable of the"},
    {"float x[4];\ntemplate <class F> __global__ void f(F g) { g(0); }", "",
     "f<<<1, 1>>>([=] __device__ (int j) { p[j] *= x[j]; }); cudaDeviceSynchronize();",
     "bug.cu:12: kernel f uses x, a variable of the host"},
    {"", "static int calls; const float x[3] = {1, 2, 3}; p[i] = x[i] + calls++;", LAUNCH, NULL},
    /* exceptions */
    {"", "try { p[i] = 1; } catch (...) { }", LAUNCH,
     "bug.cu:8: kernel k has try, catch or throw, which device code cannot"},
    {"", "if (i > 5) throw 1;", LAUNCH, "bug.cu:8: kernel k has try, catch or throw"},
    {"", "p[i] = 1;", "try { " LAUNCH " } catch (...) { throw; }", NULL},
    /* launches */
    {"void f(float *p) { *p = 1; }", "", "f<<<1, 1>>>(p);",
     "bug.cu:11: f is launched by <<<>>>, and is no kernel: it has no __global__"},
    {"template <class F> __global__ void f(F g, float *p) { *p = g(*p); }", "",
     "f<<<1, 1>>>([=] __device__ (float x) { return 2 * x; }, p); cudaDeviceSynchronize();", NULL},
    {"static dim3 blocks(int n) { return dim3(n); }", "", "k<<<blocks(3), std::max(1, 2)>>>(p, 1);",
     NULL},
    {"", "", "k(p, 1);", "bug.cu:11: the kernel k is called like a function, without <<<>>>"},
    {"__global__ void f(float *p);", "f(p);", LAUNCH,
     "bug.cu:8: kernel k calls f, which device code has not"},
    {"", "if (i > 3) k<<<1, 1>>>(p, 1);", LAUNCH,
     "bug.cu:8: kernel k launches a kernel, which the emulator does not emulate"},
    {"__global__ float f(float *p) { return *p; }", "", LAUNCH,
     "bug.cu:6: this __global__ function does not return void"},
    {"", "__shared__ float s = 1.0f; p[i] = s;", LAUNCH,
     "bug.cu:8: this __shared__ variable has an initializer: shared memory has none"},
    /* headers */
    {"#include <cooperative_groups.h>", "", LAUNCH,
     "bug.cu:6: cooperative groups (cooperative_groups.h) cannot be emulated"},
    {"#include <cuda_runtime_api.h>\n#include <mma.h>", "", LAUNCH,
     "bug.cu:7: tensor cores (mma.h) cannot be emulated"},
};

static void refused_as_by_nvcc(void **state)
{
    enum { CASES = sizeof cases / sizeof *cases };
    (void)state;
    AT_ONE_COMMIT_IN(4, 11);
    for (int i = 0; i < CASES; i++) {
        char text[4096];
        struct qm_kernel_file *k;
        if (!is_one_drawn_in(4, i))
            continue;
        snprintf(text, sizeof text, source, cases[i].before, cases[i].in, cases[i].step);
        qm_status st = build(text, &k);
        if (st != (cases[i].says ? QM_BAD_ARG : QM_OK))
            fail_msg("'%s' '%s' '%s': %s", cases[i].before, cases[i].in, cases[i].step,
                     st == QM_OK ? "not refused" : qm_message());
        if (st == QM_OK)
            qm_kernel_file_close(k);
        else if (!strstr(qm_message(), cases[i].says))
            fail_msg("'%s' '%s': %s", cases[i].before, cases[i].in, qm_message());
    }
}

static void names_of_symbols(void **state)
{
    static const char *const names[][2] = {
        {"main", "main"},
        {"_Z5twicef", "twice"},
        {"_ZL5konst", "konst"},
        {"_Z2ttIfET_S0_", "tt"},
        {"_ZN1n1fIiEEvT_", "n::f"},
        {"_ZN1PC2Ef", "P::P"},
        {"_ZN1PD1Ev", "P::~P"},
        {"_ZNK1PcvfEv", "P::operator"},
        {"_ZNSt6vectorIfSaIfEEixEm", "vector::operator"},
        {"_ZN1aIN1b1cIiLi3EEEE1fEv", "a::f"},
        {"_ZNK5outer5innerIXadL_Z1gvEEE4callEv", "outer::inner::call"},
        {"_ZNSaIcEC1Ev", "std::allocator::allocator"},
        {"_ZN99999999999999999999", ""}, /* damaged */
    };
    (void)state;
    AT_ONE_COMMIT_IN(4, 10);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char text[QM_SYMBOL_TEXT];
        qm_symbol_text(names[i][0], (int)strlen(names[i][0]), text);
        if (*names[i][1])
            assert_string_equal(text, names[i][1]);
    }
    assert_true(qm_symbol_is_lambda("_ZZ4hostENKUlfE_clEf", 20));
    assert_false(qm_symbol_is_lambda("_Z5twicef", 9));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(names_of_symbols),
                                       cmocka_unit_test(refused_as_by_nvcc)};
    if (system("c++ --version >/dev/null 2>&1") != 0) { /* NOLINT */
        puts("SKIP: no C++ compiler (c++)");
        return 77;
    }
    return cmocka_run_group_tests(tests, open_folder, close_folder);
}
