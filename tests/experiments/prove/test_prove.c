/* test_prove.c - Decisions and records against brute force; planted bugs are found exactly. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <omp.h>

#include "core/base/isa.h"
#include "core/base/philox.h"
#include "experiments/prove/report.h"
#include "experiments/prove/routine.h"

static struct qm_routine *routine(const char *text)
{
    struct qm_quantizer q;
    struct qm_routine *r = malloc(sizeof *r);
    assert_int_equal(qm_quantizer_parse(text, &q), QM_OK);
    if (qm_routine_open(r, &q, NULL) != QM_OK)
        fail_msg("%s: %s", text, qm_message());
    return r;
}

static void done(struct qm_routine *r)
{
    qm_routine_close(r);
    free(r);
}

static struct qm_record walk(const struct qm_routine *r, int64_t from, int64_t to)
{
    struct qm_walk w = {.from = from, .to = to};
    struct qm_record out;
    assert_int_equal(qm_routine_walk(r, &w, &out), QM_OK);
    return out;
}

static struct qm_record walk_floats(const struct qm_routine *r, float from, float to)
{
    return walk(r, qm_ordered(from), qm_ordered(to));
}

/* Whether the first n spans have equal members; the struct has padding. */
static int same_spans(const struct qm_spans *a, const struct qm_spans *b, int64_t n)
{
    int equal = a->n >= n && b->n >= n;
    for (int64_t i = 0; i < n && equal; i++) {
        const struct qm_span *x = &a->span[i], *y = &b->span[i];
        equal = x->first == y->first && x->last == y->last && x->got == y->got &&
                x->low == y->low && x->high == y->high;
    }
    return equal;
}

static void is_span(const struct qm_span *s, float from, float to, int got, int want)
{
    assert_int_equal(s->first, qm_ordered(from));
    assert_int_equal(s->last, qm_ordered(to));
    assert_int_equal(s->got, got);
    assert_int_equal(s->low, want);
    assert_int_equal(s->high, want);
}

/* ---- decisions ------------------------------------------------------------------------------- */

static void keys_bound_a_number_from_both_sides(void **state)
{
    (void)state;
    assert_int_equal(qm_key_at_least(0.0), qm_ordered(-0.0f));
    assert_int_equal(qm_key_above(0.0), qm_ordered(0x1p-149f));
    assert_int_equal(qm_key_at_least(1.0), qm_ordered(1.0f));
    assert_int_equal(qm_key_above(1.0), qm_ordered(1.0f) + 1);
    assert_int_equal(qm_key_at_least(1.0 + 0x1p-40), qm_ordered(1.0f) + 1);
    assert_int_equal(qm_key_at_least(-1.0 + 0x1p-40), qm_ordered(-1.0f) + 1);
    assert_int_equal(qm_key_at_least(0x1p-160), qm_ordered(0x1p-149f));
    assert_int_equal(qm_key_at_least(-0x1p-160), qm_ordered(-0.0f));
    assert_int_equal(qm_key_above(-0x1p-160), qm_ordered(-0.0f));
}

static const struct qm_piece *piece(const struct qm_decisions *d, int64_t key)
{
    int k = 0;
    while (k + 1 < d->n && d->piece[k + 1].first <= key)
        k++;
    return &d->piece[k];
}

/* The nearest by |x - v| in quadruple precision over all entries, without mid-points or order. */
static void brute(const double *value, int n, double x, int *low, int *high)
{
    __float128 best = (__float128)1e300;
    *low = *high = -1;
    for (int k = 0; k < n; k++) {
        __float128 d = (__float128)x - (__float128)value[k];
        d = d < 0 ? -d : d;
        if (d < best)
            *low = k;
        if (d <= best) {
            *high = k;
            best = d;
        }
    }
}

