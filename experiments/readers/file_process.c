/* file_process.c - Opens a tensor file in a reader process, and takes over what it finds. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "experiments/foreign/file_sum.h"
#include "experiments/foreign/reader_process.h"
#include "experiments/readers/float8.h"
#include "experiments/readers/hdf5.h"
#include "experiments/store/stored_digest.h"

enum request { READ, BYTES, NUMBER, TEXT };

enum {
    ROOM = 64 << 20,        /* bytes of an answer: the list of entries, or PIECE values */
    PIECE = 1 << 20,        /* values of one answer */
    NUMBERS_MOST = 1 << 16, /* values of an attribute */
};

/* ---- in the reader process ----------------------------------------------------------------- */

static void put_entries(const struct qm_file *f, struct qm_blob *out)
{
    qm_blob_put_number(out, f->n_entries);
    for (int i = 0; i < f->n_entries; i++) {
        const struct qm_entry *e = &f->entry[i];
        const struct qm_array_location *at = &f->place[i];
        int64_t head[6] = {e->dtype,    e->shape.rank, at->swap,
                           at->fortran, at->code,      at->is_complex};
        qm_blob_put_text(out, e->name);
        qm_blob_put_bytes(out, head, sizeof head);
        qm_blob_put_bytes(out, e->shape.dim, (size_t)e->shape.rank * sizeof *e->shape.dim);
        qm_blob_put_number(out, (int64_t)f->place[i].offset);
    }
}

/* The texts of a file that has some. */
static void put_texts(const struct qm_file *f, struct qm_blob *out)
{
    json_t *texts = f->format->has_texts ? f->own : NULL, *value;
    const char *name;
    json_object_foreach (texts, name, value) {
        if (json_is_string(value)) {
            qm_blob_put_number(out, 1);
            qm_blob_put_text(out, name);
            qm_blob_put_text(out, json_string_value(value));
        }
    }
    qm_blob_put_number(out, 0);
}

static void service_close(void *object)
{
    struct qm_file *f = object;
    if (f && f->format->close)
        f->format->close(f);
    if (f && f->format->kind == QM_FORMAT_unpacked && f->map)
        munmap((void *)f->map, f->size);
    for (int i = 0; f && i < f->n_entries; i++)
        free((char *)f->entry[i].name);
    if (f) {
        free(f->entry);
        free(f->place);
    }
    free(f);
}

/* Refuses a file whose tensors claim too much: whoever opens it has room for them, more than
 * once. */
static qm_status check_claims(const struct qm_file *f)
{
    size_t claimed = 0, stored = f->size + f->beside, n;
    for (int i = 0; i < f->n_entries; i++)
        if (__builtin_mul_overflow(f->entry[i].numel, qm_dtype_size(f->entry[i].dtype), &n) ||
            __builtin_add_overflow(claimed, n, &claimed))
            claimed = SIZE_MAX;
    if (claimed <= qm_reader_claim_most(stored))
        return QM_OK;
    return qm_fail_in(qm_reader_claim_fail("its tensors claim", claimed, stored), f->path);
}

/* In the reader process: pages that the file lost, and the files beside it; the program itself
 * looks at the file. */
static qm_status check_here(struct qm_file *f)
{
    if (qm_mapping_has_lost(f->mapping))
        return qm_file_mark_lost(&f->mark, f->path);
    return f->own && f->format->check ? f->format->check(f) : QM_OK;
}

/* Works on a copy of the program's file, so that nothing of it is closed twice where the service
 * runs in the program itself. */
