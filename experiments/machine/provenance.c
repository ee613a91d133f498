/* provenance.c - Collects what produced a result: program, build, machine, floating-point mode. */
#include "experiments/machine/provenance.h"

#include <assert.h>
#include <fenv.h>
#include <float.h>
#include <gnu/libc-version.h>
#include <gsl/gsl_version.h>
#include <hdf5.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "core/base/threads.h"
#include "core/recipe/backend.h"
#include "experiments/machine/version.h"

#ifndef QM_COMMIT
#define QM_COMMIT "unknown"
#endif
#ifndef QM_CFLAGS
#define QM_CFLAGS "unknown"
#endif

#ifdef __clang__
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

#ifdef __FAST_MATH__
#define FAST_MATH 1
#else
#define FAST_MATH 0
#endif

struct facts {
    struct qm_fact *at;
    int n;
};

const char *qm_version(void) { return QM_VERSION; }

const char *qm_commit(void) { return QM_COMMIT; }

static struct qm_fact *fact(struct facts *f, const char *name)
{
    assert(f->n < QM_FACTS_MAX);
    struct qm_fact *new = &f->at[f->n++];
    memset(new, 0, sizeof *new);
    new->name = name;
    return new;
}

static void say(struct facts *f, const char *name, const char *text)
{
    struct qm_fact *new = fact(f, name);
    snprintf(new->text, sizeof new->text, "%.511s", text && *text ? text : "unknown");
}

static void count(struct facts *f, const char *name, int64_t number)
{
    struct qm_fact *new = fact(f, name);
    new->is_number = 1;
    new->number = number;
}

static void say_build(struct facts *f)
{
    say(f, "program", "qualm");
    say(f, "version", qm_version());
    say(f, "commit", qm_commit());
    say(f, "compiler", COMPILER);
    say(f, "flags", QM_CFLAGS);
    say(f, "libc", gnu_get_libc_version());
    unsigned major = 0, minor = 0, release = 0;
    char text[64];
    H5get_libversion(&major, &minor, &release);
    snprintf(text, sizeof text, "%u.%u.%u", major, minor, release);
    say(f, "hdf5", text);
    say(f, "gsl", gsl_version);
}

/* The first "model name" of /proc/cpuinfo; some architectures have none. */
static void cpu_model(char *out, size_t size)
{
    char line[512];
    out[0] = 0;
    FILE *file = fopen("/proc/cpuinfo", "re");
    if (!file)
        return;
    while (!out[0] && fgets(line, sizeof line, file)) {
        char *value = strchr(line, ':');
        if (value && strncmp(line, "model name", 10) == 0) {
            value += 1 + strspn(value + 1, " \t");
            value[strcspn(value, "\n")] = 0;
            snprintf(out, size, "%s", value);
        }
    }
    fclose(file);
}

static void say_machine(struct facts *f)
{
    char text[600];
    struct utsname u;
    if (uname(&u) == 0) {
        say(f, "host", u.nodename);
        snprintf(text, sizeof text, "%s %s %s", u.sysname, u.release, u.machine);
        say(f, "system", text);
    }
    cpu_model(text, sizeof text);
    say(f, "cpu", text);
    count(f, "cpus", sysconf(_SC_NPROCESSORS_ONLN));
    count(f, "cpus_allowed", qm_processors_allowed());
    count(f, "cpus_usable", qm_processors());
    count(f, "memory_bytes", (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE));
    count(f, "omp_threads", omp_get_max_threads());
    say(f, "isa", qm_cpu_isa());
}

static const char *rounding_name(void)
{
    switch (fegetround()) {
    case FE_TONEAREST: return "nearest";
    case FE_UPWARD: return "upward";
    case FE_DOWNWARD: return "downward";
    case FE_TOWARDZERO: return "toward zero";
    default: return "unknown";
    }
}

/* Whether the build's flags fuse x * y + z: (1 + eps)(1 - eps) - 1 is -eps^2 when fused, else 0. */
static int contracts(void)
{
    volatile double a = 1.0 + DBL_EPSILON, b = 1.0 - DBL_EPSILON, c = -1.0;
    double x = a, y = b, z = c;
    return x * y + z != 0.0;
}

#if defined(__SSE__)
#include <xmmintrin.h>
static void say_flushing(struct facts *f)
{
    unsigned mxcsr =
        _mm_getcsr() &
        ~0x3fu; /* without the sticky exception flags, which record earlier operations */
    char text[16];
    snprintf(text, sizeof text, "0x%04x", mxcsr);
    say(f, "mxcsr", text);
    count(f, "flush_to_zero", mxcsr >> 15 & 1);
    count(f, "denormals_are_zero", mxcsr >> 6 & 1);
}
#else
static void say_flushing(struct facts *f)
{
    volatile float tiny = FLT_MIN;
    count(f, "flush_to_zero", tiny * 0.5f == 0.0f);
}
#endif

static void say_floats(struct facts *f)
{
    say(f, "rounding", rounding_name());
    say_flushing(f);
    say(f, "contraction", contracts() ? "on" : "off");
    count(f, "fast_math", FAST_MATH);
    count(f, "flt_eval_method", FLT_EVAL_METHOD);
}

static void say_job(struct facts *f)
{
    static const char *const ids[][2] = {
        {"slurm_job_id", "SLURM_JOB_ID"},
        {"slurm_array_job_id", "SLURM_ARRAY_JOB_ID"},
        {"slurm_array_task_id", "SLURM_ARRAY_TASK_ID"},
        {"slurm_procid", "SLURM_PROCID"},
        {"slurm_ntasks", "SLURM_NTASKS"},
        {"slurm_nodelist", "SLURM_JOB_NODELIST"},
    };
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        const char *value = getenv(ids[i][1]);
        if (value && *value)
            say(f, ids[i][0], value);
    }
}

int qm_provenance(struct qm_fact *out)
{
    struct facts f = {out, 0};
    say_build(&f);
    say_machine(&f);
    say_floats(&f);
    say_job(&f);
    return f.n;
}

char *qm_utc(char *text)
{
    time_t now = time(NULL);
    const char *fixed = getenv("SOURCE_DATE_EPOCH");
    char *end;
    if (fixed && *fixed) {
        long long seconds = strtoll(fixed, &end, 10);
        if (!*end)
            now = (time_t)seconds;
    }
    struct tm utc;
    if (!gmtime_r(&now, &utc) || strftime(text, 24, "%Y-%m-%dT%H:%M:%SZ", &utc) == 0)
        snprintf(text, 24, "unknown");
    return text;
}
