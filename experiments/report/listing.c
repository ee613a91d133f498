/* listing.c - Lists the datasets of a result file and the attributes of its provenance. */
#include "experiments/report/listing.h"

#include <stdlib.h>
#include <string.h>

#include "experiments/foreign/file_sum.h"
#include "experiments/foreign/h5_attribute.h"
#include "experiments/foreign/h5_chunks.h"
#include "experiments/foreign/h5_guard.h"
#include "experiments/foreign/reader_process.h"
#include "experiments/store/h5.h"

enum { CACHE = 1 << 20, VALUE = 1024, ROOM = 64 << 20 };

/* The list of n entries with one more, zeroed entry; NULL without memory, when the list
 * stays valid. */
static void *grow(void *list, int n, size_t size)
{
    char *more = realloc(list, (size_t)(n + 1) * size);
    if (more)
        memset(more + (size_t)n * size, 0, size);
    return more;
}

static struct qm_listed_set *add_set(struct qm_listing *l)
{
    struct qm_listed_set *more = grow(l->set, l->n, sizeof *more);
    l->set = more ? more : l->set;
    return more ? &more[l->n] : NULL;
}

static struct qm_listed_fact *add_fact(struct qm_listing *l)
{
    struct qm_listed_fact *more = grow(l->fact, l->n_facts, sizeof *more);
    l->fact = more ? more : l->fact;
    return more ? &more[l->n_facts] : NULL;
}

/* Writes an attribute of one text or number as text; "" where it is missing. */
static qm_status attribute(hid_t object, const char *name, char *out, size_t size)
{
    enum qm_h5_attribute kind;
    double number;
    char *text;
    out[0] = 0;
    if (H5Aexists(object, name) <= 0)
        return QM_OK;
    QM_TRY(qm_h5_attribute_kind(object, name, &kind));
    if (kind == QM_H5_ATTRIBUTE_NUMBER) {
        QM_TRY(qm_h5_attribute_number(object, name, &number));
        snprintf(out, size, "%.17g", number);
    } else {
        QM_TRY(qm_h5_attribute_text(object, name, &text));
        snprintf(out, size, "%s", text);
        free(text);
    }
    return QM_OK;
}

/* ---- datasets ------------------------------------------------------------------------------ */

static void shape_text(hid_t space, int is_table, char *out, size_t size)
{
    hsize_t dim[H5S_MAX_RANK];
    int rank = H5Sget_simple_extent_dims(space, dim, NULL);
    size_t n = 0;
    out[0] = 0;
    for (int i = 0; i < rank && n < size; i++)
        n += (size_t)snprintf(out + n, size - n, "%s%llu", i ? " \xc3\x97 " : "",
                              (unsigned long long)dim[i]);
    if (is_table && n < size)
        snprintf(out + n, size - n, " rows");
}

struct visiting {
    struct qm_listing *l;
    qm_status st; /* of a dataset that cannot be as it claims */
};

/* Refuses what is no hard link: its data would lie elsewhere, or be shown twice. */
static herr_t visit_link(hid_t file, const char *name, const H5L_info_t *info, void *context)
{
    struct visiting *v = context;
    (void)file;
    qm_reader_progress();
    if (info->type == H5L_TYPE_EXTERNAL)
        v->st =
            qm_fail(QM_BAD_FILE, "'%.200s' leads out of the file, expected a dataset of it", name);
    else if (info->type != H5L_TYPE_HARD)
        v->st = qm_fail(QM_BAD_FILE, "'%.200s' is a link, expected what it leads to", name);
    return v->st != QM_OK;
}

static herr_t visit(hid_t file, const char *name, const H5O_info_t *info, void *context)
{
    struct visiting *v = context;
    struct qm_listing *l = v->l;
    qm_reader_progress();
    if (info->type != H5O_TYPE_DATASET)
        return 0;
    if (l->n >= QM_H5_LINK_MAX)
        return -1;
    struct qm_listed_set *s = add_set(l);
    char shape[256], text[VALUE];
    hid_t id = H5Dopen2(file, name, H5P_DEFAULT), type = id < 0 ? -1 : H5Dget_type(id);
    hid_t space = id < 0 ? -1 : H5Dget_space(id);
    int bad = !s || type < 0 || space < 0;
    if (!bad)
        bad = (v->st = qm_h5_guard_dataset(NULL, name, id)) != QM_OK;
    if (!bad && (v->st = attribute(id, "text", text, sizeof text)) != QM_OK) {
        qm_fail_in(v->st, name);
        bad = 1;
    }
    if (!bad) {
        H5T_class_t class = H5Tget_class(type);
        s->kind = class == H5T_COMPOUND ? QM_LISTED_table
                  : class == H5T_STRING ? QM_LISTED_text
                                        : QM_LISTED_array;
        shape_text(space, s->kind == QM_LISTED_table, shape, sizeof shape);
        s->path = malloc(strlen(name) + 2);
        s->shape = strdup(shape);
        s->text = strdup(text);
        l->n++;
        bad = !s->path || !s->shape || !s->text;
        if (s->path)
            sprintf(s->path, "/%s", name);
    }
    qm_h5_close(space);
    qm_h5_close(type);
    qm_h5_close(id);
    return bad ? -1 : 0;
}

