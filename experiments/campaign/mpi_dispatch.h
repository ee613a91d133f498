/* mpi_dispatch.h - cells dealt by one of several processes that MPI started together (`make MPI=1`).
 *
 * Rank 0 runs no cells: it hands chunks to whoever asks, large ones first and smaller ones towards
 * the end, and merges when all have left.  The other ranks keep a ledger each, as shards do.
 * mpi_dispatch_none.c stands in where the program was built without MPI. */
#ifndef QM_CAMPAIGN_MPI_DISPATCH_H
#define QM_CAMPAIGN_MPI_DISPATCH_H

#include <signal.h>

#include "experiments/campaign/queue.h"

enum { QM_CHUNK = 512 }; /* cells of a chunk, at most */

/* Whether mpirun or srun started this process with others, and this program can talk to them: then
 * MPI is running and rank and size are set.  qm_mpi_dispatch_end ends it; with failed, an exit code, of all
 * processes. */
int qm_mpi_dispatch_begin(int *rank, int *size);
void qm_mpi_dispatch_end(int failed);

/* Rank 0: deals the queue out until every other rank has left. *stop not 0: nobody gets more. */
void qm_mpi_dispatch_out(struct qm_queue *q, const struct qm_cell *cells,
                         const volatile sig_atomic_t *stop, int size);

/* The others: asks for a chunk; how many cells came, 0: there is no more. */
int qm_mpi_dispatch_ask(int64_t cell[QM_CHUNK]);
/* Once, when it runs no more cells, whether rank 0 said that there are none or not. */
void qm_mpi_dispatch_leave(void);

#endif
