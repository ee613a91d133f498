/* bound.h - Bounds the distance between float32 arithmetic in a rule's documented order and the
 * oracle.
 *
 * Running error analysis in balls (midpoint and radius).  Every quantity is a ball (x, e): x is the
 * exact value of the formula, and |computed - x| <= e.  With the unit roundoff u = 2^-24 and
 * eta = 2^-150 (half the smallest subnormal float32),
 *
 *   result x    error passed on by the operands         error of the rounding, added to e
 *   a + b       e = ea + eb                             u (|x| + e)
 *   a * b       e = |a| eb + |b| ea + ea eb             u (|x| + e) + eta
 *   a / b       e = (ea + |x| eb) / (|b| - eb)          u (|x| + e) + eta
 *   sqrt a      e = the larger of |sqrt(a +- ea) - x|   u (|x| + e)
 *   sum of a_i  e = sum of e_i                          u (|x| + e); in a tree of depth d
 *                                                       instead u d sum |a_i|
 *
 * The rounding error is left out where both operands are exact (e = 0) and x is a float32: such an
 * operation makes no error, so planted ties are judged without any slack.  It is left out of the
 * sums, products and quotients of an exact zero, too.  Where |x| + e exceeds the largest float, e
 * is infinite: the computed value may have overflowed.  Each e carries a factor 1 + 2^-20 for the
 * double arithmetic of the analysis and of the oracle.
 *
 * Re-orderings that the judged side declares (struct qm_reorder, core/base/order.h) add to e.  An
 * fma of two rounded operands adds nothing: it rounds once where the analysis counts two roundings.
 * Where it takes in the product that decodes a state, the state is not rounded (e_old, e_stored).
 * A rounded reciprocal adds u |x| + eta |a| to a quotient a / b, an approximate inverse root within
 * k ulp adds (2 k + 1) u |x| to a root, a float32 tree of depth d adds u d sum |a_i| to a sum. Of
 * other forms of an average, of a decay or of a step (qm_ball_either) the largest e counts. */
#ifndef QM_BOUND_BOUND_H
#define QM_BOUND_BOUND_H

#include <float.h>
#include <math.h>
#include <string.h>

#include "core/base/order.h"
#include "oracle/bound/scalars.h"
#include "oracle/oracle.h"

#define QM_U   0x1p-24  /* unit roundoff of float32 */
#define QM_ETA 0x1p-150 /* half the smallest subnormal float32 */

/* x rounded to float32.  The volatile is needed: GCC 12's basic-block vectorizer (-O2) drops the
 * rounding of (double)(float)x where two such conversions stand side by side. */
static inline double qm_round_float32(double x)
{
    volatile float rounded = (float)x;
    return (double)rounded;
}

/* ---- ball arithmetic ------------------------------------------------------------------------- */

/* The values that the judged side may have computed: all within e >= 0 of x. */
struct qm_ball {
    double x, e;
};

static inline int qm_is_float(double x) { return qm_round_float32(x) == x; }

/* The last step of every operation: adds the rounding error and the factor. */
static inline struct qm_ball qm_ball_rounded(double x, double e, double eta)
{
    e = (e + QM_U * (fabs(x) + e) + eta) * (1.0 + 0x1p-20);
    if (!(fabs(x) + e <= (double)FLT_MAX))
        e = HUGE_VAL;
    return (struct qm_ball){x, e};
}

static inline struct qm_ball qm_ball_exact(double x) { return (struct qm_ball){x, 0.0}; }

/* A scalar of the formula, formed in double and rounded to float32 where it meets a tensor. */
static inline struct qm_ball qm_ball_scalar(double x)
{
    return qm_is_float(x) ? qm_ball_exact(x) : qm_ball_rounded(x, 0.0, QM_ETA);
}

static inline struct qm_ball qm_ball_negated(struct qm_ball a)
{
    return (struct qm_ball){-a.x, a.e};
}

static inline int qm_ball_is_zero(struct qm_ball a) { return a.x == 0.0 && a.e == 0.0; }

/* The ball of a number of which nothing is known.  An infinite centre is an infinity of the inputs
 * or a quotient by 0, for doubles do not overflow here, and is known like a NaN. */
