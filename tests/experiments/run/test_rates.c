/* test_rates.c - The search for learning rates, and suites judged at the rates that it finds. */
#include "tests/support/paired_cells.h"

#include <gsl/gsl_randist.h>
#include <gsl/gsl_rng.h>

#include "experiments/protocol/tables.h"
#include "experiments/run/rate_file.h"
#include "experiments/suite/cell_id.h"
#include "experiments/suite/control_cells.h"

enum { SEED = 20261122, CURVES = 400 };

/* ---- the search ------------------------------------------------------------------------------ */

/* Runs a search on a curve of losses over k; returns how many rates it evaluated. */
static int search(struct qm_rate_unit *u, const double *curve, int centre, int reach)
{
    int k[QM_RATE_POINTS], evaluated = 0;
    qm_rate_unit_start(u, centre, reach);
    for (int n; (n = qm_rate_next(u, k)) > 0;)
        for (int i = 0; i < n; i++, evaluated++) {
            assert_true(isnan(u->point[QM_RATE_MOST + k[i]].loss)); /* no rate twice */
            u->point[QM_RATE_MOST + k[i]].loss = curve[QM_RATE_MOST + k[i]];
        }
    return evaluated;
}

/* On drawn curves, smooth and noisy, with plateaus and cliffs, the search ends where both
 * neighbours at a ratio of 10^(1/8) are known and no better; on curves with one minimum it finds
 * it; where the curve falls to the end of the range it says so. */
static void test_search(void **state)
{
    gsl_rng *rng = gsl_rng_alloc(gsl_rng_mt19937);
    int most = 0, edges = 0;
    (void)state;
    gsl_rng_set(rng, SEED);
    printf("curves drawn with seed %d\n", SEED);
    for (int trial = 0; trial < CURVES; trial++) {
        double curve[QM_RATE_POINTS], noise = trial % 2 ? 0.1 : 0;
        int at = (int)gsl_rng_uniform_int(rng, 89) - 44,
            cliff = at + (int)gsl_rng_uniform_int(rng, 12);
        int centre = trial % 3 ? 0 : (int)gsl_rng_uniform_int(rng, 61) - 30;
        for (int k = -QM_RATE_MOST; k <= QM_RATE_MOST; k++) {
            double x = fmax(fabs((double)(k - at)) - (trial % 5 == 4 ? 3 : 0), 0);
            curve[QM_RATE_MOST + k] =
                k > cliff ? 3 + 1e-3 * k : 0.02 * x * x + gsl_ran_gaussian(rng, noise);
        }
        struct qm_rate_unit u;
        int evaluated = search(&u, curve, centre, trial % 2 ? 8 : 4), best = u.best;
        most = evaluated > most ? evaluated : most;
        edges += u.is_edge;
        assert_int_equal(u.is_edge, abs(best) == QM_RATE_MOST);
        for (int side = -1; side <= 1; side += 2)
            if (abs(best + side) <= QM_RATE_MOST)
                assert_true(u.point[QM_RATE_MOST + best + side].loss >=
                            u.point[QM_RATE_MOST + best].loss);
        int lowest = at < -QM_RATE_MOST ? -QM_RATE_MOST : at > QM_RATE_MOST ? QM_RATE_MOST : at;
        if (noise == 0) /* one basin, perhaps flat at its bottom */
            assert_true(curve[QM_RATE_MOST + best] == curve[QM_RATE_MOST + lowest]);
    }
    printf("at most %d rates per search, %d of %d at an end\n", most, edges, CURVES);
    assert_true(most <= 35 && edges > 5 && edges < CURVES / 4);
    gsl_rng_free(rng);
}

/* ---- suites ---------------------------------------------------------------------------------- */

#define TWO                                                                      \
    "variant: adamw_f32\nexp_avg:\n  - nf4: \"nf4:4s/block:64/bisect/mid/hi\"\n" \
    "  - stoch: \"nf4:4s/block:64/bisect/stoch/hi\"\n"                           \
    "source: \"problem:nqm:n=256\"\nseed: 1..7\nsteps: 60\n"
#define RATE(recipe, number)                                                              \
    "  - [\"problem:nqm:n=256 instance=1 steps=60 warmup=0 decay_rank=0 adamw_f32" recipe \
    ",weight_decay=0\", " number "]\n"

static void run(struct paired_cells *a)
{
    struct qm_results r;
    if (qm_results_run(a->s, a->r.cell, a->r.n_cells, 1, 0, NULL, &r) != QM_OK)
        fail_msg("%s", qm_message());
    a->r = r;
}

/* The gap, late gap and log-gap area of the run of a label ("twin": of nf4's twin) at lr_scale and
 * seed, in a suite that lists its rates as lr_scale. */
