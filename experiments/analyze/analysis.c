/* analysis.c - Measures the error of quantizers on a stored tensor, piece by piece. */
#include "experiments/analyze/analysis.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "core/quant/norm_two_scales.h"
#include "core/quant/scale_index.h"

enum {
    PIECE = 1 << 18,         /* elements read at a time */
    CHUNK = 1 << 13,         /* elements encoded, decoded and measured at a time */
    LONGEST_BLOCK = 1 << 20, /* elements of the longest block, which a piece has to hold */
    IN_FLIGHT = 1 << 22,     /* elements of all pieces that are processed at once */
    MOST_SCALES = 1 << 24,   /* scales of a quantizer, kept for the whole tensor */
};
static const int64_t group_bytes = 128 << 20; /* of scales and accumulators in a group */
/* A piece of the tensor in process. */
struct piece {
    int64_t from, n;
    const float *x; /* elements: a view of the file, or room */
    float *room;
    struct qm_metrics **part; /* one per quantizer of the group */
    struct qm_float_classes classes;
};

/* A thread's buffers for a chunk, which passes all phases while it is in the cache. */
struct room {
    double *want;
    float *got, *scale, *local; /* local: scales of a chunk with blocks of its own */
    uint8_t *code, *packed;
};

/* Quantizers that share pieces and passes over the file. */
struct group {
    struct qm_analysis **a;
    float **stat, **scales; /* of the whole tensor; NULL where stands_alone() */
    int n;
    int64_t piece, chunk; /* elements */
    struct room *room;    /* one per thread */
};

struct job {
    struct qm_file *f;
    int index;
    struct qm_shape shape;
    int64_t numel;
    struct qm_analysis_options o;
    struct qm_float_classes *classes;
    int counted;    /* classes is complete */
    qm_status st;   /* of reading, in any thread */
    char why[1024]; /* text of the first failure */
};

/* ---- planning ------------------------------------------------------------------------------ */

/* Whether pieces can be encoded independently: scales of blocks, and no random draws by element. */
static int stands_alone(const struct qm_codec *c)
{
    return c->q.norm == QM_NORM_block && !c->q.scale.nest && !qm_round_draws(c->q.round);
}

/* Elements of a quantizer's pieces: a multiple of its block. */
static int64_t piece_for(const struct qm_codec *c, int64_t numel)
{
    int64_t block = c->q.norm == QM_NORM_block ? c->q.block : 1;
    int64_t most = numel > PIECE ? numel : PIECE;
    if (block > PIECE)
        return block < most ? block : most;
    return PIECE / block * block;
}

/* Bytes of statistics and scales kept for the whole tensor. */
static int64_t whole_bytes(const struct job *j, const struct qm_analysis *a)
{
    if (stands_alone(&a->codec))
        return 0;
    return 2 * (int64_t)sizeof(float) * qm_scale_count(&a->codec, &j->shape);
}

/* Sets the reason why a quantizer cannot take this tensor, if it is known before reading. */
static void refuse(const struct job *j, struct qm_analysis *a)
{
    const struct qm_quantizer *q = &a->codec.q;
    if (a->skipped[0])
        return;
    if (q->bits == 0)
        snprintf(a->skipped, sizeof a->skipped, "not quantized");
    else if (qm_codec_fits(&a->codec, &j->shape) != QM_OK)
        snprintf(a->skipped, sizeof a->skipped, "%s", qm_message());
    else if (piece_for(&a->codec, j->numel) > LONGEST_BLOCK)
        snprintf(a->skipped, sizeof a->skipped, "a block of more than %d elements", LONGEST_BLOCK);
    else if (!stands_alone(&a->codec) && qm_scale_count(&a->codec, &j->shape) > MOST_SCALES)
        snprintf(a->skipped, sizeof a->skipped, "it would need more than %d scales at once",
                 MOST_SCALES);
}

static void refuse_negative(const struct job *j, struct qm_analysis *a)
{
    if (!a->skipped[0] && !a->codec.q.sign && j->classes->negative > 0) {
        snprintf(a->skipped, sizeof a->skipped, "an unsigned map, and there are negative elements");
        qm_metrics_reset(a->metrics);
    }
}

