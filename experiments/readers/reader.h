/* reader.h - Reading named tensors from files: .h5, .npy, .npz, .safetensors, checkpoints.
 *
 * A reader trusts nothing in the file: it checks every size and offset against the file's length
 * before use.  Errors are one line that names the file, the place and what was expected.
 *
 *   .npy          versions 1 to 3, C or Fortran order, either byte order; f2 f4 f8, i1 .. i8,
 *                 u1 .. u8, b1, c8 and c16 (a last axis of 2: real and imaginary part), and V2 as
 *                 bf16.  One entry, named after the file without its directory and ".npy".
 *   .npz          a zip archive of .npy files, stored or deflated; entry names lose their ".npy".
 *                 The archive is unpacked into memory when it is opened.  Arrays of any other type
 *                 (texts, objects, tables) are named in left_out; all of them refuse the file.
 *   .safetensors  the element types of QM_DTYPE_LIST, the 8-bit floats of float8.h, read as f32,
 *                 and C64, a last axis of 2 (real and imaginary part).  Tensors of any other dtype
 *                 (F4, F6_E2M3, ...) are named in left_out.  Unknown bytes between, before or after
 *                 the tensors refuse the file, as do tensors none of which is read.
 *   .h5           simple datasets of 1, 2, 4 or 8 byte integers (big-endian ones of all their bits,
 *                 as HDF5 extends the sign of no others rightly), of IEEE 2, 4 and 8 byte floats
 *                 and of bfloat16 (bfloat16 bits stored as uint16 stay u16), and of h5py's truth
 *                 values (an enumeration of FALSE 0 and TRUE 1), of up to QM_MAX_RANK dimensions.
 *                 Datasets of other types (compounds, other enumerations, other floats), of
 *                 higher rank, or with their data in other files (virtual, external storage) are
 *                 named in left_out, or counted there; texts and tables of result files are not.
 *                 Blocks that were never written read as the fill value; where HDF5 is told never
 *                 to fill them the dataset is left out.  A link that leads nowhere
 *                 refuses the file; a link back to a group it lies in is ignored.  h5_guard.h
 *                 checks the storage, the HDF5 library the rest of the file's structure.
 *
 *   checkpoint    what torch.save wrote (.pt .pth .bin), as a zip archive or in the legacy form, or
 *                 the folder (or its .metadata) of torch.distributed.checkpoint.  Its pickle is
 *                 read by an interpreter that runs nothing and refuses every name but those of
 *                 tensors and plain values.  An optimizer's states, nested or under the flat keys
 *                 state.NAME.SLOT, are NAME/SLOT beside NAME/param, or NUMBER/SLOT where no model
 *                 of the file fits and the optimizer has no param_names, and NAME/SLOT.I for item I
 *                 of a list; a model's tensors go by their keys, others by PATH/TO/KEY.  Every
 *                 dtype of torch with up to QM_MAX_RANK dimensions and any strides, conjugate and
 *                 negative views as torch reads them, and arrays and scalars of NumPy; 8-bit floats
 *                 read as f32, complex numbers as a last axis of 2, quantized states of torchao and
 *                 bitsandbytes decoded to f32.  Every other tensor or array is named in left_out,
 *                 or counted there.
 *                 Attributes of "/NAME": the numbers of its param_group (lr, beta1, beta2, ...),
 *                 and the texts "options", all of them as a JSON object, and "no_numbers", the
 *                 options that are none, as ",KEY,KEY,"; of "/": "left_out",
 *                 and "joined" where the names of parameters are not proven.
 *   *.index.json  shards (.safetensors or .bin) of a model, by its weight_map; also by the folder.
 *
 * A file that changes while it is open, in size, time of modification or of its inode's change, is
 * refused after the next read, whose values do not count; so is one of the files that it is made
 * of.  A file serves one thread at a time; all HDF5 files of a process together serve one thread at
 * a time. */
#ifndef QM_READERS_READER_H
#define QM_READERS_READER_H

#include "core/base/tensor.h"
#include "experiments/foreign/file_mark.h"

struct qm_file; /* opaque; owns mappings and handles */

struct qm_entry {
    const char *name; /* "/gpt/s000400/h.0.qkv.weight/exp_avg"; owned by the file */
    enum qm_dtype dtype;
    struct qm_shape shape;
    int64_t numel;
};

