/* emu_streams.cpp - CUDA's streams and events: which launches and copies are ordered, and what the
 * host has waited for; the errors that calls of the runtime library return. */
#include "emu_streams.hpp"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Stream 0 is the default stream, which is ordered with all streams but the non-blocking ones. */
struct qm_emu_stream {
    int id, is_free, is_open;  /* is_free: non-blocking */
    uint32_t sees[QM_STREAMS]; /* work of each stream that is ordered before its next one */
};
struct qm_emu_event {
    uint32_t sees[QM_STREAMS];
    double seconds; /* of the host's clock when it was recorded */
};

/* Launches, and copies that something may be unordered with. */
enum { WORKS = 1 << 16 };
static struct work {
    uint32_t epoch, number; /* in its stream */
    int stream, is_launch;
    const char *name;
    struct qm_emu_at at; /* of a copy */
} works[WORKS];
static int n_works, n_streams = 1;
static struct qm_emu_stream streams[QM_STREAMS];
static uint32_t host_sees[QM_STREAMS]; /* work of each stream that the host has waited for */

static void join(uint32_t *to, const uint32_t *from)
{
    for (int i = 0; i < QM_STREAMS; i++)
        if (from[i] > to[i])
            to[i] = from[i];
}

/* ---- errors ---------------------------------------------------------------------------------- */

/* The last call's that failed; a kernel's, after which nothing succeeds any more, and whether the
 * host knows of it, as it does by the first call that waits. */
static int last_error, kernel_error, is_told;

void qm_launch_failed(int error)
{
    if (error == QM_ERROR_KERNEL)
        kernel_error = error;
    else
        last_error = error;
}

extern "C" int qm_emu_result(int error, int waits)
{
    is_told |= waits && kernel_error;
    if (is_told)
        return kernel_error;
    last_error = error ? error : last_error;
    return error;
}

extern "C" int qm_emu_last_error(int reset)
{
    int e = is_told ? kernel_error : last_error;
    if (reset)
        last_error = 0;
    return e;
}

/* ---- work in streams ------------------------------------------------------------------------- */

static struct qm_emu_stream *valid_stream(void *stream, struct qm_emu_at at)
{
    struct qm_emu_stream *s = (struct qm_emu_stream *)stream;
    if (!s)
        return &streams[0];
    for (int i = 1; i < n_streams; i++)
        if (s == &streams[i] && s->is_open)
            return s;
    qm_emu_fail(at, s >= streams && s < streams + n_streams
                        ? "the stream was destroyed before"
                        : "this is no stream that cudaStreamCreate made");
    return NULL;
}

/* Begins work in a stream, ordered after what the host has waited for and by the default stream's
 * rule. */
static struct qm_emu_stream *begin(struct qm_emu_stream *s)
{
    join(s->sees, host_sees);
    if (s == &streams[0])
        for (int i = 1; i < n_streams; i++)
            join(s->sees, streams[i].is_free ? s->sees : streams[i].sees);
    else if (!s->is_free)
        join(s->sees, streams[0].sees);
    return s;
}

static const struct qm_emu_stream *current; /* of the work that runs */

static int work_begin(struct qm_emu_stream *s, const char *name, int is_launch, struct qm_emu_at at)
{
    if (n_works == WORKS) {
        qm_emu_fail(at, "more than %d launches and copies in a step", WORKS);
        return -1;
    }
    begin(s)->sees[s->id]++;
    works[n_works] = work{qm_now.epoch + 1, s->sees[s->id], s->id, is_launch, name, at};
    current = s;
    qm_now.is_unwaited = 1;
    return n_works++;
}

int qm_launch_begin(void *stream, const char *name, struct qm_emu_at at)
{
    struct qm_emu_stream *s = valid_stream(stream, at);
    return s ? work_begin(s, name, 1, at) : -1;
}

uint32_t qm_copy_begin(void *stream, int is_seen, const char *what, struct qm_emu_at at)
{
    struct qm_emu_stream *s = valid_stream(stream, at);
    if (!s)
        return 0;
    current = begin(s);
    if (n_streams == 1 && !is_seen)
        return 1;
    return work_begin(s, what, 0, at) < 0 ? 0 : ++qm_now.epoch;
}

