/* test_search.c - Tests searches, edges and quantizer strings of every composition.
 *
 * Every search and every instruction set is compared with the slow definition. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/quant/search_loops.h"
#include "core/quant/simd.h"
#include "tests/support/random_floats.h"

static const struct {
    const char *name;
    int from, to, signs;
} maps[] = {
#define X(name, from, to, signs, text) {#name, from, to, signs},
    QM_MAP_LIST(X)
#undef X
};
#define X(name, ...) #name,
static const char *const searches[] = {QM_SEARCH_LIST(X)};
static const char *const rounds[] = {QM_ROUND_LIST(X)};
#undef X

/* The compositions that one test has seen. */
struct count {
    int codecs, map[QM_MAP_COUNT], search[QM_SEARCH_COUNT], round[QM_ROUND_COUNT];
};

/* Calls f with every search and round on a map of this width and sign that composes with `tail`. */
static void each_on(int map, int bits, int sign, const char *tail,
                    void (*f)(const struct qm_codec *c, const char *text), struct count *n)
{
    const char *curve = strncmp(maps[map].name, "log", 3) == 0 ? "log2/" : "";
    for (int s = 0; s < QM_SEARCH_COUNT; s++)
        for (int r = 0; r < QM_ROUND_COUNT; r++) {
            char text[256];
            struct qm_codec c;
            snprintf(text, sizeof text, "%s:%d%c/%s%s/%s/%s", maps[map].name, bits, "us"[sign],
                     curve, tail, searches[s], rounds[r]);
            if (qm_codec_parse(&c, text) != QM_OK || !c.has_edges)
                continue;
            f(&c, text);
            n->codecs++;
            n->map[map]++;
            n->search[s]++;
            n->round[r]++;
        }
}

/* Calls f with every map at its least and largest width and at 4 bits, every search and every
 * round that does not draw; each of them must have occurred. */
static void each_codec(const char *tail, void (*f)(const struct qm_codec *c, const char *text))
{
    struct count n = {0};
    for (int m = 0; m < QM_MAP_COUNT; m++)
        for (int bits = maps[m].from; bits <= maps[m].to; bits++)
            for (int sign = 0; sign < 2; sign++)
                if (maps[m].signs >> sign & 1 &&
                    (bits == maps[m].from || bits == 4 || bits == maps[m].to))
                    each_on(m, bits, sign, tail, f, &n);
    for (int m = 0; m < QM_MAP_COUNT; m++)
        if (n.map[m] == 0 && m != QM_MAP_al && m != QM_MAP_qlog &&
            m != QM_MAP_affine) /* curves allog, qlog and affine have no edges of unit values */
            fail_msg("no codec of map %s", maps[m].name);
    for (int s = 0; s < QM_SEARCH_COUNT; s++)
        if (n.search[s] == 0)
            fail_msg("no codec of search %s", searches[s]);
    for (int r = 0; r < QM_ROUND_COUNT; r++)
        if ((n.round[r] == 0) != qm_round_draws((enum qm_round)r))
            fail_msg("%d codecs of round %s", n.round[r], rounds[r]);
    print_message("%s: %d codecs\n", tail, n.codecs);
}

/* Positions by edges, around every edge and at random, against the definition. */
static void check_edges(const struct qm_codec *c, const char *text)
{
    float limit = c->cb.value[c->cb.n - 1] > 2.0f ? 300.0f : 1.0f;
    for (int k = -1; k < c->cb.n - 1; k++)
        for (int d = -3; d <= 3; d++) {
            float e = k < 0 ? limit : c->edge[k];
            if (!isfinite(e))
                continue;
            float y = qm_unordered(qm_ordered(e) + d);
            uint8_t fast;
            qm_simd()->positions(c, &y, 1, &fast);
            if (fast != qm_code_of(c, y, 0))
                fail_msg("%s: y = %a: edges give %d, the search gives %d", text, (double)y, fast,
                         qm_code_of(c, y, 0));
        }
    for (int i = 0; i < 300; i++) {
        float y = random_float(0) * limit;
        uint8_t fast;
        qm_simd()->positions(c, &y, 1, &fast);
        assert_int_equal(fast, qm_code_of(c, y, 0));
    }
}

