/* vectors_judge.c - the verdict on what came back in a golden file. */
#include <stdlib.h>
#include <string.h>

#include "experiments/check/explicit.h"
#include "experiments/readers/reader.h"
#include "core/base/sha256.h"
#include "experiments/vectors.h"

/* A file, and the numbers of its arrays by name. */
struct book {
    const char *path;
    struct qm_file *f;
    json_t *index;
};

/* ---- arrays -------------------------------------------------------------------------------- */

static qm_status book_open(const char *path, struct book *b)
{
    b->path = path;
    QM_TRY(qm_file_open(path, &b->f));
    b->index = json_object();
    for (int i = 0; i < qm_file_count(b->f); i++) {
        const char *name = qm_file_entry(b->f, i)->name;
        json_object_set_new(b->index, name + (*name == '/'), json_integer(i));
    }
    return QM_OK;
}

static int find(const struct book *b, const char *name)
{
    const json_t *i = json_object_get(b->index, name);
    return i ? (int)json_integer_value(i) : -1;
}

/* All n elements of an array of this type, as floats. */
static qm_status take(const struct book *b, const char *name, enum qm_dtype dtype, int64_t n,
                      float *out)
{
    int i = find(b, name);
    if (i < 0)
        return qm_fail(QM_BAD_FILE, "%s: there is no array '%s'", b->path, name);
    const struct qm_entry *e = qm_file_entry(b->f, i);
    if (e->dtype != dtype || e->numel != n)
        return qm_fail(QM_BAD_FILE, "%s: '%s' is %lld elements of %s, expected %lld of %s", b->path,
                       name, (long long)e->numel, qm_dtype_name(e->dtype), (long long)n,
                       qm_dtype_name(dtype));
    return qm_file_read(b->f, i, 0, n, out);
}

/* The same of bytes; wide: scratch of n floats. */
static qm_status take_bytes(const struct book *b, const char *name, int64_t n, float *wide,
                            uint8_t *out)
{
    QM_TRY(take(b, name, QM_DTYPE_u8, n, wide));
    for (int64_t i = 0; i < n; i++)
        out[i] = (uint8_t)wide[i];
    return QM_OK;
}

/* ---- a state ------------------------------------------------------------------------------- */

/* Parameter and slots, as stored and as decoded. */
struct side {
    float *p, *value[QM_MAX_SLOTS], *scales[QM_MAX_SLOTS];
    uint8_t *packed[QM_MAX_SLOTS], *codes[QM_MAX_SLOTS];
};

struct layout {
    int64_t n, scales[QM_MAX_SLOTS], bytes[QM_MAX_SLOTS];
    int n_slots, coded[QM_MAX_SLOTS];
    struct qm_codec codec[QM_MAX_SLOTS];
};

static qm_status layout_of(const struct qm_recipe *r, const struct qm_shape *shape,
                           struct layout *l)
{
    l->n = qm_shape_numel(shape);
    l->n_slots = r->rule->n_slots;
    for (int i = 0; i < l->n_slots; i++) {
        struct qm_quantizer q = qm_recipe_slot(r, i, shape);
        QM_TRY(qm_codec_init(&l->codec[i], &q));
        l->coded[i] = q.bits > 0;
        l->scales[i] = q.bits ? qm_scale_count(&l->codec[i], shape) : 0;
        l->bytes[i] = q.bits ? qm_code_bytes(&l->codec[i], l->n) : 0;
    }
    return QM_OK;
}

static void side_free(struct side *s)
{
    free(s->p);
    for (int i = 0; i < QM_MAX_SLOTS; i++) {
        free(s->value[i]);
        free(s->scales[i]);
        free(s->packed[i]);
        free(s->codes[i]);
    }
}

static qm_status side_open(const struct layout *l, struct side *s)
{
    int ok = (s->p = malloc(sizeof(float) * ((size_t)l->n + 1))) != NULL;
    for (int i = 0; i < l->n_slots; i++) {
        ok &= (s->value[i] = malloc(sizeof(float) * ((size_t)l->n + 1))) != NULL;
        ok &= (s->scales[i] = malloc(sizeof(float) * ((size_t)l->scales[i] + 1))) != NULL;
        ok &= (s->packed[i] = malloc((size_t)l->bytes[i] + 1)) != NULL;
        ok &= (s->codes[i] = malloc((size_t)l->n + 1)) != NULL;
    }
    return ok ? QM_OK : qm_fail(QM_NO_MEMORY, "a state of %lld elements", (long long)l->n);
}

