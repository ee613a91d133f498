/* analysis.c - the quantization error of one stored tensor under many quantizers, streamed. */
#include "experiments/analysis.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    PIECE = 1 << 18,         /* elements that are read and encoded at a time */
    LONGEST_BLOCK = 1 << 20, /* of a piece that has to hold one block */
    IN_FLIGHT = 1 << 22,     /* elements in all pieces that are worked on at once */
    MOST_SCALES = 1 << 24,   /* of a quantizer whose scales are kept for the whole tensor */
};
static const int64_t group_bytes = 128 << 20; /* scales and accumulators kept at once */
/* Of one accumulator, rounded up: oracle/metric.h. */
static const int64_t metrics_bytes[] = {
    [QM_METRICS_basic] = 16 << 10, [QM_METRICS_full] = 1280 << 10};

/* A piece that is being worked on: room for its elements. */
struct piece {
    int64_t from, n;
    double *want;
    float *x, *got, *scale, *local; /* local: scales of a piece by itself */
    uint8_t *code;
    struct qm_metrics **part; /* one per quantizer of the group */
    struct qm_census census;
};

/* Quantizers that share pieces and a pass over the file. */
struct group {
    struct qm_analysis **a;
    float **stat, **scales; /* for the whole tensor; NULL: pieces stand by themselves */
    int n;
    int64_t piece; /* elements */
};

struct job {
    struct qm_file *f;
    int index;
    struct qm_shape shape;
    int64_t numel;
    uint64_t seed;
    int threads;
    enum qm_metrics_level level;
    qm_analysis_progress *progress;
    void *context;
    struct qm_census *census;
    int counted; /* the census is complete */
};

/* ---- planning ------------------------------------------------------------------------------ */

/* Whether every piece can be encoded without knowing the others. */
static int stands_alone(const struct qm_codec *c)
{
    return c->q.norm == QM_NORM_block && !c->q.scale.nest && c->q.round != QM_ROUND_stoch;
}

static int64_t piece_for(const struct qm_codec *c, int64_t numel)
{
    int64_t block = c->q.norm == QM_NORM_block ? c->q.block : 1;
    int64_t most = numel > PIECE ? numel : PIECE;
    if (block > PIECE)
        return block < most ? block : most;
    return PIECE / block * block;
}

static int64_t whole_bytes(const struct job *j, const struct qm_analysis *a)
{
    if (stands_alone(&a->codec))
        return 0;
    return 2 * (int64_t)sizeof(float) * qm_scale_count(&a->codec, &j->shape);
}

/* Fills in why a quantizer cannot take this tensor, where that is known without reading it. */
static void refuse(const struct job *j, struct qm_analysis *a)
{
    const struct qm_quantizer *q = &a->codec.q;
    if (a->skipped[0])
        return;
    if (q->bits == 0)
        snprintf(a->skipped, sizeof a->skipped, "f32: not quantized");
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
    if (!a->skipped[0] && !a->codec.q.sign && j->census->negative > 0) {
        snprintf(a->skipped, sizeof a->skipped, "an unsigned map, and there are negative elements");
        qm_metrics_reset(a->metrics);
    }
}

/* ---- pieces -------------------------------------------------------------------------------- */

static void piece_close(struct piece *p, int parts)
{
    free(p->want);
    free(p->x);
    free(p->got);
    free(p->scale);
    free(p->local);
    free(p->code);
    for (int i = 0; p->part && i < parts; i++)
        qm_metrics_close(p->part[i]);
    free(p->part);
}

static int piece_open(struct piece *p, int64_t room, int parts, enum qm_metrics_level level)
{
    size_t n = (size_t)room;
    p->want = malloc(n * sizeof *p->want);
    p->x = malloc(n * sizeof *p->x);
    p->got = malloc(n * sizeof *p->got);
    p->scale = malloc(n * sizeof *p->scale);
    p->local = malloc(n * sizeof *p->local);
    p->code = malloc(n);
    p->part = calloc((size_t)parts + 1, sizeof(struct qm_metrics *));
    int ok = p->want && p->x && p->got && p->scale && p->local && p->code && p->part;
    for (int i = 0; ok && i < parts; i++)
        ok = (p->part[i] = qm_metrics_open(level)) != NULL;
    return ok;
}

/* Widens the elements and counts what they are. */
static void inspect(struct piece *p)
{
    struct qm_census c = {.n = p->n};
    for (int64_t i = 0; i < p->n; i++) {
        double x = p->want[i] = (double)p->x[i], size = fabs(x);
        c.nan += x != x;
        c.inf += isinf(x) != 0;
        c.negative += x < 0.0;
        c.zero += x == 0.0;
        c.max_abs = size > c.max_abs && !isinf(x) ? size : c.max_abs;
    }
    p->census = c;
}

