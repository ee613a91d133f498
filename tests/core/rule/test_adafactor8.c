/* test_adafactor8.c - Tests the family of adafactor8bit: rules against the oracle, codes, and
 * states that change their format during a run. */
#include <stdlib.h>

#include "core/base/philox.h"
#include "core/recipe/backend.h"
#include "oracle/oracle.h"
#include "tests/support/adafactor8_slots.h"
#include "tests/support/expect_near.h"

/* ---- the rules against the oracle ------------------------------------------------------------ */

static float noise(uint64_t seed, int64_t t, int64_t i)
{
    float sum = -2.0f;
    for (uint64_t k = 0; k < 4; k++)
        sum += qm_uniform(qm_philox_stream(seed, (uint64_t)t * 8 + k, (uint64_t)i));
    return sum;
}

/* Compares twelve steps with float32 states.  In every step the parameters agree to 2e-5 of the
 * largest move of a parameter. */
static void agree(const char *text, const struct qm_shape *shape)
{
    struct qm_recipe r;
    void *plan;
    int64_t n = qm_shape_numel(shape);
    static float p[MOST], g[MOST];
    static double q[MOST], wide[MOST];
    if (qm_recipe_parse(text, &r) != QM_OK)
        fail_msg("%s: %s", text, qm_message());
    for (int s = 0; s < SLOTS; s++)
        r.slot[s] = (struct qm_quantizer){.scale = {.zero = -1}};
    struct qm_oracle_hyper h = {
#define X(name, value, what) .name = r.hyper.name,
        QM_HYPER_LIST(X) QM_HYPER_FLAG_LIST(X)
#undef X
    };
    slots_reset();
    for (int64_t i = 0; i < n; i++)
        q[i] = (double)(p[i] = noise(7, 0, i));
    assert_int_equal(qm_backend_cpu.open(&r, shape, 3, &plan), QM_OK);
    for (int64_t t = 1; t <= 12; t++) {
        double most = 0.0, worst = 0.0;
        for (int64_t i = 0; i < n; i++)
            wide[i] = (double)(g[i] = noise(8, t, i) * ldexpf(1.0f, (int)(i % 5) - (int)(t % 3)));
        struct qm_tensor pt = {p, QM_DTYPE_f32, *shape}, gt = {g, QM_DTYPE_f32, *shape};
        for (int64_t i = 0; i < n; i++)
            q[i] = (double)p[i];
        static double before[MOST];
        memcpy(before, q, sizeof *q * (size_t)n);
        if (qm_backend_cpu.step(plan, &pt, &gt, t, 5) != QM_OK)
            fail_msg("%s: %s", text, qm_message());
        assert_int_equal(
            qm_oracle_step(qm_oracle_find(r.rule->family), q, slots, wide, shape, 3, &h, t), QM_OK);
        for (int64_t i = 0; i < n; i++) {
            most = fmax(most, fabs(q[i] - before[i]));
            worst = fmax(worst, fabs((double)p[i] - q[i]));
        }
        if (!(worst <= 2e-5 * most + 2.4e-7)) /* two roundings of a parameter below 2 */
            fail_msg("%s, rank %d, step %d: off by %g of %g", text, shape->rank, (int)t, worst,
                     most);
    }
    qm_backend_cpu.close(plan);
}

static void rules_agree(void **state)
{
    (void)state;
    static const struct qm_shape shapes[] = {{1, {130}},       {2, {24, 17}}, {2, {9, 40}},
                                             {3, {4, 6, 10}},  {2, {33, 1}},  {1, {1}},
                                             {4, {2, 3, 5, 4}}};
    static const char *const options[] = {
        "",
        ",beta1=-1",
        ",beta2=0.99,relative_step=0,weight_decay=0.1,scale_weight_decay=0",
        ",factored=0,maximize=1,scale_parameter=0,clip=2",
        ",limiter=1,margin=0.05",
        ",rank=3,factored=0,gap=5",
        ",rank=2,factored=1,beta2=0.99,relative_step=0",
        ",rank=4,factored=0,tensor_scale=1,scale=4,scale_front=1,beta1=-1",
        ",beta3=0.9,beta2=0.99",
        ",beta3=0.9,beta2=0.99,relative_step=0,maximize=1,limiter=1",
    };
    static const char *const variants[] = {"adafactor8_026_torch", "adafactor8_022_torch",
                                           "adafactor8_025_torch", "adafactor8_026",
                                           "adafactor8_022",       "adafactor8_025"};
    for (size_t v = 0; v < sizeof variants / sizeof *variants; v++)
        for (size_t o = 0; o < sizeof options / sizeof *options; o++)
            for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
                char text[256];
                /* the source leaves eps1 out for float32 vectors, the oracle does not */
                int plain_vector = shapes[s].rank == 1 || strstr(options[o], ",factored=0");
                snprintf(text, sizeof text, "%s%s%s", variants[v], options[o],
                         plain_vector ? ",eps1=1e-15" : "");
                agree(text, &shapes[s]);
            }
}

