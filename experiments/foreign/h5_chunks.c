/* h5_chunks.c - Unpacks the filtered chunks of an HDF5 dataset to see that each has its size. */
#include "experiments/foreign/h5_chunks.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "experiments/foreign/reader_process.h"

#define PLACES_MOST ((uint64_t)1 << 24) /* each is looked up in about a microsecond */

enum {
    FILTERS = H5Z_MAX_NFILTERS,
    PARAMETERS = 8,          /* of a filter, that are used */
    SUM_BYTES = 4,           /* of fletcher32, behind the data */
    SCALEOFFSET_HEADER = 21, /* bits of a number, bytes of the least one, and that one */
    WINDOW = 1 << 16,        /* bytes that are inflated at a time and not kept */
};

struct filter {
    H5Z_filter_t id;
    size_t n;
    unsigned parameter[PARAMETERS];
};

struct unpacking {
    hid_t set;
    struct filter filter[FILTERS]; /* in the order in which they packed */
    int n;
    size_t chunk;            /* bytes of an unpacked chunk */
    size_t most;             /* that it may have in between: what packing adds is less */
    unsigned char *at, *out; /* a chunk as it is so far, and room for what a filter makes of it */
    size_t room, out_room;   /* of both */
    size_t bytes;            /* of the chunk at `at` */
    int is_gone;             /* only its size is known */
    z_stream stream;
    char why[120];
};

/* ---- the filters --------------------------------------------------------------------------- */

static int refuse(struct unpacking *u, const char *why)
{
    snprintf(u->why, sizeof u->why, "%s", why);
    return 0;
}

static int grow(unsigned char **at, size_t *room, size_t bytes)
{
    if (bytes <= *room)
        return 1;
    free(*at);
    *at = malloc(bytes);
    *room = *at ? bytes : 0;
    return *at != NULL;
}

static void swap(struct unpacking *u)
{
    unsigned char *at = u->at;
    size_t room = u->room;
    u->at = u->out;
    u->room = u->out_room;
    u->out = at;
    u->out_room = room;
}

static int undo_deflate(struct unpacking *u, int keep)
{
    z_stream *z = &u->stream;
    if (!grow(&u->out, &u->out_room, keep ? u->most : WINDOW))
        return refuse(u, "there is no memory to unpack it");
    inflateReset(z);
    z->next_in = u->at;
    z->avail_in = (uInt)u->bytes;
    int end = Z_OK;
    while (end == Z_OK && z->total_out <= u->most) {
        z->next_out = u->out + (keep ? z->total_out : 0);
        z->avail_out = keep ? (uInt)(u->most - z->total_out) : WINDOW;
        end = inflate(z, Z_NO_FLUSH);
    }
    if (z->total_out > u->most || end == Z_OK || (end == Z_BUF_ERROR && z->avail_in > 0))
        return refuse(u, "unpacks to more bytes than a chunk has");
    if (end != Z_STREAM_END)
        return refuse(u, "cannot be inflated");
    u->bytes = z->total_out;
    if (keep)
        swap(u);
    u->is_gone = !keep;
    return 1;
}

static int undo_shuffle(struct unpacking *u, const struct filter *f, int keep)
{
    size_t width = f->n > 0 ? f->parameter[0] : 0;
    if (width == 0)
        return refuse(u, "is shuffled in elements of no bytes");
    size_t n = u->bytes / width;
    if (!keep || width == 1 || n < 2)
        return 1;
    if (!grow(&u->out, &u->out_room, u->bytes))
        return refuse(u, "there is no memory to unpack it");
    for (size_t k = 0; k < width; k++)
        for (size_t i = 0; i < n; i++)
            u->out[i * width + k] = u->at[k * n + i];
    memcpy(u->out + n * width, u->at + n * width, u->bytes - n * width);
    swap(u);
    return 1;
}

static int undo_fletcher32(struct unpacking *u)
{
    if (u->bytes < SUM_BYTES)
        return refuse(u, "is shorter than its checksum");
    u->bytes -= SUM_BYTES;
    return 1;
}

