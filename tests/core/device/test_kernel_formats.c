/* test_kernel_formats.c - Tests step.cu on formats that no variant has, and on many tensors in
 * one launch. */
#include "experiments/prove/report.h"
#include "tests/support/device_compare.h"
#include "tests/support/drawn.h"

enum { MOST = 8192 };

static float gaussish(uint64_t seed, int64_t t, int64_t i)
{
    float sum = 0.0f;
    for (uint64_t k = 0; k < 4; k++)
        sum += qm_uniform(qm_philox_stream(seed, (uint64_t)t * 8 + k, (uint64_t)i)) - 0.5f;
    return sum;
}

/* Overrides that no variant has: norms, widths, packings, curves, rounds, searches, scale
 * words, types. */
static void test_formats(void **state)
{
    static const char *const slots[] = {
        "int:3s/block:24/bisect/near/lo",
        "int:5s/block:100/scan/even/hi",
        "dyn:6s/block:4/bisect/mid/byte",
        "lin:2s/block:1/bisect/near/hi",
        "nf4:4s/block:3000/argmin/mid/lo",
        "dyn:4s/tensor/bisect/stoch/lo",
        "dyn:8s/row/bisect/near",
        "dyn:8s/col/mids/mid",
        "dyn:4s/rank1block:64/bisect/mid/lo",
        "dyn:4s/rowcol/bisect/mid/lo",
        "dyn:4s/colrow/bisect/mid/hi/nantop",
        "fp4:4s/block:64/ladder/mid/hi",
        "af4:4s/block:64/argmin/mid/hi",
        "nf4s:4s/block:512/bisect/near/hi",
        "lint:8s/block:2048/arith/dither",
        "int:4s/block:128/arith/stoch/lo/recip",
        "e4m3:8s/rank1/bisect/even",
        "e4m3:8s/tensor/bisect/near/floor:1e-12",
        "nf4:4s/block:128/lower/mid/hi",
        "pow3:5s/block:40/bisect/ceil/lo/cap:0.01",
        "dyn:8s/block:256/grid/mid/guard:1e-3/recip_tail",
        "lin0:7s/id/bisect/near/lo",
        "nf4:4s/block:128/bisect/mid/hi/f16both/floor:1e-6",
        "nf4:4s/block:128/bisect/mid/hi/zero:3",
    };
    static const char *const unsigned_slots[] = {
        "log:8u/block:256/arith/even/log2/recip",
        "logf:8u/rank1/arith/near/log2",
        "al:8u/block:64/arith/even/allog",
        "al:8u/block:12/arith/even/allog",
        "lin:4u/rank1/bisect/mid/lo/nantop",
        "lint:8u/col/arith/near/sqrt",
        "al:8u/block:4096/arith/even/allog",
        "lin:4u/block:128/bisect/mid/lo/least:2",
        "qlog:2u/block:64/arith/dither/hi/qlog/floor:1e-12/quantile:0.1",
        "e4m3:8s/block:128/bisect/even/expand/plus:1e-30",
        "e4m3:8s/block:100/bisect/stoch/expand:5/plus:1e-30",
        "e4m3:8s/block:128/bisect/even/plus:1e-20",
        "qlog:3u/divblock:100/arith/bernoulli/nibbles/qlog/quantile:0.5",
    };
    static const char *const others[] = {
        "adamw4_ao,param=bf16/stoch,grad=bf16",
        "adamw4_ao,param=f16/stoch,grad=f16",
        "adamw8_ao,param=e4m3/stoch",
        "adamw_f32,param=bf16/kahan,grad=bf16",
        "adamw_f32,param=f16/ecc16",
        "adamw_f32,maximize=1,exp_avg=bf16,exp_avg_sq=f16",
        "sgdm_f32,nesterov=1,weight_decay=0.1",
        "adamw4_lpmm,exp_avg.norm=rank1",
    };
    char recipe[300];
    (void)state;
    AT_ONE_COMMIT_IN(4, 10);
    if (qm_backend_emu.probe() != QM_OK)
        skip_because("%s", qm_message());
    const struct qm_shape matrix = {2, {61, 67}}, cube = {3, {9, 23, 31}}, line = {1, {4100}};
    for (size_t i = 0; i < sizeof slots / sizeof *slots; i++) {
        if (!is_drawn((int)i))
            continue;
        snprintf(recipe, sizeof recipe, "ema4_nf4,exp_avg=%s,exp_avg.min_numel=0", slots[i]);
        assert_int_equal(compare(recipe, &matrix), QM_OK);
    }
    for (size_t i = 0; i < sizeof unsigned_slots / sizeof *unsigned_slots; i++) {
        if (!is_drawn((int)i))
            continue;
        snprintf(recipe, sizeof recipe, "adamw4_lpmm,exp_avg_sq=%s,exp_avg_sq.min_numel=0",
                 unsigned_slots[i]);
        assert_int_equal(compare(recipe, &matrix), QM_OK);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (is_drawn((int)i))
            assert_int_equal(compare(others[i], &line), QM_OK);
    assert_int_equal(compare("adamw4_lpmm", &cube), QM_OK);
    assert_int_equal(compare("adamw4_lpmm,exp_avg.norm=row", &cube), QM_OK);
}

/* ---- many tensors ---------------------------------------------------------------------------- */

enum { TENSORS = 41 };

static void batch_steps(const char *recipe, int n, const struct qm_shape *shapes, int64_t chunk,
                        int blocks, int by_value, uint8_t (*out)[4 * MOST])
{
    static float p[MOST], g[MOST];
    struct qm_recipe r;
    struct qm_batch *b;
    uint32_t ids[TENSORS];
    for (int k = 0; k < n; k++)
        ids[k] = (uint32_t)(3 * k + 1);
    assert_int_equal(qm_recipe_parse(recipe, &r), QM_OK);
    if (qm_batch_open(&qm_device_emu, QM_MODE_exact, &r, n, shapes, ids, &b) != QM_OK ||
        qm_batch_cut(b, chunk, blocks) != QM_OK || qm_batch_by_value(b, by_value) != QM_OK)
        fail_msg("%s", qm_message());
    for (int k = 0; k < n; k++)
        for (int i = 0; i < MOST; i++)
            ((float *)out[k])[i] = gaussish(9, k, i);
    for (int64_t t = 1; t <= 2; t++) {
        for (int k = 0; k < n; k++) {
            qm_exact_gradient(SEED, t + 10 * k, qm_shape_numel(&shapes[k]), g);
            memcpy(p, out[k], sizeof p);
            assert_int_equal(qm_batch_give(b, k, p, g, QM_DTYPE_f32), QM_OK);
        }
        if (qm_batch_run(b, t, SEED) != QM_OK)
            fail_msg("%s", qm_message());
        for (int k = 0; k < n; k++)
            assert_int_equal(qm_batch_take(b, k, out[k]), QM_OK);
    }
    qm_batch_close(b);
}

/* Steps the same tensors one by one on the CPU. */
static void cpu_steps(const char *recipe, int n, const struct qm_shape *shapes,
                      uint8_t (*out)[4 * MOST])
{
    static float g[MOST];
    struct qm_recipe r;
    assert_int_equal(qm_recipe_parse(recipe, &r), QM_OK);
    for (int k = 0; k < n; k++) {
        void *plan;
        struct qm_tensor p = {out[k], QM_DTYPE_f32, shapes[k]}, gt = {g, QM_DTYPE_f32, shapes[k]};
        for (int i = 0; i < MOST; i++)
            ((float *)out[k])[i] = gaussish(9, k, i);
        assert_int_equal(qm_backend_cpu.open(&r, &shapes[k], (uint32_t)(3 * k + 1), &plan), QM_OK);
        for (int64_t t = 1; t <= 2; t++) {
            qm_exact_gradient(SEED, t + 10 * k, qm_shape_numel(&shapes[k]), g);
            assert_int_equal(qm_backend_cpu.step(plan, &p, &gt, t, SEED), QM_OK);
        }
        qm_backend_cpu.close(plan);
    }
}

/* One launch for all tensors gives the bits of each tensor alone, whatever the chunks. */
static void test_batches(void **state)
{
    static const char *const recipes[] = {
        "adamw4_lpmm_group,exp_avg.min_numel=0,exp_avg_sq.min_numel=0,exp_avg.round=stoch",
        "adamw4_lpmm,exp_avg.min_numel=0,exp_avg_sq.min_numel=0"};
    static uint8_t want[TENSORS][4 * MOST], got[TENSORS][4 * MOST];
    struct qm_shape shapes[TENSORS];
    (void)state;
    AT_ONE_COMMIT_IN(4, 11);
    if (qm_backend_emu.probe() != QM_OK)
        skip_because("%s", qm_message());
    for (int which = 0; which < 2; which++) {
        for (int k = 0; k < TENSORS; k++)
            shapes[k] = k % 7 == 6 ? (struct qm_shape){2, {0, 5}}
                                   : (struct qm_shape){2, {1 + k % 5, 1 + (k * 389) % 1500}};
        cpu_steps(recipes[which], TENSORS, shapes, want);
        const struct {
            int64_t chunk;
            int blocks, by_value;
        } cuts[] = {{0, 0, 0}, {1, 0, 0}, {4096, 7, 0}, {32768, 1, 0}, {2048, 0, 1}, {1, 3, 1}};
        for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
            batch_steps(recipes[which], TENSORS, shapes, cuts[i].chunk, cuts[i].blocks,
                        cuts[i].by_value, got);
            for (int k = 0; k < TENSORS; k++)
                assert_memory_equal(want[k], got[k], sizeof want[k]);
        }
    }
}

