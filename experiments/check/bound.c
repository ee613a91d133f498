/* bound.c - running error bounds of the rule families. */
#include "experiments/check/bound.h"

#include <float.h>
#include <math.h>
#include <string.h>

typedef struct qm_bound_scalar pair;

static int is_float(double x) { return qm_narrow(x) == x; }

/* The last line of every operation: adds the rounding error and the factor. */
static pair rounded(double x, double e, double eta)
{
    e = (e + QM_U * (fabs(x) + e) + eta) * (1.0 + 0x1p-20);
    if (!(fabs(x) + e <= (double)FLT_MAX))
        e = HUGE_VAL;
    return (pair){x, e};
}

static pair exactly(double x) { return (pair){x, 0.0}; }

static pair add(pair a, pair b)
{
    double x = a.x + b.x, z = x - a.x, low = (a.x - (x - z)) + (b.x - z);
    if (a.e == 0.0 && b.e == 0.0 && low == 0.0 && is_float(x))
        return exactly(x);
    return rounded(x, a.e + b.e, 0.0);
}

static pair negated(pair a) { return (pair){-a.x, a.e}; }

static pair mul(pair a, pair b)
{
    double x = a.x * b.x;
    if ((a.x == 0.0 && a.e == 0.0) || (b.x == 0.0 && b.e == 0.0))
        return a.e + b.e < HUGE_VAL ? exactly(x) : (pair){x, HUGE_VAL};
    if (a.e == 0.0 && b.e == 0.0 && fma(a.x, b.x, -x) == 0.0 && is_float(x))
        return exactly(x);
    return rounded(x, fabs(a.x) * b.e + fabs(b.x) * a.e + a.e * b.e, QM_ETA);
}

static pair quotient(pair a, pair b)
{
    double x = a.x / b.x;
    if (!(fabs(b.x) > b.e))
        return (pair){x, HUGE_VAL};
    if (a.e == 0.0 && b.e == 0.0 && fma(x, b.x, -a.x) == 0.0 && is_float(x))
        return exactly(x);
    return rounded(x, (a.e + fabs(x) * b.e) / (fabs(b.x) - b.e), QM_ETA);
}

static pair root(pair a)
{
    double x = sqrt(a.x), low = a.x > a.e ? sqrt(a.x - a.e) : 0.0, high = sqrt(a.x + a.e);
    if (a.e == 0.0 && fma(x, x, -a.x) == 0.0 && is_float(x))
        return exactly(x);
    return rounded(x, fmax(x - low, high - x), 0.0);
}

/* A hyper-parameter as float32. */
static pair scalar(double x) { return is_float(x) ? exactly(x) : rounded(x, 0.0, QM_ETA); }

/* ---- orders -------------------------------------------------------------------------------- */

/* lerp_m, lerp_v: moments as a + w (b - a) instead of beta a + w b.  torchao: 1 - beta^t formed in
 * float32 from a float32 power of a float32 beta; decay as p - (lr wd) p; lr (m / bc1).  fused: as
 * torchao's the powers, but by powf, within an ulp; 1 - beta of a float32 beta;
 * p - lr (m / ((root + eps) bc1) + wd p).  flash: corrections as torchao's, 1 - beta of a float32 beta,
 * decay by a factor, g^2 first, sqrt(v / bc2). */
static const struct {
    const char *rule;
    int lerp_m, lerp_v, torchao, fused, flash;
} orders[] = {
    {"adamw", 0, 0, 0, 0, 0},
    {"adam", 0, 0, 0, 0, 0},
    {"adamw_bnb", 0, 0, 0, 0, 0},
    {"adamw_bnb32", 0, 0, 0, 0, 0},
    {"adamw_bnb_plain", 0, 0, 0, 0, 0},
    {"adamw_lpmm", 1, 0, 0, 0, 0},
    {"adamw_lpmm_fused", 0, 0, 0, 1, 0},
    {"adamw_lpmm_fused_strict", 0, 0, 0, 1, 0},
    {"adamw_amsgrad", 0, 0, 0, 0, 0},
    {"adam_amsgrad", 0, 0, 0, 0, 0},
    {"adamw_ao_amsgrad", 1, 1, 1, 0, 0},
    {"adam_ao_amsgrad", 1, 1, 1, 0, 0},
    {"adamw_ao", 1, 1, 1, 0, 0},
    {"adam_ao", 1, 1, 1, 0, 0},
    {"sgdm", 0, 0, 0, 0, 0},
    {"sgdm_lpmm", 0, 0, 0, 0, 0},
    {"ema", 1, 0, 0, 0, 0},
    {"lion8_unfused", 1, 0, 0, 0, 0},
    {"lion8_cpu", 1, 0, 0, 0, 0},
    {"lion8_fused", 0, 0, 0, 0, 1},
    {"flash_lion", 0, 0, 0, 0, 1},
    {"flash_adamw", 0, 0, 1, 0, 1},
    {"flash_adam", 0, 0, 1, 0, 1},
    {"flash_sgd", 0, 0, 0, 0, 1},
    {"flash_sgdw", 0, 0, 0, 0, 1},
};

