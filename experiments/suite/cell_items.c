/* cell_items.c - Finds the sources of a suite's cells. */
#include "experiments/suite/cell_items.h"

#include <fnmatch.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/grow.h"
#include "experiments/problems/problem_wrapper.h"
#include "experiments/suite/shared.h"
#include "experiments/suite/suite_yaml.h"

qm_status qm_suite_fail_at(const struct qm_suite *s, int line, qm_status st)
{
    return qm_yaml_place(s->path, line, st);
}

static const struct {
    const char *prefix;
    enum qm_source_kind kind;
} kinds[] = {{"states:", QM_SOURCE_states},
             {"trace:", QM_SOURCE_trace},
             {"dist:", QM_SOURCE_dist},
             {"problem:", QM_SOURCE_problem},
             {"empty", QM_SOURCE_empty}};

static enum qm_source_kind kind_of(const char *text, const char **rest)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        size_t n = strlen(kinds[i].prefix);
        if (strncmp(text, kinds[i].prefix, n) == 0) {
            *rest = text + n;
            return kinds[i].kind;
        }
    }
    return QM_SOURCE_none;
}

int qm_suite_wants_data(const struct qm_suite *s)
{
    const struct qm_axis *a = &s->axis[qm_suite_axis(s, "source")];
    const char *rest;
    for (int i = 0; i < a->n; i++) {
        enum qm_source_kind k = kind_of(a->value[i].text, &rest);
        if (k == QM_SOURCE_states || k == QM_SOURCE_trace)
            return 1;
    }
    return 0;
}

/* ---- the list -------------------------------------------------------------------------------- */

static qm_status item_add(struct qm_cell_items *list, const struct qm_cell_item *item)
{
    QM_TRY(qm_grow((void **)&list->item, &list->room, list->n + 1, sizeof *list->item));
    list->item[list->n++] = *item;
    return QM_OK;
}

void qm_cell_items_free(struct qm_cell_items *list)
{
    for (int i = 0; i < list->n; i++) {
        free(list->item[i].reason);
    }
    free(list->item);
}

static qm_status add_text(struct qm_cell_items *list, struct qm_cell_item item, const char *format,
                          ...) __attribute__((format(printf, 3, 4)));

static qm_status add_text(struct qm_cell_items *list, struct qm_cell_item item, const char *format,
                          ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    if (vasprintf(&text, format, args) < 0)
        text = NULL;
    va_end(args);
    item.text = text ? qm_shared_text(text) : NULL;
    free(text);
    return item.text ? item_add(list, &item) : qm_fail(QM_NO_MEMORY, "sources");
}

static qm_status add_recorded(const struct qm_suite *s, const struct qm_replay *replay,
                              struct qm_cell_item base, struct qm_cell_items *list)
{
    int before = list->n, small = 0;
    const char *what = base.kind == QM_SOURCE_trace ? "trace" : "state";
    for (int i = 0; i < qm_replay_count(replay); i++) {
        struct qm_recorded *r = qm_replay_at(replay, i);
        if (r->is_trace != (base.kind == QM_SOURCE_trace) || fnmatch(base.rest, r->name, 0) != 0)
            continue;
        if (r->numel < s->min_numel || r->shape.rank < s->min_rank) {
            small++;
            continue;
        }
        base.recorded = r;
        base.tensor = qm_shared_text(r->tensor);
        if (!base.tensor)
            return qm_fail(QM_NO_MEMORY, "sources");
        QM_TRY(add_text(list, base, "%s:%s", r->file, r->group));
    }
    if (list->n > before)
        return QM_OK;
    base.recorded = NULL;
    base.tensor = NULL;
    int printed = small
                      ? asprintf(&base.reason,
                                 "min_numel %lld and min_rank %d leave out the %d recorded %ss "
                                 "that match '%s'",
                                 (long long)s->min_numel, (int)s->min_rank, small, what, base.rest)
                      : asprintf(&base.reason, "no recorded %s matches '%s'", what, base.rest);
    if (printed < 0)
        return qm_fail(QM_NO_MEMORY, "sources");
    qm_status st =
        add_text(list, base, "%s", s->axis[qm_suite_axis(s, "source")].value[base.value].text);
    if (st != QM_OK)
        free(base.reason);
    return st;
}

/* QM_BAD_ARG: two words are one problem, which tables and families of tests would count twice. */
static qm_status check_problems(const struct qm_suite *s, const struct qm_cell_items *list)
{
    const struct qm_axis_value *value = s->axis[qm_suite_axis(s, "source")].value;
    for (int i = 1; i < list->n; i++)
        for (int k = 0; k < i && list->item[i].problem; k++) {
            const struct qm_cell_item *a = &list->item[k], *b = &list->item[i];
            if (a->problem && qm_problem_is_same(a->problem, a->rest, b->problem, b->rest))
                return qm_suite_fail_at(s, value[b->value].line,
                                        qm_fail(QM_BAD_ARG,
                                                "'source' lists one problem twice: '%s' and '%s'",
                                                value[a->value].text, value[b->value].text));
        }
    return QM_OK;
}

qm_status qm_cell_items_find(const struct qm_suite *s, const struct qm_replay *replay,
                             struct qm_cell_items *list)
{
    const struct qm_axis *a = &s->axis[qm_suite_axis(s, "source")];
    for (int i = 0; i < a->n; i++) {
        const struct qm_axis_value *v = &a->value[i];
        struct qm_cell_item item = {.value = i};
        item.kind = kind_of(v->text, &item.rest);
        qm_status st = QM_OK;
        char name[64];
        switch (item.kind) {
        case QM_SOURCE_states:
        case QM_SOURCE_trace: st = add_recorded(s, replay, item, list); break;
        case QM_SOURCE_empty: st = add_text(list, item, "%s", v->text); break;
        case QM_SOURCE_dist:
            st = qm_shared_dist(item.rest, &item.dist);
            if (st == QM_OK)
                st = add_text(list, item, "%s", v->text);
            break;
        case QM_SOURCE_problem:
            snprintf(name, sizeof name, "%.*s", (int)strcspn(item.rest, ":"), item.rest);
            st = qm_problem_find(name, &item.problem);
            item.rest += strcspn(item.rest, ":");
            item.rest += *item.rest == ':';
            if (st == QM_OK)
                st = qm_problem_wrapper_check(item.problem, item.rest);
            if (st == QM_OK)
                st = add_text(list, item, "%s", v->text);
            break;
        default:
            st = qm_fail(
                QM_BAD_ARG,
                "source '%s' does not start with states:, trace:, dist: or problem:", v->text);
        }
        if (st != QM_OK)
            return qm_suite_fail_at(s, v->line, st);
    }
    return check_problems(s, list);
}
