/* text_file.c - Reads a text into memory, within limits of size, time and nesting. */
#include "experiments/foreign/text_file.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/grow.h"
#include "core/base/interrupt.h"
#include "experiments/foreign/file_mark.h"
#include "experiments/foreign/reader_process.h"

enum { PIECE = 1 << 16 };

/* Whether there is something to read: at once in a file and at the end of a pipe, else for a while;
 * a device and a pipe may stay silent for ever. */
static qm_status await(const char *path, int fd)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    double since = qm_seconds();
    int n;
    do /* a signal that ends the program ends it in qm_interrupt_wait */
        n = poll(&ready, 1, QM_READER_SECONDS * 1000);
    while (n < 0 && errno == EINTR && qm_seconds() - since < QM_READER_SECONDS);
    return n > 0 ? QM_OK
                 : qm_fail(QM_BAD_FILE,
                           "%s: a pipe or a device that gave nothing in %d s, expected "
                           "a text",
                           path, QM_READER_SECONDS);
}

/* A named pipe is opened without waiting for a writer. */
static qm_status open_text(const char *path, int *out)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return qm_fail(QM_BAD_FILE, "%s: %s", path, strerror(errno));
    *out = fd;
    if (fstat(fd, &info) == 0 && S_ISDIR(info.st_mode))
        return qm_fail(QM_BAD_FILE, "%s: %s", path, strerror(EISDIR));
    return QM_OK;
}

/* How deep brackets and lists at the starts of lines nest, and how many anchors there are; quotes
 * are not known here. */
struct nesting {
    int depth, dashes, at_start, anchors;
    char last;
};

static int nest(struct nesting *n, const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        char c = text[i];
        n->anchors += c == '&' && strchr(" \t\n,[{-", n->last);
        n->last = c;
        n->depth += (c == '[' || c == '{') - (c == ']' || c == '}');
        n->depth = n->depth < 0 ? 0 : n->depth;
        if (c == '\n')
            n->dashes = 0;
        n->at_start = c == '\n' || (n->at_start && (c == ' ' || c == '-' || c == '?'));
        n->dashes += n->at_start && (c == '-' || c == '?');
        if (n->depth > QM_TEXT_DEPTH || n->dashes > QM_TEXT_DEPTH)
            return 0;
    }
    return n->anchors <= QM_TEXT_ANCHORS;
}

/* Checks the bytes of a text from byte `from` on, of which there are `size`.  A text has no byte 0,
 * but in UTF-16, which begins with a byte order mark and is left to the parser. */
static qm_status check_is_text(const char *path, const char *text, size_t from, size_t size)
{
    const unsigned char *c = (const unsigned char *)text;
    int is_wide = size >= 2 && ((c[0] == 0xff && c[1] == 0xfe) || (c[0] == 0xfe && c[1] == 0xff));
    const char *zero = is_wide ? NULL : memchr(text + from, 0, size - from);
    return zero ? qm_fail(QM_BAD_FILE, "%s: is no text: byte %zu is 0, expected a text in UTF-8",
                          path, (size_t)(zero - text))
                : QM_OK;
}

/* Reads the whole text into *out, which the caller frees in any case. */
static qm_status read_text(const char *path, int fd, char **out, size_t *size)
{
    enum { MOST = QM_TEXT_MIB << 20 };
    struct nesting n = {.at_start = 1, .last = '\n'};
    int64_t room = 0;
    for (size_t all = 0;; *size = all) {
        QM_TRY(qm_grow((void **)out, &room, (int64_t)all + PIECE, 1));
        QM_TRY(await(path, fd));
        ssize_t got = read(fd, *out + all, PIECE);
        if (got < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (got < 0)
            return qm_fail(QM_BAD_FILE, "%s: cannot be read: %s", path, strerror(errno));
        if (got == 0)
            return QM_OK;
        QM_TRY(check_is_text(path, *out, all, all + (size_t)got));
        if (!nest(&n, *out + all, (size_t)got))
            return n.anchors > QM_TEXT_ANCHORS
                       ? qm_fail(QM_BAD_ARG, "%s: more than %d anchors (&NAME)", path,
                                 QM_TEXT_ANCHORS)
                       : qm_fail(QM_BAD_ARG, "%s: nests deeper than %d", path, QM_TEXT_DEPTH);
        all += (size_t)got;
        if (all > MOST)
            return qm_fail(QM_BAD_FILE, "%s: has more than %d MiB, expected a text", path,
                           QM_TEXT_MIB);
    }
}

qm_status qm_text_open(const char *path, FILE **out)
{
    int fd = -1;
    char *text = NULL;
    size_t size = 0;
    struct qm_file_mark mark = QM_FILE_MARK_NONE;
    struct qm_interrupt_wait wait;
    qm_interrupt_wait_begin(&wait);
    qm_status st = open_text(path, &fd);
    if (st == QM_OK && qm_file_mark_take(fd, &mark) && mark.size == 0)
        mark.fd = -1; /* a device, or a file that the system makes when it is read */
    if (st == QM_OK)
        st = read_text(path, fd, &text, &size);
    if (st == QM_OK)
        st = qm_file_mark_check(&mark, path);
    qm_interrupt_wait_end(&wait);
    if (fd >= 0)
        close(fd);
    /* in memory of its own, without a file: limits on the sizes of files do not concern it */
    FILE *f = st == QM_OK ? fmemopen(NULL, size + 1, "w+") : NULL;
    if (st == QM_OK && (!f || fwrite(text, 1, size, f) != size || fflush(f) != 0))
        st = qm_fail(QM_NO_MEMORY, "%s", path);
    free(text);
    if (st == QM_OK) {
        rewind(f);
        *out = f;
    } else if (f) {
        fclose(f);
    }
    return st;
}
