/* test_vectors.c - Golden vectors are made, answered by the reference and judged.
 *
 * Every kind of wrong answer is found. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "experiments/vectors/vectors.h"

static char path[64];

static struct qm_vectors_case one_case(const char *id, int64_t steps)
{
    struct qm_vectors_case c = {.name = "t0", .steps = steps};
    assert_int_equal(qm_case_parse(id, &c.c), QM_OK);
    return c;
}

static struct qm_vectors make(const char *recipe, const char *id, int64_t steps)
{
    struct qm_vectors v = {.n = 0};
    struct qm_recipe r;
    struct qm_vectors_case c = one_case(id, steps);
    assert_int_equal(qm_recipe_parse(recipe, &r), QM_OK);
    int n = 1;
    if (qm_vectors_make(&r, &c, &n, 7, &v) != QM_OK)
        fail_msg("%s %s: %s", recipe, id, qm_message());
    /* the reference's results become the answer */
    for (int i = 0; i < v.states.n; i++) {
        char *word = strstr(v.states.tensor[i].name, "/want/");
        if (word) {
            memcpy(word, "/out", 4);
            memmove(word + 4, word + 5, strlen(word + 5) + 1);
        }
    }
    return v;
}

static struct qm_vectors_verdict judge(const struct qm_vectors *v)
{
    struct qm_vectors_verdict out;
    assert_int_equal(qm_vectors_write(v, path, QM_CONTAINER_npz, 0, NULL), QM_OK);
    if (qm_vectors_judge(path, &out) != QM_OK)
        fail_msg("%s", qm_message());
    return out;
}

static void reference_passes(void **state)
{
    (void)state;
    static const char *const recipes[] = {
        "adamw4_ao",
        "adamw8_bnb",
        "adamw4_lpmm",
        "adamw_f32",
        "adamw8_ao,grad=bf16",
        "adamw4_ao,exp_avg.round=stoch",
        "adafactor_hf", /* sums over the tensor, slots of other shapes */
        "adafactor8_024",
        "came8_026",
        "lamb_bnb",
        "adamw4_lpmm_factor",
        "apollo_f32",
        "fira_f32",
        "flash_adamw", /* other parameter formats, residuals */
        "lion8_ecc8",
        "adamw8_ao,param=bf16/near",
        "adamw4_ao,param=e4m3/stoch",
        "adamw_f32,param=f16/kahan",
        "lion8_fused,param=f16/ecc16",
        "adafactor_hf,param=bf16/stoch",
        "lion8_unfused,param=bf16/near", /* rounded twice in a step */
        "came_f32,param=f16/near",
    };
    static const char *const ids[] = {"61x67/normal/default/t1/forced",
                                      "4096/planted/wd/t1000000/own", "1/zeros/eps/t1/own",
                                      "300/nonfinite/default/t1/forced", "0/normal/default/t1/own"};
    for (size_t r = 0; r < sizeof recipes / sizeof *recipes; r++)
        for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
            struct qm_vectors v = make(recipes[r], ids[i], 3);
            struct qm_vectors_verdict out = judge(&v);
            if (out.tally.judged > 0 && !qm_vectors_passed(&out))
                fail_msg("%s %s: %s", recipes[r], ids[i], out.tally.finding[0].text);
            assert_true(out.tally.judged > 0 || strncmp(ids[i], "0/", 2) == 0);
            assert_int_equal(out.steps, 3);
            assert_int_equal(out.tally.cases, 3);
            qm_vectors_free(&v);
        }
}

/* The state after step 2, for tests that change it. */
static struct qm_state_tensor *second(struct qm_vectors *v)
{
    assert_string_equal(v->states.tensor[2].name, "t0/out/2");
    return &v->states.tensor[2];
}

static void must_fail(struct qm_vectors *v, const char *text)
{
    struct qm_vectors_verdict out = judge(v);
    assert_false(qm_vectors_passed(&out));
    assert_true(out.tally.failed_cases >= 1);
    if (strcmp(out.tally.finding[0].name, "t0/out/2") != 0 ||
        !strstr(out.tally.finding[0].text, text))
        fail_msg("%s: %s; expected %s", out.tally.finding[0].name, out.tally.finding[0].text, text);
    qm_vectors_free(v);
}

