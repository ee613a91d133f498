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

qm_status qm_stored_digest_compare(hid_t file, const char *path, enum qm_carried *carried,
                                   char digest[65])
{
    char stored[65];
    QM_TRY(qm_digest_of(file, path, digest));
    *carried = !carried_digest(file, stored)     ? QM_CARRIED_none
               : memcmp(stored, digest, 65) == 0 ? QM_CARRIED_same
                                                 : QM_CARRIED_other;
    return QM_OK;
}

qm_status qm_stored_digest_check(hid_t file, const char *path, enum qm_carried *carried)
{
    char stored[65];
    *carried = QM_CARRIED_none;
    return carried_digest(file, stored) ? qm_stored_digest_compare(file, path, carried, stored)
                                        : QM_OK;
}

/* ---- a file without a digest --------------------------------------------------------------- */

static void (*tell)(const char *path, enum qm_carried carried);

void qm_store_tell(void (*to)(const char *path, enum qm_carried carried)) { tell = to; }

enum qm_carried qm_carried_without_line(int64_t carried)
{
    return carried == QM_CARRIED_same ? QM_CARRIED_bare : (enum qm_carried)carried;
}

void qm_stored_digest_tell(const char *path, enum qm_carried carried)
{
    static char last[512];
    if (tell && carried != QM_CARRIED_same && strncmp(last, path, sizeof last - 1) != 0)
        tell(path, carried);
    snprintf(last, sizeof last, "%s", path);
}

/* ---- a file by its path -------------------------------------------------------------------- */

static qm_status service_open(const char *path, void *context, void **object, struct qm_blob *out)
{
    hid_t file = -1;
    char digest[65];
    enum qm_carried carried;
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
    int good = digest && strlen(digest) == 64 && carried >= 0 && carried <= QM_CARRIED_other;
    qm_status st = good ? QM_OK : qm_reader_garbled(p);
    if (good)
        memcpy(out, digest, 65);
    if (good && sum == QM_FILE_SUM_none)
        qm_stored_digest_tell(path, qm_carried_without_line(carried));
    free(digest);
    qm_reader_end(p);
    return st;
}
