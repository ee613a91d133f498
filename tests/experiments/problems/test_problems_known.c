/* test_problems_known.c - Known answers of the problems: values, optima, floors, basins. */
#include "tests/support/problem_bench.h"

#include <gsl/gsl_eigen.h>
#include <stdio.h>

#include "experiments/network/markov_chain.h"

static double norm_of(const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sqrt(sum);
}

/* ---- rosen ----------------------------------------------------------------------------------- */

static void test_rosen_start(void **state)
{
    static const struct {
        const char *args;
        double f, norm;
    } want[] = {{"n=2,jitter=0", 24.2, 232.86768775},
                {"n=4,jitter=0", 532.4, 1054.1834375},
                {"n=64,jitter=0", 15778.4, 5729.1852405},
                {"n=1024,jitter=0", 259714.4, 23242.627569}};
    (void)state;
    for (int k = 0; k < 4; k++) {
        struct bench b = opened("rosen", want[k].args, 1);
        check_close("f", b.p->eval(b.self, b.x, 1, b.g), want[k].f, 1e-14);
        check_close("gradient", norm_of(b.g, b.n), want[k].norm, DIGITS(10));
        done(&b);
    }
}

/* Gradient descent from the printed point ends in a second minimum: the gradient vanishes, the loss
 * rises in every direction, and the value is the printed one. */
static void check_basin(const char *args, const double *near, double value)
{
    struct bench b = opened("rosen", args, 1);
    memcpy(b.x, near, (size_t)b.n * sizeof *near);
    for (int t = 1; t <= 200000; t++)
        sgdm_step(&b, 1e-4, 0.9, t);
    double f = b.p->eval(b.self, b.x, 1, b.g);
    assert_true(norm_of(b.g, b.n) < 1e-9);
    check_close("local minimum", f, value, DIGITS(13));
    for (int64_t i = 0; i < b.n; i++)
        assert_true(fabs(b.x[i] - near[i]) < 1e-6);
    for (uint64_t seed = 1; seed <= 50; seed++) {
        qm_normals(seed, QM_STREAM_dist, 0, 0, b.n, b.m);
        for (int64_t i = 0; i < b.n; i++)
            b.v[i] = b.x[i] + 1e-3 * b.m[i];
        assert_true(b.p->eval(b.self, b.v, 1, NULL) > f);
    }
    done(&b);
}

static void test_rosen_basins(void **state)
{
    static const double four[] = {-0.7756592265, 0.6130933654, 0.3820628462, 0.1459720184};
    static const double six[] = {-0.986575, 0.983398, 0.972107, 0.947437, 0.898651, 0.807574};
    (void)state;
    check_basin("n=4", four, 3.701428610430);
    check_basin("n=6", six, 3.973940500930);
}

/* ---- quad ------------------------------------------------------------------------------------ */

/* At the best learning rates the contraction per step of the closed form is that of theory. */
static void test_quad_rates(void **state)
{
    static const double conds[] = {1e2, 1e4, 1e6};
    (void)state;
    for (int k = 0; k < 3; k++) {
        double c = conds[k], root = sqrt(c), low = 1 / c;
        char args[64];
        snprintf(args, sizeof args, "n=2,cond=%g", c); /* the two ends */
        struct bench b = opened("quad", args, 1);
        int64_t t = 100;
        double lr = 2 / (1 + low), rate = (c - 1) / (c + 1);
        double a = b.p->expected(b.self, "sgdm", lr, 0, t);
        double e = b.p->expected(b.self, "sgdm", lr, 0, t + 1);
        check_close("descent", sqrt(e / a), rate, 1e-9);
        double momentum = pow((root - 1) / (root + 1), 2);
        lr = 4 / pow(1 + sqrt(low), 2);
        if (c == 1e4) {
            check_close("lr", lr, 3.9211842, DIGITS(8));
            check_close("momentum", momentum, 0.9607882, DIGITS(7));
        }
        /* Both ends are double roots, t rate^t: over s steps the factor is rate^s (1 + s / t)
         * at most. */
        t = (int64_t)(20 * root);
        a = b.p->expected(b.self, "sgdm", lr, momentum, t);
        e = b.p->expected(b.self, "sgdm", lr, momentum, 2 * t);
        double measured = pow(e / a, 0.5 / (double)t), want = sqrt(momentum);
        assert_true(measured > want * (1 - 2.0 / (double)t) &&
                    measured < want * (1 + 2.0 / (double)t));
        done(&b);
    }
}

/* ---- logreg ---------------------------------------------------------------------------------- */

