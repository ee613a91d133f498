/* emu_marks.h - The part of the rewriter for __global__, __device__ and their like (qm_emu.hpp
 * makes words of them), try blocks, and calls that get a kernel. */
#ifndef QM_EMU_MARKS_H
#define QM_EMU_MARKS_H

#include "core/emu/emu_tokens.h"

/* QM_BAD_ARG: the kernel whose __global__ ends at s returns something. */
qm_status qm_rw_returns_void(const struct qm_rewriter *r, const char *s);

/* Write what stands for the word at the input, which ends at `end`, and return 1; 0: it is none of
 * theirs.  text: the whole input. */
int qm_rw_mark(struct qm_rewriter *r, const char *text, const char *end);
int qm_rw_kernel_call(struct qm_rewriter *r, const char *end);

/* Copies `try {` and a mark behind it. */
void qm_rw_try_block(struct qm_rewriter *r, const char *end);

/* Copies a line of the layer, but for the words of marks. */
void qm_rw_layer_line(struct qm_rewriter *r, const char *text);

/* Copies the name of a barrier of the block and its bracket, with the barrier's number behind it;
 * returns 0 where it is another token. */
int qm_rw_barrier(struct qm_rewriter *r, const char *end);

#endif
