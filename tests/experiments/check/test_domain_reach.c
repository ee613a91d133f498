/* test_domain_reach.c - What the cases of every default check reach: numbers that count elements,
 * ends of fallbacks, thin matrices, long sides, sums of many numbers. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/user_kernel/backend_file.h"
#include "experiments/check/domain.h"
#include "experiments/check/effect.h"

static const uint64_t seeds[] = {20240501, 2, 3, 4242};
enum { SEEDS = sizeof seeds / sizeof *seeds, DRAWS = QM_CHECK_DRAWS };

/* Of a kernel of one's own, whose process can be restarted. */
static struct qm_domain domain_of(const char *recipe, int candidates)
{
    struct qm_recipe r;
    struct qm_domain d;
    assert_int_equal(qm_recipe_parse(recipe, &r), QM_OK);
    qm_domain_of(&r, &qm_backend_file, &d);
    d.candidates = candidates ? d.candidates : 0;
    return d;
}

/* How many cases of a default check are such ones, with every seed at least `least`. */
static void some_are(const char *recipe, int candidates, int least,
                     int (*is)(const struct qm_domain *d, const struct qm_case *c))
{
    struct qm_domain d = domain_of(recipe, candidates);
    for (int k = 0; k < SEEDS; k++) {
        int n = 0;
        for (int64_t i = 0; i < DRAWS; i++) {
            struct qm_case c = qm_domain_draw(&d, seeds[k], i);
            n += is(&d, &c);
        }
        if (n < least)
            fail_msg("%s, seed %llu: %d cases", recipe, (unsigned long long)seeds[k], n);
    }
}

static int64_t numel(const struct qm_case *c) { return qm_shape_numel(&c->shape); }

static struct qm_hyper hyper_of(const struct qm_domain *d, const struct qm_case *c)
{
    struct qm_recipe r = d->recipe;
    qm_case_apply(c, &r);
    return r.hyper;
}

/* ---- numbers that count elements ------------------------------------------------------------- */

static int has_long_block(const struct qm_domain *d, const struct qm_case *c)
{
    return hyper_of(d, c).d_block > 20864.0 && numel(c) > 20864;
}

/* A block of as many elements as the tensor, or one beside it. */
static int has_block_of_all(const struct qm_domain *d, const struct qm_case *c)
{
    return fabs(hyper_of(d, c).d_block - (double)numel(c)) <= 1.0 && numel(c) > 41;
}

static int has_large_rank(const struct qm_domain *d, const struct qm_case *c)
{
    return hyper_of(d, c).rank > 16.0;
}

static int has_other_order(const struct qm_domain *d, const struct qm_case *c)
{
    (void)d;
    return (c->given >> QM_HYPER_max_order & 1) && c->hyper[QM_HYPER_max_order] > 12.0;
}

static int is_cut_unequally(int64_t side, int64_t order)
{
    return side > order && side % order != 0;
}

/* Sides of a matrix that are cut into pieces of which the last ones are shorter; those of one side
 * may have codes, and the last one none. */
static int has_unequal_pieces(const struct qm_domain *d, const struct qm_case *c)
{
    int64_t order = (int64_t)hyper_of(d, c).max_order;
    return c->shape.rank == 2 && c->shape.dim[0] > 1 && c->shape.dim[1] > 1 &&
           (is_cut_unequally(c->shape.dim[0], order) || is_cut_unequally(c->shape.dim[1], order));
}

static int has_plain_last_piece(const struct qm_domain *d, const struct qm_case *c)
{
    struct qm_hyper h = hyper_of(d, c);
    double order = h.max_order, rest = fmod((double)c->shape.dim[0], order);
    return has_unequal_pieces(d, c) && rest > 0.0 && order * order >= h.min_lowbit &&
           rest * rest < h.min_lowbit;
}

/* A projection of more numbers than 16 bits count, whose rank is beyond 256 and not cut down. */
static int has_rank_beyond_256(const struct qm_domain *d, const struct qm_case *c)
{
    return c->shape.rank == 2 && hyper_of(d, c).rank > 256.0;
}

static int has_large_projection(const struct qm_domain *d, const struct qm_case *c)
{
    double least =
        c->shape.rank == 2 ? fmin((double)c->shape.dim[0], (double)c->shape.dim[1]) : 0.0;
    return !c->forced && hyper_of(d, c).rank * least > 0x1p16;
}

