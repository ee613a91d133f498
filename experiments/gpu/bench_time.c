/* bench_time.c - Times rounds of work on a GPU, and holds each time against the host's clock from
 * both sides. */
#include "core/base/clock.h"
#include "experiments/gpu/bench.h"

#include <gsl/gsl_sort.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- time ------------------------------------------------------------------------------------ */

static double median(const double *sorted, int n)
{
    return n % 2 ? sorted[n / 2] : 0.5 * (sorted[n / 2 - 1] + sorted[n / 2]);
}

/* 1: the rounds are enough; sorts them. */
static int is_enough(double *all, int n, int rounds, int is_late)
{
    if (n < rounds && !(is_late && n >= QM_BENCH_LEAST))
        return 0;
    gsl_sort(all, 1, (size_t)n);
    return is_late || n >= 4 * rounds || all[(3 * n - 1) / 4] - all[n / 4] <= 0.02 * median(all, n);
}

/* Reads twice the L2 cache. */
static qm_status read_cache_full(struct qm_gpu_bench *b)
{
    uint64_t n = b->flush_bytes / 16;
    void *args[] = {&b->flush, &n, &b->flush};
    QM_CU(b->cu, LaunchKernel,
          (b->reader, (unsigned)(8 * b->sms), 1, 1, 256, 1, 1, 0, b->stream, args, NULL));
    b->reads++;
    return QM_OK;
}

qm_status qm_gpu_bench_begun(const char *of, uint64_t begun, uint64_t asked)
{
    return begun == asked
               ? QM_OK
               : qm_fail(QM_INTERNAL, "implausible: the GPU began %lld of %lld launches of %s",
                         (long long)begun, (long long)asked, of);
}

static qm_status expect_read(const struct qm_gpu_bench *b)
{
    uint64_t begun;
    QM_TRY(qm_cuda_begun(b->module, &begun));
    return qm_gpu_bench_begun("the kernel that reads the cache full", begun, b->reads);
}

qm_status qm_gpu_bench_plausible(const char *what, double seconds, double bytes, double copy)
{
    const double most_rate = 1e14, faster = 2.0, latency = 20e-6, shortest = 1e-7;
    if (seconds < shortest)
        return qm_fail(QM_INTERNAL,
                       "implausible: %s takes %.3g s, and nothing that is launched takes less than "
                       "%.3g s",
                       what, seconds, shortest);
    double least = copy > 0.0 ? bytes / copy / faster - latency : 0.0;
    if (seconds < least || bytes / seconds > most_rate)
        return qm_fail(QM_INTERNAL,
                       "implausible: %s takes %.3g s, and must touch %.3g bytes: %.3g bytes per "
                       "second, where a copy has %.3g",
                       what, seconds, bytes, bytes / seconds, copy > 0.0 ? copy : 0.0);
    return QM_OK;
}

double qm_gpu_most_floats(int multiprocessors)
{
    const double lanes = 128.0, hertz = 4e9, instructions = 16.0;
    return (double)multiprocessors * lanes * hertz / instructions;
}

qm_status qm_gpu_bench_get(qm_status (*get)(void *of, void *out), void *of, size_t bytes, void *out)
{
    unsigned char again[4 * QM_BENCH_SAMPLE];
    memset(out, 0x5a, bytes);
    memset(again, 0xa5, bytes);
    QM_TRY(get(of, out));
    QM_TRY(get(of, again));
    if (memcmp(out, again, bytes) != 0)
        return qm_fail(QM_INTERNAL,
                       "implausible: two copies of the same %zu bytes of the device "
                       "differ: a copy left its buffer as it was",
                       bytes);
    return QM_OK;
}

/* seconds: between the events around the work; read: and around the read of the cache; missing: by
 * how much the host's clock shows more for the whole round than the events do. */
struct timed_round {
    double seconds, read, around, missing;
};