static void add_census(struct qm_census *into, const struct qm_census *c)
{
    into->n += c->n;
    into->nan += c->nan;
    into->inf += c->inf;
    into->negative += c->negative;
    into->zero += c->zero;
    into->max_abs = c->max_abs > into->max_abs ? c->max_abs : into->max_abs;
}

/* Reads up to `slots` pieces from *at on; says how many in *filled. */
static qm_status read_batch(struct job *j, int64_t size, struct piece *piece, int slots,
                            int64_t *at, int *filled)
{
    int64_t before = *at;
    int n = 0;
    for (; n < slots && *at < j->numel; n++) {
        struct piece *p = &piece[n];
        p->from = *at;
        p->n = j->numel - *at < size ? j->numel - *at : size;
        QM_TRY(qm_file_read(j->f, j->index, p->from, p->n, p->x));
        *at += p->n;
    }
#pragma omp parallel for num_threads(j->threads) schedule(dynamic)
    for (int s = 0; s < n; s++)
        inspect(&piece[s]);
    for (int s = 0; s < n && !j->counted; s++)
        add_census(j->census, &piece[s].census);
    if (j->progress)
        j->progress(*at - before, j->context);
    *filled = n;
    return QM_OK;
}

/* ---- scales of elements -------------------------------------------------------------------- */

/* The stored scale of each element of [from, from + n). */
static void spread_stored(const struct qm_codec *c, const struct qm_shape *shape, int64_t from,
                          int64_t n, const float *scales, float *out)
{
    int64_t at[QM_MAX_RANK] = {0}, rest = from;
    enum qm_norm norm = c->q.norm;
    int64_t block = c->q.block;
    if (norm == QM_NORM_rank1 && shape->rank < 2) {
        norm = QM_NORM_block;
        block = QM_RANK1_BLOCK;
    }
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
        float least = INFINITY;
        switch (norm) {
        case QM_NORM_tensor: out[i] = scales[0]; break;
        case QM_NORM_row: out[i] = scales[at[0]]; break;
        case QM_NORM_col: out[i] = scales[at[1]]; break;
        case QM_NORM_rank1:
            for (int d = 0; d < shape->rank; base += shape->dim[d++])
                least = scales[base + at[d]] < least ? scales[base + at[d]] : least;
            out[i] = least;
            break;
        default: out[i] = 1.0f; break;
        }
        for (int d = shape->rank - 1; d >= 0 && ++at[d] == shape->dim[d]; d--)
            at[d] = 0;
    }
}

/* What 1 in the map's range stands for: the scale before the map's gain, the curve undone. */
static void spread(const struct qm_codec *c, const struct qm_shape *shape, int64_t from, int64_t n,
                   const float *scales, float *out)
{
    spread_stored(c, shape, from, n, scales, out);
    for (int64_t i = 0; i < n; i++)
        out[i] = qm_curve_from(c->q.curve, out[i] / c->cb.gain);
}

/* ---- the two passes ------------------------------------------------------------------------ */

/* Encodes and decodes a piece with quantizer k of the group and adds it to the piece's part. */
static void judge(const struct job *j, const struct group *g, int k, struct piece *p)
{
    const struct qm_codec *c = &g->a[k]->codec;
    struct qm_shape flat = {1, {p->n}};
    struct qm_sample s = {
        .n = p->n, .want = p->want, .got = p->got, .code = p->code, .bits = c->q.bits, .eps = 1e-8};
    int whole = g->stat[k] != NULL;
    const float *scales = whole ? g->scales[k] : p->local;
    const struct qm_shape *shape = whole ? &j->shape : &flat;
    int64_t from = whole ? p->from : 0;
    if (whole) {
        struct qm_draws draws = qm_draws_for(j->seed, 1, 0, QM_ROLE_slot0);
        qm_encode_range(c, shape, from, p->n, p->x, g->stat[k], &draws, p->code);
    } else if (qm_encode(c, &flat, p->x, NULL, p->code, p->local) != QM_OK) {
        return; /* not reached: any run of elements fits a norm of blocks */
    }
    qm_decode_range(c, shape, from, p->n, p->code, scales, p->got);
    if (j->level == QM_METRICS_full) {
        spread(c, shape, from, p->n, scales, p->scale);
        s.scale = p->scale;
    }
    qm_metrics_reset(p->part[k]);
    qm_metrics_add(p->part[k], &s);
}

