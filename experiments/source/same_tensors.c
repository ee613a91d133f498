/* same_tensors.c - Compares the ends of the tensors of two files. */
#include "experiments/source/same_tensors.h"

#include "core/base/name.h"
#include "experiments/readers/slot_names.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST = 64, END = 256 };

/* Whether the name ends in that of a moment. */
static int is_moment(const char *name)
{
    for (int s = 0; s < QM_SLOT_NAMES; s++)
        for (const char *const *slot = qm_slot_names(s); *slot; slot++)
            if (qm_name_ends(name, *slot))
                return 1;
    return 0;
}

/* A hash of the number of elements and of both ends; 0: the tensor is not compared. */
static uint64_t mark_of(struct qm_file *f, int i)
{
    float x[2 * END];
    int64_t n = qm_file_entry(f, i)->numel, k = n < END ? n : END;
    uint64_t hash = 0xcbf29ce484222325u ^ (uint64_t)n;
    int is_constant = 1;
    if (n < LEAST || !is_moment(qm_file_entry(f, i)->name) ||
        qm_file_read(f, i, 0, k, x) != QM_OK || qm_file_read(f, i, n - k, k, x + k) != QM_OK)
        return 0;
    for (int64_t j = 0; j < 2 * k; j++) {
        uint32_t bits;
        memcpy(&bits, x + j, sizeof bits);
        is_constant &= memcmp(x, x + j, sizeof *x) == 0;
        hash = (hash ^ bits) * 0x100000001b3u;
    }
    return is_constant ? 0 : hash | 1;
}

static int by_mark(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

int qm_same_tensors(struct qm_file *f, struct qm_file *other)
{
    int m = qm_file_count(other), same = 0;
    uint64_t *mark = calloc((size_t)m + 1, sizeof *mark);
    for (int i = 0; mark && i < m; i++)
        mark[i] = mark_of(other, i);
    if (mark)
        qsort(mark, (size_t)m, sizeof *mark, by_mark);
    for (int i = 0; mark && i < qm_file_count(f); i++) {
        uint64_t own = mark_of(f, i);
        same += own && bsearch(&own, mark, (size_t)m, sizeof *mark, by_mark) != NULL;
    }
    free(mark);
    return same;
}
