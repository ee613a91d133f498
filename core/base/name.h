/* name.h - looking names up, and saying which one was probably meant. */
#ifndef QM_BASE_NAME_H
#define QM_BASE_NAME_H

#include "core/base/status.h"

/* Index of name in names[n], or -1. */
int qm_name_find(const char *name, const char *const *names, int n);

/* The name nearest to `name` by Damerau-Levenshtein distance, or NULL when none is close
 * (distance above max(2, length / 3)). */
const char *qm_name_nearest(const char *name, const char *const *names, int n);

/* qm_fail(QM_NO_MATCH, "no WHAT 'NAME'; did you mean 'NEAREST'?") or, with nothing near,
 * "...; `qualm list WHATs` shows them". */
qm_status qm_name_unknown(const char *what, const char *name, const char *const *names, int n);

/* QM_BAD_ARG: "no WHAT 'NAME'; there are A, B, C", for the few names that no list of the program
 * shows. */
qm_status qm_name_none_of(const char *what, const char *name, const char *const *names, int n);

/* Whether text matches filter: a case-insensitive POSIX extended regular expression, or, where
 * that does not compile, a plain substring.  NULL and "" match everything. */
int qm_name_matches(const char *text, const char *filter);

#endif
