/* test_shampoo.c - The linear algebra of Shampoo against GSL; its codes, tiles and sizes; what
 * rectification is for. */
#include <gsl/gsl_eigen.h>
#include <gsl/gsl_linalg.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/philox.h"
#include "core/recipe/backend.h"
#include "core/rule/shampoo.h"

enum { SEED = 5, MOST = 96 };

static float draw(uint64_t stream, int64_t i)
{
    double sum = -6.0;
    for (uint64_t k = 0; k < 12; k++)
        sum += (double)qm_philox_stream(SEED, stream, 12 * (uint64_t)i + k) * 0x1p-32;
    return (float)sum;
}

/* A = G G^T of a first update with stat_decay 0: the factors against those of GSL, which has the
 * signs of LAPACK too.  2^-23 n: two roundings to float32 and the conditions of these matrices,
 * which are below 2^10 n. */
static void test_qr(void **state)
{
    (void)state;
    static const struct qm_shampoo_tile tiles[] = {{0, 0, 1, 4},   {0, 0, 2, 9},    {0, 0, 7, 40},
                                                   {0, 0, 20, 64}, {0, 0, 64, 200}, {0, 0, 30, 70}};
    for (size_t c = 0; c < sizeof tiles / sizeof *tiles; c++) {
        const struct qm_shampoo_tile *t = &tiles[c];
        size_t n = (size_t)t->rows, m = (size_t)t->cols;
        float *g = malloc(n * m * sizeof *g), *vt = calloc(n * n, sizeof *vt);
        float *ev = calloc(n, sizeof *ev);
        struct qm_hyper h = qm_hyper_default();
        gsl_matrix *a = gsl_matrix_alloc(n, n), *qr = gsl_matrix_alloc(n, n);
        gsl_matrix *q = gsl_matrix_alloc(n, n), *r = gsl_matrix_alloc(n, n);
        gsl_vector *tau = gsl_vector_alloc(n);
        assert_true(g && vt && ev);
        h.stat_decay = 0.0;
        for (size_t i = 0; i < n * m; i++)
            g[i] = draw(c, (int64_t)i);
        for (size_t i = 0; i < n; i++)
            for (size_t j = 0; j < n; j++) {
                double sum = 0.0;
                for (size_t k = 0; k < m; k++)
                    sum += (double)g[i * m + k] * (double)g[j * m + k];
                gsl_matrix_set(a, i, j, sum);
            }
        gsl_matrix_memcpy(qr, a);
        gsl_linalg_QR_decomp(qr, tau);
        gsl_linalg_QR_unpack(qr, tau, q, r);
        assert_int_equal(qm_shampoo_statistic(&h, t, t->cols, g, 0, vt, ev), QM_OK);
        for (size_t j = 0; j < n; j++) {
            double want = 0.0;
            for (size_t i = 0; i < n; i++) {
                double got = (double)vt[j * n + i];
                if (!(fabs(got - gsl_matrix_get(q, i, j)) <= 0x1p-23 * (double)n))
                    fail_msg("order %zu: element %zu of vector %zu is %.9g, want %.9g", n, i, j,
                             got, gsl_matrix_get(q, i, j));
                for (size_t k = 0; k < n; k++)
                    want +=
                        gsl_matrix_get(q, i, j) * gsl_matrix_get(a, i, k) * gsl_matrix_get(q, k, j);
            }
            assert_true(fabs((double)ev[j] - want) <= 0x1p-23 * fabs(want));
        }
        gsl_matrix_free(a), gsl_matrix_free(qr), gsl_matrix_free(q), gsl_matrix_free(r);
        gsl_vector_free(tau);
        free(g), free(vt), free(ev);
    }
}

