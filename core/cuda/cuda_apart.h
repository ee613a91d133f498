/* cuda_apart.h - Gives what calls the driver or NVRTC a process of its own, because either may
 * crash, leave, write where it likes, fork, lower a limit, or not return.
 *
 * What the process has to say goes through a pipe, as one message at the end of its work: length,
 * checksum, a number that the parent drew, and the number of the process that was started.  Only a
 * process that then leaves by itself has done its work; the parent prints what it said.  Calls that
 * are under way are noted (cuda_calls.h), so that the parent can say in which one it ended, and end
 * it where one takes too long.  Whatever the process leaves behind is ended with it.  A process
 * must fork before it opens the driver. */
#ifndef QM_CUDA_CUDA_APART_H
#define QM_CUDA_CUDA_APART_H

#include <stddef.h>
#include <sys/types.h>

#include "core/base/status.h"
#include "core/cuda/cuda_calls.h"

/* The seconds that one call of the driver may take: $QM_CUDA_LIMIT, a number from 0.01 to 1e6, 30
 * where that is not set.  A call of NVRTC may take ten times as long, because it compiles.
 * QM_BAD_ARG: it is something else. */
qm_status qm_cuda_limit(double *seconds);

/* What the work says, of two kinds. */
enum qm_cuda_said { QM_CUDA_SAID_data, QM_CUDA_SAID_note, QM_CUDA_SAID_KINDS };

/* Has another process, forked here, do work(of): *code is what that returned, and hear (or NULL)
 * gets what it said by qm_cuda_apart_say, in order, once, after that has ended.  Signals that
 * are sent to this process reach the other.  In a process that was forked like this work is done
 * at once.
 *
 * QM_INTERNAL: the other crashed, left before its work was done, overwrote what it shares with this
 * one, or a call took longer than qm_cuda_limit allows; the message names signal or exit code, and
 * the call, and nothing of what it said is heard.  QM_INTERRUPTED: so it ended after a signal had
 * reached this process. */
qm_status qm_cuda_apart(int (*work)(void *of), void *of, int *code,
                        void (*hear)(enum qm_cuda_said kind, const char *text, size_t n));

/* In the work: adds to what it says.  A copy of the process, which a library has forked, says
 * nothing.  0: there is no memory. */
int qm_cuda_apart_say(enum qm_cuda_said kind, const char *text, size_t n);

/* Makes stderr what this process has as stdout (descriptor 1), because a library may write there.
 * Returns a descriptor of the former stdout, which the caller closes, or -1. */
int qm_cuda_apart_stdout(void);

/* 1: this process was forked to call the driver; _set says so for a process forked by others. */
int qm_cuda_is_apart(void);
void qm_cuda_is_apart_set(void);

/* 1: this process is a copy of one that is apart, and not that one. */
int qm_cuda_is_twin(void);

/* Has fill write one line to text[size] in a process of its own, within qm_cuda_limit.
 * QM_INTERNAL: as qm_cuda_apart. */
qm_status qm_cuda_apart_text(void (*fill)(char *text, size_t size), char *text, size_t size);

#endif
