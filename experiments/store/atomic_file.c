/* atomic_file.c - Writes a file that appears under its name whole or not at all. */
#include "experiments/store/atomic_file.h"
#include "core/base/interrupt.h"
#include "core/base/read_set.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

qm_status qm_atomic_file_no_folder(const char *path, int error)
{
    const char *slash = strrchr(path, '/');
    return qm_fail(QM_BAD_FILE, "%s: cannot be written in the folder %.*s: %s", path,
                   slash > path ? (int)(slash - path) : 1, slash ? path : ".", strerror(error));
}

/* Removes what processes that were killed left of this path: PATH.PID.part of a process that is no
 * more, whose lock is free (the process may be one of another container). */
static void sweep(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char *in = slash ? strndup(path, slash > path ? (size_t)(slash - path) : 1) : NULL;
    struct stat info;
    size_t n = strlen(name);
    DIR *all = opendir(in ? in : ".");
    free(in);
    for (struct dirent *e; all && (e = readdir(all));) {
        const char *end = strrchr(e->d_name, '.');
        if (strncmp(e->d_name, name, n) != 0 || e->d_name[n] != '.' || strcmp(end, ".part") != 0 ||
            !qm_interrupt_is_dead(e->d_name + n + 1, end))
            continue;
        int fd = openat(dirfd(all), e->d_name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid() &&
            flock(fd, LOCK_EX | LOCK_NB) == 0)
            unlinkat(dirfd(all), e->d_name, 0);
        if (fd >= 0)
            close(fd);
    }
    if (all)
        closedir(all);
}

/* Makes and locks the temporary file.  A dead process may have had our pid: its file must neither
 * block nor leave contents, so the lock decides, and the file is truncated. */
static qm_status temporary_make(struct qm_atomic_file *p)
{
    struct stat info;
    if (!*p->path || (stat(p->path, &info) == 0 && !S_ISREG(info.st_mode)))
        return qm_fail(QM_BAD_FILE, "'%s': expected the name of a file to write", p->path);
    sweep(p->path);
    p->fd = open(p->temporary, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (p->fd < 0)
        return qm_atomic_file_no_folder(p->path, errno);
    qm_interrupt_note(p->temporary);
    if (flock(p->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        qm_interrupt_forget(p->temporary);
        close(p->fd);
        p->fd = -1;
        return qm_fail(QM_BAD_FILE, "%s: is being written already", p->path);
    }
    if (ftruncate(p->fd, 0) != 0)
        return qm_fail(QM_BAD_FILE, "%s: cannot be written: %s", p->path, strerror(errno));
    return QM_OK;
}

/* The path, or where it leads if it is a symbolic link: the link stays, its target is replaced.  A
 * copy that the caller frees; NULL: it leads nowhere, or there is no memory. */
static char *target_of(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0 && S_ISLNK(info.st_mode) ? realpath(path, NULL) : strdup(path);
}

/* QM_BAD_ARG: tensors were read from the file of this name. */
static qm_status check_not_read(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0 || !qm_read_set_has(&info))
        return QM_OK;
    return qm_fail(QM_BAD_ARG,
                   "%s: would be written over a file that this command reads, expected another "
                   "name",
                   path);
}

qm_status qm_atomic_file_open(const char *path, struct qm_atomic_file *out)
{
    struct qm_atomic_file p = {target_of(path), NULL, -1};
    qm_status st = QM_OK;
    if (!p.path)
        return qm_fail(QM_BAD_FILE, "'%s': is a link that leads nowhere", path);
    path = p.path;
    if (!p.path || asprintf(&p.temporary, "%s.%ld.part", path, (long)getpid()) < 0) {
        p.temporary = NULL;
        st = qm_fail(QM_NO_MEMORY, "%s", path);
    }
    if (st == QM_OK)
        st = check_not_read(path);
    if (st == QM_OK)
        st = temporary_make(&p);
    if (st == QM_OK)
        *out = p;
    else
        qm_atomic_file_abort(&p);
    return st;
}

qm_status qm_atomic_file_write(const struct qm_atomic_file *p, const void *bytes, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t wrote = write(p->fd, (const char *)bytes + at, n - at);
        if (wrote < 0 && errno != EINTR)
            return qm_fail(QM_BAD_FILE, "%s: cannot be written: %s", p->path, strerror(errno));
        at += wrote > 0 ? (size_t)wrote : 0;
    }
    return QM_OK;
}

/* Flushes the folder, without which a crash may undo the rename; file systems that cannot
 * are accepted. */
static qm_status folder_sync(const char *path)
{
    char *folder = strdup(path);
    if (!folder)
        return qm_fail(QM_NO_MEMORY, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = 0;
    int fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(folder);
    int bad = fd >= 0 && fsync(fd) != 0 && errno == EIO;
    if (fd >= 0)
        close(fd);
    return bad ? qm_fail(QM_BAD_FILE, "%s: its folder cannot be flushed", path) : QM_OK;
}

qm_status qm_make_folders(const char *path)
{
    for (const char *at = strchr(*path ? path + 1 : path, '/'); at; at = strchr(at + 1, '/')) {
        char *folder = strndup(path, (size_t)(at - path));
        if (!folder)
            return qm_fail(QM_NO_MEMORY, "%s", path);
        int bad = mkdir(folder, 0777) != 0 && errno != EEXIST ? errno : 0;
        qm_status st =
            bad ? qm_fail(QM_BAD_FILE, "%s: cannot be made: %s", folder, strerror(bad)) : QM_OK;
        free(folder);
        QM_TRY(st);
    }
    return QM_OK;
}

qm_status qm_atomic_file_commit(struct qm_atomic_file *p)
{
    QM_TRY(check_not_read(p->path));
    if (fsync(p->fd) != 0 || rename(p->temporary, p->path) != 0)
        return qm_fail(QM_BAD_FILE, "%s: cannot be written: %s", p->path, strerror(errno));
    qm_interrupt_forget(p->temporary);
    close(p->fd);
    p->fd = -1; /* there is nothing left to remove */
    qm_status st = folder_sync(p->path);
    qm_atomic_file_abort(p);
    return st;
}

void qm_atomic_file_abort(struct qm_atomic_file *p)
{
    if (p->fd >= 0) {
        unlink(p->temporary);
        qm_interrupt_forget(p->temporary);
        close(p->fd);
    }
    free(p->temporary);
    free(p->path);
    *p = (struct qm_atomic_file){NULL, NULL, -1};
}

qm_status qm_atomic_file_check(const char *path)
{
    struct qm_atomic_file file;
    QM_TRY(qm_atomic_file_open(path, &file));
    qm_atomic_file_abort(&file);
    return QM_OK;
}
