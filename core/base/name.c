/* name.c - Finds names by equality, by edit distance and by filters. */
#include "core/base/name.h"

#include <ctype.h>
#include <math.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define LONGEST 63 /* further characters of a name do not count in its distance */

int qm_name_find(const char *name, const char *const *names, int n)
{
    for (int i = 0; i < n; i++)
        if (strcmp(name, names[i]) == 0)
            return i;
    return -1;
}

static int smaller(int a, int b) { return a < b ? a : b; }

/* The optimal string alignment distance: the least number of insertions, deletions, substitutions
 * and swaps of neighbours that turn a into b. */
static int distance(const char *a, const char *b)
{
    int la = (int)strnlen(a, LONGEST), lb = (int)strnlen(b, LONGEST);
    int d[LONGEST + 1][LONGEST + 1];
    for (int i = 0; i <= la; i++)
        d[i][0] = i;
    for (int j = 0; j <= lb; j++)
        d[0][j] = j;
    for (int i = 1; i <= la; i++)
        for (int j = 1; j <= lb; j++) {
            int cost = a[i - 1] != b[j - 1];
            d[i][j] = smaller(smaller(d[i - 1][j] + 1, d[i][j - 1] + 1), d[i - 1][j - 1] + cost);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                d[i][j] = smaller(d[i][j], d[i - 2][j - 2] + 1);
        }
    return d[la][lb];
}

const char *qm_name_nearest(const char *name, const char *const *names, int n)
{
    int limit = (int)strnlen(name, LONGEST) / 3;
    int best = (limit > 2 ? limit : 2) + 1;
    const char *nearest = NULL;
    for (int i = 0; i < n; i++) {
        int d = distance(name, names[i]);
        size_t longer = strlen(name) > strlen(names[i]) ? strlen(name) : strlen(names[i]);
        if (d < best && (size_t)d < longer) { /* they share a letter */
            best = d;
            nearest = names[i];
        }
    }
    return nearest;
}

/* Writes a name without what spellings differ in: case, "_", "-", " " and "bit". */
static void fold(const char *name, char out[LONGEST + 1])
{
    int n = 0;
    for (const char *c = name; *c && n < LONGEST; c++) {
        if (strncasecmp(c, "bit", 3) == 0)
            c += 2;
        else if (!strchr("_- ", *c))
            out[n++] = (char)tolower((unsigned char)*c);
    }
    out[n] = '\0';
}

static int is_repeated(const char *const *names, int i)
{
    return qm_name_find(names[i], names, i) >= 0;
}

/* Of the names that begin with `folded` and come after `last` in the order of length, then of the
 * list, the first; -1: there is none.  *left: how many there are. */
static int next_longer(const char *folded, const char *const *names, int n, int last, int *left)
{
    int best = -1;
    *left = 0;
    for (int i = 0; i < n; i++) {
        char own[LONGEST + 1];
        size_t length = strlen(names[i]), before = last < 0 ? 0 : strlen(names[last]);
        fold(names[i], own);
        if (strncmp(own, folded, strlen(folded)) != 0 || length < before ||
            (length == before && i <= last) || is_repeated(names, i))
            continue;
        ++*left;
        if (best < 0 || length < strlen(names[best]))
            best = i;
    }
    return best;
}

const char *qm_name_near(const char *name, const char *const *names, int n, char out[QM_NAME_NEAR])
{
    enum { SHOWN = 3 };
    char folded[LONGEST + 1];
    size_t at = 0;
    int left = 0, last = -1;
    fold(name, folded);
    out[0] = '\0';
    const char *nearest = qm_name_nearest(name, names, n);
    int is_typo =
        nearest && distance(name, nearest) == 1 && strncmp(name, nearest, strlen(name)) == 0;
    for (int k = 0; !is_typo && strlen(folded) > 2 && (k < SHOWN || left == 2); k++) {
        if ((last = next_longer(folded, names, n, last, &left)) < 0)
            break;
        at += (size_t)snprintf(out + at, QM_NAME_NEAR - at, "%s'%.80s'",
                               k == 0      ? ""
                               : left == 1 ? " or "
                                           : ", ",
                               names[last]);
    }
    if (nearest && !at)
        snprintf(out, QM_NAME_NEAR, "'%.80s'", nearest);
    else if (at && left > 1)
        snprintf(out + at, QM_NAME_NEAR - at, " or one of %d more", left - 1);
    return out;
}