/* Pass over the file: maxima of those that need them first (folding), or codes and errors. */
static qm_status pass(struct job *j, struct group *g, struct piece *piece, int slots, int folding)
{
    int filled;
    for (int64_t at = 0; at < j->numel;) {
        QM_TRY(read_batch(j, g->piece, piece, slots, &at, &filled));
        if (folding) { /* one thread per quantizer: maxima are exact in any order */
#pragma omp parallel for num_threads(j->threads) schedule(dynamic)
            for (int k = 0; k < g->n; k++)
                for (int s = 0; s < filled && g->stat[k]; s++)
                    qm_fold(&g->a[k]->codec, &j->shape, piece[s].from, piece[s].n, piece[s].x,
                            g->stat[k]);
            continue;
        }
        for (int k = 0; k < g->n; k++)
            refuse_negative(j, g->a[k]);
#pragma omp parallel for num_threads(j->threads) schedule(dynamic)
        for (int s = 0; s < filled; s++)
            for (int k = 0; k < g->n; k++)
                if (!g->a[k]->skipped[0])
                    judge(j, g, k, &piece[s]);
#pragma omp parallel for num_threads(j->threads) schedule(dynamic)
        for (int k = 0; k < g->n; k++)
            for (int s = 0; s < filled && !g->a[k]->skipped[0]; s++)
                qm_metrics_merge(g->a[k]->metrics, piece[s].part[k]);
    }
    j->counted = 1;
    return QM_OK;
}

static qm_status open_scales(const struct job *j, struct group *g, int *any)
{
    *any = 0;
    for (int k = 0; k < g->n; k++) {
        if (stands_alone(&g->a[k]->codec))
            continue;
        size_t n = (size_t)qm_scale_count(&g->a[k]->codec, &j->shape);
        g->stat[k] = calloc(n + 1, sizeof(float));
        g->scales[k] = calloc(n + 1, sizeof(float));
        if (!g->stat[k] || !g->scales[k])
            return qm_fail(QM_NO_MEMORY, "%zu scales", n);
        *any = 1;
    }
    return QM_OK;
}

static qm_status run_group(struct job *j, struct group *g)
{
    int64_t slots = IN_FLIGHT / g->piece; /* more than threads: fewer of them wait at the end */
    int64_t pieces = (j->numel + g->piece - 1) / g->piece;
    slots = slots < pieces ? slots : pieces;
    slots = slots < 1 ? 1 : slots;
    int two_passes = 0;
    int64_t room = g->piece < j->numel ? g->piece : j->numel;
    struct piece *piece = calloc((size_t)slots, sizeof *piece);
    qm_status st = piece ? open_scales(j, g, &two_passes) : QM_NO_MEMORY;
    for (int s = 0; st == QM_OK && s < slots; s++)
        if (!piece_open(&piece[s], room, g->n, j->level))
            st = QM_NO_MEMORY;
    if (st == QM_NO_MEMORY)
        qm_fail(st, "buffers for %lld elements", (long long)(slots * room));
    if (st == QM_OK && two_passes)
        st = pass(j, g, piece, (int)slots, 1);
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
    free(piece);
    return st;
}

/* Takes the first quantizer left and all that go with it: same pieces, within the memory. */
static void gather(const struct job *j, struct qm_analysis *a, int n, char *done, struct group *g)
{
    int64_t bytes = 0;
    g->n = 0;
    for (int i = 0; i < n; i++) {
        if (done[i] || a[i].skipped[0])
            continue;
        int64_t piece = piece_for(&a[i].codec, j->numel);
        int64_t more = whole_bytes(j, &a[i]) + IN_FLIGHT / piece * metrics_bytes[j->level];
        if (g->n && (piece != g->piece || bytes + more > group_bytes))
            continue;
        g->piece = piece;
        bytes += more;
        done[i] = 1;
        g->a[g->n++] = &a[i];
    }
}

static void count_only(struct job *j, qm_status *st)
{
    struct group none = {NULL, NULL, NULL, 0, PIECE};
    *st = run_group(j, &none);
}

qm_status qm_analyze_tensor(struct qm_file *f, int index, struct qm_analysis *a, int n_analyses,
                            enum qm_metrics_level level, uint64_t seed, int threads,
                            qm_analysis_progress *progress, void *context, struct qm_census *census)
{
    const struct qm_entry *e = qm_file_entry(f, index);
    struct qm_census found = {0};
    struct job j = {.f = f,
                    .index = index,
                    .shape = e->shape,
                    .numel = e->numel,
                    .seed = seed,
                    .threads = threads < 1 ? 1 : threads,
                    .level = level,
                    .progress = progress,
                    .context = context,
                    .census = &found};
    size_t n = (size_t)n_analyses + 1;
    struct group g = {calloc(n, sizeof *g.a), calloc(n, sizeof *g.stat),
                      calloc(n, sizeof *g.scales), 0, PIECE};
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
        gather(&j, a, n_analyses, done, &g);
        if (g.n == 0)
            break;
        st = run_group(&j, &g);
    }
    if (st == QM_OK && !j.counted)
        count_only(&j, &st);
    for (int i = 0; st == QM_OK && i < n_analyses; i++)
        refuse_negative(&j, &a[i]);
    free(g.a);
    free(g.stat);
    free(g.scales);
    free(done);
    if (st == QM_OK)
        *census = found;
    return st;
}