/* ---- pieces -------------------------------------------------------------------------------- */

static void piece_close(struct piece *p, int parts)
{
    free(p->room);
    for (int i = 0; p->part && i < parts; i++)
        qm_metrics_close(p->part[i]);
    free(p->part);
}

static int piece_open(struct piece *p, int64_t room, int parts, enum qm_metrics_level level)
{
    p->room = malloc((size_t)room * sizeof *p->room);
    p->part = calloc((size_t)parts + 1, sizeof(struct qm_metrics *));
    int ok = p->room && p->part;
    for (int i = 0; ok && i < parts; i++)
        ok = (p->part[i] = qm_metrics_open(level)) != NULL;
    return ok;
}

static void room_close(struct room *r)
{
    free(r->want);
    free(r->got);
    free(r->scale);
    free(r->local);
    free(r->code);
    free(r->packed);
}

static int room_open(struct room *r, int64_t chunk)
{
    size_t n = (size_t)chunk;
    r->want = malloc(n * sizeof *r->want);
    r->got = malloc(n * sizeof *r->got);
    r->scale = malloc(n * sizeof *r->scale);
    r->local = malloc(n * sizeof *r->local);
    r->code = malloc(n);
    r->packed = malloc(n);
    return r->want && r->got && r->scale && r->local && r->code && r->packed;
}

QM_ISA_TABLE(qm_float_classes_fn, qm_float_classes)

static void add_classes(struct qm_float_classes *into, const struct qm_float_classes *c)
{
    into->n += c->n;
    into->nan += c->nan;
    into->inf += c->inf;
    into->negative += c->negative;
    into->zero += c->zero;
    into->max_abs = c->max_abs > into->max_abs ? c->max_abs : into->max_abs;
}

/* ---- scales of elements -------------------------------------------------------------------- */

/* out[n]: the stored scale of each element of [from, from + n). */
static void spread_stored(const struct qm_codec *c, const struct qm_shape *shape, int64_t from,
                          int64_t n, const float *scales, float *out)
{
    int64_t at[QM_MAX_RANK] = {0}, rest = from;
    int64_t block = c->q.block;
    enum qm_norm norm = qm_norm_of_rank(c->q.norm, shape->rank, &block);
    if (norm == QM_NORM_block) {
        for (int64_t i = 0, b = from / block; i < n; b++)
            for (; i < n && from + i < (b + 1) * block; i++)
                out[i] = scales[b];
        return;
    }
    for (int d = shape->rank - 1; d >= 0; d--) {
        at[d] = rest % shape->dim[d];
        rest /= shape->dim[d];
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t base = 0;
        float least = INFINITY, first, second;
        switch (norm) {
        case QM_NORM_tensor: out[i] = scales[0]; break;
        case QM_NORM_row: out[i] = scales[at[0]]; break;
        case QM_NORM_col: out[i] = scales[at[1]]; break;
        case QM_NORM_rowblock:
            out[i] = scales[qm_scale_index_of(norm, block, shape->dim, at, 0, 0)];
            break;
        case QM_NORM_rank1:
            for (int d = 0; d < shape->rank; base += shape->dim[d++])
                least = scales[base + at[d]] < least ? scales[base + at[d]] : least;
            out[i] = least;
            break;
        case QM_NORM_rowcol:
        case QM_NORM_colrow:
        case QM_NORM_rank1block:
            out[i] = qm_two_scales_get(c, shape, at, 1, scales, &first, &second) ? first * second
                                                                                 : second;
            break;
        default: out[i] = 1.0f; break;
        }
        for (int d = shape->rank - 1; d >= 0 && ++at[d] == shape->dim[d]; d--)
            at[d] = 0;
    }
}

/* out[n]: the value that 1 in the map's range decodes to: scale / gain, through the
 * inverse curve. */
