/* test_oracle.c - Tests the double references on closed forms and published trajectories. */
#include <hdf5.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/oracle_by_name.h"

static void list_is_sound(void **state)
{
    (void)state;
    assert_true(qm_oracle_count() >= 4);
    for (int i = 0; i < qm_oracle_count(); i++) {
        const struct qm_oracle *o = qm_oracle_at(i);
        assert_true(qm_oracle_find(o->family) == o);
        assert_true(strlen(o->source) > 0 && (o->step == NULL) == (o->whole != NULL));
        assert_in_range(o->n_slots, 1, QM_ORACLE_SLOTS);
        for (int j = 0; j < o->n_slots; j++)
            assert_non_null(o->slot[j]);
    }
    assert_null(qm_oracle_at(-1));
    assert_null(qm_oracle_at(qm_oracle_count()));
    assert_null(qm_oracle_find("adam "));
    assert_string_equal(oracle("adamw")->slot[1], "exp_avg_sq");
    assert_string_equal(oracle("sgdm")->slot[0], "momentum_buffer");
}

/* ---- closed forms ---------------------------------------------------------------------------- */

static void near_to(double got, double want, double relative)
{
    if (!(fabs(got - want) <= relative * fabs(want)))
        fail_msg("got %.17g, want %.17g", got, want);
}

/* A constant input c from m = 0 gives m_t = (1 - beta^t) c; the parameter does not change. */
static void average_of_constant(void **state)
{
    (void)state;
    struct qm_oracle_hyper h = {.lr = 1.0, .beta1 = 0.9, .weight_decay = 0.5};
    double p[2] = {3.0, -4.0}, m[2] = {0.0, 0.0}, *slot[1] = {m};
    const double g[2] = {2.5, -1e-9};
    for (int64_t t = 1; t <= 40; t++) {
        oracle("ema")->step(p, slot, g, 1, 2, &h, t);
        for (int i = 0; i < 2; i++)
            near_to(m[i], g[i] * (1.0 - pow(0.9, (double)t)), 1e-14);
    }
    assert_true(p[0] == 3.0 && p[1] == -4.0);
}

/* Squares of rank one are factored without loss: with eps = 0 and a constant gradient every step is
 * lr sign(g), in every matrix of a batch. */
static void factors_of_rank_one(void **state)
{
    (void)state;
    struct qm_oracle_hyper h = {.lr = 0.25, .beta1 = 0.9, .beta2 = 0.999, .factored = 1};
    const struct qm_shape shape = {3, {2, 3, 4}};
    double p[24] = {0}, m[24] = {0}, v[24] = {0}, r[24] = {0}, c[24] = {0}, g[24];
    double *slot[4] = {m, v, r, c};
    for (int i = 0; i < 24; i++)
        g[i] = (i % 5 == 2 ? -1.0 : 1.0) * (i / 12 ? 1e-3 : 1.0) * (1 + i / 4 % 3) * (7 - i % 4);
    for (int64_t t = 1; t <= 30; t++) {
        assert_int_equal(qm_oracle_step(oracle("adamw_factor"), p, slot, g, &shape, 0, &h, t), 0);
        for (int i = 0; i < 24; i++)
            near_to(p[i], -0.25 * (double)t * (g[i] > 0 ? 1.0 : -1.0), 1e-12);
    }
    assert_true(r[6] == 0.0 && c[8] == 0.0 && v[0] == 0.0); /* 6 rows, 8 columns, no whole V */
}

