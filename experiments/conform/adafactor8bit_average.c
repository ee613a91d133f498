/* adafactor8bit_average.c - Replays averages of adafactor8bit without an optimizer.
 *
 * A case has T updates of one quantized state, or a second moment that does not decay after the
 * gradient has dropped. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/rule/adafactor8.h"
#include "experiments/conform/adafactor8bit.h"
#include "experiments/conform/adafactor8bit_edges.h"
#include "experiments/conform/code_edges.h"
#include "experiments/conform/numpy_normal.h"

/* The first n of the `from` elements of each row: leaves out the padding of the recorded blocks. */
static int64_t *rows_cut(struct qm_conform *c, const int64_t *x, int64_t steps, int64_t from,
                         int64_t n)
{
    int64_t *out = qm_golden_case_memory(c, steps * n, sizeof *out);
    for (int64_t t = 0; x && out && t < steps; t++)
        memcpy(out + t * n, x + t * from, (size_t)n * sizeof *x);
    return x ? out : NULL;
}

static void run_average(struct qm_conform *c, struct qm_run *run)
{
    int64_t n = qm_shape_numel(&run->shape), *none = qm_golden_case_memory(c, 1, sizeof *none);
    run->grads = qm_golden_case_floats(c, "grads", run->steps * n);
    run->p0 = run->params = qm_golden_case_memory(c, n, sizeof *run->p0);
    run->kept = none;
    run->n_kept = 0;
    if (run->grads && none)
        qm_run_replay(c, run);
}

/* A recipe of the rule for cases that compare one average only. */
static int average_rule(struct qm_conform *c, const char *rule, struct qm_recipe *out)
{
    if (!qm_run_recipe(c, rule, out))
        return 0;
    out->hyper.lr = 0.0;
    out->hyper.weight_decay = 0.0;
    out->hyper.beta1 = -1.0;
    out->hyper.beta2 = 0.5;
    out->hyper.factored = out->hyper.limiter = 0;
    return 1;
}

void qm_adafactor8_replay_moments(struct qm_conform *c, const struct qm_adafactor8_release *release)
{
    struct qm_run run = {.n_kept = 0};
    char text[QM_QUANTIZER_TEXT];
    int64_t block = qm_golden_case_whole(c, "block_size", 0), n = qm_golden_case_whole(c, "n", 0);
    if (block < 1 || n < 1 || n > (1 << 24)) {
        qm_golden_case_skip(c, "block_size or n is missing");
        return;
    }
    run.steps = qm_golden_case_per(c, "grads", n);
    int64_t padded = (n + block - 1) / block * block;
    if (!average_rule(c, release->is_cuda ? "adafactor8_021_cuda" : "adafactor8_021", &run.recipe))
        return;
    run.recipe.hyper.beta1 = qm_golden_case_number(c, "beta1", 0.9);
    qm_adafactor8_moment_text(release, block, text);
    int code = qm_golden_case_int(c, "init_byte", release->init_code * 17) & 15;
    if (!qm_run_quantizer(c, &run.recipe, QM_ADAFACTOR8_M, text, code,
                          (float)qm_golden_case_number(c, "init_scale", 1.0)))
        return;
    struct qm_run_slot *slot = &run.slot[QM_ADAFACTOR8_M];
    run.shape = qm_shape_flat(n);
    slot->n_scales = padded / block;
    slot->scales = qm_golden_case_floats(c, "scale", run.steps * slot->n_scales);
    const int64_t *bytes = qm_golden_case_ints(c, "codes_packed", run.steps * padded / 2);
    slot->codes = rows_cut(c, qm_golden_case_unpacked(c, QM_PACK_hi, 4, bytes, run.steps * padded),
                           run.steps, padded, n);
    if (slot->scales && slot->codes)
        run_average(c, &run);
}

