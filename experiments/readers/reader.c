/* reader.c - Opens tensor files by content, and serves their entries in one interface. */
#include "experiments/readers/reader.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/interrupt.h"
#include "core/base/name.h"
#include "core/base/read_set.h"
#include "experiments/foreign/reader_process.h"
#include "experiments/machine/shipped_files.h"
#include "experiments/readers/format.h"

/* A file may have more than SPARSE_MOST bytes only if the disk stores more than a SPARSE_RATIO-th
 * of them. */
#define SPARSE_MOST  ((uint64_t)16 << 30)
#define STDIN_MOST   ((size_t)512 << 20) /* bytes of stdin, which are held in memory */
#define SPARSE_RATIO 1032

static const struct qm_format *const formats[] = {&qm_format_npy,         &qm_format_torch,
                                                  &qm_format_npz,         &qm_format_hdf5,
                                                  &qm_format_safetensors, &qm_format_weight_map};

/* Replaces control characters by '?'. */
static void one_line(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            *text = '?';
}

qm_status qm_file_bad_at(const char *file, int line, const struct qm_file *f, const char *format,
                         ...)
{
    char path[512], text[480];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    snprintf(path, sizeof path, "%s", f->path);
    one_line(path);
    one_line(text);
    return qm_fail_at(file, line, QM_BAD_FILE, "%s: %s", path, text);
}

qm_status qm_file_add(struct qm_file *f, const char *name, enum qm_dtype dtype,
                      const struct qm_shape *shape, struct qm_array_location place)
{
    if (f->n_entries == f->capacity) {
        int capacity = f->capacity ? 2 * f->capacity : 16;
        struct qm_entry *entry = realloc(f->entry, (size_t)capacity * sizeof *entry);
        if (entry)
            f->entry = entry;
        struct qm_array_location *places = realloc(f->place, (size_t)capacity * sizeof *places);
        if (places)
            f->place = places;
        if (!entry || !places)
            return qm_fail(QM_NO_MEMORY, "%s: %d entries", f->path, capacity);
        f->capacity = capacity;
    }
    char *copy = strdup(name);
    if (!copy)
        return qm_fail(QM_NO_MEMORY, "%s: an entry's name", f->path);
    f->entry[f->n_entries] = (struct qm_entry){copy, dtype, *shape, qm_shape_numel(shape)};
    f->place[f->n_entries++] = place;
    return QM_OK;
}

void qm_file_unmap(struct qm_file *f)
{
    qm_mapping_close(f->mapping);
    if (f->fd >= 0)
        close(f->fd);
    f->mapping = NULL;
    f->map = NULL;
    f->fd = f->mark.fd = -1;
}

