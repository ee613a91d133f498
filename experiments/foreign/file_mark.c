/* file_mark.c - Compares files with their marks; maps files so that lost pages do no harm. */
#include "experiments/foreign/file_mark.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- marks --------------------------------------------------------------------------------- */

static struct qm_file_mark mark_of(int fd, const struct stat *info)
{
    return (struct qm_file_mark){
        fd,           info->st_dev, info->st_ino, info->st_nlink, info->st_size, info->st_mtim,
        info->st_ctim};
}

int qm_file_mark_take(int fd, struct qm_file_mark *out)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return 0;
    *out = mark_of(fd, &info);
    return 1;
}

/* A name that a file gains or loses, as one that is replaced by rename, changes its inode only. */
int qm_file_mark_equal(const struct qm_file_mark *a, const struct qm_file_mark *b)
{
    return a->dev == b->dev && a->ino == b->ino && a->size == b->size &&
           a->modified.tv_sec == b->modified.tv_sec && a->modified.tv_nsec == b->modified.tv_nsec &&
           (a->names != b->names ||
            (a->changed.tv_sec == b->changed.tv_sec && a->changed.tv_nsec == b->changed.tv_nsec));
}

/* Puts a path into a message: control characters become '?', so that it is one line. */
static const char *plain(const char *path, char out[1024])
{
    size_t n = 0;
    for (; path[n] && n < 1023; n++)
        out[n] = (unsigned char)path[n] < 0x20 || path[n] == 0x7f ? '?' : path[n];
    out[n] = '\0';
    return out;
}

qm_status qm_file_mark_lost(const struct qm_file_mark *m, const char *path)
{
    char text[1024];
    return qm_fail(QM_BAD_FILE,
                   "%s: became shorter than the %lld bytes it had when it was opened, or its disk "
                   "failed",
                   plain(path, text), (long long)m->size);
}

static qm_status compare(const struct qm_file_mark *m, const struct qm_file_mark *now,
                         const char *path)
{
    char text[1024];
    if (qm_file_mark_equal(m, now))
        return QM_OK;
    if (now->dev == m->dev && now->ino == m->ino && now->size < m->size)
        return qm_fail(QM_BAD_FILE,
                       "%s: became shorter than the %lld bytes it had when it was opened",
                       plain(path, text), (long long)m->size);
    return qm_fail(QM_BAD_FILE, "%s: changed while it was read", plain(path, text));
}

qm_status qm_file_mark_check(const struct qm_file_mark *m, const char *path)
{
    return m->fd < 0 ? QM_OK : qm_file_mark_check_other(m, path, m->fd);
}

qm_status qm_file_mark_check_other(const struct qm_file_mark *m, const char *path, int fd)
{
    struct stat info;
    char text[1024];
    if ((fd < 0 ? stat(path, &info) : fstat(fd, &info)) != 0)
        return qm_fail(QM_BAD_FILE, "%s: changed while it was read", plain(path, text));
    struct qm_file_mark now = mark_of(fd, &info);
    return compare(m, &now, path);
}

/* ---- mappings ------------------------------------------------------------------------------ */

/* All mappings stand in one list, which the handler walks without a lock: they are added at its
 * front, and never leave it; a closed one has no bytes, and is used again. */
struct qm_mapping {
    _Atomic uintptr_t from, to; /* in whole pages; to is 0 while it is closed */
    atomic_int has_lost;
    size_t size;
    struct qm_mapping *next, *next_closed;
};

static _Atomic(struct qm_mapping *) all;
static struct qm_mapping *closed;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction before;
static uintptr_t page;

/* Puts zeros in place of the page that was asked for and of all after it: what was cut off is the
 * end.  Any other signal goes to whom it went before.  mmap is a plain system call here. */
static void on_bus(int number, siginfo_t *info, void *context)
{
    int kept = errno;
    uintptr_t at = (uintptr_t)info->si_addr / page * page;
    (void)number, (void)context;
    for (struct qm_mapping *m = atomic_load(&all); m; m = m->next) {
        uintptr_t from = atomic_load(&m->from), to = atomic_load(&m->to);
        if (at < from || at >= to)
            continue;
        atomic_store(&m->has_lost, 1);
        if (mmap((void *)at, to - at, PROT_READ,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == MAP_FAILED)
            break;
        errno = kept;
        return;
    }
    sigaction(SIGBUS, &before, NULL); /* the access is made again, and raises it again */
    errno = kept;
}

/* Under the lock.  Whoever set another handler since the last mapping comes after this one. */
static void catch_bus(void)
{
    struct sigaction act = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO | SA_RESTART}, now;
    page = (uintptr_t)sysconf(_SC_PAGESIZE);
    if (sigaction(SIGBUS, NULL, &now) != 0 ||
        ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_bus))
        return;
    sigemptyset(&act.sa_mask);
    before = now;
    sigaction(SIGBUS, &act, NULL);
}

/* An entry of the list that is closed, or a new one. */
static struct qm_mapping *entry(void)
{
    pthread_mutex_lock(&lock);
    catch_bus();
    struct qm_mapping *m = closed;
    if (m) {
        closed = m->next_closed;
    } else if ((m = calloc(1, sizeof *m))) {
        m->next = atomic_load(&all);
        atomic_store(&all, m);
    }
    pthread_mutex_unlock(&lock);
    return m;
}

static void give_back(struct qm_mapping *m)
{
    pthread_mutex_lock(&lock);
    m->next_closed = closed;
    closed = m;
    pthread_mutex_unlock(&lock);
}

struct qm_mapping *qm_mapping_open(int fd, size_t size)
{
    struct qm_mapping *m = entry();
    if (!m)
        return NULL;
    void *map =
        size > SIZE_MAX - page ? MAP_FAILED : mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED) {
        int why = size > SIZE_MAX - page ? ENOMEM : errno;
        give_back(m);
        errno = why;
        return NULL;
    }
    m->size = size;
    atomic_store(&m->has_lost, 0);
    atomic_store(&m->from, (uintptr_t)map);
    atomic_store(&m->to, (uintptr_t)map + (size + page - 1) / page * page);
    return m;
}

void qm_mapping_close(struct qm_mapping *m)
{
    if (!m)
        return;
    void *map = (void *)atomic_load(&m->from);
    atomic_store(&m->to, 0);
    munmap(map, m->size);
    give_back(m);
}

const unsigned char *qm_mapping_bytes(const struct qm_mapping *m)
{
    return (const unsigned char *)atomic_load(&m->from);
}

int qm_mapping_has_lost(const struct qm_mapping *m) { return m && atomic_load(&m->has_lost); }
