/* adafactor8.h - Slots and random matrices of family adafactor8, for the oracle and its bound. */
#ifndef QM_ORACLE_RULE_ADAFACTOR8_H
#define QM_ORACLE_RULE_ADAFACTOR8_H

#include "oracle/oracle.h"

enum qm_oracle_adafactor8_slot { M, R, C, V, CONF_R, CONF_C, NORM, PROJ, SLOTS };

/* Fills p[n] with normals N(0, 1 / rank): matrix number `which` of this tensor, from the Philox
 * stream of role "spare" at step 2^31 + which. */
void qm_adafactor8_matrix(uint32_t tensor, int64_t which, int64_t rank, int64_t n, double *p);

/* The error bounds of both releases (bound_adafactor8.c). */
qm_status qm_bound_adafactor8(const struct qm_bound_step *b);
qm_status qm_bound_adafactor8_021(const struct qm_bound_step *b);

#endif
