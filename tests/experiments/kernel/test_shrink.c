/* test_shrink.c - Reshaped trials, and planted bugs shrunk to programs that show them.
 *
 * A program fails with its bug and passes without it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/clock.h"
#include "core/user_kernel/backend_file.h"
#include "experiments/check/trial.h"
#include "experiments/cli/cli.h"
#include "experiments/kernel/reduce.h"
#include "tests/support/drawn.h"

/* ---- trials ---------------------------------------------------------------------------------- */

static struct qm_trial open_trial(const char *recipe, int rank, int64_t rows, int64_t cols)
{
    struct qm_trial t = {.n_calls = 2, .n_plans = 1};
    assert_int_equal(qm_recipe_parse(recipe, &t.recipe), QM_OK);
    for (int i = 0; i < t.recipe.rule->n_slots; i++)
        t.recipe.min_numel[i] = t.recipe.whole_blocks[i] = 0;
    t.shape = (struct qm_shape){rank, {rank == 1 ? rows * cols : rows, cols}};
    assert_int_equal(qm_trial_open(&t), QM_OK);
    return t;
}

/* Every number encodes its origin: call and element, or the group of a scale. */
static void number(struct qm_trial *t)
{
    for (int k = 0; k < t->n_calls; k++) {
        struct qm_call c = qm_trial_call(t, k);
        *c.t = 10 + k;
        for (int64_t i = 0; i < t->n; i++) {
            ((float *)c.p)[i] = (float)(1000 * k + i);
            ((float *)c.g)[i] = (float)-i;
            c.codes[0][i] = (uint8_t)(i % 251);
        }
        for (int64_t i = 0; i < t->n_scales[0]; i++)
            c.scales[0][i] = (float)i;
    }
}

static void scales_follow_the_first_element_of_their_block(void **state)
{
    (void)state;
    AT_ONE_COMMIT_IN(4, 10);
    struct qm_trial t = open_trial("adamw8_bnb", 1, 1, 700), u;
    int64_t map[300];
    number(&t);
    assert_int_equal(qm_trial_block(&t), 256);
    for (int i = 0; i < 300; i++)
        map[i] = i < 256 ? 256 + i : 400 + i; /* all of block 1, then a part of block 2 */
    struct qm_shape shape = {1, {-1}};
    assert_int_equal(qm_trial_remap(&t, &shape, map, &u), QM_BAD_ARG);
    shape.dim[0] = 300;
    assert_int_equal(qm_trial_remap(&t, &shape, map, &u), QM_OK);
    assert_int_equal(u.n, 300);
    assert_int_equal(u.n_scales[0], 2);
    for (int k = 0; k < 2; k++) {
        struct qm_call c = qm_trial_call(&u, k);
        assert_int_equal(*c.t, 10 + k);
        assert_true(c.scales[0][0] == 1.0f && c.scales[0][1] == 2.0f);
        for (int i = 0; i < 300; i++) {
            assert_true(((float *)c.p)[i] == (float)(1000 * k + map[i]));
            assert_true(((float *)c.g)[i] == (float)-map[i]);
            assert_int_equal(c.codes[0][i], map[i] % 251);
        }
    }
    qm_trial_close(&t);
    qm_trial_close(&u);
}

static void rows_and_columns_keep_their_own_numbers(void **state)
{
    (void)state;
    AT_ONE_COMMIT_IN(4, 11);
    struct qm_trial t = open_trial("adafactor_hf", 2, 5, 7), u;
    struct qm_call c = qm_trial_call(&t, 0);
    struct qm_shape shape = {2, {2, 3}};
    int64_t map[6];
    for (int i = 0; i < 5; i++)
        c.scales[0][i] = (float)(10 * i); /* one per row */
    for (int i = 0; i < 7; i++)
        c.scales[1][i] = (float)i; /* one per column */
    for (int i = 0; i < 6; i++)
        map[i] = (i / 3 ? 4 : 1) * 7 + 2 * (i % 3) + 1; /* rows 1 and 4, columns 1, 3, 5 */
    assert_int_equal(qm_trial_remap(&t, &shape, map, &u), QM_OK);
    c = qm_trial_call(&u, 0);
    assert_true(c.scales[0][0] == 10.0f && c.scales[0][1] == 40.0f);
    assert_true(c.scales[1][0] == 1.0f && c.scales[1][1] == 3.0f && c.scales[1][2] == 5.0f);
    qm_trial_close(&t);
    qm_trial_close(&u);
}

