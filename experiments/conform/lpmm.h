/* lpmm.h - Declarations shared by the two replays of low-bit-optimizers (lpmm). */
#ifndef QM_CONFORM_LPMM_H
#define QM_CONFORM_LPMM_H

#include <stddef.h>

struct qm_conform;

/* The quantizer string of attributes PREFIXquant_type, PREFIXscale_type, PREFIXround_type,
 * PREFIXbits, PREFIXsigned, PREFIXgroup_size; 0, and the case skipped, when one is not built. */
int qm_lpmm_quantizer(struct qm_conform *c, const char *prefix, char *out, size_t size);

/* An optimizer run: one case for each parameter. */
void qm_conform_lpmm_run(struct qm_conform *c, const char *group);

#endif
