/* test_problems_losses.c - Every loss and gradient against a second loss in complex long double.
 *
 * At x + i h d with h = 1e-40, the imaginary part of the loss over h is its derivative along d to
 * the last bits of long double, without differences or truncation; the real part is the loss, and
 * decides the branch of ReLU.  The draws of a step are derived again from their definition: rows,
 * tokens and samples are functions of (seed, stream, step, index). */
#include "tests/support/problem_bench.h"

#include <complex.h>
#include <stdio.h>

#include "experiments/network/markov_chain.h"

typedef long double complex num;
#define IM ((num)I)
#define H  1e-40L

/* ---- functions that look at the real part, or that libm lacks -------------------------------- */

static num relu(num z) { return creall(z) > 0 ? z : 0; }
static num erf_of(num z)
{
    long double x = creall(z);
    return erfl(x) + IM * cimagl(z) * 2 / sqrtl(acosl(-1)) * expl(-x * x);
}
static num asin_of(num z)
{
    long double x = creall(z);
    return asinl(x) + IM * cimagl(z) / sqrtl(1 - x * x);
}
static num acos_of(num z) { return acosl(-1) / 2 - asin_of(z); }
static num sqrt_of(num z)
{
    long double r = sqrtl(creall(z));
    return r + IM * cimagl(z) / (2 * r);
}
static num exp_of(num z)
{
    long double e = expl(creall(z));
    return e + IM * e * cimagl(z);
}
static num log_of(num z) { return logl(creall(z)) + IM * cimagl(z) / creall(z); }
static num tanh_of(num z)
{
    long double t = tanhl(creall(z));
    return t + IM * cimagl(z) * (1 - t * t);
}

static num dot(const num *a, const double *b, int64_t n)
{
    num sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += a[i] * (long double)b[i];
    return sum;
}

/* log sum exp of n numbers. */
static num log_sum_exp(const num *z, int64_t n)
{
    long double top = creall(z[0]);
    num sum = 0;
    for (int64_t i = 1; i < n; i++)
        top = fmaxl(top, creall(z[i]));
    for (int64_t i = 0; i < n; i++)
        sum += exp_of(z[i] - top);
    return top + log_of(sum);
}

/* ---- the losses ------------------------------------------------------------------------------ *
 * Each takes the point, and step >= 1: the loss of that step; step 0: the loss that is plotted. */

typedef num loss_fn(const num *x, uint64_t seed, int64_t step);

static double *data_of(uint32_t seed, int64_t n, int64_t also)
{
    void *data;
    double *x = malloc((size_t)(n + also) * sizeof *x);
    assert_non_null(x);
    assert_int_equal(qm_data_open(seed, &data), QM_OK);
    qm_data_normals(data, n, x);
    qm_data_normals(data, also, x + n);
    qm_data_close(data);
    return x;
}

static num rosen(const num *x, uint64_t seed, int64_t step)
{
    num sum = 0;
    (void)seed, (void)step;
    for (int i = 1; i < 12; i++)
        sum += 100 * (x[i] - x[i - 1] * x[i - 1]) * (x[i] - x[i - 1] * x[i - 1]) +
               (1 - x[i - 1]) * (1 - x[i - 1]);
    return sum;
}

/* n=50,d=6,lambda=0.01,labels=separable,batch=B,data_seed=5 */
static num logreg_of(const num *w, uint64_t seed, int64_t step, int batch)
{
    enum { N = 50, D = 6 };
    double *x = data_of(5, N * D, D);
    num sum = 0, square = 0;
    int rows = batch && step ? batch : N;
    for (int b = 0; b < rows; b++) {
        int64_t i = batch && step ? qm_pick(seed, QM_STREAM_rows, step, b, N) : b;
        long double teacher = 0;
        num z = 0;
        for (int j = 0; j < D; j++) {
            teacher += (long double)x[i * D + j] * (long double)x[N * D + j];
            z += w[j] * (long double)x[i * D + j] * powl(10, -2 * (long double)j / (D - 1));
        }
        sum += log_of(1 + exp_of(teacher > 0 ? -z : z));
    }
    for (int j = 0; j < D; j++)
        square += w[j] * w[j];
    free(x);
    return sum / rows + 0.01L / 2 * square;
}
static num logreg(const num *w, uint64_t seed, int64_t step) { return logreg_of(w, seed, step, 0); }
static num logreg_rows(const num *w, uint64_t seed, int64_t step)
{
    return logreg_of(w, seed, step, 7);
}