/* Shapes that need different kernels cannot be one batch. */
static void test_batch_refuses(void **state)
{
    const struct qm_shape shapes[] = {{2, {128, 64}}, {1, {100}}};
    const uint32_t ids[] = {0, 1};
    struct qm_recipe r;
    struct qm_batch *b;
    (void)state;
    AT_ONE_COMMIT_IN(4, 12);
    assert_int_equal(qm_recipe_parse("adamw4_ao", &r), QM_OK);
    if (qm_backend_emu.probe() != QM_OK)
        skip_because("%s", qm_message());
    assert_int_equal(qm_batch_open(&qm_device_emu, QM_MODE_exact, &r, 2, shapes, ids, &b),
                     QM_BAD_ARG);
    assert_non_null(strstr(qm_message(), "tensor 1"));
    assert_int_equal(qm_recipe_parse("came_f32", &r), QM_OK);
    assert_int_equal(qm_batch_open(&qm_device_emu, QM_MODE_exact, &r, 1, shapes, ids, &b),
                     QM_SKIPPED);
}

/* Codes of floats around ties, edges, zeros, the ends, NaN and Inf, by the kernel that gpu-check
 * runs over all floats. */
static void test_codes(void **state)
{
    static const char *const quantizers[] = {
        "nf4:4s/block:64/bisect/near",  "nf4:4s/block:64/ladder/mid",
        "nf4:4s/block:128/argmin/mid",  "nf4:4s/block:128/bisect/mid/nantop",
        "fp4:4s/block:64/ladder/mid",   "af4:4s/block:64/argmin/mid",
        "intm:4s/block:128/arith/even", "nf4a8:4s/block:128/ladder/mid",
        "lin:4u/block:128/bisect/near", "dyn:8s/block:256/bisect/even",
        "e4m3:8s/block:256/bisect/even"};
    static const uint32_t around[] = {0,          0x3f000000, 0x3e8b1e00, 0x3f7d9000, 0x7f800000,
                                      0x80000000, 0xbf590000, 0xbf1c4ae0, 0xff7ffff0, 0xff800000};
    (void)state;
    AT_ONE_COMMIT_IN(4, 13);
    if (qm_backend_emu.probe() != QM_OK)
        skip_because("%s", qm_message());
    for (size_t i = 0; i < sizeof quantizers / sizeof *quantizers; i++) {
        if (!is_drawn((int)i))
            continue;
        struct qm_quantizer q;
        struct qm_codes_result r;
        uint64_t runs = 0;
        assert_int_equal(qm_quantizer_parse(quantizers[i], &q), QM_OK);
        for (size_t k = 0; k < sizeof around / sizeof *around; k++) {
            uint64_t first = around[k] < 3000 ? around[k] : around[k] - 3000;
            if (qm_codes_compare(&qm_device_emu, &q, first, 6000, k % 2, &r) != QM_OK)
                fail_msg("%s: %s", quantizers[i], qm_message());
            if (r.wrong)
                fail_msg("%s: 0x%08x", quantizers[i], r.first_wrong);
            assert_int_equal(r.inputs, 6000);
            assert_true(r.compared >= r.runs && (k % 2 || r.compared == 6000));
            runs += r.runs;
        }
        assert_true(runs > sizeof around / sizeof *around); /* there was an edge */
    }
}