/* The fourth power of a root is the inverse of V diag(ev + eps max) V^T. */
static void test_root(void **state)
{
    (void)state;
    enum { N = 12 };
    const struct qm_shampoo_tile t = {0, 0, N, 30};
    struct qm_hyper h = qm_hyper_default();
    float g[N * 30], vt[N * N] = {0}, ev[N] = {0}, root[N * N];
    h.stat_decay = 0.5;
    for (int step = 0; step < 40; step++) { /* eigenvectors converge */
        for (int i = 0; i < N * 30; i++)
            g[i] = draw(77, i);
        assert_int_equal(qm_shampoo_statistic(&h, &t, 30, g, 0, vt, ev), QM_OK);
    }
    assert_int_equal(qm_shampoo_root(&h, N, vt, ev, root), QM_OK);
    double x[N * N], y[N * N], most = 0.0;
    for (int i = 0; i < N; i++)
        most = fmax(most, (double)ev[i]);
    for (int i = 0; i < N * N; i++)
        x[i] = (double)root[i];
    for (int power = 0; power < 2; power++) {
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++) {
                double sum = 0.0;
                for (int k = 0; k < N; k++)
                    sum += x[i * N + k] * x[k * N + j];
                y[i * N + j] = sum;
            }
        memcpy(x, y, sizeof x);
    }
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) { /* x (V D V^T) = I */
            double sum = 0.0;
            for (int k = 0; k < N; k++)
                for (int e = 0; e < N; e++)
                    sum += x[i * N + k] * (double)vt[e * N + k] *
                           ((double)ev[e] + h.matrix_eps * most) * (double)vt[e * N + j];
            assert_true(fabs(sum - (i == j)) <= 1e-4);
        }
}

/* The identity has one nonzero element in a row, which is the row's scale: codes bring it back. */
static void test_identity(void **state)
{
    (void)state;
    static const int64_t orders[] = {2, 20, 64, 70};
    struct qm_codec codec;
    assert_int_equal(qm_codec_parse(&codec, "lin2:4s/rowblock:64/bisect/even/lo/recip/nanzero"),
                     QM_OK);
    for (size_t c = 0; c < sizeof orders / sizeof *orders; c++) {
        int64_t n = orders[c];
        struct qm_shape shape = {2, {n, n}};
        float x[70 * 70], out[70 * 70], scales[140];
        uint8_t codes[70 * 70];
        for (int64_t i = 0; i < n * n; i++)
            x[i] = i % (n + 1) == 0 ? 1.0f : 0.0f;
        assert_int_equal(qm_encode(&codec, &shape, x, NULL, codes, scales), QM_OK);
        qm_decode(&codec, &shape, codes, scales, out);
        assert_memory_equal(x, out, sizeof *x * (size_t)(n * n));
    }
}

/* At a mid-point the even code, on both sides of it the nearer one. */
static void test_ties(void **state)
{
    (void)state;
    struct qm_codec codec;
    struct qm_shape shape = {2, {1, 2}};
    assert_int_equal(qm_codec_parse(&codec, "lin2:4s/rowblock:64/bisect/even/lo/recip/nanzero"),
                     QM_OK);
    for (int k = 0; k < 15; k++) {
        float mid = (codec.cb.value[k] + codec.cb.value[k + 1]) * 0.5f, scale;
        for (int side = -1; side <= 1; side++) {
            float x[2] = {side < 0   ? nextafterf(mid, -2.0f)
                          : side > 0 ? nextafterf(mid, 2.0f)
                                     : mid,
                          1.0f};
            uint8_t codes[2];
            int want = side < 0 ? k : side > 0 ? k + 1 : k + k % 2;
            assert_int_equal(qm_encode(&codec, &shape, x, NULL, codes, &scale), QM_OK);
            assert_int_equal(codes[0], want);
        }
    }
}

/* ---- tensors --------------------------------------------------------------------------------- */

static void parse(const char *text, struct qm_recipe *r)
{
    if (qm_recipe_parse(text, r) != QM_OK)
        fail_msg("%s: %s", text, qm_message());
}

/* Bytes of a preconditioner of order n: those of the package. */
static int64_t coded(int64_t n) { return n * n / 2 + 4 * n * ((n + 63) / 64) + 4 * n; }
static int64_t plain(int64_t n) { return 4 * (2 * n * n + n); }

static int64_t below(int64_t n)
{
    static uint64_t drawn;
    return (int64_t)(qm_philox_stream(SEED, 999, drawn++) % (uint64_t)n);
}

/* Bytes of the factors of a matrix, tile by tile; of one that is quantized two matrices have codes,
 * vectors and root. */
static int64_t of_factors(int64_t rows, int64_t cols, int64_t order, int64_t least)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < rows; i += order)
        for (int64_t j = 0; j < cols; j += order)
            for (int right = 0; right < 2; right++) {
                int64_t rest = right ? cols - j : rows - i, n = rest < order ? rest : order;
                sum += least > 0 && n * n >= least ? 2 * coded(n) : plain(n);
            }
    return sum;
}

