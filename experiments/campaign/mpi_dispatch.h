/* mpi_dispatch.h - Distribution of cells over MPI ranks at run time (`make MPI=1`).
 *
 * Rank 0 runs no cells: it sends chunks to the ranks that ask, large ones first and smaller ones
 * towards the end, and merges when all have left.  Each other rank keeps a ledger, as a shard does.
 * mpi_dispatch_none.c takes its place where the program was built without MPI. */
#ifndef QM_CAMPAIGN_MPI_DISPATCH_H
#define QM_CAMPAIGN_MPI_DISPATCH_H

#include <signal.h>

#include "experiments/campaign/queue.h"

enum { QM_CHUNK = 512 }; /* cells of a chunk, at most */

/* Whether mpirun or srun started this process with others that this program's MPI can reach; then
 * MPI runs, and rank and size are set.  qm_mpi_dispatch_end finalizes MPI, or with failed != 0
 * aborts all ranks with that exit code. */
int qm_mpi_dispatch_begin(int *rank, int *size);
void qm_mpi_dispatch_end(int failed);

/* Rank 0: sends the queue's cells until every other rank has left.  Once *stop is not 0, none
 * are sent. */
void qm_mpi_dispatch_serve(struct qm_queue *q, const struct qm_cell *cells,
                           const volatile sig_atomic_t *stop, int size);

/* Other ranks: asks for a chunk.  Returns the number of cells, 0 when there are no more. */
int qm_mpi_dispatch_ask(int64_t cell[QM_CHUNK]);
/* Other ranks: tells rank 0 that this rank runs no more cells.  Once per rank, also after
 * a failure. */
void qm_mpi_dispatch_leave(void);

#endif
