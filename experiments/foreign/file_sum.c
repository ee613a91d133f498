/* file_sum.c - Computes and compares the checksum line of a file. */
#include "experiments/foreign/file_sum.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define START "\nqualm-sum 1 "

/* TAIL: bytes after HDF5's end in which parts of a line are sought; PART: bytes of such a part. */
enum { LANES = 4, PIECE = 1 << 22 /* bytes read at a time */, TAIL = 4096, HEAD = 64, PART = 4 };

struct sum {
    uint64_t lane[LANES];
};

static const uint64_t odd[LANES] = {UINT64_C(0x9e3779b97f4a7c15), UINT64_C(0xbf58476d1ce4e5b9),
                                    UINT64_C(0x94d049bb133111eb), UINT64_C(0xd6e8feb86659fd93)};

/* A bijection of `h` for every `word`, and of `word` for every `h`. */
static uint64_t mix(uint64_t h, uint64_t word, uint64_t factor)
{
    h = (h ^ word) * factor;
    return h ^ h >> 29;
}

/* Adds n bytes, a multiple of 32 but for the last call, which are padded with zeros. */
static void add(struct sum *s, const unsigned char *at, size_t n)
{
    uint64_t word[LANES];
    for (; n >= sizeof word; at += sizeof word, n -= sizeof word) {
        memcpy(word, at, sizeof word);
        for (int i = 0; i < LANES; i++)
            s->lane[i] = mix(s->lane[i], word[i], odd[i]);
    }
    memset(word, 0, sizeof word);
    memcpy(word, at, n);
    for (int i = 0; n > 0 && i < LANES; i++)
        s->lane[i] = mix(s->lane[i], word[i], odd[i]);
}

static uint64_t end(const struct sum *s, uint64_t n)
{
    uint64_t h = mix(n, 0, odd[0]);
    for (int i = 0; i < LANES; i++)
        h = mix(h, s->lane[i], odd[i]);
    return h;
}

static void line_of(uint64_t sum, uint64_t n, char line[QM_FILE_SUM_LINE])
{
    char text[QM_FILE_SUM_LINE + 1];
    snprintf(text, sizeof text, START "%016" PRIx64 " %016" PRIx64 "%*s\n", sum, n,
             QM_FILE_SUM_LINE - (int)strlen(START) - 34, "");
    memcpy(line, text, QM_FILE_SUM_LINE);
}

void qm_file_sum_line(const void *bytes, size_t n, char line[QM_FILE_SUM_LINE])
{
    struct sum s = {{0}};
    add(&s, bytes, n);
    line_of(end(&s, n), n, line);
}

static int has_line(const char *last) { return memcmp(last, START, strlen(START)) == 0; }

/* Where HDF5's part of a file of n bytes ends, by the superblock in its first bytes (HDF5's File
 * Format Specification, "Format Signature and Superblock"); n: it is no HDF5, or the superblock is
 * no sound one, which HDF5 refuses. */
static uint64_t hdf5_end(const unsigned char *head, uint64_t n)
{
    uint64_t end = 0;
    if (n < HEAD || memcmp(head, "\211HDF\r\n\032\n", 8) != 0 || head[8] > 3)
        return n;
    size_t width = head[8] < 2 ? head[13] : head[9]; /* of an address */
    size_t at = (head[8] == 0 ? 24 : head[8] == 1 ? 28 : 12) + 2 * width;
    if (width < 1 || width > 8)
        return n;
    for (size_t i = 0; i < width; i++)
        end |= (uint64_t)head[at + i] << 8 * i;
    return end < n ? end : n;
}

/* Reads n bytes at `at`; 0 on failure. */
static int read_at(int fd, void *out, size_t n, off_t at)
{
    for (size_t done = 0; done < n;) {
        ssize_t got = pread(fd, (char *)out + done, n - done, at + (off_t)done);
        if (got <= 0 && !(got < 0 && errno == EINTR))
            return 0;
        done += got > 0 ? (size_t)got : 0;
    }
    return 1;
}

/* Reads the file, instead of mapping it, so that one that shrinks meanwhile is a failure. */
static enum qm_file_sum sum_of_file(int fd, size_t size)
{
    unsigned char head[HEAD];
    char last[QM_FILE_SUM_LINE], line[QM_FILE_SUM_LINE];
    if (size < sizeof last)
        return QM_FILE_SUM_none;
    int is_longer = read_at(fd, head, sizeof head, 0) && hdf5_end(head, size) < size;
    size -= sizeof last;
    if (!read_at(fd, last, sizeof last, (off_t)size) || !has_line(last))
        return is_longer ? QM_FILE_SUM_other : QM_FILE_SUM_none;
    struct sum s = {{0}};
    unsigned char *piece = malloc(PIECE);
    int good = piece != NULL;
    for (size_t at = 0; good && at < size; at += PIECE) {
        size_t n = size - at < PIECE ? size - at : PIECE;
        good = read_at(fd, piece, n, (off_t)at);
        if (good)
            add(&s, piece, n);
    }
    free(piece);
    line_of(end(&s, size), size, line);
    return good && memcmp(last, line, sizeof line) == 0 ? QM_FILE_SUM_right : QM_FILE_SUM_wrong;
}

