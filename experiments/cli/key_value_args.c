/* key_value_args.c - Parses "key=value" lists with defaults, ranges and words. */
#include "experiments/cli/key_value_args.h"

#include "core/base/name.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST    16
#define LONGEST 63

/* Index of the word equal to text in "a|b|c", or -1. */
static int word_index(const char *words, const char *text)
{
    size_t length = strlen(text);
    for (int i = 0;; i++) {
        size_t w = strcspn(words, "|");
        if (w == length && memcmp(words, text, w) == 0)
            return i;
        if (!words[w])
            return -1;
        words += w + 1;
    }
}

static qm_status set_value(const char *who, const struct qm_arg *a, const char *text, double *out)
{
    if (a->words) {
        int i = word_index(a->words, text);
        if (i < 0)
            return qm_fail(QM_BAD_ARG, "%s: %s is '%s', expected one of %s", who, a->key, text,
                           a->words);
        *out = i;
        return QM_OK;
    }
    char *end;
    double v = strtod(text, &end);
    if (end == text || *end || !isfinite(v))
        return qm_fail(QM_BAD_ARG, "%s: %s is '%s', expected a number", who, a->key, text);
    if (!(v >= a->lo && v <= a->hi) || (a->whole && v != floor(v)))
        return qm_fail(QM_BAD_ARG, "%s: %s is %s, expected %s from %g to %g", who, a->key, text,
                       a->whole ? "a whole number" : "a number", a->lo, a->hi);
    *out = v;
    return QM_OK;
}

static int find_key(const struct qm_arg *arg, int n, const char *key)
{
    for (int i = 0; i < n; i++)
        if (strcmp(arg[i].key, key) == 0)
            return i;
    return -1;
}

static qm_status unknown_key(const char *who, const char *key, const struct qm_arg *arg, int n)
{
    const char *keys[MOST];
    for (int i = 0; i < n; i++)
        keys[i] = arg[i].key;
    return qm_fail_in(qm_name_none_of("argument", key, keys, n), who);
}

/* Sets one item of the list; `position` counts items from 0 and chooses the key of a bare value. */
static qm_status set_item(const char *who, char *item, int position, const struct qm_arg *arg,
                          int n, double *value, unsigned *seen)
{
    char *equals = strchr(item, '=');
    int i = position;
    if (equals) {
        *equals = 0;
        i = find_key(arg, n, item);
        if (i < 0)
            return unknown_key(who, item, arg, n);
    } else if (i >= n) {
        return qm_fail(QM_BAD_ARG, "%s: '%s' is one value too many, it takes %d", who, item, n);
    }
    if (*seen & 1u << i)
        return qm_fail(QM_BAD_ARG, "%s: %s is given twice", who, arg[i].key);
    *seen |= 1u << i;
    return set_value(who, &arg[i], equals ? equals + 1 : item, &value[i]);
}

static qm_status set_list(const char *who, const char *text, const struct qm_arg *arg, int n,
                          double *value, unsigned *seen)
{
    *seen = 0;
    if (!text || !*text)
        return QM_OK;
    for (int position = 0;; position++) {
        char item[LONGEST + 1];
        size_t length = strcspn(text, ",:");
        if (length > LONGEST)
            return qm_fail(QM_BAD_ARG, "%s: '%.20s...' is too long for a value", who, text);
        memcpy(item, text, length);
        item[length] = 0;
        QM_TRY(set_item(who, item, position, arg, n, value, seen));
        if (!text[length])
            return QM_OK;
        text += length + 1;
    }
}

qm_status qm_args_read(const char *who, const char *defaults, const char *text,
                       const struct qm_arg *arg, int n, double *value)
{
    unsigned seen;
    assert(n <= MOST);
    QM_TRY(set_list(who, defaults, arg, n, value, &seen));
    assert(seen == (1u << n) - 1u);
    return set_list(who, text, arg, n, value, &seen);
}

qm_status qm_args_check(const char *who, const char *text, const struct qm_arg *arg, int n)
{
    double value[MOST];
    unsigned seen;
    assert(n <= MOST);
    return set_list(who, text, arg, n, value, &seen);
}