/* ---- provenance ---------------------------------------------------------------------------- */

static herr_t fact(hid_t group, const char *name, const H5A_info_t *info, void *context)
{
    struct visiting *v = context;
    struct qm_listing *l = v->l;
    char value[VALUE];
    (void)info;
    if ((v->st = attribute(group, name, value, sizeof value)) != QM_OK) {
        qm_fail_in(v->st, "/provenance");
        return -1;
    }
    struct qm_listed_fact *f = add_fact(l);
    if (!f)
        return -1;
    l->n_facts++;
    f->name = strdup(name);
    f->value = strdup(value);
    return f->name && f->value ? 0 : -1;
}

/* Word i of n texts of `width` bytes each or, where that is 0, of n pointers; and its length. */
static const char *word_at(const void *data, size_t width, size_t i, size_t *length)
{
    const char *word = width ? (const char *)data + i * width : ((const char *const *)data)[i];
    word = word ? word : ""; /* a null text of variable width */
    *length = width ? strnlen(word, width) : strlen(word);
    return word;
}

/* The n words with blanks between them; NULL without memory. */
static char *words_joined(const void *data, size_t n, size_t width)
{
    size_t room = 1, at = 0, length;
    for (size_t i = 0; i < n; i++) {
        word_at(data, width, i, &length);
        room += 1 + length;
    }
    char *out = calloc(1, room);
    for (size_t i = 0; out && i < n; i++) {
        const char *word = word_at(data, width, i, &length);
        if (i > 0)
            out[at++] = ' ';
        memcpy(out + at, word, length);
        at += length;
    }
    return out;
}

