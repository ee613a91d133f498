/* test_one_processor.c - Two threads that share one processor do not wait for each other in vain.
 *
 * The program pins itself to one processor after the OpenMP library has counted them, so that the
 * library believes each thread has its own, as on a machine with other work.  It compares processor
 * time, which spinning costs and other processes do not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/base/threads.h"
#include "core/recipe/backend.h"
#include "core/rule/tensor_rule.h"
#include "tests/support/drawn.h"

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- a count --------------------------------------------------------------------------------- */

enum { TURNS = 4000 };

static struct qm_count mine, theirs;
static int value; /* each thread adds 1 in its turn */

static void *other(void *none)
{
    for (uint32_t k = 1; k <= TURNS; k++) {
        qm_count_await(&mine, k, k, 2);
        value++;
        qm_count_raise(&theirs);
    }
    return none;
}

/* A wait that spins lasts a time slice of milliseconds here: 4000 of them are seconds. */
static void test_turns(void **state)
{
    (void)state;
    pthread_t thread;
    double start = cpu_seconds();
    assert_int_equal(pthread_create(&thread, NULL, other, NULL), 0);
    for (uint32_t k = 1; k <= TURNS; k++) {
        value++;
        qm_count_raise(&mine);
        qm_count_await(&theirs, k, k, 2);
        assert_int_equal(value, 2 * k);
    }
    pthread_join(thread, NULL);
    double spent = cpu_seconds() - start;
    if (spent > 2.0)
        fail_msg("%d turns took %.2f s of the processor", 2 * TURNS, spent);
}

/* A thread may sleep until more is done than it needs, and the count may pass 2^32: what was
 * reached before it passed is reached still.  A wait in vain ends the program by SIGALRM. */
static void test_count_wraps(void **state)
{
    (void)state;
    struct qm_count c = {.done = 0xfffffffeu};
    for (int k = 0; k < 4; k++)
        qm_count_raise(&c);
    alarm(20);
    qm_count_await(&c, 2, 0x70000000u, 1); /* each returns at once */
    qm_count_await(&c, 0xffffffffu, 0x70000000u, 1);
    qm_count_await(&c, 0x80000003u, 0x70000000u, 1); /* 2^31 - 1 behind */
    alarm(0);
    assert_int_equal(c.done, 2);
    assert_int_equal(c.asleep, 0);
}

/* ---- steps ----------------------------------------------------------------------------------- */

enum { ROWS = 384, COLS = 1024, STEPS = 3 };

static float p[ROWS * COLS], g[ROWS * COLS], first[ROWS * COLS];

/* Processor time of the steps of a recipe on some threads; *out gets the parameters. */
static double steps_seconds(const struct qm_recipe *r, int threads, float *out)
{
    struct qm_shape shape = {2, {ROWS, COLS}};
    void *plan;
    for (int i = 0; i < ROWS * COLS; i++) {
        out[i] = (float)(i % 1013 - 500) * 0x1p-9f;
        g[i] = (float)(i * 37 % 2003 - 1000) * 0x1p-12f;
    }
    omp_set_num_threads(threads);
    assert_int_equal(qm_backend_cpu.open(r, &shape, 0, &plan), QM_OK);
    struct qm_tensor at = {out, QM_DTYPE_f32, shape}, by = {g, QM_DTYPE_f32, shape};
    double seconds = 0.0;
    for (int t = 1; t <= STEPS + 1; t++) { /* the first one starts threads and touches memory */
        double start = cpu_seconds();
        assert_int_equal(qm_backend_cpu.step(plan, &at, &by, t, 1), QM_OK);
        seconds += t > 1 ? cpu_seconds() - start : 0.0;
    }
    qm_backend_cpu.close(plan);
    return seconds;
}

/* Steps with a projection take seconds for a matrix of this size. */
static int has_projection(const struct qm_recipe *r, const struct qm_shape *shape)
{
    struct qm_shape slot;
    for (int i = 0; i < r->rule->n_slots; i++) {
        qm_rule_slot_shape(r->rule, &r->hyper, i, shape, &slot);
        if (strcmp(r->rule->slot[i], "proj") == 0 && qm_shape_numel(&slot) > 0)
            return 1;
    }
    return 0;
}