/* The eigenvectors of a square matrix are as many as its elements, and no longer once it has lost
 * rows. */
static void what_stops_to_be_one_per_element_is_no_longer_mapped(void **state)
{
    (void)state;
    AT_ONE_COMMIT_IN(4, 12);
    struct qm_trial t = open_trial("shampoo_sgd_f32", 2, 6, 6), u;
    struct qm_call c = qm_trial_call(&t, 0);
    struct qm_shape shape = {2, {3, 6}};
    int64_t map[36] = {0};
    for (int i = 0; i < 18; i++)
        map[i] = 18 + i;
    for (int i = 0; i < 36; i++)
        c.scales[2][i] = (float)i;
    assert_string_equal(t.recipe.rule->slot[2], "right_vectors");
    assert_int_equal(qm_trial_remap(&t, &shape, map, &u), QM_OK);
    c = qm_trial_call(&u, 0);
    assert_int_equal(u.slot_n[1], 9);
    assert_int_equal(u.slot_n[2], 36);
    for (int i = 0; i < 36; i++)
        assert_true(c.scales[2][i] == (float)i);
    qm_trial_close(&t);
    qm_trial_close(&u);
}

static void calls_are_left_out_one_by_one(void **state)
{
    (void)state;
    AT_ONE_COMMIT_IN(4, 13);
    struct qm_trial t = open_trial("adamw4_ao", 1, 1, 130), u;
    int from[] = {1};
    number(&t);
    assert_int_equal(qm_trial_copy(&t, from, 1, &u), QM_OK);
    assert_int_equal(u.n_calls, 1);
    assert_int_equal(*qm_trial_call(&u, 0).t, 11);
    assert_true(((float *)qm_trial_call(&u, 0).p)[129] == 1129.0f);
    qm_trial_close(&t);
    qm_trial_close(&u);
}

static void other_beta2(struct qm_recipe *r) { r->hyper.beta2 = 0.95; }

/* The recorded first failing step fails alone, at an equal number. */
static void a_recorded_step_fails_as_it_did(void **state)
{
    (void)state;
    AT_ONE_COMMIT_IN(4, 14);
    struct qm_subject s = {.backend = &qm_backend_cpu};
    struct qm_tally tally;
    struct qm_trial t;
    struct qm_case c;
    struct qm_finding first = {0}, again = {0};
    volatile int begun = 0;
    assert_int_equal(qm_recipe_parse("adamw4_ao", &s.recipe), QM_OK);
    assert_int_equal(qm_judge_begin(&s, &tally), QM_OK);
    assert_int_equal(qm_case_parse("300/normal/wd/t5/forced", &c), QM_OK);
    assert_int_equal(qm_trial_of_case(&s.recipe, &c, 7, 1, &t), QM_OK);
    assert_int_equal(qm_judge_record(&s, &c, 3, &t, &begun, &first), QM_OK);
    assert_int_equal(first.severity, 0);
    assert_int_equal(begun, 3);
    assert_int_equal(*qm_trial_call(&t, 0).t, 7); /* the last step, because one call fits */
    assert_int_equal(qm_judge_trial(&s, &t, QM_SLOT_ANY, &again), QM_OK);
    assert_int_equal(again.severity, 0);

    s.alter = other_beta2;
    assert_int_equal(qm_judge_record(&s, &c, 3, &t, &begun, &first), QM_OK);
    assert_int_equal(begun, 1);
    assert_int_equal(first.slot, 1);
    assert_int_equal(first.place, QM_PLACE_SCALE);
    assert_true(first.low > 0.0 && first.low <= first.high);
    assert_int_equal(qm_judge_trial(&s, &t, QM_SLOT_ANY, &again), QM_OK);
    assert_int_equal(again.severity, first.severity);
    assert_int_equal(again.slot, 1);
    assert_int_equal(again.at, first.at);
    assert_true(again.low == first.low && again.high == first.high);
    assert_int_equal(qm_judge_trial(&s, &t, 0, &again), QM_OK); /* the other slot is correct */
    assert_int_equal(again.severity, 0);
    qm_trial_close(&t);
}

