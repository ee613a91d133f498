/* test_protocol.c - Closed cells and their twins: the cache, gaps, peaks, equal runs, null pairs.
 *
 * `test_protocol all` makes 200 null comparisons of 16 seeds. */
#include "tests/support/paired_cells.h"

#include "experiments/lockstep/hitting_times.h"
#include "experiments/protocol/stats.h"

static int everything;

/* The hitting time of a level by its definition: the first step from which on `persistence` gaps
 * are at most the level's. */
static int64_t brute(const double *gap, const int64_t *step, int64_t n, int persistence,
                     int64_t level)
{
    for (int64_t k = 0; k + persistence <= n; k++) {
        int held = 1;
        for (int i = 0; i < persistence; i++)
            held &= gap[k + i] <= qm_level_gap(level);
        if (held)
            return step[k];
    }
    return -1;
}

/* ---- twins ----------------------------------------------------------------------------------- */

static void same_numbers(const char *what, const double *x, const double *y, int64_t n)
{
    if (memcmp(x, y, (size_t)n * sizeof *x) != 0)
        fail_msg("%s differ", what);
}

static void same_outcome(const struct qm_outcome *x, const struct qm_outcome *y)
{
    assert_int_equal(x->diverged, y->diverged);
    assert_int_equal(x->steps, y->steps);
    assert_int_equal(x->n_points, y->n_points);
    same_numbers("values", x->value, y->value, qm_value_count());
    for (int k = 0; k < QM_TRACK_COUNT; k++)
        same_numbers("curves", x->track[k], y->track[k], x->n_points);
    for (int k = 0; k < QM_HITS_COUNT; k++) {
        assert_int_equal(x->n_hits[k], y->n_hits[k]);
        same_numbers("hits", x->hits[k], y->hits[k], x->n_hits[k]);
    }
}

static void run_all(const struct paired_cells *a, struct qm_twin_cache *twins, int backwards,
                    struct qm_outcome *out)
{
    struct qm_metrics *m = qm_metrics_open(QM_METRICS_full);
    int64_t *order;
    assert_int_equal(qm_twin_order(a->r.cell, a->r.n_cells, &order), QM_OK);
    for (int64_t i = 0; i < a->r.n_cells; i++) {
        int64_t at = backwards ? a->r.n_cells - 1 - i : order[i];
        if (qm_lockstep_run(&a->r.cell[at], m, twins, NULL, &out[at]) != QM_OK)
            fail_msg("%s", qm_message());
        if (out[at].reason)
            fail_msg("%s", out[at].reason);
    }
    free(order);
    qm_metrics_close(m);
}

/* The bits are the same without a cache, with a large one, with one that holds a single twin, and
 * in another order of cells.  The cells include rules whose updates are measured in the parameter,
 * bfloat16 parameters (another start), minibatches (another loss interval), runs that diverge, and
 * points by step and by its logarithm. */
static void test_twins_kept(void **state)
{
    static const char *const suites[] = {
        "variant: [adamw4_ao, adamw8_ao_bf16sr, lion8_bnb, sgdm4_lpmm]\nseed: [1, 2]\nsteps: 60\n"
        "source: [\"problem:nqm:n=256\", \"problem:logreg:n=64,d=8,batch=8\"]\n"
        "lr_scale: [1, 2000]\n" PAIRED,
        "variant: [adamw4_lpmm, adamw_f32]\nsteps: 33\nevery: 7\n"
        "source: [\"problem:embed:rows=64,d=4,batch=4\", \"problem:rosen:n=8\"]\n" PAIRED};
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct paired_cells a;
        struct qm_twin_cache *large, *small;
        struct qm_outcome *out[4];
        cells_of(suites[k], &a);
        for (int i = 0; i < 4; i++)
            out[i] = calloc((size_t)a.r.n_cells, sizeof **out);
        assert_int_equal(qm_twin_cache_open(0, &large), QM_OK);
        assert_int_equal(qm_twin_cache_open(600000, &small), QM_OK);
        run_all(&a, NULL, 0, out[0]);
        run_all(&a, large, 0, out[1]);
        assert_true(qm_twin_hits(large) > a.r.n_cells / 3);
        run_all(&a, small, 1, out[2]);
        run_all(&a, large, 1, out[3]); /* the cache now has all twins */
        int diverged = 0;
        for (int64_t i = 0; i < a.r.n_cells; i++) {
            for (int j = 1; j < 4; j++)
                same_outcome(&out[0][i], &out[j][i]);
            diverged += out[0][i].diverged;
        }
        assert_true(k == 1 || diverged > 0);
        for (int j = 0; j < 4; j++) {
            for (int64_t i = 0; i < a.r.n_cells; i++)
                qm_outcome_free(&out[j][i]);
            free(out[j]);
        }
        qm_twin_cache_close(large);
        qm_twin_cache_close(small);
        release(&a);
    }
}

