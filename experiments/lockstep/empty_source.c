/* empty_source.c - Source `empty`: cells without work, which may be asked to fail. */
#include "experiments/lockstep/empty_source.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/philox.h"

enum { CHUNK = 16 << 20 }; /* bytes per allocation */

static void exhaust_memory(void)
{
    for (char *all; (all = malloc(CHUNK)) != NULL; usleep(1000)) {
        memset(all, 1, CHUNK);
        __asm__ volatile("" : : "r"(all) : "memory"); /* keeps writes that nothing reads */
    }
    abort();
}

/* Whether args are the word, or "WORD:FILE" with a FILE that exists. */
static int asks_for(const char *args, const char *word)
{
    size_t n = strlen(word);
    if (strncmp(args, word, n) != 0 || (args[n] && args[n] != ':'))
        return 0;
    return !args[n] || access(args + n + 1, F_OK) == 0;
}

static qm_status misbehave(const char *args)
{
    static const char *const words[] = {"sleep", "crash", "exit", "hang", "eat", "error"};
    int known = !*args;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        known |= strncmp(args, words[i], strlen(words[i])) == 0;
    if (!known)
        return qm_fail(QM_BAD_ARG, "source 'empty:%s': no such word", args);
    if (strncmp(args, "sleep:", 6) == 0)
        usleep((useconds_t)(1000 * strtol(args + 6, NULL, 10)));
    if (asks_for(args, "crash"))
        raise(SIGSEGV);
    if (asks_for(args, "exit"))
        _exit(9);
    while (asks_for(args, "hang"))
        usleep(10000);
    if (asks_for(args, "eat"))
        exhaust_memory();
    return asks_for(args, "error") ? qm_fail(QM_INTERNAL, "the cell was told to fail") : QM_OK;
}

qm_status qm_empty_run(const struct qm_cell *c, struct qm_outcome *out)
{
    const char *args = c->problem_args;
    QM_TRY(misbehave(*args == ':' ? args + 1 : args));
    for (int i = 0; i < qm_value_count(); i++) {
        struct qm_philox_block b = qm_philox((uint32_t)i, (uint32_t)c->index, 0, 0,
                                             (uint32_t)c->seed, (uint32_t)(c->seed >> 32));
        out->value[i] = (double)b.word[0] / 4294967296.0;
    }
    out->n = c->n;
    return QM_OK;
}