/* m=9,n=7,r=3,data_seed=6 */
static num factor(const num *x, uint64_t seed, int64_t step)
{
    enum { M = 9, N = 7, R = 3 };
    double *target = data_of(6, M * N, 0);
    num sum = 0;
    (void)seed, (void)step;
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            num e = -(long double)target[i * N + j];
            for (int k = 0; k < R; k++)
                e += x[i * R + k] * x[(M + j) * R + k];
            e *= powl(10, -2 * (long double)i / (M - 1)) * powl(10, -2 * (long double)j / (N - 1));
            sum += e * e;
        }
    free(target);
    return sum / 2;
}

/* n=20,p=7,q=3,batch=5,data_seed=9 */
static num lowrank(const num *w, uint64_t seed, int64_t step)
{
    enum { N = 20, P = 7, Q = 3, BATCH = 5 };
    double *x = data_of(9, N * P, P * Q), z[N * Q];
    void *data;
    num sum = 0;
    assert_int_equal(qm_data_open(9, &data), QM_OK); /* three arrays: drawn again from the start */
    qm_data_normals(data, N * P, x);
    qm_data_normals(data, P * Q, x + N * P);
    qm_data_normals(data, N * Q, z);
    qm_data_close(data);
    int rows = step ? BATCH : N;
    for (int b = 0; b < rows; b++) {
        int64_t i = step ? qm_pick(seed, QM_STREAM_rows, step, b, N) : b;
        for (int j = 0; j < Q; j++) {
            long double out = powl(10, -2 * (long double)j / (Q - 1));
            num e = -0.1L * (long double)z[i * Q + j] * out;
            for (int k = 0; k < P; k++)
                e += (long double)x[i * P + k] * powl(10, -3 * (long double)k / (P - 1)) *
                     (w[k * Q + j] - (long double)x[N * P + k * Q + j] * out);
            sum += e * e;
        }
    }
    free(x);
    return sum / (2 * rows);
}

/* rows=40,d=3,batch=9,s=1.2,data_seed=8 */
static num embed(const num *x, uint64_t seed, int64_t step)
{
    enum { ROWS = 40, D = 3, BATCH = 9 };
    double *target = data_of(8, ROWS * D, 0);
    long double p[ROWS], total = 0;
    num sum = 0, square[ROWS] = {0};
    for (int w = 0; w < ROWS; w++) {
        total += p[w] = powl(w + 1, -1.2L);
        for (int k = 0; k < D; k++)
            square[w] += (x[w * D + k] - (long double)target[w * D + k]) *
                         (x[w * D + k] - (long double)target[w * D + k]);
    }
    for (int w = 0; step == 0 && w < ROWS; w++)
        sum += p[w] / total * square[w] / 2;
    for (int i = 0; step && i < BATCH; i++) {
        long double u = (long double)qm_pick(seed, QM_STREAM_rows, step, i, INT64_C(1) << 32);
        int w = 0;
        for (long double upto = p[0]; (u + 0.5L) * 0x1p-32L >= upto / total; upto += p[++w])
            ;
        sum += square[w] / (2 * BATCH);
    }
    free(target);
    return sum;
}

/* d=5,teacher=3,student=4,batch=6,sigma=0.3,data_seed=3 */
enum { MLP_D = 5, MLP_TEACHER = 3, MLP_STUDENT = 4, MLP_BATCH = 6, MLP_UNITS = 7 };

static void mlp_stack(const num *p, num *w, num *v)
{
    double *data = data_of(3, MLP_TEACHER * MLP_D, MLP_TEACHER);
    for (int i = 0; i < MLP_UNITS * MLP_D; i++)
        w[i] = i < MLP_STUDENT * MLP_D ? p[i]
                                       : (long double)data[i - MLP_STUDENT * MLP_D] / sqrtl(MLP_D);
    for (int k = 0; k < MLP_UNITS; k++)
        v[k] = k < MLP_STUDENT ? p[MLP_STUDENT * MLP_D + k]
                               : -(long double)data[MLP_TEACHER * MLP_D + k - MLP_STUDENT];
    free(data);
}

