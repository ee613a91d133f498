/* folder.c - The folder of a campaign: makes, checks, locks and removes it. */
#include "experiments/campaign/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/name.h"
#include "core/base/sha256.h"
#include "experiments/campaign/ledger.h"
#include "experiments/cli/cli.h"
#include "experiments/machine/bounded_glob.h"
#include "experiments/machine/shipped_files.h"
#include "experiments/store/atomic_file.h"

enum { FORMAT = 1, HEAD_MOST = 1 << 20 /* bytes of campaign.json */ };

void qm_campaign_dir(const char *out, char *dir, size_t size)
{
    size_t n = strlen(out);
    n -= n > 3 && strcmp(out + n - 3, ".h5") == 0 ? 3 : 0;
    snprintf(dir, size, "%.*s.run", (int)n, out);
}

void qm_campaign_out(const char *out, const char *dir, char *path, size_t size)
{
    size_t n = strlen(dir);
    while (n > 1 && dir[n - 1] == '/')
        n--;
    n -= n > 4 && strncmp(dir + n - 4, ".run", 4) == 0 ? 4 : 0;
    if (out)
        snprintf(path, size, "%s", out);
    else
        snprintf(path, size, "%.*s.h5", (int)n, dir);
}

static void join_path(const char *dir, const char *name, char *path, size_t size)
{
    snprintf(path, size, "%s/%s", dir, name);
}

int qm_campaign_exists(const char *dir)
{
    char path[1100];
    join_path(dir, "campaign.json", path, sizeof path);
    return access(path, F_OK) == 0;
}

/* ---- suite and data ------------------------------------------------------------------------ */

/* Hashes name and contents of a data file. */
static qm_status add_file(const char *path, struct qm_sha256 *h)
{
    char hash[65];
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    QM_TRY(qm_file_hash(path, hash));
    qm_sha256_add(h, name, strlen(name) + 1);
    qm_sha256_add(h, hash, sizeof hash);
    return QM_OK;
}

/* Hashes the files of a folder in the order of their names; only_shards: those alone that an
 * *.index.json may name. */
static qm_status add_folder(const char *folder, int only_shards, struct qm_sha256 *h)
{
    struct dirent **found = NULL;
    struct stat about;
    char path[PATH_MAX];
    qm_status st = QM_OK;
    int n = scandir(folder, &found, NULL, alphasort);
    if (n < 0)
        return qm_fail(QM_BAD_FILE, "%s: %s", folder, strerror(errno));
    for (int i = 0; i < n; i++) {
        const char *name = found[i]->d_name;
        int is_shard = qm_name_ends(name, ".safetensors") || qm_name_ends(name, ".bin");
        int room = snprintf(path, sizeof path, "%s/%s", folder, name);
        if (st == QM_OK && room < (int)sizeof path && (is_shard || !only_shards) &&
            stat(path, &about) == 0 && S_ISREG(about.st_mode))
            st = add_file(path, h);
        free(found[i]);
    }
    free(found);
    return st;
}

/* Hashes what a path of data stands for: a file, a folder of shards, or an index with its shards.
 */
static qm_status add_path(const char *path, struct qm_sha256 *h)
{
    struct stat about;
    const char *slash = strrchr(path, '/');
    if (stat(path, &about) == 0 && S_ISDIR(about.st_mode))
        return add_folder(path, 0, h);
    QM_TRY(add_file(path, h));
    if (!qm_name_ends(path, ".index.json"))
        return QM_OK;
    char *folder = slash ? strndup(path, (size_t)(slash - path + 1)) : strdup(".");
    qm_status st = folder ? add_folder(folder, 1, h) : qm_fail(QM_NO_MEMORY, "%s", path);
    free(folder);
    return st;
}

/* Hashes every data file. */
static qm_status add_data(const struct qm_suite *s, struct qm_sha256 *h)
{
    for (int i = 0; i < s->n_data; i++) {
        glob_t found = {0};
        qm_status st = QM_OK;
        char pattern[PATH_MAX];
        qm_bounded_glob(qm_loaded_suite_pattern(s, i, pattern, sizeof pattern), &found);
        for (size_t k = 0; st == QM_OK && k < found.gl_pathc; k++)
            st = add_path(found.gl_pathv[k], h);
        globfree(&found);
        QM_TRY(st);
    }
    return QM_OK;
}

