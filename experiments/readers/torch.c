/* torch.c - The reader of PyTorch's checkpoints: what torch.save wrote, as a zip archive or in the
 * legacy form. */
#include "experiments/readers/torch.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* "PK", and a record NAME/data.pkl at the front or in the directory at the end. */
static int knows_archive(const unsigned char *map, size_t size)
{
    static const char record[] = "/data.pkl";
    enum { FRONT = 4096, BACK = 16 << 20 };
    if (size < 22 || memcmp(map, "PK\3\4", 4) != 0)
        return 0;
    size_t back = size < BACK ? size : BACK;
    return memmem(map, size < FRONT ? size : FRONT, record, sizeof record - 1) ||
           memmem(map + size - back, back, record, sizeof record - 1);
}

/* PROTO, perhaps FRAME, then LONG1 with the magic number 0x1950a86a20f9469cfc6c. */
static int knows_legacy(const unsigned char *map, size_t size)
{
    static const char magic[] = "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
    enum { LENGTH = sizeof magic - 1 };
    return size >= 2 + LENGTH && map[0] == 0x80 &&
           (memcmp(map + 2, magic, LENGTH) == 0 ||
            (size >= 11 + LENGTH && map[2] == 0x95 && memcmp(map + 11, magic, LENGTH) == 0));
}

/* A pickle that begins with the class of a .metadata. */
static int knows_distributed(const unsigned char *map, size_t size)
{
    static const char module[] = "torch.distributed.checkpoint.metadata";
    return size > 2 && map[0] == 0x80 &&
           memmem(map, size < 128 ? size : 128, module, sizeof module - 1);
}

/* A tar archive whose first member is one of torch.save's before 0.1.10. */
static int knows_tar(const unsigned char *map, size_t size)
{
    static const char *const first[] = {"sys_info", "pickle", "tensors", "storages"};
    for (size_t i = 0; size >= 512 && i < sizeof first / sizeof *first; i++)
        if (memcmp(map + 257, "ustar", 5) == 0 && strcmp((const char *)map, first[i]) == 0)
            return 1;
    return 0;
}

static int knows(const unsigned char *map, size_t size)
{
    return knows_tar(map, size) || knows_archive(map, size) || knows_legacy(map, size) ||
           knows_distributed(map, size);
}

/* Values without effect that stand beside tensors in checkpoints, and what rebuilds tensors. */
static const char *const known_globals[] = {
    "collections.OrderedDict",
    "collections.defaultdict",
    "collections.Counter",
    "collections.deque",
    "builtins.bytes",
    "__builtin__.bytes",
    "builtins.set",
    "builtins.frozenset",
    "builtins.complex",
    "builtins.slice",
    "builtins.range",
    "builtins.bytearray",
    "builtins.dict",
    "builtins.list",
    "builtins.tuple",
    "builtins.int",
    "builtins.float",
    "builtins.bool",
    "builtins.str",
    "__builtin__.set",
    "__builtin__.frozenset",
    "__builtin__.complex",
    "__builtin__.slice",
    "__builtin__.xrange",
    "__builtin__.bytearray",
    "__builtin__.dict",
    "__builtin__.list",
    "__builtin__.tuple",
    "__builtin__.int",
    "__builtin__.long",
    "__builtin__.float",
    "__builtin__.bool",
    "__builtin__.str",
    "__builtin__.unicode",
    "_codecs.encode",
    "argparse.Namespace",
    "pathlib.PosixPath",
    "pathlib.PurePosixPath",
    "pathlib.WindowsPath",
    "pathlib.PureWindowsPath",
    "pathlib.Path",
    "pathlib._local.PosixPath",
    "datetime.datetime",
    "datetime.timedelta",
    "numpy.dtype",
    "numpy.ndarray",
    "numpy.core.multiarray.scalar",
    "numpy.core.multiarray._reconstruct",
    "numpy._core.multiarray.scalar",
    "numpy._core.multiarray._reconstruct",
    "numpy.core.numeric._frombuffer",
    "numpy._core.numeric._frombuffer",
    "torch.Size",
    "torch.device",
    "torch.strided",
    "torch.Tensor",
    "torch._tensor.Tensor",
    "torch.nn.parameter.Parameter",
    "torch.nn.parameter.Buffer",
    "torch._C.Generator",
    "torch.serialization._get_layout",
    "torch._tensor._rebuild_from_type_v2",
    "torch.storage.TypedStorage",
    "torch.storage.UntypedStorage",
    "torch.UntypedStorage",
    "torch.contiguous_format",
    "torch.preserve_format",
    "torch.channels_last",
    "torch.per_tensor_affine",
    "torch.per_channel_affine",
    "torch._utils._rebuild_tensor",
    "torch._utils._rebuild_tensor_v2",
    "torch._utils._rebuild_tensor_v3",
    "torch._utils._rebuild_parameter",
    "torch._utils._rebuild_parameter_with_state",
    "torch._utils._rebuild_qtensor",
    "torch._utils._rebuild_sparse_tensor",
    "torch._utils._rebuild_sparse_csr_tensor",
    "torch._utils._rebuild_nested_tensor",
    "torch._utils._rebuild_meta_tensor_no_storage",
    "torch._utils._rebuild_wrapper_subclass",
    "torch._utils._rebuild_device_tensor_from_cpu_tensor",
    "torch.QInt8Storage",
    "torch.QUInt8Storage",
    "torch.QInt32Storage",
    "torch.QUInt4x2Storage",
    "torch.QUInt2x4Storage",
    "torchao.optim.subclass_4bit.OptimState4bit",
    "torchao.optim.subclass_8bit.OptimState8bit",
    "torchao.optim.subclass_fp8.OptimStateFp8",
    "torchao.prototype.low_bit_optim.subclass_4bit.OptimState4bit",
    "torchao.prototype.low_bit_optim.subclass_8bit.OptimState8bit",
    "torchao.prototype.low_bit_optim.subclass_fp8.OptimStateFp8",
};