/* 1 - beta^t.  In double: two roundings of 2^-53 about 1.  torchao: P = beta^t of beta (1 + d) is
 * P (1 + t d) to first order, rounded once: error u (t + 1) P; the difference is rounded too. */
static pair correction(const struct qm_bound *b, double beta)
{
    double power = pow(beta, (double)b->t), x = -expm1((double)b->t * log1p(beta - 1.0)), e;
    if (!b->torchao && !b->fused)
        return (pair){x, power > 0.0 ? 0x1p-52 : 0.0};
    e = (is_float(beta) ? 0.0 : QM_U * (double)b->t * power) +
        (is_float(power) ? 0.0 : (b->fused ? 2.0 : 1.0) * QM_U * power);
    return e == 0.0 && is_float(x) ? exactly(x) : rounded(x, e, 0.0);
}

/* a (1 - beta) + beta b in the rule's order; w, less_1: 1 - beta and its difference from 1. */
static pair average(int lerp, pair beta, pair w, pair less_1, pair old, pair fresh)
{
    if (!lerp)
        return add(mul(w, fresh), mul(beta, old));
    pair difference = add(fresh, negated(old));
    return w.x < 0.5 ? add(old, mul(w, difference)) : add(fresh, mul(less_1, difference));
}

/* ---- families ------------------------------------------------------------------------------ */

/* AdamW and Adam.  The fresh moments err by about
 *   |dm| <= u (2 |beta1 m| + 2 |(1-beta1) g| + |m'|),  |dv| <= u (2 beta2 v + 3 (1-beta2) g^2 + v')
 * and by lerp 2 u w |g - m| instead; then with mhat = m'/bc1 and den = sqrt(v'/bc2) + eps
 *   |d update| / update <= dm/|m'| + dv/(2 v') sqrt(vhat)/den + (errors of lr, bc1, bc2) + 5 u
 * and |dp'| <= |d update| + 2 u |p| + u |p'|.  What is evaluated below are these sums without
 * first-order approximations, around the oracle's own moments. */
static void adam_element(const struct qm_bound *b, int coupled, double p, double g,
                         const double *slot, const double *want, double *e_p, double *e_slot)
{
    pair param = exactly(p), grad = exactly(b->h.maximize ? -g : g), square, top;
    if (coupled && b->torchao && !isfinite(p)) { /* it adds 0 p even without decay: NaN */
        *e_p = e_slot[0] = e_slot[1] = (double)INFINITY;
        if (b->h.amsgrad)
            e_slot[2] = (double)INFINITY;
        return;
    }
    if (coupled && b->h.weight_decay != 0.0)
        grad = add(grad, mul(b->wd, param));
    pair m = average(b->lerp_m, b->b1, b->w1, b->w1_less_1, exactly(slot[0]), grad), v;
    if (b->lerp_v) {
        square = mul(grad, grad);
        v = average(1, b->b2, b->w2, b->w2_less_1, exactly(slot[1]), square);
    } else {
        square = b->flash ? mul(b->w2, mul(grad, grad)) : mul(mul(b->w2, grad), grad);
        v = add(square, mul(b->b2, exactly(slot[1])));
    }
    m.x = want[0];
    v.x = want[1];
    e_slot[0] = m.e;
    e_slot[1] = v.e;
    top = v;
    if (b->h.amsgrad) { /* a maximum errs by what its argument does, or not where that is smaller */
        top = (pair){want[2], v.x + v.e <= slot[2] ? 0.0 : v.e};
        e_slot[2] = top.e;
    }
    pair den =
        add(b->flash ? root(quotient(top, b->bc2)) : quotient(root(top), b->root_bc2), b->eps);
    if (b->fused) {
        pair whole = add(quotient(m, mul(den, b->bc1)), mul(b->wd, param));
        *e_p = add(param, negated(mul(b->lr, whole))).e;
        return;
    }
    pair update = b->torchao ? quotient(mul(b->lr, quotient(m, b->bc1)), den)
                             : quotient(mul(b->lr_over_bc1, m), den);
    if (!coupled)
        param = b->torchao && !b->flash ? add(param, negated(mul(b->lr_wd, param)))
                                        : mul(param, b->decay);
    *e_p = add(param, negated(update)).e;
}

