/* test_cuda_host.c - Tests what works without a GPU: the random generator against cuRAND's,
 * compilation at run time, the cache of kernels. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/philox.h"
#include "core/compile/cubin_cache.h"
#include "core/cuda/cuda_load.h"
#include "core/device/step_kernels.h"
#include "experiments/gpu/bench.h"
#include "experiments/gpu/gpu_report.h"
#include "experiments/store/result_reader.h"

#define skip_because(...)           \
    do {                            \
        print_message("skipped: "); \
        print_message(__VA_ARGS__); \
        print_message("\n");        \
        skip();                     \
    } while (0)

/* ---- cuRAND ---------------------------------------------------------------------------------- */

enum { PHILOX = 161 }; /* CURAND_RNG_PSEUDO_PHILOX4_32_10 */

/* Word w of cuRAND's host generator: 65,536 subsequences, four words of each in turn. */
static uint32_t host_word(uint64_t seed, uint64_t w)
{
    return qm_philox_stream(seed, (w >> 2) & 65535, (w >> 18) * 4 + (w & 3));
}

static void test_curand(void **state)
{
    static const uint64_t seeds[] = {0, 1, 20240501, 0xfedcba9876543210u, UINT64_MAX};
    static const uint64_t offsets[] = {0, 1, 7, 262143, 262144, 1000001};
    enum { N = 300000 };
    int (*create)(void **, int), (*destroy)(void *), (*set_seed)(void *, unsigned long long),
        (*set_offset)(void *, unsigned long long), (*generate)(void *, unsigned *, size_t);
    char path[512];
    (void)state;
    void *lib = qm_library_open(QM_LIBRARY_curand, path, sizeof path), *g;
    if (!lib)
        skip_because("no cuRAND: %s", path);
    if (qm_library_symbol(lib, "curandCreateGeneratorHost", &create) != QM_OK ||
        qm_library_symbol(lib, "curandDestroyGenerator", &destroy) != QM_OK ||
        qm_library_symbol(lib, "curandSetPseudoRandomGeneratorSeed", &set_seed) != QM_OK ||
        qm_library_symbol(lib, "curandSetGeneratorOffset", &set_offset) != QM_OK ||
        qm_library_symbol(lib, "curandGenerate", &generate) != QM_OK)
        fail_msg("%s: %s", path, qm_message());
    unsigned *out = malloc(sizeof *out * N);
    for (size_t s = 0; s < sizeof seeds / sizeof *seeds; s++)
        for (size_t k = 0; k < sizeof offsets / sizeof *offsets; k++) {
            assert_int_equal(create(&g, PHILOX), 0);
            assert_int_equal(set_seed(g, seeds[s]), 0);
            assert_int_equal(set_offset(g, offsets[k]), 0);
            assert_int_equal(generate(g, out, N), 0);
            for (uint64_t i = 0; i < N; i++)
                if (out[i] != host_word(seeds[s], offsets[k] + i))
                    fail_msg("seed %llu, word %llu: %08x, ours %08x", (unsigned long long)seeds[s],
                             (unsigned long long)(offsets[k] + i), out[i],
                             host_word(seeds[s], offsets[k] + i));
            assert_int_equal(destroy(g), 0);
        }
    free(out);
}

/* qm_draw_four gives the same numbers as four calls of qm_draw. */
static void test_draw_four(void **state)
{
    (void)state;
    for (int64_t at = 0; at < (INT64_C(1) << 40); at = at * 3 + 4) {
        struct qm_draws d =
            qm_draws_for(0x123456789abcdefu, at % 1000, (uint32_t)at, QM_ROLE_slot1);
        struct qm_philox_block four = qm_draw_four(&d, at / 4 * 4);
        for (int j = 0; j < 4; j++)
            assert_int_equal(four.word[j], qm_draw(&d, at / 4 * 4 + j));
    }
}

/* ---- compiling ------------------------------------------------------------------------------- */

static const char *const small =
    "extern \"C\" __global__ void small(float *x) { x[threadIdx.x] *= 2; }";
static const char *const options[] = {"--ptxas-options=-v", NULL};

static struct qm_device_source source(const char *text)
{
    return (struct qm_device_source){
        .name = "small.cu", .text = text, .options = options, .arch = 90};
}

static void test_compile(void **state)
{
    struct qm_device_source s = source(small);
    struct qm_device_binary b;
    struct qm_kernel_use use;
    (void)state;
    if (qm_nvrtc_probe() != QM_OK)
        skip_because("%s", qm_message());
    assert_int_equal(qm_nvrtc_compile(&s, &b), QM_OK);
    assert_false(b.is_ptx);
    assert_memory_equal(b.data, "\177ELF", 4);
    assert_true(qm_kernel_use(b.log, "small", &use));
    assert_in_range(use.registers, 1, 255);
    assert_int_equal(use.spill_bytes + use.local_bytes, 0);
    assert_false(qm_kernel_use(b.log, "other", &use));
    qm_device_binary_free(&b);

    s.arch = 91; /* there is no such architecture: PTX of the one below */
    assert_int_equal(qm_nvrtc_compile(&s, &b), QM_OK);
    assert_true(b.is_ptx);
    assert_non_null(strstr(b.data, ".target sm_90"));
    qm_device_binary_free(&b);

    s = source("extern \"C\" __global__ void small(float *x)\n{\n    x[0] = nothing;\n}\n");
    assert_int_equal(qm_nvrtc_compile(&s, &b), QM_BAD_ARG);
    assert_non_null(strstr(qm_message(), "small.cu(3): error"));
    assert_non_null(strstr(qm_message(), "nothing"));
    qm_device_binary_free(&b);
}

