/* codebook.h - The codebooks of maps in double, built from their published definitions; maps whose
 * numbers depend on the block (al, qlog, affine) have none.
 *
 * codebook.c does not read core/quant/map.c, so a wrong entry there is detected. */
#ifndef QM_CODEBOOK_CODEBOOK_H
#define QM_CODEBOOK_CODEBOOK_H

/* Fills value[2^bits] with the map of that name ("dyn", "nf4", "lin", ...) in double, ascending,
 * and returns the number of entries; 0 for a name, width or sign that it does not know.  sign 1:
 * entries in [-1, 1]; 0: in [0, 1].  Exceptions:
 *   int          in units of its code, -2^(b-1) .. 2^(b-1) - 1; its scale is absmax / (2^(b-1) - 1)
 *   intd         2^b - 1 entries in units of its code, -(2^(b-1) - 1) .. 2^(b-1) - 1
 *   nf4s         15 entries
 *   lint signed  2^b - 1 entries, k / (2^(b-1) - 1), since its source has no other codes
 *   e4m3         in its own units, -448 .. 448, one zero: 253 entries; its scale is absmax / 448
 *   log, logf    q / 255 of the coded range, in log2 space
 * Two neighbours are equal where a format has two codes for one value: lin0 signed (0 twice), fp4
 * (-0, +0), nvfp4, fp4s, fp52 and fpx signed (+0, -0, in the order of their sources), de0 unsigned
 * (its smallest value twice).
 *
 * The sources' tables are float32.  Rounding the values here once gives the tables of int, intm,
 * lint, nf4, nf4a8, fp4, fp4s, fpx, e4m3 and of unsigned lin, pow2, pow3; the sources of dyn and de
 * (within 2 ulp) and of lin0 and signed lin, pow2, pow3 (within 1.2e-7) form their tables in
 * float32. Sources: arXiv:1511.04561 and bitsandbytes functional.py (dyn, lin0, nf4, fp4),
 * arXiv:2305.14314 (nf4), low-bit-optimizers lpmm (de, de0, lin, pow2, pow3, fpx, lint),
 * adafactor8bit (int 0.2.2, nf4a8 0.2.4, intm 0.2.6, log, logf), OCP 8-bit floating point
 * specification 1.0 (e4m3).  Of af4, nvfp4, intd, dyndef, lin2, linb, fp52, fp4s and nf4s
 * core/quant/map.h names the source beside each, and the function that `maps` of codebook.c names
 * for it has the formula. */
int qm_oracle_codebook(const char *map, int bits, int sign, double *value);

/* The position of the value nearest to x, exactly, by comparison with mid-points; these are exact
 * in double where value[] holds float32 values.  (Comparing |x - v| would find false ties near 0.)
 * tie: -1 lower position, +1 upper, 0 even position, 2 away from zero (a tie at 0 goes up).  value
 * ascends, n >= 1; x beyond an end gets that end, NaN gets 0.  Of equal neighbours, x above them
 * gets the last, x below them the first; x equal to them is a tie of the first two. */
int qm_oracle_nearest(const double *value, int n, double x, int tie);

#endif
