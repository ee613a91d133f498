/* adafactor8bit_steps.c - Replays steps of adafactor8bit, each from the recorded state before. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/quant/adaptive_log.h"
#include "core/rule/adafactor8.h"
#include "core/rule/param.h"
#include "experiments/conform/adafactor8bit_edges.h"
#include "experiments/conform/adafactor8bit_steps.h"
#include "experiments/conform/adafactor8bit_tolerance.h"

/* ---- one run -------------------------------------------------------------------------------- */

static qm_status load(const struct qm_adafactor8_replay *r, void *plan, int64_t t, uint8_t *codes)
{
    for (int i = 0; i < QM_ADAFACTOR8_SLOTS && t > 0; i++) {
        const struct qm_adafactor8_recorded *s = &r->slot[i];
        if (s->codes && !s->is_wide) {
            for (int64_t k = 0; k < s->n; k++)
                codes[k] = (uint8_t)s->codes[(t - 1) * s->n + k];
            QM_TRY(qm_backend_cpu.load(plan, i, codes, s->scales + (t - 1) * s->n_scales));
        } else if (s->values && qm_adafactor8_row_of(s, t) >= 0) {
            QM_TRY(
                qm_backend_cpu.load(plan, i, NULL, s->values + qm_adafactor8_row_of(s, t) * s->n));
        }
    }
    if (r->proj && r->proj_index) {
        int64_t n = qm_adafactor8_slot_numel(r, QM_ADAFACTOR8_PROJ);
        QM_TRY(qm_backend_cpu.load(plan, QM_ADAFACTOR8_PROJ, NULL, r->proj + r->proj_index[t] * n));
    }
    return QM_OK;
}

/* Room for one step: parameter, gradient, codes, and numbers of a slot; momentum, squares: before
 * the step, moment: after it, before it is coded, where it has no codes;
 * bare: the parameter after a step without decay. */
struct room {
    float *p, *g, *values, *bare, *numbers, *momentum, *moment, *squares, *row, *col;
    float *step;                           /* of APOLLO: what is taken off the parameter */
    struct qm_adafactor8_channel *channel; /* of the rows or columns that are channels */
    double *allowed, *near;                /* of each element; near: of its step alone */
    uint8_t *codes;
    uint32_t *wide;                /* codes of 8 or 16 bits */
    float *x[QM_ADAFACTOR8_SLOTS]; /* the numbers of each coded slot before they are coded */
};

/* Takes NaN and the infinities for each other: which of them an operation gives depends on the
 * order of products and sums. The case is near where it takes one. */
static void take_specials(struct qm_conform *c, const char *what, float *got, const float *want,
                          int64_t n)
{
    for (int64_t i = 0; i < n && qm_golden_case_open(c); i++) {
        if (isfinite(got[i]) || isfinite(want[i]) || qm_bits(got[i]) == qm_bits(want[i]) ||
            (isnan(got[i]) && isnan(want[i])))
            continue;
        if (c->now.outcome != QM_CONFORM_near)
            snprintf(c->now.text, sizeof c->now.text, "%s[%lld]: got %g, want %g", what,
                     (long long)i, (double)got[i], (double)want[i]);
        c->now.outcome = QM_CONFORM_near;
        got[i] = want[i];
    }
}

/* Log2 of what a code stands for. */
static double log_of(const float *numbers, uint32_t code, int levels)
{
    return ((double)code - 1.0) * (double)numbers[0] / (double)(levels - 2) + (double)numbers[1];
}

/* One block of both sides: its numbers and its n codes. */
struct block {
    const float *got, *want;
    const uint32_t *code;
    const int64_t *wanted;
    int64_t n;
    int levels;
};

/* The upper end of a flat block is that of both sides, and its span is within the errors, or the 1
 * that stands for none. */
static void judge_flat_ends(struct qm_conform *c, const char *what, const struct block *b,
                            double within)
{
    double top = (double)b->got[0] + (double)b->got[1],
           want = (double)b->want[0] + (double)b->want[1], span = (double)b->want[0];
    int is_flat = (span >= 0.0 && span < within) || fabs(span - 1.0) <= QM_STEP_SPAN_ABSOLUTE;
    c->now.compared += 2;
    if (qm_golden_case_open(c) && !(is_flat && fabs(top - want) <= within))
        qm_golden_case_differs(c,
                               "%s: a flat block ends at %.9g and spans %.9g, want %.9g, %.9g in "
                               "log2; allowed %g",
                               what, top, (double)b->got[0], want, span, within);
}

