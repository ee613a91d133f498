/* cuda_flags.c - The words of $CUDAFLAGS, for NVRTC and for backend emu. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/compile/kernel_build.h"

/* The value of --fmad=V or -fmad=V; "" where it is the next word; NULL: it is another word. */
static const char *fmad_of(const char *word)
{
    const char *name = *word == '-' ? word + 1 + (word[1] == '-') : "";
    int is_fmad = strncmp(name, "fmad", 4) == 0 && (!name[4] || name[4] == '=');
    return is_fmad ? name + 4 + (name[4] == '=') : NULL;
}

void qm_cuda_flags(struct qm_argv *c, const char **fmad)
{
    int n = c->n, from = c->n;
    const char *value, *last = NULL;
    qm_argv_words(c, "CUDAFLAGS", getenv("CUDAFLAGS"));
    for (int i = from; i < c->n; i++) {
        if (!(value = fmad_of(c->argv[i])))
            c->argv[n++] = c->argv[i];
        else
            last = *value || strchr(c->argv[i], '=') || i + 1 == c->n ? value : c->argv[++i];
    }
    c->argv[c->n = n] = NULL;
    if (last && strcmp(last, "true") != 0 && strcmp(last, "false") != 0 && !*c->wrong)
        snprintf(c->wrong, sizeof c->wrong, "CUDAFLAGS: --fmad=%.60s: expected true or false",
                 last);
    if (fmad)
        *fmad = last;
}

static const struct {
    const char *name, *is; /* is: what the C++ compiler calls it */
} options[] = {{"-I", "-I"}, {"--include-path", "-I"},  {"-D", "-D"}, {"--define-macro", "-D"},
               {"-U", "-U"}, {"--undefine-macro", "-U"}};
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

void qm_cuda_flags_emulated(struct qm_argv *taken, char *left, size_t size)
{
    char *words[QM_BUILD_WORDS + 1];
    const char *value;
    memset(taken, 0, sizeof *taken);
    qm_cuda_flags(taken, NULL);
    memcpy(words, taken->argv, sizeof words);
    taken->n = 0;
    *left = '\0';
    for (int k = 0; words[k]; k++) {
        const char *word = words[k];
        int i = find(word, &value);
        if (i < OPTIONS && !*value && words[k + 1])
            value = words[++k];
        if (i == OPTIONS || !*value) {
            append(left, size, word, "");
        } else if (strcmp(options[i].is, "-I") == 0 && is_toolkit(value)) {
            append(left, size, "-I", value);
        } else {
            qm_argv_add(taken, "CUDAFLAGS", options[i].is);
            qm_argv_add(taken, "CUDAFLAGS", value);
        }
    }
}
