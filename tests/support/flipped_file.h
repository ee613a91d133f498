/* flipped_file.h - Flips single bits of a result file, and reads it: refused, or the same digest.
 *
 * Include it after result_sample.h. */
#ifndef QM_SUPPORT_FLIPPED_FILE_H
#define QM_SUPPORT_FLIPPED_FILE_H

#include "core/base/philox.h"
#include "experiments/foreign/file_sum.h"
#include "experiments/store/stored_digest.h"

static enum qm_carried flipped_carried;

static inline void flipped_tell(const char *path, enum qm_carried carried)
{
    (void)path;
    flipped_carried = carried;
}

/* What one file gives: 1 refused with one line that names it; 0 read with this digest, and told
 * where its contents may be others. */
static inline int flipped_refused(const char *path, const char *digest)
{
    char got[65];
    struct qm_result *r;
    flipped_carried = QM_CARRIED_same;
    qm_store_tell(flipped_tell);
    qm_status st = qm_store_digest(path, got);
    if (st == QM_OK && strcmp(got, digest) != 0 && flipped_carried == QM_CARRIED_same)
        fail_msg("another digest, and not a word");
    if (st != QM_OK && (st != QM_BAD_FILE || strncmp(qm_message(), path, strlen(path)) != 0 ||
                        strchr(qm_message(), '\n')))
        fail_msg("status %d, '%s'", (int)st, qm_message());
    int refused = st != QM_OK;
    if (qm_result_open(path, &r) == QM_OK) {
        int64_t rows;
        double *x;
        if (qm_result_f64(r, "/metrics", "sqnr", &rows, &x) == QM_OK)
            free(x);
        qm_result_close(r);
    }
    return refused;
}

/* Flips n drawn bits, one at a time.  is_bare: without the checksum line, so that only HDF5's
 * checksums and the digest are left. */
static inline void flip_bits(int n, int is_bare, uint64_t seed)
{
    char digest[65], path[96];
    size_t size;
    int refused = 0, told = 0;
    assert_int_equal(sample(in_folder("whole.h5"), SAME), QM_OK);
    assert_int_equal(qm_store_digest(in_folder("whole.h5"), digest), QM_OK);
    char *bytes = file_bytes(in_folder("whole.h5"), &size);
    size -= is_bare ? QM_FILE_SUM_LINE : 0;
    for (int i = 0; i < n; i++) {
        size_t at = qm_philox_stream(seed, (uint64_t)i, 0) % size;
        char bit = (char)(1 << qm_philox_stream(seed, (uint64_t)i, 1) % 8);
        bytes[at] = (char)(bytes[at] ^ bit);
        /* a note is given once for each file */
        snprintf(path, sizeof path, "%s/flipped%d.h5", folder, i);
        file_from(path, bytes, size);
        refused += flipped_refused(path, digest);
        unlink(path);
        told += flipped_carried != QM_CARRIED_same;
        bytes[at] = (char)(bytes[at] ^ bit);
    }
    print_message("seed %d: of %d flips in %d bytes%s %d were refused, %d told\n", (int)seed, n,
                  (int)size, is_bare ? " without a checksum line" : "", refused, told);
    if (!is_bare)
        assert_int_equal(refused, n);
    free(bytes);
}

#endif
