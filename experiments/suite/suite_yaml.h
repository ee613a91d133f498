/* suite_yaml.h - Reads nodes of a suite's YAML document, with errors that name file and line. */
#ifndef QM_SUITE_SUITE_YAML_H
#define QM_SUITE_SUITE_YAML_H

#include <yaml.h>

#include "experiments/suite/suite.h"

/* One document that is being read into s. */
struct qm_yaml_walk {
    struct qm_suite *s;
    yaml_document_t doc;
    const char *size;         /* the size that the suite is read at; NULL: normal */
    const yaml_node_t *other; /* the keys that `sizes` gives for this size, or NULL */
};

/* qm_fail with "FILE:LINE: " before the text; the line is that of a node, or given. */
#define qm_yaml_fail(w, node, code, ...) \
    qm_yaml_fail_line((w)->s->path, qm_yaml_line(node), code, __VA_ARGS__)
#define qm_yaml_fail_line(path, line, code, ...) \
    (qm_fail(code, __VA_ARGS__), qm_yaml_place(path, line, code))

/* Puts "FILE:LINE: " before the last message; returns code, or QM_BAD_ARG for QM_NO_MATCH: a
 * misspelt word in a file is a mistake in it. */
qm_status qm_yaml_place(const char *path, int line, qm_status code);

static inline int qm_yaml_line(const yaml_node_t *n) { return (int)n->start_mark.line + 1; }

/* The text of a scalar node. */
static inline const char *qm_yaml_text(const yaml_node_t *n)
{
    return (const char *)n->data.scalar.value;
}

static inline yaml_node_t *qm_yaml_node(struct qm_yaml_walk *w, int id)
{
    return yaml_document_get_node(&w->doc, id);
}

/* The number of items of a list, and item i; any other node counts as a list of itself. */
int qm_yaml_items(const yaml_node_t *n);
const yaml_node_t *qm_yaml_item(struct qm_yaml_walk *w, const yaml_node_t *n, int i);

/* Frees *out and replaces it by a copy of the text, which the caller owns. */
qm_status qm_yaml_copy(const char *text, char **out);
qm_status qm_yaml_scalar(struct qm_yaml_walk *w, const yaml_node_t *n, const char *key, char **out);

qm_status qm_yaml_integer(struct qm_yaml_walk *w, const yaml_node_t *n, const char *key,
                          int64_t least, int64_t *out);

/* Copies a word or a list of words into an array of at most max; *n_out counts them. */
qm_status qm_yaml_words(struct qm_yaml_walk *w, const yaml_node_t *n, const char *key, int max,
                        char **out, int *n_out);

/* Calls fn for each pair of a map; doubled keys are errors.  what: the map's name in messages; at:
 * the node of the key. */
typedef qm_status qm_yaml_pair(struct qm_yaml_walk *w, const char *key, const yaml_node_t *at,
                               const yaml_node_t *value, void *to);
qm_status qm_yaml_pairs(struct qm_yaml_walk *w, const yaml_node_t *map, const char *what,
                        qm_yaml_pair *fn, void *to);

/* ---- suite_tables.c: the keys `summary` and `expect` ----------------------------------------- */

qm_status qm_suite_summaries(struct qm_yaml_walk *w, const yaml_node_t *n);
qm_status qm_suite_expects(struct qm_yaml_walk *w, const yaml_node_t *n);
void qm_suite_free_expect(struct qm_expect *e);

/* Replaces every expectation with `each` by one expectation per value of that axis; call it when
 * all axes are read.  QM_BAD_ARG: the suite has no such axis. */
qm_status qm_suite_spread(struct qm_suite *s);

/* ---- suite_contrast.c: the key `contrast` ---------------------------------------------------- */

qm_status qm_suite_contrasts(struct qm_yaml_walk *w, const yaml_node_t *n);
void qm_suite_free_contrast(struct qm_contrast *c);

/* Checks, when all keys are read, that axes and labels exist and the suite is paired. */
qm_status qm_suite_check_contrasts(const struct qm_suite *s);

/* ---- suite_rates.c: the key `rates` ---------------------------------------------------------- */

qm_status qm_suite_read_rates(struct qm_yaml_walk *w, const yaml_node_t *n);
void qm_suite_free_rates(struct qm_suite *s);

/* ---- suite_axes.c ---------------------------------------------------------------------------- */

/* Reads a key that is an axis: a word, a list of words or of {label: word}, or A..B.  Labels must
 * differ and have no control characters. */
qm_status qm_suite_read_axis(struct qm_yaml_walk *w, const char *key, int line,
                             const yaml_node_t *n, int is_recipe);

/* ---- suite_edit.c ---------------------------------------------------------------------------- */

void qm_suite_free_words(char **word, int n); /* frees the words, not the array */
void qm_suite_free_axis(struct qm_axis *a);

/* QM_BAD_ARG: a variant sets what an axis sets anew, or an axis of whole formats whose labels are
 * the formats has another beside it that sets a part of them. */
qm_status qm_suite_check_keys(const struct qm_suite *s);

#endif
