/* nvrtc.c - Loads NVIDIA's run-time compiler, compiles with it, and reads its resource report. */
#include "core/compile/nvrtc.h"
#include "core/base/clock.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "core/compile/embedded_text.h"
#include "core/cuda/cuda_driver.h"
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
    X(GetNumSupportedArchs, "nvrtcGetNumSupportedArchs", (int *n))                                     \
    X(GetSupportedArchs, "nvrtcGetSupportedArchs", (int *archs))
/* clang-format on */

/* Messages name a call by its member: it is the exported name. */
#define X(member, exported, arguments) \
    _Static_assert(sizeof exported == sizeof "nvrtc" #member, exported);
FUNCTIONS(X)
#undef X

enum { HEADERS = 64, OPTIONS = 128, ARCHS = 64, MOST_BINARY = 1 << 30 };
enum { OUT_OF_MEMORY = 1, INVALID_OPTION = 5, COMPILATION = 6 }; /* of nvrtcResult */

static struct {
#define X(member, exported, arguments) int(*member) arguments;
    FUNCTIONS(X)
#undef X
    qm_status st; /* QM_SKIPPED: there is none, or it is too old; QM_INTERNAL: it failed */
    int major, minor, taken, tried[QM_LIBRARY_MOST];
    long long bytes;
    char path[512], reason[1024];
} rtc;

/* RTC(CompileProgram, (program, n, options)) calls nvrtcCompileProgram and is its error; the call
 * is noted for who watches this process. */
#define RTC(member, arguments) \
    (qm_cuda_call("nvrtc" #member), qm_cuda_call_over(rtc.member arguments))

static void *open_next(int k, char *found, size_t size)
{
    qm_cuda_call("loading libnvrtc");
    void *handle = qm_library_open_next(QM_LIBRARY_nvrtc, k, found, size);
    (void)qm_cuda_call_over(0);
    return handle;
}

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

/* QM_INTERNAL: nvrtcVersion failed, or gives a version that none can be; rtc.reason says so. */
static qm_status ask_version(int (*version)(int *, int *), const char *path, int *major, int *minor)
{
    *major = *minor = -1;
    qm_cuda_call("nvrtcVersion");
    int error = qm_cuda_call_over(version(major, minor));
    if (error)
        snprintf(rtc.reason, sizeof rtc.reason, "NVRTC failed: %s: nvrtcVersion: error %d", path,
                 error);
    else if (*major < 1 || *major > 999 || *minor < 0 || *minor > 999)
        snprintf(rtc.reason, sizeof rtc.reason, "NVRTC failed: %s: nvrtcVersion says %d.%d", path,
                 *major, *minor);
    else
        return QM_OK;
    return QM_INTERNAL;
}

/* Makes the k-th library that opens the one in use. */
static qm_status take_library(int k)
{
    void *handle = open_next(k, rtc.path, sizeof rtc.path), *at;
    Dl_info info;
    struct stat file;
    if (!handle) {
        snprintf(rtc.reason, sizeof rtc.reason, "no NVRTC: %s", rtc.path);
        return QM_SKIPPED;
    }
    if (!bind_all(handle))
        return QM_SKIPPED;
    QM_TRY(ask_version(rtc.Version, rtc.path, &rtc.major, &rtc.minor));
    memcpy(&at, &rtc.CreateProgram, sizeof at);
    if (dladdr(at, &info) && stat(info.dli_fname, &file) == 0)
        rtc.bytes = (long long)file.st_size;
    rtc.taken = k;
    rtc.tried[k] = 1;
    return QM_OK;
}

/* Chooses among the libraries that were not tried and tell their version: the first that is not
 * newer than the driver, by the major version; where all are newer, the oldest; where there is no
 * driver, the first.  -1: there is none; *failed: one did not tell its version. */
static int choose(int *failed)
{
    int driver = qm_cuda_driver_version() / 1000, best = -1, oldest = 0;
    char path[sizeof rtc.path];
    for (int k = 0; k < QM_LIBRARY_MOST; k++) {
        void *handle = open_next(k, path, sizeof path);
        int (*version)(int *, int *), major = 0, minor = 0;
        if (!handle)
            break;
        if (rtc.tried[k] || qm_library_symbol(handle, "nvrtcVersion", &version) != QM_OK)
            continue;
        if (ask_version(version, path, &major, &minor) != QM_OK) {
            *failed = 1;
            continue;
        }
        if (!driver || major <= driver) {
            best = k;
            break;
        }
        if (best < 0 || major < oldest) {
            best = k;
            oldest = major;
        }
    }
    return best;
}

/* Limits of this process without which NVRTC cannot work. */
static struct {
    int which;
    const char *name;
    rlim_t was;
} limits[] = {{RLIMIT_FSIZE, "RLIMIT_FSIZE", 0},
              {RLIMIT_NOFILE, "RLIMIT_NOFILE", 0},
              {RLIMIT_AS, "RLIMIT_AS", 0},
              {RLIMIT_DATA, "RLIMIT_DATA", 0},
              {RLIMIT_NPROC, "RLIMIT_NPROC", 0}};
enum { LIMITS = sizeof limits / sizeof *limits };

/* The name of a limit that is lower than before NVRTC was loaded, or NULL. */
static const char *lowered_limit(void)
{
    struct rlimit now;
    for (int i = 0; i < LIMITS; i++)
        if (getrlimit((__rlimit_resource_t)limits[i].which, &now) == 0 &&
            now.rlim_cur < limits[i].was)
            return limits[i].name;
    return NULL;
}

static void load(void)
{
    struct rlimit now;
    for (int i = 0; i < LIMITS; i++)
        if (getrlimit((__rlimit_resource_t)limits[i].which, &now) == 0)
            limits[i].was = now.rlim_cur;
    int failed = 0, k = choose(&failed);
    rtc.st = k < 0 && failed ? QM_INTERNAL : take_library(k < 0 ? 0 : k);
}

static int is_usable(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    return rtc.st == QM_OK;
}

int qm_nvrtc_next(void)
{
    int k, failed, was = rtc.taken;
    if (!is_usable())
        return 0;
    while ((k = choose(&failed)) >= 0) {
        rtc.tried[k] = 1;
        if (take_library(k) == QM_OK)
            return 1;
    }
    (void)take_library(was);
    return 0;
}

qm_status qm_nvrtc_probe(void) { return is_usable() ? QM_OK : qm_fail(rtc.st, "%s", rtc.reason); }

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

/* Writes the option "--gpu-architecture=sm_90"; for an architecture that this NVRTC does not know,
 * the highest virtual one below it (compute_90).  *is_ptx: whether the result will be PTX.
 * QM_SKIPPED: all that it knows are above it. */
static qm_status arch_option(int arch, char *out, size_t size, int *is_ptx)
{
    int n = 0, all[ARCHS], below = 0, least = INT_MAX;
    int error = RTC(GetNumSupportedArchs, (&n));
    if (error == 0 && n > 0 && n <= ARCHS)
        error = RTC(GetSupportedArchs, (all));
    if (error || n < 1 || n > ARCHS)
        return qm_fail(QM_INTERNAL,
                       "NVRTC failed: it does not say which architectures it knows "
                       "(error %d, %d of them)",
                       error, n);
    for (int i = 0; i < n; i++) {
        if (all[i] < 10 || all[i] > 9999)
            return qm_fail(QM_INTERNAL, "NVRTC failed: it says that it knows sm_%d", all[i]);
        below = all[i] <= arch && all[i] > below ? all[i] : below;
        least = all[i] < least ? all[i] : least;
    }
    if (below == 0)
        return qm_fail(QM_SKIPPED,
                       "NVRTC %d.%d compiles for sm_%d and later, not for sm_%d; an NVRTC of an "
                       "older CUDA does (CUDA 12 for sm_50 to sm_72; QM_NVRTC=PATH names one)",
                       rtc.major, rtc.minor, least, arch);
    *is_ptx = below != arch;
    snprintf(out, size, "--gpu-architecture=%s_%d", *is_ptx ? "compute" : "sm", below);
    return QM_OK;
}

/* The log, "" where NVRTC gives none; *error: of NVRTC.  NULL: there is no memory. */
static char *log_of(void *program, int *error)
{
    size_t size = 0;
    *error = RTC(GetProgramLogSize, (program, &size));
    char *log = calloc((*error ? 0 : size) + 1, 1);
    if (log && !*error && size > 1)
        *error = RTC(GetProgramLog, (program, log));
    if (log && *error)
        *log = '\0';
    return log;
}

/* The failure.  Of the source: with the first line of the log that contains "error"; where none
 * does, with the first line that is not empty. */
static qm_status failed(const char *name, int number, const char *log)
{
    const char *lowered = lowered_limit();
    if (number != INVALID_OPTION && number != COMPILATION)
        return qm_fail(number == OUT_OF_MEMORY ? QM_NO_MEMORY : QM_INTERNAL,
                       "NVRTC failed, and nothing is known of %s: nvrtcCompileProgram: error %d%s",
                       name, number, number == OUT_OF_MEMORY ? " (out of memory)" : "");
    if (lowered)
        return qm_fail(QM_INTERNAL,
                       "NVRTC or the driver lowered %s of this process, so nothing is known of %s",
                       lowered, name);
    const char *line = strstr(log, "error");
    while (line && line > log && line[-1] != '\n')
        line--;
    if (!line)
        line = log + strspn(log, " \t\r\n");
    if (!*line)
        return qm_fail(QM_BAD_ARG, "%s does not compile, and NVRTC (error %d) does not say why",
                       name, number);
    return qm_fail(QM_BAD_ARG, "%s does not compile: %.*s", name, (int)strcspn(line, "\n"), line);
}

/* Whether what NVRTC gave is machine code for a GPU (ELF of machine 190), or PTX.  What is neither
 * must not come into the cache, from where later runs would take it. */
static int is_binary(const struct qm_device_binary *b)
{
    enum { MACHINE = 18, EM_CUDA = 190 };
    static const char elf[] = "\177ELF", version[] = ".version";
    const unsigned char *at = b->data;
    if (b->is_ptx)
        return memmem(at, b->size, version, sizeof version - 1) != NULL;
    return b->size >= 64 && memcmp(at, elf, sizeof elf - 1) == 0 &&
           at[MACHINE] + 256 * at[MACHINE + 1] == EM_CUDA;
}

static qm_status take_binary(void *program, struct qm_device_binary *out)
{
    int error = out->is_ptx ? RTC(GetPTXSize, (program, &out->size))
                            : RTC(GetCUBINSize, (program, &out->size));
    if (error || !out->size || out->size > MOST_BINARY)
        return qm_fail(QM_INTERNAL, "NVRTC gives no binary (error %d, %zu bytes)", error,
                       out->size);
    out->data = malloc(out->size);
    if (!out->data)
        return qm_fail(QM_NO_MEMORY, "a kernel of %zu bytes", out->size);
    if (out->is_ptx ? RTC(GetPTX, (program, out->data)) : RTC(GetCUBIN, (program, out->data)))
        return qm_fail(QM_INTERNAL, "NVRTC gives no binary");
    if (!is_binary(out))
        return qm_fail(QM_INTERNAL, "what NVRTC gives is %s",
                       out->is_ptx ? "no PTX" : "no machine code for a GPU");
    return QM_OK;
}

qm_status qm_nvrtc_compile(const struct qm_device_source *s, struct qm_device_binary *out)
{
    const char *names[HEADERS], *texts[HEADERS], *options[OPTIONS] = {NULL};
    char arch[48];
    void *program = NULL;
    int n = 0, n_options = 0;
    double from = qm_seconds();
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
    QM_TRY(arch_option(s->arch, arch, sizeof arch, &out->is_ptx));
    options[n_options++] = arch;
    options[n_options++] = "--std=c++17";
    for (int i = 0; s->options && s->options[i]; i++) {
        if (n_options == OPTIONS)
            return qm_fail(QM_BAD_ARG, "%s: more than %d options", s->name, OPTIONS - 2);
        options[n_options++] = s->options[i];
    }
    int error = RTC(CreateProgram, (&program, s->text, s->name, n, texts, names));
    if (error)
        return qm_fail(QM_INTERNAL, "nvrtcCreateProgram: error %d", error);
    error = RTC(CompileProgram, (program, n_options, options));
    int log_error;
    out->log = log_of(program, &log_error);
    qm_status st = !out->log   ? qm_fail(QM_NO_MEMORY, "the compiler's log")
                   : error     ? failed(s->name, error, out->log)
                   : log_error ? qm_fail(QM_INTERNAL, "NVRTC gives no log (error %d)", log_error)
                               : take_binary(program, out);
    error = RTC(DestroyProgram, (&program));
    if (st == QM_OK && error)
        st = qm_fail(QM_INTERNAL, "NVRTC failed: nvrtcDestroyProgram: error %d", error);
    out->seconds = qm_seconds() - from;
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
