/* unread.c - Finds keys of a suite that no cell of it reads. */
#include "experiments/suite/unread.h"

#include <stdio.h>
#include <string.h>

#include "core/base/name.h"
#include "core/rule/rule.h"

/* ---- what reads a key ------------------------------------------------------------------------ */

static int is_measured(const struct qm_suite *s, const struct qm_cell *c, const char *key)
{
    (void)s;
    const char *slot = c->recipe->rule->n_slots > 0 ? c->recipe->rule->slot[c->slot] : "";
    size_t n = strcspn(key, ".");
    return c->coupling != QM_COUPLING_oneshot || (strncmp(slot, key, n) == 0 && slot[n] == 0);
}

static int makes_update(const struct qm_suite *s, const struct qm_cell *c, const char *key)
{
    (void)s, (void)key;
    return c->coupling != QM_COUPLING_oneshot;
}

static int makes_updates(const struct qm_suite *s, const struct qm_cell *c, const char *key)
{
    return makes_update(s, c, key) && c->coupling != QM_COUPLING_update;
}

static int is_judged(const struct qm_suite *s, const struct qm_cell *c, const char *key)
{
    (void)key;
    return s->paired && c->coupling == QM_COUPLING_closed;
}

static int is_drawn(const struct qm_suite *s, const struct qm_cell *c, const char *key)
{
    (void)s, (void)key;
    return c->kind == QM_SOURCE_dist;
}

/* A key, whether a cell reads it, and which cells do, in words. */
struct read_key {
    const char *key, *by;
    int (*is_read)(const struct qm_suite *s, const struct qm_cell *c, const char *key);
};

#define JUDGED  "cells of coupling closed with 'protocol: paired'"
#define UPDATED "couplings other than oneshot"

/* Keys that are no axes, where the suite gives them (is_given): an `every` of 1 and a `budget` of 0
 * are what a printed plan says of a suite without them. */
static const struct read_key plain[] = {{"delta", JUDGED, is_judged},
                                        {"budget", JUDGED, is_judged},
                                        {"contrast", JUDGED, is_judged},
                                        {"rates", JUDGED, is_judged},
                                        {"every", UPDATED, makes_update}};

/* Axes of the suite; then what the axes of recipes are read by: those of a state, and the rest. */
static const struct read_key axes[] = {
    {"steps", "couplings local, global and closed", makes_updates},
    {"n", "dist: sources", is_drawn},
    {"rounding_seed", UPDATED "; in oneshot seed draws", makes_update},
};
static const struct read_key state = {"", "cells that measure this state", is_measured},
                             rest = {"", UPDATED, makes_update};

static int is_given(const struct qm_suite *s, const char *key)
{
    return strcmp(key, "delta") == 0      ? s->delta > 0.0
           : strcmp(key, "budget") == 0   ? s->budget > 0
           : strcmp(key, "contrast") == 0 ? s->has_contrast
           : strcmp(key, "rates") == 0    ? s->has_rates
                                          : s->every > 1;
}

/* What reads an axis; NULL: every cell does, or refuses it by a reason of its own. */
static const struct read_key *reader_of(const struct qm_axis *a)
{
    static const char *const others[] = {"param", "grad", "state_used", "whole_blocks"};
    for (size_t i = 0; i < sizeof axes / sizeof *axes; i++)
        if (strcmp(a->key, axes[i].key) == 0)
            return &axes[i];
    if (!a->is_recipe)
        return NULL;
    int is_rest = qm_hyper_has(a->key) || qm_name_find(a->key, others, 4) >= 0;
    return is_rest ? &rest : &state;
}

/* ---- looking --------------------------------------------------------------------------------- */

/* Whether some of the cells without a reason reads the key, or all have one. */
static int is_read(const struct qm_suite *s, const struct qm_cell *cell, int64_t n,
                   const struct read_key *k, const char *key)
{
    int is_any = 0;
    for (int64_t i = 0; i < n; i++) {
        if (cell[i].reason)
            continue;
        if (cell[i].kind == QM_SOURCE_empty || k->is_read(s, &cell[i], key))
            return 1;
        is_any = 1;
    }
    return !is_any;
}

void qm_suite_unread(const struct qm_suite *s, const struct qm_cell *cell, int64_t n,
                     char text[QM_UNREAD_TEXT])
{
    text[0] = 0;
    for (size_t i = 0; i < sizeof plain / sizeof *plain && !text[0]; i++)
        if (is_given(s, plain[i].key) && !is_read(s, cell, n, &plain[i], plain[i].key))
            snprintf(text, QM_UNREAD_TEXT, "%s has no effect here: it is for %s", plain[i].key,
                     plain[i].by);
    for (int a = 0; a < s->n_axes && !text[0]; a++) {
        const struct read_key *k = reader_of(&s->axis[a]);
        if (k && !is_read(s, cell, n, k, s->axis[a].key))
            snprintf(text, QM_UNREAD_TEXT, "%s has no effect here: it is for %s", s->axis[a].key,
                     k->by);
    }
}
