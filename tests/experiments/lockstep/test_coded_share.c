/* test_coded_share.c - Runs whose states kept plain floats, in outcomes, verdicts and summaries. */
#include "tests/support/paired_cells.h"

#include <gsl/gsl_rng.h>

#include "experiments/lockstep/coded_share.h"
#include "experiments/protocol/tables.h"
#include "experiments/run/summary.h"

enum { SEED = 20261122, DRAWN = 30 };

static void run(struct paired_cells *a)
{
    struct qm_results r;
    if (qm_results_run(a->s, a->r.cell, a->r.n_cells, 1, 0, NULL, &r) != QM_OK)
        fail_msg("%s", qm_message());
    a->r = r;
}

/* nqm has one tensor of n elements: a slot keeps floats where n is below min_numel, or no multiple
 * of the block where whole_blocks is 1; bits of the state show the same. */
static void test_counts(void **state)
{
    gsl_rng *rng = gsl_rng_alloc(gsl_rng_mt19937);
    int plain = 0;
    (void)state;
    gsl_rng_set(rng, SEED);
    printf("sizes drawn with seed %d\n", SEED);
    for (int k = 0; k < DRAWN; k++) {
        struct paired_cells a;
        char text[512];
        int64_t n = 64 * (1 + (int64_t)gsl_rng_uniform_int(rng, 40)), block[2], least[2];
        n += gsl_rng_uniform_int(rng, 2);
        for (int s = 0; s < 2; s++) {
            block[s] = 64L << gsl_rng_uniform_int(rng, 4);
            least[s] = (int64_t)gsl_rng_uniform_int(rng, 4000);
        }
        int whole = (int)gsl_rng_uniform_int(rng, 2);
        snprintf(text, sizeof text,
                 "variant: \"adamw4_ao,whole_blocks=%d,exp_avg.norm=block:%d,"
                 "exp_avg_sq.norm=block:%d,exp_avg.min_numel=%d,exp_avg_sq.min_numel=%d\"\n"
                 "source: \"problem:nqm:n=%d\"\ncoupling: closed\nsteps: 1\n",
                 whole, (int)block[0], (int)block[1], (int)least[0], (int)least[1], (int)n);
        cells_of(text, &a);
        run(&a);
        const struct qm_outcome *o = &a.r.outcome[0];
        int64_t bytes = 0;
        for (int s = 0; s < 2; s++) {
            int is_plain = n < least[s] || (whole && n % block[s] != 0);
            int64_t blocks = (n + block[s] - 1) / block[s];
            assert_int_equal(o->wanted[s], n);
            assert_int_equal(o->uncoded[s], is_plain ? n : 0);
            bytes += is_plain ? 4 * n : (n + 1) / 2 + 4 * blocks;
            plain += is_plain;
        }
        near_to(o->bits, 8.0 * (double)bytes / (double)n, 1e-12);
        release(&a);
    }
    assert_true(plain > DRAWN / 4 && plain < 2 * DRAWN);
    gsl_rng_free(rng);
}

static const struct qm_verdict_row *verdict_of(const struct qm_protocol *p, const char *label)
{
    for (int64_t i = 0; i < p->n_verdicts; i++)
        if (strcmp(p->label.word[p->verdict[i].of.label], label) == 0)
            return &p->verdict[i];
    fail_msg("no verdict on '%s'", label);
    return NULL;
}

/* Blocks of 2048 do not fit the weight of `mlp`, 1024 elements: maps of the first moment are not
 * quantized, although the second moment is and the runs are equal; blocks of 64 fit it but not the
 * 16 output weights. */
static void test_verdicts(void **state)
{
    struct paired_cells a;
    struct qm_protocol *p;
    (void)state;
    cells_of("variant: adamw4_ao\nexp_avg_sq.min_numel: 0\nexp_avg.min_numel: 0\n"
             "exp_avg:\n  - dyn 2048: \"dyn:4s/block:2048/bisect/mid/lo\"\n"
             "  - nf4 2048: \"nf4:4s/block:2048/bisect/mid/lo\"\n"
             "  - nf4 64: \"nf4:4s/block:64/bisect/mid/lo\"\n  - f32: f32\n"
             "source: \"problem:mlp\"\nseed: 1..6\nsteps: 20\n" PAIRED,
             &a);
    run(&a);
    assert_int_equal(qm_protocol_make(&a.r, &p), QM_OK);
    const struct qm_verdict_row *dyn = verdict_of(p, "dyn 2048"), *nf4 = verdict_of(p, "nf4 2048"),
                                *fit = verdict_of(p, "nf4 64"), *f32 = verdict_of(p, "f32");
    assert_int_equal(dyn->by[0].verdict, QM_DECISION_plain);
    assert_int_equal(nf4->by[0].verdict, QM_DECISION_plain);
    assert_true(dyn->varied == 0.0 && dyn->coded > 0.4 && dyn->by[0].d.mean == nf4->by[0].d.mean);
    assert_true(isnan(dyn->by[0].q)); /* no part of the family */
    near_to(fit->varied, 1024 / 1040.0, 1e-15);
    assert_true(fit->by[0].verdict != QM_DECISION_plain && fit->by[0].d.mean != nf4->by[0].d.mean);
    assert_true(f32->varied != f32->varied || f32->by[0].verdict != QM_DECISION_plain);
    assert_true(dyn->bits > 32 && fit->bits < 16);
    qm_protocol_free(p);
    release(&a);
}

/* A median over tensors leaves those out that kept floats, and counts them. */
static void test_summary(void **state)
{
    struct paired_cells a;
    struct qm_summary *s;
    (void)state;
    cells_of("variant: adamw4_ao\nsource: [\"problem:nqm:n=4096\", \"problem:nqm:n=64\", "
             "\"problem:nqm:n=8192\"]\ncoupling: global\nsteps: 5\n"
             "summary: [{name: all, value: [sqnr, state0_sqnr]}]\n",
             &a);
    run(&a);
    assert_int_equal(qm_summary_make(&a.r, &a.s->summary[0], &s), QM_OK);
    int v = qm_value_find("sqnr");
    assert_int_equal(qm_summary_rows(s), 1);
    assert_int_equal(qm_summary_n(s, 0), 2);
    assert_int_equal(qm_summary_left_out(s, 0), 1);
    assert_true(a.r.outcome[1].value[v] > 100);
    near_to(qm_summary_value(s, 0, 0, 0), 0.5 * (a.r.outcome[0].value[v] + a.r.outcome[2].value[v]),
            1e-12);
    qm_summary_free(s);
    release(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_counts),
                                       cmocka_unit_test(test_verdicts),
                                       cmocka_unit_test(test_summary)};
    return cmocka_run_group_tests(tests, make_suite_file, remove_suite_file);
}