/* A matrix by hand; a vector, and a matrix with factoring off, as AdamW. */
static void factors_by_hand(void **state)
{
    (void)state;
    struct qm_oracle_hyper h = {.lr = 1.0, .beta1 = 0.0, .beta2 = 0.0, .eps = 0.5, .factored = 1};
    double p[4] = {0}, m[4] = {0}, v[4] = {0}, r[4] = {0}, c[4] = {0}, *slot[4] = {m, v, r, c};
    const double g[4] = {1.0, 2.0, 3.0, 4.0};
    const struct qm_shape square = {2, {2, 2}}, flat = {1, {4}};
    assert_int_equal(qm_oracle_step(oracle("adamw_factor"), p, slot, g, &square, 0, &h, 1), 0);
    near_to(r[0], 2.5, 0.0);
    near_to(r[1], 12.5, 0.0);
    near_to(c[0], 5.0, 0.0);
    near_to(c[1], 10.0, 0.0);
    near_to(p[1], -2.0 / (sqrt(2.5 * 10.0 / 7.5) + 0.5), 1e-15);
    near_to(p[2], -3.0 / (sqrt(12.5 * 5.0 / 7.5) + 0.5), 1e-15);
    for (int vector = 0; vector < 2; vector++) {
        double q[4] = {1, 2, 3, 4}, w[4] = {1, 2, 3, 4}, a[4] = {0}, b[4] = {0}, d[4] = {0},
               e[4] = {0}, *own[4] = {a, b, r, c}, *plain[2] = {d, e};
        struct qm_oracle_hyper k = {.lr = 0.1, .beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.1};
        k.factored = vector;
        for (int64_t t = 1; t <= 5; t++) {
            assert_int_equal(qm_oracle_step(oracle("adamw_factor"), q, own, g,
                                            vector ? &flat : &square, 0, &k, t),
                             0);
            oracle("adamw")->step(w, plain, g, 2, 2, &k, t);
        }
        assert_memory_equal(q, w, sizeof q);
        assert_memory_equal(b, e, sizeof b);
    }
}

/* With eps = 0 and a constant gradient every step is lr sign(g). */
static void adam_steps_by_sign(void **state)
{
    (void)state;
    static const char *const family[2] = {"adam", "adamw"};
    const double g[4] = {1e-30, -7.0, 2e10, -0.03};
    for (int f = 0; f < 2; f++)
        for (int amsgrad = 0; amsgrad < 2; amsgrad++) {
            struct qm_oracle_hyper h = {
                .lr = 0.125, .beta1 = 0.9, .beta2 = 0.999, .amsgrad = amsgrad};
            double p[4] = {0.0}, m[4] = {0.0}, v[4] = {0.0}, top[4] = {0.0};
            double *slot[3] = {m, v, top};
            for (int64_t t = 1; t <= 20; t++) {
                oracle(family[f])->step(p, slot, g, 2, 2, &h, t);
                for (int i = 0; i < 4; i++)
                    near_to(p[i], copysign(0.125 * (double)t, -g[i]), 1e-14);
            }
            for (int i = 0; i < 4; i++)
                assert_true(top[i] == (amsgrad ? v[i] : 0.0));
            h.maximize = 1;
            double q[4] = {0.0};
            memset(m, 0, sizeof m);
            memset(v, 0, sizeof v);
            memset(top, 0, sizeof top);
            oracle(family[f])->step(q, slot, g, 4, 1, &h, 1);
            near_to(q[1], -0.125, 1e-14);
        }
}

/* With g = 0 AdamW shrinks theta by 1 - lr lambda per step; Adam's gradient is lambda theta. */
static void pure_decay(void **state)
{
    (void)state;
    struct qm_oracle_hyper h = {
        .lr = 0.25, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.5};
    double p[1] = {1.0}, m[1] = {0.0}, v[1] = {0.0}, *slot[2] = {m, v};
    const double g[1] = {0.0};
    for (int64_t t = 1; t <= 10; t++) {
        oracle("adamw")->step(p, slot, g, 1, 1, &h, t);
        near_to(p[0], pow(0.875, (double)t), 1e-15);
        assert_true(m[0] == 0.0 && v[0] == 0.0);
    }
    double q[1] = {8.0}; /* coupled: first step is lr * 4 / (4 + eps) */
    oracle("adam")->step(q, slot, g, 1, 1, &h, 1);
    near_to(q[0], 8.0 - 0.25 * 4.0 / (4.0 + 1e-8), 1e-15);
    near_to(m[0], 0.4, 1e-14);
}

