/* codebook.h - the maps once more, rebuilt in double from their published definitions.
 *
 * A wrong entry in core/quant/map.c is seen because this file does not read it. */
#ifndef QM_ORACLE_CODEBOOK_H
#define QM_ORACLE_CODEBOOK_H

/* Fills value[2^bits] (ascending) with the definition of the map of that name ("dyn", "nf4",
 * "lin", ...) in double; returns the number of entries, 0 for a name, width or sign it does not
 * know.  sign 1: [-1, 1]; 0: [0, 1]. */
int qm_oracle_codebook(const char *map, int bits, int sign, double *value);

/* The exact nearest position of x by comparison with mid-points, which are exact in double (never
 * by |x - v|, which ties falsely near 0).  tie: -1 lower, +1 upper, 0 even position, 2 away from
 * zero.  value ascends. */
int qm_oracle_nearest(const double *value, int n, double x, int tie);

#endif
