/* test_problems_known.c - known answers of the problems: values, optima, floors, entropies, basins;
 * and noise against closed forms. */
#include "tests/support/problem_bench.h"

#include <gsl/gsl_eigen.h>
#include <stdio.h>

#include "core/base/isa.h"
#include "core/recipe/backend.h"
#include "experiments/network/dense.h"
#include "experiments/network/markov_chain.h"

/* A table prints this many digits: half a unit of the last one, relative to 1 ... 10. */
#define DIGITS(n) (0.5001 * pow(10, 1 - (n)))

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

/* Gradient descent from the printed point ends in a second minimum: the gradient vanishes, every
 * way leads up, and the value is the printed one. */
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

/* The rate per step of the closed form is what theory says at the best rates. */
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
        /* Both ends are double roots, t rate^t: over s steps the factor is rate^s (1 + s / t) at
         * most. */
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

/* cond of the Hessian at w from data derived again; counts the labels y = 1. */
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

/* lambda = 0: the gradient fades like 1 / t and the weights grow. */
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

/* Token probabilities read off the loss: it is 1/2 p_w when E_w is off by 1 in one place. */
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
    /* The draws follow it: rows of the gradient are zero but where a token was drawn. */
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

/* The rarest tenth: 0 once those rows are right, whatever the others do. */
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

/* The closed form against the mean over fresh samples, value and gradient: steps are samples. */
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

/* ---- chains and the language model ----------------------------------------------------------- */

static void test_chain_table(void **state)
{
    static const struct {
        int64_t symbols;
        int order;
        double a, entropy, unigram, bigram; /* bigram of order 1: the entropy */
    } want[] = {
        {32, 1, 3, 2.666037328686, 3.436985826607, 2.666037328686},
        {32, 1, 6, 2.268065011405, 3.417095931926, 2.268065011405},
        {64, 1, 3, 3.338618769351, 4.148253702717, 3.338618769351},
        {128, 1, 4, 3.835865584717, 4.842647803175, 3.835865584717},
        {16, 2, 3, 2.005489027059, 2.765453415900, 2.706526612166},
        {32, 2, 3, 2.659545852781, 3.464181142477, 3.432236487551},
    };
    (void)state;
    for (int k = 0; k < 6; k++) {
        struct qm_markov_chain c = {0};
        assert_int_equal(qm_markov_chain_open(want[k].symbols, want[k].order, want[k].a, &c),
                         QM_OK);
        check_close("entropy", c.entropy, want[k].entropy, DIGITS(13));
        check_close("unigram", c.unigram, want[k].unigram, DIGITS(13));
        check_close("bigram", c.entropy1, want[k].bigram, DIGITS(13));
        check_close("floor", qm_markov_chain_floor(&c, 10),
                    (want[k].bigram + 9 * want[k].entropy) / 10, DIGITS(13));
        if (k == 0) {
            check_close("P00", qm_markov_chain_next(&c, -1, 0)[0], 0.128600635615, DIGITS(12));
            check_close("P01", qm_markov_chain_next(&c, -1, 0)[1], 0.011495811141, DIGITS(11));
        }
        qm_markov_chain_close(&c);
    }
}

/* Drawn tokens follow the chain: their mean surprise is the entropy, at the start and later. */
static void test_chain_draws(void **state)
{
    enum { SEQUENCES = 4000, LENGTH = 6 };
    static int32_t x[SEQUENCES * LENGTH];
    (void)state;
    for (int order = 1; order <= 2; order++) {
        struct qm_markov_chain c = {0};
        assert_int_equal(qm_markov_chain_open(16, order, 3, &c), QM_OK);
        qm_markov_chain_draw(&c, 11, QM_STREAM_rows, 7, SEQUENCES, LENGTH, x);
        for (int i = 0; i < LENGTH; i++) {
            double sum = 0, sum2 = 0, want = i == 0 ? c.unigram : i == 1 ? c.entropy1 : c.entropy;
            for (int b = 0; b < SEQUENCES; b++) {
                const int32_t *s = x + b * LENGTH + i;
                double p =
                    i ? qm_markov_chain_next(&c, i > 1 ? s[-2] : -1, s[-1])[*s] : c.stationary[*s];
                sum -= log(p) / SEQUENCES;
                sum2 += log(p) * log(p) / SEQUENCES;
            }
            assert_true(fabs(sum - want) < 4 * sqrt((sum2 - sum * sum) / SEQUENCES));
        }
        qm_markov_chain_close(&c);
    }
}

