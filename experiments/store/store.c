/* store.c - Writes result files: schema, provenance, tables, arrays, curves. */
#include "experiments/store/store.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/name.h"
#include "experiments/foreign/file_sum.h"
#include "experiments/machine/provenance.h"
#include "experiments/store/atomic_file.h"
#include "experiments/store/h5.h"
#include "experiments/store/h5_write.h"
#include "experiments/store/stored_digest.h"

enum {
    GROW = 1 << 20, /* bytes by which the image in memory grows */
    INDEX_K = 4,    /* half of the chunks in a node of an index: every dataset has an index */
};

struct qm_store {
    hid_t file;
    struct qm_atomic_file out;
    qm_status failed; /* the first failure; QM_OK: none */
    char why[600];    /* its text */
};

/* ---- failures stick ------------------------------------------------------------------------ */

/* Every public call begins with start(), which repeats an earlier failure, and ends with done(). */
static qm_status start(const struct qm_store *s)
{
    qm_h5_quiet();
    return s->failed == QM_OK ? QM_OK : qm_fail(s->failed, "%s", s->why);
}

static qm_status done(struct qm_store *s, qm_status st)
{
    if (st != QM_OK && s->failed == QM_OK) {
        s->failed = st;
        snprintf(s->why, sizeof s->why, "%s", qm_message());
    }
    return st;
}

/* ---- tables and arrays --------------------------------------------------------------------- */

qm_status qm_store_table(struct qm_store *s, const char *path, const char *text, int64_t rows,
                         int n_columns, const struct qm_column *columns)
{
    QM_TRY(start(s));
    return done(s, qm_h5_write_table(s->file, path, text, rows, n_columns, columns));
}

qm_status qm_store_array(struct qm_store *s, const char *path, enum qm_dtype dtype,
                         const struct qm_shape *shape, const void *data, const char *unit,
                         const char *text, const char *const *scales)
{
    QM_TRY(start(s));
    return done(s, qm_h5_write_array(s->file, path, dtype, shape, data, unit, text, scales));
}

/* ---- ragged curves and times --------------------------------------------------------------- */

static qm_status line_store(struct qm_store *s, const char *folder, const char *name,
                            enum qm_dtype dtype, int64_t n, const void *data, const char *unit,
                            const char *text)
{
    char path[512];
    struct qm_shape shape = {1, {n}};
    if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, name) >= sizeof path)
        return qm_fail(QM_BAD_ARG, "%s: the path is too long", folder);
    return qm_h5_write_array(s->file, path, dtype, &shape, data, unit, text, NULL);
}

static int has_nan(const double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (isnan(x[i]))
            return 1;
    return 0;
}

static qm_status ragged_store(struct qm_store *s, const char *path, int64_t n,
                              const int64_t *length, const double *value, const char *unit,
                              const char *text)
{
    int64_t total = 0;
    for (int64_t i = 0; i < n; i++)
        if (length[i] < 0 || __builtin_add_overflow(total, length[i], &total))
            return qm_fail(QM_BAD_ARG, "%s: curve %lld has %lld values", path, (long long)i,
                           (long long)length[i]);
    int64_t *offset = malloc((size_t)(n > 0 ? n : 1) * sizeof *offset);
    double *plain = has_nan(value, total) ? malloc((size_t)total * sizeof *plain) : NULL;
    int short_of = !offset || (!plain && has_nan(value, total));
    qm_status st = short_of ? qm_fail(QM_NO_MEMORY, "%s", path) : QM_OK;
    if (st == QM_OK) {
        for (int64_t i = 0, at = 0; i < n; at += length[i++])
            offset[i] = at;
        for (int64_t i = 0; plain && i < total; i++)
            plain[i] = qm_h5_write_nan(value[i]);
        st = line_store(s, path, "value", QM_DTYPE_f64, total, plain ? plain : value, unit, text);
    }
    if (st == QM_OK)
        st = line_store(s, path, "offset", QM_DTYPE_i64, n, offset, "1",
                        "where each curve starts in value");
    if (st == QM_OK)
        st = line_store(s, path, "length", QM_DTYPE_i64, n, length, "1", "values of each curve");
    free(plain);
    free(offset);
    return st;
}

