/* emu_bounds.cpp - __launch_bounds__: a launch against them, and the question for them. */
#include "emu_runtime.hpp"

#include <setjmp.h>

static jmp_buf asked; /* where the question for a kernel's bounds was put */
static int is_asked;
static long long answer;

extern "C" void qm_emu_bounds(long long most, const char *name, struct qm_emu_at at)
{
    const struct qm_index *b = &qm_emu_block_size;
    unsigned int threads = b->x * b->y * b->z;
    if (is_asked) {
        answer = most;
        longjmp(asked, 1);
    }
    if (threads > most)
        qm_emu_fail(at,
                    "the launch of %s fails: __launch_bounds__ allows %lld threads a block, and "
                    "it has %u (block %u,%u,%u)",
                    name, most, threads, b->x, b->y, b->z);
}

extern "C" int qm_emu_threads_most(void (*call)(const void *kernel), const void *kernel)
{
    answer = QM_THREADS_MOST;
    is_asked = 1;
    if (setjmp(asked) == 0)
        call(kernel);
    is_asked = 0;
    return answer < QM_THREADS_MOST ? (int)answer : QM_THREADS_MOST;
}
