/* pool.h - deals cells to workers and puts what comes back into segments. */
#ifndef QM_EXPERIMENTS_CAMPAIGN_POOL_H
#define QM_EXPERIMENTS_CAMPAIGN_POOL_H

#include "experiments/campaign/campaign.h"
#include "experiments/campaign/queue.h"
#include "experiments/campaign/writer.h"

struct qm_pool {
    const struct qm_loaded_suite *job;
    const struct qm_campaign_options *o;
    const volatile sig_atomic_t *stop;
    struct qm_queue *queue;
    struct qm_writer *writer;
    int64_t ran, failed;
};

/* Runs the queue empty.  QM_INTERRUPTED as qm_campaign_run; what is finished is in segments whatever
 * comes out, unless the disk refused it. */
qm_status qm_pool_run(struct qm_pool *p);

#endif
