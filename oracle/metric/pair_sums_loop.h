/* pair_sums_loop.h - The inner loops of pair_sums.c, included once for each instruction set.
 *
 * The includer defines NAME(x), WIDTH (bytes of a vector register) and TARGET (the function
 * attribute).  A group of 8 lanes is 64 / WIDTH registers; a vector operation rounds each lane as
 * the scalar operation does, and nothing is contracted, so every width gives equal bits. */
typedef double NAME(f64) __attribute__((vector_size(WIDTH)));
typedef float NAME(f32) __attribute__((vector_size(WIDTH / 2)));
typedef int64_t NAME(i64) __attribute__((vector_size(WIDTH)));

#define F       NAME(f64)
#define I       NAME(i64)
#define REGS    (64 / WIDTH)
#define PER_REG (WIDTH / 8)
#define EACH    _Pragma("GCC unroll 4") for (int k = 0; k < REGS; k++)
/* Stores the registers a in the caller's lanes out->to. */
#define PUT(a, to) memcpy(out->to, a, 64)

/* Second pass, about the group's own mean and slope; e: the n errors.  The last n mod 8 elements
 * are taken one by one: the padding (0, 0), which adds nothing to the sums of the first pass, would
 * add mean^2 here. */
TARGET static void NAME(centred_kernel)(const double *restrict want, const double *restrict e_all,
                                        struct lanes *restrict out)
{
    const F zero = {0.0};
    double mean = qm_sum_lanes(out->err) / out->count, slope = lanes_slope(out);
    F spread[REGS] = {zero}, residual[REGS] = {zero};
    const F mean_all = zero + mean, slope_all = zero + slope;
    int whole = (int)out->count & ~7;
    for (int i = 0; i < whole; i += 8)
        EACH
        {
            int at = i + k * PER_REG;
            F x, e;
            memcpy(&x, want + at, sizeof x);
            memcpy(&e, e_all + at, sizeof e);
            F d = e - mean_all, r = e - slope_all * x;
            spread[k] += d * d;
            residual[k] += r * r;
        }
    PUT(spread, spread);
    PUT(residual, residual);
    for (int i = whole; i < (int)out->count; i++) {
        double d = e_all[i] - mean, r = e_all[i] - slope * want[i];
        out->spread[i - whole] += d * d;
        out->residual[i - whole] += r * r;
    }
}

/* All sums over n pairs, n a multiple of 8 and out->count of them real; rel: the largest relative
 * error so far, above which `above` is counted. */
TARGET static void NAME(pair_kernel)(const double *restrict want, const double *restrict got, int n,
                                     double rel, struct lanes *restrict out)
{
    const F zero = {0.0};
    const F half = zero + 0.5, two = zero + 2.0, bound = zero + rel;
    const I magnitude = (I)zero + INT64_MAX, sign = ~magnitude;
    double e_all[QM_PAIR_SUMS_BLOCK];
    F err[REGS] = {zero}, abs_err[REGS] = {zero}, sq_err[REGS] = {zero}, abs_want[REGS] = {zero};
    F sq_want[REGS] = {zero}, cross[REGS] = {zero}, shrink[REGS] = {zero}, lost[REGS] = {zero};
    F flip_abs[REGS] = {zero}, max_err[REGS] = {zero}, max_got[REGS] = {zero};
    I zero_want[REGS] = {(I)zero}, zero_got[REGS] = {(I)zero}, collapsed[REGS] = {(I)zero};
    I flipped[REGS] = {(I)zero}, beyond[REGS] = {(I)zero}, above[REGS] = {(I)zero};

    for (int i = 0; i < n; i += 8)
        EACH
        {
            int at = i + k * PER_REG;
            F x, y;
            memcpy(&x, want + at, sizeof x);
            memcpy(&y, got + at, sizeof y);
            F e = y - x;
            memcpy(e_all + at, &e, sizeof e);
            F ax = (F)((I)x & magnitude), ay = (F)((I)y & magnitude), ae = (F)((I)e & magnitude);
            F along =
                (F)((I)y ^ ((I)x & sign)); /* |y|, negative where the signs of x and y differ */
            err[k] += e;
            abs_err[k] += ae;
            sq_err[k] += e * e;
            abs_want[k] += ax;
            sq_want[k] += x * x;
            cross[k] += x * e;
            shrink[k] += ay - ax;
            I more = max_err[k] > ae, big = max_got[k] > ay;
            max_err[k] = (F)(((I)max_err[k] & more) | ((I)ae & ~more));
            max_got[k] = (F)(((I)max_got[k] & big) | ((I)ay & ~big));
            I x0 = x == zero, y0 = y == zero, flip = (along < zero) & ~x0;
            zero_want[k] -= x0;
            zero_got[k] -= y0;
            collapsed[k] -= y0 & ~x0;
            flipped[k] -= flip;
            beyond[k] -= ((along < half * ax) | (along > two * ax)) & ~x0;
            above[k] |= (ae > bound * ax) & ~x0;
            lost[k] += (F)(y0 & (I)ax);
            flip_abs[k] += (F)(flip & (I)ax);
        }
    PUT(err, err);
    PUT(abs_err, abs_err);
    PUT(sq_err, sq_err);
    PUT(abs_want, abs_want);
    PUT(sq_want, sq_want);
    PUT(cross, cross);
    PUT(shrink, shrink);
    PUT(lost, collapsed_abs);
    PUT(flip_abs, flipped_abs);
    PUT(max_err, max_err);
    PUT(max_got, max_got);
    PUT(zero_want, zero_want);
    PUT(zero_got, zero_got);
    PUT(collapsed, collapsed);
    PUT(flipped, flipped);
    PUT(beyond, beyond);
    PUT(above, above);
    NAME(centred_kernel)(want, e_all, out);
}

