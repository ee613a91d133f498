/* emu_bounds.cpp - The limits of a launch: CUDA's and those of __launch_bounds__.  These may be
 * asked for, too. */
#include "emu_runtime.hpp"

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

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
    qm_now.is_entering = 0;
    if (qm_now.kernel && strncmp(qm_now.kernel, "a kernel of ", 12) == 0)
        qm_now.kernel = name;
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

/* ---- CUDA's limits --------------------------------------------------------------------------- */

static size_t shared_allowed = QM_STATIC_MOST;

size_t qm_shared_allowed(void) { return shared_allowed; }

extern "C" void qm_emu_allow_shared(int bytes)
{
    if (bytes > (int)shared_allowed)
        shared_allowed = bytes > QM_DYNAMIC_MOST ? (size_t)QM_DYNAMIC_MOST : (size_t)bytes;
}

/* Writes why a launch of that size fails; "": it does not. */
static void flaw_of(struct qm_index g, struct qm_index b, size_t shared, char *text, size_t size)
{
    static const unsigned int grid_most[] = {0x7fffffff, 65535, 65535};
    static const unsigned int block_most[] = {1024, 1024, 64};
    const unsigned int grid[] = {g.x, g.y, g.z}, block[] = {b.x, b.y, b.z};
    uint64_t threads = (uint64_t)b.x * b.y * b.z;
    *text = '\0';
    if (threads == 0)
        snprintf(text, size, "blocks without threads");
    else if (b.x <= block_most[0] && b.y <= block_most[1] && b.z <= block_most[2] &&
             threads > QM_THREADS_MOST)
        snprintf(text, size, "more than %d threads a block", QM_THREADS_MOST);
    else if (shared > qm_shared_allowed())
        snprintf(text, size, "more dynamic shared memory than allowed, %zu bytes",
                 qm_shared_allowed());
    for (int i = 2; i >= 0; i--) {
        if (block[i] > block_most[i])
            snprintf(text, size, "a block's %c is at most %u", "xyz"[i], block_most[i]);
        else if (grid[i] > grid_most[i])
            snprintf(text, size, "a grid's %c is at most %u", "xyz"[i], grid_most[i]);
        else
            continue;
        break;
    }
}

int qm_launch_is_valid(struct qm_index g, struct qm_index b, size_t shared, const char *name,
                       struct qm_emu_at at)
{
    char why[80];
    flaw_of(g, b, shared, why, sizeof why);
    if (*why)
        qm_emu_fail(at,
                    "the launch of %s fails: %s (grid %u,%u,%u, block %u,%u,%u, %zu bytes of "
                    "shared memory)",
                    name, why, g.x, g.y, g.z, b.x, b.y, b.z, shared);
    return !*why;
}
