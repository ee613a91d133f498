/* test_networks_losses.c - The losses and gradients of networks against second ones. */
#include "tests/support/second_loss.h"

#include "experiments/network/markov_chain.h"

/* 64 pixels and the digit, from the file in the tree, not from the embedded copy. */
static const unsigned char *digit_image(int64_t i)
{
    static unsigned char file[128 + 1797 * 65];
    if (!file[0]) {
        FILE *f = fopen("experiments/data/digits.npy", "rb");
        assert_non_null(f);
        assert_int_equal(fread(file, 1, sizeof file, f), sizeof file);
        fclose(f);
    }
    return file + 128 + i * 65;
}

/* hidden=5,batch=8 */
static num digits(const num *p, uint64_t seed, int64_t step)
{
    enum { HIDDEN = 5, BATCH = 8, IMAGES = 1797 };
    const num *b1 = p + 64 * HIDDEN, *w2 = b1 + HIDDEN, *b2 = w2 + 10 * HIDDEN;
    num sum = 0;
    int rows = step ? BATCH : IMAGES;
    for (int b = 0; b < rows; b++) {
        int64_t i = step ? qm_pick(seed, QM_STREAM_rows, step, b, IMAGES) : b;
        const unsigned char *image = digit_image(i);
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

/* In the tanh form. */
static num gelu(num z)
{
    return z / 2 * (1 + tanh_of(sqrtl(2 / acosl(-1)) * (z + 0.044715L * z * z * z)));
}

/* GELU of a convolution of 3 x 3 with zeros around x[in][side][side], then means over 2 x 2. */
static void convolve(const num *x, int side, int in, const num *w, const num *b, int out, num *y)
{
    for (int o = 0; o < out; o++)
        for (int r = 0; r < side; r += 2)
            for (int c = 0; c < side; c += 2) {
                num sum = 0;
                for (int quarter = 0; quarter < 4; quarter++) {
                    num z = b[o];
                    for (int i = 0; i < in; i++)
                        for (int dr = -1; dr <= 1; dr++)
                            for (int dc = -1; dc <= 1; dc++) {
                                int row = r + quarter / 2 + dr, column = c + quarter % 2 + dc;
                                if (row >= 0 && row < side && column >= 0 && column < side)
                                    z += w[((o * in + i) * 3 + dr + 1) * 3 + dc + 1] *
                                         x[(i * side + row) * side + column];
                            }
                    sum += gelu(z);
                }
                y[(o * (side / 2) + r / 2) * (side / 2) + c / 2] = sum / 4;
            }
}

/* channels=2,batch=70 */
static num cnn(const num *p, uint64_t seed, int64_t step)
{
    enum { C = 2, BATCH = 70, IMAGES = 1797 };
    const num *b1 = p + 9 * C, *w2 = b1 + C, *b2 = w2 + 18 * C * C, *w3 = b2 + 2 * C;
    const num *b3 = w3 + 80 * C;
    num sum = 0;
    int rows = step ? BATCH : IMAGES;
    for (int b = 0; b < rows; b++) {
        const unsigned char *image =
            digit_image(step ? qm_pick(seed, QM_STREAM_rows, step, b, IMAGES) : b);
        num x[64], first[16 * C], second[8 * C], logit[10];
        for (int k = 0; k < 64; k++)
            x[k] = image[k] / 16.0L;
        convolve(x, 8, 1, p, b1, C, first);
        convolve(first, 4, C, w2, b2, 2 * C, second);
        for (int k = 0; k < 10; k++) {
            logit[k] = b3[k];
            for (int c = 0; c < 2 * C; c++)
                for (int at = 0; at < 4; at++)
                    logit[k] += w3[(at * 2 * C + c) * 10 + k] * second[c * 4 + at];
        }
        sum += log_sum_exp(logit, 10) - logit[image[64]];
    }
    return sum / rows;
}

/* T=4,C=6,L=2,heads=3,batch=2,eval=3,data_seed=4; mclm: K=5,order=2,a=2 */
enum { CHAIN_K = 5, TEXT_K = 75, GPT_T = 4, GPT_C = 6, GPT_L = 2, GPT_HEADS = 3 };

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
            up[i] = gelu(up[i]);
        linear(up, wd, bd, 4 * C, C, z);
        for (int i = 0; i < C; i++)
            x[t][i] += z[i];
    }
}

