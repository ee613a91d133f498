/* test_special_gradients.c - Tests every variant on NaN of both signs, Inf and denormal gradients.
 *
 * Codes and finite numbers do not depend on the sign and payload of a NaN, nor on the instruction
 * set, nor on whether the CPU or the emulated GPU computes them, whose arithmetic makes other NaNs.
 *
 * `test_special_gradients WORD` tests only variants whose names match the word. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/isa.h"
#include "core/base/name.h"
#include "core/recipe/backend.h"
#include "tests/support/drawn.h"

enum { STEPS = 3, TENSOR = 3, SEED = 11 };

static const char *filter; /* the word of the command line, or NULL */

/* ---- gradients ------------------------------------------------------------------------------- */

/* How the NaNs of a run are written: one payload and sign per element, or the other sign and
 * another payload. */
enum nans { ONE, OTHER };

/* A NaN, an infinity or the largest number, a denormal or a zero, by two random words. */
static float special(uint32_t kind, uint32_t word, enum nans nans)
{
    uint32_t sign = word & 0x80000000u, mantissa = word & 0x7fffffu;
    static const uint32_t payload[] = {0x400000, 0x7fffff, 0x400001, 0x2aaaaa};
    switch (kind % 4) {
    case 0:
    case 1:
        if (nans == OTHER)
            return qm_float((sign ^ 0x80000000u) | 0x7f800000u | payload[(word >> 9) % 4]);
        return qm_float(sign | 0x7f800000u | payload[word % 4]);
    case 2: return qm_float(sign | (word >> 8 & 3 ? 0x7f800000u : 0x7f7fffffu));
    default: return qm_float(sign | (word >> 8 & 3 ? mantissa : 0u));
    }
}

/* Element i of the gradient of step t: specials in step 2, and denormals in step 1, in some blocks
 * of 64; which: 0 NaN and all others, 1 Inf and denormals alone. */
static float gradient(int64_t t, int64_t i, int which, enum nans nans)
{
    struct qm_draws d = qm_draws_for(SEED, t, 0, QM_ROLE_spare);
    struct qm_philox_block w = qm_draw_four(&d, 4 * i);
    if (t == 2 && i / 64 % 3 != 1 && w.word[2] % 16 == 0)
        return special(which ? 2 + w.word[3] % 2 : w.word[3], w.word[1], nans);
    if (t == 1 && i / 64 % 5 == 2)
        return special(3, w.word[1], nans);
    return (qm_uniform(w.word[0]) - 0.5f) * ldexpf(1.0f, -(int)(i / 64 % 11));
}

/* ---- runs ------------------------------------------------------------------------------------ */

struct outcome {
    int64_t n, residual_bytes, slot_n[QM_MAX_SLOTS], n_scales[QM_MAX_SLOTS];
    float *p, *scales[QM_MAX_SLOTS], *decoded[QM_MAX_SLOTS];
    uint8_t *residual, *codes[QM_MAX_SLOTS];
};

static void outcome_free(struct outcome *o)
{
    free(o->p);
    free(o->residual);
    for (int i = 0; i < QM_MAX_SLOTS; i++) {
        free(o->scales[i]);
        free(o->decoded[i]);
        free(o->codes[i]);
    }
}

static void collect(const struct qm_backend *b, void *plan, const struct qm_recipe *r,
                    const struct qm_shape *shape, struct outcome *o)
{
    o->residual = calloc((size_t)o->residual_bytes + 1, 1);
    assert_int_equal(b->save(plan, QM_RESIDUAL, o->residual, NULL), QM_OK);
    for (int i = 0; i < r->rule->n_slots; i++) {
        struct qm_quantizer q = qm_recipe_slot(r, i, shape);
        struct qm_shape own = *shape;
        struct qm_codec c;
        qm_rule_slot_shape(r->rule, &r->hyper, i, shape, &own);
        assert_int_equal(qm_codec_init(&c, &q), QM_OK);
        o->slot_n[i] = qm_shape_numel(&own);
        o->n_scales[i] = q.bits ? qm_scale_count(&c, &own) : o->slot_n[i];
        o->codes[i] = calloc((size_t)o->slot_n[i] + 1, 1);
        o->scales[i] = calloc((size_t)o->n_scales[i] + 1, sizeof(float));
        o->decoded[i] = calloc((size_t)o->slot_n[i] + 1, sizeof(float));
        assert_int_equal(b->save(plan, i, o->codes[i], o->scales[i]), QM_OK);
        assert_int_equal(b->decode(plan, i, o->decoded[i]), QM_OK);
    }
}

