/* test_domain.c - Names of drawn cases, their distribution and coverage, and planted bugs that only
 * drawn cases show. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "experiments/check/judge.h"
#include "experiments/check/withheld.h"
#include "tests/support/drawn.h"

static const uint64_t seeds[] = {20240501, 7, 424242};
enum {
    SEEDS = sizeof seeds / sizeof *seeds,
    MOST_DRAWS = QM_CHECK_DRAWS,
    WHAT = QM_CASE_TEXT + 512
};

static struct qm_domain domain_of(const char *recipe)
{
    struct qm_recipe r;
    struct qm_domain d;
    assert_int_equal(qm_recipe_parse(recipe, &r), QM_OK);
    qm_domain_of(&r, &qm_backend_cpu, &d);
    return d;
}

/* ---- names ----------------------------------------------------------------------------------- */

static int is_same_case(const struct qm_case *a, const struct qm_case *b)
{
    int same = a->shape.rank == b->shape.rank && a->kind == b->kind && a->setting == b->setting &&
               a->t == b->t && a->forced == b->forced && a->given == b->given &&
               a->part == b->part && a->powered == b->powered &&
               a->tensor_after_one == b->tensor_after_one;
    for (int i = 0; i < a->shape.rank && same; i++)
        same = a->shape.dim[i] == b->shape.dim[i];
    for (int i = 0; i < QM_HYPERS; i++)
        same &= !(a->given >> i & 1) || a->hyper[i] == b->hyper[i];
    for (int i = 0; i < QM_POWERS; i++)
        same &= !(a->powered >> i & 1) || a->power[i] == b->power[i];
    return same;
}

/* 10^5 drawn cases of rules with different hyper-parameters: the name gives back the case. */
static void test_names(void **state)
{
    static const char *const recipes[] = {"adamw4_ao", "adafactor_hf", "sgdm_f32", "apollo_f32",
                                          "ademamix8_bnb"};
    (void)state;
    for (int k = 0; k < 5; k++) {
        struct qm_domain d = domain_of(recipes[k]);
        d.candidates = 0; /* which plain case is chosen is test_effect's */
        for (int64_t i = 0; i < 20000; i++) {
            char name[QM_CASE_TEXT], again[QM_CASE_TEXT];
            struct qm_case c = qm_domain_draw(&d, seeds[k % SEEDS], i), back;
            qm_case_print(&c, name);
            if (qm_case_parse(name, &back) != QM_OK)
                fail_msg("%s: %s", name, qm_message());
            if (!is_same_case(&c, &back) || strcmp(qm_case_print(&back, again), name) != 0)
                fail_msg("%s reads back as %s", name, again);
        }
    }
}

static void test_names_of_the_core(void **state)
{
    (void)state;
    for (int i = 0; i < qm_case_count(); i++) {
        char name[QM_CASE_TEXT];
        struct qm_case c = qm_case_at(i), back;
        assert_int_equal(qm_case_parse(qm_case_print(&c, name), &back), QM_OK);
        assert_true(is_same_case(&c, &back));
    }
}

static void test_wrong_names(void **state)
{
    static const char *const wrong[] = {
        "4/normal/default/t1",
        "4/normal/default/t0/own",
        "4/normal/default/t9999999999999/own",
        "4/normal/lr=/t1/own",
        "4/normal/lr=1+lr=2/t1/own",
        "4/normal/lr=nan/t1/own",
        "4/normal/wd+default/t1/own",
        "4/normal/rate=1/t1/own",
        "4/normal/default/t1/own/p2^200",
        "4/normal/default/t1/own/p2^3/p2^4",
        "4/normal/default/t1/own/sodd",
        "4/normal/default/t1/own/tensor-1",
        "4/normal/default/t1/own/third",
    };
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct qm_case c = {.t = 77};
        qm_status st = qm_case_parse(wrong[i], &c);
        if ((st != QM_BAD_ARG && st != QM_NO_MATCH) || c.t != 77)
            fail_msg("%s: status %d", wrong[i], (int)st);
        assert_non_null(strstr(qm_message(), wrong[i]));
    }
}

/* ---- the distribution ------------------------------------------------------------------------ */