/* Calls `each` with the name of every array of a state: at/param, at/exp_avg.codes, ... */
static qm_status each_array(const struct layout *l, const struct qm_recipe *r, const char *at,
                            qm_status (*each)(void *context, const char *name, int slot, int what),
                            void *context)
{
    static const char *const ending[] = {"", ".codes", ".scales"};
    char name[QM_STATE_NAME];
    snprintf(name, sizeof name, "%s/param", at);
    QM_TRY(each(context, name, -1, 0));
    for (int i = 0; i < l->n_slots; i++)
        for (int what = l->coded[i]; what <= 2 * l->coded[i]; what++) {
            snprintf(name, sizeof name, "%s/%s%s", at, r->rule->slot[i], ending[what]);
            QM_TRY(each(context, name, i, what));
        }
    return QM_OK;
}

struct reading {
    const struct book *b;
    const struct layout *l;
    struct side *s;
    struct qm_sha256 *hash; /* or NULL */
};

static qm_status read_one(void *context, const char *name, int slot, int what)
{
    struct reading *r = context;
    int64_t n = what == 2 ? r->l->scales[slot] : what == 1 ? r->l->bytes[slot] : r->l->n;
    float *to = slot < 0 ? r->s->p : what == 2 ? r->s->scales[slot] : r->s->value[slot];
    if (what == 1) /* packed codes are never more than elements */
        QM_TRY(take_bytes(r->b, name, n, to, r->s->packed[slot]));
    else
        QM_TRY(take(r->b, name, QM_DTYPE_f32, n, to));
    if (r->hash && what == 1)
        qm_sha256_add(r->hash, r->s->packed[slot], (size_t)n);
    else if (r->hash)
        qm_sha256_add(r->hash, to, sizeof(float) * (size_t)n);
    return QM_OK;
}

/* The state whose arrays begin with `at`, decoded. */
static qm_status side_read(const struct book *b, const struct layout *l, const struct qm_recipe *r,
                           const struct qm_shape *shape, const char *at, struct side *s,
                           struct qm_sha256 *hash)
{
    struct reading reading = {b, l, s, hash};
    QM_TRY(each_array(l, r, at, read_one, &reading));
    for (int i = 0; i < l->n_slots; i++)
        if (l->coded[i]) {
            qm_unpack_range(&l->codec[i], s->packed[i], l->n, s->codes[i]);
            qm_decode(&l->codec[i], shape, s->codes[i], s->scales[i], s->value[i]);
        }
    return QM_OK;
}

/* ---- a case -------------------------------------------------------------------------------- */

struct counting {
    const struct book *b;
    int there, missing;
    char first[QM_STATE_NAME];
};

static qm_status count_one(void *context, const char *name, int slot, int what)
{
    struct counting *c = context;
    (void)slot;
    (void)what;
    int is_there = find(c->b, name) >= 0;
    c->there += is_there;
    if (!is_there && c->missing++ == 0)
        snprintf(c->first, sizeof c->first, "%s", name);
    return QM_OK;
}

/* Whether the arrays that begin with `at` are there: 1, 0; half of them: -1. */
static int answered(const struct book *b, const struct layout *l, const struct qm_recipe *r,
                    const char *at, char *first, size_t size)
{
    struct counting c = {.b = b};
    each_array(l, r, at, count_one, &c);
    snprintf(first, size, "%s", c.first);
    return c.missing == 0 ? 1 : c.there == 0 ? 0 : -1;
}

/* What judging a case needs. */
struct work {
    const struct book *b;
    const struct qm_subject *s;
    struct qm_vectors_case c;
    struct qm_recipe recipe;
    struct layout l;
    struct side before, after;
    float *g;
    double *wide;
    struct qm_vectors_verdict *out;
};

