/* scalars.h - How many scalars and flags a step of a rule has (dual). */
#ifndef QM_RULE_SCALARS_H
#define QM_RULE_SCALARS_H

/* The room of c[] and flag[] of struct qm_rule_step and of its copies; the element headers name
 * the indices. */
enum { QM_STEP_SCALARS = 16, QM_STEP_FLAGS = 4 };

/* Refuses a rule whose last index is beyond that room, when it is compiled. */
#define QM_ASSERT_SCALARS(n) typedef char qm_room_of_##n[(int)(n) <= (int)QM_STEP_SCALARS ? 1 : -1]

#endif