static void wrong_answers_fail(void **state)
{
    (void)state;
    const char *id = "4096/normal/default/t1/own";
    struct qm_vectors v = make("adamw4_ao", id, 2);
    ((uint8_t *)second(&v)->slot[0].codes.data)[100] ^= 0x10; /* the next code */
    must_fail(&v, "exp_avg: element 200 has code");
    v = make("adamw4_ao", id, 2);
    ((float *)second(&v)->slot[1].scales.data)[7] *= 1.00001f;
    must_fail(&v, "exp_avg_sq: scale 7 is");
    v = make("adamw4_ao", id, 2);
    ((float *)second(&v)->param.data)[4095] += 1e-5f;
    must_fail(&v, "parameter 4095 is");
    v = make("adamw4_ao", id, 2);
    ((float *)second(&v)->param.data)[3] = NAN;
    must_fail(&v, "parameter 3 is nan");
    v = make("adamw_f32", id, 2);
    ((float *)second(&v)->slot[1].scales.data)[9] *= 1.00001f;
    must_fail(&v, "exp_avg_sq 9 is");
    v = make("lion8_unfused,param=bf16/near", id, 2);
    ((uint16_t *)second(&v)->param.data)[9] ^= 2;
    must_fail(&v, "parameter 9 is");
    v = make("adafactor_hf", "61x67/normal/default/t1/own", 2); /* a sum over rows */
    assert_int_equal(qm_shape_numel(&second(&v)->slot[0].shape), 61);
    ((float *)second(&v)->slot[0].scales.data)[3] *= 1.00001f;
    must_fail(&v, "exp_avg_sq_row 3 is");
    v = make("lamb_bnb", id, 2);
    ((float *)second(&v)->param.data)[11] += 1e-5f;
    must_fail(&v, "parameter 11 is");
    v = make("came8_026", "61x67/normal/default/t1/forced", 2);
    ((uint8_t *)second(&v)->slot[1].codes.data)[5] ^= 3;
    must_fail(&v, "row_var: element");
    v = make("adamw8_ao,param=bf16/near", id, 2);
    ((uint16_t *)second(&v)->param.data)[70]++;
    must_fail(&v, "parameter 70 is stored as");
    v = make("adamw8_ao,param=e4m3/near", id, 2);
    ((uint8_t *)second(&v)->param.data)[71]++;
    must_fail(&v, "parameter 71 is stored as");
    v = make("lion8_ecc8", id, 2);
    ((int8_t *)second(&v)->residual.data)[9] ^= 2;
    must_fail(&v, "parameter 9 with its residual is");
    v = make("adamw4_ao,exp_avg_sq.round=floor", id, 2); /* another format's codes */
    struct qm_vectors near = make("adamw4_ao", id, 2);
    memcpy(second(&v)->slot[1].codes.data, second(&near)->slot[1].codes.data, 2048);
    must_fail(&v, "exp_avg_sq: element");
    qm_vectors_free(&near);
}

static void unfinished(void **state)
{
    (void)state;
    struct qm_vectors v = make("adamw4_ao", "4096/normal/default/t1/own", 2);
    struct qm_vectors_verdict out;
    strcpy(second(&v)->name, "elsewhere");
    out = judge(&v);
    assert_false(qm_vectors_passed(&out));
    assert_int_equal(out.missing, 1);
    assert_string_equal(out.first_missing, "t0/out/2/param");
    assert_int_equal(out.tally.failed_cases, 0);
    strcpy(v.states.tensor[1].name, "nowhere");
    assert_int_equal(qm_vectors_write(&v, path, QM_CONTAINER_npz, 0, NULL), QM_OK);
    assert_int_equal(qm_vectors_judge(path, &out), QM_NO_MATCH);
    assert_non_null(strstr(qm_message(), "t0/out/1/param"));
    ((float *)v.states.tensor[0].param.data)[0] += 1.0f;
    assert_int_equal(qm_vectors_write(&v, path, QM_CONTAINER_npz, 0, NULL), QM_OK);
    assert_int_equal(qm_vectors_judge(path, &out), QM_BAD_FILE);
    assert_non_null(strstr(qm_message(), "'t0/in/param' (4096 of f32) is not what was written"));
    qm_vectors_free(&v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference_passes),
        cmocka_unit_test(wrong_answers_fail),
        cmocka_unit_test(unfinished),
    };
    snprintf(path, sizeof path, "/tmp/test_vectors_%d.npz", (int)getpid());
    int failed = cmocka_run_group_tests_name("vectors", tests, NULL, NULL);
    unlink(path);
    return failed;
}
