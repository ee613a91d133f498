/* interrupt.c - Leaves nothing half made when a signal ends the program, and ends a child. */
#include "core/base/interrupt.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/status.h"

enum { NOTES = 64, DEPTH = 8, TRIES = 3, FREE = 0, FILLING, LIVE };

static const int numbers[2] = {SIGINT, SIGTERM};

static struct {
    _Atomic int state;
    pid_t owner;
    int lock; /* of a folder; -1: none */
    char path[PATH_MAX];
} note[NOTES];

static _Atomic pid_t owner, child;

/* ---- in the handler: system calls alone ---------------------------------------------------- */

/* As struct dirent64 of getdents64(2). */
struct entry {
    uint64_t inode;
    int64_t next;
    unsigned short length;
    unsigned char type;
    char name[];
};

static void remove_all(int folder, const char *name, int depth)
{
    _Alignas(struct entry) char piece[4096];
    long n;
    if (unlinkat(folder, name, 0) == 0 || (errno != EISDIR && errno != EPERM) || depth == DEPTH)
        return;
    for (int k = 0; k < TRIES && unlinkat(folder, name, AT_REMOVEDIR) != 0; k++) {
        int fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        while (fd >= 0 && (n = syscall(SYS_getdents64, fd, piece, sizeof piece)) > 0)
            for (long at = 0; at < n;) {
                struct entry *e = (void *)(piece + at);
                if (strcmp(e->name, ".") != 0 && strcmp(e->name, "..") != 0)
                    remove_all(fd, e->name, depth + 1);
                at += e->length;
            }
        if (fd >= 0)
            close(fd);
    }
}

static void stop(int signum)
{
    static const char text[] = "qualm: interrupted; what was unfinished is removed\n";
    pid_t self = getpid(), of = child;
    if (self != owner) { /* a process that was forked ends by the signal */
        signal(signum, SIG_DFL);
        raise(signum);
        return;
    }
    if (of > 0 && (kill(-of, SIGKILL) == 0 || kill(of, SIGKILL) == 0))
        waitpid(of, NULL, 0);
    for (int i = 0; i < NOTES; i++)
        if (note[i].state == LIVE && note[i].owner == self)
            remove_all(AT_FDCWD, note[i].path, 0);
    ssize_t wrote = write(STDERR_FILENO, text, sizeof text - 1);
    (void)wrote;
    _exit(qm_exit_code(QM_INTERRUPTED));
}

/* ---- the program --------------------------------------------------------------------------- */

static void set(struct sigaction was[2])
{
    struct sigaction act = {.sa_handler = stop};
    sigemptyset(&act.sa_mask);
    sigaddset(&act.sa_mask, SIGINT);
    sigaddset(&act.sa_mask, SIGTERM);
    for (int i = 0; i < 2; i++)
        if (sigaction(numbers[i], NULL, &was[i]) == 0 && was[i].sa_handler != SIG_IGN)
            sigaction(numbers[i], &act, NULL);
}

void qm_interrupt_handle(void)
{
    struct sigaction was[2];
    owner = getpid();
    set(was);
}

void qm_interrupt_wait_begin(struct qm_interrupt_wait *w)
{
    if (owner == getpid())
        set(w->was);
}

void qm_interrupt_wait_end(const struct qm_interrupt_wait *w)
{
    for (int i = 0; i < 2 && owner == getpid(); i++)
        sigaction(numbers[i], &w->was[i], NULL);
}

/* The working directory may be another one when the signal comes: names are kept from the root. */
static int name_of(const char *path, char out[PATH_MAX])
{
    size_t n = 0;
    if (*path != '/') {
        if (!getcwd(out, PATH_MAX))
            return 0;
        n = strlen(out);
        out[n++] = '/';
    }
    if (n + strlen(path) >= PATH_MAX)
        return 0;
    strcpy(out + n, path);
    return 1;
}

static void add_note(const char *path, int lock)
{
    for (int i = 0; i < NOTES; i++) {
        int is = FREE;
        if (note[i].state != FREE || !atomic_compare_exchange_strong(&note[i].state, &is, FILLING))
            continue;
        note[i].owner = getpid();
        note[i].lock = lock;
        note[i].state = name_of(path, note[i].path) ? LIVE : FREE;
        return;
    }
}

void qm_interrupt_note(const char *path) { add_note(path, -1); }

void qm_interrupt_forget(const char *path)
{
    char name[PATH_MAX];
    pid_t self = getpid();
    for (int i = 0; name_of(path, name) && i < NOTES; i++)
        if (note[i].state == LIVE && note[i].owner == self && strcmp(note[i].path, name) == 0) {
            if (note[i].lock >= 0)
                close(note[i].lock);
            note[i].state = FREE;
            return;
        }
}

int qm_interrupt_is_dead(const char *digits, const char *end)
{
    char *behind;
    long pid = *digits >= '1' && *digits <= '9' ? strtol(digits, &behind, 10) : 0;
    return pid > 0 && behind == end && (pid_t)pid == pid && kill((pid_t)pid, 0) != 0 &&
           errno == ESRCH;
}

/* Removes the folders PREFIX-PID-XXXXXX of this user whose process is dead, and whose lock is free:
 * the process may be one of another container. */
static void sweep(const char *in, const char *prefix)
{
    struct stat info;
    size_t n = strlen(prefix);
    DIR *all = opendir(in);
    for (struct dirent *e; all && (e = readdir(all));) {
        const char *end = strrchr(e->d_name, '-');
        if (strncmp(e->d_name, prefix, n) != 0 || strlen(end) != 7 ||
            !qm_interrupt_is_dead(e->d_name + n, end))
            continue;
        int fd = openat(dirfd(all), e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd >= 0 && fstat(fd, &info) == 0 && info.st_uid == geteuid() &&
            flock(fd, LOCK_EX | LOCK_NB) == 0)
            remove_all(dirfd(all), e->d_name, 0);
        if (fd >= 0)
            close(fd);
    }
    if (all)
        closedir(all);
}

char *qm_interrupt_folder(char *room, size_t size, const char *stem)
{
    const char *in = getenv("TMPDIR");
    char prefix[64];
    snprintf(prefix, sizeof prefix, "qualm-%s-", stem);
    for (int k = 0; k < 2; k++) {
        in = k == 0 && in && *in ? in : "/tmp";
        if (snprintf(room, size, "%s/%s%ld-XXXXXX", in, prefix, (long)getpid()) < (int)size)
            break;
    }
    sweep(in, prefix);
    if (!mkdtemp(room))
        return NULL;
    int lock = open(room, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (lock >= 0)
        flock(lock, LOCK_EX | LOCK_NB);
    add_note(room, lock);
    return room;
}

void qm_interrupt_child(pid_t pid) { child = pid; }
