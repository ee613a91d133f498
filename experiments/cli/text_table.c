/* text_table.c - Text output: aligned tables, and JSON values as text. */
#include "experiments/cli/cli.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct qm_table {
    int columns;
    size_t cells, room;
    char **cell; /* row by row; the first row holds the heads */
};

/* Exits when p is NULL: without memory for a few lines of text nothing useful can follow. */
static void *need(void *p)
{
    if (!p) {
        fputs("qualm: out of memory\n", stderr);
        exit(qm_exit_code(QM_NO_MEMORY));
    }
    return p;
}

static void append_cell(struct qm_table *t, char *text)
{
    if (t->cells == t->room) {
        t->room = t->room ? 2 * t->room : 64;
        t->cell = need(realloc(t->cell, t->room * sizeof *t->cell));
    }
    t->cell[t->cells++] = need(qm_cli_shown(text));
    free(text);
}

struct qm_table *qm_table_open(int n_columns, const char *const *heads)
{
    assert(n_columns > 0);
    struct qm_table *t = need(calloc(1, sizeof *t));
    t->columns = n_columns;
    for (int i = 0; i < n_columns; i++)
        append_cell(t, need(strdup(heads[i])));
    return t;
}

void qm_table_cell(struct qm_table *t, const char *format, ...)
{
    char *text;
    va_list args;
    va_start(args, format);
    int n = vasprintf(&text, format, args);
    va_end(args);
    append_cell(t, need(n < 0 ? NULL : text));
}

static int is_number(const char *text)
{
    char *end;
    if (strcmp(text, "-") == 0)
        return 1;
    strtod(text, &end);
    return end > text && (*end == '\0' || strcmp(end, " %") == 0 || strcmp(end, "%") == 0);
}

void qm_table_close(struct qm_table *t)
{
    size_t columns = (size_t)t->columns, rows = t->cells / columns;
    assert(t->cells % columns == 0);
    int *width = need(calloc(columns, sizeof *width)),
        *right = need(calloc(columns, sizeof *right));
    for (size_t c = 0; c < columns; c++) {
        right[c] = rows > 1;
        for (size_t r = 0; r < rows; r++) {
            const char *text = t->cell[r * columns + c];
            int n = (int)strlen(text);
            width[c] = n > width[c] ? n : width[c];
            right[c] = right[c] && (r == 0 || is_number(text));
        }
    }
    int colour = qm_colour(qm_out());
    for (size_t r = 0; r < rows; r++) {
        fputs(r == 0 && colour ? "\033[1m" : "", qm_out());
        for (size_t c = 0; c < columns; c++) {
            int w = right[c] ? width[c] : c + 1 == columns ? 0 : -width[c];
            qm_print("%s%*s", c ? "  " : "", w, t->cell[r * columns + c]);
        }
        fputs(r == 0 && colour ? "\033[0m\n" : "\n", qm_out());
    }
    for (size_t i = 0; i < t->cells; i++)
        free(t->cell[i]);
    free(t->cell);
    free(width);
    free(right);
    free(t);
}

/* ---- JSON as text -------------------------------------------------------------------------- */

/* "bits_per_param" becomes "bits per param"; the caller frees it. */
static char *spaced(const char *key)
{
    char *text = need(strdup(key));
    for (char *at = text; *at; at++)
        *at = *at == '_' ? ' ' : *at;
    return text;
}

static char *scalar(const json_t *v)
{
    char *text = NULL;
    int n = 0;
    switch (json_typeof(v)) {
    case JSON_STRING: return need(strdup(json_string_value(v)));
    case JSON_INTEGER: n = asprintf(&text, "%lld", (long long)json_integer_value(v)); break;
    case JSON_REAL: n = asprintf(&text, "%.6g", json_real_value(v)); break;
    case JSON_TRUE: return need(strdup("yes"));
    case JSON_FALSE: return need(strdup("no"));
    case JSON_NULL: return need(strdup("-"));
    default: return need(json_dumps(v, JSON_COMPACT)); /* an array inside a table's cell */
    }
    return need(n < 0 ? NULL : text);
}

