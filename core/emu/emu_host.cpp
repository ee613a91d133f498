/* emu_host.cpp - The host's side: CUDA's streams, events and memory; steps of a kernel file. */
#include "emu_far.hpp"
#include "emu_runtime.hpp"
#include "kernel_cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* ---- launches in streams --------------------------------------------------------------------- */

/* Stream 0 is the default stream, which is ordered with all streams but the non-blocking ones. */
struct qm_emu_stream {
    int id, is_free, is_open;  /* is_free: non-blocking */
    uint32_t sees[QM_STREAMS]; /* launches of each stream that are ordered before its next one */
};
struct qm_emu_event {
    uint32_t sees[QM_STREAMS];
    double seconds; /* of the host's clock when it was recorded */
};

enum { LAUNCHES = 4096 };
static struct launch {
    uint32_t epoch, number; /* in its stream */
    int stream;
    const char *name;
} launches[LAUNCHES];
static int n_launches, n_streams = 1, last_error;
static size_t shared_allowed = QM_STATIC_MOST;
static struct qm_emu_stream streams[QM_STREAMS];
static uint32_t host_sees[QM_STREAMS]; /* launches of each stream that the host has waited for */

static void join(uint32_t *to, const uint32_t *from)
{
    for (int i = 0; i < QM_STREAMS; i++)
        if (from[i] > to[i])
            to[i] = from[i];
}

/* Begins work in a stream, ordered after what the host has waited for and by the default stream's
 * rule. */
static struct qm_emu_stream *begin(struct qm_emu_stream *s)
{
    s = s ? s : &streams[0];
    join(s->sees, host_sees);
    if (s == &streams[0])
        for (int i = 1; i < n_streams; i++)
            join(s->sees, streams[i].is_free ? s->sees : streams[i].sees);
    else if (!s->is_free)
        join(s->sees, streams[0].sees);
    return s;
}

static const struct qm_emu_stream *current; /* of the work that runs */

int qm_launch_begin(void *stream, const char *name)
{
    struct qm_emu_stream *s = begin((struct qm_emu_stream *)stream);
    struct qm_emu_at nowhere = {NULL, 0};
    if (n_launches == LAUNCHES) {
        qm_emu_fail(nowhere, "more than %d launches in a step", LAUNCHES);
        return -1;
    }
    s->sees[s->id]++;
    launches[n_launches] = launch{qm_now.epoch + 1, s->sees[s->id], s->id, name};
    current = s;
    return n_launches++;
}

const char *qm_launch_unordered(uint32_t epoch)
{
    int low = 0, high = n_launches - 1;
    if (n_streams == 1 || n_launches == 0)
        return NULL;
    while (low < high) { /* the last launch that had begun by then */
        int k = (low + high + 1) / 2;
        if (launches[k].epoch <= epoch)
            low = k;
        else
            high = k - 1;
    }
    const struct launch *l = &launches[low];
    return l->epoch <= epoch && current && current->sees[l->stream] < l->number ? l->name : NULL;
}

/* A launch that the host has not waited for, or NULL. */
static const char *unwaited()
{
    for (int i = 0; i < n_launches; i++)
        if (host_sees[launches[i].stream] < launches[i].number)
            return launches[i].name;
    return NULL;
}

void qm_launch_failed(int error) { last_error = error; }
size_t qm_shared_allowed(void) { return shared_allowed; }

