/* h5_guard.c - Opens HDF5 files and checks links and storage before anything is read. */
#include "experiments/foreign/h5_guard.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/read_set.h"
#include "experiments/foreign/h5_chunks.h"
#include "experiments/foreign/reader_process.h"

/* Bytes that a dataset may have beyond what it stores.  Absent chunks are filled one by one: 332 MB
 * in chunks of 1,536 bytes took 9 s of processor time, so that 64 MiB take about 2 s. */
#define SPARSE_MOST         ((uint64_t)1 << 30)
#define SPARSE_MOST_CHUNKED ((uint64_t)1 << 26)
#define PLACES_MOST         ((uint64_t)1 << 20) /* of chunks that are looked for */

static herr_t keep_first(unsigned n, const H5E_error2_t *e, void *text)
{
    if (n == 0 && e->desc)
        snprintf(text, 200, "%s", e->desc);
    return 0;
}

const char *qm_h5_guard_reason(char text[200])
{
    snprintf(text, 200, "HDF5 gives no reason");
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_first, text);
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    size_t n = strlen(text);
    if (strstr(text, "bad version number"))
        snprintf(text + n, 200 - n, " (the file is of a newer HDF5 than the %d.%d here)",
                 H5_VERS_MAJOR, H5_VERS_MINOR);
    else if (strstr(text, "memory allocation failed"))
        snprintf(text + n, 200 - n, " (QM_READER_MEMORY, in MiB, allows more)");
    return text;
}

static qm_status readable(const char *path)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not block */
    if (fd < 0 || fstat(fd, &info) != 0) {
        int why = errno;
        if (fd >= 0)
            close(fd);
        return qm_fail(QM_BAD_FILE, "%s: %s", path, strerror(why));
    }
    close(fd);
    if (S_ISDIR(info.st_mode))
        return qm_fail(QM_BAD_FILE, "%s: is a folder, expected an HDF5 file", path);
    if (!S_ISREG(info.st_mode))
        return qm_fail(QM_BAD_FILE, "%s: is not a regular file", path);
    if (info.st_size == 0)
        return qm_fail(QM_BAD_FILE, "%s: is empty, expected an HDF5 file", path);
    return QM_OK;
}

/* Whether the library has opened the file that was marked before, which another may have replaced
 * meanwhile. */
static qm_status is_expected(const char *path, hid_t file)
{
    void *handle = NULL;
    if (H5Fget_vfd_handle(file, H5P_DEFAULT, &handle) < 0 || !handle)
        return QM_OK; /* a driver without a descriptor */
    return qm_reader_expect(path, *(const int *)handle);
}

qm_status qm_h5_guard_open(const char *path, size_t cache, hid_t *out)
{
    char why[200];
    QM_TRY(readable(path));
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    H5PLset_loading_state(0);
    if (H5Fis_hdf5(path) <= 0)
        return qm_fail(QM_BAD_FILE, "%s: is not an HDF5 file", path);
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_fclose_degree(access, H5F_CLOSE_STRONG);
    H5Pset_file_locking(access, 1, 1); /* read also on file systems without locks */
    H5Pset_cache(access, 0, 521, cache, 0.75);
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, access);
    qm_status st = QM_OK;
    if (file < 0)
        st = qm_fail(QM_BAD_FILE, "%s: HDF5 cannot open it, is it damaged or still written? %s",
                     path, qm_h5_guard_reason(why));
    else if ((st = is_expected(path, file)) == QM_OK)
        *out = file;
    else
        H5Fclose(file);
    H5Pclose(access);
    if (st == QM_OK)
        qm_reader_close_doors();
    return st;
}

qm_status qm_h5_guard_count(struct qm_h5_walk_count *count)
{
    qm_reader_progress();
    return ++count->links <= QM_H5_LINK_MAX
               ? QM_OK
               : qm_fail(QM_BAD_FILE, "has more than %d links", QM_H5_LINK_MAX);
}

qm_status qm_h5_guard_group(unsigned names, struct qm_h5_walk_count *count)
{
    count->shared += names > 1;
    return count->shared <= QM_H5_SHARE_MAX
               ? QM_OK
               : qm_fail(QM_BAD_FILE, "has more than %d paths through groups with several names",
                         QM_H5_SHARE_MAX);
}

qm_status qm_h5_guard_link(const char *path, const char *name, const H5L_info_t *link,
                           struct qm_h5_walk_count *count)
{
    qm_status st = qm_h5_guard_count(count);
    if (st == QM_OK && link->type == H5L_TYPE_SOFT)
        st = qm_h5_guard_group(2, count);
    if (st != QM_OK)
        return qm_fail_in(st, path);
    if (link->type == H5L_TYPE_EXTERNAL && !qm_reader_follows_links())
        return qm_fail(QM_BAD_FILE,
                       "%s: link '%.200s' leads out of the file; QM_FOLLOW_LINKS=1 follows it",
                       path, name);
    return QM_OK;
}

