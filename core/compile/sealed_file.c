/* sealed_file.c - Writes and verifies compiled code with a hash after its end. */
#include "core/compile/sealed_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/sha256.h"

#define START "\nqualm-sealed "

enum { SEAL = 80, HEX_AT = sizeof START - 1, PIECE = 1 << 16 };

int qm_own_alone(const struct stat *s) { return s->st_uid == geteuid() && !(s->st_mode & 022); }

static void hash_start(struct qm_sha256 *h, const char *name)
{
    uint64_t n = strlen(name);
    qm_sha256_start(h);
    qm_sha256_add(h, &n, sizeof n);
    qm_sha256_add(h, name, n);
}

/* The seal: START, the hash, spaces, a newline. */
static void seal_of(struct qm_sha256 *h, char seal[SEAL])
{
    char hex[65];
    qm_sha256_hex(h, hex);
    memset(seal, ' ', SEAL);
    memcpy(seal, START, HEX_AT);
    memcpy(seal + HEX_AT, hex, 64);
    seal[SEAL - 1] = '\n';
}

static int write_all(FILE *in, FILE *out, const char *name)
{
    char buffer[PIECE], seal[SEAL];
    struct qm_sha256 h;
    int is_whole = 1;
    hash_start(&h, name);
    for (size_t n; is_whole && (n = fread(buffer, 1, sizeof buffer, in)) > 0;) {
        qm_sha256_add(&h, buffer, n);
        is_whole = fwrite(buffer, 1, n, out) == n;
    }
    seal_of(&h, seal);
    return is_whole && !ferror(in) && fwrite(seal, 1, SEAL, out) == SEAL && fflush(out) == 0 &&
           fsync(fileno(out)) == 0;
}

qm_status qm_sealed_copy(const char *from, const char *to, const char *name)
{
    FILE *in = fopen(from, "re");
    unlink(to); /* of a dead process of the same number */
    int fd = in ? open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600) : -1;
    FILE *out = fd < 0 ? NULL : fdopen(fd, "w");
    int is_whole = in && out && write_all(in, out, name);
    if (in)
        fclose(in);
    if (out && fclose(out) != 0)
        is_whole = 0;
    return is_whole ? QM_OK : qm_fail(QM_BAD_FILE, "%s: %s", to, strerror(errno));
}

/* Reads n bytes; 0 where the file has fewer. */
static int read_all(int fd, void *to, size_t n)
{
    for (size_t done = 0; done < n;) {
        ssize_t got = read(fd, (char *)to + done, n - done);
        if (got <= 0 && !(got < 0 && errno == EINTR))
            return 0;
        done += got > 0 ? (size_t)got : 0;
    }
    return 1;
}

static int verify(int fd, const char *name)
{
    char buffer[PIECE], seal[SEAL], stored[SEAL];
    struct qm_sha256 h;
    struct stat s;
    if (fstat(fd, &s) != 0 || !S_ISREG(s.st_mode) || !qm_own_alone(&s) || s.st_size < SEAL)
        return 0;
    hash_start(&h, name);
    for (size_t left = (size_t)s.st_size - SEAL, n; left > 0; left -= n) {
        n = left < sizeof buffer ? left : sizeof buffer;
        if (!read_all(fd, buffer, n))
            return 0;
        qm_sha256_add(&h, buffer, n);
    }
    seal_of(&h, seal);
    return read_all(fd, stored, SEAL) && memcmp(stored, seal, SEAL) == 0;
}

int qm_sealed_is_good(const char *path, const char *name)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    int is_good = fd >= 0 && verify(fd, name);
    if (fd >= 0)
        close(fd);
    return is_good;
}