#define QM_BALL_UNKNOWN ((struct qm_ball){0.0, HUGE_VAL})
static inline int qm_ball_is_unknown(struct qm_ball a)
{
    return isfinite(a.x) && !(a.e < HUGE_VAL);
}

/* 1: a may be 0 and may be another number, of either sign. */
static inline int qm_ball_may_vanish(struct qm_ball a)
{
    return isfinite(a.x) && a.e > 0.0 && fabs(a.x) <= a.e;
}

/* 1: x, the product or quotient of the centres of a and b, is infinite or NaN, and whether it is,
 * or its sign, depends on a ball that may vanish, as in 0 / 0, 1 / 0 and Inf 0: nothing is known of
 * it. */
static inline int qm_ball_is_open(struct qm_ball a, struct qm_ball b, double x)
{
    return !isfinite(x) && !isnan(a.x) && !isnan(b.x) &&
           (qm_ball_may_vanish(a) || qm_ball_may_vanish(b));
}

/* The same of a sum: an infinity and what may be an infinity of the other sign. */
static inline int qm_ball_is_open_sum(struct qm_ball a, struct qm_ball b)
{
    return (isinf(a.x) && qm_ball_is_unknown(b)) || (isinf(b.x) && qm_ball_is_unknown(a));
}

static inline struct qm_ball qm_ball_add(struct qm_ball a, struct qm_ball b)
{
    double x = a.x + b.x, z = x - a.x, low = (a.x - (x - z)) + (b.x - z);
    if (qm_ball_is_open_sum(a, b))
        return QM_BALL_UNKNOWN;
    if (qm_ball_is_zero(a) || qm_ball_is_zero(b))
        return (struct qm_ball){x, a.e + b.e};
    if (a.e == 0.0 && b.e == 0.0 && low == 0.0 && qm_is_float(x))
        return qm_ball_exact(x);
    return qm_ball_rounded(x, a.e + b.e, 0.0);
}

static inline struct qm_ball qm_ball_mul(struct qm_ball a, struct qm_ball b)
{
    double x = a.x * b.x;
    if (qm_ball_is_open(a, b, x))
        return QM_BALL_UNKNOWN;
    if (qm_ball_is_zero(a) || qm_ball_is_zero(b))
        return a.e + b.e < HUGE_VAL ? qm_ball_exact(x) : (struct qm_ball){x, HUGE_VAL};
    if (a.e == 0.0 && b.e == 0.0 && fma(a.x, b.x, -x) == 0.0 && qm_is_float(x))
        return qm_ball_exact(x);
    return qm_ball_rounded(x, fabs(a.x) * b.e + fabs(b.x) * a.e + a.e * b.e, QM_ETA);
}

/* 1: 1 / x is a normal float32, as of a power of two, so that multiplying by it is dividing. */
static inline int qm_has_exact_reciprocal(double x)
{
    int e;
    return fabs(frexp(x, &e)) == 0.5 && e > -126 && e <= 127;
}

static inline struct qm_ball qm_ball_div(const struct qm_reorder *o, struct qm_ball a,
                                         struct qm_ball b)
{
    double x = a.x / b.x, e, least = fabs(b.x) - b.e;
    if (qm_ball_is_open(a, b, x))
        return QM_BALL_UNKNOWN;
    if (!(least > 0.0) || (o->recip && least <= 0x1p-128))
        return (struct qm_ball){x, HUGE_VAL};
    if (qm_ball_is_zero(a) && b.e < HUGE_VAL)
        return qm_ball_exact(x);
    if (a.e == 0.0 && b.e == 0.0 && fma(x, b.x, -a.x) == 0.0 && qm_is_float(x) &&
        (!o->recip || qm_has_exact_reciprocal(b.x)) && !(o->div_ulp > 0.0))
        return qm_ball_exact(x);
    e = (a.e + fabs(x) * b.e) / least;
    if (o->recip)
        e += QM_U * (fabs(x) + e) + QM_ETA * (fabs(a.x) + a.e);
    if (o->div_ulp > 0.0) /* in addition to one rounding */
        e += (2.0 * o->div_ulp - 1.0) * (QM_U * (fabs(x) + e) + QM_ETA);
    return qm_ball_rounded(x, e, QM_ETA);
}