static void spread(const struct qm_codec *c, const struct qm_shape *shape, int64_t from, int64_t n,
                   const float *scales, float *out)
{
    spread_stored(c, shape, from, n, scales, out);
    for (int64_t i = 0; i < n; i++)
        out[i] = qm_curve_from(c->q.curve, out[i] / c->cb.gain);
}

/* ---- the two passes ------------------------------------------------------------------------ */

/* Encodes, decodes and measures elements [at, at + n) of piece p with quantizer k of the group. */
static void judge(const struct job *j, const struct group *g, int k, const struct piece *p,
                  int64_t at, int64_t n, struct room *r)
{
    const struct qm_codec *c = &g->a[k]->codec;
    const float *x = p->x + at, *scales = r->local;
    struct qm_shape flat = {1, {n}};
    const struct qm_shape *shape = &flat;
    struct qm_sample s = {
        .n = n, .want = r->want, .got = r->got, .code = r->code, .bits = c->q.bits, .eps = 1e-8};
    int64_t from = 0;
    if (g->stat[k]) { /* scales of the whole tensor */
        struct qm_draws draws = qm_draws_for(j->o.seed, 1, 0, QM_ROLE_slot0);
        scales = g->scales[k];
        shape = &j->shape;
        from = p->from + at;
        qm_encode_range(c, shape, from, n, x, g->stat[k], &draws, r->code);
        qm_decode_range(c, shape, from, n, r->code, scales, r->got);
    } else if (qm_codec_is_fused(c)) {
        qm_encode_blocks(c, x, n, r->packed, r->local);
        qm_decode_blocks(c, r->packed, r->local, n, r->got);
        qm_unpack_range(c, r->packed, n, r->code);
    } else if (qm_encode(c, &flat, x, NULL, r->code, r->local) == QM_OK) {
        qm_decode(c, &flat, r->code, r->local, r->got);
    } else {
        return; /* not reached: any number of elements fits a norm of blocks */
    }
    if (j->o.level == QM_METRICS_full) {
        spread(c, shape, from, n, scales, r->scale);
        s.scale = r->scale;
    }
    qm_metrics_add(p->part[k], &s);
}

static void judge_piece(const struct job *j, const struct group *g, struct piece *p, struct room *r)
{
    struct qm_float_classes c;
    memset(&p->classes, 0, sizeof p->classes);
    for (int k = 0; k < g->n; k++)
        qm_metrics_reset(p->part[k]);
    for (int64_t at = 0; at < p->n; at += g->chunk) {
        int64_t n = p->n - at < g->chunk ? p->n - at : g->chunk;
        qm_float_classes_by_isa()(p->x + at, n, r->want, &c);
        add_classes(&p->classes, &c);
        for (int k = 0; k < g->n; k++)
            if (!g->a[k]->skipped[0])
                judge(j, g, k, p, at, n, r);
    }
}

/* Reads a piece, in one thread at a time because a file serves one.  Returns 0 after a failure,
 * whose text is kept in j->why for the thread that reports it. */
static int read_piece(struct job *j, struct piece *p)
{
    int ok;
#pragma omp critical(qm_analysis_read)
    {
        if (j->st == QM_OK) {
            p->x = qm_file_view(j->f, j->index, p->from, p->n);
            if (!p->x)
                j->st = qm_file_read(j->f, j->index, p->from, p->n, p->room);
            p->x = p->x ? p->x : p->room;
            if (j->st != QM_OK)
                snprintf(j->why, sizeof j->why, "%s", qm_message());
        }
        ok = j->st == QM_OK;
    }
    return ok;
}

enum { THREADS_FROM = 1 << 14 }; /* elements: for fewer the threads wait longer than they work */

/* A pass over the file.  folding 1 or 2: the first or second fold of the statistics; 0: codes and
 * errors. All threads read, encode and measure a batch of `slots` pieces; results are merged in the
 * pieces' order. */
