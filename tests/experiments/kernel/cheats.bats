#!/usr/bin/env bats
# cheats.bats - Tests that no kernel gets "passed" without being right, nor ends the check.
#
# The kernels here compute sgdm_f32, most of them wrong, and then go for the judge instead.
load ../../support/cli_common

one=61x67/normal/wd/t1/forced
count=$(qualm check --list-cases sgdm_f32 | wc -l)

setup() {
    cd "$BATS_TEST_TMPDIR" || exit 1
    export TMPDIR=$BATS_TEST_TMPDIR/tmp
    mkdir "$TMPDIR"
}

# No kernel leaves a process behind, whatever it did to hide it.
teardown() {
    ! pgrep -f "kernel-host.*$BATS_TEST_TMPDIR" || return 1
    ! pgrep -f "$BATS_TEST_TMPDIR/[c]heat-child" || return 1
    [ -z "$(ls "$TMPDIR")" ] || { ls "$TMPDIR"; return 1; }
}

# kernel FACTOR [BEFORE [AFTER [GLOBAL]]]: writes k.c, which is right where FACTOR is 1.0f
kernel() {
    cat > k.c <<C
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include "kernel_abi.h"
QM_KERNEL("sgdm_f32");
${4:-}
int qm_kernel_step(const struct qm_kernel_args *a)
{
    float *p = a->p, *m = a->slot[0].values;
    const float *g = a->g;
    int64_t n = a->n;
    ${2:-}
    for (int64_t i = 0; i < n; i++) {
        float d = a->maximize ? -g[i] : g[i], momentum = (float)a->momentum;
        if (a->weight_decay != 0.0) d = fmaf(p[i], (float)a->weight_decay, d);
        if (momentum != 0.0f) {
            m[i] = a->t == 1 ? d : fmaf(d, (float)(1.0 - a->dampening), m[i] * momentum);
            d = a->nesterov ? fmaf(m[i], momentum, d) : m[i];
        }
        p[i] = fmaf(d, (float)-a->lr, p[i]) * $1;
    }
    ${3:-}
    return 0;
}
C
}

# fails RESULT TEXT SECONDS OPTIONS...: the check of k.c, --quick where OPTIONS have no case, exits
# with 1 and says RESULT and TEXT
fails() {
    local result=$1 text=$2 most=$3 from=$SECONDS
    shift 3
    [[ " $* " == *" --case "* ]] || set -- --quick "$@"
    CFLAGS="-std=gnu11 -pthread" run -1 timeout 120 "$QUALM" check --no-shrink --kernel k.c -q "$@"
    if [[ $output != *FAILED*"$result: "*"$text"* ]] || [[ $output == *" passed"$'\n'* ]]; then
        echo "expected $result with '$text', got: $output"
        return 1
    fi
    [ $((SECONDS - from)) -le "$most" ] || { echo "took $((SECONDS - from)) s"; return 1; }
}

@test "the kernel that all cheats start from: right with factor 1, wrong with another" {
    long 5
    kernel 1.0f
    run -0 "$QUALM" check --no-shrink --kernel k.c -q
    kernel 1.25f
    fails failed want 10
}

@test "an answer forged on every descriptor, before or instead of the step" {
    local forge='for (int fd = 3; fd < 256; fd++) {
        const char text[] =
            "{\"case\": \"61x67/normal/wd/t1/forced\", \"tally\": {\"failed_cases\": 0}}\n";
        if (write(fd, text, sizeof text - 1) < 0) continue;
    }'
    kernel 1.25f "$forge"
    fails garbage "no answer" 10 --case "$one"
    kernel 1.25f 'for (int fd = 3; fd < 256; fd++) if (write(fd, "s", 1) < 0) continue;'
    fails "" "" 10 --case "$one" # the very byte that the judge waits for
    kernel 1.25f 'static int k;
        for (int fd = 3; k++ > 3 && fd < 256; fd++) send(fd, "susss", 5, 0);'
    fails "" "" 20
}