/* ms: between events that lie within `around` seconds of the host's clock. */
static qm_status expect_within(double ms, double around)
{
    const double drift = 1.02, resolution = 50e-6; /* of two clocks */
    return 1e-3 * ms <= drift * around + resolution
               ? QM_OK
               : qm_fail(QM_INTERNAL,
                         "implausible: cuEventElapsedTime gives %g ms, and the host's clock shows "
                         "%g ms around both events",
                         ms, 1e3 * around);
}

/* Milliseconds of the coarsest known grid on which all three readings lie, as of a clock of events
 * that ticks so; 0 for none.  A difference of two stamps may be off by a tick. */
static double clock_grid(double x, double y, double z)
{
    static const double grids[] = {32e-3, 25e-3, 20e-3, 16e-3, 10e-3, 8e-3, 5e-3, 4e-3, 2e-3};
    const double of[] = {x, y, z};
    for (size_t i = 0; i < sizeof grids / sizeof *grids; i++) {
        int is_on = 1;
        for (int k = 0; k < 3; k++) {
            double ticks = of[k] / grids[i];
            is_on &= fabs(ticks - rint(ticks)) <= 1e-6 * fmax(ticks, 1.0);
        }
        if (is_on)
            return grids[i];
    }
    return 0.0;
}

static qm_status time_one(struct qm_gpu_bench *b, const struct qm_gpu_timed *t,
                          struct timed_round *out)
{
    /* cuEventElapsedTime gives a float32, whose rounding is below 1e-7 of itself, of a clock of
     * about 0.5 us; ten times the one and twice the other. */
    const double rounding = 1e-6, resolution = 1e-3; /* resolution: milliseconds */
    double grid;
    double read_ms = 0.0, ms = 0.0, all_ms = 0.0;
    if (t->before)
        QM_TRY(t->before(t->arg));
    double before = qm_seconds();
    QM_CU(b->cu, EventRecord, (b->start, b->stream));
    QM_TRY(read_cache_full(b));
    QM_CU(b->cu, EventRecord, (b->from, b->stream));
    QM_TRY(t->work(t->arg));
    QM_CU(b->cu, EventRecord, (b->to, b->stream));
    QM_CU(b->cu, EventSynchronize, (b->to));
    double around = qm_seconds() - before;
    QM_TRY(qm_cuda_milliseconds(b->cu, b->from, b->to, &ms));
    QM_TRY(qm_cuda_milliseconds(b->cu, b->start, b->to, &all_ms));
    QM_TRY(qm_cuda_milliseconds(b->cu, b->start, b->from, &read_ms));
    *out = (struct timed_round){1e-3 * ms, 1e-3 * read_ms, around, around - 1e-3 * all_ms};
    QM_TRY(expect_within(ms, around));
    QM_TRY(expect_within(all_ms, around));
    if (all_ms < ms * (1.0 - rounding) - resolution)
        return qm_fail(QM_INTERNAL,
                       "implausible: cuEventElapsedTime gives %g ms for what was timed, and %g ms "
                       "from an earlier event to the same end",
                       ms, all_ms);
    grid = clock_grid(all_ms, read_ms, ms);
    if (fabs(all_ms - read_ms - ms) > 4.0 * (all_ms * rounding + resolution) + 2.0 * grid)
        return qm_fail(QM_INTERNAL,
                       "implausible: cuEventElapsedTime gives %g ms for the read of the cache, %g "
                       "ms for what was timed and %g ms for both",
                       read_ms, ms, all_ms);
    return t->after ? t->after(t->arg) : QM_OK;
}

qm_status qm_gpu_bench_warm_up(struct qm_gpu_bench *b, const struct qm_gpu_timed *t)
{
    struct timed_round ignored;
    double start = qm_seconds();
    for (int i = 0; i < QM_BENCH_WARM && (i == 0 || qm_seconds() - start < b->cap); i++)
        QM_TRY(time_one(b, t, &ignored));
    return QM_OK;
}

/* ---- how late a wait is ---------------------------------------------------------------------- */