/* A block whose numbers are equal, or differ by less than the errors of both sides: which of them
 * is the least, and so what a code means, is not determined; compared are its upper end and what
 * the codes stand for, in log2. */
static void judge_flat(struct qm_conform *c, const char *what, const struct block *b, double within)
{
    double most = 0.0;
    judge_flat_ends(c, what, b, within);
    for (int64_t k = 0; k < b->n && qm_golden_case_open(c); k++) {
        double off = log_of(b->got, b->code[k], b->levels) -
                     log_of(b->want, (uint32_t)b->wanted[k], b->levels);
        if ((b->code[k] == 0) != (b->wanted[k] == 0) || (b->code[k] && !(fabs(off) <= within)))
            qm_golden_case_differs(c,
                                   "%s: element %lld of a flat block is %g in log2 off, allowed %g",
                                   what, (long long)k, off, within);
        most = b->code[k] ? fmax(most, fabs(off)) : most;
    }
    int is_same = b->got[0] == b->want[0] && b->got[1] == b->want[1];
    if (!qm_golden_case_open(c) || (most == 0.0 && is_same))
        return;
    c->now.outcome = QM_CONFORM_near;
    snprintf(c->now.text, sizeof c->now.text, "%s: a block of equal numbers, %g in log2 off", what,
             most);
}

/* Numbers and codes of a slot of adaptive log codes. */
static void judge_adaptive(struct qm_conform *c, const struct qm_adafactor8_replay *r, int i,
                           int64_t t, const char *what, float *numbers, const uint32_t *code,
                           const float *x)
{
    const struct qm_adafactor8_recorded *s = &r->slot[i];
    struct qm_quantizer q = qm_recipe_slot(&r->recipe, i, &r->shape);
    int levels = s->is_wide ? QM_ADAFACTOR8_WIDE_LEVELS : 256;
    int64_t block = s->is_wide ? s->block : q.block, off = 0;
    take_specials(c, what, numbers, s->scales + (t - 1) * s->n_scales, s->n_scales);
    for (int64_t from = 0, b = 0; from < s->n && qm_golden_case_open(c); from += block, b += 2) {
        const float *want = s->scales + (t - 1) * s->n_scales + b, *got = numbers + b;
        const int64_t *wanted = s->codes + (t - 1) * s->n + from;
        int64_t n = s->n - from < block ? s->n - from : block;
        double ends = qm_adafactor8_end_error(r, i, x, from, n, 1) + /* a span has both */
                      (i == QM_ADAFACTOR8_V ? qm_adafactor8_end_error(r, i, x, from, n, 0) : 0.0),
               end = QM_STEP_SPAN_ABSOLUTE + ends, flat = 2.0 * end + 4.0 * QM_STEP_CONF_LARGEST;
        double error = qm_adafactor8_code_error(want, ends, levels);
        if ((double)want[0] < flat || (double)got[0] < flat) {
            judge_flat(c, what, &(struct block){got, want, code + from, wanted, n, levels}, flat);
            continue;
        }
        qm_match_close(c, what, got, want, 2, QM_STEP_SCALE_RELATIVE, end);
        for (int64_t k = 0; k < n && qm_golden_case_open(c); k++) {
            int64_t d = (int64_t)code[from + k] - wanted[k];
            off += d != 0;
            if (fabs((double)d) > 1.0 + error &&
                !(qm_adafactor8_projected_off(r, i, from + k) > 0.0)) /* its own may be larger */
                qm_golden_case_differs(c, "%s: code %lld is %lld apart", what,
                                       (long long)(from + k), (long long)d);
            if (d != 0)
                qm_adafactor8_judge_explained(c, what,
                                              qm_adafactor8_adaptive_explains(r, i, from + k,
                                                                              x[from + k], want,
                                                                              levels, wanted[k]),
                                              from + k, code[from + k], wanted[k]);
        }
    }
    qm_match_count(c, what, off, s->n);
}