/* Release 0.4.6, whose options are others. */
static void rules_agree_046(void **state)
{
    (void)state;
    static const struct qm_shape shapes[] = {{1, {130}},      {2, {24, 17}}, {2, {9, 40}},
                                             {3, {4, 6, 10}}, {2, {33, 1}},  {1, {1}}};
    static const char *const recipes[] = {
        "adafactor8_046",
        "adafactor8_046,beta1=-1",
        "adafactor8_046,clip=0,maximize=1,limiter=1",
        "adafactor8_046,beta2=0.99,relative_step=0,correct_bias=1,weight_decay=0.1",
        "adafactor8_046,factored=0",
        "came8_046",
        "came8_046,clip=0,relative_step=0,correct_bias=1",
        "adamw8_046",
        "adamw8_046,beta1=-1,clip=1",
        "adamw8_046,correct_bias=0,eps1=1e-3,weight_decay=0.1",
    };
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            agree(recipes[i], &shapes[s]);
}

/* What the rule does not read, and betas that no rule has. */
static void betas_are_refused(void **state)
{
    (void)state;
    struct qm_recipe r;
    assert_int_equal(qm_recipe_parse("adafactor8_024,momentum=0.5", &r), QM_BAD_ARG);
    assert_non_null(strstr(qm_message(), "rule adafactor8_024_cuda"));
    assert_int_equal(qm_recipe_parse("adafactor8_026,beta1=-0.5", &r), QM_BAD_ARG);
    assert_int_equal(qm_recipe_parse("adamw_f32,beta1=-1", &r), QM_BAD_ARG);
}

/* ---- CAME on the CUDA path, by hand ---------------------------------------------------------- */

enum { ROWS = 12, COLS = 20, ALL = ROWS * COLS };
static const char *const came_cuda =
    "adafactor8_026,beta2=0.99,beta3=0.95,relative_step=0,scale_parameter=0,exp_avg.min_numel=0,"
    "row_var.min_numel=0,col_var.min_numel=0,conf_row.min_numel=0,conf_col.min_numel=0";

/* Encodes x[n] by a slot's quantizer and decodes it. */
static void through_codes(const struct qm_recipe *r, int slot, int64_t n, double *x)
{
    struct qm_codec c;
    struct qm_shape shape = {1, {n}};
    float wide[ALL], scales[ALL];
    uint8_t codes[ALL];
    assert_int_equal(qm_codec_init(&c, &r->slot[slot]), QM_OK);
    for (int64_t i = 0; i < n; i++)
        wide[i] = (float)x[i];
    assert_int_equal(qm_encode(&c, &shape, wide, NULL, codes, scales), QM_OK);
    qm_decode(&c, &shape, codes, scales, wide);
    for (int64_t i = 0; i < n; i++)
        x[i] = (double)wide[i];
}

/* Adds the row and column means of x + add to the averages with weight b, then encodes and
 * decodes the averages. */
static void average_by_hand(const struct qm_recipe *r, int slot, const double *x, double add,
                            double b, double *row, double *col)
{
    for (int i = 0; i < ROWS; i++) {
        double sum = 0.0;
        for (int j = 0; j < COLS; j++)
            sum += x[i * COLS + j];
        row[i] = (1.0 - b) * row[i] + b * (sum / COLS + add);
    }
    for (int j = 0; j < COLS; j++) {
        double sum = 0.0;
        for (int i = 0; i < ROWS; i++)
            sum += x[i * COLS + j];
        col[j] = (1.0 - b) * col[j] + b * (sum / ROWS + add);
    }
    through_codes(r, slot, ROWS, row);
    through_codes(r, slot + 1, COLS, col);
}

/* One step.  With `fresh` the residual uses the momentum before it is encoded, which the CUDA
 * path does not do. */
