/* campaign.c - the folder of a campaign: beginning, going on, throwing away. */
#include "experiments/campaign/campaign.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "experiments/campaign/deal.h"
#include "core/base/sha256.h"
#include "experiments/campaign/pool.h"
#include "experiments/cli.h"
#include "experiments/part.h"
#include "experiments/provenance.h"

enum { FORMAT = 1 };

void qm_campaign_dir(const char *out, char *dir, size_t size)
{
    size_t n = strlen(out);
    n -= n > 3 && strcmp(out + n - 3, ".h5") == 0 ? 3 : 0;
    snprintf(dir, size, "%.*s.run", (int)n, out);
}

void qm_campaign_out(const char *out, const char *dir, char *path, size_t size)
{
    size_t n = strlen(dir);
    while (n > 1 && dir[n - 1] == '/')
        n--;
    n -= n > 4 && strncmp(dir + n - 4, ".run", 4) == 0 ? 4 : 0;
    if (out)
        snprintf(path, size, "%s", out);
    else
        snprintf(path, size, "%.*s.h5", (int)n, dir);
}

static void in_dir(const char *dir, const char *name, char *path, size_t size)
{
    snprintf(path, size, "%s/%s", dir, name);
}

int qm_campaign_exists(const char *dir)
{
    char path[1100];
    in_dir(dir, "campaign.json", path, sizeof path);
    return access(path, F_OK) == 0;
}

/* ---- what is run --------------------------------------------------------------------------- */

static qm_status add_data(const struct qm_suite *s, struct qm_sha256 *h)
{
    for (int i = 0; i < s->n_data; i++) {
        glob_t found = {0};
        qm_status st = QM_OK;
        glob(s->data[i], 0, NULL, &found);
        for (size_t k = 0; st == QM_OK && k < found.gl_pathc; k++) {
            char hash[65];
            const char *slash = strrchr(found.gl_pathv[k], '/');
            const char *name = slash ? slash + 1 : found.gl_pathv[k];
            if ((st = qm_file_hash(found.gl_pathv[k], hash)) == QM_OK) {
                qm_sha256_add(h, name, strlen(name) + 1);
                qm_sha256_add(h, hash, sizeof hash);
            }
        }
        globfree(&found);
        QM_TRY(st);
    }
    return QM_OK;
}

qm_status qm_campaign_digest(const struct qm_job *job, char (*id)[QM_CELL_ID], char out[65])
{
    struct qm_sha256 h;
    qm_sha256_start(&h);
    qm_sha256_add(&h, job->suite->plan, strlen(job->suite->plan) + 1);
    for (int64_t i = 0; i < job->n_cells; i++) {
        qm_cell_id(job->suite, &job->cells[i], id[i]);
        qm_sha256_add(&h, id[i], QM_CELL_ID);
    }
    if (qm_suite_wants_data(job->suite))
        QM_TRY(add_data(job->suite, &h));
    qm_sha256_hex(&h, out);
    return QM_OK;
}

static qm_status write_file(const char *dir, const char *name, const char *text)
{
    char path[1100];
    struct qm_part part;
    in_dir(dir, name, path, sizeof path);
    QM_TRY(qm_part_open(path, &part));
    qm_status st = qm_part_write(&part, text, strlen(text));
    if (st == QM_OK)
        st = qm_part_commit(&part);
    if (st != QM_OK)
        qm_part_abort(&part);
    return st;
}

static qm_status head_write(const char *dir, const struct qm_job *job, const char *digest)
{
    json_t *v = json_pack("{s:i, s:s, s:s, s:I}", "qualm_campaign", FORMAT, "name",
                          job->suite->stem, "digest", digest, "cells", (json_int_t)job->n_cells);
    char *text = v ? json_dumps(v, JSON_INDENT(1)) : NULL;
    json_decref(v);
    if (!text)
        return qm_fail(QM_NO_MEMORY, "campaign.json");
    qm_status st = write_file(dir, "suite.yaml", job->suite->plan);
    if (st == QM_OK)
        st = write_file(dir, "campaign.json", text); /* last: it says that the rest is there */
    free(text);
    return st;
}

