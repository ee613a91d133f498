/* expect_near.h - Fails a test where a double is not near the expected one. */
#ifndef QM_SUPPORT_EXPECT_NEAR_H
#define QM_SUPPORT_EXPECT_NEAR_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

static inline void expect_near(double got, double want, double relative)
{
    if (!(fabs(got - want) <= relative * fabs(want)))
        fail_msg("got %.17g, want %.17g", got, want);
}

#endif
