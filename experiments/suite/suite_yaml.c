/* suite_yaml.c - Reads scalars, lists and maps of a suite's YAML document. */
#include "experiments/suite/suite_yaml.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

qm_status qm_yaml_place(const char *path, int line, qm_status code)
{
    char where[512];
    snprintf(where, sizeof where, "%s:%d", path, line);
    return qm_fail_in(code == QM_NO_MATCH ? QM_BAD_ARG : code, where);
}

int qm_yaml_items(const yaml_node_t *n)
{
    if (n->type != YAML_SEQUENCE_NODE)
        return 1;
    return (int)(n->data.sequence.items.top - n->data.sequence.items.start);
}

const yaml_node_t *qm_yaml_item(struct qm_yaml_walk *w, const yaml_node_t *n, int i)
{
    return n->type == YAML_SEQUENCE_NODE ? qm_yaml_node(w, n->data.sequence.items.start[i]) : n;
}

qm_status qm_yaml_copy(const char *text, char **out)
{
    char *c = strdup(text);
    if (!c)
        return qm_fail(QM_NO_MEMORY, "suite");
    free(*out);
    *out = c;
    return QM_OK;
}

qm_status qm_yaml_scalar(struct qm_yaml_walk *w, const yaml_node_t *n, const char *key, char **out)
{
    if (n->type != YAML_SCALAR_NODE)
        return qm_yaml_fail(w, n, QM_BAD_ARG, "'%s' takes one value, not a list or map", key);
    return qm_yaml_copy(qm_yaml_text(n), out);
}

qm_status qm_yaml_integer(struct qm_yaml_walk *w, const yaml_node_t *n, const char *key,
                          int64_t least, int64_t *out)
{
    char *end;
    if (n->type != YAML_SCALAR_NODE)
        return qm_yaml_fail(w, n, QM_BAD_ARG, "'%s' takes one integer", key);
    errno = 0;
    long long x = strtoll(qm_yaml_text(n), &end, 10);
    if (*end || end == qm_yaml_text(n) || errno || x < least)
        return qm_yaml_fail(w, n, QM_BAD_ARG,
                            "'%s' is '%.100s', expected an integer of at least %lld", key,
                            qm_yaml_text(n), (long long)least);
    *out = x;
    return QM_OK;
}

qm_status qm_yaml_words(struct qm_yaml_walk *w, const yaml_node_t *n, const char *key, int max,
                        char **out, int *n_out)
{
    int count = qm_yaml_items(n);
    if (count > max)
        return qm_yaml_fail(w, n, QM_BAD_ARG, "'%s' takes at most %d words", key, max);
    for (int i = 0; i < count; i++) {
        QM_TRY(qm_yaml_scalar(w, qm_yaml_item(w, n, i), key, &out[i]));
        *n_out = i + 1;
    }
    return QM_OK;
}

qm_status qm_yaml_pairs(struct qm_yaml_walk *w, const yaml_node_t *map, const char *what,
                        qm_yaml_pair *fn, void *to)
{
    if (map->type == YAML_SCALAR_NODE && strstr(what, "versus"))
        return qm_yaml_fail(w, map, QM_BAD_ARG,
                            "versus is not a map of keys; expected an axis and its value, such as "
                            "versus: {exp_avg.map: %.60s}",
                            (const char *)map->data.scalar.value);
    if (map->type != YAML_MAPPING_NODE)
        return qm_yaml_fail(w, map, QM_BAD_ARG, "%s is not a map of keys, {KEY: VALUE, ...}", what);
    yaml_node_pair_t *first = map->data.mapping.pairs.start, *last = map->data.mapping.pairs.top;
    for (yaml_node_pair_t *p = first; p < last; p++) {
        const yaml_node_t *key = qm_yaml_node(w, p->key), *value = qm_yaml_node(w, p->value);
        if (key->type != YAML_SCALAR_NODE)
            return qm_yaml_fail(w, key, QM_BAD_ARG, "a key of %s is not a word", what);
        for (yaml_node_pair_t *q = first; q < p; q++)
            if (strcmp(qm_yaml_text(qm_yaml_node(w, q->key)), qm_yaml_text(key)) == 0)
                return qm_yaml_fail(w, key, QM_BAD_ARG, "'%s' appears twice, first on line %d",
                                    qm_yaml_text(key), qm_yaml_line(qm_yaml_node(w, q->key)));
        QM_TRY(fn(w, qm_yaml_text(key), key, value, to));
    }
    return QM_OK;
}