/* Seconds by the host's clock of the shortest of some rounds that hold nothing: by so much each
 * wait for an event may be late, as where it goes through another machine.  A host that is busy for
 * a while is late in fewer of them than MOST.  All work is done before. */
static qm_status measure_wait(struct qm_gpu_bench *b, double *wait)
{
    enum { LEAST = 8, MOST = 40 };
    double least = 1e300;
    for (int i = 0; i < MOST && (i < LEAST || least > QM_BENCH_USUAL_WAIT); i++) {
        double before = qm_seconds();
        QM_CU(b->cu, EventRecord, (b->from, b->stream));
        QM_CU(b->cu, EventRecord, (b->to, b->stream));
        QM_CU(b->cu, EventSynchronize, (b->to));
        least = fmin(least, qm_seconds() - before);
    }
    if (least > QM_BENCH_LATEST)
        return qm_fail(QM_INTERNAL,
                       "waits are late: two events with nothing between them take %g ms by the "
                       "host's clock, in the shortest of %d, and no time is held against that "
                       "above %g ms",
                       1e3 * least, MOST, 1e3 * QM_BENCH_LATEST);
    *wait = least;
    b->wait = fmax(b->wait, least);
    return QM_OK;
}

void qm_gpu_bench_say_wait(struct qm_gpu_bench *b, json_t *row)
{
    if (b->wait > QM_BENCH_USUAL_WAIT)
        json_object_set_new(row, "wait_seconds", json_real(b->wait));
    b->wait = 0.0;
}

/* ---- a time from below ----------------------------------------------------------------------- */

enum { CHAINS = 6, CHAINS_LEAST = 2, LONGEST_CHAIN = 64 };

/* Seconds by the host's clock of n rounds that are queued without waiting in between, with the work
 * (t) or without it (NULL); launching: of the queueing alone. */
static qm_status time_chain(struct qm_gpu_bench *b, const struct qm_gpu_timed *t, int n,
                            double *seconds, double *launching)
{
    if (t && t->before)
        QM_TRY(t->before(t->arg));
    double before = qm_seconds();
    QM_CU(b->cu, EventRecord, (b->start, b->stream));
    for (int i = 0; i < n; i++) {
        QM_TRY(read_cache_full(b));
        if (t)
            QM_TRY(t->work(t->arg));
    }
    QM_CU(b->cu, EventRecord, (b->to, b->stream));
    *launching = qm_seconds() - before;
    QM_CU(b->cu, EventSynchronize, (b->to));
    *seconds = qm_seconds() - before;
    return t && t->after ? t->after(t->arg) : QM_OK;
}

/* What timed rounds have shown.  read: the median between the events of the cache's read; around:
 * of the fastest round by the host's clock; wait: by how much waits are late. */
struct rounds {
    struct qm_gpu_time time;
    double read, around, wait;
};

/* What chains have shown so far.  Rounds in a chain: n with the work, and as many reads of the
 * cache alone; m reads alone in a chain of their own, because beside long work n is 1, and the time
 * of one read is mostly waiting.  with, without: seconds of a round of the fastest chain, less what
 * a wait may be late; slowest: of the slowest chain of reads alone; queued: as `without`, or 0 if
 * that chain did not take twice as long as its queueing: it shows how fast the host queues reads,
 * and not how fast the GPU makes them. */
struct chains {
    int n, m;
    double latency, wait, with, without, slowest, queued;
};

/* As many rounds of this many seconds as a chain needs for its waiting to be small beside them. */
static int rounds_in_chain(double seconds, double latency)
{
    const double usual = 100e-6, enough = 20.0;
    double many = ceil(enough * latency / fmax(seconds, 1e-9));
    return (int)fmin(many, ceil(LONGEST_CHAIN * latency / usual));
}

static qm_status add_reads(struct qm_gpu_bench *b, struct chains *c, int n, double *seconds)
{
    double launching, each;
    QM_TRY(time_chain(b, NULL, n, seconds, &launching));
    each = (*seconds - c->latency) / n;
    c->slowest = fmax(c->slowest, (*seconds - c->wait) / n);
    if (each < c->without) {
        c->without = each;
        c->queued = *seconds >= 2.0 * launching ? each : 0.0;
    }
    return QM_OK;
}

