/* test_cuda_driver.c - Tests the host's side of backend cuda without a GPU.
 *
 * Stand-ins for the driver and NVRTC hand the kernels to the emulator.  They cannot show what a GPU
 * computes. */
#include "tests/support/device_compare.h"

#include <time.h>

#include "core/cuda/cuda_load.h"
#include "core/device/device_cuda.h"

/* ---- NVRTC: its binary is the text of step_recipe.h ------------------------------------------ */

static char *recipe;
static int compiles;

static int rtc_Version(int *major, int *minor)
{
    *major = 13;
    *minor = 0;
    return 0;
}

static int rtc_CreateProgram(void **program, const char *text, const char *name, int n,
                             const char *const *texts, const char *const *names)
{
    assert_non_null(strstr(text, "qm_step"));
    assert_string_equal(name, "step.cu");
    free(recipe);
    recipe = NULL;
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], "step_recipe.h") == 0)
            recipe = strdup(texts[i]);
    assert_non_null(recipe);
    *program = &recipe;
    return 0;
}

static int rtc_DestroyProgram(void **program)
{
    *program = NULL;
    return 0;
}

static int rtc_CompileProgram(void *program, int n, const char *const *options)
{
    (void)program;
    assert_string_equal(options[0], "--gpu-architecture=sm_90");
    assert_true(n > 3);
    compiles++;
    return 0;
}

static int rtc_GetCUBINSize(void *program, size_t *size)
{
    (void)program;
    *size = strlen(recipe) + 1;
    return 0;
}

static int rtc_GetCUBIN(void *program, char *out)
{
    (void)program;
    strcpy(out, recipe);
    return 0;
}

static int rtc_GetPTXSize(void *program, size_t *size) { return rtc_GetCUBINSize(program, size); }
static int rtc_GetPTX(void *program, char *out) { return rtc_GetCUBIN(program, out); }

static const char log_text[] =
    "ptxas info    : Function properties for qm_step\n"
    "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
    "ptxas info    : Used 40 registers, used 1 barriers, 140 bytes smem\n";

static int rtc_GetProgramLogSize(void *program, size_t *size)
{
    (void)program;
    *size = sizeof log_text;
    return 0;
}

static int rtc_GetProgramLog(void *program, char *out)
{
    (void)program;
    strcpy(out, log_text);
    return 0;
}

static int rtc_GetNumArchs(int *n)
{
    *n = 2;
    return 0;
}

static int rtc_GetArchs(int *archs)
{
    archs[0] = 80;
    archs[1] = 90;
    return 0;
}

static void *rtc_symbol(const char *name)
{
    static const struct {
        const char *name;
        void (*f)(void);
    } table[] = {
#define F(exported, f) {exported, (void (*)(void))f}
        F("nvrtcVersion", rtc_Version),
        F("nvrtcCreateProgram", rtc_CreateProgram),
        F("nvrtcDestroyProgram", rtc_DestroyProgram),
        F("nvrtcCompileProgram", rtc_CompileProgram),
        F("nvrtcGetCUBINSize", rtc_GetCUBINSize),
        F("nvrtcGetCUBIN", rtc_GetCUBIN),
        F("nvrtcGetPTXSize", rtc_GetPTXSize),
        F("nvrtcGetPTX", rtc_GetPTX),
        F("nvrtcGetProgramLogSize", rtc_GetProgramLogSize),
        F("nvrtcGetProgramLog", rtc_GetProgramLog),
        F("nvrtcGetNumSupportedArchs", rtc_GetNumArchs),
        F("nvrtcGetSupportedArchs", rtc_GetArchs),
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(name, table[i].name) == 0) {
            void *at;
            memcpy(&at, &table[i].f, sizeof at);
            return at;
        }
    return NULL;
}

/* ---- the driver ------------------------------------------------------------------------------ */

static int fail_next_alloc, fail_next_launch;
static int64_t allocated, launches;
static char nothing[16];

struct function {
    void *module;
    enum qm_step_kernel kernel;
};
enum { FUNCTIONS = 8192 };
static struct function functions[FUNCTIONS];
static int n_functions;

