/* unit.h - AXIS unit: how x becomes the unit value y = x / scale (dual).
 *
 * Words: div (not printed), recip, recip_tail. */
#ifndef QM_QUANT_UNIT_H
#define QM_QUANT_UNIT_H

#include "core/base/dual.h"

/* clang-format off */
#define QM_UNIT_LIST(X)                                                                           \
    X(div,        "true division, one rounding (torchao, lpmm)")                                  \
    X(recip,      "multiplication by 1/scale, two roundings (bitsandbytes and adafactor8bit CUDA)") \
    X(recip_tail, "recip, but a short last block divides and stores its raised scale "            \
                  "(bitsandbytes backends/default)")
/* clang-format on */

enum qm_unit {
#define X(name, text) QM_UNIT_##name,
    QM_UNIT_LIST(X)
#undef X
        QM_UNIT_COUNT
};

#endif
