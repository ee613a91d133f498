/* metric.c - The accumulator: cuts data into groups, leaves out what is not finite, merges. */
#include "oracle/metric/metric.h"
#include "oracle/metric/metric_state.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Buffers for a group some of whose elements are left out. */
struct room {
    double want[QM_PAIR_SUMS_BLOCK], got[QM_PAIR_SUMS_BLOCK], want_step[QM_PAIR_SUMS_BLOCK];
    double got_step[QM_PAIR_SUMS_BLOCK], grad[QM_PAIR_SUMS_BLOCK];
    float scale[QM_PAIR_SUMS_BLOCK];
    uint8_t code[QM_PAIR_SUMS_BLOCK];
};

size_t qm_metrics_bytes(enum qm_metrics_level level)
{
    struct qm_metrics *m = NULL;
    return sizeof *m + (level == QM_METRICS_full ? sizeof *m->extra : 0);
}

struct qm_metrics *qm_metrics_open(enum qm_metrics_level level)
{
    struct qm_metrics *m = calloc(1, sizeof *m);
    if (!m)
        return NULL;
    m->level = level;
    m->isa = qm_pair_sums_best();
    m->extra = level == QM_METRICS_full ? calloc(1, sizeof *m->extra) : NULL;
    if (level == QM_METRICS_full && !m->extra) {
        free(m);
        return NULL;
    }
    return m;
}

void qm_metrics_close(struct qm_metrics *m)
{
    if (m)
        free(m->extra);
    free(m);
}

void qm_metrics_reset(struct qm_metrics *m)
{
    struct qm_metrics empty = {.level = m->level, .isa = m->isa, .extra = m->extra};
    *m = empty;
    if (m->extra)
        memset(m->extra, 0, sizeof *m->extra);
}

/* Copies the elements with keep[i], in order, into the buffers, which replace the
 * group's arrays. */
static void gather(struct qm_metric_group *g, struct room *to, const char *keep)
{
    int n = 0;
    for (int i = 0; i < g->n; i++) {
        if (!keep[i])
            continue;
        to->want[n] = g->want[i];
        to->got[n] = g->got[i];
        to->want_step[n] = g->want_step ? g->want_step[i] : 0.0;
        to->got_step[n] = g->got_step ? g->got_step[i] : 0.0;
        to->grad[n] = g->grad ? g->grad[i] : 0.0;
        to->scale[n] = g->scale ? g->scale[i] : 0.0f;
        to->code[n] = g->code ? g->code[i] : 0;
        n++;
    }
    g->n = n;
    g->want = to->want;
    g->got = to->got;
    g->want_step = g->want_step ? to->want_step : NULL;
    g->got_step = g->got_step ? to->got_step : NULL;
    g->grad = g->grad ? to->grad : NULL;
    g->scale = g->scale ? to->scale : NULL;
    g->code = g->code ? to->code : NULL;
}

static void drop_nonfinite(struct qm_metrics *m, struct qm_metric_group *g, struct room *to)
{
    char keep[QM_PAIR_SUMS_BLOCK];
    for (int i = 0; i < g->n; i++) {
        double x = g->want[i], y = g->got[i];
        m->nan_want += isnan(x) != 0;
        m->inf_want += isinf(x) != 0;
        m->nan_got += isnan(y) != 0;
        m->inf_got += isinf(y) != 0;
        keep[i] = isfinite(x) && isfinite(y);
        m->unbounded += isfinite(x) && !isfinite(y);
        if (!keep[i] && g->want_step && g->got_step)
            m->step_unbounded += isfinite(g->want_step[i]) && !isfinite(g->got_step[i]);
    }
    gather(g, to, keep);
}

static void drop_steps(struct qm_metrics *m, struct qm_metric_group *g, struct room *to)
{
    char keep[QM_PAIR_SUMS_BLOCK];
    for (int i = 0; i < g->n; i++) {
        keep[i] = isfinite(g->want_step[i]) && isfinite(g->got_step[i]);
        m->step_nonfinite += !keep[i];
        m->step_unbounded += isfinite(g->want_step[i]) && !isfinite(g->got_step[i]);
    }
    gather(g, to, keep);
}

static void add_steps(struct qm_metrics *m, struct qm_metric_group g)
{
    double lost[2];
    struct room kept;
    if (!qm_pair_sums_add(&m->step, g.want_step, g.got_step, g.n, m->isa)) {
        drop_steps(m, &g, &kept);
        qm_pair_sums_add_any(&m->step, g.want_step, g.got_step, g.n, m->isa);
    }
    qm_pair_sums_lost(g.want, g.got, g.want_step, g.got_step, g.n, lost, m->isa);
    qm_sum_add(&m->lost_want_step, lost[0]);
    qm_sum_add(&m->lost_got_step, lost[1]);
    if (m->extra)
        qm_extra_add_steps(m->extra, &g);
}

