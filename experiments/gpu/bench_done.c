/* bench_done.c - Looks at parameters on a GPU, to see that what was timed was done. */
#include "experiments/gpu/bench_done.h"

#include <stdlib.h>
#include <string.h>

#include "experiments/gpu/bench_expected.h"
#include "experiments/gpu/gpu.h"

/* Some parameters of a tensor of one turn. */
struct place {
    struct qm_gpu_work *w;
    int turn, part, k;
    int64_t first, n;
};

/* 1: the rule leaves the parameters as they are; its one state is looked at instead. */
static int is_average(const struct qm_gpu_work *w)
{
    return strcmp(w->r->rule->family, "ema") == 0;
}

/* Bytes of what is looked at of an element. */
static size_t seen_bytes(const struct qm_gpu_work *w)
{
    return is_average(w) ? sizeof(float) : (size_t)qm_param_bytes(&w->r->param);
}

static qm_status get_average(const struct place *p, float *out)
{
    float *all = malloc(sizeof *all * (size_t)p->w->numel);
    qm_status st = all ? qm_batch_decode(p->w->part[p->turn][p->part].batch, p->k, 0, all)
                       : qm_fail(QM_NO_MEMORY, "%lld numbers", (long long)p->w->numel);
    if (st == QM_OK)
        memcpy(out, all + p->first, sizeof *out * (size_t)p->n);
    free(all);
    return st;
}

static qm_status get_place(void *of, void *out)
{
    const struct place *p = of;
    if (is_average(p->w))
        return get_average(p, out);
    return p->w->part[p->turn][p->part].whole
               ? qm_tensor_rule_take_part(p->w->part[p->turn][p->part].whole, p->k, p->first, p->n,
                                          out)
               : qm_batch_take_part(p->w->part[p->turn][p->part].batch, p->k, p->first, p->n, out);
}

/* Copies the parameters of one place; returns their bytes as *bytes. */
static qm_status take_place(struct qm_gpu_work *w, int turn, int place, void *out, size_t *bytes)
{
    int all = w->n * w->tensors, at = place * (all - 1) / (QM_BENCH_PLACES - 1);
    int64_t n = w->numel < QM_BENCH_SAMPLE ? w->numel : QM_BENCH_SAMPLE;
    int64_t first = all == 1 ? place * (w->numel - n) / (QM_BENCH_PLACES - 1) : 0;
    struct place p = {w, turn, at / w->tensors, at % w->tensors, first, n};
    *bytes = (size_t)n * seen_bytes(w);
    return qm_gpu_bench_get(get_place, &p, *bytes, out);
}

/* BLOCK: after so many parameters and gradients their numbers come again; PIECE: parameters that
 * are compared at once. */
enum { BLOCK = QM_BENCH_COLUMNS, PIECE = 64 * BLOCK };

/* Copies the first n parameters, of which few are as they were given, or any number of those that
 * are no float32, which rounds small steps back.  Of an average one number has changed at least. */
static qm_status expect_most_changed(const struct place *of, int64_t n, const unsigned char *given,
                                     unsigned char *now)
{
    struct place p = *of;
    const struct qm_gpu_work *w = p.w;
    const size_t size = seen_bytes(w);
    const int64_t most = w->r->param.format != QM_PARAM_f32 ? n : is_average(w) ? n - 1 : n / 8;
    int64_t same = 0;
    p.n = n;
    memset(now, 0xa5, size * (size_t)n);
    QM_TRY(get_place(&p, now));
    for (int64_t i = 0; i < n; i++)
        same += memcmp(given + size * (size_t)i, now + size * (size_t)i, size) == 0;
    return same <= most ? QM_OK
                        : qm_fail(QM_INTERNAL,
                                  "implausible: %lld of the first %lld parameters are after the "
                                  "timed steps as they were",
                                  (long long)same, (long long)n);
}

/* The format of what is looked at. */
static int format_of(const struct qm_gpu_work *w)
{
    return is_average(w) ? (int)QM_PARAM_f32 : (int)w->r->param.format;
}

/* Compares all parameters of a tensor of a turn with `of`, BLOCK parameters that all are to have;
 * or, where they do not stay alike, each run of QM_BENCH_SAMPLE with those that were given, from
 * which some must differ. */
static qm_status expect_done(struct qm_gpu_work *w, struct place p, int is_alike,
                             const unsigned char *of, unsigned char *now)
{
    const size_t size = seen_bytes(w);
    for (; p.first < w->numel; p.first += PIECE) {
        p.n = w->numel - p.first < PIECE ? w->numel - p.first : PIECE;
        memset(now, 0xa5, size * (size_t)p.n);
        QM_TRY(get_place(&p, now));
        for (int64_t k = 0, n; k < p.n; k += n) {
            n = p.n - k < QM_BENCH_SAMPLE ? p.n - k : QM_BENCH_SAMPLE;
            int is_equal =
                qm_exact_difference(now + size * (size_t)k, of + size * (size_t)(k % BLOCK),
                                    format_of(w), size, n) < 0;
            if (is_equal != is_alike)
                return qm_fail(QM_INTERNAL, "implausible: parameters %lld to %lld of tensor %d %s",
                               (long long)(p.first + k), (long long)(p.first + k + n - 1),
                               p.part * w->tensors + p.k,
                               is_alike ? "differ after the timed steps from others that had the "
                                          "same numbers"
                                        : "are after the timed steps as they were");
        }
    }
    return QM_OK;
}

