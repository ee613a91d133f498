/* threads.c - Counts the processors that a process may use; one thread waits for another. */
#include "core/base/threads.h"

#include <errno.h>
#include <linux/futex.h>
#include <math.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- processors ------------------------------------------------------------------------------ */

int qm_processors_allowed(void)
{
    enum { MOST = 1 << 14 };
    static const size_t bytes = CPU_ALLOC_SIZE(MOST);
    cpu_set_t *set = CPU_ALLOC(MOST);
    int n = set && sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (n < 1)
        n = (int)sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n;
}

/* Reads the first two words of a file; returns how many there are. */
static int two_words(const char *folder, const char *name, char word[2][32])
{
    char path[1200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    int n = fscanf(file, "%31s %31s", word[0], word[1]);
    fclose(file);
    return n < 0 ? 0 : n;
}

/* The quota of one group in processors; 0: it has none.  Version 2 writes both numbers into one
 * file, "max 100000" for none; version 1 has a file for each, -1 for none. */
static double quota_of(const char *folder)
{
    char word[2][32], spare[2][32];
    if (two_words(folder, "cpu.max", word) != 2 &&
        (!two_words(folder, "cpu.cfs_quota_us", word) ||
         !two_words(folder, "cpu.cfs_period_us", spare) || !memcpy(word[1], spare[0], 32)))
        return 0.0;
    double quota = strtod(word[0], NULL), period = strtod(word[1], NULL);
    return quota > 0.0 && period > 0.0 ? quota / period : 0.0;
}

static double lesser_quota(double a, double b) { return a > 0.0 && (b <= 0.0 || a < b) ? a : b; }

/* The least quota of the group root/mount/path and of those above it, down to root/mount. */
static double quota_up(const char *root, const char *mount, const char *path)
{
    char folder[1100];
    double least = 0.0;
    int top = snprintf(folder, sizeof folder, "%s/%s", root, mount);
    int end = snprintf(folder, sizeof folder, "%s/%s%s", root, mount, path);
    if (end < 0 || end >= (int)sizeof folder)
        return 0.0;
    for (;;) {
        least = lesser_quota(quota_of(folder), least);
        char *slash = strrchr(folder, '/');
        if (slash < folder + top)
            return least;
        *slash = 0;
    }
}

/* Whether the words of a list with commas have `word` among them. */
static int lists(const char *words, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = words; (at = strstr(at, word)) != NULL; at += n)
        if ((at == words || at[-1] == ',') && (at[n] == 0 || at[n] == ','))
            return 1;
    return 0;
}

double qm_processors_quota(const char *list, const char *root)
{
    char line[1024];
    double least = 0.0;
    FILE *file = fopen(list, "re");
    if (!file)
        return 0.0;
    while (fgets(line, sizeof line, file)) { /* number:controllers:path */
        line[strcspn(line, "\n")] = 0;
        char *words = strchr(line, ':'), *path = words ? strchr(words + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = 0;
        words++;
        if (!*words)
            least = lesser_quota(quota_up(root, ".", path), least);
        else if (lists(words, "cpu")) {
            least = lesser_quota(quota_up(root, words, path), least);
            least = lesser_quota(quota_up(root, "cpu", path), least);
        }
    }
    fclose(file);
    return least;
}

static int processors;

static void count_processors(void)
{
    double quota = qm_processors_quota("/proc/self/cgroup", "/sys/fs/cgroup");
    processors = qm_processors_allowed();
    if (quota > 0.0 && quota < processors)
        processors = (int)ceil(quota);
}

int qm_processors(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, count_processors);
    return processors;
}

/* ---- the OpenMP library ---------------------------------------------------------------------- */

/* How long threads of the OpenMP library spin at a barrier before they sleep: libgomp's default is
 * 300000 looks (milliseconds), libomp's 200 ms, which is lost where another process has the
 * processor of the thread waited for. */
#ifdef __clang__
static const char spin_name[] = "KMP_BLOCKTIME", spin_value[] = "0"; /* milliseconds */
#else
static const char spin_name[] = "GOMP_SPINCOUNT", spin_value[] = "1000"; /* looks */
#endif

enum { THREADS_MOST = 4096 };

static int spin_is_ours;

/* libgomp reads its environment in a constructor.  This one runs before it, since libgomp is part
 * of the executable (the Makefile links libgomp.a) and 101 is the earliest priority. */
__attribute__((constructor(101))) static void limit_spinning(void)
{
    spin_is_ours =
        !getenv("OMP_WAIT_POLICY") && !getenv(spin_name) && setenv(spin_name, spin_value, 1) == 0;
}

void qm_threads_default(void)
{
    int most = omp_get_max_threads(); /* this call makes libomp read its environment */
    if (spin_is_ours)
        unsetenv(spin_name); /* other programs choose for themselves */
    spin_is_ours = 0;
    if (!getenv("OMP_NUM_THREADS") && qm_processors() < most)
        omp_set_num_threads(qm_processors());
}

qm_status qm_threads_check(void)
{
    const char *word = getenv("OMP_NUM_THREADS");
    char *end;
    if (!word || !*word)
        return QM_OK;
    long n = strtol(word, &end, 10);
    while (*end == ' ')
        end++;
    return end != word && (*end == 0 || *end == ',') && n >= 1 && n <= THREADS_MOST
               ? QM_OK
               : qm_fail(QM_BAD_ARG, "OMP_NUM_THREADS is '%.40s', expected 1 to %d", word,
                         THREADS_MOST);
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* SPINS: looks at the count before a thread sleeps.  They take about as long as being waked. */
enum { SPINS = 500 };

static int reached(uint32_t count, uint32_t until) { return (int32_t)(count - until) >= 0; }

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Either this thread sees that the other one sleeps, or that one sees the raised count: all four
 * accesses are sequentially consistent. */
void qm_count_raise(struct qm_count *c)
{
    uint32_t now = atomic_fetch_add(&c->done, 1) + 1;
    if (atomic_load(&c->asleep) && reached(now, atomic_load(&c->wanted)) &&
        atomic_exchange(&c->asleep, 0))
        syscall(SYS_futex, &c->asleep, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

void qm_count_await(struct qm_count *c, uint32_t until, uint32_t asleep_until, int team)
{
    for (int k = team <= qm_processors() ? SPINS : 0; k >= 0; k--) {
        if (reached(atomic_load_explicit(&c->done, memory_order_acquire), until))
            return;
        relax();
    }
    atomic_store(&c->wanted, asleep_until);
    atomic_store(&c->asleep, 1);
    while (!reached(atomic_load(&c->done), asleep_until) && atomic_load(&c->asleep))
        syscall(SYS_futex, &c->asleep, FUTEX_WAIT_PRIVATE, 1, NULL, NULL, 0);
    atomic_store(&c->asleep, 0);
}
