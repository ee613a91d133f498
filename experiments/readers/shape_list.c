/* shape_list.c - Loads lists of named shapes from known models, text files and tensor files. */
#include "experiments/readers/shape_list.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/grow.h"
#include "core/base/name.h"
#include "core/base/name_index.h"
#include "experiments/foreign/text_file.h"
#include "experiments/readers/reader.h"

struct list {
    struct qm_model_tensor *tensor;
    int n;
    int64_t room;
    char *remark; /* of qm_shapes_load */
};

static qm_status append(struct list *l, const char *name, const struct qm_shape *shape)
{
    QM_TRY(qm_grow((void **)&l->tensor, &l->room, l->n + 1, sizeof *l->tensor));
    snprintf(l->tensor[l->n].name, sizeof l->tensor[l->n].name, "%s", name);
    l->tensor[l->n++].shape = *shape;
    return QM_OK;
}

/* ---- text ---------------------------------------------------------------------------------- */

static qm_status line_in(const char *path, int number, char *line, const char *filter,
                         struct list *l)
{
    char *save = NULL, *name, *shape, *rest;
    struct qm_shape s;
    line[strcspn(line, "#\r\n")] = '\0';
    if (!(name = strtok_r(line, " \t", &save)))
        return QM_OK;
    shape = strtok_r(NULL, " \t", &save);
    rest = strtok_r(NULL, " \t", &save);
    if (!shape || rest)
        return qm_fail(QM_BAD_FILE, "%s:%d: expected 'name 768x2304', found %s", path, number,
                       shape ? "a third word" : "one word");
    if (strlen(name) >= sizeof l->tensor->name)
        return qm_fail(QM_BAD_FILE, "%s:%d: a name of %zu characters; at most %zu", path, number,
                       strlen(name), sizeof l->tensor->name - 1);
    if (qm_shape_parse(shape, &s) != QM_OK) {
        char where[400];
        snprintf(where, sizeof where, "%s:%d", path, number);
        return qm_fail_in(QM_BAD_FILE, where);
    }
    if (qm_shape_numel(&s) == 0 || !qm_name_matches(name, filter))
        return QM_OK;
    return append(l, name, &s);
}

static qm_status text_file(FILE *f, const char *path, const char *filter, struct list *l)
{
    char *line = NULL;
    size_t room = 0;
    qm_status st = QM_OK;
    for (int number = 1; st == QM_OK && getline(&line, &room, f) >= 0; number++)
        st = line_in(path, number, line, filter, l);
    free(line);
    return st;
}

/* The first 16 bytes of every tensor format that is read include some that no text has (the length
 * before a safetensors header ends in zero bytes). */
static int is_text(FILE *f)
{
    unsigned char head[16];
    size_t n = fread(head, 1, sizeof head, f);
    rewind(f);
    for (size_t i = 0; i < n; i++)
        if (!isspace(head[i]) && (head[i] < 0x20 || head[i] == 0x7f || head[i] >= 0xf8))
            return 0;
    return n > 0 && head[0] < 0x80;
}

/* ---- tensor files -------------------------------------------------------------------------- */

/* The length of the parameter's name in NAME/SLOT where an optimizer of the file trains it; 0: it
 * is no optimizer's. */
static size_t trained(struct qm_file *f, const char *entry)
{
    char path[1200], text[2];
    double lr;
    const char *slash = strrchr(entry, '/');
    size_t n = slash ? (size_t)(slash - entry) : 0;
    snprintf(path, sizeof path, "/%.*s", (int)n, entry);
    return n && n < sizeof path - 1 &&
                   (qm_file_attr_number(f, path, "lr", &lr, 1) == 1 ||
                    qm_file_attr_text(f, path, "no_numbers", text, sizeof text) > 0)
               ? n
               : 0;
}

/* What stands for a trained parameter: NAME/param, or without one its widest state. */
struct parameter {
    int entry, is_param;
};

/* Notes which entry stands for the parameter whose name is the first n characters of e's. */
static qm_status note_parameter(struct qm_file *f, int i, size_t n, struct qm_name_index *at,
                                struct parameter *of)
{
    const struct qm_entry *e = qm_file_entry(f, i);
    int64_t k = qm_name_index_get(at, e->name, n);
    int is_param = strcmp(e->name + n, "/param") == 0;
    if (k < 0) {
        of[at->n] = (struct parameter){i, is_param};
        return qm_name_index_put(at, e->name, n, at->n);
    }
    if (is_param || (!of[k].is_param && e->numel > qm_file_entry(f, of[k].entry)->numel))
        of[k] = (struct parameter){i, is_param};
    return QM_OK;
}