qm_status qm_campaign_digest(const struct qm_loaded_suite *job, char (*id)[QM_CELL_ID],
                             char out[65])
{
    struct qm_sha256 h;
    qm_sha256_start(&h);
    qm_sha256_add(&h, job->suite->plan, strlen(job->suite->plan) + 1);
    for (int64_t i = 0; i < job->n_cells; i++) {
        char own[QM_CELL_ID], *to = id ? id[i] : own;
        qm_cell_id(job->suite, &job->cells[i], to);
        qm_sha256_add(&h, to, QM_CELL_ID);
    }
    if (qm_suite_wants_data(job->suite))
        QM_TRY(add_data(job->suite, &h));
    qm_sha256_hex(&h, out);
    return QM_OK;
}

static qm_status write_file(const char *dir, const char *name, const char *text)
{
    char path[1100];
    struct qm_atomic_file file;
    join_path(dir, name, path, sizeof path);
    QM_TRY(qm_atomic_file_open(path, &file));
    qm_status st = qm_atomic_file_write(&file, text, strlen(text));
    if (st == QM_OK)
        st = qm_atomic_file_commit(&file);
    if (st != QM_OK)
        qm_atomic_file_abort(&file);
    return st;
}

/* The sum of what campaign.json says beside it, in compact form by sorted names; 0: no memory. */
static int head_sum(json_t *v, char sum[QM_LEDGER_SUM])
{
    char *text = qm_json_without(v, "sum");
    if (text)
        qm_ledger_line_sum(text, strlen(text), sum);
    free(text);
    return text != NULL;
}

static qm_status head_write(const char *dir, const struct qm_loaded_suite *job, const char *digest)
{
    char sum[QM_LEDGER_SUM], suite[65], folder[PATH_MAX];
    qm_sha256_of(job->suite->plan, strlen(job->suite->plan), suite);
    json_t *from = qm_json_text(getcwd(folder, sizeof folder) ? folder : "");
    json_t *v = json_pack("{s:i, s:s, s:s, s:I, s:s, s:o}", "qualm_campaign", FORMAT, "name",
                          job->suite->stem, "digest", digest, "cells", (json_int_t)job->n_cells,
                          "suite", suite, "folder", from);
    int is_summed = v && head_sum(v, sum) && json_object_set_new(v, "sum", json_string(sum)) == 0;
    char *text = is_summed ? json_dumps(v, JSON_INDENT(1)) : NULL;
    json_decref(v);
    if (!text)
        return qm_fail(QM_NO_MEMORY, "campaign.json");
    qm_status st = write_file(dir, "suite.yaml", job->suite->plan);
    if (st == QM_OK)
        /* written last: where it is there, the rest is there too */
        st = write_file(dir, "campaign.json", text);
    free(text);
    return st;
}

/* Workers read suite.yaml and use this suite's cell ids, so the file must hold this plan; a damaged
 * one is written again. */
static qm_status suite_check(const char *dir, const char *plan)
{
    char path[1100];
    size_t n = strlen(plan), had = 0;
    char *text = malloc(n + 2);
    join_path(dir, "suite.yaml", path, sizeof path);
    int fd = -1;
    FILE *f = text && qm_folder_open(path, O_RDONLY, &fd) == QM_OK ? fdopen(fd, "rb") : NULL;
    if (f) {
        had = fread(text, 1, n + 1, f);
        fclose(f);
    } else if (fd >= 0) {
        close(fd);
    }
    int same = f && had == n && memcmp(text, plan, n) == 0;
    free(text);
    if (same)
        return QM_OK;
    qm_note("%s: was damaged or gone; it is written again", path);
    return write_file(dir, "suite.yaml", plan);
}