void qm_adafactor8_wide_numbers(const float *x, int64_t n, float floor, float *span, float *low)
{
    float stat[2] = {0.0f, 0.0f};
    for (int64_t i = 0; i < n; i++) {
        float u = qm_float(qm_adaptive_log_complement(x[i]));
        stat[0] = x[i] > stat[0] || isnan(x[i]) ? x[i] : stat[0];
        stat[1] = u > stat[1] ? u : stat[1];
    }
    qm_adaptive_log_numbers(stat, floor, span, low);
}

/* The numbers and the codes of 16 bits that the float32 state x would get. */
static void encode_wide(const struct qm_adafactor8_recorded *s, int64_t t, const float *x,
                        float *numbers, uint32_t *code)
{
    for (int64_t from = 0, b = 0; from < s->n; from += s->block, b += 2) {
        int64_t end = from + s->block < s->n ? from + s->block : s->n;
        qm_adafactor8_wide_numbers(x + from, end - from, t > 1 ? s->floor : 0.0f, &numbers[b],
                                   &numbers[b + 1]);
        for (int64_t i = from; i < end; i++)
            code[i] =
                qm_adaptive_log_code(x[i], numbers[b], numbers[b + 1], QM_ADAFACTOR8_WIDE_LEVELS);
    }
}

/* What counts of 2^-149 make of the scale of block k of slot i. */
static double block_counts(const struct qm_adafactor8_replay *r, int i, int64_t k, int64_t block)
{
    int64_t from = k * block, n = r->slot[i].n - from < block ? r->slot[i].n - from : block;
    int is_conf = i == QM_ADAFACTOR8_CONF_ROW || i == QM_ADAFACTOR8_CONF_COL;
    return is_conf ? qm_adafactor8_counts_log(r, i, from, n) : 0.0;
}

/* Scales and codes of a slot that has one scale per block. */
static void judge_coded(struct qm_conform *c, const struct qm_adafactor8_replay *r, int i,
                        int64_t t, const char *name, const struct room *w)
{
    const struct qm_adafactor8_recorded *s = &r->slot[i];
    struct qm_quantizer q = qm_recipe_slot(&r->recipe, i, &r->shape);
    struct qm_codec codec;
    float *got = w->values;
    uint8_t *codes = w->codes;
    const float *want = s->scales + (t - 1) * s->n_scales;
    const int64_t *wanted = s->codes + (t - 1) * s->n;
    int64_t off = 0;
    double relative = i != QM_ADAFACTOR8_M ? QM_STEP_SCALE_RELATIVE
                      : r->is_exp2         ? QM_STEP_EXP2_RELATIVE
                      : r->is_update       ? qm_adafactor8_share_of(r)
                                           : QM_STEP_SCALE_RELATIVE;
    char what[96];
    snprintf(what, sizeof what, "step %lld %s scale", (long long)t, name);
    take_specials(c, what, got, want, s->n_scales);
    for (int64_t k = 0; k < s->n_scales; k++) {
        int64_t from = k * q.block, n = s->n - from < q.block ? s->n - from : q.block;
        double more = i == QM_ADAFACTOR8_M /* else the scale is a logarithm, of which two are 2 ulp
                                            * apart, + 126 */
                          ? qm_adafactor8_moments_end_off(r, w->x[i], from, n) + r->update_counts
                          : qm_adafactor8_end_error(r, i, w->x[i], from, n, 0) +
                                block_counts(r, i, k, q.block) +
                                4.0 * QM_STEP_U * fabs((double)want[k] - 126.0);
        qm_match_close(c, what, got + k, want + k, 1, relative, more);
    }
    snprintf(what, sizeof what, "step %lld %s code", (long long)t, name);
    if (qm_codec_init(&codec, &q) != QM_OK)
        qm_golden_case_failed(c);
    for (int64_t k = 0; k < s->n && qm_golden_case_open(c); k++) {
        int64_t block = k / q.block, pair[2] = {codes[k], wanted[k]};
        if (codes[k] == wanted[k] || (i == QM_ADAFACTOR8_M && !r->is_update))
            continue;
        off++;
        if (fabs((double)(pair[0] - pair[1])) >
            qm_adafactor8_most_apart(r, &codec, i, want[block], k, pair))
            qm_golden_case_differs(c, "%s[%lld]: got 0x%02x, want 0x%02llx, more than one apart",
                                   what, (long long)k, codes[k], (unsigned long long)wanted[k]);
        qm_adafactor8_judge_explained(
            c, what,
            i == QM_ADAFACTOR8_M
                ? qm_adafactor8_moment_explains(r, &codec, t, k, w->x[i][k], w->momentum[k], block,
                                                wanted[k])
                : qm_adafactor8_log_explains(r, i, k, w->x[i][k], want[block], wanted[k]),
            k, codes[k], wanted[k]);
    }
    if (i == QM_ADAFACTOR8_M && !r->is_update)
        qm_match_codes(c, what, codes, wanted, s->n);
    else
        qm_match_count(c, what, off, s->n);
}