/* Gaps and hitting times of a closed cell against its curve, which has a point at every step. */
static void test_gaps(void **state)
{
    struct paired_cells a;
    (void)state;
    cells_of("variant: [adamw4_ao]\nsource: \"problem:nqm:n=256\"\nsteps: 50\nevery: 1\n"
             "coupling: closed\nexp_avg.min_numel: 0\nlr_scale: [1, 1e5]\n",
             &a);
    struct qm_outcome *o = calloc(2, sizeof *o);
    run_all(&a, NULL, 0, o);
    for (int i = 0; i < 2; i++) {
        const double *x = o[i].value + qm_metric_count();
        int64_t last = o[i].n_points - 1;
        double start = x[QM_EXTRA_start_gap], gap[51];
        int64_t step[51];
        assert_int_equal(o[i].diverged, i);
        assert_true(isfinite(x[QM_EXTRA_moved]) && isfinite(x[QM_EXTRA_twin_moved]));
        if (i) { /* diverged: the gap is 1000 */
            assert_true(x[QM_EXTRA_gap] == 1e3 && o[i].steps < 50);
            assert_true(isinf(x[QM_EXTRA_recovery]));
            continue;
        }
        assert_int_equal(last, 50);
        assert_true(x[QM_EXTRA_gap] == o[i].track[QM_TRACK_loss][last] / start);
        assert_true(x[QM_EXTRA_twin_gap] == o[i].track[QM_TRACK_twin_loss][last] / start);
        near_to(x[QM_EXTRA_log_gap], x[QM_EXTRA_loss_ratio], 1e-14);
        for (int k = 0; k <= 50; k++) {
            step[k] = k;
            gap[k] = k ? o[i].track[QM_TRACK_loss][k] / start : 1;
        }
        for (int64_t level = 0; level < 200; level++) {
            assert_int_equal(
                qm_hitting_times_step(o[i].hits[QM_HITS_hits], o[i].n_hits[QM_HITS_hits], level),
                brute(gap, step, 51, 1, level));
            assert_int_equal(qm_hitting_times_step(o[i].hits[QM_HITS_hits10],
                                                   o[i].n_hits[QM_HITS_hits10], level),
                             brute(gap, step, 51, 10, level));
        }
    }
    for (int i = 0; i < 2; i++)
        qm_outcome_free(&o[i]);
    free(o);
    release(&a);
}

/* A peak of 4 at step 2 that ends at step 8; the first of two peaks; a peak without recovery; equal
 * runs without a peak. */
static void test_peak(void **state)
{
    const double gap[] = {1, 0.8, 2, 1.04, 0.4, 1.2}, twin[] = {1, 0.8, 0.5, 0.5, 0.39, 0.3};
    const int64_t step[] = {0, 1, 2, 4, 8, 16};
    double recovery;
    (void)state;
    for (int64_t n = 5; n <= 6; n++) {
        assert_true(qm_gap_peak(gap, twin, step, n, &recovery) == log10(4));
        assert_true(recovery == 6);
    }
    assert_true(qm_gap_peak(gap, twin, step, 4, &recovery) == log10(4) && isinf(recovery));
    assert_true(qm_gap_peak(gap, gap, step, 6, &recovery) == 0 && recovery == 0);
    assert_true(qm_gap_peak(twin, gap, step, 6, &recovery) == 0 && recovery == 0);
}

/* Peak and recovery of an 8-bit variant after a spike, against its curve of every step. */
static void test_spiked(void **state)
{
    struct paired_cells a;
    struct qm_outcome o;
    int64_t at = 0, back;
    (void)state;
    cells_of("variant: adamw8_bnb_default\nexp_avg.min_numel: 0\nexp_avg_sq.min_numel: 0\nsource: "
             "\"problem:spike:at=50,times=1e4,base=quad:n=256,layout=dct,start=normal\"\n"
             "seed: 5\nsteps: 200\nevery: 1\ncoupling: closed\nweight_decay: 0\n",
             &a);
    run_all(&a, NULL, 0, &o);
    const double *x = o.value + qm_metric_count(), *loss = o.track[QM_TRACK_loss],
                 *twin = o.track[QM_TRACK_twin_loss];
    for (int64_t k = 1; k <= 200; k++)
        at = loss[k] / twin[k] > loss[at] / twin[at] ? k : at;
    for (back = at; back <= 200 && loss[back] > 1.05 * twin[back];)
        back++;
    assert_true(at >= 50 && back > at && back <= 200);
    near_to(x[QM_EXTRA_peak], log10(loss[at] / twin[at]), 1e-12);
    assert_true(x[QM_EXTRA_recovery] == (double)(back - at));
    qm_outcome_free(&o);
    release(&a);
}