/* Reads the recorded weights of new squares as the rule's schedule: constant, or t^decay. */
static int schedule_read(struct qm_conform *c, int64_t steps, struct qm_hyper *h)
{
    const double *b = qm_golden_case_doubles(c, "beta_val", steps);
    if (!b || steps < 1)
        return 0;
    int decays = steps > 1 && b[0] == 1.0;
    h->beta2 = decays ? -1.0 : 1.0 - b[0];
    h->beta2_decay = decays ? log2(b[1]) : -0.8;
    for (int64_t t = 1; t <= steps; t++) {
        double want = decays ? pow((double)t, h->beta2_decay) : b[0];
        if (!(fabs(b[t - 1] - want) <= 1e-9)) {
            qm_golden_case_skip(c,
                                "beta_val[%lld] = %g is neither constant nor a power of the step",
                                (long long)t - 1, b[t - 1]);
            return 0;
        }
    }
    return 1;
}

void qm_adafactor8_replay_squares(struct qm_conform *c, int is_026, int is_cuda)
{
    /* Old values are decoded by powers 2 ulp off, 8 u, and an average adds 4 u on either side. */
    struct qm_run run = {.within = {.scale_relative = 1e-6,
                                    .range = qm_code_range_log,
                                    .number_relative = 16.0 * 0x1p-24}};
    struct qm_rule rule;
    struct qm_tensor_ops ops;
    float *seen[QM_MAX_SLOTS] = {NULL};
    char text[QM_QUANTIZER_TEXT];
    int64_t block = qm_golden_case_whole(c, "block_size", 0), n = qm_golden_case_whole(c, "n", 0);
    if (block < 1 || n < 1 || n > (1 << 24)) {
        qm_golden_case_skip(c, "block_size or n is missing");
        return;
    }
    run.steps = qm_golden_case_per(c, "grads", n);
    int64_t padded = (n + block - 1) / block * block;
    static const char *const rules[2][2] = {{"adafactor8_021", "adafactor8_021_cuda"},
                                            {"adafactor8", "adafactor8_cuda"}};
    qm_adafactor8_square_text(is_cuda, qm_golden_case_number(c, "cap", 126.0), block, text);
    if (!average_rule(c, rules[is_026][is_cuda], &run.recipe) ||
        !qm_run_quantizer(c, &run.recipe, QM_ADAFACTOR8_V, text, 0, 1.0f) ||
        !schedule_read(c, run.steps, &run.recipe.hyper))
        return;
    run.recipe.hyper.eps1 = qm_golden_case_number(c, "eps1", -1.0);
    struct qm_run_slot *slot = &run.slot[QM_ADAFACTOR8_V];
    run.shape = qm_shape_flat(n);
    slot->n_scales = padded / block;
    slot->scales = qm_golden_case_floats(c, "scale", run.steps * slot->n_scales);
    slot->codes =
        rows_cut(c, qm_golden_case_ints(c, "codes", run.steps * padded), run.steps, padded, n);
    if (!slot->scales || !slot->codes ||
        !(seen[QM_ADAFACTOR8_V] = qm_golden_case_memory(c, n, sizeof **seen)))
        return;
    qm_adafactor8_see(run.recipe.rule, seen, NULL, &rule, &ops);
    run.recipe.rule = &rule;
    run.seen = seen;
    run_average(c, &run);
}

/* ---- kind "stall" --------------------------------------------------------------------------- */

/* How far a decoded value may be from the recorded one after t steps of a free run. All values hang
 * on their block's largest: a code stands for a share of its logarithm s, at least 64 and below
 * 128, which is made anew in each step, from the average old + b (g^2 - old) of what the last s
 * stands for. So an error of s is multiplied by 1 - b, and the step adds what the two libraries
 * round differently: 0.29 ulp each as standard deviation, 0.41 together, of which 2 ulp are five.
 * After t steps these add up, with either sign, to sqrt(1 + (1 - b)^2 + (1 - b)^4 + ...) <=
 * sqrt(min(t, 1 / (2 b))) of one, and the error of a value is ln 2 times that of its logarithm. Of
 * float32 states 8 u take the place of it. */