static qm_status read_gradient(struct work *w, int64_t k, struct qm_sha256 *hash)
{
    char name[QM_STATE_NAME];
    snprintf(name, sizeof name, "%s/grad/%lld", w->c.name, (long long)k);
    QM_TRY(take(w->b, name, w->recipe.grad, w->l.n, w->g));
    if (hash)
        qm_sha256_add(hash, w->g, sizeof(float) * (size_t)w->l.n);
    for (int64_t i = 0; i < w->l.n; i++)
        w->wide[i] = (double)w->g[i];
    return QM_OK;
}

/* Reads the inputs; they must be those that were written. */
static qm_status read_inputs(struct work *w, const char *digest)
{
    struct qm_sha256 hash;
    char at[64], got[65];
    qm_sha256_start(&hash);
    snprintf(at, sizeof at, "%s/in", w->c.name);
    QM_TRY(side_read(w->b, &w->l, &w->recipe, &w->c.c.shape, at, &w->before, &hash));
    for (int64_t k = 1; k <= w->c.steps; k++)
        QM_TRY(read_gradient(w, k, &hash));
    qm_sha256_hex(&hash, got);
    if (strcmp(got, digest) != 0)
        return qm_fail(QM_BAD_FILE, "%s: the inputs %s and %s/grad are not those that were written",
                       w->b->path, at, w->c.name);
    return QM_OK;
}

static qm_status judge_step(struct work *w, int64_t k, const char *at)
{
    struct qm_explicit e = {.subject = w->s,
                            .recipe = &w->recipe,
                            .shape = &w->c.c.shape,
                            .t = w->c.c.t + k - 1,
                            .name = at,
                            .g = w->wide,
                            .p = w->before.p,
                            .new_p = w->after.p};
    QM_TRY(read_gradient(w, k, NULL));
    QM_TRY(side_read(w->b, &w->l, &w->recipe, &w->c.c.shape, at, &w->after, NULL));
    for (int i = 0; i < w->l.n_slots; i++) {
        e.slot[i] = w->before.value[i];
        e.new_slot[i] = w->after.value[i];
        e.codes[i] = w->l.coded[i] ? w->after.codes[i] : NULL;
        e.scales[i] = w->after.scales[i];
    }
    QM_TRY(qm_explicit_judge(&e, &w->out->tally));
    struct side swap = w->before;
    w->before = w->after;
    w->after = swap;
    return QM_OK;
}

/* Steps that are answered, up to the first that is not. */
static qm_status judge_steps(struct work *w, const char *digest)
{
    struct qm_vectors_verdict *out = w->out;
    QM_TRY(read_inputs(w, digest));
    for (int64_t k = 1; k <= w->c.steps; k++) {
        char at[64], first[QM_STATE_NAME];
        snprintf(at, sizeof at, "%s/out/%lld", w->c.name, (long long)k);
        int there = answered(w->b, &w->l, &w->recipe, at, first, sizeof first);
        if (there < 0)
            return qm_fail(QM_BAD_FILE, "%s: there is no array '%s', but others of %s", w->b->path,
                           first, at);
        if (there == 0) {
            if (out->missing == 0)
                snprintf(out->first_missing, sizeof out->first_missing, "%s", first);
            out->missing += w->c.steps - k + 1;
            return QM_OK;
        }
        QM_TRY(judge_step(w, k, at));
    }
    return QM_OK;
}

static qm_status read_case(const json_t *from, struct qm_vectors_case *c, const char **digest)
{
    const char *name, *id;
    json_int_t steps;
    if (json_unpack((json_t *)from, "{s:s, s:s, s:I, s:s}", "name", &name, "id", &id, "steps",
                    &steps, "inputs", digest) != 0 ||
        strlen(name) >= sizeof c->name || steps < 1 || steps > QM_VECTORS_STEPS)
        return qm_fail(QM_BAD_FILE, "a case of 'golden' lacks name, id, steps or inputs");
    strcpy(c->name, name);
    c->steps = steps;
    return qm_case_parse(id, &c->c);
}