/* Whether a text is a list: what is between its commas is short, and no sentence. */
static int is_list(const char *text)
{
    enum { ITEM = 40 };
    const char *end;
    for (; (end = strstr(text, ", ")); text = end + 2)
        if (end - text > ITEM)
            return 0;
    return strlen(text) <= ITEM;
}

/* Prints a value that begins in column `at` of its line.  Beyond LINE columns a list goes on, after
 * a comma, in that column of the next line. */
static void value_lines(char *text, int at)
{
    enum { LINE = 120 };
    size_t room = (size_t)(LINE - at);
    while (is_list(text) && strlen(text) > room) {
        char *end = memrchr(text, ' ', room + 1);
        while (end && end > text && end[-1] != ',')
            end = memrchr(text, ' ', (size_t)(end - text));
        if (!end)
            break;
        qm_print("%.*s\n%*s", (int)(end - text), text, at, "");
        text = end + 1;
    }
    qm_print("%s\n", text);
}

/* Prints an object's scalars; returns whether there were any. */
static int object_lines(json_t *object, const char *indent)
{
    const char *key;
    json_t *v;
    int width = 0;
    json_object_foreach (object, key, v)
        if (!json_is_object(v) && !json_is_array(v)) {
            int n = (int)strlen(key);
            width = n > width ? n : width;
        }
    json_object_foreach (object, key, v)
        if (!json_is_object(v) && !json_is_array(v)) {
            char *name = spaced(key), *text = scalar(v), *shown = need(qm_cli_shown(text));
            qm_print("%s%-*s  ", indent, width, name);
            value_lines(shown, (int)strlen(indent) + width + 2);
            free(name);
            free(text);
            free(shown);
        }
    return width > 0;
}

static void value_rows(json_t *array)
{
    for (size_t i = 0; i < json_array_size(array); i++) {
        json_t *v = json_array_get(array, i);
        char *text = json_is_number(v) ? NULL : scalar(v);
        if (text)
            qm_print("  %-14s", text);
        else
            qm_print("  %14.9g", json_number_value(v));
        if (i % 5 == 4 || i + 1 == json_array_size(array))
            putc('\n', qm_out());
        free(text);
    }
}

static void object_table(json_t *array)
{
    json_t *first = json_array_get(array, 0), *v;
    int n = 0;
    const char *key;
    char **head = need(calloc(json_object_size(first) + 1, sizeof *head));
    json_object_foreach (first, key, v)
        head[n++] = spaced(key);
    struct qm_table *t = qm_table_open(n, (const char *const *)head);
    for (size_t i = 0; i < json_array_size(array); i++)
        json_object_foreach (first, key, v) {
            json_t *cell = json_object_get(json_array_get(array, i), key);
            char *text = cell ? scalar(cell) : need(strdup("-"));
            qm_table_cell(t, "%s", text);
            free(text);
        }
    qm_table_close(t);
    while (n > 0)
        free(head[--n]);
    free(head);
}

static void as_text(json_t *value)
{
    if (json_is_array(value)) {
        if (json_is_object(json_array_get(value, 0)))
            object_table(value);
        else
            value_rows(value);
        return;
    }
    int lines = object_lines(value, "");
    const char *key;
    json_t *v;
    json_object_foreach (value, key, v) {
        if ((!json_is_object(v) && !json_is_array(v)) ||
            (json_is_array(v) && json_array_size(v) == 0))
            continue;
        char *name = spaced(key);
        int colour = qm_colour(qm_out());
        fprintf(qm_out(), "%s%s%s%s\n", lines++ ? "\n" : "", colour ? "\033[1m" : "", name,
                colour ? "\033[0m" : "");
        free(name);
        if (json_is_array(v))
            as_text(v);
        else
            object_lines(v, "  ");
    }
}

void qm_report(json_t *value)
{
    if (qm_cli.json) {
        qm_json_print(value);
        return;
    }
    as_text(value);
    json_decref(value);
}
