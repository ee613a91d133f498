/* host_confine.c - Takes from a kernel's process what would reach the judge. */
#include <errno.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/user_kernel/host_page.h"

/* Numbers that headers of older systems lack; they are the same on every architecture. */
#define NR_PIDFD_SEND_SIGNAL 424
#define NR_PIDFD_GETFD       438
#define NR_LANDLOCK_CREATE   444
#define NR_LANDLOCK_RESTRICT 446

#if defined(__x86_64__)
#define OWN_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define OWN_ARCH AUDIT_ARCH_AARCH64
#endif

/* Without these a process, of root too, neither traces nor writes to a process that is
 * not dumpable. */
static void drop_capabilities(void)
{
    static const int dropped[] = {CAP_KILL,
                                  CAP_SYS_PTRACE,
                                  CAP_SYS_ADMIN,
                                  CAP_SYS_RAWIO,
                                  CAP_SYS_MODULE,
                                  CAP_SYS_BOOT,
                                  CAP_SYS_RESOURCE,
                                  CAP_SYS_CHROOT,
                                  CAP_MKNOD,
                                  CAP_SETPCAP,
                                  38 /* PERFMON */,
                                  39 /* BPF */,
                                  40 /* CHECKPOINT_RESTORE */};
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    if (syscall(SYS_capget, &head, data) != 0)
        return;
    for (size_t i = 0; i < sizeof dropped / sizeof *dropped; i++) {
        unsigned bit = ~(1u << dropped[i] % 32);
        struct __user_cap_data_struct *d = &data[dropped[i] / 32];
        d->effective &= bit;
        d->permitted &= bit;
        d->inheritable &= bit;
    }
    syscall(SYS_capset, &head, data);
}

/* Signals and traces beyond this process and its children end at the border of a Landlock domain
 * (Linux 6.12). */
static void enter_landlock(void)
{
    struct {
        unsigned long long handled_fs, handled_net, scoped;
    } rules = {0, 0, 3}; /* abstract sockets, signals */
    int fd = (int)syscall(NR_LANDLOCK_CREATE, &rules, sizeof rules, 0);
    if (fd < 0)
        return;
    syscall(NR_LANDLOCK_RESTRICT, fd, 0);
    close(fd);
}

#ifdef OWN_ARCH
enum { FILTER_MOST = 96 };

struct rules {
    struct sock_filter at[FILTER_MOST];
    unsigned short n;
};

static void add(struct rules *r, unsigned code, unsigned k, int yes, int no)
{
    r->at[r->n++] =
        (struct sock_filter){(unsigned short)code, (unsigned char)yes, (unsigned char)no, k};
}

static void refuse(struct rules *r) { add(r, BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM, 0, 0); }

static void load(struct rules *r, size_t at)
{
    add(r, BPF_LD | BPF_W | BPF_ABS, (unsigned)at, 0, 0);
}

/* Refuses a call, or, where n > 0, a call whose first argument is one of n numbers. */
static void rule(struct rules *r, unsigned call, const int *first, int n)
{
    if (n == 0) {
        add(r, BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1);
        refuse(r);
        return;
    }
    add(r, BPF_JMP | BPF_JEQ | BPF_K, call, 0, 2 * n + 2);
    load(r, offsetof(struct seccomp_data, args[0]));
    for (int i = 0; i < n; i++) {
        add(r, BPF_JMP | BPF_JEQ | BPF_K, (unsigned)first[i], 0, 1);
        refuse(r);
    }
    load(r, offsetof(struct seccomp_data, nr));
}

static void filter_calls(int judge, int warden)
{
    const int signalled[] = {judge, warden, -judge, -warden, -1}, limited[] = {judge, warden};
    struct rules r = {.n = 0};
    load(&r, offsetof(struct seccomp_data, arch));
    add(&r, BPF_JMP | BPF_JEQ | BPF_K, OWN_ARCH, 1, 0);
    refuse(&r);
    load(&r, offsetof(struct seccomp_data, nr));
#ifdef __x86_64__
    add(&r, BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1); /* the x32 interface */
    refuse(&r);
#endif
    rule(&r, SYS_kill, signalled, 5);
    rule(&r, SYS_tgkill, limited, 2);
    rule(&r, SYS_prlimit64, limited, 2);
    rule(&r, SYS_sched_setaffinity, limited, 2);
    static const int never[] = {SYS_tkill,
                                SYS_rt_sigqueueinfo,
                                SYS_rt_tgsigqueueinfo,
                                NR_PIDFD_SEND_SIGNAL,
                                NR_PIDFD_GETFD,
                                SYS_ptrace,
                                SYS_process_vm_readv,
                                SYS_process_vm_writev,
                                SYS_perf_event_open,
                                SYS_bpf};
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        rule(&r, (unsigned)never[i], NULL, 0);
    add(&r, BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
    struct sock_fprog program = {r.n, r.at};
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}
#endif

void qm_host_confine(int judge, int warden)
{
    drop_capabilities();
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    enter_landlock();
#ifdef OWN_ARCH
    filter_calls(judge, warden);
#endif
}
