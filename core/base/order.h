/* order.h - in which order a rule computes where the sources of one family differ, and what a
 * judged side may re-order besides.  Data that rules state and oracle/bound/bound.h reads.
 *
 * Without any flag: scalars are formed in double and rounded once where they meet a tensor; moments
 * are beta a + (1 - beta) b; (lr / (1 - beta1^t)) m over sqrt(v) / sqrt(1 - beta2^t) + eps; decay by
 * the factor 1 - lr wd before the step. */
#ifndef QM_BASE_ORDER_H
#define QM_BASE_ORDER_H

/* clang-format off */
#define QM_ORDER_LIST(X)                                                                            \
    X(lerp_m,  "first moments are a + w (b - a)")                                                   \
    X(lerp_v,  "so is the second, and the other averages of squares")                               \
    X(torchao, "1 - beta^t in float32 from a float32 power of a float32 beta; decay as "            \
               "p - (lr wd) p; lr (m / (1 - beta1^t))")                                             \
    X(fused,   "such powers by powf, within an ulp; 1 - beta of a float32 beta; "                   \
               "p - lr (m / ((root + eps) (1 - beta1^t)) + wd p)")                                  \
    X(flash,   "1 - beta of a float32 beta; decay factor 1 - (float32)(lr wd); g^2 before its "     \
               "weight; sqrt(v / (1 - beta2^t))")                                                   \
    X(bnb,     "the second correction in step and eps: lr sqrt(c2) / c1, eps sqrt(c2)")             \
    X(cuda,    "scalars in float32 throughout, of float32 hyper-parameters; adafactor8bit: what its "  \
               "kernels do with NaN, and their floors")                                               \
    X(rounds,  "a stored parameter of 16 bits is rounded after the decay, too")                     \
    X(factor,  "and so is the decay factor")                                                        \
    X(lanes,   "norms by float32 sums in eight lanes; without: sums in double, rounded once")
/* clang-format on */

enum {
#define X(name, text) QM_ORDER_BIT_##name,
    QM_ORDER_LIST(X)
#undef X
};

enum {
#define X(name, text) QM_ORDER_##name = 1 << QM_ORDER_BIT_##name,
    QM_ORDER_LIST(X)
#undef X
};

/* What the judged side may do beside the documented order; all zero: nothing. */
struct qm_reorder {
    int fma;          /* contract products and sums */
    int recip;        /* multiply by a rounded reciprocal instead of dividing */
    int average;      /* form averages either way: a + w (b - a) or (1 - w) a + w b */
    int tree;         /* k > 0: float32 sums in any tree of depth ceil(log2 n) + k - 1 */
    double div_ulp;   /* > 0: quotients this many ulp off, their rounding included */
    double rsqrt_ulp; /* > 0: x rsqrt(x) for a root, the inverse root this many ulp off */
};

#endif