static void test_numbers_that_count_elements(void **state)
{
    (void)state;
    some_are("microadam4", 0, 2, has_long_block);
    some_are("microadam4", 0, 2, has_block_of_all);
    some_are("apollo_f32", 0, 2, has_large_rank);
    some_are("apollo_f32", 0, 4, has_rank_beyond_256);
    some_are("apollo_f32", 0, 2, has_large_projection);
    some_are("apollo8_026", 0, 2, has_large_projection);
    some_are("fira_f32", 0, 1, has_rank_beyond_256);
    some_are("shampoo4_adamw", 0, 8, has_other_order);
    some_are("shampoo4_adamw", 0, 8, has_unequal_pieces);
    some_are("shampoo4_sgd", 0, 8, has_unequal_pieces);
    some_are("shampoo4_adamw", 0, 1, has_plain_last_piece);
}

/* A large value is one of the shape or of the whole range, and always one that may be given. */
static void test_draws_of_counts(void **state)
{
    const struct qm_shape shape = {2, {70, 300}};
    int near = 0, far = 0;
    (void)state;
    for (uint32_t word = 0; word < 4000; word++) {
        uint32_t at = word * 2654435761u;
        double x = qm_hyper_draw_for(QM_HYPER_d_block, QM_HYPER_BIN_large, at, &shape);
        double y = qm_hyper_draw_for(QM_HYPER_max_order, QM_HYPER_BIN_large, at, &shape);
        assert_true(x >= 1.0 && x <= 32768.0 && x == floor(x));
        assert_true(y >= 1.0 && y <= 1048576.0 && y == floor(y));
        near += fabs(x - 70.0) <= 1.0 || fabs(x - 300.0) <= 1.0 || fabs(x - 21000.0) <= 1.0;
        far += x > 16384.0;
    }
    assert_in_range(near, 1600, 2400);
    assert_true(far > 150);
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static int is_short_of_a_block(const struct qm_domain *d, const struct qm_case *c)
{
    (void)d;
    return !c->forced && numel(c) < 4096 && numel(c) % 256 == 255;
}

static int is_last_with_fallback(const struct qm_domain *d, const struct qm_case *c)
{
    (void)d;
    return !c->forced && numel(c) == 4095;
}

static void test_ends_of_fallbacks(void **state)
{
    (void)state;
    some_are("adamw8_bnb", 0, 4, is_short_of_a_block);
    some_are("adamw8_bnb", 0, 1, is_last_with_fallback);
}

static int is_thin(const struct qm_domain *d, const struct qm_case *c)
{
    int last = c->shape.rank - 1;
    int64_t side = last < 1 ? 0 : c->shape.dim[last];
    side = last > 0 && c->shape.dim[last - 1] > side ? c->shape.dim[last - 1] : side;
    return side > 512 && side <= 4096 && hyper_of(d, c).lr > 0.0;
}

static void test_thin_matrices(void **state)
{
    (void)state;
    some_are("muon_f32", 0, 8, is_thin);
}

static int has_long_side(const struct qm_case *c, int a)
{
    return c->shape.rank == 2 && c->shape.dim[a] > (1 << 16) && c->kind == QM_CLASS_normal &&
           !qm_case_takes(c, QM_PART_godd);
}
static int has_many_rows(const struct qm_domain *d, const struct qm_case *c)
{
    (void)d;
    return has_long_side(c, 0);
}
static int has_many_columns(const struct qm_domain *d, const struct qm_case *c)
{
    (void)d;
    return has_long_side(c, 1);
}

static void test_long_sides(void **state)
{
    static const char *const recipes[] = {"adamw4_lpmm", "came_f32", "adafactor_hf"};
    (void)state;
    for (int k = 0; k < 3; k++) {
        some_are(recipes[k], 0, 1, has_many_rows);
        some_are(recipes[k], 0, 1, has_many_columns);
    }
}

/* Both sides beyond 256, and this one the longer. */
static int is_large_along(const struct qm_case *c, int a)
{
    return c->shape.rank == 2 && c->shape.dim[!a] > 256 && c->shape.dim[a] > c->shape.dim[!a];
}
static int is_large_and_tall(const struct qm_domain *d, const struct qm_case *c)
{
    (void)d;
    return is_large_along(c, 0);
}
static int is_large_and_wide(const struct qm_domain *d, const struct qm_case *c)
{
    (void)d;
    return is_large_along(c, 1);
}
static int differs_by_one(const struct qm_domain *d, const struct qm_case *c)
{
    (void)d;
    return c->shape.rank == 2 && c->shape.dim[0] > 32 &&
           fabs((double)(c->shape.dim[0] - c->shape.dim[1])) == 1.0;
}

/* Muon has a branch for tall matrices, and blocks. */
static void test_large_sides(void **state)
{
    (void)state;
    some_are("muon8_bnb_triton", 0, 1, is_large_and_tall);
    some_are("muon8_bnb_triton", 0, 1, is_large_and_wide);
    some_are("adamw4_lpmm", 0, 1, differs_by_one);
}

static int has_eight_axes(const struct qm_domain *d, const struct qm_case *c)
{
    int all = c->shape.rank == QM_MAX_RANK;
    (void)d;
    for (int a = 0; a < c->shape.rank; a++)
        all &= c->shape.dim[a] > 1;
    return all;
}

static void test_eight_axes(void **state)
{
    (void)state;
    some_are("adamw4_lpmm", 0, 1, has_eight_axes);
}

/* ---- settings at once ------------------------------------------------------------------------ */

/* The weight is a power of t, nothing is added to squares, and they may be denormal. */
static int has_no_floor(const struct qm_domain *d, const struct qm_case *c)
{
    struct qm_hyper h = hyper_of(d, c);
    int is_tiny = c->kind == QM_CLASS_floors || qm_case_power(c, QM_POWER_g) < -50;
    return h.beta2 < 0.0 && h.eps1 == 0.0 && is_tiny;
}

/* Corrections in which 1 - beta2^t is lost, around the step from which RAdam's is rectified. */
static int is_next_to_one(const struct qm_domain *d, const struct qm_case *c)
{
    double left = 1.0 - hyper_of(d, c).beta2;
    return left > 0.0 && left < 0x1p-12 && c->t >= 3 && c->t <= 8;
}

static void test_special_values_meet(void **state)
{
    (void)state;
    some_are("adamw8_046", 0, 2, has_no_floor);
    some_are("radam_f32", 0, 2, is_next_to_one);
    some_are("adamw_f32", 0, 2, is_next_to_one);
}

/* A statistic of an order above 64 that is due, and hardly decays. */
static int is_due_and_slow(const struct qm_domain *d, const struct qm_case *c)
{
    struct qm_hyper h = hyper_of(d, c);
    return c->shape.rank == 2 && h.max_order > 64.0 && h.stat_gap == 1.0 && h.stat_decay > 0.999 &&
           (c->shape.dim[0] > 64 || c->shape.dim[1] > 64);
}

static void test_slow_statistics(void **state)
{
    (void)state;
    some_are("shampoo4_sgd", 0, 1, is_due_and_slow);
}

/* Class zeroblock of matrices: in about half of the seeds a whole row and a whole column are zeros,
 * in every step, and most numbers are none. */
static void test_dead_units(void **state)
{
    enum { ROWS = 24, COLS = 40, TIMES = 60 };
    float g[2][ROWS * COLS];
    int dead = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= TIMES; seed++) {
        struct qm_case c = {.shape = {2, {ROWS, COLS}}, .kind = QM_CLASS_zeroblock, .t = 1};
        struct qm_domain d = domain_of("came_f32", seed);
        struct qm_aim a = {.recipe = &d.recipe, .shape = &c.shape, .n = ROWS * COLS, .seed = seed};
        int rows = 0, columns = 0, zeros = 0;
        for (int k = 0; k < 2; k++)
            qm_case_gradient(&c, &a, 1 + k, k, g[k]);
        for (int r = 0; r < ROWS; r++) {
            int n = 0;
            for (int j = 0; j < COLS; j++)
                n += g[0][r * COLS + j] == 0.0f && g[1][r * COLS + j] == 0.0f;
            zeros += n;
            rows += n == COLS;
        }
        for (int j = 0; j < COLS; j++) {
            int n = 0;
            for (int r = 0; r < ROWS; r++)
                n += g[0][r * COLS + j] == 0.0f && g[1][r * COLS + j] == 0.0f;
            columns += n == ROWS;
        }
        dead += rows > 0 && columns > 0;
        assert_true(zeros < ROWS * COLS / 2);
    }
    printf("%d of %d gradients have rows and columns of zeros\n", dead, TIMES);
    assert_in_range(dead, TIMES / 4, TIMES * 3 / 4);
}