static void adamw(const struct qm_bound *b, double p, double g, const double *slot,
                  const double *want, double *e_p, double *e_slot)
{
    adam_element(b, 0, p, g, slot, want, e_p, e_slot);
}

static void adam(const struct qm_bound *b, double p, double g, const double *slot,
                 const double *want, double *e_p, double *e_slot)
{
    adam_element(b, 1, p, g, slot, want, e_p, e_slot);
}

/* d = g + wd p;  b' = mu b + (1 - tau) d;  p' = p - lr (b' or d + mu b'): as written. */
static void sgdm(const struct qm_bound *b, double p, double g, const double *slot,
                 const double *want, double *e_p, double *e_slot)
{
    pair d = exactly(b->h.maximize ? -g : g);
    e_slot[0] = 0.0;
    if (b->h.weight_decay != 0.0)
        d = add(d, mul(b->wd, exactly(p)));
    if (b->h.momentum != 0.0) {
        pair mu = scalar(b->h.momentum), fresh = d;
        if (b->t > 1)
            fresh = add(mul(scalar(1.0 - b->h.dampening), d), mul(mu, exactly(slot[0])));
        fresh.x = want[0];
        e_slot[0] = fresh.e;
        d = b->h.nesterov ? add(d, mul(mu, fresh)) : fresh;
    }
    *e_p = add(exactly(p), negated(mul(b->lr, d))).e;
}

/* theta' = theta d - lr sign(c), c = beta1 m + (1 - beta1) g: where the bound of c reaches 0 the sign
 * may be any of the three. */
static void lion8(const struct qm_bound *b, double p, double g, const double *slot,
                  const double *want, double *e_p, double *e_slot)
{
    pair grad = exactly(b->h.maximize ? -g : g), old = exactly(slot[0]);
    pair c = average(b->lerp_m, b->b1, b->w1, b->w1_less_1, old, grad);
    pair m = average(b->lerp_m, b->b2, b->w2, b->w2_less_1, old, grad);
    m.x = want[0];
    e_slot[0] = m.e;
    int is_sure = c.e == 0.0 || fabs(c.x) > c.e;
    double sign = c.x > 0.0 ? 1.0 : c.x < 0.0 ? -1.0 : 0.0;
    pair param = mul(exactly(p), b->decay);
    pair step = is_sure ? mul(exactly(sign), b->lr) : (pair){0.0, b->lr.x + b->lr.e};
    *e_p = add(param, negated(step)).e + (is_sure ? 0.0 : fabs(sign) * b->lr.x);
    if (isnan(c.x) || isnan(c.e))
        *e_p = (double)INFINITY;
}

/* m' = mu m + (1 - tau) g from a zero buffer; theta' = theta d - lr (m' or g + mu m'). */
static void sgd_zero(const struct qm_bound *b, int coupled, double p, double g, const double *slot,
                     const double *want, double *e_p, double *e_slot)
{
    pair grad = exactly(b->h.maximize ? -g : g), param = exactly(p);
    pair mu = scalar(b->h.momentum);
    pair rest = scalar(b->h.momentum != 0.0 ? 1.0 - b->h.dampening : 1.0);
    if (coupled)
        grad = add(grad, mul(b->wd, param));
    else
        param = mul(param, b->decay);
    pair m = add(mul(mu, exactly(slot[0])), mul(rest, grad));
    m.x = want[0];
    e_slot[0] = m.e;
    *e_p = add(param, negated(mul(b->h.nesterov ? add(grad, mul(mu, m)) : m, b->lr))).e;
}