/* Every bin of every coordinate comes up, but for those that the domain cannot meet. */
static void test_every_bin_is_drawn(void **state)
{
    static const char *const recipes[] = {"adamw8_ao", "sgdm_f32", "adafactor_torch"};
    (void)state;
    for (int k = 0; k < 3; k++) {
        struct qm_domain d = domain_of(recipes[k]);
        static int seen[QM_COORDINATES][QM_BINS_MOST];
        d.candidates = 0;
        memset(seen, 0, sizeof seen);
        for (int64_t i = 0; i < 40000; i++) {
            int bin[QM_COORDINATES];
            struct qm_case c = qm_domain_draw(&d, 1, i);
            assert_false(qm_case_is_withheld(&d.recipe, &c));
            qm_domain_bins(&d, &c, bin);
            for (int a = 0; a < QM_COORDINATES; a++)
                if (bin[a] >= 0)
                    seen[a][bin[a]]++;
        }
        for (int a = 0; a < QM_COORDINATE_hyper; a++) {
            char text[24];
            for (int b = 0; qm_coordinate_bin(a, b, text); b++)
                if (!seen[a][b] && !(k == 2 && a == QM_COORDINATE_class))
                    fail_msg("%s: %s %s is never drawn", recipes[k], qm_coordinate_name(a),
                             qm_coordinate_bin(a, b, text));
        }
        for (int a = 0; a < QM_HYPERS; a++) {
            int others = 0;
            for (int b = 1; b < QM_HYPER_BINS; b++)
                others += seen[QM_COORDINATE_hyper + a][b] > 0;
            if (d.reads >> a & 1 && others == 0)
                fail_msg("%s: %s is never off its default", recipes[k], qm_hyper_names[a]);
        }
    }
}

