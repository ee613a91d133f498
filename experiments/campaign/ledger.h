/* ledger.h - Ledgers: which cells a campaign has finished, in append-only JSON lines per shard.
 *
 *     {"session": "0.1.0 006dc84", "host": "n1", "pid": 4711, "started": "...", "workers": 2}
 *     {"segment": "1of2.0001.h5", "sha256": "...", "cells": 512}
 *     {"cell": 17, "id": "0123456789abcdef", "status": "ok", "segment": "1of2.0001.h5", "row": 0,
 *      "digest": "...", "seconds": 0.21}
 *
 * Each line ends with "sum", the first 16 hex digits of the SHA-256 of the line before it; one
 * without it is damaged.  A segment's lines are appended and flushed to the disk after the segment
 * is in place: a cell is finished when its line exists and its segment's file has the hash
 * of the segment's line.  A line that was cut off or damaged is ignored; what it said is read back
 * from its segment where that is whole, by this hash or by its own checksum. */
#ifndef QM_CAMPAIGN_LEDGER_H
#define QM_CAMPAIGN_LEDGER_H

#include <sys/types.h>

#include "experiments/campaign/segment.h"

/* ---- appending ------------------------------------------------------------------------------- */

struct qm_ledger {
    int fd; /* locked; -1: closed */
    char *path;
    off_t size; /* of the whole lines */
};

/* The most bytes that a ledger of so many cells may have: 4 KiB for each, which is room for a dozen
 * runs of it, and 64 MiB for sessions.  0 cells: their number is not known; 2^20 are assumed. */
off_t qm_ledger_most(int64_t cells);

/* Opens or makes DIR/SHARD.jsonl, locks it and cuts off a half line at its end.  QM_BAD_FILE:
 * another runner holds it, it cannot be written, or it is larger than qm_ledger_most. */
qm_status qm_ledger_open(const char *dir, const char *shard, struct qm_ledger *out);
void qm_ledger_close(struct qm_ledger *l); /* accepts a zeroed one */

/* Whether a runner holds the lock of a ledger now. */
int qm_ledger_is_held(const char *path);

/* Appends n bytes of lines, each with its newline: afterwards all are on the disk, or none
 * is there. */
qm_status qm_ledger_append(struct qm_ledger *l, const char *lines, size_t n);

/* Appends the line of a session, or the lines of a segment just written: its own, then
 * its cells'. */
qm_status qm_ledger_session(struct qm_ledger *l, int workers);
qm_status qm_ledger_segment(struct qm_ledger *l, const char *name, const char *hash,
                            const struct qm_segment *s);

/* The sum of a line: of its n bytes before `,"sum"`. */
enum { QM_LEDGER_SUM = 17 };
void qm_ledger_line_sum(const char *line, size_t n, char out[QM_LEDGER_SUM]);

/* ---- reading --------------------------------------------------------------------------------- */

enum qm_segment_state { QM_SEGMENT_unchecked, QM_SEGMENT_whole, QM_SEGMENT_damaged };

struct qm_ledger_index_segment {
    char *path, hash[65]; /* hash: "" where cells name it and no line declares it */
    int64_t cells;        /* that it should have; -1: not known */
    enum qm_segment_state state;
};

struct qm_ledger_index_line {
    int64_t cell, row;
    int segment; /* in the index */
    int failed;
    const char *status; /* ok, skipped, diverged or failed; static */
    double seconds;
    char id[QM_CELL_ID], digest[65];
};

/* The lines of some ledgers.  Starts as {0}, or with `cells` alone. */
struct qm_ledger_index {
    int64_t cells; /* of the campaign, which bounds a ledger's size; 0: not known */
    int64_t n_lines, room, bad_lines, segment_room;
    int64_t n_healed; /* lines that were read back from segments */
    struct qm_ledger_index_line *line;
    int n_segments, n_ledgers, n_programs, n_held;
    struct qm_ledger_index_segment *segment;
    char program
        [96]; /* of the last session read; n_programs counts its changes, the first included */
};

/* Adds one ledger; its segments lie in its folder.  QM_BAD_FILE: it cannot be read, or it is larger
 * than qm_ledger_most.  A line of more than 64 KiB counts as damaged. */
qm_status qm_ledger_index_read(struct qm_ledger_index *index, const char *path);
/* Adds every ledger in a folder.  QM_NO_MATCH: there is none. */
qm_status qm_ledger_index_read_all(struct qm_ledger_index *index, const char *dir);
void qm_ledger_index_free(struct qm_ledger_index *index);

/* Hashes every segment, sets its state, and returns how many are missing or damaged. */
int qm_ledger_index_check(struct qm_ledger_index *index);

/* Adds the lines that whole segments should have and the ledgers lack, from the segments. */
qm_status qm_ledger_index_heal(struct qm_ledger_index *index);

/* Notes on stderr how many lines are damaged and how many cells were read back, where there are
 * any; `rest` ends the line. */
void qm_ledger_index_note(const struct qm_ledger_index *index, const char *rest);

/* Drops the lines of cells outside 0 to n - 1, and counts them as damaged. */
void qm_ledger_index_limit(struct qm_ledger_index *index, int64_t n);

/* Sets line[n]: for each cell the line that counts, or -1.  Only lines with the cell's id (id NULL:
 * with any id) and a segment that is not damaged are considered; the first that did not fail
 * counts, else the last. */
qm_status qm_ledger_index_resolve(const struct qm_ledger_index *index, int64_t n,
                                  char (*id)[QM_CELL_ID], int64_t *line);

#endif