/* A proof of the codes that a device gave finds a single float with a wrong code, and no other. */
static void test_proof_of_device(void **state)
{
    static const float edges[] = {-1e-42f, 0.0397f, 0.999f};
    (void)state;
    AT_ONE_COMMIT_IN(4, 14);
    if (qm_backend_emu.probe() != QM_OK)
        skip_because("%s", qm_message());
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++) {
        int64_t from = qm_ordered(edges[i]), to = from + 5000;
        struct qm_quantizer q;
        struct qm_record record;
        struct qm_routine *r = calloc(1, sizeof *r);
        assert_int_equal(qm_quantizer_parse("nf4:4s/block:64/ladder/mid", &q), QM_OK);
        if (qm_routine_open(r, &q, NULL) != QM_OK ||
            qm_routine_on_device(r, "emu", from, to) != QM_OK)
            fail_msg("%s", qm_message());
        for (int planted = 0; planted < 2; planted++) {
            struct qm_walk walk = {.from = from, .to = to};
            assert_int_equal(qm_routine_walk(r, &walk, &record), QM_OK);
            assert_int_equal(record.floats, 5001);
            assert_int_equal(qm_proof_holds(r, &record), !planted);
            assert_int_equal(
                qm_record_wrong(&record, QM_CLAIM_definition, QM_ZONE_nan_minus, QM_ZONE_nan_plus),
                planted);
            qm_record_close(&record);
            if (planted)
                break;
            uint32_t last = qm_bits(qm_unordered((int32_t)to)); /* the largest bits of the range */
            struct qm_code_runs *runs = &r->runs;
            assert_true(runs->change[runs->n - 1].bits != last);
            runs->change = realloc(runs->change, sizeof *runs->change * (size_t)(runs->n + 1));
            if (from < 0) /* the smallest negative float has the largest bits */
                last = qm_bits(qm_unordered((int32_t)from));
            runs->change[runs->n] =
                (struct qm_code_change){last, runs->change[runs->n - 1].code ^ 8};
            runs->n++;
        }
        qm_routine_close(r);
        free(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formats),         cmocka_unit_test(test_batches),
        cmocka_unit_test(test_batch_refuses),   cmocka_unit_test(test_codes),
        cmocka_unit_test(test_proof_of_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
