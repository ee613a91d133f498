/* import.c - qualm import: writes the tensors of checkpoints to one file that others read. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/base/grow.h"
#include "core/base/name.h"
#include "core/base/name_index.h"
#include "experiments/cli/cli.h"
#include "experiments/command/command.h"
#include "experiments/readers/reader.h"
#include "experiments/store/array_file.h"
#include "experiments/store/atomic_file.h"
#include "experiments/store/store.h"

struct options {
    char **path;
    int n_paths;
    const char *out, *filter;
};

enum { KEY_TENSOR = 256 };

static const struct argp_option options[] = {
    {"out", 'o', "FILE", 0, "X.npz, X.safetensors or X.h5, by its ending", 0},
    {"tensor", KEY_TENSOR, "REGEX", 0, "only tensors whose name matches", 0},
    {0}};

static error_t option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case 'o': o->out = arg; return 0;
    case KEY_TENSOR: o->filter = qm_cli_filter(state, "--tensor", arg); return 0;
    case ARGP_KEY_ARGS:
        o->path = state->argv + state->next;
        o->n_paths = state->argc - state->next;
        return 0;
    case ARGP_KEY_NO_ARGS: argp_error(state, "FILE is missing"); return 0;
    case ARGP_KEY_END:
        if (!o->out)
            argp_error(state, "--out is missing");
        else if (qm_container_of(o->out) == QM_CONTAINER_COUNT)
            argp_error(state, "--out '%s': expected an ending .npz, .safetensors or .h5", o->out);
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* One array of the result. */
struct imported {
    struct qm_tensor tensor;
    const char *file, *stored; /* where it was, and as which type */
    char *name;
};

struct import {
    struct qm_file **open;     /* parallel to the paths: those that were not closed */
    struct qm_file_mark *mark; /* parallel to the paths: as each was listed */
    struct imported *of;
    int64_t n, room;
    struct qm_name_index at;
    json_t *hyper;    /* "PARAMETER": {"lr": ..., ...} */
    json_t *left_out; /* "FILE": what of it was left out, and why */
    json_t *joined;   /* "FILE": which names of its parameters nothing proves */
};

/* Notes the numbers of the param_group of an entry's parameter. */
static void describe(struct qm_file *f, struct import *m, const char *entry)
{
    int has_groups = strcmp(qm_file_format(f), "torch") == 0; /* each question is a round trip */
    const char *slash = has_groups ? strrchr(entry, '/') : NULL;
    char *parameter = slash ? strndup(entry, (size_t)(slash - entry)) : NULL, path[1200],
         text[4096];
    if (parameter && !json_object_get(m->hyper, parameter) &&
        snprintf(path, sizeof path, "/%s", parameter) < (int)sizeof path &&
        qm_file_attr_text(f, path, "options", text, sizeof text) > 0)
        json_object_set_new(m->hyper, parameter, json_loads(text, 0, NULL));
    free(parameter);
}

/* Memory for all elements: pages of a file without a name in the folder of the result, so that the
 * system can write them out.  The disk has them then: a page that it has not were a signal.  The
 * caller unmaps it. */
static qm_status room_for(size_t bytes, const char *out, void **room)
{
    char path[4096];
    const char *slash = strrchr(out, '/');
    int n = snprintf(path, sizeof path, "%.*s.qualm-import-XXXXXX",
                     slash ? (int)(slash - out + 1) : 0, out);
    int fd = n < (int)sizeof path ? mkstemp(path) : -1;
    if (fd < 0)
        return qm_atomic_file_no_folder(out, n < (int)sizeof path ? errno : ENAMETOOLONG);
    unlink(path);
    int error = posix_fallocate(fd, 0, (off_t)bytes);
    *room = error ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    error = !error && *room == MAP_FAILED ? errno : error;
    close(fd);
    return error ? qm_fail(QM_BAD_FILE, "%s: no room for %zu bytes in its folder: %s", out, bytes,
                           strerror(error))
                 : QM_OK;
}