/* Where v vanishes the step tends to lr m / eps; the maximum of amsgrad never decreases. */
static void adam_corners(void **state)
{
    (void)state;
    struct qm_oracle_hyper h = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
    double p[1] = {0.0}, m[1] = {0.0}, v[1] = {0.0}, top[1] = {0.0}, *slot[3] = {m, v, top};
    double g[1] = {1e-200};
    oracle("adamw")->step(p, slot, g, 1, 1, &h, 1);
    near_to(p[0], -1e-3 * 1e-200 / 1e-8, 1e-14);
    m[0] = v[0] = p[0] = 0.0;
    h.amsgrad = 1;
    for (int64_t t = 1; t <= 50; t++) {
        double before = top[0];
        g[0] = t == 3 ? 1e3 : 1.0 / (double)t;
        oracle("adam")->step(p, slot, g, 1, 1, &h, t);
        assert_true(top[0] >= before && top[0] >= v[0]);
    }
    assert_true(top[0] > v[0] && top[0] > 999.0);
    g[0] = (double)NAN;
    oracle("adam")->step(p, slot, g, 1, 1, &h, 51);
    assert_true(isnan(p[0]) && isnan(m[0]) && isnan(v[0]) && isnan(top[0]));
    m[0] = v[0] = p[0] = top[0] = 0.0;
    oracle("adamw")->step(p, slot, g, 1, 1, &h, 1);
    assert_true(isnan(p[0]) && isnan(m[0]) && isnan(v[0]) && isnan(top[0]));
    /* beta = 0: no memory, the correction is 1 */
    struct qm_oracle_hyper none = {.lr = 0.5};
    m[0] = v[0] = p[0] = 0.0;
    g[0] = -3.0;
    oracle("adamw")->step(p, slot, g, 1, 1, &none, 7);
    assert_true(p[0] == 0.5 && m[0] == -3.0 && v[0] == 9.0);
}

/* Heavy ball on a x^2 / 2: p_t solves p'' = (1 + mu - lr a) p' - mu p, whose roots are known. */
static void heavy_ball_on_quadratic(void **state)
{
    (void)state;
    double a = 2.0, mu = 0.5, lr = 0.01, s = 1.0 + mu - lr * a, root = sqrt(s * s - 4.0 * mu);
    double r1 = 0.5 * (s + root), r2 = 0.5 * (s - root); /* both real */
    double start = 1.0, first = start - lr * a * start;
    double c1 = (first - r2 * start) / (r1 - r2), c2 = start - c1;
    struct qm_oracle_hyper h = {.lr = lr, .momentum = mu};
    double p[1] = {start}, b[1] = {0.0}, *slot[1] = {b};
    for (int64_t t = 1; t <= 60; t++) {
        double g[1] = {a * p[0]};
        oracle("sgdm")->step(p, slot, g, 1, 1, &h, t);
        near_to(p[0], c1 * pow(r1, (double)t) + c2 * pow(r2, (double)t), 1e-13);
    }
}

/* The buffer starts as g for every dampening; with a constant gradient it follows a
 * geometric series. */
static void sgd_forms(void **state)
{
    (void)state;
    struct qm_oracle_hyper h = {.lr = 1.0, .momentum = 0.5, .dampening = 0.25};
    double p[1] = {0.0}, b[1] = {99.0}, *slot[1] = {b};
    const double g[1] = {4.0};
    oracle("sgdm")->step(p, slot, g, 1, 1, &h, 1);
    assert_true(b[0] == 4.0 && p[0] == -4.0);
    oracle("sgdm")->step(p, slot, g, 1, 1, &h, 2);
    assert_true(b[0] == 5.0 && p[0] == -9.0);
    struct qm_oracle_hyper nesterov = {.lr = 1.0, .momentum = 0.5, .nesterov = 1, .maximize = 1};
    p[0] = b[0] = 0.0;
    for (int64_t t = 1; t <= 30; t++) {
        double before = p[0];
        oracle("sgdm")->step(p, slot, g, 1, 1, &nesterov, t);
        near_to(b[0], -8.0 * (1.0 - pow(0.5, (double)t)), 1e-15);
        near_to(p[0] - before, 4.0 - 0.5 * b[0], 1e-14);
    }
    struct qm_oracle_hyper plain = {.lr = 0.25, .weight_decay = 0.5};
    p[0] = 8.0;
    b[0] = 7.0;
    oracle("sgdm")->step(p, slot, g, 1, 1, &plain, 1);
    assert_true(p[0] == 6.0 && b[0] == 7.0); /* without momentum the slot is not touched */
}

