/* distinct_texts.c - Finds the distinct ones of the texts of some rows. */
#include "experiments/report/distinct_texts.h"

#include <stdlib.h>
#include <string.h>

qm_status qm_distinct_texts_make(char **text, int64_t rows, struct qm_distinct_texts *out)
{
    out->of = calloc((size_t)rows + 1, sizeof *out->of);
    out->text = calloc((size_t)rows + 1, sizeof *out->text);
    for (int64_t i = 0; out->of && out->text && i < rows; i++) {
        while (out->of[i] < out->n && strcmp(out->text[out->of[i]], text[i]) != 0)
            out->of[i]++;
        out->text[out->of[i]] = text[i];
        out->n += out->of[i] == out->n;
    }
    return out->of && out->text ? QM_OK : qm_fail(QM_NO_MEMORY, "%lld rows", (long long)rows);
}

void qm_distinct_texts_free(struct qm_distinct_texts *d)
{
    free(d->of);
    free(d->text);
}