/* What n numbers of `width` bytes become where each was packed into so many bits. */
static int undo_bits(struct unpacking *u, uint64_t n, uint64_t width, uint64_t bits, size_t header)
{
    uint64_t all, packed;
    if (__builtin_mul_overflow(n, width, &all) || __builtin_mul_overflow(n, bits, &packed) ||
        bits > 8 * width)
        return refuse(u, "has numbers of an impossible size");
    if (u->bytes < header + packed / 8 + (packed % 8 != 0))
        return refuse(u, "holds fewer bits than its numbers have");
    u->bytes = all;
    u->is_gone = 1;
    return 1;
}

/* Parameters: kind of scale (2: integers), bits, numbers, class, bytes of one. */
static int undo_scaleoffset(struct unpacking *u, const struct filter *f)
{
    const unsigned *p = f->parameter;
    if (f->n < PARAMETERS)
        return refuse(u, "has too few parameters of scaleoffset");
    if (p[0] == 2 && p[1] == 8 * p[4]) /* the filter leaves it as it is */
        return 1;
    if (u->bytes < SCALEOFFSET_HEADER)
        return refuse(u, "is shorter than the header of scaleoffset");
    const unsigned char *b = u->at;
    uint32_t bits = b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
    return undo_bits(u, p[2], p[4], bits, SCALEOFFSET_HEADER);
}

/* Parameters: their number, whether nothing is packed, numbers, class (1: single numbers, 4: not
 * packed), bytes of one, byte order, bits, their place. */
static int undo_nbit(struct unpacking *u, const struct filter *f)
{
    const unsigned *p = f->parameter;
    if (f->n < 5)
        return refuse(u, "has too few parameters of nbit");
    if (p[1])
        return 1;
    if (p[3] == 4)
        return undo_bits(u, p[2], p[4], 8 * (uint64_t)p[4], 0);
    if (p[3] != 1 || f->n < PARAMETERS || p[6] == 0 || (uint64_t)p[6] + p[7] > 8 * (uint64_t)p[4])
        return refuse(u, "is packed by nbit in a form whose size cannot be checked");
    return undo_bits(u, p[2], p[4], p[6], 0);
}

enum { LZF = 32000 }; /* registered with the HDF Group for h5py */

static int undo_one(struct unpacking *u, const struct filter *f, int keep)
{
    switch (f->id) {
    case H5Z_FILTER_DEFLATE: return undo_deflate(u, keep);
    case H5Z_FILTER_SHUFFLE: return undo_shuffle(u, f, keep);
    case H5Z_FILTER_FLETCHER32: return undo_fletcher32(u);
    case H5Z_FILTER_SCALEOFFSET: return undo_scaleoffset(u, f);
    case H5Z_FILTER_NBIT: return undo_nbit(u, f);
    default: break;
    }
    snprintf(u->why, sizeof u->why, "is packed by filter %d%s, whose size cannot be checked",
             (int)f->id, f->id == LZF ? " (LZF of h5py)" : "");
    return 0;
}

/* Whether what a filter makes depends on the bytes, not on their number alone. */
static int needs_bytes(const struct filter *f)
{
    return f->id == H5Z_FILTER_DEFLATE || f->id == H5Z_FILTER_SCALEOFFSET;
}

/* Undoes all filters of a chunk but those that it was written without. */
static int unpack(struct unpacking *u, unsigned skipped)
{
    u->is_gone = 0;
    for (int k = u->n - 1; k >= 0; k--) {
        int keep = 0;
        for (int i = 0; i < k; i++)
            keep |= !(skipped >> i & 1) && needs_bytes(&u->filter[i]);
        if (skipped >> k & 1)
            continue;
        if (u->is_gone && needs_bytes(&u->filter[k]))
            return refuse(u, "is packed by filters in an order that cannot be checked");
        if (!undo_one(u, &u->filter[k], keep))
            return 0;
    }
    if (u->bytes != u->chunk)
        snprintf(u->why, sizeof u->why, "unpacks to %zu bytes, expected %zu", u->bytes, u->chunk);
    return u->bytes == u->chunk;
}

