/* triples.c - Runs and judges all triples of an element update. */
#include "experiments/prove/triples.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/half.h"
#include "experiments/check/slot_parts.h"
#include "experiments/recipes/oracle_hyper.h"
#include "oracle/bound/bound.h"

enum { GRADIENTS = 65536, PIECE = 4096, SLOTS = 2 };

/* The data that all triples share. */
struct domain {
    const struct qm_recipe *r, *runs; /* the recipe claimed, the recipe run */
    const struct qm_oracle *oracle;
    struct qm_oracle_hyper hyper;
    struct qm_rule_step step;
    struct qm_codec codec[SLOTS];
    struct qm_decider decider[SLOTS];
    float max[SLOTS], stored[SLOTS]; /* of the group, with the curve applied; its scale */
    struct qm_element_scale scale[SLOTS];
    int n_codes[SLOTS];
    int64_t t;
    float p;
};

/* A piece of triples with equal codes; one per thread. */
struct piece {
    float p[PIECE], g[PIECE], slot[SLOTS][PIECE];
    double wide_p[PIECE], wide_g[PIECE], old[SLOTS][PIECE]; /* inputs in double */
    double want_p[PIECE], want[SLOTS][PIECE];               /* the oracle's results */
    double error_p[PIECE], error[SLOTS][PIECE];             /* their bounds */
    uint8_t code[SLOTS][PIECE];
};

/* ---- the domain ------------------------------------------------------------------------------ */

static qm_status check_covered(const struct qm_recipe *r)
{
    const struct qm_rule *rule = r->rule;
    if (!rule->elementwise || rule->slot_shape)
        return qm_fail(QM_SKIPPED, "rule %s works on whole tensors: it has no element to enumerate",
                       rule->name);
    if (rule->n_slots > SLOTS)
        return qm_fail(QM_SKIPPED, "%d slots are too many to enumerate", rule->n_slots);
    if (r->hyper.amsgrad)
        return qm_fail(QM_SKIPPED, "amsgrad keeps a third slot");
    if (r->param.format != QM_PARAM_f32)
        return qm_fail(QM_SKIPPED, "parameters other than float32 are not covered");
    for (int i = 0; i < rule->n_slots; i++) {
        const struct qm_quantizer *q = &r->slot[i];
        if (q->bits == 0)
            return qm_fail(QM_SKIPPED, "slot %s has no codes to enumerate", rule->slot[i]);
        if (qm_slot_has_numbers(q) || q->curve == QM_CURVE_expand || qm_slot_has_two_scales(q) ||
            q->scale.nest || q->scale.keep_sign || qm_round_draws(q->round))
            return qm_fail(QM_SKIPPED,
                           "slot %s: curves with several numbers per block, nested scales and two "
                           "scales in turn, keepsign and draws are not covered",
                           rule->slot[i]);
    }
    return QM_OK;
}

/* A slot as the judge of checks sees it: n elements of one group. */
static struct qm_slot_view view_of(const struct domain *d, int slot, const double *want,
                                   const double *error, int64_t n)
{
    static const struct qm_shape shape = {1, {PIECE}};
    return (struct qm_slot_view){.d = &d->decider[slot],
                                 .shape = &shape,
                                 .n = n,
                                 .want = want,
                                 .error = error,
                                 .scales = &d->stored[slot]};
}

static qm_status open_slot(struct domain *d, int i)
{
    struct qm_quantizer q = d->r->slot[i], run = d->runs->slot[i];
    struct qm_shape one = {1, {1}};
    float decoded[256] = {0};
    int wrong;
    q.norm = run.norm = QM_NORM_tensor; /* one full group with a given maximum */
    q.unit = q.unit == QM_UNIT_recip_tail ? QM_UNIT_recip : q.unit;
    run.unit = run.unit == QM_UNIT_recip_tail ? QM_UNIT_recip : run.unit;
    QM_TRY(qm_codec_init(&d->codec[i], &run));
    const struct qm_codebook *cb = &d->codec[i].cb;
    for (int k = 0; k < cb->n; k++)
        decoded[cb->perm[k]] = cb->value[k];
    QM_TRY(qm_decider_init(&d->decider[i], &q, decoded, &wrong));
    if (wrong >= 0)
        return qm_fail(QM_CHECK_FAILED, "slot %s: code %d decodes to %a", d->r->rule->slot[i],
                       wrong, (double)decoded[wrong]);
    d->n_codes[i] = cb->n;
    d->max[i] = qm_curve_to(q.curve, d->max[i]);
    qm_scales(&d->codec[i], &one, &d->max[i], &d->stored[i]);
    const int no_flag = 0;
    const double max = (double)d->max[i];
    const struct qm_slot_view v = view_of(d, i, NULL, NULL, PIECE);
    d->scale[i] = qm_element_scale_of(&v, 0, &max, &max, &no_flag, 0);
    return QM_OK;
}

