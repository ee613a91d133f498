/* known_models.h - Parameter tensors of well-known models, to compute sizes of optimizer states. */
#ifndef QM_READERS_KNOWN_MODELS_H
#define QM_READERS_KNOWN_MODELS_H

#include "core/base/tensor.h"

struct qm_model_tensor {
    char name[64];
    struct qm_shape shape;
};

struct qm_model {
    const char *name, *summary;
    const char *source; /* where the shapes are published */
    int64_t params;     /* published total; a test compares it with the list */
};

int qm_model_count(void);
const struct qm_model *qm_model_at(int i);

/* The *n tensors of model i, in the order of its parameters(); the caller frees *out. */
qm_status qm_model_tensors(int i, struct qm_model_tensor **out, int *n);

#endif