static int is_digest(const char *text)
{
    return text && strlen(text) == 64 && strspn(text, "0123456789abcdef") == 64;
}

/* Whether campaign.json says all, nothing else, and what its sum covers. */
static int head_is_whole(json_t *v)
{
    char sum[QM_LEDGER_SUM];
    const char *said = json_string_value(json_object_get(v, "sum"));
    json_t *cells = json_object_get(v, "cells");
    return json_integer_value(json_object_get(v, "qualm_campaign")) == FORMAT &&
           json_object_size(v) == 7 && json_is_string(json_object_get(v, "name")) &&
           is_digest(json_string_value(json_object_get(v, "digest"))) && json_is_integer(cells) &&
           json_integer_value(cells) >= 0 &&
           is_digest(json_string_value(json_object_get(v, "suite"))) &&
           json_is_string(json_object_get(v, "folder")) && said && head_sum(v, sum) &&
           strcmp(said, sum) == 0;
}

qm_status qm_campaign_head(const char *dir, struct qm_campaign_head *out)
{
    char path[1100];
    QM_TRY(qm_path_check(dir));
    join_path(dir, "campaign.json", path, sizeof path);
    struct stat about;
    if (stat(dir, &about) != 0)
        return qm_fail(QM_BAD_FILE, "%s: %s", dir, strerror(errno));
    if (!S_ISDIR(about.st_mode))
        return qm_fail(QM_BAD_FILE, "%s: is a file, expected the folder of a campaign", dir);
    if (access(path, F_OK) != 0)
        return qm_fail(QM_NO_MATCH, "%s: no campaign in it", dir);
    int fd = -1;
    QM_TRY(qm_folder_open_within(path, O_RDONLY, HEAD_MOST, &fd));
    json_t *v = json_loadfd(fd, JSON_REJECT_DUPLICATES, NULL);
    close(fd);
    qm_status st = QM_OK;
    *out = (struct qm_campaign_head){.cells = 0};
    if (!head_is_whole(v)) {
        st = qm_fail(QM_BAD_FILE,
                     "%s: is damaged, or of another version; removed, and the same `qualm run` "
                     "again, it is written anew and the finished cells are kept; `qualm run "
                     "--fresh` begins the campaign again",
                     path);
    } else {
        snprintf(out->name, sizeof out->name, "%s", json_string_value(json_object_get(v, "name")));
        snprintf(out->digest, sizeof out->digest, "%s",
                 json_string_value(json_object_get(v, "digest")));
        snprintf(out->suite, sizeof out->suite, "%s",
                 json_string_value(json_object_get(v, "suite")));
        snprintf(out->folder, sizeof out->folder, "%s",
                 json_string_value(json_object_get(v, "folder")));
        out->cells = json_integer_value(json_object_get(v, "cells"));
    }
    json_decref(v);
    return st;
}

/* ---- the folder ---------------------------------------------------------------------------- */

int qm_folder_glob(const char *dir, const char *pattern, glob_t *found)
{
    char *path = malloc(2 * strlen(dir) + strlen(pattern) + 2), *to = path;
    *found = (glob_t){0};
    if (!path)
        return GLOB_NOSPACE;
    for (const char *from = dir; *from; from++) {
        if (strchr("\\*?[", *from))
            *to++ = '\\';
        *to++ = *from;
    }
    *to++ = '/';
    memcpy(to, pattern, strlen(pattern) + 1);
    int failed = glob(path, GLOB_ERR, NULL, found);
    free(path);
    return failed;
}

qm_status qm_folder_open(const char *path, int flags, int *out)
{
    struct stat about;
    int fd = open(path, flags | O_CLOEXEC | O_NONBLOCK, 0666);
    if (fd < 0 && errno != ENXIO) /* ENXIO: a pipe without a reader, or a socket */
        return qm_fail(QM_BAD_FILE, "%s: %s%s", path, flags & O_CREAT ? "cannot be written: " : "",
                       strerror(errno));
    if (fd >= 0 && fstat(fd, &about) == 0 && S_ISREG(about.st_mode)) {
        *out = fd;
        return QM_OK;
    }
    if (fd >= 0)
        close(fd);
    return qm_fail(QM_BAD_FILE, "%s: is not a plain file", path);
}

