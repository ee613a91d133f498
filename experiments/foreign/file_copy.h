/* file_copy.h - Whether two files hold the same bytes. */
#ifndef QM_FOREIGN_FILE_COPY_H
#define QM_FOREIGN_FILE_COPY_H

/* 1: both are regular files, or links to such, with the same bytes, or one file by two names; 0:
 * they are not, or cannot be read.  Files of different sizes are not opened. */
int qm_file_is_copy(const char *a, const char *b);

#endif
