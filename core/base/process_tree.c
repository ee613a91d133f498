/* process_tree.c - Reads /proc: descendants, memory and state of a process. */
#include "core/base/process_tree.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

/* ---- one process ----------------------------------------------------------------------------- */

/* Reads a small file of a process into text; returns its length, 0 on failure. */
static size_t read_file(pid_t pid, const char *name, char *text, size_t size)
{
    char path[96];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(text, 1, size - 1, f) : 0;
    text[n] = '\0';
    if (f)
        fclose(f);
    return n;
}

double qm_process_resident(pid_t pid)
{
    char text[128];
    long long all, pages;
    if (!read_file(pid, "statm", text, sizeof text) || sscanf(text, "%lld %lld", &all, &pages) != 2)
        return 0.0;
    return (double)pages * (double)sysconf(_SC_PAGESIZE) / 1048576.0;
}

/* The proportional share of memory in MiB, in which a page of n processes counts 1/n in each;
 * 0: unknown. */
static double share_of(pid_t pid)
{
    char text[4096];
    const char *at =
        read_file(pid, "smaps_rollup", text, sizeof text) ? strstr(text, "\nPss:") : NULL;
    return at ? strtod(at + 5, NULL) / 1024.0 : 0.0;
}

/* The number after a word at the start of a line of /proc/PID/status, or -1. */
static long status_number(const char *status, const char *word)
{
    const char *at = strstr(status, word);
    return at ? strtol(at + strlen(word), NULL, 10) : -1;
}

long qm_process_private(pid_t pid)
{
    char text[4096];
    long n = read_file(pid, "status", text, sizeof text) ? status_number(text, "\nRssAnon:") : 0;
    return n > 0 ? n : 0;
}

int qm_process_threads(pid_t pid)
{
    char text[4096];
    long n = read_file(pid, "status", text, sizeof text) ? status_number(text, "\nThreads:") : 0;
    return n > 0 ? (int)n : 0;
}

/* The letter of the state and the parent's number, from /proc/PID/stat; 0: there is no process. */
static char stat_of(pid_t pid, int *parent)
{
    char text[512], letter = 0;
    const char *at = read_file(pid, "stat", text, sizeof text) ? strrchr(text, ')') : NULL;
    *parent = 0;
    return at && sscanf(at + 1, " %c %d", &letter, parent) == 2 ? letter : 0;
}

double qm_process_delay(pid_t pid)
{
    char path[300];
    double sum = 0.0;
    struct dirent *task;
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(path);
    while (tasks && (task = readdir(tasks))) {
        unsigned long long ran, waited = 0;
        snprintf(path, sizeof path, "/proc/%d/task/%.200s/schedstat", (int)pid, task->d_name);
        FILE *f = *task->d_name == '.' ? NULL : fopen(path, "re");
        if (f && fscanf(f, "%llu %llu", &ran, &waited) == 2)
            sum += 1e-9 * (double)waited;
        if (f)
            fclose(f);
    }
    if (tasks)
        closedir(tasks);
    return sum;
}

char qm_process_letter(pid_t pid)
{
    int parent;
    return stat_of(pid, &parent);
}

void qm_process_signal(int sig, char *text, size_t size)
{
    static const struct {
        int number;
        const char *name;
    } all[] = {{SIGSEGV, "SIGSEGV"}, {SIGBUS, "SIGBUS"},   {SIGFPE, "SIGFPE"},
               {SIGILL, "SIGILL"},   {SIGABRT, "SIGABRT"}, {SIGKILL, "SIGKILL"},
               {SIGTERM, "SIGTERM"}, {SIGPIPE, "SIGPIPE"}, {SIGXCPU, "SIGXCPU"},
               {SIGSYS, "SIGSYS"},   {SIGTRAP, "SIGTRAP"}, {SIGXFSZ, "SIGXFSZ"},
               {SIGALRM, "SIGALRM"}, {SIGHUP, "SIGHUP"},   {SIGINT, "SIGINT"}};
    snprintf(text, size, "signal %d", sig);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].number == sig)
            snprintf(text, size, "%s", all[i].name);
}

int qm_process_watch(pid_t pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0); /* glibc has a name for it from 2.36 on */
}

/* ---- descendants ----------------------------------------------------------------------------- */

/* Adds the children of one thread; 0: the system does not list them (CONFIG_PROC_CHILDREN). */
static int add_children(pid_t pid, const char *thread, pid_t *out, int *n)
{
    char path[48], whole[96], *word, *rest, text[65536];
    snprintf(path, sizeof path, "task/%.20s/children", thread);
    snprintf(whole, sizeof whole, "/proc/%d/%s", (int)pid, path);
    if (access(whole, R_OK) != 0)
        return 0;
    read_file(pid, path, text, sizeof text);
    for (rest = text; (word = strsep(&rest, " \n"));)
        if (*word && *n < QM_TREE_MOST)
            out[(*n)++] = (pid_t)atoi(word);
    return 1;
}

static int is_number(const char *name) { return *name >= '0' && *name <= '9'; }

/* Adds the children of a process by looking at the parent of every process. */
static void add_by_parent(pid_t pid, pid_t *out, int *n)
{
    DIR *all = opendir("/proc");
    const struct dirent *e;
    int parent;
    while (all && (e = readdir(all)) && *n < QM_TREE_MOST)
        if (is_number(e->d_name) && stat_of((pid_t)atoi(e->d_name), &parent) && parent == pid)
            out[(*n)++] = (pid_t)atoi(e->d_name);
    if (all)
        closedir(all);
}

