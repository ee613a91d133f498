/* order.h - Orders of operations in which the sources of one family of rules differ.
 *
 * Rules state these flags, and the error bounds of oracle/bound/bound.h read them.  Without any
 * flag, scalars are formed in double and rounded once where they meet a tensor, moments are
 * beta a + (1 - beta) b, the parameter first decays by the factor 1 - lr wd, and the step is
 *
 *     (lr / (1 - beta1^t)) m / (sqrt(v) / sqrt(1 - beta2^t) + eps) */
#ifndef QM_BASE_ORDER_H
#define QM_BASE_ORDER_H

/* clang-format off */
#define QM_ORDER_LIST(X)                                                                            \
    X(lerp_m,  "first moments are a + w (b - a)")                                                   \
    X(lerp_v,  "second moments and other averages of squares are a + w (b - a)")                    \
    X(torchao, "1 - beta^t in float32 from a float32 power of a float32 beta; the decay is "        \
               "p - (lr wd) p; the step is lr (m / (1 - beta1^t))")                                 \
    X(fused,   "as torchao, with the power by powf, within an ulp; 1 - beta from a float32 beta; "  \
               "p - lr (m / ((root + eps) (1 - beta1^t)) + wd p)")                                  \
    X(flash,   "1 - beta from a float32 beta; decay factor 1 - (float32)(lr wd); g is squared "     \
               "before it is weighted; sqrt(v / (1 - beta2^t))")                                    \
    X(bnb,     "the second bias correction c2 is in step and eps: lr sqrt(c2) / c1, eps sqrt(c2)")  \
    X(cuda,    "scalars in float32 throughout, from float32 hyper-parameters; adafactor8bit: NaN "  \
               "and floors as in its CUDA kernels")                                                 \
    X(rounds,  "a parameter stored in 16 bits is also rounded after the decay")                     \
    X(factor,  "the decay factor is rounded to the parameter's 16 bits, too")                       \
    X(lanes,   "norms by float32 sums in eight lanes; without it: sums in double, rounded once")
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

/* Deviations from the documented order that a judged implementation may have; all zero: none. */
struct qm_reorder {
    int fma;          /* contract products and sums */
    int recip;        /* multiply by a rounded reciprocal instead of dividing */
    int average;      /* form averages as a + w (b - a) or as (1 - w) a + w b */
    int tree;         /* k > 0: float32 sums in any tree of depth ceil(log2 n) + k - 1 */
    double div_ulp;   /* > 0: largest error of a quotient in ulp, its rounding included */
    double rsqrt_ulp; /* > 0: roots as x rsqrt(x), with an rsqrt of at most this error in ulp */
};

#endif