/* ---- the chunks ---------------------------------------------------------------------------- */

uint64_t qm_h5_chunks_places(hid_t set, hid_t plist)
{
    hsize_t side[H5S_MAX_RANK], dims[H5S_MAX_RANK];
    hid_t space = H5Dget_space(set);
    int rank = H5Sget_simple_extent_dims(space, dims, NULL);
    uint64_t places = 1;
    H5Sclose(space);
    if (rank < 1 || H5Pget_chunk(plist, H5S_MAX_RANK, side) != rank)
        return UINT64_MAX;
    for (int k = 0; k < rank; k++)
        if (__builtin_mul_overflow(places, dims[k] / side[k] + (dims[k] % side[k] != 0), &places))
            return UINT64_MAX;
    return places;
}

/* How many bytes an element takes more in the file than HDF5 says, which gives the size in memory:
 * a text of any length is a pointer here, and there a length, an address and an index, as a list
 * is. */
static uint64_t more_stored(hid_t type, size_t address)
{
    H5T_class_t class = H5Tget_class(type);
    uint64_t more = 0;
    hid_t part;
    if (class == H5T_VLEN || (class == H5T_STRING && H5Tis_variable_str(type) > 0))
        return 4 + address + 4 - H5Tget_size(type);
    if (class == H5T_ARRAY && (part = H5Tget_super(type)) >= 0) {
        more = more_stored(part, address) * (H5Tget_size(type) / H5Tget_size(part));
        H5Tclose(part);
    }
    for (int k = 0, n = class == H5T_COMPOUND ? H5Tget_nmembers(type) : 0; k < n; k++)
        if ((part = H5Tget_member_type(type, (unsigned)k)) >= 0) {
            more += more_stored(part, address);
            H5Tclose(part);
        }
    return more;
}

/* Bytes of an address in the file of a dataset. */
static size_t address_bytes(hid_t set)
{
    size_t address = sizeof(haddr_t), length;
    hid_t file = H5Iget_file_id(set), made = file < 0 ? -1 : H5Fget_create_plist(file);
    if (made >= 0)
        H5Pget_sizes(made, &address, &length);
    H5Pclose(made);
    H5Fclose(file);
    return address;
}

uint64_t qm_h5_chunks_bytes(hid_t set, hid_t plist)
{
    hsize_t dims[H5S_MAX_RANK];
    hid_t type = H5Dget_type(set);
    uint64_t n = H5Tget_size(type);
    if (H5Tdetect_class(type, H5T_VLEN) > 0 || H5Tdetect_class(type, H5T_STRING) > 0)
        n += more_stored(type, address_bytes(set));
    int rank = H5Pget_chunk(plist, H5S_MAX_RANK, dims);
    H5Tclose(type);
    for (int k = 0; k < rank; k++)
        if (__builtin_mul_overflow(n, dims[k], &n))
            return UINT64_MAX;
    return rank < 0 ? UINT64_MAX : n;
}

static int check_one(struct unpacking *u, const hsize_t *at, hsize_t bytes, int is_plain)
{
    uint32_t skipped = 0;
    char why[200];
    if (bytes > u->most)
        return refuse(u, "stores more bytes than packing adds");
    if (!grow(&u->at, &u->room, (size_t)bytes))
        return refuse(u, "there is no memory to read it");
    if (H5Dread_chunk(u->set, H5P_DEFAULT, at, &skipped, u->at) < 0)
        return refuse(u, qm_h5_guard_reason(why));
    u->bytes = (size_t)bytes;
    return unpack(u, is_plain ? ~0u : skipped);
}