static int cu_Init(unsigned flags) { return flags ? 1 : 0; }
static int cu_DriverGetVersion(int *version)
{
    *version = 13000;
    return 0;
}
static int cu_DeviceGetCount(int *count)
{
    *count = 1;
    return 0;
}
static int cu_DeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return ordinal ? 101 : 0;
}
static int cu_DeviceGetName(char *name, int size, int device)
{
    (void)device;
    snprintf(name, (size_t)size, "Stand-in");
    return 0;
}
static int cu_DeviceGetAttribute(int *value, int attribute, int device)
{
    (void)device;
    *value = attribute == QM_CU_SM_COUNT         ? 4
             : attribute == QM_CU_L2_BYTES       ? 4096
             : attribute == QM_CU_THREADS_PER_SM ? 2048
             : attribute == QM_CU_MAJOR          ? 9
                                                 : 0;
    return 0;
}
static int cu_DeviceGetPCIBusId(char *id, int size, int device)
{
    (void)device;
    snprintf(id, (size_t)size, "0000:00:00.0");
    return 0;
}
static int cu_DeviceTotalMem(size_t *bytes, int device)
{
    (void)device;
    *bytes = (size_t)1 << 30;
    return 0;
}
static int cu_DevicePrimaryCtxRetain(void **context, int device)
{
    (void)device;
    *context = nothing;
    return 0;
}
static int cu_DevicePrimaryCtxRelease(int device)
{
    (void)device;
    return 0;
}
static int cu_CtxSetCurrent(void *context) { return context == nothing ? 0 : 201; }
static int cu_CtxSynchronize(void) { return 0; }
static int cu_MemAlloc(qm_device_pointer *at, size_t bytes)
{
    if (fail_next_alloc && fail_next_alloc-- == 1)
        return 2;
    allocated++;
    return qm_device_emu.reserve(bytes, at) == QM_OK ? 0 : 2;
}
static int cu_MemFree(qm_device_pointer at)
{
    allocated--;
    qm_device_emu.release(at);
    return 0;
}
static int cu_MemGetInfo(size_t *left, size_t *total)
{
    *left = *total = (size_t)1 << 30;
    return 0;
}
static int cu_MemcpyHtoDAsync(qm_device_pointer to, const void *from, size_t bytes, void *stream)
{
    (void)stream;
    return qm_device_emu.put(to, from, bytes) == QM_OK ? 0 : 1;
}
static int cu_MemcpyDtoHAsync(void *to, qm_device_pointer from, size_t bytes, void *stream)
{
    (void)stream;
    return qm_device_emu.get(to, from, bytes) == QM_OK ? 0 : 1;
}
static int cu_MemcpyDtoDAsync(qm_device_pointer to, qm_device_pointer from, size_t bytes,
                              void *stream)
{
    (void)stream;
    memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
    return 0;
}
static int cu_MemsetD8Async(qm_device_pointer at, unsigned char value, size_t bytes, void *stream)
{
    (void)stream;
    memset((void *)(uintptr_t)at, value, bytes);
    return 0;
}
static int cu_ModuleLoadData(void **module, const void *image)
{
    return qm_emu_load_text(image, QM_MODE_exact, module) == QM_OK ? 0 : 209;
}
static int cu_ModuleUnload(void *module)
{
    (void)module;
    return 0;
}
static int cu_ModuleGetFunction(void **function, void *module, const char *name)
{
    for (int k = 0; k < QM_STEP_KERNELS; k++)
        if (strcmp(name, qm_step_kernel_name((enum qm_step_kernel)k)) == 0) {
            assert_true(n_functions < FUNCTIONS);
            functions[n_functions] = (struct function){module, (enum qm_step_kernel)k};
            *function = &functions[n_functions++];
            return 0;
        }
    return 500;
}
static int cu_ModuleGetGlobal(qm_device_pointer *at, size_t *bytes, void *module, const char *name)
{
    (void)at, (void)bytes, (void)module, (void)name;
    return 500;
}
static int cu_FuncGetAttribute(int *value, int attribute, void *function)
{
    (void)attribute, (void)function;
    *value = 0;
    return 0;
}
#define XYZ(name) unsigned name##_x, unsigned name##_y, unsigned name##_z
static int cu_LaunchKernel(void *function, XYZ(grid), XYZ(block), unsigned shared, void *stream,
                           void **args, void **extra)
{
    const struct function *f = function;
    assert_int_equal(grid_z * block_y * block_z, 1);
    assert_int_equal(block_x, QM_STEP_THREADS);
    assert_true(!shared && stream && !extra && grid_x > 0 && grid_y > 0 && grid_y < 65536);
    launches++;
    if (fail_next_launch && fail_next_launch-- == 1)
        return 700;
    if (qm_device_emu.launch(f->module, f->kernel, grid_x, grid_y, args) != QM_OK)
        fail_msg("%s", qm_message());
    return 0;
}
static int cu_Occupancy(int *blocks, void *function, int threads, size_t shared)
{
    (void)function, (void)threads, (void)shared;
    *blocks = 4;
    return 0;
}
static int cu_StreamCreate(void **stream, unsigned flags)
{
    (void)flags;
    *stream = nothing + 1;
    return 0;
}
static int cu_StreamSynchronize(void *stream)
{
    (void)stream;
    return 0;
}
static int cu_StreamDestroy(void *stream)
{
    (void)stream;
    return 0;
}
static int cu_EventCreate(void **event, unsigned flags)
{
    (void)flags;
    *event = calloc(1, sizeof(struct timespec));
    return 0;
}
static int cu_EventRecord(void *event, void *stream)
{
    (void)stream;
    return clock_gettime(CLOCK_MONOTONIC, event);
}
static int cu_EventSynchronize(void *event)
{
    (void)event;
    return 0;
}
static int cu_EventElapsedTime(float *ms, void *from, void *to)
{
    const struct timespec *a = from, *b = to;
    *ms = 1e3f * (float)(b->tv_sec - a->tv_sec) + 1e-6f * (float)(b->tv_nsec - a->tv_nsec);
    return 0;
}
static int cu_EventDestroy(void *event)
{
    free(event);
    return 0;
}
static int cu_GetErrorName(int error, const char **name)
{
    *name = error == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_ILLEGAL_ADDRESS";
    return 0;
}
static int cu_GetErrorString(int error, const char **text)
{
    *text = error == 2 ? "out of memory" : "an illegal memory access was encountered";
    return 0;
}

