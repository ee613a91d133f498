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
    X(lanes,   "norms by float32 sums in eight lanes; without it: sums in double, rounded once")    \
    X(zero_l2, "the L2 term is added where weight_decay is 0, too: of a parameter that is not finite " \
               "it is NaN")                                                                         \
    X(foreach, "RAdam: the moment times 1 / ((sqrt(v) + eps) / rate), whose rate is 0 in steps "    \
               "that are not rectified, which then add the plain rate: NaN where sqrt(v) + eps "    \
               "is 0")
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

/* What a judged implementation may do differently from the documented order, and the bounds allow
 * for (oracle/bound).  This list is the only one: README.md, `qualm check --help` and
 * core/abi/kernel_abi.h quote it, and a test compares them. */
/* clang-format off */
#define QM_REORDER_LIST(X)                                                                          \
    X(fma,     "fuse a product and the sum that follows it, the product of a code's value and its " \
               "scale too")                                                                         \
    X(recip,   "multiply by a rounded reciprocal instead of dividing")                              \
    X(average, "form an average b x + (1 - b) y (x the old state, b a beta) as "                    \
               "x + (1 - b) (y - x) or in the two branches of torch.lerp, and w g g in any order")   \
    X(tree,    "add up n numbers in float32, in a tree at most log2 n + 32 + n / 256 deep")         \
    X(fold,    "decay by p (1 - lr wd), p - (lr wd) p or within the step, p - lr (u + wd p); take "  \
               "the bias corrections c1, c2 into the step, lr sqrt(c2) / c1 with eps sqrt(c2); "     \
               "divide v or its root by c2; multiply by lr, and what multiplies it, before or after " \
               "dividing")
/* What is another rule or format, to be judged with another --as. */
#define QM_REORDER_NOT_LIST(X)                                                                      \
    X("scalars (1 - b, b^t, corrections) in float32 where the rule forms them in double")           \
    X("float32 where the rule rounds to bfloat16 (Muon)")                                           \
    X("eps without sqrt(c2) where c2 is taken into the step")                                       \
    X("decay after the step instead of before it")                                                  \
    X("approximate division, roots and exponentials")                                               \
    X("an exponent, fused or of a rounded reciprocal, of a state that is decoded by exp2")
/* clang-format on */

/* Which of them a side that is judged may do; all zero: none. */
struct qm_reorder {
#define X(name, text) int name;
    QM_REORDER_LIST(X)
#undef X
    /* Of inexact hardware, not of the list above. */
    double div_ulp;   /* > 0: largest error of a quotient in ulp, its rounding included */
    double rsqrt_ulp; /* > 0: roots as x rsqrt(x), with an rsqrt of at most this error in ulp */
};

/* All of the list: what a kernel of a user's own may do. */
static inline struct qm_reorder qm_reorder_any(void)
{
    struct qm_reorder r = {
#define X(name, text) .name = 1,
        QM_REORDER_LIST(X)
#undef X
    };
    return r;
}

#endif