/* The reference size counts as its tensors say; the model at the start knows nothing. */
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

/* Order 2 is learnable beyond what one token of context gives: below the bigram entropy. */
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

/* A network that classifies every image: with its outputs s times larger the loss goes to 0 as s
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

/* ---- heavy, spike, ema ----------------------------------------------------------------------- */

/* The noise alone: a base whose gradient is 0. */
static void noise_of(const char *args, uint64_t seed, int64_t t, int64_t n, double *out)
{
    struct bench b = opened("heavy", args, seed);
    memset(b.x, 0, (size_t)b.n * sizeof *b.x);
    b.p->eval(b.self, b.x, t, b.g);
    memcpy(out, b.g, (size_t)n * sizeof *out);
    done(&b);
}

static void test_heavy(void **state)
{
    enum { N = 100000 };
    static double z[N], again[N];
    double square = 0, above = 0;
    (void)state;
    noise_of("nu=8,sigma=3,base=quad:n=100000", 2, 5, N, z);
    for (int i = 0; i < N; i++)
        square += z[i] * z[i] / N / 9;
    assert_true(fabs(square - 1) < 4 * sqrt((4.5 - 1) / N)); /* E z^4 = 3 (nu - 2) / (nu - 4) */
    noise_of("nu=1,sigma=3,base=quad:n=100000", 2, 5, N, z); /* Cauchy: P(|z| > 3 sigma) */
    for (int i = 0; i < N; i++)
        above += fabs(z[i]) > 9;
    double p = 2 * atan(1 / 3.0) / M_PI;
    assert_true(fabs(above / N - p) < 4 * sqrt(p * (1 - p) / N));
    noise_of("nu=1,sigma=3,base=quad:n=100000", 2, 6, N, again);
    assert_true(memcmp(z, again, sizeof z) != 0);
    noise_of("nu=1,sigma=3,base=quad:n=100000", 3, 5, N, again);
    assert_true(memcmp(z, again, sizeof z) != 0);
    /* nqm with its own noise: another stream */
    struct bench own = opened("nqm", "nu=3,n=1000", 2), sum = opened("heavy", "base=nqm,nu=3", 2);
    own.p->eval(own.self, own.x, 4, own.g);
    sum.p->eval(sum.self, sum.x, 4, sum.g);
    noise_of("nu=3,base=quad:n=1000", 2, 4, 1000, z);
    for (int i = 0; i < 1000; i++)
        assert_true(fabs(sum.g[i] - own.g[i] - z[i]) <= 1e-15 * (fabs(own.g[i]) + fabs(z[i])));
    double product = 0, a2 = 0, b2 = 0;
    memset(own.x, 0, 1000 * sizeof *own.x);
    own.p->eval(own.self, own.x, 4, own.g);
    for (int i = 0; i < 1000; i++) {
        double a = own.g[i] * sqrt(i + 1.0) > 0 ? 1 : -1, c = z[i] > 0 ? 1 : -1;
        product += a * c;
        a2 += a * a;
        b2 += c * c;
    }
    assert_true(fabs(product) < 4 * sqrt(a2 * b2 / 1000));
    done(&own);
    done(&sum);
}

/* The largest of B elements: 2.5961 on average for normals and B = 64, growing like B^(1/3) for
 * t_3. */
static double mean_largest(const char *args, int block)
{
    enum { N = 131072 };
    static double z[N];
    double sum = 0;
    noise_of(args, 2, 5, N, z);
    for (int i = 0; i < N; i += block) {
        double top = 0;
        for (int k = i; k < i + block; k++)
            top = fmax(top, fabs(z[k]));
        sum += top * block / N;
    }
    return sum;
}

