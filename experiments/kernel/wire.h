/* wire.h - what a worker and its parent say to each other: one JSON object a line.
 *
 *     worker   {"as": RECIPE, "tally": T}            once it is ready; or {"error": TEXT, "status": N}
 *     parent   {"do": "judge", "case": ID, "seed": "0x...", "against": BOOL}
 *     worker   {"case": ID, "tally": T}              with "refused": TEXT, "against": A where it applies
 *     parent   {"do": "judge", ..., "watch": true}   the same with "digest": "0x...", "field": BITS of
 *                                                    experiments/kernel/peer_rules.h
 *     parent   {"do": "far", "case": QM_FAR_CASE}    answered as "judge"
 *     parent   {"do": "speed", "n": ELEMENTS, "limit": SECONDS}
 *     worker   {"new": [SECONDS...], "old": [SECONDS...]}
 *     worker   {"signal": NAME, "where": TEXT, "old": BOOL}     the last words of one that dies
 *
 * Seeds go as text: JSON integers have 63 bits. */
#ifndef QM_EXPERIMENTS_KERNEL_WIRE_H
#define QM_EXPERIMENTS_KERNEL_WIRE_H

#include <jansson.h>

#include "experiments/check/judge.h"

json_t *qm_wire_tally(const struct qm_tally *t);

/* Adds what qm_wire_tally wrote; 0 where it is not that. */
int qm_wire_add(struct qm_tally *t, const json_t *from);

/* Writes value as one line and releases it; 0 on failure.  MSG_NOSIGNAL: fd is a socket. */
int qm_wire_write(int fd, json_t *value);

json_t *qm_wire_seed(uint64_t seed);
uint64_t qm_wire_seed_of(const json_t *text);

#endif
