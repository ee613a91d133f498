/* suite_axes.c - Reads an axis of a suite: its values, their labels, and ranges. */
#include "core/base/name.h"
#include "experiments/suite/suite_yaml.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Whether a text has no control characters: labels are printed in lines of tables and figures. */
static int is_one_line(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            return 0;
    return 1;
}

/* Reads one value of an axis: a scalar, or a map of one pair, label: value. */
static qm_status axis_value(struct qm_yaml_walk *w, const yaml_node_t *n, const char *key,
                            struct qm_axis_value *v)
{
    const yaml_node_t *value = n;
    v->line = qm_yaml_line(n);
    if (n->type == YAML_MAPPING_NODE &&
        n->data.mapping.pairs.top - n->data.mapping.pairs.start == 1) {
        const yaml_node_t *label = qm_yaml_node(w, n->data.mapping.pairs.start->key);
        value = qm_yaml_node(w, n->data.mapping.pairs.start->value);
        if (label->type == YAML_SCALAR_NODE)
            QM_TRY(qm_yaml_copy(qm_yaml_text(label), &v->label));
    }
    if (value->type != YAML_SCALAR_NODE || (value != n && !v->label))
        return qm_yaml_fail(w, n, QM_BAD_ARG, "a value of '%s' is neither a word nor 'label: word'",
                            key);
    QM_TRY(qm_yaml_copy(qm_yaml_text(value), &v->text));
    if (!v->label)
        v->label = v->text;
    return is_one_line(v->label)
               ? QM_OK
               : qm_yaml_fail(w, n, QM_BAD_ARG, "a label of '%s' has a control character", key);
}

static int by_label(const void *x, const void *y)
{
    const struct qm_axis_value *a = *(struct qm_axis_value *const *)x;
    const struct qm_axis_value *b = *(struct qm_axis_value *const *)y;
    int order = strcmp(a->label, b->label);
    return order ? order : (a > b) - (a < b);
}

/* By the number that a label is; words, and values with labels of their own, behind them by
 * label. */
static int by_number(const void *x, const void *y)
{
    const struct qm_axis_value *v[2] = {*(struct qm_axis_value *const *)x,
                                        *(struct qm_axis_value *const *)y};
    double number[2];
    for (int k = 0; k < 2; k++) {
        char *end;
        number[k] = strtod(v[k]->label, &end);
        if (v[k]->label != v[k]->text || end == v[k]->label || *end || isnan(number[k]))
            number[k] = HUGE_VAL;
    }
    return number[0] < number[1]   ? -1
           : number[0] > number[1] ? 1
           : isinf(number[0])      ? by_label(x, y)
                                   : 0;
}

/* Checks that no label appears twice, by sorting: a suite may list 100,000 seeds one by one. */
static qm_status check_labels(const struct qm_suite *s, const struct qm_axis *a)
{
    const struct qm_axis_value **sorted = calloc((size_t)a->n, sizeof *sorted), *twice = NULL;
    if (!sorted)
        return qm_fail(QM_NO_MEMORY, "suite");
    for (int i = 0; i < a->n; i++)
        sorted[i] = &a->value[i];
    qsort(sorted, (size_t)a->n, sizeof *sorted, by_label);
    for (int i = 1; i < a->n; i++)
        if (strcmp(sorted[i]->label, sorted[i - 1]->label) == 0 && (!twice || sorted[i] < twice))
            twice = sorted[i];
    qsort(sorted, (size_t)a->n, sizeof *sorted, by_number);
    for (int i = 1; i < a->n && !twice; i++) /* 1 and 1.0 */
        twice = by_number(&sorted[i - 1], &sorted[i]) == 0 ? sorted[i] : NULL;
    free(sorted);
    return twice ? qm_yaml_fail_line(s->path, twice->line, QM_BAD_ARG, "'%s' lists '%s' twice",
                                     a->key, twice->label)
                 : QM_OK;
}

/* How many values one item of an axis gives, and the first one where it is a range such as "1..16"
 * of whole numbers: *first = -1 where it is none. */
static qm_status range_of(struct qm_yaml_walk *w, const char *key, const yaml_node_t *n,
                          int64_t *count, int64_t *first)
{
    enum { AT_MOST = 1000000 };
    const char *text = n->type == YAML_SCALAR_NODE ? qm_yaml_text(n) : "";
    long long a, b;
    int end = 0;
    *count = 1;
    *first = -1;
    if (!isdigit((unsigned char)text[0]) || !strstr(text, ".."))
        return QM_OK;
    errno = 0;
    if (sscanf(text, "%lld..%lld%n", &a, &b, &end) != 2 || text[end] || errno || b < a ||
        b - a >= AT_MOST)
        return qm_yaml_fail(w, n, QM_BAD_ARG,
                            "'%s' is '%.100s', expected FROM..TO of whole numbers with FROM <= TO, "
                            "at most %d of them (1..4 lists four)",
                            key, text, AT_MOST);
    *first = a;
    *count = b - a + 1;
    return QM_OK;
}