qm_status qm_store_ragged(struct qm_store *s, const char *path, int64_t n_curves,
                          const int64_t *length, const double *value, const char *unit,
                          const char *text)
{
    QM_TRY(start(s));
    return done(s, ragged_store(s, path, n_curves, length, value, unit, text));
}

qm_status qm_store_timing(struct qm_store *s, const char *name, int64_t n, const double *value,
                          const char *unit, const char *text)
{
    QM_TRY(start(s));
    return done(s, line_store(s, "/timing", name, QM_DTYPE_f64, n, value, unit, text));
}

/* ---- texts and numbers --------------------------------------------------------------------- */

qm_status qm_store_text(struct qm_store *s, const char *path, const char *name, const char *value)
{
    QM_TRY(start(s));
    return done(s, qm_h5_write_text(s->file, path, name, value ? value : ""));
}

qm_status qm_store_number(struct qm_store *s, const char *path, const char *name, double value)
{
    QM_TRY(start(s));
    double plain = qm_h5_write_nan(value);
    return done(s, qm_h5_write_number(s->file, path, name, QM_DTYPE_f64, &plain));
}

/* ---- provenance ---------------------------------------------------------------------------- */

/* Texts of variable length, because a command line may name thousands of files. */
static qm_status argv_store(struct qm_store *s, int argc, char **argv)
{
    hid_t type = qm_h5_write_text_type(H5T_VARIABLE), set = -1;
    hsize_t dim = (hsize_t)argc;
    qm_status st = type < 0 ? qm_fail(QM_NO_MEMORY, "argv")
                            : qm_h5_write_dataset(s->file, "/provenance/argv", type, 1, &dim, "",
                                                  "the command line, word by word", &set);
    if (st == QM_OK && argc > 0 &&
        H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, (const void *)argv) < 0)
        st = qm_h5_fail(QM_INTERNAL, "cannot store /provenance/argv");
    qm_h5_close(set);
    qm_h5_close(type);
    return st;
}

static qm_status provenance_store(struct qm_store *s, int argc, char **argv)
{
    struct qm_fact *facts = calloc(QM_FACTS_MAX, sizeof *facts);
    if (!facts)
        return qm_fail(QM_NO_MEMORY, "provenance");
    int n = qm_provenance(facts);
    char now[24];
    qm_status st = qm_h5_write_text(s->file, "/provenance", "started", qm_utc(now));
    for (int i = 0; st == QM_OK && i < n; i++)
        st = facts[i].is_number
                 ? qm_h5_write_number(s->file, "/provenance", facts[i].name, QM_DTYPE_i64,
                                      &facts[i].number)
                 : qm_h5_write_text(s->file, "/provenance", facts[i].name, facts[i].text);
    free(facts);
    return st == QM_OK ? argv_store(s, argc, argv) : st;
}

static qm_status root_store(struct qm_store *s, const char *kind)
{
    int64_t version = QM_H5_SCHEMA_VERSION;
    QM_TRY(qm_h5_write_text(s->file, "/", "schema", QM_H5_SCHEMA));
    QM_TRY(qm_h5_write_number(s->file, "/", "schema_version", QM_DTYPE_i64, &version));
    return qm_h5_write_text(s->file, "/", "kind", kind);
}

/* ---- the file ------------------------------------------------------------------------------ */

/* Makes an HDF5 file in memory, so that a failure of the disk occurs in our own write and has
 * a reason. */
static qm_status image_open(struct qm_store *s)
{
    qm_h5_quiet();
    hid_t access = H5Pcreate(H5P_FILE_ACCESS), make = H5Pcreate(H5P_FILE_CREATE);
    if (access >= 0 && make >= 0 && H5Pset_fapl_core(access, GROW, 0) >= 0 &&
        H5Pset_libver_bounds(access, H5F_LIBVER_EARLIEST, H5F_LIBVER_V18) >= 0 &&
        H5Pset_obj_track_times(make, 0) >= 0 && H5Pset_istore_k(make, INDEX_K) >= 0)
        s->file = H5Fcreate(s->out.temporary, H5F_ACC_TRUNC, make, access);
    qm_status st =
        s->file < 0 ? qm_h5_fail(QM_INTERNAL, "%s: cannot be begun", s->out.path) : QM_OK;
    qm_h5_close(make);
    qm_h5_close(access);
    return st;
}

