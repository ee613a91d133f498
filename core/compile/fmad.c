/* fmad.c - The forms of a user's CUDA source: contracted or not. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/compile/kernel_build.h"
#include "core/emu/emu_fast.h"

static enum qm_fmad used = QM_FMAD_false;

void qm_fmad_use(enum qm_fmad form) { used = form; }
enum qm_fmad qm_fmad_used(void) { return used; }

const char *qm_fmad_text(enum qm_fmad form)
{
    return form == QM_FMAD_true ? "contracted (--fmad=true)" : "uncontracted (--fmad=false)";
}

int qm_fmad_emulated(void) { return qm_emu_fast_flags() != NULL; }

/* The value of the last --fmad=V, -fmad=V, --fmad V or -fmad V among the words, or NULL. */
static const char *last_fmad(char *words)
{
    const char *value = NULL;
    int is_next = 0;
    for (char *word, *rest = words; (word = strsep(&rest, " \t"));) {
        const char *name = strncmp(word, "--fmad", 6) == 0  ? word + 6
                           : strncmp(word, "-fmad", 5) == 0 ? word + 5
                                                            : NULL;
        if (!*word)
            continue;
        if (is_next)
            value = word;
        is_next = name && !*name;
        if (name && *name == '=')
            value = name + 1;
    }
    return value;
}

void qm_fmad_asked(const char *option, int has[QM_FMADS])
{
    const char *flags = getenv("CUDAFLAGS");
    char words[1024];
    snprintf(words, sizeof words, "%s", flags ? flags : "");
    if (!option)
        option = last_fmad(words);
    has[QM_FMAD_true] = !option || strcmp(option, "true") == 0;
    has[QM_FMAD_false] = !has[QM_FMAD_true] || !option;
}
