/* cell_table.c - A hash table of cells by what determines their runs. */
#include "experiments/suite/cell_table.h"

#include <stdlib.h>
#include <string.h>

#include "experiments/suite/shared.h"

enum { WORDS = 12 };

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
           (a->recipe == b->recipe || strcmp(qm_shared_recipe_text(a->recipe),
                                             qm_shared_recipe_text(b->recipe)) == 0);
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

/* The place of c, or the free one where it belongs. */
static uint32_t *place(const struct qm_cell_table *t, const struct qm_cell *cell,
                       const struct qm_cell *c)
{
    uint64_t mask = (uint64_t)t->size - 1, at = hash(c) & mask;
    while (t->at[at] && !is_same(&cell[t->at[at] - 1], c))
        at = (at + 1) & mask;
    return &t->at[at];
}

/* Doubles the table; entries are placed from the old one, which is freed then. */
static qm_status grow(struct qm_cell_table *t, const struct qm_cell *cell)
{
    struct qm_cell_table more = {.size = t->size ? 2 * t->size : 1024, .n = t->n};
    more.at = calloc((size_t)more.size, sizeof *more.at);
    if (!more.at)
        return qm_fail(QM_NO_MEMORY, "cells");
    for (int64_t i = 0; i < t->size; i++)
        if (t->at[i])
            *place(&more, cell, &cell[t->at[i] - 1]) = t->at[i];
    free(t->at);
    *t = more;
    return QM_OK;
}

qm_status qm_cell_table_add(struct qm_cell_table *t, const struct qm_cell *cell, int64_t i,
                            int64_t *same)
{
    if (8 * (t->n + 1) > 7 * t->size)
        QM_TRY(grow(t, cell));
    uint32_t *at = place(t, cell, &cell[i]);
    if (!*at) {
        *at = (uint32_t)i + 1;
        t->n++;
    }
    *same = (int64_t)*at - 1;
    return QM_OK;
}