/* The type of an array: halves are widened to float32, what else there is stays. */
static enum qm_dtype type_of(const struct qm_entry *e)
{
    return qm_dtype_is_float(e->dtype) && e->dtype != QM_DTYPE_f64 ? QM_DTYPE_f32 : e->dtype;
}

static qm_status read_entry(struct qm_file *f, int i, void *to)
{
    const struct qm_entry *e = qm_file_entry(f, i);
    if (type_of(e) == QM_DTYPE_f32)
        return qm_file_read(f, i, 0, e->numel, to);
    if (e->dtype == QM_DTYPE_f64)
        return qm_file_read_double(f, i, 0, e->numel, to);
    return e->numel ? qm_file_read_bytes(f, i, to) : QM_OK;
}

/* QM_BAD_FILE: a result cannot hold the name. */
static qm_status expect_utf8(const char *path, const char *name)
{
    for (const char *c = name; *c; c += qm_cli_utf8_bytes(c))
        if (!qm_cli_utf8_bytes(c))
            return qm_fail(QM_BAD_FILE, "%s: the name '%s' is not UTF-8", path, name);
    return QM_OK;
}

/* The name of an entry; paths of HDF5 begin with a slash, which is no part of it. */
static const char *name_of(const struct qm_file *f, int i)
{
    const char *name = qm_file_entry(f, i)->name;
    return name + (*name == '/' && strcmp(qm_file_format(f), "hdf5") == 0);
}

static qm_status add_entry(struct qm_file *f, const char *path, int i, struct import *m)
{
    const struct qm_entry *e = qm_file_entry(f, i);
    const char *name = name_of(f, i);
    QM_TRY(expect_utf8(path, name));
    int64_t same = qm_name_index_get(&m->at, name, strlen(name));
    if (same >= 0 && m->of[same].file == path)
        return qm_fail(QM_BAD_FILE, "%s: holds two arrays '%.200s'%s", path, name,
                       strcmp(qm_file_format(f), "npz") == 0
                           ? "; of a member the ending .npy is no part of the name"
                           : "");
    if (same >= 0)
        return qm_fail(QM_BAD_ARG, "%s: '%s' stands in %s too; import the files one by one", path,
                       name, m->of[same].file);
    QM_TRY(qm_grow((void **)&m->of, &m->room, m->n + 1, sizeof *m->of));
    struct imported *x = &m->of[m->n];
    *x = (struct imported){.file = path, .stored = qm_dtype_name(e->dtype), .name = strdup(name)};
    if (!x->name)
        return qm_fail(QM_NO_MEMORY, "%s: names", path);
    x->tensor.dtype = type_of(e);
    x->tensor.shape = e->shape;
    describe(f, m, name);
    return qm_name_index_put(&m->at, x->name, strlen(x->name), m->n++);
}

/* Keeps what there is to say about a file under its path. */
static qm_status remember(json_t *of, const char *path, const char *text)
{
    json_t *key = qm_json_text(path);
    int failed = !key || json_object_set_new(of, json_string_value(key), qm_json_text(text));
    json_decref(key);
    return failed ? qm_fail(QM_NO_MEMORY, "%s: remarks", path) : QM_OK;
}

/* Writes "FILE: TEXT; FILE: TEXT" of what was kept; the caller frees it.  NULL: nothing was. */
static char *remarks(const json_t *of)
{
    char *all = NULL, *longer;
    const char *path;
    json_t *text;
    json_object_foreach ((json_t *)of, path, text) {
        int n = asprintf(&longer, "%s%s%s: %s", all ? all : "", all ? "; " : "", path,
                         json_string_value(text));
        if (n < 0)
            break;
        free(all);
        all = longer;
    }
    return all;
}

/* Lists what file number k adds.  Where there is only one it stays open.  QM_NO_MATCH: the only
 * file adds nothing; the error says what of it was left out, and no note does. */
