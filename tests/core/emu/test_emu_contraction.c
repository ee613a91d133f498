/* test_emu_contraction.c - Tests that the emulator contracts where nvcc does by default.
 *
 * What is expected of each row of tests/emu/contraction.cu is what nvcc 13.0 made of it for sm_90
 * (its PTX, and the FFMA, FMUL, FADD, DFMA, DMUL and DADD of the machine code): a product is
 * contracted where all its uses are sums; functions with a rounding mode are not contracted, and
 * are no use of a product that stands beside them with the same operands. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/compile/kernel_build.h"
#include "core/user_kernel/backend_file.h"
#include "tests/support/random_floats.h"

enum { WIDTH = 64, INPUTS = 4, ROWS = 20, N = WIDTH * ROWS, ROUNDS = 10 };

/* Row k of a, b, m, q; is_fused: with contraction. */
static float want(int k, const float *in, int is_fused)
{
    float a = in[0], b = in[1], m = in[2], q = in[3];
    double x = (double)a + 0x1p-30 * (double)b, y = (double)b - 0x1p-30 * (double)a;
    if (is_fused) { /* the arguments of x and y are contracted too, which their products show */
        x = fma(0x1p-30, (double)b, (double)a);
        y = fma(-0x1p-30, (double)a, (double)b);
    }
    switch (k) {
    case 4:
    case 12:
    case 18: return is_fused ? fmaf(a, b, m) : a * b + m;
    case 6:
    case 13:
    case 19: return is_fused ? fmaf(a, b, q) : a * b + q;
    case 5:
    case 16: return a * b;
    case 7:
    case 15:
    case 17: return a * b + m;
    case 8: return fmaf(a, b, m);
    case 9: return is_fused ? fmaf(a, b, -2.0f * q) : a * b - 2.0f * q;
    case 10: return is_fused ? (float)fma(x, y, -(x * y)) : 0.0f;
    case 14: return a * b + q;
    default: return 0.0f;
    }
}

/* Runs the kernel in a form; *fused: rows whose result differs from the other form's. */
static void check_form(enum qm_fmad form, int64_t *fused)
{
    char folder[] = "/tmp/qualm-test-XXXXXX", object[256], command[128];
    struct qm_shape shape = {1, {N}};
    struct qm_kernel_file *k;
    struct qm_recipe r;
    void *plan = NULL;
    static float p[N], g[N];
    float in[WIDTH][INPUTS];
    qm_fmad_use(form);
    assert_non_null(mkdtemp(folder));
    if (qm_kernel_file_build("tests/emu/contraction.cu", folder, object, sizeof object) != QM_OK)
        fail_msg("%s", qm_message());
    assert_int_equal(qm_kernel_file_open(object, &k), QM_OK);
    assert_int_equal(qm_recipe_parse("sgdm_f32", &r), QM_OK);
    qm_kernel_file_use(k);
    assert_int_equal(qm_backend_file.open(&r, &shape, 0, &plan), QM_OK);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < WIDTH; i++) {
            in[i][0] = 1.0f + (float)(random_word() % 8388608) * 0x1p-23f;
            in[i][1] = (random_word() % 2 ? 1.0f : -1.0f) *
                       (1.0f + (float)(random_word() % 8388608) * 0x1p-23f);
            in[i][2] = -(in[i][0] * in[i][1]);
            in[i][3] = (float)(random_word() % 16777216) * 0x1p-24f;
            for (int row = 0; row < ROWS; row++)
                p[WIDTH * row + i] = row < INPUTS ? in[i][row] : 0.0f;
        }
        struct qm_tensor tp = {p, QM_DTYPE_f32, shape}, tg = {g, QM_DTYPE_f32, shape};
        if (qm_backend_file.step(plan, &tp, &tg, 1 + round, 1) != QM_OK)
            fail_msg("%s", qm_message());
        for (int row = INPUTS; row < ROWS; row++)
            for (int i = 0; i < WIDTH; i++) {
                float w = want(row, in[i], form == QM_FMAD_true), got = p[WIDTH * row + i];
                if (qm_bits(w + 0.0f) != qm_bits(got + 0.0f))
                    fail_msg("%s, row %d: %a, want %a", qm_fmad_text(form), row, (double)got,
                             (double)w);
                *fused += w != want(row, in[i], 0);
            }
    }
    qm_backend_file.close(plan);
    qm_kernel_file_close(k);
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    assert_int_equal(system(command), 0);
}

static void contracts_where_nvcc_does(void **state)
{
    int64_t fused = 0;
    (void)state;
    if (qm_backend_emu.probe() != QM_OK) {
        print_message("skipped: %s\n", qm_message());
        skip();
    }
    check_form(QM_FMAD_false, &fused);
    assert_int_equal(fused, 0);
    if (!qm_fmad_emulated()) {
        print_message("skipped: no fused multiply-add on this processor\n");
        skip();
    }
    check_form(QM_FMAD_true, &fused);
    print_message("%lld results that contraction changes\n", (long long)fused);
    assert_true(fused > ROUNDS * WIDTH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(contracts_where_nvcc_does)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
