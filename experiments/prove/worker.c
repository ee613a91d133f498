/* worker.c - The process in which a user's routine runs: walks ranges of floats, then reports. */
#include <dlfcn.h>
#include <fcntl.h>
#include <omp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/user_kernel/user_cuda.h"
#include "experiments/cli/cli.h"
#include "experiments/prove/child.h"
#include "experiments/prove/prove.h"
#include "experiments/prove/report.h"
#include "experiments/prove/wire.h"

static struct qm_routine routine;
static struct qm_record record;
static double started;
static int intervals;

/* Tells the parent this thread's current batch, by the bits of its first float, with calls that a
 * signal handler may make. */
static void on_fault(int sig)
{
    static const char digits[] = "0123456789abcdef";
    char line[] = "{\"where\":\"among the floats from bits 0x00000000 on\"}\n";
    char *zeros = strstr(line, "0x") + 2;
    uint32_t bits = qm_bits(qm_unordered((int32_t)qm_walk_at));
    for (int i = 0; i < 8; i++)
        zeros[i] = digits[bits >> (28 - 4 * i) & 15u];
    ssize_t written = write(QM_WORKER_FD, line, sizeof line - 1);
    (void)written;
    signal(sig, SIG_DFL);
    raise(sig);
}

static json_t *failed(qm_status st)
{
    return json_pack("{s:s, s:i}", "error", qm_message(), "status", (int)st);
}

/* Opens the routine for the map with the words of --round and --nan. */
static qm_status open_claimed(const json_t *job, struct qm_quantizer *q)
{
    const char *round = json_string_value(json_object_get(job, "round"));
    const char *nan = json_string_value(json_object_get(job, "nan"));
    QM_TRY(qm_map_parse(json_string_value(json_object_get(job, "map")), q));
    if (round)
        QM_TRY(qm_quantizer_set(q, "round", round));
    q->scale.nan = !nan || strcmp(nan, "low") == 0 ? QM_NAN_low
                   : strcmp(nan, "top") == 0       ? QM_NAN_top
                                                   : QM_NAN_zero;
    return qm_routine_foreign(&routine, q, round != NULL, nan != NULL);
}

/* ---- a kernel on the GPU --------------------------------------------------------------------- */

static struct qm_user_cuda *gpu;
static char gpu_trouble[300];
static qm_status gpu_status; /* QM_CHECK_FAILED: of the kernel; others: of the driver */

static void nearest_on_gpu(const float *y, long n, unsigned char *code)
{
    if (*gpu_trouble)
        return;
    gpu_status = qm_user_cuda_nearest(gpu, y, n, code);
    if (gpu_status != QM_OK)
        snprintf(gpu_trouble, sizeof gpu_trouble, "%s", qm_message());
}

static const char *trouble_on_gpu(void) { return gpu_trouble; }

/* ---- the routine ----------------------------------------------------------------------------- */

/* Loads the function of a library, and the findings of the emulator where a CUDA source
 * was compiled. */
static qm_status load_library(const char *object, int *threads)
{
    void *library = dlopen(object, RTLD_NOW | RTLD_LOCAL);
    void *symbol = library ? dlsym(library, "qm_nearest") : NULL;
    if (!symbol)
        return qm_fail(library ? QM_BAD_ARG : QM_BAD_FILE, "%s", dlerror());
    memcpy(&routine.kernel, &symbol, sizeof symbol); /* ISO C has no such cast */
    void *finding = dlsym(library, "qm_emu_finding");
    memcpy(&routine.trouble, &finding, sizeof finding);
    *threads = finding ? 1 : *threads; /* there is one emulated device */
    if (finding &&
        (!dlsym(library, "qm_cuda_nearest") || !dlsym(library, "qm_cuda_nearest_launch")))
        return qm_fail(QM_BAD_ARG,
                       "the kernel has no extern \"C\" __global__ qm_cuda_nearest with a "
                       "QM_CUDA_LAUNCH line (see kernel_cuda.h)");
    return QM_OK;
}

static qm_status load(const json_t *job)
{
    struct qm_quantizer q;
    const char *object = json_string_value(json_object_get(job, "object"));
    const char *dot = strrchr(object, '.');
    int threads = (int)json_integer_value(json_object_get(job, "threads"));
    QM_TRY(open_claimed(job, &q));
    if (dot && strcmp(dot, ".cubin") == 0) {
        QM_TRY(qm_user_cuda_nearest_open(object, &gpu));
        routine.kernel = nearest_on_gpu;
        routine.trouble = trouble_on_gpu;
        threads = 1;
    } else {
        QM_TRY(load_library(object, &threads));
    }
    omp_set_num_threads(threads);
    intervals = (int)json_integer_value(json_object_get(job, "intervals"));
    qm_record_open(&record);
    started = qm_seconds();
    return QM_OK;
}

static json_t *walk(const json_t *request)
{
    struct qm_walk w = {.from = json_integer_value(json_object_get(request, "from")),
                        .to = json_integer_value(json_object_get(request, "to"))};
    struct qm_record part;
    json_t *name = json_object_get(request, "case");
    qm_status st = qm_routine_walk(&routine, &w, &part);
    if (gpu_status != QM_OK && gpu_status != QM_CHECK_FAILED)
        st = qm_fail(QM_INTERNAL, "the driver failed, and nothing is known of the kernel: %s",
                     gpu_trouble);
    if (st == QM_CHECK_FAILED)
        return json_pack("{s:O, s:s}", "case", name, "broken", qm_message());
    if (st != QM_OK)
        return failed(st);
    qm_record_merge(&record, &part);
    qm_record_close(&part);
    return json_pack("{s:O}", "case", name);
}

static json_t *reply_to(const json_t *request)
{
    if (strcmp(json_string_value(json_object_get(request, "do")), "walk") == 0)
        return walk(request);
    return json_pack("{s:s, s:o}", "case", "report", "proof",
                     qm_proof_json(&routine, "", &record, qm_seconds() - started, intervals));
}

int qm_prove_worker(const char *text)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    const struct rlimit none = {0, 0};
    json_t *job = json_loads(text, 0, NULL), *request;
    setrlimit(RLIMIT_CORE, &none);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    fcntl(QM_WORKER_FD, F_SETFD, FD_CLOEXEC); /* not for processes that the kernel starts */
    FILE *in = fdopen(dup(QM_WORKER_FD), "r");
    if (!job || !in)
        return qm_exit_code(QM_INTERNAL);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        signal(signals[i], on_fault);
    qm_status st = load(job);
    int is_up = qm_wire_write(QM_WORKER_FD, st == QM_OK ? json_object() : failed(st));
    while (is_up && (request = json_loadf(in, JSON_DISABLE_EOF_CHECK, NULL))) {
        is_up = qm_wire_write(QM_WORKER_FD, reply_to(request));
        json_decref(request);
    }
    _exit(0); /* the kernel's destructors do not run */
}
