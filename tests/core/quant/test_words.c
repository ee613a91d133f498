/* test_words.c - Tests the words of the axes: each is found as what it is, and stands in
 * core/quant/README.md. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "core/quant/quantizer.h"
#include "tests/support/random_floats.h"

static int member(const struct qm_quantizer *q, const char *axis)
{
    return strcmp(axis, "norm") == 0     ? (int)q->norm
           : strcmp(axis, "curve") == 0  ? (int)q->curve
           : strcmp(axis, "search") == 0 ? (int)q->search
           : strcmp(axis, "round") == 0  ? (int)q->round
           : strcmp(axis, "unit") == 0   ? (int)q->unit
                                         : (int)q->pack;
}

/* Word number k of an axis, said alone and among words of the other axes, sets this axis to k. */
static void check_word(const char *axis, const char *word, int k)
{
    struct qm_quantizer q, r;
    char text[128];
    int sized = strcmp(axis, "norm") == 0 && qm_norm_has_block((enum qm_norm)k);
    snprintf(text, sizeof text, "%s%s", word, sized ? ":64" : "");
    assert_int_equal(qm_quantizer_parse("dyn:8s/tensor/scan/near", &q), QM_OK);
    if (qm_quantizer_set(&q, axis, text) != QM_OK)
        fail_msg("%s = %s: %s", axis, text, qm_message());
    if (member(&q, axis) != k)
        fail_msg("%s = %s sets word %d instead of %d", axis, text, member(&q, axis), k);
    char string[160];
    snprintf(string, sizeof string, "dyn:8s/%s", text);
    if (qm_quantizer_parse(string, &r) == QM_OK && member(&r, axis) != k)
        fail_msg("%s sets %s to word %d instead of %d", string, axis, member(&r, axis), k);
}

/* A scale word with its value changes the scale alone. */
static void check_scale_word(const char *word, int is_flag)
{
    struct qm_quantizer q, before;
    char text[64];
    snprintf(text, sizeof text, "%s%s", word, is_flag ? "" : ":1");
    assert_int_equal(qm_quantizer_parse("dyn:8s/tensor/scan/near", &q), QM_OK);
    before = q;
    if (qm_quantizer_set(&q, "scale", text) != QM_OK)
        fail_msg("scale = %s: %s", text, qm_message());
    if (qm_quantizer_equal(&q, &before))
        fail_msg("scale = %s changes nothing", text);
    before.scale = q.scale;
    assert_true(qm_quantizer_equal(&q, &before));
}

static void test_words(void **state)
{
    (void)state;
#define X(word, ...) check_word(axis, #word, k++);
#define AXIS(name, list)         \
    do {                         \
        const char *axis = name; \
        int k = 0;               \
        list(X);                 \
    } while (0)
    AXIS("norm", QM_NORM_LIST);
    AXIS("search", QM_SEARCH_LIST);
    AXIS("round", QM_ROUND_LIST);
    AXIS("unit", QM_UNIT_LIST);
    AXIS("curve", QM_CURVE_LIST);
    AXIS("pack", QM_PACK_LIST);
#undef AXIS
#undef X
    enum { FLAG, WHOLE, REAL };
#define X(word, setting, value, number, text) check_scale_word(#word, value == FLAG);
    QM_SCALE_WORD_LIST(X)
#undef X
}

/* Words share one namespace: no two are equal, unless one of the two alone takes a value. */
static void test_unique(void **state)
{
    (void)state;
    enum { FLAG = 0, WHOLE = 1, REAL = 1, MOST = 128 };
    const struct {
        const char *word;
        int valued;
    } all[] = {
#define X(word, ...) {#word, 0},
        QM_SEARCH_LIST(X) QM_ROUND_LIST(X) QM_UNIT_LIST(X) QM_CURVE_LIST(X) QM_PACK_LIST(X)
#undef X
#define X(word, text) {#word, qm_norm_has_block(QM_NORM_##word)},
            QM_NORM_LIST(X)
#undef X
#define X(word, setting, value, number, text) {#word, value},
                QM_SCALE_WORD_LIST(X)
#undef X
                    {"logblock", 1},
    };
    int n = sizeof all / sizeof *all;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++)
            if (all[i].valued == all[j].valued && strcmp(all[i].word, all[j].word) == 0)
                fail_msg("two axes have the word %s", all[i].word);
}

/* The words that the README's row of an axis has, in order: what stands in backticks outside of
 * parentheses, less ":4s", and less what follows ':' in a word. */