static double plain_value(const struct paired_cells *a, int nf4, double scale, uint64_t seed,
                          enum qm_extra which)
{
    for (int64_t i = 0; i < a->r.n_cells; i++) {
        const struct qm_cell *c = &a->r.cell[i];
        if (qm_cell_value(a->s, c, qm_suite_axis(a->s, "exp_avg")) == !nf4 && c->seed == seed &&
            fabs(c->lr_scale / scale - 1) < 1e-12)
            return a->r.outcome[i].value[qm_metric_count() + which];
    }
    fail_msg("no run at %g", scale);
    return 0;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Best against best and same rate, from runs of a suite without tuned rates: the twin at 4 times
 * the problem's rate, nf4 at 4, stochastic rounding at half. */
static void test_best_against_best(void **state)
{
    struct paired_cells tuned, plain;
    struct qm_protocol *p;
    (void)state;
    cells_of(TWO "lr_scale: [0.5, 4]\ncoupling: closed\nweight_decay: 0\n", &plain);
    run(&plain);
    cells_of(TWO PAIRED "rates:\n" RATE("", "4") RATE(",exp_avg=nf4:4s/block:64/bisect/mid/hi", "4")
                 RATE(",exp_avg=nf4:4s/block:64/bisect/stoch/hi", "0.5"),
             &tuned);
    int own = 0;
    for (int64_t i = 0; i < tuned.r.n_cells; i++)
        own += tuned.r.cell[i].role == QM_CELL_own;
    assert_int_equal(own, 7); /* nf4 runs at the twin's rate anyway */
    run(&tuned);
    assert_int_equal(qm_protocol_make(&tuned.r, &p), QM_OK);
    int seen = 0;
    for (int64_t i = 0; i < p->n_verdicts; i++) {
        const struct qm_verdict_row *v = &p->verdict[i];
        int nf4 = strcmp(p->label.word[v->of.label], "nf4") == 0;
        if (qm_run_cell(p, qm_group_run(p, &v->of, 0))->role != QM_CELL_plain)
            continue;
        double best[7], same[7], late[7], area[7];
        for (int s = 0; s < 7; s++) {
            uint64_t seed = (uint64_t)s + 1;
            double rate = nf4 ? 4 : 0.5;
#define OF(scale, what) plain_value(&plain, nf4, scale, seed, QM_EXTRA_##what)
            best[s] = log10(OF(rate, gap) / OF(4, twin_gap));
            same[s] = log10(OF(4, gap) / OF(4, twin_gap));
            late[s] = log10(OF(rate, late_gap) / OF(4, twin_late_gap));
            area[s] = OF(rate, area) + OF(rate, twin_area) - OF(4, twin_area);
#undef OF
        }
        double *all[] = {best, late, area, same};
        for (int k = 0; k < 4; k++) { /* of seven numbers the least and the largest are left out */
            double mean = 0;
            qsort(all[k], 7, sizeof(double), by_size);
            for (int s = 1; s < 6; s++)
                mean += all[k][s] / 5;
            near_to(k < 3 ? v->by[k].d.mean : v->same[0].d.mean, mean, 1e-12);
        }
        assert_int_equal(v->rates, QM_RATES_best);
        assert_true(nf4 == (v->by[0].d.mean == v->same[0].d.mean));
        seen++;
    }
    assert_int_equal(seen, 2);
    const struct qm_contrast_row *c = &p->contrast[0];
    assert_int_equal(p->n_contrasts, 1);
    assert_int_equal(c->rates, QM_RATES_best);
    assert_true(c->by[0].d.mean != c->same[0].d.mean && c->by[0].d.n == 7);
    qm_protocol_free(p);
    release(&tuned);
    release(&plain);
}

/* What is tuned for other steps, another schedule, instance or recipe is not used and leaves the
 * plan; cells of a suite without rates keep their ids. */
static void test_not_tuned(void **state)
{
    static const struct {
        const char *change;
        enum qm_rates want;
    } cases[] = {{"", QM_RATES_same},
                 {"warmup: 5\n", QM_RATES_untuned},
                 {"instance: 2\n", QM_RATES_untuned},
                 {"decay_rank: 2\n", QM_RATES_untuned},
                 {"beta2: 0.99\n", QM_RATES_untuned},
                 {"lr_scale: [1, 2]\n", QM_RATES_same}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct paired_cells bare, a;
        char text[2048], id[2][QM_CELL_ID];
        snprintf(text, sizeof text, "%s%s", TWO PAIRED, cases[i].change);
        cells_of(text, &bare);
        snprintf(text, sizeof text, "%s%srates:\n%s", TWO PAIRED, cases[i].change, RATE("", "4"));
        cells_of(text, &a);
        qm_suite_prune_rates(a.s);
        assert_int_equal(a.s->n_rates, cases[i].want == QM_RATES_same);
        assert_int_equal(a.r.n_cells, bare.r.n_cells);
        for (int64_t k = 0; k < a.r.n_cells; k++) {
            qm_cell_id(bare.s, &bare.r.cell[k], id[0]);
            qm_cell_id(a.s, &a.r.cell[k], id[1]);
            assert_int_equal(strcmp(id[0], id[1]) == 0, cases[i].want == QM_RATES_untuned);
            assert_int_equal(a.r.cell[k].is_tuned, cases[i].want == QM_RATES_same);
        }
        release(&a);
        release(&bare);
    }
}

/* Of a contrast of a variant at a tuned rate with one for which none was tuned nothing is decided,
 * and no family counts it; where the suite sets the other rate itself it is asked for. */
static void test_uneven_contrast(void **state)
{
#define NF4 "exp_avg=nf4:4s/block:64/bisect/mid/hi"
    static const char text[] =
        "variant: [\"adamw_f32," NF4 "\", \"adamw_f32,%s," NF4 "\"]\n"
        "source: \"problem:nqm:n=256\"\nseed: 1..7\nsteps: 60\n" PAIRED "rates:\n" RATE("", "4");
    static const struct {
        const char *change;
        enum qm_rates want;
    } cases[] = {{"beta2=0.99", QM_RATES_uneven},
                 {"lr=1e-2", QM_RATES_uneven},
                 {"min_numel=0", QM_RATES_same}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct paired_cells a;
        struct qm_protocol *p;
        char suite[2048];
        int is_uneven = cases[i].want == QM_RATES_uneven;
        snprintf(suite, sizeof suite, text, cases[i].change);
        cells_of(suite, &a);
        run(&a);
        assert_int_equal(qm_protocol_make(&a.r, &p), QM_OK);
        assert_int_equal(p->n_contrasts, 1);
        const struct qm_contrast_row *c = p->contrast;
        assert_int_equal(c->rates, cases[i].want);
        for (int k = 0; k < QM_OUTCOME_COUNT; k++) {
            assert_int_equal(c->by[k].d.n, 7);
            assert_int_equal(c->by[k].verdict == QM_DECISION_uneven, is_uneven);
            assert_int_equal(c->same[k].verdict == QM_DECISION_uneven, is_uneven);
            assert_true(isnan(c->by[k].q));
        }
        for (int64_t k = 0; k < p->n_verdicts; k++) /* one run has one verdict at one rate */
            if (p->verdict[k].rates != QM_RATES_best)
                assert_memory_equal(p->verdict[k].by, p->verdict[k].same, sizeof p->verdict[k].by);
        qm_protocol_free(p);
        release(&a);
    }
#undef NF4
}

/* The curve in the file is that of the runs: at a few rates, the mean of log10 of the variant's
 * late gap over seeds, and its margin Student's t of two degrees times the standard error of the
 * differences with the lowest of the same three seeds.  The rate is the one within its margin that
 * is nearest to the centre. */
static void test_tuned_curve(void **state)
{
    enum { SEEDS = 3 };
    struct paired_cells a, plain;
    struct qm_rate_unit u = {0};
    const struct qm_rate_point *point = u.point + QM_RATE_MOST;
    (void)state;
    cells_of(TWO PAIRED, &a);
    u.like = &a.r.cell[0];
    u.recipe = u.like->recipe;
    qm_rate_unit_start(&u, 9, 8);
    assert_int_equal(qm_rates_search(a.s, &u, 1, 901, SEEDS, 1, NULL), QM_OK);
    assert_false(u.is_edge);
    assert_null(u.score);
    char text[512];
    snprintf(text, sizeof text,
             "variant: \"adamw_f32,exp_avg=nf4:4s/block:64/bisect/mid/hi\"\nsource: "
             "\"problem:nqm:n=256\"\nseed: [901, 902, 903]\nsteps: 60\nlr_scale: [%.17g, %.17g, "
             "%.17g]\ncoupling: closed\nweight_decay: 0\n",
             qm_rate_at(u.best), qm_rate_at(9), qm_rate_at(u.best + 1));
    cells_of(text, &plain);
    run(&plain);
    double score[3][SEEDS];
    for (int k = 0; k < 3; k++) /* lr_scale is the last axis */
        for (int s = 0; s < SEEDS; s++)
            score[k][s] =
                log10(plain.r.outcome[3 * s + k].value[qm_metric_count() + QM_EXTRA_late_gap]);
    for (int k = 0; k < 3; k++) {
        double mean = 0, off = 0, square = 0;
        int at = k == 0 ? u.best : k == 1 ? 9 : u.best + 1;
        for (int s = 0; s < SEEDS; s++) {
            mean += score[k][s] / SEEDS;
            off += (score[k][s] - score[0][s]) / SEEDS;
        }
        for (int s = 0; s < SEEDS; s++)
            square += pow(score[k][s] - score[0][s] - off, 2);
        near_to(point[at].loss, mean, 1e-5);
        near_to(1 + point[at].margin, 1 + 4.302652729911275 * sqrt(square / 2 / SEEDS), 1e-5);
        assert_true(point[u.best].loss <= point[at].loss);
        assert_true(k == 0 ? point[at].margin == 0 : point[at].margin > 0);
    }
    int want = u.best; /* a literal reading of what is chosen */
    for (int k = -QM_RATE_MOST; k <= QM_RATE_MOST; k++)
        if (!isnan(point[k].loss) && point[k].loss <= point[u.best].loss + point[k].margin &&
            abs(k - 9) < abs(want - 9))
            want = k;
    assert_int_equal(u.chosen, want);
    release(&plain);
    free(a.r.cell);
    qm_suite_free(a.s);
}

/* One search by drawn scores of 8 seeds: a parabola in k with its lowest at `shift`, noise that all
 * rates share and noise of each.  Returns the chosen rate; the twin's is k = 0. */
static int chosen_by(gsl_rng *rng, double shift, double noise, int *lowest)
{
    enum { REACH = 6, SEEDS = 8, N = 2 * REACH + 1 };
    double score[N][SEEDS];
    struct qm_rate_point point[N];
    for (int s = 0; s < SEEDS; s++) {
        double shared = gsl_ran_gaussian(rng, 1.0);
        for (int k = 0; k < N; k++)
            score[k][s] = 0.01 * pow(k - REACH - shift, 2) + shared + gsl_ran_gaussian(rng, noise);
    }
    *lowest = 0;
    for (int k = 0; k < N; k++) {
        point[k] = (struct qm_rate_point){qm_rate_at(k - REACH), 0, 0};
        for (int s = 0; s < SEEDS; s++)
            point[k].loss += score[k][s] / SEEDS;
        *lowest = point[k].loss < point[*lowest].loss ? k : *lowest;
    }
    for (int k = 0; k < N; k++) {
        double off = point[k].loss - point[*lowest].loss, square = 0;
        for (int s = 0; s < SEEDS; s++)
            square += pow(score[k][s] - score[*lowest][s] - off, 2);
        point[k].margin = 2.364624251592785 * sqrt(square / 7 / SEEDS);
    }
    *lowest -= REACH;
    int chosen = qm_rate_choose(point, N, 1.0);
    assert_true(abs(chosen - REACH) <= abs(*lowest)); /* never farther from the twin's */
    return chosen - REACH;
}

/* Where variant and twin have the same curve, noise gives the variant a rate of its own in less
 * than an eighth of the searches, though the lowest is another in a third; an optimum that is
 * really elsewhere is gone to. */
static void test_choice(void **state)
{
    gsl_rng *rng = gsl_rng_alloc(gsl_rng_mt19937);
    int own = 0, noisy = 0, moved = 0, lowest, trials = 400;
    (void)state;
    gsl_rng_set(rng, SEED + 1);
    for (int i = 0; i < trials; i++) {
        own += chosen_by(rng, 0, 0.05, &lowest) != 0;
        noisy += lowest != 0;
        moved += chosen_by(rng, 4, 0.02, &lowest) >= 2;
    }
    printf("of %d searches of equal curves %d chose a rate of their own (%d: the lowest was "
           "another); of %d of an optimum 4 steps away %d went at least half the way\n",
           trials, own, noisy, trials, moved);
    assert_true(own < trials / 8 && noisy > trials / 3 && moved > trials * 19 / 20);
    const struct qm_rate_point none[] = {{1, HUGE_VAL, 0}, {2, nan(""), 0}},
                               plain[] = {{0.5, 1, 0}, {1, 1.5, 0.5}, {2, 1, 0}};
    assert_int_equal(qm_rate_choose(none, 2, 1), -1);
    assert_int_equal(qm_rate_choose(plain, 3, 0), 0);
    assert_int_equal(qm_rate_choose(plain, 3, 1), 1);
    assert_int_equal(qm_rate_choose(plain, 3, 4), 2);
    gsl_rng_free(rng);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_search),      cmocka_unit_test(test_best_against_best),
        cmocka_unit_test(test_not_tuned),   cmocka_unit_test(test_uneven_contrast),
        cmocka_unit_test(test_tuned_curve), cmocka_unit_test(test_choice)};
    return cmocka_run_group_tests(tests, make_suite_file, remove_suite_file);
}