static qm_status service_open(const char *path, void *context, void **object, struct qm_blob *out)
{
    const struct qm_file *of = context;
    struct qm_file *f = calloc(1, sizeof *f);
    if (!f)
        return qm_fail(QM_NO_MEMORY, "%s: opening", path);
    *f = *of;
    f->fd = -1;
    if (f->format->kind == QM_FORMAT_served)
        f->map = NULL;
    qm_status st = f->format->open(f), whole = check_here(f);
    st = whole != QM_OK ? whole : st;
    if (st == QM_OK)
        st = check_claims(f);
    if (f->format->kind == QM_FORMAT_served_from_map)
        qm_reader_close_doors(); /* shards are open */
    if (st == QM_OK && f->format == &qm_format_hdf5)
        st = qm_stored_digest_put(((struct qm_hdf5 *)f->own)->file, path, f->sum, 0, out);
    if (st == QM_OK) {
        put_entries(f, out);
        put_texts(f, out);
        *object = f;
    } else {
        if (f->map == of->map)
            f->map = NULL;
        service_close(f);
    }
    return st;
}

/* The status of a read, unless the file changed meanwhile. */
static qm_status read_whole(struct qm_file *f, qm_status st)
{
    qm_status whole = check_here(f);
    return whole != QM_OK ? whole : st;
}

static qm_status serve_read(struct qm_file *f, struct qm_blob *in, struct qm_blob *out)
{
    int64_t i = qm_blob_take_number(in), from = qm_blob_take_number(in);
    int64_t n = qm_blob_take_number(in), wide = qm_blob_take_number(in);
    void *room = qm_blob_put(out, (size_t)n * (wide ? sizeof(double) : sizeof(float)));
    struct qm_sink sink = {wide ? NULL : room, wide ? room : NULL};
    return room ? read_whole(f, f->format->read(f, (int)i, from, n, sink)) : QM_OK;
}

static qm_status serve_bytes(struct qm_file *f, struct qm_blob *in, struct qm_blob *out)
{
    int64_t i = qm_blob_take_number(in), from = qm_blob_take_number(in);
    int64_t n = qm_blob_take_number(in);
    void *room = qm_blob_put(out, (size_t)n * qm_dtype_size(f->entry[i].dtype));
    return room ? read_whole(f, f->format->bytes(f, (int)i, from, n, room)) : QM_OK;
}

static void serve_number(struct qm_file *f, const char *path, const char *name, int64_t most,
                         struct qm_blob *out)
{
    double *x = calloc((size_t)most + 1, sizeof *x);
    int n = x ? f->format->attr_number(f, path, name, x, (int)most) : -1;
    qm_blob_put_number(out, n);
    if (n > 0)
        qm_blob_put_bytes(out, x, (size_t)n * sizeof *x);
    free(x);
}

static void serve_text(struct qm_file *f, const char *path, const char *name, int64_t size,
                       struct qm_blob *out)
{
    char *text = calloc(1, (size_t)size + 1);
    int n = text ? f->format->attr_text(f, path, name, text, (size_t)size) : -1;
    qm_blob_put_number(out, n);
    qm_blob_put_text(out, text);
    free(text);
}

static qm_status service_serve(void *object, int request, struct qm_blob *in, struct qm_blob *out)
{
    struct qm_file *f = object;
    if (request == READ)
        return serve_read(f, in, out);
    if (request == BYTES)
        return serve_bytes(f, in, out);
    char *path = qm_blob_take_text(in), *name = qm_blob_take_text(in);
    int64_t most = qm_blob_take_number(in);
    if (path && name && request == NUMBER)
        serve_number(f, path, name, most, out);
    else if (path && name)
        serve_text(f, path, name, most, out);
    free(path);
    free(name);
    return QM_OK;
}

static const struct qm_reader_service served = {service_open, service_serve, service_close};
static const struct qm_reader_service opened = {service_open, NULL, service_close};

/* ---- in the program ------------------------------------------------------------------------ */

