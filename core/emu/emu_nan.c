/* emu_nan.c - Changes the assembly of a kernel so that float32 arithmetic makes NVIDIA's NaNs. */
#include "core/emu/emu_nan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The C library's float functions; the result is in xmm0. */
static const char *const functions[] = {
    "fmaf",       "sqrtf",  "floorf", "ceilf", "truncf", "rintf", "roundf",
    "nearbyintf", "fminf",  "fmaxf",  "fmodf", "fdimf",  "logf",  "log2f",
    "log1pf",     "log10f", "expf",   "exp2f", "expm1f", "powf",  "sinf",
    "cosf",       "tanf",   "tanhf",  "cbrtf", "hypotf", "erff",  "ldexpf"};

/* Whether word[n] is one of the operations below, with a suffix ss or ps, perhaps after a v. */
static int is_operation(const char *word, size_t n, int *is_packed)
{
    static const char *const names[] = {"add", "sub", "mul",   "div",   "sqrt",   "min",
                                        "max", "rcp", "rsqrt", "round", "cvtsd2", "cvtpd2"};
    *is_packed = n > 2 && word[n - 2] == 'p';
    if (n < 5 || word[n - 1] != 's' || (word[n - 2] != 's' && word[n - 2] != 'p'))
        return 0;
    n -= 2;
    if (n > 3 && (strncmp(word, "vfm", 3) == 0 || strncmp(word, "vfnm", 4) == 0))
        return 1;
    if (*word == 'v')
        word++, n--;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == n && strncmp(word, names[i], n) == 0)
            return 1;
    return 0;
}

static int is_call(const char *line, size_t n)
{
    char name[32];
    int is_one = 0;
    if (n < 6 || strncmp(line, "call", 4) != 0 ||
        sscanf(line, "call%*[q \t]%31[a-z0-9]", name) != 1)
        return 0;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        is_one |= strcmp(name, functions[i]) == 0;
    return is_one;
}

/* The register xmm that a line writes and whose NaNs are to be replaced; -1: none. */
static int result_of(const char *line, size_t n, int *is_packed)
{
    int number, length = 0;
    *is_packed = 0;
    if (is_call(line, n))
        return 0;
    if (!is_operation(line, strcspn(line, " \t\n"), is_packed))
        return -1;
    const char *last = memchr(line, '#', n), *end = last ? last : line + n;
    while (end > line && *end != ',')
        end--;
    if (sscanf(end, ", %%xmm%d%n", &number, &length) != 1)
        return -1;
    return number;
}

/* Replaces a NaN in xmm K by 0x7fffffff, with register xmm S saved; flags are not changed.  In one
 * lane the others of S are 0, so that those of K stay. */
static void put_fix(FILE *f, int k, int is_packed)
{
    int s = k == 15 ? 14 : 15;
    fprintf(f, "\tleaq\t-16(%%rsp), %%rsp\n\tmovups\t%%xmm%d, (%%rsp)\n", s);
    if (is_packed)
        fprintf(f, "\tmovaps\t%%xmm%d, %%xmm%d\n\tcmpunordps\t%%xmm%d, %%xmm%d\n", k, s, s, s);
    else
        fprintf(f,
                "\txorps\t%%xmm%d, %%xmm%d\n\tmovss\t%%xmm%d, %%xmm%d\n"
                "\tcmpunordss\t%%xmm%d, %%xmm%d\n",
                s, s, k, s, s, s);
    fprintf(f, "\torps\t%%xmm%d, %%xmm%d\n\tpslld\t$31, %%xmm%d\n\txorps\t%%xmm%d, %%xmm%d\n", s, k,
            s, s, k);
    fprintf(f, "\tmovups\t(%%rsp), %%xmm%d\n\tleaq\t16(%%rsp), %%rsp\n", s);
}

qm_status qm_emu_nans(const char *assembly, char **out)
{
    size_t size;
    FILE *f = open_memstream(out, &size);
    if (!f)
        return qm_fail(QM_NO_MEMORY, "an assembly");
    for (const char *s = assembly, *end; *s; s = end) {
        end = s + strcspn(s, "\n");
        const char *word = s + strspn(s, " \t");
        int is_packed, k = word < end ? result_of(word, (size_t)(end - word), &is_packed) : -1;
        end += *end == '\n';
        fwrite(s, 1, (size_t)(end - s), f);
        if (k >= 0)
            put_fix(f, k, is_packed);
    }
    return fclose(f) == 0 ? QM_OK : qm_fail(QM_NO_MEMORY, "an assembly");
}
