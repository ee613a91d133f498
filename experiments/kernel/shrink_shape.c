/* shrink_shape.c - Reduces the shape: dimensions, blocks, rows, columns, elements. */
#include <stdlib.h>

#include "experiments/kernel/shrink_parts.h"

void qm_shrink_flatten(struct qm_shrink *s)
{
    const struct qm_trial *t = &s->out->trial;
    struct qm_shape flat = {1, {t->n}};
    struct qm_trial candidate;
    int64_t *map = malloc(sizeof *map * (size_t)(t->n + 1));
    for (int64_t i = 0; i < t->n && map; i++)
        map[i] = i;
    if (t->shape.rank != 1 && map && qm_trial_remap(t, &flat, map, &candidate) == QM_OK)
        qm_shrink_take(s, &candidate);
    free(map);
}

/* Keeps indices [from, to) of an axis, or all others; 1: the trial still fails. */
static int slice(struct qm_shrink *s, int axis, int64_t from, int64_t to, int keeps)
{
    const struct qm_trial *t = &s->out->trial;
    struct qm_shape shape = t->shape;
    struct qm_trial candidate;
    int64_t inner = 1, length = t->shape.dim[axis], n = 0, kept = keeps ? to - from : 0;
    for (int a = axis + 1; a < shape.rank; a++)
        inner *= shape.dim[a];
    shape.dim[axis] = keeps ? kept : length - (to - from);
    if (shape.dim[axis] == length)
        return 0;
    int64_t *map = malloc(sizeof *map * (size_t)(t->n + 1));
    for (int64_t i = 0; i < t->n && map; i++) {
        int64_t at = i / inner % length;
        if ((at >= from && at < to) == keeps)
            map[n++] = i;
    }
    int done =
        map && qm_trial_remap(t, &shape, map, &candidate) == QM_OK && qm_shrink_take(s, &candidate);
    free(map);
    return done;
}

/* The element of the finding, or -1. */
static int64_t element(const struct qm_shrink *s)
{
    const struct qm_finding *f = &s->out->attempt.finding;
    const struct qm_trial *t = &s->out->trial;
    int64_t block = qm_trial_block(t), at = f->at;
    if (s->first.how != QM_CASE_failed || f->slot < QM_SLOT_PARAM || at < 0)
        return -1;
    if (f->slot >= 0 && t->slot_n[f->slot] != t->n)
        return -1;
    if (f->place == QM_PLACE_SCALE && t->shape.rank == 2) /* of rank1: rows, then columns */
        at = at < t->shape.dim[0] ? at * t->shape.dim[1] : at - t->shape.dim[0];
    else if (f->place == QM_PLACE_SCALE)
        at = t->shape.rank == 1 && block > 0 ? at * block : -1;
    return at < t->n ? at : -1;
}

/* Keeps `length` elements of a 1-D tensor: from the element of the finding on, or up to it; without
 * such an element, the first or the last. */
static int window(struct qm_shrink *s, int64_t length)
{
    const struct qm_trial *t = &s->out->trial;
    int64_t at = element(s), n = t->shape.dim[0], on = at < 0 ? 0 : at, up = at < 0 ? n - 1 : at;
    if (t->shape.rank != 1 || length >= n)
        return 0;
    return (on + length <= n && slice(s, 0, on, on + length, 1)) ||
           (up + 1 >= length && slice(s, 0, up + 1 - length, up + 1, 1));
}

/* Tries the lengths from..to in order; so a failure that depends on the length (n % 5 == 2) is
 * found. */
static int windows(struct qm_shrink *s, int64_t from, int64_t to)
{
    for (int64_t length = from; length <= to && !qm_shrink_is_over(s); length++)
        if (window(s, length))
            return 1;
    return 0;
}

/* Keeps the block of the finding alone, or on an axis without blocks its index alone. */
static int localize(struct qm_shrink *s, int axis)
{
    const struct qm_trial *t = &s->out->trial;
    int64_t at = element(s), block = t->shape.rank == 1 ? qm_trial_block(t) : 1, inner = 1;
    if (at < 0)
        return 0;
    for (int a = axis + 1; a < t->shape.rank; a++)
        inner *= t->shape.dim[a];
    at = at / inner % t->shape.dim[axis];
    block = block > 0 ? block : 1;
    int64_t from = at / block * block, to = from + block;
    int64_t length = t->shape.dim[axis];
    if (slice(s, axis, from, to < length ? to : length, 1))
        return 1;
    return to < length && slice(s, axis, to, length, 0);
}

int qm_shrink_guess(struct qm_shrink *s)
{
    int64_t block = qm_trial_block(&s->out->trial);
    int found = windows(s, 1, 8);
    for (int axis = 0; axis < s->out->trial.shape.rank; axis++)
        found |= s->out->trial.n > 8 && localize(s, axis);
    return found || windows(s, 9, 33) || (block > 0 && windows(s, block - 1, block + 1));
}

/* Removes runs of indices, half of them first, and whole blocks while a run is longer than one
 * block.  Where the finding is no number, only the first and the last run are tried. */
static int shorten(struct qm_shrink *s, int axis)
{
    const struct qm_trial *t = &s->out->trial;
    int is_number = s->first.how == QM_CASE_failed && s->first.finding.slot >= QM_SLOT_PARAM;
    int64_t block = t->shape.rank == 1 ? qm_trial_block(t) : 1, before = t->shape.dim[axis];
    for (int64_t run = before / 2 > 0 ? before / 2 : 1; run >= 1; run /= 2) {
        int64_t step = block > 1 && run > block ? run / block * block : run;
        for (int64_t from = 0; from < t->shape.dim[axis] && !qm_shrink_is_over(s);) {
            int64_t length = t->shape.dim[axis], to = from + step < length ? from + step : length;
            if (to - from < length && slice(s, axis, from, to, 0))
                continue;
            from += is_number || from > 0 || length <= 2 * step ? step : length - step;
        }
    }
    return t->shape.dim[axis] < before;
}

void qm_shrink_axes(struct qm_shrink *s)
{
    const struct qm_trial *t = &s->out->trial;
    for (int axis = 0; axis < t->shape.rank && t->shape.rank > 1; axis++) {
        struct qm_shape shape = {.rank = t->shape.rank - 1};
        struct qm_trial candidate;
        for (int a = 0, b = 0; a < t->shape.rank; a++)
            if (a != axis)
                shape.dim[b++] = t->shape.dim[a];
        int64_t *map = malloc(sizeof *map * (size_t)(t->n + 1));
        for (int64_t i = 0; i < t->n && map; i++)
            map[i] = i;
        if (map && t->shape.dim[axis] == 1 && qm_trial_remap(t, &shape, map, &candidate) == QM_OK &&
            qm_shrink_take(s, &candidate))
            axis--;
        free(map);
    }
}

void qm_shrink_elements(struct qm_shrink *s)
{
    for (int more = 1; more && !qm_shrink_is_over(s);) {
        more = 0;
        for (int axis = 0; axis < s->out->trial.shape.rank; axis++)
            more |= shorten(s, axis);
        more &= s->out->trial.n < 4096; /* one pass is enough for many elements */
    }
}
