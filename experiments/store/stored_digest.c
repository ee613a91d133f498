/* stored_digest.c - Compares the digest of a result file with the one that it carries. */
#include "experiments/store/stored_digest.h"

#include <stdlib.h>
#include <string.h>

#include "experiments/foreign/file_sum.h"
#include "experiments/foreign/h5_guard.h"
#include "experiments/foreign/reader_process.h"
#include "experiments/store/h5.h"
#include "experiments/store/store.h"

enum { CACHE = 32 << 20 }; /* bytes of the chunk cache: wide chunks are inflated once */

/* Reads the attribute; 0: there is none that is a digest. */
static int carried_digest(hid_t file, char out[65])
{
    if (H5Lexists(file, "/provenance", H5P_DEFAULT) <= 0 ||
        H5Aexists_by_name(file, "/provenance", "digest", H5P_DEFAULT) <= 0)
        return 0;
    hid_t a = H5Aopen_by_name(file, "/provenance", "digest", H5P_DEFAULT, H5P_DEFAULT);
    hid_t type = a < 0 ? -1 : H5Aget_type(a), space = a < 0 ? -1 : H5Aget_space(a);
    int good = type >= 0 && space >= 0 && H5Tget_class(type) == H5T_STRING &&
               H5Tis_variable_str(type) == 0 && H5Tget_size(type) == 64 &&
               H5Sget_simple_extent_npoints(space) == 1;
    out[0] = out[64] = '\0';
    if (good)
        good = H5Aread(a, type, out) >= 0;
    qm_h5_close(space);
    qm_h5_close(type);
    qm_h5_close(a);
    return good;
}

qm_status qm_stored_digest_compare(hid_t file, const char *path, int *carried, char *digest)
{
    char stored[65], found[65];
    QM_TRY(qm_digest_of(file, path, found));
    *carried = carried_digest(file, stored);
    if (*carried && memcmp(stored, found, sizeof found) != 0)
        return qm_fail(QM_BAD_FILE,
                       "%s: its contents have another digest than it carries: it was damaged or "
                       "changed after it was written",
                       path);
    if (digest)
        memcpy(digest, found, sizeof found);
    return QM_OK;
}

qm_status qm_stored_digest_check(hid_t file, const char *path, int *carried)
{
    char stored[65];
    *carried = carried_digest(file, stored);
    return *carried ? qm_stored_digest_compare(file, path, carried, NULL) : QM_OK;
}

/* ---- a file without a digest --------------------------------------------------------------- */

static void (*missing)(const char *path);

void qm_store_tell_missing(void (*tell)(const char *path)) { missing = tell; }

void qm_stored_digest_missing(const char *path)
{
    static char last[512];
    if (missing && strncmp(last, path, sizeof last - 1) != 0)
        missing(path);
    snprintf(last, sizeof last, "%s", path);
}

/* ---- a file by its path -------------------------------------------------------------------- */

static qm_status service_open(const char *path, void *context, void **object, struct qm_blob *out)
{
    hid_t file = -1;
    char digest[65];
    int carried = 0;
    (void)context;
    (void)object;
    QM_TRY(qm_h5_guard_open(path, CACHE, &file));
    qm_status st = qm_stored_digest_compare(file, path, &carried, digest);
    H5Fclose(file);
    if (st == QM_OK) {
        qm_blob_put_number(out, carried);
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
    QM_TRY(qm_file_sum_check(path, &sum));
    QM_TRY(qm_reader_start(&service, path, NULL, 4096, &answer, &p));
    int64_t carried = qm_blob_take_number(&answer);
    char *digest = qm_blob_take_text(&answer);
    int good = digest && strlen(digest) == 64;
    qm_status st = good ? QM_OK : qm_reader_garbled(p);
    if (good)
        memcpy(out, digest, 65);
    if (good && !carried && sum == QM_FILE_SUM_none)
        qm_stored_digest_missing(path);
    free(digest);
    qm_reader_end(p);
    return st;
}
