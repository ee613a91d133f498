/* format.h - Interface of a file format's reader; internal to experiments/readers. */
#ifndef QM_READERS_FORMAT_H
#define QM_READERS_FORMAT_H

#include "experiments/foreign/file_sum.h"
#include "experiments/readers/reader.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "mapped elements are read in place");

/* Destination of values: exactly one of the two pointers is set. */
struct qm_sink {
    float *f;
    double *d;
};

/* Converts n elements of src (any alignment) to values [at, at + n) of the sink. */
void qm_sink_write(struct qm_sink sink, int64_t at, const void *src, enum qm_dtype dtype,
                   int64_t n);

/* Location of one entry in the mapping. */
struct qm_array_location {
    size_t offset; /* of element 0; offset + bytes is at most the file's size */
    int swap;      /* 1: big-endian elements */
    int fortran;   /* 1: the first dimension varies fastest; 2: but for the last one of all, of the
                    * parts of complex numbers, which varies faster */
    int code; /* enum qm_float8: elements are such codes, the entry is float32; 0: as it says */
    int is_complex; /* the last axis holds the real and the imaginary part */
};

struct qm_format {
    const char *name;
    /* Whether the mapping looks like this format, which is then the one that opens the file. */
    int (*knows)(const unsigned char *map, size_t size);
    /* Adds every entry, or fails with qm_file_bad.  Runs in a reader process, with the mapping and
     * the unpacked_fd of the program. */
    qm_status (*open)(struct qm_file *f);
    /* Reads elements [from, from + n) of entry i; the range is inside the entry and n >= 1. */
    qm_status (*read)(struct qm_file *f, int i, int64_t from, int64_t n, struct qm_sink sink);
    /* Optional: as read, of a served format; the entry's own bytes in this machine's order. */
    qm_status (*bytes)(struct qm_file *f, int i, int64_t from, int64_t n, void *out);
    /* Optional: QM_BAD_FILE where another file that the last read was of changed. */
    qm_status (*check)(struct qm_file *f);
    /* Optional: frees f->own; also called after a failed open. */
    void (*close)(struct qm_file *f);
    /* Optional, as qm_file_attr_number and qm_file_attr_text. */
    int (*attr_number)(struct qm_file *f, const char *path, const char *name, double *out, int max);
    int (*attr_text)(struct qm_file *f, const char *path, const char *name, char *out, size_t size);
    /* 1: f->own is a json_t object of texts, or NULL, of which the functions qm_texts_* below give
     * the attributes; the program has it, too. */
    int has_texts;
    /* Where elements lie: in the mapping; in a file in memory that takes its place; with the
     * process, which opens the path anew or looks into the mapping. */
    enum { QM_FORMAT_mapped, QM_FORMAT_unpacked, QM_FORMAT_served, QM_FORMAT_served_from_map } kind;
};

extern const struct qm_format qm_format_hdf5, qm_format_npy, qm_format_npz, qm_format_safetensors,
    qm_format_torch, qm_format_weight_map;

struct qm_file {
    char *path;
    const struct qm_format *format;
    struct qm_entry *entry;          /* names are owned */
    struct qm_array_location *place; /* parallel to entry; unused by HDF5 */
    int n_entries, capacity;
    int fd;                   /* -1 when closed */
    const unsigned char *map; /* NULL when unmapped; size stays */
    size_t size;
    size_t beside;              /* bytes of other files that its tensors lie in */
    size_t resident;            /* bytes of the mapping touched since its pages were last dropped */
    struct qm_mapping *mapping; /* that map lies in; NULL: it lies elsewhere */
    struct qm_file_mark mark;   /* as it was opened; its fd is fd, or -1 once nothing more is read
                                   from the file itself */
    void *own;                  /* data of the format */
    enum qm_file_sum sum;       /* what the checksum line of an HDF5 file said */
    int unpacked_fd; /* of an unnamed file in memory, for a format that unpacks; -1: none */
    struct qm_reader_process *process; /* that serves reads; NULL: the mapping does */
};

/* Runs f->format->open in a reader process and takes over the entries that it found, each checked
 * against the mapping.  f is mapped, and f->format set. */
qm_status qm_file_open_apart(struct qm_file *f);

/* Opens a .safetensors file or a checkpoint in this process, as a shard of another file. */
qm_status qm_file_open_here(const char *path, struct qm_file **out);

/* QM_BAD_FILE: a file that this process opened as a shard changed, or one that it is made of. */
qm_status qm_file_check_here(struct qm_file *f);