qm_status qm_campaign_head(const char *dir, struct qm_campaign_head *out)
{
    char path[1100];
    in_dir(dir, "campaign.json", path, sizeof path);
    if (access(path, F_OK) != 0)
        return qm_fail(QM_NO_MATCH, "%s: no campaign in it", dir);
    json_t *v = json_load_file(path, 0, NULL);
    const char *name = json_string_value(json_object_get(v, "name"));
    const char *digest = json_string_value(json_object_get(v, "digest"));
    qm_status st = QM_OK;
    if (json_integer_value(json_object_get(v, "qualm_campaign")) != FORMAT || !name || !digest)
        st = qm_fail(QM_BAD_FILE, "%s: is damaged, or of another version", path);
    if (st == QM_OK) {
        snprintf(out->name, sizeof out->name, "%s", name);
        snprintf(out->digest, sizeof out->digest, "%s", digest);
        out->cells = json_integer_value(json_object_get(v, "cells"));
    }
    json_decref(v);
    return st;
}

/* ---- the folder ---------------------------------------------------------------------------- */

static void remove_all(const char *dir, const char *pattern)
{
    char path[1100];
    glob_t found = {0};
    in_dir(dir, pattern, path, sizeof path);
    if (glob(path, 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; i++)
            unlink(found.gl_pathv[i]);
    globfree(&found);
}

void qm_campaign_remove(const char *dir)
{
    static const char *const patterns[] = {"campaign.json*", "suite.yaml*",  "*of*.jsonl",
                                           "*of*.log",       "*of*.journal", "array.sh",
                                           "merge.sh",       "slurm-*.out",  "*of*.????.h5",
                                           "*of*.h5.*.part", "lock"};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        remove_all(dir, patterns[i]);
    rmdir(dir);
}

/* Held while a campaign is begun, so that of two the second one checks. */
static qm_status lock_dir(const char *dir, int *out)
{
    char path[1100];
    in_dir(dir, "lock", path, sizeof path);
    if (mkdir(dir, 0777) != 0 && errno != EEXIST)
        return qm_fail(QM_BAD_FILE, "%s: cannot be made: %s", dir, strerror(errno));
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return qm_fail(QM_BAD_FILE, "%s: cannot be written: %s", dir, strerror(errno));
    while (flock(fd, LOCK_EX) != 0 && errno == EINTR)
        ;
    *out = fd;
    return QM_OK;
}

static int is_at_work(const char *dir)
{
    struct qm_book b = {0};
    int held = qm_book_read_all(&b, dir) == QM_OK && b.n_held > 0;
    qm_book_free(&b);
    return held;
}

/* Begins, or checks that what was begun is the same. */
static qm_status begin(const struct qm_job *job, const char *dir, int fresh, const char *digest)
{
    struct qm_campaign_head head;
    int lock = -1;
    QM_TRY(lock_dir(dir, &lock));
    qm_status st = QM_OK;
    if (fresh && is_at_work(dir))
        st = qm_fail(QM_BAD_FILE, "%s: another run is at work in it", dir);
    else if (fresh)
        qm_campaign_remove(dir);
    if (st == QM_OK && fresh) {
        close(lock); /* it went with the folder */
        QM_TRY(lock_dir(dir, &lock));
    }
    if (st == QM_OK && !qm_campaign_exists(dir))
        st = head_write(dir, job, digest);
    if (st == QM_OK)
        st = qm_campaign_head(dir, &head);
    if (st == QM_OK && strcmp(head.digest, digest) != 0)
        st = qm_fail(QM_BAD_ARG,
                     "%s: was begun with another suite or other data (%s, %lld cells; now %lld); "
                     "--fresh throws it away, --out names another place",
                     dir, head.name, (long long)head.cells, (long long)job->n_cells);
    close(lock);
    return st;
}

qm_status qm_campaign_begin(const struct qm_job *job, const char *dir, int fresh)
{
    char digest[65];
    char(*id)[QM_CELL_ID] = calloc((size_t)job->n_cells + 1, sizeof *id);
    qm_status st = id ? qm_campaign_digest(job, id, digest)
                      : qm_fail(QM_NO_MEMORY, "%lld cells", (long long)job->n_cells);
    if (st == QM_OK)
        st = begin(job, dir, fresh, digest);
    free(id);
    return st;
}

/* ---- a shard ------------------------------------------------------------------------------- */

struct shard {
    char name[32];
    char (*id)[QM_CELL_ID];
    struct qm_writer writer;
    struct qm_book book;
    int64_t *line; /* of every cell */
    char *wanted;
    struct qm_queue queue;
};

static void shard_close(struct shard *s)
{
    qm_writer_close(&s->writer);
    qm_book_free(&s->book);
    qm_queue_close(&s->queue);
    free(s->id);
    free(s->line);
    free(s->wanted);
}

/* Leftovers of a run that was killed: halves of segments, and segments without a line. */
static void tidy(const char *dir, const struct shard *s)
{
    char pattern[80], path[1100];
    glob_t found = {0};
    snprintf(pattern, sizeof pattern, "%s.*.h5.*.part", s->name);
    remove_all(dir, pattern);
    snprintf(pattern, sizeof pattern, "%s.????.h5", s->name);
    in_dir(dir, pattern, path, sizeof path);
    if (glob(path, 0, NULL, &found) != 0)
        return;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        int known = 0;
        for (int k = 0; k < s->book.n_segments && !known; k++)
            known = strcmp(s->book.segment[k].path, found.gl_pathv[i]) == 0;
        if (!known)
            unlink(found.gl_pathv[i]);
    }
    globfree(&found);
}