qm_status qm_folder_open_within(const char *path, int flags, off_t most, int *out)
{
    struct stat about;
    int fd = -1;
    QM_TRY(qm_folder_open(path, flags, &fd));
    if (fstat(fd, &about) == 0 && about.st_size <= most) {
        *out = fd;
        return QM_OK;
    }
    close(fd);
    return qm_fail(QM_BAD_FILE, "%s: is damaged, it has %lld bytes, expected at most %lld", path,
                   (long long)about.st_size, (long long)most);
}

void qm_folder_clear(const char *dir, const char *pattern)
{
    glob_t found;
    if (qm_folder_glob(dir, pattern, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; i++)
            unlink(found.gl_pathv[i]);
    globfree(&found);
}

static int is_at_work(const char *dir)
{
    struct qm_ledger_index index = {0};
    int held = qm_ledger_index_read_all(&index, dir) == QM_OK && index.n_held > 0;
    qm_ledger_index_free(&index);
    return held;
}

void qm_campaign_remove(const char *dir)
{
    static const char *const patterns[] = {"campaign.json*", "suite.yaml*",  "*of*.jsonl",
                                           "*of*.log",       "*of*.journal", "array.sh",
                                           "merge.sh",       "slurm-*.out",  "[0-9]*of*.*.h5",
                                           "*of*.h5.*.part", "*.sh.*.part",  "lock"};
    if (is_at_work(dir))
        return; /* another shard repeats cells that are finished already */
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        qm_folder_clear(dir, patterns[i]);
    rmdir(dir);
}

/* Locks the folder while a campaign is begun: of two runs the second one finds it begun, and
 * checks that it is the same campaign. */
static qm_status lock_dir(const char *dir, int *out)
{
    char path[1100];
    join_path(dir, "lock", path, sizeof path);
    QM_TRY(qm_make_folders(path));
    int fd = -1;
    QM_TRY(qm_folder_open(path, O_RDWR | O_CREAT, &fd));
    while (flock(fd, LOCK_EX) != 0 && errno == EINTR)
        ;
    *out = fd;
    return QM_OK;
}

qm_status qm_folder_begin(const struct qm_loaded_suite *job, const char *dir, int fresh,
                          const char *digest)
{
    struct qm_campaign_head head;
    int lock = -1;
    QM_TRY(lock_dir(dir, &lock));
    qm_status st = QM_OK;
    if (fresh && is_at_work(dir))
        st = qm_fail(QM_BAD_FILE, "%s: another run is at work in it", dir);
    else if (fresh)
        qm_campaign_remove(dir);
    if (st == QM_OK && fresh) {
        close(lock); /* the lock file was removed with the folder */
        QM_TRY(lock_dir(dir, &lock));
    }
    if (st == QM_OK && !qm_campaign_exists(dir))
        st = head_write(dir, job, digest);
    if (st == QM_OK)
        st = qm_campaign_head(dir, &head);
    if (st == QM_OK && strcmp(head.digest, digest) != 0)
        st = qm_fail(QM_BAD_ARG,
                     "%s: was begun with another suite or other data (%s, %lld cells; now %lld); "
                     "--fresh throws it away, --out names another place",
                     dir, head.name, (long long)head.cells, (long long)job->n_cells);
    if (st == QM_OK)
        st = suite_check(dir, job->suite->plan);
    close(lock);
    return st;
}

qm_status qm_campaign_begin(const struct qm_loaded_suite *job, const char *dir, int fresh)
{
    char digest[65];
    char(*id)[QM_CELL_ID] = calloc((size_t)job->n_cells + 1, sizeof *id);
    qm_status st = id ? qm_campaign_digest(job, id, digest)
                      : qm_fail(QM_NO_MEMORY, "%lld cells", (long long)job->n_cells);
    if (st == QM_OK)
        st = qm_folder_begin(job, dir, fresh, digest);
    free(id);
    return st;
}
