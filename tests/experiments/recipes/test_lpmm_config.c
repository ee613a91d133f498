/* test_lpmm_config.c - lpmm's configuration files: merging, words, errors, recipes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experiments/recipes/lpmm_config.h"

static char folder[] = "/tmp/qm_lpmm_XXXXXX";

static const char *path_of(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void put(const char *name, const char *text)
{
    FILE *f = fopen(path_of(name), "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

struct warnings {
    int n;
    char text[1024];
};

static void collect(void *context, const char *line)
{
    struct warnings *w = context;
    size_t used = strlen(w->text);
    w->n++;
    snprintf(w->text + used, sizeof w->text - used, "%s\n", line);
}

static void assert_recipe(const char *text, const char *want)
{
    struct qm_lpmm_config c;
    struct qm_recipe r;
    struct warnings w = {0};
    char got[QM_RECIPE_TEXT], again[QM_RECIPE_TEXT];
    put("a.yml", text);
    if (qm_lpmm_config_read(path_of("a.yml"), collect, &w, &c) != QM_OK)
        fail_msg("%s: %s", text, qm_message());
    assert_int_equal(w.n, 0);
    assert_int_equal(qm_lpmm_config_recipe(&c, got), QM_OK);
    assert_string_equal(got, want);
    assert_int_equal(qm_recipe_parse(got, &r), QM_OK);
    assert_string_equal(qm_recipe_print(&r, again), got);
}

/* The text of the library's own configuration files. */
#define FILE_TEXT(enable, bits, group, scale)                                              \
    "QUANT:\n  M:\n    ENABLE: " enable "\n    BITS: " bits "\n    GROUP_SIZE: " group     \
    "\n    SCALE_TYPE:\n      DEFAULT: group\n    QUANT_TYPE:\n      DEFAULT: nonlinear\n" \
    "    ROUND_TYPE: real-nearest\n  SQM:\n    ENABLE: True\n    BITS: " bits              \
    "\n    GROUP_SIZE: 128\n    SCALE_TYPE:\n      DEFAULT: " scale                        \
    "\n    QUANT_TYPE:\n      DEFAULT: power-1\n    ROUND_TYPE: real-nearest"

static void test_published_files(void **state)
{
    (void)state;
    assert_recipe(FILE_TEXT("True", "4", "128", "rank1"), "adamw4_lpmm");
    assert_recipe(FILE_TEXT("True", "8", "128", "rank1"), "adamw8_lpmm");
    assert_recipe(FILE_TEXT("True", "4", "128", "group"), "adamw4_lpmm_group");
    assert_recipe(FILE_TEXT("False", "4", "128", "rank1"), "adamw_lpmm_vonly");
    assert_recipe(FILE_TEXT("True", "4", "2048", "rank1"),
                  "adamw4_lpmm,exp_avg=de:4s/block:2048/bisect/mid/lo/nantop");
    assert_recipe(FILE_TEXT("True", "5", "128", "rank1"),
                  "adamw4_lpmm,exp_avg=de:5s/block:128/bisect/mid/byte/nantop,"
                  "exp_avg_sq=lin:5u/rank1/bisect/mid/byte/nantop");
    assert_recipe("QUANT:\n", "adamw4_lpmm_group"); /* an empty file: the library's defaults */
}

static void test_keys(void **state)
{
    (void)state;
    assert_recipe("QUANT: {M: {ENABLE: no, THRESHOLD: 7}, SQM: {THRESHOLD: 0, BITS: 3}}\n",
                  "adamw_lpmm_vonly,exp_avg_sq=lin:3u/block:128/bisect/mid/byte/nantop,"
                  "exp_avg_sq.min_numel=1");
    assert_recipe("QUANT: {M: {SCALE_TYPE: {DEFAULT: rank1-group}, GROUP_SIZE: 64,\n"
                  "  ROUND_TYPE: sr1}}\n",
                  "adamw4_lpmm_group,exp_avg=de:4s/rank1block:64/bisect/stoch/lo/least:1");
    assert_recipe("QUANT: {M: {QUANT_TYPE: {DEFAULT: linear}, ROUND_TYPE: sr2, BITS: 8}}\n",
                  "adamw4_lpmm_group,exp_avg=lint:8s/block:128/arith/dither/least:129");
    assert_recipe("QUANT: {SQM: {QUANT_TYPE: {DEFAULT: float-point}, SIGNED: True,\n"
                  "  SCALE_TYPE: {DEFAULT: dim10}, ROUND_TYPE: up}}\n",
                  "adamw4_lpmm,exp_avg_sq=fpx:4s/colrow/bisect/ceil/lo");
}

