/* npz.c - The reader of NumPy's .npz files: zip archives of .npy files.
 *
 * The archive is unpacked into a file in memory, which replaces the mapping, so that entries are
 * read as .npy files are.  libzip checks the archive's structure and each entry's checksum. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zip.h>

#include "core/base/memory.h"
#include "experiments/foreign/reader_process.h"
#include "experiments/readers/format.h"

enum { NAME_MOST = 1023, PIECE = 1 << 22 };

static int knows(const unsigned char *map, size_t size)
{
    return size >= 22 && memcmp(map, "PK", 2) == 0 &&
           (memcmp(map + 2, "\3\4", 2) == 0 || memcmp(map + 2, "\5\6", 2) == 0);
}

const char *qm_zip_word(zip_error_t *e)
{
    switch (zip_error_code_zip(e)) {
    case ZIP_ER_NOENT:
    case ZIP_ER_INVAL:
    case ZIP_ER_OPEN:
    case ZIP_ER_READ:
    case ZIP_ER_SEEK:
    case ZIP_ER_EOF: return "an offset or a size in its directory lies outside of the file";
    default: return zip_error_strerror(e);
    }
}

static uint64_t number(const unsigned char *at, int bytes)
{
    uint64_t x = 0;
    while (bytes-- > 0)
        x = x << 8 | at[bytes];
    return x;
}

/* Whether the only end record within reach of readers ends the file, and stands right behind the
 * directory that it names (PKWARE APPNOTE 6.3.10, 4.3.14 to 4.3.16).  Archives that are joined, or
 * of which one lies in the other's comment, have a second one: which of them is read differs
 * between readers, and so do the values.
 *
 * END, END64, LOCATOR: bytes of the records; REACH: a comment has at most 65,535 bytes. */
static qm_status check_end(struct qm_file *f)
{
    enum { END = 22, END64 = 56, LOCATOR = 20, REACH = 65535 + END };
    const unsigned char *m = f->map;
    const size_t none = (size_t)-1;
    size_t from = f->size > REACH ? f->size - REACH : 0, at = none;
    for (size_t k = from; k + 4 <= f->size; k++)
        if (memcmp(m + k, "PK\5\6", 4) == 0) {
            if (at != none)
                return qm_file_bad(f,
                                   "has two end records of zip, at bytes %zu and %zu, and readers "
                                   "differ in which they take",
                                   at, k);
            at = k;
        }
    if (at == none || f->size - at < END || f->size - at - END != number(m + at + 20, 2))
        return qm_file_bad(f, "the archive's end record and its comment do not end the file");
    uint64_t bytes = number(m + at + 12, 4), begin = number(m + at + 16, 4), end = at;
    int is_64 = at >= LOCATOR && memcmp(m + at - LOCATOR, "PK\6\7", 4) == 0;
    if (is_64) {
        end = number(m + at - LOCATOR + 8, 8);
        if (at < END64 + LOCATOR || end > at - END64 - LOCATOR || memcmp(m + end, "PK\6\6", 4) != 0)
            return qm_file_bad(f, "the archive's record of 64-bit sizes is not where it says");
        bytes = number(m + end + 40, 8);
        begin = number(m + end + 48, 8);
    }
    if (begin > end || bytes != end - begin)
        return qm_file_bad(f,
                           "the archive's directory, %llu bytes from byte %llu on, does not end "
                           "at its end record at byte %llu",
                           (unsigned long long)bytes, (unsigned long long)begin,
                           (unsigned long long)end);
    return QM_OK;
}

qm_status qm_zip_check(struct qm_file *f, zip_t *z)
{
    QM_TRY(check_end(f));
    const zip_uint64_t wanted = ZIP_STAT_NAME | ZIP_STAT_COMP_METHOD;
    for (zip_int64_t i = 0; i < zip_get_num_entries(z, 0); i++) {
        zip_stat_t info;
        if (zip_stat_index(z, (zip_uint64_t)i, 0, &info) != 0 || (info.valid & wanted) != wanted)
            return qm_file_bad(f, "entry %lld is damaged: %s", (long long)i,
                               qm_zip_word(zip_get_error(z)));
        if (zip_name_locate(z, info.name, 0) != i)
            return qm_file_bad(f, "two entries have the name '%.200s'", info.name);
        if (info.comp_method != ZIP_CM_STORE && info.comp_method != ZIP_CM_DEFLATE)
            return qm_file_bad(f,
                               "entry '%.200s' is compressed by method %d of zip, expected %d "
                               "(none) or %d (deflate)",
                               info.name, info.comp_method, ZIP_CM_STORE, ZIP_CM_DEFLATE);
        qm_reader_progress();
    }
    return QM_OK;
}