static void children_of(pid_t pid, pid_t *out, int *n)
{
    char path[48];
    int is_listed = 0;
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *threads = opendir(path);
    const struct dirent *e;
    while (threads && (e = readdir(threads)))
        if (is_number(e->d_name))
            is_listed |= add_children(pid, e->d_name, out, n);
    if (threads)
        closedir(threads);
    if (threads && !is_listed)
        add_by_parent(pid, out, n);
}

int qm_process_children(pid_t pid, pid_t *out)
{
    int n = 0;
    children_of(pid, out, &n);
    return n;
}

int qm_process_descendants(pid_t pid, pid_t *out)
{
    int n = 0, live = 0;
    children_of(pid, out, &n);
    for (int i = 0; i < n; i++) /* n grows */
        children_of(out[i], out, &n);
    for (int i = 0; i < n; i++) {
        char letter = qm_process_letter(out[i]);
        if (letter && letter != 'Z' && letter != 'X')
            out[live++] = out[i];
    }
    return live;
}

double qm_process_use(pid_t pid, double most, int *descendants)
{
    pid_t *all = malloc(sizeof *all * QM_TREE_MOST);
    int n = all ? qm_process_descendants(pid, all) : 0;
    double used = qm_process_resident(pid), share = 0.0;
    for (int i = 0; i < n; i++)
        used += qm_process_resident(all[i]);
    if (n > 0 && used > most) {
        share = share_of(pid);
        for (int i = 0; i < n; i++)
            share += share_of(all[i]);
    }
    free(all);
    *descendants = n;
    return share > 0.0 ? share : used;
}

int qm_process_end_descendants(pid_t pid)
{
    enum { ROUNDS = 200 };
    pid_t *all = malloc(sizeof *all * QM_TREE_MOST);
    int first = -1;
    for (int k = 0; all && k < ROUNDS; k++) {
        int n = qm_process_descendants(pid, all);
        first = first < 0 ? n : first;
        if (n == 0)
            break;
        for (int i = 0; i < n; i++) /* so that none makes more while the others end */
            kill(all[i], SIGSTOP);
        for (int i = 0; i < n; i++)
            kill(all[i], SIGKILL);
        usleep(k < 20 ? 200 : 5000);
    }
    free(all);
    return first > 0 ? first : 0;
}

static int is_in(pid_t pid, const pid_t *list, int n)
{
    for (int i = 0; i < n; i++)
        if (list[i] == pid)
            return 1;
    return 0;
}

/* Kills a child and reaps it, if it ends soon: a driver may hold it. */
static void end_child(pid_t pid)
{
    qm_process_end_descendants(pid);
    kill(pid, SIGKILL);
    for (int k = 0; k < 1000; k++) {
        if (waitpid(pid, NULL, WNOHANG) != 0)
            return;
        usleep(k < 20 ? 200 : 1000);
    }
}

void qm_process_end_children(const pid_t *keep, int n)
{
    enum { ROUNDS = 20 };
    pid_t *all = malloc(sizeof *all * QM_TREE_MOST);
    for (int k = 0, ended = 1; all && ended && k < ROUNDS; k++) { /* theirs come to this process */
        int found = qm_process_children(getpid(), all);
        ended = 0;
        for (int i = 0; i < found; i++)
            if (!is_in(all[i], keep, n)) {
                end_child(all[i]);
                ended = 1;
            }
    }
    free(all);
}

/* ---- what a step must leave as it was -------------------------------------------------------- */

/* Signals 32 and 33, which the C library handles once a process has threads. */
#define OF_LIBC 0x180000000ull

static const struct {
    const char *line, *name;
} lines[] = {
    {"\nUmask:", "umask"},
    {"\nSigBlk:", "signal mask"},
    {"\nSigIgn:", "ignored signals"},
    {"\nSigCgt:", "signal handlers"},
};

void qm_process_state(pid_t pid, char text[QM_PROCESS_STATE])
{
    char status[4096], path[64], folder[512];
    size_t used = 0;
    read_file(pid, "status", status, sizeof status);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        const char *at = strstr(status, lines[i].line);
        unsigned long long bits = at ? strtoull(at + strlen(lines[i].line), NULL, 16) : 0;
        used += (size_t)snprintf(text + used, QM_PROCESS_STATE - used, "%s\t%llx\n", lines[i].name,
                                 i > 0 ? bits & ~OF_LIBC : bits);
    }
    for (int i = 0; i < RLIM_NLIMITS; i++) {
        struct rlimit r = {0, 0};
        if (prlimit(pid, (enum __rlimit_resource)i, NULL, &r) == 0)
            used += (size_t)snprintf(text + used, QM_PROCESS_STATE - used,
                                     "resource limits\t%llx %llx\n", (unsigned long long)r.rlim_cur,
                                     (unsigned long long)r.rlim_max);
    }
    snprintf(path, sizeof path, "/proc/%d/cwd", (int)pid);
    ssize_t n = readlink(path, folder, sizeof folder - 1);
    folder[n > 0 ? n : 0] = '\0';
    snprintf(text + used, QM_PROCESS_STATE - used, "working directory\t%.300s\n", folder);
}

void qm_process_difference(const char *before, const char *now, char *what, size_t size)
{
    *what = '\0';
    while (*before && *now) {
        size_t a = strcspn(before, "\n"), b = strcspn(now, "\n");
        if (a != b || memcmp(before, now, a) != 0) {
            snprintf(what, size, "%.*s", (int)strcspn(before, "\t"), before);
            return;
        }
        before += a + (before[a] == '\n');
        now += b + (now[b] == '\n');
    }
}