/* Compares all parameters of a tensor in the two turns, which have made the same steps.  other:
 * room for PIECE parameters. */
static qm_status expect_turns_equal(struct qm_gpu_work *w, struct place p, unsigned char *now,
                                    unsigned char *other)
{
    const size_t size = seen_bytes(w);
    struct place q = p;
    for (q.turn = 1; p.first < w->numel; p.first += PIECE) {
        q.first = p.first;
        q.n = p.n = w->numel - p.first < PIECE ? w->numel - p.first : PIECE;
        memset(now, 0xa5, size * (size_t)p.n);
        memset(other, 0x5a, size * (size_t)p.n);
        QM_TRY(get_place(&p, now));
        QM_TRY(get_place(&q, other));
        int64_t at = qm_exact_difference(now, other, format_of(w), size, p.n);
        if (at >= 0)
            return qm_fail(QM_INTERNAL,
                           "implausible: parameter %lld of tensor %d differs between two sets of "
                           "tensors that had the same timed steps",
                           (long long)(p.first + at), p.part * w->tensors + p.k);
    }
    return QM_OK;
}

/* Room of qm_gpu_work_all_done: parameters as they were given, those that the first tensor is to
 * have, and two pieces. */
struct rooms {
    unsigned char *given, *of, *now, *other;
};

static qm_status look_at_all(const struct qm_gpu_bench *b, struct qm_gpu_work *w, int64_t n,
                             const struct rooms *room)
{
    const size_t bytes = seen_bytes(w) * (size_t)n;
    const int is_alike = qm_gpu_stays_alike(w), all = w->n * w->tensors;
    const void *expected = is_average(w) ? NULL : qm_gpu_expected_parameters(w);
    if (is_average(w))
        memset(room->given, 0, bytes);
    else if (w->r->param.format == QM_PARAM_f32)
        memcpy(room->given, b->p, bytes);
    else
        qm_param_from_float(&w->r->param, n, b->p, room->given);
    for (int i = 0; i < QM_BENCH_TURNS * all; i++) {
        struct place p = {w, i / all, i % all / w->tensors, i % all % w->tensors, 0, 0};
        if (i % all == 0 && !w->r->rule->tensor)
            QM_TRY(expect_most_changed(&p, n, room->given, room->now));
        if (i == 0)
            memcpy(room->of, !is_alike ? room->given : expected ? expected : room->now, bytes);
        QM_TRY(expect_done(w, p, is_alike, room->of, room->now));
        if (!is_alike && p.turn == 0)
            QM_TRY(expect_turns_equal(w, p, room->now, room->other));
    }
    return QM_OK;
}

qm_status qm_gpu_work_all_done(const struct qm_gpu_bench *b, struct qm_gpu_work *w)
{
    const int64_t n = w->numel < BLOCK ? w->numel : BLOCK,
                  most = w->numel < PIECE ? w->numel : PIECE;
    const size_t size = seen_bytes(w);
    QM_TRY(qm_gpu_expected_compare(b, w));
    unsigned char *at = malloc(size * (size_t)(2 * n + 2 * most));
    if (!at)
        return qm_fail(QM_NO_MEMORY, "%lld parameters", (long long)most);
    const struct rooms room = {at, at + size * (size_t)n, at + size * (size_t)(2 * n),
                               at + size * (size_t)(2 * n + most)};
    qm_status st = look_at_all(b, w, n, &room);
    free(at);
    return st;
}

qm_status qm_gpu_work_mark(struct qm_gpu_work *w)
{
    size_t bytes;
    for (int i = 0; i < QM_BENCH_TURNS * QM_BENCH_PLACES; i++) {
        int turn = i / QM_BENCH_PLACES, place = i % QM_BENCH_PLACES;
        QM_TRY(take_place(w, turn, place, w->sample[turn][place], &bytes));
    }
    return QM_OK;
}

qm_status qm_gpu_work_changed(struct qm_gpu_work *w)
{
    static const char *const names[QM_BENCH_PLACES] = {"first", "middle", "last"};
    unsigned char now[4 * QM_BENCH_SAMPLE];
    size_t bytes = 0;
    if (is_average(w)) /* which of a gradient that stays comes to rest */
        return QM_OK;
    for (int i = 0; i < QM_BENCH_TURNS * QM_BENCH_PLACES; i++) {
        int turn = i / QM_BENCH_PLACES, place = i % QM_BENCH_PLACES;
        QM_TRY(take_place(w, turn, place, now, &bytes));
        if (memcmp(now, w->sample[turn][place], bytes) == 0)
            return qm_fail(QM_INTERNAL,
                           "implausible: the timed steps left the %s parameters as they were",
                           names[place]);
        memcpy(w->sample[turn][place], now, bytes);
    }
    return QM_OK;
}
