/* probe.c - Reports the machine, its floating-point behaviour, CUDA and what plots need. */
#include "experiments/machine/probe.h"

#include <fenv.h>
#include <float.h>
#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/threads.h"
#include "core/compile/cubin_cache.h"
#include "core/cuda/cuda_driver.h"
#include "core/cuda/cuda_load.h"
#include "core/cuda/nvml.h"
#include "core/recipe/backend.h"
#include "experiments/cli/cli.h"

static void set_text(json_t *o, const char *key, const char *text)
{
    json_object_set_new(o, key, qm_json_text(text));
}

/* ---- floating point ------------------------------------------------------------------------ */

#if defined(__x86_64__)
#include <xmmintrin.h>
static void control_word(json_t *o)
{
    char text[32];
    snprintf(text, sizeof text, "0x%04x", _mm_getcsr());
    set_text(o, "mxcsr", text);
}
#else
static void control_word(json_t *o) { (void)o; }
#endif

/* Volatile operands keep the compiler from folding the results; the operations are ordinary
 * expressions, which the build's flags may transform as in the rest of the program. */
static int contracts(void)
{
    volatile double va = 1.0 + 0x1p-30, vb = 1.0 - 0x1p-30;
    double a = va, b = vb;
    return a * b - 1.0 != 0.0; /* 1 - 2^-60 rounds to 1; fused it leaves -2^-60 */
}

static int reassociates(void)
{
    volatile float vbig = 0x1p24f, vone = 1.0f;
    float big = vbig, one = vone;
    return (big + one) - big != 0.0f;
}

static int divides_by_reciprocal(void)
{
    volatile float vx = 5.0f;
    float x = vx, d[4] = {3.0f, 7.0f, 41.0f, 49.0f};
    int bad = 0;
    for (int i = 0; i < 4; i++)
        bad |= x * 49.0f / d[i] != (float)((double)x * 49.0 / (double)d[i]);
    return bad;
}

static int ignores_nan(void)
{
    volatile float zero = 0.0f;
    float nan = zero / zero;
    return nan == nan; /* NOLINT: true only where the compiler assumes that there is no NaN */
}

static int flushes_results(void)
{
    volatile float tiny = FLT_MIN;
    return tiny * 0.5f == 0.0f;
}

static int flushes_operands(void)
{
    volatile float denormal = 0x1p-140f;
    return denormal * 0x1p100f == 0.0f;
}

static const char *rounding(void)
{
    switch (fegetround()) {
    case FE_TONEAREST: return "to nearest, ties to even";
    case FE_UPWARD: return "upward";
    case FE_DOWNWARD: return "downward";
    case FE_TOWARDZERO: return "toward zero";
    default: return "unknown";
    }
}

json_t *qm_probe_float(int *broken)
{
    json_t *o = json_object();
    const struct {
        const char *key;
        int bad;
    } check[] = {
        {"flush_to_zero", flushes_results()},
        {"denormals_are_zero", flushes_operands()},
        {"contraction", contracts()},
        {"reassociation", reassociates()},
        {"reciprocal_division", divides_by_reciprocal()},
        {"nan_ignored", ignores_nan()},
        {"excess_precision", FLT_EVAL_METHOD != 0},
    };
    int bad = fegetround() != FE_TONEAREST;
    set_text(o, "rounding", rounding());
    for (size_t i = 0; i < sizeof check / sizeof *check; i++) {
        json_object_set_new(o, check[i].key, json_boolean(check[i].bad));
        bad |= check[i].bad;
    }
    control_word(o);
    set_text(o, "verdict",
             bad ? "broken: results of this machine or build cannot be compared" : "as expected");
    *broken = bad;
    return o;
}

/* ---- machine ------------------------------------------------------------------------------- */

/* Reads a file's first line without its newline; returns 0 when it cannot. */
static int first_line(const char *path, char *out, size_t size)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return 0;
    int ok = fgets(out, (int)size, f) != NULL;
    fclose(f);
    if (ok)
        out[strcspn(out, "\n")] = '\0';
    return ok;
}

/* The value of the first "key<tab>: value" line of /proc/cpuinfo. */
static int cpuinfo(const char *key, char *out, size_t size)
{
    FILE *f = fopen("/proc/cpuinfo", "re");
    char *line = NULL;
    size_t room = 0, n = strlen(key);
    int found = 0;
    while (f && !found && getline(&line, &room, f) > 0) {
        const char *colon = strchr(line, ':');
        if (!colon || strncmp(line, key, n) != 0 || (line[n] != '\t' && line[n] != ' '))
            continue;
        snprintf(out, size, "%s", colon + strspn(colon, ": "));
        out[strcspn(out, "\n")] = '\0';
        found = 1;
    }
    free(line);
    if (f)
        fclose(f);
    return found;
}

