/* emu_order.cpp - Vector clocks of a warp: which of its lanes have seen what others did. */
#include "emu_runtime.hpp"

#include <string.h>

void qm_order_meet(struct qm_order *o, uint32_t who, uint32_t live)
{
    uint16_t top[QM_WARP] = {0}, most = o->base;
    for (unsigned int i = 0; i < QM_WARP; i++)
        if (who >> i & 1) {
            o->own[i] += o->own[i] < 65535;
            most = o->own[i] > most ? o->own[i] : most;
        }
    if (who == live) {
        o->base = most;
        for (unsigned int i = 0; i < QM_WARP; i++)
            o->own[i] = most;
        return;
    }
    o->is_partial = 1;
    for (unsigned int i = 0; i < QM_WARP; i++)
        for (unsigned int k = 0; k < QM_WARP && (who >> i & 1); k++) {
            uint16_t seen = k == i ? o->own[i] : o->seen[i][k];
            top[k] = seen > top[k] ? seen : top[k];
        }
    for (unsigned int i = 0; i < QM_WARP; i++)
        if (who >> i & 1)
            memcpy(o->seen[i], top, sizeof top);
}

void qm_order_reset(struct qm_order *o)
{
    o->base = 0;
    memset(o->own, 0, sizeof o->own);
    if (o->is_partial)
        memset(o->seen, 0, sizeof o->seen);
    o->is_partial = 0;
}