/* The condition of the Hessian at w, from data derived again; counts the labels y = 1. */
static double condition(const double *w, int n, int d, double lambda, uint32_t seed, int separable,
                        int *ones)
{
    double *x = malloc((size_t)(n * d + d) * sizeof *x), smallest = HUGE_VAL, largest = 0;
    void *data;
    gsl_matrix *h = gsl_matrix_calloc((size_t)d, (size_t)d);
    gsl_vector *eigen = gsl_vector_alloc((size_t)d);
    gsl_eigen_symm_workspace *work = gsl_eigen_symm_alloc((size_t)d);
    assert_true(x && h && eigen && work);
    assert_int_equal(qm_data_open(seed, &data), QM_OK);
    qm_data_normals(data, n * d, x);
    qm_data_normals(data, d, x + n * d);
    *ones = 0;
    for (int i = 0; i < n; i++) {
        double z = 0, score = 0, u = 0.5, *row = x + i * d;
        for (int j = 0; j < d; j++)
            z += 2 * row[j] * x[n * d + j] / sqrt(d);
        if (!separable)
            qm_data_uniforms(data, 1, &u);
        *ones += u < 1 / (1 + exp(-z));
        for (int j = 0; j < d; j++)
            score += w[j] * (row[j] *= pow(10, -2.0 * j / (d - 1)));
        double p = 1 / (1 + exp(-score));
        for (int j = 0; j < d; j++)
            for (int k = 0; k < d; k++)
                h->data[j * d + k] += p * (1 - p) * row[j] * row[k] / n;
    }
    qm_data_close(data);
    for (int j = 0; j < d; j++)
        h->data[j * d + j] += lambda;
    gsl_eigen_symm(h, eigen, work);
    for (int j = 0; j < d; j++) {
        smallest = fmin(smallest, gsl_vector_get(eigen, (size_t)j));
        largest = fmax(largest, gsl_vector_get(eigen, (size_t)j));
    }
    gsl_matrix_free(h);
    gsl_vector_free(eigen);
    gsl_eigen_symm_free(work);
    free(x);
    return largest / smallest;
}

static void test_logreg_table(void **state)
{
    static const struct {
        const char *args;
        int n, d, separable, ones;
        double lambda, floor, norm, first, cond;
        uint32_t seed;
    } want[] = {
        {"batch=0", 1000, 20, 0, 509, 1e-3, 0.543634274583007, 7.149807371251, -0.185344927680,
         1.8005e2, 12345},
        {"batch=0,lambda=1e-4,labels=separable", 1000, 20, 1, 498, 1e-4, 0.292292634684553,
         34.113493943256, -0.222102966940, 9.4853e2, 12345},
        {"n=4096,d=64,lambda=1e-4,batch=0,data_seed=777", 4096, 64, 0, 2098, 1e-4,
         0.535622225876501, 21.515235526732, 0.283751237379, 1.5929e3, 777},
    };
    (void)state;
    for (int k = 0; k < 3; k++) {
        int ones = 0;
        struct bench b = opened("logreg", want[k].args, 1);
        check_close("F(0)", loss(&b), log(2), 1e-14);
        check_close("F*", b.p->optimum(b.self), want[k].floor, 2e-15);
        b.p->argmin(b.self, b.x);
        check_close("|w*|", norm_of(b.x, b.n), want[k].norm, 5e-13);
        check_close("w*0", b.x[0], want[k].first, 5e-12);
        b.p->eval(b.self, b.x, 1, b.g);
        assert_true(pow(norm_of(b.g, b.n), 2) / (2 * want[k].lambda) < 1e-24); /* the certificate */
        check_close("condition",
                    condition(b.x, want[k].n, want[k].d, want[k].lambda, want[k].seed,
                              want[k].separable, &ones),
                    want[k].cond, DIGITS(5));
        assert_int_equal(ones, want[k].ones);
        done(&b);
    }
}

/* With lambda = 0 the gradient fades like 1 / t and the weights grow. */
static void test_logreg_fading(void **state)
{
    struct bench b = opened("logreg", "lambda=0,labels=separable,batch=0", 1);
    double last = HUGE_VAL, weights = 0;
    (void)state;
    assert_true(b.p->optimum(b.self) == 0);
    for (int t = 1; t <= 30000; t++) {
        sgdm_step(&b, 3, 0.9, t);
        if (t != 300 && t != 3000 && t != 30000)
            continue;
        assert_true(norm_of(b.g, b.n) < last / 2);
        assert_true(norm_of(b.x, b.n) > weights * 1.2);
        last = norm_of(b.g, b.n);
        weights = norm_of(b.x, b.n);
    }
    done(&b);
}

