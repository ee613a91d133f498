/* bound.h - how far float32 arithmetic in a rule's documented order may be from the oracle.
 *
 * Running error analysis.  Every quantity is a pair (x, e): the exact value of the formula, and a
 * bound on |computed - x|.  With u = 2^-24 and eta = 2^-150 (half the smallest denormal),
 *
 *   a + b   e = ea + eb                              and then rounding: u (|x| + e)
 *   a * b   e = |a| eb + |b| ea + ea eb              u (|x| + e) + eta
 *   a / b   e = (ea + |x| eb) / (|b| - eb)           u (|x| + e) + eta
 *   sqrt a  e = the larger distance to sqrt(a -+ ea) u (|x| + e)
 *   sum     e = sum of e                             u (|x| + e); in a tree of depth d u d sum |x|
 *
 * The rounding term is left out where both operands are exact (e = 0) and the result is a float32:
 * such an operation makes no error, so that planted ties are judged without any slack.  Where
 * |x| + e passes the largest float the bound is infinite: the computed value may have overflowed.
 * Each e carries a factor 1 + 2^-20 for the double arithmetic of analysis and oracle.
 *
 * Re-orderings (core/base/order.h).  An fma rounds once where the analysis counts two, so fused and
 * unfused orders are both covered.  A rounded reciprocal adds u |x| + eta |a| to a quotient, an
 * approximate inverse root of k ulp (2 k + 1) u |x| to a root, a tree of depth d what stands above
 * to a sum. */
#ifndef QM_BOUND_BOUND_H
#define QM_BOUND_BOUND_H

#include <float.h>
#include <math.h>

#include "core/base/order.h"
#include "oracle/oracle.h"

#define QM_U   0x1p-24  /* unit roundoff of float32 */
#define QM_ETA 0x1p-150 /* half its smallest denormal */

/* x rounded to float32.  Through memory: GCC 12's basic-block vectorizer (-O2) drops the rounding of
 * (double)(float)x where two such conversions stand side by side. */
static inline double qm_round_float32(double x)
{
    volatile float rounded = (float)x;
    return (double)rounded;
}

/* ---- the algebra ----------------------------------------------------------------------------- */

struct qm_ball {
    double x, e;
};

static inline int qm_is_float(double x) { return qm_round_float32(x) == x; }

/* The last line of every operation: adds the rounding error and the factor. */
static inline struct qm_ball qm_ball_rounded(double x, double e, double eta)
{
    e = (e + QM_U * (fabs(x) + e) + eta) * (1.0 + 0x1p-20);
    if (!(fabs(x) + e <= (double)FLT_MAX))
        e = HUGE_VAL;
    return (struct qm_ball){x, e};
}

static inline struct qm_ball qm_ball_exact(double x) { return (struct qm_ball){x, 0.0}; }

/* A number that is rounded to float32 where it meets a tensor. */
static inline struct qm_ball qm_ball_scalar(double x)
{
    return qm_is_float(x) ? qm_ball_exact(x) : qm_ball_rounded(x, 0.0, QM_ETA);
}

static inline struct qm_ball qm_ball_negated(struct qm_ball a)
{
    return (struct qm_ball){-a.x, a.e};
}

static inline struct qm_ball qm_ball_add(struct qm_ball a, struct qm_ball b)
{
    double x = a.x + b.x, z = x - a.x, low = (a.x - (x - z)) + (b.x - z);
    if (a.e == 0.0 && b.e == 0.0 && low == 0.0 && qm_is_float(x))
        return qm_ball_exact(x);
    return qm_ball_rounded(x, a.e + b.e, 0.0);
}

static inline struct qm_ball qm_ball_mul(struct qm_ball a, struct qm_ball b)
{
    double x = a.x * b.x;
    if ((a.x == 0.0 && a.e == 0.0) || (b.x == 0.0 && b.e == 0.0))
        return a.e + b.e < HUGE_VAL ? qm_ball_exact(x) : (struct qm_ball){x, HUGE_VAL};
    if (a.e == 0.0 && b.e == 0.0 && fma(a.x, b.x, -x) == 0.0 && qm_is_float(x))
        return qm_ball_exact(x);
    return qm_ball_rounded(x, fabs(a.x) * b.e + fabs(b.x) * a.e + a.e * b.e, QM_ETA);
}

