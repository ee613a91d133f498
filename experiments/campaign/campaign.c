/* campaign.c - one shard of a campaign: what is done, what is to do, doing it. */
#include "experiments/campaign/campaign.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experiments/campaign/folder.h"
#include "experiments/campaign/mpi_dispatch.h"
#include "experiments/campaign/pool.h"
#include "experiments/cli/cli.h"
#include "experiments/machine/provenance.h"

struct shard {
    char name[32];
    char (*id)[QM_CELL_ID];
    struct qm_writer writer;
    struct qm_ledger_index book;
    int64_t *line; /* of every cell */
    char *wanted;
    struct qm_queue queue;
};

static void shard_close(struct shard *s)
{
    qm_writer_close(&s->writer);
    qm_ledger_index_free(&s->book);
    qm_queue_close(&s->queue);
    free(s->id);
    free(s->line);
    free(s->wanted);
}

/* Leftovers of a run that was killed: halves of segments, and segments without a line. */
static void tidy(const char *dir, const struct shard *s)
{
    char pattern[80];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s.*.h5.*.part", s->name);
    qm_folder_clear(dir, pattern);
    snprintf(pattern, sizeof pattern, "%s.*.h5", s->name);
    int failed = qm_folder_glob(dir, pattern, &found);
    for (size_t i = 0; !failed && i < found.gl_pathc; i++) {
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
static qm_status read_books(const struct qm_loaded_suite *job, const struct qm_campaign_options *o,
                            struct shard *s)
{
    char program[96];
    QM_TRY(qm_ledger_index_read_all(&s->book, o->dir));
    qm_ledger_index_check(&s->book);
    qm_ledger_index_limit(&s->book, job->n_cells);
    QM_TRY(qm_ledger_index_resolve(&s->book, job->n_cells, s->id, s->line));
    note_damage(s);
    snprintf(program, sizeof program, "%s %s", qm_version(), qm_commit());
    if (s->book.n_programs > 0 && strcmp(program, s->book.program) != 0)
        qm_note("%s: was begun by qualm %s, this is %s", o->dir, s->book.program, program);
    for (int64_t i = 0; i < job->n_cells; i++)
        s->wanted[i] = s->line[i] < 0 || (o->retry_failed && s->book.line[s->line[i]].failed);
    return QM_OK;
}

/* Ids, folder, and room; the caller closes s whatever comes out. */
static qm_status shard_begin(const struct qm_loaded_suite *job, const struct qm_campaign_options *o,
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
    return qm_folder_begin(job, o->dir, o->fresh, digest);
}

static qm_status shard_open(const struct qm_loaded_suite *job, const struct qm_campaign_options *o,
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
static qm_status count_all(const struct qm_loaded_suite *job, const struct qm_campaign_options *o,
                           struct shard *s, struct qm_campaign_count *out)
{
    struct qm_ledger_index b = {0};
    qm_status st = qm_ledger_index_read_all(&b, o->dir);
    for (int k = 0; st == QM_OK && k < b.n_segments; k++)
        for (int old = 0; old < s->book.n_segments; old++) /* hashed at the start: not again */
            if (strcmp(b.segment[k].path, s->book.segment[old].path) == 0 &&
                strcmp(b.segment[k].hash, s->book.segment[old].hash) == 0)
                b.segment[k].state = s->book.segment[old].state;
    if (st == QM_OK)
        st = qm_ledger_index_resolve(&b, job->n_cells, s->id, s->line);
    out->all_cells = job->n_cells;
    for (int64_t i = 0; st == QM_OK && i < job->n_cells; i++) {
        out->all_done += s->line[i] >= 0;
        out->all_failed += s->line[i] >= 0 && b.line[s->line[i]].failed;
    }
    qm_ledger_index_free(&b);
    return st;
}

qm_status qm_campaign_run(const struct qm_loaded_suite *job, const struct qm_campaign_options *o,
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

qm_status qm_campaign_deal(const struct qm_loaded_suite *job, const struct qm_campaign_options *o,
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
    qm_mpi_dispatch_out(&s.queue, job->cells, stop,
                        o->shards); /* in any case: the others wait for it */
    if (st == QM_OK && *stop && s.queue.left > 0)
        st = qm_fail(QM_INTERRUPTED, "interrupted; the same command goes on");
    if (st == QM_OK)
        st = count_all(job, o, &s, out);
    shard_close(&s);
    return st;
}