/* ---- factor ---------------------------------------------------------------------------------- */

static void test_factor_table(void **state)
{
    static const struct {
        const char *args;
        double zero, floor;
    } want[] = {{"m=48,n=32,r=4", 9.728343873510, 1.606404618811247},
                {"m=256,n=128,r=8", 2.026292148088e2, 8.127652803076437e1}};
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct bench b = opened("factor", want[k].args, 1);
        memset(b.x, 0, (size_t)b.n * sizeof *b.x);
        check_close("f(0)", b.p->eval(b.self, b.x, 1, b.g), want[k].zero, DIGITS(13));
        assert_true(norm_of(b.g, b.n) == 0); /* a saddle */
        check_close("f*", b.p->optimum(b.self), want[k].floor, 5e-14);
        done(&b);
    }
}

/* ---- embed ----------------------------------------------------------------------------------- */

/* Token probabilities from the loss, which is 1/2 p_w when E_w is off by 1 in one element. */
static void check_embed(const char *args, double top, double least, double entropy, double unseen)
{
    struct bench b = opened("embed", args, 3);
    int64_t rows = b.shape[0].dim[0], d = b.shape[0].dim[1], seen = 0, first = 0;
    double *p = malloc((size_t)rows * sizeof *p), h = 0, expected = 0, spread = 0, sum = 0;
    char *is_seen = calloc((size_t)rows, 1);
    b.p->argmin(b.self, b.x);
    assert_true(loss(&b) == 0);
    for (int64_t w = 0; w < rows; w++) {
        double keep = b.x[w * d + w % d];
        b.x[w * d + w % d] += w % 2 ? 1 : -1;
        p[w] = 2 * loss(&b);
        b.x[w * d + w % d] = keep;
        sum += p[w];
        h -= p[w] * log(p[w]);
        double missed = pow(1 - p[w], 1000 * 64.0);
        expected += missed;
        spread += missed * (1 - missed);
    }
    check_close("sum", sum, 1, 1e-12);
    check_close("p_max", p[0], top, DIGITS(9));
    check_close("p_min", p[rows - 1], least, DIGITS(7));
    check_close("entropy", h, entropy, DIGITS(7));
    check_close("unseen", expected, unseen, DIGITS(5));
    /* The draws follow the probabilities: a row of the gradient is zero unless its token
     * was drawn. */
    memset(b.x, 0, (size_t)b.n * sizeof *b.x);
    for (int t = 1; t <= 1000; t++) {
        b.p->eval(b.self, b.x, t, b.g);
        for (int64_t w = 0; w < rows; w++)
            is_seen[w] |= b.g[w * d] != 0;
        b.p->argmin(b.self, b.m);
        first += llround(-64 * b.g[0] / b.m[0]);
    }
    for (int64_t w = 0; w < rows; w++)
        seen += is_seen[w];
    assert_true(fabs((double)(rows - seen) - expected) < 4 * sqrt(spread)); /* counts repel */
    assert_true(fabs((double)first - 64000 * p[0]) < 4 * sqrt(64000 * p[0] * (1 - p[0])));
    free(p);
    free(is_seen);
    done(&b);
}

static void test_embed_table(void **state)
{
    (void)state;
    check_embed("", 0.112421396, 2.744663e-5, 6.066379, 211.89);
    check_embed("s=1.2", 0.215318503, 9.959772e-6, 4.717130, 951.81);
}

/* The loss of the rarest tenth is 0 once these rows are right, whatever the other rows are. */
static void test_embed_rare(void **state)
{
    struct bench b = opened("embed", "rows=100,d=2,loss=rare", 1);
    double want = 0, weight = 0;
    (void)state;
    b.p->argmin(b.self, b.m);
    for (int64_t w = 90; w < 100; w++) {
        want += (b.m[2 * w] * b.m[2 * w] + b.m[2 * w + 1] * b.m[2 * w + 1]) / (double)(w + 1);
        weight += 1 / (double)(w + 1);
    }
    check_close("rare", loss(&b), 0.5 * want / weight, 1e-13);
    memcpy(b.x + 180, b.m + 180, 20 * sizeof *b.x);
    assert_true(loss(&b) == 0);
    done(&b);
}

/* ---- mlp ------------------------------------------------------------------------------------- */