/* Counts codes of at most 4 bits by pairs, with half the work; returns how many codes
 * it counted. */
static int add_twos(struct qm_metrics *m, const uint8_t *code, int n)
{
    int i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t w;
        memcpy(&w, code + i, sizeof w);
        w |= w >> 4;
        m->two[0][w & 0xff]++;
        m->two[1][w >> 16 & 0xff]++;
        m->two[2][w >> 32 & 0xff]++;
        m->two[3][w >> 48 & 0xff]++;
    }
    return i;
}

/* Four tables: equal neighbouring codes would otherwise wait for each other's store. */
static void add_codes(struct qm_metrics *m, const uint8_t *code, int n)
{
    int i = m->bits >= 1 && m->bits <= 4 ? add_twos(m, code, n) : 0;
    for (; i + 4 <= n; i += 4) {
        m->code[0][code[i]]++;
        m->code[1][code[i + 1]]++;
        m->code[2][code[i + 2]]++;
        m->code[3][code[i + 3]]++;
    }
    for (; i < n; i++)
        m->code[0][code[i]]++;
}

static void add_group(struct qm_metrics *m, struct qm_metric_group g, double eps)
{
    struct room kept;
    if (!qm_pair_sums_add(&m->state, g.want, g.got, g.n, m->isa)) {
        drop_nonfinite(m, &g, &kept);
        qm_pair_sums_add_any(&m->state, g.want, g.got, g.n, m->isa);
    }
    if (g.code)
        add_codes(m, g.code, g.n);
    if (m->extra)
        qm_extra_add(m->extra, &g, eps);
    if (m->level > QM_METRICS_brief && g.want_step && g.got_step)
        add_steps(m, g);
}

void qm_metrics_add(struct qm_metrics *m, const struct qm_sample *s)
{
    double got[QM_PAIR_SUMS_BLOCK];
    assert(s->bits <= 8);
    m->bits = s->bits > 0 ? s->bits : m->bits;
    for (int64_t at = 0; at < s->n; at += QM_PAIR_SUMS_BLOCK) {
        int64_t left = s->n - at;
        struct qm_metric_group g = {.n =
                                        left < QM_PAIR_SUMS_BLOCK ? (int)left : QM_PAIR_SUMS_BLOCK};
        g.want = s->want + at;
        g.code = s->code ? s->code + at : NULL;
        if (m->level == QM_METRICS_brief && g.n % 8 == 0 &&
            qm_pair_sums_add_brief(&m->state, g.want, s->got + at, g.n, m->isa)) {
            if (g.code)
                add_codes(m, g.code, g.n);
            continue;
        }
        qm_pair_sums_widen(s->got + at, g.n, got, m->isa);
        g.got = got;
        g.want_step = s->want_step ? s->want_step + at : NULL;
        g.got_step = s->got_step ? s->got_step + at : NULL;
        g.grad = s->grad ? s->grad + at : NULL;
        g.scale = s->scale ? s->scale + at : NULL;
        add_group(m, g, s->eps);
    }
}

void qm_metrics_merge(struct qm_metrics *into, const struct qm_metrics *from)
{
    assert(into->level == from->level);
    into->bits = from->bits > 0 ? from->bits : into->bits;
    into->nan_want += from->nan_want;
    into->inf_want += from->inf_want;
    into->nan_got += from->nan_got;
    into->inf_got += from->inf_got;
    into->step_nonfinite += from->step_nonfinite;
    into->unbounded += from->unbounded;
    into->step_unbounded += from->step_unbounded;
    qm_pair_sums_merge(&into->state, &from->state);
    qm_pair_sums_merge(&into->step, &from->step);
    qm_sum_merge(&into->lost_want_step, &from->lost_want_step);
    qm_sum_merge(&into->lost_got_step, &from->lost_got_step);
    for (int t = 0; t < 4; t++)
        for (int k = 0; k < 256; k++) {
            into->code[t][k] += from->code[t][k];
            into->two[t][k] += from->two[t][k];
        }
    if (into->extra)
        qm_extra_merge(into->extra, from->extra);
}

void qm_metrics_codes(const struct qm_metrics *m, int64_t out[256])
{
    for (int k = 0; k < 256; k++)
        out[k] = m->code[0][k] + m->code[1][k] + m->code[2][k] + m->code[3][k];
    for (int k = 0; k < 256; k++) {
        int64_t n = m->two[0][k] + m->two[1][k] + m->two[2][k] + m->two[3][k];
        out[k & 15] += n;
        out[k >> 4] += n;
    }
}

double qm_metrics_rel_quantile(const struct qm_metrics *m, double p)
{
    return m->extra ? qm_log_histogram_quantile(&m->extra->rel, p) : nan("");
}
