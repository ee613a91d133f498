/* codebook_tables.c - Stores the codebooks of a suite's cells and their decision edges. */
#include "experiments/run/codebook_tables.h"

#include <math.h>
#include <stdlib.h>

/* clang-format off */
#define NAME(name, ...) #name,
static const char *const map_names[] = {QM_MAP_LIST(NAME)};
static const char *const search_names[] = {QM_SEARCH_LIST(NAME)};
static const char *const round_names[] = {QM_ROUND_LIST(NAME)};
#undef NAME
/* clang-format on */

static int same_table(const struct qm_quantizer *a, const struct qm_quantizer *b)
{
    return a->map == b->map && a->bits == b->bits && a->sign == b->sign && a->search == b->search &&
           a->round == b->round;
}

/* Sets *out to one quantizer per distinct table and *n to their number; the caller frees *out. */
static qm_status distinct(const struct qm_results *r, struct qm_quantizer **out, int64_t *n)
{
    struct qm_quantizer *found = NULL;
    int64_t count = 0;
    for (int64_t i = 0; i < r->n_cells; i++) {
        const struct qm_recipe *recipe = r->cell[i].recipe;
        for (int s = 0; !r->outcome[i].reason && recipe->rule && s < recipe->rule->n_slots; s++) {
            const struct qm_quantizer *q = &recipe->slot[s];
            int64_t k = 0;
            while (k < count && !same_table(&found[k], q))
                k++;
            if (q->bits == 0 || k < count)
                continue;
            struct qm_quantizer *more = realloc(found, (size_t)(count + 1) * sizeof *more);
            if (!more) {
                free(found);
                return qm_fail(QM_NO_MEMORY, "codebooks");
            }
            found = more;
            found[count++] = *q;
        }
    }
    *out = found;
    *n = count;
    return QM_OK;
}

/* The columns of /codebooks. */
struct rows {
    char (*map_text)[24];
    const char **map, **search, **round;
    int64_t *position, *code;
    double *value, *edge, *midpoint;
    int64_t n;
};

static int rows_open(struct rows *t, int64_t room)
{
    size_t n = (size_t)(room > 0 ? room : 1);
    *t = (struct rows){.map_text = calloc(n, sizeof *t->map_text),
                       .map = calloc(n, sizeof *t->map),
                       .search = calloc(n, sizeof *t->search),
                       .round = calloc(n, sizeof *t->round),
                       .position = calloc(n, sizeof *t->position),
                       .code = calloc(n, sizeof *t->code),
                       .value = calloc(n, sizeof *t->value),
                       .edge = calloc(n, sizeof *t->edge),
                       .midpoint = calloc(n, sizeof *t->midpoint)};
    return t->map_text && t->map && t->search && t->round && t->position && t->code && t->value &&
           t->edge && t->midpoint;
}

static void rows_free(struct rows *t)
{
    free(t->map_text);
    free(t->map);
    free(t->search);
    free(t->round);
    free(t->position);
    free(t->code);
    free(t->value);
    free(t->edge);
    free(t->midpoint);
}

static void rows_add(struct rows *t, const struct qm_codec *c)
{
    const struct qm_quantizer *q = &c->q;
    double gain = (double)c->cb.gain, post = (double)c->cb.post;
    for (int k = 0; k < c->cb.n; k++, t->n++) {
        int is_last = k + 1 == c->cb.n;
        double value = (double)c->cb.value[k] * gain * post;
        snprintf(t->map_text[t->n], sizeof t->map_text[t->n], "%s:%d%c", map_names[q->map], q->bits,
                 q->sign ? 's' : 'u');
        t->map[t->n] = t->map_text[t->n];
        t->search[t->n] = search_names[q->search];
        t->round[t->n] = round_names[q->round];
        t->position[t->n] = k;
        t->code[t->n] = c->cb.perm[k];
        t->value[t->n] = value;
        t->edge[t->n] =
            is_last || !c->has_edges || isinf(c->edge[k]) ? (double)NAN : (double)c->edge[k] * gain;
        t->midpoint[t->n] =
            is_last ? (double)NAN : 0.5 * (value + (double)c->cb.value[k + 1] * gain * post);
    }
}

qm_status qm_codebooks_store(const struct qm_results *r, struct qm_store *store)
{
    struct qm_quantizer *q = NULL;
    struct qm_codec *codec = malloc(sizeof *codec);
    struct rows t = {0};
    int64_t n = 0, room = 0;
    qm_status st = codec ? distinct(r, &q, &n) : qm_fail(QM_NO_MEMORY, "codec");
    for (int64_t i = 0; st == QM_OK && i < n; i++)
        room += (int64_t)1 << q[i].bits;
    if (st == QM_OK && !rows_open(&t, room))
        st = qm_fail(QM_NO_MEMORY, "codebooks");
    for (int64_t i = 0; st == QM_OK && i < n; i++)
        if ((st = qm_codec_init(codec, &q[i])) == QM_OK)
            rows_add(&t, codec);
    const struct qm_column columns[] = {
        {"map", QM_COLUMN_text, "", "map, width and sign", t.map},
        {"search", QM_COLUMN_text, "", "how the code is found", t.search},
        {"round", QM_COLUMN_text, "", "which end of the cell is taken", t.round},
        {"position", QM_COLUMN_i64, "1", "place in the sorted table", t.position},
        {"code", QM_COLUMN_i64, "1", "code stored for it", t.code},
        {"value", QM_COLUMN_f64, "1", "what it decodes to; the block's maximum is 1", t.value},
        {"edge", QM_COLUMN_f64, "1", "smallest float32 that gets the next position", t.edge},
        {"midpoint", QM_COLUMN_f64, "1", "half way to the next value", t.midpoint},
    };
    if (st == QM_OK)
        st = qm_store_table(store, "/codebooks", "the tables that cells decide by, by position",
                            t.n, (int)(sizeof columns / sizeof *columns), columns);
    rows_free(&t);
    free(q);
    free(codec);
    return st;
}