static void came_by_hand(const struct qm_recipe *r, int fresh, const float *g, double *s[SLOTS],
                         double *p, int64_t t)
{
    double x[ALL], u[ALL], m[ALL], eps1 = 0x1p-23, mean = 0.0, sum = 0.0;
    for (int i = 0; i < ALL; i++)
        x[i] = (double)g[i] * (double)g[i];
    average_by_hand(r, ROW, x, eps1, 1.0 - 0.99, s[ROW], s[COL]);
    for (int i = 0; i < ROWS; i++)
        mean += s[ROW][i] / ROWS;
    for (int i = 0; i < ALL; i++) {
        u[i] = (double)g[i] / sqrt(s[ROW][i / COLS] * s[COL][i % COLS] / mean);
        sum += u[i] * u[i];
    }
    for (int i = 0; i < ALL; i++) {
        u[i] /= fmax(1.0, sqrt(sum / ALL));
        m[i] = s[M][i] = 0.9 * s[M][i] + 0.1 * u[i];
    }
    through_codes(r, M, ALL, s[M]);
    for (int i = 0; i < ALL; i++)
        x[i] = pow(u[i] - (fresh ? m[i] : s[M][i]), 2.0) + 1e-8;
    average_by_hand(r, CONF_ROW, x, 0.0, 1.0 - 0.95, s[CONF_ROW], s[CONF_COL]);
    double rate = 1e-2 * sqrt(1.0 - pow(0.99, (double)t)) / (1.0 - pow(0.9, (double)t));
    mean = 0.0;
    for (int i = 0; i < ROWS; i++)
        mean += s[CONF_ROW][i] / ROWS;
    for (int i = 0; i < ALL; i++) /* not clipped again */
        p[i] -= rate * s[M][i] / sqrt(s[CONF_ROW][i / COLS] * s[CONF_COL][i % COLS] / mean);
}

static void came_on_cuda(void **state)
{
    (void)state;
    struct qm_recipe r;
    struct qm_shape shape = {2, {ROWS, COLS}};
    void *plan;
    float p[ALL] = {0}, g[ALL], got[ALL];
    double want[2][ALL] = {{0}}, off[2] = {0}, most = 0.0;
    static double room[2][SLOTS][ALL], *s[2][SLOTS];
    static const int numbers[SLOTS] = {ALL, ROWS, COLS, 0, ROWS, COLS, 0, 0};
    assert_int_equal(qm_recipe_parse(came_cuda, &r), QM_OK);
    assert_int_equal(qm_backend_cpu.open(&r, &shape, 0, &plan), QM_OK);
    for (int k = 0; k < 2 * SLOTS; k++) {
        s[k / SLOTS][k % SLOTS] = room[k / SLOTS][k % SLOTS];
        assert_int_equal(qm_backend_cpu.decode(plan, k % SLOTS, got), QM_OK);
        for (int i = 0; i < numbers[k % SLOTS]; i++)
            room[k / SLOTS][k % SLOTS][i] = (double)got[i];
    }
    for (int64_t t = 1; t <= 5; t++) {
        for (int i = 0; i < ALL; i++)
            g[i] = noise(21, t, i) * (float)(1 + i % 7);
        struct qm_tensor pt = {p, QM_DTYPE_f32, shape}, gt = {g, QM_DTYPE_f32, shape};
        assert_int_equal(qm_backend_cpu.step(plan, &pt, &gt, t, 0), QM_OK);
        for (int fresh = 0; fresh < 2; fresh++)
            came_by_hand(&r, fresh, g, s[fresh], want[fresh], t);
        for (int k = 0; k < SLOTS; k++) {
            assert_int_equal(qm_backend_cpu.decode(plan, k, got), QM_OK);
            for (int i = 0; i < numbers[k]; i++) /* a code off by one would be at least 6 % off */
                expect_near((double)got[i], room[0][k][i], 1e-5);
        }
    }
    qm_backend_cpu.close(plan);
    for (int i = 0; i < ALL; i++) {
        most = fmax(most, fabs(want[0][i]));
        for (int fresh = 0; fresh < 2; fresh++)
            off[fresh] = fmax(off[fresh], fabs((double)p[i] - want[fresh][i]));
    }
    assert_true(off[0] <= 2e-5 * most);
    assert_true(off[1] > 1e-3 * most);
}

/* ---- codes ----------------------------------------------------------------------------------- */

/* Zeros are exact.  Another value errs by at most half a step of its block's range in log2,
 * span / 508, also at the ends of the range. */
