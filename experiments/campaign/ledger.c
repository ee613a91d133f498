/* ledger.c - Appends to ledgers, so that a line is on the disk whole or not at all. */
#include "experiments/campaign/ledger.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "core/base/sha256.h"
#include "experiments/campaign/folder.h"
#include "experiments/machine/provenance.h"

/* The file's length up to and including its last newline. */
static off_t whole_lines(int fd)
{
    char block[4096];
    off_t end = lseek(fd, 0, SEEK_END);
    while (end > 0) {
        off_t from = end > (off_t)sizeof block ? end - (off_t)sizeof block : 0;
        ssize_t n = pread(fd, block, (size_t)(end - from), from);
        if (n <= 0)
            return end;
        for (ssize_t i = n; i > 0; i--)
            if (block[i - 1] == '\n')
                return from + i;
        end = from;
    }
    return 0;
}

off_t qm_ledger_most(int64_t cells)
{
    enum { OF_CELL = 4096, ASSUMED = 1 << 20, OF_SESSIONS = 64 << 20 };
    return OF_SESSIONS + (off_t)OF_CELL * (cells > 0 && cells < INT32_MAX ? cells : ASSUMED);
}

qm_status qm_ledger_open(const char *dir, const char *shard, struct qm_ledger *out)
{
    struct qm_ledger l = {.fd = -1};
    if (asprintf(&l.path, "%s/%s.jsonl", dir, shard) < 0)
        return qm_fail(QM_NO_MEMORY, "ledger");
    struct qm_campaign_head head = {.cells = 0};
    if (qm_campaign_exists(dir) && qm_campaign_head(dir, &head) != QM_OK)
        head.cells = 0;
    qm_status st = qm_folder_open_within(l.path, O_RDWR | O_CREAT | O_APPEND,
                                         qm_ledger_most(head.cells), &l.fd);
    if (st == QM_OK && flock(l.fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        st = qm_fail(QM_BAD_FILE, "%s: another run is at work on this shard", l.path);
    if (st == QM_OK) {
        l.size = whole_lines(l.fd);
        if (ftruncate(l.fd, l.size) != 0)
            st = qm_fail(QM_BAD_FILE, "%s: cannot be written: %s", l.path, strerror(errno));
    }
    if (st == QM_OK)
        *out = l;
    else
        qm_ledger_close(&l);
    return st;
}

void qm_ledger_close(struct qm_ledger *l)
{
    if (l->path && l->fd >= 0)
        close(l->fd);
    free(l->path);
    *l = (struct qm_ledger){.fd = -1};
}

int qm_ledger_is_held(const char *path)
{
    int fd = -1;
    int held = qm_folder_open(path, O_RDONLY, &fd) == QM_OK && flock(fd, LOCK_SH | LOCK_NB) != 0 &&
               errno == EWOULDBLOCK;
    if (fd >= 0)
        close(fd);
    return held;
}

qm_status qm_ledger_append(struct qm_ledger *l, const char *lines, size_t n)
{
    size_t at = 0;
    int error = 0;
    while (at < n && !error) {
        ssize_t wrote = write(l->fd, lines + at, n - at);
        if (wrote < 0 && errno != EINTR)
            error = errno;
        at += wrote > 0 ? (size_t)wrote : 0;
    }
    if (!error && fsync(l->fd) != 0)
        error = errno;
    if (error) {
        if (ftruncate(l->fd, l->size) != 0)
            error = errno; /* readers ignore a half line */
        return qm_fail(QM_BAD_FILE, "%s: cannot be written: %s", l->path, strerror(error));
    }
    l->size += (off_t)n;
    return QM_OK;
}

/* Closes a line that lacks its brace: adds the sum of what f got since `from`. */
static void end_line(FILE *f, char *const *text, const size_t *size, size_t from)
{
    char sum[QM_LEDGER_SUM];
    fflush(f);
    qm_ledger_line_sum(*text + from, *size - from, sum);
    fprintf(f, ",\"sum\":\"%s\"}\n", sum);
    fflush(f);
}

void qm_ledger_line_sum(const char *line, size_t n, char out[QM_LEDGER_SUM])
{
    struct qm_sha256 h;
    char hex[65];
    qm_sha256_start(&h);
    qm_sha256_add(&h, line, n);
    qm_sha256_hex(&h, hex);
    snprintf(out, QM_LEDGER_SUM, "%.16s", hex);
}

static qm_status append_stream(struct qm_ledger *l, FILE *f, char **text, size_t *size)
{
    int bad = fclose(f) != 0;
    qm_status st = bad ? qm_fail(QM_NO_MEMORY, "ledger") : qm_ledger_append(l, *text, *size);
    free(*text);
    return st;
}

qm_status qm_ledger_session(struct qm_ledger *l, int workers)
{
    char host[256] = "", now[24], *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return qm_fail(QM_NO_MEMORY, "ledger");
    gethostname(host, sizeof host - 1);
    char program[96];
    snprintf(program, sizeof program, "%s %s", qm_version(), qm_commit());
    json_t *v = json_pack("{s:s, s:s, s:i, s:s, s:i}", "session", program, "host", host, "pid",
                          (int)getpid(), "started", qm_utc(now), "workers", workers);
    char *line = json_dumps(v, JSON_COMPACT);
    json_decref(v);
    fprintf(f, "%.*s", line ? (int)strlen(line) - 1 : 0, line ? line : "");
    free(line);
    end_line(f, &text, &size, 0);
    return append_stream(l, f, &text, &size);
}

qm_status qm_ledger_segment(struct qm_ledger *l, const char *name, const char *hash,
                            const struct qm_segment *s)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return qm_fail(QM_NO_MEMORY, "ledger");
    fprintf(f, "{\"segment\":\"%s\",\"sha256\":\"%s\",\"cells\":%lld", name, hash,
            (long long)s->rows);
    end_line(f, &text, &size, 0);
    for (int64_t i = 0; i < s->rows; i++) {
        const struct qm_segment_row *r = &s->row[i];
        size_t from = size;
        fprintf(f,
                "{\"cell\":%lld,\"id\":\"%s\",\"status\":\"%s\",\"segment\":\"%s\",\"row\":%lld,"
                "\"digest\":\"%s\",\"seconds\":%.6g",
                (long long)r->cell, r->id, r->status, name, (long long)i, r->digest, r->seconds);
        end_line(f, &text, &size, from);
    }
    return append_stream(l, f, &text, &size);
}