static qm_status pass(struct job *j, struct group *g, struct piece *piece, int slots, int folding)
{
    int is_wide = j->numel >= THREADS_FROM;
    for (int64_t at = 0; at < j->numel;) {
        int64_t before = at;
        int filled = 0;
        for (; filled < slots && at < j->numel; filled++) {
            piece[filled].from = at;
            piece[filled].n = j->numel - at < g->piece ? j->numel - at : g->piece;
            at += piece[filled].n;
        }
#pragma omp parallel for num_threads(j->o.threads) schedule(dynamic) if (is_wide)
        for (int s = 0; s < filled; s++)
            if (read_piece(j, &piece[s]) && !folding)
                judge_piece(j, g, &piece[s], &g->room[omp_get_thread_num()]);
        if (j->st != QM_OK)
            return qm_fail(j->st, "%s", j->why);
        if (folding) { /* one thread per quantizer */
#pragma omp parallel for num_threads(j->o.threads) schedule(dynamic) if (is_wide)
            for (int k = 0; k < g->n; k++)
                for (int s = 0; s < filled && g->stat[k]; s++)
                    (folding == 1 ? qm_fold : qm_fold_again)(&g->a[k]->codec, &j->shape,
                                                             piece[s].from, piece[s].n, piece[s].x,
                                                             g->stat[k]);
        } else {
            for (int s = 0; s < filled && !j->counted; s++)
                add_classes(j->classes, &piece[s].classes);
            for (int k = 0; k < g->n; k++)
                refuse_negative(j, g->a[k]);
#pragma omp parallel for num_threads(j->o.threads) schedule(dynamic) if (is_wide)
            for (int k = 0; k < g->n; k++)
                for (int s = 0; s < filled && !g->a[k]->skipped[0]; s++)
                    qm_metrics_merge(g->a[k]->metrics, piece[s].part[k]);
        }
        if (j->o.progress)
            j->o.progress(at - before, j->o.context);
    }
    j->counted |= !folding;
    return qm_file_check(j->f); /* views are of the file itself */
}

/* Allocates statistics and scales of the whole tensor.  *folds: passes that they need, 0 to 2. */
static qm_status open_scales(const struct job *j, struct group *g, int *folds)
{
    *folds = 0;
    for (int k = 0; k < g->n; k++) {
        if (stands_alone(&g->a[k]->codec))
            continue;
        size_t n = (size_t)qm_scale_count(&g->a[k]->codec, &j->shape);
        g->stat[k] = calloc(n + 1, sizeof(float));
        g->scales[k] = calloc(n + 1, sizeof(float));
        if (!g->stat[k] || !g->scales[k])
            return qm_fail(QM_NO_MEMORY, "%zu scales", n);
        int wants = qm_folds(&g->a[k]->codec);
        *folds = wants > *folds ? wants : *folds;
    }
    return QM_OK;
}

/* Elements of a chunk: a common multiple of all blocks, about CHUNK, at most the piece. */
static int64_t chunk_for(const struct group *g, int64_t piece)
{
    int64_t chunk = 1;
    for (int k = 0; k < g->n; k++) {
        const struct qm_quantizer *q = &g->a[k]->codec.q;
        int64_t block = q->norm == QM_NORM_block ? q->block : 1, a = chunk, b = block;
        while (b) { /* a: the greatest common divisor of chunk and block */
            int64_t rest = a % b;
            a = b;
            b = rest;
        }
        chunk = chunk / a * block;
        if (chunk > piece)
            return piece;
    }
    chunk = (CHUNK + chunk - 1) / chunk * chunk;
    return chunk < piece ? chunk : piece;
}

