/* host_channel.c - Sends and receives bytes with descriptors over a socket. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "core/user_kernel/host_page.h"

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