static inline struct qm_ball qm_ball_sqrt(const struct qm_reorder *o, struct qm_ball a)
{
    double x = sqrt(a.x), low = a.x > a.e ? sqrt(a.x - a.e) : 0.0, high = sqrt(a.x + a.e), e;
    if (a.e == 0.0 && fma(x, x, -a.x) == 0.0 && qm_is_float(x) && !(o->rsqrt_ulp > 0.0))
        return qm_ball_exact(x);
    e = fmax(x - low, high - x);
    if (o->rsqrt_ulp > 0.0)
        e += (2.0 * o->rsqrt_ulp + 1.0) * QM_U * (x + e);
    return qm_ball_rounded(x, e, 0.0);
}

/* What an oracle wants of a number whose error bound is e.  A bound of 0 says that the value is one
 * float32; the oracle's sum in double may be an ulp of double beside it. */
static inline double qm_bound_wanted(double want, double e)
{
    return e == 0.0 && isfinite(want) ? qm_round_float32(want) : want;
}

/* ---- float formats of 16 bits ---------------------------------------------------------------- */

/* A format: bits of the fraction, exponent of the smallest normal number, largest finite number. */
struct qm_float_format {
    int fraction, least;
    double most;
};
/* clang-format off */
#define QM_FORMAT_f16  {10, -14, 65504.0}
#define QM_FORMAT_bf16 {7, -126, 0x1.fep127}
#define QM_FORMAT_e4m3 {3, -6, 448.0}
/* clang-format on */

/* The number of the format nearest to x, ties to even; Inf beyond the largest; NaN and Inf stay. */
static inline double qm_float_format_round(const struct qm_float_format *format, double x)
{
    if (x == 0.0 || !isfinite(x))
        return x;
    if (fabs(x) >= 2.0 * format->most)
        return copysign(HUGE_VAL, x);
    uint64_t bits;
    double near, up; /* up: 1.5 2^(52 + k), beside which doubles are multiples of 2^k */
    memcpy(&bits, &x, sizeof bits);
    int e = (int)(bits >> 52 & 2047) - 1023, k = (e < format->least ? format->least : e);
    bits = (uint64_t)(k - format->fraction + 52 + 1023) << 52 | (uint64_t)1 << 51;
    memcpy(&up, &bits, sizeof up);
    near = copysign((x + up) - up, x);
    return fabs(near) > format->most ? copysign(HUGE_VAL, x) : near;
}

/* The ball of what the numbers in ball a are rounded to: rounding is monotone, so a's ends,
 * rounded, enclose it; the radius is 0 where no rounding decision lies in a.  format NULL: a
 * itself. */
