/* test_quant_bnb.c - Tests the quantizers of bitsandbytes: keepsign and its special maps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "core/quant/quantizer.h"

static void codec(struct qm_codec *c, const char *text)
{
    if (qm_codec_parse(c, text) != QM_OK)
        fail_msg("%s", qm_message());
}

/* The codes with corrected sign of csrc/kernels.cu, kOptimizerStatic8bit1StateBlockwise, where
 * NaN is positive, as the arithmetic of a GPU makes it. */
static void test_keepsign(void **state)
{
    static const struct {
        float x;
        int code; /* in a block whose absmax is 1; -1: as without keepsign */
    } want[] = {
        {1.0f, 255},   {-1.0f, 0},     {0.0f, 127},  {-0.0f, 126},  {1e-9f, 127},   {-1e-9f, 126},
        {1e-30f, 127}, {-1e-45f, 126}, {6e-7f, 128}, {-6e-7f, 126}, {2.5e-7f, 127}, {-2.5e-7f, 126},
        {0.5f, -1},    {-0.5f, -1},    {NAN, 255},   {-NAN, 255},
    };
    enum { N = sizeof want / sizeof *want };
    struct qm_codec kept, plain;
    struct qm_shape shape = {1, {N}};
    float x[N], scale[1];
    uint8_t codes[N], others[N];
    (void)state;
    codec(&kept, "dyn:8s/block:256/bisect/even/maxskip/keepsign");
    codec(&plain, "dyn:8s/block:256/bisect/even/maxskip");
    assert_true(qm_codec_is_fused(&kept));
    for (int i = 0; i < N; i++)
        x[i] = want[i].x;
    assert_int_equal(qm_encode(&kept, &shape, x, NULL, codes, scale), QM_OK);
    assert_int_equal(qm_encode(&plain, &shape, x, NULL, others, scale), QM_OK);
    for (int i = 0; i < N; i++)
        if (codes[i] != (want[i].code < 0 ? others[i] : want[i].code))
            fail_msg("%g has code %d", (double)x[i], codes[i]);
    qm_encode_blocks(&kept, x, N, others, scale);
    assert_memory_equal(others, codes, N);
    /* an all-zero block: 0 / 0 is NaN with code 0, a negative value; +0 moves down to code 255 */
    for (int i = 0; i < N; i++)
        x[i] = i % 2 ? -0.0f : 0.0f;
    assert_int_equal(qm_encode(&kept, &shape, x, NULL, codes, scale), QM_OK);
    for (int i = 0; i < N; i++)
        assert_int_equal(codes[i], i % 2 ? 0 : 255);
    qm_encode_blocks(&kept, x, N, others, scale);
    assert_memory_equal(others, codes, N);
    assert_true(scale[0] == 0.0f);
}

/* Every decoded value has the sign of its element, also when encoded in ranges. */
static void test_keepsign_of_any(void **state)
{
    static const char *const texts[] = {
        "dyn:8s/block:256/bisect/even/keepsign", "dyn:4s/block:64/scan/near/hi/keepsign",
        "lin0:8s/row/mids/mid/keepsign", "nf4:4s/rank1/argmin/mid/lo/keepsign",
        "lin:4s/tensor/bisect/stoch/lo/keepsign"};
    enum { ROWS = 16, COLS = 64, N = ROWS * COLS };
    struct qm_shape shape = {2, {ROWS, COLS}};
    static float x[N], out[N], scales[N];
    static uint8_t codes[N], half[N];
    (void)state;
    for (int i = 0; i < N; i++) {
        float u = qm_uniform(qm_philox_stream(3, 0, (uint64_t)i)) - 0.5f;
        x[i] = ldexpf(u, -(i % 40));
    }
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
        struct qm_codec c;
        struct qm_draws d = qm_draws_for(5, 1, 0, QM_ROLE_slot0);
        char text[QM_QUANTIZER_TEXT];
        codec(&c, texts[k]);
        assert_non_null(strstr(qm_quantizer_print(&c.q, text), "/keepsign"));
        memset(scales, 0, sizeof scales);
        qm_fold(&c, &shape, 0, N, x, scales);
        qm_encode_range(&c, &shape, 0, N, x, scales, &d, codes);
        qm_encode_range(&c, &shape, N / 2, N / 2, x + N / 2, scales, &d, half);
        assert_memory_equal(codes + N / 2, half, N / 2);
        qm_scales(&c, &shape, scales, scales);
        qm_decode(&c, &shape, codes, scales, out);
        for (int i = 0; i < N; i++)
            if (signbit(out[i]) != signbit(x[i]))
                fail_msg("%s: %g became %g", texts[k], (double)x[i], (double)out[i]);
    }
}

static void test_refused(void **state)
{
    static const char *const bad[] = {
        "dyn:8u/block:256/bisect/even/keepsign", "fp4:4s/block:64/ladder/mid/hi/keepsign",
        "dyn:8s/block:64/grid/mid/zero:0/keepsign", "dyn:8s/block:64/keepsign/keepsign",
        "dyn:8s/block:64/keepsign:1"};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct qm_quantizer q;
        if (qm_quantizer_parse(bad[i], &q) == QM_OK)
            fail_msg("%s should be refused", bad[i]);
    }
}

/* Published properties of the maps, in addition to the recorded tables. */
static void test_maps(void **state)
{
    struct qm_codebook cb, nf4;
    (void)state;
    qm_codebook_build(QM_MAP_dyndef, 8, 0, &cb);
    assert_int_equal(cb.n, 256);
    assert_true(cb.value[255] == 0.0933203101f && cb.value[0] == 0.0f);
    qm_codebook_build(QM_MAP_nf4, 4, 1, &nf4);
    qm_codebook_build(QM_MAP_nf4s, 4, 1, &cb);
    assert_int_equal(cb.n, 15);
    for (int k = 0; k < 15; k++)
        assert_true(cb.value[k] == -cb.value[14 - k]);
    assert_memory_equal(cb.value, nf4.value, 8 * sizeof(float));
    qm_codebook_build(QM_MAP_af4, 4, 1, &cb); /* code 0 means 1, code 15 means -1 */
    assert_true(cb.value[cb.position_of[0]] == 1.0f && cb.value[cb.position_of[15]] == -1.0f);
    assert_true(cb.value[cb.position_of[8]] == 0.0f);
    qm_codebook_build(QM_MAP_fp52, 8, 1, &cb);
    assert_true(cb.value[255] == 1.0f && cb.value[254] == 6.0f / 7.0f);
    qm_codebook_build(QM_MAP_linb, 8, 1, &cb);
    assert_true(cb.value[0] == -1.0f && cb.value[255] == 1.0f && cb.zero < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keepsign),
        cmocka_unit_test(test_keepsign_of_any),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_maps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
