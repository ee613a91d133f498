/* wire.h - The protocol between a worker process and its parent: one JSON object per line.
 *
 *     worker   {"as": RECIPE, "tally": T}            when it is ready, or
 *              {"error": TEXT, "status": N}
 *     parent   {"do": "judge", "case": ID, "seed": "0x...", "against": BOOL, "peer_rules": BOOL}
 *     worker   {"case": ID, "tally": T}              with "refused": TEXT of a refusal, "against":
 *                                                    A where asked for, "digest": "0x..." and
 *                                                    "killed": BITS where peer_rules is true
 *     parent   {"do": "large_index", "case": QM_LARGE_INDEX_CASE}   answered as "judge"; or "unfit"
 *     parent   {"do": "speed", "n": ELEMENTS, "limit": SECONDS}
 *     worker   {"new": [SECONDS...], "old": [SECONDS...]}
 *     worker   {"where": TEXT, "old": BOOL}          the last line of a worker that gets a signal
 *
 * Seeds are text, because JSON integers have 63 bits. */
#ifndef QM_EXPERIMENTS_KERNEL_WIRE_H
#define QM_EXPERIMENTS_KERNEL_WIRE_H

#include <jansson.h>

#include "experiments/check/judge.h"

json_t *qm_wire_tally(const struct qm_tally *t);

/* Adds a tally that qm_wire_tally wrote; 0: `from` is not a tally. */
int qm_wire_add(struct qm_tally *t, const json_t *from);

/* Writes value as one line to the socket fd and releases it; 0 on failure. */
int qm_wire_write(int fd, json_t *value);

json_t *qm_wire_seed(uint64_t seed);
uint64_t qm_wire_seed_of(const json_t *text);

#endif