static qm_status list_file(const struct options *o, int k, struct import *m)
{
    const char *path = o->path[k];
    struct qm_file *f;
    char remark[QM_FILE_REMARK];
    QM_TRY(qm_file_open_numbers(path, &f));
    qm_status st = QM_OK;
    for (int i = 0; st == QM_OK && i < qm_file_count(f); i++)
        if (qm_entry_matches(qm_file_entry(f, i)->name, o->filter))
            st = add_entry(f, path, i, m);
    int has_remark = qm_file_remark(f, remark);
    if (st == QM_OK && o->n_paths == 1 && m->n == 0)
        st = qm_fail(QM_NO_MATCH, "%s: no tensor%s%s%s%s", path, o->filter ? " matches " : "",
                     o->filter ? o->filter : "", has_remark ? "; " : "", has_remark ? remark : "");
    else if (has_remark)
        qm_note_remark(path, remark);
    if (st == QM_OK && qm_file_left_out(f, remark, sizeof remark))
        st = remember(m->left_out, path, remark);
    if (st == QM_OK && qm_file_joined(f, remark, sizeof remark))
        st = remember(m->joined, path, remark);
    if (st == QM_OK)
        st = qm_file_check(f);
    m->mark[k] = *qm_file_mark(f);
    if (st == QM_OK && o->n_paths == 1)
        m->open[k] = f;
    else
        qm_file_close(f);
    return st;
}

/* Reads what file number k adds into its room. */
static qm_status read_file(const struct options *o, int k, struct import *m, int64_t *at,
                           struct qm_progress *progress)
{
    const char *path = o->path[k];
    struct qm_file *f = m->open[k];
    if (!f)
        QM_TRY(qm_file_open(path, &f));
    m->open[k] = NULL;
    qm_status st = QM_OK;
    if (!qm_file_mark_equal(qm_file_mark(f), &m->mark[k]))
        st = qm_fail(QM_BAD_FILE, "%s: changed while it was read", path);
    for (int i = 0; st == QM_OK && i < qm_file_count(f); i++)
        if (qm_entry_matches(qm_file_entry(f, i)->name, o->filter)) {
            const struct qm_entry *e = qm_file_entry(f, i);
            struct imported *x = *at < m->n ? &m->of[(*at)++] : NULL;
            if (!x || strcmp(x->name, name_of(f, i)) != 0 || x->tensor.dtype != type_of(e) ||
                qm_shape_numel(&x->tensor.shape) != e->numel)
                st = qm_fail(QM_BAD_FILE, "%s: changed while it was read", path);
            else
                st = read_entry(f, i, x->tensor.data);
            qm_progress_add(progress, e->numel, 0);
        }
    if (st == QM_OK)
        st = qm_file_check(f);
    qm_file_close(f);
    return st;
}

/* ---- results ------------------------------------------------------------------------------- */

/* Stores an array under its name, which may be one that HDF5 has not, or has already. */
static qm_status store_array(struct qm_store *s, const struct imported *x)
{
    char *path = NULL, text[256];
    snprintf(text, sizeof text, "stored as %s", x->stored);
    if (asprintf(&path, "/%s", x->name) < 0)
        return qm_fail(QM_NO_MEMORY, "names");
    qm_status st =
        qm_store_array(s, path, x->tensor.dtype, &x->tensor.shape, x->tensor.data, "1", text, NULL);
    free(path);
    if (st != QM_BAD_ARG)
        return st;
    return qm_fail(QM_BAD_FILE,
                   "%s: an .h5 file cannot hold the name '%.200s' beside the others (%.200s); a "
                   ".npz or .safetensors file takes it",
                   x->file, x->name, qm_message());
}

