/* stand_in_fault.h - Faults of the stand-in for a GPU (stand_in_gpu.h), and what its
 * processes share. */
#ifndef QM_SUPPORT_STAND_IN_FAULT_H
#define QM_SUPPORT_STAND_IN_FAULT_H

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum stand_in_how {
    STAND_IN_NONE,
    STAND_IN_ERROR, /* the call returns the error, once */
    STAND_IN_LATE,  /* a launch returns 0 and every later call of the process the error (700) */
    STAND_IN_HANG,
    STAND_IN_CRASH,
    STAND_IN_EXIT,     /* the library calls exit(error) */
    STAND_IN_LEAVE,    /* _exit(error) */
    STAND_IN_PRINT,    /* the library writes to stdout, by stdio and by its descriptor */
    STAND_IN_SCRIBBLE, /* words of this value over all shared memory, then a crash or _exit(0) */
    STAND_IN_SIGNAL,   /* it raises the signal of this number */
    STAND_IN_FORK,     /* it starts a process in a session of its own, which stays */
    STAND_IN_FSIZE,    /* it lowers the limit on the size of files to 0 */
    STAND_IN_TWIN,     /* it forks, and returns in both processes */
    STAND_IN_GONE,     /* the call and every later one of this and all later processes: no device */
    STAND_IN_GARBAGE   /* it returns 0, does nothing, and fills what it gives with 0xa5 */
};

/* The fault strikes in the process-th process that calls cuInit (the first is 1; 0: in each), at
 * the count-th call of that name there ("*": of any). */
static struct stand_in_fault {
    const char *call;
    int process, count, error;
    enum stand_in_how how;
} stand_in_fault;

enum { STAND_IN_NAMES = 96 };

/* Shared with forked processes. */
static struct stand_in_shared {
    int processes; /* that called cuInit */
    int is_gone, struck;
    int compiles_beside; /* compilations in processes that use the device */
    int most_modules;    /* loaded at once in one process */
    int loads;           /* of modules */
    struct {
        char name[64];
        int most; /* calls of it in one process */
    } made[STAND_IN_NAMES];
} * stand_in_shared;

/* The device; milliseconds: of cuEventElapsedTime where is_fixed is 1, else of the clock; is_idle:
 * launches do nothing; is_mute: copies back to the host do nothing; is_deaf: those to the device do
 * nothing, and its memory is set to NaN; slow:
 * milliseconds of loading a module, which then has no kernels to run; odd: an attribute whose value
 * is odd_value (0: none); quick: times between events are this many times as long; long_reading:
 * the number of that of a process which is 1000 times as long (0: none); counter_bytes: what
 * cuModuleGetGlobal says; shift: of the time between the second event and the third only this share
 * is given (0: all), is_hidden: and the rest beside the time between the first and the second. */
static struct stand_in_card {
    const char *name;
    size_t memory;
    int sms, l2, is_fixed;
    unsigned char uuid;
    float milliseconds;
    int other_from; /* the process from which on it is another card, of another UUID; 0: none */
    int is_idle, odd, odd_value, slow, is_mute, is_deaf;
    float quick;
    int long_reading;
    size_t counter_bytes;
    float shift;
    int is_hidden;
} stand_in_card = {"Stand-in", (size_t)1 << 30,  4,    4096, 0, 1, 0.0f, 0, 0, 0, 0, 0, 0, 0, 1.0f,
                   0,          sizeof(uint64_t), 0.0f, 0};

/* Calls of this name return 0 and do nothing, but for those that are done: the first n of a
 * process; all but the first n; all but every n-th; every n-th; all but one of n, drawn by the
 * seed.  "qm_codes" are parts of a launch of this kernel, of which there are STAND_IN_PARTS;
 * "changes" those of STAND_IN_CHANGE bytes that a launch makes, and "copied" those of STAND_IN_COPY
 * bytes of a copy within the device. */
enum stand_in_done {
    STAND_IN_DONE_first,
    STAND_IN_DONE_later,
    STAND_IN_DONE_most,
    STAND_IN_DONE_each,
    STAND_IN_DONE_drawn
};
enum { STAND_IN_PARTS = 64, STAND_IN_CHANGE = 64, STAND_IN_COPY = 4096 };
static struct stand_in_idle {
    const char *call; /* NULL: all calls are done */
    enum stand_in_done done;
    int n;
    uint64_t seed;
} stand_in_idle;

enum { STAND_IN_GARBLES = -1 }; /* from stand_in_strike */

/* At the head of a call that gives `size` bytes at `out`. */
#define STRIKE_OUT(call, out, size)            \
    do {                                       \
        int struck = stand_in_strike(call);    \
        if (struck == STAND_IN_GARBLES) {      \
            memset(out, 0xa5, (size_t)(size)); \
            return 0;                          \
        }                                      \
        if (struck)                            \
            return struck;                     \
    } while (0)
#define STRIKE(call) STRIKE_OUT(call, (char[1]){0}, 1)

static int stand_in_process, stand_in_calls, stand_in_sticky;
static int stand_in_driver = 13000; /* cuDriverGetVersion */

