/* float8.h - The 8-bit floats of PyTorch and of .safetensors, and the float32 that each code is. */
#ifndef QM_READERS_FLOAT8_H
#define QM_READERS_FLOAT8_H

#include <stdint.h>

/* NAME of torch.float8_NAME, dtype of .safetensors. */
#define QM_FLOAT8_LIST(X)      \
    X(e4m3fn, "F8_E4M3")       \
    X(e5m2, "F8_E5M2")         \
    X(e4m3fnuz, "F8_E4M3FNUZ") \
    X(e5m2fnuz, "F8_E5M2FNUZ") \
    X(e8m0fnu, "F8_E8M0")

enum qm_float8 {
    QM_FLOAT8_none, /* the element is none of them */
#define X(name, dtype) QM_FLOAT8_##name,
    QM_FLOAT8_LIST(X)
#undef X
        QM_FLOAT8_COUNT
};

/* The value of a code, by kind; NULL for none. */
extern float (*const qm_float8_value[QM_FLOAT8_COUNT])(uint8_t code);

#endif
