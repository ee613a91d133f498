/* test_kernel_case.c - The decimals beside hexadecimal floats in the text of a finding. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "experiments/kernel/kernel_case.h"

static void test_decimals(void **state)
{
    (void)state;
    static const char *const set[][2] = {
        {"is 0x1.8p-1, code 3", "is 0x1.8p-1 = 0.75, code 3"},
        {"no number", "no number"},
        {"is 0x1.8p-1, want 0x1.8p-1", "is 0x1.8p-1 = 0.75, want 0x1.8p-1 = 0.75"},
        {"-0x1.4bf5bcp-3, want -0x1.4bf5b596f14ebp-3 within 3e-8", /* alike in 6 digits */
         "-0x1.4bf5bcp-3 = -0.1620898, want -0x1.4bf5b596f14ebp-3 = -0.1620897 within 3e-8"},
    };
    char out[256];
    for (size_t i = 0; i < sizeof set / sizeof *set; i++) {
        qm_decimal_text(set[i][0], out, sizeof out);
        assert_string_equal(out, set[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_decimals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