/* Whether a global is named as torch names element types, also those that are not read, as
 * torch.bits8 and torch.float4_e2m1fn_x2.  It stands beside a tensor and is never called. */
static int is_element_type(const char *global)
{
    static const char *const kinds[] = {"torch.float",    "torch.int",    "torch.uint",
                                        "torch.bits",     "torch.qint",   "torch.quint",
                                        "torch.bcomplex", "torch.complex"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        size_t n = strlen(kinds[i]);
        if (strncmp(global, kinds[i], n) == 0 && isdigit((unsigned char)global[n]))
            return global[n + strspn(global + n, "0123456789abcdefghijklmnopqrstuvwxyz_")] == '\0';
    }
    return 0;
}

int qm_torch_knows(const char *global)
{
    if (is_element_type(global))
        return 1;
    for (size_t i = 0; i < sizeof known_globals / sizeof *known_globals; i++)
        if (strcmp(global, known_globals[i]) == 0)
            return 1;
    const struct qm_pickle v = {.kind = QM_PICKLE_global, .text = global};
    return qm_torch_dtype(&v) || qm_torch_storage_class(&v);
}

static qm_status open_torch(struct qm_file *f)
{
    if (!(f->own = calloc(1, sizeof(struct qm_torch))))
        return qm_fail(QM_NO_MEMORY, "%s", f->path);
    if (knows_tar(f->map, f->size))
        return qm_file_bad(f, "is a checkpoint in the tar form of PyTorch before 0.1.10, which is "
                              "not read: save it anew with a later release");
    if (knows_distributed(f->map, f->size))
        QM_TRY(qm_torch_load_distributed(f));
    else
        QM_TRY(qm_torch_load(f, qm_torch_knows));
    QM_TRY(qm_torch_add_all(f));
    const char *left_out = ((struct qm_torch *)f->own)->left_out.text;
    if (f->n_entries == 0)
        return qm_file_bad(f, "is a checkpoint without tensors%s%.600s",
                           *left_out ? " that are read; left out: " : "", left_out);
    return QM_OK;
}

static void close_torch(struct qm_file *f)
{
    if (f->own)
        qm_torch_unload(f->own);
    f->own = NULL;
}

/* The options of the parameter that path names: "/NAME", "/NAME/...", or "/" for the first. */
static const struct qm_pickle *options_of(const struct qm_torch *t, const char *path)
{
    path += *path == '/';
    if (!*path)
        return t->n_groups ? t->group[0].options : NULL;
    for (size_t n = strlen(path); n > 0; n--) {
        int64_t i =
            path[n] == '\0' || path[n] == '/' ? qm_name_index_get(&t->group_at, path, n) : -1;
        if (i >= 0)
            return t->group[i].options;
    }
    return NULL;
}

/* A number, or that of a tensor with one element, such as torchao's lr: 1; else -1. */
static int number_of(struct qm_file *f, const struct qm_pickle *v, double *out)
{
    if (qm_pickle_is_number(v)) {
        *out = v->number;
        return 1;
    }
    if (!qm_pickle_is(v, QM_PICKLE_call))
        return -1;
    struct qm_torch_array *a = calloc(1, sizeof *a);
    struct qm_shape shape;
    const char *why;
    int is = 0;
    int good = a && qm_torch_tensor(f, v, &is, a, &shape, &why) == QM_OK && is == 1 &&
               qm_shape_numel(&shape) == 1 &&
               qm_torch_array_read(f, a, 0, 1, (struct qm_sink){NULL, out}) == QM_OK;
    free(a);
    return good ? 1 : -1;
}

