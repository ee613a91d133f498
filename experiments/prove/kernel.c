/* kernel.c - a user's routine: compiled, and proved in a process of its own that may die or hang. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <omp.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "experiments/cli.h"
#include "experiments/prove/prove.h"
#include "experiments/prove/report.h"

extern char **environ;

enum { THREADS = 256, ARGS = 64 };

/* Shared between the two processes: what is done, and the first key of each thread's batch. */
struct pulse {
    volatile int64_t is_running, done, at[THREADS];
};

/* ---- the child ----------------------------------------------------------------------------------- */

static void beat(void *of, int64_t floats) { ((struct pulse *)of)->done += floats; }

static qm_status pulse_open(const char *path, struct pulse **out)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)sizeof **out) != 0)
        return qm_fail(QM_BAD_FILE, "%s: %s", path, strerror(errno));
    void *at = mmap(NULL, sizeof **out, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (at == MAP_FAILED)
        return qm_fail(QM_BAD_FILE, "%s: %s", path, strerror(errno));
    *out = at;
    return QM_OK;
}

/* The map of --map with the words of --round and --nan. */
static qm_status claimed(const struct qm_prove_options *o, struct qm_quantizer *q)
{
    if (!o->map)
        return qm_fail(QM_BAD_ARG, "a kernel wants --map: which values its codes mean");
    QM_TRY(qm_map_parse(o->map, q));
    if (o->round)
        QM_TRY(qm_quantizer_set(q, "round", o->round));
    q->scale.nan = !o->nan || strcmp(o->nan, "low") == 0 ? QM_NAN_low
                   : strcmp(o->nan, "top") == 0          ? QM_NAN_top
                                                         : QM_NAN_zero;
    return QM_OK;
}

qm_status qm_prove_kernel_child(const char *object, const struct qm_prove_options *o)
{
    struct qm_routine *r = calloc(1, sizeof *r);
    struct qm_quantizer q;
    struct qm_record record = {0};
    struct pulse *pulse;
    if (!r)
        return qm_fail(QM_NO_MEMORY, "a routine");
    QM_TRY(pulse_open(o->pulse, &pulse));
    void *library = dlopen(object, RTLD_NOW | RTLD_LOCAL);
    void *symbol = library ? dlsym(library, "qm_nearest") : NULL;
    if (!symbol)
        return qm_fail(QM_BAD_FILE, "%s", dlerror());
    QM_TRY(claimed(o, &q));
    QM_TRY(qm_routine_foreign(r, &q, o->round != NULL, o->nan != NULL));
    memcpy(&r->kernel, &symbol, sizeof symbol); /* ISO C has no such cast */
    for (int i = 0; i < THREADS; i++)
        pulse->at[i] = QM_KEY_DONE;
    pulse->is_running = 1;
    struct qm_walk walk = {o->from, o->to, beat, pulse, pulse->at, THREADS};
    double started = qm_seconds();
    QM_TRY(qm_routine_walk(r, &walk, &record));
    json_t *proof = qm_proof_json(r, object, &record, qm_seconds() - started, o->intervals);
    json_object_set_new(proof, "map", json_string(o->map));
    int failed = json_dump_file(proof, o->result, JSON_COMPACT);
    json_decref(proof);
    qm_record_close(&record);
    free(r);
    return failed ? qm_fail(QM_BAD_FILE, "%s: cannot be written", o->result) : QM_OK;
}

/* ---- the parent ---------------------------------------------------------------------------------- */

struct job {
    char folder[64], object[96], result[96], pulse[96];
};

static qm_status job_open(struct job *j)
{
    const char *where = getenv("TMPDIR");
    snprintf(j->folder, sizeof j->folder, "%.40s/qualm-XXXXXX", where && *where ? where : "/tmp");
    if (!mkdtemp(j->folder))
        return qm_fail(QM_BAD_FILE, "%s: %s", j->folder, strerror(errno));
    snprintf(j->object, sizeof j->object, "%s/kernel.so", j->folder);
    snprintf(j->result, sizeof j->result, "%s/result.json", j->folder);
    snprintf(j->pulse, sizeof j->pulse, "%s/pulse", j->folder);
    return QM_OK;
}

static void job_close(const struct job *j)
{
    unlink(j->object);
    unlink(j->result);
    unlink(j->pulse);
    rmdir(j->folder);
}

