/* gpu_run.h - Measures the tasks of gpu-check in processes of their own, and keeps the report.
 *
 * A group of tasks runs in a forked process, because an error of a GPU ends everything that its
 * process still does there.  The parent never touches the driver: it holds no context, and it can
 * fork.  A row that fails, crashes or takes too long is a row that says so; the next task gets a
 * new process.  After two such rows of a group its others are not run.  The report is written at
 * most half a second after a row came. */
#ifndef QM_EXPERIMENTS_GPU_GPU_RUN_H
#define QM_EXPERIMENTS_GPU_GPU_RUN_H

#include <limits.h>
#include <signal.h>

#include "core/cuda/cuda_apart.h"
#include "experiments/gpu/gpu_tasks.h"

struct qm_gpu_run {
    struct qm_gpu_options options;
    double seconds; /* from `started` to the end of the run; 0: without limit */
    const volatile sig_atomic_t *stop;
    size_t flush_bytes; /* read between rounds; for the peers */
    struct qm_gpu_tasks tasks;
    struct qm_gpu_report report; /* device and plan are filled by the caller */
    char path[PATH_MAX];         /* of the files, without .h5 and .md */
    int nvml_has_failed;         /* it is asked no more; device has the reason */
    int lock;                    /* of the report; -1: not locked */
    int argc;
    char **argv;
    double started, written; /* qm_seconds(): of the call, by the caller; of the last writing */
    int is_changed;          /* rows came since */
};

/* The seconds that are left of the run, at least 0 and at most `most`. */
double qm_gpu_run_left(const struct qm_gpu_run *run, double most);

/* Describes the GPU in a process of its own: *device gets its name, driver and NVRTC; n and
 * flush_bytes of the run are set.  QM_SKIPPED: there is none, with the reason; QM_INTERNAL: the
 * process crashed, took more than the limit of a row, or a call in it more than qm_cuda_limit;
 * QM_INTERRUPTED: the run's time was over before; QM_BAD_ARG: $QM_CUDA_DEVICE or $QM_CUDA_LIMIT is
 * no number. */
qm_status qm_gpu_describe(struct qm_gpu_run *run, json_t **device);

/* The seconds that an answer of NVML may take: 5, or less by qm_cuda_limit, and at most a quarter
 * of the limit of a row. */
double qm_gpu_nvml_limit(const struct qm_gpu_run *run);

/* Writes a report without rows, of which the plan says this state. */
qm_status qm_gpu_run_begun(struct qm_gpu_run *run, const char *state);

/* Measures the open tasks, first those without a row, then those that could not be measured before.
 * QM_INTERRUPTED: tasks are left, because *stop was set or the time is over.  The report is written
 * in any case; QM_BAD_FILE: it could not be. */
qm_status qm_gpu_run_tasks(struct qm_gpu_run *run);

/* ---- gpu_child.c: a forked process that sends lines of JSON ---------------------------------- */

struct qm_gpu_child {
    pid_t pid;         /* 0: there is none */
    int fd, is_closed; /* is_closed: the process has closed its end */
    char *line;
    size_t used, room;
    struct qm_cuda_calls *calls;
};

/* Forks a process that calls work(of, fd) and leaves; its stdout is this one's stderr.  It and all
 * that it starts die with its parent, and what it leaves behind is ended with it. */
qm_status qm_gpu_child_start(struct qm_gpu_child *c, void (*work)(void *of, int fd), void *of);
void qm_gpu_child_send(int fd, json_t *value); /* releases the value */

enum qm_gpu_wait { QM_GPU_WAIT_line, QM_GPU_WAIT_ended, QM_GPU_WAIT_late, QM_GPU_WAIT_stopped };

/* Waits for a line until the clock (qm_seconds) shows `until`.  line: the caller owns *value. */
enum qm_gpu_wait qm_gpu_child_wait(struct qm_gpu_child *c, double until,
                                   const volatile sig_atomic_t *stop, json_t **value);

/* text[size]: ", in cuLaunchKernel" where a call of the driver has not returned, else "". */
const char *qm_gpu_child_call(const struct qm_gpu_child *c, char *text, size_t size);

/* Kills the process and does not wait, so that several end at once. */
void qm_gpu_child_kill(const struct qm_gpu_child *c);

/* Ends the process, and says how it had ended by itself.  A process that the driver does not let go
 * is left behind after some seconds, which `how` says. */
void qm_gpu_child_end(struct qm_gpu_child *c, char *how, size_t size);

/* ---- gpu_ahead.c: compiling for the tasks to come -------------------------------------------- */

enum { QM_GPU_AHEAD = 12 }; /* most processes */

/* Starts options.ahead processes, each of which compiles the kernels of a share of the open tasks
 * into the cache, in their order; c[QM_GPU_AHEAD].  Returns how many; 0 where there is no cache.
 * The caller ends them. */
int qm_gpu_ahead_start(const struct qm_gpu_run *run, struct qm_gpu_child *c);

/* Compiles the kernels of a task into the cache; n: parameters of the large tensor; arch: ten times
 * the compute capability.  What does not compile says so when it is measured. */
void qm_gpu_compile_ahead(const struct qm_gpu_task *t, int64_t n, int arch);

/* ---- gpu_measure.c: in the child ------------------------------------------------------------- */

/* The work of a child: measures the tasks first to end - 1 that are selected, and sends an object
 * {task, rows} for each; the last one has `fatal` where the process cannot go on, and `nvml` is why
 * NVML is asked no more.  An object with
 * `more` is followed by a better one of the same task. */
struct qm_gpu_work_list {
    const struct qm_gpu_run *run;
    int first, end;
};
void qm_gpu_measure(void *work_list, int fd);

/* The work of the child that describes the device: sends {device, elements, flush_bytes} or
 * {error, status}. */
void qm_gpu_measure_device(void *run, int fd);

#endif
