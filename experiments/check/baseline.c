/* baseline.c - Accumulates the RMSE of the judged step and of the float32 step, and their ratio. */
#include "experiments/check/baseline.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"

static double mean(const struct qm_rmse *r, double logs)
{
    return r->steps > 0 ? exp(logs / (double)r->steps) : (double)NAN;
}

double qm_rmse_judged(const struct qm_rmse *r) { return mean(r, r->judged); }
static double rmse_plain(const struct qm_rmse *r) { return mean(r, r->plain); }
double qm_rmse_ratio(const struct qm_rmse *r) { return mean(r, r->judged - r->plain); }

void qm_rmse_merge(struct qm_rmse *into, const struct qm_rmse *from)
{
    into->judged += from->judged;
    into->plain += from->plain;
    into->worst = fmax(into->worst, from->worst);
    into->steps += from->steps;
}

void qm_rmse_add(struct qm_rmse *to, const float *judged, const float *plain, const double *want,
                 int64_t n)
{
    double error = 0.0, plain_error = 0.0, size = 0.0;
    for (int64_t i = 0; i < n; i++) {
        double a = (double)judged[i] - want[i], b = (double)plain[i] - want[i];
        error += a * a;
        plain_error += b * b;
        size += want[i] * want[i];
    }
    if (!(size > 0.0 && size < HUGE_VAL && error > 0.0 && error < HUGE_VAL && plain_error > 0.0 &&
          plain_error < HUGE_VAL))
        return;
    struct qm_rmse one = {0.5 * log(error / size), 0.5 * log(plain_error / size),
                          sqrt(error / plain_error), 1};
    qm_rmse_merge(to, &one);
}

static json_t *entry(const struct qm_rmse *r)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:I}", "ratio", qm_json_number(qm_rmse_ratio(r)),
                     "worst", qm_json_number(r->steps ? r->worst : (double)NAN), "rmse",
                     qm_json_number(qm_rmse_judged(r)), "float32", qm_json_number(rmse_plain(r)),
                     "steps", (json_int_t)r->steps);
}

json_t *qm_rmse_json(const struct qm_rmse *rmse, const struct qm_rule *rule)
{
    json_t *out = json_object();
    json_object_set_new(out, "parameter", entry(&rmse[QM_MAX_SLOTS]));
    for (int i = 0; rule && i < rule->n_slots; i++)
        json_object_set_new(out, rule->slot[i], entry(&rmse[i]));
    return out;
}

void qm_rmse_text(const json_t *rmse, int slots, char *text, size_t size)
{
    const char *key;
    json_t *one;
    double most = -1.0;
    json_object_foreach ((json_t *)(uintptr_t)rmse, key, one) {
        const json_t *ratio = json_object_get(one, "ratio");
        if ((strcmp(key, "parameter") != 0) == slots && json_is_number(ratio))
            most = fmax(most, json_number_value(ratio));
    }
    snprintf(text, size, most < 0.0 ? "-" : "%.4g", most);
}

qm_status qm_baseline_open(struct qm_baseline *b, const struct qm_recipe *judged,
                           const struct qm_shape *shape, uint32_t tensor, int64_t n,
                           const int64_t *slot_n)
{
    struct qm_recipe r = *judged;
    size_t room = (size_t)n + 1;
    b->n_slots = r.rule->n_slots;
    r.param = (struct qm_param){QM_PARAM_f32, QM_WRITE_near};
    for (int i = 0; i < b->n_slots; i++) {
        QM_TRY(qm_quantizer_parse("f32", &r.slot[i]));
        r.plain[i] = r.slot[i];
        r.min_numel[i] = r.whole_blocks[i] = 0;
        room += (size_t)slot_n[i];
    }
    b->p = malloc(sizeof *b->p * room);
    if (!b->p)
        return qm_fail(QM_NO_MEMORY, "the float32 step of %lld elements", (long long)n);
    float *at = b->p + n;
    for (int i = 0; i < b->n_slots; at += slot_n[i++])
        b->slot[i] = at;
    return qm_backend_cpu.open(&r, shape, tensor, &b->plan);
}

qm_status qm_baseline_step(struct qm_baseline *b, const struct qm_shape *shape, const float *p,
                           float *const *slot, const struct qm_tensor *g, int64_t t, uint64_t seed)
{
    const struct qm_backend *cpu = &qm_backend_cpu;
    struct qm_tensor param = {b->p, QM_DTYPE_f32, *shape};
    memcpy(b->p, p, sizeof *p * (size_t)qm_shape_numel(shape));
    for (int i = 0; i < b->n_slots; i++)
        QM_TRY(cpu->load(b->plan, i, NULL, slot[i]));
    QM_TRY(cpu->step(b->plan, &param, g, t, seed));
    for (int i = 0; i < b->n_slots; i++)
        QM_TRY(cpu->decode(b->plan, i, b->slot[i]));
    return QM_OK;
}

void qm_baseline_close(struct qm_baseline *b)
{
    qm_backend_cpu.close(b->plan);
    free(b->p);
    *b = (struct qm_baseline){0};
}
