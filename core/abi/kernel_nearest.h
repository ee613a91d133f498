/* kernel_nearest.h - What a file of your own must export to be proved by `qualm prove FILE --map
 * MAP`.
 *
 * qm_nearest computes the codes of n unit values.  code[i] depends on y[i] alone: not on n, not on
 * i, not on other elements.
 *   y       n floats, n >= 1, aligned as floats are, not to be written; any bits, so also NaN, Inf
 *           and values beyond the map's range
 *   code    n bytes, to be written and not read: stored codes, one byte each, not packed, from 0 to
 *           2^bits - 1 and in the map; nothing else may be written
 * A .cu file has a kernel instead of this function: see kernel_cuda.h.
 *
 * The function is called from several threads at once, with different buffers and n from 1 to 4096.
 * It must return; it must not end the process. */
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
