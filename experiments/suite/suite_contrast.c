/* suite_contrast.c - Reads the key `contrast` of a suite: which values of an axis are compared. */
#include "experiments/suite/suite_yaml.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/name.h"

#define FORMS "expected {against: VALUE}, {pairs: all} or {pairs: [[VALUE, VALUE], ...]}"

/* 1: the same two values, in either order. */
static int is_same_pair(char *const a[2], char *const b[2])
{
    for (int k = 0; k < 2; k++)
        if (strcmp(a[0], b[k]) == 0 && strcmp(a[1], b[!k]) == 0)
            return 1;
    return 0;
}

static qm_status named_pairs(struct qm_yaml_walk *w, const yaml_node_t *n, struct qm_contrast *c)
{
    int count = qm_yaml_items(n);
    c->pair = calloc((size_t)(count > 0 ? count : 1), sizeof *c->pair);
    if (!c->pair)
        return qm_fail(QM_NO_MEMORY, "suite");
    for (int i = 0; i < count; i++) {
        const yaml_node_t *two = qm_yaml_item(w, n, i);
        if (two->type != YAML_SEQUENCE_NODE || qm_yaml_items(two) != 2)
            return qm_yaml_fail(w, two, QM_BAD_ARG, "a pair of a contrast is a list of two values");
        c->n_pairs++;
        for (int k = 0; k < 2; k++)
            QM_TRY(qm_yaml_scalar(w, qm_yaml_item(w, two, k), "contrast", &c->pair[i][k]));
        if (strcmp(c->pair[i][0], c->pair[i][1]) == 0)
            return qm_yaml_fail(w, two, QM_BAD_ARG, "contrast: '%s' is paired with itself",
                                c->pair[i][0]);
        for (int j = 0; j < i; j++)
            if (is_same_pair(c->pair[i], c->pair[j]))
                return qm_yaml_fail(w, two, QM_BAD_ARG,
                                    "contrast: the pair of '%s' and '%s' is listed twice",
                                    c->pair[i][0], c->pair[i][1]);
    }
    return QM_OK;
}

static qm_status form(struct qm_yaml_walk *w, const char *key, const yaml_node_t *at,
                      const yaml_node_t *value, void *to)
{
    struct qm_contrast *c = to;
    if (c->against || c->all || c->pair)
        return qm_yaml_fail(w, at, QM_BAD_ARG, "a contrast has one form; " FORMS);
    if (strcmp(key, "against") == 0)
        return qm_yaml_scalar(w, value, "against", &c->against);
    if (strcmp(key, "pairs") != 0)
        return qm_yaml_fail(w, at, QM_BAD_ARG, "no key '%s' in a contrast; " FORMS, key);
    if (value->type == YAML_SEQUENCE_NODE)
        return named_pairs(w, value, c);
    c->all = value->type == YAML_SCALAR_NODE && strcmp(qm_yaml_text(value), "all") == 0;
    return c->all ? QM_OK : qm_yaml_fail(w, value, QM_BAD_ARG, "'pairs'; " FORMS);
}

static qm_status one_axis(struct qm_yaml_walk *w, const char *key, const yaml_node_t *at,
                          const yaml_node_t *value, void *to)
{
    struct qm_suite *s = to;
    struct qm_contrast *c = &s->contrast[s->n_contrasts];
    if (s->n_contrasts == QM_SUITE_AXES)
        return qm_yaml_fail(w, at, QM_BAD_ARG, "more than %d contrasts", QM_SUITE_AXES);
    s->n_contrasts++;
    c->line = qm_yaml_line(at);
    QM_TRY(qm_yaml_copy(key, &c->axis));
    if (value->type != YAML_MAPPING_NODE)
        return qm_yaml_fail(w, value, QM_BAD_ARG, "contrast of '%s': " FORMS, key);
    QM_TRY(qm_yaml_pairs(w, value, "a contrast", form, c));
    return c->against || c->all || c->n_pairs
               ? QM_OK
               : qm_yaml_fail(w, at, QM_BAD_ARG, "'%s': " FORMS, key);
}

qm_status qm_suite_contrasts(struct qm_yaml_walk *w, const yaml_node_t *n)
{
    w->s->has_contrast = 1;
    if (n->type == YAML_SCALAR_NODE && strcmp(qm_yaml_text(n), "none") == 0)
        return QM_OK;
    return qm_yaml_pairs(w, n, "'contrast'", one_axis, w->s);
}

int qm_axis_find(const struct qm_axis *a, const char *label)
{
    for (int i = 0; i < a->n; i++)
        if (strcmp(a->value[i].label, label) == 0)
            return i;
    return -1;
}

int qm_suite_is_format_axis(const struct qm_suite *s, int axis)
{
    const char *key = s->axis[axis].key;
    return strcmp(key, "variant") == 0 || (s->axis[axis].is_recipe && !qm_hyper_has(key));
}

static qm_status check_label(const struct qm_suite *s, const struct qm_contrast *c, int axis,
                             const char *label)
{
    const struct qm_axis *a = &s->axis[axis];
    if (qm_axis_find(a, label) >= 0)
        return QM_OK;
    const char **all = calloc((size_t)a->n, sizeof *all);
    if (!all)
        return qm_fail(QM_NO_MEMORY, "contrast");
    for (int i = 0; i < a->n; i++)
        all[i] = a->value[i].label;
    char what[200];
    snprintf(what, sizeof what, "value of %.100s", c->axis);
    qm_status st = qm_fail_in(qm_name_none_of(what, label, all, a->n), "contrast");
    free(all);
    return qm_yaml_place(s->path, c->line, st);
}

qm_status qm_suite_check_contrasts(const struct qm_suite *s)
{
    for (int i = 0; i < s->n_contrasts; i++) {
        const struct qm_contrast *c = &s->contrast[i];
        int axis = qm_suite_axis(s, c->axis);
        if (!s->paired)
            return qm_yaml_fail_line(s->path, c->line, QM_BAD_ARG,
                                     "'contrast' without 'protocol: paired'");
        if (axis < 0 || !(s->axis[axis].is_recipe || qm_suite_is_format_axis(s, axis)))
            return qm_yaml_fail_line(s->path, c->line, QM_BAD_ARG,
                                     "contrast: '%s' is no axis of variants or recipes", c->axis);
        if (c->against)
            QM_TRY(check_label(s, c, axis, c->against));
        for (int k = 0; k < 2 * c->n_pairs; k++)
            QM_TRY(check_label(s, c, axis, c->pair[k / 2][k % 2]));
    }
    return QM_OK;
}

void qm_suite_free_contrast(struct qm_contrast *c)
{
    for (int k = 0; k < 2 * c->n_pairs; k++)
        free(c->pair[k / 2][k % 2]);
    free(c->pair);
    free(c->against);
    free(c->axis);
}
