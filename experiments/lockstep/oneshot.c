/* oneshot.c - Coupling oneshot: applies a quantizer once to a recorded state or to draws. */
#include "experiments/lockstep/lockstep.h"

#include "oracle/theory/expected_error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Arrays of one tensor. */
struct buffers {
    float *x, *got, *scales, *scale_of; /* scale_of: the scale of each element */
    uint8_t *codes;
    double *want, *other, *update, *got_update, *spare;
};

static void buffers_free(struct buffers *b)
{
    free(b->x);
    free(b->got);
    free(b->scales);
    free(b->scale_of);
    free(b->codes);
    free(b->want);
    free(b->other);
    free(b->update);
    free(b->got_update);
    free(b->spare);
}

static qm_status buffers_open(struct buffers *b, int64_t n, int64_t n_scales)
{
    size_t size = (size_t)(n > 0 ? n : 1);
    memset(b, 0, sizeof *b);
    b->x = malloc(size * sizeof(float));
    b->got = malloc(size * sizeof(float));
    b->scales = malloc((size_t)(n_scales > 0 ? n_scales : 1) * sizeof(float));
    b->scale_of = malloc(size * sizeof(float));
    b->codes = malloc(size);
    b->want = malloc(size * sizeof(double));
    b->other = malloc(size * sizeof(double));
    b->update = malloc(size * sizeof(double));
    b->got_update = malloc(size * sizeof(double));
    b->spare = malloc(size * sizeof(double));
    if (b->x && b->got && b->scales && b->scale_of && b->codes && b->want && b->other &&
        b->update && b->got_update && b->spare)
        return QM_OK;
    buffers_free(b);
    return qm_fail(QM_NO_MEMORY, "a tensor of %lld elements", (long long)n);
}

void qm_adam_update(int64_t n, const double *m, const double *v, const struct qm_hyper *h,
                    int64_t t1, int64_t t2, double *update)
{
    double correct1 = t1 > 0 ? 1.0 - pow(h->beta1, (double)t1) : 1.0;
    double correct2 = t2 > 0 ? 1.0 - pow(h->beta2, (double)t2) : 1.0;
    for (int64_t i = 0; i < n; i++)
        update[i] = m[i] / correct1 / (sqrt(v[i] / correct2) + h->eps);
}

static double sign(double x) { return (double)((x > 0.0) - (x < 0.0)); }

/* Lion's update from the recorded gradient, with the exact and with the quantized average. */
static void lion_updates(const struct qm_recorded *r, int64_t n, struct buffers *b)
{
    for (int64_t i = 0; i < n; i++) {
        double fresh = (1.0 - r->hyper.beta1) * (double)r->grad[i];
        b->update[i] = sign(r->hyper.beta1 * b->want[i] + fresh);
        b->got_update[i] = sign(r->hyper.beta1 * (double)b->got[i] + fresh);
    }
}

/* As below, whatever the numbers are. */
static int has_updates(const struct qm_cell *c, int64_t n, struct buffers *b)
{
    const struct qm_recorded *r = c->recorded;
    if (r && r->grad && strcmp(c->recipe->rule->family, "lion") == 0 &&
        strcmp(r->optimizer, "lion") == 0) {
        lion_updates(r, n, b);
        return 1;
    }
    if (!r || !r->slot[0] || !r->slot[1] || r->unknown)
        return 0;
    for (int64_t i = 0; i < n; i++) {
        b->other[i] = (double)r->slot[1 - c->slot][i];
        b->spare[i] = (double)b->got[i];
    }
    int64_t before = r->first_step - 1;
    int first = c->slot == 0;
    qm_adam_update(n, first ? b->want : b->other, first ? b->other : b->want, &r->hyper, 0, before,
                   b->update);
    qm_adam_update(n, first ? b->spare : b->other, first ? b->other : b->spare, &r->hyper, 0,
                   before, b->got_update);
    return 1;
}