/* Numbers of segments that are damaged or gone are not used again. */
static void number_segments(struct shard *s)
{
    for (int k = 0; k < s->book.n_segments; k++) {
        const char *slash = strrchr(s->book.segment[k].path, '/');
        const char *name = slash ? slash + 1 : s->book.segment[k].path;
        size_t n = strlen(s->name);
        int number;
        if (strncmp(name, s->name, n) == 0 && sscanf(name + n, ".%d", &number) == 1 &&
            number >= s->writer.next_segment)
            s->writer.next_segment = number + 1;
    }
}

/* Tells of damage that costs cells, once per segment. */
static void note_damage(const struct shard *s)
{
    for (int k = 0; k < s->book.n_segments; k++) {
        int64_t lost = 0;
        if (s->book.segment[k].state != QM_SEGMENT_damaged)
            continue;
        for (int64_t i = 0; i < s->book.n_lines; i++)
            lost += s->book.line[i].segment == k && s->line[s->book.line[i].cell] < 0;
        if (lost)
            qm_note("%s: is damaged or gone; its %lld cells are run again", s->book.segment[k].path,
                    (long long)lost);
    }
    if (s->book.bad_lines)
        qm_note("%lld damaged lines in the ledgers: those cells are run again",
                (long long)s->book.bad_lines);
}

/* What all ledgers of the folder have, verified. */
static qm_status read_books(const struct qm_job *job, const struct qm_campaign_options *o,
                            struct shard *s)
{
    char program[96];
    QM_TRY(qm_book_read_all(&s->book, o->dir));
    qm_book_check(&s->book);
    for (int64_t i = 0; i < s->book.n_lines; i++)
        if (s->book.line[i].cell < 0 || s->book.line[i].cell >= job->n_cells)
            return qm_fail(QM_BAD_FILE, "%s: its ledgers name cells that the suite does not have",
                           o->dir);
    QM_TRY(qm_book_resolve(&s->book, job->n_cells, s->id, s->line));
    note_damage(s);
    snprintf(program, sizeof program, "%s %s", qm_version(), qm_commit());
    if (s->book.n_programs > 0 && strcmp(program, s->book.program) != 0)
        qm_note("%s: was begun by qualm %s, this is %s", o->dir, s->book.program, program);
    for (int64_t i = 0; i < job->n_cells; i++)
        s->wanted[i] = s->line[i] < 0 || (o->retry_failed && s->book.line[s->line[i]].failed);
    return QM_OK;
}

/* Ids, folder, and room; the caller closes s whatever comes out. */
static qm_status shard_begin(const struct qm_job *job, const struct qm_campaign_options *o,
                             struct shard *s)
{
    size_t n = (size_t)job->n_cells + 1;
    char digest[65];
    snprintf(s->name, sizeof s->name, "%dof%d", o->shard + 1, o->shards);
    s->id = calloc(n, sizeof *s->id);
    s->line = calloc(n, sizeof *s->line);
    s->wanted = calloc(n, 1);
    if (!s->id || !s->line || !s->wanted)
        return qm_fail(QM_NO_MEMORY, "%lld cells", (long long)job->n_cells);
    QM_TRY(qm_campaign_digest(job, s->id, digest));
    return begin(job, o->dir, o->fresh, digest);
}