/* The last work that had begun by that epoch, or NULL. */
static const struct work *work_of(uint32_t epoch)
{
    int low = 0, high = n_works - 1;
    if (n_works == 0 || works[0].epoch > epoch)
        return NULL;
    while (low < high) {
        int k = (low + high + 1) / 2;
        if (works[k].epoch <= epoch)
            low = k;
        else
            high = k - 1;
    }
    return &works[low];
}

static const char *name_of(const struct work *w)
{
    static char text[200];
    const char *slash = w->at.file ? strrchr(w->at.file, '/') : NULL;
    if (w->is_launch)
        return w->name;
    snprintf(text, sizeof text, "%s at %s:%d", w->name, slash ? slash + 1 : w->at.file, w->at.line);
    return text;
}

const char *qm_launch_unordered(uint32_t epoch)
{
    const struct work *w = n_streams > 1 ? work_of(epoch) : NULL;
    return w && current && current->sees[w->stream] < w->number ? name_of(w) : NULL;
}

const char *qm_launch_unwaited(uint32_t epoch)
{
    const struct work *w = work_of(epoch);
    return w && host_sees[w->stream] < w->number ? name_of(w) : NULL;
}

const char *qm_streams_unwaited(void)
{
    for (int i = 0; i < n_works; i++)
        if (works[i].is_launch && host_sees[works[i].stream] < works[i].number)
            return works[i].name;
    return NULL;
}

void qm_streams_forget(void)
{
    n_works = 0;
    last_error = kernel_error = is_told = 0;
}

/* The host has waited. */
static void waited()
{
    qm_now.is_unwaited = 0;
    for (int i = 0; i < n_streams; i++)
        qm_now.is_unwaited |= streams[i].sees[i] > host_sees[i];
}

/* ---- CUDA's functions ------------------------------------------------------------------------ */

extern "C" {
struct qm_emu_stream *qm_emu_stream_open(unsigned int flags)
{
    int i = 1;
    while (i < n_streams && streams[i].is_open)
        i++;
    if (i == QM_STREAMS)
        return NULL;
    n_streams = i == n_streams ? i + 1 : n_streams;
    streams[i].id = i;
    streams[i].is_free = flags & 1;
    streams[i].is_open = 1;
    qm_now.many_streams = 1;
    return &streams[i];
}

void qm_emu_stream_close(struct qm_emu_stream *stream, struct qm_emu_at at)
{
    struct qm_emu_stream *s = stream ? valid_stream(stream, at) : NULL;
    if (s)
        s->is_open = 0; /* all its work is done: work is done at once */
}

void qm_emu_wait(struct qm_emu_stream *stream, int for_all, struct qm_emu_at at)
{
    struct qm_emu_stream *s = valid_stream(stream, at);
    if (!s)
        return;
    join(host_sees, begin(s)->sees);
    for (int i = 0; for_all && i < n_streams; i++)
        join(host_sees, streams[i].sees);
    waited();
}

struct qm_emu_event *qm_emu_event_open(void)
{
    return (struct qm_emu_event *)calloc(1, sizeof(struct qm_emu_event));
}

void qm_emu_event_close(struct qm_emu_event *event) { free(event); }

void qm_emu_event_record(struct qm_emu_event *event, struct qm_emu_stream *stream,
                         struct qm_emu_at at)
{
    struct timespec t;
    struct qm_emu_stream *s = valid_stream(stream, at);
    if (!s)
        return;
    memcpy(event->sees, begin(s)->sees, sizeof event->sees);
    clock_gettime(CLOCK_MONOTONIC, &t);
    event->seconds = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double qm_emu_event_seconds(struct qm_emu_event *event) { return event->seconds; }

void qm_emu_event_wait(struct qm_emu_event *event, struct qm_emu_stream *stream, int is_host,
                       struct qm_emu_at at)
{
    struct qm_emu_stream *s = is_host ? NULL : valid_stream(stream, at);
    if (is_host || s)
        join(is_host ? host_sees : s->sees, event->sees);
    if (is_host)
        waited();
}
}
