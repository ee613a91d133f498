/* test_sha256.c - Tests SHA-256 on the vectors of FIPS 180-4 and NIST's CAVP. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/sha256.h"

static void published_vectors(void **state)
{
    static const char *const pair[][2] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrl"
         "mnopqrsmnopqrstnopqrstu",
         "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
    };
    char hash[65];
    (void)state;
    for (size_t i = 0; i < sizeof pair / sizeof *pair; i++) {
        qm_sha256_of(pair[i][0], strlen(pair[i][0]), hash);
        assert_string_equal(hash, pair[i][1]);
    }
}

static void million_letters(void **state)
{
    char hash[65], *a = malloc(1000000);
    (void)state;
    assert_non_null(a);
    memset(a, 'a', 1000000);
    qm_sha256_of(a, 1000000, hash);
    assert_string_equal(hash, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    free(a);
}

/* The hash of every length from 0 to 200 bytes does not depend on where the data are cut in two. */
static void pieces(void **state)
{
    char data[200], whole[65], cut[65];
    (void)state;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (char)(i * 37 + 11);
    for (size_t n = 0; n <= sizeof data; n++) {
        qm_sha256_of(data, n, whole);
        for (size_t at = 0; at <= n; at++) {
            struct qm_sha256 h;
            qm_sha256_start(&h);
            qm_sha256_add(&h, data, at);
            qm_sha256_add(&h, data + at, n - at);
            qm_sha256_hex(&h, cut);
            assert_string_equal(whole, cut);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_vectors),
        cmocka_unit_test(million_letters),
        cmocka_unit_test(pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