/* Checks the chunk at every place that has one.  Those at an end may be stored as they are. */
static int check_all(struct unpacking *u, hid_t plist)
{
    hsize_t side[H5S_MAX_RANK], dims[H5S_MAX_RANK], at[H5S_MAX_RANK] = {0}, bytes;
    unsigned options = 0;
    hid_t space = H5Dget_space(u->set);
    int rank = H5Sget_simple_extent_dims(space, dims, NULL), k;
    uint64_t places = qm_h5_chunks_places(u->set, plist), found = 0;
    uint64_t stored = H5Dget_storage_size(u->set);
    H5Sclose(space);
    if (places > PLACES_MOST)
        return refuse(u, "is one of more than can be checked");
    H5Pget_chunk(plist, H5S_MAX_RANK, side);
    H5Pget_chunk_opts(plist, &options);
    for (uint64_t i = 0; i < places && found < stored; i++) {
        int is_part = 0;
        for (k = 0; k < rank; k++)
            is_part |= side[k] > dims[k] - at[k];
        if (H5Dget_chunk_storage_size(u->set, at, &bytes) >= 0 && bytes > 0) {
            found += bytes;
            int is_plain = is_part && (options & H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS);
            if (!check_one(u, at, bytes, is_plain))
                return 0;
        }
        for (k = rank - 1; k >= 0 && (at[k] += side[k]) >= dims[k]; k--)
            at[k] = 0;
        qm_reader_progress();
    }
    return found == stored || refuse(u, "does not lie at a place of its own");
}

static int filters_read(struct unpacking *u, hid_t plist)
{
    u->n = H5Pget_nfilters(plist);
    if (u->n < 0 || u->n > FILTERS)
        return 0;
    for (int k = 0; k < u->n; k++) {
        struct filter *f = &u->filter[k];
        unsigned flags;
        f->n = PARAMETERS;
        f->id = H5Pget_filter2(plist, (unsigned)k, &flags, &f->n, f->parameter, 0, NULL, NULL);
        if (f->id < 0)
            return 0;
    }
    return 1;
}

static qm_status unpacked(const char *name, hid_t set, hid_t plist)
{
    struct unpacking u = {.set = set};
    uint64_t chunk = qm_h5_chunks_bytes(set, plist);
    if (!filters_read(&u, plist) || chunk > UINT32_MAX)
        return qm_fail(QM_BAD_FILE, "%.200s: its filters cannot be read", name);
    u.chunk = (size_t)chunk;
    u.most = u.chunk + u.chunk / 8 + 4096;
    if (u.most > UINT32_MAX)
        u.most = UINT32_MAX;
    int has = inflateInit(&u.stream) == Z_OK;
    int is_good = has ? check_all(&u, plist) : refuse(&u, "there is no memory to unpack it");
    if (has)
        inflateEnd(&u.stream);
    free(u.at);
    free(u.out);
    return is_good ? QM_OK : qm_fail(QM_BAD_FILE, "%.200s: a chunk %s", name, u.why);
}

/* ---- what was checked before --------------------------------------------------------------- */

struct checked {
    unsigned long file; /* a number that no other file gets in this process */
    haddr_t address;
};

static int by_address(const void *a, const void *b)
{
    const struct checked *x = a, *y = b;
    return x->file != y->file         ? (x->file < y->file ? -1 : 1)
           : x->address != y->address ? (x->address < y->address ? -1 : 1)
                                      : 0;
}

qm_status qm_h5_chunks_check(const char *path, const char *name, hid_t set)
{
    static void *tree; /* of the datasets that are good */
    H5O_info_t info;
    hid_t plist = H5Dget_create_plist(set);
    qm_status st = QM_OK;
    if (plist >= 0 && H5Pget_layout(plist) == H5D_CHUNKED && H5Pget_nfilters(plist) != 0) {
        int has = H5Oget_info2(set, &info, H5O_INFO_BASIC) >= 0;
        struct checked this = {has ? info.fileno : 0, has ? info.addr : 0}, *keep = NULL;
        if (!has || !tfind(&this, &tree, by_address))
            st = unpacked(name, set, plist);
        if (st == QM_OK && has && (keep = malloc(sizeof *keep))) {
            *keep = this;
            struct checked **at = tsearch(keep, &tree, by_address);
            if (!at || *at != keep)
                free(keep);
        }
    }
    H5Pclose(plist);
    return st == QM_OK || !path ? st : qm_fail_in(st, path);
}
