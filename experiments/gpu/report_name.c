/* report_name.c - Names of reports, and the lock of the process that writes one. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "experiments/gpu/gpu_report.h"
#include "experiments/machine/provenance.h"
#include "experiments/store/atomic_file.h"

/* Appends the letters and digits of a text in lower case, with one '-' for all between them. */
static size_t append_slug(char *out, size_t n, size_t size, const char *text)
{
    for (const char *c = text; *c && n + 2 < size; c++)
        if (isalnum((unsigned char)*c))
            out[n++] = (char)tolower((unsigned char)*c);
        else if (n && out[n - 1] != '-')
            out[n++] = '-';
    if (n && out[n - 1] != '-')
        out[n++] = '-';
    out[n] = '\0';
    return n;
}

/* ---- the lock -------------------------------------------------------------------------------- */

/* 1: the file behind fd still has this name; whoever held the lock before may have removed it. */
static int is_named(int fd, const char *name)
{
    struct stat a, b;
    return fstat(fd, &a) == 0 && stat(name, &b) == 0 && a.st_ino == b.st_ino &&
           a.st_dev == b.st_dev;
}

/* Takes the lock by fcntl: it belongs to this process and not to those that it forks, and ends with
 * it. */
qm_status qm_gpu_report_lock(const char *path, int *fd)
{
    char name[PATH_MAX];
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    *fd = -1;
    if (snprintf(name, sizeof name, "%s.lock", path) >= (int)sizeof name)
        return qm_fail(QM_BAD_ARG, "%s: the path is too long", path);
    for (;;) {
        int file = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (file < 0)
            return qm_fail(QM_BAD_FILE, "%s: %s", name, strerror(errno));
        if (fcntl(file, F_SETLK, &whole) != 0) {
            int is_held = errno == EACCES || errno == EAGAIN, error = errno;
            close(file);
            return is_held
                       ? QM_OK
                       : qm_fail(QM_BAD_FILE, "%s: cannot be locked: %s", name, strerror(error));
        }
        if (is_named(file, name)) {
            *fd = file;
            return QM_OK;
        }
        close(file);
    }
}

void qm_gpu_report_unlock(const char *path, int fd)
{
    char name[PATH_MAX];
    if (fd < 0)
        return;
    if (snprintf(name, sizeof name, "%s.lock", path) < (int)sizeof name)
        unlink(name); /* before the lock ends: afterwards it may be another's */
    close(fd);
}

/* 1: name is STEM.h5.NUMBER.part or STEM.md.NUMBER.part. */
static int is_part(const char *name, const char *stem)
{
    size_t n = strlen(stem);
    if (strncmp(name, stem, n) != 0 ||
        (strncmp(name + n, ".h5.", 4) != 0 && strncmp(name + n, ".md.", 4) != 0))
        return 0;
    const char *number = name + n + 4;
    size_t digits = strspn(number, "0123456789");
    return digits > 0 && strcmp(number + digits, ".part") == 0;
}

void qm_gpu_report_sweep(const char *path)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/'), *stem = slash ? slash + 1 : path;
    int n = slash ? (int)(stem - path) : 2;
    snprintf(folder, sizeof folder, "%.*s", n, slash ? path : "./");
    DIR *all = opendir(folder);
    for (struct dirent *one; all && (one = readdir(all));)
        if (is_part(one->d_name, stem))
            unlinkat(dirfd(all), one->d_name, 0);
    if (all)
        closedir(all);
}

void qm_gpu_report_sweep_folder(const char *folder)
{
    char pattern[PATH_MAX], path[PATH_MAX];
    glob_t g;
    int lock;
    snprintf(pattern, sizeof pattern, "%s/*.lock", folder);
    if (glob(pattern, 0, NULL, &g) == 0)
        for (size_t i = 0; i < g.gl_pathc; i++) {
            size_t n = strlen(g.gl_pathv[i]) - strlen(".lock");
            snprintf(path, sizeof path, "%.*s", (int)n, g.gl_pathv[i]);
            if (qm_gpu_report_lock(path, &lock) != QM_OK || lock < 0)
                continue; /* it is being written */
            qm_gpu_report_sweep(path);
            qm_gpu_report_unlock(path, lock);
        }
    globfree(&g);
}

/* ---- names ----------------------------------------------------------------------------------- */

