/* wire.c - Writes JSON lines to a socket. */
#include "experiments/prove/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

int qm_wire_write(int fd, json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT);
    size_t size = text ? strlen(text) + 1 : 0, sent = 0;
    json_decref(value);
    if (!text)
        return 0;
    text[size - 1] = '\n';
    while (sent < size) {
        ssize_t n = send(fd, text + sent, size - sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            break;
        sent += (size_t)n;
    }
    free(text);
    return sent == size;
}
