/* cell_table.c - A hash table of cells by what determines their runs. */
#include "experiments/suite/cell_table.h"

#include <stdlib.h>
#include <string.h>

#include "experiments/suite/shared.h"

enum { WORDS = 12, TAG = 24 };
static const uint32_t INDEX = (1u << TAG) - 1;
_Static_assert(QM_SUITE_CELLS < (1 << TAG) - 1, "an index and one more fit below the tag");

static uint64_t bits_of(double x)
{
    uint64_t b;
    memcpy(&b, &x, sizeof b);
    return b;
}

/* What determines a run, beside the text of the recipe. */
static void words_of(const struct qm_cell *c, uint64_t w[WORDS])
{
    const uint64_t all[WORDS] = {(uint64_t)(uintptr_t)c->source_text,
                                 (uint64_t)c->instance,
                                 c->seed,
                                 c->rounding_seed,
                                 bits_of(c->lr_scale),
                                 bits_of(c->rate),
                                 bits_of(c->clip),
                                 (uint64_t)c->warmup,
                                 (uint64_t)c->steps,
                                 (uint64_t)c->schedule << 32 | c->decay_rank,
                                 (uint64_t)c->coupling << 32 | c->start_ulp,
                                 c->slot};
    memcpy(w, all, sizeof all);
}

static int is_same(const struct qm_cell *a, const struct qm_cell *b)
{
    uint64_t x[WORDS], y[WORDS];
    words_of(a, x);
    words_of(b, y);
    return memcmp(x, y, sizeof x) == 0 &&
           (a->recipe == b->recipe ||
            strcmp(qm_shared_recipe_text(a->recipe), qm_shared_recipe_text(b->recipe)) == 0);
}

/* The finalizer of MurmurHash3 over the words, one after the other. */
static uint64_t hash(const struct qm_cell *c)
{
    uint64_t w[WORDS], h = qm_shared_recipe_hash(c->recipe);
    words_of(c, w);
    for (int i = 0; i < WORDS; i++) {
        h ^= w[i];
        h = (h ^ h >> 33) * 0xff51afd7ed558ccdu;
        h = (h ^ h >> 33) * 0xc4ceb9fe1a85ec53u;
        h ^= h >> 33;
    }
    return h;
}

/* The place of cell i, or the free one where it belongs, and what it holds then: 1 + i below eight
 * bits of the hash, so that most other cells are passed without a look at them. */
static uint32_t *place(const struct qm_cell_table *t, const struct qm_cell *cell, int64_t i,
                       uint32_t *word)
{
    uint64_t mask = (uint64_t)t->size - 1, h = hash(&cell[i]), at = h & mask;
    uint32_t tag = (uint32_t)(h >> 56) << TAG;
    *word = tag | ((uint32_t)i + 1);
    for (; t->at[at]; at = (at + 1) & mask)
        if ((t->at[at] & ~INDEX) == tag && is_same(&cell[(t->at[at] & INDEX) - 1], &cell[i]))
            break;
    return &t->at[at];
}

/* Makes a table of twice the size with cells 0 to n - 1, in their order. */
static qm_status grow(struct qm_cell_table *t, const struct qm_cell *cell, int64_t n)
{
    int64_t size = t->size ? 2 * t->size : 1024;
    free(t->at);
    *t = (struct qm_cell_table){.at = calloc((size_t)size, sizeof *t->at), .size = size};
    if (!t->at)
        return qm_fail(QM_NO_MEMORY, "cells");
    for (int64_t i = 0; i < n; i++) {
        uint32_t word, *at = place(t, cell, i, &word);
        t->n += !*at;
        *at = *at ? *at : word;
    }
    return QM_OK;
}

qm_status qm_cell_table_add(struct qm_cell_table *t, const struct qm_cell *cell, int64_t i,
                            int64_t *same)
{
    uint32_t word;
    if (4 * (t->n + 1) > 3 * t->size)
        QM_TRY(grow(t, cell, i));
    uint32_t *at = place(t, cell, i, &word);
    t->n += !*at;
    *at = *at ? *at : word;
    *same = (int64_t)(*at & INDEX) - 1;
    return QM_OK;
}
