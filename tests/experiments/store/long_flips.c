/* long_flips.c - 2000 flipped bits of a result file, with and without its checksum line.
 *
 *     long_flips [SEED]
 *
 * Each file is refused, or has the same digest, or a note says that its digest is another. */
#include "tests/support/result_sample.h"

#include "tests/support/flipped_file.h"

static uint64_t seed = 1;

static void flips_are_seen(void **state)
{
    (void)state;
    flip_bits(2000, 0, seed);
    flip_bits(2000, 1, seed);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(flips_are_seen)};
    if (argc > 1)
        seed = strtoull(argv[1], NULL, 10);
    return cmocka_run_group_tests(tests, setup, teardown);
}