static void nearest_pieces_are_the_nearest_values(void **state)
{
    static const char *const maps[] = {"nf4:4s/tensor/scan/mid",  "dyn:8s/tensor/scan/mid",
                                       "e4m3:8s/tensor/scan/mid", "fp4:4s/tensor/argmin/mid",
                                       "lin0:8s/tensor/scan/mid", "de0:8u/tensor/scan/mid",
                                       "int:4s/tensor/scan/mid",  "nf4s:4s/tensor/scan/mid"};
    (void)state;
    for (size_t m = 0; m < sizeof maps / sizeof *maps; m++) {
        struct qm_routine *r = routine(maps[m]);
        const struct qm_decisions *d = &r->claims.right[QM_CLAIM_nearest];
        const double *value = r->claims.value;
        for (int k = 0; k + 1 < r->claims.n; k++)
            for (int64_t j = -4; j <= 4; j++)
                for (int end = 0; end < 2; end++) {
                    double at = end ? value[k] : 0.5 * (value[k] + value[k + 1]);
                    int64_t key = qm_key_at_least(at) + j;
                    int low, high;
                    brute(value, r->claims.n, (double)qm_unordered((int32_t)key), &low, &high);
                    assert_int_equal(piece(d, key)->low, low);
                    assert_int_equal(piece(d, key)->high, high);
                }
        for (uint64_t i = 0; i < 2000; i++) {
            float x = qm_float(qm_philox_stream(3, 1, i));
            int low, high;
            if (!(fabsf(x) < 1e6f))
                continue;
            brute(value, r->claims.n, (double)x, &low, &high);
            assert_int_equal(piece(d, qm_ordered(x))->low, low);
            assert_int_equal(piece(d, qm_ordered(x))->high, high);
        }
        done(r);
    }
}

static void a_mid_point_at_zero_is_a_tie_of_both_zeros(void **state)
{
    const double value[2] = {-1.0, 1.0};
    struct qm_decisions d;
    (void)state;
    assert_int_equal(qm_decisions_nearest(value, 2, &d), QM_OK);
    for (int64_t key = -3; key <= 2; key++) {
        assert_int_equal(piece(&d, key)->low, key > 0);
        assert_int_equal(piece(&d, key)->high, key >= -1);
    }
    assert_int_equal(piece(&d, qm_ordered(INFINITY))->low, 1);
    assert_int_equal(piece(&d, qm_ordered(INFINITY) + 1)->low, 0); /* NaN: any code */
}

static void an_inexact_mid_point_is_refused(void **state)
{
    const double value[2] = {0x1p-60, 1.0};
    struct qm_decisions d;
    (void)state;
    assert_int_equal(qm_decisions_nearest(value, 2, &d), QM_BAD_ARG);
}

/* ---- records --------------------------------------------------------------------------------- */

static uint8_t odd_code(int64_t key) /* runs of many lengths */
{
    return (uint8_t)(qm_philox_stream(9, 2, (uint64_t)(key + 7) / (uint64_t)(1 + key % 97)) & 15u);
}

/* A routine of random codes over 16,000 floats agrees with a count of one float after the other. */
static void a_record_counts_what_a_loop_counts(void **state)
{
    enum { N = 1 << 14 };
    static uint8_t code[N];
    struct qm_routine *r = routine("nf4:4s/tensor/scan/mid");
    const struct qm_claims *c = &r->claims;
    int64_t first = qm_ordered(0.459995f) - N / 2, wrong = 0, spans = 0, at = -1;
    double worst = 0.0;
    int got = -1, want = -1;
    (void)state;
    for (int64_t i = 0; i < N; i++) {
        int low, high, k = code[i] = odd_code(first + i);
        double x = (double)qm_unordered((int32_t)(first + i));
        brute(c->value, c->n, x, &low, &high);
        if (k >= low && k <= high) {
            got = -1;
            continue;
        }
        spans += got != k || want != low;
        got = k;
        want = low;
        wrong++;
        double e = fabs(x - c->value[k]) - fabs(x - c->value[low]);
        at = e > worst ? first + i : at;
        worst = e > worst ? e : worst;
    }
    struct qm_record whole, left, right;
    qm_record_open(&whole);
    qm_record_open(&left);
    qm_record_open(&right);
    qm_record_add(&whole, c, first, N, code);
    qm_record_add(&left, c, first, N / 3, code);
    qm_record_add(&right, c, first + N / 3, N - N / 3, code + N / 3);
    qm_record_merge(&left, &right);
    for (int i = 0; i < 2; i++) {
        const struct qm_record *p = i ? &left : &whole;
        assert_int_equal(p->floats, N);
        assert_int_equal(p->wrong[QM_CLAIM_nearest][QM_ZONE_positive], wrong);
        assert_true(p->worst == worst && p->worst_key == at);
    }
    assert_int_equal(whole.missed[0].n + whole.missed[0].left_out, spans);
    assert_true(whole.missed[0].n > 100);
    assert_true(same_spans(&whole.missed[0], &left.missed[0], whole.missed[0].n));
    qm_record_close(&whole);
    qm_record_close(&left);
    qm_record_close(&right);
    done(r);
}

