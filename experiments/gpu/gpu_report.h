/* gpu_report.h - A report of `qualm gpu-check`: its parts, their columns, its two files.
 *
 * A row is a JSON object with a member for each column that applies.  Its key columns name it
 * within its part; its status begins with
 *
 *     ok           it was measured; what was found is in the other columns
 *     failed       the call that failed, or the signal that ended the process
 *     out of memory
 *     timed out    it took longer than the limit of a row
 *     skipped      it does not apply here: no kernel, no such package
 *
 * A row of part codes whose ends of runs are right and whose other floats were not all compared
 * has a status that begins with QM_GPU_PART_OF_CODES: it is good, and --resume tries it again. */
#ifndef QM_EXPERIMENTS_GPU_GPU_REPORT_H
#define QM_EXPERIMENTS_GPU_GPU_REPORT_H

#include <jansson.h>

#include "core/base/status.h"

/* The states of a report that has begun; the last one, with the two ways in which it may have been
 * ended, a format of (way, missing tasks, all tasks). */
#define QM_GPU_STATE_begun    "begun"
#define QM_GPU_STATE_running  "running, or killed: gpu-check --resume goes on"
#define QM_GPU_STATE_complete "complete"
#define QM_GPU_STATE_ended    "%s: %d of %d tasks are missing; gpu-check --resume goes on"
#define QM_GPU_ENDED_stop     "interrupted"
#define QM_GPU_ENDED_time     "the time was over"

#define QM_GPU_PART_OF_CODES "ok at the ends of runs and inside"

/* clang-format off */
#define QM_GPU_PART_LIST(X) /* name, title, text */                                                \
    X(exact,  "The CPU's bits",                                                                    \
      "three steps of a recipe beside the CPU backend's, compared bit for bit")                    \
    X(speed,  "Speed",                                                                             \
      "steps of a large tensor between events; share_of_copy: of a copy within the device's memory") \
    X(codes,  "Every float",                                                                       \
      "codes of all 2^32 floats by the GPU against the defining search, every 4-bit search")       \
    X(check,  "Against the oracle", "qualm check on the GPU, exact and fast")                      \
    X(tables, "Many tensors",                                                                      \
      "steps of many small tensors: tables in memory, by value, or a launch for each")             \
    X(peers,  "Beside other optimizers",                                                           \
      "the same sizes and way of timing in the same run; ratio: our seconds over theirs")
/* clang-format on */

enum qm_gpu_part {
#define X(name, title, text) QM_GPU_##name,
    QM_GPU_PART_LIST(X)
#undef X
        QM_GPU_PARTS
};

const char *qm_gpu_part_name(enum qm_gpu_part part);
int qm_gpu_part_find(const char *name); /* -1: there is none of that name */

struct qm_gpu_column {
    const char *name;
    char type; /* t: text, i: whole number, b: yes or no, f: number */
    int is_key;
    const char *unit, *text;
};
/* The columns of a part, ended by one without a name. */
const struct qm_gpu_column *qm_gpu_columns(enum qm_gpu_part part);

/* Whether two rows of a part have equal keys. */
int qm_gpu_row_is_same(enum qm_gpu_part part, json_t *a, json_t *b);

/* The first figure of a row with status ok that must be there and is no finite number above 0, or
 * that may be there and is one that none can be (an occupancy above 1); NULL: there is none. */
const char *qm_gpu_row_flaw(enum qm_gpu_part part, json_t *row);

/* What a row says: good; bad (other bits, a wrong code, a verdict that failed); broken (it could
 * not be measured, has a flaw, or has no status); skipped. */
enum qm_gpu_verdict { QM_GPU_good, QM_GPU_bad, QM_GPU_broken, QM_GPU_skipped };
enum qm_gpu_verdict qm_gpu_row_verdict(enum qm_gpu_part part, json_t *row);

struct qm_gpu_report {
    json_t *device;             /* texts and numbers: name, driver, NVRTC, ... */
    json_t *plan;               /* texts and numbers: the options, and how many rows are missing */
    json_t *rows[QM_GPU_PARTS]; /* arrays */
};
void qm_gpu_report_free(struct qm_gpu_report *r);

/* The programs that timed the report's rows of peers, other than `now`: "`A`, `B`"; `was` where
 * there are no such rows.  The caller frees them; NULL: there is no memory. */
char *qm_gpu_report_programs(const struct qm_gpu_report *r, const char *was, const char *now);

/* Writes PATH.h5 and PATH.md, each of which is replaced whole: both can be read at every moment. */
qm_status qm_gpu_report_write(const struct qm_gpu_report *r, const char *path, int argc,
                              char **argv);

/* Reads PATH, a .h5 of qm_gpu_report_write, by a reader process; the caller frees it.  Every
 * row has its keys and a status, and every member its column's type.  QM_BAD_FILE: it is no such
 * file, or a damaged one: it must carry the digest of what it says; or as qm_gpu_report_agrees, or
 * its groups /device and /provenance contradict it. */
qm_status qm_gpu_report_read(const char *path, struct qm_gpu_report *out);

/* QM_BAD_FILE: "contradicts itself: ...": a rule of report_agrees.c does not hold between the plan,
 * the rows and their figures.  One of another commit than this program's, which may have other
 * tasks, is not compared with the tasks of this one. */
qm_status qm_gpu_report_agrees(const struct qm_gpu_report *r);

/* Makes the folder, and a name for a report in it that no file and no other process has:
 * FOLDER/nvidia-h200-all-2026-11-20-153000, by device, parts and time (UTC).  *lock: as
 * qm_gpu_report_lock gives it; path without .h5. */
qm_status qm_gpu_report_name(const char *folder, const char *device, const char *parts, char *path,
                             size_t size, int *lock);

/* Locks a report for writing, by PATH.lock: *fd is -1 where another process has it.  The lock ends
 * with the process.  QM_BAD_FILE: the folder cannot be written.  _unlock accepts -1. */
qm_status qm_gpu_report_lock(const char *path, int *fd);
void qm_gpu_report_unlock(const char *path, int fd);

/* Removes what killed writers of a report have left (PATH.h5.PID.part, PATH.md.PID.part).  The
 * caller holds its lock. */
void qm_gpu_report_sweep(const char *path);

/* The same for every report of the folder that has a lock which nobody holds, and removes the
 * locks.  The caller holds none. */
void qm_gpu_report_sweep_folder(const char *folder);

/* Where there is no file at `path`, the .h5 of a report: follows the report that was begun under
 * that name and got another one in the same folder, when its GPU had answered (text QM_GPU_BEGUN_AS
 * of its plan).  1: path is now that of the report. */
#define QM_GPU_BEGUN_AS "begun_as"
int qm_gpu_report_follow(char *path, size_t size);

/* The newest report of the folder, as its .h5.  QM_NO_MATCH: there is none. */
qm_status qm_gpu_report_newest(const char *folder, char *path, size_t size);

/* Prints reports side by side as a page in Markdown: a column for each file. */
qm_status qm_gpu_report_beside(FILE *f, char **files, int n);

/* QM_BAD_ARG: `was`, the device of the report at `path`, is not `is`: the message has every fact
 * that differs. */
qm_status qm_gpu_report_same_device(json_t *was, json_t *is, const char *path);

/* Takes over into `was` what NVML says now, where it answers, and whether it does. */
void qm_gpu_report_renew(json_t *was, json_t *is);

#endif
