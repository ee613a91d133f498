/* torch_pieces.c - Tensors that a checkpoint keeps in pieces, each an archive within a shard. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/grow.h"
#include "core/base/read_set.h"
#include "experiments/foreign/reader_process.h"
#include "experiments/readers/torch.h"

enum { SHARDS_MOST = 1 << 16, OPEN_MOST = 256 };

/* ---- shards -------------------------------------------------------------------------------- */

static qm_status map_shard(const struct qm_file *f, const char *path, struct qm_torch_shard *s)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    qm_status st = QM_OK;
    if (fd < 0 || fstat(fd, &info) != 0)
        st = qm_file_bad(f, "shard '%.200s': cannot open: %s", s->name, strerror(errno));
    else if (!S_ISREG(info.st_mode) || info.st_size == 0)
        st = qm_file_bad(f, "shard '%.200s' is %s", s->name,
                         S_ISREG(info.st_mode) ? "empty" : "not a regular file");
    if (st == QM_OK) {
        s->size = (size_t)info.st_size;
        qm_read_set_note(fd);
        s->mapping = qm_file_mark_take(fd, &s->mark) ? qm_mapping_open(fd, s->size) : NULL;
        if (!s->mapping)
            st = qm_file_bad(f, "shard '%.200s': cannot map %zu bytes", s->name, s->size);
        else
            s->map = qm_mapping_bytes(s->mapping);
    }
    if (fd >= 0)
        close(fd);
    return st;
}