static void *cu_symbol(const char *name)
{
    static const struct {
        const char *name;
        void (*f)(void);
    } table[] = {
#define X(member, exported, arguments) {exported, (void (*)(void))cu_##member},
        QM_CUDA_LIST(X)
#undef X
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(name, table[i].name) == 0) {
            void *at;
            memcpy(&at, &table[i].f, sizeof at);
            return at;
        }
    return NULL;
}

static int open_stand_ins(void **state)
{
    (void)state;
    setenv("QM_CACHE", "off", 1); /* an earlier run has filled it */
    qm_library_stand_in(QM_LIBRARY_cuda, cu_symbol);
    qm_library_stand_in(QM_LIBRARY_nvrtc, rtc_symbol);
    return 0;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void needs_compiler(void)
{
    if (qm_backend_emu.probe() != QM_OK)
        skip_because("%s", qm_message());
}

static void test_steps(void **state)
{
    static const char *const recipes[] = {"adamw4_ao", "adamw4_lpmm", "lion8_ecc8",
                                          "adamw_f32,param=bf16/stoch,grad=bf16"};
    static const struct qm_shape shapes[] = {{1, {0}}, {1, {1}}, {2, {61, 67}}, {1, {4100}}};
    struct qm_recipe r;
    char what[256];
    (void)state;
    needs_compiler();
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++)
        for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
            assert_int_equal(qm_recipe_parse(recipes[i], &r), QM_OK);
            if (qm_exact_compare(&qm_backend_cuda, &r, &shapes[k], STEPS, SEED, what,
                                 sizeof what) != QM_OK)
                fail_msg("%s: %s", recipes[i], qm_message());
            if (*what)
                fail_msg("%s: %s", recipes[i], what);
        }
    assert_true(launches > 0 && compiles > 0);
    assert_int_equal(allocated, 0); /* everything is freed */
}

/* Every error is a status that names the call and the recipe, and no memory stays allocated. */
static void test_errors(void **state)
{
    const struct qm_shape shape = {1, {5120}};
    static float p[5120], g[5120];
    struct qm_tensor pt = {p, QM_DTYPE_f32, shape}, gt = {g, QM_DTYPE_f32, shape};
    struct qm_recipe r;
    void *plan;
    (void)state;
    needs_compiler();
    assert_int_equal(qm_recipe_parse("adamw4_ao", &r), QM_OK);
    qm_status st = QM_NO_MEMORY;
    int k = 0;
    while (st != QM_OK) { /* each allocation fails once, in turn */
        fail_next_alloc = ++k;
        st = qm_backend_cuda.open(&r, &shape, 0, &plan);
        if (st == QM_OK)
            break;
        assert_int_equal(st, QM_NO_MEMORY);
        assert_non_null(strstr(qm_message(), "adamw4_ao"));
        assert_int_equal(allocated, 0);
    }
    fail_next_alloc = 0;
    assert_int_equal(k, 9); /* two slots of codes and scales, p, g, descriptors, chunks */
    fail_next_launch = 1;
    assert_int_equal(qm_backend_cuda.step(plan, &pt, &gt, 1, 0), QM_INTERNAL);
    assert_non_null(strstr(qm_message(), "qm_step: CUDA_ERROR_ILLEGAL_ADDRESS (700)"));
    assert_int_equal(qm_backend_cuda.step(plan, &pt, &gt, 0, 0), QM_BAD_ARG);
    pt.dtype = QM_DTYPE_bf16;
    assert_int_equal(qm_backend_cuda.step(plan, &pt, &gt, 1, 0), QM_BAD_ARG);
    qm_backend_cuda.close(plan);
    assert_int_equal(allocated, 0);
}

