/* test_cuda_sync.c - Tests under whose name a launch is reported that faults after it returned. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/compile/nvrtc.h"
#include "core/cuda/cuda_driver.h"
#include "core/cuda/cuda_load.h"
#include "core/device/device.h"
#include "core/recipe/recipe.h"

enum { ILLEGAL_ADDRESS = 700 };

static int launches, has_fault; /* has_fault: the last launch read what it may not */

static int ok(void) { return 0; }
static int one(int *count)
{
    *count = 1;
    return 0;
}
static int version(int *value)
{
    *value = 13000;
    return 0;
}
static int attribute(int *value, int attribute, int device)
{
    (void)device;
    *value = attribute == QM_CU_MAJOR ? 9 : attribute == QM_CU_SM_COUNT ? 1 : 0;
    return 0;
}
static int error_name(int error, const char **name)
{
    *name = error == ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "?";
    return 0;
}
static int launch(void)
{
    launches++;
    return 0;
}
static int synchronize(void *stream)
{
    (void)stream;
    return launches > 0 && has_fault ? ILLEGAL_ADDRESS : 0;
}

static void *symbol(const char *name)
{
    static const struct {
        const char *name;
        void (*function)(void);
    } own[] = {
        {"cuDeviceGetCount", (void (*)(void))one},
        {"cuDriverGetVersion", (void (*)(void))version},
        {"cuDeviceGetAttribute", (void (*)(void))attribute},
        {"cuGetErrorName", (void (*)(void))error_name},
        {"cuGetErrorString", (void (*)(void))error_name},
        {"cuLaunchKernel", (void (*)(void))launch},
        {"cuStreamSynchronize", (void (*)(void))synchronize},
    };
    void (*function)(void) = (void (*)(void))ok;
    void *at;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strcmp(own[i].name, name) == 0)
            function = own[i].function;
    memcpy(&at, &function, sizeof at);
    return at;
}

static void a_late_fault_names_its_launch(void **state)
{
    const struct qm_shape shape = {1, {4096}};
    struct qm_step_form *f = malloc(sizeof *f);
    struct qm_recipe r;
    void *module = NULL;
    (void)state;
    assert_non_null(f);
    assert_int_equal(qm_recipe_parse("adamw_f32", &r), QM_OK);
    assert_int_equal(qm_step_form(&r, &shape, QM_DTYPE_f32, f), QM_OK);
    assert_int_equal(qm_device_cuda.load(f, QM_MODE_exact, &module), QM_OK);

    has_fault = 0;
    assert_int_equal(qm_device_cuda.launch(module, QM_KERNEL_step, 1, 1, NULL), QM_OK);
    assert_int_equal(qm_device_cuda.sync(), QM_OK);

    has_fault = 1; /* asynchronous: the launch is queued, and a later call fails */
    assert_int_equal(qm_device_cuda.launch(module, QM_KERNEL_step, 1, 1, NULL), QM_OK);
    assert_int_equal(qm_device_cuda.sync(), QM_INTERNAL);
    assert_non_null(strstr(qm_message(), "cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS (700)"));
    assert_non_null(strstr(qm_message(), "QM_CUDA_SYNC=1 waits for each one"));

    setenv("QM_CUDA_SYNC", "1", 1);
    assert_int_equal(qm_device_cuda.launch(module, QM_KERNEL_step, 1, 1, NULL), QM_INTERNAL);
    assert_non_null(strstr(qm_message(), "qm_step: CUDA_ERROR_ILLEGAL_ADDRESS (700)"));
    assert_null(strstr(qm_message(), "earlier launch"));
    unsetenv("QM_CUDA_SYNC");
    free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_late_fault_names_its_launch)};
    qm_library_stand_in(QM_LIBRARY_cuda, symbol);
    if (qm_nvrtc_probe() != QM_OK) {
        print_message("SKIP: %s\n", qm_message());
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
