/* hdf5.h - Shared by the files of the HDF5 reader; internal to experiments/readers. */
#ifndef QM_READERS_HDF5_H
#define QM_READERS_HDF5_H

#include "experiments/foreign/h5_guard.h"
#include "experiments/readers/format.h"

/* qm_file.own of an HDF5 file. */
struct qm_hdf5 {
    hid_t file;
    hid_t dataset; /* the dataset read last, kept open with its chunk cache; -1: none */
    int entry;     /* its entry, or -1 */
    struct qm_left_out left_out;
};

/* As declared by struct qm_format. */
qm_status qm_hdf5_read(struct qm_file *f, int i, int64_t from, int64_t n, struct qm_sink sink);
qm_status qm_hdf5_bytes(struct qm_file *f, int i, int64_t from, int64_t n, void *out);
int qm_hdf5_attr_number(struct qm_file *f, const char *path, const char *name, double *out,
                        int max);
int qm_hdf5_attr_text(struct qm_file *f, const char *path, const char *name, char *out,
                      size_t size);

#endif
