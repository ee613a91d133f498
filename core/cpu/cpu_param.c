/* cpu_param.c - A piece of the parameter as float32, and its write-back as the recipe stores it. */
#include "core/base/narrow.h"
#include "core/cpu/cpu_plan.h"
#include "core/rule/param_loops.h"

enum { DRAWS = 256 }; /* elements that are rounded at a time */

/* Element `from` of the parameter, and of its residuals (NULL: it has none). */
static void *param_at(const struct qm_cpu_plan *p, void *param, int64_t from)
{
    return (char *)param + from * qm_param_bytes(&p->r.param);
}

static void *residual_at(const struct qm_cpu_plan *p, int64_t from)
{
    return p->residual ? p->residual + from * qm_param_residual(&p->r.param) : NULL;
}

void qm_cpu_param_load(const struct qm_cpu_plan *p, void *param, int64_t from, int64_t n,
                       float *out)
{
    enum qm_param_format f = p->r.param.format;
    const void *at = param_at(p, param, from);
    if (!p->residual && f == QM_PARAM_bf16)
        qm_narrow()->bf16_to_float(at, n, out);
    else if (!p->residual && f == QM_PARAM_e4m3)
        qm_narrow()->e4m3_to_float(at, n, out);
    else
        qm_param_loops()->load(p->r.param, at, residual_at(p, from), n, out);
}

void qm_cpu_param_store(struct qm_cpu_plan *p, void *param, int64_t from, int64_t n, const float *x,
                        const struct qm_draws *draws)
{
    uint32_t draw[DRAWS];
    uint16_t *to = param_at(p, param, from);
    if (p->residual || p->r.param.format != QM_PARAM_bf16) {
        qm_param_loops()->store(p->r.param, x, n, draws, from, to, residual_at(p, from));
        return;
    }
    for (int64_t i = 0; i < n; i += DRAWS) {
        int64_t m = n - i < DRAWS ? n - i : DRAWS;
        if (p->r.param.write == QM_WRITE_stoch) {
            qm_narrow()->draws(draws, from + i, m, draw);
            qm_narrow()->stochastic_bf16(x + i, draw, m, to + i);
        } else {
            qm_narrow()->float_to_bf16(x + i, m, to + i);
        }
    }
}
