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

#include "qm_emu_ulp.hpp"

#ifndef QM_EMU_DIV_ULP
#define QM_EMU_DIV_ULP 2.0
#endif
#ifndef QM_EMU_ROOT_ULP
#define QM_EMU_ROOT_ULP 1.0
#endif

namespace qm_emu
{
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
