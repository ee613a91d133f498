/* test_late_waits.c - Tests that an honest device beside a late host gives figures, and that one
 * which shows less time gains nothing from its waits being late. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/drawn.h"
#include "tests/support/rehearsal.h"
#include "tests/support/stand_in_late.h"

#define SMALL "--only", "speed", "--size", "0.001", "--time-limit", "300", "--seconds", "0"

static uint64_t seed_of_run(void)
{
    const char *seed = getenv("QM_TEST_SEED");
    return seed ? strtoull(seed, NULL, 0) : 1;
}

/* A number between least and most, whose logarithm is drawn. */
static double drawn_between(double least, double most)
{
    return least * exp(late_draw() * log(most / least));
}

/* Device number i of those that are drawn. */
static void draw_device(uint64_t i)
{
    stand_in_late = (struct stand_in_late){.seed = 1000 * seed_of_run() + i};
    late_drawn = 0;
    late_end = 0.0;
    double read = drawn_between(2e-6, 8e-4), launch = drawn_between(1e-5, 5e-3),
           wait = late_draw() < 0.5 ? 0.0 : drawn_between(1e-5, 5e-3),
           more = drawn_between(1e-3, 1e-2);
    int often = (int)(3.0 * late_draw()); /* 1: every wait is late by a drawn time */
    stand_in_late.read = read;
    stand_in_late.launch = launch;
    stand_in_late.wait = wait;
    stand_in_late.more = more;
    stand_in_late.often = often;
    stand_in_late.jitter = late_draw() < 0.5 ? 0.02 : 0.3;
    stand_in_late.step = late_draw() < 0.5 ? 0.0 : 0.0005;
}

/* The wait_seconds of the first row of speed; 0: it has none. */
static double said_wait(void)
{
    struct qm_gpu_report r;
    read_report(&r);
    double wait =
        json_number_value(json_object_get(json_array_get(r.rows[QM_GPU_speed], 0), "wait_seconds"));
    qm_gpu_report_free(&r);
    return wait;
}

/* Whatever the device and its waits, and however few the rounds, each row has figures. */
static void test_honest(void **state)
{
    enum { DEVICES = 48 };
    static const char *const rounds[] = {"1", "2", "3", "6"};
    (void)state;
    NEEDS_COMPILER();
    for (int i = 0; i < DEVICES; i++) {
        if (!is_one_drawn_in(16, i))
            continue;
        clear();
        draw_device((uint64_t)i);
        int code = RUN("adamw_f32", SMALL, "--rounds", rounds[i / 3 % 4]);
        struct qm_gpu_report r;
        size_t by[4];
        read_report(&r);
        count(&r, by, printed, sizeof printed);
        qm_gpu_report_free(&r);
        if (code || by[QM_GPU_good] != 2)
            fail_msg("device %d: launch %g, read %g, wait %g s, one in %d %g s, %s rounds: exit "
                     "code %d, %zu good rows: %s",
                     i, stand_in_late.launch, stand_in_late.read, stand_in_late.wait,
                     stand_in_late.often, stand_in_late.more, rounds[i / 3 % 4], code,
                     by[QM_GPU_good], printed);
        if (stand_in_late.wait > 2e-4)
            assert_true(said_wait() > 0.0);
    }
}

/* Events that show less than there was, beside late waits, in all or in what is published alone. */
static void test_less(void **state)
{
    static const double waits[] = {0.0, 5e-4, 4e-3, 1.5e-2};
    static const float shares[] = {0.3f, 0.6f};
    (void)state;
    NEEDS_COMPILER();
    for (int i = 0; i < 16; i++) {
        if (!is_one_drawn_in(8, i))
            continue;
        float share = shares[i / 4 % 2];
        clear();
        stand_in_late = (struct stand_in_late){
            .launch = 1.5e-3, .read = 5e-5, .wait = waits[i % 4], .seed = (uint64_t)i};
        stand_in_card.quick = i < 8 ? share : 1.0f;
        stand_in_card.shift = i < 8 ? 0.0f : share;
        stand_in_card.is_hidden = i >= 8;
        int code = RUN("adamw_f32", SMALL, "--rounds", "2");
        stand_in_card.quick = 1.0f;
        stand_in_card.shift = 0.0f;
        stand_in_card.is_hidden = 0;
        if (code != 1)
            fail_msg("wait %g s, share %g, way %d: exit code %d: %s", waits[i % 4], (double)share,
                     i / 8, code, printed);
        expect_rows(0, 2, "failed: implausible: ");
    }
}

/* A wait is said where the device is late, and not where the host alone is, in one run of four. */
static void test_in_time(void **state)
{
    double said = 1.0;
    (void)state;
    NEEDS_COMPILER();
    for (int i = 0; i < 4 && said > 0.0; i++) {
        clear();
        stand_in_late = (struct stand_in_late){.launch = 1e-4, .read = 1e-5};
        assert_int_equal(RUN("adamw_f32", SMALL, "--rounds", "2"), 0);
        said = said_wait();
    }
    assert_true(said == 0.0);
}

/* Waits that are too late to hold any time against. */
static void test_too_late(void **state)
{
    (void)state;
    NEEDS_COMPILER();
    clear();
    stand_in_late = (struct stand_in_late){.launch = 1e-4, .read = 1e-5, .wait = 0.03};
    assert_int_equal(RUN("adamw_f32", SMALL, "--rounds", "2"), 1);
    expect_rows(0, 2, "failed: waits are late: two events with nothing between them take 3");
}

static int prepare_late(void **state)
{
    stand_in_be_late();
    return prepare(state);
}

int main(int argc, char **argv)
{
    if (argc > 1) /* the name of a test, or a pattern */
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_honest),
        cmocka_unit_test(test_less),
        cmocka_unit_test(test_in_time),
        cmocka_unit_test(test_too_late),
    };
    return cmocka_run_group_tests(tests, prepare_late, clean);
}
