/* stored_digest.c - Compares the digest of a result file with the one that it carries. */
#include "experiments/store/stored_digest.h"

#include <stdlib.h>
#include <string.h>

#include "experiments/foreign/file_sum.h"
#include "experiments/foreign/h5_attribute.h"
#include "experiments/foreign/h5_guard.h"
#include "experiments/foreign/reader_process.h"
#include "experiments/store/h5.h"
#include "experiments/store/store.h"

enum { CACHE = 32 << 20 }; /* bytes of the chunk cache: wide chunks are inflated once */

enum stored { ABSENT, UNREADABLE, READ };

static enum stored attribute_read(hid_t file, const char *group, const char *name, char *out,
                                  size_t size)
{
    out[0] = '\0';
    if ((strcmp(group, "/") != 0 && H5Lexists(file, group, H5P_DEFAULT) <= 0) ||
        H5Aexists_by_name(file, group, name, H5P_DEFAULT) <= 0)
        return ABSENT;
    hid_t object = H5Oopen(file, group, H5P_DEFAULT);
    char *text = NULL;
    int good =
        object >= 0 && qm_h5_attribute_text(object, name, &text) == QM_OK && strlen(text) < size;
    if (good)
        memcpy(out, text, strlen(text) + 1);
    free(text);
    qm_h5_close(object);
    return good ? READ : UNREADABLE;
}

static enum stored carried_digest(hid_t file, char out[65])
{
    return attribute_read(file, "/provenance", "digest", out, 65);
}

/* Whether a file says that store/ wrote it, and that it is not a file of golden vectors: into those
 * other programs write their answers, and vectors/ checks what they may not change. */
static int is_own(hid_t file)
{
    char text[32];
    return attribute_read(file, "/", "schema", text, sizeof text) == READ &&
           strcmp(text, QM_H5_SCHEMA) == 0 &&
           (attribute_read(file, "/", "kind", text, sizeof text) != READ ||
            strcmp(text, "golden") != 0);
}

/* Computes the digest and compares it with the one that the file carries. */
static qm_status stored_digest_compare(hid_t file, const char *path, enum qm_carried *carried,
                                       char digest[65])
{
    char stored[65];
    QM_TRY(qm_digest_of(file, path, 0, digest));
    *carried = carried_digest(file, stored) == ABSENT ? QM_CARRIED_none
               : strcmp(stored, digest) == 0          ? QM_CARRIED_same
                                                      : QM_CARRIED_other;
    return QM_OK;
}

/* As stored_digest_compare, and computes nothing where the file carries none. */
static qm_status stored_digest_check(hid_t file, const char *path, enum qm_carried *carried)
{
    char stored[65];
    *carried = QM_CARRIED_none;
    return carried_digest(file, stored) != ABSENT
               ? stored_digest_compare(file, path, carried, stored)
               : QM_OK;
}

static void carried_put(enum qm_carried carried, enum qm_file_sum sum, struct qm_blob *out)
{
    int is_bare = sum == QM_FILE_SUM_none && carried == QM_CARRIED_same;
    qm_blob_put_number(out, is_bare ? QM_CARRIED_bare : carried);
}

qm_status qm_stored_digest_put(hid_t file, const char *path, enum qm_file_sum sum, int is_strict,
                               struct qm_blob *out)
{
    enum qm_carried carried = QM_CARRIED_same;
    if (!is_own(file) || (sum != QM_FILE_SUM_none && !is_strict)) {
        qm_blob_put_number(out, QM_CARRIED_same);
        return QM_OK;
    }
    QM_TRY(stored_digest_check(file, path, &carried));
    if (is_strict && carried != QM_CARRIED_same)
        return qm_fail(QM_BAD_FILE, "%s: %s", path,
                       carried == QM_CARRIED_none
                           ? "carries no digest of what it says, so that it may have been changed"
                           : "its digest is not that of what it says: it was changed or damaged");
    carried_put(carried, sum, out);
    return QM_OK;
}

/* ---- a file without a digest --------------------------------------------------------------- */

static void (*tell)(const char *path, enum qm_carried carried);

/* The files that the caller has been told of.  One that finds no room here is told of each time. */
static char told[64][256];
static int n_told;

void qm_store_tell(void (*to)(const char *path, enum qm_carried carried))
{
    tell = to;
    n_told = 0;
}

static int is_told(const char *path)
{
    for (int i = 0; i < n_told; i++)
        if (strcmp(told[i], path) == 0)
            return 1;
    if (n_told < (int)(sizeof told / sizeof *told) && strlen(path) < sizeof *told)
        memcpy(told[n_told++], path, strlen(path) + 1);
    return 0;
}

int qm_stored_digest_take(const char *path, struct qm_blob *in)
{
    int64_t carried = qm_blob_take_number(in);
    if (in->bad || carried < 0 || carried > QM_CARRIED_bare)
        return 0;
    if (tell && carried != QM_CARRIED_same && !is_told(path))
        tell(path, (enum qm_carried)carried);
    return 1;
}

/* ---- a file by its path -------------------------------------------------------------------- */

static qm_status service_open(const char *path, void *context, void **object, struct qm_blob *out)
{
    hid_t file = -1;
    char digest[65];
    enum qm_carried carried;
    const enum qm_file_sum *sum = context;
    (void)object;
    QM_TRY(qm_h5_guard_open(path, CACHE, &file));
    qm_status st = stored_digest_compare(file, path, &carried, digest);
    H5Fclose(file);
    if (st == QM_OK) {
        carried_put(*sum == QM_FILE_SUM_none ? carried : QM_CARRIED_same, *sum, out);
        qm_blob_put_text(out, digest);
    }
    return st;
}

qm_status qm_store_digest(const char *path, char out[65])
{
    static const struct qm_reader_service service = {service_open, NULL, NULL};
    struct qm_reader_process *p;
    struct qm_blob answer;
    enum qm_file_sum sum;
    struct qm_file_mark mark;
    QM_TRY(qm_file_sum_check_marked(path, &mark, &sum));
    QM_TRY(qm_reader_start(&service, path, &sum, 4096, &mark, &answer, &p));
    int is_taken = qm_stored_digest_take(path, &answer);
    char *digest = qm_blob_take_text(&answer);
    int good = is_taken && digest && strlen(digest) == 64;
    qm_status st = good ? QM_OK : qm_reader_garbled(p);
    if (good)
        memcpy(out, digest, 65);
    free(digest);
    qm_reader_end(p);
    return st;
}
