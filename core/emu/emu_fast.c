/* emu_fast.c - Rewrites divisions for mode fast, and chooses its compiler flags. */
#include "core/emu/emu_fast.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The end of a comment, string or preprocessor line (with its continuation lines) that begins at
 * `at`; `at` itself where none does.  is_first: only blanks stand before it on its line. */
static const char *plain_end(const char *at, int is_first)
{
    if (strncmp(at, "/*", 2) == 0) {
        const char *end = strstr(at + 2, "*/");
        return end ? end + 2 : at + strlen(at);
    }
    if (strncmp(at, "//", 2) == 0)
        return at + strcspn(at, "\n");
    if (*at == '"' || *at == '\'') {
        const char *c = at + 1;
        while (*c && *c != *at && *c != '\n')
            c += *c == '\\' && c[1] ? 2 : 1;
        return *c == *at ? c + 1 : c;
    }
    if (*at == '#' && is_first) {
        const char *c = at + strcspn(at, "\n");
        while (*c && c[-1] == '\\')
            c += 1 + strcspn(c + 1, "\n");
        return c;
    }
    return at;
}

qm_status qm_emu_divisions(const char *text, char **out)
{
    static const char over[] = "/ qm_emu::over /";
    size_t size = 0;
    int is_first = 1;
    FILE *f = open_memstream(out, &size);
    if (!f)
        return qm_fail(QM_NO_MEMORY, "a kernel's source");
    while (*text) {
        const char *end = plain_end(text, is_first);
        if (end > text) {
            fwrite(text, 1, (size_t)(end - text), f);
            text = end;
            continue;
        }
        if (*text == '/' && text[1] != '=')
            fputs(over, f);
        else
            fputc(*text, f);
        is_first = *text == '\n' || (is_first && (*text == ' ' || *text == '\t'));
        text++;
    }
    if (fclose(f) == 0)
        return QM_OK;
    free(*out);
    return qm_fail(QM_NO_MEMORY, "a kernel's source");
}

const char *qm_emu_fast_flags(void)
{
/* Functions are inlined, also those that other files could call, loops unrolled and structs taken
 * apart as nvcc does.  Checks of alignment stand between a product and its sum; the other form has
 * them. */
#define CONTRACTING                                                           \
    "-O2 -ffp-contract=fast -fno-tree-vectorize -fno-semantic-interposition " \
    "-finline-functions -fno-sanitize=alignment"
#if defined __x86_64__
    return __builtin_cpu_supports("fma") ? CONTRACTING " -mfma" : NULL;
#elif defined __FP_FAST_FMAF
    return CONTRACTING;
#else
    return NULL;
#endif
#undef CONTRACTING
}