qm_status qm_file_beside(const struct qm_file *f, const char *name, char *out, size_t size)
{
    const char *slash = strrchr(f->path, '/');
    if (!*name || strchr(name, '/') || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return qm_file_bad(f, "names the file '%.200s', expected one of its own folder", name);
    if (strcmp(f->path, "-") == 0)
        return qm_file_bad(f, "names files beside it, which standard input has not");
    int n = snprintf(out, size, "%.*s%s", slash ? (int)(slash - f->path + 1) : 0, f->path, name);
    return n < (int)size ? QM_OK : qm_file_bad(f, "names a file of more than %zu bytes", size);
}

qm_status qm_torch_shard_find(struct qm_file *f, const struct qm_pickle *name, int64_t *out)
{
    struct qm_torch *t = f->own;
    char path[4096];
    if (!qm_pickle_is(name, QM_PICKLE_text) || strlen(name->text) != name->length)
        return qm_file_bad(f, "a shard without a name");
    *out = qm_name_index_get(&t->shard_at, name->text, name->length);
    if (*out >= 0)
        return QM_OK;
    QM_TRY(qm_file_beside(f, name->text, path, sizeof path));
    if (t->n_shards == SHARDS_MOST)
        return qm_file_bad(f, "more than %d shards", SHARDS_MOST);
    QM_TRY(qm_grow((void **)&t->shard, &t->shard_room, t->n_shards + 1, sizeof *t->shard));
    struct qm_torch_shard s = {.name = name->text, .is_read = 1};
    QM_TRY(map_shard(f, path, &s));
    *out = t->n_shards++;
    t->shard[*out] = s;
    t->all_read = 1;
    f->beside += s.size;
    qm_reader_progress();
    return qm_name_index_put(&t->shard_at, s.name, strlen(s.name), *out);
}

void qm_torch_shards_free(struct qm_torch *t)
{
    for (int64_t i = 0; i < t->n_shards; i++)
        qm_mapping_close(t->shard[i].mapping);
    free(t->shard);
    qm_name_index_free(&t->shard_at);
}

/* By its path: a checkpoint may have more shards than there are descriptors. */
static qm_status check_shard(const struct qm_file *f, struct qm_torch_shard *s)
{
    char path[4096];
    s->is_read = 0;
    QM_TRY(qm_file_beside(f, s->name, path, sizeof path));
    QM_TRY(qm_file_mark_check_other(&s->mark, path, -1));
    return qm_mapping_has_lost(s->mapping) ? qm_file_mark_lost(&s->mark, path) : QM_OK;
}

qm_status qm_torch_shards_check(struct qm_file *f)
{
    struct qm_torch *t = f->own;
    for (int64_t i = 0; t->all_read && i < t->n_shards; i++)
        QM_TRY(check_shard(f, &t->shard[i]));
    const struct qm_torch_storage *s = t->last_read ? &t->storage[t->last_read - 1] : NULL;
    for (int64_t i = 0; s && i < s->n_pieces; i++)
        if (t->shard[s->piece[i].shard].is_read)
            QM_TRY(check_shard(f, &t->shard[s->piece[i].shard]));
    t->all_read = 0;
    t->last_read = 0;
    return QM_OK;
}

/* ---- an archive within a shard --------------------------------------------------------------- */

static void part_close(struct qm_file *part)
{
    if (part && part->own)
        qm_torch_unload(part->own);
    if (part)
        free(part->path);
    free(part);
}

/* Opens bytes [offset, offset + size) of a shard as a checkpoint; memory as of qm_pickle_read. */
static qm_status part_open(const struct qm_file *f, const struct qm_torch_piece *p,
                           struct qm_pickle_memory *memory, struct qm_file **out)
{
    const struct qm_torch *t = f->own;
    const struct qm_torch_shard *s = &t->shard[p->shard];
    char path[4096];
    QM_TRY(qm_file_beside(f, s->name, path, sizeof path));
    if (p->offset > s->size || p->size > s->size - p->offset || p->size < 22)
        return qm_file_bad(f, "shard '%.200s' has %zu bytes, no %zu from %zu on", s->name, s->size,
                           p->size, p->offset);
    struct qm_file *part = calloc(1, sizeof *part);
    struct qm_torch *own = calloc(1, sizeof *own);
    if (part)
        *part = (struct qm_file){.path = strdup(path),
                                 .format = &qm_format_torch,
                                 .fd = -1,
                                 .unpacked_fd = -1,
                                 .map = s->map + p->offset,
                                 .size = p->size,
                                 .own = own};
    qm_status st = QM_OK;
    if (!part || !own || !part->path)
        st = qm_fail(QM_NO_MEMORY, "%s", f->path);
    else if (memcmp(part->map, "PK", 2) != 0)
        st = qm_file_bad(part, "no archive of torch.save at byte %zu", p->offset);
    else {
        own->memory = memory;
        st = qm_torch_load(part, qm_torch_knows);
        if (memory)
            own->memory = NULL;
    }
    if (st == QM_OK) {
        *out = part;
        return QM_OK;
    }
    if (!part)
        free(own);
    part_close(part);
    return st;
}

qm_status qm_torch_value_in(struct qm_file *f, const struct qm_torch_piece *p,
                            const struct qm_pickle **out)
{
    struct qm_torch *t = f->own;
    struct qm_file *part = NULL;
    QM_TRY(part_open(f, p, t->memory, &part));
    const struct qm_torch *of = part->own;
    *out = of->n_storages == 0 ? of->root : NULL;
    part_close(part);
    return QM_OK;
}

/* ---- reading ------------------------------------------------------------------------------- */

#define NOT_THE_CHUNK \
    "the tensor at byte %zu is not the chunk of '%.200s' that the .metadata describes"

void qm_torch_pieces_close(struct qm_torch *t, struct qm_torch_storage *s)
{
    for (int64_t i = 0; i < s->n_pieces; i++)
        if (s->piece[i].file) {
            part_close(s->piece[i].file);
            free(s->piece[i].array);
            s->piece[i].file = NULL;
            s->piece[i].array = NULL;
            t->n_open--;
        }
}

/* Opens a chunk and takes up what it holds; the caller closes and frees both. */
static qm_status load_piece(struct qm_file *f, const struct qm_torch_storage *s,
                            const struct qm_torch_piece *p, struct qm_file **part,
                            struct qm_torch_array **a)
{
    struct qm_shape shape;
    const char *why;
    int is = 0;
    *a = calloc(1, sizeof **a);
    QM_TRY(*a ? part_open(f, p, NULL, part) : qm_fail(QM_NO_MEMORY, "%s", f->path));
    QM_TRY(qm_torch_tensor(*part, ((struct qm_torch *)(*part)->own)->root, &is, *a, &shape, &why));
    if (is == 1 && (*a)->kind == QM_TORCH_view)
        shape = (*a)->view.shape; /* without an axis for real and imaginary parts */
    if (is == 1 && shape.rank == s->shape.rank &&
        memcmp(shape.dim, p->count, (size_t)shape.rank * sizeof *p->count) == 0)
        return QM_OK;
    return qm_file_bad(*part, NOT_THE_CHUNK, p->offset, s->key);
}

qm_status qm_torch_find_codes(struct qm_file *f, struct qm_torch_storage *s)
{
    static const char name[] = "torch.float32";
    const struct qm_torch_piece *p = s->piece;
    int64_t numel = 1;
    for (int k = 0; s->n_pieces > 0 && k < s->shape.rank; k++)
        numel *= p->count[k];
    /* An archive of plain elements is as large as they are. */
    if (s->n_pieces == 0 || s->element->size != 2 || s->element->parts != 1 ||
        !qm_dtype_is_float(s->element->dtype) || (int64_t)p->size - 4096 >= 2 * numel)
        return QM_OK;
    struct qm_file *part = NULL;
    struct qm_torch_array *a = NULL;
    qm_status st = load_piece(f, s, p, &part, &a);
    if (st == QM_OK && a->kind == QM_TORCH_coded) {
        const struct qm_pickle *dtype = qm_pickle_make_text(
            ((struct qm_torch *)f->own)->memory, QM_PICKLE_global, name, sizeof name - 1);
        s->element = dtype ? qm_torch_dtype(dtype) : NULL;
        if (!s->element)
            st = qm_fail(QM_NO_MEMORY, "%s", f->path);
        else if (__builtin_mul_overflow(qm_shape_numel(&s->shape), s->element->size, &s->bytes))
            st = qm_file_bad(f, "'%.200s' has 2^63 bytes or more", s->key);
    }
    part_close(part);
    free(a);
    return st;
}

/* Whether a chunk holds what the .metadata says: elements of this type, or codes for float32. */
static int is_of_type(const struct qm_torch_array *a, const struct qm_torch_element *element)
{
    if (a->kind == QM_TORCH_coded)
        return element->dtype == QM_DTYPE_f32 && element->parts == 1 && !element->decode;
    return a->kind == QM_TORCH_view && a->view.element->size == element->size &&
           a->view.element->dtype == element->dtype;
}

static qm_status open_piece(struct qm_file *f, const struct qm_torch_storage *s,
                            struct qm_torch_piece *p)
{
    struct qm_torch *t = f->own;
    for (int64_t i = 0; t->n_open >= OPEN_MOST && i < t->n_storages; i++)
        qm_torch_pieces_close(t, &t->storage[i]);
    struct qm_file *part = NULL;
    struct qm_torch_array *a = NULL;
    qm_status st = load_piece(f, s, p, &part, &a);
    if (st == QM_OK && !is_of_type(a, s->element))
        st = qm_file_bad(part, NOT_THE_CHUNK, p->offset, s->key);
    if (st == QM_OK) {
        p->array = a;
        p->file = part;
        t->n_open++;
    } else {
        part_close(part);
        free(a);
    }
    return st;
}

/* The piece that holds an element, or NULL. */
static struct qm_torch_piece *piece_of(struct qm_torch_storage *s, const int64_t *coord)
{
    for (int64_t k = 0; k < s->n_pieces; k++) {
        int64_t i = (s->last_piece + k) % s->n_pieces;
        const struct qm_torch_piece *p = &s->piece[i];
        int inside = 1;
        for (int d = 0; inside && d < s->shape.rank; d++)
            inside = coord[d] >= p->start[d] && coord[d] - p->start[d] < p->count[d];
        if (inside) {
            s->last_piece = i;
            return &s->piece[i];
        }
    }
    return NULL;
}

/* The number of an element within its piece, and how many elements from there on the piece and the
 * tensor have in the same order. */
static int64_t place_in(const struct qm_torch_storage *s, const struct qm_torch_piece *p,
                        const int64_t *coord, int64_t *run)
{
    int64_t at = 0, inner = 1, before = 0;
    int whole = 1;
    *run = 1;
    for (int d = s->shape.rank - 1; d >= 0; d--) {
        int64_t local = coord[d] - p->start[d];
        at += local * inner;
        if (whole) {
            before += local * inner;
            *run = inner * p->count[d] - before;
        }
        whole = whole && p->count[d] == s->shape.dim[d];
        inner *= p->count[d];
    }
    return at;
}

/* Elements [from, from + n) of a piece of codes, as float32. */
static qm_status read_codes(const struct qm_torch_piece *p, int64_t from, int64_t n,
                            unsigned char *out)
{
    float part[256];
    for (int64_t done = 0, some; done < n; done += some) {
        some = n - done < 256 ? n - done : 256;
        QM_TRY(qm_torch_array_read(p->file, p->array, from + done, some,
                                   (struct qm_sink){part, NULL}));
        memcpy(out + done * (int64_t)sizeof *part, part, (size_t)some * sizeof *part);
    }
    return QM_OK;
}

qm_status qm_torch_pieces_read(struct qm_file *f, int64_t storage, int64_t from, int64_t n,
                               unsigned char *out)
{
    struct qm_torch *t = f->own;
    struct qm_torch_storage *s = &t->storage[storage];
    int64_t size = s->element->size;
    from /= size;
    n /= size;
    t->all_read = t->all_read || (t->last_read && t->last_read != storage + 1);
    t->last_read = storage + 1;
    for (int64_t done = 0, run; done < n; done += run) {
        int64_t coord[QM_MAX_RANK], rest = from + done;
        for (int d = s->shape.rank - 1; d >= 0; d--) {
            coord[d] = rest % s->shape.dim[d];
            rest /= s->shape.dim[d];
        }
        struct qm_torch_piece *p = piece_of(s, coord);
        if (!p)
            return qm_file_bad(f, "no chunk of '%.200s' holds its element %lld", s->key,
                               (long long)(from + done));
        t->shard[p->shard].is_read = 1;
        if (!p->file)
            QM_TRY(open_piece(f, s, p));
        int64_t at = place_in(s, p, coord, &run);
        if (run > n - done)
            run = n - done;
        unsigned char *to = out + done * size;
        if (p->array->kind == QM_TORCH_coded)
            QM_TRY(read_codes(p, at, run, to));
        else
            QM_TRY(qm_torch_view_bytes(p->file, &p->array->view, at, run, to));
    }
    return QM_OK;
}