static void words_of(const char *readme, const char *axis, char *out, size_t room)
{
    char start[32];
    snprintf(start, sizeof start, "\n| %s | ", axis);
    const char *at = strstr(readme, start);
    assert_non_null(at);
    int quoted = 0, depth = 0, skip = 0;
    size_t n = 0;
    for (at += strlen(start); *at != '|' && n + 2 < room; at++) {
        depth += (*at == '(') - (*at == ')');
        skip = *at == ':' || (skip && *at != ' ' && *at != '`');
        if (*at == '`')
            quoted = !quoted;
        if (depth == 0 && (*at == '`' || *at == ' ') && n > 0 && out[n - 1] != ' ')
            out[n++] = ' ';
        else if (depth == 0 && quoted && !skip && *at != '`' && *at != ' ')
            out[n++] = *at;
    }
    out[n] = 0;
}

/* The table of words in core/quant/README.md is the lists. */
static void test_readme(void **state)
{
    (void)state;
    static char readme[1 << 18];
    FILE *f = fopen("core/quant/README.md", "r");
    assert_non_null(f);
    readme[fread(readme, 1, sizeof readme - 1, f)] = 0;
    fclose(f);
#define X(word, ...) #word " "
    const char *want[][2] = {{"map", QM_MAP_LIST(X)},       {"norm", QM_NORM_LIST(X)},
                             {"search", QM_SEARCH_LIST(X)}, {"round", QM_ROUND_LIST(X)},
                             {"unit", QM_UNIT_LIST(X)},     {"scale", QM_SCALE_WORD_LIST(X)},
                             {"curve", QM_CURVE_LIST(X)},   {"pack", QM_PACK_LIST(X)}};
#undef X
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        char words[1024];
        words_of(readme, want[i][0], words, sizeof words);
        assert_string_equal(words, want[i][1]);
    }
}

/* Where a round of this kind ends: y in a cell of width 1 whose lower end is position k. */
static float want(enum qm_round_kind kind, float k, double part)
{
    int tie = part == 0.5;
    switch (kind) {
    case QM_ROUND_TIES_UP: return part > 0.5 || tie ? k + 1.0f : k;
    case QM_ROUND_TIES_DOWN: return part > 0.5 ? k + 1.0f : k;
    case QM_ROUND_TIES_EVEN: return part > 0.5 || (tie && fmodf(k, 2.0f) != 0.0f) ? k + 1.0f : k;
    case QM_ROUND_TIES_AWAY: return part > 0.5 || (tie && k >= 0.0f) ? k + 1.0f : k;
    case QM_ROUND_DIRECTED:
    case QM_ROUND_DRAWN: break;
    }
    return NAN;
}

/* A nearest round takes the nearest end and the tie of its kind, in cells and by steps alike; a
 * directed round takes one of the ends, and not always the nearest; neither reads the draw. */
static void test_kinds(void **state)
{
    (void)state;
    for (int w = 0; w < QM_ROUND_COUNT; w++) {
        enum qm_round round = (enum qm_round)w;
        enum qm_round_kind kind = qm_round_kind(round);
        assert_int_equal(qm_round_draws(round), kind == QM_ROUND_DRAWN);
        assert_int_equal(qm_round_is_directed(round), kind == QM_ROUND_DIRECTED);
        int far = 0, drawn = 0;
        for (int i = 0; i < 4000; i++) {
            float k = (float)((int)(random_word() % 256) - 128);
            int part = i % 4 ? (int)(random_word() % 1024) : 512; /* of 1024; exact in float32 */
            float x = k + (float)part / 1024.0f;
            uint32_t draw = random_word(), other = random_word();
            int even_k = (int)k & 1;
            float by_cell = k + (float)qm_round_up(round, x, k, k + 1.0f, even_k, draw);
            float by_step = qm_round_step(round, 0, x, 1.0f, draw);
            assert_true(by_step == k || by_step == k + 1.0f);
            drawn |= by_step != qm_round_step(round, 0, x, 1.0f, other);
            if (kind == QM_ROUND_DRAWN)
                continue;
            if (by_cell != by_step)
                fail_msg("word %d: %g is %g in its cell, %g by steps", w, (double)x,
                         (double)by_cell, (double)by_step);
            far += fabsf(by_step - x) > 0.5f;
            if (kind != QM_ROUND_DIRECTED && by_step != want(kind, k, part / 1024.0))
                fail_msg("word %d: %g is rounded to %g", w, (double)x, (double)by_step);
        }
        assert_int_equal(far > 0, kind == QM_ROUND_DIRECTED);
        assert_int_equal(drawn, kind == QM_ROUND_DRAWN);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_unique),
        cmocka_unit_test(test_readme),
        cmocka_unit_test(test_kinds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