/* Hyper-parameters that a rule reads by its formula, and some that it does not. */
static void test_hyper_parameters_read(void **state)
{
    static const struct {
        const char *recipe;
        int hyper, reads;
    } known[] = {
        {"adamw_f32", QM_HYPER_lr, 1},          {"adamw_f32", QM_HYPER_eps, 1},
        {"adamw_f32", QM_HYPER_momentum, 0},    {"adamw_f32", QM_HYPER_clip, 0},
        {"sgdm_f32", QM_HYPER_momentum, 1},     {"sgdm_f32", QM_HYPER_dampening, 1},
        {"sgdm_f32", QM_HYPER_nesterov, 1},     {"sgdm_f32", QM_HYPER_beta1, 0},
        {"adafactor_hf", QM_HYPER_clip, 1},     {"adafactor_hf", QM_HYPER_eps1, 1},
        {"adafactor_hf", QM_HYPER_eps2, 1},     {"adamw8_bnb_cuda", QM_HYPER_gnorm_scale, 1},
        {"adamw8_ao", QM_HYPER_gnorm_scale, 0}, {"ademamix8_bnb", QM_HYPER_alpha, 1},
        {"ademamix8_bnb", QM_HYPER_t_alpha, 1}, {"lamb_bnb", QM_HYPER_max_unorm, 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct qm_domain d = domain_of(known[i].recipe);
        if ((int)(d.reads >> known[i].hyper & 1) != known[i].reads)
            fail_msg("%s: %s is%s read", known[i].recipe, qm_hyper_names[known[i].hyper],
                     known[i].reads ? " not" : "");
    }
}

/* A case that is parsed from its name gives the counts that the drawn case gave. */
static void test_replay(void **state)
{
    static struct qm_tally a, b;
    struct qm_subject s = {.backend = &qm_backend_cpu};
    struct qm_domain d = domain_of("adamw8_ao");
    (void)state;
    s.recipe = d.recipe;
    assert_int_equal(qm_judge_begin(&s, &a), QM_OK);
    for (int64_t i = 0; i < 24; i++) {
        char name[QM_CASE_TEXT];
        struct qm_case c = qm_domain_draw(&d, 5, i), again;
        assert_int_equal(qm_case_parse(qm_case_print(&c, name), &again), QM_OK);
        memset(&a, 0, sizeof a);
        memset(&b, 0, sizeof b);
        assert_int_equal(qm_judge_case(&s, &c, 5, &a), QM_OK);
        assert_int_equal(qm_judge_case(&s, &again, 5, &b), QM_OK);
        assert_true(a.judged == b.judged && a.worst_ratio == b.worst_ratio);
        assert_memory_equal(a.verdict, b.verdict, sizeof a.verdict);
    }
}

/* ---- planted bugs ---------------------------------------------------------------------------- */

static enum bug {
    NONE,
    INDEX_16,         /* elements from 2^16 on are not updated: a 16-bit index */
    BLOCK_START,      /* from 2^16 elements on, the second half starts inside of a block */
    AXES_4,           /* axes 2 and 3 of a tensor of rank 4 are mixed up */
    POWERS_16,        /* powers of the betas are wrong for t in 16..31 */
    COUNTER_10,       /* the step number has 10 bits */
    CONSTANT,         /* one hyper-parameter is a constant */
    FIRST_CALL,       /* the first call of the process is step 1, no other is */
    STEP_COUNTED,     /* the step number is counted per process, not per tensor */
    STATE_OF_PROCESS, /* one state per process, begun anew for a tensor of another size */
    HYPER_OF_PROCESS, /* hyper-parameters are read at the first call of the process */
    LARGE_STAY,       /* parameters above 4096 are not updated */
    INITIAL_RATE,     /* lr is read when the tensor is new, and never again */
    MANY_CALLS,       /* from call 3000 of the process on the step number is one too high */
    ZERO_STAYS,       /* a parameter that is all 0 is not updated */
    FIRST_FORGETS,    /* step 1 takes its state for 0, also where one was loaded */
    SQUARE,           /* of a square matrix the last element is not updated */
    LARGE_CONSTANT,   /* one hyper-parameter is the recipe's own from 2^16 + 1 elements on */
    LARGE_SCHEDULE,   /* tensors of so many elements keep their first hyper-parameters */
    LARGE_NAN         /* gradients of NaN count as 0 from element 2^16 on */
} bug;
static int constant;         /* the hyper-parameter of CONSTANT */
static struct qm_hyper base; /* the recipe's own */

struct wrapper {
    void *inner;
    struct qm_recipe r;
    struct qm_shape shape;
    int64_t n;
};
static int open_plans;
static int64_t calls, owner; /* of the "process", which begins when the first plan is opened */
static struct qm_hyper first_hyper;

static struct qm_hyper hyper_run(struct qm_hyper h, int64_t n)
{
    if (bug == LARGE_CONSTANT && n > 65536)
        qm_hyper_put(&h, constant, qm_hyper_get(&base, constant));
    const struct qm_hyper own = qm_hyper_default();
    if (bug == CONSTANT)
        qm_hyper_put(&h, constant, qm_hyper_get(&own, constant));
    return h;
}

static qm_status bug_open(const struct qm_recipe *r, const struct qm_shape *shape, uint32_t tensor,
                          void **plan)
{
    struct wrapper *w = calloc(1, sizeof *w);
    *w = (struct wrapper){NULL, *r, *shape, qm_shape_numel(shape)};
    if (open_plans == 0)
        calls = owner = 0;
    w->r.hyper = hyper_run(r->hyper, w->n);
    if (bug == AXES_4 && shape->rank == 4) {
        w->shape.dim[2] = shape->dim[3];
        w->shape.dim[3] = shape->dim[2];
    }
    qm_status st = qm_backend_cpu.open(&w->r, &w->shape, tensor, &w->inner);
    if (st != QM_OK) {
        free(w);
        return st;
    }
    open_plans++;
    *plan = w;
    return QM_OK;
}

static void bug_close(void *plan)
{
    struct wrapper *w = plan;
    if (!w)
        return;
    qm_backend_cpu.close(w->inner);
    free(w);
    open_plans--;
}

static void forget_state(struct wrapper *w)
{
    float *zero = calloc((size_t)w->n + 1, sizeof *zero);
    for (int i = 0; i < w->r.rule->n_slots; i++)
        qm_backend_cpu.load(w->inner, i, NULL, zero);
    free(zero);
}

static int64_t step_run(int64_t t)
{
    switch (bug) {
    case POWERS_16: return t >= 16 && t < 32 ? t - 15 : t;
    case COUNTER_10: return t < 1024 ? t : 1 + t % 1024;
    case FIRST_CALL: return calls < 2 ? 1 : t > 1 ? t : 2; /* two plans share a process here */
    case MANY_CALLS: return t + (calls >= 3000);
    case STEP_COUNTED: return t + (calls / 2 > 2 ? calls / 2 - 2 : 0);
    default: return t;
    }
}

static int is_square(const struct wrapper *w)
{
    const int64_t *side = w->shape.dim + w->shape.rank - 2;
    return w->shape.rank >= 2 && side[0] == side[1] && side[0] > 1;
}

static qm_status bug_step(void *plan, struct qm_tensor *p, const struct qm_tensor *g, int64_t t,
                          uint64_t seed)
{
    struct wrapper *w = plan;
    float *x = p->data, *was = malloc(sizeof *was * (size_t)(w->n + 1));
    int is_zero = 1;
    memcpy(was, x, sizeof *x * (size_t)w->n);
    for (int64_t i = 0; i < w->n; i++)
        is_zero &= was[i] == 0.0f;
    if (bug == FIRST_FORGETS && t == 1)
        forget_state(w);
    if (bug == STATE_OF_PROCESS && owner != w->n) {
        forget_state(w);
        owner = w->n;
    }
    if (bug == HYPER_OF_PROCESS && calls == 0)
        first_hyper = w->r.hyper;
    if (bug == HYPER_OF_PROCESS)
        qm_backend_cpu.hyper(w->inner, &first_hyper);
    float *clean = malloc(sizeof *clean * (size_t)(w->n + 1));
    struct qm_tensor seen = *g;
    assert_int_equal(g->dtype, QM_DTYPE_f32);
    memcpy(clean, g->data, sizeof *clean * (size_t)w->n);
    for (int64_t i = 65536; i < w->n && bug == LARGE_NAN; i++)
        clean[i] = clean[i] == clean[i] ? clean[i] : 0.0f;
    seen.data = clean;
    qm_status st = qm_backend_cpu.step(w->inner, p, &seen, step_run(t), seed);
    free(clean);
    calls++;
    for (int64_t i = 0; i < w->n; i++) {
        if ((bug == INDEX_16 && i >= 65536) || (bug == LARGE_STAY && was[i] > 4096.0f) ||
            (bug == BLOCK_START && w->n >= 65536 && i >= w->n / 2 &&
             i < (w->n / 2 + 127) / 128 * 128) ||
            (bug == ZERO_STAYS && is_zero) || (bug == SQUARE && is_square(w) && i == w->n - 1))
            x[i] = was[i];
    }
    free(was);
    return st;
}

static qm_status bug_decode(void *plan, int slot, float *out)
{
    return qm_backend_cpu.decode(((struct wrapper *)plan)->inner, slot, out);
}

static qm_status bug_save(void *plan, int slot, uint8_t *codes, float *scales)
{
    return qm_backend_cpu.save(((struct wrapper *)plan)->inner, slot, codes, scales);
}

static qm_status bug_load(void *plan, int slot, const uint8_t *codes, const float *scales)
{
    owner = ((struct wrapper *)plan)->n;
    return qm_backend_cpu.load(((struct wrapper *)plan)->inner, slot, codes, scales);
}

static qm_status bug_hyper(void *plan, const struct qm_hyper *h)
{
    struct wrapper *w = plan;
    struct qm_hyper run = hyper_run(*h, w->n);
    if (bug == LARGE_SCHEDULE && w->n > 65536)
        return QM_OK;
    if (bug == INITIAL_RATE)
        run.lr = w->r.hyper.lr;
    return qm_backend_cpu.hyper(w->inner, &run);
}

static qm_status bug_probe(void) { return QM_OK; }
static int64_t bug_bytes(const void *plan)
{
    return qm_backend_cpu.bytes(((const struct wrapper *)plan)->inner);
}

static const struct qm_backend wrapped = {.name = "wrapped",
                                          .probe = bug_probe,
                                          .open = bug_open,
                                          .step = bug_step,
                                          .decode = bug_decode,
                                          .save = bug_save,
                                          .load = bug_load,
                                          .bytes = bug_bytes,
                                          .close = bug_close,
                                          .hyper = bug_hyper};

/* The first drawn case of more than `least` elements that fails, or -1; one after the other,
 * because bugs keep static memory. */
static int64_t first_failure(const char *recipe, uint64_t seed, int64_t most, int64_t least,
                             char *name)
{
    static struct qm_tally t;
    struct qm_subject s = {.backend = &wrapped};
    struct qm_domain d = domain_of(recipe);
    s.recipe = d.recipe;
    base = d.recipe.hyper;
    assert_int_equal(qm_judge_begin(&s, &t), QM_OK);
    for (int64_t i = 0; i < most; i++) {
        struct qm_case c = qm_domain_draw(&d, seed, i);
        if (qm_shape_numel(&c.shape) <= least)
            continue;
        qm_status st = qm_judge_case(&s, &c, seed, &t);
        if (st != QM_OK && !(st == QM_BAD_ARG && c.given)) /* the rule refuses a tensor's shape */
            fail_msg("%s: %s", recipe, qm_message());
        if (t.failed_cases) {
            snprintf(name, WHAT, "%s: %s", t.finding[0].name, t.finding[0].text);
            return i;
        }
    }
    return -1;
}

static void test_planted_bugs(void **state)
{
    static const struct {
        enum bug bug;
        int constant;
        const char *recipe;
    } planted[] = {
        {INDEX_16, 0, "adamw_f32"},
        {BLOCK_START, 0, "adamw_f32"},
        {AXES_4, 0, "adamw4_lpmm,exp_avg=f32"},
        {POWERS_16, 0, "adamw_f32"},
        {COUNTER_10, 0, "adamw8_ao"},
        {CONSTANT, QM_HYPER_momentum, "sgdm_f32"},
        {CONSTANT, QM_HYPER_dampening, "sgdm_f32"},
        {CONSTANT, QM_HYPER_clip, "adafactor_torch"},
        {CONSTANT, QM_HYPER_eps1, "adafactor_torch"},
        {CONSTANT, QM_HYPER_eps2, "adafactor_torch"},
        {CONSTANT, QM_HYPER_gnorm_scale, "adamw8_bnb_cuda"},
        {CONSTANT, QM_HYPER_beta2, "adamw_f32"},
        {CONSTANT, QM_HYPER_scale_front, "apollo_f32"},
        {CONSTANT, QM_HYPER_warmup, "adafactor_hf"},
        {FIRST_CALL, 0, "sgdm_f32"},
        {STEP_COUNTED, 0, "adamw_f32"},
        {STATE_OF_PROCESS, 0, "adamw_f32"},
        {HYPER_OF_PROCESS, 0, "adamw_f32"},
        {LARGE_STAY, 0, "adamw_f32"},
        {INITIAL_RATE, 0, "adamw_f32"},
        {MANY_CALLS, 0, "adamw_f32"},
        {ZERO_STAYS, 0, "adamw_f32"},
        {FIRST_FORGETS, 0, "adamw_f32"},
        {SQUARE, 0, "adamw_f32"},
    };
    int escaped = 0;
    (void)state;
    for (size_t i = 0; i < sizeof planted / sizeof *planted; i++) {
        for (int k = 0; k < SEEDS && is_drawn((int)i); k++) {
            char what[WHAT] = "";
            bug = planted[i].bug;
            constant = planted[i].constant;
            int64_t at = first_failure(planted[i].recipe, seeds[k], MOST_DRAWS, -1, what);
            bug = NONE;
            if (at < 0)
                print_message("%s: bug %d (%s) escapes seed %llu\n", planted[i].recipe,
                              (int)planted[i].bug, qm_hyper_names[planted[i].constant],
                              (unsigned long long)seeds[k]);
            else
                print_message("bug %d: case %lld, %.100s\n", (int)planted[i].bug, (long long)at,
                              what);
            escaped += at < 0;
        }
    }
    assert_int_equal(escaped, 0);
}

/* Plants a bug that shows in large tensors alone; returns how many seeds it escapes. */
static int large_escapes(const char *recipe, enum bug which, int hyper)
{
    int escaped = 0;
    for (int k = 0; k < SEEDS; k++) {
        char what[WHAT] = "";
        bug = which;
        constant = hyper;
        if (first_failure(recipe, seeds[k], MOST_DRAWS, QM_LARGE, what) < 0) {
            print_message("%s: bug %d (%s) escapes seed %llu\n", recipe, (int)which,
                          qm_hyper_names[hyper], (unsigned long long)seeds[k]);
            escaped++;
        }
        bug = NONE;
    }
    return escaped;
}

/* Every hyper-parameter that a rule reads, as a constant in large tensors; schedules and NaN.  A
 * flag that has an effect beside another alone may escape one seed, and so may a NaN where one
 * before it makes all numbers NaN, too. */
static void test_bugs_of_large_tensors(void **state)
{
    static const char *const recipes[] = {"lamb_bnb,max_unorm=0.003",
                                          "adamw8_bnb_cuda",
                                          "lars_bnb",
                                          "ademamix8_bnb",
                                          "adafactor_hf",
                                          "lion8_bnb"};
    int escaped = 0, n = 0;
    (void)state;
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        struct qm_domain d = domain_of(recipes[i]);
        for (int k = 0; k < QM_HYPERS; k++) {
            if (!(d.reads >> k & 1) || k == QM_HYPER_factored) /* which decides on the slots */
                continue;
            if (!is_drawn(n++))
                continue;
            int seeds_escaped = large_escapes(recipes[i], LARGE_CONSTANT, k);
            escaped += seeds_escaped > qm_hyper_is_flag(k); /* a flag may hang on another */
        }
        if (!is_drawn(n++))
            continue;
        escaped += large_escapes(recipes[i], LARGE_SCHEDULE, QM_HYPER_lr);
        escaped += large_escapes(recipes[i], LARGE_NAN, QM_HYPER_lr) > !d.recipe.rule->elementwise;
    }
    assert_int_equal(escaped, 0);
}