/* With sums of few powers of two, which are exact in float and double, the variant equals its twin
 * to the bit.  All elements pass the minimum and come back, so that the largest distance from the
 * start is not the last one. */
static void test_equal_runs(void **state)
{
    struct paired_cells a;
    struct qm_outcome o;
    double p = 1, v = 0, moved = 0;
    (void)state;
    cells_of("variant: sgdm_f32\nsource: \"problem:quad:n=11,cond=1\"\nsteps: 8\nlr: 0.5\n"
             "momentum: 0.5\ncoupling: closed\nweight_decay: 0\n",
             &a);
    run_all(&a, NULL, 0, &o);
    for (int k = 0; k < 8; k++) {
        v = 0.5 * v + p;
        p -= 0.5 * v;
        moved = fmax(moved, fabs(p - 1));
    }
    const double *x = o.value + qm_metric_count();
    assert_true(x[QM_EXTRA_peak] == 0 && x[QM_EXTRA_recovery] == 0);
    assert_true(x[QM_EXTRA_moved] == moved && x[QM_EXTRA_twin_moved] == moved);
    assert_true(moved > fabs(p - 1));
    qm_outcome_free(&o);
    release(&a);
}

/* Exact Adam moves by lr in the first step, and in a spike at step t by at most and nearly
 * (1 - beta1) / sqrt(1 - beta2) lr, corrected for the bias of t steps. */
static void test_moved(void **state)
{
    struct paired_cells a;
    struct qm_outcome o[3];
    double moved[3];
    (void)state;
    cells_of(
        "variant: adamw_f32\nsource: \"problem:spike:at=300,times=1e4,base=quad:n=61,cond=10\"\n"
        "coupling: closed\nlr: 1e-3\nweight_decay: 0\nsteps: [1, 299, 300]\n",
        &a);
    run_all(&a, NULL, 0, o);
    for (int i = 0; i < 3; i++) {
        const double *x = o[i].value + qm_metric_count();
        moved[i] = x[QM_EXTRA_twin_moved];
        near_to(x[QM_EXTRA_moved], moved[i], 6e-8 * o[i].steps); /* roundings near 1 */
        qm_outcome_free(&o[i]);
    }
    double bc = sqrt(1 - pow(0.999, 300)) / (1 - pow(0.9, 300));
    double bound = 1e-3 * 0.1 / sqrt(0.001) * bc, spike = moved[2] - moved[1];
    near_to(moved[0], 1e-3, 1e-9);
    assert_true(spike <= 1.01 * bound && spike > 0.9 * bound);
    release(&a);
}

/* The twin against itself from a start one ulp off is near but not equal; variants with codes
 * are refused. */
static void test_ulp(void **state)
{
    struct paired_cells a;
    (void)state;
    cells_of("variant: [adamw_f32, lion_f32, sgdm_f32]\nstart: [problem, ulp]\nsteps: 20\n"
             "source: [\"problem:nqm:n=64\", \"problem:lowrank:n=16,p=8,q=8,init=0\"]\n"
             "coupling: closed\n",
             &a);
    struct qm_outcome *o = calloc((size_t)a.r.n_cells, sizeof *o);
    run_all(&a, NULL, 0, o);
    for (int64_t i = 0; i < a.r.n_cells; i++) {
        double d = o[i].value[qm_metric_count() + QM_EXTRA_log_gap];
        if (a.r.cell[i].start_ulp)
            assert_true(d != 0 && fabs(d) < 1e-3);
        qm_outcome_free(&o[i]);
    }
    free(o);
    release(&a);
    cells_of("variant: adamw4_ao\nstart: ulp\nsource: \"problem:nqm:n=64\"\ncoupling: closed\n",
             &a);
    assert_non_null(strstr(a.r.cell[0].reason, "float32"));
    release(&a);
}

