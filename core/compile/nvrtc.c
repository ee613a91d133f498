/* nvrtc.c - Loads NVIDIA's run-time compiler, compiles with it, and reads its resource report. */
#include "core/compile/nvrtc.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "core/compile/embedded_text.h"
#include "core/cuda/cuda_load.h"

/* clang-format off */
#define FUNCTIONS(X) /* member, exported name, arguments */                                            \
    X(Version,           "nvrtcVersion",           (int *major, int *minor))                           \
    X(CreateProgram,     "nvrtcCreateProgram",     (void **program, const char *text, const char *name, int n, const char *const *texts, const char *const *names)) \
    X(DestroyProgram,    "nvrtcDestroyProgram",    (void **program))                                   \
    X(CompileProgram,    "nvrtcCompileProgram",    (void *program, int n, const char *const *options)) \
    X(GetCUBINSize,      "nvrtcGetCUBINSize",      (void *program, size_t *size))                      \
    X(GetCUBIN,          "nvrtcGetCUBIN",          (void *program, char *out))                         \
    X(GetPTXSize,        "nvrtcGetPTXSize",        (void *program, size_t *size))                      \
    X(GetPTX,            "nvrtcGetPTX",            (void *program, char *out))                         \
    X(GetProgramLogSize, "nvrtcGetProgramLogSize", (void *program, size_t *size))                      \
    X(GetProgramLog,     "nvrtcGetProgramLog",     (void *program, char *out))                         \
    X(GetNumArchs,       "nvrtcGetNumSupportedArchs", (int *n))                                        \
    X(GetArchs,          "nvrtcGetSupportedArchs", (int *archs))
/* clang-format on */

enum { HEADERS = 64, OPTIONS = 32, ARCHS = 64 };

static struct {
#define X(member, exported, arguments) int(*member) arguments;
    FUNCTIONS(X)
#undef X
    int usable, major, minor;
    long long bytes;
    char path[512], reason[1024];
} rtc;