/* Sets the exact and the quantized update where the record holds both states of Adam, or the state
 * and the gradient of Lion for a rule of family lion; returns whether it did.  It does not where
 * the file leaves out the step, a beta or eps, or where an exact update is not finite, as by a NaN
 * in the other state. */
static int updates(const struct qm_cell *c, int64_t n, struct buffers *b)
{
    int is = has_updates(c, n, b);
    for (int64_t i = 0; i < n && is; i++)
        is = isfinite(b->update[i]);
    return is;
}

/* ---- theory ---------------------------------------------------------------------------------- */

/* Decoded values in units of the block's maximum, and the boundaries between them (*cut NULL:
 * rounding is stochastic).  Returns 0 where the theory does not cover the codec. */
static int plain_codec(const struct qm_codec *c, double *value, double **cut)
{
    const struct qm_quantizer *q = &c->q;
    if (q->bits == 0 || q->norm != QM_NORM_block || q->curve != QM_CURVE_none ||
        q->scale.cap != 0.0f || q->scale.nest || q->scale.f16 || q->scale.keep_sign ||
        q->scale.least || q->scale.plus != 0.0 ||
        (qm_round_draws(q->round) && q->round != QM_ROUND_stoch))
        return 0;
    double gain = (double)c->cb.gain;
    for (int k = 0; k < c->cb.n; k++)
        value[k] = (double)c->cb.value[k] * gain * (double)c->cb.post;
    if (q->round == QM_ROUND_stoch) {
        *cut = NULL;
        return 1;
    }
    for (int k = 0; k + 1 < c->cb.n; k++)
        (*cut)[k] = (double)c->edge[k] * gain;
    return 1;
}

/* Whether the scale of a block may fall to its floor; a probability below e^-40 counts as never. */
static int meets_floor(const struct qm_law *law, double floor, int64_t block)
{
    double z = qm_law_inverse(law, floor);
    return floor > 0.0 && z > 0.0 && (double)block * qm_law_log_cdf(law, z) > -40.0;
}

/* The difference of measured and expected NMSE in standard errors: blocks are independent, and
 * r = sum e^2 - nmse sum x^2 over a block has mean 0. */
static double standard_errors(const struct buffers *b, int64_t n, int64_t block, double nmse)
{
    double sum = 0.0, squares = 0.0;
    int64_t n_blocks = n / block;
    for (int64_t j = 0; j < n_blocks; j++) {
        double r = 0.0;
        for (int64_t i = j * block; i < (j + 1) * block; i++) {
            double e = (double)b->got[i] - b->want[i];
            r += e * e - nmse * b->want[i] * b->want[i];
        }
        sum += r;
        squares += r * r;
    }
    double mean = sum / (double)n_blocks;
    double variance = squares / (double)n_blocks - mean * mean;
    return mean / sqrt(variance / (double)(n_blocks - 1));
}

static qm_status theory(const struct qm_cell *c, const struct qm_codec *codec,
                        const struct buffers *b, int64_t n, struct qm_outcome *out)
{
    struct qm_law law;
    struct qm_theory t;
    double value[256], between[256], *cut = between;
    int64_t block = codec->q.block;
    if (c->kind != QM_SOURCE_dist || !qm_dist_law(c->dist, &law) ||
        !plain_codec(codec, value, &cut) ||
        meets_floor(&law, (double)codec->q.scale.floor, block) || n % block != 0 || n / block < 2)
        return QM_OK;
    qm_status st = qm_theory_block(&law, value, cut, codec->cb.n, block, &t);
    if (st != QM_OK) /* the quadrature does not cover this case: the values stay NaN */
        return st == QM_NO_MEMORY ? st : QM_OK;
    double *extra = out->value + qm_metric_count();
    extra[QM_EXTRA_theory_nmse] = t.nmse;
    extra[QM_EXTRA_theory_sqnr] = -10.0 * log10(t.nmse);
    extra[QM_EXTRA_theory_z] = standard_errors(b, n, block, t.nmse);
    return QM_OK;
}

