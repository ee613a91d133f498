/* mpi_dispatch_none.c - mpi_dispatch.h for builds without MPI: there are no other ranks. */
#include "experiments/campaign/mpi_dispatch.h"

int qm_mpi_dispatch_begin(int *rank, int *size)
{
    (void)rank;
    (void)size;
    return 0;
}

void qm_mpi_dispatch_end(int failed) { (void)failed; }

void qm_mpi_dispatch_serve(struct qm_queue *q, const struct qm_cell *cells,
                           const volatile sig_atomic_t *stop, int size)
{
    (void)q;
    (void)cells;
    (void)stop;
    (void)size;
}

int qm_mpi_dispatch_ask(int64_t cell[QM_CHUNK])
{
    (void)cell;
    return 0;
}

void qm_mpi_dispatch_leave(void) {}
