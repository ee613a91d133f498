/* text_file.h - Opens a text that a person wrote: a suite, a configuration, a list of shapes. */
#ifndef QM_FOREIGN_TEXT_FILE_H
#define QM_FOREIGN_TEXT_FILE_H

#include <stdio.h>

#include "core/base/status.h"

#define QM_TEXT_MIB     16
#define QM_TEXT_DEPTH   100
#define QM_TEXT_ANCHORS 1000

/* Reads the whole file into memory, from a pipe too, and opens that for reading.  QM_BAD_FILE: it
 * cannot be read, is a folder, has more than QM_TEXT_MIB, has a byte 0 without UTF-16's byte order
 * mark, or is a pipe or a device that gave nothing for QM_READER_SECONDS.  QM_BAD_ARG: brackets,
 * or "- " at the start of a line, nest deeper than QM_TEXT_DEPTH, or there are more than
 * QM_TEXT_ANCHORS of YAML: a parser would take a time that is quadratic in them. */
qm_status qm_text_open(const char *path, FILE **out);

#endif