/* Fails with all n names. */
static qm_status none_of(qm_status st, const char *what, const char *name, const char *const *names,
                         int n)
{
    char all[512] = "";
    size_t at = 0;
    for (int i = 0; i < n && at < sizeof all; i++)
        at += (size_t)snprintf(all + at, sizeof all - at, "%s%s", i ? ", " : "", names[i]);
    return qm_fail(st, "no %s '%s'; there %s %s", what, name, n > 1 ? "are" : "is",
                   n > 0 ? all : "none");
}

qm_status qm_name_unknown(const char *what, const char *name, const char *const *names, int n)
{
    enum { FEW = 20 };
    char near[QM_NAME_NEAR];
    if (*qm_name_near(name, names, n, near))
        return qm_fail(QM_NO_MATCH, "no %s '%s'; did you mean %s?", what, name, near);
    if (n <= FEW)
        return none_of(QM_NO_MATCH, what, name, names, n);
    int is_key = strcmp(what, "recipe key") == 0, is_word = strcmp(what, "word") == 0;
    return qm_fail(QM_NO_MATCH, "no %s '%s'; `qualm list %ss` shows them%s", what, name,
                   is_key    ? "hyper"
                   : is_word ? "axe"
                             : what,
                   is_key ? ", beside the variant's slots, grad and param" : "");
}

qm_status qm_name_none_of(const char *what, const char *name, const char *const *names, int n)
{
    return none_of(QM_BAD_ARG, what, name, names, n);
}

int qm_name_ends(const char *name, const char *end)
{
    size_t n = strlen(name), k = strlen(end);
    return n >= k && strcmp(name + n - k, end) == 0;
}

enum { FILTER_FLAGS = REG_EXTENDED | REG_ICASE | REG_NOSUB, FILTER_REPEATS = 10000 };

/* The product of all counts in braces, at most about 2^40: the C library writes a repetition out,
 * and one of another as often as both say. */
static double repeats(const char *filter)
{
    double all = 1.0;
    for (const char *c = strchr(filter, '{'); c; c = strchr(c + 1, '{')) {
        double low = strtod(c + 1, NULL), high = 0.0;
        const char *comma = c + 1 + strspn(c + 1, "0123456789");
        if (*comma == ',')
            high = strtod(comma + 1, NULL);
        all *= fmax(fmax(low, high), 1.0);
        all = fmin(all, 0x1p40);
    }
    return all;
}

qm_status qm_name_check_filter(const char *filter)
{
    char reason[128];
    regex_t re;
    if (repeats(filter) > FILTER_REPEATS)
        return qm_fail(QM_BAD_ARG, "'%s': its counts in braces make more than %d repetitions",
                       filter, FILTER_REPEATS);
    int code = regcomp(&re, filter, FILTER_FLAGS);
    if (code == 0) {
        regfree(&re);
        return QM_OK;
    }
    regerror(code, &re, reason, sizeof reason);
    return qm_fail(QM_BAD_ARG, "'%s' is no regular expression: %s", filter, reason);
}

int qm_name_matches(const char *text, const char *filter)
{
    if (!filter || !*filter)
        return 1;
    regex_t re;
    if (regcomp(&re, filter, FILTER_FLAGS) != 0)
        return 0;
    int hit = regexec(&re, text, 0, NULL, 0) == 0;
    regfree(&re);
    return hit;
}

int qm_key_in(const char *text, size_t n, const char *key)
{
    size_t length = strlen(key);
    for (size_t i = 1; i + length < n; i++)
        if (text[i - 1] == ',' && text[i + length] == '=' && strncmp(text + i, key, length) == 0)
            return 1;
    return 0;
}

int qm_key_is_part(const char *part, const char *whole)
{
    const char *dot = strchr(part, '.');
    if (!dot)
        return 0;
    if (strcmp(dot + 1, whole) == 0)
        return 1;
    return (size_t)(dot - part) == strlen(whole) && strncmp(part, whole, strlen(whole)) == 0 &&
           strcmp(dot, ".min_numel") != 0 && strcmp(dot, ".whole_blocks") != 0 &&
           strcmp(dot, ".plain") != 0;
}

int qm_key_part_in(const char *text, size_t n, const char *whole, char out[64])
{
    for (size_t i = 1; i < n; i++) {
        if (text[i - 1] != ',')
            continue;
        snprintf(out, 64, "%.*s", (int)strcspn(text + i, "=,"), text + i);
        if (qm_key_is_part(out, whole))
            return 1;
    }
    return 0;
}