/* The loop of the search, at every instruction set, against the definition. */
static void check_searches(const struct qm_codec *c, const char *text)
{
    static uint8_t grid[65536], got[1500];
    static float y[1500];
    float limit = c->cb.value[c->cb.n - 1] > 2.0f ? 300.0f : 1.0f;
    int n = 0;
    for (int k = 0; k + 1 < c->cb.n && n < 1200; k++)
        for (int d = -1; d <= 1; d++)
            if (isfinite(c->edge[k]))
                y[n++] = qm_unordered(qm_ordered(c->edge[k]) + d);
    while (n < 1500)
        y[n++] = random_float(0) * limit;
    if (c->q.search == QM_SEARCH_grid)
        qm_search_grid_table(c, grid);
    for (int isa = 0; isa < QM_ISA_COUNT; isa++) {
        if (!qm_isa_force((enum qm_isa)isa))
            continue;
        qm_searches()->by[c->q.search](c, y, n, got, grid);
        for (int i = 0; i < n; i++)
            if (got[i] != qm_code_of(c, y[i], 0))
                fail_msg("%s, %s: y = %a: the loop gives %d, the definition %d", text,
                         qm_isa_text((enum qm_isa)isa), (double)y[i], got[i],
                         qm_code_of(c, y[i], 0));
    }
}

static void test_searches(void **state)
{
    (void)state;
    each_codec("block:64", check_searches);
}

static void test_edges(void **state)
{
    (void)state;
    each_codec("block:64", check_edges);
}

/* The printed string parses back to an equal quantizer. */
static void check_text(const struct qm_codec *c, const char *text)
{
    char a[QM_QUANTIZER_TEXT], b[QM_QUANTIZER_TEXT];
    struct qm_quantizer q;
    qm_quantizer_print(&c->q, a);
    assert_int_equal(qm_quantizer_parse(a, &q), QM_OK);
    assert_string_equal(a, qm_quantizer_print(&q, b));
    if (!qm_quantizer_equal(&c->q, &q))
        fail_msg("%s does not round-trip: %s", text, a);
}

static void test_text(void **state)
{
    (void)state;
    each_codec("block:64", check_text);
    each_codec("rank1/f16/maxskip/nanzero", check_text);
    each_codec("tensor/recip/guard:1e-38/zero:3/nantop", check_text);
    static const char *const bad[] = {
        "",
        "nf4",
        "nf4:4s",
        "nf4:5s/tensor",
        "nf4:4u/tensor",
        "f33",
        "nf4:4s/block",
        "nf4:4s/block:0",
        "nf4:4s/block:-3",
        "nf4:4s/block:64x",
        "nf4:4s/tensor/rank1",
        "nf4:4s/tensor/arith/even",
        "dyn:8s/tensor/ladder/mid",
        "nf4:4s/tensor/argmin/near",
        "nf4:4s/tensor/floor:0",
        "nf4:4s/tensor/floor:nan",
        "log:8u/block:64/arith/even",
        "dyn:8s/block:64/log2",
        "nf4:4s/tensor/zero:16",
        "nf4:4s/tensor/lo:3",
        "nf4:4s//tensor",
        "nf4:4s/tensor/",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct qm_quantizer q;
        if (qm_quantizer_parse(bad[i], &q) == QM_OK)
            fail_msg("'%s' should be refused", bad[i]);
        assert_true(strlen(qm_message()) > 0 && !strchr(qm_message(), '\n'));
    }
    struct qm_quantizer q;
    assert_int_equal(qm_quantizer_parse("nf4:4s/block:64/bisekt/mid", &q), QM_NO_MATCH);
    assert_non_null(strstr(qm_message(), "'bisect'"));
}

/* Positions of y[n] at every instruction set against the definition. */
static void check_positions(const struct qm_codec *c, const char *text, const float *y, int n)
{
    static uint8_t want[16384], got[16384 + 64];
    assert_true(n <= 16384);
    for (int i = 0; i < n; i++)
        want[i] = (uint8_t)qm_code_of(c, y[i], 0);
    for (int isa = 0; isa < QM_ISA_COUNT; isa++) {
        if (!qm_isa_force((enum qm_isa)isa))
            continue;
        memset(got, 0xa5, sizeof got);
        qm_simd()->positions(c, y, n, got);
        for (int i = 0; i < n; i++)
            if (got[i] != want[i])
                fail_msg("%s, %s: y = %a is at %d, by vectors at %d", text,
                         qm_isa_text((enum qm_isa)isa), (double)y[i], want[i], got[i]);
        for (int i = n; i < n + 64; i++)
            assert_int_equal(got[i], 0xa5);
    }
}

/* The straight lines of 8-bit dynamic maps are in use, and give the position of thousands of floats
 * of both signs around every edge, every end of a segment and every bound of clamping. */
