/* segment.c - Writes and reads segments: files of finished cells. */
#include "experiments/campaign/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/grow.h"
#include "core/base/sha256.h"
#include "experiments/campaign/folder.h"
#include "experiments/run/run_cells.h"
#include "experiments/store/result_reader.h"

/* ---- in memory ----------------------------------------------------------------------------- */

/* The status (qm_outcome_status) of an encoded outcome. */
static qm_status status_of(const struct qm_outcome_words *p, const char **out)
{
    struct qm_outcome o;
    qm_status st = qm_outcome_decode(p->word, p->n, p->text, &o);
    if (st != QM_OK)
        return st == QM_BAD_FILE ? qm_fail(QM_BAD_ARG, "these words are no outcome") : st;
    *out = qm_outcome_status(&o);
    qm_outcome_free(&o);
    return QM_OK;
}

qm_status qm_segment_add(struct qm_segment *s, int64_t cell, const char *id, double seconds,
                         struct qm_outcome_words *p)
{
    struct qm_segment_row r = {cell, s->words, p->n, seconds, "", NULL, "", ""};
    QM_TRY(status_of(p, &r.status));
    QM_TRY(qm_grow((void **)&s->row, &s->row_room, s->rows + 1, sizeof *s->row));
    QM_TRY(qm_grow((void **)&s->word, &s->word_room, s->words + p->n, sizeof *s->word));
    snprintf(r.id, sizeof r.id, "%s", id);
    qm_outcome_words_digest(p->word, p->n, p->text, r.digest);
    r.reason = p->text;
    p->text = NULL;
    memcpy(s->word + s->words, p->word, (size_t)p->n * sizeof *s->word);
    s->words += p->n;
    s->row[s->rows++] = r;
    return QM_OK;
}

void qm_segment_clear(struct qm_segment *s)
{
    for (int64_t i = 0; i < s->rows; i++)
        free(s->row[i].reason);
    s->rows = s->words = 0;
}

void qm_segment_free(struct qm_segment *s)
{
    qm_segment_clear(s);
    free(s->row);
    free(s->word);
    *s = (struct qm_segment){0};
}

/* ---- writing ------------------------------------------------------------------------------- */

enum { COLUMNS = 7 };

/* Integer columns share one allocation, text columns another. */
static qm_status store_cells(const struct qm_segment *s, struct qm_store *store)
{
    size_t n = (size_t)(s->rows > 0 ? s->rows : 1);
    int64_t *cell = calloc(2 * n, sizeof *cell), *has = cell ? cell + n : NULL;
    double *seconds = calloc(n, sizeof *seconds);
    const char **text = calloc(4 * n, sizeof *text);
    qm_status st = cell && seconds && text ? QM_OK : qm_fail(QM_NO_MEMORY, "a segment");
    for (int64_t i = 0; st == QM_OK && i < s->rows; i++) {
        const struct qm_segment_row *r = &s->row[i];
        cell[i] = r->cell;
        has[i] = r->reason != NULL;
        seconds[i] = r->seconds;
        text[i] = r->id;
        text[n + (size_t)i] = r->status;
        text[2 * n + (size_t)i] = r->reason ? r->reason : "";
        text[3 * n + (size_t)i] = r->digest;
    }
    if (st == QM_OK) {
        const struct qm_column column[COLUMNS] = {
            {"cell", QM_COLUMN_i64, "1", "number of the cell in the plan", cell},
            {"id", QM_COLUMN_text, "", "its id", text},
            {"status", QM_COLUMN_text, "", "ok, skipped, diverged or failed", text + n},
            {"reason", QM_COLUMN_text, "", "why a cell was skipped or failed", text + 2 * n},
            {"has_reason", QM_COLUMN_i64, "1", "whether there is one", has},
            {"digest", QM_COLUMN_text, "", "SHA-256 of words and reason", text + 3 * n},
            {"seconds", QM_COLUMN_f64, "s", "wall time", seconds},
        };
        st = qm_store_table(store, "/cells", "finished cells", s->rows, COLUMNS, column);
    }
    free(cell);
    free(seconds);
    free(text);
    return st;
}

static qm_status store_words(const struct qm_segment *s, struct qm_store *store)
{
    size_t n = (size_t)(s->rows > 0 ? s->rows : 1);
    struct qm_shape rows = {1, {s->rows}}, words = {1, {s->words}};
    int64_t *offset = calloc(2 * n, sizeof *offset), *length = offset ? offset + n : NULL;
    if (!offset)
        return qm_fail(QM_NO_MEMORY, "a segment");
    for (int64_t i = 0; i < s->rows; i++) {
        offset[i] = s->row[i].offset;
        length[i] = s->row[i].length;
    }
    qm_status st = qm_store_array(store, "/outcome/word", QM_DTYPE_i64, &words, s->word, "1",
                                  "outcomes as 64-bit words (integers and doubles)", NULL);
    if (st == QM_OK)
        st = qm_store_array(store, "/outcome/offset", QM_DTYPE_i64, &rows, offset, "1",
                            "first word of each row", NULL);
    if (st == QM_OK)
        st = qm_store_array(store, "/outcome/length", QM_DTYPE_i64, &rows, length, "1",
                            "words of each row", NULL);
    free(offset);
    return st;
}

