/* emu_streams.hpp - The order of launches and copies in streams. */
#ifndef QM_EMU_STREAMS_HPP
#define QM_EMU_STREAMS_HPP

#include "emu_runtime.hpp"

/* Forgets the launches and errors of the last step; the name of a launch that the host has not
 * waited for, or NULL. */
void qm_streams_forget(void);
const char *qm_streams_unwaited(void);

/* Begins a copy or fill of the host's in a stream: the next accesses of qm_region_... are its own.
 * Returns the epoch of its accesses; 1 where nothing can be unordered with it; 0: the stream is
 * none, which has been reported.  is_seen: something can, as the host with an asynchronous copy. */
uint32_t qm_copy_begin(void *stream, int is_seen, const char *what, struct qm_emu_at at);

#endif