static num mlp_population(const num *w, const num *v, int use_relu)
{
    long double pi = acosl(-1);
    num sum = 0;
    for (int i = 0; i < MLP_UNITS; i++)
        for (int j = 0; j < MLP_UNITS; j++) {
            num ii = 0, jj = 0, ij = 0, e;
            for (int k = 0; k < MLP_D; k++) {
                ii += w[i * MLP_D + k] * w[i * MLP_D + k];
                jj += w[j * MLP_D + k] * w[j * MLP_D + k];
                ij += w[i * MLP_D + k] * w[j * MLP_D + k];
            }
            if (use_relu && i == j)
                e = ii / 2;
            else if (use_relu) {
                num size = sqrt_of(ii * jj), c = ij / size, angle = acos_of(c);
                e = size / (2 * pi) * (sqrt_of(1 - c * c) + (pi - angle) * c);
            } else
                e = 2 / pi * asin_of(ij / sqrt_of((1 + ii) * (1 + jj)));
            sum += v[i] * v[j] * e / 2;
        }
    return sum + 0.09L / 2;
}

static num mlp_of(const num *p, uint64_t seed, int64_t step, int use_relu)
{
    num w[MLP_UNITS * MLP_D], v[MLP_UNITS], sum = 0;
    double x[MLP_BATCH * (MLP_D + 1)];
    mlp_stack(p, w, v);
    if (step == 0)
        return mlp_population(w, v, use_relu);
    qm_normals(seed, QM_STREAM_noise, step, 0, MLP_BATCH * (MLP_D + 1), x);
    for (int b = 0; b < MLP_BATCH; b++) {
        num e = -0.3L * (long double)x[MLP_BATCH * MLP_D + b];
        for (int k = 0; k < MLP_UNITS; k++) {
            num z = dot(w + k * MLP_D, x + b * MLP_D, MLP_D);
            e += v[k] * (use_relu ? relu(z) : erf_of(z / sqrtl(2)));
        }
        sum += e * e / (2 * MLP_BATCH);
    }
    return sum;
}
static num mlp_erf(const num *p, uint64_t seed, int64_t step) { return mlp_of(p, seed, step, 0); }
static num mlp_relu(const num *p, uint64_t seed, int64_t step) { return mlp_of(p, seed, step, 1); }

/* hidden=5,batch=8; the images come from the file in the tree, not from the embedded copy. */
static num digits(const num *p, uint64_t seed, int64_t step)
{
    enum { HIDDEN = 5, BATCH = 8, IMAGES = 1797 };
    static unsigned char file[128 + IMAGES * 65];
    const num *b1 = p + 64 * HIDDEN, *w2 = b1 + HIDDEN, *b2 = w2 + 10 * HIDDEN;
    num sum = 0;
    if (!file[0]) {
        FILE *f = fopen("experiments/data/digits.npy", "rb");
        assert_non_null(f);
        assert_int_equal(fread(file, 1, sizeof file, f), sizeof file);
        fclose(f);
    }
    int rows = step ? BATCH : IMAGES;
    for (int b = 0; b < rows; b++) {
        int64_t i = step ? qm_pick(seed, QM_STREAM_rows, step, b, IMAGES) : b;
        const unsigned char *image = file + 128 + i * 65;
        num act[HIDDEN], logit[10];
        for (int h = 0; h < HIDDEN; h++) {
            act[h] = b1[h];
            for (int k = 0; k < 64; k++)
                act[h] += p[k * HIDDEN + h] * (image[k] / 16.0L);
            act[h] = relu(act[h]);
        }
        for (int c = 0; c < 10; c++) {
            logit[c] = b2[c];
            for (int h = 0; h < HIDDEN; h++)
                logit[c] += w2[h * 10 + c] * act[h];
        }
        sum += log_sum_exp(logit, 10) - logit[image[64]];
    }
    return sum / rows;
}

/* K=5,T=4,C=6,L=2,heads=3,batch=2,order=2,a=2,eval=3,data_seed=4 */
enum { GPT_K = 5, GPT_T = 4, GPT_C = 6, GPT_L = 2, GPT_HEADS = 3 };

/* The next tensor of n numbers. */
static const num *next(const num **p, int n)
{
    const num *here = *p;
    *p += n;
    return here;
}

/* y[out] = x[in] w + b */
static void linear(const num *x, const num *w, const num *b, int in, int out, num *y)
{
    for (int j = 0; j < out; j++) {
        y[j] = b[j];
        for (int i = 0; i < in; i++)
            y[j] += x[i] * w[i * out + j];
    }
}