/* ---- types --------------------------------------------------------------------------------- */

int qm_h5_guard_float(hid_t type, enum qm_dtype *out)
{
    static const struct {
        size_t bytes, exponent, mantissa;
        enum qm_dtype dtype;
    } known[] = {{8, 11, 52, QM_DTYPE_f64},
                 {4, 8, 23, QM_DTYPE_f32},
                 {2, 5, 10, QM_DTYPE_f16},
                 {2, 8, 7, QM_DTYPE_bf16}};
    size_t bytes = H5Tget_size(type), sign, e_at, e, m_at, m;
    H5T_order_t order = H5Tget_order(type);
    if (H5Tget_class(type) != H5T_FLOAT || (order != H5T_ORDER_LE && order != H5T_ORDER_BE) ||
        H5Tget_fields(type, &sign, &e_at, &e, &m_at, &m) < 0 || H5Tget_offset(type) != 0 ||
        H5Tget_precision(type) != 8 * bytes || H5Tget_norm(type) != H5T_NORM_IMPLIED ||
        sign != 8 * bytes - 1 || e_at != m || m_at != 0)
        return 0;
    for (size_t k = 0; k < sizeof known / sizeof *known; k++)
        if (bytes == known[k].bytes && e == known[k].exponent && m == known[k].mantissa &&
            H5Tget_ebias(type) == ((size_t)1 << (e - 1)) - 1) {
            *out = known[k].dtype;
            return 1;
        }
    return 0;
}

/* ---- storage ------------------------------------------------------------------------------- */

/* What a dataset claims and stores, in bytes. */
struct extent {
    uint64_t claimed, stored, file;
    haddr_t offset; /* of contiguous data */
    int is_exact;   /* the claim is what must be stored: elements have one size, here and there */
};

/* The bytes of one chunk, and what all chunks store. */
struct chunks {
    uint64_t bytes, stored;
    int is_filtered;
};

/* Whether a type takes as many bytes in a file as in memory. */
static int has_one_size(hid_t set)
{
    hid_t type = H5Dget_type(set);
    int has = type >= 0 && H5Tdetect_class(type, H5T_VLEN) == 0 &&
              H5Tdetect_class(type, H5T_STRING) == 0 && H5Tdetect_class(type, H5T_REFERENCE) == 0;
    H5Tclose(type);
    return has;
}

static int claimed_bytes(hid_t set, uint64_t *out)
{
    hsize_t dims[H5S_MAX_RANK];
    hid_t space = H5Dget_space(set), type = H5Dget_type(set);
    uint64_t n = type < 0 ? 0 : H5Tget_size(type);
    int rank = space < 0 ? -1 : H5Sget_simple_extent_dims(space, dims, NULL), fits = rank >= 0;
    if (space >= 0 && H5Sget_simple_extent_type(space) == H5S_NULL)
        n = 0;
    for (int k = 0; fits && k < rank; k++)
        fits = !__builtin_mul_overflow(n, dims[k], &n);
    for (int k = 0; k < rank; k++) /* an empty dimension makes the product 0 */
        if (dims[k] == 0) {
            n = 0;
            fits = 1;
        }
    H5Sclose(space);
    H5Tclose(type);
    *out = n;
    return fits && n <= INT64_MAX;
}

static uint64_t file_bytes(hid_t set)
{
    hsize_t size = 0;
    hid_t file = H5Iget_file_id(set);
    H5Fget_filesize(file, &size);
    H5Fclose(file);
    return size;
}

/* Where contiguous data lie; HADDR_UNDEF where none were written, to which libhdf5 adds the bytes
 * of the user's block that a file may begin with. */
static haddr_t offset_of(hid_t set)
{
    hid_t file = H5Iget_file_id(set), plist = H5Fget_create_plist(file);
    hsize_t block = 0;
    haddr_t at = H5Dget_offset(set);
    H5Pget_userblock(plist, &block);
    H5Pclose(plist);
    H5Fclose(file);
    return at == HADDR_UNDEF + block ? HADDR_UNDEF : at;
}

static qm_status compact(const char *name, const struct extent *e)
{
    if (e->is_exact ? e->claimed != e->stored : e->claimed > e->stored)
        return qm_fail(QM_BAD_FILE, "%.200s: claims %llu bytes, and stores %llu", name,
                       (unsigned long long)e->claimed, (unsigned long long)e->stored);
    return QM_OK;
}

