/* lpmm.h - Declarations shared by the two replays of low-bit-optimizers (lpmm). */
#ifndef QM_CONFORM_LPMM_H
#define QM_CONFORM_LPMM_H

#include <stddef.h>

struct qm_conform;
struct qm_quantizer;

/* The quantizer string of attributes PREFIXquant_type, PREFIXscale_type, PREFIXround_type,
 * PREFIXbits, PREFIXsigned, PREFIXgroup_size; 0, and the case skipped, when one is not built, or
 * unreadable, when one is missing. */
int qm_lpmm_quantizer(struct qm_conform *c, const char *prefix, char *out, size_t size);

/* The major release of PyTorch that made the recording; 1 where the file does not say. */
int qm_lpmm_torch(struct qm_conform *c);

/* out[256] <- the table that the functions of lpmm make of the quantizer's map in PyTorch 2, whose
 * linspace rounds each entry once; the maps are those of PyTorch 1.13.  The number of entries; 0
 * where the file is of PyTorch 1, or the map the same. */
int qm_lpmm_table(struct qm_conform *c, const struct qm_quantizer *q, float *out);

/* An optimizer run: one case for each parameter. */
void qm_conform_lpmm_run(struct qm_conform *c, const char *group);

#endif