static void has_bytes(const char *recipe, const struct qm_shape *shape, int64_t want)
{
    struct qm_recipe r;
    int64_t bytes;
    char text[64];
    parse(recipe, &r);
    assert_int_equal(qm_recipe_bytes(&r, shape, &bytes), QM_OK);
    if (bytes != want)
        fail_msg("%s of %s has %lld bytes, want %lld", recipe,
                 qm_shape_print(shape, text, sizeof text), (long long)bytes, (long long)want);
}

static void test_bytes(void **state)
{
    (void)state;
    has_bytes("shampoo4_adamw", &(struct qm_shape){4, {64, 3, 1, 7}},
              8 * 64 * 21 + 2 * coded(64) + plain(21));
    has_bytes("shampoo4_adamw", &(struct qm_shape){2, {1, 300}}, 8 * 300);
    has_bytes("shampoo4_adamw", &(struct qm_shape){2, {11008, 4096}},
              8 * 11008 * 4096 + 2 * 4 * (9 * coded(1200) + coded(208)) +
                  2 * 10 * (3 * coded(1200) + coded(496)));
    for (int i = 0; i < 400; i++) {
        /* Even orders of codes: of odd ones the package's rows share bytes. */
        int64_t order = 2 * (1 + below(90)), rows = 2 * (1 + below(300)),
                cols = 2 * (1 + below(300)), least = i % 3 ? 4096 : 0, n = rows * cols;
        struct qm_shape shape = {2, {rows, cols}};
        char text[96];
        snprintf(text, sizeof text, "%s,max_order=%lld",
                 least ? i % 2 ? "shampoo4_adamw" : "shampoo4_sgd" : "shampoo_sgd_f32",
                 (long long)order);
        has_bytes(text, &shape,
                  (least && i % 2 ? 8 : 4) * n + of_factors(rows, cols, order, least));
    }
}

/* An override of a slot goes to the matrices of its last pieces, too, unless it names them. */
static void test_last_slots_are_alike(void **state)
{
    (void)state;
    struct qm_recipe r, again;
    char text[QM_RECIPE_TEXT];
    parse("shampoo4_adamw,left_root.map=dyn,left_root.plain=bf16,right_vectors=f32,"
          "right_vectors_last=lin2:8s/tensor",
          &r);
    assert_true(r.slot[5].map == r.slot[10].map && r.plain[10].plain == QM_PLAIN_bf16);
    assert_true(r.slot[3].bits == 0 && r.slot[9].bits == 8 && r.slot[8].bits == 4);
    assert_int_equal(r.init_code[8], 7);
    qm_recipe_print(&r, text);
    assert_null(strstr(text, "left_root_last"));
    assert_non_null(strstr(text, "right_vectors_last=lin2:8s/tensor"));
    parse(text, &again);
    for (int i = 0; i < r.rule->n_slots; i++)
        assert_true(qm_quantizer_equal(&r.slot[i], &again.slot[i]) &&
                    r.plain[i].plain == again.plain[i].plain);
}

/* Steps of a recipe on gradients of the stream; p and, where not NULL, the slot at the end. */
static void run(const char *recipe, const struct qm_shape *shape, int steps, float *p, int slot,
                float *out)
{
    struct qm_recipe r;
    void *plan;
    int64_t n = qm_shape_numel(shape);
    float *g = malloc(sizeof *g * (size_t)n);
    parse(recipe, &r);
    assert_non_null(g);
    assert_int_equal(qm_backend_cpu.open(&r, shape, 0, &plan), QM_OK);
    for (int64_t i = 0; i < n; i++)
        p[i] = draw(1, i);
    for (int t = 1; t <= steps; t++) {
        for (int64_t i = 0; i < n; i++)
            g[i] = draw(100 + (uint64_t)t, i) * 0.01f;
        struct qm_tensor pt = {p, QM_DTYPE_f32, *shape}, gt = {g, QM_DTYPE_f32, *shape};
        assert_int_equal(qm_backend_cpu.step(plan, &pt, &gt, t, 0), QM_OK);
    }
    if (out)
        assert_int_equal(qm_backend_cpu.decode(plan, slot, out), QM_OK);
    qm_backend_cpu.close(plan);
    free(g);
}