static void test_heavy_crest(void **state)
{
    (void)state;
    assert_true(fabs(mean_largest("nu=1e6,sigma=1,base=quad:n=131072", 64) - 2.5961) <
                4 * 0.5 / sqrt(131072 / 64.0));
    double growth = mean_largest("nu=3,sigma=1,base=quad:n=131072", 512) /
                    mean_largest("nu=3,sigma=1,base=quad:n=131072", 64);
    assert_true(growth > 1.8 && growth < 2.3);
}

static void test_spike(void **state)
{
    struct bench b =
        opened("spike", "at=3,count=2,gap=4,times=100,zero=5,shift=6,by=-2,base=nqm:n=9", 1);
    struct bench base = opened("nqm", "n=9", 1);
    static const double factor[] = {1, 1, 100, 1, 0, -2, -200, -2, -2, -2, -2, -2};
    (void)state;
    assert_memory_equal(b.x, base.x, 9 * sizeof *b.x);
    for (int t = 1; t <= 12; t++) {
        double f = b.p->eval(b.self, b.x, t, b.g), want = base.p->eval(base.self, b.x, t, base.g);
        assert_true(f == want);
        for (int i = 0; i < 9; i++)
            assert_true(b.g[i] == factor[t - 1] * base.g[i]);
    }
    done(&base);
    done(&b);
}

/* The clip comes last: of a spike, of an ordinary gradient that is too long, and of none that is not. */
static void test_clip(void **state)
{
    struct bench b = opened("spike", "at=3,times=100,clip=2,base=quad:n=50", 1);
    struct bench c = opened("spike", "at=3,times=100,clip=1e6,base=quad:n=50", 1);
    double length[2];
    (void)state;
    for (int t = 2; t <= 3; t++) {
        b.p->eval(b.self, b.x, t, b.g);
        c.p->eval(c.self, b.x, t, c.g);
        length[0] = length[1] = 0;
        for (int i = 0; i < 50; i++) {
            length[0] += b.g[i] * b.g[i];
            length[1] += c.g[i] * c.g[i];
        }
        double most = sqrt(length[1]) > 2 ? 2 : sqrt(length[1]);
        assert_true(fabs(sqrt(length[0]) - most) < 1e-12);
        for (int i = 0; i < 50; i++)
            assert_true(fabs(b.g[i] - c.g[i] * most / sqrt(length[1])) < 1e-14);
    }
    assert_true(sqrt(length[1]) > 2);
    done(&c);
    done(&b);
}

/* Exact Adam: the spike's step moves no parameter by more than (1 - beta1) / sqrt(1 - beta2) lr
 * beyond what a step of its own may, and the second moment fades as exp(-(1 - beta2) t). */
static void test_spike_adam(void **state)
{
    struct bench b = opened("spike", "at=300,times=1e4,base=quad:n=64,cond=10", 1);
    double lr = 1e-3, most = 0, *before = calloc((size_t)b.n, sizeof *before);
    (void)state;
    for (int t = 1; t <= 300; t++) {
        memcpy(before, b.x, (size_t)b.n * sizeof *before);
        adam_step(&b, lr, t);
    }
    for (int64_t i = 0; i < b.n; i++)
        most = fmax(most, fabs(b.x[i] - before[i]) / lr);
    double bc = sqrt(1 - pow(0.999, 300)) / (1 - pow(0.9, 300)), bound = 0.1 / sqrt(0.001) * bc;
    assert_true(most <= bound * 1.01 && most > bound * 0.9);
    double top = b.v[0];
    for (int t = 301; t <= 2603; t++) /* ln((1 - beta2) 1e4^2) / (1 - beta2) / 5 */
        adam_step(&b, lr, t);
    check_close("fading", b.v[0] / top, pow(0.999, 2303), 0.01);
    free(before);
    done(&b);
}