static void test_edge_lines(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "dyn:8s/block:256/bisect/near", "dyn:8u/block:256/bisect/near",
        "dyn:8s/block:256/mids/mid",    "dyn:8u/block:256/mids/mid",
        "de:8s/block:128/bisect/mid",   "de:8u/block:128/bisect/mid",
        "dyn:8s/block:64/bisect/even",  "dyn:8u/block:64/bisect/away",
        "de:8s/block:64/argmin/mid",
    };
    static float y[16384];
    for (size_t t = 0; t < sizeof texts / sizeof *texts; t++) {
        struct qm_codec c;
        assert_int_equal(qm_codec_parse(&c, texts[t]), QM_OK);
        assert_true(c.edge_lines.usable);
        int reach = t < 2 ? 4096 : 256;
        float at[255 + 8 + 3];
        int places = 0;
        for (int k = 0; k < 255; k++)
            at[places++] = c.edge[k];
        for (int i = 0; i + 1 < QM_EDGE_LINES_SEGMENTS; i++)
            at[places++] = c.edge_lines.end[i];
        at[places++] = 1.0f;
        at[places++] = 0.0f;
        at[places++] = QM_EDGE_LINES_TINY;
        for (int k = 0; k < places; k++) {
            int n = 0;
            for (int d = -reach; d < reach; d++)
                y[n++] = qm_unordered(qm_ordered(at[k]) + d);
            for (int i = 0; n < 16384 && i < 2 * reach; i++)
                if (c.q.sign || y[i] < 0.0f)
                    y[n++] = -y[i];
            check_positions(&c, texts[t], y, n);
        }
        for (int i = 0; i < 16384; i++) { /* a quarter each: any float, small, large, subnormal */
            float v = random_float(0);
            y[i] = i % 4 == 1   ? v * 1e-6f
                   : i % 4 == 2 ? v * 3.0f
                   : i % 4 == 3 ? qm_float(random_word() & 0x807fffffu)
                                : v;
        }
        for (int n = 16384; n > 0; n = n * 5 / 7)
            check_positions(&c, texts[t], y, n);
    }
    /* maps whose edges are not those of decades must be refused */
    static const char *const others[] = {
        "dyn:8s/block:64/bisect/floor", "lin:8u/block:64/bisect/mid",
        "de0:8u/block:64/bisect/mid",   "dyn:8s/block:64/grid/mid",
        "dyn:7u/block:64/bisect/mid",   "lint:8s/block:64/bisect/mid"};
    for (size_t t = 0; t < sizeof others / sizeof *others; t++) {
        struct qm_codec c;
        assert_int_equal(qm_codec_parse(&c, others[t]), QM_OK);
        assert_false(c.edge_lines.usable);
        for (int i = 0; i < 1000; i++)
            y[i] = random_float(0);
        check_positions(&c, others[t], y, 1000);
    }
}

/* Fills a block of 128 elements whose largest magnitude is d: the floats next to d times edge k, in
 * the order of their distance from it. */
static void aim_at_edge(const struct qm_codec *c, int k, float d, float *x)
{
    int32_t at = qm_ordered(c->edge[k] * d);
    x[0] = k % 2 ? d : -d;
    for (int i = 1; i < 128; i++) {
        float y = qm_unordered(at + (i % 2 ? i : -i) / 2);
        x[i] = fabsf(y) <= d ? y : 0.0f;
    }
}

/* The tables of edge_lut.h are in use, and give the codes of the defining form on both sides of
 * every edge, for scales of every size, with units that divide and that multiply. */