int qm_file_in_memory(size_t size)
{
    int fd = memfd_create("qualm", MFD_CLOEXEC);
    if (fd >= 0 && ftruncate(fd, (off_t)size) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Copies stdin into a file in memory; its descriptor, or -1 with errno: EFBIG where it has over
 * STDIN_MOST bytes, for it may have no end. */
static int spool(void)
{
    char piece[1 << 16];
    ssize_t got = 0;
    size_t all = 0;
    int fd = qm_file_in_memory(0);
    while (fd >= 0 &&
           ((got = read(STDIN_FILENO, piece, sizeof piece)) > 0 || (got < 0 && errno == EINTR))) {
        all += got > 0 ? (size_t)got : 0;
        if (all > STDIN_MOST) {
            close(fd);
            errno = EFBIG;
            return -1;
        }
        for (ssize_t at = 0, put; at < got; at += put)
            if ((put = write(fd, piece + at, (size_t)(got - at))) < 0) {
                close(fd);
                return -1;
            }
    }
    if (got < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static int await_stdin(void)
{
    struct qm_interrupt_wait wait;
    qm_interrupt_wait_begin(&wait);
    int fd = spool();
    qm_interrupt_wait_end(&wait);
    return fd;
}

static qm_status map_file(struct qm_file *f)
{
    struct stat info;
    f->fd = strcmp(f->path, "-") == 0
                ? await_stdin()
                : open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not block */
    if (f->fd < 0 && errno == EFBIG)
        return qm_file_bad(f,
                           "more than %zu MiB on stdin, which is held in memory; expected a file "
                           "of that size by its name",
                           STDIN_MOST >> 20);
    if (f->fd < 0 || fstat(f->fd, &info) != 0)
        return qm_file_bad(f, "cannot open: %s", strerror(errno));
    if (S_ISDIR(info.st_mode))
        return qm_file_bad(f, "is a directory, expected a file");
    if (!S_ISREG(info.st_mode))
        return qm_file_bad(f, "is not a regular file");
    if (info.st_size == 0)
        return qm_file_bad(f, "is empty");
    if ((uint64_t)info.st_size > SPARSE_MOST &&
        (uint64_t)info.st_size / SPARSE_RATIO > (uint64_t)info.st_blocks * 512)
        return qm_file_bad(f, "has %lld bytes, of which the disk stores %lld: a sparse giant",
                           (long long)info.st_size, (long long)info.st_blocks * 512);
    f->size = (size_t)info.st_size;
    qm_read_set_note(f->fd);
    if (!qm_file_mark_take(f->fd, &f->mark) || f->mark.size != info.st_size)
        return qm_file_bad(f, "changed while it was opened");
    if (!(f->mapping = qm_mapping_open(f->fd, f->size)))
        return qm_file_bad(f, "cannot map %zu bytes: %s", f->size, strerror(errno));
    f->map = qm_mapping_bytes(f->mapping);
    return QM_OK;
}

static qm_status open_format(struct qm_file *f)
{
    for (size_t k = 0; k < sizeof formats / sizeof *formats; k++)
        if (formats[k]->knows(f->map, f->size)) {
            f->format = formats[k];
            return qm_file_open_apart(f);
        }
    char head[3 * 8 + 1] = "";
    for (size_t k = 0; k < 8 && k < f->size; k++)
        snprintf(head + 3 * k, 4, " %02x", (unsigned)f->map[k]);
    return qm_file_bad(
        f,
        "neither HDF5, .npy, .npz, .safetensors, *.index.json nor a torch checkpoint (%zu bytes, "
        "starts with%s)",
        f->size, head);
}

/* The file that describes a folder of shards: .metadata, or the one *.index.json. */
static qm_status enter_folder(struct qm_file *f)
{
    char path[4096], found[2][256] = {"", ""};
    struct stat info;
    int n = 0;
    if (strcmp(f->path, "-") == 0 || stat(f->path, &info) != 0 || !S_ISDIR(info.st_mode))
        return QM_OK;
    int room = snprintf(path, sizeof path, "%s/.metadata", f->path);
    if (room < (int)sizeof path && stat(path, &info) == 0) {
        snprintf(found[n++], sizeof *found, ".metadata");
    } else {
        DIR *folder = opendir(f->path);
        for (struct dirent *e; folder && (e = readdir(folder));)
            if (qm_name_ends(e->d_name, ".index.json") && n++ < 2)
                snprintf(found[n - 1], sizeof *found, "%s", e->d_name);
        if (folder)
            closedir(folder);
    }
    if (n == 0)
        return qm_file_bad(f, "is a directory, expected a file, or a folder with .metadata "
                              "(torch.distributed.checkpoint) or *.index.json");
    if (n > 1)
        return qm_file_bad(f, "is a directory with %d indexes, '%s' and '%s': name one of them", n,
                           found[0], found[1]);
    if (snprintf(path, sizeof path, "%s%s%s", f->path, qm_name_ends(f->path, "/") ? "" : "/",
                 found[0]) >= (int)sizeof path)
        return qm_file_bad(f, "is a directory with too long a path");
    free(f->path);
    f->path = strdup(path);
    return f->path ? QM_OK : qm_fail(QM_NO_MEMORY, "opening");
}

qm_status qm_file_open(const char *path, struct qm_file **out)
{
    char shipped[PATH_MAX];
    if (strncmp(path, QM_SHIPPED_DATA, sizeof QM_SHIPPED_DATA - 1) == 0)
        path = qm_shipped(path, shipped, sizeof shipped);
    struct qm_file *f = calloc(1, sizeof *f);
    if (!f)
        return qm_fail(QM_NO_MEMORY, "%s: opening", path);
    f->fd = f->unpacked_fd = f->mark.fd = -1;
    f->path = strdup(path);
    qm_status st = f->path ? enter_folder(f) : qm_fail(QM_NO_MEMORY, "%s: opening", path);
    if (st == QM_OK)
        st = map_file(f);
    if (st == QM_OK)
        st = open_format(f);
    if (f->path && qm_mapped_check(f) != QM_OK)
        st = QM_BAD_FILE;
    if (st == QM_OK)
        *out = f;
    else
        qm_file_close(f);
    return st;
}

qm_status qm_file_open_here(const char *path, struct qm_file **out)
{
    static const struct qm_format *const of_shards[] = {&qm_format_safetensors, &qm_format_torch};
    struct qm_file *f = calloc(1, sizeof *f);
    if (!f)
        return qm_fail(QM_NO_MEMORY, "%s: opening", path);
    f->fd = f->unpacked_fd = f->mark.fd = -1;
    f->path = strdup(path);
    qm_status st = f->path ? map_file(f) : qm_fail(QM_NO_MEMORY, "%s: opening", path);
    for (size_t k = 0; st == QM_OK && k < sizeof of_shards / sizeof *of_shards; k++)
        if (!f->format && of_shards[k]->knows(f->map, f->size))
            f->format = of_shards[k];
    if (st == QM_OK)
        st = f->format ? f->format->open(f)
                       : qm_file_bad(f, "a shard that is neither .safetensors nor a torch "
                                        "checkpoint");
    if (f->path && qm_mapped_check(f) != QM_OK)
        st = QM_BAD_FILE;
    if (st == QM_OK)
        *out = f;
    else
        qm_file_close(f);
    return st;
}

qm_status qm_file_check_here(struct qm_file *f)
{
    QM_TRY(qm_mapped_check(f));
    return f->own && f->format->check ? f->format->check(f) : QM_OK;
}

void qm_file_close(struct qm_file *f)
{
    if (!f)
        return;
    qm_reader_end(f->process);
    if (f->format && f->format->close)
        f->format->close(f);
    qm_file_unmap(f);
    if (f->unpacked_fd >= 0)
        close(f->unpacked_fd);
    for (int i = 0; i < f->n_entries; i++)
        free((char *)f->entry[i].name);
    free(f->entry);
    free(f->place);
    free(f->path);
    free(f);
}

int qm_file_is_state(struct qm_file *f)
{
    char format[24];
    return qm_file_attr_text(f, "/", "format", format, sizeof format) > 0 &&
           strcmp(format, "qualm-state") == 0;
}

qm_status qm_file_open_numbers(const char *path, struct qm_file **out)
{
    QM_TRY(qm_file_open(path, out));
    for (int i = 0; qm_file_is_state(*out) && i < qm_file_count(*out); i++)
        if (qm_name_ends(qm_file_entry(*out, i)->name, ".codes")) {
            qm_file_close(*out);
            *out = NULL;
            return qm_fail(QM_BAD_ARG,
                           "%s: is a state file of qualm with codes, expected numbers; `qualm "
                           "state convert %s f32.safetensors --recipe adamw_f32` (or sgdm_f32, "
                           "...: the float32 recipe of its optimizer) decodes it",
                           path, path);
        }
    return QM_OK;
}

int qm_file_count(const struct qm_file *f) { return f->n_entries; }

int qm_entry_matches(const char *name, const char *filter)
{
    return qm_name_matches(name, filter) || (*name == '/' && qm_name_matches(name + 1, filter));
}

const struct qm_entry *qm_file_entry(const struct qm_file *f, int i)
{
    assert(i >= 0 && i < f->n_entries);
    return &f->entry[i];
}

const char *qm_file_format(const struct qm_file *f) { return f->format->name; }

static qm_status read_range(struct qm_file *f, int i, int64_t from, int64_t n, struct qm_sink sink)
{
    if (i < 0 || i >= f->n_entries)
        return qm_fail(QM_BAD_ARG, "%s: entry %d of %d", f->path, i, f->n_entries);
    const struct qm_entry *e = &f->entry[i];
    if (from < 0 || n < 0 || from > e->numel || n > e->numel - from)
        return qm_fail(QM_BAD_ARG, "%s: '%s' has %lld elements, asked for %lld from %lld", f->path,
                       e->name, (long long)e->numel, (long long)n, (long long)from);
    if (n == 0)
        return QM_OK;
    if (f->process)
        return qm_file_ask_read(f, i, from, n, sink);
    QM_TRY(f->format->read(f, i, from, n, sink));
    return qm_mapped_check(f);
}

qm_status qm_file_read(struct qm_file *f, int i, int64_t from, int64_t n, float *out)
{
    return read_range(f, i, from, n, (struct qm_sink){out, NULL});
}

qm_status qm_file_read_double(struct qm_file *f, int i, int64_t from, int64_t n, double *out)
{
    return read_range(f, i, from, n, (struct qm_sink){NULL, out});
}

const float *qm_file_view(struct qm_file *f, int i, int64_t from, int64_t n)
{
    if (i < 0 || i >= f->n_entries || from < 0 || n < 1 || n > f->entry[i].numel - from)
        return NULL;
    return f->process ? NULL : qm_mapped_view(f, i, from, n);
}

qm_status qm_file_read_bytes(struct qm_file *f, int i, void *out)
{
    if (i < 0 || i >= f->n_entries)
        return qm_fail(QM_BAD_ARG, "%s: entry %d of %d", f->path, i, f->n_entries);
    if (f->process)
        return qm_file_ask_bytes(f, i, out);
    QM_TRY(qm_mapped_bytes(f, i, out));
    return qm_mapped_check(f);
}

qm_status qm_file_check(const struct qm_file *f)
{
    if (f->process)
        QM_TRY(qm_reader_check(f->process));
    return qm_mapped_check(f);
}

const struct qm_file_mark *qm_file_mark(const struct qm_file *f) { return &f->mark; }

int qm_file_attr_number(struct qm_file *f, const char *path, const char *name, double *out, int max)
{
    if (f->process)
        return qm_file_ask_number(f, path, name, out, max);
    return f->format->attr_number ? f->format->attr_number(f, path, name, out, max) : -1;
}

void qm_left_out_add(struct qm_left_out *l, const char *format, ...)
{
    char line[320];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    size_t n = strlen(l->text), more = strlen(line) + (n ? 2 : 0);
    int is_named = l->n_named == l->n++ && l->n_named < 8 && n + more < sizeof l->text;
    if (is_named)
        snprintf(l->text + n, sizeof l->text - n, "%s%s", n ? "; " : "", line);
    l->n_named += is_named;
}

int qm_left_out_text(const struct qm_left_out *l, char *out, size_t size)
{
    if (l->n == 0)
        return -1;
    if (l->n > l->n_named)
        return snprintf(out, size, "%s; and %d more", l->text, l->n - l->n_named);
    return snprintf(out, size, "%s", l->text);
}

int qm_file_left_out(struct qm_file *f, char *out, size_t size)
{
    int n = qm_file_attr_text(f, "/", "left_out", out, size);
    return n > 0 ? n : 0;
}

int qm_file_joined(struct qm_file *f, char *out, size_t size)
{
    int n = qm_file_attr_text(f, "/", "joined", out, size);
    return n > 0 ? n : 0;
}

int qm_file_remark(struct qm_file *f, char out[QM_FILE_REMARK])
{
    char left_out[1024];
    qm_file_joined(f, out, QM_FILE_REMARK / 3);
    int n = (int)strlen(out);
    if (qm_file_left_out(f, left_out, sizeof left_out))
        n += snprintf(out + n, (size_t)(QM_FILE_REMARK - n), "%sleft out: %s", n ? "; " : "",
                      left_out);
    int complex = 0;
    for (int i = 0; i < f->n_entries; i++)
        complex += f->place[i].is_complex;
    if (complex)
        n += snprintf(out + n, (size_t)(QM_FILE_REMARK - n),
                      "%scomplex numbers in %d of %d arrays, whose real and imaginary part are "
                      "a last axis of 2",
                      n ? "; " : "", complex, f->n_entries);
    return n;
}

int qm_file_attr_text(struct qm_file *f, const char *path, const char *name, char *out, size_t size)
{
    if (size > 0)
        out[0] = '\0';
    if (f->process)
        return qm_file_ask_text(f, path, name, out, size);
    return f->format->attr_text ? f->format->attr_text(f, path, name, out, size) : -1;
}