static int same(const struct qm_record *a, const struct qm_record *b)
{
    int equal = a->floats == b->floats && memcmp(a->count, b->count, sizeof a->count) == 0 &&
                memcmp(a->wrong, b->wrong, sizeof a->wrong) == 0 && a->worst == b->worst &&
                a->worst_key == b->worst_key && a->ties.n == b->ties.n;
    for (int i = 0; i < QM_CLAIM_COUNT; i++)
        equal &= a->missed[i].n == b->missed[i].n &&
                 same_spans(&a->missed[i], &b->missed[i], a->missed[i].n);
    return equal;
}

static void threads_and_instruction_sets_do_not_matter(void **state)
{
    static const char *const texts[] = {
        "nf4:4s/tensor/bisect/mid/nantop", "nf4a8:4s/tensor/ladder/mid", "nf4:4s/tensor/argmin/mid",
        "dyn:4s/tensor/bisect/near",       "lin:4u/tensor/bisect/even",  "dyn:8s/tensor/grid/mid",
        "dyn:8s/tensor/bisect/near",       "lint:8u/tensor/arith/near",  "dyn:8s/tensor/lower/mid",
        "e4m3:8s/tensor/bisect/even"};
    enum qm_isa best = qm_isa();
    int threads = omp_get_max_threads();
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct qm_routine *r = routine(texts[i]);
        omp_set_num_threads(1);
        struct qm_record one = walk_floats(r, 0.45f, 0.9f);
        for (int isa = 0; isa <= (int)best; isa++) {
            qm_isa_force((enum qm_isa)isa);
            omp_set_num_threads(2);
            struct qm_record two = walk_floats(r, 0.45f, 0.9f);
            assert_true(same(&one, &two));
            qm_record_close(&two);
        }
        qm_record_close(&one);
        done(r);
    }
    omp_set_num_threads(threads);
}

/* ---- published routines, on the floats where they differ ------------------------------------- */

static void the_nf4_tree_misses_four_floats(void **state)
{
    static const struct {
        float at;
        int got;
    } wrong[] = {
        {-0x1.38a4ep-1f, 1}, {-0x1.5bd4ecp-2f, 3}, {-0x1.e079d8p-3f, 4}, {0x1.ec90c6p-4f, 8}};
    struct qm_routine *r = routine("nf4:4s/tensor/ladder/mid");
    int64_t found = 0, ties = 0;
    (void)state;
    for (int k = 0; k + 1 < r->claims.n; k++) { /* a million floats about every mid-point */
        int64_t mid = qm_key_at_least(0.5 * (r->claims.value[k] + r->claims.value[k + 1]));
        struct qm_record p = walk(r, mid - (1 << 17), mid + (1 << 17));
        assert_true(qm_proof_holds(r, &p));
        for (int64_t i = 0; i < p.missed[0].n; i++, found++)
            is_span(&p.missed[0].span[i], wrong[found].at, wrong[found].at, wrong[found].got,
                    wrong[found].got + 1);
        for (int64_t i = 0; i < p.ties.n; i++)
            assert_true(r->claims.value[p.ties.span[i].got] ==
                        r->claims.value[p.ties.span[i].low]); /* down */
        ties += p.ties.n;
        qm_record_close(&p);
    }
    assert_int_equal(found, 4);
    assert_int_equal(ties, 6);
    done(r);
}

