/* host_channel.c - Starts a warden; sends and receives bytes with descriptors over its socket; text
 * of a host's. */
#include <errno.h>
#include <spawn.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/user_kernel/host_page.h"

extern char **environ;

enum { MOST_FDS = 3 };

long qm_host_send(int fd, const void *data, size_t size, const int *fds, int n_fds)
{
    char room[CMSG_SPACE(MOST_FDS * sizeof(int))] = {0};
    struct iovec part = {(void *)(uintptr_t)data, size};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
    long n;
    if (n_fds > 0) {
        m.msg_control = room;
        m.msg_controllen = CMSG_SPACE((size_t)n_fds * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN((size_t)n_fds * sizeof(int));
        memcpy(CMSG_DATA(c), fds, (size_t)n_fds * sizeof(int));
    }
    do
        n = sendmsg(fd, &m, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n;
}

long qm_host_receive(int fd, void *data, size_t size, int *fds, int n_fds)
{
    char room[CMSG_SPACE(MOST_FDS * sizeof(int))] = {0};
    struct iovec part = {data, size};
    struct msghdr m = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    long n;
    for (int i = 0; i < n_fds; i++)
        fds[i] = -1;
    do
        n = recvmsg(fd, &m, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    struct cmsghdr *c = n >= 0 ? CMSG_FIRSTHDR(&m) : NULL;
    if (c && c->cmsg_type == SCM_RIGHTS && n_fds > 0) {
        size_t bytes = c->cmsg_len - CMSG_LEN(0), most = (size_t)n_fds * sizeof(int);
        memcpy(fds, CMSG_DATA(c), bytes < most ? bytes : most);
    }
    return n;
}

void qm_host_copy_text(char *to, const char *from, size_t size)
{
    size_t n = strnlen(from, size - 1);
    for (size_t i = 0; i < n; i++)
        to[i] = from[i] >= ' ' && from[i] < 127 ? from[i] : from[i] == '\t' ? ' ' : '?';
    to[n] = '\0';
}

int qm_host_spawn(const char *object, int fd, pid_t *pid)
{
    char program[] = "/proc/self/exe", name[] = "qualm", word[] = QM_HOST_WORD;
    char *argv[] = {name, word, (char *)(uintptr_t)object, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fd, QM_HOST_SOCKET);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP); /* Ctrl-C reaches the judge alone */
    int failed = posix_spawn(pid, program, &actions, &attr, argv, environ);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&actions);
    return failed;
}

void qm_host_drain(int fd, char *printed, size_t most)
{
    char more[4096];
    ssize_t n;
    for (int k = 0; k < 64 && (n = read(fd, more, sizeof more)) > 0; k++) { /* may never end */
        size_t used = strlen(printed), take = (size_t)n < most ? (size_t)n : most;
        if (used + take > most) {
            memmove(printed, printed + used + take - most, most - take);
            used = most - take;
        }
        for (size_t i = 0; i < take; i++)
            printed[used + i] = more[(size_t)n - take + i] ? more[(size_t)n - take + i] : ' ';
        printed[used + take] = '\0';
    }
}

void qm_host_add_printed(char *why, size_t size, const char *printed)
{
    enum { SHOWN = 160 };
    size_t n = strlen(printed), used = strlen(why);
    char text[SHOWN + 1];
    qm_host_copy_text(text, printed + (n > SHOWN ? n - SHOWN : 0), sizeof text);
    for (size_t k = strlen(text); k > 0 && (text[k - 1] == '?' || text[k - 1] == ' ');)
        text[--k] = '\0';
    if (*text)
        snprintf(why + used, size - used, "; it had printed: %s", text);
}