/* A slot of float32 numbers. */
static void judge_values(struct qm_conform *c, const struct qm_adafactor8_replay *r, int i,
                         int64_t t, const char *what, const struct room *w)
{
    const struct qm_adafactor8_recorded *s = &r->slot[i];
    const float *want = s->values + qm_adafactor8_row_of(s, t) * s->n;
    float *got = w->values;
    take_specials(c, what, got, want, s->n);
    qm_adafactor8_values_allowed(r, i, t, got, w->allowed);
    for (int64_t k = 0; i == QM_ADAFACTOR8_M && k < s->n; k++)
        if (got[k] == 0.0f && qm_adafactor8_moment_is_zero(r, t, k, w->momentum[k]))
            w->allowed[k] = 0.0;
    qm_match_close_each(c, what, got, want, w->allowed, s->n);
}

static qm_status judge(struct qm_conform *c, const struct qm_adafactor8_replay *r, void *plan,
                       int64_t t, const struct room *w)
{
    char what[96];
    for (int i = 0; i < QM_ADAFACTOR8_SLOTS && qm_golden_case_open(c); i++) {
        const struct qm_adafactor8_recorded *s = &r->slot[i];
        const char *name = r->recipe.rule->slot[i];
        if (!s->codes && !(s->values && qm_adafactor8_row_of(s, t) >= 0))
            continue;
        snprintf(what, sizeof what, "step %lld %s", (long long)t, name);
        QM_TRY(qm_backend_cpu.save(plan, i, s->is_wide || !s->codes ? NULL : w->codes, w->values));
        if (s->is_wide)
            encode_wide(s, t, w->values, w->numbers, w->wide);
        for (int64_t k = 0; k < s->n && s->is_two && !s->is_wide; k++)
            w->wide[k] = w->codes[k];
        if (s->is_two)
            judge_adaptive(c, r, i, t, what, s->is_wide ? w->numbers : w->values, w->wide,
                           s->is_wide ? w->values : w->x[i]);
        else if (s->codes)
            judge_coded(c, r, i, t, name, w);
        else
            judge_values(c, r, i, t, what, w);
    }
    return QM_OK;
}

/* x in bfloat16: to nearest, or upward if the draw is below the share of the cell that x lies
 * above its lower end. */
static float rounded(double x, const float *draw)
{
    if (!draw)
        return qm_bf16_to_float(qm_float_to_bf16((float)x));
    uint32_t bits = (uint32_t)(*draw * 65536.0f);
    return qm_param_widen(QM_PARAM_bf16, qm_param_stochastic(QM_PARAM_bf16, (float)x, bits << 16));
}

/* Rounds p to bfloat16, by *draw if that is not NULL: to the wanted number if a number within the
 * tolerance is rounded to it. */
static float round_near(double p, float want, double within, const float *draw)
{
    float least = rounded(p - within, draw), most = rounded(p + within, draw);
    return least <= want && want <= most ? want : rounded(p, draw);
}

/* What the confidence makes the step of element k from before to p be off by: anything where
 * nothing of its row's or its column's number is certain. */
static double conf_off(const struct qm_adafactor8_replay *r, int64_t k, float p, float before)
{
    double off = qm_adafactor8_element_off(r, k), step = fabs((double)p - (double)before);
    return off == HUGE_VAL ? off : isfinite(step) ? fmin(off, 2.0) * step : 0.0;
}

/* Rounds the parameters after step t to bfloat16 as the package does: after their decay, of which
 * the step without decay tells how much of the change it is, and after the step.  share: the
 * relative error of step and decay; w->near: what steps may be off by. */