extern "C" {
int qm_emu_last_error(int reset)
{
    int e = last_error;
    if (reset)
        last_error = 0;
    return e;
}

void qm_emu_allow_shared(int bytes)
{
    if (bytes > (int)shared_allowed)
        shared_allowed = bytes > QM_DYNAMIC_MOST ? (size_t)QM_DYNAMIC_MOST : (size_t)bytes;
}

struct qm_emu_stream *qm_emu_stream_open(unsigned int flags)
{
    int i = 1;
    while (i < n_streams && streams[i].is_open)
        i++;
    if (i == QM_STREAMS)
        return NULL;
    n_streams = i == n_streams ? i + 1 : n_streams;
    streams[i].id = i;
    streams[i].is_free = flags & 1;
    streams[i].is_open = 1;
    qm_now.many_streams = 1;
    return &streams[i];
}

void qm_emu_stream_close(struct qm_emu_stream *stream)
{
    if (stream)
        stream->is_open = 0; /* all its work is done: work is done at once */
}

void qm_emu_wait(struct qm_emu_stream *stream, int for_all)
{
    join(host_sees, begin(stream)->sees);
    for (int i = 0; for_all && i < n_streams; i++)
        join(host_sees, streams[i].sees);
}

struct qm_emu_event *qm_emu_event_open(void)
{
    return (struct qm_emu_event *)calloc(1, sizeof(struct qm_emu_event));
}

void qm_emu_event_close(struct qm_emu_event *event) { free(event); }

void qm_emu_event_record(struct qm_emu_event *event, struct qm_emu_stream *stream)
{
    struct timespec t;
    memcpy(event->sees, begin(stream)->sees, sizeof event->sees);
    clock_gettime(CLOCK_MONOTONIC, &t);
    event->seconds = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double qm_emu_event_seconds(struct qm_emu_event *event) { return event->seconds; }

int qm_emu_is_device(const void *p)
{
    const char *name;
    return qm_region_flags(p, &name) >= 0;
}

void qm_emu_event_wait(struct qm_emu_event *event, struct qm_emu_stream *stream, int is_host)
{
    join(is_host ? host_sees : (stream ? stream : &streams[0])->sees, event->sees);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Memory is aligned to malloc_at bytes and to no more; malloc_most: the most bytes of one call, in
 * an ordinary step.  In a step beyond 2^31 elements bytes without memory lie before it, which no
 * index of 32 bits leaves. */
static const size_t malloc_at = 256, malloc_most = (size_t)1 << 30;
static const size_t far_most = (size_t)1 << 36, far_before = (size_t)1 << 33;
static const struct {
    const char *name;
    int flags;
} kinds[] = {{"memory of cudaMalloc", QM_REGION_BLANK | QM_REGION_DEVICE},
             {"memory of cudaMallocManaged", QM_REGION_BLANK},
             {"memory of cudaMallocHost", QM_REGION_BLANK | QM_REGION_PINNED}};

void *qm_emu_malloc(size_t bytes, enum qm_emu_memory kind)
{
    size_t lead = (qm_far.n > 0 ? far_before : 0) + malloc_at;
    void *map = bytes > 0 && bytes <= (qm_far.n > 0 ? far_most : malloc_most)
                    ? mmap(NULL, lead + bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                    : MAP_FAILED;
    if (map == MAP_FAILED) {
        last_error = bytes > 0 ? 2 : last_error;
        return NULL;
    }
    void *p = (unsigned char *)map + lead;
    if (qm_far.n == 0)
        memset(p, 0xff, bytes); /* NaNs */
    qm_region_add(kinds[kind].name, p, bytes,
                  kinds[kind].flags | (qm_far.n > 0 ? QM_REGION_FAR : 0));
    return p;
}

void qm_emu_free(void *p, int is_host, struct qm_emu_at at)
{
    const char *name = NULL, *call = is_host ? "cudaFreeHost" : "cudaFree";
    size_t bytes = 0;
    if (!p)
        return;
    int flags = qm_region_flags(p, &name);
    if (flags < 0 && name) {
        qm_emu_fail(at, "%s of %s that was freed before", call, name);
        return;
    }
    if (flags < 0 || !(flags & QM_REGION_BLANK) || (uintptr_t)p % 4096 != malloc_at) {
        qm_emu_fail(at, "%s of what is not allocated", call);
        return;
    }
    if (is_host != ((flags & QM_REGION_PINNED) != 0)) {
        qm_emu_fail(at, "%s of %s", call, name);
        return;
    }
    (void)qm_region_covers(p, 0, &name, &bytes);
    size_t lead = (flags & QM_REGION_FAR ? far_before : 0) + malloc_at;
    qm_region_free(p, (unsigned char *)p - lead, lead + bytes);
}

/* Whether one end of a copy is memory of the kind that it must be: the host's, or a device's.  The
 * buffers of a step and managed memory are both. */
static int end_is_valid(const void *p, int is_device, const char *what, struct qm_emu_at at)
{
    const char *name = NULL;
    int flags = qm_region_flags(p, &name);
    if (flags < 0 && name) {
        qm_emu_fail(at, "%s %s that was freed", what, name);
        return 0;
    }
    int is_host = flags < 0 || (flags & QM_REGION_PINNED) ||
                  ((flags & QM_REGION_MODULE) && !(flags & QM_REGION_DEVICE) &&
                   strncmp(name, "__managed__", 11) != 0);
    if (is_device < 0 || (is_device ? !is_host : !(flags >= 0 && (flags & QM_REGION_DEVICE))))
        return 1;
    qm_emu_fail(at, "%s %s, expected memory of the %s", what,
                flags < 0 || (flags & QM_REGION_MODULE && is_host) ? "host memory" : name,
                is_host ? "device" : "host");
    return 0;
}

static int kind_is_valid(void *to, const void *from, int way, struct qm_emu_at at)
{
    static const struct {
        const char *name;
        int to, from; /* 1: a device's; 0: the host's; -1: either */
    } ways[] = {{"cudaMemcpyHostToHost", 0, 0},
                {"cudaMemcpyHostToDevice", 1, 0},
                {"cudaMemcpyDeviceToHost", 0, 1},
                {"cudaMemcpyDeviceToDevice", 1, 1},
                {"cudaMemcpyDefault", -1, -1}};
    char what[80];
    if ((unsigned int)way >= sizeof ways / sizeof *ways) {
        qm_emu_fail(at, "a copy of kind %d: there is no such cudaMemcpyKind", way);
        return 0;
    }
    snprintf(what, sizeof what, "a copy of kind %s reads from", ways[way].name);
    if (!end_is_valid(from, ways[way].from, what, at))
        return 0;
    snprintf(what, sizeof what, "a copy of kind %s writes to", ways[way].name);
    return end_is_valid(to, ways[way].to, what, at);
}

static int copy_is_valid(const void *p, size_t bytes, const char *what, struct qm_emu_at at)
{
    const char *name = NULL;
    size_t left = 0;
    if (qm_region_covers(p, bytes, &name, &left))
        return 1;
    qm_emu_fail(at, "cudaMemcpy or cudaMemset %s %zu bytes, and %s ends after %zu", what, bytes,
                name, left);
    return 0;
}

static int copy_is_ordered(const void *p, size_t bytes, struct qm_emu_at at)
{
    const char *kernel = NULL;
    if (n_streams == 1 || !qm_region_unordered(p, bytes, &kernel))
        return 1;
    qm_emu_fail(at, "a copy touches what %s wrote in another stream, and nothing orders the two",
                kernel);
    return 0;
}

void qm_emu_copy(void *to, const void *from, size_t bytes, int way, struct qm_emu_stream *stream,
                 int waits, struct qm_emu_at at)
{
    if (*qm_emu_text || bytes == 0)
        return;
    current = begin(stream);
    if (kind_is_valid(to, from, way, at) && copy_is_valid(from, bytes, "reads", at) &&
        copy_is_valid(to, bytes, "writes", at) && copy_is_ordered(from, bytes, at) &&
        copy_is_ordered(to, bytes, at)) {
        if (qm_far.n > 0) {
            qm_far_copy(to, from, bytes);
        } else {
            __real_memcpy(to, from, bytes);
            qm_region_written(to, bytes);
        }
    }
    if (waits)
        qm_emu_wait(stream, 0);
}

void qm_emu_fill(void *to, int byte, size_t bytes, struct qm_emu_stream *stream,
                 struct qm_emu_at at)
{
    if (*qm_emu_text || bytes == 0)
        return;
    current = begin(stream);
    if (end_is_valid(to, 1, "cudaMemset writes to", at) && copy_is_valid(to, bytes, "writes", at) &&
        copy_is_ordered(to, bytes, at)) {
        if (qm_far.n > 0) {
            qm_far_fill(to, byte, bytes);
        } else {
            __real_memset(to, byte, bytes);
            qm_region_written(to, bytes);
        }
    }
}
}

/* ---- the buffers of a step ------------------------------------------------------------------- */

static size_t type_bytes(int dtype)
{
    return dtype == QM_KERNEL_F32 ? 4 : dtype == QM_KERNEL_E4M3 ? 1 : 2;
}

static size_t residual_bytes(const struct qm_kernel_args *a)
{
    const char *word = a->param ? strchr(a->param, '/') : NULL;
    return word && strcmp(word, "/ecc8") == 0    ? 1
           : word && strcmp(word, "/ecc16") == 0 ? 2
                                                 : type_bytes(a->p_dtype);
}

static void add_slot(const struct qm_kernel_slot *s, int i)
{
    static char names[QM_KERNEL_SLOTS][5][48];
    static const char *const words[] = {"codes", "scales", "values", "codebook", "draws"};
    const void *at[] = {s->codes, s->scales, s->values, s->codebook, s->draws};
    size_t bytes[] = {(size_t)s->code_bytes, 4 * (size_t)s->n_scales, 4 * (size_t)s->n,
                      (size_t)4 << s->bits, 4 * (size_t)s->n};
    for (int k = 0; k < 5; k++) {
        snprintf(names[i][k], sizeof names[i][k], "%s of %.20s", words[k], s->name);
        qm_region_add(names[i][k], at[k], bytes[k],
                      QM_REGION_STEP | (k >= 3 ? QM_REGION_CONST : 0));
    }
}

static void add_args(const struct qm_kernel_args *a)
{
    size_t n = (size_t)a->n;
    qm_region_drop_step();
    qm_region_add("arguments", a, sizeof *a, QM_REGION_STEP | QM_REGION_CONST);
    qm_region_add("parameters", a->p, n * type_bytes(a->p_dtype), QM_REGION_STEP);
    qm_region_add("gradients", a->g, n * type_bytes(a->g_dtype), QM_REGION_STEP | QM_REGION_CONST);
    qm_region_add("residuals", a->residual, n * residual_bytes(a), QM_REGION_STEP);
    qm_region_add("draws of the parameters", a->p_draws, 4 * n, QM_REGION_STEP | QM_REGION_CONST);
    for (int i = 0; i < a->n_slots; i++)
        add_slot(&a->slot[i], i);
}

/* ---- a step ---------------------------------------------------------------------------------- */

typedef void step_fn(struct qm_cuda_args c);
extern "C" {
int qm_emu_user_step(const struct qm_kernel_args *a) __attribute__((weak));
void qm_emu_launch(struct qm_index grid, struct qm_index block, size_t shared, void *stream,
                   const char *name, struct qm_emu_call call, struct qm_emu_at at);
#define STEP(name)                                          \
    void name(struct qm_cuda_args c) __attribute__((weak)); \
    extern int name##_launch[3] __attribute__((weak));
STEP(qm_cuda_step)
STEP(qm_cuda_step_2)
STEP(qm_cuda_step_3)
STEP(qm_cuda_step_4)
STEP(qm_cuda_step_5)
STEP(qm_cuda_step_6)
STEP(qm_cuda_step_7)
STEP(qm_cuda_step_8)
#undef STEP
}

extern "C" {
void qm_cuda_nearest(const float *y, int64_t n, unsigned char *code) __attribute__((weak));
extern int qm_cuda_nearest_launch[3] __attribute__((weak));
}

struct nearest_call {
    const float *y;
    int64_t n;
    unsigned char *code;
};

static void call_nearest(void *closure)
{
    const struct nearest_call *c = (const struct nearest_call *)closure;
    qm_cuda_nearest(c->y, c->n, c->code);
}

static const struct step {
    const char *name;
    step_fn *kernel;
    const int *launch;
} steps[QM_CUDA_STEPS] = {
#define STEP(name)                 \
    {                              \
#name, name, name##_launch \
    }
    STEP(qm_cuda_step),   STEP(qm_cuda_step_2), STEP(qm_cuda_step_3),
    STEP(qm_cuda_step_4), STEP(qm_cuda_step_5), STEP(qm_cuda_step_6),
    STEP(qm_cuda_step_7), STEP(qm_cuda_step_8)
#undef STEP
};

struct call {
    step_fn *kernel;
    struct qm_cuda_args args;
};

static void call_step(void *closure)
{
    const struct call *c = (const struct call *)closure;
    c->kernel(c->args);
}

/* A step of a file of device code alone: its kernels, one after the other. */
static int device_step(const struct qm_kernel_args *a)
{
    static struct call c;
    static uint32_t refused;
    struct qm_emu_at nowhere = {NULL, 0};
    refused = 0;
    c.args.a = *a;
    c.args.a.recipe = c.args.a.param = NULL;
    c.args.refused = &refused;
    c.args.n_scratch = QM_CUDA_SCRATCH_SPARE;
    for (int i = 0; i < a->n_slots; i++) {
        c.args.a.slot[i].name = c.args.a.slot[i].quantizer = NULL;
        c.args.n_scratch += a->slot[i].n_scales;
    }
    size_t bytes = sizeof(float) * (size_t)c.args.n_scratch;
    c.args.scratch = (float *)calloc(1, bytes); /* of 2^31 elements: most pages are never touched */
    qm_region_add("scratch", c.args.scratch, bytes, QM_REGION_STEP);
    for (const struct step *s = steps; s < steps + QM_CUDA_STEPS && s->kernel && !refused; s++) {
        if (!s->launch) {
            qm_emu_fail(nowhere, "%s has no QM_CUDA_LAUNCH line", s->name);
            break;
        }
        uint64_t per = (uint64_t)s->launch[1], n = (uint64_t)a->n;
        uint64_t blocks = per > 0 && n > 0 ? (n + per - 1) / per : 1;
        qm_index grid = {blocks > 0xffffffffu ? 0xffffffffu : (unsigned int)blocks, 1, 1};
        qm_index block = {(unsigned int)s->launch[0], 1, 1};
        c.kernel = s->kernel;
        qm_emu_launch(grid, block, (size_t)s->launch[2], NULL, s->name, {call_step, &c, sizeof c},
                      nowhere);
    }
    free(c.args.scratch);
    qm_emu_wait(NULL, 1);
    return (int)refused;
}

static int call_user(const void *a) { return qm_emu_user_step((const struct qm_kernel_args *)a); }

extern "C" {
/* Begin and end of a step, of a kernel file or of core/device/step_emu.cu. */
void qm_emu_step_begin(void)
{
    *qm_emu_text = '\0';
    last_error = 0;
    qm_now.step_epoch = ++qm_now.epoch;
    qm_region_drop_step();
}

void qm_emu_step_end(int is_refused)
{
    struct qm_emu_at nowhere = {NULL, 0};
    const char *open = is_refused ? NULL : unwaited();
    if (open)
        qm_emu_fail(nowhere,
                    "the step returns without having waited for %s "
                    "(cudaDeviceSynchronize)",
                    open);
    qm_emu_wait(NULL, 1);
    n_launches = 0;
    qm_region_drop_step();
}

int qm_kernel_step(const struct qm_kernel_args *a)
{
    struct qm_emu_at nowhere = {NULL, 0};
    int refused = 0;
    qm_emu_step_begin();
    add_args(a);
    if (qm_emu_user_step)
        refused = qm_step_call(call_user, a);
    else if (qm_cuda_step)
        refused = device_step(a);
    else
        qm_emu_fail(nowhere, "the file has neither qm_kernel_step nor qm_cuda_step");
    qm_emu_step_end(refused);
    return *qm_emu_text ? 0 : refused;
}

/* The nearest-code routine (kernel_nearest.h) of a file with the kernel qm_cuda_nearest. */
void qm_nearest(const float *y, long n, unsigned char *code)
{
    struct qm_emu_at nowhere = {NULL, 0};
    qm_emu_step_begin();
    qm_region_add("values", y, sizeof *y * (size_t)n, QM_REGION_STEP | QM_REGION_CONST);
    qm_region_add("codes", code, (size_t)n, QM_REGION_STEP);
    if (!qm_cuda_nearest || !qm_cuda_nearest_launch) {
        qm_emu_fail(nowhere, "the file has no qm_cuda_nearest with a QM_CUDA_LAUNCH line");
    } else {
        struct nearest_call c = {y, n, code};
        long per = qm_cuda_nearest_launch[1];
        qm_index grid = {per > 0 ? (unsigned int)((n + per - 1) / per) : 1u, 1, 1};
        qm_index block = {(unsigned int)qm_cuda_nearest_launch[0], 1, 1};
        qm_emu_launch(grid, block, (size_t)qm_cuda_nearest_launch[2], NULL, "qm_cuda_nearest",
                      {call_nearest, &c, sizeof c}, nowhere);
        qm_emu_wait(NULL, 1);
    }
    qm_emu_step_end(0);
}

/* A step of a tensor in reserved address space, of which only the blocks are run that work on the
 * first `block` elements and on those from 2^31 - block on.  *left: why it was left before its end,
 * or NULL; *doubt: why its numbers may be wrong without a fault of the kernel, or NULL. */
int qm_emu_far_step(const struct qm_kernel_args *a, int64_t block, const char **left,
                    const char **doubt)
{
    qm_far = {};
    qm_far.n = a->n;
    qm_far.block = block;
    int refused = qm_kernel_step(a);
    *left = qm_far.left;
    *doubt = qm_far.doubt;
    qm_far_end();
    return refused;
}

/* The first finding of the last step, or "". */
const char *qm_emu_finding(void) { return qm_emu_text; }

/* Writes the thread and kernel in which a signal struck, or "".  Async-signal-safe, but it needs
 * stack. */
void qm_emu_where(char *text, size_t size)
{
    char who[64];
    *text = '\0';
    if (qm_now.is_running)
        snprintf(text, size, "%s, kernel %s", qm_thread_name(qm_now.thread, who), qm_now.kernel);
}
}
