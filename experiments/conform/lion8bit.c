/* lion8bit.c - Replays the golden vectors of 8-bit Lion (llm-foundry DecoupledLionW_8bit).
 *
 * Layout: class_* the whole class without quantization; q8step_* its unfused quantized step;
 * q8_* the quantizer; ecc_* error correction. */
#include <stdio.h>
#include <string.h>

#include "experiments/conform/param16_run.h"
#include "experiments/conform/run.h"

/* The rule of the unfused step on a CPU under the PyTorch of the recording (torch 2.15 where none
 * is named): torch 1.13 rounds the decay factor to a 16-bit parameter's format, torch 2.15 does
 * not. */
static const char *rule_of(struct qm_conform *c)
{
    char torch[32];
    qm_golden_text(c->file, "", "torch", torch, sizeof torch);
    return strncmp(torch, "1.", 2) == 0 ? "lion8_cpu" : "lion8_unfused";
}

/* What the two kinds of runs share. */
static int run_read(struct qm_conform *c, struct qm_param16_run *run)
{
    static const struct qm_golden_need needs[] = {
        {"steps", QM_NEED_number, 1, 1e6, 0}, {"lr", QM_NEED_number, 0, 1e30, 0},
        {"beta1", QM_NEED_number, 0, 1, 0},   {"beta2", QM_NEED_number, 0, 1, 0},
        {"params0", QM_NEED_data, 0, 0, 0},   {"grads", QM_NEED_data, 0, 0, 0},
        {"params", QM_NEED_data, 0, 0, 0},
    };
    enum qm_param_format format;
    if (!qm_golden_case_needs(c, needs, sizeof needs / sizeof *needs) ||
        !qm_golden_case_one_rate(c) || !qm_golden_case_format(c, "dtype", &format) ||
        !qm_param16_recipe(c, rule_of(c), (struct qm_param){format, QM_WRITE_near}, format,
                           &run->recipe))
        return 0;
    int64_t n = qm_golden_case_numel(c, "params0");
    struct qm_hyper *h = &run->recipe.hyper;
    run->steps = qm_golden_case_whole(c, "steps", 0);
    run->shape = qm_run_shape(c, "shape", n);
    h->lr = qm_golden_case_number(c, "lr", 1e-3);
    h->beta1 = qm_golden_case_number(c, "beta1", 0.9);
    h->beta2 = qm_golden_case_number(c, "beta2", 0.99);
    h->weight_decay = qm_golden_case_number(c, "weight_decay", 0.0);
    h->initial_lr = qm_golden_case_number(c, "initial_lr", 0.0);
    run->p0 = qm_golden_case_stored(c, "params0", n, format);
    run->params = qm_golden_case_stored(c, "params", run->steps * n, format);
    run->grads = qm_golden_case_stored(c, "grads", run->steps * n, format);
    return run->p0 && run->params && run->grads;
}

/* ---- state dictionaries -------------------------------------------------------------------- */

/* A dictionary holds the momentum either plain,
 *     exp_avg               the decoded momentum in bf16, quantized or not: lossy
 * or, with compress_state_dict and a quantized momentum, compressed,
 *     exp_avg::quantized    int8 codes in -127 .. 127, the parameter's shape
 *     exp_avg::scales       float16, one per 32 elements of the flattened tensor.
 * Source: llm-foundry optim/lion8b.py, _MaybeQuantizedTensor.state_dict. */
#define PLAIN  "exp_avg"
#define CODES  "exp_avg::quantized"
#define SCALES "exp_avg::scales"

/* The form of the n keys of one tensor; keys that do not start with exp_avg are ignored.
 * QM_BAD_ARG: the plain key beside others (all are listed), or a compressed one without
 * its pair. */
static qm_status momentum_form(const char *const *key, int n, int *is_compressed)
{
    int plain = 0, codes = 0, scales = 0, all = 0;
    char list[256] = "";
    for (int i = 0; i < n; i++) {
        size_t used = strlen(list);
        if (strncmp(key[i], PLAIN, strlen(PLAIN)) != 0)
            continue;
        snprintf(list + used, sizeof list - used, "%s%s", all++ ? ", " : "", key[i]);
        plain |= strcmp(key[i], PLAIN) == 0;
        codes |= strcmp(key[i], CODES) == 0;
        scales |= strcmp(key[i], SCALES) == 0;
    }
    if (plain && all > 1)
        return qm_fail(QM_BAD_ARG, "a momentum is plain or compressed, not both: %s", list);
    if (!plain && !(codes && scales))
        return qm_fail(QM_BAD_ARG, "a compressed momentum wants the key %s; found: %s",
                       codes ? SCALES : CODES, all ? list : "none");
    *is_compressed = !plain;
    return QM_OK;
}

/* What an uncompressed checkpoint holds after the last step. */
static void judge_plain(struct qm_conform *c, const float *last, int64_t n)
{
    if (!qm_golden_case_has(c, "state_dict_exp_avg_bf16") || !last)
        return;
    const float *want = qm_golden_case_stored(c, "state_dict_exp_avg_bf16", n, QM_PARAM_bf16);
    uint16_t *bits = qm_golden_case_memory(c, n, sizeof *bits);
    float *got = qm_golden_case_memory(c, n, sizeof *got);
    if (!want || !bits || !got)
        return;
    for (int64_t i = 0; i < n; i++)
        bits[i] = qm_float_to_bf16(last[i]);
    for (int64_t i = 0; i < n; i++)
        got[i] = qm_bf16_to_float(bits[i]);
    qm_match_floats(c, "checkpoint", got, want, n);
}