/* The value that 1 in the map's range stands for, per element, where a scale belongs to a run of
 * elements; else NULL. */
static const float *scale_of(const struct qm_codec *c, int64_t n, struct buffers *b)
{
    const struct qm_quantizer *q = &c->q;
    if (q->bits == 0 || q->curve != QM_CURVE_none ||
        (q->norm != QM_NORM_block && q->norm != QM_NORM_tensor))
        return NULL;
    for (int64_t i = 0; i < n; i++)
        b->scale_of[i] = b->scales[q->norm == QM_NORM_block ? i / q->block : 0] / c->cb.gain;
    return b->scale_of;
}

/* ---- the cell -------------------------------------------------------------------------------- */

static qm_status measure(const struct qm_cell *c, const struct qm_codec *codec,
                         const struct qm_shape *shape, struct buffers *b, struct qm_metrics *m,
                         struct qm_outcome *out)
{
    int64_t n = out->n;
    enum qm_role role = c->slot == 0 ? QM_ROLE_slot0 : QM_ROLE_slot1;
    int64_t t = c->recorded ? c->recorded->first_step : 1;
    struct qm_draws draws = qm_draws_for(c->seed, t, 0, role);
    if (c->recorded)
        memcpy(b->x, c->recorded->slot[c->slot], (size_t)n * sizeof *b->x);
    else
        qm_dist_fill(c->dist, c->seed, 0, n, b->x);
    if (codec->q.bits == 0) {
        memcpy(b->got, b->x, (size_t)n * sizeof *b->x);
        qm_plain_round(codec->q.plain, n, b->got);
    } else {
        QM_TRY(qm_encode(codec, shape, b->x, &draws, b->codes, b->scales));
        qm_decode(codec, shape, b->codes, b->scales, b->got);
    }
    for (int64_t i = 0; i < n; i++)
        b->want[i] = (double)b->x[i];
    int has_update = updates(c, n, b);
    struct qm_sample sample = {.n = n,
                               .want = b->want,
                               .got = b->got,
                               .code = codec->q.bits ? b->codes : NULL,
                               .want_step = has_update ? b->update : NULL,
                               .got_step = has_update ? b->got_update : NULL,
                               .scale = scale_of(codec, n, b),
                               .bits = codec->q.bits,
                               .eps = c->recorded ? c->recorded->hyper.eps : c->recipe->hyper.eps};
    qm_metrics_reset(m);
    qm_metrics_add(m, &sample);
    qm_outcome_measure(out, m);
    return theory(c, codec, b, n, out);
}

qm_status qm_oneshot_run(const struct qm_cell *c, struct qm_metrics *m, struct qm_outcome *out)
{
    struct qm_shape drawn = {.rank = 1, .dim = {c->n}};
    const struct qm_shape *shape = c->recorded ? &c->recorded->shape : &drawn;
    struct qm_codec *codec = malloc(sizeof *codec);
    struct buffers b;
    if (!codec)
        return qm_fail(QM_NO_MEMORY, "codec");
    qm_status st = qm_codec_init(codec, &c->recipe->slot[c->slot]);
    out->n = qm_shape_numel(shape);
    if (st == QM_OK && qm_codec_fits(codec, shape) != QM_OK) {
        st = qm_outcome_skip(out, qm_message());
    } else if (st == QM_OK) {
        out->wanted[c->slot] = codec->q.bits ? out->n : 0;
        out->bits = out->n ? 8.0 * (double)qm_state_bytes(codec, shape) / (double)out->n : 0.0;
        st = buffers_open(&b, out->n, qm_scale_count(codec, shape));
        if (st == QM_OK) {
            st = measure(c, codec, shape, &b, m, out);
            buffers_free(&b);
        }
    }
    free(codec);
    return st;
}