/* Every word of every axis at every width gives a quantizer, or is refused as by the source. */
static void test_every_composition(void **state)
{
    static const char *const scales[] = {"tensor", "dim0",  "dim1",        "dim01", "dim10",
                                         "group",  "rank1", "rank1-group", "id"};
    static const char *const maps[] = {"nonlinear", "nonlinear-nozero", "power-1", "power-2",
                                       "power-3",   "float-point",      "linear"};
    static const char *const rounds[] = {"real-nearest", "real-sr", "nearest", "up",
                                         "down",         "sr",      "sr1",     "sr2"};
    int made = 0, refused = 0;
    (void)state;
    for (int i = 0; i < 9 * 7 * 8 * 7 * 2; i++) {
        struct qm_lpmm_state s = qm_lpmm_config_default().m;
        struct qm_codec *c = malloc(sizeof *c);
        char text[QM_QUANTIZER_TEXT];
        int map = i / 9 % 7, round = i / 63 % 8;
        assert_int_equal(qm_lpmm_state_set(&s, "SCALE_TYPE", scales[i % 9]), QM_OK);
        assert_int_equal(qm_lpmm_state_set(&s, "QUANT_TYPE", maps[map]), QM_OK);
        assert_int_equal(qm_lpmm_state_set(&s, "ROUND_TYPE", rounds[round]), QM_OK);
        s.bits = 2 + i / 504 % 7;
        s.sign = i / 3528;
        qm_status st = qm_lpmm_state_quantizer(&s, text);
        int must_refuse = map == 6 && (round == 0 || round == 2);
        int beyond = map == 6 && s.bits == 2 && round >= 6; /* the map ends at 1 */
        if (st == QM_OK) {
            assert_int_equal(qm_codec_parse(c, text), QM_OK);
            assert_false(must_refuse);
            made++;
        } else {
            if (!must_refuse && !beyond)
                fail_msg("%s", qm_message());
            refused++;
        }
        free(c);
    }
    assert_true(made > 6500 && refused > 200);
}

static void test_base(void **state)
{
    struct qm_lpmm_config c;
    struct warnings w = {0};
    (void)state;
    put("first.yml", "QUANT: {M: {BITS: 8, GROUP_SIZE: 256}, SQM: {BITS: 8}}\n");
    put("second.yml", "BASE: ['', first.yml]\nQUANT: {M: {GROUP_SIZE: 512}}\n");
    put("third.yml", "QUANT: {SQM: {BITS: 4}}\nBASE: [second.yml]\n"); /* BASE may stand anywhere */
    assert_int_equal(qm_lpmm_config_read(path_of("third.yml"), collect, &w, &c), QM_OK);
    assert_int_equal(c.m.bits, 8);
    assert_int_equal(c.m.group_size, 512);
    assert_int_equal(c.sqm.bits, 4);
    assert_int_equal(w.n, 0);
    put("circle.yml", "BASE: [circle.yml]\n");
    assert_int_equal(qm_lpmm_config_read(path_of("circle.yml"), NULL, NULL, &c), QM_BAD_ARG);
    assert_non_null(strstr(qm_message(), "circle"));
    put("lost.yml", "BASE: [nowhere.yml]\n");
    assert_int_equal(qm_lpmm_config_read(path_of("lost.yml"), NULL, NULL, &c), QM_BAD_FILE);
    assert_non_null(strstr(qm_message(), "nowhere.yml"));
    assert_int_equal(qm_lpmm_config_read(path_of("absent.yml"), NULL, NULL, &c), QM_BAD_FILE);
}

