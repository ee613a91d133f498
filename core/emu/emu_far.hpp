/* emu_far.hpp - A step of a tensor in address space without memory, of which few blocks are run.
 *
 * The host looks at windows of elements: the first `block` ones, and those from n - 7 - block on.
 * Which thread blocks work on them is learned from block 0 of each launch: the first elements that
 * it touches without a gap, and how far apart such runs lie where it takes several (a grid that
 * strides).  Where those leave an element of the windows untouched, other blocks are searched.
 * Records of bytes are not kept, so that races and unwritten memory are not seen here, and bulk
 * copies touch only pages that hold something. */
#ifndef QM_EMU_FAR_HPP
#define QM_EMU_FAR_HPP

#include "emu_runtime.hpp"

/* Accesses of one step, and pages that it writes, after which it is left: a block may loop over
 * millions of elements.  Of tensors of at most WHOLE elements all blocks are run, with more
 * accesses. */
enum {
    QM_FAR_ACCESSES = 60000000,
    QM_FAR_PAGES = 1 << 17,
    QM_FAR_BLOCKS = 256,
    QM_FAR_WHOLE = (1 << 20) + 8,
    QM_FAR_WHOLE_ACCESSES = 4 * QM_FAR_ACCESSES
};

struct qm_far {
    int64_t n, block; /* elements; n 0: an ordinary step */
    int is_learning;  /* within block 0 of a launch */
    int64_t accesses, pages;
    const char *left;  /* why the step was left, or NULL */
    const char *doubt; /* why its numbers may be wrong without a fault of the kernel, or NULL */
};
extern struct qm_far qm_far;

/* Notes an access by a kernel.  Returns 0 where the step is to be left. */
int qm_far_access(uintptr_t a, size_t size, int write);

/* Notes that a block may learn by an atomic operation what others do, of which few are run. */
void qm_far_communicates(struct qm_emu_at at);

/* Keeps what a region of an earlier step holds, which a kernel is about to write: where few blocks
 * are run it would be left as no launch leaves it, such as a ticket that the last block resets. */
struct region;
void qm_far_keep(const struct region *r);

/* Ends the step, and gives such regions back what they held. */
void qm_far_end(void);

/* Around block 0 of a launch of so many blocks; end: the further blocks to be run, in ascending
 * order, to chosen[]; returns how many. */
void qm_far_learn(void);
int qm_far_learned(uint64_t blocks, uint64_t chosen[QM_FAR_BLOCKS]);

/* After block 0 and the chosen ones have run: runs others until some have touched every element
 * that is looked at, found by bisection where blocks take elements in rising or falling order, all
 * of them, halves of them or every second one.  run: 0 where the launch has ended. */
void qm_far_search(uint64_t blocks, const uint64_t *chosen, int n_chosen, size_t shared,
                   int (*run)(uint64_t block, size_t shared));

/* memcpy and memset of the pages that hold something, and of the windows. */
void qm_far_copy(void *to, const void *from, size_t bytes);
void qm_far_fill(void *to, int byte, size_t bytes);

#endif
