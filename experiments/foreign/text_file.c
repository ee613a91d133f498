/* text_file.c - Reads a text into memory, within limits of size, time and nesting. */
#include "experiments/foreign/text_file.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "experiments/foreign/reader_process.h"

enum { PIECE = 1 << 16 };

/* A named pipe is opened without waiting for a writer, and awaited for a while. */
static qm_status open_text(const char *path, int *out)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return qm_fail(QM_BAD_FILE, "%s: %s", path, strerror(errno));
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    int known = fstat(fd, &info) == 0, is_folder = known && S_ISDIR(info.st_mode);
    if (is_folder ||
        (known && S_ISFIFO(info.st_mode) && poll(&ready, 1, QM_READER_SECONDS * 1000) == 0)) {
        close(fd);
        return is_folder ? qm_fail(QM_BAD_FILE, "%s: cannot be read: %s", path, strerror(EISDIR))
                         : qm_fail(QM_BAD_FILE, "%s: is a pipe into which nobody wrote in %d s",
                                   path, QM_READER_SECONDS);
    }
    fcntl(fd, F_SETFL, 0);
    *out = fd;
    return QM_OK;
}

/* How deep brackets and lists at the starts of lines nest; quotes are not known here. */
struct nesting {
    int depth, dashes, at_start;
};

static int nest(struct nesting *n, const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        char c = text[i];
        n->depth += (c == '[' || c == '{') - (c == ']' || c == '}');
        n->depth = n->depth < 0 ? 0 : n->depth;
        if (c == '\n')
            n->dashes = 0;
        n->at_start = c == '\n' || (n->at_start && (c == ' ' || c == '-' || c == '?'));
        n->dashes += n->at_start && (c == '-' || c == '?');
        if (n->depth > QM_TEXT_DEPTH || n->dashes > QM_TEXT_DEPTH)
            return 0;
    }
    return 1;
}

static qm_status read_text(const char *path, int fd, FILE *to)
{
    char piece[PIECE];
    struct nesting n = {.at_start = 1};
    for (size_t all = 0;;) {
        ssize_t got = read(fd, piece, sizeof piece);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return qm_fail(QM_BAD_FILE, "%s: cannot be read: %s", path, strerror(errno));
        if (got == 0)
            break;
        all += (size_t)got;
        if (all > (size_t)QM_TEXT_MIB << 20)
            return qm_fail(QM_BAD_FILE, "%s: has more than %d MiB, expected a text", path,
                           QM_TEXT_MIB);
        if (!nest(&n, piece, (size_t)got))
            return qm_fail(QM_BAD_ARG, "%s: nests deeper than %d", path, QM_TEXT_DEPTH);
        if (fwrite(piece, 1, (size_t)got, to) != (size_t)got)
            return qm_fail(QM_NO_MEMORY, "%s", path);
    }
    return QM_OK;
}

qm_status qm_text_open(const char *path, FILE **out)
{
    int fd = -1, copy = memfd_create("qualm text", MFD_CLOEXEC);
    FILE *to = copy < 0 ? NULL : fdopen(copy, "w+");
    if (!to) {
        if (copy >= 0)
            close(copy);
        return qm_fail(QM_NO_MEMORY, "%s", path);
    }
    qm_status st = open_text(path, &fd);
    if (st == QM_OK)
        st = read_text(path, fd, to);
    if (fd >= 0)
        close(fd);
    if (st == QM_OK) {
        rewind(to);
        *out = to;
    } else {
        fclose(to);
    }
    return st;
}