static void norm(const num *x, const num *gain, const num *bias, num *y)
{
    num mean = 0, square = 0;
    for (int i = 0; i < GPT_C; i++)
        mean += x[i] / GPT_C;
    for (int i = 0; i < GPT_C; i++)
        square += (x[i] - mean) * (x[i] - mean) / GPT_C;
    for (int i = 0; i < GPT_C; i++)
        y[i] = (x[i] - mean) / sqrt_of(square + 1e-5L) * gain[i] + bias[i];
}

static void attend(num qkv[GPT_T][3 * GPT_C], int t, num *y)
{
    enum { SIZE = GPT_C / GPT_HEADS };
    for (int h = 0; h < GPT_HEADS; h++) {
        num score[GPT_T], total;
        for (int s = 0; s <= t; s++) {
            score[s] = 0;
            for (int k = h * SIZE; k < (h + 1) * SIZE; k++)
                score[s] += qkv[t][k] * qkv[s][GPT_C + k] / sqrtl(SIZE);
        }
        total = log_sum_exp(score, t + 1);
        for (int k = h * SIZE; k < (h + 1) * SIZE; k++) {
            y[k] = 0;
            for (int s = 0; s <= t; s++)
                y[k] += exp_of(score[s] - total) * qkv[s][2 * GPT_C + k];
        }
    }
}

static void gpt_layer(const num **p, num x[GPT_T][GPT_C])
{
    enum { C = GPT_C };
    const num *g1 = next(p, C), *b1 = next(p, C), *w3 = next(p, 3 * C * C), *b3 = next(p, 3 * C);
    const num *wo = next(p, C * C), *bo = next(p, C), *g2 = next(p, C), *b2 = next(p, C);
    const num *wu = next(p, 4 * C * C), *bu = next(p, 4 * C), *wd = next(p, 4 * C * C);
    const num *bd = next(p, C);
    num qkv[GPT_T][3 * C], y[C], z[C], up[4 * C];
    for (int t = 0; t < GPT_T; t++) {
        norm(x[t], g1, b1, y);
        linear(y, w3, b3, C, 3 * C, qkv[t]);
    }
    for (int t = 0; t < GPT_T; t++) {
        attend(qkv, t, y);
        linear(y, wo, bo, C, C, z);
        for (int i = 0; i < C; i++)
            x[t][i] += z[i];
        norm(x[t], g2, b2, y);
        linear(y, wu, bu, C, 4 * C, up);
        for (int i = 0; i < 4 * C; i++)
            up[i] =
                up[i] / 2 *
                (1 + tanh_of(sqrtl(2 / acosl(-1)) * (up[i] + 0.044715L * up[i] * up[i] * up[i])));
        linear(up, wd, bd, 4 * C, C, z);
        for (int i = 0; i < C; i++)
            x[t][i] += z[i];
    }
}

/* Logarithms of the probabilities after each position. */
static void gpt(const num *p, const int32_t *token, num log_q[GPT_T][GPT_K])
{
    const num *wte = next(&p, GPT_K * GPT_C), *wpe = next(&p, GPT_T * GPT_C);
    num x[GPT_T][GPT_C], y[GPT_C];
    for (int t = 0; t < GPT_T; t++)
        for (int i = 0; i < GPT_C; i++)
            x[t][i] = wte[token[t] * GPT_C + i] + wpe[t * GPT_C + i];
    for (int l = 0; l < GPT_L; l++)
        gpt_layer(&p, x);
    for (int t = 0; t < GPT_T; t++) {
        norm(x[t], p, p + GPT_C, y);
        for (int k = 0; k < GPT_K; k++) {
            log_q[t][k] = 0;
            for (int i = 0; i < GPT_C; i++)
                log_q[t][k] += wte[k * GPT_C + i] * y[i];
        }
        num total = log_sum_exp(log_q[t], GPT_K);
        for (int k = 0; k < GPT_K; k++)
            log_q[t][k] -= total;
    }
}