/* Logarithms of the probabilities of the symbols after each position. */
static void gpt(const num *p, int symbols, int is_tied, const int32_t *token,
                num log_q[GPT_T][TEXT_K])
{
    const num *wte = next(&p, symbols * GPT_C), *wpe = next(&p, GPT_T * GPT_C);
    num x[GPT_T][GPT_C], y[GPT_C];
    for (int t = 0; t < GPT_T; t++)
        for (int i = 0; i < GPT_C; i++)
            x[t][i] = wte[token[t] * GPT_C + i] + wpe[t * GPT_C + i];
    for (int l = 0; l < GPT_L; l++)
        gpt_layer(&p, x);
    const num *head = is_tied ? wte : p + 2 * GPT_C;
    for (int t = 0; t < GPT_T; t++) {
        norm(x[t], p, p + GPT_C, y);
        for (int k = 0; k < symbols; k++) {
            log_q[t][k] = 0;
            for (int i = 0; i < GPT_C; i++)
                log_q[t][k] += head[k * GPT_C + i] * y[i];
        }
        num total = log_sum_exp(log_q[t], symbols);
        for (int k = 0; k < symbols; k++)
            log_q[t][k] -= total;
    }
}

static num mclm(const num *p, uint64_t seed, int64_t step)
{
    struct qm_markov_chain c = {0};
    int32_t token[3 * (GPT_T + 1)];
    int count = step ? 2 : 3;
    num sum = 0;
    assert_int_equal(qm_markov_chain_open(CHAIN_K, 2, 2, &c), QM_OK);
    qm_markov_chain_draw(&c, step ? seed : 4, step ? QM_STREAM_rows : QM_STREAM_dist, step, count,
                         GPT_T + 1, token);
    for (int b = 0; b < count; b++) {
        const int32_t *x = token + b * (GPT_T + 1);
        num log_q[GPT_T][TEXT_K];
        gpt(p, CHAIN_K, 1, x, log_q);
        for (int t = 0; t < GPT_T; t++) {
            const double *law = qm_markov_chain_next(&c, t ? x[t - 1] : -1, x[t]);
            for (int k = 0; step == 0 && k < CHAIN_K; k++)
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

/* The text of problem gpt, unpacked by another program, its bytes numbered by value. */
static const unsigned char *novel(void)
{
    enum { BYTES = 684768 };
    static unsigned char text[BYTES];
    static int is_read;
    FILE *f = is_read ? NULL
                      : popen("/usr/bin/python3 -c \"import sys, zipfile; t = zipfile.ZipFile("
                              "'experiments/data/pride_and_prejudice.zip').read("
                              "'pride_and_prejudice.txt'); b = sorted(set(t)); "
                              "sys.stdout.buffer.write(bytes(b.index(x) for x in t))\"",
                              "r");
    if (!is_read) {
        assert_non_null(f);
        assert_int_equal(fread(text, 1, BYTES, f), BYTES);
        assert_int_equal(pclose(f), 0);
        is_read = 1;
    }
    return text;
}

/* Held out: the fourth twentieth, counted from 0.  eval=3 windows spread over it. */
static num text_loss(const num *p, uint64_t seed, int64_t step, int is_tied)
{
    enum { PART = 684768 / 20, FROM = 4 * PART, WINDOW = GPT_T + 1 };
    int count = step ? 2 : 3;
    num sum = 0;
    for (int b = 0; b < count; b++) {
        int64_t at = FROM + b * (PART - WINDOW) / 3;
        if (step) {
            int64_t before = FROM - WINDOW + 1, behind = 684768 - FROM - PART - WINDOW + 1;
            at = qm_pick(seed, QM_STREAM_rows, step, b, before + behind);
            at += at < before ? 0 : FROM + PART - before;
            assert_true(at + WINDOW <= FROM || (at >= FROM + PART && at + WINDOW <= 684768));
        }
        int32_t x[WINDOW];
        num log_q[GPT_T][TEXT_K];
        for (int i = 0; i < WINDOW; i++)
            x[i] = novel()[at + i];
        gpt(p, TEXT_K, is_tied, x, log_q);
        for (int t = 0; t < GPT_T; t++)
            sum -= log_q[t][x[t + 1]];
    }
    return sum / (count * GPT_T);
}

static num gpt_tied(const num *p, uint64_t seed, int64_t step)
{
    return text_loss(p, seed, step, 1);
}

static num gpt_untied(const num *p, uint64_t seed, int64_t step)
{
    return text_loss(p, seed, step, 0);
}
static const struct second_loss cases[] = {
    {"digits", "hidden=5,batch=8", digits, 0.3},
    {"cnn", "channels=2,batch=70", cnn, 0.3},
    {"mclm", "K=5,T=4,C=6,L=2,heads=3,batch=2,order=2,a=2,eval=3,data_seed=4", mclm, 0.3},
    {"gpt", "T=4,C=6,L=2,heads=3,batch=2,eval=3,data_seed=4", gpt_tied, 0.3},
    {"gpt", "T=4,C=6,L=2,heads=3,batch=2,eval=3,data_seed=24,tied=0", gpt_untied, 0.3},
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