static qm_status open_domain(struct domain *d, const struct qm_recipe *r,
                             const struct qm_recipe *runs, const float *maxima, int64_t t, float p)
{
    memset(d, 0, sizeof *d);
    QM_TRY(check_covered(r));
    d->r = r;
    d->runs = runs ? runs : r;
    d->t = t;
    d->p = p;
    d->hyper = qm_oracle_hyper_of(&r->hyper);
    d->oracle = qm_oracle_find(r->rule->family);
    if (!d->oracle || !d->oracle->step || d->oracle->n_slots != r->rule->n_slots)
        return qm_fail(QM_SKIPPED, "no oracle judges rule %s", r->rule->name);
    if (!d->oracle->bound)
        return qm_fail(QM_SKIPPED, "no error bound is derived for rules of family %s",
                       r->rule->family);
    d->runs->rule->prepare(&d->runs->hyper, t, &d->step);
    d->step.param = QM_PARAM_f32;
    d->step.hyper = &d->runs->hyper;
    for (int i = 0; i < r->rule->n_slots; i++) {
        d->max[i] = maxima ? maxima[i] : 1.0f;
        if (!(d->max[i] > 0.0f && d->max[i] <= 3.4e38f))
            return qm_fail(QM_BAD_ARG, "a group's maximum must be finite and above 0, not %g",
                           (double)d->max[i]);
        QM_TRY(open_slot(d, i));
    }
    return QM_OK;
}

static int64_t pairs_of(const struct domain *d)
{
    int64_t n = 1;
    for (int i = 0; i < d->r->rule->n_slots; i++)
        n *= d->n_codes[i];
    return n;
}

qm_status qm_triples_count(const struct qm_recipe *r, int64_t *out)
{
    struct domain *d = malloc(sizeof *d);
    if (!d)
        return qm_fail(QM_NO_MEMORY, "a domain");
    qm_status st = open_domain(d, r, NULL, NULL, 1, 1.0f);
    if (st == QM_OK)
        *out = pairs_of(d) * GRADIENTS;
    free(d);
    return st;
}

/* ---- verdicts -------------------------------------------------------------------------------- */

/* 1: a finding is worse than t's, or as bad and of an earlier triple. */
static int is_worse(const struct qm_triples_tally *t, int severity, int64_t at)
{
    return severity > t->severity || (severity == t->severity && severity > 0 && at < t->worst_at);
}

static void add_finding(struct qm_triples_tally *t, int severity, int64_t at, const char *format,
                        ...) __attribute__((format(printf, 4, 5)));

static void add_finding(struct qm_triples_tally *t, int severity, int64_t at, const char *format,
                        ...)
{
    va_list args;
    if (!is_worse(t, severity, at))
        return;
    t->severity = severity;
    t->worst_at = at;
    va_start(args, format);
    vsnprintf(t->finding, sizeof t->finding, format, args);
    va_end(args);
}

/* Judges a float32 number against the oracle's. */
static void judge_number(struct qm_triples_tally *t, const char *what, double got, double want,
                         double error, double g, int64_t at)
{
    double off = fabs(got - want);
    if (isfinite(want) && !(error < HUGE_VAL)) {
        t->unbounded++;
        return;
    }
    t->judged++;
    if (isfinite(want) && error > 0.0 && off / error > t->worst_ratio)
        t->worst_ratio = off / error;
    if (isfinite(want) ? off <= error : !isfinite(got))
        return;
    t->out_of_bound++;
    add_finding(t, QM_BAD_BOUND, at, "%s is %a, want %a within %.3g (g %a)", what, got, want, error,
                g);
}

/* The verdict on position k, -1 for no code, of a unit value in [low, high]. */
static enum qm_verdict code_verdict(const struct qm_decider *d, double low, double high, int k)
{
    int from, to;
    if (k < 0)
        return QM_VERDICT_WRONG;
    if (k > d->q.scale.least && (k == 0 || low > d->cut[k - 1].high) &&
        (k + 1 == d->n || high < d->cut[k].low))
        return QM_VERDICT_EQUAL; /* the interval lies inside the cell, which is nearly always so */
    qm_decider_range(d, low, high, &from, &to);
    return qm_verdict_code(k, qm_decider_at(d, 0.5 * (low + high)), from, to);
}