/* The sizes of entry i; QM_BAD_FILE when its compressed size cannot hold the claimed size. */
static qm_status entry_size(struct qm_file *f, zip_t *z, zip_uint64_t i, zip_stat_t *out)
{
    const zip_uint64_t wanted = ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE;
    if (zip_stat_index(z, i, 0, out) != 0 || (out->valid & wanted) != wanted)
        return qm_file_bad(f, "entry %llu is damaged: %s", (unsigned long long)i,
                           qm_zip_word(zip_get_error(z)));
    if (out->comp_size > f->size || out->size > QM_DEFLATE_MOST * (out->comp_size + 1))
        return qm_file_bad(f, "entry '%s' claims %llu bytes in %llu", out->name,
                           (unsigned long long)out->size, (unsigned long long)out->comp_size);
    return QM_OK;
}

/* Bytes unpacked between two signs of progress. */
static size_t piece_of(size_t left) { return left < PIECE ? left : PIECE; }

static qm_status unpack(struct qm_file *f, zip_t *z, zip_uint64_t i, unsigned char *to, size_t size)
{
    zip_file_t *e = zip_fopen_index(z, i, 0);
    size_t done = 0;
    zip_int64_t got = 0;
    if (!e)
        return qm_file_bad(f, "entry '%.200s' is damaged: %s, expected its %zu bytes there",
                           zip_get_name(z, i, 0), qm_zip_word(zip_get_error(z)), size);
    while (done < size && (got = zip_fread(e, to + done, piece_of(size - done))) > 0) {
        done += (size_t)got;
        qm_reader_progress();
    }
    unsigned char more;
    int clean = done == size && zip_fread(e, &more, 1) == 0; /* libzip checks the sum at the end */
    if (zip_fclose(e) != 0 || !clean)
        return qm_file_bad(f, "entry %llu is damaged", (unsigned long long)i);
    return QM_OK;
}

/* The bytes of all entries, each rounded up to 64.  QM_BAD_FILE: an archive that unpacks to more
 * than the memory limit, unless it is at most four times as large as the archive and half of the
 * free memory. */
static qm_status total_size(struct qm_file *f, zip_t *z, size_t *out)
{
    zip_int64_t n = zip_get_num_entries(z, 0);
    size_t size = 0;
    zip_stat_t info;
    for (zip_int64_t i = 0; i < n; i++) {
        QM_TRY(entry_size(f, z, (zip_uint64_t)i, &info));
        if (__builtin_add_overflow(size, ((size_t)info.size + 63) / 64 * 64, &size))
            return qm_file_bad(f, "its entries do not fit in 2^64 bytes");
        qm_reader_progress();
    }
    if (size > (size_t)qm_reader_memory() &&
        (size > 4 * f->size || size > qm_memory_available() / 2))
        return qm_file_bad(f, "%zu bytes unpack to %zu; QM_READER_MEMORY allows %lld MiB", f->size,
                           size, (long long)(qm_reader_memory() >> 20));
    if (size == 0)
        return qm_file_bad(f, "the archive holds nothing");
    *out = size;
    return QM_OK;
}