/* A gradient of another type than the recipe's is handled by kernels of its own. */
static void test_gradient_types(void **state)
{
    const struct qm_shape shape = {1, {300}};
    static float p[2][300], g[300];
    struct qm_recipe r;
    (void)state;
    needs_compiler();
    assert_int_equal(qm_recipe_parse("adamw_f32", &r), QM_OK);
    for (int k = 0; k < 2; k++) {
        const struct qm_backend *b = k ? &qm_backend_cuda : &qm_backend_cpu;
        void *plan;
        assert_int_equal(b->open(&r, &shape, 0, &plan), QM_OK);
        for (int64_t t = 1; t <= 3; t++) {
            static const enum qm_dtype types[] = {QM_DTYPE_bf16, QM_DTYPE_f32, QM_DTYPE_f16};
            struct qm_tensor pt = {p[k], QM_DTYPE_f32, shape}, gt = {g, types[t - 1], shape};
            qm_exact_gradient(SEED, t, 300, g);
            for (int i = 0; i < 300 && t != 2; i++)
                ((uint16_t *)(void *)g)[i] = (uint16_t)(i * 37 % 0x4000);
            assert_int_equal(b->step(plan, &pt, &gt, t, 0), QM_OK);
        }
        b->close(plan);
    }
    assert_memory_equal(p[0], p[1], sizeof p[0]);
}

/* A rehearsal of gpu-check's measurements and reports: they find what they need, and free
 * memory. */
static void test_speed(void **state)
{
    struct qm_speed s = {0};
    char folder[] = "/tmp/qm-gpu-XXXXXX", path[4096], command[64];
    char *argv[] = {(char *)(uintptr_t) "gpu-check"};
    (void)state;
    needs_compiler();
    if (qm_speed_measure("adamw4_lpmm", 8192, 2, &s) != QM_OK)
        fail_msg("%s", qm_message());
    assert_int_equal(json_array_size(s.rows), 2);
    assert_int_equal(json_array_size(s.tables), 3);
    json_t *row = json_array_get(s.rows, 0);
    assert_true(s.copy > 0.0 && json_real_value(json_object_get(row, "rate")) > 0.0);
    assert_int_equal(json_integer_value(json_object_get(row, "registers")), 40);
    assert_true(json_real_value(json_object_get(row, "occupancy")) == 0.5);
    /* p 2 x 4, g 2 x 4, exp_avg 2 x 0.5 + scales, exp_avg_sq 3 x 0.5 + scales */
    double bytes = json_real_value(json_object_get(row, "bytes_per_parameter"));
    assert_true(bytes > 18.5 && bytes < 22.7);
    assert_int_equal(allocated, 0);
    json_t *all = json_pack("{s:{s:s}, s:o, s:o}", "device", "name", "Stand-in", "speed", s.rows,
                            "tables", s.tables);
    assert_non_null(mkdtemp(folder));
    assert_int_equal(qm_gpu_report(folder, all, 1, argv, path, sizeof path), QM_OK);
    json_decref(all);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    assert_int_equal(system(command), 0);
}

/* Tensor rules are measured too: every launch of a step lies between the events, and the bytes are
 * those that a step must move. */
