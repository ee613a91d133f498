/* device_codes.h - Codes of every float by a device's kernel, as runs, against the CPU's search. */
#ifndef QM_PROVE_DEVICE_CODES_H
#define QM_PROVE_DEVICE_CODES_H

#include "core/device/batch.h"
#include "experiments/prove/routine.h"

struct qm_codes_result {
    uint64_t inputs, runs;    /* floats that the device coded; runs of equal codes */
    uint64_t compared, wrong; /* floats compared with the CPU's search; with another code */
    uint32_t first_wrong;     /* bits of the first */
    double device_seconds;
};

/* Has a device code the unit values with bits [first, first + count), and appends the runs to out,
 * whose bits so far are smaller.  QM_CHECK_FAILED: the codes change too often for a search, the
 * list is damaged, or the device's sums (QM_CODES_SUMS) show that it did not visit every float.
 * The caller frees out->change. */
qm_status qm_codes_runs(const struct qm_device *d, const struct qm_quantizer *q, uint64_t first,
                        uint64_t count, struct qm_code_runs *out);

/* Compares a device's codes of the unit values with bits [first, first + count) with qm_code_of:
 * all of them, or, where sampled is 1, both ends of every run and a few inside.  q: 4 or 8 bits,
 * any deterministic search. */
qm_status qm_codes_compare(const struct qm_device *d, const struct qm_quantizer *q, uint64_t first,
                           uint64_t count, int sampled, struct qm_codes_result *out);

#endif
