/* queue.h - Estimated costs of cells, their division into shards, the order in which they run. */
#ifndef QM_CAMPAIGN_QUEUE_H
#define QM_CAMPAIGN_QUEUE_H

#include "experiments/suite/suite.h"

/* The estimated seconds of one core for a cell, good to a factor of about ten.  The estimate
 * decides the shares of shards and whether a campaign is worthwhile; results do not depend
 * on it. */
double qm_cell_cost(const struct qm_cell *c);

/* Cells that run in succession in one process because they share a twin, or a single cell. */
struct qm_cell_group {
    int64_t next, end; /* range of queue.cell that is not yet taken */
    double cost;       /* seconds */
};

struct qm_queue {
    int64_t n, n_groups, n_returned, left; /* left: not yet taken, returned ones included */
    int64_t n_begun;                       /* the first n_begun groups have been taken from */
    int64_t *cell;                         /* n of them, group by group */
    int64_t *returned;                     /* taken, but not run; they are taken again first */
    struct qm_cell_group *group;           /* the most expensive first */
};

/* The queue of shard `shard` (from 0) of `shards`.  Groups, the most expensive first, each go to
 * the shard with the least cost so far; a group above 1 / (8 shards) of the total cost is
 * split.  The shards depend on the cells alone, not on the number of workers; cells with
 * wanted[cell] = 0 (n bytes, or NULL: all are wanted) are left out after the shards are made. */
qm_status qm_queue_open(const struct qm_cell *cells, int64_t n, int shard, int shards,
                        const char *wanted, struct qm_queue *out);
void qm_queue_close(struct qm_queue *q);

/* The next cell for a worker that last took from *group (-1: from none), or -1 when none is left: a
 * returned cell, else one of its group, of a group not begun, of the group with most cells left. */
int64_t qm_queue_take(struct qm_queue *q, int64_t *group);
void qm_queue_return(struct qm_queue *q, int64_t cell);

/* "1/4" sets *shard = 0 and *shards = 4.  QM_BAD_ARG. */
qm_status qm_shard_parse(const char *text, int *shard, int *shards);

/* The shard that the environment gives this process: an array task of Slurm, a rank of srun, Open
 * MPI or PMI, or both (tasks x ranks shards).  Returns 0 when there is none, else 1, and from[]
 * names the source. */
int qm_shard_from_environment(int *shard, int *shards, char *from, size_t size);

#endif
