/* h5.c - HDF5 helpers: errors, element types, opening files. */
#include "experiments/store/h5.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void qm_h5_quiet(void) { H5Eset_auto2(H5E_DEFAULT, NULL, NULL); }

/* Keeps the first description, which is the innermost. */
static herr_t keep_reason(unsigned n, const H5E_error2_t *e, void *out)
{
    if (n == 0 && e->desc)
        snprintf(out, 400, "%s", e->desc);
    return 0;
}

qm_status qm_h5_fail_at(const char *file, int line, qm_status code, const char *format, ...)
{
    char text[600], reason[400] = "";
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_reason, reason);
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return qm_fail_at(file, line, code, reason[0] ? "%s (HDF5: %s)" : "%s%s", text, reason);
}

void qm_h5_close(hid_t id)
{
    if (id >= 0)
        H5Idec_ref(id);
}

static hid_t bool_type(void)
{
    hid_t t = H5Tenum_create(H5T_STD_I8LE);
    int8_t no = 0, yes = 1;
    if (t >= 0 && (H5Tenum_insert(t, "FALSE", &no) < 0 || H5Tenum_insert(t, "TRUE", &yes) < 0)) {
        qm_h5_close(t);
        return -1;
    }
    return t;
}

/* A 16-bit IEEE-like float: from the top a sign bit, exponent_bits, then the fraction. */
static hid_t half_type(size_t exponent_bits, size_t bias)
{
    size_t fraction_bits = 15 - exponent_bits;
    hid_t t = H5Tcopy(H5T_IEEE_F32LE);
    if (t >= 0 &&
        (H5Tset_fields(t, 15, fraction_bits, exponent_bits, 0, fraction_bits) < 0 ||
         H5Tset_precision(t, 16) < 0 || H5Tset_size(t, 2) < 0 || H5Tset_ebias(t, bias) < 0)) {
        qm_h5_close(t);
        return -1;
    }
    return t;
}

hid_t qm_h5_type(enum qm_dtype d)
{
    switch (d) {
    case QM_DTYPE_f64: return H5Tcopy(H5T_IEEE_F64LE);
    case QM_DTYPE_f32: return H5Tcopy(H5T_IEEE_F32LE);
    case QM_DTYPE_f16: return half_type(5, 15);
    case QM_DTYPE_bf16: return half_type(8, 127);
    case QM_DTYPE_i64: return H5Tcopy(H5T_STD_I64LE);
    case QM_DTYPE_i32: return H5Tcopy(H5T_STD_I32LE);
    case QM_DTYPE_i16: return H5Tcopy(H5T_STD_I16LE);
    case QM_DTYPE_i8: return H5Tcopy(H5T_STD_I8LE);
    case QM_DTYPE_u64: return H5Tcopy(H5T_STD_U64LE);
    case QM_DTYPE_u32: return H5Tcopy(H5T_STD_U32LE);
    case QM_DTYPE_u16: return H5Tcopy(H5T_STD_U16LE);
    case QM_DTYPE_u8: return H5Tcopy(H5T_STD_U8LE);
    case QM_DTYPE_bool: return bool_type();
    case QM_DTYPE_COUNT: break;
    }
    return -1;
}

hid_t qm_h5_native(enum qm_dtype d)
{
    hid_t t = qm_h5_type(d);
    if (t >= 0 && d != QM_DTYPE_bool && H5Tset_order(t, H5Tget_order(H5T_NATIVE_INT)) < 0) {
        qm_h5_close(t);
        return -1;
    }
    return t;
}
