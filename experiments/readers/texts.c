/* texts.c - Attributes of a file that are texts under their names, as a header holds them. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/readers/format.h"

enum { ATTRIBUTE_MAX = 1200 }; /* bytes of an attribute's key */

qm_status qm_texts_left_out(struct qm_file *f, const struct qm_left_out *left)
{
    char text[1024];
    if (left->n == 0)
        return QM_OK;
    qm_left_out_text(left, text, sizeof text);
    if (f->n_entries == 0)
        return qm_file_bad(f, "holds no tensors that are read; left out: %s", text);
    const char *before = json_string_value(json_object_get(f->own, "left_out"));
    json_t *texts = f->own ? f->own : json_object();
    json_object_set_new(texts, "left_out",
                        json_sprintf("%s%s%s", before ? before : "", before ? "; " : "", text));
    f->own = texts;
    return QM_OK;
}

void qm_texts_close(struct qm_file *f) { json_decref(f->own); }

/* The text of an attribute: key NAME for "/", PATH@NAME for the rest; NULL: there is none. */
static const json_t *attribute(const struct qm_file *f, const char *path, const char *name)
{
    char key[ATTRIBUTE_MAX];
    int is_root = strcmp(path, "/") == 0;
    int n = snprintf(key, sizeof key, "%s%s%s", is_root ? "" : path, is_root ? "" : "@", name);
    const json_t *value = n < (int)sizeof key ? json_object_get(f->own, key) : NULL;
    return json_is_string(value) ? value : NULL;
}

int qm_texts_text(struct qm_file *f, const char *path, const char *name, char *out, size_t size)
{
    const json_t *value = attribute(f, path, name);
    if (!value)
        return -1;
    size_t length = json_string_length(value), kept = length < size ? length : size - 1;
    if (size > 0) {
        memcpy(out, json_string_value(value), kept);
        out[kept] = '\0';
    }
    return (int)length;
}

/* Hyper-parameter `name` of parameter "/NAME" that `qualm import` wrote, in the text "hyper" of all
 * of them, which is parsed once; NULL: there is none. */
static const json_t *imported(struct qm_file *f, const char *path, const char *name)
{
    static const char key[] = "hyper, parsed"; /* no text, so that no attribute has this name */
    const char *format = json_string_value(json_object_get(f->own, "format"));
    if (!format || strcmp(format, "qualm-import") != 0 || path[0] != '/')
        return NULL;
    if (!json_object_get(f->own, key)) {
        const char *text = json_string_value(json_object_get(f->own, "hyper"));
        json_t *parsed = text ? json_loads(text, 0, NULL) : NULL;
        json_object_set_new(f->own, key, parsed ? parsed : json_object());
    }
    return json_object_get(json_object_get(json_object_get(f->own, key), path + 1), name);
}

/* A text that is one finite number and nothing else. */
int qm_texts_number(struct qm_file *f, const char *path, const char *name, double *out, int max)
{
    const json_t *value = attribute(f, path, name), *number = imported(f, path, name);
    if (!value && json_is_number(number) && max > 0) {
        out[0] = json_number_value(number);
        return 1;
    }
    char *end = NULL;
    double x = value ? strtod(json_string_value(value), &end) : 0.0;
    if (!value || end == json_string_value(value) || *end || !isfinite(x))
        return -1;
    if (max > 0)
        out[0] = x;
    return max > 0;
}