/* The state of an element after the whole of `ema`, as the engine keeps it with this quantizer. */
static double odd_mean(const char *quantizer, double beta2)
{
    char text[256];
    struct qm_recipe r;
    struct bench b = opened("ema", "rows=1", 1);
    void *plan = NULL;
    float p[128] = {0}, g[128], v[128];
    double sum = 0;
    snprintf(text, sizeof text, "adamw_f32,exp_avg_sq=%s,exp_avg_sq.min_numel=0,beta2=%.3f,lr=0",
             quantizer, beta2);
    if (qm_recipe_parse(text, &r) != QM_OK ||
        qm_backend_cpu.open(&r, &b.shape[0], 0, &plan) != QM_OK)
        fail_msg("%s: %s", text, qm_message());
    for (int t = 1; t <= b.p->steps; t++) {
        struct qm_tensor pt = {p, QM_DTYPE_f32, b.shape[0]}, gt = {g, QM_DTYPE_f32, b.shape[0]};
        b.p->eval(b.self, b.x, t, b.g);
        for (int i = 0; i < 128; i++)
            g[i] = (float)b.g[i];
        assert_int_equal(qm_backend_cpu.step(plan, &pt, &gt, t, 1), QM_OK);
    }
    assert_int_equal(qm_backend_cpu.decode(plan, 1, v), QM_OK);
    for (int i = 1; i < 128; i += 2)
        sum += (double)v[i] / 64;
    qm_backend_cpu.close(plan);
    done(&b);
    return sum;
}

/* Even elements get 1; odd ones 0.5 for 3000 steps, then 0 for 5000. */
static void test_ema_table(void **state)
{
    static const struct {
        const char *quantizer;
        double slow, fast; /* beta2 0.999, 0.95 */
        double slow_room, fast_room;
    } want[] = {
        {"f32", 3.19e-3, 0, 5e-6, 1e-40},
        {"dyn:8u/block:128/bisect/near", 0.4971, 0.013516, 5e-5, 5e-7},
        {"lin0:8u/block:128/bisect/near", 0.4979, 0.035294, 5e-5, 5e-7},
        {"lin:4u/block:128/bisect/near", 0.4998, 0.5, 5e-5, 5e-5},
        /* The catalogue's codec is in double; this one, as published, keeps log2 + 126 in float32,
         * an ulp of 7.6e-6 octaves at each step, which the average multiplies by
         * 1 / (1 - beta2). */
        {"log:8u/block:128/arith/even/log2", 0.5039, 0.5041, 2.7e-3, 1e-4},
        /* One run of 64 elements, as in the catalogue: 3.14e-3 there. */
        {"dyn:8u/block:128/bisect/stoch", 3.19e-3, 0, 2e-4, 1e-40},
    };
    (void)state;
    for (size_t k = 0; k < sizeof want / sizeof want[0]; k++) {
        double slow = odd_mean(want[k].quantizer, 0.999), fast = odd_mean(want[k].quantizer, 0.95);
        if (!(fabs(slow - want[k].slow) <= want[k].slow_room &&
              fabs(fast - want[k].fast) <= want[k].fast_room))
            fail_msg("%s: %.5g and %.5g, expected %g and %g", want[k].quantizer, slow, fast,
                     want[k].slow, want[k].fast);
    }
}

/* ---- nqm over 10^4 steps --------------------------------------------------------------------- */

