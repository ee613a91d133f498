/* wire.h - The protocol between a worker process of `prove` and its parent: one JSON object per
 * line. */
#ifndef QM_EXPERIMENTS_PROVE_WIRE_H
#define QM_EXPERIMENTS_PROVE_WIRE_H

#include <jansson.h>

/* Writes value as one line to the socket fd and releases it; 0 on failure. */
int qm_wire_write(int fd, json_t *value);

#endif
