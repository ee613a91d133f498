/* same_tensors.h - Moments that two files both hold, so that nobody counts them as two. */
#ifndef QM_SOURCE_SAME_TENSORS_H
#define QM_SOURCE_SAME_TENSORS_H

#include "experiments/readers/reader.h"

/* How many moments of f (slot_names.h) have a counterpart in `other`: as many elements, 64 or more,
 * and the same first and last 256 of them, as floats to the bit, which are not all one value.
 * Names do not count.  What cannot be read is no counterpart. */
int qm_same_tensors(struct qm_file *f, struct qm_file *other);

#endif
