/* campaign.c - Runs one shard of a campaign: finds what is done, runs the rest, counts. */
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
    struct qm_ledger_index ledgers;
    int64_t *line; /* per cell: the ledger line that counts, or -1 */
    char *wanted;  /* per cell: 1 when it is still to run */
    struct qm_queue queue;
};

static void shard_close(struct shard *s)
{
    qm_writer_close(&s->writer);
    qm_ledger_index_free(&s->ledgers);
    qm_queue_close(&s->queue);
    free(s->id);
    free(s->line);
    free(s->wanted);
}

double qm_campaign_memory(int workers)
{
    double bytes = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    return 0.8 * bytes / 1048576.0 / (double)workers;
}

/* Removes what a killed run left behind: halves of segments, and segments without a ledger line. */
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
        for (int k = 0; k < s->ledgers.n_segments && !known; k++)
            known = strcmp(s->ledgers.segment[k].path, found.gl_pathv[i]) == 0;
        if (!known)
            unlink(found.gl_pathv[i]);
    }
    globfree(&found);
}

/* Numbers the next segment after every one that a ledger names, damaged and missing
 * ones included. */
static void number_segments(struct shard *s)
{
    for (int k = 0; k < s->ledgers.n_segments; k++) {
        const char *slash = strrchr(s->ledgers.segment[k].path, '/');
        const char *name = slash ? slash + 1 : s->ledgers.segment[k].path;
        size_t n = strlen(s->name);
        int number;
        if (strncmp(name, s->name, n) == 0 && sscanf(name + n, ".%d", &number) == 1 &&
            number >= s->writer.next_segment)
            s->writer.next_segment = number + 1;
    }
}

/* Notes on stderr each damaged segment whose cells must run again. */
static void note_damage(const struct shard *s)
{
    for (int k = 0; k < s->ledgers.n_segments; k++) {
        int64_t lost = 0;
        if (s->ledgers.segment[k].state != QM_SEGMENT_damaged)
            continue;
        for (int64_t i = 0; i < s->ledgers.n_lines; i++)
            lost += s->ledgers.line[i].segment == k && s->line[s->ledgers.line[i].cell] < 0;
        if (lost)
            qm_note("%s: is damaged or gone; its %lld cells are run again",
                    s->ledgers.segment[k].path, (long long)lost);
    }
    qm_ledger_index_note(&s->ledgers, ", others are run again");
}

/* Reads and verifies all ledgers of the folder; marks the cells that they leave to run. */
static qm_status read_ledgers(const struct qm_loaded_suite *job,
                              const struct qm_campaign_options *o, struct shard *s)
{
    char program[96];
    s->ledgers.cells = job->n_cells;
    QM_TRY(qm_ledger_index_read_all(&s->ledgers, o->dir));
    qm_ledger_index_check(&s->ledgers);
    QM_TRY(qm_ledger_index_heal(&s->ledgers));
    qm_ledger_index_limit(&s->ledgers, job->n_cells);
    QM_TRY(qm_ledger_index_resolve(&s->ledgers, job->n_cells, s->id, s->line));
    note_damage(s);
    snprintf(program, sizeof program, "%s %s", qm_version(), qm_commit());
    if (s->ledgers.n_programs > 0 && strcmp(program, s->ledgers.program) != 0)
        qm_note("%s: was begun by qualm %s, this is %s", o->dir, s->ledgers.program, program);
    for (int64_t i = 0; i < job->n_cells; i++)
        s->wanted[i] = s->line[i] < 0 || (o->retry_failed && s->ledgers.line[s->line[i]].failed);
    return QM_OK;
}

/* Computes the cells' ids and makes or checks the folder.  The caller closes s in any case. */
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
    QM_TRY(read_ledgers(job, o, s));
    tidy(o->dir, s);
    number_segments(s);
    int64_t taken = 0;
    QM_TRY(qm_writer_recover(&s->writer, job->n_cells, s->wanted, !o->retry_failed, &taken));
    if (taken)
        qm_note("%lld cells were found in the journal of a run that was killed", (long long)taken);
    if (o->dispatched)
        memset(s->wanted, 0, (size_t)job->n_cells); /* rank 0 sends them: the queue begins empty */
    return qm_queue_open(job->cells, job->n_cells, o->dispatched ? 0 : o->shard,
                         o->dispatched ? 1 : o->shards, s->wanted, &s->queue);
}

/* Counts the cells of the whole folder, other shards included, after this shard has run. */
static qm_status count_all(const struct qm_loaded_suite *job, const struct qm_campaign_options *o,
                           struct shard *s, struct qm_campaign_count *out)
{
    struct qm_ledger_index index = {.cells = job->n_cells};
    qm_status st = qm_ledger_index_read_all(&index, o->dir);
    for (int k = 0; st == QM_OK && k < index.n_segments; k++)
        for (int old = 0; old < s->ledgers.n_segments; old++) /* hashed at the start */
            if (strcmp(index.segment[k].path, s->ledgers.segment[old].path) == 0 &&
                strcmp(index.segment[k].hash, s->ledgers.segment[old].hash) == 0)
                index.segment[k].state = s->ledgers.segment[old].state;
    if (st == QM_OK)
        st = qm_ledger_index_heal(&index);
    if (st == QM_OK)
        st = qm_ledger_index_resolve(&index, job->n_cells, s->id, s->line);
    out->all_cells = job->n_cells;
    for (int64_t i = 0; st == QM_OK && i < job->n_cells; i++) {
        out->all_done += s->line[i] >= 0;
        out->all_failed += s->line[i] >= 0 && index.line[s->line[i]].failed;
    }
    qm_ledger_index_free(&index);
    return st;
}

qm_status qm_campaign_run(const struct qm_loaded_suite *job, const struct qm_campaign_options *o,
                          const volatile sig_atomic_t *stop, struct qm_campaign_count *out)
{
    struct shard s = {.writer = {.journal = -1, .ledger = {.fd = -1}}};
    *out = (struct qm_campaign_count){0};
    qm_status st = shard_open(job, o, &s);
    if (st == QM_OK && (s.queue.n > 0 || o->dispatched)) {
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

qm_status qm_campaign_dispatch(const struct qm_loaded_suite *job,
                               const struct qm_campaign_options *o,
                               const volatile sig_atomic_t *stop, struct qm_campaign_count *out)
{
    struct shard s = {.writer = {.journal = -1, .ledger = {.fd = -1}}};
    *out = (struct qm_campaign_count){0};
    qm_status st = shard_begin(job, o, &s);
    if (st == QM_OK && (st = read_ledgers(job, o, &s)) == QM_NO_MATCH) {
        memset(s.wanted, 1, (size_t)job->n_cells); /* no ledger yet */
        st = QM_OK;
    }
    if (st == QM_OK)
        st = qm_queue_open(job->cells, job->n_cells, 0, 1, s.wanted, &s.queue);
    out->todo = s.queue.n;
    /* after a failure too: the other ranks wait for an answer */
    qm_mpi_dispatch_serve(&s.queue, job->cells, stop, o->shards);
    if (st == QM_OK && *stop && s.queue.left > 0)
        st = qm_fail(QM_INTERRUPTED, "interrupted; the same command goes on");
    if (st == QM_OK)
        st = count_all(job, o, &s, out);
    shard_close(&s);
    return st;
}
