/* name.h - Looks names up, and suggests the nearest one for a misspelt name. */
#ifndef QM_BASE_NAME_H
#define QM_BASE_NAME_H

#include <stddef.h>

#include "core/base/status.h"

/* Index of name in names[n], or -1. */
int qm_name_find(const char *name, const char *const *names, int n);

/* The name nearest to `name` by Damerau-Levenshtein distance, or NULL when none is close
 * (distance above max(2, length / 3), or no letter in common). */
const char *qm_name_nearest(const char *name, const char *const *names, int n);

/* Writes "'A', 'B' or 'C'" of the names that begin with `name`, where case, "_", "-" and "bit" do
 * not count and the shorter come first, with "N more" beyond three.  Where `name` lacks but its
 * last letter, or nothing begins so, it is the one that qm_name_nearest finds, or "".  Returns
 * out. */
enum { QM_NAME_NEAR = 320 };
const char *qm_name_near(const char *name, const char *const *names, int n, char out[QM_NAME_NEAR]);

/* Fails with QM_NO_MATCH and "no WHAT 'NAME'; did you mean NEAR?" or, if no name is near,
 * "no WHAT 'NAME'; `qualm list WHATs` shows them". */
qm_status qm_name_unknown(const char *what, const char *name, const char *const *names, int n);

/* Fails with QM_BAD_ARG and "no WHAT 'NAME'; there are A, B, C": for short lists of names that
 * `qualm list` does not show. */
qm_status qm_name_none_of(const char *what, const char *name, const char *const *names, int n);

int qm_name_ends(const char *name, const char *end); /* whether it does */

/* QM_BAD_ARG with the reason: filter is no POSIX extended regular expression, or its counts in
 * braces multiply to more than 10,000, for which the C library may take all memory. */
qm_status qm_name_check_filter(const char *filter);

/* Whether text matches filter: a case-insensitive POSIX extended regular expression; one that does
 * not compile matches nothing.  NULL and "" match everything. */
int qm_name_matches(const char *text, const char *filter);

/* 1: the first n characters of a text of "WORD,key=value,..." set this key. */
int qm_key_in(const char *text, size_t n, const char *key);

/* 1: what key `part` sets is set by `whole`, too: it is a part of that slot's format (exp_avg.map
 * of exp_avg, but min_numel, whole_blocks and plain are none) or that key for one slot
 * (exp_avg.min_numel of min_numel). */
int qm_key_is_part(const char *part, const char *whole);

/* The first key of such a text's first n characters that is a part of `whole`, in out; 0: none. */
int qm_key_part_in(const char *text, size_t n, const char *whole, char out[64]);

#endif