/* The words of an open dataset as one text, which the caller frees. */
static qm_status words_read(hid_t id, hid_t type, hid_t space, char **out)
{
    hssize_t n = space < 0 ? -1 : H5Sget_simple_extent_npoints(space);
    if (n < 0 || type < 0 || H5Tget_class(type) != H5T_STRING)
        return qm_fail(QM_BAD_FILE, "/provenance/argv holds no texts");
    int is_variable = H5Tis_variable_str(type) > 0;
    size_t width = H5Tget_size(type);
    void *data = calloc((size_t)n + 1, width);
    qm_status st = QM_OK;
    if (!data)
        st = qm_fail(QM_NO_MEMORY, "/provenance/argv");
    else if (H5Dread(id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0)
        st = qm_h5_fail(QM_BAD_FILE, "/provenance/argv cannot be read");
    else if (!(*out = words_joined(data, (size_t)n, is_variable ? 0 : width)))
        st = qm_fail(QM_NO_MEMORY, "/provenance/argv");
    if (data && is_variable)
        H5Dvlen_reclaim(type, space, H5P_DEFAULT, data);
    free(data);
    return st;
}

/* Adds the words of /provenance/argv as one fact. */
static qm_status command_line(hid_t file, struct qm_listing *l)
{
    char *words = NULL;
    hid_t id = H5Dopen2(file, "/provenance/argv", H5P_DEFAULT);
    if (id < 0)
        return QM_OK;
    hid_t type = H5Dget_type(id), space = H5Dget_space(id);
    qm_status st = qm_h5_guard_dataset(NULL, "/provenance/argv", id);
    if (st == QM_OK)
        st = qm_h5_chunks_check(NULL, "/provenance/argv", id);
    if (st == QM_OK)
        st = words_read(id, type, space, &words);
    struct qm_listed_fact *f = st == QM_OK ? add_fact(l) : NULL;
    if (f) {
        l->n_facts++;
        f->value = words;
        f->name = strdup("argv");
    }
    if (st == QM_OK && (!f || !f->name))
        st = qm_fail(QM_NO_MEMORY, "/provenance/argv");
    if (!f)
        free(words);
    qm_h5_close(space);
    qm_h5_close(type);
    qm_h5_close(id);
    return st;
}

/* ---- in the reader process ----------------------------------------------------------------- */

static qm_status listing_make(const char *path, struct qm_listing *l)
{
    hid_t file, group;
    hsize_t at = 0;
    QM_TRY(qm_h5_guard_open(path, CACHE, &file));
    struct visiting v = {l, QM_OK};
    int bad = H5Lvisit(file, H5_INDEX_NAME, H5_ITER_INC, visit_link, &v) != 0 ||
              H5Ovisit(file, H5_INDEX_NAME, H5_ITER_INC, visit, &v) < 0;
    group = bad || H5Lexists(file, "/provenance", H5P_DEFAULT) <= 0
                ? -1
                : H5Gopen2(file, "/provenance", H5P_DEFAULT);
    if (group >= 0)
        bad = H5Aiterate2(group, H5_INDEX_NAME, H5_ITER_INC, &at, fact, &v) < 0 ||
              (v.st = command_line(file, l)) != QM_OK;
    qm_h5_close(group);
    H5Fclose(file);
    if (v.st != QM_OK)
        return qm_fail_in(v.st, path);
    return bad ? qm_fail(QM_BAD_FILE, "%s: what it holds cannot be listed", path) : QM_OK;
}

static qm_status service_open(const char *path, void *context, void **object, struct qm_blob *out)
{
    struct qm_listing l = {0};
    (void)context;
    (void)object;
    qm_status st = listing_make(path, &l);
    qm_blob_put_number(out, l.n);
    for (int i = 0; i < l.n; i++) {
        qm_blob_put_number(out, l.set[i].kind);
        qm_blob_put_text(out, l.set[i].path);
        qm_blob_put_text(out, l.set[i].shape);
        qm_blob_put_text(out, l.set[i].text);
    }
    qm_blob_put_number(out, l.n_facts);
    for (int i = 0; i < l.n_facts; i++) {
        qm_blob_put_text(out, l.fact[i].name);
        qm_blob_put_text(out, l.fact[i].value);
    }
    qm_listing_free(&l);
    return st;
}

/* ---- in the program ------------------------------------------------------------------------ */

/* Takes what service_open put; 0: it is not that, or there is no memory. */
static int listing_take(struct qm_blob *in, struct qm_listing *l)
{
    int64_t sets = qm_blob_take_number(in);
    for (int64_t i = 0; i < sets && !in->bad; i++) {
        struct qm_listed_set *s = add_set(l);
        int64_t kind = qm_blob_take_number(in);
        if (!s || kind < 0 || kind > QM_LISTED_text)
            return 0;
        l->n++;
        s->kind = (enum qm_listed)kind;
        s->path = qm_blob_take_text(in);
        s->shape = qm_blob_take_text(in);
        s->text = qm_blob_take_text(in);
    }
    int64_t facts = qm_blob_take_number(in);
    for (int64_t i = 0; i < facts && !in->bad; i++) {
        struct qm_listed_fact *f = add_fact(l);
        if (!f)
            return 0;
        l->n_facts++;
        f->name = qm_blob_take_text(in);
        f->value = qm_blob_take_text(in);
    }
    return !in->bad;
}

qm_status qm_listing_read(const char *path, struct qm_listing *out)
{
    static const struct qm_reader_service service = {service_open, NULL, NULL};
    struct qm_listing l = {0};
    struct qm_reader_process *p;
    struct qm_blob answer;
    enum qm_file_sum sum;
    struct qm_file_mark mark;
    QM_TRY(qm_file_sum_check_marked(path, &mark, &sum));
    QM_TRY(qm_reader_start(&service, path, NULL, ROOM, &mark, &answer, &p));
    qm_status st = listing_take(&answer, &l) ? QM_OK : qm_reader_garbled(p);
    qm_reader_end(p);
    if (st == QM_OK)
        *out = l;
    else
        qm_listing_free(&l);
    return st;
}

void qm_listing_free(struct qm_listing *l)
{
    for (int i = 0; i < l->n; i++) {
        free(l->set[i].path);
        free(l->set[i].shape);
        free(l->set[i].text);
    }
    for (int i = 0; i < l->n_facts; i++) {
        free(l->fact[i].name);
        free(l->fact[i].value);
    }
    free(l->set);
    free(l->fact);
    memset(l, 0, sizeof *l);
}
