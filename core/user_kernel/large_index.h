/* large_index.h - Tests a kernel with large indices, without the memory for them.
 *
 * The program's output calls this case "far". */
#ifndef QM_USER_KERNEL_LARGE_INDEX_H
#define QM_USER_KERNEL_LARGE_INDEX_H

#include "core/user_kernel/backend_file.h"

#define QM_FAR_N       ((int64_t)2147483648 + 7)
#define QM_FAR_REFUSED (-1)

/* The elements with which an index of 16 bits overflows, of blocks of the recipe too, and a float32
 * count of elements or blocks is one too few: 2^25 + 1 (2^24 + 1 of a matrix of one row), or 65536
 * of its largest blocks + 1. */
int64_t qm_large_index_least(const struct qm_recipe *r);

/* 1: the tensors are [1, n], for the rule takes no vectors (Muon). */
int qm_large_index_is_row(const struct qm_recipe *r);

/* Runs step 2 of a tensor of n = 2^k + 1 to 2^k + 7 elements, QM_FAR_N or fewer (on backend emu 2^k
 * + 7 alone).  What its first elements and those from the block before the last n - 2^k on become
 * must be, to the bit, what they become in a tensor of 2^16 + 1 to 2^16 + 7 elements by the same
 * kernel; of a .c or .so kernel also what a block in the middle becomes, and the bytes between the
 * ends of its arrays and their pages stay as they are.  Gradients, parameters and states of step 1
 * differ from element to element.  Every slot has codes, of short blocks too.  All other elements
 * are zeros, which nobody looks at, so that norms of the whole tensor agree, within rounding; where
 * the rule has means, which depend on n, only whether parameters were updated is looked at, as of
 * Muon, whose momentum is compared to the bit.
 *
 * The arrays are address space.  On backend emu only the pages touched have memory, and of each
 * launch those blocks are run that work on the elements looked at (core/emu/emu_far.hpp; of at most
 * 2^20 + 7 elements all blocks).  Of a .c
 * or .so kernel, which runs over all elements, the arrays map one small piece of memory again and
 * again, but for the elements looked at, so that the pages in between share their contents; 8 GiB
 * without access lie before each array.
 *
 * QM_CHECK_FAILED: the emulator has a finding, or an element differs.  QM_SKIPPED, with the reason:
 * the kernel refuses, its scales need the whole tensor, its blocks run too long on the emulator, an
 * element differs there after blocks communicated with others that are not run, or there is no
 * address space.  A .c kernel that indexes out of bounds dies of a signal.  *judged: how many
 * numbers were compared, or QM_FAR_REFUSED where the kernel took the small tensor and refuses n. */
qm_status qm_large_index(struct qm_kernel_file *k, const struct qm_recipe *r, int64_t n,
                         int64_t *judged);

#endif