/* 1: a report of this name is there. */
static int is_taken(const char *path)
{
    static const char *const ends[] = {".h5", ".md"};
    char file[PATH_MAX];
    for (int i = 0; i < 2; i++)
        if (snprintf(file, sizeof file, "%s%s", path, ends[i]) >= (int)sizeof file ||
            access(file, F_OK) == 0)
            return 1;
    return 0;
}

qm_status qm_gpu_report_name(const char *folder, const char *device, const char *parts, char *path,
                             size_t size, int *lock)
{
    char stem[200], date[24];
    size_t n = append_slug(stem, 0, 80, device);
    if (n == 0)
        n = append_slug(stem, 0, 80, "gpu");
    n = append_slug(stem, n, 140, parts);
    qm_utc(date); /* 2026-11-20T15:30:00Z */
    snprintf(stem + n, sizeof stem - n, "%.10s-%.2s%.2s%.2s", date, date + 11, date + 14,
             date + 17);
    snprintf(path, size, "%s/", folder);
    QM_TRY(qm_make_folders(path));
    for (int k = 1; k < 1000; k++) {
        int used = k == 1 ? snprintf(path, size, "%s/%s", folder, stem)
                          : snprintf(path, size, "%s/%s-%d", folder, stem, k);
        if (used >= (int)size || used + 5 >= PATH_MAX)
            return qm_fail(QM_BAD_ARG, "%s: the path is too long", folder);
        if (is_taken(path))
            continue;
        QM_TRY(qm_gpu_report_lock(path, lock));
        if (*lock >= 0 && !is_taken(path)) /* its last writer may just have ended */
            return QM_OK;
        qm_gpu_report_unlock(path, *lock);
        *lock = -1;
    }
    return qm_fail(QM_BAD_FILE, "%s: a thousand reports of one second", folder);
}

/* 1: this file is a report that was begun under the name of n bytes. */
static int was_begun_as(const char *file, const char *name, size_t n)
{
    struct qm_gpu_report r;
    if (qm_gpu_report_read(file, &r) != QM_OK)
        return 0;
    const char *was = json_string_value(json_object_get(r.plan, QM_GPU_BEGUN_AS));
    int is = was && strlen(was) == n && strncmp(was, name, n) == 0;
    qm_gpu_report_free(&r);
    return is;
}

int qm_gpu_report_follow(char *path, size_t size)
{
    char folder[PATH_MAX], file[PATH_MAX];
    const char *slash = strrchr(path, '/'), *stem = slash ? slash + 1 : path;
    size_t n = strlen(stem);
    int found = 0;
    if (n <= 3 || strcmp(stem + n - 3, ".h5") != 0 || access(path, F_OK) == 0)
        return 0;
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(stem - path) : 2, slash ? path : "./");
    DIR *all = opendir(folder);
    for (struct dirent *one; all && !found && (one = readdir(all));) {
        size_t m = strlen(one->d_name);
        if (m > 3 && strcmp(one->d_name + m - 3, ".h5") == 0 &&
            snprintf(file, sizeof file, "%s%s", folder, one->d_name) < (int)sizeof file)
            found = was_begun_as(file, stem, n - 3);
    }
    if (all)
        closedir(all);
    if (found)
        snprintf(path, size, "%s", file);
    return found;
}

qm_status qm_gpu_report_newest(const char *folder, char *path, size_t size)
{
    char pattern[PATH_MAX];
    struct stat s;
    glob_t g;
    struct timespec newest = {0};
    int found = 0;
    snprintf(pattern, sizeof pattern, "%s/*.h5", folder);
    if (glob(pattern, 0, NULL, &g) == 0)
        for (size_t i = 0; i < g.gl_pathc; i++)
            if (stat(g.gl_pathv[i], &s) == 0 &&
                (!found || s.st_mtim.tv_sec > newest.tv_sec ||
                 (s.st_mtim.tv_sec == newest.tv_sec && s.st_mtim.tv_nsec > newest.tv_nsec))) {
                found = 1;
                newest = s.st_mtim;
                snprintf(path, size, "%s", g.gl_pathv[i]);
            }
    globfree(&g);
    return found ? QM_OK : qm_fail(QM_NO_MATCH, "%s: holds no report (.h5) to go on with", folder);
}