enum { SIDE = 24, ELEMENTS = SIDE * SIDE, SLOTS = 11 };

/* The numbers of a plan's slots, and how many of each have been looked at. */
struct seen {
    float x[SLOTS][ELEMENTS * SIDE];
    int64_t at[SLOTS];
};

static void is_next(struct seen *s, int slot, const float *want, int64_t n, const char *what)
{
    if (memcmp(s->x[slot] + s->at[slot], want, sizeof *want * (size_t)n) != 0)
        fail_msg("%s: slot %d differs from number %lld on", what, slot, (long long)s->at[slot]);
    s->at[slot] += n;
}

/* Tile by tile, one side of all and then the other: factors are those of the tile as a tensor of
 * its own, and follow each other in the slots of the full pieces and of the last ones. */
static void look_at(struct seen *s, const struct qm_hyper *h, int64_t rows, int64_t cols,
                    const float *g, const char *what)
{
    int64_t order = (int64_t)h->max_order;
    for (int right = 0; right < 2; right++)
        for (int64_t i = 0; i < rows; i += order)
            for (int64_t j = 0; j < cols; j += order) {
                struct qm_shampoo_tile t = {i, j, rows - i < order ? rows - i : order,
                                            cols - j < order ? cols - j : order};
                int64_t n = right ? t.cols : t.rows, side = right ? cols : rows;
                int last = n < order && n < side;
                float vt[SIDE * SIDE] = {0}, ev[SIDE] = {0}, root[SIDE * SIDE];
                assert_int_equal(qm_shampoo_statistic(h, &t, cols, g, right, vt, ev), QM_OK);
                assert_int_equal(qm_shampoo_root(h, n, vt, ev, root), QM_OK);
                is_next(s, (last ? 7 : 1) + right, vt, n * n, what);
                is_next(s, 3, ev, n, what);
                is_next(s, (last ? 9 : 4) + right, root, n * n, what);
            }
}

static void test_tiles(void **state)
{
    (void)state;
    struct seen *s = malloc(sizeof *s);
    assert_non_null(s);
    for (int c = 0; c < 60; c++) {
        int64_t rows = 2 + below(SIDE - 1), cols = 2 + below(SIDE - 1), order = 1 + below(9);
        float p[ELEMENTS] = {0}, g[ELEMENTS];
        char text[96];
        struct qm_recipe r;
        void *plan;
        struct qm_shape shape = {2, {rows, cols}};
        snprintf(text, sizeof text, "shampoo_sgd_f32,max_order=%lld,stat_gap=1,root_gap=1",
                 (long long)order);
        parse(text, &r);
        snprintf(text, sizeof text, "%lld x %lld, max_order %lld", (long long)rows, (long long)cols,
                 (long long)order);
        for (int64_t i = 0; i < rows * cols; i++)
            g[i] = draw(101 + (uint64_t)c, i) * 0.01f;
        struct qm_tensor pt = {p, QM_DTYPE_f32, shape}, gt = {g, QM_DTYPE_f32, shape};
        assert_int_equal(qm_backend_cpu.open(&r, &shape, 0, &plan), QM_OK);
        assert_int_equal(qm_backend_cpu.step(plan, &pt, &gt, 1, 0), QM_OK);
        memset(s, 0, sizeof *s);
        for (int i = 1; i < SLOTS; i++)
            assert_int_equal(qm_backend_cpu.decode(plan, i, s->x[i]), QM_OK);
        look_at(s, &r.hyper, rows, cols, g, text);
        for (int i = 1; i < SLOTS; i++) {
            struct qm_shape own;
            qm_rule_slot_shape(r.rule, &r.hyper, i, &shape, &own);
            assert_int_equal(s->at[i], qm_shape_numel(&own));
        }
        qm_backend_cpu.close(plan);
    }
    free(s);
}

/* Dims of size 1 do not count, and the others fold to [d0, rest]. */
static void test_folding(void **state)
{
    (void)state;
    float a[60], b[60];
    run("shampoo4_adamw,stat_gap=1,root_gap=1,min_lowbit=1", &(struct qm_shape){2, {5, 12}}, 4, a,
        0, NULL);
    run("shampoo4_adamw,stat_gap=1,root_gap=1,min_lowbit=1", &(struct qm_shape){5, {1, 5, 3, 1, 4}},
        4, b, 0, NULL);
    assert_memory_equal(a, b, sizeof a);
}

