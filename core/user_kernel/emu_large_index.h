/* emu_large_index.h - Tests a kernel with indices beyond 32 bits, without the memory for them.
 *
 * The program's output calls this case "far". */
#ifndef QM_USER_KERNEL_EMU_LARGE_INDEX_H
#define QM_USER_KERNEL_EMU_LARGE_INDEX_H

#include "core/user_kernel/backend_file.h"

#define QM_FAR_N ((int64_t)2147483648 + 7)

/* Runs a kernel of backend emu on a tensor of QM_FAR_N elements in reserved address space: the
 * blocks that elements 0, 2^31 - 1, 2^31 and the last have by their share of the grid.  All
 * elements there have the same input.  QM_CHECK_FAILED: the emulator has a finding, or one of these
 * elements differs from element 0.  QM_SKIPPED, with the reason: the kernel refuses, its scales
 * need the whole tensor, or there is no address space. */
qm_status qm_emu_far(struct qm_kernel_file *k, const struct qm_recipe *r);

#endif
