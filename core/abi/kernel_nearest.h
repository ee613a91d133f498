/* kernel_nearest.h - what a file of yours exports so that `qualm prove FILE --map MAP` can prove it.
 *
 * The codes of n unit values, elementwise: code[i] depends on y[i] and on nothing else, neither on n nor
 * on i nor on other elements.
 *   y       n floats, n >= 1: any bits, NaN and Inf among them, and beyond the map's range; aligned as
 *           floats are; not to be written
 *   code    n bytes, written and not read: stored codes (0 to 2^bits - 1 that the map has), not packed.
 *           Nothing else is written
 * (A .cu file holds a kernel instead: kernel_cuda.h.)
 *
 * Called from several threads at once with different buffers, with n from 1 to 4096.  It returns, and
 * it does not end the process. */
#ifndef QM_KERNEL_NEAREST_H
#define QM_KERNEL_NEAREST_H

#ifdef __cplusplus
extern "C" {
#endif

void qm_nearest(const float *y, long n, unsigned char *code);

#ifdef __cplusplus
}
#endif

#endif