static qm_status write_h5(const struct options *o, const struct import *m, int argc, char **argv)
{
    struct qm_store *s;
    const char *parameter, *name;
    json_t *of, *x;
    QM_TRY(qm_store_open(o->out, "import", argc, argv, &s));
    qm_status st = QM_OK;
    for (int64_t i = 0; st == QM_OK && i < m->n; i++)
        st = store_array(s, &m->of[i]);
    json_object_foreach (m->hyper, parameter, of) {
        char path[1200];
        snprintf(path, sizeof path, "/%s", parameter);
        json_object_foreach (of, name, x)
            if (st == QM_OK)
                st = qm_store_number(s, path, name, json_number_value(x));
    }
    char *joined = remarks(m->joined), *left_out = remarks(m->left_out);
    if (st == QM_OK && joined)
        st = qm_store_text(s, "/", "joined", joined);
    if (st == QM_OK && left_out)
        st = qm_store_text(s, "/", "left_out", left_out);
    free(joined);
    free(left_out);
    if (st != QM_OK) {
        qm_store_abort(s);
        return st;
    }
    return qm_store_commit(s);
}

static qm_status write_arrays(const struct options *o, const struct import *m)
{
    struct qm_array *a = calloc((size_t)m->n + 1, sizeof *a);
    char *hyper = json_dumps(m->hyper, JSON_COMPACT);
    json_t *texts =
        json_pack("{s:s, s:s}", "format", "qualm-import", "hyper", hyper ? hyper : "{}");
    char *joined = remarks(m->joined), *left_out = remarks(m->left_out);
    if (joined)
        json_object_set_new(texts, "joined", json_string(joined));
    if (left_out)
        json_object_set_new(texts, "left_out", json_string(left_out));
    free(joined);
    free(left_out);
    qm_status st = a && texts ? QM_OK : qm_fail(QM_NO_MEMORY, "%s", o->out);
    for (int64_t i = 0; st == QM_OK && i < m->n; i++)
        a[i] = (struct qm_array){m->of[i].name, &m->of[i].tensor};
    if (st == QM_OK)
        st = qm_arrays_write(o->out, qm_container_of(o->out), texts, a, (int)m->n);
    json_decref(texts);
    free(hyper);
    free(a);
    return st;
}

static void report(const struct options *o, const struct import *m)
{
    static const char *const heads[] = {"tensor", "stored as", "written as", "shape"};
    if (qm_cli.json) {
        json_t *list = json_array();
        for (int64_t i = 0; i < m->n; i++) {
            const struct imported *x = &m->of[i];
            json_t *shape = json_array();
            for (int d = 0; d < x->tensor.shape.rank; d++)
                json_array_append_new(shape, json_integer(x->tensor.shape.dim[d]));
            json_array_append_new(list,
                                  json_pack("{s:s, s:o, s:s, s:s, s:o}", "tensor", x->name, "file",
                                            qm_json_text(x->file), "stored", x->stored, "written",
                                            qm_dtype_name(x->tensor.dtype), "shape", shape));
        }
        qm_json_print(json_pack("{s:o, s:O, s:O, s:O, s:o}", "out", qm_json_text(o->out), "hyper",
                                m->hyper, "left_out", m->left_out, "joined", m->joined, "tensors",
                                list));
        return;
    }
    struct qm_table *t = qm_table_open(4, heads);
    for (int64_t i = 0; i < m->n; i++) {
        char shape[128];
        qm_table_cell(t, "%s", m->of[i].name);
        qm_table_cell(t, "%s", m->of[i].stored);
        qm_table_cell(t, "%s", qm_dtype_name(m->of[i].tensor.dtype));
        qm_table_cell(t, "%s", qm_shape_print(&m->of[i].tensor.shape, shape, sizeof shape));
    }
    qm_table_close(t);
    qm_note("wrote %s: %lld array%s", o->out, (long long)m->n, m->n == 1 ? "" : "s");
}