static double stall_relative(int is_coded, int64_t t, double b)
{
    double one = is_coded ? 0.7 * 2.0 * 0x1p-17 : 8.0 * 0x1p-24;
    return one * sqrt(fmax(1.0, fmin((double)t, 0.5 / b)));
}

static void stall_side(struct qm_conform *c, const struct qm_recipe *r,
                       const struct qm_shape *shape, const char *dataset)
{
    int64_t n = qm_shape_numel(shape), steps = qm_golden_case_whole(c, "steps", 0);
    int64_t every = qm_golden_case_whole(c, "keep_every", 1),
            total = qm_golden_case_numel(c, dataset);
    int slot = shape->rank > 1 ? QM_ADAFACTOR8_ROW : QM_ADAFACTOR8_V;
    int64_t size = slot == QM_ADAFACTOR8_ROW ? n / shape->dim[shape->rank - 1] : n;
    const int64_t *mask = qm_golden_case_ints(c, "mask", n);
    const float *want = qm_golden_case_floats(c, dataset, total);
    float *p = qm_golden_case_memory(c, n, sizeof *p), *g = qm_golden_case_memory(c, n, sizeof *g);
    float *got = qm_golden_case_memory(c, n, sizeof *got);
    struct qm_numpy draws;
    void *plan = NULL;
    qm_numpy_seed(&draws, (uint32_t)qm_golden_case_whole(c, "seed", 0));
    if (!mask || !want || !p || !g || !got)
        return;
    if (every < 1 || size < 1 || total != steps / every * size) {
        qm_golden_case_skip(c, "%s: %lld values for %lld steps kept every %lld", dataset,
                            (long long)total, (long long)steps, (long long)every);
        return;
    }
    if (qm_backend_cpu.open(r, shape, 0, &plan) != QM_OK) {
        qm_golden_case_skip(c, "%s", qm_message());
        return;
    }
    for (int64_t t = 1; t <= steps && qm_golden_case_open(c); t++) {
        for (int64_t i = 0; i < n; i++)
            g[i] = (float)qm_numpy_normal(&draws) * (t > 50 && mask[i] ? 0.01f : 1.0f);
        struct qm_tensor pt = {p, QM_DTYPE_f32, *shape}, gt = {g, QM_DTYPE_f32, *shape};
        qm_status st = qm_backend_cpu.step(plan, &pt, &gt, t, 1);
        qm_golden_case_stopped(c, st == QM_OK ? qm_backend_cpu.decode(plan, slot, got) : st);
        if (t % every != 0)
            continue;
        char what[96];
        snprintf(what, sizeof what, "step %lld %s", (long long)t, dataset);
        qm_match_close(c, what, got, want + (t / every - 1) * size, size,
                       stall_relative(r->slot[slot].bits > 0, t, 1.0 - r->hyper.beta2), 0.0);
    }
    qm_backend_cpu.close(plan);
}

void qm_adafactor8_replay_stall(struct qm_conform *c)
{
    struct qm_recipe r;
    struct qm_shape shape = qm_run_shape(c, "shape", qm_golden_case_numel(c, "mask"));
    char text[QM_QUANTIZER_TEXT];
    if (!average_rule(c, "adafactor8_021", &r))
        return;
    r.hyper.beta2 = qm_golden_case_number(c, "hp_beta2", 0.999);
    r.hyper.factored = 1;
    stall_side(c, &r, &shape, "v_float_state");
    qm_adafactor8_square_text(0, 0.0, 1024, text);
    if (qm_run_quantizer(c, &r, shape.rank > 1 ? QM_ADAFACTOR8_ROW : QM_ADAFACTOR8_V, text, 0,
                         1.0f) &&
        (shape.rank < 2 || qm_run_quantizer(c, &r, QM_ADAFACTOR8_COL, text, 0, 1.0f)))
        stall_side(c, &r, &shape, "v_quantised_state");
}
