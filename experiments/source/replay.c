/* replay.c - Finds and loads recorded states and traces of training runs. */
#include "experiments/source/replay.h"

#include "core/base/grow.h"
#include "core/base/name.h"
#include "core/base/name_index.h"
#include "experiments/foreign/file_copy.h"
#include "experiments/machine/bounded_glob.h"
#include "experiments/machine/shipped_files.h"
#include "experiments/readers/reader.h"
#include "experiments/readers/slot_names.h"
#include "experiments/source/checkpoint_hyper.h"
#include "experiments/source/same_tensors.h"

#include <ctype.h>
#include <glob.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_SLOTS = QM_SLOT_NAMES };

struct source_file {
    char *path;
    char *copies; /* other names of these bytes, with commas between; NULL: none */
    struct qm_file *file;
    struct qm_name_index at; /* entries by name, without a leading slash */
};

struct record {
    struct qm_recorded public;
    int file, at_grad, at_param, at_slot[N_SLOTS], at_lr; /* entries of the file, or -1 */
};

struct qm_replay {
    int n_files, n_records;
    int64_t room;
    struct source_file *file;
    struct record **record;
};

/* ---- finding ------------------------------------------------------------------------------- */

/* The entry group/leaf, or -1. */
static int entry_named(const struct source_file *sf, const char *group, const char *leaf)
{
    char path[1200];
    int n = snprintf(path, sizeof path, "%s/%s", group, leaf);
    return n < (int)sizeof path ? (int)qm_name_index_get(&sf->at, path, (size_t)n) : -1;
}

/* The step of a word "sNNNNNN" of n characters; -1 for other words. */
static int64_t step_of(const char *word, size_t n)
{
    int64_t t = 0;
    if (n < 2 || n > 12 || word[0] != 's')
        return -1;
    for (size_t i = 1; i < n; i++) {
        if (word[i] < '0' || word[i] > '9')
            return -1;
        t = t * 10 + (word[i] - '0');
    }
    return t;
}

/* Sets *to to a number among the attributes of a path, where it is there: *found.  QM_BAD_FILE: it
 * is not from `least` up to, but without, `end`. */
static qm_status read_number(const struct source_file *sf, const char *path, const char *name,
                             double least, double end, double *to, int *found)
{
    double x[1];
    *found = qm_file_attr_number(sf->file, path, name, x, 1) == 1;
    if (*found && !(x[0] >= least && x[0] < end))
        return end < HUGE_VAL
                   ? qm_fail(QM_BAD_FILE, "%s: %s: attribute %s is %g, expected from %g up to %g",
                             sf->path, path, name, x[0], least, end)
                   : qm_fail(QM_BAD_FILE, "%s: %s: attribute %s is %g, expected %g or more",
                             sf->path, path, name, x[0], least);
    if (*found)
        *to = x[0];
    return QM_OK;
}