static void adaptive_code(void **state)
{
    (void)state;
    enum { N = 1000, BLOCK = 64 };
    struct qm_codec c;
    struct qm_shape shape = {1, {N}};
    static float x[N], out[N], numbers[2 * ((N + BLOCK - 1) / BLOCK)];
    static uint8_t codes[N];
    assert_int_equal(qm_codec_parse(&c, "al:8u/block:64/arith/even/allog"), QM_OK);
    assert_int_equal(qm_scale_count(&c, &shape), 2 * 16);
    assert_int_equal(qm_state_bytes(&c, &shape), N + 8 * 16);
    for (int i = 0; i < N; i++)
        x[i] = i % 7 == 0 ? 0.0f : exp2f(noise(1, 0, i) * (float)(1 + i / BLOCK));
    assert_int_equal(qm_encode(&c, &shape, x, NULL, codes, numbers), QM_OK);
    qm_decode(&c, &shape, codes, numbers, out);
    for (int i = 0; i < N; i++) {
        float span = numbers[2 * (i / BLOCK)];
        assert_true((x[i] == 0.0f) == (codes[i] == 0));
        if (x[i] == 0.0f)
            assert_true(out[i] == 0.0f);
        else
            assert_true(fabs(log2((double)out[i] / (double)x[i])) <= (double)span / 508.0 + 1e-5);
    }
    static const char *const bad[] = {"al:8u/block:64/arith/even", "al:8u/row/arith/even/allog",
                                      "al:8u/block:64/arith/even/allog/cap:1",
                                      "al:8u/block:64/bisect/near/allog"};
    for (int i = 0; i < 4; i++)
        assert_int_equal(qm_codec_parse(&c, bad[i]), QM_BAD_ARG);

    /* floor:V: no block begins below it, what lies below has code 1, and blocks above are
     * as before */
    static float above[sizeof numbers / sizeof *numbers];
    assert_int_equal(qm_codec_parse(&c, "al:8u/block:64/arith/even/allog/floor:0.25"), QM_OK);
    assert_int_equal(qm_encode(&c, &shape, x, NULL, codes, above), QM_OK);
    for (int i = 0; i < N; i++) {
        float low = above[2 * (i / BLOCK) + 1], before = numbers[2 * (i / BLOCK) + 1];
        assert_true(low == fmaxf(before, -2.0f));
        assert_true(before < -2.0f || above[2 * (i / BLOCK)] == numbers[2 * (i / BLOCK)]);
        assert_true(x[i] == 0.0f || x[i] > 0.25f || codes[i] == 1);
    }
}

/* Search `lower` gives the nearest entry, except that a nonzero number always keeps its sign. */
static void lower_search(void **state)
{
    (void)state;
    struct qm_codec c, near;
    assert_int_equal(qm_codec_parse(&c, "de:4s/tensor/lower/mid/hi"), QM_OK);
    assert_int_equal(qm_codec_parse(&near, "de:4s/tensor/argmin/mid/hi"), QM_OK);
    assert_int_equal(qm_codec_parse(&c, "lin:4u/tensor/lower/mid/hi"), QM_BAD_ARG);
    assert_int_equal(qm_codec_parse(&c, "de:4s/tensor/lower/mid/hi"), QM_OK);
    for (int i = -20000; i <= 20000; i++) {
        float x = (float)i / 20000.0f;
        float got = c.cb.value[qm_code_of(&c, x, 0)], best = c.cb.value[qm_code_of(&near, x, 0)];
        assert_true((got > 0.0f) == (x > 0.0f) && (got < 0.0f) == (x < 0.0f));
        if (best != 0.0f)
            assert_true(fabsf(x - got) <= fabsf(x - best));
    }
    assert_true(c.cb.value[qm_code_of(&c, 1e-30f, 0)] > 0.0f);
}

/* The mean log2 of the odd elements' second moments after 400 steps; after step 50 the gradients
 * of the odd elements shrink to a hundredth. */
