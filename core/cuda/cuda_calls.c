/* cuda_calls.c - The page in which a process notes its calls, and the watcher's reading of it. */
#include "core/cuda/cuda_calls.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

enum { WORDS = QM_CUDA_CALL_NAME / 8, NVRTC_FACTOR = 10 };

/* The call of one thread.  state: its low half counts beginnings and ends, and is odd while a call
 * is under way; its high half is the seal of the low one.  One store writes both. */
struct call {
    _Atomic(uint64_t) state, name[WORDS];
};

struct qm_cuda_calls {
    struct call *thread; /* [QM_CUDA_CALL_THREADS], shared; threads beyond share the last one */
    uint32_t key;        /* drawn; this struct is the watcher's own */
};

static struct call *noted;
static uint32_t noted_key;
static pid_t noting; /* a copy of it, which a library has forked, notes nothing */

static uint64_t sealed(uint32_t key, uint32_t count)
{
    uint32_t x = (count + key) * UINT32_C(2654435761);
    return (uint64_t)(x ^ x >> 15 ^ key) << 32 | count;
}

/* ---- the process that calls ------------------------------------------------------------------ */

static struct call *mine(void)
{
    static atomic_int threads;
    static _Thread_local int own = -1;
    if (own < 0) {
        own = atomic_fetch_add(&threads, 1);
        own = own < QM_CUDA_CALL_THREADS ? own : QM_CUDA_CALL_THREADS - 1;
    }
    return &noted[own];
}

/* Makes the count odd (1) or even (0).  The count is kept by the page alone: where a library has
 * written there it must not look whole again. */
static void step(struct call *c, uint32_t is_under_way)
{
    uint64_t was = atomic_load_explicit(&c->state, memory_order_relaxed);
    uint32_t count = (uint32_t)was;
    if (was == sealed(noted_key, count))
        atomic_store_explicit(&c->state,
                              sealed(noted_key, count + 1 + ((count & 1) == is_under_way)),
                              memory_order_release);
}

void qm_cuda_call(const char *name)
{
    char text[QM_CUDA_CALL_NAME] = "";
    uint64_t words[WORDS];
    if (!noted || noting != getpid())
        return;
    struct call *c = mine();
    memcpy(text, name, strnlen(name, sizeof text - 1));
    memcpy(words, text, sizeof words);
    for (int i = 0; i < WORDS; i++)
        atomic_store_explicit(&c->name[i], words[i], memory_order_relaxed);
    step(c, 1);
}

int qm_cuda_call_over(int error)
{
    if (noted && noting == getpid())
        step(mine(), 0);
    return error;
}

/* ---- the watcher ----------------------------------------------------------------------------- */

struct qm_cuda_calls *qm_cuda_calls_open(void)
{
    const size_t bytes = QM_CUDA_CALL_THREADS * sizeof(struct call);
    struct qm_cuda_calls *c = calloc(1, sizeof *c);
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!c || at == MAP_FAILED || getrandom(&c->key, sizeof c->key, 0) != sizeof c->key) {
        if (at != MAP_FAILED)
            munmap(at, bytes);
        free(c);
        return NULL;
    }
    c->thread = at;
    for (int i = 0; i < QM_CUDA_CALL_THREADS; i++)
        atomic_store(&c->thread[i].state, sealed(c->key, 0));
    return c;
}

void qm_cuda_calls_note(struct qm_cuda_calls *c)
{
    if (noted && noted != c->thread) /* of the process that this one was forked from */
        munmap(noted, QM_CUDA_CALL_THREADS * sizeof *noted);
    noted = c->thread;
    noted_key = c->key;
    noting = getpid();
}

void qm_cuda_calls_close(struct qm_cuda_calls *c)
{
    if (c)
        munmap(c->thread, QM_CUDA_CALL_THREADS * sizeof *c->thread);
    free(c);
}

/* The count of a thread; 0: the record is damaged. */
static int count_of(const struct qm_cuda_calls *c, int i, uint32_t *count)
{
    uint64_t state = atomic_load_explicit(&c->thread[i].state, memory_order_acquire);
    *count = (uint32_t)state;
    return state == sealed(c->key, *count);
}

/* Copies the name of a call; "a call" where it is none. */
static void name_of(const struct qm_cuda_calls *c, int i, char name[QM_CUDA_CALL_NAME])
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_ ";
    uint64_t words[WORDS];
    for (int k = 0; k < WORDS; k++)
        words[k] = atomic_load_explicit(&c->thread[i].name[k], memory_order_relaxed);
    memcpy(name, words, QM_CUDA_CALL_NAME);
    name[QM_CUDA_CALL_NAME - 1] = '\0';
    if (!*name || name[strspn(name, plain)])
        strcpy(name, "a call");
}

int qm_cuda_calls_open_one(const struct qm_cuda_calls *c, char name[QM_CUDA_CALL_NAME])
{
    uint32_t count;
    *name = '\0';
    for (int i = 0; c && i < QM_CUDA_CALL_THREADS; i++)
        if (count_of(c, i, &count) && count & 1) {
            name_of(c, i, name);
            return 1;
        }
    return 0;
}

int qm_cuda_calls_are_damaged(const struct qm_cuda_calls *c)
{
    uint32_t count;
    for (int i = 0; c && i < QM_CUDA_CALL_THREADS; i++)
        if (!count_of(c, i, &count))
            return 1;
    return 0;
}

int qm_cuda_call_factor(const char *name)
{
    return strncmp(name, "nvrtc", 5) == 0 ? NVRTC_FACTOR : 1;
}

int qm_cuda_calls_late(const struct qm_cuda_calls *c, struct qm_cuda_watch *w, double seconds,
                       double limit, char name[QM_CUDA_CALL_NAME])
{
    uint32_t count;
    for (int i = 0; c && i < QM_CUDA_CALL_THREADS; i++) {
        int is_under_way = count_of(c, i, &count) && count & 1;
        w->seconds[i] = is_under_way && count == w->state[i] ? w->seconds[i] + seconds : 0.0;
        w->state[i] = count;
        if (w->seconds[i] < limit || w->seconds[i] <= 0.0)
            continue;
        name_of(c, i, name);
        if (w->seconds[i] >= limit * qm_cuda_call_factor(name))
            return 1;
    }
    return 0;
}