static int bind_all(void *handle)
{
    static const char *const names[] = {
#define X(member, exported, arguments) exported,
        FUNCTIONS(X)
#undef X
    };
    void **const members[] = {
#define X(member, exported, arguments) (void **)(void *)&rtc.member,
        FUNCTIONS(X)
#undef X
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (qm_library_symbol(handle, names[i], members[i]) != QM_OK) {
            snprintf(rtc.reason, sizeof rtc.reason, "%s has no %s (it is too old)", rtc.path,
                     names[i]);
            return 0;
        }
    return 1;
}

static void load(void)
{
    void *handle = qm_library_open(QM_LIBRARY_nvrtc, rtc.path, sizeof rtc.path), *at;
    Dl_info info;
    struct stat file;
    if (!handle) {
        snprintf(rtc.reason, sizeof rtc.reason, "no NVRTC: %s", rtc.path);
        return;
    }
    if (!bind_all(handle))
        return;
    rtc.Version(&rtc.major, &rtc.minor);
    memcpy(&at, &rtc.CreateProgram, sizeof at);
    if (dladdr(at, &info) && stat(info.dli_fname, &file) == 0)
        rtc.bytes = (long long)file.st_size;
    rtc.usable = 1;
}

static int is_usable(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    return rtc.usable;
}

qm_status qm_nvrtc_probe(void)
{
    return is_usable() ? QM_OK : qm_fail(QM_SKIPPED, "%s", rtc.reason);
}

int qm_nvrtc_identity(int *major, int *minor, long long *bytes)
{
    if (!is_usable())
        return 0;
    *major = rtc.major;
    *minor = rtc.minor;
    *bytes = rtc.bytes;
    return 1;
}

void qm_nvrtc_text(char *text, size_t size)
{
    if (is_usable())
        snprintf(text, size, "%s, version %d.%d", rtc.path, rtc.major, rtc.minor);
    else
        snprintf(text, size, "%s", rtc.reason);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Writes the option "--gpu-architecture=sm_90"; for an architecture that this NVRTC does not know,
 * the highest virtual one below it (compute_90); "" where all are above it.  Returns whether the
 * result will be PTX. */
static int arch_option(int arch, char *out, size_t size)
{
    int n = 0, all[ARCHS], below = 0;
    if (rtc.GetNumArchs(&n) != 0 || n > ARCHS || rtc.GetArchs(all) != 0)
        n = 0;
    for (int i = 0; i < n; i++)
        below = all[i] <= arch && all[i] > below ? all[i] : below;
    out[0] = '\0';
    if (n > 0 && below == 0)
        return 0;
    int is_ptx = below != arch;
    snprintf(out, size, "--gpu-architecture=%s_%d", is_ptx ? "compute" : "sm",
             below ? below : arch);
    return is_ptx;
}

/* The lowest architecture that this NVRTC knows. */
static int least_arch(void)
{
    int n = 0, all[ARCHS], least = 0;
    if (rtc.GetNumArchs(&n) != 0 || n > ARCHS || rtc.GetArchs(all) != 0)
        return 0;
    for (int i = 0; i < n; i++)
        least = least == 0 || all[i] < least ? all[i] : least;
    return least;
}

static char *log_of(void *program)
{
    size_t size = 0;
    char *log = rtc.GetProgramLogSize(program, &size) == 0 ? calloc(size + 1, 1) : NULL;
    if (log && size > 1)
        rtc.GetProgramLog(program, log);
    return log;
}

/* The failure, with the first line of the log that contains "error". */
static qm_status failed(const char *name, const char *log)
{
    const char *error = log ? strstr(log, "error") : NULL;
    while (error && error > log && error[-1] != '\n')
        error--;
    if (!error)
        return qm_fail(QM_BAD_ARG, "%s does not compile, and NVRTC does not say why", name);
    return qm_fail(QM_BAD_ARG, "%s does not compile: %.*s", name, (int)strcspn(error, "\n"), error);
}

static qm_status take_binary(void *program, struct qm_device_binary *out)
{
    int error =
        out->is_ptx ? rtc.GetPTXSize(program, &out->size) : rtc.GetCUBINSize(program, &out->size);
    if (error || !out->size)
        return qm_fail(QM_INTERNAL, "NVRTC gives no binary (error %d)", error);
    out->data = malloc(out->size);
    if (!out->data)
        return qm_fail(QM_NO_MEMORY, "a kernel of %zu bytes", out->size);
    if (out->is_ptx ? rtc.GetPTX(program, out->data) : rtc.GetCUBIN(program, out->data))
        return qm_fail(QM_INTERNAL, "NVRTC gives no binary");
    return QM_OK;
}

qm_status qm_nvrtc_compile(const struct qm_device_source *s, struct qm_device_binary *out)
{
    const char *names[HEADERS], *texts[HEADERS], *options[OPTIONS] = {NULL};
    char arch[48];
    void *program = NULL;
    int n = 0, n_options = 0;
    double from = now();
    memset(out, 0, sizeof *out);
    QM_TRY(qm_nvrtc_probe());
    for (int i = 0; qm_device_text_path(i) && n < HEADERS - 2; i++, n++) {
        names[n] = qm_device_text_path(i);
        texts[n] = qm_device_text(names[n]);
        if (!texts[n])
            return qm_fail(QM_NO_MEMORY, "the text of %s", names[n]);
        if (strncmp(names[n], "core/abi/", 9) == 0) { /* users include it without a folder */
            names[n + 1] = names[n] + 9;
            texts[n + 1] = texts[n];
            n++;
        }
    }
    if (s->header_name) {
        names[n] = s->header_name;
        texts[n++] = s->header_text;
    }
    out->is_ptx = arch_option(s->arch, arch, sizeof arch);
    if (!*arch)
        return qm_fail(QM_SKIPPED,
                       "NVRTC %d.%d compiles for sm_%d and later, not for sm_%d; an NVRTC of an "
                       "older CUDA does (CUDA 12 for sm_50 to sm_72; QM_NVRTC=PATH names one)",
                       rtc.major, rtc.minor, least_arch(), s->arch);
    options[n_options++] = arch;
    options[n_options++] = "--std=c++17";
    for (int i = 0; s->options && s->options[i] && n_options < OPTIONS; i++)
        options[n_options++] = s->options[i];
    int error = rtc.CreateProgram(&program, s->text, s->name, n, texts, names);
    if (error)
        return qm_fail(QM_INTERNAL, "nvrtcCreateProgram: error %d", error);
    error = rtc.CompileProgram(program, n_options, options);
    out->log = log_of(program);
    qm_status st = !out->log ? qm_fail(QM_NO_MEMORY, "the compiler's log")
                   : error   ? failed(s->name, out->log)
                             : take_binary(program, out);
    rtc.DestroyProgram(&program);
    out->seconds = now() - from;
    return st;
}

void qm_device_binary_free(struct qm_device_binary *b)
{
    free(b->data);
    free(b->log);
    memset(b, 0, sizeof *b);
}

/* ---- the register report --------------------------------------------------------------------- */

/* The number before `what` in [line, end); 0: what is not there. */
static int number_before(const char *line, const char *end, const char *what)
{
    const char *at = strstr(line, what);
    if (!at || at >= end)
        return 0;
    while (at > line && at[-1] == ' ')
        at--;
    while (at > line && at[-1] >= '0' && at[-1] <= '9')
        at--;
    return atoi(at);
}

int qm_kernel_use(const char *log, const char *kernel, struct qm_kernel_use *out)
{
    char head[128];
    snprintf(head, sizeof head, "Function properties for %s\n", kernel);
    const char *at = log ? strstr(log, head) : NULL;
    if (!at)
        return 0;
    at += strlen(head);
    const char *end = strstr(at, "Function properties for");
    if (!end)
        end = at + strlen(at);
    memset(out, 0, sizeof *out);
    out->local_bytes = number_before(at, end, " bytes stack frame");
    out->spill_bytes = number_before(at, end, " bytes spill stores") +
                       number_before(at, end, " bytes spill loads");
    out->registers = number_before(at, end, " registers");
    out->shared_bytes = number_before(at, end, " bytes smem");
    return 1;
}