static void round_all(struct qm_conform *c, const struct qm_adafactor8_replay *r,
                      const struct room *w, int has_bare, const float *before, int64_t t,
                      double share)
{
    char what[64];
    const float *want = r->params + (t - 1) * r->n, *draws = r->draws;
    struct qm_match_seen seen = {0, 0, 0};
    snprintf(what, sizeof what, "step %lld parameter", (long long)t);
    for (int64_t i = 0; i < r->n; i++) {
        double step = has_bare ? (double)before[i] - (double)w->bare[i] : 0.0;
        double kept = (double)w->p[i] + step, decay = fabs((double)before[i] - kept),
               off = 2.0 * QM_STEP_PARAM_RELATIVE * fabs((double)before[i]) +
                     (isfinite(decay) ? share * decay : 0.0);
        const float *draw = draws ? draws + (t - 1) * r->n + i : NULL;
        double near = w->near[i] + conf_off(r, i, w->p[i], before[i]);
        double decayed = has_bare ? (double)rounded(kept, NULL) - step : (double)w->p[i];
        double own = (double)rounded(decayed, draw);
        qm_match_add_step(&seen, own, (double)want[i], (double)before[i],
                          near + (has_bare ? off : 0.0));
        if (!has_bare) {
            w->p[i] = round_near((double)w->p[i], want[i], near, draw);
        } else {
            double low = (double)rounded(kept - off, NULL),
                   high = (double)rounded(kept + off, NULL);
            float first = round_near(low - step, want[i], near + off, NULL);
            w->p[i] = first == want[i] ? first : round_near(high - step, want[i], near + off, NULL);
        }
        if (w->p[i] == want[i])
            (void)qm_match_take(c, what, i, own, (double)want[i]);
    }
    qm_match_note_step(c, t, &seen);
}

/* What parameters may be off by: relative to what it was and what decayed, for both may cancel, and
 * relative to each, what its step may be off by, and the errors of the confidence. */
static void judge_param(struct qm_conform *c, const struct qm_adafactor8_replay *r,
                        const char *what, const float *before, const float *want,
                        const struct room *w)
{
    double decay = 1.0 + qm_adafactor8_decay_of(r, before);
    for (int64_t k = 0; k < r->n; k++) {
        double off = conf_off(r, k, w->p[k], before[k]), old = fabs((double)before[k]);
        double most = fmax(fabs((double)w->p[k]), isfinite(old) ? old * decay : 0.0);
        w->allowed[k] = r->is_bf16 ? 0.0 : QM_STEP_PARAM_RELATIVE * most + w->near[k] + off;
    }
    qm_match_close_each(c, what, w->p, want, w->allowed, r->n);
    if (!r->is_bf16)
        qm_match_steps(c, (want - r->params) / r->n + 1, w->p, want, before, w->allowed, r->n);
}

/* What the codes of the second moment make of the channels of a step that reads them back. */
static qm_status channels_off(struct qm_conform *c, struct qm_adafactor8_replay *r, void *plan,
                              int64_t t, const struct room *w)
{
    r->channel_off = NULL;
    if (!qm_adafactor8_reads_back(r, t))
        return QM_OK;
    QM_TRY(qm_backend_cpu.save(plan, QM_ADAFACTOR8_V, w->codes, w->values));
    qm_adafactor8_channels_off(c, r, w->codes, t);
    return QM_OK;
}

/* Slot i after the step, before it was coded, into *now; NULL: there is none.  room: of one without
 * codes. */
static qm_status slot_now(const struct qm_adafactor8_replay *r, void *plan, int i,
                          const struct room *w, float *room, const float **now)
{
    const struct qm_adafactor8_recorded *s = &r->slot[i];
    *now = s->n == 0 ? NULL : s->codes ? w->x[i] : room;
    return *now == room && room ? qm_backend_cpu.decode(plan, i, room) : QM_OK;
}

/* Skips a case where nothing of a step's confidence or of its factors is known. */
static void skip_unknown(struct qm_conform *c, const struct qm_adafactor8_replay *r, int64_t t)
{
    if (r->is_lost || !(r->mean_counts < 0.5))
        qm_golden_case_skip(c,
                            "step %lld: squares are so few counts of 2^-149 that the package's "
                            "rounding of a factor is half of it and more",
                            (long long)t);
    else if (r->slot[QM_ADAFACTOR8_CONF_ROW].n > 0 && !(qm_adafactor8_conf_error(r) < 0.5))
        qm_golden_case_skip(c,
                            "step %lld: the terms of the confidence are %.2g times what they "
                            "add up to, so the package's result is the order of its sums",
                            (long long)t, r->cancels);
}