/* The resource report tells a kernel that keeps an array in local memory from one that does not. */
static void test_report(void **state)
{
    struct qm_device_source s = source("extern \"C\" __global__ void small(float *x, int k) {"
                                       "float y[64]; for (int i = 0; i < k; i++) y[i & 63] = x[i];"
                                       "x[0] = y[(int)x[1] & 63]; }");
    struct qm_device_binary b;
    struct qm_kernel_use use;
    (void)state;
    if (qm_nvrtc_probe() != QM_OK)
        skip_because("%s", qm_message());
    assert_int_equal(qm_nvrtc_compile(&s, &b), QM_OK);
    assert_true(qm_kernel_use(b.log, "small", &use));
    assert_in_range(use.local_bytes, 256, 512);
    qm_device_binary_free(&b);
}

/* ---- the cache ------------------------------------------------------------------------------- */

static char folder[] = "/tmp/qm-cache-XXXXXX";

static int cache_open(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return 1;
    return setenv("QM_CACHE", folder, 1);
}

static int cache_close(void **state)
{
    char command[64];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    unsetenv("QM_CACHE");
    return system(command);
}

static char *cached_file(const struct qm_device_source *s, char *path, size_t size)
{
    char key[QM_CACHE_KEY];
    qm_cubin_key(s, key);
    snprintf(path, size, "%s/%s.cubin", folder, key);
    return path;
}

static void compile(const struct qm_device_source *s, int from_cache, char *data)
{
    struct qm_device_binary b;
    if (qm_device_compile(s, &b) != QM_OK)
        fail_msg("%s", qm_message());
    assert_int_equal(b.from_cache, from_cache);
    if (*data)
        assert_memory_equal(b.data, data, 1000);
    memcpy(data, b.data, 1000);
    assert_non_null(strstr(b.log, "registers"));
    qm_device_binary_free(&b);
}

static void damage(const char *path, long at, int bytes)
{
    FILE *f = fopen(path, "r+");
    assert_non_null(f);
    if (bytes < 0) {
        assert_int_equal(ftruncate(fileno(f), at), 0);
    } else {
        fseek(f, at, SEEK_SET);
        int c = fgetc(f);
        fseek(f, at, SEEK_SET);
        fputc(c ^ 1, f);
    }
    fclose(f);
}

static void test_cache(void **state)
{
    struct qm_device_source s = source(small), other = source(small);
    static const char *const more[] = {"--ptxas-options=-v", "--fmad=false", NULL};
    char path[256], data[1000] = "", key[2][QM_CACHE_KEY];
    (void)state;
    if (qm_nvrtc_probe() != QM_OK)
        skip_because("%s", qm_message());
    compile(&s, 0, data);
    compile(&s, 1, data);
    cached_file(&s, path, sizeof path);
    damage(path, 0, 1); /* foreign */
    compile(&s, 0, data);
    damage(path, 1000, 1); /* altered */
    compile(&s, 0, data);
    damage(path, 500, -1); /* short */
    compile(&s, 0, data);
    damage(path, 0, -1); /* empty */
    compile(&s, 0, data);
    compile(&s, 1, data);
    setenv("QM_CACHE", "off", 1);
    compile(&s, 0, data);
    setenv("QM_CACHE", folder, 1);

    other.options = more; /* the key depends on everything that may change the binary */
    qm_cubin_key(&s, key[0]);
    qm_cubin_key(&other, key[1]);
    assert_string_not_equal(key[0], key[1]);
    other = s;
    other.arch = 80;
    qm_cubin_key(&other, key[1]);
    assert_string_not_equal(key[0], key[1]);
    other = s;
    other.header_name = "x.h";
    other.header_text = "";
    qm_cubin_key(&other, key[1]);
    assert_string_not_equal(key[0], key[1]);
}

/* Writers and readers at once: every reader gets a whole binary, or none. */
static void test_cache_race(void **state)
{
    enum { PROCESSES = 4, ROUNDS = 300 };
    struct qm_device_binary b = {.size = 200000, .log = (char *)(uintptr_t) "log"}, read;
    char key[QM_CACHE_KEY];
    pid_t pid[PROCESSES];
    (void)state;
    memset(key, 'a', sizeof key - 1);
    key[QM_CACHE_KEY - 1] = '\0';
    b.data = malloc(b.size);
    for (int k = 0; k < PROCESSES; k++) {
        if ((pid[k] = fork()) > 0)
            continue;
        int bad = 0;
        memset(b.data, 'A' + k, b.size);
        for (int i = 0; i < ROUNDS; i++) {
            if (i % 8 == 0)
                qm_cubin_write(key, &b);
            if (!qm_cubin_read(key, &read))
                continue;
            const char *x = read.data;
            bad |= read.size != b.size || memcmp(x, x + 1, b.size - 1) != 0;
            qm_device_binary_free(&read);
        }
        _exit(bad);
    }
    for (int k = 0; k < PROCESSES; k++) {
        int status = 1;
        waitpid(pid[k], &status, 0);
        assert_int_equal(status, 0);
    }
    assert_true(qm_cubin_read(key, &read));
    qm_device_binary_free(&read);
    free(b.data);
}