/* Hyper-parameters from the attributes of run, step and tensor; the later ones override. */
static qm_status read_hyper(const struct source_file *sf, struct qm_recorded *rec,
                            struct qm_hyper *h)
{
    char path[512];
    size_t run = strcspn(rec->name, "/");
    snprintf(path, sizeof path, "/%.*s", (int)run, rec->name);
    struct {
        const char *name;
        double *to, least, end;
    } numbers[] = {{"beta1", &h->beta1, 0, 1},
                   {"beta2", &h->beta2, 0, 1},
                   {"eps", &h->eps, 0, HUGE_VAL},
                   {"momentum", &h->momentum, -HUGE_VAL, HUGE_VAL},
                   {"dampening", &h->dampening, -HUGE_VAL, HUGE_VAL},
                   {"lr_peak", &h->lr, 0, HUGE_VAL},
                   {"weight_decay", &h->weight_decay, 0, HUGE_VAL}};
    double x = 0.0;
    int found;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        QM_TRY(read_number(sf, path, numbers[i].name, numbers[i].least, numbers[i].end,
                           numbers[i].to, &found));
        if (!found && i < 3 && !rec->unknown)
            rec->unknown = numbers[i].name;
    }
    QM_TRY(read_number(sf, path, "nesterov", -HUGE_VAL, HUGE_VAL, &x, &found));
    h->nesterov = found ? x != 0.0 : h->nesterov;
    if (h->nesterov && (!(h->momentum > 0) || h->dampening != 0))
        return qm_fail(QM_BAD_FILE,
                       "%s: %s: attribute nesterov with momentum %g and dampening %g, expected "
                       "momentum above 0 and dampening 0",
                       sf->path, path, h->momentum, h->dampening);
    snprintf(path, sizeof path, "/%s", rec->group);
    if (!rec->is_trace)
        QM_TRY(read_number(sf, path, "lr", 0, HUGE_VAL, &h->lr, &found));
    snprintf(path, sizeof path, "/%s", rec->name);
    return read_number(sf, path, "weight_decay", 0, HUGE_VAL, &h->weight_decay, &found);
}

void qm_replay_unload(struct qm_recorded *p)
{
    free(p->grad);
    free(p->param);
    free(p->lr);
    p->grad = p->param = NULL;
    p->lr = NULL;
    for (int s = 0; s < N_SLOTS; s++) {
        free(p->slot[s]);
        p->slot[s] = NULL;
    }
}

static void record_free(struct record *r)
{
    if (!r)
        return;
    struct qm_recorded *p = &r->public;
    free(p->file);
    free(p->name);
    free(p->group);
    free(p->tensor);
    free(p->lacking);
    qm_replay_unload(p);
    free(r);
}

static qm_status record_add(struct qm_replay *r, struct record *rec)
{
    QM_TRY(qm_grow((void **)&r->record, &r->room, r->n_records + 1, sizeof *r->record));
    r->record[r->n_records++] = rec;
    return QM_OK;
}

/* The line that adds an attribute to a file of this format. */
static const char *line_to_add(const struct qm_file *f, const char *path, const char *name,
                               const char *example, char *out, size_t size)
{
    if (strcmp(qm_file_format(f), "hdf5") == 0)
        snprintf(out, size, "add h5py.File(...)[\"%s\"].attrs[\"%s\"] = %s", path, name, example);
    else if (strcmp(qm_file_format(f), "safetensors") == 0)
        snprintf(out, size, "add \"%s@%s\": \"%s\" to the metadata of save_file", path, name,
                 example[0] == '"' ? "adamw" : example);
    else
        snprintf(out, size, "a file of format %s has no attributes: record it with qualm_record.py",
                 qm_file_format(f));
    return out;
}

/* Sets rec->lacking of a trace to the first number that its rule needs and the file leaves out. */
static qm_status find_lacking(const struct source_file *sf, struct record *rec)
{
    struct qm_recorded *p = &rec->public;
    static const struct {
        const char *name, *example, *rules; /* rules: names between spaces; NULL: every one */
    } needs[] = {{"beta1", "0.9", " adamw adam lion "}, {"beta2", "0.999", " adamw adam lion "},
                 {"eps", "1e-8", " adamw adam "},       {"momentum", "0.9", " sgdm "},
                 {"dampening", "0.0", " sgdm "},        {"nesterov", "0", " sgdm "},
                 {"weight_decay", "0.01", NULL}};
    char run[512], tensor[512], rule[32], line[700], text[32];
    double x[1];
    snprintf(run, sizeof run, "/%.*s", (int)strcspn(p->name, "/"), p->name);
    snprintf(tensor, sizeof tensor, "/%s", p->name);
    snprintf(rule, sizeof rule, " %s ", p->optimizer);
    const char *lacks = NULL;
    if (qm_file_attr_text(sf->file, run, "optimizer", text, sizeof text) <= 0)
        line_to_add(sf->file, run, lacks = "optimizer", "\"adamw\"", line, sizeof line);
    for (size_t i = 0; !lacks && i < sizeof needs / sizeof *needs; i++)
        if ((!needs[i].rules || strstr(needs[i].rules, rule)) &&
            qm_file_attr_number(sf->file, run, needs[i].name, x, 1) != 1 &&
            qm_file_attr_number(sf->file, tensor, needs[i].name, x, 1) != 1)
            line_to_add(sf->file, run, lacks = needs[i].name, needs[i].example, line, sizeof line);
    if (!lacks && rec->at_lr < 0) {
        lacks = "lr, the learning rate of each update";
        snprintf(line, sizeof line, "add the array %s/lr of %lld numbers", p->group,
                 (long long)p->n_steps);
    }
    if (lacks &&
        asprintf(&p->lacking, "%s: the trace %s lacks %s; %s", sf->path, p->name, lacks, line) < 0)
        return qm_fail(QM_NO_MEMORY, "recorded trace %s", p->name);
    return QM_OK;
}

