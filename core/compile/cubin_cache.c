/* cubin_cache.c - Reads and writes compiled kernels on disk, and compiles those that are
 * not there. */
#include "core/compile/cubin_cache.h"
#include "core/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/sha256.h"
#include "core/compile/embedded_text.h"
#include "core/compile/sealed_file.h"

#define FORMAT "qualm cubin 2"

struct header {
    char magic[16], key[72], digest[72]; /* digest: of binary and log */
    uint64_t size, log_size, is_ptx;
};

static void add_text(struct qm_sha256 *h, const char *text)
{
    uint64_t n = text ? strlen(text) : 0; /* its length delimits it from the next text */
    qm_sha256_add(h, &n, sizeof n);
    qm_sha256_add(h, text, n);
}

void qm_cubin_key(const struct qm_device_source *s, char key[QM_CACHE_KEY])
{
    struct qm_sha256 h;
    int major = 0, minor = 0;
    long long bytes = 0;
    char numbers[96];
    qm_nvrtc_identity(&major, &minor, &bytes);
    snprintf(numbers, sizeof numbers, "%d.%d %lld sm_%d", major, minor, bytes, s->arch);
    qm_sha256_start(&h);
    add_text(&h, FORMAT);
    add_text(&h, numbers);
    add_text(&h, s->name);
    add_text(&h, s->text);
    add_text(&h, s->header_name);
    add_text(&h, s->header_text);
    add_text(&h, s->includes);
    for (int i = 0; s->options && s->options[i]; i++)
        add_text(&h, s->options[i]);
    for (int i = 0; qm_device_text_path(i); i++) {
        add_text(&h, qm_device_text_path(i));
        add_text(&h, qm_device_text(qm_device_text_path(i)));
    }
    qm_sha256_hex(&h, key);
}

/* Makes a folder, for this user alone, and its parents.  Returns whether it is there, this user's,
 * and no longer another's to write to. */
static int make_folder(char *path)
{
    struct stat s;
    for (char *p = path + 1; *p; p++)
        if (*p == '/') {
            *p = '\0';
            mkdir(path, 0777);
            *p = '/';
        }
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return 0;
    if (stat(path, &s) != 0 || !S_ISDIR(s.st_mode) || s.st_uid != geteuid())
        return 0;
    return qm_own_alone(&s) || chmod(path, 0700) == 0;
}

int qm_cache_path(const char *name, char *path, size_t size)
{
    const char *own = getenv("QM_CACHE"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char folder[PATH_MAX];
    if (own && strcmp(own, "off") == 0)
        return 0;
    if (own && *own)
        snprintf(folder, sizeof folder, "%s", own);
    else if (xdg && *xdg)
        snprintf(folder, sizeof folder, "%s/qualm", xdg);
    else if (home && *home)
        snprintf(folder, sizeof folder, "%s/.cache/qualm", home);
    else
        return 0;
    if (!make_folder(folder))
        return 0;
    return snprintf(path, size, "%s/%s", folder, name) < (int)size;
}

static int file_path(const char *key, char *path, size_t size)
{
    char name[QM_CACHE_KEY + 8];
    snprintf(name, sizeof name, "%s.cubin", key);
    return qm_cache_path(name, path, size);
}

static void digest_of(const struct qm_device_binary *b, size_t log_size, char out[72])
{
    struct qm_sha256 h;
    memset(out, 0, 72);
    qm_sha256_start(&h);
    qm_sha256_add(&h, b->data, b->size);
    qm_sha256_add(&h, b->log, log_size);
    qm_sha256_hex(&h, out);
}

/* Reads a whole file of the cache and checks its sizes, key and digest.  Returns whether it is
 * good; *out is to be freed in any case. */
static int take(FILE *f, const char *key, struct qm_device_binary *out)
{
    struct header h;
    struct stat s;
    char digest[72];
    if (fstat(fileno(f), &s) != 0 || !S_ISREG(s.st_mode) || !qm_own_alone(&s) ||
        fread(&h, sizeof h, 1, f) != 1 || memcmp(h.magic, FORMAT, sizeof FORMAT) != 0 ||
        memcmp(h.key, key, QM_CACHE_KEY) != 0 || h.size > (uint64_t)s.st_size ||
        h.log_size > (uint64_t)s.st_size || sizeof h + h.size + h.log_size != (uint64_t)s.st_size)
        return 0;
    out->data = malloc(h.size + 1);
    out->log = calloc(h.log_size + 1, 1);
    out->size = h.size;
    out->is_ptx = h.is_ptx != 0;
    out->from_cache = 1;
    if (!out->data || !out->log || fread(out->data, 1, h.size, f) != h.size ||
        fread(out->log, 1, h.log_size, f) != h.log_size)
        return 0;
    digest_of(out, h.log_size, digest);
    return memcmp(digest, h.digest, sizeof digest) == 0;
}

int qm_cubin_read(const char *key, struct qm_device_binary *out)
{
    char path[PATH_MAX];
    memset(out, 0, sizeof *out);
    int fd = file_path(key, path, sizeof path)
                 ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)
                 : -1;
    FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
    if (!f)
        return 0;
    int is_good = take(f, key, out);
    fclose(f);
    if (!is_good)
        qm_device_binary_free(out);
    return is_good;
}

void qm_cubin_write(const char *key, const struct qm_device_binary *b)
{
    char path[PATH_MAX], temporary[PATH_MAX + 16];
    struct header h = {.size = b->size, .log_size = strlen(b->log), .is_ptx = b->is_ptx != 0};
    if (!file_path(key, path, sizeof path))
        return;
    memcpy(h.magic, FORMAT, sizeof FORMAT);
    memcpy(h.key, key, QM_CACHE_KEY);
    digest_of(b, h.log_size, h.digest);
    snprintf(temporary, sizeof temporary, "%s.XXXXXX", path);
    int fd = mkstemp(temporary);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
    if (!f)
        return;
    int is_whole = fwrite(&h, sizeof h, 1, f) == 1 && fwrite(b->data, 1, b->size, f) == b->size &&
                   fwrite(b->log, 1, h.log_size, f) == h.log_size && fflush(f) == 0 &&
                   fsync(fd) == 0;
    if (fclose(f) != 0 || !is_whole || rename(temporary, path) != 0)
        unlink(temporary);
}

qm_status qm_device_compile(const struct qm_device_source *s, struct qm_device_binary *out)
{
    char key[QM_CACHE_KEY];
    double from = qm_seconds();
    memset(out, 0, sizeof *out);
    QM_TRY(qm_nvrtc_probe());
    qm_cubin_key(s, key);
    if (qm_cubin_read(key, out)) {
        out->seconds = qm_seconds() - from;
        return QM_OK;
    }
    qm_status st = qm_nvrtc_compile(s, out);
    if (st == QM_OK)
        qm_cubin_write(key, out);
    return st;
}