static void test_edge_lut(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "dyn:4s/block:128/bisect/near/hi",     "lin:4u/block:128/bisect/near/hi",
        "lin:4u/block:128/bisect/mid/lo",      "nf4:4s/block:128/mids/mid/lo",
        "nf4a8:4s/block:128/ladder/mid/hi",    "dyn:4s/block:128/bisect/near/recip/hi",
        "nf4:4s/block:128/argmin/mid/recip/hi"};
    static const float sizes[] = {1.0f,      3e-3f,  0x1p-96f, 0x1p-110f,
                                  0x1p-112f, 1e-37f, 1e-42f,   0x1.fffffep127f,
                                  7e37f,     1e20f,  0x1p-4f,  1.1754e-38f};
    for (size_t t = 0; t < sizeof texts / sizeof *texts; t++) {
        struct qm_codec c;
        assert_int_equal(qm_codec_parse(&c, texts[t]), QM_OK);
        assert_true(c.edge_lut.usable);
        for (int round = 0; round < 600; round++) {
            float size = round < 12 ? sizes[round] : qm_float(random_word() % 0x7f000000u);
            float x[15 * 128], scale[15];
            uint8_t packed[15 * 64], codes[15 * 128];
            for (int k = 0; k < 15; k++)
                aim_at_edge(&c, k, size, x + 128 * k);
            qm_encode_blocks(&c, x, 15 * 128, packed, scale);
            qm_unpack_range(&c, packed, 15 * 128, codes);
            float r = 1.0f / size;
            for (int i = 0; i < 15 * 128 && r < INFINITY; i++) {
                float y = c.q.unit == QM_UNIT_div ? x[i] / size : x[i] * r;
                if (codes[i] != qm_code_of(&c, y, 0))
                    fail_msg("%s: x = %a, scale %a: code %d, want %d", texts[t], (double)x[i],
                             (double)size, codes[i], qm_code_of(&c, y, 0));
            }
        }
    }
    struct qm_codec c; /* two edges in one cell must be refused */
    assert_int_equal(qm_codec_parse(&c, "de0:4u/block:128/bisect/near"), QM_OK);
    c.edge[3] = c.edge[4] - 0x1p-10f;
    qm_edge_lut_build(c.edge, 16, &c.edge_lut);
    assert_false(c.edge_lut.usable);
}

/* Edges of which one was moved: lines that cannot be proved must not be used. */
static void test_edge_lines_refused(void **state)
{
    (void)state;
    struct qm_codec c;
    struct qm_edge_lines s;
    assert_int_equal(qm_codec_parse(&c, "dyn:8s/block:256/bisect/near"), QM_OK);
    for (int k = 0; k < 255; k++) {
        float kept = c.edge[k];
        for (int way = -1; way <= 1; way += 2) {
            float to = k + way < 0 || k + way > 254 ? 0.0f : c.edge[k + way];
            c.edge[k] = kept + 0.01f * (to - kept);
            qm_edge_lines_build(c.edge, &s);
            /* usable lines, as those fitted to the moved edge may be, must be exact */
            for (int i = 0; s.usable && i < 600; i++) {
                struct qm_codec d = c;
                d.edge_lines = s;
                float y = i % 2 ? random_float(0) : qm_unordered(qm_ordered(c.edge[k]) + i - 300);
                int want = 0;
                uint8_t got;
                for (int j = 0; j < 255; j++)
                    want += y >= c.edge[j];
                for (int j = 0; j < 32; j++)
                    for (int l = 0; l < 8; l++)
                        d.fan[l][j] = 8 * j + l < 255 ? c.edge[8 * j + l] : INFINITY;
                qm_simd()->positions(&d, &y, 1, &got);
                assert_int_equal(got, want);
            }
        }
        c.edge[k] = kept;
    }
    c.edge[200] = NAN;
    qm_edge_lines_build(c.edge, &s);
    assert_false(s.usable);
}

/* has_steps is set for codecs whose positions follow by steps, and for no others. */
static void test_steps(void **state)
{
    (void)state;
    static const char *const yes[] = {"lint:8s/block:32/arith/near", "lint:8u/block:32/arith/near",
                                      "int:8s/block:64/arith/near"};
    static const char *const no[] = {
        "lint:8s/block:32/arith/even",         "dyn:8s/block:32/bisect/near",
        "lint:8s/block:32/arith/near/least:3", "lint:4s/block:32/arith/near",
        "lint:8s/block:32/arith/floor",        "lin:8u/block:32/bisect/mid"};
    struct qm_codec c;
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++) {
        assert_int_equal(qm_codec_parse(&c, yes[i]), QM_OK);
        assert_true(c.has_steps);
        for (int k = 0; k + 1 < c.cb.n; k += 17) { /* one moved value is noticed */
            struct qm_codec moved = c;
            moved.q.search = QM_SEARCH_bisect;
            moved.q.round = QM_ROUND_near;
            qm_codec_rebuild(&moved);
            moved.cb.value[k] += 1e-5f;
            qm_codec_rebuild(&moved);
            assert_false(moved.has_steps);
        }
    }
    for (size_t i = 0; i < sizeof no / sizeof *no; i++) {
        assert_int_equal(qm_codec_parse(&c, no[i]), QM_OK);
        assert_false(c.has_steps);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_searches),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_edge_lines),
        cmocka_unit_test(test_edge_lut),
        cmocka_unit_test(test_edge_lines_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