static double after_drop(const char *recipe)
{
    struct qm_recipe r;
    struct qm_shape shape = {1, {MOST}};
    static float p[MOST], g[MOST], v[MOST];
    void *plan;
    double sum = 0.0;
    assert_int_equal(qm_recipe_parse(recipe, &r), QM_OK);
    assert_int_equal(qm_backend_cpu.open(&r, &shape, 0, &plan), QM_OK);
    memset(p, 0, sizeof p);
    for (int64_t t = 1; t <= 400; t++) {
        for (int i = 0; i < MOST; i++)
            g[i] = noise(3, t, i) * (t > 50 && i % 2 ? 0.01f : 1.0f);
        struct qm_tensor pt = {p, QM_DTYPE_f32, shape}, gt = {g, QM_DTYPE_f32, shape};
        assert_int_equal(qm_backend_cpu.step(plan, &pt, &gt, t, 0), QM_OK);
    }
    assert_int_equal(qm_backend_cpu.decode(plan, V, v), QM_OK);
    qm_backend_cpu.close(plan);
    for (int i = 1; i < MOST; i += 2)
        sum += log2((double)v[i]);
    return sum / (MOST / 2.0);
}

/* When its gradients shrink, a second moment on the fixed log grid keeps its value.  In float32 it
 * decays, and on the adaptive grid of a block of equal values it decays too (not tested here). */
static void stall(void **state)
{
    (void)state;
    double exact = after_drop("adafactor8_024_torch,beta1=-1,beta2=0.99,variance=f32");
    double fixed = after_drop("adafactor8_024_torch,beta1=-1,beta2=0.99");
    assert_true(exact < -4.0);        /* 0.99^350 of 1/3 */
    assert_true(fixed > exact + 4.0); /* the grid holds the old value */
}

/* ---- formats that change during a run -------------------------------------------------------- */

/* Decodes every slot of plan `from`, encodes it by r's quantizer and loads it into plan `to`. */
static void convert(void *from, void *to, const struct qm_recipe *r, const struct qm_shape *shape)
{
    static float x[MOST], scales[MOST];
    static uint8_t codes[MOST];
    for (int s = 0; s < SLOTS; s++) {
        struct qm_quantizer q = qm_recipe_slot(r, s, shape);
        struct qm_shape own;
        struct qm_codec c;
        qm_rule_slot_shape(r->rule, &r->hyper, s, shape, &own);
        assert_int_equal(qm_backend_cpu.decode(from, s, x), QM_OK);
        if (q.bits == 0) {
            assert_int_equal(qm_backend_cpu.load(to, s, NULL, x), QM_OK);
            continue;
        }
        assert_int_equal(qm_codec_init(&c, &q), QM_OK);
        assert_int_equal(qm_encode(&c, &own, x, NULL, codes, scales), QM_OK);
        assert_int_equal(qm_backend_cpu.load(to, s, codes, scales), QM_OK);
    }
}

static void steps(void *plan, const struct qm_shape *shape, float *p, int64_t from, int64_t to)
{
    static float g[MOST];
    for (int64_t t = from; t <= to; t++) {
        for (int i = 0; i < MOST; i++)
            g[i] = noise(4, t, i);
        struct qm_tensor pt = {p, QM_DTYPE_f32, *shape}, gt = {g, QM_DTYPE_f32, *shape};
        assert_int_equal(qm_backend_cpu.step(plan, &pt, &gt, t, 0), QM_OK);
    }
}

/* In the same format the momentum keeps every bit, and the log code changes by the last places
 * of its scale.  In another format the run continues within the new format's error.  float32
 * keeps every value. */
static void conversion(void **state)
{
    (void)state;
    static const char *const to[] = {
        "adafactor8_024_torch",
        "adafactor8_024_torch,exp_avg.norm=block:32,row_var=f32,col_var=f32",
        "adafactor8_022_torch,row_var.norm=block:1024",
        "adafactor8_026_torch,exp_avg=f32",
        "adafactor8_024_torch,row_var=al:8u/block:128/arith/even/allog",
    };
    struct qm_shape shape = {2, {64, 64}};
    static float p[MOST], q[MOST], x[MOST], y[MOST];
    struct qm_recipe r;
    void *old, *new;
    for (int k = 0; k < 5; k++) {
        for (int i = 0; i < MOST; i++)
            p[i] = noise(5, 0, i);
        assert_int_equal(qm_recipe_parse("adafactor8_024_torch", &r), QM_OK);
        assert_int_equal(qm_backend_cpu.open(&r, &shape, 0, &old), QM_OK);
        steps(old, &shape, p, 1, 10);
        memcpy(q, p, sizeof p);
        if (qm_recipe_parse(to[k], &r) != QM_OK)
            fail_msg("%s", qm_message());
        assert_int_equal(qm_backend_cpu.open(&r, &shape, 0, &new), QM_OK);
        convert(old, new, &r, &shape);
        double e2 = 0.0, x2 = 0.0;
        assert_int_equal(qm_backend_cpu.decode(old, M, x), QM_OK);
        assert_int_equal(qm_backend_cpu.decode(new, M, y), QM_OK);
        for (int i = 0; i < MOST; i++) {
            e2 += ((double)y[i] - (double)x[i]) * ((double)y[i] - (double)x[i]);
            x2 += (double)x[i] * (double)x[i];
        }
        assert_true(k == 0 || k == 3 || k == 4 ? e2 == 0.0 : e2 < 0.03 * x2);
        steps(old, &shape, p, 11, 20);
        steps(new, &shape, q, 11, 20);
        e2 = x2 = 0.0;
        for (int i = 0; i < MOST; i++) {
            double moved = (double)p[i] - (double)noise(5, 0, i);
            e2 += ((double)q[i] - (double)p[i]) * ((double)q[i] - (double)p[i]);
            x2 += moved * moved;
        }
        assert_true(e2 < (k == 0 ? 1e-8 : 0.1) * x2);
        qm_backend_cpu.close(old);
        qm_backend_cpu.close(new);
    }
}

