/* host_page.h - What the judge and the host of a kernel write into the page they share.
 *
 * The kernel can write there too; the judge copies what it reads and believes none of it. */
#ifndef QM_USER_KERNEL_HOST_PAGE_H
#define QM_USER_KERNEL_HOST_PAGE_H

#include <signal.h>

#include "core/user_kernel/host.h"

/* Requests to the host: one byte each, answered by the same byte.  `map` comes with the
 * memory file. */
enum qm_host_request {
    QM_HOST_ready = 'r', /* not asked: the host's first byte */
    QM_HOST_load = 'l',
    QM_HOST_map = 'm',
    QM_HOST_unmap = 'u',
    QM_HOST_step = 's',
    QM_HOST_large = 'x'
};

/* What is known of a fault: its address, or why the system does not tell one. */
enum qm_host_fault { QM_FAULT_NONE, QM_FAULT_AT, QM_FAULT_MISALIGNED, QM_FAULT_NO_ADDRESS };

struct qm_host_page {
    /* Of the judge. */
    char object[4096], recipe[1024];
    struct qm_arena_view view;
    int slot, keep_open;
    uint64_t args; /* address of the arguments of a step, in the host */
    /* Of the host. */
    int status, mode, is_running;
    int is_launched; /* 1: a kernel on the GPU is waited for */
    char text[QM_HOST_TEXT], as[1024];
    char finding[QM_HOST_TEXT]; /* of the emulator in this request, or "" */
    uint64_t base, total, fault;
    int64_t large_n; /* elements of the case with large indices, and the numbers it compared */
    int64_t judged;
    int has_fault; /* enum qm_host_fault */
};

/* Requests to the warden, and their answers. */
struct qm_warden_request {
    int ends; /* 1: end the host and all its descendants; 0: fork one, with descriptors: its socket,
               * its output, its page */
    int patience; /* milliseconds in which it may end by itself */
};
struct qm_warden_answer {
    int pid;       /* of the new host */
    int state;     /* of the ended host, as waitpid gives it; -1: there was none */
    int had_ended; /* 1: it ended by itself */
};

enum {
    QM_HOST_SOCKET = 3, /* the descriptor of the warden's socket, and of the host's */
    QM_HOST_LOST = 97   /* exit code of a host that has lost its socket */
};

/* Sends bytes with at most 3 descriptors; receives them.  Return the number of bytes, or -1. */
long qm_host_send(int fd, const void *data, size_t size, const int *fds, int n_fds);
long qm_host_receive(int fd, void *data, size_t size, int *fds, int n_fds);

/* Starts the warden of a kernel, this program again with this socket; 0, or an error of errno. */
int qm_host_spawn(const char *object, int fd, pid_t *pid);

/* Reads what a kernel prints, without waiting: printed[most + 1] keeps the last characters. */
void qm_host_drain(int fd, char *printed, size_t most);

/* host_confine.c.  Takes from this process what would reach the judge and the warden, as far as the
 * system allows: capabilities, ptrace, signals to them, limits of others. */
void qm_host_confine(int judge, int warden);

/* Tells what a fault was; in the handler of its signal. */
enum qm_host_fault qm_host_fault_of(const siginfo_t *info, const void *context);

/* Appends to `why` what a kernel printed last. */
void qm_host_add_printed(char *why, size_t size, const char *printed);

/* Copies text of the host's: at most size - 1 printable characters. */
void qm_host_copy_text(char *to, const char *from, size_t size);

#endif
