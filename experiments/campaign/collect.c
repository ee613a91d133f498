/* collect.c - Reads the outcomes of all cells back from ledgers and segments, for the merge. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "experiments/campaign/campaign.h"
#include "experiments/campaign/folder.h"
#include "experiments/cli/cli.h"
#include "experiments/foreign/text_file.h"

/* QM_BAD_FILE unless suite.yaml is there and has the sum that campaign.json says ("": it says
 * none). */
static qm_status check_suite(const char *path, const char *sum)
{
    char own[65];
    int fd = -1;
    if (access(path, F_OK) != 0)
        return qm_fail(QM_BAD_FILE,
                       "%s: is gone; the same `qualm run` again writes it, and keeps the finished "
                       "cells",
                       path);
    QM_TRY(qm_folder_open_within(path, O_RDONLY, (off_t)QM_TEXT_MIB << 20, &fd));
    close(fd);
    QM_TRY(qm_file_hash(path, own));
    return !*sum || strcmp(own, sum) == 0
               ? QM_OK
               : qm_fail(QM_BAD_FILE,
                         "%s: is damaged, its sum is not that in campaign.json; the same `qualm "
                         "run` again writes it anew, and keeps the finished cells",
                         path);
}

qm_status qm_campaign_job(const char *dir, struct qm_loaded_suite *out)
{
    struct qm_campaign_head head;
    char path[1100], digest[65];
    *out = (struct qm_loaded_suite){0};
    QM_TRY(qm_campaign_head(dir, &head));
    snprintf(path, sizeof path, "%s/suite.yaml", dir);
    QM_TRY(check_suite(path, head.suite));
    const struct qm_loaded_suite_changes from = {.folder = head.folder};
    QM_TRY(qm_loaded_suite_open(path, &from, out));
    char(*id)[QM_CELL_ID] = calloc((size_t)out->n_cells + 1, sizeof *id);
    char *stem = strdup(head.name);
    qm_status st = id && stem ? qm_campaign_digest(out, id, digest)
                              : qm_fail(QM_NO_MEMORY, "%lld cells", (long long)out->n_cells);
    if (st == QM_OK && strcmp(digest, head.digest) != 0)
        st = qm_fail(QM_BAD_ARG, "%s: %s than when it was begun", dir,
                     *head.suite ? "its data have other names, order or contents"
                                 : "its suite means other cells, or other data,");
    free(id);
    if (st != QM_OK) {
        free(stem);
        return st;
    }
    free(out->suite->stem);
    out->suite->stem = stem;
    return QM_OK;
}

/* ---- cells --------------------------------------------------------------------------------- */

struct collection {
    const struct qm_loaded_suite *job;
    struct qm_ledger_index ledgers;
    int64_t *line; /* per cell: the ledger line that counts, or -1 */
    char (*id)[QM_CELL_ID];
};

/* The row of a cell in its segment: the one that the ledger says, or else the one that has its
 * number and id; NULL: there is none. */
static const struct qm_segment_row *row_of(const struct qm_segment *s,
                                           const struct qm_ledger_index_line *l)
{
    for (int64_t k = -1; k < s->rows; k++) {
        int64_t i = k < 0 ? l->row : k;
        if (i >= 0 && i < s->rows && s->row[i].cell == l->cell && strcmp(s->row[i].id, l->id) == 0)
            return &s->row[i];
    }
    return NULL;
}

/* Decodes the outcome of ledger line l from its segment s, which is whole: the digest must be
 * the segment's. */
static qm_status take(struct collection *c, const struct qm_ledger_index_line *l,
                      const struct qm_segment *s, struct qm_results *out)
{
    char digest[65];
    const struct qm_segment_row *r = row_of(s, l);
    const char *path = c->ledgers.segment[l->segment].path;
    if (!r)
        return qm_fail(QM_BAD_FILE,
                       "%s: has no cell %lld, as the ledger says; without this file the campaign "
                       "makes its cells anew",
                       path, (long long)l->cell);
    qm_outcome_words_digest(s->word + r->offset, r->length, r->reason, digest);
    if (strcmp(digest, r->digest) != 0)
        return qm_fail(QM_BAD_FILE,
                       "%s: cell %lld has not the digest that the segment says; without "
                       "this file the campaign makes its cells anew",
                       path, (long long)l->cell);
    out->seconds[l->cell] = r->seconds;
    return qm_outcome_decode(s->word + r->offset, r->length, r->reason, &out->outcome[l->cell]);
}