/* As the functions of struct qm_format, for a file whose process serves reads. */
qm_status qm_file_ask_read(struct qm_file *f, int i, int64_t from, int64_t n, struct qm_sink sink);
qm_status qm_file_ask_bytes(struct qm_file *f, int i, void *out);
int qm_file_ask_number(struct qm_file *f, const char *path, const char *name, double *out, int max);
int qm_file_ask_text(struct qm_file *f, const char *path, const char *name, char *out, size_t size);

/* Whether a zip archive, which f->map holds, can be read safely.  QM_BAD_FILE: two entries have one
 * name, or there are two directories, and readers differ in which of them they take; or one entry
 * is compressed by another method than deflate. */
struct zip;
struct zip_error;
qm_status qm_zip_check(struct qm_file *f, struct zip *z);

/* Whether every entry of such an archive says of itself what the directory says of it: readers
 * differ in which of two names or sizes they take.  QM_BAD_FILE: one does not. */
qm_status qm_zip_entries_check(struct qm_file *f);

/* What libzip's error means in an archive that is mapped whole: codes that speak of files and
 * arguments of calls are offsets and sizes in it that cannot be. */
const char *qm_zip_word(struct zip_error *e);

/* Appends an entry; copies the name.  The shape must have a valid numel, dtype must be in range. */
qm_status qm_file_add(struct qm_file *f, const char *name, enum qm_dtype dtype,
                      const struct qm_shape *shape, struct qm_array_location place);

/* What of a file has no entry, and why; start with zeros. */
struct qm_left_out {
    char text[896];
    int n, n_named; /* n_named: those that text names */
};

/* Says that a value has no entry, and why; the first eight are named, the others counted. */
void qm_left_out_add(struct qm_left_out *l, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The attribute "left_out" of "/" (reader.h): its length, or -1 where nothing was left out. */
int qm_left_out_text(const struct qm_left_out *l, char *out, size_t size);

/* Adds what has no entry to the attribute "left_out" of "/", behind what the writer says of it.
 * QM_BAD_FILE: the file has no entries at all. */
qm_status qm_texts_left_out(struct qm_file *f, const struct qm_left_out *left);

/* As declared by struct qm_format; an attribute of "/" has the key NAME, another PATH@NAME, and a
 * number is a text of one finite number. */
void qm_texts_close(struct qm_file *f);
int qm_texts_text(struct qm_file *f, const char *path, const char *name, char *out, size_t size);
int qm_texts_number(struct qm_file *f, const char *path, const char *name, double *out, int max);

/* Adds the .npy file in bytes [at, end) of the mapping as an entry.  Elements of a type that is not
 * read: QM_BAD_FILE where `left` is NULL, else they are added to it. */
qm_status qm_npy_add(struct qm_file *f, const char *name, size_t at, size_t end,
                     struct qm_left_out *left);

/* The path of a file in the folder of f, which a name in f gives: one without '/'. */
qm_status qm_file_beside(const struct qm_file *f, const char *name, char *out, size_t size);

/* The descriptor of an unnamed file in memory, of size zero bytes; -1 with errno. */
int qm_file_in_memory(size_t size);

/* Releases mapping and descriptor, for formats whose library opens the file itself. */
void qm_file_unmap(struct qm_file *f);

/* QM_BAD_FILE with "PATH: text"; control characters in either become '?', so it is one line. */
#define qm_file_bad(f, ...) qm_file_bad_at(__FILE__, __LINE__, (f), __VA_ARGS__)
qm_status qm_file_bad_at(const char *file, int line, const struct qm_file *f, const char *format,
                         ...) __attribute__((format(printf, 4, 5)));

/* QM_BAD_FILE: the mapped file changed since it was opened, or lost pages. */
qm_status qm_mapped_check(const struct qm_file *f);

/* The `read` of formats whose elements lie in the mapping; the caller checks it afterwards. */
qm_status qm_mapped_read(struct qm_file *f, int i, int64_t from, int64_t n, struct qm_sink sink);

/* Counts bytes of the mapping that were read, and drops its pages when they exceed 64 MiB. */
void qm_mapped_touched(struct qm_file *f, size_t bytes);

/* As qm_file_view; the range is inside the entry. */
const float *qm_mapped_view(struct qm_file *f, int i, int64_t from, int64_t n);

/* Copies all bytes of entry i; as qm_file_read_bytes, with i in range. */
qm_status qm_mapped_bytes(struct qm_file *f, int i, void *out);

/* A box of consecutive elements of a row-major array: start and count per dimension. */
struct qm_box {
    int64_t start[QM_MAX_RANK], count[QM_MAX_RANK];
    int64_t numel;
};

/* The largest box that begins at element from and holds at most n elements; n >= 1 and [from,
 * from + n) is inside the shape.  A range takes at most 2 * rank - 1 boxes. */
void qm_box_next(const struct qm_shape *s, int64_t from, int64_t n, struct qm_box *box);

#endif