/* Starts a program whose stdout goes to our stderr. */
static qm_status start(char *const *argv, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
    int failed = posix_spawnp(pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return failed ? qm_fail(QM_BAD_FILE, "%s: %s", argv[0], strerror(failed)) : QM_OK;
}

static qm_status compile(const char *source, const char *cflags, const char *object)
{
    const char *cc = getenv("CC");
    char words[512], *argv[ARGS] = {NULL}, *rest = words, *word;
    pid_t pid;
    int n = 0, status;
    if (snprintf(words, sizeof words, "%s -std=c11 -O2 -ffp-contract=off -fPIC -shared -I. %s",
                 cc && *cc ? cc : "cc", cflags ? cflags : "") >= (int)sizeof words)
        return qm_fail(QM_BAD_ARG, "--cflags is too long");
    while ((word = strsep(&rest, " ")) != NULL && n < ARGS - 5)
        if (*word)
            argv[n++] = word;
    argv[n++] = (char *)"-o";
    argv[n++] = (char *)object;
    argv[n++] = (char *)source;
    argv[n++] = (char *)"-lm";
    QM_TRY(start(argv, &pid));
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return qm_fail(QM_BAD_ARG, "%s does not compile with %s; its messages are above", source,
                       argv[0]);
    return QM_OK;
}

/* Waits for the child; kills it at the limit.  1 when it had to. */
static int attend(pid_t pid, const struct pulse *pulse, const struct qm_prove_options *o,
                  const char *name, int *status)
{
    struct qm_progress progress;
    int64_t seen = 0;
    int is_late = 0;
    qm_progress_start(&progress, name, o->to - o->from + 1);
    for (pid_t done = 0; done == 0;) {
        done = waitpid(pid, status, WNOHANG);
        if (done < 0 && errno == EINTR)
            done = 0;
        if (done == 0 && !is_late && qm_seconds() - progress.started > o->limit) {
            is_late = 1;
            kill(pid, SIGKILL);
        }
        int64_t now = pulse->done;
        qm_progress_add(&progress, now - seen, 0);
        seen = now;
        if (done == 0)
            usleep(5000);
    }
    qm_progress_end(&progress);
    return is_late;
}

/* The verdict on a process that ended before its result. */
static json_t *ended(const char *path, const struct pulse *pulse, int status, int is_late)
{
    char verdict[80], from[40] = "", hex[40] = "";
    int64_t first = QM_KEY_DONE;
    for (int i = 0; i < THREADS && pulse->is_running; i++)
        first = pulse->at[i] < first ? pulse->at[i] : first;
    if (is_late)
        snprintf(verdict, sizeof verdict, "WRONG: no end within the time limit");
    else if (WIFSIGNALED(status))
        snprintf(verdict, sizeof verdict, "WRONG: crashed, signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else if (WEXITSTATUS(status) == QM_WALK_WROTE_OUTSIDE)
        snprintf(verdict, sizeof verdict, "WRONG: wrote outside its buffer");
    else if (WEXITSTATUS(status) == QM_WALK_CHANGED_INPUT)
        snprintf(verdict, sizeof verdict, "WRONG: changed its input");
    else
        snprintf(verdict, sizeof verdict, "WRONG: ended the process with code %d",
                 WEXITSTATUS(status));
    if (first != QM_KEY_DONE) {
        snprintf(from, sizeof from, "%.9g", (double)qm_unordered((int32_t)first));
        snprintf(hex, sizeof hex, "%a", (double)qm_unordered((int32_t)first));
    }
    return json_pack("{s:s, s:s, s:b, s:s, s:s}", "routine", path, "verdict", verdict, "holds", 0,
                     "batch_from", from, "batch_from_hex", hex);
}

/* The child's command line. */
static qm_status start_child(const struct job *j, const char *object,
                             const struct qm_prove_options *o, pid_t *pid)
{
    char range[2][64], intervals[32], threads[32], *argv[ARGS];
    int n = 0;
    snprintf(range[0], sizeof range[0], "%lld", (long long)o->from);
    snprintf(range[1], sizeof range[1], "%lld", (long long)o->to);
    snprintf(intervals, sizeof intervals, "%d", o->intervals);
    snprintf(threads, sizeof threads, "%d", omp_get_max_threads());
    const char *const words[] = {"/proc/self/exe", "prove",  object,   "--result",    j->result,
                                 "--pulse",        j->pulse, "--map",  o->map,        "--from",
                                 range[0],         "--to",   range[1], "--intervals", intervals,
                                 "--threads",      threads,  "-q"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        argv[n++] = (char *)words[i];
    if (o->round)
        argv[n++] = (char *)"--round", argv[n++] = (char *)o->round;
    if (o->nan)
        argv[n++] = (char *)"--nan", argv[n++] = (char *)o->nan;
    argv[n] = NULL;
    return start(argv, pid);
}

static qm_status prove(const struct job *j, const char *path, const struct qm_prove_options *o,
                       json_t **out, int *holds)
{
    size_t n = strlen(path);
    int is_source = n > 2 && strcmp(path + n - 2, ".c") == 0, status = 0;
    char slashed[4096];
    struct pulse *pulse;
    struct qm_quantizer q;
    pid_t pid;
    QM_TRY(claimed(o, &q));
    if (access(path, R_OK) != 0)
        return qm_fail(QM_BAD_FILE, "%s: %s", path, strerror(errno));
    if (is_source)
        QM_TRY(compile(path, o->cflags, j->object));
    snprintf(slashed, sizeof slashed, strchr(path, '/') ? "%s" : "./%s", path); /* for dlopen */
    QM_TRY(pulse_open(j->pulse, &pulse));
    qm_status st = start_child(j, is_source ? j->object : slashed, o, &pid);
    if (st == QM_OK) {
        int is_late = attend(pid, pulse, o, path, &status);
        json_t *proof = !is_late && WIFEXITED(status) && WEXITSTATUS(status) == 0
                            ? json_load_file(j->result, 0, NULL)
                            : NULL;
        if (!proof && !is_late && !pulse->is_running && WIFEXITED(status))
            st = qm_fail(QM_BAD_FILE, "%s cannot be proved; the reason is above", path);
        else
            *out = proof ? proof : ended(path, pulse, status, is_late);
    }
    if (st == QM_OK) {
        json_object_set_new(*out, "routine", json_string(path));
        *holds = json_is_true(json_object_get(*out, "holds"));
    }
    munmap(pulse, sizeof *pulse);
    return st;
}

qm_status qm_prove_kernel(const char *path, const struct qm_prove_options *o, json_t **out,
                          int *holds)
{
    struct job j;
    QM_TRY(job_open(&j));
    qm_status st = prove(&j, path, o, out, holds);
    job_close(&j);
    return st;
}