static void the_thresholds_of_0_2_4_lose_a_bin(void **state)
{
    struct qm_routine *r = routine("nf4a8:4s/tensor/ladder/mid");
    struct qm_record p = walk_floats(r, -0.86f, -0.77f);
    (void)state;
    assert_true(qm_proof_holds(r, &p));
    assert_int_equal(p.missed[0].n, 1);
    is_span(&p.missed[0].span[0], -0x1.b239bp-1f, -0x1.8f71d4p-1f, 0, 1);
    assert_int_equal(p.wrong[0][QM_ZONE_negative], 1139695);
    assert_true(fabs(p.worst - 0.13586217) < 1e-8);
    assert_int_equal(p.worst_key, qm_ordered(-0.780165315f));
    qm_record_close(&p);
    done(r);
}

static void argmin_sends_large_numbers_to_the_wrong_end(void **state)
{
    struct qm_routine *r = routine("nf4:4s/tensor/argmin/mid");
    struct qm_record p = walk_floats(r, 0x1p22f, 0x1p26f);
    (void)state;
    assert_true(qm_proof_holds(r, &p)); /* errors out of range are reported and no failure */
    is_span(&p.outside.span[0], 0x1.000002p+23f, 0x1p24f, 13, 15);
    assert_true(p.count[QM_ZONE_above][0] > 0);
    qm_record_close(&p);
    done(r);
}

static void special_values_are_told_apart(void **state)
{
    struct qm_routine *top = routine("nf4:4s/tensor/bisect/mid/nantop");
    struct qm_record p = walk(top, qm_ordered(INFINITY) - 2, QM_KEY_LAST);
    (void)state;
    assert_int_equal(p.count[QM_ZONE_nan_plus][15], 8388607);
    assert_int_equal(p.count[QM_ZONE_inf_plus][15], 1);
    assert_int_equal(p.count[QM_ZONE_above][15], 2);
    qm_record_close(&p);
    p = walk(top, -2, 1);
    assert_int_equal(p.count[QM_ZONE_tiny_minus][7], 1);
    assert_int_equal(p.count[QM_ZONE_zero_minus][7], 1);
    assert_int_equal(p.count[QM_ZONE_zero_plus][7], 1);
    assert_int_equal(p.count[QM_ZONE_tiny_plus][7], 1);
    assert_int_equal(p.floats, 4);
    qm_record_close(&p);
    done(top);
}

/* In tables of 253 and 15 entries +Inf does not reach the entries behind the last. */
static void infinities_get_the_ends(void **state)
{
    static const char *const texts[] = {"e4m3:8s/tensor/bisect/even", "nf4s:4s/tensor/bisect/mid",
                                        "e4m3:8s/tensor/scan/even",   "dyn:8s/tensor/lower/mid",
                                        "nf4s:4s/tensor/mids/mid",    "lint:8s/tensor/arith/near"};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct qm_routine *r = routine(texts[i]);
        struct qm_record p = walk(r, qm_ordered(INFINITY) - 1, qm_ordered(INFINITY));
        assert_int_equal(p.count[QM_ZONE_inf_plus][r->claims.n - 1], 1);
        assert_int_equal(p.count[QM_ZONE_above][r->claims.n - 1], 1);
        qm_record_close(&p);
        p = walk(r, qm_ordered(-INFINITY), qm_ordered(-INFINITY) + 1);
        assert_int_equal(p.count[QM_ZONE_inf_minus][0], 1);
        assert_int_equal(p.count[QM_ZONE_below][0], 1);
        qm_record_close(&p);
        done(r);
    }
}