static void judge_code(struct qm_triples_tally *t, const struct domain *d, int slot,
                       const struct piece *b, int j, int64_t at)
{
    const struct qm_decider *c = &d->decider[slot];
    const struct qm_slot_view v = view_of(d, slot, b->want[slot], b->error[slot], PIECE);
    double want = v.want[j], error = v.error[j], low, high;
    int code = b->code[slot][j], k = c->position_of[code];
    enum qm_verdict is;
    enum qm_unit_known known = qm_slot_unit_of(&v, j, &d->scale[slot], &low, &high);
    /* No element is above the maximum of its group, so that no quotient of a step is infinite;
     * softsign makes a NaN of it, and of a list of edges that is not full it passes the end. */
    int may_be_inf = c->q.curve == QM_CURVE_softsign || (c->n != 16 && c->n != 256);
    int overflows =
        may_be_inf && fabs(want) + error >= 0.5 * (double)FLT_MAX * d->scale[slot].divisor_low;
    if (isinf(want) || (isfinite(want) && !(error < HUGE_VAL)) || known == QM_KNOWN_NOTHING ||
        overflows) {
        t->unbounded++; /* Inf over a finite scale, or what may overflow */
        return;
    }
    t->judged++;
    if (known == QM_KNOWN_INTERVAL) {
        is = code_verdict(c, low, high, k);
    } else {
        int place = known == QM_KNOWN_NAN ? c->nan_position : c->position_of[c->q.scale.zero];
        is = k == place ? QM_VERDICT_EQUAL : QM_VERDICT_WRONG;
    }
    t->verdict[is]++;
    if (is >= QM_VERDICT_OFF_BY_ONE)
        add_finding(t, is == QM_VERDICT_WRONG ? QM_BAD_WRONG : QM_BAD_OFF_BY_ONE, at,
                    "%s has code %d for fresh value %a within %.3g, scale %a (g %a)",
                    d->r->rule->slot[slot], code, want, error, d->scale[slot].stored, b->wide_g[j]);
}

/* ---- running --------------------------------------------------------------------------------- */

/* Computes the oracle's results and bounds of a piece whose codes decode to b->slot. */
static qm_status run_oracle(const struct domain *d, struct piece *b)
{
    const double *old[QM_MAX_SLOTS] = {b->old[0], b->old[1]}, *stored[QM_MAX_SLOTS] = {NULL};
    double *want[QM_MAX_SLOTS] = {b->want[0], b->want[1]};
    double *error[QM_MAX_SLOTS] = {b->error[0], b->error[1]};
    struct qm_shape shape = {1, {PIECE}};
    struct qm_bound_step s = {.h = &d->hyper,
                              .t = d->t,
                              .n = PIECE,
                              .order = d->r->rule->order,
                              .shape = &shape,
                              .tensor = 1,
                              .p = b->wide_p,
                              .g = b->wide_g,
                              .slot = old,
                              .p_want = b->want_p,
                              .want = want,
                              .stored = stored,
                              .e_p = b->error_p,
                              .e_slot = error};
    for (int i = 0; i < d->r->rule->n_slots; i++) {
        s.slot_n[i] = PIECE;
        for (int j = 0; j < PIECE; j++)
            b->old[i][j] = b->want[i][j] = (double)b->slot[i][j];
    }
    for (int j = 0; j < PIECE; j++)
        b->want_p[j] = b->wide_p[j];
    d->oracle->step(b->want_p, want, b->wide_g, 1, PIECE, &d->hyper, d->t);
    return d->oracle->bound(&s);
}

/* Judges a piece that has been run; at: number of its first triple. */
static void judge_piece(const struct domain *d, const struct piece *b, int64_t at,
                        struct qm_triples_tally *t)
{
    for (int j = 0; j < PIECE; j++) {
        double g = b->wide_g[j];
        judge_number(t, "the parameter", (double)b->p[j], b->want_p[j], b->error_p[j], g, at + j);
        for (int i = 0; i < d->r->rule->n_slots; i++) {
            double want = b->want[i][j], error = b->error[i][j];
            judge_number(t, d->r->rule->slot[i], (double)b->slot[i][j], want, error, g, at + j);
            judge_code(t, d, i, b, j, at + j);
        }
    }
}

/* Judges what the piece's code decodes to. */
static void judge_decoded(const struct domain *d, int slot, const struct piece *b, int64_t at,
                          struct qm_triples_tally *t)
{
    const struct qm_slot_view v = view_of(d, slot, NULL, NULL, PIECE);
    int position = d->decider[slot].position_of[b->code[slot][0]];
    double error, want = qm_slot_value(&v, position, &d->scale[slot], &error);
    if (fabs(want) + error > (double)FLT_MAX)
        error = HUGE_VAL; /* the product may overflow */
    judge_number(t, "a decoded code", (double)b->slot[slot][0], want, error, 0.0, at);
}