static void test_speed_of_whole(void **state)
{
    struct qm_speed s = {0};
    (void)state;
    needs_compiler();
    if (qm_speed_measure("adamw4_lpmm_factor", 8192, 2, &s) != QM_OK)
        fail_msg("%s", qm_message());
    assert_int_equal(json_array_size(s.rows), 2);
    json_t *row = json_array_get(s.rows, 0);
    int rounds = (int)json_integer_value(json_object_get(row, "rounds"));
    assert_in_range(rounds, 2, 8);
    assert_true(json_real_value(json_object_get(row, "seconds")) >=
                json_real_value(json_object_get(row, "least_seconds")));
    /* p both ways, g twice; codes and scales of exp_avg, two rows and 4096 columns: read twice,
     * written once */
    double want = 2 * 4 + 2 * 4 + 3 * (0.5 + 4.0 / 128) + 3 * 4 * (2 + 4096) / 8192.0;
    double bytes = json_real_value(json_object_get(row, "bytes_per_parameter"));
    assert_true(bytes > want - 1e-9 && bytes < want + 1e-9);
    assert_int_equal(allocated, 0);
    json_decref(s.rows);
    json_decref(s.tables);
    if (qm_speed_measure("apollo_f32", 8192, 1, &s) !=
        QM_OK) /* a recipe without a kernel is left out */
        fail_msg("%s", qm_message());
    assert_in_range(json_array_size(s.rows), 0, 2);
    json_decref(s.rows);
    json_decref(s.tables);
}

static json_t *ratio_of(json_t *rows, const char *mode, int tensors)
{
    json_t *row;
    size_t i;
    json_array_foreach(rows, i, row)
    {
        if (strcmp(json_string_value(json_object_get(row, "mode")), mode) == 0 &&
            json_integer_value(json_object_get(row, "tensors")) == tensors)
            return json_object_get(row, "ratio");
    }
    return NULL;
}

/* Comparison with others' optimizers: the sizes are sent to their program, its times come back as
 * ratios; an optimizer that is missing or cannot be compared has a reason, and a program that fails
 * is an error. */
static void test_peers(void **state)
{
    static const char command[] = "PYTHONPATH=tests/peers/fake /usr/bin/python3 "
                                  "tests/peers/peers.py --only torch";
    struct qm_speed s = {.n = 8192, .flush_bytes = 77, .rounds = 3};
    json_t *rows = json_array(), *skipped = json_array();
    (void)state;
    s.rows = json_pack("[{s:s, s:s, s:i, s:f}, {s:s, s:s, s:i, s:f}, {s:s, s:s, s:i, s:f}]",
                       "recipe", "adamw_f32", "mode", "exact", "elements", 8192, "seconds", 0.5,
                       "recipe", "adamw_f32", "mode", "fast", "elements", 8192, "seconds", 0.25,
                       "recipe", "adamw8_ao", "mode", "exact", "elements", 8192, "seconds", 1.0);
    s.tables =
        json_pack("[{s:s, s:s, s:s, s:i, s:i, s:f}, {s:s, s:s, s:s, s:i, s:i, s:f}]", "recipe",
                  "adamw_f32", "mode", "exact", "way", "one launch, tables in memory", "tensors",
                  100, "elements", 64, "seconds", 8.0, "recipe", "adamw_f32", "mode", "exact",
                  "way", "tables by value", "tensors", 100, "elements", 64, "seconds", 9.0);
    setenv("FAKE_SECONDS", "9 9 9 2 2 2 9 9 9 4", 1);
    setenv("PYTHONDONTWRITEBYTECODE", "1", 1);
    if (qm_peers_measure(command, &s, rows, skipped) != QM_OK)
        fail_msg("%s", qm_message());
    assert_int_equal(json_array_size(rows), 3);
    assert_true(json_real_value(ratio_of(rows, "exact", 1)) == 0.25);
    assert_true(json_real_value(ratio_of(rows, "fast", 1)) == 0.125);
    assert_true(json_real_value(ratio_of(rows, "exact", 100)) == 2.0);
    assert_int_equal(json_array_size(skipped), 2); /* torchao's two */

    s.n = 4096; /* a size that was not measured here */
    assert_int_equal(qm_peers_measure(command, &s, rows, skipped), QM_OK);
    assert_string_equal(json_string_value(json_object_get(json_array_get(skipped, 2), "reason")),
                        "1 tensors of 4096 elements: no time of adamw_f32");
    assert_int_equal(qm_peers_measure("false", &s, rows, skipped), QM_BAD_FILE);
    assert_non_null(strstr(qm_message(), "exit code 1, expected 0 or 77"));
    assert_int_equal(qm_peers_measure("echo no", &s, rows, skipped), QM_BAD_FILE);
    assert_non_null(strstr(qm_message(), "expected JSON"));
    json_decref(rows);
    json_decref(skipped);
    json_decref(s.rows);
    json_decref(s.tables);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps),          cmocka_unit_test(test_errors),
        cmocka_unit_test(test_gradient_types), cmocka_unit_test(test_speed),
        cmocka_unit_test(test_speed_of_whole), cmocka_unit_test(test_peers),
    };
    return cmocka_run_group_tests(tests, open_stand_ins, NULL);
}