/* Writes over every writable shared mapping but that of this stand-in. */
static void stand_in_scribble(int word)
{
    char line[512], access[8];
    unsigned long from, to, own = (unsigned long)stand_in_shared;
    FILE *f = fopen("/proc/self/maps", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "%lx-%lx %7s", &from, &to, access) == 3 && strcmp(access, "rw-s") == 0 &&
            (own < from || own >= to))
            for (int *at = (int *)from; at < (int *)to; at++)
                *at = word;
    if (f)
        fclose(f);
}

static void stand_in_leave_process(void)
{
    if (fork() != 0)
        return;
    setsid();
    if (fork() == 0)
        sleep(100);
    _exit(0);
}

/* Counts a call of this process. */
static void stand_in_note(const char *call)
{
    static int n[STAND_IN_NAMES], of;
    int i = 0;
    if (of != getpid())
        memset(n, 0, sizeof n);
    of = getpid();
    while (i + 1 < STAND_IN_NAMES && *stand_in_shared->made[i].name &&
           strcmp(stand_in_shared->made[i].name, call) != 0)
        i++;
    if (!*stand_in_shared->made[i].name)
        snprintf(stand_in_shared->made[i].name, sizeof stand_in_shared->made[i].name, "%s", call);
    if (++n[i] > stand_in_shared->made[i].most)
        stand_in_shared->made[i].most = n[i];
}

/* How often a process has made this call, at most. */
static inline int stand_in_made(const char *call)
{
    for (int i = 0; i < STAND_IN_NAMES; i++)
        if (strcmp(stand_in_shared->made[i].name, call) == 0)
            return stand_in_shared->made[i].most;
    return 0;
}

/* 1: this call is to do nothing. */
static inline int stand_in_is_idle(const char *call)
{
    static int k, of;
    struct stand_in_idle *idle = &stand_in_idle;
    int is_done = 0;
    if (!idle->call || strcmp(idle->call, call) != 0)
        return 0;
    k = of == getpid() ? k + 1 : 1;
    of = getpid();
    switch (idle->done) {
    case STAND_IN_DONE_first: is_done = k <= idle->n; break;
    case STAND_IN_DONE_later: is_done = k > idle->n; break;
    case STAND_IN_DONE_most: is_done = k % idle->n != 0; break;
    case STAND_IN_DONE_each: is_done = k % idle->n == 0; break;
    case STAND_IN_DONE_drawn:
        idle->seed = idle->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        is_done = (idle->seed >> 33) % (uint64_t)idle->n != 0;
    }
    stand_in_shared->struck += !is_done;
    return !is_done;
}

/* Also where this process was started to ignore the signal, as in the background of a shell. */
static void stand_in_be_hit(int number)
{
    struct sigaction was;
    if (sigaction(number, NULL, &was) == 0 && was.sa_handler == SIG_IGN)
        signal(number, SIG_DFL);
    raise(number);
}

/* Called at the head of each call of the driver: 0, or the error to return. */
static int stand_in_strike(const char *call)
{
    const struct stand_in_fault *f = &stand_in_fault;
    stand_in_note(call);
    if (stand_in_shared->is_gone)
        return strcmp(call, "cuInit") == 0 ? 100 : 999;
    if (stand_in_sticky)
        return stand_in_sticky;
    if (f->how == STAND_IN_NONE || (f->process && f->process != stand_in_process) ||
        (strcmp(f->call, "*") != 0 && strcmp(f->call, call) != 0) || ++stand_in_calls != f->count)
        return 0;
    stand_in_shared->struck++;
    switch (f->how) {
    case STAND_IN_LATE: stand_in_sticky = f->error; return 0;
    case STAND_IN_CRASH: raise(SIGSEGV); return 0;
    case STAND_IN_EXIT: exit(f->error);
    case STAND_IN_LEAVE: _exit(f->error);
    case STAND_IN_PRINT:
        printf("a library's chatter\n{\"junk\": 1}\n");
        fflush(stdout);
        return write(STDOUT_FILENO, "more\n", 5) == 5 ? 0 : 1;
    case STAND_IN_SCRIBBLE:
        stand_in_scribble(f->error);
        if (f->error & 1)
            _exit(0);
        raise(SIGSEGV);
        return 0;
    case STAND_IN_SIGNAL: stand_in_be_hit(f->error); return 0;
    case STAND_IN_FORK: stand_in_leave_process(); return 0;
    case STAND_IN_FSIZE: setrlimit(RLIMIT_FSIZE, &(struct rlimit){0, 0}); return 0;
    case STAND_IN_TWIN: (void)!fork(); return 0;
    case STAND_IN_GONE: stand_in_shared->is_gone = 1; return 999;
    case STAND_IN_GARBAGE: return STAND_IN_GARBLES;
    case STAND_IN_HANG:
        for (;;)
            pause();
    default: return f->error;
    }
}

static void stand_in_must(int holds)
{
    if (holds)
        return;
    fputs("stand_in_gpu.h: a call that no driver takes\n", stderr);
    abort();
}

#endif