/* Value and gradient of the closed form against the mean over fresh samples, one batch per step. */
static void check_population(const char *args)
{
    enum { STEPS = 3000 };
    struct bench b = opened("mlp", args, 5);
    double sum = 0, sum2 = 0, along = 0, along2 = 0, h = 1e-5, *d = calloc((size_t)b.n, sizeof *d);
    for (int t = 1; t <= STEPS; t++) {
        double f = b.p->eval(b.self, b.x, t, b.g), slope = 0;
        qm_normals(9, QM_STREAM_dist, 0, 0, b.n, d);
        for (int64_t i = 0; i < b.n; i++)
            slope += d[i] * b.g[i];
        sum += f / STEPS;
        sum2 += f * f / STEPS;
        along += slope / STEPS;
        along2 += slope * slope / STEPS;
    }
    double error = sqrt((sum2 - sum * sum) / STEPS);
    if (!(fabs(sum - loss(&b)) < 4 * error))
        fail_msg("mlp %s: mean %.7g +- %.2g, closed form %.7g", args, sum, error, loss(&b));
    for (int64_t i = 0; i < b.n; i++)
        b.x[i] += h * d[i];
    double up = loss(&b);
    for (int64_t i = 0; i < b.n; i++)
        b.x[i] -= 2 * h * d[i];
    double slope = (up - loss(&b)) / (2 * h);
    error = sqrt((along2 - along * along) / STEPS);
    if (!(fabs(along - slope) < 4 * error))
        fail_msg("mlp %s: mean slope %.7g +- %.2g, of the closed form %.7g", args, along, error,
                 slope);
    free(d);
    done(&b);
}

static void test_mlp_population(void **state)
{
    (void)state;
    check_population("d=10,teacher=3,student=5,sigma=0.2");
    check_population("d=10,teacher=3,student=5,sigma=0.2,phi=relu");
    check_population("d=64,teacher=8,student=16,batch=32,sigma=0");
}

/* ---- mclm ------------------------------------------------------------------------------------ */

/* The number of parameters of the reference size; at the start the model predicts all
 * symbols equally. */
static void test_mclm_size(void **state)
{
    struct bench b = opened("mclm", "T=64,C=64,L=2,heads=4,batch=16", 1);
    int64_t layer = 0;
    (void)state;
    assert_int_equal(b.n, 106240);
    assert_int_equal(b.n_tensors, 28);
    for (int i = 2; i < 14; i++)
        layer += qm_shape_numel(&b.shape[i]);
    assert_int_equal(layer, 49984);
    assert_true(fabs(loss(&b) - log(32)) < 0.02);
    check_close("floor", b.p->optimum(b.self), 2.666037328686, DIGITS(13));
    done(&b);
}

/* On a chain of order 2 the model learns from two tokens of context: its loss falls below the
 * bigram entropy. */
static void test_mclm_attention(void **state)
{
    struct bench b = opened("mclm", "K=6,T=8,C=16,L=1,heads=2,batch=16,order=2,a=4,eval=32", 1);
    struct qm_markov_chain c = {0};
    (void)state;
    assert_int_equal(qm_markov_chain_open(6, 2, 4, &c), QM_OK);
    for (int t = 1; t <= 1500; t++)
        adam_step(&b, 0.01, t);
    double f = loss(&b);
    if (!(f > b.p->optimum(b.self) && f < c.entropy1 - 0.1))
        fail_msg("loss %g, floor %g, one token of context gives %g", f, b.p->optimum(b.self),
                 c.entropy1);
    qm_markov_chain_close(&c);
    done(&b);
}

/* ---- digits ---------------------------------------------------------------------------------- */

/* A network that classifies every image.  With its outputs multiplied by s the loss goes to 0 as s
 * grows, so the infimum is 0. */
static void test_digits_infimum(void **state)
{
    struct bench b = opened("digits", "batch=256", 1);
    int64_t w2 = 64 * 32 + 32;
    double last = log(10) * 1.2;
    (void)state;
    assert_true(b.p->optimum(b.self) == 0);
    for (int t = 1; t <= 1500; t++)
        adam_step(&b, 0.01, t);
    for (double s = 1; s < 1e4; s *= 4) {
        double f = loss(&b);
        assert_true(f < last * 0.5 || f < 1e-12);
        last = f;
        for (int64_t i = w2; i < b.n; i++)
            b.x[i] *= 4;
    }
    assert_true(last < 1e-12);
    done(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rosen_start),    cmocka_unit_test(test_rosen_basins),
        cmocka_unit_test(test_logreg_table),   cmocka_unit_test(test_logreg_fading),
        cmocka_unit_test(test_factor_table),   cmocka_unit_test(test_embed_table),
        cmocka_unit_test(test_embed_rare),     cmocka_unit_test(test_mlp_population),
        cmocka_unit_test(test_mclm_size),      cmocka_unit_test(test_mclm_attention),
        cmocka_unit_test(test_digits_infimum), cmocka_unit_test(test_quad_rates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