/* How many bytes of a line are of their kind: those of START, digits, spaces and the last. */
static int of_their_kind(const char *line)
{
    char like[QM_FILE_SUM_LINE];
    int n = 0;
    line_of(0, 0, like);
    for (int i = 0; i < QM_FILE_SUM_LINE; i++)
        n += like[i] == '0' ? isxdigit((unsigned char)line[i]) != 0 : line[i] == like[i];
    return n;
}

/* Whether the bytes after HDF5's end are a line of which a quarter was changed at most, the begin
 * of one, or hold a piece of its word. */
static int has_parts(int fd, size_t size)
{
    static const char word[] = "qualm-sum";
    unsigned char head[HEAD];
    char tail[TAIL];
    if (!read_at(fd, head, sizeof head, 0))
        return 0;
    uint64_t end = hdf5_end(head, size), n = size - end < TAIL ? size - end : TAIL;
    if (!read_at(fd, tail, n, (off_t)end))
        return 0;
    for (size_t i = 0; i + PART < sizeof word; i++)
        if (memmem(tail, n, word + i, PART))
            return 1;
    return (n == QM_FILE_SUM_LINE && of_their_kind(tail) >= QM_FILE_SUM_LINE * 3 / 4) ||
           memcmp(tail, START, n < strlen(START) ? n : strlen(START)) == 0;
}

static int same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           memcmp(&a->st_mtim, &b->st_mtim, sizeof a->st_mtim) == 0 &&
           memcmp(&a->st_ctim, &b->st_ctim, sizeof a->st_ctim) == 0;
}

static qm_status check_open(const char *path, int fd, int is_any, enum qm_file_sum *out)
{
    static _Thread_local struct stat last;
    static _Thread_local enum qm_file_sum known;
    struct stat info;
    if (fstat(fd, &info) != 0)
        return qm_fail(QM_BAD_FILE, "%s: %s", path, strerror(errno));
    if (S_ISDIR(info.st_mode))
        return qm_fail(QM_BAD_FILE, "%s: is a directory, expected a file", path);
    if (!S_ISREG(info.st_mode))
        return qm_fail(QM_BAD_FILE, "%s: is not a regular file", path);
    if (info.st_size == 0)
        return qm_fail(QM_BAD_FILE, "%s: is empty", path);
    if (!same_file(&info, &last))
        known = sum_of_file(fd, (size_t)info.st_size);
    last = info;
    *out = known;
    if (known == QM_FILE_SUM_wrong)
        return qm_fail(QM_BAD_FILE,
                       "%s: its checksum is wrong: it was damaged or changed after it was written",
                       path);
    if (known != QM_FILE_SUM_other)
        return QM_OK;
    *out = QM_FILE_SUM_none;
    return is_any && !has_parts(fd, (size_t)info.st_size)
               ? QM_OK
               : qm_fail(QM_BAD_FILE,
                         "%s: does not end with a whole checksum: it was cut, or something was "
                         "appended or changed there",
                         path);
}

/* Keeps the descriptor open for a mark; NULL: it is closed. */
static qm_status check(const char *path, int is_any, struct qm_file_mark *mark,
                       enum qm_file_sum *out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not block */
    if (fd < 0)
        return qm_fail(QM_BAD_FILE, "%s: cannot open: %s", path, strerror(errno));
    qm_status st = QM_OK;
    if (mark && !qm_file_mark_take(fd, mark))
        st = qm_fail(QM_BAD_FILE, "%s: %s", path, strerror(errno));
    if (st == QM_OK)
        st = check_open(path, fd, is_any, out);
    if (!mark || st != QM_OK)
        close(fd);
    return st;
}

qm_status qm_file_sum_check(const char *path, enum qm_file_sum *out)
{
    return check(path, 0, NULL, out);
}

qm_status qm_file_sum_check_marked(const char *path, struct qm_file_mark *mark,
                                   enum qm_file_sum *out)
{
    return check(path, 0, mark, out);
}

qm_status qm_file_sum_check_any(const char *path, enum qm_file_sum *out)
{
    return check(path, 1, NULL, out);
}
