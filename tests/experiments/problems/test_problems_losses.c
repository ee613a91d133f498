/* test_problems_losses.c - The losses and gradients of plain problems against second ones. */
#include "tests/support/second_loss.h"

/* ---- the losses ------------------------------------------------------------------------------ *
 * Each takes the point, and step >= 1: the loss of that step; step 0: the loss that is plotted. */

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
static const struct second_loss cases[] = {
    {"rosen", "n=12", rosen, 1},
    {"logreg", "n=50,d=6,lambda=0.01,labels=separable,batch=0,data_seed=5", logreg, 3},
    {"logreg", "n=50,d=6,lambda=0.01,labels=separable,batch=7,data_seed=5", logreg_rows, 3},
    {"factor", "m=9,n=7,r=3,data_seed=6", factor, 1},
    {"lowrank", "n=20,p=7,q=3,batch=5,data_seed=9", lowrank, 1},
    {"embed", "rows=40,d=3,batch=9,s=1.2,data_seed=8", embed, 1},
    {"mlp", "d=5,teacher=3,student=4,batch=6,sigma=0.3,data_seed=3", mlp_erf, 1},
    {"mlp", "d=5,teacher=3,student=4,batch=6,sigma=0.3,phi=relu,data_seed=3", mlp_relu, 1},
};

static void test_gradients(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++)
        for (uint64_t seed = 1; seed <= 3; seed++)
            check_case(&cases[c], seed, (int64_t)seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
