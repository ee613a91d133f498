/* run_read.c - Reads what recorded runs of all systems share: recipe, shape, betas, kept steps. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "experiments/conform/run.h"

int qm_run_recipe(struct qm_conform *c, const char *rule, struct qm_recipe *out)
{
    *out = (struct qm_recipe){.base = qm_variant_at(0),
                              .rule = qm_rule_find(rule),
                              .grad = QM_DTYPE_f32,
                              .hyper = qm_hyper_default()};
    snprintf(c->now.how, sizeof c->now.how, "%s", rule);
    if (!out->rule) {
        qm_golden_case_skip(c, "rule %s: not built yet", rule);
        return 0;
    }
    for (int i = 0; i < out->rule->n_slots; i++)
        if (!qm_run_quantizer(c, out, i, "f32", 0, 0.0f))
            return 0;
    return 1;
}

int qm_run_quantizer(struct qm_conform *c, struct qm_recipe *r, int i, const char *quantizer,
                     int init_code, float init_scale)
{
    if (qm_recipe_set(r, r->rule->slot[i], quantizer) != QM_OK) {
        qm_golden_case_skip(c, "%.100s %.100s: %.100s", r->rule->name, quantizer, qm_message());
        return 0;
    }
    r->min_numel[i] = 0;
    r->whole_blocks[i] = 0;
    r->init_code[i] = init_code;
    r->init_scale[i] = init_scale;
    if (strcmp(quantizer, "f32") != 0) {
        size_t used = strlen(c->now.how);
        snprintf(c->now.how + used, sizeof c->now.how - used, " %s", quantizer);
    }
    return 1;
}

struct qm_shape qm_run_shape(struct qm_conform *c, const char *attribute, int64_t numel)
{
    double dims[QM_MAX_RANK];
    int rank = qm_golden_numbers(c->file, c->group, attribute, dims, QM_MAX_RANK);
    struct qm_shape s = {.rank = rank};
    double product = 1.0; /* of at most eight numbers below 2^53 */
    for (int i = 0; i < rank && rank <= QM_MAX_RANK; i++) {
        s.dim[i] = dims[i] >= 0.0 && dims[i] < 0x1p53 ? (int64_t)dims[i] : -1;
        product *= (double)s.dim[i] == dims[i] ? dims[i] : (double)NAN;
    }
    if (rank > 0 && rank <= QM_MAX_RANK && product == (double)numel)
        return s;
    int is_scalar = rank == 1 && dims[0] == 0.0 && numel == 1;
    if (rank > 0 && !is_scalar)
        qm_golden_case_unreadable(c,
                                  "attribute %s of %.100s is no shape of the %lld elements there",
                                  attribute, c->group, (long long)numel);
    return qm_shape_flat(numel);
}

int qm_run_betas(struct qm_conform *c, double betas[2])
{
    if (qm_golden_case_numbers(c, "betas", 2, betas) && betas[0] >= 0.0 && betas[0] <= 1.0 &&
        betas[1] >= 0.0 && betas[1] <= 1.0)
        return 1;
    (void)qm_fail(QM_BAD_FILE, "attribute betas of %s is missing, or not two numbers from 0 to 1",
                  c->group);
    qm_golden_case_failed(c);
    return 0;
}

int qm_run_betas_or(struct qm_conform *c, double betas[2])
{
    int64_t count;
    return qm_golden_attribute(c->file, c->group, "betas", &count) == QM_GOLDEN_ABSENT ||
           qm_run_betas(c, betas);
}

int64_t *qm_run_all_steps(struct qm_conform *c, int64_t steps)
{
    int64_t *out = qm_golden_case_memory(c, steps, sizeof *out);
    for (int64_t t = 0; out && t < steps; t++)
        out[t] = t + 1;
    return out;
}

void *qm_run_rows_part(struct qm_conform *c, const void *all, size_t size, int64_t rows, int64_t n,
                       int part, int parts)
{
    int64_t each = n / parts;
    char *out = qm_golden_case_memory(c, rows * each, size);
    if (!all || !out)
        return NULL;
    for (int64_t t = 0; t < rows; t++)
        memcpy(out + (size_t)(t * each) * size,
               (const char *)all + (size_t)(t * n + part * each) * size, (size_t)each * size);
    return out;
}

int qm_run_param_shape(struct qm_conform *c, int is_matrix, struct qm_shape *out)
{
    if (!qm_golden_case_shape(c, "p0", out))
        return 0;
    if (out->rank == 1)
        *out = qm_run_shape(c, "shape", qm_shape_numel(out));
    if (is_matrix && out->rank < 2)
        qm_golden_case_unreadable(c,
                                  "%.100s/p0 has %d dimensions, and attribute shape names no more; "
                                  "expected a matrix",
                                  c->group, out->rank);
    return qm_golden_case_open(c);
}