static void cpu(json_t *o)
{
    static const char *const wanted[] = {"sse2",     "avx",        "avx2",        "fma",
                                         "f16c",     "avx512f",    "avx512bw",    "avx512dq",
                                         "avx512vl", "avx512vbmi", "avx512_vbmi2"};
    char text[8192], features[256] = "";
    set_text(o, "cpu", cpuinfo("model name", text, sizeof text) ? text : "unknown");
    if (cpuinfo("flags", text, sizeof text)) {
        char *save = NULL;
        for (char *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save))
            for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
                if (strcmp(word, wanted[i]) == 0) {
                    size_t used = strlen(features);
                    snprintf(features + used, sizeof features - used, "%s%s", used ? " " : "",
                             word);
                }
    }
    set_text(o, "features", *features ? features : "unknown");
    set_text(o, "instruction_set_in_use", qm_cpu_isa());
}

/* Adds the CPU limit of the control groups as a text. */
static void cgroup_limit(json_t *o)
{
    char text[40] = "none";
    double quota = qm_processors_quota("/proc/self/cgroup", "/sys/fs/cgroup");
    if (quota > 0.0)
        snprintf(text, sizeof text, "%.2f CPUs", quota);
    set_text(o, "cgroup_cpu_limit", text);
}

json_t *qm_probe_machine(void)
{
    json_t *o = json_object();
    char text[128];
    cpu(o);
    json_object_set_new(o, "cores_online", json_integer(sysconf(_SC_NPROCESSORS_ONLN)));
    json_object_set_new(o, "cores_allowed", json_integer(qm_processors_allowed()));
    json_object_set_new(o, "threads_in_use", json_integer(omp_get_max_threads()));
    cgroup_limit(o);
    if (!first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", text, sizeof text))
        snprintf(text, sizeof text, "not readable");
    set_text(o, "scaling_governor", text);
    double page = (double)sysconf(_SC_PAGESIZE);
    json_object_set_new(o, "memory_gib",
                        json_real((double)sysconf(_SC_PHYS_PAGES) * page * 0x1p-30));
    json_object_set_new(o, "memory_free_gib",
                        json_real((double)sysconf(_SC_AVPHYS_PAGES) * page * 0x1p-30));
    return o;
}

/* ---- CUDA ---------------------------------------------------------------------------------- */

static void random_library(char *out, size_t size)
{
    char path[512];
    int (*get)(int *), version = 0;
    void *handle = qm_library_open(QM_LIBRARY_curand, path, sizeof path);
    if (!handle)
        snprintf(out, size, "no cuRAND: %s; its generator cannot be compared with", path);
    else if (qm_library_symbol(handle, "curandGetVersion", &get) == QM_OK && get(&version) == 0)
        snprintf(out, size, "%s, version %d", path, version);
    else
        snprintf(out, size, "%s found, but it does not tell its version", path);
}

json_t *qm_probe_cuda(void)
{
    static const struct {
        const char *name;
        void (*fill)(char *text, size_t size);
    } texts[] = {{"driver", qm_cuda_driver_text},
                 {"nvrtc", qm_nvrtc_text},
                 {"curand", random_library},
                 {"nvml", qm_nvml_text}};
    json_t *o = json_object();
    char text[1024], cache[512];
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        *text = '\0';
        if (qm_cuda_apart_text(texts[i].fill, text, sizeof text) != QM_OK)
            snprintf(text, sizeof text, "%s", qm_message());
        set_text(o, texts[i].name, text);
    }
    set_text(o, "cache",
             qm_cache_path("", cache, sizeof cache)
                 ? cache
                 : "none (QM_CACHE=off, or no folder to write to)");
    return o;
}

/* ---- plots --------------------------------------------------------------------------------- */

json_t *qm_probe_plots(void)
{
    static const char *const command =
        "/usr/bin/python3 -c 'import sys\n"
        "print(\"python3\", sys.version.split()[0])\n"
        "for name in (\"h5py\", \"matplotlib\"):\n"
        "    try: print(name, __import__(name).__version__)\n"
        "    except Exception as e: print(name, \"missing:\", e)' 2>/dev/null";
    json_t *o = json_object();
    char line[256];
    FILE *f = popen(command, "re");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        char *space = strchr(line, ' ');
        if (!space)
            continue;
        *space = '\0';
        set_text(o, line, space + 1);
    }
    if (f)
        pclose(f);
    if (json_object_size(o) == 0)
        set_text(o, "python3", "missing: /usr/bin/python3 does not run; no plots");
    return o;
}
