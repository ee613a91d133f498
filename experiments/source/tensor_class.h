/* tensor_class.h - The class of a tensor, by its name and rank. */
#ifndef QM_SOURCE_TENSOR_CLASS_H
#define QM_SOURCE_TENSOR_CLASS_H

#include "core/base/tensor.h"

/* The class of a tensor by its name and rank: embedding, position, head, attention, mlp, conv, fc,
 * norm/bias (anything of rank < 2), other. */
const char *qm_tensor_class(const char *tensor, const struct qm_shape *shape);
int qm_tensor_class_count(void);
const char *qm_tensor_class_at(int i); /* in the order in which tables list them */

#endif