static qm_status import(const struct options *o, struct import *m, int argc, char **argv)
{
    size_t bytes = 0, done = 0;
    struct qm_progress progress;
    int64_t at = 0, elements = 0;
    QM_TRY(qm_atomic_file_check(o->out)); /* before anything is read */
    for (int i = 0; i < o->n_paths; i++)
        QM_TRY(list_file(o, i, m));
    if (m->n == 0)
        return qm_fail(QM_NO_MATCH, "no tensor%s%s", o->filter ? " matches " : "",
                       o->filter ? o->filter : "");
    for (int64_t i = 0; i < m->n; i++) {
        bytes += (qm_tensor_bytes(&m->of[i].tensor) + 63) / 64 * 64;
        elements += qm_shape_numel(&m->of[i].tensor.shape);
    }
    void *room = NULL;
    QM_TRY(room_for(bytes + 64, o->out, &room));
    for (int64_t i = 0; i < m->n; i++) {
        m->of[i].tensor.data = (unsigned char *)room + done;
        done += (qm_tensor_bytes(&m->of[i].tensor) + 63) / 64 * 64;
    }
    qm_status st = QM_OK;
    qm_progress_start(&progress, "import", elements);
    for (int i = 0; st == QM_OK && i < o->n_paths; i++)
        st = read_file(o, i, m, &at, &progress);
    qm_progress_end(&progress);
    if (st == QM_OK)
        st = qm_container_of(o->out) == QM_CONTAINER_h5 ? write_h5(o, m, argc, argv)
                                                        : write_arrays(o, m);
    munmap(room, bytes + 64);
    if (st == QM_OK)
        report(o, m);
    return st;
}

int qm_cmd_import(int argc, char **argv)
{
    static const struct argp_child children[] = {{&qm_cli_argp, 0, "Common options:", -1}, {0}};
    static const struct argp argp = {
        options,
        option,
        "FILE...",
        "Writes what checkpoints hold to one file: PyTorch's .pt, .pth and .bin, whole or "
        "state_dict() "
        "alone, zip or legacy, and every other format that qualm reads.  An optimizer's states are "
        "NAME/SLOT (1.weight/exp_avg) beside NAME/param, where a model in the same file, the "
        "nearest that fits, names the parameters, else NUMBER/SLOT; other tensors go by their "
        "keys.  Quantized states of "
        "torchao and bitsandbytes are decoded by their own tables to float32; float16, bfloat16 "
        "and 8-bit "
        "floats become float32 (a NaN of 8 bits the quiet one), complex numbers a last axis of 2 "
        "(real and imaginary part).  A pickle that names anything but tensors and plain values is "
        "refused, and nothing in it is run."
        "\vHyper-parameters of the optimizer's param_groups go into __metadata__ of .safetensors "
        "and "
        "the attributes of .h5, as do `joined` and `left_out`: which names are joined by order "
        "alone, and what was left out.  .npz is put together in memory.\n\n"
        "Examples:\n"
        "  # checkpoint.pt and optimizer.pt are files of yours\n"
        "  qualm import checkpoint.pt --out states.safetensors\n"
        "  qualm import optimizer.pt --tensor 'exp_avg$' -o momentum.npz\n"
        "  qualm import checkpoint.pt -o states.h5 --json\n\n"
        "Exit codes: 0 done, 2 usage, 3 a file cannot be read or written, 4 no tensor matches.",
        children,
        NULL,
        NULL};
    struct options o = {0};
    int code = qm_cli_parse(&argp, argc, argv, &o);
    if (code)
        return code;
    struct import m = {.open = calloc((size_t)o.n_paths, sizeof *m.open),
                       .mark = calloc((size_t)o.n_paths, sizeof *m.mark),
                       .hyper = json_object(),
                       .left_out = json_object(),
                       .joined = json_object()};
    qm_status st = m.open && m.mark && m.hyper && m.left_out && m.joined
                       ? import(&o, &m, argc, argv)
                       : qm_fail(QM_NO_MEMORY, "names");
    for (int i = 0; m.open && i < o.n_paths; i++)
        qm_file_close(m.open[i]);
    free(m.open);
    free(m.mark);
    qm_name_index_free(&m.at);
    for (int64_t i = 0; i < m.n; i++)
        free(m.of[i].name);
    free(m.of);
    json_decref(m.hyper);
    json_decref(m.left_out);
    json_decref(m.joined);
    return st == QM_OK ? 0 : qm_cli_failed("import", st);
}