/* Steps from .. to. */
static qm_status run_steps(struct qm_conform *c, const struct qm_adafactor8_replay *whole,
                           void *const *plan, int64_t from, int64_t to, const struct room *w)
{
    struct qm_adafactor8_replay step = *whole, *r = &step;
    float *p = w->p, *g = w->g;
    size_t bytes = sizeof *p * (size_t)r->n;
    for (int64_t t = from; t <= to && qm_golden_case_open(c); t++) {
        const float *before = t > 1 ? r->params + (t - 2) * r->n : r->p0;
        const float *want = r->params + (t - 1) * r->n, *now, *second;
        char what[64];
        QM_TRY(load(r, plan[0], t - 1, w->codes));
        if (r->slot[QM_ADAFACTOR8_M].n > 0)
            QM_TRY(qm_backend_cpu.decode(plan[0], QM_ADAFACTOR8_M, w->momentum));
        if (r->terms > 0 && r->slot[QM_ADAFACTOR8_V].n > 0)
            QM_TRY(qm_backend_cpu.decode(plan[0], QM_ADAFACTOR8_V, w->squares));
        memcpy(p, before, bytes);
        memcpy(g, r->grads + (t - 1) * r->n, bytes);
        struct qm_tensor pt = {p, QM_DTYPE_f32, r->shape}, gt = {g, QM_DTYPE_f32, r->shape};
        QM_TRY(qm_backend_cpu.step(plan[0], &pt, &gt, t, 0));
        if (plan[1]) {
            struct qm_tensor bare = {w->bare, QM_DTYPE_f32, r->shape};
            memcpy(w->bare, before, bytes);
            QM_TRY(load(r, plan[1], t - 1, w->codes));
            QM_TRY(qm_backend_cpu.step(plan[1], &bare, &gt, t, 0));
        }
        QM_TRY(slot_now(r, plan[0], QM_ADAFACTOR8_M, w, w->moment, &now));
        QM_TRY(slot_now(r, plan[0], QM_ADAFACTOR8_V, w, w->values, &second));
        qm_adafactor8_find_small(r, t, w->momentum, now);
        r->cancels = qm_adafactor8_cancels(c, r, plan[0], w->momentum, w->x, t);
        struct qm_adafactor8_moments moments = {w->momentum, w->squares, now, second, NULL, NULL};
        QM_TRY(slot_now(r, plan[0], QM_ADAFACTOR8_ROW, w, w->row, &moments.row));
        QM_TRY(slot_now(r, plan[0], QM_ADAFACTOR8_COL, w, w->col, &moments.col));
        QM_TRY(qm_adafactor8_channels_of(r, t, before, w->step, &moments, w->channel));
        QM_TRY(channels_off(c, r, plan[0], t, w));
        qm_adafactor8_norm_off(r, p, want, before, t);
        skip_unknown(c, r, t);
        QM_TRY(judge(c, r, plan[0], t, w));
        snprintf(what, sizeof what, "step %lld parameter", (long long)t);
        double share = qm_adafactor8_share_of(r) + qm_adafactor8_average_off(r, t);
        qm_adafactor8_steps_allowed(r, t, p, before, w->momentum,
                                    r->slot[QM_ADAFACTOR8_M].n == r->n ? now : NULL, w->near);
        if (r->is_bf16)
            round_all(c, r, w, plan[1] != NULL, before, t, share);
        take_specials(c, what, p, want, r->n);
        judge_param(c, r, what, before, want, w);
    }
    return QM_OK;
}

/* Whether the recorded scales are as many as the blocks of the recipe. */
static int scales_fit(struct qm_conform *c, const struct qm_adafactor8_replay *r)
{
    for (int i = 0; i < QM_ADAFACTOR8_SLOTS; i++) {
        const struct qm_adafactor8_recorded *s = &r->slot[i];
        struct qm_quantizer q = qm_recipe_slot(&r->recipe, i, &r->shape);
        int64_t scales = !s->codes || s->is_wide
                             ? s->n_scales
                             : (s->n + q.block - 1) / q.block * (s->is_two ? 2 : 1);
        if (s->n_scales != scales)
            qm_golden_case_unreadable(
                c, "%s: %lld scales recorded for %lld elements in blocks of %lld",
                r->recipe.rule->slot[i], (long long)s->n_scales, (long long)s->n,
                (long long)q.block);
    }
    return qm_golden_case_open(c);
}