/* Encodes with the given maximum; an element that is NaN makes it NaN, except under maxskip. */
static void encode(const struct domain *d, int slot, struct piece *b)
{
    const struct qm_codec *c = &d->codec[slot];
    struct qm_shape flat = {1, {PIECE}}, one = {1, {1}};
    const float nan = NAN, *x = b->slot[slot];
    qm_encode_range(c, &flat, 0, PIECE, x, &d->max[slot], NULL, b->code[slot]);
    for (int j = 0; j < PIECE && !c->q.scale.max_skips_nan; j++)
        if (qm_isnan(x[j]))
            qm_encode_range(c, &one, 0, 1, &x[j], &nan, NULL, &b->code[slot][j]);
}

/* Runs and judges codes number `pair` with gradients first .. first + PIECE - 1. */
static qm_status run_piece(const struct domain *d, struct piece *b, int64_t pair, int first,
                           struct qm_triples_tally *t)
{
    struct qm_shape flat = {1, {PIECE}};
    int64_t at = pair * GRADIENTS + first;
    float *slot[QM_MAX_SLOTS] = {b->slot[0], b->slot[1]};
    for (int i = d->r->rule->n_slots - 1; i >= 0; i--) {
        memset(b->code[i], d->codec[i].cb.perm[pair % d->n_codes[i]], PIECE);
        pair /= d->n_codes[i];
        qm_decode_range(&d->codec[i], &flat, 0, PIECE, b->code[i], &d->stored[i], b->slot[i]);
        judge_decoded(d, i, b, at, t);
    }
    for (int j = 0; j < PIECE; j++) {
        b->p[j] = d->p;
        b->wide_p[j] = (double)d->p;
        b->g[j] = qm_bf16_to_float((uint16_t)(first + j));
        b->wide_g[j] = (double)b->g[j];
    }
    QM_TRY(run_oracle(d, b));
    d->runs->rule->elementwise->block(&d->step, PIECE, b->p, b->g, slot);
    for (int i = 0; i < d->r->rule->n_slots; i++)
        encode(d, i, b);
    judge_piece(d, b, at, t);
    t->triples += PIECE;
    return QM_OK;
}

static void merge(struct qm_triples_tally *into, const struct qm_triples_tally *t)
{
    into->triples += t->triples;
    into->judged += t->judged;
    into->unbounded += t->unbounded;
    into->out_of_bound += t->out_of_bound;
    for (int i = 0; i < QM_VERDICT_COUNT; i++)
        into->verdict[i] += t->verdict[i];
    into->worst_ratio = fmax(into->worst_ratio, t->worst_ratio);
    if (is_worse(into, t->severity, t->worst_at)) {
        into->severity = t->severity;
        into->worst_at = t->worst_at;
        memcpy(into->finding, t->finding, sizeof into->finding);
    }
}

static qm_status run_domain(const struct domain *d, void (*progress)(void *of, int64_t triples),
                            void *of, struct qm_triples_tally *out)
{
    int64_t pairs = pairs_of(d), failures = 0;
    *out = (struct qm_triples_tally){.worst_at = -1};
#pragma omp parallel reduction(+ : failures)
    {
        struct piece *b = calloc(1, sizeof *b);
        struct qm_triples_tally t = {.worst_at = -1};
        failures += b == NULL;
#pragma omp for schedule(dynamic, 1)
        for (int64_t pair = 0; pair < pairs; pair++) {
            for (int g = 0; b && g < GRADIENTS; g += PIECE)
                failures += run_piece(d, b, pair, g, &t) != QM_OK;
#pragma omp critical(qm_triples_progress)
            if (progress)
                progress(of, GRADIENTS);
        }
#pragma omp critical(qm_triples_merge)
        merge(out, &t);
        free(b);
    }
    return failures ? qm_fail(QM_NO_MEMORY, "buffers of a thread, or of the oracle") : QM_OK;
}

qm_status qm_triples_run(const struct qm_recipe *r, const struct qm_recipe *runs,
                         const float *maxima, int64_t t, float p,
                         void (*progress)(void *of, int64_t triples), void *of,
                         struct qm_triples_tally *out)
{
    struct domain *d = malloc(sizeof *d);
    if (!d)
        return qm_fail(QM_NO_MEMORY, "a domain");
    qm_status st = open_domain(d, r, runs, maxima, t, p);
    if (st == QM_OK)
        st = run_domain(d, progress, of, out);
    free(d);
    return st;
}

int qm_triples_hold(const struct qm_triples_tally *t)
{
    return t->out_of_bound == 0 && t->verdict[QM_VERDICT_OFF_BY_ONE] == 0 &&
           t->verdict[QM_VERDICT_WRONG] == 0 && t->judged > 0;
}