/* ---- planted bugs ---------------------------------------------------------------------------- */

/* With one threshold of a published ladder one ulp off, in either direction, a single float differs
 * from the definition, and it is found exactly. */
static void a_threshold_moved_by_one_ulp_is_one_float(void **state)
{
    static const char *const texts[] = {"nf4:4s/tensor/ladder/mid", "nf4a8:4s/tensor/ladder/mid"};
    (void)state;
    for (int m = 0; m < 2; m++)
        for (int k = 0; k < 15; k++)
            for (int up = 0; up < 2; up++) {
                struct qm_routine *r = routine(texts[m]);
                int32_t key = qm_ordered(r->codec.cb.cut[k]);
                float at = qm_unordered(up ? key + 1 : key);
                r->codec.cb.cut[k] = qm_unordered(up ? key + 1 : key - 1);
                struct qm_record p = walk(r, key - 100000, key + 100000);
                assert_false(qm_proof_holds(r, &p));
                for (int claim = QM_CLAIM_definition; claim <= QM_CLAIM_engine; claim++) {
                    assert_int_equal(p.missed[claim].n, 1);
                    is_span(&p.missed[claim].span[0], at, at, up ? k : k + 1, up ? k + 1 : k);
                }
                qm_record_close(&p);
                done(r);
            }
}

/* A table entry that is four ulp off is seen at least at the mid-point towards zero. */
static void a_table_entry_moved_is_seen(void **state)
{
    (void)state;
    for (int k = 1; k < 15; k++) {
        struct qm_routine *r = routine("dyn:4s/tensor/bisect/near");
        const double *value = r->claims.value;
        int64_t mid[2] = {qm_key_at_least(0.5 * (value[k - 1] + value[k])),
                          qm_key_at_least(0.5 * (value[k] + value[k + 1]))};
        int holds = 1;
        if (value[k] != 0.0) {
            r->codec.cb.value[k] = qm_unordered(qm_ordered((float)value[k]) + 4);
            for (int i = 0; i < 2; i++) {
                struct qm_record p = walk(r, mid[i] - 1000, mid[i] + 1000);
                holds &= qm_proof_holds(r, &p);
                qm_record_close(&p);
            }
            assert_false(holds);
        }
        done(r);
    }
}

static int nan_code = 0, late_tail = 0;

static void foreign(const float *y, long n, unsigned char *code)
{
    static const float value[4] = {-1.0f, 0.0f, 0.25f, 1.0f};
    for (long i = 0; i < n; i++) {
        int k = 0;
        while (k < 3 && y[i] > 0.5f * (value[k] + value[k + 1]))
            k++;
        code[i] = (unsigned char)(qm_isnan(y[i]) ? nan_code : k);
        if (late_tail && n % 16 && i >= n / 16 * 16) /* a tail that truncates */
            code[i] = (unsigned char)(k > 0 && y[i] < value[k] ? k - 1 : k);
    }
}

/* A foreign routine on its own table; the values of the claims are replaced. */
static struct qm_routine *foreign_routine(int ties, int nan)
{
    static const double value[4] = {-1.0, 0.0, 0.25, 1.0};
    struct qm_routine *r = malloc(sizeof *r);
    struct qm_quantizer q;
    assert_int_equal(qm_map_parse("lint:2u", &q), QM_OK);
    assert_int_equal(qm_routine_foreign(r, &q, ties, nan), QM_OK);
    memcpy(r->claims.value, value, sizeof value);
    r->claims.low = -1.0f;
    qm_claims_zones(&r->claims);
    assert_int_equal(qm_decisions_nearest(value, 4, &r->claims.right[QM_CLAIM_nearest]), QM_OK);
    r->kernel = foreign;
    return r;
}

