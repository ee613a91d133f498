/* file_sum.h - The checksum of a whole file, in a line of 64 bytes at its end.
 *
 * Every file of store/ ends with "\nqualm-sum 1 SUM LENGTH\n": 16 hex digits each, padded with
 * spaces to 64 bytes.  SUM covers the LENGTH bytes before the line.  HDF5 ignores bytes after its
 * own end, so any program reads such a file; one that writes into the file removes or spoils the
 * line.  Any change of one 8-byte word changes SUM. */
#ifndef QM_FOREIGN_FILE_SUM_H
#define QM_FOREIGN_FILE_SUM_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"

#define QM_FILE_SUM_LINE 64

/* Writes the line (without a NUL) for n bytes. */
void qm_file_sum_line(const void *bytes, size_t n, char line[QM_FILE_SUM_LINE]);

enum qm_file_sum { QM_FILE_SUM_none, QM_FILE_SUM_right, QM_FILE_SUM_wrong };

/* Compares the line at the end of n bytes, if there is one, with them. */
enum qm_file_sum qm_file_sum_of(const void *bytes, size_t n);

/* As qm_file_sum_of for a regular file, once for each state of it (device, inode, size, times) in a
 * row; QM_BAD_FILE: it cannot be opened, is no regular file, is empty, or its sum is wrong. */
qm_status qm_file_sum_check(const char *path, enum qm_file_sum *out);

#endif
