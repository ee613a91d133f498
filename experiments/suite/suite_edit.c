/* suite_edit.c - Changes and frees a suite. */
#include "experiments/suite/suite_yaml.h"

#include <stdlib.h>
#include <string.h>

void qm_suite_free_words(char **word, int n)
{
    for (int i = 0; i < n; i++)
        free(word[i]);
}

void qm_suite_free_axis(struct qm_axis *a)
{
    for (int j = 0; j < a->n; j++) {
        if (a->value[j].label != a->value[j].text)
            free(a->value[j].label);
        free(a->value[j].text);
    }
    free(a->value);
    free(a->key);
}

int qm_suite_axis(const struct qm_suite *s, const char *key)
{
    for (int i = 0; i < s->n_axes; i++)
        if (strcmp(s->axis[i].key, key) == 0)
            return i;
    return -1;
}

void qm_suite_free(struct qm_suite *s)
{
    if (!s)
        return;
    for (int i = 0; i < s->n_axes; i++)
        qm_suite_free_axis(&s->axis[i]);
    for (int i = 0; i < s->n_summaries; i++) {
        struct qm_summary_plan *p = &s->summary[i];
        qm_suite_free_words(p->by, QM_SUITE_BY);
        qm_suite_free_words(p->where_key, QM_SUITE_BY);
        qm_suite_free_words(p->where_label, QM_SUITE_BY);
        qm_suite_free_words(p->value, QM_SUITE_VALUES);
        qm_suite_free_words(p->stat, QM_SUITE_VALUES);
        free(p->name);
        free(p->across);
        free(p->versus_key);
        free(p->versus_label);
        free(p->headline);
    }
    for (int i = 0; i < s->n_expects; i++)
        qm_suite_free_expect(&s->expect[i]);
    for (int i = 0; i < s->n_contrasts; i++)
        qm_suite_free_contrast(&s->contrast[i]);
    qm_suite_free_rates(s);
    qm_suite_free_words(s->data, s->n_data);
    free(s->data);
    free(s->summary);
    free(s->expect);
    free(s->claim);
    free(s->claim_source);
    free(s->data_folder);
    free(s->other_rates);
    free(s->data_remarks);
    free(s->path);
    free(s->stem);
    free(s->title);
    free(s->question);
    free(s->plan);
    free(s);
}

qm_status qm_suite_add_variant(struct qm_suite *s, const char *label, const char *recipe)
{
    struct qm_axis *a = &s->axis[qm_suite_axis(s, "variant")];
    for (int i = 0; i < a->n; i++)
        if (strcmp(a->value[i].label, label) == 0)
            return qm_fail(QM_BAD_ARG, "%s: variant lists '%s' twice", s->path, label);
    struct qm_axis_value *more = realloc(a->value, (size_t)(a->n + 1) * sizeof *more);
    if (!more)
        return qm_fail(QM_NO_MEMORY, "suite");
    a->value = more;
    more[a->n] = (struct qm_axis_value){.line = a->line};
    a->n++;
    QM_TRY(qm_yaml_copy(recipe, &more[a->n - 1].text));
    QM_TRY(qm_yaml_copy(label, &more[a->n - 1].label));
    return qm_suite_print(s);
}

qm_status qm_suite_data(struct qm_suite *s, char *const *globs, int n)
{
    char **data = calloc((size_t)n, sizeof *data);
    if (!data)
        return qm_fail(QM_NO_MEMORY, "suite");
    qm_suite_free_words(s->data, s->n_data);
    free(s->data);
    s->data = data;
    s->n_data = n;
    for (int i = 0; i < n; i++)
        QM_TRY(qm_yaml_copy(globs[i], &s->data[i]));
    return qm_suite_print(s);
}