/* Unpacks all entries into the file in memory, each at a multiple of 64 bytes. */
static qm_status unpack_all(struct qm_file *f, zip_t *z, unsigned char **map, size_t *size)
{
    zip_int64_t n = zip_get_num_entries(z, 0);
    zip_stat_t info;
    QM_TRY(qm_zip_check(f, z));
    QM_TRY(total_size(f, z, size));
    void *room = ftruncate(f->unpacked_fd, (off_t)*size) != 0
                     ? MAP_FAILED
                     : mmap(NULL, *size, PROT_READ | PROT_WRITE, MAP_SHARED, f->unpacked_fd, 0);
    if (room == MAP_FAILED)
        return qm_file_bad(f, "cannot be unpacked to %zu bytes: %s", *size, strerror(errno));
    *map = room;
    for (zip_int64_t i = 0, at = 0; i < n; i++) {
        QM_TRY(entry_size(f, z, (zip_uint64_t)i, &info));
        QM_TRY(unpack(f, z, (zip_uint64_t)i, *map + at, (size_t)info.size));
        at += ((zip_int64_t)info.size + 63) / 64 * 64;
    }
    return QM_OK;
}

/* Adds all entries of the unpacked mapping, or names them as left out. */
static qm_status add_all(struct qm_file *f, zip_t *z)
{
    struct qm_left_out left = {.n = 0};
    zip_stat_t info;
    size_t at = 0;
    for (zip_int64_t i = 0; i < zip_get_num_entries(z, 0); i++) {
        char name[NAME_MOST + 1];
        QM_TRY(entry_size(f, z, (zip_uint64_t)i, &info));
        size_t length = strlen(info.name);
        if (length > NAME_MOST)
            return qm_file_bad(f, "an entry's name has more than %d bytes", NAME_MOST);
        memcpy(name, info.name, length + 1);
        if (length > 4 && strcmp(name + length - 4, ".npy") == 0)
            name[length - 4] = '\0';
        int is_array = info.size >= 6 && memcmp(f->map + at, "\x93NUMPY", 6) == 0;
        if (!is_array && length == strlen(name)) { /* a folder, a text: no name of an array */
            qm_left_out_add(&left, "%.200s (no .npy)", name);
            at += ((size_t)info.size + 63) / 64 * 64;
            continue;
        }
        qm_status st = qm_npy_add(f, name, at, at + (size_t)info.size, &left);
        if (st != QM_OK)
            return qm_fail_in(st, name);
        at += ((size_t)info.size + 63) / 64 * 64;
    }
    return qm_texts_left_out(f, &left);
}

qm_status qm_zip_entries_check(struct qm_file *f)
{
    zip_error_t error;
    zip_error_init(&error);
    zip_source_t *source = zip_source_buffer_create(f->map, f->size, 0, &error);
    zip_t *z = source ? zip_open_from_source(source, ZIP_RDONLY | ZIP_CHECKCONS, &error) : NULL;
    qm_status st = z ? QM_OK
                     : qm_file_bad(f,
                                   "the archive is damaged: %s; expected entries with the names "
                                   "and sizes of its directory",
                                   qm_zip_word(&error));
    if (z)
        zip_discard(z);
    else if (source)
        zip_source_free(source);
    zip_error_fini(&error);
    return st;
}

static qm_status open_npz(struct qm_file *f)
{
    zip_error_t error;
    zip_error_init(&error);
    zip_source_t *source = zip_source_buffer_create(f->map, f->size, 0, &error);
    zip_t *z = source ? zip_open_from_source(source, ZIP_RDONLY, &error) : NULL;
    unsigned char *map = NULL;
    size_t size = 0;
    qm_status st =
        z ? unpack_all(f, z, &map, &size)
          : qm_file_bad(f, "the archive is damaged: %s; expected a zip file with its directory",
                        qm_zip_word(&error));
    if (!z && source)
        zip_source_free(source);
    zip_error_fini(&error);
    if (st == QM_OK)
        st = qm_zip_entries_check(f);
    if (st == QM_OK) { /* the unpacked contents replace the archive, which others hold */
        f->map = map;
        f->size = size;
        st = add_all(f, z);
    } else if (map) {
        munmap(map, size);
    }
    if (z)
        zip_discard(z);
    return st;
}

const struct qm_format qm_format_npz = {
    .name = "npz",
    .knows = knows,
    .open = open_npz,
    .read = qm_mapped_read,
    .close = qm_texts_close,
    .attr_number = qm_texts_number,
    .attr_text = qm_texts_text,
    .has_texts = 1,
    .kind = QM_FORMAT_unpacked,
};