static qm_status shard_open(const struct qm_job *job, const struct qm_campaign_options *o,
                            struct shard *s)
{
    QM_TRY(shard_begin(job, o, s));
    QM_TRY(qm_writer_open(o->dir, s->name, s->id, &s->writer));
    QM_TRY(read_books(job, o, s));
    tidy(o->dir, s);
    number_segments(s);
    int64_t taken = 0;
    QM_TRY(qm_writer_recover(&s->writer, job->n_cells, s->wanted, !o->retry_failed, &taken));
    if (taken)
        qm_note("%lld cells were found in the journal of a run that was killed", (long long)taken);
    if (o->dealt)
        memset(s->wanted, 0, (size_t)job->n_cells); /* the queue has room, and begins empty */
    return qm_queue_open(job->cells, job->n_cells, o->dealt ? 0 : o->shard,
                         o->dealt ? 1 : o->shards, s->wanted, &s->queue);
}

/* The folder as a whole, after this shard. */
static qm_status count_all(const struct qm_job *job, const struct qm_campaign_options *o,
                           struct shard *s, struct qm_campaign_count *out)
{
    struct qm_book b = {0};
    qm_status st = qm_book_read_all(&b, o->dir);
    for (int k = 0; st == QM_OK && k < b.n_segments; k++)
        for (int old = 0; old < s->book.n_segments; old++) /* hashed at the start: not again */
            if (strcmp(b.segment[k].path, s->book.segment[old].path) == 0 &&
                strcmp(b.segment[k].hash, s->book.segment[old].hash) == 0)
                b.segment[k].state = s->book.segment[old].state;
    if (st == QM_OK)
        st = qm_book_resolve(&b, job->n_cells, s->id, s->line);
    out->all_cells = job->n_cells;
    for (int64_t i = 0; st == QM_OK && i < job->n_cells; i++) {
        out->all_done += s->line[i] >= 0;
        out->all_failed += s->line[i] >= 0 && b.line[s->line[i]].failed;
    }
    qm_book_free(&b);
    return st;
}

qm_status qm_campaign_run(const struct qm_job *job, const struct qm_campaign_options *o,
                          const volatile sig_atomic_t *stop, struct qm_campaign_count *out)
{
    struct shard s = {.writer = {.journal = -1, .ledger = {.fd = -1}}};
    *out = (struct qm_campaign_count){0};
    qm_status st = shard_open(job, o, &s);
    if (st == QM_OK && (s.queue.n > 0 || o->dealt)) {
        struct qm_pool pool = {job, o, stop, &s.queue, &s.writer, 0, 0};
        out->todo = s.queue.n;
        st = qm_ledger_session(&s.writer.ledger, o->workers);
        if (st == QM_OK)
            st = qm_pool_run(&pool);
        out->ran = pool.ran;
        out->failed = pool.failed;
    }
    if (st == QM_OK)
        st = count_all(job, o, &s, out);
    shard_close(&s);
    return st;
}

qm_status qm_campaign_deal(const struct qm_job *job, const struct qm_campaign_options *o,
                           const volatile sig_atomic_t *stop, struct qm_campaign_count *out)
{
    struct shard s = {.writer = {.journal = -1, .ledger = {.fd = -1}}};
    *out = (struct qm_campaign_count){0};
    qm_status st = shard_begin(job, o, &s);
    if (st == QM_OK && (st = read_books(job, o, &s)) == QM_NO_MATCH) {
        memset(s.wanted, 1, (size_t)job->n_cells); /* no ledger yet */
        st = QM_OK;
    }
    if (st == QM_OK)
        st = qm_queue_open(job->cells, job->n_cells, 0, 1, s.wanted, &s.queue);
    out->todo = s.queue.n;
    qm_deal_out(&s.queue, job->cells, stop, o->shards); /* in any case: the others wait for it */
    if (st == QM_OK && *stop && s.queue.left > 0)
        st = qm_fail(QM_INTERRUPTED, "interrupted; the same command goes on");
    if (st == QM_OK)
        st = count_all(job, o, &s, out);
    shard_close(&s);
    return st;
}
