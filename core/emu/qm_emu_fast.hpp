/* qm_emu_fast.hpp - Quotients and square roots as inexact as mode fast allows.
 *
 * Float32 results are displaced from the true result by up to QM_EMU_DIV_ULP and QM_EMU_ROOT_ULP
 * units in the last place; direction and size are a function of the operands.  The defaults are the
 * limits of the CUDA C++ Programming Guide, mathematical functions: 2 with --prec-div=false, 1 with
 * --prec-sqrt=false.  A GPU is more exact than that nearly everywhere, so a kernel that passes here
 * passes there. */
#ifndef QM_EMU_FAST_HPP
#define QM_EMU_FAST_HPP

#pragma GCC system_header

#ifndef QM_EMU_DIV_ULP
#define QM_EMU_DIV_ULP 2.0
#endif
#ifndef QM_EMU_ROOT_ULP
#define QM_EMU_ROOT_ULP 1.0
#endif

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

inline float quotient(float a, float b)
{
    double x = (double)a / (double)b;
    if (!is_ordinary(x))
        return a / b;
    return displaced(x, QM_EMU_DIV_ULP, way_of(bits<unsigned>(a), bits<unsigned>(b)));
}

inline float root(float a)
{
    double x = sqrt((double)a);
    if (!is_ordinary(x))
        return sqrtf(a);
    return displaced(x, QM_EMU_ROOT_ULP, way_of(bits<unsigned>(a), 7u));
}

struct over_t {
};
constexpr over_t over{};

template <class A> struct dividend {
    A a;
};
template <class A> constexpr dividend<A> operator/(A a, over_t) { return dividend<A>{a}; }
template <class A, class B> constexpr auto operator/(dividend<A> n, B b) { return n.a / b; }
inline float operator/(dividend<float> n, float b) { return quotient(n.a, b); }
} // namespace qm_emu

#define sqrtf(x) qm_emu::root(x)

#endif