static int takes(const char *recipe, const struct qm_shape *shape)
{
    struct qm_recipe r;
    if (qm_recipe_parse(recipe, &r) != QM_OK)
        fail_msg("%s: %s", recipe, qm_message());
    return qm_rule_takes(r.rule, &r.hyper, shape) == QM_OK;
}

/* Steps a recipe from drawn parameters.  Returns 0 where the backend has no kernel for it. */
static int run(const struct qm_backend *b, const char *recipe, const struct qm_shape *shape,
               int which, enum nans nans, struct outcome *o)
{
    struct qm_recipe r;
    void *plan = NULL;
    memset(o, 0, sizeof *o);
    o->n = qm_shape_numel(shape);
    if (qm_recipe_parse(recipe, &r) != QM_OK)
        fail_msg("%s: %s", recipe, qm_message());
    qm_status st = b->open(&r, shape, TENSOR, &plan);
    if (st == QM_SKIPPED)
        return 0;
    if (st != QM_OK)
        fail_msg("%s: %s", recipe, qm_message());
    o->residual_bytes = o->n * qm_param_residual(&r.param);
    o->p = malloc(sizeof(float) * (size_t)(o->n + 1));
    float *g = malloc(sizeof(float) * (size_t)(o->n + 1));
    uint16_t *h = malloc(sizeof(uint16_t) * (size_t)(o->n + 1));
    void *stored = malloc(sizeof(float) * (size_t)(o->n + 1));
    for (int64_t i = 0; i < o->n; i++)
        o->p[i] = qm_uniform(qm_philox_stream(SEED, 1, (uint64_t)i)) - 0.5f;
    qm_param_from_float(&r.param, o->n, o->p, stored);
    for (int64_t t = 1; t <= STEPS; t++) {
        for (int64_t i = 0; i < o->n; i++) {
            g[i] = gradient(t, i, which, nans);
            h[i] = r.grad == QM_DTYPE_bf16 ? qm_float_to_bf16(g[i]) : qm_float_to_f16(g[i]);
        }
        struct qm_tensor p = {stored, qm_param_dtype(&r.param), *shape};
        struct qm_tensor gt = {r.grad == QM_DTYPE_f32 ? (void *)g : (void *)h, r.grad, *shape};
        if (b->step(plan, &p, &gt, t, SEED) != QM_OK)
            fail_msg("%s: %s", recipe, qm_message());
    }
    qm_param_to_float(&r.param, o->n, stored, o->p);
    collect(b, plan, &r, shape, o);
    b->close(plan);
    free(g);
    free(h);
    free(stored);
    return 1;
}

/* ---- comparisons ----------------------------------------------------------------------------- */

/* Fails unless the numbers have equal bits, or both are NaN; returns the number of NaNs. */
static int64_t same_floats(const float *a, const float *b, int64_t n, const char *what,
                           const char *of)
{
    int64_t nans = 0;
    for (int64_t i = 0; i < n; i++) {
        nans += qm_isnan(a[i]);
        if (qm_bits(a[i]) != qm_bits(b[i]) && !(qm_isnan(a[i]) && qm_isnan(b[i])))
            fail_msg("%s: %s %lld is %a, and %a", what, of, (long long)i, (double)a[i],
                     (double)b[i]);
    }
    return nans;
}

static void same_bytes(const uint8_t *a, const uint8_t *b, int64_t n, const char *what,
                       const char *of)
{
    for (int64_t i = 0; i < n; i++)
        if (a[i] != b[i])
            fail_msg("%s: %s %lld is 0x%02x, and 0x%02x", what, of, (long long)i, a[i], b[i]);
}

/* What the runs of one test met. */
static struct {
    int64_t runs, nans, finite_in_nan_runs;
} met;

static void same(const struct outcome *a, const struct outcome *b, const char *what)
{
    int64_t nans = same_floats(a->p, b->p, a->n, what, "parameter"), all = a->n;
    same_bytes(a->residual, b->residual, a->residual_bytes, what, "residual byte");
    for (int i = 0; i < QM_MAX_SLOTS && a->codes[i]; i++) {
        char of[3][32];
        snprintf(of[0], sizeof of[0], "code of slot %d at", i);
        snprintf(of[1], sizeof of[1], "scale of slot %d,", i);
        snprintf(of[2], sizeof of[2], "value of slot %d,", i);
        same_bytes(a->codes[i], b->codes[i], a->slot_n[i], what, of[0]);
        same_floats(a->scales[i], b->scales[i], a->n_scales[i], what, of[1]);
        nans += same_floats(a->decoded[i], b->decoded[i], a->slot_n[i], what, of[2]);
        all += a->slot_n[i];
    }
    met.runs++;
    met.nans += nans;
    met.finite_in_nan_runs += nans ? all - nans : 0;
}

