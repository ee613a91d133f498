/* torch.h - Shared by the files of the reader of PyTorch's checkpoints; internal to
 * experiments/readers.
 *
 * Source: PyTorch 2.x, torch/serialization.py (_save, _legacy_save), torch/_utils.py
 * (_rebuild_tensor_v2, _rebuild_wrapper_subclass), torch/storage.py. */
#ifndef QM_READERS_TORCH_H
#define QM_READERS_TORCH_H

#include <zip.h>

#include "core/base/name_index.h"
#include "experiments/readers/float8.h"
#include "experiments/readers/format.h"
#include "experiments/readers/pickle.h"

/* ---- elements ------------------------------------------------------------------------------ */

/* How torch stores an element, and as what an entry gives it. */
struct qm_torch_element {
    const char *name;      /* torch.NAME is the dtype */
    const char *storage;   /* torch.STORAGE is the class of storages; NULL: it has none */
    int64_t size;          /* bytes */
    enum qm_dtype dtype;   /* of the entry */
    int parts;             /* 2: complex, whose real and imaginary part are a last axis of 2 */
    enum qm_float8 decode; /* none: dtype stores the element */
};

/* By the name of a dtype or of a class of storages, "torch.float32" or "torch.FloatStorage" (also
 * "torch.cuda.FloatStorage"); NULL: unknown. */
const struct qm_torch_element *qm_torch_dtype(const struct qm_pickle *global);
const struct qm_torch_element *qm_torch_storage_class(const struct qm_pickle *global);

/* ---- storages ------------------------------------------------------------------------------ */

/* A row of bytes that tensors share. */
struct qm_torch_storage {
    char *key;
    int64_t bytes;    /* that the file holds */
    zip_int64_t zip;  /* entry of the archive; -1: it lies in the mapping, or in pieces */
    size_t offset;    /* in the mapping */
    zip_file_t *open; /* the entry, opened at `at` */
    int64_t at;
    unsigned char *whole; /* of a compressed entry; owned */
    /* In pieces: the elements of one tensor, row by row. */
    struct qm_torch_piece *piece; /* owned; NULL: the storage is whole */
    int64_t n_pieces, last_piece;
    const struct qm_torch_element *element;
    struct qm_shape shape;
};

/* A file beside a .metadata, mapped. */
struct qm_torch_shard {
    const char *name; /* of the pickle */
    const unsigned char *map;
    size_t size;
    struct qm_mapping *mapping;
    struct qm_file_mark mark; /* without a descriptor */
    int is_read;              /* since it was looked at last */
};

/* The checkpoint's values: qm_file.own. */
struct qm_torch {
    zip_t *zip;   /* NULL: a legacy file */
    char *folder; /* of the archive's records, "NAME/" */
    int is_big_endian;
    struct qm_pickle_memory *memory;
    const struct qm_pickle *root;
    struct qm_torch_storage *storage;
    int64_t n_storages, storage_room;
    struct qm_name_index storage_at;
    struct qm_torch_shard *shard;
    int64_t n_shards, shard_room, n_open; /* n_open: pieces of storages that are open */
    struct qm_name_index shard_at;
    int all_read;      /* 1: of several storages, or of the shards that were mapped */
    int64_t last_read; /* 1 + the storage that was read since the shards were looked at; 0: none */
    struct qm_torch_array *array; /* parallel to the file's entries */
    int64_t array_room;
    struct qm_name_index entry_at; /* entries by name */
    struct qm_torch_group *group;  /* the hyper-parameters of entries' parameters */
    int64_t n_groups, group_room;
    struct qm_name_index group_at;
    struct qm_left_out left_out;
    int depth;
    char joined[512]; /* which names of parameters nothing proves; "": all have one */
    int is_taking;    /* 1: tensors that are looked at become entries, or parts */
};

/* Storage number of a key, or -1. */
int64_t qm_torch_storage_find(struct qm_torch *t, const char *key);

/* Appends a storage; copies the key.  One whose key is taken is not found by it. */
qm_status qm_torch_storage_add(struct qm_file *f, const char *key, struct qm_torch_storage s);

/* Bytes [from, from + n) of a storage; the range is inside. */
qm_status qm_torch_storage_read(struct qm_file *f, int64_t storage, int64_t from, int64_t n,
                                void *out);

/* Opens the archive, or finds the storages of a legacy file, and reads the pickle: sets zip,
 * folder, root and storages. */
qm_status qm_torch_load(struct qm_file *f, qm_pickle_knows *knows);
void qm_torch_unload(struct qm_torch *t); /* frees t */

/* As qm_torch_load, for the .metadata of torch.distributed.checkpoint; maps its shards. */
qm_status qm_torch_load_distributed(struct qm_file *f);

/* ---- tensors ------------------------------------------------------------------------------- */

/* A strided view of a storage, in elements. */
struct qm_torch_view {
    int64_t storage, offset;
    const struct qm_torch_element *element;
    struct qm_shape shape;
    int64_t stride[QM_MAX_RANK];
    const unsigned char *memory;   /* of an array of NumPy, in place of a storage; NULL: none */
    int is_swapped;                /* 1: the bytes are not in this machine's order */
    int is_negative, is_conjugate; /* 1: torch negates, or conjugates, what it reads */
};

