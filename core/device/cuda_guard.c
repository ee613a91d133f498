/* cuda_guard.c - Guards around the buffers of device "cuda": bytes before and after each, which
 * nothing may change. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/philox.h"
#include "core/device/cuda_guard.h"
#include "core/device/device_cuda.h"

static struct guarded {
    qm_address at; /* of the buffer, after its first guard */
    size_t bytes;
    uint64_t number; /* of the buffer, in the order in which they were reserved */
} * buffers;
static int n_buffers, room, is_on;
static uint64_t count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The first failure of a buffer that was released. */
static qm_status released;
static char message[600];

void qm_cuda_guard(void) { is_on = 1; }

size_t qm_cuda_guard_bytes(void) { return is_on ? QM_CUDA_GUARD : 0; }

/* What a guard of a buffer holds; side 0: before it, 1: after it. */
static void pattern_of(const struct guarded *g, int side, unsigned char out[QM_CUDA_GUARD])
{
    enum { STREAM = 0x67756172 };
    for (int i = 0; i < QM_CUDA_GUARD; i++)
        out[i] = (unsigned char)qm_philox_stream(g->number, STREAM,
                                                 (uint64_t)(side * QM_CUDA_GUARD + i));
}

static qm_address place_of(const struct guarded *g, int side)
{
    return side ? g->at + g->bytes : g->at - QM_CUDA_GUARD;
}

/* Takes the buffer out of the list; 0: it has no guards. */
static int take_out(qm_address at, struct guarded *out)
{
    int found = 0;
    pthread_mutex_lock(&lock);
    for (int i = n_buffers - 1; i >= 0 && !found; i--)
        if (buffers[i].at == at) {
            *out = buffers[i];
            buffers[i] = buffers[--n_buffers];
            found = 1;
        }
    pthread_mutex_unlock(&lock);
    return found;
}

qm_status qm_cuda_guard_add(qm_address at, size_t bytes)
{
    unsigned char pattern[QM_CUDA_GUARD];
    pthread_mutex_lock(&lock);
    const struct guarded g = {at, bytes, ++count};
    struct guarded *more =
        n_buffers < room ? buffers : realloc(buffers, sizeof *more * (size_t)(2 * room + 64));
    if (more) {
        room = n_buffers < room ? room : 2 * room + 64;
        buffers = more;
        buffers[n_buffers++] = g;
    }
    pthread_mutex_unlock(&lock);
    if (!more)
        return qm_fail(QM_NO_MEMORY, "a list of buffers");
    qm_status st = QM_OK;
    for (int side = 0; side < 2 && st == QM_OK; side++) {
        pattern_of(&g, side, pattern);
        st = qm_device_cuda.put(place_of(&g, side), pattern, sizeof pattern);
    }
    if (st != QM_OK)
        (void)take_out(at, &(struct guarded){0});
    return st;
}

/* QM_INTERNAL: a guard of the buffer has other bytes than it was given. */
static qm_status look_at(const struct guarded *g)
{
    unsigned char want[QM_CUDA_GUARD], now[QM_CUDA_GUARD];
    for (int side = 0; side < 2; side++) {
        pattern_of(g, side, want);
        for (int i = 0; i < QM_CUDA_GUARD; i++)
            now[i] = (unsigned char)~want[i];
        QM_TRY(qm_device_cuda.get(now, place_of(g, side), sizeof now));
        int first = 0, changed = 0;
        for (int i = QM_CUDA_GUARD - 1; i >= 0; i--) {
            first = want[i] != now[i] ? i : first;
            changed += want[i] != now[i];
        }
        if (changed)
            return qm_fail(QM_INTERNAL,
                           "out of range: %d bytes beside buffer %lld, of %zu bytes, were written, "
                           "the first %d bytes %s",
                           changed, (long long)g->number, g->bytes,
                           side ? first : QM_CUDA_GUARD - first,
                           side ? "after its end" : "before its begin");
    }
    return QM_OK;
}

qm_address qm_cuda_guard_remove(qm_address at)
{
    struct guarded g;
    char before[600];
    if (!take_out(at, &g))
        return at;
    snprintf(before, sizeof before, "%s", qm_message()); /* of what the caller cleans up after */
    qm_status st = look_at(&g);
    if (st != QM_OK && released == QM_OK) {
        released = st;
        snprintf(message, sizeof message, "%s", qm_message());
    }
    if (st != QM_OK)
        (void)qm_fail(st, "%s", before);
    return at - QM_CUDA_GUARD;
}

qm_status qm_cuda_guarded(void)
{
    qm_status st = released;
    released = QM_OK;
    if (st != QM_OK)
        return qm_fail(st, "%s", message);
    for (int i = 0; i < n_buffers; i++)
        QM_TRY(look_at(&buffers[i]));
    return QM_OK;
}
