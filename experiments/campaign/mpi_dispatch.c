/* mpi_dispatch.c - MPI messages: rank 0 sends chunks of cells to the ranks that ask for them. */
#include <mpi.h>
#include <stdlib.h>
#include <unistd.h>

#include "experiments/campaign/mpi_dispatch.h"

enum { TAG_ASK = 1, TAG_LEAVE, TAG_CHUNK, NAP_US = 500 };

int qm_mpi_dispatch_begin(int *rank, int *size)
{
    int shard, shards;
    char from[64];
    if (!qm_shard_from_environment(&shard, &shards, from, sizeof from))
        return 0; /* a single process: MPI_Init would cost a second for nothing */
    if (MPI_Init(NULL, NULL) != MPI_SUCCESS)
        return 0;
    MPI_Comm_rank(MPI_COMM_WORLD, rank);
    MPI_Comm_size(MPI_COMM_WORLD, size);
    if (*size > 1)
        return 1;
    MPI_Finalize(); /* the launcher is not this MPI's: ranks become static shards */
    return 0;
}

void qm_mpi_dispatch_end(int failed)
{
    if (failed) /* other ranks may wait for this one */
        MPI_Abort(MPI_COMM_WORLD, failed);
    MPI_Finalize();
}

/* Waits for a message in naps; Open MPI's own waiting would occupy a core. */
static void wait_for(int source, MPI_Status *status)
{
    for (int there = 0;; usleep(NAP_US)) {
        MPI_Iprobe(source, MPI_ANY_TAG, MPI_COMM_WORLD, &there, status);
        if (there)
            return;
    }
}

/* Takes the next chunk: whole groups, until they cost 1 / (4 ranks) of what is left.  *cost:
 * seconds left. */
static int chunk(struct qm_queue *q, const struct qm_cell *cells, double *cost, int ranks,
                 int64_t *cell)
{
    double goal = *cost / (4.0 * ranks), taken = 0.0;
    int64_t group = -1;
    int n = 0;
    while (n < QM_CHUNK && q->left > 0) {
        if (n > 0 && taken >= goal && q->group[group].next == q->group[group].end)
            break; /* between groups only: the cells of one share a twin */
        cell[n] = qm_queue_take(q, &group);
        taken += qm_cell_cost(&cells[cell[n++]]);
    }
    *cost -= taken;
    return n;
}

void qm_mpi_dispatch_serve(struct qm_queue *q, const struct qm_cell *cells,
                           const volatile sig_atomic_t *stop, int size)
{
    int64_t cell[QM_CHUNK];
    double cost = 0.0;
    for (int64_t i = 0; i < q->n; i++)
        cost += qm_cell_cost(&cells[q->cell[i]]);
    for (int there = size - 1; there > 0;) {
        MPI_Status status;
        wait_for(MPI_ANY_SOURCE, &status);
        MPI_Recv(NULL, 0, MPI_INT64_T, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
        if (status.MPI_TAG == TAG_LEAVE) {
            there--;
            continue;
        }
        int n = *stop ? 0 : chunk(q, cells, &cost, size - 1, cell);
        MPI_Send(cell, n, MPI_INT64_T, status.MPI_SOURCE, TAG_CHUNK, MPI_COMM_WORLD);
    }
}

int qm_mpi_dispatch_ask(int64_t cell[QM_CHUNK])
{
    MPI_Status status;
    int n = 0;
    MPI_Send(NULL, 0, MPI_INT64_T, 0, TAG_ASK, MPI_COMM_WORLD);
    wait_for(0, &status);
    MPI_Recv(cell, QM_CHUNK, MPI_INT64_T, 0, TAG_CHUNK, MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, MPI_INT64_T, &n);
    return n;
}

void qm_mpi_dispatch_leave(void) { MPI_Send(NULL, 0, MPI_INT64_T, 0, TAG_LEAVE, MPI_COMM_WORLD); }
