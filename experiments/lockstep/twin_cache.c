/* twin_cache.c - Caches double-precision twins and orders cells by them. */
#include "experiments/lockstep/twin_cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/sha256.h"

enum { MOST = 256 }; /* twins */

struct qm_twin_cache {
    size_t limit, bytes;
    uint64_t clock;
    int64_t hits;
    int n;
    struct qm_twin *twin[MOST];
};

/* ---- keys ------------------------------------------------------------------------------------ */

/* Writes as text all that determines a twin except its start; needs no open problem. */
static int describe(const struct qm_cell *c, const struct qm_hyper *h, char *text, size_t size)
{
    int n = snprintf(text, size, "%s\n%s\n%llu\n%s\n%.17g\n%d\n%.17g\n%lld\n%d\n%lld\n%lld\n",
                     c->problem->name, c->problem_args, (unsigned long long)qm_cell_seed(c),
                     c->recipe->rule->family, c->lr_scale * c->rate, (int)c->schedule, c->clip,
                     (long long)c->warmup, c->decay_rank, (long long)c->steps, (long long)c->every);
#define X(name, value, words)       \
    if (n >= 0 && (size_t)n < size) \
        n += snprintf(text + n, size - (size_t)n, "%.17g ", (double)h->name);
    QM_HYPER_LIST(X)
    QM_HYPER_FLAG_LIST(X)
#undef X
    return n;
}

static void make_key(const struct qm_lockstep_pair *a, char out[65])
{
    char text[2048];
    struct qm_sha256 sum;
    size_t bytes = (size_t)a->total * sizeof(double);
    int n = describe(a->c, &a->recipe.hyper, text, sizeof text);
    qm_sha256_start(&sum);
    qm_sha256_add(&sum, text, n > 0 && (size_t)n < sizeof text ? (size_t)n : sizeof text);
    qm_sha256_add(&sum, a->twin_p, bytes);
    for (int s = 0; s < a->n_slots; s++)
        qm_sha256_add(&sum, a->twin_slot[s], bytes);
    qm_sha256_hex(&sum, out);
}

/* ---- the cache ------------------------------------------------------------------------------- */

static void twin_free(struct qm_twin *w)
{
    if (!w)
        return;
    free(w->loss);
    free(w->state);
    free(w->before);
    free(w);
}

qm_status qm_twin_cache_open(size_t bytes, struct qm_twin_cache **out)
{
    struct qm_twin_cache *t = calloc(1, sizeof *t);
    if (!t)
        return qm_fail(QM_NO_MEMORY, "twins");
    t->limit = bytes ? bytes : (size_t)256 << 20;
    *out = t;
    return QM_OK;
}

void qm_twin_cache_close(struct qm_twin_cache *t)
{
    for (int i = 0; t && i < t->n; i++)
        twin_free(t->twin[i]);
    free(t);
}

int64_t qm_twin_hits(const struct qm_twin_cache *t) { return t->hits; }

static void drop(struct qm_twin_cache *t, int i)
{
    t->bytes -= t->twin[i]->bytes;
    twin_free(t->twin[i]);
    t->twin[i] = t->twin[--t->n];
}

static int oldest(const struct qm_twin_cache *t)
{
    int at = 0;
    for (int i = 1; i < t->n; i++)
        if (t->twin[i]->used < t->twin[at]->used)
            at = i;
    return at;
}

static struct qm_twin *twin_open(const struct qm_lockstep_pair *a, int64_t losses, int64_t points)
{
    struct qm_twin *w = calloc(1, sizeof *w);
    size_t total = (size_t)a->total, states = (size_t)points * (size_t)(1 + a->n_slots) * total;
    if (!w)
        return NULL;
    w->n_losses = losses;
    w->n_points = points;
    w->total = a->total;
    w->n_slots = a->n_slots;
    w->loss = malloc((size_t)losses * sizeof(double));
    w->state = malloc((states + 1) * sizeof(double));
    w->before = malloc((2 * total + 1) * sizeof(double));
    w->bytes = ((size_t)losses + states + 2 * total) * sizeof(double);
    if (w->loss && w->state && w->before) {
        w->grad = w->before + total;
        return w;
    }
    twin_free(w);
    return NULL;
}

