/* cuda_flags.c - The words of $CUDAFLAGS on backend emu. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/compile/kernel_build.h"

static const struct {
    const char *name, *is; /* is: what the C++ compiler calls it; "": nothing there */
} options[] = {{"-I", "-I"}, {"--include-path", "-I"},   {"-D", "-D"},   {"--define-macro", "-D"},
               {"-U", "-U"}, {"--undefine-macro", "-U"}, {"--fmad", ""}, {"-fmad", ""}};
enum { OPTIONS = sizeof options / sizeof *options };

/* The option that a word begins; *value: what follows it in the word, "" where it is the next
 * word.  OPTIONS: it is none of them. */
static int find(const char *word, const char **value)
{
    for (int i = 0; i < OPTIONS; i++) {
        size_t n = strlen(options[i].name);
        int is_long = n > 2;
        if (strncmp(word, options[i].name, n) != 0 || (is_long && word[n] && word[n] != '='))
            continue;
        *value = word + n + (is_long && word[n] == '=');
        return i;
    }
    return OPTIONS;
}

/* Whether a folder has CUDA's own headers, for which texts of the emulator stand in. */
static int is_toolkit(const char *folder)
{
    char path[PATH_MAX];
    return snprintf(path, sizeof path, "%s/cuda_runtime.h", folder) < (int)sizeof path &&
           access(path, R_OK) == 0;
}

static void append(char *text, size_t size, const char *a, const char *b)
{
    size_t used = strlen(text);
    snprintf(text + used, size - used, "%s%s%s", used ? " " : "", a, b);
}

void qm_cuda_flags_emulated(char *taken, char *left, size_t size)
{
    const char *flags = getenv("CUDAFLAGS"), *value;
    char words[1024];
    *taken = *left = '\0';
    snprintf(words, sizeof words, "%s", flags ? flags : "");
    for (char *word, *rest = words; (word = strsep(&rest, " \t"));) {
        if (!*word)
            continue;
        int i = find(word, &value);
        while (i < OPTIONS && !*value && rest && !*(value = strsep(&rest, " \t")))
            ;
        if (i == OPTIONS)
            append(left, size, word, "");
        else if (strcmp(options[i].is, "-I") == 0 && is_toolkit(value))
            append(left, size, "-I", value);
        else if (*options[i].is && *value)
            append(taken, size, options[i].is, value);
    }
}