static qm_status contiguous(const char *name, const struct extent *e)
{
    if (e->offset == HADDR_UNDEF) /* never written */
        return e->claimed <= SPARSE_MOST
                   ? QM_OK
                   : qm_fail(QM_BAD_FILE, "%.200s: %llu bytes, of which none were written", name,
                             (unsigned long long)e->claimed);
    if (e->offset > e->file || e->claimed > e->file - e->offset)
        return qm_fail(QM_BAD_FILE, "%.200s: %llu bytes at %llu, but the file ends at %llu", name,
                       (unsigned long long)e->claimed, (unsigned long long)e->offset,
                       (unsigned long long)e->file);
    return compact(name, e);
}

/* The bytes of the chunk at a place, 0 where it has none.  *end: of the chunk that ends last in the
 * file; of chunks with filters it is not asked for, which takes a walk over the whole index, and
 * libhdf5 1.10 does not find it in an index along an axis that is not the first. */
static uint64_t bytes_at(hid_t set, const hsize_t *at, int is_filtered, uint64_t *end)
{
    hsize_t bytes = 0;
    haddr_t place = HADDR_UNDEF;
    unsigned skipped;
    uint64_t last;
    if (is_filtered)
        return H5Dget_chunk_storage_size(set, at, &bytes) >= 0 ? bytes : 0;
    if (H5Dget_chunk_info_by_coord(set, at, &skipped, &place, &bytes) < 0 || place == HADDR_UNDEF)
        return H5Dget_chunk_storage_size(set, at, &bytes) >= 0 ? bytes : 0;
    if (__builtin_add_overflow(place, bytes, &last))
        last = UINT64_MAX;
    *end = last > *end ? last : *end;
    return bytes;
}

/* Whether every chunk is found where some place of the dataset looks for it: the chunks that the
 * places find have as many bytes as all that the index lists.  Otherwise one lies outside or
 * between the places, or a second time in one.  *end: as bytes_at.  *odd: the size of a chunk
 * without filters that is not that of all. */
static int has_chunks_in_place(hid_t set, hid_t plist, const struct chunks *c, uint64_t *end,
                               uint64_t *odd)
{
    hsize_t side[H5S_MAX_RANK], dims[H5S_MAX_RANK], at[H5S_MAX_RANK] = {0};
    hid_t space = H5Dget_space(set);
    int rank = H5Sget_simple_extent_dims(space, dims, NULL), k;
    uint64_t places = qm_h5_chunks_places(set, plist), found = 0;
    H5Sclose(space);
    if (rank < 1 || H5Pget_chunk(plist, H5S_MAX_RANK, side) != rank)
        return 0;
    if (places > PLACES_MOST)
        return 1;
    for (uint64_t i = 0; i < places && found < c->stored; i++) {
        uint64_t bytes = bytes_at(set, at, c->is_filtered, end);
        if (bytes > 0 && bytes != c->bytes && !c->is_filtered)
            *odd = bytes;
        found += bytes;
        for (k = rank - 1; k >= 0 && (at[k] += side[k]) >= dims[k]; k--)
            at[k] = 0;
        if (i % 4096 == 0)
            qm_reader_progress();
    }
    return found == c->stored;
}

/* Whether the index of chunks can be read: where it cannot, nothing seems to be stored. */
static int has_index(hid_t set, char why[200])
{
    hsize_t n = 0;
    hid_t space = H5Dget_space(set);
    int has = H5Dget_num_chunks(set, space, &n) >= 0;
    if (!has)
        qm_h5_guard_reason(why);
    H5Sclose(space);
    return has;
}

static qm_status chunked(const char *name, hid_t set, hid_t plist, const struct extent *e)
{
    uint64_t chunk = qm_h5_chunks_bytes(set, plist), most = (uint64_t)qm_reader_memory();
    if (chunk > most)
        return qm_fail(QM_BAD_FILE,
                       "%.200s: chunks of %llu bytes; QM_READER_MEMORY allows %llu MiB", name,
                       (unsigned long long)chunk, (unsigned long long)(most >> 20));
    if (e->stored > e->file)
        return qm_fail(QM_BAD_FILE, "%.200s: chunks of %llu bytes in a file of %llu", name,
                       (unsigned long long)e->stored, (unsigned long long)e->file);
    if (e->claimed > SPARSE_MOST_CHUNKED && e->claimed / QM_DEFLATE_MOST > e->stored)
        return qm_fail(QM_BAD_FILE,
                       "%.200s: claims %llu bytes, and stores %llu; beyond %d MiB at most %d times "
                       "as many are read",
                       name, (unsigned long long)e->claimed, (unsigned long long)e->stored,
                       (int)(SPARSE_MOST_CHUNKED >> 20), QM_DEFLATE_MOST);
    const struct chunks c = {chunk, e->stored, H5Pget_nfilters(plist) != 0};
    uint64_t end = 0, odd = 0;
    char why[200];
    if (e->stored == 0 && !has_index(set, why))
        return qm_fail(QM_BAD_FILE, "%.200s: %s", name, why);
    if (!has_chunks_in_place(set, plist, &c, &end, &odd))
        return qm_fail(QM_BAD_FILE, "%.200s: a chunk does not lie at a place of its own in it",
                       name);
    if (odd > 0)
        return qm_fail(QM_BAD_FILE, "%.200s: a chunk stores %llu bytes, expected %llu", name,
                       (unsigned long long)odd, (unsigned long long)chunk);
    return end <= e->file
               ? QM_OK
               : qm_fail(QM_BAD_FILE, "%.200s: a chunk ends at byte %llu, but the file at %llu",
                         name, (unsigned long long)end, (unsigned long long)e->file);
}

