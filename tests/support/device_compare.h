/* device_compare.h - Compares steps on the emulator with the CPU's steps, for tests of kernels. */
#ifndef QM_SUPPORT_DEVICE_COMPARE_H
#define QM_SUPPORT_DEVICE_COMPARE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "experiments/gpu/gpu.h"
#include "tests/support/drawn.h"

enum { STEPS = 3, SEED = 77 };

#define skip_because(...)           \
    do {                            \
        print_message("skipped: "); \
        print_message(__VA_ARGS__); \
        print_message("\n");        \
        skip();                     \
    } while (0)

/* Fails if the emulator's bits are not the CPU's.  Returns QM_SKIPPED if there is no kernel, or the
 * rule refuses the shape. */
static inline qm_status compare(const char *recipe, const struct qm_shape *shape)
{
    struct qm_recipe r;
    char what[256], dims[80];
    if (qm_recipe_parse(recipe, &r) != QM_OK)
        fail_msg("%s: %s", recipe, qm_message());
    if (qm_rule_takes(r.rule, &r.hyper, shape) != QM_OK)
        return QM_SKIPPED;
    qm_status st = qm_exact_compare(&qm_backend_emu, &r, shape, STEPS, SEED, what, sizeof what);
    if (st != QM_OK && st != QM_SKIPPED)
        fail_msg("%s: %s", recipe, qm_message());
    if (*what)
        fail_msg("%s, %s: %s", recipe, qm_shape_print(shape, dims, sizeof dims), what);
    return st;
}

#endif
