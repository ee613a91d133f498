/* emu_launch.h - Rewrites a launch of a kernel, k<<<...>>>(...), to a call of the layer. */
#ifndef QM_EMU_LAUNCH_H
#define QM_EMU_LAUNCH_H

#include "core/emu/emu_tokens.h"

/* Rewrites a launch; the input stands at <<<.  The arguments are evaluated once, by the host; each
 * thread calls the kernel with copies. */
qm_status qm_rw_launch(struct qm_rewriter *r);

#endif