/* Elements [from, from + n) of a view, row-major, in this machine's byte order and with the signs
 * of a negative or conjugate view. */
qm_status qm_torch_view_bytes(struct qm_file *f, const struct qm_torch_view *w, int64_t from,
                              int64_t n, unsigned char *out);

/* The whole numbers >= 0 of a tuple, list or torch.Size; the first `most` go to out.  Returns how
 * many there are, or -1 where v is none of these. */
int qm_torch_whole_list(const struct qm_pickle *v, int64_t *out, int most);

/* How codes stand for numbers: x[i] = table[code i] scales[i / block], in float32. */
struct qm_torch_codes {
    struct qm_torch_view scales;
    float table[256]; /* of codes of 8 or 4 bits; unused where codes are floats */
    int has_table;
    int per_byte; /* codes in a byte, the first in the high half: 1 or 2 */
    int64_t block;
    int64_t part; /* elements after which blocks begin anew */
};

/* What an entry holds: a tensor, a number, or codes. */
struct qm_torch_array {
    enum { QM_TORCH_view, QM_TORCH_number, QM_TORCH_coded } kind;
    struct qm_torch_view view; /* the tensor, or the codes */
    double number;
    struct qm_torch_codes *codes; /* in the pickle's memory */
};

/* The tensor or array of NumPy that v rebuilds.  *is: 1; or 0, with *why (a text that lasts), when
 * it has no entry; or -1 when v is neither.  QM_BAD_FILE: it does not fit its storage. */
qm_status qm_torch_tensor(struct qm_file *f, const struct qm_pickle *v, int *is,
                          struct qm_torch_array *out, struct qm_shape *shape, const char **why);

/* The array or scalar of NumPy that v makes, whose bytes are the pickle's; *is, *why as of
 * qm_torch_tensor, and -1 for a scalar that is no number.  Source: numpy/_core/src/multiarray
 * (array_reduce, arraydescr_reduce), numpy/_core/numeric.py (_frombuffer). */
qm_status qm_torch_numpy(struct qm_file *f, const struct qm_pickle *v, int *is,
                         struct qm_torch_view *out, const char **why);

/* State `number` (1 or 2) of a dictionary of bitsandbytes: codes stateN, qmapN and absmaxN beside
 * them (maxN where it has no blocks).  *is: 0 where it is none.  Source:
 * bitsandbytes/optim/optimizer.py, bitsandbytes/functional.py (dequantize_blockwise). */
qm_status qm_torch_bitsandbytes(struct qm_file *f, const struct qm_pickle *dict, int number,
                                int *is, struct qm_torch_array *out, struct qm_shape *shape);

/* Elements [from, from + n) of an array; the range is inside. */
qm_status qm_torch_array_read(struct qm_file *f, const struct qm_torch_array *a, int64_t from,
                              int64_t n, struct qm_sink sink);

/* As declared by struct qm_format. */
qm_status qm_torch_read(struct qm_file *f, int i, int64_t from, int64_t n, struct qm_sink sink);
qm_status qm_torch_bytes(struct qm_file *f, int i, int64_t from, int64_t n, void *out);

/* ---- pieces -------------------------------------------------------------------------------- */

/* A box of a tensor's elements, in an archive of its own within a shard. */
struct qm_torch_piece {
    int64_t shard;
    size_t offset, size;
    int64_t start[QM_MAX_RANK], count[QM_MAX_RANK];
    struct qm_file *file;         /* while it is open */
    struct qm_torch_array *array; /* what it holds; owned */
};

/* Number of the shard of a name, which is mapped at its first use. */
qm_status qm_torch_shard_find(struct qm_file *f, const struct qm_pickle *name, int64_t *out);
void qm_torch_shards_free(struct qm_torch *t);

/* QM_BAD_FILE: a shard that was read since the last call changed since it was mapped. */
qm_status qm_torch_shards_check(struct qm_file *f);

/* What the archive of a piece holds, in t's memory; NULL: a tensor is in it. */
qm_status qm_torch_value_in(struct qm_file *f, const struct qm_torch_piece *p,
                            const struct qm_pickle **out);

/* A tensor of 16-bit floats whose chunks hold codes (of torchao) is one of float32: codes are
 * decoded in float32, whatever type they stand for. */
qm_status qm_torch_find_codes(struct qm_file *f, struct qm_torch_storage *s);

/* As qm_torch_storage_read, of a storage in pieces and for whole elements; codes as float32. */
qm_status qm_torch_pieces_read(struct qm_file *f, int64_t storage, int64_t from, int64_t n,
                               unsigned char *out);
void qm_torch_pieces_close(struct qm_torch *t, struct qm_torch_storage *s);

/* ---- names --------------------------------------------------------------------------------- */

/* The param_group of one parameter. */
struct qm_torch_group {
    char *name;                      /* of the parameter, as in "NAME/exp_avg" */
    const struct qm_pickle *options; /* the group's dictionary */
};

/* Adds every tensor, every array of NumPy and every number of an optimizer's state as an entry; the
 * others are left out by their paths. */
qm_status qm_torch_add_all(struct qm_file *f);

/* Whether checkpoints may name a global, "torch._utils._rebuild_tensor_v2". */
int qm_torch_knows(const char *global);

#endif
