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

inline bool is_ordinary(double x) { return x != 0.0 && fabs(x) < 0x1p127; }
} // namespace qm_emu

#endif
