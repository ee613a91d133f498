/* worker.c - The worker's side: runs cells one after the other and replies to the runner. */
#include "experiments/campaign/worker.h"
#include "core/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <omp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "experiments/campaign/outcome_codec.h"
#include "experiments/cli/cli.h"
#include "experiments/run/suite_load.h"

static volatile sig_atomic_t leaving;

static void on_leave(int number)
{
    (void)number;
    leaving = 1;
}

/* Returns 0 when the runner is gone. */
static int send_all(const void *data, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t wrote = write(QM_WORKER_REPLY_FD, (const char *)data + at, n - at);
        if (wrote < 0 && errno != EINTR)
            return 0;
        at += wrote > 0 ? (size_t)wrote : 0;
    }
    return 1;
}

static int send(int64_t cell, double seconds, const struct qm_outcome_words *p)
{
    static const char zeros[8];
    size_t n = p->text ? strlen(p->text) : 0, pad = 8 - n % 8;
    struct qm_worker_reply reply = {cell, p->n, p->text ? (int64_t)(n + pad) : 0, seconds};
    return send_all(&reply, sizeof reply) &&
           send_all(p->word, (size_t)reply.words * sizeof *p->word) &&
           (!p->text || (send_all(p->text, n) && send_all(zeros, pad)));
}

/* Runs one cell and encodes its outcome; an error becomes a failed outcome. */
static qm_status run(struct qm_loaded_suite *job, int64_t cell, struct qm_metrics *m,
                     struct qm_twin_cache *twins, double *seconds, struct qm_outcome_words *p)
{
    struct qm_outcome o = {0};
    double start = qm_seconds();
    qm_status st = qm_loaded_suite_load(job, &job->cells[cell]);
    if (st == QM_OK)
        st = qm_lockstep_run(&job->cells[cell], m, twins, NULL, &o);
    *seconds = qm_seconds() - start;
    if (st != QM_OK) {
        o.failed = 1;
        free(o.reason);
        o.reason = strdup(qm_message());
    }
    st = qm_outcome_encode(&o, p);
    qm_outcome_free(&o);
    return st;
}

/* Reads the next cell number.  Returns 0 at the end of the input, or when a signal ends
 * the wait. */
static int next(int64_t *cell)
{
    size_t at = 0;
    while (at < sizeof *cell) {
        if (leaving && at == 0)
            return 0;
        ssize_t n = read(STDIN_FILENO, (char *)cell + at, sizeof *cell - at);
        if (n == 0 || (n < 0 && errno != EINTR))
            return 0;
        at += n > 0 ? (size_t)n : 0;
    }
    return 1;
}

static qm_status work(struct qm_loaded_suite *job)
{
    struct qm_metrics *m = qm_metrics_open(QM_METRICS_full);
    struct qm_worker_reply hello = {QM_WORKER_HELLO, job->n_cells, 0, 0.0},
                           bye = {QM_WORKER_BYE, 0, 0, 0.0};
    struct qm_twin_cache *twins = NULL;
    int64_t cell;
    qm_status st = m ? qm_twin_cache_open(0, &twins) : qm_fail(QM_NO_MEMORY, "metrics");
    int there = st == QM_OK && send_all(&hello, sizeof hello);
    while (st == QM_OK && there && next(&cell)) {
        struct qm_outcome_words p = {0};
        double seconds = 0.0;
        if (cell < 0 || cell >= job->n_cells)
            st = qm_fail(QM_INTERNAL, "there is no cell %lld", (long long)cell);
        else
            st = run(job, cell, m, twins, &seconds, &p);
        there = st == QM_OK && send(cell, seconds, &p);
        qm_outcome_words_free(&p);
        if (leaving)
            break;
    }
    if (st == QM_OK && there)
        send_all(&bye, sizeof bye);
    qm_twin_cache_close(twins);
    qm_metrics_close(m);
    return st;
}

int qm_campaign_worker(int argc, char **argv)
{
    struct sigaction act = {.sa_handler =
                                on_leave}; /* without SA_RESTART a signal ends a read at once */
    struct qm_loaded_suite job = {0};
    if (argc != 2) {
        fputs("qualm: this command is for `qualm run` to start\n", stderr);
        return qm_exit_code(QM_BAD_ARG);
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* this process dies with its runner */
    sigemptyset(&act.sa_mask);
    sigaction(SIGUSR1, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    sigaction(SIGINT, &act, NULL);
    omp_set_num_threads(1);
    qm_status st = qm_loaded_suite_open(argv[1], NULL, &job);
    if (st == QM_OK)
        st = work(&job);
    qm_loaded_suite_close(&job);
    return st == QM_OK ? 0 : qm_cli_failed(QM_CAMPAIGN_WORKER, st);
}
