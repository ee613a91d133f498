/* vectors_file.h - An open golden file: its arrays by name, its description, what `gen` wrote. */
#ifndef QM_VECTORS_VECTORS_FILE_H
#define QM_VECTORS_VECTORS_FILE_H

#include "experiments/readers/reader.h"
#include "experiments/vectors/describe.h"

enum {
    QM_VECTORS_TEXT = 1 << 26, /* bytes of a description */
    QM_VECTORS_NUMEL = 1 << 26 /* elements of an array that `gen` wrote */
};

/* Starts as {0}. */
struct qm_vectors_file {
    const char *path;
    struct qm_file *f;
    json_t *index; /* entry number by array name */
    json_t *root;  /* the description; owned */
};

/* Opens a file and reads its description, of which only format and version are checked.
 * QM_BAD_FILE: two arrays have one name, there is no description, or it is of another version. */
qm_status qm_vectors_file_open(const char *path, struct qm_vectors_file *out);
void qm_vectors_file_close(struct qm_vectors_file *in);

/* The entry of an array, or NULL; *i, where not NULL: its number. */
const struct qm_entry *qm_vectors_file_find(const struct qm_vectors_file *in, const char *name,
                                            int *i);

/* Reads an array as floats.  It must have this type, and this shape but for dims of 1, or be
 * flat. */
qm_status qm_vectors_file_read(const struct qm_vectors_file *in, const char *name,
                               enum qm_dtype dtype, const struct qm_shape *shape, float *out);

/* Checks that the file holds what `gen` wrote: the cases in order, each described as this program
 * describes it, the digest, every input array by its hash, and no array of a case, a step or a
 * codebook that `gen` did not write.  s: after qm_judge_begin.  QM_BAD_FILE, in one line: what is
 * missing, changed or too much. */
qm_status qm_vectors_file_check(const struct qm_vectors_file *in, const struct qm_subject *s);

/* The seed of the description; 0 where it states none. */
uint64_t qm_vectors_file_seed(const struct qm_vectors_file *in);

/* Reads case number i of the description. */
qm_status qm_vectors_file_case(const struct qm_vectors_file *in, size_t i,
                               struct qm_vectors_case *out);

#endif