/* ---- published trajectories (torch.optim, double) -------------------------------------------- */

/* The path of a golden file, or NULL.  The full set beside the repository goes before
 * the tree's. */
static const char *golden(const char *name, char *path, size_t size)
{
    const char *shared = getenv("QM_SHARED");
    snprintf(path, size, "%s/data/golden/%s", shared ? shared : "../shared", name);
    if (access(path, R_OK) != 0)
        snprintf(path, size, "tests/golden/%s", name);
    return access(path, R_OK) == 0 ? path : NULL;
}

/* The n numbers of an attribute; 0 where the group does not have it. */
static void attribute(hid_t group, const char *name, int n, double *out)
{
    memset(out, 0, (size_t)n * sizeof *out);
    if (H5Aexists(group, name) <= 0)
        return;
    hid_t a = H5Aopen(group, name, H5P_DEFAULT), space = H5Aget_space(a);
    assert_int_equal(H5Sget_simple_extent_npoints(space), n);
    assert_true(H5Aread(a, H5T_NATIVE_DOUBLE, out) >= 0);
    H5Sclose(space);
    H5Aclose(a);
}

/* A dataset as doubles; *n: its size.  The caller frees it. */
static double *dataset(hid_t group, const char *name, int64_t *n)
{
    hid_t d = H5Dopen2(group, name, H5P_DEFAULT);
    assert_true(d >= 0);
    hid_t space = H5Dget_space(d);
    *n = H5Sget_simple_extent_npoints(space);
    double *x = malloc((size_t)*n * sizeof *x);
    assert_non_null(x);
    assert_true(H5Dread(d, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, x) >= 0);
    H5Sclose(space);
    H5Dclose(d);
    return x;
}

static double largest(const double *x, int64_t n)
{
    double most = 0.0;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs(x[i]));
    return most;
}

static double distance(const double *a, const double *b, int64_t n)
{
    double most = 0.0;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs(a[i] - b[i]));
    return most;
}

static struct qm_oracle_hyper hyper_of(hid_t group)
{
    static const char *const name[9] = {"lr",       "eps",       "weight_decay",
                                        "momentum", "dampening", "nesterov",
                                        "maximize", "amsgrad",   "betas"};
    double x[8], beta[2];
    for (int i = 0; i < 8; i++)
        attribute(group, name[i], 1, &x[i]);
    attribute(group, name[8], 2, beta);
    struct qm_oracle_hyper h = {.lr = x[0],
                                .beta1 = beta[0],
                                .beta2 = beta[1],
                                .eps = x[1],
                                .weight_decay = x[2],
                                .momentum = x[3],
                                .dampening = x[4],
                                .nesterov = x[5] != 0.0,
                                .maximize = x[6] != 0.0,
                                .amsgrad = x[7] != 0.0};
    return h;
}

/* States must agree within 1e-14 of the largest entry and parameters within 1e-15, which allows for
 * the source's order of operations.  The source also forms 1 - beta^t by subtraction, with an
 * absolute error of up to 2^-53; `carried` adds up what every step may owe to it. */