/* Fills a record from names and attributes; at: the entry by which it was found; step < 0:
 * a trace. */
static qm_status record_describe(struct qm_replay *r, int i_file, const char *name, size_t n_group,
                                 int64_t step, int at, struct record *rec)
{
    struct source_file *sf = &r->file[i_file];
    struct qm_recorded *p = &rec->public;
    const char *base = strrchr(sf->path, '/');
    p->file = strdup(base ? base + 1 : sf->path);
    p->name = strdup(name);
    p->group = strndup(name, n_group);
    p->tensor = strdup(name + n_group + 1);
    if (!p->file || !p->name || !p->group || !p->tensor)
        return qm_fail(QM_NO_MEMORY, "recorded state %s", name);
    rec->file = i_file;
    p->is_trace = step < 0;
    const char *suffix = p->is_trace ? "_init" : "";
    char leaf[64];
    for (int s = 0; s < N_SLOTS; s++) {
        snprintf(leaf, sizeof leaf, "%s%s", qm_slot_names(s)[0], suffix);
        rec->at_slot[s] = entry_named(sf, name, leaf);
        p->has_slot[s] = rec->at_slot[s] >= 0;
    }
    snprintf(leaf, sizeof leaf, "param%s", suffix);
    rec->at_param = entry_named(sf, name, leaf);
    rec->at_grad = entry_named(sf, name, "grad");
    rec->at_lr = p->is_trace ? entry_named(sf, p->group, "lr") : -1;
    p->has_param = rec->at_param >= 0;
    p->has_grad = rec->at_grad >= 0;
    p->shape = qm_file_entry(sf->file, at)->shape;
    p->first_step = step;
    p->n_steps = 1;
    if (p->is_trace) { /* the leading axis counts updates */
        double first = 1.0;
        char path[512], line[700];
        p->n_steps = p->shape.dim[0];
        for (int d = 1; d < p->shape.rank; d++)
            p->shape.dim[d - 1] = p->shape.dim[d];
        p->shape.rank--;
        snprintf(path, sizeof path, "/%s", p->group);
        if (qm_file_attr_number(sf->file, path, "first_step", &first, 1) != 1)
            return qm_fail(QM_BAD_FILE,
                           "%s: %s has no attribute first_step, the number of its first "
                           "update; %s",
                           sf->path, path,
                           line_to_add(sf->file, path, "first_step", "1", line, sizeof line));
        p->first_step = (int64_t)first;
    }
    p->numel = qm_shape_numel(&p->shape);
    p->hyper = qm_hyper_default();
    QM_TRY(read_hyper(sf, p, &p->hyper));
    char path[512];
    snprintf(path, sizeof path, "/%.*s", (int)strcspn(name, "/"), name);
    if (qm_file_attr_text(sf->file, path, "optimizer", p->optimizer, sizeof p->optimizer) < 0)
        p->optimizer[0] = 0;
    for (char *c = p->optimizer; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    return p->is_trace ? find_lacking(sf, rec) : QM_OK;
}

/* Whether a path is the one entry by which a record is found: exp_avg of a state, grad of a
 * trace.  Sets pointers to the path's parts, and *step (-1: a trace). */
static int is_key_leaf(const char *name, const char **tensor, const char **leaf, int64_t *step)
{
    const char *slash1 = strchr(name, '/');
    const char *slash2 = slash1 ? strchr(slash1 + 1, '/') : NULL;
    const char *last = strrchr(name, '/');
    if (!slash2 || last <= slash2)
        return 0;
    *tensor = slash2 + 1;
    *leaf = last + 1;
    size_t n = (size_t)(slash2 - slash1 - 1);
    *step = step_of(slash1 + 1, n);
    if (*step >= 0)
        return strcmp(*leaf, "exp_avg") == 0;
    return n == 5 && strncmp(slash1 + 1, "trace", n) == 0 && strcmp(*leaf, "grad") == 0;
}

/* The entry TENSOR/leaf of a checkpoint, by the first of several names that it has; -1: none. */
static int entry_of(const struct source_file *sf, const char *tensor, const char *const *leaf)
{
    int at = -1;
    for (int i = 0; at < 0 && leaf[i]; i++)
        at = entry_named(sf, tensor, leaf[i]);
    return at;
}

/* Which relative of Adam a checkpoint's param_groups tell (qm_recorded, made_by). */
static const char *relative_of_adam(const struct source_file *sf, const char *tensor)
{
    char path[512];
    double amsgrad = 0.0, x;
    snprintf(path, sizeof path, "/%s", tensor);
    int says = qm_file_attr_number(sf->file, path, "amsgrad", &amsgrad, 1) == 1;
    if (qm_file_attr_number(sf->file, path, "momentum_decay", &x, 1) == 1)
        return "nadam";
    if (says)
        return amsgrad != 0.0 ? "amsgrad" : NULL;
    return entry_named(sf, tensor, "exp_avg_sq") >= 0 &&
                   qm_file_attr_number(sf->file, path, "decoupled_weight_decay", &x, 1) == 1
               ? "radam"
               : NULL;
}

/* Whose momentum_buffer it is. */
static const char *owner_of_momentum(const struct source_file *sf, const char *tensor)
{
    char path[512];
    double x;
    snprintf(path, sizeof path, "/%s", tensor);
    return qm_file_attr_number(sf->file, path, "alpha", &x, 1) == 1      ? "rmsprop_full"
           : qm_file_attr_number(sf->file, path, "ns_steps", &x, 1) == 1 ? "muon"
                                                                         : "sgdm";
}

/* The last word of a path; for a folder's .metadata the folder's. */
static const char *run_name(const char *path, char out[PATH_MAX])
{
    size_t n = (size_t)snprintf(out, PATH_MAX, "%s", path);
    if (n >= PATH_MAX)
        return "checkpoint";
    if (qm_name_ends(out, "/.metadata"))
        out[n -= sizeof "/.metadata" - 1] = '\0';
    while (n > 0 && out[n - 1] == '/')
        out[--n] = '\0';
    const char *base = strrchr(out, '/');
    base = base ? base + 1 : out;
    return *base && *base != '.' ? base : "checkpoint";
}

/* Describes the parameter of a checkpoint whose first state is entry `at`. */
static qm_status checkpoint_describe(struct qm_replay *r, int i_file, const char *tensor, int at,
                                     struct record *rec)
{
    struct source_file *sf = &r->file[i_file];
    struct qm_recorded *p = &rec->public;
    char folder[PATH_MAX];
    const char *base = run_name(sf->path, folder);
    int at_step = entry_named(sf, tensor, "step");
    double step = 0.0;
    p->hyper = qm_hyper_default();
    p->tensor = strdup(tensor);
    if (!p->tensor)
        return qm_fail(QM_NO_MEMORY, "checkpoint %s", sf->path);
    if (at_step >= 0 && qm_file_entry(sf->file, at_step)->numel == 1)
        QM_TRY(qm_file_read_double(sf->file, at_step, 0, 1, &step));
    else
        p->unknown = "step";
    QM_TRY(qm_checkpoint_hyper(sf->path, sf->file, step, p));
    p->made_by = relative_of_adam(sf, tensor);
    p->file_number = i_file;
    p->first_step = (int64_t)step + 1;
    p->file = strdup(base);
    if (asprintf(&p->group, "%.*s/s%06lld", (int)strcspn(base, "."), base,
                 (long long)p->first_step) < 0)
        p->group = NULL;
    if (!p->group || asprintf(&p->name, "%s/%s", p->group, tensor) < 0)
        p->name = NULL;
    if (!p->file || !p->name)
        return qm_fail(QM_NO_MEMORY, "checkpoint %s", sf->path);
    rec->file = i_file;
    for (int s = 0; s < N_SLOTS; s++) {
        rec->at_slot[s] = entry_of(sf, tensor, qm_slot_names(s));
        p->has_slot[s] = rec->at_slot[s] >= 0;
        size_t n = strlen(p->states);
        if (p->has_slot[s])
            snprintf(p->states + n, sizeof p->states - n, "%s%s", n ? ", " : "",
                     strrchr(qm_file_entry(sf->file, rec->at_slot[s])->name, '/') + 1);
    }
    rec->at_param = entry_named(sf, tensor, "param");
    rec->at_grad = rec->at_lr = -1;
    p->has_param = rec->at_param >= 0;
    p->shape = qm_file_entry(sf->file, at)->shape;
    p->numel = qm_file_entry(sf->file, at)->numel;
    p->n_steps = 1;
    if (qm_name_ends(qm_file_entry(sf->file, at)->name, "/momentum_buffer"))
        snprintf(p->optimizer, sizeof p->optimizer, "%s", owner_of_momentum(sf, tensor));
    return QM_OK;
}

static qm_status scan_checkpoint(struct qm_replay *r, int i_file)
{
    struct qm_file *f = r->file[i_file].file;
    for (int i = 0; i < qm_file_count(f); i++) {
        const char *name = qm_file_entry(f, i)->name;
        const char *leaf = strrchr(name += *name == '/', '/');
        char *tensor = leaf ? strndup(name, (size_t)(leaf - name)) : NULL;
        struct record *rec = NULL;
        qm_status st = !leaf || tensor ? QM_OK : qm_fail(QM_NO_MEMORY, "checkpoint");
        if (tensor && entry_of(&r->file[i_file], tensor, qm_slot_names(0)) == i) {
            rec = calloc(1, sizeof *rec);
            st = rec ? checkpoint_describe(r, i_file, tensor, i, rec)
                     : qm_fail(QM_NO_MEMORY, "checkpoint");
            if (st == QM_OK)
                st = record_add(r, rec);
        }
        free(tensor);
        if (st != QM_OK) {
            record_free(rec);
            return st;
        }
    }
    return QM_OK;
}

static qm_status scan_file(struct qm_replay *r, int i_file)
{
    struct qm_file *f = r->file[i_file].file;
    int before = r->n_records;
    for (int i = 0; i < qm_file_count(f); i++) {
        const struct qm_entry *e = qm_file_entry(f, i);
        const char *name = e->name + (*e->name == '/'), *tensor, *leaf;
        int64_t step;
        if (!is_key_leaf(name, &tensor, &leaf, &step) || (step < 0 && e->shape.rank < 1))
            continue;
        char *path = strndup(name, (size_t)(leaf - name) - 1);
        struct record *rec = calloc(1, sizeof *rec);
        qm_status st = path && rec ? QM_OK : qm_fail(QM_NO_MEMORY, "recorded state %s", name);
        if (st == QM_OK)
            st = record_describe(r, i_file, path, (size_t)(tensor - name) - 1, step, i, rec);
        if (st == QM_OK)
            st = record_add(r, rec);
        free(path);
        if (st != QM_OK) {
            record_free(rec);
            return st;
        }
    }
    return r->n_records == before ? scan_checkpoint(r, i_file) : QM_OK;
}

/* Adds the path of a copy of a file's bytes, whose tensors would count twice. */
static qm_status add_copy(struct source_file *sf, const char *path)
{
    char *text = NULL;
    if (asprintf(&text, "%s%s%s", sf->copies ? sf->copies : "", sf->copies ? ", " : "", path) < 0)
        return qm_fail(QM_NO_MEMORY, "data files");
    free(sf->copies);
    sf->copies = text;
    return QM_OK;
}

static qm_status open_file(struct qm_replay *r, const char *path)
{
    for (int i = 0; i < r->n_files; i++)
        if (strcmp(r->file[i].path, path) == 0)
            return QM_OK;
        else if (qm_file_is_copy(r->file[i].path, path))
            return add_copy(&r->file[i], path);
    struct source_file *more = realloc(r->file, (size_t)(r->n_files + 1) * sizeof *more);
    if (!more)
        return qm_fail(QM_NO_MEMORY, "data files");
    r->file = more;
    struct source_file *sf = &r->file[r->n_files];
    *sf = (struct source_file){.path = NULL};
    sf->path = strdup(path);
    if (!sf->path)
        return qm_fail(QM_NO_MEMORY, "data files");
    r->n_files++;
    QM_TRY(qm_file_open_numbers(path, &sf->file));
    for (int i = 0; i < qm_file_count(sf->file); i++) {
        const char *name = qm_file_entry(sf->file, i)->name;
        name += *name == '/';
        QM_TRY(qm_name_index_put(&sf->at, name, strlen(name), i));
    }
    return scan_file(r, r->n_files - 1);
}

qm_status qm_replay_open(char *const *globs, int n_globs, struct qm_replay **out)
{
    struct qm_replay *r = calloc(1, sizeof *r);
    qm_status st = r ? QM_OK : qm_fail(QM_NO_MEMORY, "recorded data");
    for (int i = 0; st == QM_OK && i < n_globs; i++) {
        glob_t found = {0};
        char pattern[PATH_MAX];
        int failed = qm_bounded_glob(qm_shipped_pattern(globs[i], pattern, sizeof pattern), &found);
        if (failed == QM_GLOB_ENDLESS)
            st = qm_fail(QM_BAD_ARG,
                         "data: '%.200s' visits more than %d entries of folders, expected a "
                         "pattern with fewer stars",
                         globs[i], QM_GLOB_MOST);
        else if (failed != 0)
            st = qm_fail(QM_NO_MATCH, "data: no file matches '%s'%s", globs[i],
                         strncmp(globs[i], QM_SHIPPED_DATA, strlen(QM_SHIPPED_DATA)) != 0 ||
                                 qm_has_shipped_data()
                             ? ""
                             : ": this copy of qualm comes without recorded states, as a bundle "
                               "does; --data FILE names yours");
        for (size_t j = 0; st == QM_OK && j < found.gl_pathc; j++)
            st = open_file(r, found.gl_pathv[j]);
        globfree(&found);
    }
    if (st == QM_OK)
        *out = r;
    else
        qm_replay_close(r);
    return st;
}

void qm_replay_close(struct qm_replay *r)
{
    if (!r)
        return;
    for (int i = 0; i < r->n_records; i++)
        record_free(r->record[i]);
    for (int i = 0; i < r->n_files; i++) {
        qm_name_index_free(&r->file[i].at);
        qm_file_close(r->file[i].file);
        free(r->file[i].path);
        free(r->file[i].copies);
    }
    free(r->record);
    free(r->file);
    free(r);
}

int qm_replay_remark(struct qm_replay *r, int i, const char **path, char out[QM_FILE_REMARK])
{
    *path = r && i < r->n_files ? r->file[i].path : NULL;
    out[0] = '\0';
    if (!*path)
        return 0;
    int has_remark = qm_file_remark(r->file[i].file, out);
    size_t n = strlen(out);
    if (r->file[i].copies)
        n += (size_t)snprintf(out + n, QM_FILE_REMARK - n, "%s%.400s: the same bytes, left out",
                              n ? "; " : "", r->file[i].copies);
    for (int k = 0, same; k < i && n < QM_FILE_REMARK / 2; k++)
        if ((same = qm_same_tensors(r->file[i].file, r->file[k].file)))
            n += (size_t)snprintf(out + n, QM_FILE_REMARK - n,
                                  "%s%d of its moments are in %.200s, too, and count twice",
                                  n ? "; " : "", same, r->file[k].path);
    return has_remark || n > 0;
}

int qm_replay_count(const struct qm_replay *r) { return r ? r->n_records : 0; }
struct qm_recorded *qm_replay_at(const struct qm_replay *r, int i) { return &r->record[i]->public; }

/* ---- loading ------------------------------------------------------------------------------- */

static qm_status load_floats(struct qm_file *f, int at, int64_t n, const char *name, float **out)
{
    if (at < 0 || *out)
        return QM_OK;
    const struct qm_entry *e = qm_file_entry(f, at);
    if (e->numel != n)
        return qm_fail(QM_BAD_FILE, "%s has %lld elements, the state beside it (%s) %lld", e->name,
                       (long long)e->numel, name, (long long)n);
    float *x = malloc((size_t)(n > 0 ? n : 1) * sizeof *x);
    if (!x)
        return qm_fail(QM_NO_MEMORY, "%s", e->name);
    qm_status st = qm_file_read(f, at, 0, n, x);
    if (st == QM_OK)
        *out = x;
    else
        free(x);
    return st;
}

qm_status qm_replay_load(struct qm_replay *r, struct qm_recorded *p)
{
    struct record *rec = (struct record *)p; /* p is its first member */
    struct qm_file *f = r->file[rec->file].file;
    if (p->lr)
        return QM_OK;
    QM_TRY(load_floats(f, rec->at_grad, p->numel * p->n_steps, p->name, &p->grad));
    QM_TRY(load_floats(f, rec->at_param, p->numel, p->name, &p->param));
    for (int s = 0; s < N_SLOTS; s++)
        QM_TRY(load_floats(f, rec->at_slot[s], p->numel, p->name, &p->slot[s]));
    double *lr = malloc((size_t)(p->n_steps > 0 ? p->n_steps : 1) * sizeof *lr);
    if (!lr)
        return qm_fail(QM_NO_MEMORY, "%s", p->name);
    for (int64_t t = 0; t < p->n_steps; t++)
        lr[t] = p->hyper.lr;
    qm_status st = QM_OK;
    if (rec->at_lr >= 0) {
        int64_t n = qm_file_entry(f, rec->at_lr)->numel;
        st = n == p->n_steps ? qm_file_read_double(f, rec->at_lr, 0, n, lr)
                             : qm_fail(QM_BAD_FILE, "%s/lr has %lld values, expected %lld",
                                       p->group, (long long)n, (long long)p->n_steps);
    }
    for (int64_t t = 0; st == QM_OK && t < p->n_steps; t++)
        if (!(lr[t] >= 0.0 && lr[t] < HUGE_VAL))
            st = qm_fail(QM_BAD_FILE, "%s: %s/lr: value %lld is %g, expected 0 or more",
                         r->file[rec->file].path, p->group, (long long)t, lr[t]);
    if (st == QM_OK)
        p->lr = lr;
    else
        free(lr);
    return st;
}