/* A registered variant that is judged as another recipe is shrunk to one number and printed
 * as text. */
static void a_variant_that_fails_is_printed(void **state)
{
    (void)state;
    AT_ONE_COMMIT_IN(4, 15);
    static struct qm_subject s = {.backend = &qm_backend_cpu};
    static struct qm_tally tally;
    struct qm_attempts attempts = {.subject = &s};
    struct qm_shrunk n;
    struct qm_case c;
    char *text = NULL;
    size_t size;
    assert_int_equal(qm_recipe_parse("adamw4_ao", &s.recipe), QM_OK);
    assert_int_equal(qm_judge_begin(&s, &tally), QM_OK);
    assert_int_equal(qm_case_parse("61x67/normal/wd/t5/forced", &c), QM_OK);
    assert_int_equal(qm_shrink(&attempts, &c, 7, 3, qm_seconds() + 60.0, &n), QM_NO_MATCH);
    s.alter = other_beta2;
    assert_int_equal(qm_shrink(&attempts, &c, 7, 3, qm_seconds() + 60.0, &n), QM_OK);
    assert_int_equal(n.trial.n, 1);
    assert_int_equal(n.trial.n_calls, 1);
    assert_int_equal(n.elements_before, 61 * 67);
    FILE *f = open_memstream(&text, &size);
    qm_trial_print(&n.trial, f);
    fclose(f);
    assert_non_null(strstr(text, "shape  1\n"));
    assert_non_null(strstr(text, "step   1; what is not listed is 0\n"));
    assert_non_null(strstr(text, "  exp_avg_sq scale[0] = "));
    free(text);
    qm_trial_close(&n.trial);
}

/* ---- planted bugs ---------------------------------------------------------------------------- */

static char folder[64];

static const struct bug {
    const char *name, *template, *right, *wrong; /* `wrong` replaces `right` in the template */
    const char *one_case;                        /* NULL: the first case that fails */
    int steps, blocks;                           /* most that may remain */
} bugs[] = {
    {"tie", "adamw4_ao.c", ">= (value[k + 1]", "> (value[k + 1]", NULL, 1, 1},
    {"eps", "adamw4_ao.c", "/ root_bc2 + eps)", "/ (root_bc2 + eps))", NULL, 1, 1},
    {"decay", "adamw_f32.c", "- a->lr * a->weight_decay", "- 2.0 * a->lr * a->weight_decay", NULL,
     1, 1},
    {"coupling", "adamw4_lpmm_group.c", "*w * decay + step * m[i] / (sqrtf(v[i]) / root_bc2 + eps)",
     "(*w + step * m[i] / (sqrtf(v[i]) / root_bc2 + eps)) * decay", NULL, 1, 1},
    {"tail", "adamw4_ao.c", "for (int64_t i = 0; i < n; i++) {\n            float x",
     "for (int64_t i = 0; i < n - (n < BLOCK); i++) {\n            float x", NULL, 1, 1},
    {"nibble", "adamw4_ao.c", "i % 2 ? codes[i / 2] & 15 : codes[i / 2] >> 4",
     "i % 2 ? codes[i / 2] >> 4 : codes[i / 2] & 15", NULL, 1, 1},
    {"stale", "adamw4_ao.c", "    s->scales[from / BLOCK] = top", "    s->scales[0] = top", NULL, 1,
     2},
    {"beta", "adamw4_ao.c", "w2 = (float)(1.0 - a->beta2)", "w2 = (float)(1.0 - a->beta1)", NULL, 1,
     1},
    {"nan", "adamw4_lpmm_group.c", "top == top && !(fabsf(x[i]) <= top)", "fabsf(x[i]) > top", NULL,
     1, 1},
    {"past", "adamw4_ao.c", "    return 0;", "    p[a->n] = 0.0f;\n    return 0;", NULL, 1, 1},
    {"counter", "adamw4_ao.c", "    return 0;",
     "    static int calls;\n    if (++calls % 4 == 0)\n        p[0] = 2.0f;\n    return 0;", NULL,
     2, 1},
    {"unwritten", "adamw8_bnb.c", "int qm_kernel_step(const struct qm_kernel_args *a)\n{",
     "int qm_kernel_step(const struct qm_kernel_args *a)\n{\n    if (a->n % 5 == 2)\n        "
     "return "
     "0;",
     NULL, 1, 1},
    {"loop", "adamw4_ao.c", "    return 0;",
     "    for (volatile int more = a->n > 40; more;)\n        ;\n    return 0;",
     "129/normal/wd/t1/forced", 1, 1},
    {"crash", "lion8_bnb.c", "    return 0;",
     "    if (a->n > 3)\n        p[a->n + 100] = 1.0f;\n    return 0;", NULL, 1, 1},
    {"mode", "adamw_f32.c", "    return 0;",
     "    extern int fesetround(int);\n    fesetround(0xc00);\n    return 0;", NULL, 1, 1},
    {"left", "adamw_f32.c", "    return 0;",
     "    extern void _Exit(int);\n    if (a->t == 2)\n        _Exit(0);\n    return 0;", NULL, 1,
     1},
};