qm_status qm_file_hash(const char *path, char out[65])
{
    enum { BLOCK = 1 << 18 };
    int fd = -1;
    QM_TRY(qm_folder_open(path, O_RDONLY, &fd));
    struct qm_sha256 h;
    char *block = malloc(BLOCK);
    ssize_t n = block ? 1 : -1;
    qm_sha256_start(&h);
    while (n > 0 && (n = read(fd, block, BLOCK)) > 0)
        qm_sha256_add(&h, block, (size_t)n);
    free(block);
    close(fd);
    if (n < 0)
        return qm_fail(QM_BAD_FILE, "%s: cannot be read", path);
    qm_sha256_hex(&h, out);
    return QM_OK;
}

qm_status qm_segment_write(const struct qm_segment *s, const char *path, char hash[65])
{
    struct qm_store *store = NULL;
    QM_TRY(qm_store_open(path, "segment", 0, NULL, &store));
    qm_status st = store_cells(s, store);
    if (st == QM_OK)
        st = store_words(s, store);
    if (st != QM_OK) {
        qm_store_abort(store);
        return st;
    }
    QM_TRY(qm_store_commit(store));
    return qm_file_hash(path, hash);
}

/* ---- reading ------------------------------------------------------------------------------- */

struct columns {
    int64_t *cell, *has;
    double *seconds;
    char **id, **status, **reason, **digest;
    struct qm_tensor word, offset, length;
};

static qm_status columns_read(struct qm_result *r, struct columns *c, int64_t *n)
{
    QM_TRY(qm_result_i64(r, "/cells", "cell", n, &c->cell));
    QM_TRY(qm_result_i64(r, "/cells", "has_reason", n, &c->has));
    QM_TRY(qm_result_f64(r, "/cells", "seconds", n, &c->seconds));
    QM_TRY(qm_result_texts(r, "/cells", "id", n, &c->id));
    QM_TRY(qm_result_texts(r, "/cells", "status", n, &c->status));
    QM_TRY(qm_result_texts(r, "/cells", "reason", n, &c->reason));
    QM_TRY(qm_result_texts(r, "/cells", "digest", n, &c->digest));
    QM_TRY(qm_result_array(r, "/outcome/word", &c->word));
    QM_TRY(qm_result_array(r, "/outcome/offset", &c->offset));
    return qm_result_array(r, "/outcome/length", &c->length);
}

static int is_line(const struct qm_tensor *t, int64_t n)
{
    return t->dtype == QM_DTYPE_i64 && t->shape.rank == 1 && (n < 0 || t->shape.dim[0] == n);
}

/* Moves the words from c to s and builds the rows.  QM_BAD_FILE: a row points outside the words. */
static qm_status rows_take(struct columns *c, int64_t n, struct qm_segment *s)
{
    if (!is_line(&c->word, -1) || !is_line(&c->offset, n) || !is_line(&c->length, n))
        return qm_fail(QM_BAD_FILE, "its outcomes have another shape than its cells");
    const int64_t *offset = c->offset.data, *length = c->length.data;
    s->words = s->word_room = c->word.shape.dim[0];
    s->word = c->word.data;
    c->word.data = NULL;
    s->row = calloc((size_t)(n > 0 ? n : 1), sizeof *s->row);
    if (!s->row)
        return qm_fail(QM_NO_MEMORY, "%lld cells", (long long)n);
    s->row_room = n;
    for (int64_t i = 0; i < n; i++) {
        struct qm_segment_row *r = &s->row[s->rows++];
        if (offset[i] < 0 || length[i] < 0 || offset[i] > s->words ||
            length[i] > s->words - offset[i])
            return qm_fail(QM_BAD_FILE, "row %lld lies outside its words", (long long)i);
        const char *status = qm_outcome_status_of(c->status[i]);
        *r = (struct qm_segment_row){.cell = c->cell[i],
                                     .offset = offset[i],
                                     .length = length[i],
                                     .seconds = c->seconds[i],
                                     .status = status ? status : ""};
        snprintf(r->id, sizeof r->id, "%s", c->id[i]);
        snprintf(r->digest, sizeof r->digest, "%s", c->digest[i]);
        if (c->has[i] && !(r->reason = strdup(c->reason[i])))
            return qm_fail(QM_NO_MEMORY, "a cell's reason");
    }
    return QM_OK;
}

qm_status qm_segment_read(const char *path, struct qm_segment *out)
{
    struct qm_result *r = NULL;
    struct columns c = {0};
    int64_t n = 0;
    qm_status st = qm_result_open(path, &r);
    if (st == QM_OK)
        st = columns_read(r, &c, &n);
    if (st == QM_OK && (st = rows_take(&c, n, out)) != QM_OK)
        qm_fail_in(st, path);
    free(c.cell);
    free(c.has);
    free(c.seconds);
    free(c.id);
    free(c.status);
    free(c.reason);
    free(c.digest);
    free(c.word.data);
    free(c.offset.data);
    free(c.length.data);
    qm_result_close(r);
    return st == QM_OK || st == QM_NO_MEMORY ? st : QM_BAD_FILE;
}
