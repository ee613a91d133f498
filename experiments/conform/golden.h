/* golden.h - Reads golden-vector files: groups, attributes and datasets of an HDF5 file, by path.
 *
 * Everything is opened by path, so links of both kinds are followed and a dataset that several
 * cases share is seen by each of them.  Nothing in the file is trusted: sizes are checked before
 * anything is allocated, types are converted from the file's own, an absent object is a status. */
#ifndef QM_CONFORM_GOLDEN_H
#define QM_CONFORM_GOLDEN_H

#include "core/base/tensor.h"

#define QM_GOLDEN_PATH 320 /* longest path of an object, NUL included */

struct qm_golden; /* opaque; owns the file's handle */

/* QM_BAD_FILE with the path and what is wrong: no such file, no HDF5, truncated. */
qm_status qm_golden_open(const char *path, struct qm_golden **out);
void qm_golden_close(struct qm_golden *g); /* accepts NULL */

/* The kind of object at a path ("" or "/" is the root). */
enum qm_golden_kind { QM_GOLDEN_NONE, QM_GOLDEN_GROUP, QM_GOLDEN_DATASET };
enum qm_golden_kind qm_golden_at(struct qm_golden *g, const char *path);

/* Members of a group in the order of their names: the count (0 when it is no group), and the name
 * of member i (0 when there is none or it is longer than size - 1). */
int qm_golden_members(struct qm_golden *g, const char *group);
int qm_golden_member(struct qm_golden *g, const char *group, int i, char *name, size_t size);

/* What the attribute holds: nothing, count numbers, one text, or what is not read here. */
enum qm_golden_attribute { QM_GOLDEN_ABSENT, QM_GOLDEN_NUMBERS, QM_GOLDEN_TEXT, QM_GOLDEN_OTHER };
enum qm_golden_attribute qm_golden_attribute(struct qm_golden *g, const char *path,
                                             const char *name, int64_t *count);

/* The name of attribute i of the object at path, in the file's own order, cut to size - 1 bytes; 0,
 * and an empty name, where there is none. */
int qm_golden_attribute_name(struct qm_golden *g, const char *path, int i, char *out, size_t size);

/* Attributes of the object at path.  numbers: up to max values as doubles; returns how many there
 * are, 0 when it is absent, not numeric, of several dimensions or of more than 4096 numbers.
 * unsigned_number: one 64-bit integer without rounding.  text: truncated to size - 1; returns 0 and
 * an empty text when it is absent, no string, or has more behind a NUL. */
int qm_golden_numbers(struct qm_golden *g, const char *path, const char *name, double *out,
                      int max);
int qm_golden_unsigned(struct qm_golden *g, const char *path, const char *name, uint64_t *out);
int qm_golden_text(struct qm_golden *g, const char *path, const char *name, char *out, size_t size);

/* Shape of a dataset; QM_NO_MATCH when it is absent, QM_BAD_FILE for more dimensions or elements
 * than this program reads (8; 2^28). */
qm_status qm_golden_shape(struct qm_golden *g, const char *path, struct qm_shape *out);

/* All elements of a dataset, converted to f32, f64, i64 or u64.  Floats are never read as integers
 * (QM_BAD_FILE); float16 widens exactly, and 16-bit unsigned integers that are read as f32 or f64
 * are the bits of bfloat16.  The caller provides out[numel]. */
qm_status qm_golden_read(struct qm_golden *g, const char *path, enum qm_dtype want, void *out);

/* Whether values of the dataset at path (name NULL) or of its attribute were read since
 * qm_golden_forget or, before its first call, since the file was opened. */
int qm_golden_was_read(const struct qm_golden *g, const char *path, const char *name);
void qm_golden_forget(struct qm_golden *g);

#endif
