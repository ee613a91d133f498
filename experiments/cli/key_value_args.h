/* key_value_args.h - Arguments of problems and distributions: "n=4096,cond=1e6", "3", "-8:0".
 *
 * Values are separated by ',' or ':'.  A value is key=value, or a bare value for the argument
 * of its position.  Defaults are a text of this form, so that the printed defaults are the ones
 * in use. */
#ifndef QM_CLI_KEY_VALUE_ARGS_H
#define QM_CLI_KEY_VALUE_ARGS_H

#include "core/base/status.h"

struct qm_arg {
    const char *key;
    double lo, hi;     /* inclusive; unused with words */
    int whole;         /* 1: whole numbers only */
    const char *words; /* "sorted|shuffled|dct": the value is the word's index; NULL: a number */
    const char *text;  /* its meaning; may be NULL where no command shows it */
};

/* Sets value[n], n <= 16: first from defaults (which has every argument), then from text (NULL and
 * "" change nothing).  QM_BAD_ARG names `who`, the argument and what was expected: an unknown or
 * repeated key, too many values, no number, a number out of range. */
qm_status qm_args_read(const char *who, const char *defaults, const char *text,
                       const struct qm_arg *arg, int n, double *value);

/* Checks text for arg[n] as qm_args_read does, without its values. */
qm_status qm_args_check(const char *who, const char *text, const struct qm_arg *arg, int n);

#endif
