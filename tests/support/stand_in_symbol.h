/* stand_in_symbol.h - What dlsym does for a library that a test stands in for. */
#ifndef QM_SUPPORT_STAND_IN_SYMBOL_H
#define QM_SUPPORT_STAND_IN_SYMBOL_H

#include <string.h>

struct stand_in_symbol {
    const char *name;
    void (*f)(void);
};

/* The function of this name among n, as dlsym returns it; NULL: there is none. */
static inline void *stand_in_symbol(const struct stand_in_symbol *table, size_t n, const char *name)
{
    void *at = NULL;
    for (size_t i = 0; i < n && !at; i++)
        if (strcmp(name, table[i].name) == 0)
            memcpy(&at, &table[i].f, sizeof at);
    return at;
}

#endif
