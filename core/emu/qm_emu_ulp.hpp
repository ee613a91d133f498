/* qm_emu_ulp.hpp - Displaces a result by units in the last place, as inexact hardware may. */
#ifndef QM_EMU_ULP_HPP
#define QM_EMU_ULP_HPP

#pragma GCC system_header

namespace qm_emu
{
/* x, which must not be near overflow, displaced by way * (ulp - 1/2) units, way in [-1, 1]; then
 * rounded to float32. */
inline float displaced(double x, double ulp, double way)
{
    int e = 0;
    frexp(x, &e);
    double unit = ldexp(1.0, e < -125 ? -149 : e - 24);
    return (float)(x + way * (ulp - 0.5) * unit);
}

/* A number in [-1, 1] that is a hash of the operands' bits. */
inline double way_of(unsigned a, unsigned b)
{
    unsigned h = a * 0x9E3779B1u ^ b * 0x85EBCA77u;
    h ^= h >> 15;
    h *= 0x2C1B3C6Du;
    h ^= h >> 13;
    return (double)(int)h * 0x1p-31;
}

/* 1 or -1, a hash of the operand's bits. */
inline double side_of(float a) { return way_of(bits<unsigned>(a), 13u) < 0.0 ? -1.0 : 1.0; }

inline bool is_ordinary(double x) { return x != 0.0 && fabs(x) < 0x1p127; }

/* The true result x of operand a, off by so many units in the last place (0: rounded). */
inline float off_by(double x, double ulp, float a)
{
    return is_ordinary(x) && ulp > 0.0 ? displaced(x, ulp, side_of(a)) : (float)x;
}

/* The logarithm x of a: off by `error` where a is in [1/2, 2], else by so many units. */
inline float log_of(double x, double error, double ulp, float a)
{
    return a >= 0.5f && a <= 2.0f ? (float)(x + side_of(a) * error) : off_by(x, ulp, a);
}

/* The sine or cosine x of a: off by `error`, and beyond [-pi, pi] by as many times more. */
inline float wave_of(double x, double error, float a)
{
    double most = fmax(1.0, fabs((double)a) * 0.31830988618379067);
    return (float)(x + side_of(a) * error * most);
}
} // namespace qm_emu

#endif