static void wrong_nan_handling_is_seen(void **state)
{
    static const int codes[3] = {0, 3, 9};
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct qm_routine *r = foreign_routine(0, 1); /* NaN must get the lowest code */
        nan_code = codes[i];
        struct qm_record p = walk(r, QM_KEY_LAST - 99999, QM_KEY_LAST);
        assert_int_equal(qm_proof_holds(r, &p), i == 0);
        assert_int_equal(p.wrong[QM_CLAIM_definition][QM_ZONE_nan_plus], i == 0 ? 0 : 100000);
        assert_int_equal(p.count[QM_ZONE_nan_plus][i == 2 ? QM_POSITIONS : codes[i]], 100000);
        qm_record_close(&p);
        done(r);
    }
    nan_code = 9; /* no code: wrong even without a claim about NaN */
    struct qm_routine *r = foreign_routine(0, 0);
    struct qm_record p = walk(r, QM_KEY_LAST - 99, QM_KEY_LAST);
    assert_false(qm_proof_holds(r, &p));
    nan_code = 0;
    qm_record_close(&p);
    done(r);
}

static void a_foreign_routine_is_run_with_tails(void **state)
{
    struct qm_routine *r = foreign_routine(0, 0);
    (void)state;
    struct qm_record p = walk_floats(r, -0.25f, -0.2f);
    assert_true(qm_proof_holds(r, &p));
    qm_record_close(&p);
    late_tail = 1;
    p = walk_floats(r, -0.25f, -0.2f);
    assert_false(qm_proof_holds(r, &p));
    late_tail = 0;
    qm_record_close(&p);
    done(r);
}

/* Every round: 5/8 lies halfway between the positions 1 and 2 of 1/4, 1/2, 3/4, 1. */
static void ties_must_go_where_they_were_said_to(void **state)
{
    static const char *const words[] = {
#define X(name, text, kind) #name,
        QM_ROUND_LIST(X)
#undef X
    };
    (void)state;
    for (int i = 0; i < QM_ROUND_COUNT; i++) {
        enum qm_round round = (enum qm_round)i;
        struct qm_routine *r = malloc(sizeof *r);
        struct qm_quantizer q;
        assert_int_equal(qm_map_parse("lin:2u", &q), QM_OK);
        assert_int_equal(qm_quantizer_set(&q, "round", words[i]), QM_OK);
        if (qm_round_draws(round) || qm_round_is_directed(round)) {
            assert_int_equal(qm_routine_foreign(r, &q, 1, 0), QM_BAD_ARG);
            assert_non_null(strstr(qm_message(), words[i]));
            free(r);
            continue;
        }
        assert_int_equal(qm_routine_foreign(r, &q, 1, 0), QM_OK);
        const struct qm_piece *p = piece(&r->claims.right[QM_CLAIM_definition], qm_ordered(0.625f));
        assert_int_equal(p->low, p->high);
        assert_int_equal(p->low, 1 + qm_round_up(round, 0.625f, 0.5f, 0.75f, 1, 0));
        done(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_bound_a_number_from_both_sides),
        cmocka_unit_test(nearest_pieces_are_the_nearest_values),
        cmocka_unit_test(a_mid_point_at_zero_is_a_tie_of_both_zeros),
        cmocka_unit_test(an_inexact_mid_point_is_refused),
        cmocka_unit_test(a_record_counts_what_a_loop_counts),
        cmocka_unit_test(threads_and_instruction_sets_do_not_matter),
        cmocka_unit_test(the_nf4_tree_misses_four_floats),
        cmocka_unit_test(the_thresholds_of_0_2_4_lose_a_bin),
        cmocka_unit_test(argmin_sends_large_numbers_to_the_wrong_end),
        cmocka_unit_test(special_values_are_told_apart),
        cmocka_unit_test(infinities_get_the_ends),
        cmocka_unit_test(a_threshold_moved_by_one_ulp_is_one_float),
        cmocka_unit_test(a_table_entry_moved_is_seen),
        cmocka_unit_test(wrong_nan_handling_is_seen),
        cmocka_unit_test(a_foreign_routine_is_run_with_tails),
        cmocka_unit_test(ties_must_go_where_they_were_said_to),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