/* ---- the report ------------------------------------------------------------------------------ */

/* The kernel that reads the cache full compiles for every architecture in use. */
static void test_reader(void **state)
{
    static const int archs[] = {80, 90, 100};
    (void)state;
    if (qm_nvrtc_probe() != QM_OK)
        skip_because("%s", qm_message());
    for (int i = 0; i < 3; i++) {
        struct qm_device_binary b = {0};
        qm_status st = qm_gpu_bench_compile_reader(&archs[i], &b);
        if (st != QM_OK)
            fail_msg("%s", qm_message());
        assert_true(b.size > 0);
        qm_device_binary_free(&b);
    }
}

/* A report is written and read by the general reader: what does not apply
 * stays away. */
static void test_report_file(void **state)
{
    char path[4096], line[512] = "", file[4200];
    char *argv[] = {(char *)(uintptr_t) "gpu-check"};
    struct qm_gpu_report r = {0}, back;
    struct qm_result *h5;
    double *rate;
    char **names;
    int64_t rows;
    (void)state;
    r.device = json_pack("{s:s, s:i}", "name", "NVIDIA Test 9000", "multiprocessors", 7);
    r.plan = json_pack("{s:s, s:i}", "parts", "exact,speed", "missing", 0);
    r.rows[QM_GPU_exact] =
        json_pack("[{s:s, s:b, s:s, s:s, s:s, s:b}, {s:s, s:b, s:s, s:s, s:s, s:b, s:s}]",
                  "variant", "a", "forced", 0, "gradients", "nan", "shape", "7", "status", "ok",
                  "equal", 1, "variant", "b", "forced", 1, "gradients", "nan", "shape", "7",
                  "status", "ok", "equal", 0, "difference", "x | y");
    r.rows[QM_GPU_speed] =
        json_pack("[{s:s, s:s, s:s, s:f}, {s:s, s:s, s:s}]", "recipe", "adamw_f32", "mode", "exact",
                  "status", "ok", "rate", 2.5e9, "recipe", "lion_f32", "mode", "fast", "status",
                  "timed out after 60 s");
    snprintf(file, sizeof file, "%s/gpu", folder);
    int lock;
    assert_int_equal(
        qm_gpu_report_name(file, "NVIDIA Test 9000", "exact,speed", path, sizeof path, &lock),
        QM_OK);
    assert_non_null(strstr(path, "/gpu/nvidia-test-9000-exact-speed-20"));
    if (qm_gpu_report_write(&r, path, 1, argv) != QM_OK)
        fail_msg("%s", qm_message());
    qm_gpu_report_unlock(path, lock);
    snprintf(file, sizeof file, "%s.md", path);
    FILE *f = fopen(file, "r");
    assert_non_null(f);
    int found = 0;
    while (fgets(line, sizeof line, f))
        found |= strstr(line, "| b | yes | nan | 7 | ok | no | x \\| y |") ? 1
                 : strstr(line, "| a | no |")                              ? 2
                                                                           : 0;
    fclose(f);
    assert_int_equal(found, 1); /* equal cases are counted */
    snprintf(file, sizeof file, "%s.h5", path);
    assert_int_equal(qm_result_open(file, &h5), QM_OK);
    assert_string_equal(qm_result_kind(h5), "gpu");
    assert_int_equal(qm_result_f64(h5, "/gpu/speed", "rate", &rows, &rate), QM_OK);
    assert_int_equal(rows, 2);
    assert_true(rate[0] == 2.5e9 && rate[1] != rate[1]);
    assert_int_equal(qm_result_texts(h5, "/gpu/exact", "variant", &rows, &names), QM_OK);
    assert_string_equal(names[1], "b");
    free(rate);
    free(names);
    qm_result_close(h5);
    assert_int_equal(qm_gpu_report_read(file, &back), QM_BAD_FILE); /* its plan has no commit */
    assert_non_null(strstr(qm_message(), "contradicts itself: the commit of its plan"));
    qm_gpu_report_free(&r);
    assert_int_equal(qm_gpu_report_read("results/baseline.h5", &back), QM_BAD_FILE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_curand),      cmocka_unit_test(test_draw_four),
        cmocka_unit_test(test_compile),     cmocka_unit_test(test_report),
        cmocka_unit_test(test_cache),       cmocka_unit_test(test_cache_race),
        cmocka_unit_test(test_report_file), cmocka_unit_test(test_reader),
    };
    return cmocka_run_group_tests(tests, cache_open, cache_close);
}