static qm_status judge_case(const struct book *b, const struct qm_subject *s, const json_t *from,
                            struct qm_vectors_verdict *out)
{
    struct work *w = calloc(1, sizeof *w);
    const char *digest;
    if (!w)
        return qm_fail(QM_NO_MEMORY, "a case");
    *w = (struct work){.b = b, .s = s, .recipe = s->recipe, .out = out};
    qm_status st = read_case(from, &w->c, &digest);
    if (st == QM_OK) {
        out->steps += w->c.steps;
        qm_case_apply(&w->c.c, &w->recipe);
        st = layout_of(&w->recipe, &w->c.c.shape, &w->l);
    }
    if (st == QM_OK)
        st = side_open(&w->l, &w->before);
    if (st == QM_OK)
        st = side_open(&w->l, &w->after);
    if (st == QM_OK) {
        w->g = malloc(sizeof(float) * ((size_t)w->l.n + 1));
        w->wide = malloc(sizeof(double) * ((size_t)w->l.n + 1));
        st = w->g && w->wide ? judge_steps(w, digest) : qm_fail(QM_NO_MEMORY, "a gradient");
    }
    free(w->wide);
    free(w->g);
    side_free(&w->after);
    side_free(&w->before);
    free(w);
    return st;
}

/* ---- a file -------------------------------------------------------------------------------- */

static qm_status read_head(const struct book *b, json_t **out)
{
    int i = find(b, "golden");
    if (i < 0 || qm_file_entry(b->f, i)->dtype != QM_DTYPE_u8)
        return qm_fail(QM_BAD_FILE, "%s: there is no array 'golden' of bytes; not a golden file",
                       b->path);
    int64_t n = qm_file_entry(b->f, i)->numel;
    float *wide = malloc(sizeof(float) * ((size_t)n + 1));
    uint8_t *text = malloc((size_t)n + 1);
    json_error_t error;
    qm_status st = wide && text ? take_bytes(b, "golden", n, wide, text)
                                : qm_fail(QM_NO_MEMORY, "%s", b->path);
    json_t *root = st == QM_OK ? json_loadb((char *)text, (size_t)n, 0, &error) : NULL;
    if (st == QM_OK && !root)
        st = qm_fail(QM_BAD_FILE, "%s: 'golden' is no JSON: %s", b->path, error.text);
    free(text);
    free(wide);
    if (st == QM_OK)
        *out = root;
    return st;
}

static qm_status judge_file(const struct book *b, json_t *root, struct qm_vectors_verdict *out)
{
    const char *format = "", *recipe = "";
    int version = 0;
    json_t *cases = json_object_get(root, "cases"), *c;
    size_t i;
    json_unpack(root, "{s:s, s:i, s:s}", "format", &format, "version", &version, "recipe", &recipe);
    if (strcmp(format, QM_VECTORS_FORMAT) != 0 || version != QM_VECTORS_VERSION ||
        !json_is_array(cases))
        return qm_fail(QM_BAD_FILE, "%s: format '%.24s', version %d; expected '%s', version %d",
                       b->path, format, version, QM_VECTORS_FORMAT, QM_VECTORS_VERSION);
    struct qm_subject *s = calloc(1, sizeof *s);
    if (!s)
        return qm_fail(QM_NO_MEMORY, "%s", b->path);
    s->backend = &qm_backend_cpu;
    qm_status st = qm_recipe_parse(recipe, &s->recipe);
    if (st == QM_OK) {
        qm_recipe_print(&s->recipe, out->recipe);
        st = qm_explicit_begin(s, &out->tally);
    }
    json_array_foreach(cases, i, c) if (st == QM_OK) st = judge_case(b, s, c, out);
    if (st == QM_OK)
        qm_judge_end(s, &out->tally);
    free(s);
    if (st == QM_OK && out->tally.cases == 0)
        return qm_fail(QM_NO_MATCH, "%s: nothing is answered; expected arrays such as '%s'",
                       b->path, out->first_missing);
    return st;
}

qm_status qm_vectors_judge(const char *path, struct qm_vectors_verdict *out)
{
    struct book b = {NULL, NULL, NULL};
    json_t *root = NULL;
    memset(out, 0, sizeof *out);
    qm_status st = book_open(path, &b);
    if (st == QM_OK)
        st = read_head(&b, &root);
    if (st == QM_OK)
        st = judge_file(&b, root, out);
    json_decref(root);
    json_decref(b.index);
    qm_file_close(b.f);
    return st;
}

int qm_vectors_passed(const struct qm_vectors_verdict *v)
{
    return v->missing == 0 && qm_tally_passed(&v->tally);
}