/* Opens a file by its content (magic numbers), not by its ending; "-" is stdin, which is kept in
 * memory (not .h5).  QM_BAD_FILE names the fault.  HDF5 prints no error stacks from then on. */
qm_status qm_file_open(const char *path, struct qm_file **out);
void qm_file_close(struct qm_file *f); /* accepts NULL */

/* Whether the file is one of `qualm state` (state_file.h), with or without codes. */
int qm_file_is_state(struct qm_file *f);

/* As qm_file_open, for those that take tensors of numbers: QM_BAD_ARG for a file of `qualm state`
 * with codes, whose other arrays are scales; the message says what decodes it. */
qm_status qm_file_open_numbers(const char *path, struct qm_file **out);

/* Entries in the file's own order (HDF5: depth first, names sorted; links followed by path). */
int qm_file_count(const struct qm_file *f);
const struct qm_entry *qm_file_entry(const struct qm_file *f, int i);

/* Whether a filter matches the name of an entry, whole or without the '/' that names of HDF5 begin
 * with, as they are printed; NULL matches all.  The filter is one of qm_name_matches. */
int qm_entry_matches(const char *name, const char *filter);
/* "hdf5", "npy", "npz", "safetensors", "torch", "index.json" */
const char *qm_file_format(const struct qm_file *f);

/* Reads elements [from, from + n) of entry i, in row-major order for any order of the file, as
 * floats (exact for f32, f16, bf16; rounded for f64).  Besides out, memory is bounded for files of
 * any size: about 64 MB of mapped pages, or 8 MB of buffer and up to 128 MB of unpacked HDF5 chunks
 * (or one chunk, if that is larger).  QM_BAD_ARG: i or the range is outside.  QM_BAD_FILE: the file
 * cannot give the data, and out is undefined. */
qm_status qm_file_read(struct qm_file *f, int i, int64_t from, int64_t n, float *out);
qm_status qm_file_read_double(struct qm_file *f, int i, int64_t from, int64_t n, double *out);

/* Zero-copy view of n >= 1 elements from `from`, valid until the file is closed.  NULL unless they
 * are contiguous native floats in the mapping and the range is inside; qm_file_read reads them
 * then.  Their pages count among the 64 MB.  What was computed of a view counts if qm_file_check
 * finds no change afterwards; of a file that became shorter the view has zeros. */
const float *qm_file_view(struct qm_file *f, int i, int64_t from, int64_t n);

/* QM_BAD_FILE: the file changed since it was opened. */
qm_status qm_file_check(const struct qm_file *f);

/* The file as it was when it was opened; what a folder was opened for is its index. */
const struct qm_file_mark *qm_file_mark(const struct qm_file *f);

/* Copies all elements of entry i, unconverted, to out, in C order and in this machine's byte order.
 * QM_BAD_ARG: the entry is of HDF5. */
qm_status qm_file_read_bytes(struct qm_file *f, int i, void *out);

/* What of the file has no entry, and why, as one text; its length, or 0: nothing was left out. */
int qm_file_left_out(struct qm_file *f, char *out, size_t size);

/* Which names of parameters a checkpoint does not prove, as one text ("names are joined by order:
 * ..."); its length, or 0: it proves all. */
int qm_file_joined(struct qm_file *f, char *out, size_t size);

/* Both of these as one line for people, "JOINED; left out: LEFT_OUT", and how many arrays are of
 * complex numbers; its length, or 0. */
enum { QM_FILE_REMARK = 1600 };
int qm_file_remark(struct qm_file *f, char out[QM_FILE_REMARK]);

/* A numeric or string attribute of an HDF5 object (path: "/run" or "/run/s000400/tensor").
 * qm_file_attr_number reads the first max values and returns their number.  qm_file_attr_text reads
 * a scalar string, truncated to size - 1 bytes, and returns its length.  Both return -1 (and the
 * text "") when the object or the attribute is absent or of another kind, and for other formats,
 * except for checkpoints (above), and that the texts of a .safetensors file's "__metadata__" are
 * attributes: of "/" by the key NAME, of PATH by PATH@NAME ("/run/trace@first_step"). */
int qm_file_attr_number(struct qm_file *f, const char *path, const char *name, double *out,
                        int max);
int qm_file_attr_text(struct qm_file *f, const char *path, const char *name, char *out,
                      size_t size);

#endif
