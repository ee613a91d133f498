/* distinct_texts.h - The distinct ones of the texts of some rows. */
#ifndef QM_REPORT_DISTINCT_TEXTS_H
#define QM_REPORT_DISTINCT_TEXTS_H

#include <stdint.h>

#include "core/base/status.h"

struct qm_distinct_texts {
    int64_t n, *of; /* of[rows]: which text a row has */
    char **text;    /* [n], borrowed from the rows */
};

/* QM_NO_MEMORY.  The caller frees *out in any case. */
qm_status qm_distinct_texts_make(char **text, int64_t rows, struct qm_distinct_texts *out);
void qm_distinct_texts_free(struct qm_distinct_texts *d);

#endif
