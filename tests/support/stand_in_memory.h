/* stand_in_memory.h - Launches of the stand-in for a GPU (stand_in_gpu.h) that leave in its memory
 * something else than they should. */
#ifndef QM_SUPPORT_STAND_IN_MEMORY_H
#define QM_SUPPORT_STAND_IN_MEMORY_H

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/cuda/cuda_load.h"
#include "tests/support/stand_in_fault.h"

/* What a launch does that the device's counter of launches does not show. */
enum stand_in_how_wrong {
    STAND_IN_WRONG_none,
    STAND_IN_WRONG_undone, /* it changes nothing, as one that only counts */
    STAND_IN_WRONG_added,  /* each float that it changes is larger by 1 */
    STAND_IN_WRONG_twice,  /* it is made twice */
    STAND_IN_WRONG_outside /* it changes a byte beside a buffer, also before the first event */
};

/* After the first event of a process was created, each n-th call of this name is wrong, first that
 * of number `phase` (or n, for 0). */
static struct stand_in_wrong {
    const char *call; /* cuLaunchKernel or cuGraphLaunch; NULL: none */
    enum stand_in_how_wrong how;
    int n, phase;
} stand_in_wrong;

/* Where the byte outside lies: from 0 on after the end of the buffer, below 0 before its begin. */
static int stand_in_outside;

static int stand_in_is_timing; /* 1: this process has created an event */

static inline enum stand_in_how_wrong stand_in_how_wrong(const char *call)
{
    static int k;
    const struct stand_in_wrong *w = &stand_in_wrong;
    if (!w->call || (!stand_in_is_timing && w->how != STAND_IN_WRONG_outside) ||
        strcmp(w->call, call) != 0 || ++k % w->n != w->phase)
        return STAND_IN_WRONG_none;
    stand_in_shared->struck++;
    return w->how;
}

/* What is allocated, and what was there before a launch, where it is wrong or changes are left
 * out. */
enum { ALLOCATIONS = 1 << 14 };
static struct allocation {
    unsigned char *at, *before;
    size_t bytes;
} allocations[ALLOCATIONS];

static int leaves_changes_out(void)
{
    return stand_in_idle.call && strcmp(stand_in_idle.call, "changes") == 0;
}

static void note_allocation(qm_device_pointer of, qm_device_pointer to, size_t bytes)
{
    int i = 0;
    if (!leaves_changes_out() && !stand_in_wrong.call)
        return;
    while (allocations[i].at != (void *)(uintptr_t)of)
        stand_in_must(++i < ALLOCATIONS);
    allocations[i] = (struct allocation){(unsigned char *)(uintptr_t)to, NULL, bytes};
}

/* Keeps what is there before a launch. */
static void keep_memory(enum stand_in_how_wrong wrong)
{
    if (!leaves_changes_out() && wrong != STAND_IN_WRONG_undone && wrong != STAND_IN_WRONG_added)
        return;
    for (int i = 0; i < ALLOCATIONS; i++)
        if (allocations[i].at && (allocations[i].before = malloc(allocations[i].bytes)))
            memcpy(allocations[i].before, allocations[i].at, allocations[i].bytes);
}

/* The changes of one allocation, of n bytes each: undoes them, or those that are left out, or
 * adds to them. */
static void change_allocation(struct allocation *m, enum stand_in_how_wrong wrong)
{
    for (size_t k = 0, n; k < m->bytes; k += n) {
        n = wrong == STAND_IN_WRONG_added ? sizeof(float) : STAND_IN_CHANGE;
        n = m->bytes - k < n ? m->bytes - k : n;
        if (memcmp(m->at + k, m->before + k, n) == 0)
            continue;
        if (wrong == STAND_IN_WRONG_undone || (!wrong && stand_in_is_idle("changes")))
            memcpy(m->at + k, m->before + k, n);
        if (wrong == STAND_IN_WRONG_added && n == sizeof(float)) {
            float x;
            memcpy(&x, m->at + k, n);
            x += 1.0f;
            memcpy(m->at + k, &x, n);
        }
    }
}

/* Changes a byte beside a buffer, each time of another one; allocations have guards. */
static void change_outside(void)
{
    enum { GUARD = 256 };
    static int at;
    const int place = stand_in_outside;
    for (int k = 0; k < ALLOCATIONS; k++) {
        const struct allocation *m = &allocations[++at % ALLOCATIONS];
        if (!m->at)
            continue;
        m->at[place < 0 ? GUARD + place : (int64_t)m->bytes - GUARD + place] ^= 0x40;
        return;
    }
}

/* After the launch: does what is wrong. */
static void change_memory(enum stand_in_how_wrong wrong)
{
    if (wrong == STAND_IN_WRONG_outside)
        change_outside();
    for (int i = 0; i < ALLOCATIONS; i++) {
        struct allocation *m = &allocations[i];
        if (m->before)
            change_allocation(m, wrong);
        free(m->before);
        m->before = NULL;
    }
}

#endif