/* ---- the limiter ---------------------------------------------------------------------------- */

/* The second step of ones by a limited update, after a norm `prev`, with an infinite gradient or
 * without; returns how many of the 32 parameters are NaN, and -1 if they have not moved. */
static int limited(const char *variant, float prev, int is_infinite, double lr, float *next)
{
    const struct qm_shape shape = {.rank = 3, .dim = {1, 2, 16}};
    float p[32], g[32];
    struct qm_tensor pt = {p, QM_DTYPE_f32, shape}, gt = {g, QM_DTYPE_f32, shape};
    struct qm_recipe r;
    void *plan;
    int nan = 0, moved = 0;
    char text[200];
    snprintf(text, sizeof text,
             "%s,beta1=-1,beta2=0.999,relative_step=0,scale_parameter=0,limiter=1,weight_decay=0",
             variant);
    assert_int_equal(qm_recipe_parse(text, &r), QM_OK);
    r.hyper.lr = lr;
    assert_int_equal(qm_backend_cpu.open(&r, &shape, 0, &plan), QM_OK);
    for (int64_t t = 1; t <= 2; t++) {
        for (int i = 0; i < 32; i++) {
            p[i] = 1.0f;
            g[i] = noise(9, t, i);
        }
        if (t == 2 && is_infinite)
            g[0] = HUGE_VALF;
        if (t == 2)
            assert_int_equal(qm_backend_cpu.load(plan, 6, NULL, &prev), QM_OK);
        assert_int_equal(qm_backend_cpu.step(plan, &pt, &gt, t, 0), QM_OK);
    }
    assert_int_equal(qm_backend_cpu.save(plan, 6, NULL, next), QM_OK);
    qm_backend_cpu.close(plan);
    for (int i = 0; i < 32; i++) {
        nan += isnan(p[i]);
        moved += p[i] != 1.0f;
    }
    return moved ? nan : -1;
}

/* As the packages do, which were run with the same states: a memory that is NaN makes every
 * parameter NaN; so does an infinite norm to 0.2.4, and from 0.2.5 on it makes no step, unless the
 * rate is NaN. */
static void limiter(void **state)
{
    (void)state;
    static const char *const later[] = {"adafactor8_025_torch", "adafactor8_026_torch",
                                        "adafactor8_046"};
    float next;
    for (int k = 0; k < 3; k++) {
        assert_int_equal(limited(later[k], NAN, 0, 0.01, &next), 32);
        assert_true(isnan(next));
        assert_int_equal(limited(later[k], NAN, 1, 0.01, &next), 32);
        assert_true(isnan(next));
        assert_int_equal(limited(later[k], 1.0f, 1, 0.01, &next), -1);
        assert_true(next == 0.0f);
        assert_int_equal(limited(later[k], 1.0f, 1, (double)NAN, &next), 32);
        assert_true(next == 0.0f);
    }
    assert_int_equal(limited("adafactor8_024_torch", 1.0f, 1, 0.01, &next), 32);
    assert_true(isnan(next));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_agree),
        cmocka_unit_test(rules_agree_046),
        cmocka_unit_test(betas_are_refused),
        cmocka_unit_test(came_on_cuda),
        cmocka_unit_test(adaptive_code),
        cmocka_unit_test(lower_search),
        cmocka_unit_test(stall),
        cmocka_unit_test(limiter),
        cmocka_unit_test(conversion),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
