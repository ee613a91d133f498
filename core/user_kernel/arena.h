/* arena.h - The arrays of a plan in memory that two processes share, each between pages without
 * access.
 *
 * One memory file holds all arrays of a plan, each on pages of its own with poison around it.  The
 * process of the kernel maps them apart, between pages without access, and only while a step runs.
 * The judge works on a private copy, `kept`: qm_arena_publish hands it over, qm_arena_take takes
 * the results, and whatever the other process writes at another time is found, not read. */
#ifndef QM_USER_KERNEL_ARENA_H
#define QM_USER_KERNEL_ARENA_H

#include <stdint.h>

#include "core/base/status.h"

enum { QM_ARENA_PARTS = 40 };

/* What the kernel's process must know to map an arena. */
struct qm_arena_view {
    int n;
    uint64_t guard; /* bytes without access before each part and behind the last */
    struct {
        uint64_t from, room; /* offset in the memory file and bytes, in whole pages */
        int is_const;
    } part[QM_ARENA_PARTS];
};

/* The values around arrays, which a kernel that reads past an end takes for data: the largest code
 * and NaN, of float32 and of 16 bits.  Where arrays start at their first page they are finite, for
 * fmaxf drops a NaN and a search stops at one: float32's largest and least in turns, numbers near
 * 2^120 of both signs that are 61280 in float16, and the byte 0x7e, which is 448 in e4m3. */
enum qm_poison { QM_POISON_CODES = 0xff, QM_POISON_F32 = 0x7fe5a5a5, QM_POISON_16 = 0x7fe57fe5 };

struct qm_arena {
    struct qm_arena_view view;
    struct {
        uint64_t at, bytes; /* offset of the array in the memory file, and its size */
        enum qm_poison poison;
        char what[48];
    } array[QM_ARENA_PARTS];
    int fd, at_start; /* at_start 1: arrays start at their first page, 0: end at their last */
    uint64_t bytes;   /* of the memory file */
    unsigned char *shared, *kept;
    int is_checked; /* 1: late writes were looked for since the last step */
};

/* Adds an array before qm_arena_open and returns its number.  room: bytes it may grow to.
 * what: copied. */
int qm_arena_add(struct qm_arena *a, uint64_t bytes, uint64_t room, int is_const,
                 enum qm_poison poison, const char *what);

/* Allocates; arrays are zeroed, and each starts at a multiple of 64 bytes. */
qm_status qm_arena_open(struct qm_arena *a, int at_start);
void qm_arena_close(struct qm_arena *a); /* accepts a zeroed struct */

/* Gives array i another size within its room; its content is lost. */
void qm_arena_resize(struct qm_arena *a, int i, uint64_t bytes);

/* The judge's copy of array i. */
void *qm_arena_data(const struct qm_arena *a, int i);

/* Address of array i in a mapping of qm_arena_map. */
uint64_t qm_arena_address(const struct qm_arena *a, int i, uint64_t base);

/* QM_CHECK_FAILED: an array was written since the last step ended.  Called before the copy is
 * changed and before it is freed. */
qm_status qm_arena_settle(struct qm_arena *a);

void qm_arena_publish(struct qm_arena *a); /* copy -> shared memory */

/* Shared memory -> copy.  QM_CHECK_FAILED: an array that is const was changed, or something was
 * written between an array and the pages around it. */
qm_status qm_arena_take(struct qm_arena *a);

/* QM_CHECK_FAILED: shared memory differs from the copy (a step that refused its input). */
qm_status qm_arena_is_untouched(const struct qm_arena *a);

/* Maps the file fd as `view` says, without access, near `hint` where that is free.  NULL: no
 * address space.  *total: bytes of the mapping. */
unsigned char *qm_arena_map(int fd, const struct qm_arena_view *view, void *hint, uint64_t *total);

/* Opens the arrays of a mapping for a step, or closes them all. */
void qm_arena_access(unsigned char *base, const struct qm_arena_view *view, uint64_t total, int on);

/* Describes an address of a mapping, "past the parameters, end plus 256", or writes "". */
void qm_arena_describe(const struct qm_arena *a, uint64_t base, uint64_t address, char *text,
                       size_t size);

#endif
