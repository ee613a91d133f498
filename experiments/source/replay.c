/* replay.c - Finds and loads recorded states and traces of training runs. */
#include "experiments/source/replay.h"

#include "core/base/grow.h"
#include "experiments/machine/shipped_files.h"
#include "experiments/readers/reader.h"

#include <glob.h>
#include <limits.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>

enum { N_SLOTS = 2 };
static const char *const slot_names[N_SLOTS] = {"exp_avg", "exp_avg_sq"};

struct source_file {
    char *path;
    struct qm_file *file;
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

/* ---- classes ------------------------------------------------------------------------------- */

/* clang-format off */
static const struct { const char *pattern, *name; } class_rules[] = {
    {"pos_?emb|wpe|position", "position"},
    {"emb|wte",               "embedding"},
    {"head",                  "head"},
    {"qkv|proj|attn|attention|[qkvo]_proj", "attention"},
    {"mlp|ffn",               "mlp"},
    {"conv",                  "conv"},
    {"fc|linear",             "fc"},
};
static const char *const class_names[] = {"embedding", "position", "head", "attention", "mlp",
                                          "conv", "fc", "norm/bias", "other"};
/* clang-format on */

int qm_tensor_class_count(void) { return (int)(sizeof class_names / sizeof *class_names); }
const char *qm_tensor_class_at(int i) { return class_names[i]; }

const char *qm_tensor_class(const char *tensor, const struct qm_shape *shape)
{
    if (shape->rank < 2)
        return "norm/bias";
    const char *class = "other";
    for (size_t i = 0; i < sizeof class_rules / sizeof *class_rules; i++) {
        regex_t re;
        if (regcomp(&re, class_rules[i].pattern, REG_EXTENDED | REG_NOSUB | REG_ICASE) != 0)
            continue;
        int hit = regexec(&re, tensor, 0, NULL, 0) == 0;
        regfree(&re);
        if (hit) {
            class = class_rules[i].name;
            break;
        }
    }
    return class;
}

/* ---- finding ------------------------------------------------------------------------------- */

/* The entry group/leaf, or -1. */
static int entry_named(const struct qm_file *f, const char *group, const char *leaf)
{
    size_t n = strlen(group);
    for (int i = 0; i < qm_file_count(f); i++) {
        const char *name = qm_file_entry(f, i)->name;
        name += *name == '/';
        if (strncmp(name, group, n) == 0 && name[n] == '/' && strcmp(name + n + 1, leaf) == 0)
            return i;
    }
    return -1;
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

/* Hyper-parameters from the attributes of run, step and tensor; the later ones override. */
static void read_hyper(struct qm_file *f, const struct qm_recorded *rec, struct qm_hyper *h)
{
    char path[512];
    size_t run = strcspn(rec->name, "/");
    snprintf(path, sizeof path, "/%.*s", (int)run, rec->name);
    struct {
        const char *name;
        double *to;
    } numbers[] = {{"beta1", &h->beta1},
                   {"beta2", &h->beta2},
                   {"eps", &h->eps},
                   {"momentum", &h->momentum},
                   {"dampening", &h->dampening},
                   {"lr_peak", &h->lr},
                   {"weight_decay", &h->weight_decay}};
    double x[1];
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (qm_file_attr_number(f, path, numbers[i].name, x, 1) == 1)
            *numbers[i].to = x[0];
    if (qm_file_attr_number(f, path, "nesterov", x, 1) == 1)
        h->nesterov = x[0] != 0.0;
    snprintf(path, sizeof path, "/%s", rec->group);
    if (!rec->is_trace && qm_file_attr_number(f, path, "lr", x, 1) == 1)
        h->lr = x[0];
    snprintf(path, sizeof path, "/%s", rec->name);
    if (qm_file_attr_number(f, path, "weight_decay", x, 1) == 1)
        h->weight_decay = x[0];
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
    free(p->grad);
    free(p->param);
    free(p->lr);
    for (int i = 0; i < N_SLOTS; i++)
        free(p->slot[i]);
    free(r);
}

static qm_status record_add(struct qm_replay *r, struct record *rec)
{
    QM_TRY(qm_grow((void **)&r->record, &r->room, r->n_records + 1, sizeof *r->record));
    r->record[r->n_records++] = rec;
    return QM_OK;
}

/* Fills a record from names and attributes; at: the entry by which it was found; step < 0: a
 * trace. */
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
        snprintf(leaf, sizeof leaf, "%s%s", slot_names[s], suffix);
        rec->at_slot[s] = entry_named(sf->file, name, leaf);
        p->has_slot[s] = rec->at_slot[s] >= 0;
    }
    snprintf(leaf, sizeof leaf, "param%s", suffix);
    rec->at_param = entry_named(sf->file, name, leaf);
    rec->at_grad = entry_named(sf->file, name, "grad");
    rec->at_lr = p->is_trace ? entry_named(sf->file, p->group, "lr") : -1;
    p->has_param = rec->at_param >= 0;
    p->has_grad = rec->at_grad >= 0;
    p->shape = qm_file_entry(sf->file, at)->shape;
    p->first_step = step;
    p->n_steps = 1;
    if (p->is_trace) { /* the leading axis counts updates */
        double first = 1.0;
        char path[512];
        p->n_steps = p->shape.dim[0];
        for (int d = 1; d < p->shape.rank; d++)
            p->shape.dim[d - 1] = p->shape.dim[d];
        p->shape.rank--;
        snprintf(path, sizeof path, "/%s", p->group);
        qm_file_attr_number(sf->file, path, "first_step", &first, 1);
        p->first_step = (int64_t)first;
    }
    p->numel = qm_shape_numel(&p->shape);
    p->hyper = qm_hyper_default();
    read_hyper(sf->file, p, &p->hyper);
    char path[512];
    snprintf(path, sizeof path, "/%.*s", (int)strcspn(name, "/"), name);
    if (qm_file_attr_text(sf->file, path, "optimizer", p->optimizer, sizeof p->optimizer) < 0)
        p->optimizer[0] = 0;
    return QM_OK;
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

static qm_status scan_file(struct qm_replay *r, int i_file)
{
    struct qm_file *f = r->file[i_file].file;
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
    return QM_OK;
}

static qm_status open_file(struct qm_replay *r, const char *path)
{
    for (int i = 0; i < r->n_files; i++)
        if (strcmp(r->file[i].path, path) == 0)
            return QM_OK;
    struct source_file *more = realloc(r->file, (size_t)(r->n_files + 1) * sizeof *more);
    if (!more)
        return qm_fail(QM_NO_MEMORY, "data files");
    r->file = more;
    struct source_file *sf = &r->file[r->n_files];
    sf->file = NULL;
    sf->path = strdup(path);
    if (!sf->path)
        return qm_fail(QM_NO_MEMORY, "data files");
    r->n_files++;
    QM_TRY(qm_file_open(path, &sf->file));
    return scan_file(r, r->n_files - 1);
}

qm_status qm_replay_open(char *const *globs, int n_globs, struct qm_replay **out)
{
    struct qm_replay *r = calloc(1, sizeof *r);
    qm_status st = r ? QM_OK : qm_fail(QM_NO_MEMORY, "recorded data");
    for (int i = 0; st == QM_OK && i < n_globs; i++) {
        glob_t found = {0};
        char pattern[PATH_MAX];
        if (glob(qm_shipped_pattern(globs[i], pattern, sizeof pattern), 0, NULL, &found) != 0)
            st = qm_fail(QM_NO_MATCH, "data: no file matches '%s'", globs[i]);
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
        qm_file_close(r->file[i].file);
        free(r->file[i].path);
    }
    free(r->record);
    free(r->file);
    free(r);
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
        return qm_fail(QM_BAD_FILE, "%s has %lld elements, expected %lld for %s", e->name,
                       (long long)e->numel, (long long)n, name);
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
    if (st == QM_OK)
        p->lr = lr;
    else
        free(lr);
    return st;
}
