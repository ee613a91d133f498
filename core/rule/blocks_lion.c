/* blocks_lion.c - compiled once per instruction set (QM_ISA). */
#include "core/rule/blocks_lion.h"

#include <string.h>

#include "core/rule/lion.h"

static void lion(const struct qm_rule_step *s, int64_t n, float *restrict p,
                 const float *restrict g, float *const *slot)
{
    float c[12], *restrict m = slot[0];
    memcpy(c, s->c, sizeof c);
    for (int64_t i = 0; i < n; i++)
        qm_lion_automl(c, p + i, g[i], m + i);
}

const struct qm_blocks_lion QM_ISA_NAME(qm_blocks_lion) = {.lion = lion};