static int is_counted(const struct qm_entry *e, const char *filter)
{
    return qm_dtype_is_float(e->dtype) && e->numel > 0 && qm_name_matches(e->name, filter);
}

/* Whether an entry of a file of `qualm state` is a parameter, of e4m3 too, which is u8 there. */
static int is_stored_parameter(const struct qm_entry *e, const char *filter)
{
    return qm_name_ends(e->name, "/param") && e->numel > 0 && qm_name_matches(e->name, filter);
}

/* The parameters that an optimizer of the checkpoint trains, or that a file of `qualm state` holds;
 * of any other file all tensors of floats. */
static qm_status tensor_file(const char *path, const char *filter, struct list *l)
{
    struct qm_file *f;
    QM_TRY(qm_file_open(path, &f));
    struct qm_name_index at = {NULL, 0, 0};
    qm_file_remark(f, l->remark);
    struct parameter *of = calloc((size_t)qm_file_count(f) + 1, sizeof *of);
    qm_status st = of ? QM_OK : qm_fail(QM_NO_MEMORY, "%s", path);
    for (int i = 0; st == QM_OK && i < qm_file_count(f); i++) {
        size_t n = trained(f, qm_file_entry(f, i)->name);
        if (n && is_counted(qm_file_entry(f, i), filter))
            st = note_parameter(f, i, n, &at, of);
    }
    for (int64_t k = 0; st == QM_OK && k < at.n; k++)
        st = append(l, qm_file_entry(f, of[k].entry)->name, &qm_file_entry(f, of[k].entry)->shape);
    int is_state = qm_file_is_state(f);
    for (int i = 0; st == QM_OK && at.n == 0 && i < qm_file_count(f); i++)
        if (is_state ? is_stored_parameter(qm_file_entry(f, i), filter)
                     : is_counted(qm_file_entry(f, i), filter))
            st = append(l, qm_file_entry(f, i)->name, &qm_file_entry(f, i)->shape);
    if (st == QM_OK)
        st = qm_file_check(f);
    qm_name_index_free(&at);
    free(of);
    qm_file_close(f);
    return st;
}

/* ---- all ----------------------------------------------------------------------------------- */

static qm_status file(const char *path, const char *filter, struct list *l)
{
    struct stat about;
    if (stat(path, &about) != 0)
        return qm_fail(QM_BAD_FILE, "%s: %s; expected a file, or gpt2, llama7b or vit_h", path,
                       strerror(errno));
    if (S_ISDIR(about.st_mode) || qm_name_ends(path, ".index.json"))
        return tensor_file(path, filter, l);
    if (!S_ISREG(about.st_mode))
        return qm_fail(QM_BAD_FILE, "%s: not a regular file", path);
    FILE *f = fopen(path, "re");
    if (!f)
        return qm_fail(QM_BAD_FILE, "%s: %s", path, strerror(errno));
    int text = about.st_size == 0 || is_text(f); /* one of the system's may stay silent for ever */
    fclose(f);
    if (!text)
        return tensor_file(path, filter, l);
    QM_TRY(qm_text_open(path, &f));
    qm_status st = text_file(f, path, filter, l);
    fclose(f);
    return st;
}

static qm_status model(int i, const char *filter, struct list *l)
{
    struct qm_model_tensor *t;
    int n;
    QM_TRY(qm_model_tensors(i, &t, &n));
    qm_status st = QM_OK;
    for (int k = 0; st == QM_OK && k < n; k++)
        if (qm_name_matches(t[k].name, filter))
            st = append(l, t[k].name, &t[k].shape);
    free(t);
    return st;
}

qm_status qm_shapes_load(const char *what, const char *filter, struct qm_model_tensor **out, int *n,
                         char remark[QM_FILE_REMARK])
{
    struct list l = {.remark = remark};
    const char *names[8];
    int models = qm_model_count();
    remark[0] = '\0';
    for (int i = 0; i < models; i++)
        names[i] = qm_model_at(i)->name;
    int which = qm_name_find(what, names, models);
    struct stat about;
    qm_status st;
    if (which >= 0)
        st = model(which, filter, &l);
    else if (stat(what, &about) != 0 && qm_name_nearest(what, names, models))
        st = qm_fail(QM_NO_MATCH, "neither a model nor a file '%s'; did you mean '%s'?", what,
                     qm_name_nearest(what, names, models));
    else
        st = file(what, filter, &l);
    if (st == QM_OK && l.n == 0)
        st = qm_fail(QM_NO_MATCH, "%s: no tensor%s%s", what,
                     filter ? " matches " : " that has elements", filter ? filter : "");
    if (st != QM_OK) {
        free(l.tensor);
        return st;
    }
    *out = l.tensor;
    *n = l.n;
    return QM_OK;
}