/* Where gives_loss holds, the loss returned with a gradient equals the plotted one to the bit. */
static void test_losses_given(void **state)
{
    static const char *const args[][2] = {{"heavy", "base=nqm:n=64"},
                                          {"spike", "base=quad:n=64"},
                                          {"lowrank", "batch=0"},
                                          {"logreg", "batch=0"}};
    int given = 0;
    (void)state;
    for (int i = 0; i < qm_problem_count(); i++) {
        const struct qm_problem *p = qm_problem_at(i);
        struct qm_shape shape[QM_PROBLEM_TENSORS];
        const char *with = "";
        void *self;
        int n;
        int64_t total = 0;
        for (size_t k = 0; k < sizeof args / sizeof *args; k++)
            with = strcmp(args[k][0], p->name) == 0 ? args[k][1] : with;
        if (!p->gives_loss)
            continue;
        if (p->open(with, 3, &self, &n, shape) != QM_OK)
            fail_msg("%s", qm_message());
        assert_true(p->gives_loss(self));
        for (int k = 0; k < n; k++)
            total += qm_shape_numel(&shape[k]);
        double *x = calloc(2 * (size_t)total, sizeof *x), *g = x + total;
        p->start(self, x);
        for (int64_t t = 1; t <= 5; t++) {
            double alone = p->eval(self, x, t, NULL), with_gradient = p->eval(self, x, t, g);
            if (memcmp(&alone, &with_gradient, sizeof alone) != 0)
                fail_msg("%s: %a and %a", p->name, alone, with_gradient);
            for (int64_t k = 0; k < total; k++)
                x[k] -= 1e-3 * g[k];
        }
        given++;
        free(x);
        p->close(self);
    }
    assert_true(given >= 5);
}

/* ---- null comparisons ------------------------------------------------------------------------ */

/* A stochastic variant against itself with other draws of rounding, paired by data seed.  Judged
 * singly, one comparison in twenty may differ; judged as one family, hardly any.  The bound lies
 * four standard errors above these rates. */
static void test_null(void **state)
{
    int comparisons = everything ? 200 : 40, seeds = everything ? 16 : 8, alone = 0, family = 0;
    char text[1024];
    struct paired_cells a;
    (void)state;
    snprintf(text, sizeof text,
             "variant: adamw4_ao\nexp_avg: \"nf4:4s/block:64/bisect/stoch/hi\"\n"
             "exp_avg_sq: \"lin:4u/block:64/bisect/stoch/hi\"\n"
             "exp_avg.min_numel: 0\nexp_avg_sq.min_numel: 0\n"
             "source: \"problem:nqm:n=256\"\nseed: 1..%d\nrounding_seed: 1..%d\nsteps: 100\n"
             "every: 100\ncoupling: closed\n",
             seeds, 2 * comparisons);
    cells_of(text, &a);
    struct qm_outcome *o = calloc((size_t)a.r.n_cells, sizeof *o);
    double *p = calloc(2 * (size_t)comparisons, sizeof *p), *q = p + comparisons, spread = 0;
    struct qm_twin_cache *twins;
    assert_int_equal(qm_twin_cache_open(0, &twins), QM_OK);
    run_all(&a, twins, 0, o);
    struct qm_paired *x = calloc((size_t)comparisons, sizeof *x);
    for (int k = 0; k < comparisons; k++) {
        double d[16];
        for (int s = 0; s < seeds; s++) { /* the rounding seed is the last axis */
            const struct qm_outcome *one = &o[s * 2 * comparisons + 2 * k], *two = one + 1;
            d[s] = one->value[qm_metric_count() + QM_EXTRA_log_gap] -
                   two->value[qm_metric_count() + QM_EXTRA_log_gap];
            spread += d[s] * d[s];
        }
        assert_int_equal(qm_paired_make(d, seeds, &x[k]), QM_OK);
        p[k] = x[k].p;
    }
    assert_true(spread > 0); /* the draws do differ */
    assert_int_equal(qm_false_discovery(p, comparisons, q), QM_OK);
    for (int k = 0; k < comparisons; k++) {
        enum qm_decision one = qm_decide(&x[k], 1e-9, nan("")), all = qm_decide(&x[k], 1e-9, q[k]);
        alone += one == QM_DECISION_better || one == QM_DECISION_worse;
        family += all == QM_DECISION_better || all == QM_DECISION_worse;
    }
    if (everything)
        printf("%d null comparisons of %d seeds: %d differ alone (%.1f %%, nominal 5), %d as one "
               "family\n",
               comparisons, seeds, alone, 100.0 * alone / comparisons, family);
    assert_true(alone <= 0.05 * comparisons + 4 * sqrt(0.05 * 0.95 * comparisons));
    assert_true(family <= 0.05 * comparisons);
    for (int64_t i = 0; i < a.r.n_cells; i++)
        qm_outcome_free(&o[i]);
    free(x);
    free(p);
    free(o);
    qm_twin_cache_close(twins);
    release(&a);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_twins_kept), cmocka_unit_test(test_gaps),
        cmocka_unit_test(test_ulp),        cmocka_unit_test(test_peak),
        cmocka_unit_test(test_spiked),     cmocka_unit_test(test_equal_runs),
        cmocka_unit_test(test_moved),      cmocka_unit_test(test_losses_given),
        cmocka_unit_test(test_null),
    };
    everything = argc > 1 && strcmp(argv[1], "all") == 0;
    return cmocka_run_group_tests(tests, make_suite_file, remove_suite_file);
}