static inline struct qm_ball qm_ball_round_to(const struct qm_float_format *format,
                                              struct qm_ball a)
{
    if (!format || !isfinite(a.x) || !(a.e < HUGE_VAL))
        return a;
    double x = qm_float_format_round(format, a.x), low = qm_float_format_round(format, a.x - a.e),
           high = qm_float_format_round(format, a.x + a.e);
    if (isinf(low) || isinf(high))
        return (struct qm_ball){a.x, HUGE_VAL};
    return (struct qm_ball){x, fmax(high - x, x - low)};
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* A slot in codes from 0 to top between the ends of a block (lo + code (hi - lo) / top, halves up),
 * for families that code a state twice in a step.  top 0: another format. */
struct qm_bound_affine {
    int top;
    int64_t block;
    int is_bf16; /* lo and hi are rounded to bfloat16 */
};

/* One step whose errors are to be bounded; arrays as in struct qm_oracle.  Slots that the tensor
 * does not have may be NULL. */
struct qm_bound_step {
    const struct qm_oracle_hyper *h;
    int64_t t, n, slot_n[QM_ORACLE_SLOTS]; /* n: elements of p */
    unsigned order;                        /* QM_ORDER_... flags of the rule */
    struct qm_reorder reorder;             /* what the judged side may do in addition */
    const struct qm_shape *shape;
    uint32_t tensor;                   /* number of the tensor in the problem */
    const double *p, *g, *const *slot; /* exact inputs */
    double *p_want, *const *want;      /* the oracle's results */
    /* The judged parameter, or NULL.  Where the bound of the rule's own order already holds it,
     * those of other orders need not be added: the verdict is the same, the bound smaller. */
    const float *p_got;
    /* The judged parameter wherever it is stored as float32, or NULL: for families that judge a
     * matrix as a whole. */
    const float *p_seen;
    /* The slots as stored after the step, where the update of the parameter reads the stored slots
     * back; else NULL.  Families over whole tensors then derive the wanted parameter from the
     * stored slots and put it in p_want and want. */
    const double *const *stored;
    /* Errors of the old and of the stored slots, where the judged side may fuse the last product of
     * their decoding into what follows, so that it is not rounded; NULL: they are exact. */
    const double *const *e_old, *const *e_stored;
    struct qm_bound_affine affine[QM_ORACLE_SLOTS];
    unsigned plain; /* bit i: slot i is kept as float32, which some sources treat differently */
    /* QM_ORDER_rounds: the format that the parameter is rounded to after the decay, within the
     * step; the family then puts the parameter that follows from it in p_want.  NULL: the parameter
     * is rounded only when it is stored. */
    const struct qm_float_format *between;
    double *e_p, *const *e_slot; /* results; INFINITY: not bounded, the number may overflow */
};

/* One element of an elementwise step: inputs, wanted results, and the bounds to be filled in. */
struct qm_bound_element {
    double p, g, slot[QM_ORACLE_SLOTS];
    double want[QM_ORACLE_SLOTS];        /* the bound may replace it */
    struct qm_ball old[QM_ORACLE_SLOTS]; /* the slots before the step, as the step reads them */
    double p_want;                       /* the bound may replace it */
    double p_got;                        /* the judged parameter; NaN: not given */
    double e_p, e[QM_ORACLE_SLOTS];
};

/* Sets the error of the new parameter to that of p, the same number in the order of the bound.
 * Where nothing is known of p, as of a quotient by what may be 0 or not, nothing finite or infinite
 * is wanted of the parameter either. */
static inline void qm_bound_param(struct qm_bound_element *at, struct qm_ball p)
{
    at->e_p = p.e;
    if (!isfinite(at->p_want) && qm_ball_is_unknown(p))
        at->p_want = 0.0;
}

/* Calls `element` for each of the step's elements in turn; scalars: passed on, the family's. */
void qm_bound_elements(const struct qm_bound_step *b, int n_slots, const void *scalars,
                       void (*element)(const void *scalars, struct qm_bound_element *at));

/* ---- what families share --------------------------------------------------------------------- */

/* The larger of a's radius and what a needs to hold b, another way to the same value, too.  Nothing
 * is known where b's way tells nothing of an infinity or a NaN of a's. */
static inline struct qm_ball qm_ball_either(struct qm_ball a, struct qm_ball b)
{
    if (!isfinite(a.x) && qm_ball_is_unknown(b))
        return b;
    double e = b.e + (b.x == a.x ? 0.0 : fabs(a.x - b.x));
    if (e > a.e || isnan(e))
        a.e = isnan(e) ? HUGE_VAL : e;
    return a;
}

/* The weights of an average beta old + (1 - beta) fresh, as the order forms them: beta, weight = 1
 * - beta, weight - 1.  lerp: the average is old + weight (fresh - old), or from the other end where
 * weight >= 1/2.  either: the judged side may use any form of QM_REORDER_LIST, so the largest of
 * their bounds counts. */
struct qm_beta {
    int lerp, either;
    struct qm_ball beta, weight, weight_minus_1;
};

struct qm_beta qm_bound_beta(const struct qm_bound_step *b, double beta, int lerp);

/* The weights of a source that keeps the weight 1 - beta instead of beta. */
struct qm_beta qm_bound_weight(const struct qm_bound_step *b, double weight, int lerp);

/* beta old + (1 - beta) fresh in the order that w states. */
struct qm_ball qm_bound_average(const struct qm_beta *w, struct qm_ball old, struct qm_ball fresh);

/* The same; anything where it is NaN and neither number is: another form of it is infinite, and so
 * may be what is computed from it. */
struct qm_ball qm_bound_average_or_any(const struct qm_beta *w, struct qm_ball old,
                                       struct qm_ball fresh);

/* beta old + ((1 - beta) g) g, or beta old + (1 - beta) (g^2) for QM_ORDER_flash, or by lerp. */
struct qm_ball qm_bound_square(const struct qm_bound_step *b, const struct qm_beta *w,
                               struct qm_ball old, struct qm_ball g);

/* The bias correction 1 - beta^t as the order forms it. */
struct qm_ball qm_bound_correction(const struct qm_bound_step *b, double beta);

/* 1 - x y of two hyper-parameters: formed in double and rounded once, or, for QM_ORDER_flash and
 * QM_ORDER_cuda, in float32. */
struct qm_ball qm_bound_one_minus(const struct qm_bound_step *b, double x, double y);

/* p decayed by the factor 1 - x y of two hyper-parameters: p decay, decay the ball of
 * qm_bound_one_minus; with reorder.fold also p (1 - x y) and p - (x y) p in float32, and
 * p - x (y p). */
struct qm_ball qm_bound_decayed(const struct qm_bound_step *b, struct qm_ball p,
                                struct qm_ball decay, double x, double y);

/* `kept`, which qm_bound_decayed makes of p, minus a step; with reorder.fold also with the decay
 * within the step, p - (x y p + step), of which the sum may be multiplied by x = lr after it. */
struct qm_ball qm_bound_stepped(const struct qm_bound_step *b, struct qm_ball p,
                                struct qm_ball kept, double x, double y, struct qm_ball step);

/* The factor on the weight decay: lr, or with decouple_lr lr / initial_lr (1 where initial_lr is
 * 0). */
double qm_bound_decay_rate(const struct qm_oracle_hyper *h);

/* gamma g + lambda p, the gradient with L2 decay; gamma is gnorm_scale, 0 stands for 1.  Where
 * lambda is 0 nothing is added. */
struct qm_ball qm_bound_l2_gradient(const struct qm_bound_step *b, double g, double p);

/* 1: the order adds an L2 term of 0 (QM_ORDER_zero_l2) to a parameter that is not finite: the new
 * parameter and the first n_slots slots are NaN, and set so. */
int qm_bound_is_zero_l2(const struct qm_bound_step *b, struct qm_bound_element *at, int n_slots);

/* The scalars of one Adam step as the order forms them.  coupled: L2 decay instead of decoupled
 * decay; after: the decay follows the update; torchao, fused, flash, bnb: the flags of the
 * order. */
struct qm_adam_scalars {
    const struct qm_bound_step *b;
    int coupled, after, torchao, fused, flash, bnb;
    struct qm_beta m, v;
    struct qm_ball bc1, bc2, root_bc2;      /* 1 - beta1^t, 1 - beta2^t, sqrt(bc2) */
    struct qm_ball eps, eps_hat;            /* eps; eps sqrt(bc2) of QM_ORDER_bnb and of folds */
    struct qm_ball lr, lr_over_bc1, lr_hat; /* lr_hat: lr sqrt(bc2) / bc1, likewise */
    struct qm_ball decay, lr_wd, wd;        /* 1 - lr lambda, lr lambda, lambda */
};

struct qm_adam_scalars qm_adam_scalars_of(const struct qm_bound_step *b, int coupled, int after);

/* The new parameter from the old one and the new moments m and v; _own: in the rule's own order
 * alone. */
struct qm_ball qm_bound_adam_own(const struct qm_adam_scalars *s, struct qm_ball p,
                                 struct qm_ball m, struct qm_ball v);
struct qm_ball qm_bound_adam_param(const struct qm_adam_scalars *s, struct qm_ball p,
                                   struct qm_ball m, struct qm_ball v);

/* Bounds that more than one oracle uses (bound_adam.c, bound_lion.c). */
qm_status qm_bound_adamw(const struct qm_bound_step *b);
qm_status qm_bound_adam(const struct qm_bound_step *b);
qm_status qm_bound_adamw_after(const struct qm_bound_step *b);
qm_status qm_bound_lion(const struct qm_bound_step *b);
qm_status qm_bound_lion8(const struct qm_bound_step *b);

#endif