@test "code and data of its own process patched" {
    long 4
    kernel 1.25f '
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512], mode[8];
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        if (sscanf(line, "%lx-%lx %7s", &from, &to, mode) == 3 && strstr(line, "qualm") &&
            mode[2] == 0x78) /* x: every function returns 0 at once, but for this library */
            if (mprotect((void *)from, to - from, 7) == 0)
                for (unsigned long k = from; k + 4 <= to; k += 16)
                    memcpy((void *)k, "\x31\xc0\xc3\x90", 4);
    }'
    fails "" "" 60
}

@test "everything refused, or every difficult input" {
    long 4
    kernel 1.0f "if (n > 0) return 1;"
    run -1 "$QUALM" check --no-shrink --kernel k.c -q
    [[ $output == *refused* && $output == *"--allow-refused"* ]]
    kernel 1.0f "for (int64_t i = 0; i < n; i++)
        if (!(fabsf(g[i]) < 1e3f && fabsf(g[i]) > 1e-30f)) return 1;"
    run -1 "$QUALM" check --no-shrink --kernel k.c -q
    [[ $output == *"refused by class"* ]]
    run -0 "$QUALM" check --no-shrink --kernel k.c -q --allow-refused "$count"
}

@test "children: left behind, hidden by two forks and a session of their own, too many" {
    local child='execlp("sh", "'$BATS_TEST_TMPDIR'/cheat-child", "-c", "sleep 300; :", (char *)0);
        _exit(1);'
    kernel 1.0f "if (fork() == 0) { $child }"
    fails processes "processes behind" 10 --case "$one"
    kernel 1.0f "if (fork() == 0) { setsid(); if (fork() == 0) { setsid(); $child } _exit(0); }
        wait(NULL);"
    fails processes "processes behind" 10 --case "$one"
    kernel 1.0f "prctl(PR_SET_PDEATHSIG, 0);
        for (int i = 0; i < 100; i++) if (fork() == 0) { setsid(); $child }
        usleep(2000000);"
    fails processes "child processes at one time, the limit is 64" 20 --case "$one"
    kernel 1.0f "for (int i = 0; i < 8; i++) if (fork() == 0) { setsid(); _exit(0); }
        while (wait(NULL) > 0) ;"
    CFLAGS=-std=gnu11 run -0 "$QUALM" check --no-shrink --kernel k.c -q --case "$one" # it waits
}

@test "memory of a child counts" {
    kernel 1.0f 'if (fork() == 0) {
        setsid();
        for (long k = 0; k < 3000; k++) {
            char *x = malloc(1 << 20);
            memset(x, 1, 1 << 20);
            usleep(300);
        }
        pause();
    }
    wait(NULL);'
    fails memory "with its child processes, the limit is 300" 15 --limit-memory 300 --case "$one"
}

@test "threads that write after the return" {
    local late='static void *late(void *x) { usleep(10000); *(volatile float *)x = 7; return 0; }'
    kernel 1.0f "" "pthread_t t; pthread_create(&t, 0, late, p); pthread_detach(t);" "$late"
    fails crashed "after the step's return" 30 --case "$one"
    fails crashed "SIGSEGV" 30
    # Through a mapping of its own, which no page protection reaches.
    kernel 1.0f "" 'pthread_t t; own = p; pthread_create(&t, 0, late, 0); pthread_detach(t);' '
    static float *own;
    static void *late(void *x) {
        for (int k = 0; k < 2000; k++) {
            mprotect((void *)((uintptr_t)own & ~4095ul), 4096, PROT_READ | PROT_WRITE);
            *(volatile float *)own += 1;
            usleep(10);
        }
        return x;
    }'
    fails "" "" 60
}

@test "limits, signals, folder, umask, rounding: verdicts of their case, none ends the check" {
    long 2
    kernel 1.0f "struct rlimit none = {0, 0};
        setrlimit(RLIMIT_NOFILE, &none);
        setrlimit(RLIMIT_CPU, &(struct rlimit){60, 60});"
    fails failed "left the resource limits of its process changed" 60
    kernel 1.0f "setrlimit(RLIMIT_AS, &(struct rlimit){1 << 20, 1 << 20});"
    fails failed "left the resource limits of its process changed" 60
    kernel 1.0f "sigset_t s; sigfillset(&s); sigprocmask(SIG_BLOCK, &s, 0);"
    fails failed "left the signal mask of its process changed" 10 --case "$one"
    kernel 1.0f "signal(SIGSEGV, SIG_IGN);"
    fails failed "left the ignored signals of its process changed" 10 --case "$one"
    kernel 1.0f "signal(SIGUSR1, (void (*)(int))abs);"
    fails failed "left the signal handlers of its process changed" 10 --case "$one"
    kernel 1.0f "umask(0777);"
    fails failed "left the umask of its process changed" 10 --case "$one"
    kernel 1.0f 'if (chdir("/") != 0) return 1;'
    fails failed "left the working directory of its process changed" 10 --case "$one"
    kernel 1.0f "" "extern int fesetround(int); fesetround(0xc00);"
    fails failed "left the rounding mode changed" 10 --case "$one"
}