/* Makes a chain of each kind, and the next ones twice as long where these were short by the host's
 * clock: a host that is late is late once in a chain, however long it is. */
static qm_status make_chains(struct qm_gpu_bench *b, const struct qm_gpu_timed *t, int is_longer,
                             struct chains *c)
{
    const double longest = 0.1;
    double with, without, launching;
    QM_TRY(add_reads(b, c, c->n, &without));
    QM_TRY(time_chain(b, t, c->n, &with, &launching));
    c->with = fmin(c->with, (with - c->latency) / c->n);
    if (is_longer && with < longest)
        c->n *= 2;
    if (c->m > c->n)
        QM_TRY(add_reads(b, c, c->m, &without));
    if (is_longer && without < longest)
        c->m *= 2;
    return QM_OK;
}

/* The work is no faster than chains of it are by the host's clock: what a round with the work takes
 * more than one without.  The fastest of several chains of each kind counts, because a busy host
 * only makes them longer; where one round is long enough for a chain, the timed ones are such, too.
 * And the read of the cache is no slower than in the slowest chain without the work, and no faster
 * than half of the fastest that was not held up by its queueing, so that no time of the work is
 * shown as the read's, or the other way round.  *is_short: one of these does not hold, and `text`
 * says why. */
static qm_status compare_with_chains(struct qm_gpu_bench *b, const struct qm_gpu_timed *t,
                                     const struct rounds *r, int *is_short, char *text, size_t size)
{
    const struct qm_gpu_time *out = &r->time;
    const double share = 0.25, least_share = 0.5, latency = 100e-6, read_share = 0.1;
    double least = 0.0;
    struct chains c = {.latency = latency + r->wait, .wait = r->wait, .without = 1e300};
    c.n = rounds_in_chain(out->median, c.latency);
    c.m = rounds_in_chain(r->read, c.latency);
    c.with = c.n == 1 ? r->around - c.latency : 1e300;
    *is_short = 1;
    for (int k = 0; k < CHAINS && (*is_short || k < CHAINS_LEAST); k++) {
        QM_TRY(make_chains(b, t, k >= CHAINS_LEAST - 1, &c));
        /* half a read of the cache: what the work has left dirty there is written back by the next
         * read, which the events do not show */
        least = c.with - 1.5 * fmax(c.without, 0.0);
        *is_short = out->median < (1.0 - share) * least || out->least < least_share * least ||
                    r->read > 1.5 * c.slowest + read_share * out->median + latency ||
                    r->read < 0.5 * c.queued;
    }
    if (*is_short)
        snprintf(text, size,
                 "implausible: cuEventElapsedTime gives %g ms (median) and %g ms (least), and %g "
                 "ms for the read of the cache; by the host's clock rounds in chains of %d take %g "
                 "ms each, and reads alone in chains of %d %g to %g ms",
                 1e3 * out->median, 1e3 * out->least, 1e3 * r->read, c.n, 1e3 * least, c.m,
                 1e3 * c.without, 1e3 * c.slowest);
    return QM_OK;
}

/* ---- rounds ---------------------------------------------------------------------------------- */

/* By how much the host's clock shows more for a round than its events do and may. */
static double excess(const struct timed_round *r)
{
    const double share = 0.1;
    return r->missing - share * r->around;
}

/* The same for chains of rounds, each twice as long as the last, until one is in time or long
 * enough: a wait is late once in a chain. */
