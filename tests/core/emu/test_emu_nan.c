/* test_emu_nan.c - Tests that float32 arithmetic makes NVIDIA's NaNs on the emulator.
 *
 * Every operation of tests/emu/nans.cu gives 0x7fffffff where its result is NaN and the C
 * operation's bits elsewhere; moves keep every bit. */
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

#include "core/emu/emu_nan.h"
#include "core/user_kernel/backend_file.h"
#include "tests/support/random_floats.h"

enum { WIDTH = 64, ROWS = 15, N = WIDTH * ROWS, ROUNDS = 40 };

/* The row's result; is_moved: all bits are kept, also a NaN's. */
static float want(int row, float a, float b, int *is_moved)
{
    *is_moved = row == 12 || row == 13;
    switch (row) {
    case 2: return a + b;
    case 3: return a - b;
    case 4: return a * b;
    case 5: return a / b;
    case 6: return sqrtf(a);
    case 7: return fmaf(a, b, 1.0f);
    case 8: return fmaxf(a, b);
    case 9: return fminf(a, b);
    case 10: return (float)((double)a + (double)b);
    case 11: return a * b;
    case 12: return b;
    case 13: return a;
    default: return a + b < 0.0f || qm_bits(a + b) == 0x80000000u ? -0.0f : 0.0f;
    }
}

static void check(const float *in, const float *out, int64_t *nans)
{
    for (int row = 2; row < ROWS; row++)
        for (int i = 0; i < WIDTH; i++) {
            int is_moved;
            float a = in[i], b = in[WIDTH + i], w = want(row, a, b, &is_moved);
            uint32_t got = qm_bits(out[WIDTH * row + i]);
            uint32_t bits = qm_isnan(w) && !is_moved ? 0x7fffffffu : qm_bits(w);
            int either = (row == 8 || row == 9) && a == 0.0f && b == 0.0f; /* zeros of two signs */
            *nans += bits == 0x7fffffffu;
            if (got != bits && !either)
                fail_msg("row %d of 0x%08x, 0x%08x: 0x%08x, want 0x%08x", row, qm_bits(a),
                         qm_bits(b), got, bits);
        }
}

static void arithmetic_makes_one_nan(void **state)
{
    char folder[] = "/tmp/qualm-test-XXXXXX", object[256], command[128];
    struct qm_shape shape = {1, {N}};
    struct qm_kernel_file *k;
    struct qm_recipe r;
    void *plan = NULL;
    static float p[N], in[N], g[N];
    int64_t nans = 0;
    (void)state;
    if (qm_backend_emu.probe() != QM_OK) {
        print_message("skipped: %s\n", qm_message());
        skip();
    }
    assert_non_null(mkdtemp(folder));
    if (qm_kernel_file_build("tests/emu/nans.cu", folder, object, sizeof object) != QM_OK)
        fail_msg("%s", qm_message());
    assert_int_equal(qm_kernel_file_open(object, &k), QM_OK);
    assert_int_equal(qm_recipe_parse("sgdm_f32", &r), QM_OK);
    qm_kernel_file_use(k);
    assert_int_equal(qm_backend_file.open(&r, &shape, 0, &plan), QM_OK);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < N; i++)
            in[i] = p[i] = random_float(1) * (random_word() % 4 ? 1.0f : 0x1p100f);
        struct qm_tensor tp = {p, QM_DTYPE_f32, shape}, tg = {g, QM_DTYPE_f32, shape};
        if (qm_backend_file.step(plan, &tp, &tg, 1 + round, 1) != QM_OK)
            fail_msg("%s", qm_message());
        check(in, p, &nans);
    }
    qm_backend_file.close(plan);
    qm_kernel_file_close(k);
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    assert_int_equal(system(command), 0);
    print_message("%lld NaN of %d results\n", (long long)nans, ROUNDS * (N - 2 * WIDTH));
    assert_true(nans > 1000);
}

/* What is changed in a text, and what is not. */
static void only_arithmetic_changes(void **state)
{
    static const struct {
        const char *line;
        int changes;
    } lines[] = {
        {"\taddss\t%xmm1, %xmm0\n", 1},      {"\tvmulss\t8(%rax,%rdx,4), %xmm1, %xmm15\n", 1},
        {"\tdivps\t.LC0(%rip), %xmm3\n", 1}, {"\tvfmadd231ss\t%xmm1, %xmm2, %xmm0\n", 1},
        {"\tcvtsd2ss\t%xmm0, %xmm0\n", 1},   {"\tcall\tfmaf@PLT\n", 1},
        {"\tcallq\tsqrtf@PLT\n", 1},         {"\taddsd\t%xmm1, %xmm0\n", 0},
        {"\tmovss\t%xmm1, %xmm0\n", 0},      {"\txorps\t%xmm1, %xmm0\n", 0},
        {"\tcvtss2sd\t%xmm0, %xmm0\n", 0},   {"\tucomiss\t%xmm1, %xmm0\n", 0},
        {"\tcall\tsqrt@PLT\n", 0},           {"addss:\n", 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        char *out = NULL;
        assert_int_equal(qm_emu_nans(lines[i].line, &out), QM_OK);
        assert_int_equal(strncmp(out, lines[i].line, strlen(lines[i].line)), 0);
        if ((strlen(out) > strlen(lines[i].line)) != lines[i].changes)
            fail_msg("'%s' becomes '%s'", lines[i].line, out);
        free(out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_arithmetic_changes),
        cmocka_unit_test(arithmetic_makes_one_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
