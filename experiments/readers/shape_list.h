/* shape_list.h - Lists of named shapes: of a known model, a text file or a tensor file. */
#ifndef QM_READERS_SHAPE_LIST_H
#define QM_READERS_SHAPE_LIST_H

#include "experiments/readers/known_models.h"
#include "experiments/readers/reader.h"

/* Loads *n shapes into *out, which the caller frees.  what: "gpt2", "llama7b", "vit_h", or a
 * path.  A text file has lines "name 768x2304" ('#' starts a comment); an error names file and
 * line.  From any other file the float tensors are taken (readers/reader.h).  filter: regular
 * expression on names, or NULL. Tensors without elements are left out.  QM_NO_MATCH: no tensor is
 * left, or `what` is neither a model nor a file.  remark: that of a checkpoint (qm_file_remark);
 * "": none. */
qm_status qm_shapes_load(const char *what, const char *filter, struct qm_model_tensor **out, int *n,
                         char remark[QM_FILE_REMARK]);

#endif