/* A step beyond 2^28 whose power of t is no small number. */
static int has_late_power(const struct qm_domain *d, const struct qm_case *c)
{
    struct qm_hyper h = hyper_of(d, c);
    return c->t > 1 << 28 && h.beta2 < 0.0 && h.beta2_decay > -0.41;
}

/* A step that float32 does not count, and a weight of which 1 - beta^t is not 1. */
static int has_late_weight(const struct qm_domain *d, const struct qm_case *c)
{
    double left = 1.0 - hyper_of(d, c).beta1;
    return c->t > 1 << 24 && left > 0.0 && left * (double)c->t < 30.0;
}

static void test_late_steps(void **state)
{
    (void)state;
    some_are("adafactor8_024", 0, 2, has_late_power);
    some_are("adamw_f32", 0, 2, has_late_weight);
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* The tail of the parameters counts, and so it does where the gradients' is left out, too. */
static int sums_much(const struct qm_domain *d, const struct qm_case *c)
{
    enum { BOTH = 5 };
    return numel(c) > 1 << 20 && (qm_case_tail_effects(d, c) & BOTH) == BOTH;
}

static void test_sums_of_many_numbers(void **state)
{
    (void)state;
    some_are("lars_bnb,max_unorm=1e-05", 1, 1, sums_much);
    some_are("lamb_bnb,max_unorm=0.003", 1, 1, sums_much);
}

static int is_swamped(const struct qm_domain *d, const struct qm_case *c)
{
    (void)d;
    return c->kind == QM_CLASS_swamped && numel(c) > 2000;
}

static int is_swamped_and_loaded(const struct qm_domain *d, const struct qm_case *c)
{
    return is_swamped(d, c) && qm_case_power(c, QM_POWER_s) > 10;
}

static void test_sums_that_one_number_swamps(void **state)
{
    static const char *const recipes[] = {"came_f32", "adafactor_hf", "lamb_bnb", "muon_f32"};
    (void)state;
    for (int k = 0; k < 4; k++) {
        some_are(recipes[k], 0, 3, is_swamped);
        some_are(recipes[k], 0, 1, is_swamped_and_loaded);
    }
}

static void test_no_tail_where_elements_are_alone(void **state)
{
    struct qm_domain d = domain_of("adamw_f32", 1);
    struct qm_case c = {.shape = {1, {1000}}, .t = 1, .forced = 1};
    (void)state;
    assert_int_equal(qm_case_tail_effects(&d, &c), 0);
}

/* ---- what hardly ever meets by chance -------------------------------------------------------- */

static int decays_late_and_little(const struct qm_domain *d, const struct qm_case *c)
{
    struct qm_hyper h = hyper_of(d, c);
    double decay = h.lr * h.weight_decay;
    return c->t >= 1000000 && decay > 0x1p-23 && decay <= 1e-6;
}

static int decays_beside_a_tiny_rate(const struct qm_domain *d, const struct qm_case *c)
{
    struct qm_hyper h = hyper_of(d, c);
    return h.lr > 0.0 && h.lr <= 1e-10 && h.lr * h.weight_decay > 1e-6;
}

static int has_a_lonely_last(const struct qm_domain *d, const struct qm_case *c)
{
    return c->shape.rank == 2 && numel(c) > 4096 && numel(c) % d->block[0] == 1;
}

static int keeps_an_infinity(const struct qm_domain *d, const struct qm_case *c)
{
    struct qm_hyper h = hyper_of(d, c);
    int has = qm_case_takes(c, c->forced ? QM_PART_sodd : QM_PART_gfirst);
    return has && c->t > 1 && h.momentum == 0.0 && h.beta1 == d->recipe.hyper.beta1;
}

static int is_busy_with_maximize(const struct qm_domain *d, const struct qm_case *c)
{
    return qm_case_takes(c, QM_PART_busy) && hyper_of(d, c).maximize != 0.0;
}

static int is_just_above_the_limit(const struct qm_domain *d, const struct qm_case *c)
{
    double beta2 = hyper_of(d, c).beta2, t = (double)c->t, power = pow(beta2, t),
           length = 2.0 / (1.0 - beta2) - 1.0 - 2.0 * t * power / (1.0 - power);
    return length > 5.0 && length < 5.0 + 1e-6;
}

static int projects_a_large_number(const struct qm_domain *d, const struct qm_case *c)
{
    (void)d;
    return c->tensor_after_one > 1 << 16 && c->shape.rank == 2 && numel(c) > 16;
}

static void test_rare_meetings(void **state)
{
    (void)state;
    some_are("adamw4_ao", 0, 1, decays_late_and_little);
    some_are("came_f32", 0, 1, decays_beside_a_tiny_rate);
    some_are("adamw4_lpmm", 0, 1, has_a_lonely_last);
    some_are("sgdm8_bnb", 0, 3, keeps_an_infinity);
    some_are("adamw4_ao", 0, 1, is_busy_with_maximize);
    some_are("radam_f32", 0, 1, is_just_above_the_limit);
    some_are("apollo_f32", 0, 3, projects_a_large_number);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_that_count_elements),
        cmocka_unit_test(test_draws_of_counts),
        cmocka_unit_test(test_ends_of_fallbacks),
        cmocka_unit_test(test_thin_matrices),
        cmocka_unit_test(test_long_sides),
        cmocka_unit_test(test_large_sides),
        cmocka_unit_test(test_slow_statistics),
        cmocka_unit_test(test_dead_units),
        cmocka_unit_test(test_sums_of_many_numbers),
        cmocka_unit_test(test_sums_that_one_number_swamps),
        cmocka_unit_test(test_special_values_meet),
        cmocka_unit_test(test_late_steps),
        cmocka_unit_test(test_eight_axes),
        cmocka_unit_test(test_rare_meetings),
        cmocka_unit_test(test_no_tail_where_elements_are_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