static inline struct qm_ball qm_ball_div(const struct qm_reorder *o, struct qm_ball a,
                                         struct qm_ball b)
{
    double x = a.x / b.x, e, least = fabs(b.x) - b.e;
    if (!(least > 0.0) || (o->recip && least < 0x1p-128))
        return (struct qm_ball){x, HUGE_VAL};
    if (a.e == 0.0 && b.e == 0.0 && fma(x, b.x, -a.x) == 0.0 && qm_is_float(x) && !o->recip &&
        !(o->div_ulp > 0.0))
        return qm_ball_exact(x);
    e = (a.e + fabs(x) * b.e) / least;
    if (o->recip)
        e += QM_U * (fabs(x) + e) + QM_ETA * (fabs(a.x) + a.e);
    if (o->div_ulp > 0.0) /* beside one rounding */
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

/* ---- numbers of 16 bits ------------------------------------------------------------------------ */

/* A format: bits of fraction, exponent of the least normal number, largest finite number. */
struct qm_float_format {
    int fraction, least;
    double most;
};

/* The number nearest to x, ties to even; Inf beyond the largest. */
static inline double qm_float_format_round(const struct qm_float_format *grid, double x)
{
    if (x == 0.0 || !isfinite(x))
        return x;
    int k = (ilogb(x) < grid->least ? grid->least : ilogb(x)) - grid->fraction;
    double near = ldexp(rint(ldexp(x, -k)), k);
    return fabs(near) > grid->most ? copysign(HUGE_VAL, x) : near;
}

/* What a float32 within a is rounded to: rounding is monotone, so it lies between the numbers of both
 * ends, which are one unless a decision lies between them.  grid NULL: a itself. */
static inline struct qm_ball qm_ball_round_to(const struct qm_float_format *grid, struct qm_ball a)
{
    if (!grid || !isfinite(a.x) || !(a.e < HUGE_VAL))
        return a;
    double x = qm_float_format_round(grid, a.x), low = qm_float_format_round(grid, a.x - a.e),
           high = qm_float_format_round(grid, a.x + a.e);
    if (isinf(low) || isinf(high))
        return (struct qm_ball){a.x, HUGE_VAL};
    return (struct qm_ball){x, fmax(high - x, x - low)};
}

/* ---- a step ------------------------------------------------------------------------------------ */

/* One step to be bounded; arrays as in struct qm_oracle.  Slots that the tensor does not have may
 * be NULL. */
struct qm_bound_step {
    const struct qm_oracle_hyper *h;
    int64_t t, n, slot_n[QM_ORACLE_SLOTS]; /* n: elements of p */
    unsigned order;                        /* QM_ORDER_..., of the rule */
    struct qm_reorder reorder;             /* allowed besides */
    const struct qm_shape *shape;
    uint32_t tensor;
    const double *p, *g, *const *slot; /* exact inputs */
    double *p_want, *const *want;      /* the oracle's results */
    /* Slots as stored after the step where the parameter's part of it reads those back, else NULL.
     * Families over whole tensors work out from them what that part yields, and put it in p_want and
     * want. */
    const double *const *stored;
    unsigned plain; /* bit i: slot i is kept as float32, which some sources treat otherwise */
    /* QM_ORDER_rounds: what the parameter is rounded to within the step; the family then puts what
     * that yields in p_want.  NULL: it is rounded as it is stored alone. */
    const struct qm_float_format *between;
    double *e_p, *const *e_slot; /* results; any may be INFINITY: not bounded, it may overflow */
};

/* One element of an elementwise step, and where its bounds go. */
struct qm_bound_element {
    double p, g, slot[QM_ORACLE_SLOTS], want[QM_ORACLE_SLOTS];
    double p_want; /* may be replaced */
    double e_p, e[QM_ORACLE_SLOTS];
};

/* Bounds every element on its own; scalars: the family's. */
void qm_bound_elements(const struct qm_bound_step *b, int n_slots, const void *scalars,
                       void (*element)(const void *scalars, struct qm_bound_element *at));

/* ---- what families share ------------------------------------------------------------------------ */

/* beta, 1 - beta and its difference from 1 as the order forms them. */
struct qm_beta {
    int lerp, either; /* either: re-ordered, the larger bound of both forms */
    struct qm_ball beta, weight, weight_minus_1;
};

struct qm_beta qm_bound_beta(const struct qm_bound_step *b, double beta, int lerp);

/* The same from the weight 1 - beta, which is what the source keeps. */
struct qm_beta qm_bound_weight(double weight, int lerp);

/* a (1 - beta) + beta b in that order. */
struct qm_ball qm_bound_average(const struct qm_beta *w, struct qm_ball old, struct qm_ball fresh);

/* beta b + ((1 - beta) g) g, or (1 - beta) (g^2), or by lerp. */
struct qm_ball qm_bound_square(const struct qm_bound_step *b, const struct qm_beta *w,
                               struct qm_ball old, struct qm_ball g);

/* 1 - beta^t as the order forms it. */
struct qm_ball qm_bound_correction(const struct qm_bound_step *b, double beta);

/* 1 - x y of two hyper-parameters, formed in double, or in float32. */
struct qm_ball qm_bound_one_minus(const struct qm_bound_step *b, double x, double y);

/* What the decay is multiplied by: lr, or with decouple_lr its ratio to the first one. */
double qm_bound_decay_rate(const struct qm_oracle_hyper *h);

/* gamma g + lambda p of L2 decay, nothing added where lambda is 0; gamma 0 stands for 1. */
struct qm_ball qm_bound_l2_gradient(const struct qm_bound_step *b, double g, double p);

/* Adam's scalars in that order, and its parameter from the new moments. */
struct qm_bound_adam {
    const struct qm_bound_step *b;
    int coupled, after, torchao, fused, flash, bnb;
    struct qm_beta m, v;
    struct qm_ball bc1, bc2, root_bc2, eps, lr, lr_over_bc1, decay, lr_wd, wd;
};

struct qm_bound_adam qm_bound_adam_open(const struct qm_bound_step *b, int coupled, int after);
struct qm_ball qm_bound_adam_param(const struct qm_bound_adam *s, struct qm_ball p,
                                   struct qm_ball m, struct qm_ball v);

/* Bounds that more than one oracle uses (bound_adam.c, bound_lion.c). */
qm_status qm_bound_adamw(const struct qm_bound_step *b);
qm_status qm_bound_adam(const struct qm_bound_step *b);
qm_status qm_bound_adamw_after(const struct qm_bound_step *b);
qm_status qm_bound_lion(const struct qm_bound_step *b);
qm_status qm_bound_lion8(const struct qm_bound_step *b);

#endif
