/* emu_symbol.c - Reads the names in a mangled symbol (Itanium C++ ABI), and passes over the types.
 * */
#include "core/emu/emu_symbol.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Passes over template arguments, I ... E, where they begin at s; nested names, packs, literals and
 * function types end with an E of their own. */
static const char *skip_arguments(const char *s, const char *end)
{
    int depth = 0;
    while (s < end) {
        if (isdigit((unsigned char)*s)) {
            int n = 0;
            while (s < end && isdigit((unsigned char)*s) && n < 100000)
                n = 10 * n + (*s++ - '0');
            s = n < end - s ? s + n : end;
            continue;
        }
        if (*s == 'I' || *s == 'N' || *s == 'J' || *s == 'X' || *s == 'F') {
            depth++;
        } else if (*s == 'L') { /* a literal: its value ends at E */
            const char *e = memchr(s, 'E', (size_t)(end - s));
            if (s + 1 < end && s[1] != '_' && e && !memchr(s, '_', (size_t)(e - s))) {
                s = e + 1;
                continue;
            }
            depth++;
        } else if (*s == 'E' && --depth == 0) {
            return s + 1;
        } else if (*s == 'S' || *s == 'T') { /* S_, S0_, St, T_ */
            s++;
            while (s < end && (isdigit((unsigned char)*s) || isupper((unsigned char)*s)) &&
                   *s != 'I')
                s++;
        }
        s++;
    }
    return end;
}

void qm_symbol_text(const char *symbol, int n, char text[QM_SYMBOL_TEXT])
{
    const char *s = symbol, *end = symbol + n, *last = NULL;
    int used = 0, last_n = 0;
    if (n < 3 || s[0] != '_' || s[1] != 'Z') {
        snprintf(text, QM_SYMBOL_TEXT, "%.*s", n, symbol);
        return;
    }
    s += 2;
    int is_nested = s < end && *s == 'N';
    s += is_nested;
    *text = '\0';
    while (s < end && used < QM_SYMBOL_TEXT - 1) {
        if (used > 0 && !is_nested)
            break;
        if (*s == 'S' && s + 1 < end && (s[1] == 'a' || s[1] == 's' || s[1] == 'b')) {
            last = s[1] == 'a' ? "allocator" : "string";
            last_n = (int)strlen(last);
            used += snprintf(text + used, (size_t)(QM_SYMBOL_TEXT - used), "std::%s", last);
            s += 2;
        } else if (*s == 'L' || *s == 'K' || *s == 'V' ||
                   (*s == 'S' && s + 1 < end && s[1] == 't')) {
            s += *s == 'S' ? 2 : 1;
        } else if (*s == 'I') {
            s = skip_arguments(s, end);
        } else if (isdigit((unsigned char)*s)) {
            int length = 0;
            while (s < end && isdigit((unsigned char)*s) && length < 100000)
                length = 10 * length + (*s++ - '0');
            length = length < end - s ? length : (int)(end - s);
            last = s;
            last_n = length;
            used += snprintf(text + used, (size_t)(QM_SYMBOL_TEXT - used), "%s%.*s",
                             used ? "::" : "", length, s);
            s += length;
        } else if ((*s == 'C' || *s == 'D') && last) {
            used += snprintf(text + used, (size_t)(QM_SYMBOL_TEXT - used), "::%s%.*s",
                             *s == 'D' ? "~" : "", last_n, last);
            break;
        } else {
            if (islower((unsigned char)*s))
                used += snprintf(text + used, (size_t)(QM_SYMBOL_TEXT - used), "%soperator",
                                 used ? "::" : "");
            break;
        }
    }
    if (!*text)
        snprintf(text, QM_SYMBOL_TEXT, "%.*s", n, symbol);
}

int qm_symbol_is_lambda(const char *symbol, int n)
{
    for (int i = 0; i + 1 < n; i++)
        if ((symbol[i] == 'U' && symbol[i + 1] == 'l') ||
            (symbol[i] == '$' && symbol[i + 1] == '_'))
            return 1;
    return 0;
}