/* The sums of level brief alone, in the lanes and order of pair_kernel; n a multiple of 8. */
TARGET static void NAME(brief_kernel)(const double *restrict want, const float *restrict got, int n,
                                      struct lanes *restrict out)
{
    const F zero = {0.0};
    const I magnitude = (I)zero + INT64_MAX;
    F sq_err[REGS] = {zero}, sq_want[REGS] = {zero}, max_err[REGS] = {zero};
    I zero_want[REGS] = {(I)zero}, collapsed[REGS] = {(I)zero};
    for (int i = 0; i < n; i += 8)
        EACH
        {
            int at = i + k * PER_REG;
            F x;
            NAME(f32) narrow;
            memcpy(&x, want + at, sizeof x);
            memcpy(&narrow, got + at, sizeof narrow);
            F y = __builtin_convertvector(narrow, F);
            F e = y - x, ae = (F)((I)e & magnitude);
            sq_err[k] += e * e;
            sq_want[k] += x * x;
            I more = max_err[k] > ae;
            max_err[k] = (F)(((I)max_err[k] & more) | ((I)ae & ~more));
            I x0 = x == zero, y0 = y == zero;
            zero_want[k] -= x0;
            collapsed[k] -= y0 & ~x0;
        }
    PUT(sq_err, sq_err);
    PUT(sq_want, sq_want);
    PUT(max_err, max_err);
    PUT(zero_want, zero_want);
    PUT(collapsed, collapsed);
}

/* Sums of |a| and |b| over the collapsed pairs (got = 0, want not); n a multiple of 8. */
TARGET static void NAME(lost_kernel)(const double *restrict want, const double *restrict got,
                                     const double *restrict a, const double *restrict b, int n,
                                     double sum[2][8])
{
    const F zero = {0.0};
    const I magnitude = (I)zero + INT64_MAX;
    F sum_a[REGS] = {zero}, sum_b[REGS] = {zero};
    for (int i = 0; i < n; i += 8)
        EACH
        {
            int at = i + k * PER_REG;
            F x, y, u, v;
            memcpy(&x, want + at, sizeof x);
            memcpy(&y, got + at, sizeof y);
            memcpy(&u, a + at, sizeof u);
            memcpy(&v, b + at, sizeof v);
            I lost = (y == zero) & ~(x == zero) & magnitude;
            sum_a[k] += (F)(lost & (I)u);
            sum_b[k] += (F)(lost & (I)v);
        }
    memcpy(sum[0], sum_a, 64);
    memcpy(sum[1], sum_b, 64);
}

/* from[n] converted to double. */
TARGET static void NAME(widen_kernel)(const float *restrict from, int n, double *restrict to)
{
    int i = 0;
    for (; i + PER_REG <= n; i += PER_REG) {
        NAME(f32) x;
        memcpy(&x, from + i, sizeof x);
        F y = __builtin_convertvector(x, F);
        memcpy(to + i, &y, sizeof y);
    }
    for (; i < n; i++)
        to[i] = (double)from[i];
}

#undef F
#undef I
#undef REGS
#undef PER_REG
#undef EACH
#undef PUT
#undef NAME
#undef WIDTH
#undef TARGET
