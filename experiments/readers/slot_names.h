/* slot_names.h - What files call the states of optimizers: the first moment and the second. */
#ifndef QM_READERS_SLOT_NAMES_H
#define QM_READERS_SLOT_NAMES_H

enum { QM_SLOT_NAMES = 2 };

/* The names of moment i (0: exp_avg, momentum_buffer, state1; 1: exp_avg_sq, state2), the one of
 * variants first, then those of torch's SGD and of bitsandbytes; NULL ends the list. */
const char *const *qm_slot_names(int i);

/* The moment that a tensor's name ends in by a name that variants do not use (momentum_buffer,
 * state1, state2), or -1. */
int qm_slot_alias(const char *tensor);

#endif
