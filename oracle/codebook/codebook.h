/* codebook.h - the maps once more, rebuilt in double from their published definitions.
 *
 * A wrong entry in core/quant/map.c is seen because this file does not read it. */
#ifndef QM_CODEBOOK_CODEBOOK_H
#define QM_CODEBOOK_CODEBOOK_H

/* Fills value[2^bits] with the definition of the map of that name ("dyn", "nf4", "lin", ...) in
 * double, ascending, and returns the number of entries; 0 for a name, width or sign it does not
 * know.  sign 1: in [-1, 1]; 0: in [0, 1].  Four that differ:
 *   int          in units of its code, -2^(b-1) .. 2^(b-1) - 1; its scale is absmax / (2^(b-1) - 1)
 *   nf4s         15 entries
 *   lint signed  2^b - 1 entries, k / (2^(b-1) - 1), since its source has no other codes
 *   e4m3         in its own units, -448 .. 448, one zero: 253 entries; its scale is absmax / 448
 *   log, logf    q / 255 of the coded range, in log2 space
 * Equal neighbours where a format has two codes for one value: lin0 signed (0 twice), fp4
 * (-0, +0), fp4s, fp52 and fpx signed (+0, -0, as their sources sort them), de0 unsigned (its smallest
 * value twice).
 *
 * The tables in use are float32.  These values rounded once are those of int, intm, lint, nf4,
 * nf4a8, fp4, fp4s, fpx, e4m3 and of unsigned lin, pow2, pow3; the sources of dyn and de (within 2 ulp)
 * and of lin0 and signed lin, pow2, pow3 (within 1.2e-7) form theirs in float32.
 * Sources: arXiv:1511.04561 and bitsandbytes functional.py (dyn, lin0, nf4, fp4), arXiv:2305.14314
 * (nf4), low-bit-optimizers lpmm (de, de0, lin, pow2, pow3, fpx, lint), adafactor8bit (int 0.2.2,
 * nf4a8 0.2.4, intm 0.2.6, log, logf), OCP 8-bit floating point specification 1.0 (e4m3). */
int qm_oracle_codebook(const char *map, int bits, int sign, double *value);

/* The exact nearest position of x by comparison with mid-points, which are exact in double where
 * value[] holds float32 values (never by |x - v|, which ties falsely near 0).  tie: -1 lower, +1
 * upper, 0 even position, 2 away from zero (a tie at 0 goes up).  value ascends, n >= 1; beyond
 * the ends: the end; NaN: 0.  Of equal neighbours x above them takes the last, x below the first,
 * x equal to them is a tie of the first two. */
int qm_oracle_nearest(const double *value, int n, double x, int tie);

#endif