qm_status qm_twin_find(struct qm_twin_cache *t, const struct qm_lockstep_pair *a, int64_t losses,
                       int64_t points, struct qm_twin **out)
{
    char key[65];
    *out = NULL;
    if (!t)
        return QM_OK;
    make_key(a, key);
    t->clock++;
    for (int i = t->n - 1; i >= 0; i--) {
        struct qm_twin *w = t->twin[i];
        if (!w->complete) { /* its cell was interrupted or failed */
            drop(t, i);
        } else if (strcmp(w->key, key) == 0) {
            w->used = t->clock;
            t->hits++;
            *out = w;
            return QM_OK;
        }
    }
    size_t states = (size_t)points * (size_t)(1 + a->n_slots) + 2;
    size_t bytes = ((size_t)losses + states * (size_t)a->total) * sizeof(double);
    if (bytes > t->limit)
        return QM_OK;
    while (t->n == MOST || t->bytes + bytes > t->limit)
        drop(t, oldest(t));
    struct qm_twin *w = twin_open(a, losses, points);
    if (!w)
        return QM_OK; /* the cache only saves time */
    memcpy(w->key, key, sizeof key);
    w->used = t->clock;
    t->bytes += w->bytes;
    t->twin[t->n++] = *out = w;
    return QM_OK;
}

void qm_twin_record(struct qm_twin *w, int64_t i, const struct qm_lockstep_pair *a)
{
    size_t total = (size_t)w->total;
    double *at = w->state + (size_t)i * (size_t)(1 + w->n_slots) * total;
    memcpy(at, a->twin_p, total * sizeof *at);
    for (int s = 0; s < w->n_slots; s++)
        memcpy(at + (size_t)(1 + s) * total, a->twin_slot[s], total * sizeof *at);
}

void qm_twin_restore(const struct qm_twin *w, int64_t i, struct qm_lockstep_pair *a)
{
    size_t total = (size_t)w->total;
    const double *at = w->state + (size_t)i * (size_t)(1 + w->n_slots) * total;
    memcpy(a->twin_p, at, total * sizeof *at);
    for (int s = 0; s < w->n_slots; s++)
        memcpy(a->twin_slot[s], at + (size_t)(1 + s) * total, total * sizeof *at);
}

/* ---- order ----------------------------------------------------------------------------------- */

struct place {
    char *text;           /* what `describe` writes; NULL: the cell has no twin to share */
    int64_t index, first; /* first: the first cell with the same text */
};

static int by_text(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    int d = strcmp(x->text ? x->text : "", y->text ? y->text : "");
    return d ? d : x->index < y->index ? -1 : x->index > y->index;
}

static int by_first(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    return x->first != y->first ? (x->first < y->first ? -1 : 1)
                                : (x->index < y->index ? -1 : x->index > y->index);
}

static int open_places(const struct qm_cell *cells, int64_t n, struct place *p)
{
    char text[2048];
    for (int64_t i = 0; i < n; i++) {
        const struct qm_cell *c = &cells[i];
        p[i].index = i;
        if (c->reason || c->coupling != QM_COUPLING_closed || !c->problem)
            continue;
        describe(c, &c->recipe->hyper, text, sizeof text);
        if (!(p[i].text = strdup(text)))
            return 0;
    }
    return 1;
}

static void group(struct place *p, int64_t n)
{
    if (n > 0)
        qsort(p, (size_t)n, sizeof *p, by_text);
    for (int64_t i = 0; i < n; i++) {
        int same = i > 0 && p[i].text && p[i - 1].text && strcmp(p[i].text, p[i - 1].text) == 0;
        p[i].first = same ? p[i - 1].first : p[i].index;
    }
    if (n > 0)
        qsort(p, (size_t)n, sizeof *p, by_first);
}

qm_status qm_twin_order(const struct qm_cell *cells, int64_t n, int64_t **order)
{
    struct place *p = calloc((size_t)n + 1, sizeof *p);
    int64_t *to = calloc((size_t)n + 1, sizeof *to);
    int ok = p && to && open_places(cells, n, p);
    if (ok)
        group(p, n);
    for (int64_t i = 0; p && i < n; i++) {
        if (ok)
            to[i] = p[i].index;
        free(p[i].text);
    }
    free(p);
    if (!ok) {
        free(to);
        return qm_fail(QM_NO_MEMORY, "order of cells");
    }
    *order = to;
    return QM_OK;
}