static qm_status chain_in_time(struct qm_gpu_bench *b, const struct qm_gpu_timed *t, double latency,
                               struct timed_round *best)
{
    const double longest = 0.1;
    struct timed_round chain = {0};
    for (int n = 2; chain.around < longest && excess(best) > latency; n *= 2) {
        double ms = 0.0, launching;
        QM_TRY(time_chain(b, t, n, &chain.around, &launching));
        QM_TRY(qm_cuda_milliseconds(b->cu, b->start, b->to, &ms));
        QM_TRY(expect_within(ms, chain.around));
        chain.missing = chain.around - 1e-3 * ms;
        if (excess(&chain) <= latency)
            *best = chain;
    }
    return QM_OK;
}

/* Makes further rounds, then chains of them, until the host's clock shows no more for one than its
 * events do: a busy host is late in many rounds, and how many are timed is not to decide.  They are
 * held as all are, and not counted.  best: the best round so far; n: rounds so far. */
static qm_status expect_in_time(struct qm_gpu_bench *b, const struct qm_gpu_timed *t, double wait,
                                struct timed_round best, int n)
{
    enum { LEAST = 4, MOST = 16 };
    const double latency = 300e-6 + wait; /* of a launch and of waiting for an event */
    const double most_seconds = 1.0, start = qm_seconds();
    struct timed_round round;
    for (int i = 0; i < MOST && excess(&best) > latency; i++, n++) {
        if (i >= LEAST && qm_seconds() - start > most_seconds)
            break;
        usleep(1000); /* a process that has slept is woken sooner */
        QM_TRY(time_one(b, t, &round));
        if (excess(&round) < excess(&best))
            best = round;
    }
    QM_TRY(chain_in_time(b, t, latency, &best));
    if (excess(&best) > latency)
        return qm_fail(QM_INTERNAL,
                       "implausible: in every round the host's clock shows more than "
                       "cuEventElapsedTime does, in the best of %d by %g of %g ms",
                       n, 1e3 * best.missing, 1e3 * best.around);
    return QM_OK;
}

static qm_status time_once(struct qm_gpu_bench *b, const struct qm_gpu_timed *t, double start,
                           struct rounds *out)
{
    double all[4 * QM_GPU_BENCH_ROUNDS], reads[4 * QM_GPU_BENCH_ROUNDS];
    struct timed_round round, best = {0};
    int n = 0;
    QM_TRY(measure_wait(b, &out->wait));
    out->around = 1e300;
    while (!is_enough(all, n, b->rounds, qm_seconds() - start > b->cap)) {
        QM_TRY(time_one(b, t, &round));
        out->around = fmin(out->around, round.around);
        if (n == 0 || excess(&round) < excess(&best))
            best = round;
        reads[n] = round.read;
        all[n++] = round.seconds;
    }
    gsl_sort(reads, 1, (size_t)n);
    out->read = median(reads, n);
    out->time = (struct qm_gpu_time){median(all, n), all[0], n};
    if (out->time.median <= 0.0)
        return qm_fail(
            QM_INTERNAL,
            "implausible: cuEventElapsedTime gives 0 ms in the median of %d rounds: what "
            "was timed is shorter than a tick of that clock, or was not timed",
            n);
    return expect_in_time(b, t, out->wait, best, n);
}

qm_status qm_gpu_bench_rounds(struct qm_gpu_bench *b, const struct qm_gpu_timed *t, double start,
                              struct qm_gpu_time *out)
{
    enum { TRIES = 3 }; /* a host may become busy between the rounds and the chains */
    char text[400];
    struct rounds r = {0};
    int is_short = 1;
    for (int k = 0; k < TRIES && is_short; k++) {
        QM_TRY(time_once(b, t, start, &r));
        QM_TRY(compare_with_chains(b, t, &r, &is_short, text, sizeof text));
    }
    *out = r.time;
    if (is_short)
        return qm_fail(QM_INTERNAL, "%s", text);
    return expect_read(b);
}

qm_status qm_gpu_bench_time(struct qm_gpu_bench *b, const struct qm_gpu_timed *t,
                            struct qm_gpu_time *out)
{
    double start = qm_seconds();
    QM_TRY(qm_gpu_bench_warm_up(b, t));
    return qm_gpu_bench_rounds(b, t, start, out);
}
