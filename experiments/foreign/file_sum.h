/* file_sum.h - The checksum of a whole file, in a line of 64 bytes at its end.
 *
 * Every file of store/ ends with "\nqualm-sum 1 SUM LENGTH\n": 16 hex digits each, padded with
 * spaces to 64 bytes.  SUM covers the LENGTH bytes before the line.  HDF5 ignores bytes after its
 * own end, so any program reads such a file; one that writes into the file removes or spoils the
 * line.  Any change of one 8-byte word changes SUM.
 *
 * A file without the line is one of older versions, one that HDF5's tools have written again, or
 * one that was cut at this very place.  Whoever cuts elsewhere, or appends, leaves other bytes
 * after HDF5's own end, which the superblock at the file's begin tells. */
#ifndef QM_FOREIGN_FILE_SUM_H
#define QM_FOREIGN_FILE_SUM_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"
#include "experiments/foreign/file_mark.h"

#define QM_FILE_SUM_LINE 64

/* Writes the line (without a NUL) for n bytes. */
void qm_file_sum_line(const void *bytes, size_t n, char line[QM_FILE_SUM_LINE]);

/* other: HDF5, and what follows its end is no whole line. */
enum qm_file_sum { QM_FILE_SUM_none, QM_FILE_SUM_right, QM_FILE_SUM_wrong, QM_FILE_SUM_other };

/* Compares the line at the end of a regular file, if there is one, with its bytes, once for each
 * state of it (device, inode, size, times) in a row; QM_BAD_FILE: it cannot be opened, is no
 * regular file, is empty, or its sum is wrong or other. */
qm_status qm_file_sum_check(const char *path, enum qm_file_sum *out);

/* As qm_file_sum_check; *mark is the file as it was before its sum was taken, whose fd the caller
 * closes. */
qm_status qm_file_sum_check_marked(const char *path, struct qm_file_mark *mark,
                                   enum qm_file_sum *out);

/* The same for a file that may be another program's: other bytes after HDF5's end are refused only
 * where they are parts of a line; else *out is QM_FILE_SUM_none. */
qm_status qm_file_sum_check_any(const char *path, enum qm_file_sum *out);

#endif