static void test_warnings(void **state)
{
    struct qm_lpmm_config c;
    struct warnings w = {0};
    (void)state;
    put("a.yml", "OUTPUT: out\nTRAIN:\n  lr: 1\nQUANT:\n  INIT_STATES: [param]\n  P:\n"
                 "    BITS: 8\n    SCALE_TYPE:\n      DEFAULT: group\n  M:\n"
                 "    EXCLUDE_SUFFIX: ['']\n    BITS: 4\n");
    assert_int_equal(qm_lpmm_config_read(path_of("a.yml"), collect, &w, &c), QM_OK);
    assert_int_equal(w.n, 6);
    assert_non_null(strstr(w.text, "a.yml:1: OUTPUT is ignored"));
    assert_non_null(strstr(w.text, "a.yml:2: TRAIN is"));
    assert_non_null(strstr(w.text, "a.yml:9: QUANT.P.SCALE_TYPE.DEFAULT is"));
    assert_non_null(strstr(w.text, "a.yml:11: QUANT.M.EXCLUDE_SUFFIX is"));
}

static void test_mistakes(void **state)
{
    static const char *const bad[][2] = {
        {"", "a.yml:1: the file is empty"},
        {"QUANT: [", "a.yml:"},
        {"- 1\n", "map of keys"},
        {"QUANTS: {}\n", "a.yml:1: no key 'QUANTS'"},
        {"QUANT:\n  M:\n    BITZ: 4\n", "a.yml:3: no key 'QUANT.M.BITZ'; did you mean"},
        {"QUANT:\n  M: 4\n", "a.yml:2: QUANT.M is '4', expected a map"},
        {"QUANT: {M: {BITS: 1}}\n", "from 2 to 8"},
        {"QUANT: {M: {BITS: '4'}}\n", "whole number"},
        {"QUANT: {M: {BITS: 4.0}}\n", "whole number"},
        {"QUANT: {M: {ENABLE: 1}}\n", "True or False"},
        {"QUANT: {M: {SCALE_TYPE: group}}\n", "QUANT.M.SCALE_TYPE is 'group', expected a map"},
        {"QUANT:\n  SQM:\n    SCALE_TYPE:\n      DEFAULT: rank2\n",
         "a.yml:4: no SCALE_TYPE 'rank2'"},
        {"QUANT: {SQM: {QUANT_TYPE: {DEFAULT: power-4}}}\n", "'power-"},
        {"QUANT: {SQM: {ROUND_TYPE: [sr]}}\n", "one word"},
        {"QUANT: {SQM: {QUANT_TYPE: {DEFAULT: linear}}}\n", "refuses QUANT_TYPE linear"},
        {"QUANT: {M: {SIGNED: False}}\n", "both signs"},
        {"QUANT: {M: {GROUP_SIZE: 0}}\n", "from 1 to"},
        {"QUANT: {M: {GROUP_SIZE: 0200}}\n", "from 1 to"}, /* 128 in YAML 1.1 */
        {"BASE: first.yml\n", "BASE is 'first.yml', expected a list of files"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct qm_lpmm_config c = {.m = {.bits = 77}};
        put("a.yml", bad[i][0]);
        assert_int_equal(qm_lpmm_config_read(path_of("a.yml"), NULL, NULL, &c), QM_BAD_ARG);
        if (!strstr(qm_message(), bad[i][1]))
            fail_msg("'%s': '%s' does not mention %s", bad[i][0], qm_message(), bad[i][1]);
        assert_int_equal(c.m.bits, 77); /* untouched */
    }
}

static int open_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int close_folder(void **state)
{
    static const char *const names[] = {"a.yml",     "first.yml",  "second.yml",
                                        "third.yml", "circle.yml", "lost.yml"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unlink(path_of(names[i]));
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_files),   cmocka_unit_test(test_keys),
        cmocka_unit_test(test_every_composition), cmocka_unit_test(test_base),
        cmocka_unit_test(test_warnings),          cmocka_unit_test(test_mistakes),
    };
    return cmocka_run_group_tests(tests, open_folder, close_folder);
}