/* Ledger lines are ordered by segment, so each segment is read once. */
static qm_status read_segments(struct collection *c, struct qm_results *out)
{
    struct qm_segment s = {0};
    struct qm_progress progress;
    int open = -1;
    qm_status st = QM_OK;
    qm_progress_start(&progress, "merge", c->job->n_cells);
    for (int64_t i = 0; st == QM_OK && i < c->ledgers.n_lines; i++) {
        const struct qm_ledger_index_line *l = &c->ledgers.line[i];
        if (c->line[l->cell] != i)
            continue;
        if (l->segment != open) {
            qm_segment_free(&s);
            open = l->segment;
            st = qm_segment_read(c->ledgers.segment[open].path, &s);
        }
        if (st == QM_OK)
            st = take(c, l, &s, out);
        qm_progress_add(&progress, 1, 0);
    }
    qm_segment_free(&s);
    qm_progress_end(&progress);
    return st;
}

/* A cell that ran twice must have one result; lines of missing or damaged segments do not count. */
static qm_status check_doubles(const struct collection *c)
{
    for (int64_t i = 0; i < c->ledgers.n_lines; i++) {
        const struct qm_ledger_index_line *l = &c->ledgers.line[i], *best;
        if (c->line[l->cell] < 0 || l->failed || l->segment < 0 ||
            c->ledgers.segment[l->segment].state == QM_SEGMENT_damaged)
            continue;
        best = &c->ledgers.line[c->line[l->cell]];
        if (strcmp(l->id, c->id[l->cell]) == 0 && strcmp(l->digest, best->digest) != 0)
            return qm_fail(QM_BAD_FILE,
                           "cell %lld (%s) ran twice and gave two results: in %s and %s; without "
                           "one of these files the other counts",
                           (long long)l->cell, l->id, c->ledgers.segment[l->segment].path,
                           c->ledgers.segment[best->segment].path);
    }
    return QM_OK;
}

/* Every cell must have a line that counts. */
static qm_status check_whole(const struct collection *c)
{
    int64_t missing = 0, lost = 0;
    const char *damaged = NULL;
    for (int64_t i = 0; i < c->job->n_cells; i++)
        missing += c->line[i] < 0;
    for (int64_t i = 0; missing && i < c->ledgers.n_lines; i++) {
        const struct qm_ledger_index_line *l = &c->ledgers.line[i];
        if (c->line[l->cell] < 0 && l->segment >= 0) {
            damaged = c->ledgers.segment[l->segment].path;
            lost++;
        }
    }
    if (damaged)
        return qm_fail(QM_BAD_FILE,
                       "%s: is damaged or gone; running the campaign again makes its cells anew "
                       "(%lld of %lld are missing)",
                       damaged, (long long)missing, (long long)c->job->n_cells);
    if (missing)
        return qm_fail(QM_NO_MATCH, "%lld of %lld cells are not there yet", (long long)missing,
                       (long long)c->job->n_cells);
    return QM_OK;
}

static qm_status read_sources(struct qm_ledger_index *index, char *const *source, int n)
{
    for (int i = 0; i < n; i++) {
        struct stat info;
        int is_dir = stat(source[i], &info) == 0 && S_ISDIR(info.st_mode);
        QM_TRY(is_dir ? qm_ledger_index_read_all(index, source[i])
                      : qm_ledger_index_read(index, source[i]));
    }
    return QM_OK;
}

qm_status qm_campaign_collect(const struct qm_loaded_suite *job, char *const *source, int n_sources,
                              struct qm_results *out)
{
    size_t n = (size_t)job->n_cells + 1;
    struct collection c = {.job = job, .ledgers = {.cells = job->n_cells}};
    struct qm_results r = {.suite = job->suite, .cell = job->cells, .n_cells = job->n_cells};
    c.line = calloc(n, sizeof *c.line);
    c.id = calloc(n, sizeof *c.id);
    r.outcome = calloc(n, sizeof *r.outcome);
    r.seconds = calloc(n, sizeof *r.seconds);
    qm_status st = c.line && c.id && r.outcome && r.seconds
                       ? read_sources(&c.ledgers, source, n_sources)
                       : qm_fail(QM_NO_MEMORY, "%lld cells", (long long)job->n_cells);
    for (int64_t i = 0; st == QM_OK && i < job->n_cells; i++)
        qm_cell_id(job->suite, &job->cells[i], c.id[i]);
    if (st == QM_OK) {
        qm_ledger_index_check(&c.ledgers);
        st = qm_ledger_index_heal(&c.ledgers);
    }
    if (st == QM_OK) {
        qm_ledger_index_limit(&c.ledgers, job->n_cells);
        st = qm_ledger_index_resolve(&c.ledgers, job->n_cells, c.id, c.line);
    }
    if (st == QM_OK)
        st = check_doubles(&c);
    if (st == QM_OK)
        st = check_whole(&c);
    if (st == QM_OK)
        st = read_segments(&c, &r);
    if (st == QM_OK) /* a failure says what is wrong in its own line */
        qm_ledger_index_note(&c.ledgers, "");
    qm_ledger_index_free(&c.ledgers);
    free(c.line);
    free(c.id);
    if (st == QM_OK)
        *out = r;
    else
        qm_results_free(&r);
    return st;
}
