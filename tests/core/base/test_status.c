/* test_status.c - Tests the message that a failure leaves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/status.h"

/* The message of an earlier failure may be an argument of the next one's. */
static void message_within_a_message(void **state)
{
    (void)state;
    assert_int_equal(qm_fail(QM_BAD_FILE, "%s: ends after %d bytes", "a.npy", 12), QM_BAD_FILE);
    assert_int_equal(qm_fail(QM_BAD_ARG, "case 3: %s", qm_message()), QM_BAD_ARG);
    assert_string_equal(qm_message(), "case 3: a.npy: ends after 12 bytes");
    assert_int_equal(qm_fail_in(QM_BAD_ARG, "--against"), QM_BAD_ARG);
    assert_string_equal(qm_message(), "--against: case 3: a.npy: ends after 12 bytes");
}

/* Of a message that is too long the first bytes are kept. */
static void long_message(void **state)
{
    char long_text[3000];
    (void)state;
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    assert_int_equal(qm_fail(QM_BAD_ARG, "%s", long_text), QM_BAD_ARG);
    assert_int_equal(strlen(qm_message()), QM_MESSAGE_BYTES - 1);
    assert_int_equal(strspn(qm_message(), "x"), QM_MESSAGE_BYTES - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(message_within_a_message),
        cmocka_unit_test(long_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
