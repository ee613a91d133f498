/* test_schedule.c - Schedules of the learning rate and clipped gradients, against loops by hand. */
#include "tests/support/paired_cells.h"

#include <gsl/gsl_rng.h>

enum { SEED = 20261122, DRAWN = 60, N = 48 };

/* SGD with momentum on `quad` in double, as the key words say; returns the gap after the last
 * step, and how many gradients were clipped. */
static double by_hand(const char *args, int steps, int warmup, const char *schedule, double most,
                      double lr, int *clipped)
{
    const struct qm_problem *p;
    struct qm_shape shape[QM_PROBLEM_TENSORS];
    void *self;
    int n;
    double x[N], g[N], v[N] = {0};
    assert_int_equal(qm_problem_find("quad", &p), QM_OK);
    assert_int_equal(p->open(args, 1, &self, &n, shape), QM_OK);
    p->start(self, x);
    for (int i = 0; i < N; i++)
        x[i] = (double)(float)x[i];
    double floor_value = p->optimum(self), start = p->eval(self, x, 1, NULL) - floor_value;
    for (int t = 1; t <= steps; t++) {
        double norm = 0, rate = lr, rest = steps - warmup;
        if (t <= warmup)
            rate = lr * t / warmup;
        else if (strcmp(schedule, "linear") == 0)
            rate = lr * (1 - (t - 1 - warmup) / rest);
        else if (strcmp(schedule, "cosine") == 0)
            rate = lr * (1 + cos(3.14159265358979323846 * (t - 1 - warmup) / rest)) / 2;
        p->eval(self, x, t, g);
        for (int i = 0; i < N; i++)
            norm += g[i] * g[i];
        norm = sqrt(norm);
        double times = most > 0 && most / (norm + 1e-6) < 1 ? most / (norm + 1e-6) : 1;
        *clipped += times < 1;
        for (int i = 0; i < N; i++) {
            v[i] = 0.9 * v[i] + times * g[i];
            x[i] -= rate * v[i];
        }
    }
    double gap = (p->eval(self, x, 1, NULL) - floor_value) / start;
    p->close(self);
    return gap;
}

static void test_drawn(void **state)
{
    static const char *const schedules[] = {"constant", "linear", "cosine"};
    gsl_rng *rng = gsl_rng_alloc(gsl_rng_mt19937);
    int clipped = 0, steps_in_all = 0;
    (void)state;
    gsl_rng_set(rng, SEED);
    printf("schedules drawn with seed %d\n", SEED);
    for (int k = 0; k < DRAWN; k++) {
        struct paired_cells a;
        struct qm_results r;
        char text[512];
        int steps = 1 + (int)gsl_rng_uniform_int(rng, 60);
        int warmup =
            (int)gsl_rng_uniform_int(rng, 3) ? (int)gsl_rng_uniform_int(rng, (unsigned)steps) : 0;
        const char *schedule = schedules[gsl_rng_uniform_int(rng, 3)];
        double most = gsl_rng_uniform_int(rng, 2) ? 0.5 + 3 * gsl_rng_uniform(rng) : 0;
        snprintf(text, sizeof text,
                 "variant: sgdm_f32\nsource: \"problem:quad:n=48,cond=100,start=normal\"\n"
                 "coupling: closed\nlr: 0.05\nmomentum: 0.9\nweight_decay: 0\nsteps: %d\n"
                 "warmup: %d\nschedule: %s\nclip: %.17g\n",
                 steps, warmup, schedule, most);
        cells_of(text, &a);
        assert_int_equal(qm_results_run(a.s, a.r.cell, 1, 1, 0, NULL, &r), QM_OK);
        a.r = r;
        const double *x = r.outcome[0].value + qm_metric_count();
        double want =
            by_hand("n=48,cond=100,start=normal", steps, warmup, schedule, most, 0.05, &clipped);
        near_to(x[QM_EXTRA_twin_gap] / want, 1, 1e-9);
        near_to(x[QM_EXTRA_gap] / want, 1, 1e-3); /* the variant follows, in float32 */
        steps_in_all += steps;
        release(&a);
    }
    printf("%d of %d gradients were clipped\n", clipped, steps_in_all);
    assert_true(clipped > 50 && clipped < steps_in_all);
    gsl_rng_free(rng);
}

/* Words and numbers that are refused, and sources that have no schedule. */
static void test_words(void **state)
{
    struct paired_cells a;
    (void)state;
    cells_of("variant: adamw_f32\nsource: [\"problem:nqm:n=64\", \"dist:gauss\"]\n"
             "schedule: [constant, cosine]\nclip: [0, 1]\ncoupling: global\n",
             &a);
    assert_int_equal(a.r.n_cells, 8);
    for (int64_t i = 0; i < 8; i++) {
        const struct qm_cell *c = &a.r.cell[i];
        int training = c->schedule != 0 || c->clip > 0;
        assert_int_equal(c->reason != NULL, training && c->kind == QM_SOURCE_dist);
    }
    release(&a);
    static const char *const bad[] = {"schedule: step\n", "clip: -1\n", "clip: x\n"};
    for (int i = 0; i < 3; i++) {
        char text[256];
        struct qm_cell *cells;
        int64_t n;
        FILE *f = fopen(path, "w");
        snprintf(text, sizeof text, "variant: adamw_f32\nsource: \"problem:nqm\"\n%s", bad[i]);
        fputs(text, f);
        fclose(f);
        assert_int_equal(qm_suite_read(path, &a.s), QM_OK);
        assert_int_not_equal(qm_suite_cells(a.s, NULL, &cells, &n), QM_OK);
        assert_non_null(strstr(qm_message(), ":3:"));
        qm_suite_free(a.s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_drawn), cmocka_unit_test(test_words)};
    return cmocka_run_group_tests(tests, make_suite_file, remove_suite_file);
}
