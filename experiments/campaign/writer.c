/* writer.c - Writes the journal, the segments and the ledger of one shard. */
#include "experiments/campaign/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "experiments/campaign/folder.h"
#include "experiments/campaign/outcome_codec.h"

/* ---- the journal --------------------------------------------------------------------------- */

struct record {
    char magic[8];
    int64_t cell, words, text; /* text: bytes, NUL included; 0: none */
    double seconds;
    char id[24], digest[72];
};
static const char magic[8] = "qmcell1";

static qm_status journal_open(struct qm_writer *w)
{
    char path[1100];
    snprintf(path, sizeof path, "%s/%s.journal", w->dir, w->shard);
    w->journal = -1;
    return qm_folder_open(path, O_RDWR | O_CREAT | O_APPEND, &w->journal);
}

static qm_status journal_add(const struct qm_writer *w, const struct qm_segment_row *row)
{
    struct record r = {.cell = row->cell, .words = row->length, .seconds = row->seconds};
    r.text = row->reason ? (int64_t)strlen(row->reason) + 1 : 0;
    memcpy(r.magic, magic, sizeof magic);
    memcpy(r.id, row->id, sizeof row->id);
    memcpy(r.digest, row->digest, sizeof row->digest);
    struct iovec part[3] = {
        {&r, sizeof r},
        {w->waiting.word + row->offset, (size_t)row->length * sizeof *w->waiting.word},
        {row->reason, (size_t)r.text}};
    ssize_t n = (ssize_t)(part[0].iov_len + part[1].iov_len + part[2].iov_len);
    ssize_t wrote = writev(w->journal, part, 3); /* readers ignore half a record */
    return wrote == n ? QM_OK
                      : qm_fail(QM_BAD_FILE, "%s/%s.journal: cannot be written: %s", w->dir,
                                w->shard, wrote < 0 ? strerror(errno) : "no space left");
}

static int read_whole(FILE *f, void *to, size_t n) { return fread(to, 1, n, f) == n; }

/* Reads the next record.  Returns 0 at the end, and at a half or damaged record. */
static int journal_next(FILE *f, struct record *r, struct qm_outcome_words *p)
{
    char digest[65];
    if (!read_whole(f, r, sizeof *r) || memcmp(r->magic, magic, sizeof magic) != 0 ||
        r->words < 0 || r->words > QM_OUTCOME_WORDS_MOST || r->text < 0 ||
        r->text > QM_OUTCOME_TEXT_MOST)
        return 0;
    p->n = r->words;
    p->word = malloc((size_t)r->words * sizeof *p->word + 1);
    p->text = r->text ? malloc((size_t)r->text) : NULL;
    if (!p->word || (r->text && !p->text) ||
        !read_whole(f, p->word, (size_t)r->words * sizeof *p->word) ||
        !read_whole(f, p->text, (size_t)r->text) || (r->text && p->text[r->text - 1]))
        return 0;
    qm_outcome_words_digest(p->word, p->n, p->text, digest);
    return memcmp(digest, r->digest, sizeof digest) == 0;
}

qm_status qm_writer_recover(struct qm_writer *w, int64_t n, char *wanted, int failed,
                            int64_t *taken)
{
    int fd = dup(w->journal), is_failed, more = 1;
    FILE *f = fd < 0 ? NULL : fdopen(fd, "rb");
    qm_status st = f ? QM_OK : qm_fail(QM_NO_MEMORY, "journal");
    *taken = 0;
    while (st == QM_OK && more) {
        struct record r;
        struct qm_outcome_words p = {0};
        more = journal_next(f, &r, &p);
        if (more && r.cell >= 0 && r.cell < n && wanted[r.cell] &&
            strcmp(r.id, w->id[r.cell]) == 0 &&
            qm_segment_add(&w->waiting, r.cell, r.id, r.seconds, &p) == QM_OK) {
            struct qm_segment_row *row = &w->waiting.row[w->waiting.rows - 1];
            is_failed = strcmp(row->status, "failed") == 0;
            if (is_failed && !failed) {
                w->waiting.words -= row->length;
                w->waiting.rows--;
                free(row->reason);
            } else {
                wanted[r.cell] = 0;
                ++*taken;
            }
        }
        qm_outcome_words_free(&p);
    }
    if (f)
        fclose(f);
    else if (fd >= 0)
        close(fd);
    if (st == QM_OK && w->waiting.rows > 0)
        st = qm_writer_segment(w);
    if (st == QM_OK && ftruncate(w->journal, 0) != 0)
        st = qm_fail(QM_BAD_FILE, "%s/%s.journal: cannot be written: %s", w->dir, w->shard,
                     strerror(errno));
    return st;
}

/* ---- the writer ---------------------------------------------------------------------------- */

qm_status qm_writer_open(const char *dir, const char *shard, char (*id)[QM_CELL_ID],
                         struct qm_writer *out)
{
    struct qm_writer w = {.dir = dir, .shard = shard, .id = id, .next_segment = 1, .journal = -1};
    QM_TRY(qm_ledger_open(dir, shard, &w.ledger));
    qm_status st = journal_open(&w);
    if (st == QM_OK)
        *out = w;
    else
        qm_writer_close(&w);
    return st;
}

void qm_writer_close(struct qm_writer *w)
{
    if (w->journal >= 0)
        close(w->journal);
    w->journal = -1;
    qm_ledger_close(&w->ledger);
    qm_segment_free(&w->waiting);
}

qm_status qm_writer_add(struct qm_writer *w, int64_t cell, double seconds,
                        struct qm_outcome_words *p, int *failed)
{
    QM_TRY(qm_segment_add(&w->waiting, cell, w->id[cell], seconds, p));
    const struct qm_segment_row *row = &w->waiting.row[w->waiting.rows - 1];
    *failed = strcmp(row->status, "failed") == 0;
    return journal_add(w, row);
}

qm_status qm_writer_segment(struct qm_writer *w)
{
    char name[64], path[1100], hash[65];
    if (w->waiting.rows == 0)
        return QM_OK;
    snprintf(name, sizeof name, "%s.%04d.h5", w->shard, w->next_segment);
    snprintf(path, sizeof path, "%s/%s", w->dir, name);
    QM_TRY(qm_segment_write(&w->waiting, path, hash));
    w->next_segment++;
    QM_TRY(qm_ledger_segment(&w->ledger, name, hash, &w->waiting));
    qm_segment_clear(&w->waiting);
    if (ftruncate(w->journal, 0) != 0) /* its cells are in the ledger too: that does no harm */
        return qm_fail(QM_BAD_FILE, "%s/%s.journal: %s", w->dir, w->shard, strerror(errno));
    return QM_OK;
}
