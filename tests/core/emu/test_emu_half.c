/* test_emu_half.c - Pairs of half and of bfloat16 against their definitions: each row of
 * tests/emu/pairs.cu, whose macros must not meet the layer's names. */
#include <math.h>

#include "core/base/half.h"
#include "tests/support/emulated.h"

static float x_of(int i) { return (float)(i * i % 37 - 11) * 1.0009765f; }

static float rounded(double v, int is_half)
{
    float f =
        (float)v; /* every sum and product here is exact in a double, and in the float nearly */
    if ((double)f != v) {
        uint32_t u = qm_bits(f);
        u -= fabs((double)f) > fabs(v);
        f = qm_float(u | 1u);
    }
    return is_half ? qm_f16_to_float(qm_float_to_f16(f)) : qm_bf16_to_float(qm_float_to_bf16(f));
}

static float common(int row, const float p[2], const float q[2], int h)
{
    double a = (double)p[0], b = (double)p[1], c = (double)q[0], d = (double)q[1];
    switch (row) {
    case 0: return rounded(a * c + a, h) + 2048.0f * rounded(b * d + d, h);
    case 1: return rounded((double)rounded(a + c, h) * a, h) - rounded(b - d, h);
    case 2: return rounded(a / (double)rounded(c + c, h), h) + rounded(sqrt(fabs(b)), h);
    case 3: return fmaxf(p[0], q[0]) + 64.0f * fminf(-p[1], q[1]);
    case 4: return (float)(a < c) + 2.0f * (float)(a <= c && b <= d) + 4.0f;
    case 5: return fminf(fmaxf(rounded(a + c, h), 0.0f), 1.0f) + fmaxf(rounded(b * d + b, h), 0.0f);
    default: return p[1] + rounded(b + d, h);
    }
}

/* The neighbour of a half, away from zero where is_up. */
static float half_beside(float half, int is_up)
{
    uint16_t u = qm_float_to_f16(half);
    return qm_f16_to_float((uint16_t)(is_up ? u + 1 : u - 1));
}

static float want(int row, int i)
{
    float x = x_of(i), y = x_of(i + 1);
    float h[2] = {rounded((double)x, 1), rounded((double)y, 1)}, k[2] = {h[1], h[0]};
    float g[2] = {rounded((double)x, 0), rounded((double)y, 0)}, m[2] = {g[1], g[0]};
    float away = fabsf(h[0]) >= fabsf(x) ? h[0] : half_beside(h[0], 1);
    float toward = fabsf(h[0]) <= fabsf(x) ? h[0] : half_beside(h[0], 0);
    switch (row) {
    case 14: return h[0] + 1024.0f * k[1];
    case 15: return g[1] + 1024.0f * m[1];
    case 16: return x < 0.0f ? away - toward : toward - away;
    case 17: return qm_float(qm_bits(y) & 0xffff0000u);
    case 18: return floorf(h[0]) + fmaxf(truncf(g[1]), 0.0f);
    case 19: return 2016.0f + 1024.0f * 64.0f;
    default: return row < 7 ? common(row, h, k, 1) : common(row - 7, g, m, 0);
    }
}

static void pairs(void **state)
{
    enum { ROWS = 20 };
    struct qm_kernel_file *k;
    char *text = file_text("tests/emu/pairs.cu");
    float *p;
    (void)state;
    if (build(text, &k) != QM_OK || steps(k, NULL, 64 * ROWS, 1, &p) != QM_OK)
        fail_msg("%s", qm_message());
    for (int row = 0; row < ROWS; row++)
        for (int i = 0; i < 64; i++)
            if (p[64 * row + i] != want(row, i))
                fail_msg("row %d, thread %d: %a, want %a", row, i, (double)p[64 * row + i],
                         (double)want(row, i));
    free(p);
    free(text);
    qm_kernel_file_close(k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(pairs)};
    if (system("c++ --version >/dev/null 2>&1") != 0) { /* NOLINT */
        puts("SKIP: no C++ compiler (c++)");
        return 77;
    }
    return cmocka_run_group_tests(tests, open_folder, close_folder);
}