static qm_status take_entry(struct qm_file *f, struct qm_reader_process *p, struct qm_blob *in)
{
    struct qm_shape shape = {0, {0}};
    char *name = qm_blob_take_text(in);
    int64_t *head = qm_blob_take_copy(in, 6, sizeof *head), bytes = -1;
    int good = name && head && head[0] >= 0 && head[0] < QM_DTYPE_COUNT && head[1] >= 0 &&
               head[1] <= QM_MAX_RANK && head[4] >= 0 && head[4] < QM_FLOAT8_COUNT &&
               (head[4] == 0 || head[0] == QM_DTYPE_f32) && head[3] >= 0 && head[3] <= 2;
    shape.rank = good ? (int)head[1] : 0;
    const void *dims = qm_blob_take(in, (size_t)shape.rank * sizeof *shape.dim);
    if (dims)
        memcpy(shape.dim, dims, (size_t)shape.rank * sizeof *shape.dim);
    struct qm_array_location place = {(size_t)qm_blob_take_number(in), good && head[2],
                                      good ? (int)head[3] : 0, good ? (int)head[4] : 0,
                                      good && head[5]};
    enum qm_dtype dtype = good ? (enum qm_dtype)head[0] : QM_DTYPE_f32;
    good = good && dims && !in->bad && (bytes = qm_shape_numel(&shape)) >= 0 &&
           !__builtin_mul_overflow(bytes, place.code ? 1 : (int64_t)qm_dtype_size(dtype), &bytes);
    if (good && f->map && f->format->kind != QM_FORMAT_served_from_map)
        good = place.offset <= f->size && (size_t)bytes <= f->size - place.offset;
    qm_status st = good ? qm_file_add(f, name, dtype, &shape, place) : qm_reader_garbled(p);
    free(name);
    free(head);
    return st;
}

static qm_status take_texts(struct qm_file *f, struct qm_reader_process *p, struct qm_blob *in)
{
    json_t *texts = json_object();
    while (texts && qm_blob_take_number(in) == 1) {
        char *name = qm_blob_take_text(in), *value = qm_blob_take_text(in);
        if (name && value)
            json_object_set_new(texts, name, json_string(value));
        free(name);
        free(value);
    }
    if (f->format->has_texts)
        f->own = texts;
    else
        json_decref(texts);
    return in->bad ? qm_reader_garbled(p) : QM_OK;
}

/* Maps what the process unpacked in place of the file. */
static qm_status take_unpacked(struct qm_file *f)
{
    struct stat info;
    int fd = f->unpacked_fd;
    f->unpacked_fd = -1;
    qm_file_unmap(f);
    f->fd = fd;
    if (fstat(fd, &info) != 0 || info.st_size <= 0)
        return qm_file_bad(f, "holds nothing");
    f->size = (size_t)info.st_size;
    if (!(f->mapping = qm_mapping_open(fd, f->size)))
        return qm_fail(QM_NO_MEMORY, "%s: %zu bytes", f->path, f->size);
    f->map = qm_mapping_bytes(f->mapping);
    return QM_OK;
}

static qm_status take_over(struct qm_file *f, struct qm_reader_process *p, struct qm_blob *in)
{
    if (f->format->kind == QM_FORMAT_unpacked)
        QM_TRY(take_unpacked(f));
    if (f->format->kind == QM_FORMAT_served)
        qm_file_unmap(f);
    if (f->format == &qm_format_hdf5 && !qm_stored_digest_take(f->path, in))
        return qm_reader_garbled(p);
    int64_t n = qm_blob_take_number(in);
    for (int64_t i = 0; i < n; i++)
        QM_TRY(take_entry(f, p, in));
    return take_texts(f, p, in);
}

qm_status qm_file_open_apart(struct qm_file *f)
{
    struct qm_reader_process *p;
    struct qm_blob first;
    int opens_path = f->format->kind == QM_FORMAT_served;
    int is_served = opens_path || f->format->kind == QM_FORMAT_served_from_map;
    if (opens_path && strcmp(f->path, "-") != 0)
        QM_TRY(qm_file_sum_check_any(f->path, &f->sum));
    if (f->format->kind == QM_FORMAT_unpacked && (f->unpacked_fd = qm_file_in_memory(0)) < 0)
        return qm_fail(QM_NO_MEMORY, "%s: an unnamed file in memory", f->path);
    struct qm_file_mark mark = f->mark;
    if ((mark.fd = fcntl(f->fd, F_DUPFD_CLOEXEC, 0)) < 0)
        return qm_fail(QM_INTERNAL, "%s: a descriptor: %s", f->path, strerror(errno));
    QM_TRY(qm_reader_start(is_served ? &served : &opened, f->path, f, ROOM, &mark, &first, &p));
    qm_status st = take_over(f, p, &first);
    if (is_served)
        f->process = p;
    else
        qm_reader_end(p);
    return st;
}

