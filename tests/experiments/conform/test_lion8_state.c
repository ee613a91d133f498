/* test_lion8_state.c - Tests the state dictionaries of 8-bit Lion: keys, round trips, refused
 * input, and the check of the learning rate. */
#include "experiments/conform/lion8_state.h"
#include "tests/support/one_tensor.h"

static void test_keys(void **state)
{
    (void)state;
    int is_compressed = -1;
    const char *plain[] = {"errors", "exp_avg"};
    const char *both[] = {"exp_avg::scales", "exp_avg::quantized"};
    const char *mixed[] = {"exp_avg", "exp_avg::scales"}, *half[] = {"exp_avg::quantized"};
    assert_int_equal(qm_lion8_keys(plain, 2, &is_compressed), QM_OK);
    assert_int_equal(is_compressed, 0);
    assert_int_equal(qm_lion8_keys(both, 2, &is_compressed), QM_OK);
    assert_int_equal(is_compressed, 1);
    assert_int_equal(qm_lion8_keys(mixed, 2, &is_compressed), QM_BAD_ARG);
    assert_non_null(strstr(qm_message(), "exp_avg, exp_avg::scales"));
    assert_int_equal(qm_lion8_keys(half, 1, &is_compressed), QM_BAD_ARG);
    assert_non_null(strstr(qm_message(), "wants the key exp_avg::scales"));
    assert_int_equal(qm_lion8_keys(plain, 1, &is_compressed), QM_BAD_ARG);
    assert_non_null(strstr(qm_message(), "exp_avg::quantized"));
}

/* T5: the compressed momentum, the plain momentum and the errors load into a fresh optimizer. */
static void test_save_load(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 2, 391, 2048};
    static float p[MOST], g[MOST], m[MOST], back[MOST], scales[MOST / 32], again[MOST / 32];
    static uint8_t codes[MOST], codes_back[MOST];
    static int8_t q[MOST];
    static uint16_t s16[MOST / 32], bf16[MOST + 1];
    for (int s = 0; s < 4; s++) {
        struct opt o, fresh;
        struct qm_codec c;
        struct qm_shape shape = flat(sizes[s]);
        int64_t n = sizes[s], count = (n + 31) / 32;
        for (int64_t i = 0; i < n; i++) {
            p[i] = gauss(30, i);
            g[i] = 2.0f * uniform(31, i) - 1.0f;
        }
        opt_open(&o, "lion8_ecc8", shape, p);
        opt_open(&fresh, "lion8_ecc8", shape, p);
        opt_step(&o, g);
        opt_momentum(&o, m);
        assert_int_equal(qm_codec_init(&c, &o.r.slot[0]), QM_OK);
        assert_int_equal(qm_backend_cpu.save(o.plan, 0, codes, scales), QM_OK);
        /* The compressed form keeps every bit. */
        assert_int_equal(qm_lion8_compress(&c, &shape, codes, scales, q, s16), QM_OK);
        assert_int_equal(qm_lion8_expand(&c, &shape, q, s16, count, codes_back, again), QM_OK);
        assert_memory_equal(codes, codes_back, (size_t)n);
        assert_memory_equal(scales, again, sizeof *scales * (size_t)count);
        assert_int_equal(qm_backend_cpu.load(fresh.plan, 0, codes_back, again), QM_OK);
        opt_momentum(&fresh, back);
        assert_memory_equal(m, back, sizeof *m * (size_t)n);
        /* The plain form is rounded to bf16, then quantized again. */
        qm_lion8_plain(m, n, bf16);
        assert_int_equal(qm_lion8_requantize(&c, &shape, bf16, codes_back, again), QM_OK);
        qm_decode(&c, &shape, codes_back, again, back);
        for (int64_t i = 0; i < n; i++)
            assert_true(fabsf(back[i] - m[i]) <= 1.0f / 254.0f);
        /* The errors keep every byte. */
        uint8_t *errors = qm_plan_cpu_residual(o.plan);
        qm_lion8_errors_save(errors, n, bf16);
        assert_int_equal(qm_lion8_errors_load(bf16, n + n % 2, n, qm_plan_cpu_residual(fresh.plan)),
                         QM_OK);
        assert_memory_equal(errors, qm_plan_cpu_residual(fresh.plan), (size_t)n);
        /* Input that does not fit is refused. */
        assert_int_equal(qm_lion8_expand(&c, &shape, q, s16, count + 1, codes_back, again),
                         QM_BAD_ARG);
        assert_non_null(strstr(qm_message(), "got "));
        q[0] = -128;
        assert_int_equal(qm_lion8_expand(&c, &shape, q, s16, count, codes_back, again), QM_BAD_ARG);
        assert_int_equal(qm_lion8_errors_load(bf16, n + 2, n, codes_back), QM_BAD_ARG);
        bf16[0] = qm_float_to_bf16(256.0f);
        assert_int_equal(qm_lion8_errors_load(bf16, n, n, codes_back), QM_BAD_ARG);
        opt_close(&o);
        opt_close(&fresh);
    }
    struct qm_codec other;
    assert_int_equal(qm_codec_parse(&other, "dyn:8s/block:32/bisect/near/f16"), QM_OK);
    struct qm_shape one = flat(1);
    assert_int_equal(qm_lion8_compress(&other, &one, codes, scales, q, s16), QM_BAD_ARG);
    assert_non_null(strstr(qm_message(), "dyn:8s"));
}

/* The least learning rate for bf16 weights of magnitude up to 3 is 2^1 2^-7 / 0.49; a residual
 * of one byte makes it 2^-8 times as large. */
static void test_least_rate(void **state)
{
    (void)state;
    struct qm_param plain = {QM_PARAM_bf16, QM_WRITE_near}, ecc = {QM_PARAM_bf16, QM_WRITE_ecc8};
    double least = 2.0 * 0x1p-7 / 0.49;
    assert_int_equal(qm_param_lr_check(&plain, 3.0, least * 1.001, 1.0), QM_OK);
    assert_int_equal(qm_param_lr_check(&plain, 3.0, least * 0.999, 1.0), QM_BAD_ARG);
    assert_int_equal(qm_param_lr_check(&plain, 3.0, least * 1.001, 0.1), QM_BAD_ARG);
    assert_int_equal(qm_param_lr_check(&ecc, 3.0, least * 0x1p-8 * 1.001, 1.0), QM_OK);
    assert_int_equal(qm_param_lr_check(&ecc, 3.0, least * 0x1p-8 * 0.999, 1.0), QM_BAD_ARG);
    assert_int_equal(qm_param_lr_check(&plain, 3.0, 0.0, 1.0), QM_OK);
    assert_int_equal(qm_param_lr_check(&plain, 0.0, 1e-30, 1.0), QM_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_save_load),
        cmocka_unit_test(test_least_rate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
