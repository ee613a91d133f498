/* pool.h - Runs a queue of cells on worker processes, and writes their outcomes to segments. */
#ifndef QM_CAMPAIGN_POOL_H
#define QM_CAMPAIGN_POOL_H

#include "experiments/campaign/campaign.h"
#include "experiments/campaign/queue.h"
#include "experiments/campaign/writer.h"

struct qm_pool {
    const struct qm_loaded_suite *job;
    const struct qm_campaign_options *o;
    const volatile sig_atomic_t *stop;
    struct qm_queue *queue;
    struct qm_writer *writer;
    int64_t ran, failed; /* results: cells with an outcome, and those that failed */
};

/* Runs all cells of the queue.  QM_INTERRUPTED as qm_campaign_run.  Finished cells are in segments
 * whatever is returned, unless the disk refused them. */
qm_status qm_pool_run(struct qm_pool *p);

#endif