/* Whether each place of a dataset in chunks has one. */
static int has_all_chunks(hid_t set, hid_t plist)
{
    hsize_t n = 0;
    hid_t space = H5Dget_space(set);
    int is_known = space >= 0 && H5Dget_num_chunks(set, space, &n) >= 0;
    H5Sclose(space);
    return is_known && n == qm_h5_chunks_places(set, plist);
}

int qm_h5_guard_has_holes(hid_t set)
{
    uint64_t bytes = 0;
    H5D_fill_time_t time = H5D_FILL_TIME_IFSET;
    H5D_space_status_t status = H5D_SPACE_STATUS_ALLOCATED;
    hid_t plist = H5Dget_create_plist(set);
    int is_never = plist >= 0 && H5Pget_fill_time(plist, &time) >= 0 &&
                   time == H5D_FILL_TIME_NEVER && claimed_bytes(set, &bytes) && bytes > 0;
    int has = is_never &&
              (H5Pget_layout(plist) == H5D_CHUNKED ? !has_all_chunks(set, plist)
                                                   : H5Dget_space_status(set, &status) >= 0 &&
                                                         status != H5D_SPACE_STATUS_ALLOCATED);
    H5Pclose(plist);
    return has;
}

/* Notes the file that a dataset lies in, which a link may lead to (core/base/read_set.h). */
static void note_file(hid_t set)
{
    void *handle = NULL;
    hid_t file = H5Iget_file_id(set);
    if (file >= 0 && H5Fget_vfd_handle(file, H5P_DEFAULT, &handle) >= 0 && handle)
        qm_read_set_note(*(const int *)handle);
    if (file >= 0)
        H5Fclose(file);
}

qm_status qm_h5_guard_dataset(const char *path, const char *name, hid_t set)
{
    char why[200];
    struct extent e = {0, 0, file_bytes(set), HADDR_UNDEF, has_one_size(set)};
    hid_t plist = H5Dget_create_plist(set);
    if (plist < 0)
        return qm_fail(QM_BAD_FILE, "%.200s: %s", name, qm_h5_guard_reason(why));
    qm_reader_progress();
    qm_status st = QM_OK;
    if (!claimed_bytes(set, &e.claimed))
        st = qm_fail(QM_BAD_FILE, "%.200s does not fit in 2^63 bytes", name);
    else if (qm_h5_guard_has_holes(set))
        st = qm_fail(
            QM_BAD_FILE,
            "%.200s has values that were never written, and that HDF5 is told never to fill", name);
    else if (H5Pget_external_count(plist) > 0 && !qm_reader_follows_links())
        st = qm_fail(QM_BAD_FILE, "%.200s has its data in another file", name);
    if (st == QM_OK && qm_reader_follows_links())
        note_file(set);
    H5D_layout_t layout = H5Pget_layout(plist);
    if (st == QM_OK && layout != H5D_VIRTUAL)
        e.stored = H5Dget_storage_size(set);
    if (st == QM_OK && layout == H5D_CONTIGUOUS && H5Pget_external_count(plist) == 0) {
        e.offset = offset_of(set);
        st = contiguous(name, &e);
    } else if (st == QM_OK && layout == H5D_COMPACT) {
        st = compact(name, &e);
    } else if (st == QM_OK && layout == H5D_CHUNKED) {
        st = chunked(name, set, plist, &e);
    } else if (st == QM_OK && layout == H5D_VIRTUAL && !qm_reader_follows_links()) {
        st = qm_fail(QM_BAD_FILE, "%.200s has its data in other files", name);
    }
    H5Pclose(plist);
    return st == QM_OK || !path ? st : qm_fail_in(st, path);
}