/* The keys that a checkpoint of this case had, "a,b": as this program reads them. */
static void judge_keys(struct qm_conform *c, const char *attribute, int want)
{
    char text[256], *rest = text, *part;
    const char *keys[8];
    int n = 0, got = 0;
    if (!qm_golden_case_text(c, attribute, text, sizeof text))
        return;
    while (n < 8 && (part = strsep(&rest, ",")) != NULL)
        keys[n++] = part;
    if (momentum_form(keys, n, &got) != QM_OK)
        qm_golden_case_differs(c, "%s: %.200s", attribute, qm_message());
    else if (got != want)
        qm_golden_case_differs(c, "%s: read as the %s form", attribute,
                               got ? "compressed" : "plain");
}

/* weight_decay * (lr / initial_lr) of every step, as it was recorded; a recorder may have formed
 * the product first. */
static void judge_decay(struct qm_conform *c, const struct qm_param16_run *run)
{
    const struct qm_hyper *h = &run->recipe.hyper;
    const double *want = qm_golden_case_doubles(c, "decay_factor", run->steps);
    double *got = qm_golden_case_memory(c, run->steps, sizeof *got);
    if (!want || !got || !run->lr)
        return;
    for (int64_t t = 0; t < run->steps; t++) {
        double product_first = h->weight_decay * run->lr[t] / h->initial_lr;
        got[t] = h->weight_decay * (run->lr[t] / h->initial_lr);
        got[t] = want[t] == product_first ? product_first : got[t];
    }
    qm_match_close_double(c, "decay factor", got, want, run->steps, 0.0);
}

static void replay_class(struct qm_conform *c)
{
    static const struct qm_golden_need rate = {"initial_lr", QM_NEED_number, 0, 1e30, 0};
    struct qm_param16_run run = {.steps = 0};
    if (!qm_golden_case_needs(c, &rate, 1) || !run_read(c, &run))
        return;
    int64_t n = qm_shape_numel(&run.shape);
    run.slot[0].values = qm_golden_case_floats(c, "exp_avg", run.steps * n);
    run.slot[0].kept_as = QM_PARAM_f32;
    run.lr = qm_golden_case_doubles(c, "lr", run.steps);
    if (!run.slot[0].values || !run.lr)
        return;
    judge_decay(c, &run);
    judge_keys(c, "state_dict_keys", 0);
    qm_param16_replay(c, &run);
    judge_plain(c, run.slot[0].values + (run.steps - 1) * n, run.steps > 0 ? n : 0);
}

static void replay_step(struct qm_conform *c)
{
    static const struct qm_golden_need decay = {"weight_decay_factor", QM_NEED_number, 0, 1e30, 0};
    struct qm_param16_run run = {.steps = 0};
    struct qm_param16_slot *s = &run.slot[0];
    char text[96];
    if (!qm_golden_case_needs(c, &decay, 1) || !run_read(c, &run))
        return;
    /* the factor itself is recorded */
    run.recipe.hyper.weight_decay = qm_golden_case_number(c, "weight_decay_factor", 0.0);
    run.recipe.hyper.initial_lr = run.recipe.hyper.lr;
    snprintf(text, sizeof text, "lint:8s/block:%lld/arith/near/floor:1e-12/f16",
             (long long)qm_golden_case_whole(c, "group_size", 32));
    if (!qm_run_quantizer(c, &run.recipe, 0, text, 127, 0.0f))
        return;
    int64_t n = qm_shape_numel(&run.shape);
    s->base = -127;
    s->n_scales = qm_golden_case_per(c, "scales_f16", run.steps);
    s->codes = qm_golden_case_ints(c, "codes", run.steps * n);
    s->scales = qm_golden_case_stored(c, "scales_f16", run.steps * s->n_scales, QM_PARAM_f16);
    s->decoded = qm_golden_case_floats(c, "exp_avg_dequant", run.steps * n);
    if (!s->codes || !s->scales || !s->decoded)
        return;
    judge_keys(c, "compressed_keys", 1);
    judge_keys(c, "uncompressed_keys", 0);
    qm_param16_replay(c, &run);
    judge_plain(c, s->decoded + (run.steps - 1) * n, run.steps > 0 ? n : 0);
}

static void replay_group(struct qm_conform *c, const struct qm_golden_place *at)
{
    if (!qm_golden_case_begin(c, at->path, NULL))
        return;
    if (qm_golden_case_has(c, "narrow_bits"))
        qm_conform_ecc(c);
    else if (!qm_golden_case_has(c, "grads"))
        qm_conform_q8(c);
    else if (qm_golden_case_has(c, "codes"))
        replay_step(c);
    else
        replay_class(c);
    qm_golden_case_end(c);
}

void qm_conform_lion8bit(struct qm_conform *c) { qm_golden_each(c, "", replay_group); }