/* Options that are a pair or three, and what recorded runs call their items. */
static const struct {
    const char *option, *item[3];
} sequences[] = {{"betas", {"beta1", "beta2", "beta3"}}, {"eps", {"eps1", "eps2", NULL}}};
enum { SEQUENCES = sizeof sequences / sizeof *sequences };

/* The hyper-parameters of a param_group by the names that recorded runs give them. */
static int attr_number(struct qm_file *f, const char *path, const char *name, double *out, int max)
{
    const struct qm_pickle *options = options_of(f->own, path), *v = qm_pickle_find(options, name);
    for (int s = 0; s < SEQUENCES; s++)
        for (int k = 0; k < 3 && sequences[s].item[k]; k++)
            if (strcmp(name, sequences[s].item[k]) == 0 &&
                qm_pickle_find(options, sequences[s].option))
                v = qm_pickle_item(qm_pickle_find(options, sequences[s].option), k);
    return max < 1 ? -1 : number_of(f, v, out);
}

/* Appends "key": x to a JSON object that is not closed yet. */
static int put_option(char *out, size_t size, int n, const char *key, double x)
{
    if (n < 0 || n >= (int)size || strpbrk(key, "\"\\") || !isfinite(x))
        return n;
    return n + snprintf(out + n, size - (size_t)n, "%s\"%.60s\": %.17g", n > 1 ? ", " : "", key, x);
}

/* "options" of "/NAME": the numbers of its param_group as a JSON object. */
static int options_text(struct qm_file *f, const char *path, char *out, size_t size)
{
    const struct qm_pickle *options = options_of(f->own, path);
    int n = options && size > 1 ? snprintf(out, size, "{") : -1;
    for (int64_t i = 0; n > 0 && i < options->n; i += 2) {
        const struct qm_pickle *key = options->item[i], *v = options->item[i + 1];
        double x;
        if (key->kind != QM_PICKLE_text)
            continue;
        for (int s = 0; s < SEQUENCES; s++)
            for (int k = 0; k < 3 && strcmp(key->text, sequences[s].option) == 0; k++)
                if (sequences[s].item[k] && qm_pickle_is_number(qm_pickle_item(v, k)))
                    n = put_option(out, size, n, sequences[s].item[k],
                                   qm_pickle_item(v, k)->number);
        if (number_of(f, v, &x) == 1)
            n = put_option(out, size, n, key->text, x);
    }
    if (n > 0 && n < (int)size)
        n += snprintf(out + n, size - (size_t)n, "}");
    return n;
}

/* Whether an option is no number; of "betas": no two of them, or more. */
static int is_no_number(struct qm_file *f, const char *key, const struct qm_pickle *v)
{
    double x;
    if (strcmp(key, "betas") == 0)
        return !qm_pickle_is_number(qm_pickle_item(v, 0)) ||
               !qm_pickle_is_number(qm_pickle_item(v, 1));
    return number_of(f, v, &x) != 1;
}

/* "no_numbers" of "/NAME": the options of its param_group that are none, as ",KEY,KEY,". */
static int no_numbers_text(struct qm_file *f, const char *path, char *out, size_t size)
{
    const struct qm_pickle *options = options_of(f->own, path);
    int n = options && size > 1 ? snprintf(out, size, ",") : -1;
    for (int64_t i = 0; n > 0 && n < (int)size && i < options->n; i += 2) {
        const struct qm_pickle *key = options->item[i];
        if (key->kind == QM_PICKLE_text && is_no_number(f, key->text, options->item[i + 1]))
            n += snprintf(out + n, size - (size_t)n, "%.60s,", key->text);
    }
    return n;
}

/* "left_out" of "/": what has no entry, and why; "joined" of "/": which names nothing proves;
 * "options" and "no_numbers" of a parameter. */
static int attr_text(struct qm_file *f, const char *path, const char *name, char *out, size_t size)
{
    const struct qm_torch *t = f->own;
    if (strcmp(name, "options") == 0)
        return options_text(f, path, out, size);
    if (strcmp(name, "no_numbers") == 0)
        return no_numbers_text(f, path, out, size);
    if (strcmp(path, "/") == 0 && strcmp(name, "joined") == 0 && t->joined[0])
        return snprintf(out, size, "%s", t->joined);
    if (strcmp(path, "/") != 0 || strcmp(name, "left_out") != 0)
        return -1;
    return qm_left_out_text(&t->left_out, out, size);
}

const struct qm_format qm_format_torch = {
    .name = "torch",
    .knows = knows,
    .open = open_torch,
    .read = qm_torch_read,
    .bytes = qm_torch_bytes,
    .check = qm_torch_shards_check,
    .close = close_torch,
    .attr_number = attr_number,
    .attr_text = attr_text,
    .kind = QM_FORMAT_served_from_map,
};