/* Mean loss over runs within 3 standard errors of the closed form, from 1 to 10^4 steps. */
static void check_long_run(const char *args, double lr, double momentum, int runs)
{
    static const int64_t steps[] = {1, 10, 100, 1000, 10000};
    double sum[5] = {0}, sum2[5] = {0}, want[5];
    for (int run = 0; run < runs; run++) {
        struct bench b = opened("nqm", args, 5000 + (uint64_t)run);
        for (int64_t t = 1, k = 0; k < 5; t++) {
            sgdm_step(&b, lr, momentum, t);
            if (t != steps[k])
                continue;
            double f = loss(&b);
            sum[k] += f / runs;
            sum2[k] += f * f / runs;
            want[k] = b.p->expected(b.self, "sgdm", lr, momentum, t);
            k++;
        }
        done(&b);
    }
    for (int k = 0; k < 5; k++) {
        double error = sqrt((sum2[k] - sum[k] * sum[k]) / (runs - 1));
        if (!(fabs(sum[k] - want[k]) <= 3 * error))
            fail_msg("nqm %s, step %d: mean loss %.6g, expected %.6g, standard error %.2g", args,
                     (int)steps[k], sum[k], want[k], error);
    }
}

static void test_nqm_long(void **state)
{
    (void)state;
    check_long_run("n=40", 0.5, 0, 100);
    check_long_run("n=40", 0.05, 0.9, 100);
    check_long_run("n=40,nu=3", 0.05, 0.9, 100);
}

/* Momentum stored with stochastic rounding to a grid: white noise of variance q adds (beta / (1 -
 * beta))^2 q to the gradient's, and the stationary mean square of x follows.  Nearest rounding on a
 * grid that swallows the momentum is plain SGD with a small rate: a lower floor, reached later. */
static void check_stored_momentum(double grid, int nearest, double *square, double *want)
{
    enum { N = 3, STEPS = 400000, BURN = 20000 };
    struct bench b = opened("nqm", "n=3", 17);
    double q[N] = {0}, beta = 0.9, alpha = 0.1;
    memset(square, 0, N * sizeof *square);
    memset(b.x, 0, N * sizeof *b.x);
    for (int t = 1; t <= STEPS; t++) {
        b.p->eval(b.self, b.x, t, b.g);
        for (int i = 0; i < N; i++) {
            double m = beta * b.m[i] + (1 - beta) * b.g[i], cell = floor(m / grid);
            double p = m / grid - cell;
            double u = (double)qm_pick(5, QM_STREAM_dist, t, i, INT64_C(1) << 32) * 0x1p-32;
            b.x[i] -= alpha * m;
            b.m[i] = grid * (nearest ? round(m / grid) : cell + (u < p));
            if (t > BURN) {
                square[i] += b.x[i] * b.x[i] / (STEPS - BURN);
                q[i] += p * (1 - p) * grid * grid / (STEPS - BURN);
            }
        }
    }
    for (int i = 0; i < N; i++) {
        double h = 1 / (i + 1.0), a = alpha * (1 - beta), rest = 2 * (1 + beta) - a * h;
        double noise = h / 32 + (nearest ? 0 : pow(beta / (1 - beta), 2) * q[i]);
        want[i] = a * noise * (1 + beta) / (h * (1 - beta) * rest);
    }
    done(&b);
}

static void test_nqm_stored_momentum(void **state)
{
    double square[3], want[3];
    (void)state;
    check_stored_momentum(0.02, 0, square, want);
    for (int i = 0; i < 3; i++)
        check_close("grid 0.02", square[i], want[i], 0.06);
    check_stored_momentum(0.3, 0, square, want);
    for (int i = 0; i < 3; i++)
        check_close("grid 0.3", square[i], want[i], 0.06);
    check_stored_momentum(0.3, 1, square, want);
    assert_true(square[0] < want[0] / 5);
}

/* ---- products -------------------------------------------------------------------------------- */

