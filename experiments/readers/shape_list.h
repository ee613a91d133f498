/* shape_list.h - lists of named shapes: a known model, a text file, or the entries of a tensor file. */
#ifndef QM_READERS_SHAPE_LIST_H
#define QM_READERS_SHAPE_LIST_H

#include "experiments/readers/known_models.h"

/* what: "gpt2", "llama7b", "vit_h", or a path.  A text file has lines "name 768x2304" ('#' starts
 * a comment); an error names file and line.  Of any other file readers/reader.h takes the shapes
 * of the float tensors.  filter: regular expression on names, or NULL.  Tensors without elements
 * are left out.  QM_NO_MATCH when nothing is left, or for neither a model nor a file; the caller
 * frees *out. */
qm_status qm_shapes_load(const char *what, const char *filter, struct qm_model_tensor **out,
                         int *n);

#endif
