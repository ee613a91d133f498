/* flashoptim.c - Replays the golden vectors of FlashOptim's fused kernels.
 *
 * Layout: q8_* the quantizers; adamw_*, adam_*, lion_*, sgd*_* steps.  Attributes: algo,
 * param_dtype, grad_dtype, master_bytewidth, quantize, hyper-parameters. */
#include <stdio.h>
#include <string.h>

#include "experiments/conform/param16_run.h"
#include "experiments/conform/run.h"

static const struct {
    const char *algo, *rule;
    int n_slots;
} algos[] = {
    {"adamw", "flash_adamw", 2}, {"adam", "flash_adam", 2}, {"lion", "flash_lion", 1},
    {"sgd", "flash_sgd", 1},     {"sgdw", "flash_sgdw", 1},
};
enum { ALGOS = sizeof algos / sizeof *algos };

static void hyper_read(struct qm_conform *c, struct qm_hyper *h)
{
    h->lr = qm_golden_case_number(c, "lr", 1e-3);
    h->beta1 = qm_golden_case_number(c, "beta1", 0.9);
    h->beta2 = qm_golden_case_number(c, "beta2", 0.999);
    h->eps = qm_golden_case_number(c, "eps", 1e-8);
    h->weight_decay = qm_golden_case_number(c, "weight_decay", 0.0);
    h->momentum = qm_golden_case_number(c, "momentum", 0.0);
    h->dampening = qm_golden_case_number(c, "dampening", 0.0);
    h->nesterov = qm_golden_case_int(c, "nesterov", 0);
    h->initial_lr = 1.0; /* decay is multiplied by lr */
}

/* m: softsign codes; v: codes of its root.  Unquantized states have the parameter's format. */
static int slot_read(struct qm_conform *c, struct qm_param16_run *run, int i,
                     enum qm_param_format format)
{
    static const char *const names[2] = {"m", "v"};
    struct qm_param16_slot *s = &run->slot[i];
    char name[32], text[96];
    int64_t n = qm_shape_numel(&run->shape);
    if (!qm_golden_case_whole(c, "quantize", 1)) {
        s->kept_as = format;
        s->values = qm_golden_case_stored(c, names[i], run->steps * n, format);
        return s->values != NULL;
    }
    s->base = i ? 0 : -127;
    snprintf(text, sizeof text, "lint:8%c/block:%lld/arith/near/%s/floor:1e-12/f16", i ? 'u' : 's',
             (long long)qm_golden_case_whole(c, "group_size", 32), i ? "sqrt" : "softsign");
    if (!qm_run_quantizer(c, &run->recipe, i, text, -s->base, 0.0f))
        return 0;
    s->codes = qm_golden_case_ints(c, names[i], run->steps * n);
    snprintf(name, sizeof name, "%s_scales_f16", names[i]);
    s->n_scales = qm_golden_case_per(c, name, run->steps);
    s->scales = qm_golden_case_stored(c, name, run->steps * s->n_scales, QM_PARAM_f16);
    snprintf(name, sizeof name, "%s_dequant", names[i]);
    if (qm_golden_case_has(c, name))
        s->decoded = qm_golden_case_floats(c, name, run->steps * n);
    return s->codes && s->scales;
}

static void replay_run(struct qm_conform *c)
{
    static const struct qm_golden_need needs[] = {
        {"steps", QM_NEED_number, 1, 1e6, 0}, {"algo", QM_NEED_text, 0, 0, 0},
        {"beta1", QM_NEED_number, 0, 1, 1},   {"beta2", QM_NEED_number, 0, 1, 1},
        {"eps", QM_NEED_number, 0, 1e30, 1},  {"weight_decay", QM_NEED_number, 0, 1e30, 1},
        {"lr", QM_NEED_number, 0, 1e30, 0},   {"grads", QM_NEED_data, 0, 0, 0},
        {"params", QM_NEED_data, 0, 0, 0},
    };
    if (!qm_golden_case_needs(c, needs, sizeof needs / sizeof *needs))
        return;
    struct qm_param16_run run = {.steps = qm_golden_case_whole(c, "steps", 0)};
    char algo[24];
    int k = 0, width = qm_golden_case_int(c, "master_bytewidth", 0);
    struct qm_param param = {QM_PARAM_f32, QM_WRITE_near};
    enum qm_param_format grad;
    qm_golden_case_text(c, "algo", algo, sizeof algo);
    while (k < ALGOS && strcmp(algos[k].algo, algo) != 0)
        k++;
    if (k == ALGOS || (width != 0 && width != 3 && width != 4)) {
        qm_golden_case_skip(c, "algo '%s' with master_bytewidth %d does not exist", algo, width);
        return;
    }
    if (!qm_golden_case_format(c, "param_dtype", &param.format) ||
        !qm_golden_case_format(c, "grad_dtype", &grad))
        return;
    if (param.format != QM_PARAM_f32 && width > 0)
        param.write = width == 3 ? QM_WRITE_ecc8 : QM_WRITE_ecc16;
    if (!qm_param16_recipe(c, algos[k].rule, param, grad, &run.recipe))
        return;
    hyper_read(c, &run.recipe.hyper);
    run.lr = qm_golden_case_rates(c, run.steps);
    int64_t n = qm_golden_case_numel(c, "params0");
    run.shape = qm_run_shape(c, "shape", n);
    for (int i = 0; i < algos[k].n_slots; i++)
        if (!slot_read(c, &run, i, param.format))
            return;
    run.p0 = qm_golden_case_stored(c, "params0", n, param.format);
    run.params = qm_golden_case_stored(c, "params", run.steps * n, param.format);
    run.grads = qm_golden_case_stored(c, "grads", run.steps * n, grad);
    if (param.write != QM_WRITE_near &&
        !(run.residual = qm_golden_case_ints(c, "ecc", run.steps * n)))
        return;
    qm_param16_replay(c, &run);
}

static void replay_group(struct qm_conform *c, const struct qm_golden_place *at)
{
    if (!qm_golden_case_begin(c, at->path, NULL))
        return;
    if (qm_golden_case_has(c, "grads"))
        replay_run(c);
    else if (qm_golden_case_has(c, "narrow_bits"))
        qm_conform_ecc(c);
    else
        qm_conform_q8(c);
    qm_golden_case_end(c);
}

void qm_conform_flashoptim(struct qm_conform *c) { qm_golden_each(c, "", replay_group); }