static void sgd_coupled(const struct qm_bound *b, double p, double g, const double *slot,
                        const double *want, double *e_p, double *e_slot)
{
    sgd_zero(b, 1, p, g, slot, want, e_p, e_slot);
}

static void sgdw(const struct qm_bound *b, double p, double g, const double *slot,
                 const double *want, double *e_p, double *e_slot)
{
    sgd_zero(b, 0, p, g, slot, want, e_p, e_slot);
}

/* The average alone; the parameter stays. */
static void ema(const struct qm_bound *b, double p, double g, const double *slot,
                const double *want, double *e_p, double *e_slot)
{
    (void)p;
    (void)want;
    pair fresh = exactly(b->h.maximize ? -g : g);
    e_slot[0] = average(b->lerp_m, b->b1, b->w1, b->w1_less_1, exactly(slot[0]), fresh).e;
    *e_p = 0.0;
}

static const struct {
    const char *family;
    void (*element)(const struct qm_bound *b, double p, double g, const double *slot,
                    const double *want, double *e_p, double *e_slot);
} families[] = {{"adamw", adamw}, {"adam", adam},   {"sgdm", sgdm},
                {"ema", ema},     {"lion8", lion8}, {"sgd_zero", sgd_coupled},
                {"sgdw", sgdw}};

/* 1 - beta is formed in double and rounded; its difference from 1 is exact after that, or rounded
 * from the double: |error| <= u times the larger of both either way. */
static void weights(double beta, int fused, pair *b, pair *w, pair *less_1)
{
    *b = scalar(beta);
    *w = scalar(1.0 - beta);
    if (fused && !is_float(beta)) /* the difference itself is exact from beta = 1/2 on */
        *w = rounded(1.0 - beta, QM_U * beta, 0.0);
    *less_1 =
        w->e == 0.0 && b->e == 0.0 ? exactly(-beta) : (pair){-beta, QM_U * fmax(beta, 1.0 - beta)};
}

qm_status qm_bound_init(struct qm_bound *b, const char *family, const char *rule,
                        const struct qm_oracle_hyper *h, int64_t t)
{
    memset(b, 0, sizeof *b);
    b->family = -1;
    for (int i = 0; i < (int)(sizeof families / sizeof *families); i++)
        if (strcmp(families[i].family, family) == 0)
            b->family = i;
    if (b->family < 0)
        return qm_fail(QM_BAD_ARG, "no error bound is derived for rules of family %s", family);
    b->h = *h;
    b->t = t;
    b->lerp_m = b->lerp_v = b->torchao = 1;
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++)
        if (strcmp(orders[i].rule, rule) == 0) {
            b->lerp_m = orders[i].lerp_m;
            b->lerp_v = orders[i].lerp_v;
            b->torchao = orders[i].torchao;
            b->fused = orders[i].fused;
            b->flash = orders[i].flash;
        }
    weights(h->beta1, b->fused || b->flash, &b->b1, &b->w1, &b->w1_less_1);
    weights(h->beta2, b->fused || b->flash, &b->b2, &b->w2, &b->w2_less_1);
    pair bc1 = correction(b, h->beta1), bc2 = correction(b, h->beta2);
    double r = sqrt(bc2.x), step = h->lr / bc1.x;
    b->bc1 = bc1;
    b->bc2 = bc2;
    b->root_bc2 =
        b->torchao || b->fused || is_float(r) ? root(bc2) : rounded(r, 0.5 * bc2.e / r, 0.0);
    b->lr_over_bc1 = is_float(step) ? exactly(step) : rounded(step, step * bc1.e / bc1.x, QM_ETA);
    b->eps = scalar(h->eps);
    b->lr = scalar(h->lr);
    b->wd = scalar(h->weight_decay);
    int is_ratio = strcmp(family, "lion8") == 0 || h->decouple_lr;
    double d = is_ratio ? h->weight_decay * (h->initial_lr != 0.0 ? h->lr / h->initial_lr : 1.0)
                        : h->lr * h->weight_decay;
    b->decay = b->flash ? add(exactly(1.0), negated(scalar(d))) : scalar(1.0 - d);
    b->lr_wd = mul(b->lr, b->wd);
    return QM_OK;
}

void qm_bound_element(const struct qm_bound *b, double p, double g, const double *slot,
                      const double *slot_want, double *e_p, double *e_slot)
{
    families[b->family].element(b, p, g, slot, slot_want, e_p, e_slot);
}
