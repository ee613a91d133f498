/* adafactor8_slots.h - Holds one tensor's slots of the family adafactor8 for its oracle. */
#ifndef QM_SUPPORT_ADAFACTOR8_SLOTS_H
#define QM_SUPPORT_ADAFACTOR8_SLOTS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { M, ROW, COL, V, CONF_ROW, CONF_COL, NORM, PROJ, SLOTS, MOST = 4096 };

static double slot_room[SLOTS][MOST], *slots[SLOTS];

static inline void slots_reset(void)
{
    for (int s = 0; s < SLOTS; s++)
        slots[s] = memset(slot_room[s], 0, sizeof slot_room[s]);
}

#endif