static qm_status range_values(const yaml_node_t *n, int64_t first, int64_t count,
                              struct qm_axis_value *out)
{
    for (int64_t i = 0; i < count; i++) {
        char text[24];
        snprintf(text, sizeof text, "%lld", (long long)(first + i));
        out[i].line = qm_yaml_line(n);
        QM_TRY(qm_yaml_copy(text, &out[i].text));
        out[i].label = out[i].text;
    }
    return QM_OK;
}

qm_status qm_suite_read_axis(struct qm_yaml_walk *w, const char *key, int line,
                             const yaml_node_t *n, int is_recipe)
{
    struct qm_suite *s = w->s;
    int items = qm_yaml_items(n);
    int64_t total = 0, count = 1, first = -1;
    if (s->n_axes == QM_SUITE_AXES)
        return qm_yaml_fail_line(s->path, line, QM_BAD_ARG, "more than %d axes", QM_SUITE_AXES);
    if (items == 0)
        return qm_yaml_fail_line(s->path, line, QM_BAD_ARG, "'%s' is an empty list", key);
    for (int i = 0; i < items; i++) {
        if (!is_recipe)
            QM_TRY(range_of(w, key, qm_yaml_item(w, n, i), &count, &first));
        total += count;
    }
    if (total > INT32_MAX)
        return qm_yaml_fail_line(s->path, line, QM_BAD_ARG, "'%s' lists more than %d values", key,
                                 INT32_MAX);
    struct qm_axis *a = &s->axis[s->n_axes++];
    a->line = line;
    a->is_recipe = is_recipe;
    a->value = calloc((size_t)total, sizeof *a->value);
    if (!a->value)
        return qm_fail(QM_NO_MEMORY, "suite");
    QM_TRY(qm_yaml_copy(key, &a->key));
    a->n = (int)total;
    struct qm_axis_value *out = a->value;
    for (int i = 0; i < items; i++, out += count) {
        const yaml_node_t *item = qm_yaml_item(w, n, i);
        if (!is_recipe)
            QM_TRY(range_of(w, key, item, &count, &first));
        QM_TRY(first < 0 ? axis_value(w, item, key, out) : range_values(item, first, count, out));
    }
    return items == 1 && first >= 0 ? QM_OK : check_labels(s, a);
}

/* ---- keys that set the same ------------------------------------------------------------------ */

/* Whether the labels of an axis are the formats themselves, and not names. */
static int says_format(const struct qm_axis *a)
{
    for (int i = 0; i < a->n; i++)
        if (strcmp(a->value[i].label, a->value[i].text) == 0)
            return 1;
    return 0;
}

/* What a variant sets itself, and the suite's axis, too. */
static qm_status check_variant(const struct qm_suite *s, const struct qm_axis_value *v,
                               const struct qm_axis *a)
{
    char own[64];
    size_t n = strlen(v->text);
    int is_same = qm_key_in(v->text, n, a->key);
    if (is_same)
        snprintf(own, sizeof own, "%.63s", a->key);
    for (const char *at = strchr(v->text, ','); at && !is_same; at = strchr(at + 1, ',')) {
        snprintf(own, sizeof own, "%.*s", (int)strcspn(at + 1, "=,"), at + 1);
        is_same = qm_key_is_part(own, a->key) || qm_key_is_part(a->key, own);
    }
    return is_same ? qm_yaml_fail_line(s->path, v->line, QM_BAD_ARG,
                                       "variant '%.100s' sets %s, and the suite's '%s' sets it "
                                       "anew: expected one of them",
                                       v->label, own, a->key)
                   : QM_OK;
}

qm_status qm_suite_check_keys(const struct qm_suite *s)
{
    const struct qm_axis *variant = &s->axis[qm_suite_axis(s, "variant")];
    for (int k = 0; k < s->n_axes; k++) {
        const struct qm_axis *a = &s->axis[k];
        for (int i = 0; a->is_recipe && a != variant && i < variant->n; i++)
            QM_TRY(check_variant(s, &variant->value[i], a));
        for (int j = 0; j < s->n_axes; j++)
            if (a->n > 1 && s->axis[j].n > 1 && qm_key_is_part(s->axis[j].key, a->key) &&
                says_format(a))
                return qm_yaml_fail_line(s->path, a->line, QM_BAD_ARG,
                                         "'%s' lists formats, of which '%s' sets a part anew: "
                                         "expected names for them (- NAME: FORMAT), or one of the "
                                         "two keys",
                                         a->key, s->axis[j].key);
    }
    return QM_OK;
}