static num mclm(const num *p, uint64_t seed, int64_t step)
{
    struct qm_markov_chain c = {0};
    int32_t token[3 * (GPT_T + 1)];
    int count = step ? 2 : 3;
    num sum = 0;
    assert_int_equal(qm_markov_chain_open(GPT_K, 2, 2, &c), QM_OK);
    qm_markov_chain_draw(&c, step ? seed : 4, step ? QM_STREAM_rows : QM_STREAM_dist, step, count,
                         GPT_T + 1, token);
    for (int b = 0; b < count; b++) {
        const int32_t *x = token + b * (GPT_T + 1);
        num log_q[GPT_T][GPT_K];
        gpt(p, x, log_q);
        for (int t = 0; t < GPT_T; t++) {
            const double *law = qm_markov_chain_next(&c, t ? x[t - 1] : -1, x[t]);
            for (int k = 0; step == 0 && k < GPT_K; k++)
                sum += (long double)law[k] * (logl((long double)law[k]) - log_q[t][k]);
            if (step)
                sum -= log_q[t][x[t + 1]];
        }
    }
    sum /= count * GPT_T;
    if (step == 0)
        sum += (long double)qm_markov_chain_floor(&c, GPT_T);
    qm_markov_chain_close(&c);
    return sum;
}

/* ---- the comparison -------------------------------------------------------------------------- */

static const struct {
    const char *name, *args;
    loss_fn *second;
    double spread; /* of the point around the start */
} cases[] = {
    {"rosen", "n=12", rosen, 1},
    {"logreg", "n=50,d=6,lambda=0.01,labels=separable,batch=0,data_seed=5", logreg, 3},
    {"logreg", "n=50,d=6,lambda=0.01,labels=separable,batch=7,data_seed=5", logreg_rows, 3},
    {"factor", "m=9,n=7,r=3,data_seed=6", factor, 1},
    {"lowrank", "n=20,p=7,q=3,batch=5,data_seed=9", lowrank, 1},
    {"embed", "rows=40,d=3,batch=9,s=1.2,data_seed=8", embed, 1},
    {"mlp", "d=5,teacher=3,student=4,batch=6,sigma=0.3,data_seed=3", mlp_erf, 1},
    {"mlp", "d=5,teacher=3,student=4,batch=6,sigma=0.3,phi=relu,data_seed=3", mlp_relu, 1},
    {"digits", "hidden=5,batch=8", digits, 0.3},
    {"mclm", "K=5,T=4,C=6,L=2,heads=3,batch=2,order=2,a=2,eval=3,data_seed=4", mclm, 0.3},
};

/* Rounding of the problem, which is in double: a few operations' worth of the largest element. */
#define ROUNDING 2e-14

static void check_case(size_t c, uint64_t seed, int64_t step)
{
    struct bench b = opened(cases[c].name, cases[c].args, seed);
    num *x = malloc((size_t)b.n * sizeof *x);
    double largest = 0, size = 0;
    qm_normals(seed, QM_STREAM_dist, 1, 0, b.n, b.m);
    for (int64_t i = 0; i < b.n; i++)
        x[i] = b.x[i] += cases[c].spread * b.m[i];
    double value = b.p->eval(b.self, b.x, step, b.g), plotted = loss(&b);
    check_close(cases[c].name, value, (double)creall(cases[c].second(x, seed, step)), ROUNDING);
    check_close(cases[c].name, plotted, (double)creall(cases[c].second(x, seed, 0)), ROUNDING);
    for (int64_t i = 0; i < b.n; i++) {
        largest = fmax(largest, fabs(b.g[i]));
        size += fabs(b.g[i] * b.m[i]);
    }
    assert_true(largest > 0);
    for (int64_t i = 0; i < b.n; i++) {
        x[i] += IM * H;
        double want = (double)(cimagl(cases[c].second(x, seed, step)) / H);
        x[i] = creall(x[i]);
        if (!(fabs(b.g[i] - want) <= ROUNDING * largest))
            fail_msg("%s %s: element %d is %.17g, derivative %.17g, largest %g", cases[c].name,
                     cases[c].args, (int)i, b.g[i], want, largest);
    }
    double along = 0;
    for (int64_t i = 0; i < b.n; i++) {
        along += b.g[i] * b.m[i];
        x[i] += IM * H * (long double)b.m[i];
    }
    double want = (double)(cimagl(cases[c].second(x, seed, step)) / H);
    if (!(fabs(along - want) <= ROUNDING * size))
        fail_msg("%s: along a direction %.17g, derivative %.17g", cases[c].name, along, want);
    free(x);
    done(&b);
}

static void test_gradients(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++)
        for (uint64_t seed = 1; seed <= 3; seed++)
            check_case(c, seed, (int64_t)seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
