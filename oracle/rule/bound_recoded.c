/* bound_recoded.c - The bound of numbers that are coded in 8 bits of log2 within a step. */
#include <math.h>

#include "oracle/bound/bound_tensor.h"
#include "oracle/rule/adafactor8.h"

/* log2(x) + 126 of a ball of numbers >= 2^-126, in float32; log2 is within 1 ulp. */
static struct qm_ball log_of(struct qm_ball x)
{
    double l = log2(fmax(x.x, 0x1p-126)), low = log2(fmax(x.x - x.e, 0x1p-126));
    double e = fmax(log2(fmax(x.x, 0x1p-126) + x.e) - l, l - low) + 2.0 * QM_U * fabs(l);
    return qm_ball_rounded(l + 126.0, e, 0.0);
}

/* x <- x in 8 bits of log2, decoded: the middle of the values that the codes of the ball mean. */
static void recode_block(struct qm_ball *x, int64_t n)
{
    const struct qm_ball by = qm_ball_scalar(1.0 / 255.0), zero = {126.0, 0.0};
    struct qm_ball top = {0x1p-126, 0.0};
    for (int64_t i = 0; i < n; i++)
        top = qm_ball_max(x[i], top);
    struct qm_ball span = qm_ball_max(log_of(top), qm_ball_exact((double)1e-12f));
    for (int64_t i = 0; i < n; i++) {
        struct qm_ball z = qm_ball_div(&(struct qm_reorder){0}, log_of(x[i]), span);
        z = qm_ball_mul(z, qm_ball_exact(255.0));
        double low = fmin(fmax(nearbyint(z.x - z.e), 0.0), 255.0);
        double high = fmin(fmax(nearbyint(z.x + z.e), 0.0), 255.0), end[2];
        if (!isfinite(z.x + z.e)) {
            x[i].e = HUGE_VAL;
            continue;
        }
        for (int k = 0; k < 2; k++) {
            struct qm_ball l = qm_ball_mul(qm_ball_exact(k ? high : low), by);
            l = qm_ball_add(qm_ball_mul(l, span), qm_ball_negated(zero));
            end[k] = exp2(l.x + (k ? l.e : -l.e)) * (k ? 1.0 + 2.0 * QM_U : 1.0 - 2.0 * QM_U);
        }
        x[i] = (struct qm_ball){0.5 * (end[0] + end[1]), 0.5 * (end[1] - end[0])};
    }
}

void qm_bound_recoded(struct qm_ball *x, int64_t n)
{
    for (int64_t i = 0; i < n; i += 2048)
        recode_block(x + i, n - i < 2048 ? n - i : 2048);
}