/* The same wrapper without a bug raises no alarm. */
static void test_no_bug(void **state)
{
    static const char *const recipes[] = {"adamw_f32", "sgdm_f32", "adamw8_bnb",
                                          "adamw4_lpmm,exp_avg=f32"};
    (void)state;
    bug = NONE;
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < SEEDS; k++) {
            char what[WHAT];
            if (first_failure(recipes[i], seeds[k], 80, -1, what) >= 0)
                fail_msg("%s, seed %llu: %s", recipes[i], (unsigned long long)seeds[k], what);
        }
}

/* ---- coverage -------------------------------------------------------------------------------- */

static long long whole(const json_t *from, const char *key)
{
    return (long long)json_integer_value(json_object_get(from, key));
}

/* More cases cover more pairs, never more than are reachable; an empty run covers none. */
static void test_coverage(void **state)
{
    struct qm_domain d = domain_of("adamw8_ao");
    struct qm_coverage *c = calloc(1, sizeof *c);
    long long before = -1;
    (void)state;
    for (int64_t i = 0; i <= 512; i++) {
        if (i % 128 == 0) {
            json_t *j = qm_coverage_json(c, &d);
            assert_true(whole(j, "cases") == i && whole(j, "pairs") > before);
            assert_true(whole(j, "pairs") <= whole(j, "reachable"));
            assert_true(whole(j, "bins") <= whole(j, "bins_reachable"));
            assert_true((i == 0) == (whole(j, "pairs") == 0));
            before = whole(j, "pairs");
            json_decref(j);
        }
        struct qm_case drawn = qm_domain_draw(&d, 3, i);
        qm_coverage_add(c, &d, &drawn);
    }
    free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_names_of_the_core),
        cmocka_unit_test(test_wrong_names),
        cmocka_unit_test(test_every_bin_is_drawn),
        cmocka_unit_test(test_hyper_parameters_read),
        cmocka_unit_test(test_replay),
        cmocka_unit_test(test_planted_bugs),
        cmocka_unit_test(test_bugs_of_large_tensors),
        cmocka_unit_test(test_no_bug),
        cmocka_unit_test(test_coverage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