static void replay(hid_t file, const char *name, const struct qm_oracle *o)
{
    hid_t group = H5Gopen2(file, name, H5P_DEFAULT);
    assert_true(group >= 0);
    struct qm_oracle_hyper h = hyper_of(group);
    int64_t n, total;
    double *p = dataset(group, "param0", &n), *grads = dataset(group, "grads", &total);
    double *params = dataset(group, "params", &total), *want[3] = {0}, *slot[3] = {0};
    assert_true(n > 0 && total > n && total % n == 0);
    int slots = strcmp(o->family, "sgdm") == 0 ? h.momentum != 0.0 : h.amsgrad ? 3 : 2;
    for (int j = 0; j < slots; j++) {
        char text[64];
        int64_t size;
        snprintf(text, sizeof text, "state_%s", o->slot[j]);
        want[j] = dataset(group, text, &size);
        assert_int_equal(size, total);
        slot[j] = calloc((size_t)n, sizeof *slot[j]);
        assert_non_null(slot[j]);
    }
    double carried = 0.0;
    for (int64_t t = 1; t <= total / n; t++) {
        const double *at = params + (t - 1) * n;
        double bias1 = -expm1((double)t * log1p(h.beta1 - 1.0));
        double bias2 = -expm1((double)t * log1p(h.beta2 - 1.0));
        if (t > 1)
            carried += 0x1p-53 * (1.0 / bias1 + 0.5 / bias2) * distance(at, at - n, n);
        o->step(p, slot, grads + (t - 1) * n, 1, n, &h, t);
        double off = distance(p, at, n);
        if (!(off <= 1e-15 * largest(at, n) + carried))
            fail_msg("%s, step %d: parameters off by %.3g", name, (int)t, off);
        for (int j = 0; j < slots; j++) {
            off = distance(slot[j], want[j] + (t - 1) * n, n);
            if (!(off <= 1e-14 * largest(want[j] + (t - 1) * n, n)))
                fail_msg("%s, step %d: %s off by %.3g", name, (int)t, o->slot[j], off);
        }
    }
    for (int j = 0; j < slots; j++) {
        free(want[j]);
        free(slot[j]);
    }
    free(params);
    free(grads);
    free(p);
    H5Gclose(group);
}

/* Runs every float64 case of the file from its start over all steps. */
static void replay_file(const char *name, const char *(*family)(const char *group))
{
    char path[512];
    if (!golden(name, path, sizeof path)) {
        print_message("%s: neither $QM_SHARED nor tests/golden has it\n", name);
        skip();
    }
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    assert_true(file >= 0);
    H5G_info_t info;
    assert_true(H5Gget_info(file, &info) >= 0);
    int cases = 0;
    for (hsize_t i = 0; i < info.nlinks; i++) {
        char group[128];
        H5Lget_name_by_idx(file, ".", H5_INDEX_NAME, H5_ITER_INC, i, group, sizeof group,
                           H5P_DEFAULT);
        if (!strstr(group, "_f64"))
            continue;
        replay(file, group, oracle(family(group)));
        cases++;
    }
    H5Fclose(file);
    assert_true(cases > 0);
    print_message("%s: %d cases\n", path, cases);
}

static const char *adam_family(const char *group)
{
    return strncmp(group, "adamw", 5) == 0 ? "adamw" : "adam";
}

static const char *sgd_family(const char *group)
{
    (void)group;
    return "sgdm";
}

static void published_adam(void **state)
{
    (void)state;
    replay_file("adamw.h5", adam_family);
}

static void published_sgd(void **state)
{
    (void)state;
    replay_file("sgd.h5", sgd_family);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(list_is_sound),       cmocka_unit_test(average_of_constant),
        cmocka_unit_test(factors_of_rank_one), cmocka_unit_test(factors_by_hand),
        cmocka_unit_test(adam_steps_by_sign),  cmocka_unit_test(pure_decay),
        cmocka_unit_test(adam_corners),        cmocka_unit_test(heavy_ball_on_quadratic),
        cmocka_unit_test(sgd_forms),           cmocka_unit_test(published_adam),
        cmocka_unit_test(published_sgd),
    };
    return cmocka_run_group_tests_name("oracle", tests, NULL, NULL);
}
