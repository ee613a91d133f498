/* h5_attribute.h - Reads attributes of HDF5 objects that other programs may have written.
 *
 * Class, number of values and size are looked at before anything is read.  Each function fails with
 * QM_NO_MATCH where there is no such attribute, and with QM_BAD_FILE where it is not what is asked
 * for; the line names the attribute and not its object (qm_fail_in adds that). */
#ifndef QM_FOREIGN_H5_ATTRIBUTE_H
#define QM_FOREIGN_H5_ATTRIBUTE_H

#include "experiments/foreign/h5_guard.h"

enum qm_h5_attribute { QM_H5_ATTRIBUTE_NUMBER, QM_H5_ATTRIBUTE_TEXT };

/* Which of the two the attribute is: one number, integer or floating point, or one text. */
qm_status qm_h5_attribute_kind(hid_t object, const char *name, enum qm_h5_attribute *out);

qm_status qm_h5_attribute_number(hid_t object, const char *name, double *out);

/* One text, of fixed or variable width, without its padding; the caller frees it. */
qm_status qm_h5_attribute_text(hid_t object, const char *name, char **out);

/* n texts of fixed width, in one allocation, which the caller frees. */
qm_status qm_h5_attribute_texts(hid_t object, const char *name, size_t *n, char ***out);

/* n texts of `width` bytes as pointers and NUL-terminated copies, in one allocation, which the
 * caller frees; NULL: no memory. */
char **qm_h5_texts_of(const char *bytes, size_t n, size_t width);

#endif
