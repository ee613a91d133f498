/* queue.h - what cells cost, which shard they belong to, and who gets which next. */
#ifndef QM_EXPERIMENTS_CAMPAIGN_QUEUE_H
#define QM_EXPERIMENTS_CAMPAIGN_QUEUE_H

#include "experiments/suite/suite.h"

/* About how many seconds of one core a cell takes: within a factor of ten or so on the machines at
 * hand.  It decides shares and when a campaign is worth it, never a result. */
double qm_cell_cost(const struct qm_cell *c);

/* Cells that run next to each other in one process because they share a twin (or alone). */
struct qm_cell_group {
    int64_t next, end; /* of queue.cell: those not yet taken */
    double cost;
};

struct qm_queue {
    int64_t n, n_groups, n_returned, left; /* left: not yet taken, returned ones included */
    int64_t n_begun;                       /* groups that somebody took from: the first ones */
    int64_t *cell;                         /* by group */
    int64_t *returned;                     /* taken, but not run: they come first */
    struct qm_cell_group *group;           /* the dearest first */
};

/* Shard `shard` of `shards` (from 0): whole groups, each to the shard with the least to do so far,
 * the dearest first; a group that alone is more than a quarter of a share (of shards x workers) is
 * split.  A pure function of the cells, but for wanted[] (n bytes, or NULL: all): cells of 0 are
 * left out after the shards are made.  The same shards for any number of workers. */
qm_status qm_queue_open(const struct qm_cell *cells, int64_t n, int shard, int shards,
                        const char *wanted, struct qm_queue *out);
void qm_queue_close(struct qm_queue *q);

/* The next cell for a worker that took from *group last (-1: from none), or -1 when none is left:
 * returned cells first, then its own group, a fresh one, the one with most left. */
int64_t qm_queue_take(struct qm_queue *q, int64_t *group);
void qm_queue_return(struct qm_queue *q, int64_t cell);

/* "1/4": *shard 0 to shards - 1.  QM_BAD_ARG. */
qm_status qm_shard_parse(const char *text, int *shard, int *shards);

/* The shard that a launcher has given this process through its environment: array tasks of Slurm,
 * ranks of srun, Open MPI and PMI, tasks times ranks.  0: none has; else 1, and from[] says who. */
int qm_shard_from_environment(int *shard, int *shards, char *from, size_t size);

#endif