/* Every instruction set and shape gives the bits of the plain loops. */
static void test_dense(void **state)
{
    enum { MOST = 40 };
    static double a[MOST * MOST], b[MOST * MOST], start[MOST * MOST], c[MOST * MOST],
        want[MOST * MOST];
    enum qm_isa own = qm_isa();
    (void)state;
    qm_normals(1, QM_STREAM_dist, 0, 0, MOST * MOST, a);
    qm_normals(2, QM_STREAM_dist, 0, 0, MOST * MOST, b);
    qm_normals(3, QM_STREAM_dist, 0, 0, MOST * MOST, start);
    for (int draw = 0; draw < 400; draw++) {
        int64_t m = 1 + qm_pick(4, QM_STREAM_dist, 0, 3 * draw, MOST - 1);
        int64_t depth = qm_pick(4, QM_STREAM_dist, 0, 3 * draw + 1, MOST);
        int64_t n = 1 + qm_pick(4, QM_STREAM_dist, 0, 3 * draw + 2, MOST - 1);
        int64_t row = draw % 2 ? 1 : MOST, col = draw % 2 ? MOST : 1;
        memcpy(want, start, sizeof want);
        for (int64_t i = 0; i < m; i++)
            for (int64_t k = 0; k < depth; k++)
                for (int64_t j = 0; j < n; j++)
                    want[i * MOST + j] += a[i * row + k * col] * b[k * MOST + j];
        for (int isa = 0; isa < QM_ISA_COUNT; isa++) {
            if (!qm_isa_force((enum qm_isa)isa))
                continue;
            memcpy(c, start, sizeof c);
            qm_dense_of()(&(struct qm_dense_product){m, depth, n, row, col, MOST, MOST}, a, b, c);
            assert_memory_equal(c, want, sizeof c);
        }
    }
    qm_isa_force(own);
}

/* The exponential: 2 ULP, the same bits at every instruction set and length. */
static void test_exps(void **state)
{
    enum { N = 40000 };
    static double x[N], y[N], first[N];
    enum qm_isa own = qm_isa();
    (void)state;
    for (int i = 0; i < N; i++)
        x[i] = i < N / 2 ? -708 + 1417.0 * i / (N / 2) : -2 + 4.0 * (i - N / 2) / (N / 2);
    for (int isa = 0; isa < QM_ISA_COUNT; isa++) {
        if (!qm_isa_force((enum qm_isa)isa))
            continue;
        qm_vector_exp_of()(x, N, y);
        if (isa == 0)
            memcpy(first, y, sizeof y);
        assert_memory_equal(y, first, sizeof y);
        for (int n = 0; n < 20; n++) {
            double some[20];
            qm_vector_exp_of()(x + 777, n, some);
            assert_memory_equal(some, y + 777, (size_t)n * sizeof *some);
        }
    }
    for (int i = 0; i < N; i++) {
        long double want = expl((long double)x[i]);
        assert_true(fabsl((long double)y[i] - want) <= 2 * 0x1p-52L * want);
    }
    double ends[4] = {-1e300, 1e300, 0, -0.0};
    qm_vector_exp_of()(ends, 4, ends);
    assert_true(ends[0] > 0 && ends[0] < 1e-300 && ends[1] > 1e300 && isfinite(ends[1]));
    assert_true(ends[2] == 1 && ends[3] == 1);
    ends[0] = nan("");
    qm_vector_exp_of()(ends, 1, ends);
    assert_true(isnan(ends[0]));
    qm_isa_force(own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rosen_start),
        cmocka_unit_test(test_rosen_basins),
        cmocka_unit_test(test_logreg_table),
        cmocka_unit_test(test_logreg_fading),
        cmocka_unit_test(test_factor_table),
        cmocka_unit_test(test_embed_table),
        cmocka_unit_test(test_embed_rare),
        cmocka_unit_test(test_mlp_population),
        cmocka_unit_test(test_chain_table),
        cmocka_unit_test(test_chain_draws),
        cmocka_unit_test(test_mclm_size),
        cmocka_unit_test(test_mclm_attention),
        cmocka_unit_test(test_digits_infimum),
        cmocka_unit_test(test_heavy),
        cmocka_unit_test(test_spike),
        cmocka_unit_test(test_spike_adam),
        cmocka_unit_test(test_clip),
        cmocka_unit_test(test_ema_table),
        cmocka_unit_test(test_nqm_long),
        cmocka_unit_test(test_quad_rates),
        cmocka_unit_test(test_nqm_stored_momentum),
        cmocka_unit_test(test_heavy_crest),
        cmocka_unit_test(test_dense),
        cmocka_unit_test(test_exps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
