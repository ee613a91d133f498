/* test_decide.c - Decisions on unit values against the CPU's searches, and the list of cases. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "experiments/check/cases.h"

/* ---- decisions ------------------------------------------------------------------------------- */

static void assert_decides(const struct qm_codec *c, const struct qm_decider *d, float y,
                           const char *text)
{
    int from, to, got = qm_code_of(c, y, 0);
    qm_decider_range(d, (double)y, (double)y, &from, &to);
    if (got < from || got > to)
        fail_msg("%s: %a gives %d, expected %d to %d", text, (double)y, got, from, to);
    while (from < to && d->value[from] == d->value[from + 1])
        from++; /* two codes with one value count once */
    while (from < to && d->value[to] == d->value[to - 1])
        to--;
    int sorted = !(d->q.map == QM_MAP_lin0 && d->q.sign); /* the source's zeros are -4e-8 apart */
    if (to - from > 1 && d->q.search != QM_SEARCH_grid && sorted)
        fail_msg("%s: %a may give anything from %d to %d", text, (double)y, from, to);
}

/* For every map, search and round that compose, the float32 search agrees with the decision in
 * double on unit values around all values and thresholds; the open zones are a few ulp wide. */
static void test_decisions(void **state)
{
    int composed = 0;
    (void)state;
    for (int map = 0; map < QM_MAP_COUNT; map++)
        for (int form = 0; form < 4; form++)
            for (int search = 0; search < QM_SEARCH_COUNT; search++)
                for (int round = 0; round < QM_ROUND_COUNT; round++) {
                    struct qm_quantizer q = {.map = (enum qm_map)map,
                                             .bits = form & 1 ? 8 : 4,
                                             .sign = form >> 1,
                                             .norm = QM_NORM_block,
                                             .block = 64,
                                             .search = (enum qm_search)search,
                                             .round = (enum qm_round)round,
                                             .scale = {.zero = -1}};
                    struct qm_codec c;
                    struct qm_decider d;
                    char text[QM_QUANTIZER_TEXT];
                    float decoded[256] = {0};
                    int wrong;
                    if (map == QM_MAP_log || map == QM_MAP_logf)
                        continue; /* only under a curve, which whole cases judge */
                    if (qm_round_draws((enum qm_round)round) || qm_codec_init(&c, &q) != QM_OK)
                        continue;
                    for (int k = 0; k < c.cb.n; k++)
                        decoded[c.cb.perm[k]] = c.cb.value[k];
                    qm_quantizer_print(&q, text);
                    assert_int_equal(qm_decider_init(&d, &q, decoded, &wrong), QM_OK);
                    assert_int_equal(wrong, -1);
                    assert_int_equal(d.n, c.cb.n);
                    composed++;
                    for (int k = 0; k < d.n; k++) {
                        assert_int_equal(d.code_of[k], c.cb.perm[k]);
                        float near[2] = {(float)d.value[k], (float)d.cut[k < d.n - 1 ? k : 0].at};
                        for (int j = 0; j < 2; j++)
                            for (int ulp = -5; ulp <= 5; ulp++)
                                assert_decides(&c, &d, qm_unordered(qm_ordered(near[j]) + ulp),
                                               text);
                    }
                }
    assert_true(composed > 150);
}

/* The zone of a float32 comparison is narrow, and empty at ties that the comparison
 * decides exactly. */
static void test_zones(void **state)
{
    struct qm_quantizer q;
    struct qm_decider d;
    int wrong, from, to;
    (void)state;
    assert_int_equal(qm_quantizer_parse("lin:4u/block:128/bisect/near/lo", &q), QM_OK);
    assert_int_equal(qm_decider_init(&d, &q, NULL, &wrong), QM_OK);
    qm_decider_range(&d, 5.0 / 32.0, 5.0 / 32.0, &from, &to);
    assert_true(from == 2 && to == 2); /* up */
    q.round = QM_ROUND_mid;
    assert_int_equal(qm_decider_init(&d, &q, NULL, &wrong), QM_OK);
    qm_decider_range(&d, 5.0 / 32.0, 5.0 / 32.0, &from, &to);
    assert_true(from == 1 && to == 1); /* down */
    qm_decider_range(&d, 5.0 / 32.0 - 1e-6, 5.0 / 32.0 + 1e-6, &from, &to);
    assert_true(from == 1 && to == 2);
    assert_int_equal(qm_quantizer_parse("nf4a8:4s/block:128/ladder/mid/hi", &q), QM_OK);
    assert_int_equal(qm_decider_init(&d, &q, NULL, &wrong), QM_OK);
    assert_int_equal(qm_decider_at(&d, -0.8), 0); /* the published threshold is -0.7801653 */
    assert_int_equal(qm_decider_nearest(&d, -0.8), 1);
}

/* ---- cases ----------------------------------------------------------------------------------- */

static void test_cases(void **state)
{
    struct qm_case c, again;
    char a[QM_CASE_TEXT], b[QM_CASE_TEXT];
    (void)state;
    for (int i = 0; i < qm_case_count(); i++) {
        c = qm_case_at(i);
        if (qm_case_parse(qm_case_print(&c, a), &again) != QM_OK)
            fail_msg("%s: %s", a, qm_message());
        assert_string_equal(a, qm_case_print(&again, b));
        for (int j = 0; j < i; j++) {
            again = qm_case_at(j);
            assert_string_not_equal(a, qm_case_print(&again, b));
        }
    }
    assert_int_equal(qm_case_parse("4097/plantet/default/t1/forced", &c), QM_NO_MATCH);
    assert_non_null(strstr(qm_message(), "did you mean 'planted'?"));
    assert_int_equal(qm_case_parse("4097/planted/default/t0/forced", &c), QM_BAD_ARG);
    assert_int_equal(qm_case_parse("4097/planted/default/t1", &c), QM_BAD_ARG);
    assert_int_equal(qm_case_parse("4x/planted/default/t1/own", &c), QM_BAD_ARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decisions),
        cmocka_unit_test(test_zones),
        cmocka_unit_test(test_cases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