@test "flushed denormals: -ffast-math is named, and the numbers are judged" {
    long 4
    [ "$(uname -m)" = x86_64 ] || skip "x86-64 alone"
    kernel 1.0f
    CFLAGS=-ffast-math run -1 "$QUALM" check --no-shrink --kernel k.c -q
    [[ $output == *"-ffast-math"* && $output == *want* ]]
    judged=$(CFLAGS=-ffast-math json_value 'd["judged"]' check --no-shrink --kernel k.c)
    [ "$judged" -gt 1000000 ]
}

@test "descriptors closed" {
    kernel 1.0f "for (int fd = 3; fd < 256; fd++) close(fd);"
    fails garbage "closed the connection" 10 --case "$one"
    kernel 1.0f "for (int fd = 0; fd < 256; fd++) close(fd); for (;;) pause();"
    fails garbage "closed the connection and went on" 10 --case "$one"
}

@test "signals to the judge and its relatives" {
    kernel 1.25f 'kill(getppid(), SIGKILL); kill(-1, SIGKILL); kill(0, 0);
    char path[64], text[256]; int pid = getppid(), up = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *f = fopen(path, "r");
    if (f && fgets(text, sizeof text, f) && strrchr(text, 41))
        sscanf(strrchr(text, 41) + 1, " %*c %d", &up);
    if (up > 1) {
        kill(up, SIGKILL);
        syscall(SYS_tgkill, up, up, SIGKILL);
        syscall(SYS_tkill, up, SIGKILL);
    }'
    fails "" "" 60
}

@test "memory of the judge: not traced, not written, not opened" {
    kernel 1.25f 'char path[64], text[256]; int up = 0; FILE *f;
    int pids[2] = {getppid(), 0};
    snprintf(path, sizeof path, "/proc/%d/stat", pids[0]);
    if ((f = fopen(path, "r")) && fgets(text, sizeof text, f) && strrchr(text, 41))
        sscanf(strrchr(text, 41) + 1, " %*c %d", &up);
    pids[1] = up;
    for (int i = 0; i < 2; i++) {
        extern long ptrace(int, ...);
        struct iovec x = {text, 1}, y = {(void *)0x400000, 1};
        snprintf(path, sizeof path, "/proc/%d/mem", pids[i]);
        if (open(path, O_RDWR) >= 0 || ptrace(16, pids[i], 0, 0) == 0 ||
            process_vm_writev(pids[i], &x, 1, &y, 1, 0) >= 0 || prlimit(pids[i], RLIMIT_CPU,
            &(struct rlimit){0, 0}, 0) == 0 || pids[i] < 2)
            puts("reached"), fflush(stdout), abort();
    }'
    fails failed want 10 --case "$one"
    [[ $output != *reached* && $output != *crashed* ]]
}

@test "a kernel that stops itself, exits in a constructor or in a destructor" {
    kernel 1.0f "raise(SIGSTOP);"
    fails hung "it stopped itself (SIGSTOP)" 10 --case "$one"
    kernel 1.25f "" "" '__attribute__((constructor)) static void first(void) { exit(0); }'
    fails left "while it was loaded: it called exit(0)" 10
    kernel 1.25f "" "" '__attribute__((destructor)) static void last(void) { _exit(0); }'
    fails failed want 20 --case "$one"
    kernel 1.25f "" "" 'static void bye(void) { _exit(0); }
    __attribute__((constructor)) static void first(void) { atexit(bye); }'
    fails failed want 20 --case "$one"
}
