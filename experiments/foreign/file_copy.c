/* file_copy.c - Compares two files byte by byte. */
#include "experiments/foreign/file_copy.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ROOM = 1 << 18 };

/* Reads until room[ROOM] is full or the file ends; -1: an error. */
static ssize_t fill(int fd, char *room)
{
    ssize_t n = 0, got = 1;
    while (got > 0 && n < ROOM) {
        got = read(fd, room + n, (size_t)(ROOM - n));
        if (got < 0)
            return -1;
        n += got;
    }
    return n;
}

static int have_same_bytes(int a, int b)
{
    char *room = malloc(2 * (size_t)ROOM);
    int is_same = room != NULL;
    for (ssize_t n = 1, m; is_same && n > 0;) {
        n = fill(a, room);
        m = fill(b, room + ROOM);
        is_same = n >= 0 && n == m && memcmp(room, room + ROOM, (size_t)n) == 0;
    }
    free(room);
    return is_same;
}

int qm_file_is_copy(const char *a, const char *b)
{
    struct stat x, y;
    if (stat(a, &x) != 0 || stat(b, &y) != 0 || !S_ISREG(x.st_mode) || !S_ISREG(y.st_mode) ||
        x.st_size != y.st_size)
        return 0;
    if (x.st_dev == y.st_dev && x.st_ino == y.st_ino)
        return 1;
    int in = open(a, O_RDONLY | O_CLOEXEC), other = open(b, O_RDONLY | O_CLOEXEC);
    int is_copy = in >= 0 && other >= 0 && have_same_bytes(in, other);
    if (in >= 0)
        close(in);
    if (other >= 0)
        close(other);
    return is_copy;
}