/* ---- a finding ------------------------------------------------------------------------------- */

/* |A - A*|_F / |A*|_F after `steps` updates of one covariance with codes of 4 bits in between, A*
 * the covariance itself. */
static double drift(int rectifications, int steps)
{
    enum { N = 24, COLS = 32 };
    const struct qm_shampoo_tile t = {0, 0, N, COLS};
    struct qm_shape shape = {2, {N, N}};
    struct qm_codec codec;
    struct qm_hyper h = qm_hyper_default();
    float vt[N * N] = {0}, ev[N] = {0}, g[N * COLS], scales[N];
    double want[N * N], apart = 0.0, size = 0.0;
    uint8_t codes[N * N];
    h.rect_stat = rectifications;
    assert_int_equal(qm_codec_parse(&codec, "lin2:4s/rowblock:64/bisect/even/lo/recip/nanzero"),
                     QM_OK);
    for (int i = 0; i < N * N; i++)
        want[i] = i % (N + 1) ? 0.0 : h.matrix_eps;
    for (int step = 0; step < steps; step++) {
        for (int i = 0; i < N * COLS; i++)
            g[i] = draw(1000 + (uint64_t)step, i) * (float)(1 + i / COLS);
        assert_int_equal(qm_shampoo_statistic(&h, &t, COLS, g, 0, vt, ev), QM_OK);
        assert_int_equal(qm_encode(&codec, &shape, vt, NULL, codes, scales), QM_OK);
        qm_decode(&codec, &shape, codes, scales, vt);
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++) {
                double sum = 0.0;
                for (int k = 0; k < COLS; k++)
                    sum += (double)g[i * COLS + k] * (double)g[j * COLS + k];
                want[i * N + j] = h.stat_decay * want[i * N + j] + (1.0 - h.stat_decay) * sum;
            }
    }
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            double sum = 0.0;
            for (int k = 0; k < N; k++)
                sum += (double)vt[k * N + i] * (double)ev[k] * (double)vt[k * N + j];
            apart += (sum - want[i * N + j]) * (sum - want[i * N + j]);
            size += want[i * N + j] * want[i * N + j];
        }
    return sqrt(apart / size);
}

/* Without rectification the covariance that the codes stand for drifts away from the true one. */
static void test_drift(void **state)
{
    (void)state;
    double with = drift(1, 60), without = drift(0, 60);
    print_message("covariance after 60 updates in 4 bits: off by %.3f with one rectification, %.3f "
                  "without\n",
                  with, without);
    assert_true(without > 1.5 * with);
}

/* Makes the rows of vt[n][n] orthonormal and ev[n] log-uniform over `decades`. */
static void spectrum(int n, double decades, float *vt, float *ev)
{
    const struct qm_shampoo_tile t = {0, 0, n, n};
    struct qm_hyper h = qm_hyper_default();
    float *g = malloc((size_t)(n * n) * sizeof *g);
    assert_non_null(g);
    h.stat_decay = 0.0;
    for (int i = 0; i < n * n; i++)
        g[i] = draw(77, i);
    assert_int_equal(qm_shampoo_statistic(&h, &t, n, g, 0, vt, ev), QM_OK);
    for (int i = 0; i < n; i++)
        ev[i] = (float)pow(10.0, -decades * i / (n - 1));
    free(g);
}

/* x[n][n] <- itself in 4 bits; diag: with its own diagonal. */
static void in_four_bits(int n, int diag, float *x)
{
    struct qm_codec codec;
    struct qm_shape shape = {2, {n, n}};
    float scales[2 * MOST], own[MOST];
    uint8_t codes[MOST * MOST];
    assert_int_equal(qm_codec_parse(&codec, "lin2:4s/rowblock:64/bisect/even/lo/recip/nanzero"),
                     QM_OK);
    for (int i = 0; i < n && diag; i++) {
        own[i] = x[i * n + i];
        x[i * n + i] = 0.0f;
    }
    assert_int_equal(qm_encode(&codec, &shape, x, NULL, codes, scales), QM_OK);
    qm_decode(&codec, &shape, codes, scales, x);
    for (int i = 0; i < n && diag; i++)
        x[i * n + i] = own[i];
}