/* Refuses a name that says another format than HDF5. */
static qm_status name_check(const char *path)
{
    static const char *const others[] = {".npz",         ".npy",  ".pt",   ".pth",  ".bin",
                                         ".safetensors", ".json", ".yaml", ".csv",  ".txt",
                                         ".svg",         ".png",  ".pdf",  ".html", NULL};
    for (int i = 0; others[i]; i++)
        if (qm_name_ends(path, others[i]))
            return qm_fail(QM_BAD_ARG, "%s: results are HDF5; expected a name that ends in .h5",
                           path);
    return QM_OK;
}

qm_status qm_store_open(const char *path, const char *kind, int argc, char **argv,
                        struct qm_store **out)
{
    QM_TRY(name_check(path));
    struct qm_store *s = calloc(1, sizeof *s);
    if (!s)
        return qm_fail(QM_NO_MEMORY, "%s", path);
    s->file = s->out.fd = -1;
    qm_status st = qm_atomic_file_open(path, &s->out);
    if (st == QM_OK)
        st = image_open(s);
    if (st == QM_OK)
        st = root_store(s, kind);
    if (st == QM_OK)
        st = provenance_store(s, argc, argv);
    if (st == QM_OK)
        *out = s;
    else
        qm_store_abort(s);
    return st;
}

void qm_store_abort(struct qm_store *s)
{
    if (!s)
        return;
    if (s->file >= 0)
        H5Fclose(s->file);
    qm_atomic_file_abort(&s->out);
    free(s);
}

static qm_status image_write(const struct qm_store *s)
{
    if (H5Fflush(s->file, H5F_SCOPE_GLOBAL) < 0)
        return qm_h5_fail(QM_INTERNAL, "%s: cannot be finished", s->out.path);
    ssize_t n = H5Fget_file_image(s->file, NULL, 0);
    if (n <= 0)
        return qm_h5_fail(QM_INTERNAL, "%s: cannot be finished", s->out.path);
    char *bytes = malloc((size_t)n);
    if (!bytes)
        return qm_fail(QM_NO_MEMORY, "%s: %lld bytes", s->out.path, (long long)n);
    qm_status st = H5Fget_file_image(s->file, bytes, (size_t)n) != n
                       ? qm_h5_fail(QM_INTERNAL, "%s: cannot be finished", s->out.path)
                       : qm_atomic_file_write(&s->out, bytes, (size_t)n);
    char line[QM_FILE_SUM_LINE];
    if (st == QM_OK) {
        qm_file_sum_line(bytes, (size_t)n, line);
        st = qm_atomic_file_write(&s->out, line, sizeof line);
    }
    free(bytes);
    return st;
}

/* Puts the finished image in place, with its digest inside and its checksum after it. */
static qm_status publish(struct qm_store *s)
{
    char now[24], digest[65];
    QM_TRY(qm_h5_write_text(s->file, "/provenance", "finished", qm_utc(now)));
    if (H5Fflush(s->file, H5F_SCOPE_GLOBAL) < 0) /* sizes of chunks are known then */
        return qm_h5_fail(QM_INTERNAL, "%s: cannot be finished", s->out.path);
    QM_TRY(qm_digest_of(s->file, s->out.path, 1, digest));
    QM_TRY(qm_h5_write_text(s->file, "/provenance", "digest", digest));
    QM_TRY(image_write(s));
    return qm_atomic_file_commit(&s->out);
}

qm_status qm_store_commit(struct qm_store *s)
{
    assert(s);
    qm_status st = start(s);
    if (st == QM_OK)
        st = publish(s);
    else
        qm_fail_in(st, "nothing written");
    qm_store_abort(s);
    return st;
}
