/* test_slot_groups.c - Which scales elements of drawn shapes have, and for how many in a row. */
#include <gsl/gsl_rng.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "experiments/check/slot.h"

/* For every norm, and shapes of ranks 1 to 4: elements that stay have equal scales, and a run ends
 * where these change or earlier; of norms whose scales are those of consecutive elements it ends
 * nowhere else. */
static void test_stay(void **state)
{
    static const char *const norms[] = {"tensor",     "row",       "col",          "block:5",
                                        "divblock:6", "rank1",     "rank1block:4", "rowcol",
                                        "colrow",     "rowblock:4"};
    gsl_rng *rng = gsl_rng_alloc(gsl_rng_mt19937);
    int judged = 0;
    (void)state;
    gsl_rng_set(rng, 20261130);
    for (int trial = 0; trial < 2000; trial++) {
        const char *norm = norms[trial % 10];
        struct qm_shape shape = {1 + (int)gsl_rng_uniform_int(rng, 4), {0}};
        struct qm_quantizer q;
        char text[80];
        if (strncmp(norm, "rowb", 4) == 0 || strcmp(norm, "rowcol") == 0 ||
            strcmp(norm, "colrow") == 0)
            shape.rank = 2;
        else if (strcmp(norm, "col") == 0 && shape.rank < 2)
            shape.rank = 2;
        for (int a = 0; a < shape.rank; a++)
            shape.dim[a] = 1 + (int64_t)gsl_rng_uniform_int(rng, 9);
        snprintf(text, sizeof text, "lin:8s/%s/bisect/near/lo", norm);
        assert_int_equal(qm_quantizer_parse(text, &q), QM_OK);
        int64_t n = qm_shape_numel(&shape), stay = 0;
        int64_t last[QM_MAX_RANK] = {0}, group[QM_MAX_RANK];
        int is_joint = strncmp(norm, "rank1", 5) == 0 || strstr(norm, "col");
        for (int64_t i = 0; i < n; i++, stay--) {
            int count = qm_groups_of(&q, &shape, i, group);
            int is_same = i > 0 && memcmp(last, group, sizeof *group * (size_t)count) == 0;
            if (stay > 0)
                assert_true(is_same);
            else
                assert_true(is_joint || !is_same);
            if (stay <= 0)
                stay = qm_groups_stay(&q, &shape, i);
            assert_true(stay >= 1);
            memcpy(last, group, sizeof last);
            judged++;
        }
    }
    printf("%d elements of 2000 shapes\n", judged);
    gsl_rng_free(rng);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_stay)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