qm_status qm_file_ask_read(struct qm_file *f, int i, int64_t from, int64_t n, struct qm_sink sink)
{
    size_t size = sink.f ? sizeof(float) : sizeof(double);
    char *to = sink.f ? (char *)sink.f : (char *)sink.d;
    for (int64_t done = 0; done < n;) {
        int64_t part = n - done < PIECE ? n - done : PIECE;
        struct qm_blob ask = qm_reader_request(f->process), answer;
        int64_t words[4] = {i, from + done, part, sink.d != NULL};
        qm_blob_put_bytes(&ask, words, sizeof words);
        QM_TRY(qm_reader_ask(f->process, READ, &ask, &answer));
        const void *values = qm_blob_take(&answer, (size_t)part * size);
        if (!values)
            return qm_reader_garbled(f->process);
        memcpy(to + (size_t)done * size, values, (size_t)part * size);
        done += part;
    }
    return QM_OK;
}

qm_status qm_file_ask_bytes(struct qm_file *f, int i, void *out)
{
    const struct qm_entry *e = &f->entry[i];
    size_t size = qm_dtype_size(e->dtype);
    if (!f->format->bytes)
        return qm_fail(QM_BAD_FILE,
                       "%s: '%s' holds %s, of which only floating-point numbers are read here",
                       f->path, e->name, qm_dtype_name(e->dtype));
    for (int64_t done = 0; done < e->numel;) {
        int64_t part = e->numel - done < PIECE ? e->numel - done : PIECE,
                words[3] = {i, done, part};
        struct qm_blob ask = qm_reader_request(f->process), answer;
        qm_blob_put_bytes(&ask, words, sizeof words);
        QM_TRY(qm_reader_ask(f->process, BYTES, &ask, &answer));
        const void *bytes = qm_blob_take(&answer, (size_t)part * size);
        if (!bytes)
            return qm_reader_garbled(f->process);
        memcpy((char *)out + (size_t)done * size, bytes, (size_t)part * size);
        done += part;
    }
    return QM_OK;
}

static qm_status ask_attribute(struct qm_file *f, int request, const char *path, const char *name,
                               int64_t most, struct qm_blob *answer)
{
    struct qm_blob ask = qm_reader_request(f->process);
    qm_blob_put_text(&ask, path);
    qm_blob_put_text(&ask, name);
    qm_blob_put_number(&ask, most);
    return qm_reader_ask(f->process, request, &ask, answer);
}

int qm_file_ask_number(struct qm_file *f, const char *path, const char *name, double *out, int max)
{
    struct qm_blob answer;
    int64_t most = max < 0 ? 0 : max < NUMBERS_MOST ? max : NUMBERS_MOST;
    if (ask_attribute(f, NUMBER, path, name, most, &answer) != QM_OK)
        return -1;
    int64_t n = qm_blob_take_number(&answer);
    const void *x = n >= 0 && n <= most ? qm_blob_take(&answer, (size_t)n * sizeof *out) : NULL;
    if (!x)
        return -1;
    memcpy(out, x, (size_t)n * sizeof *out);
    return (int)n;
}

int qm_file_ask_text(struct qm_file *f, const char *path, const char *name, char *out, size_t size)
{
    struct qm_blob answer;
    int64_t most = size < ROOM / 4 ? (int64_t)size : ROOM / 4;
    if (ask_attribute(f, TEXT, path, name, most, &answer) != QM_OK)
        return -1;
    int64_t n = qm_blob_take_number(&answer);
    char *text = n >= 0 ? qm_blob_take_text(&answer) : NULL;
    size_t length = text ? strlen(text) : 0;
    if (text && size > 0 && length < size)
        memcpy(out, text, length + 1);
    else if (text && size > 0)
        n = -1;
    free(text);
    return text ? (int)n : -1;
}