static void run_with(struct qm_conform *c, const struct qm_adafactor8_replay *r,
                     const struct qm_recipe *recipe, int64_t from, int64_t to, const struct room *w)
{
    void *plan[2] = {NULL, NULL};
    struct qm_recipe bare = *recipe, seen = *recipe;
    struct qm_rule rule;
    struct qm_tensor_ops ops;
    bare.hyper.weight_decay = 0.0;
    qm_adafactor8_see(recipe->rule, w->x, r->terms > 0 ? w->step : NULL, &rule, &ops);
    seen.rule = &rule;
    if (qm_recipe_applicable(recipe) != QM_OK ||
        qm_backend_cpu.open(&seen, &r->shape, 0, &plan[0]) != QM_OK) {
        qm_golden_case_skip(c, "%s", qm_message());
        return;
    }
    if (r->is_bf16 && !r->draws && recipe->hyper.weight_decay != 0.0 &&
        qm_backend_cpu.open(&bare, &r->shape, 0, &plan[1]) != QM_OK)
        qm_golden_case_skip(c, "%s", qm_message());
    if (qm_golden_case_open(c))
        qm_golden_case_stopped(c, run_steps(c, r, plan, from, to, w));
    for (int k = 0; k < 2 && plan[k]; k++)
        qm_backend_cpu.close(plan[k]);
}

void qm_adafactor8_run_replay(struct qm_conform *c, const struct qm_adafactor8_replay *r)
{
    int64_t most = r->n;
    for (int i = 0; i < QM_ADAFACTOR8_SLOTS; i++)
        most =
            r->slot[i].n + r->slot[i].n_scales > most ? r->slot[i].n + r->slot[i].n_scales : most;
    struct room w = {.p = qm_golden_case_memory(c, r->n, sizeof *w.p),
                     .g = qm_golden_case_memory(c, r->n, sizeof *w.g),
                     .bare = qm_golden_case_memory(c, r->n, sizeof *w.bare),
                     .allowed = qm_golden_case_memory(c, most, sizeof *w.allowed),
                     .step = qm_golden_case_memory(c, r->n, sizeof *w.step),
                     .channel = qm_golden_case_memory(c, r->n, sizeof *w.channel),
                     .near = qm_golden_case_memory(c, r->n, sizeof *w.near),
                     .momentum = qm_golden_case_memory(c, most, sizeof *w.momentum),
                     .squares = qm_golden_case_memory(c, most, sizeof *w.squares),
                     .row = qm_golden_case_memory(c, most, sizeof *w.row),
                     .col = qm_golden_case_memory(c, most, sizeof *w.col),
                     .moment = qm_golden_case_memory(c, most, sizeof *w.moment),
                     .values = qm_golden_case_memory(c, most, sizeof *w.values),
                     .codes = qm_golden_case_memory(c, most, 1),
                     .numbers = qm_golden_case_memory(c, most, sizeof *w.numbers),
                     .wide = qm_golden_case_memory(c, most, sizeof *w.wide)};
    if (!qm_golden_case_open(c) || !r->p0 || !r->grads || !r->params || !w.p || !w.g || !w.bare ||
        !w.momentum || !w.squares || !w.row || !w.col || !w.moment || !w.allowed || !w.near ||
        !w.step || !w.channel || !w.values || !w.codes || !scales_fit(c, r))
        return;
    for (int i = 0; i < QM_ADAFACTOR8_SLOTS; i++)
        if (r->slot[i].codes && !(w.x[i] = qm_golden_case_memory(c, r->slot[i].n, sizeof(float))))
            return;
    int64_t begins = r->first.rule ? 1 : 0;
    if (begins)
        run_with(c, r, &r->first, 1, 1, &w);
    if (qm_golden_case_open(c))
        run_with(c, r, &r->recipe, begins + 1, r->steps, &w);
}