static qm_status run_group(struct job *j, struct group *g)
{
    int64_t slots = IN_FLIGHT / g->piece; /* above the threads, so that few idle at a batch's end */
    int64_t pieces = (j->numel + g->piece - 1) / g->piece;
    slots = slots < pieces ? slots : pieces;
    slots = slots < 1 ? 1 : slots;
    int folds = 0;
    int64_t room = g->piece < j->numel ? g->piece : j->numel;
    struct piece *piece = calloc((size_t)slots, sizeof *piece);
    g->chunk = chunk_for(g, room);
    g->room = calloc((size_t)j->o.threads, sizeof *g->room);
    qm_status st = piece && g->room ? open_scales(j, g, &folds) : QM_NO_MEMORY;
    for (int s = 0; st == QM_OK && s < slots; s++)
        if (!piece_open(&piece[s], room, g->n, j->o.level))
            st = QM_NO_MEMORY;
    for (int t = 0; st == QM_OK && t < j->o.threads; t++)
        if (!room_open(&g->room[t], g->chunk))
            st = QM_NO_MEMORY;
    if (st == QM_NO_MEMORY)
        qm_fail(st, "buffers for %lld elements", (long long)(slots * room));
    for (int fold = 1; st == QM_OK && fold <= folds; fold++)
        st = pass(j, g, piece, (int)slots, fold);
    for (int k = 0; st == QM_OK && k < g->n; k++)
        if (g->stat[k])
            qm_scales(&g->a[k]->codec, &j->shape, g->stat[k], g->scales[k]);
    if (st == QM_OK)
        st = pass(j, g, piece, (int)slots, 0);
    for (int s = 0; piece && s < slots; s++)
        piece_close(&piece[s], g->n);
    for (int k = 0; k < g->n; k++) {
        free(g->stat[k]);
        free(g->scales[k]);
        g->stat[k] = g->scales[k] = NULL;
    }
    for (int t = 0; g->room && t < j->o.threads; t++)
        room_close(&g->room[t]);
    free(g->room);
    g->room = NULL;
    free(piece);
    return st;
}

/* The next group: the first quantizer left, and all with its piece size while memory suffices. */
static void next_group(const struct job *j, struct qm_analysis *a, int n, char *done,
                       struct group *g)
{
    int64_t bytes = 0;
    g->n = 0;
    for (int i = 0; i < n; i++) {
        if (done[i] || a[i].skipped[0])
            continue;
        int64_t piece = piece_for(&a[i].codec, j->numel);
        int64_t more =
            whole_bytes(j, &a[i]) + IN_FLIGHT / piece * (int64_t)qm_metrics_bytes(j->o.level);
        if (g->n && (piece != g->piece || bytes + more > group_bytes))
            continue;
        g->piece = piece;
        bytes += more;
        done[i] = 1;
        g->a[g->n++] = &a[i];
    }
}

qm_status qm_analyze_tensor(struct qm_file *f, int index, struct qm_analysis *a, int n_analyses,
                            const struct qm_analysis_options *o, struct qm_float_classes *classes)
{
    const struct qm_entry *e = qm_file_entry(f, index);
    struct qm_float_classes found = {0};
    struct job j = {
        .f = f, .index = index, .shape = e->shape, .numel = e->numel, .o = *o, .classes = &found};
    j.o.threads = o->threads < 1 ? 1 : o->threads;
    size_t n = (size_t)n_analyses + 1;
    struct group g = {.a = calloc(n, sizeof *g.a),
                      .stat = calloc(n, sizeof *g.stat),
                      .scales = calloc(n, sizeof *g.scales),
                      .piece = PIECE};
    char *done = calloc(n, 1);
    qm_status st = g.a && g.stat && g.scales && done
                       ? QM_OK
                       : qm_fail(QM_NO_MEMORY, "%d quantizers", n_analyses);
    for (int i = 0; st == QM_OK && i < n_analyses; i++)
        refuse(&j, &a[i]);
    while (st == QM_OK) {
        if (j.counted)
            for (int i = 0; i < n_analyses; i++)
                refuse_negative(&j, &a[i]);
        next_group(&j, a, n_analyses, done, &g);
        if (g.n == 0)
            break;
        st = run_group(&j, &g);
    }
    struct group none = {.piece = PIECE};
    if (st == QM_OK && !j.counted)
        st = run_group(&j, &none); /* counts the classes */
    for (int i = 0; st == QM_OK && i < n_analyses; i++)
        refuse_negative(&j, &a[i]);
    free(g.a);
    free(g.stat);
    free(g.scales);
    free(done);
    if (st == QM_OK)
        *classes = found;
    return st;
}
