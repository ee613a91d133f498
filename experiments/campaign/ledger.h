/* ledger.h - what a campaign has done: one file of JSON lines per shard, only ever appended to.
 *
 *     {"session": "0.1.0 006dc84", "host": "n1", "pid": 4711, "started": "...", "workers": 2}
 *     {"segment": "1of2.0001.h5", "sha256": "...", "cells": 512}
 *     {"cell": 17, "id": "0123456789abcdef", "status": "ok", "segment": "1of2.0001.h5", "row": 0,
 *      "digest": "...", "seconds": 0.21}
 *
 * A segment's lines are appended, and flushed to the disk, when the segment is in place: a cell is
 * finished when its line is there and its segment has the line's hash.  A line that was cut off or
 * damaged counts as not there. */
#ifndef QM_EXPERIMENTS_CAMPAIGN_LEDGER_H
#define QM_EXPERIMENTS_CAMPAIGN_LEDGER_H

#include <sys/types.h>

#include "experiments/campaign/segment.h"

/* ---- appending ------------------------------------------------------------------------------- */

struct qm_ledger {
    int fd; /* locked */
    char *path;
    off_t size;
};

/* Opens or makes DIR/SHARD.jsonl, cuts off a half line at its end.  QM_BAD_FILE: another runner
 * holds it, or it cannot be written. */
qm_status qm_ledger_open(const char *dir, const char *shard, struct qm_ledger *out);
void qm_ledger_close(struct qm_ledger *l); /* accepts a zeroed one */

/* Whether a runner holds it now. */
int qm_ledger_is_held(const char *path);

/* Lines, each with its newline; all of them are on the disk afterwards, or none is there. */
qm_status qm_ledger_append(struct qm_ledger *l, const char *lines, size_t n);

/* The lines of a session, and of a segment just written with its cells. */
qm_status qm_ledger_session(struct qm_ledger *l, int workers);
qm_status qm_ledger_segment(struct qm_ledger *l, const char *name, const char *hash,
                            const struct qm_segment *s);

/* ---- reading --------------------------------------------------------------------------------- */

enum qm_segment_state { QM_SEGMENT_unchecked, QM_SEGMENT_whole, QM_SEGMENT_damaged };

struct qm_ledger_index_segment {
    char *path, hash[65];
    int64_t cells;
    enum qm_segment_state state;
};

struct qm_ledger_index_line {
    int64_t cell, row;
    int segment; /* of the book; -1: the ledger names none such */
    int failed;
    const char *status; /* static */
    double seconds;
    char id[QM_CELL_ID], digest[65];
};

/* All that some ledgers say. */
struct qm_ledger_index {
    int64_t n_lines, room, bad_lines;
    struct qm_ledger_index_line *line;
    int n_segments, segment_room, n_ledgers, n_programs, n_held;
    struct qm_ledger_index_segment *segment;
    char program[96]; /* of the last session read; n_programs: how many different ones in turn */
};

/* Adds one ledger; its segments lie beside it. */
qm_status qm_ledger_index_read(struct qm_ledger_index *b, const char *path);
/* Adds every ledger in a folder.  QM_NO_MATCH: there is none. */
qm_status qm_ledger_index_read_all(struct qm_ledger_index *b, const char *dir);
void qm_ledger_index_free(struct qm_ledger_index *b);

/* Hashes every segment; returns how many are missing or damaged. */
int qm_ledger_index_check(struct qm_ledger_index *b);

/* Leaves out the lines of cells outside 0 to n - 1: they are damaged. */
void qm_ledger_index_limit(struct qm_ledger_index *b, int64_t n);

/* For each of n cells the line to go by, or -1: its segment whole; the first that did not fail,
 * else the last.  Lines whose id is not the cell's are left out.  id may be NULL: not compared. */
qm_status qm_ledger_index_resolve(const struct qm_ledger_index *b, int64_t n,
                                  char (*id)[QM_CELL_ID], int64_t *line);

#endif
