/* key_value_args.h - the short arguments of problems and distributions: "n=4096,cond=1e6", "3", "-8:0".
 *
 * A list of values separated by ',' or ':'.  A value is key=value, or a bare value for the
 * argument of that position.  The text of the defaults has the same form, so that what is printed
 * as a default is what is used. */
#ifndef QM_CLI_KEY_VALUE_ARGS_H
#define QM_CLI_KEY_VALUE_ARGS_H

#include "core/base/status.h"

struct qm_arg {
    const char *key;
    double lo, hi; /* inclusive; not read where words stand */
    int whole;     /* 1: whole numbers only */
    const char
        *words;       /* "sorted|shuffled|dct": the value is the index of one of these; else NULL */
    const char *text; /* what it means, in some words; may be NULL where no command shows it */
};

/* value[i] of arg[i], i < n <= 16: first those of defaults (which names every argument), then those of text
 * (NULL and "" add nothing).  QM_BAD_ARG names `who`, the argument and what was expected: an
 * unknown or repeated key, a value too many, not a number, out of range. */
qm_status qm_args_read(const char *who, const char *defaults, const char *text,
                       const struct qm_arg *arg, int n, double *value);

/* Whether text is well written for arg[n]: as qm_args_read, but a number out of range is fine. */
qm_status qm_args_check(const char *who, const char *text, const struct qm_arg *arg, int n);

#endif