/* Rules over whole tensors, whose threads meet many times a step.  Ten milliseconds are allowed for
 * starting threads; a time slice that is spun away at each meeting makes seconds. */
static void test_steps(void **state)
{
    (void)state;
    const struct qm_shape shape = {2, {ROWS, COLS}};
    int judged = 0, there = 0;
    for (int v = 0; v < qm_variant_count(); v++) {
        struct qm_recipe r;
        assert_int_equal(qm_recipe_parse(qm_variant_at(v)->name, &r), QM_OK);
        if (!r.rule->tensor || has_projection(&r, &shape) || r.param.format != QM_PARAM_f32 ||
            !is_one_drawn_in(4, there++))
            continue;
        double one = steps_seconds(&r, 1, first), two = steps_seconds(&r, 2, p);
        if (!(two <= 2.0 * one + 0.01))
            fail_msg("%s: %.3f s on two threads of one processor, %.3f s on one thread",
                     r.base->name, two, one);
        assert_memory_equal(p, first, sizeof p);
        if (getenv("VERBOSE"))
            printf("%-24s %.4f s, %.4f s on two threads\n", r.base->name, one, two);
        judged++;
    }
    assert_true(there > 8 && judged > 0);
}

/* ---- the processors of a process ------------------------------------------------------------ */

static void put(const char *folder, const char *name, const char *text)
{
    char path[512], command[600];
    snprintf(command, sizeof command, "mkdir -p '%s'", folder);
    assert_int_equal(system(command), 0);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static void test_quota(void **state)
{
    (void)state;
    char top[] = "/tmp/qualm-threads-XXXXXX", folder[256], list[256];
    assert_non_null(mkdtemp(top));
    snprintf(list, sizeof list, "%s/list", top);
    assert_true(qm_processors_quota(list, top) == 0.0); /* no list */
    put(top, "list", "0::/a/b\n");
    assert_true(qm_processors_quota(list, top) == 0.0); /* no such group */
    snprintf(folder, sizeof folder, "%s/a/b", top);
    put(folder, "cpu.max", "max 100000\n");
    assert_true(qm_processors_quota(list, top) == 0.0);
    put(folder, "cpu.max", "250000 100000\n");
    assert_true(qm_processors_quota(list, top) == 2.5);
    snprintf(folder, sizeof folder, "%s/a", top);
    put(folder, "cpu.max", "150000 100000\n"); /* of the group above */
    assert_true(qm_processors_quota(list, top) == 1.5);
    put(top, "list", "3:cpuset:/a/b\n0::/\n"); /* another controller, and the top */
    assert_true(qm_processors_quota(list, top) == 0.0);
    put(top, "list", "4:cpu,cpuacct:/job\n3:cpuset:/a/b\n0::/\n"); /* version 1 */
    snprintf(folder, sizeof folder, "%s/cpu,cpuacct/job", top);
    put(folder, "cpu.cfs_quota_us", "-1\n");
    put(folder, "cpu.cfs_period_us", "100000\n");
    assert_true(qm_processors_quota(list, top) == 0.0);
    put(folder, "cpu.cfs_quota_us", "75000\n");
    assert_true(qm_processors_quota(list, top) == 0.75);
    char command[300];
    snprintf(command, sizeof command, "rm -r '%s'", top);
    assert_int_equal(system(command), 0);
}

static void test_processors(void **state)
{
    (void)state;
    assert_int_equal(qm_processors_allowed(), 1); /* main pins the program */
    assert_true(qm_processors() >= 1);
}

int main(int argc, char **argv)
{
    (void)argc;
    if (getenv(
            "OMP_WAIT_POLICY")) { /* tests/run.sh sets it; here the program's own choice counts */
        unsetenv("OMP_WAIT_POLICY");
        execv("/proc/self/exe", argv);
    }
    (void)qm_processors();
    cpu_set_t allowed, one;
    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return 1;
    for (int k = 0; k < CPU_SETSIZE && !CPU_COUNT(&one); k++)
        if (CPU_ISSET(k, &allowed))
            CPU_SET(k, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0)
        return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_turns),
                                       cmocka_unit_test(test_count_wraps),
                                       cmocka_unit_test(test_steps), cmocka_unit_test(test_quota),
                                       cmocka_unit_test(test_processors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