/* The eigenvectors as rows of vt and the eigenvalues of the symmetric part of a; those below
 * `least` times the largest are raised to it. */
static void decompose(int n, const float *a, double least, float *vt, float *ev)
{
    size_t k = (size_t)n;
    gsl_matrix *x = gsl_matrix_alloc(k, k), *v = gsl_matrix_alloc(k, k);
    gsl_vector *d = gsl_vector_alloc(k);
    gsl_eigen_symmv_workspace *w = gsl_eigen_symmv_alloc(k);
    for (size_t i = 0; i < k; i++)
        for (size_t j = 0; j < k; j++)
            gsl_matrix_set(x, i, j, 0.5 * ((double)a[i * k + j] + (double)a[j * k + i]));
    assert_int_equal(gsl_eigen_symmv(x, d, v, w), 0);
    for (size_t j = 0; j < k; j++) {
        ev[j] = (float)fmax(gsl_vector_get(d, j), least * gsl_vector_max(d));
        for (size_t i = 0; i < k; i++)
            vt[j * k + i] = (float)gsl_matrix_get(v, i, j);
    }
    gsl_matrix_free(x), gsl_matrix_free(v), gsl_vector_free(d), gsl_eigen_symmv_free(w);
}

/* |x - y|_F / |y|_F */
static double apart(int n, const float *x, const float *y)
{
    double sum = 0.0, size = 0.0;
    for (int i = 0; i < n * n; i++) {
        sum += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
        size += (double)y[i] * (double)y[i];
    }
    return sqrt(sum / size);
}

/* The inverse fourth root follows from a covariance whose eigenvectors have 4 bits, with and
 * without rectification, better than from a covariance that has 4 bits itself (arXiv:2405.18144).
 * Eigenvalues of the latter below the true least one are raised to it, which only helps it. */
static void test_eigenvectors_stand_four_bits(void **state)
{
    (void)state;
    enum { N = 64 };
    static float vt[N * N], exact[N * N], bent[N * N], root[N * N], a[N * N], ev[N], of_a[N];
    static const double decades[] = {3.0, 4.5, 6.0};
    struct qm_hyper h = qm_hyper_default();
    for (size_t c = 0; c < sizeof decades / sizeof *decades; c++) {
        double error[3];
        spectrum(N, decades[c], vt, ev);
        h.matrix_eps = 0.0;
        h.rect_root = 0.0;
        assert_int_equal(qm_shampoo_root(&h, N, vt, ev, exact), QM_OK);
        memcpy(bent, vt, sizeof bent);
        in_four_bits(N, 0, bent);
        for (int rectified = 0; rectified < 2; rectified++) {
            h.rect_root = 4.0 * rectified;
            assert_int_equal(qm_shampoo_root(&h, N, bent, ev, root), QM_OK);
            error[rectified] = apart(N, root, exact);
        }
        for (int i = 0; i < N * N; i++) {
            double sum = 0.0;
            for (int k = 0; k < N; k++)
                sum += (double)vt[k * N + i / N] * (double)ev[k] * (double)vt[k * N + i % N];
            a[i] = (float)sum;
        }
        in_four_bits(N, 1, a);
        decompose(N, a, pow(10.0, -decades[c]), bent, of_a);
        h.rect_root = 0.0;
        assert_int_equal(qm_shampoo_root(&h, N, bent, of_a, root), QM_OK);
        error[2] = apart(N, root, exact);
        print_message("inverse fourth root of order 64, %.1f decades: off by %.3f from rectified "
                      "eigenvectors in 4 bits, %.3f from unrectified ones, %.3f from the matrix\n",
                      decades[c], error[1], error[0], error[2]);
        assert_true(error[1] < error[0] && error[0] < error[2]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_qr),       cmocka_unit_test(test_root),
        cmocka_unit_test(test_identity), cmocka_unit_test(test_ties),
        cmocka_unit_test(test_bytes),    cmocka_unit_test(test_last_slots_are_alike),
        cmocka_unit_test(test_tiles),    cmocka_unit_test(test_folding),
        cmocka_unit_test(test_drift),    cmocka_unit_test(test_eigenvectors_stand_four_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