static char *text_of_template(const char *name)
{
    const char *const *lines = qm_kernel_file_text(name);
    size_t size = 1;
    assert_non_null(lines);
    for (const char *const *l = lines; *l; l++)
        size += strlen(*l);
    char *text = malloc(size), *to = text;
    assert_non_null(text);
    for (; *lines; lines++)
        to = stpcpy(to, *lines);
    return text;
}

static char *text_of_file(const char *path)
{
    FILE *f = fopen(path, "r");
    char *text = NULL;
    size_t size = 0;
    assert_non_null(f);
    assert_true(getdelim(&text, &size, '\0', f) > 0);
    fclose(f);
    return text;
}

static void put_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

/* Replaces the last `from` of the text; earlier ones may be in the template's comments. */
static char *replaced(const char *text, const char *from, const char *to)
{
    const char *at = NULL;
    for (const char *next = text; (next = strstr(next, from)); next++)
        at = next;
    if (!at)
        fail_msg("no '%s'", from);
    char *out = malloc(strlen(text) + strlen(to) + 1);
    assert_non_null(out);
    sprintf(out, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    return out;
}

/* Compiles path without a warning and runs it. */
static int exit_of(const char *path)
{
    char command[512];
    snprintf(command, sizeof command,
             "cc -O2 -ffp-contract=off -Wall -Wextra -Werror %s -lm -o %s/run || exit 99; %s/run "
             ">%s/said",
             path, folder, folder, folder);
    int state = system(command);
    return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
}

static void one_bug(const struct bug *b)
{
    char source[128], repro[128], mended[128];
    snprintf(source, sizeof source, "%s/%s.c", folder, b->name);
    snprintf(repro, sizeof repro, "%s/%s-repro.c", folder, b->name);
    snprintf(mended, sizeof mended, "%s/mended.c", folder);
    char *right = text_of_template(b->template), *wrong = replaced(right, b->right, b->wrong);
    put_text(source, wrong);
    struct qm_reduction r = {.file = source,
                             .out = repro,
                             .one_case = b->one_case,
                             .seed = 11,
                             .steps = QM_CHECK_STEPS,
                             .seconds = 60.0,
                             .mebibytes = 2048.0};
    qm_status st = qm_reduce(&r);
    if (st != QM_OK)
        fail_msg("%s: %s", b->name, qm_message());
    if (r.shrunk.trial.n_calls > b->steps || qm_shrunk_blocks(&r.shrunk) > b->blocks ||
        !r.is_written || !r.is_verified)
        fail_msg("%s: %d steps, %lld blocks, written %d, verified %d: %s", b->name,
                 r.shrunk.trial.n_calls, (long long)qm_shrunk_blocks(&r.shrunk), r.is_written,
                 r.is_verified, r.shrunk.attempt.text);
    char *text = text_of_file(repro), *fixed = replaced(text, b->wrong, b->right);
    put_text(mended, fixed);
    int bad = exit_of(repro), good = exit_of(mended);
    if (bad != 1 || good != 0)
        fail_msg("%s: exits %d with the bug and %d without it: %s", b->name, bad, good,
                 r.shrunk.attempt.text);
    free(right);
    free(wrong);
    free(text);
    free(fixed);
    qm_reduction_free(&r);
}

static void every_bug_becomes_a_program_that_passes_once_mended(void **state)
{
    (void)state;
    AT_ONE_COMMIT_IN(4, 18);
    const char *only = getenv("BUG");
    for (size_t i = 0; i < sizeof bugs / sizeof *bugs; i++)
        if (!only || strcmp(only, bugs[i].name) == 0)
            one_bug(&bugs[i]);
}

static void a_right_kernel_gives_nothing_to_shrink(void **state)
{
    (void)state;
    AT_ONE_COMMIT_IN(4, 16);
    char source[128];
    snprintf(source, sizeof source, "%s/right.c", folder);
    char *text = text_of_template("adamw_f32.c");
    put_text(source, text);
    struct qm_reduction r = {.file = source,
                             .one_case = "129/normal/wd/t1/forced",
                             .steps = QM_CHECK_STEPS,
                             .seconds = 10.0,
                             .mebibytes = 2048.0};
    assert_int_equal(qm_reduce(&r), QM_NO_MATCH);
    assert_non_null(strstr(qm_message(), "nothing to shrink"));
    qm_reduction_free(&r);
    free(text);
}

/* Equal bugs, seeds and cases give equal programs. */
static void shrinking_is_deterministic(void **state)
{
    (void)state;
    AT_ONE_COMMIT_IN(4, 17);
    char source[128], out[128], *said[2];
    snprintf(source, sizeof source, "%s/beta.c", folder);
    snprintf(out, sizeof out, "%s/beta-repro.c", folder);
    char *right = text_of_template("adamw4_ao.c");
    char *wrong = replaced(right, "w2 = (float)(1.0 - a->beta2)", "w2 = (float)(1.0 - a->beta1)");
    put_text(source, wrong);
    for (int i = 0; i < 2; i++) {
        struct qm_reduction r = {.file = source,
                                 .out = out,
                                 .one_case = "61x67/normal/wd/t1/forced",
                                 .seed = 3,
                                 .steps = QM_CHECK_STEPS,
                                 .seconds = 60.0,
                                 .mebibytes = 2048.0};
        assert_int_equal(qm_reduce(&r), QM_OK);
        said[i] = text_of_file(out);
        qm_reduction_free(&r);
    }
    assert_string_equal(said[0], said[1]);
    free(said[0]);
    free(said[1]);
    free(right);
    free(wrong);
}

static int open_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/qualm-test-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int close_folder(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

/* The processes of kernels are this program again. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scales_follow_the_first_element_of_their_block),
        cmocka_unit_test(rows_and_columns_keep_their_own_numbers),
        cmocka_unit_test(what_stops_to_be_one_per_element_is_no_longer_mapped),
        cmocka_unit_test(calls_are_left_out_one_by_one),
        cmocka_unit_test(a_recorded_step_fails_as_it_did),
        cmocka_unit_test(a_variant_that_fails_is_printed),
        cmocka_unit_test(a_right_kernel_gives_nothing_to_shrink),
        cmocka_unit_test(shrinking_is_deterministic),
        cmocka_unit_test(every_bug_becomes_a_program_that_passes_once_mended),
    };
    if (argc > 1 && strcmp(argv[1], QM_HOST_WORD) == 0)
        return qm_host_main();
    return cmocka_run_group_tests(tests, open_folder, close_folder);
}