static void report(const char *what)
{
    print_message("%s: %lld comparisons, %lld NaN and %lld other numbers beside them\n", what,
                  (long long)met.runs, (long long)met.nans, (long long)met.finite_in_nan_runs);
    assert_true(filter || (met.nans > 1000 && met.finite_in_nan_runs > 1000));
    memset(&met, 0, sizeof met);
}

/* Whole blocks and short ones; fewer elements than a state in codes needs. */
static const struct qm_shape shapes[] = {{2, {64, 72}}, {1, {4999}}, {3, {3, 7, 11}}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* Recipes beside the variants: 16-bit and 8-bit parameters with every write, e4m3 with the code of
 * zero for NaN, keepsign in 4 bits. */
static const char *const more[] = {
    "adamw8_bnb_cuda,param=bf16/stoch,grad=bf16",
    "lion8_bnb_cuda,param=f16/kahan,grad=f16",
    "adamw_fp8_ao,param=e4m3/stoch,exp_avg=e4m3:8s/block:256/bisect/even/nanzero/maxskip",
    ("adamw_fp8_ao,param=bf16/ecc8,exp_avg=e4m3:8s/rank1/bisect/even,"
     "exp_avg_sq=e4m3:8s/tensor/scan/near"),
    "adamw4_ao,param=f16/ecc16,exp_avg=nf4:4s/block:64/bisect/mid/hi/maxskip/keepsign",
    "adamw4_ao,exp_avg=dyn:4s/rank1/bisect/near/hi/keepsign/nantop,exp_avg.min_numel=0",
    "adamw8_ao,exp_avg=int:8s/block:64/arith/even/maxskip,exp_avg.min_numel=0",
};
enum { MORE = sizeof more / sizeof *more };

static const char *recipe_at(int k)
{
    const char *name =
        k < qm_variant_count() ? qm_variant_at(k)->name : more[k - qm_variant_count()];
    return qm_name_matches(name, filter) ? name : NULL;
}

static int recipe_count(void) { return qm_variant_count() + MORE; }

/* The other sign and payload of every NaN change no code and no other number, at any instruction
 * set; all instruction sets agree. */
static void test_cpu(void **state)
{
    enum qm_isa best = qm_isa();
    (void)state;
    for (int k = 0; k < recipe_count(); k++)
        for (int s = 0; s < SHAPES && recipe_at(k); s++)
            for (int which = 0;
                 which < 2 && is_drawn(k * SHAPES + s) && takes(recipe_at(k), &shapes[s]);
                 which++) {
                struct outcome base, other;
                assert_true(qm_isa_force(QM_ISA_sse2));
                run(&qm_backend_cpu, recipe_at(k), &shapes[s], which, ONE, &base);
                for (int isa = 0; isa < QM_ISA_COUNT; isa++)
                    for (int nans = ONE; nans <= OTHER; nans++) {
                        char what[256];
                        if (!qm_isa_force((enum qm_isa)isa))
                            continue;
                        snprintf(what, sizeof what, "%s, shape %d, %s, %s NaNs", recipe_at(k), s,
                                 qm_isa_text((enum qm_isa)isa), nans ? "other" : "the same");
                        run(&qm_backend_cpu, recipe_at(k), &shapes[s], which, (enum nans)nans,
                            &other);
                        same(&base, &other, what);
                        outcome_free(&other);
                    }
                outcome_free(&base);
            }
    qm_isa_force(best);
    report("cpu");
}

/* The emulator's codes and numbers are the CPU's. */
static void test_emulator(void **state)
{
    (void)state;
    if (qm_backend_emu.probe() != QM_OK) {
        print_message("skipped: %s\n", qm_message());
        skip();
    }
    for (int k = 0; k < recipe_count(); k++)
        for (int which = 0; which < 2 && recipe_at(k) && is_drawn(k); which++) {
            struct outcome cpu, emu;
            if (!run(&qm_backend_emu, recipe_at(k), &shapes[0], which, ONE, &emu)) {
                print_message("skipped: %s: %s\n", recipe_at(k), qm_message());
                break;
            }
            run(&qm_backend_cpu, recipe_at(k), &shapes[0], which, ONE, &cpu);
            char what[256];
            snprintf(what, sizeof what, "%s, cpu and emulator", recipe_at(k));
            same(&cpu, &emu, what);
            outcome_free(&cpu);
            outcome_free(&emu);
        }
    report("emulator");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cpu),
        cmocka_unit_test(test_emulator),
    };
    int recipes = 0;
    filter = argc > 1 ? argv[1] : NULL;
    for (int k = 0; k < recipe_count(); k++)
        recipes += recipe_at(k) != NULL;
    return recipes ? cmocka_run_group_tests(tests, NULL, NULL) : 4;
}
