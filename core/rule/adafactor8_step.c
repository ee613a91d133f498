/* adafactor8_step.c - The step of adafactor8bit: Adafactor, first moment, CAME, norm limiter.
 *
 * Averages of elements are float32 in the order of the source.  Sums run in double in index order;
 * the order of the source (reductions of torch, atomics) rounds them differently. */
#include "core/rule/adafactor8.h"

#include <float.h>
#include <math.h>

#include "core/rule/tensor_rule.h"

/* ---- elements ------------------------------------------------------------------------------- */

/* The operation by which the average of squares in a slot takes a new square in, to which `add` is
 * added before. */
static struct qm_sweep square_of(const struct qm_adafactor8 *a, enum qm_adafactor8_slot slot,
                                 float add)
{
    enum qm_adafactor8_way way = QM_ADAFACTOR8_LERP;
    if (a->is_cuda && !a->w->slot_is_f32[slot])
        way = QM_ADAFACTOR8_KERNEL;
    else if (slot == QM_ADAFACTOR8_V && a->w->slot_is_f32[slot] && !a->is_apollo &&
             !a->w->s->flag[QM_ADAFACTOR8_WIDE])
        way = QM_ADAFACTOR8_MIX;
    return (struct qm_sweep){
        .c = {[QM_ADAFACTOR8_SQUARE_WEIGHT] = (float)a->b,
              [QM_ADAFACTOR8_SQUARE_KEEP] = (float)(1.0 - a->b),
              [QM_ADAFACTOR8_SQUARE_ADD] = add,
              [QM_ADAFACTOR8_SQUARE_WEIGHTED_ADD] = (float)(a->b * (double)add)},
        .flag = {[QM_ADAFACTOR8_SQUARE_WAY] = (int)way},
        .x = {a->w->slot[slot]}};
}

/* The average of squares in a slot takes in fresh[n] + add. */
static void adafactor8_squares(const struct qm_adafactor8 *a, enum qm_adafactor8_slot slot,
                               const float *fresh, int64_t n, float add)
{
    struct qm_sweep m = square_of(a, slot, add);
    m.n = n, m.x[1] = QM_AT(fresh);
    qm_sweep_run(QM_SWEEP_adafactor8_square, &m);
}

void qm_adafactor8_squares_of(const struct qm_adafactor8 *a, enum qm_adafactor8_slot slot,
                              const float *x, int64_t n, int turns, float add)
{
    struct qm_sweep m = square_of(a, slot, add);
    m.n = n;
    m.flag[QM_ADAFACTOR8_SQUARE_TURNS] = turns;
    m.x[1] = QM_AT(x);
    qm_sweep_run(QM_SWEEP_adafactor8_gradient_square, &m);
}

/* How the first moment takes numbers in.  turns, sanitized: numbers that come from the gradient
 * have their sign turned with maximize, and count as 0 where they are not finite. */
static struct qm_moment moment_of(const struct qm_adafactor8 *a, int turns, int sanitized)
{
    float beta = (float)a->h->beta1, w = (float)(1.0 - a->h->beta1);
    return (struct qm_moment){.is_lerp = !a->is_cuda,
                              .turns = turns && a->h->maximize,
                              .only_finite = sanitized,
                              .keep = beta,
                              .weight = a->is_cuda ? 1.0f - beta : w};
}

void qm_adafactor8_moment(const struct qm_adafactor8 *a, int64_t n, const float *fresh, float *m)
{
    const struct qm_moment how = moment_of(a, 0, 0);
    QM_CHUNKS(n, i)
    qm_tensor_rule_loops()->moment(&how, qm_chunk_n(n, i), fresh + i, m + i);
}

void qm_adafactor8_gradients(const struct qm_adafactor8 *a, int sanitized, float *out)
{
    const struct qm_moment how = moment_of(a, 1, sanitized);
    QM_CHUNKS(a->n, i)
    qm_tensor_rule_loops()->taken(&how, qm_chunk_n(a->n, i), a->w->g + i, out + i);
}

/* ---- states --------------------------------------------------------------------------------- */

/* The number that 0.2.6 and later add to a square or to a mean of squares. */
static float added(const struct qm_adafactor8 *a)
{
    return a->is_026 && !a->is_adam ? (float)a->eps1 : 0.0f;
}

static void unfactored_states(const struct qm_adafactor8 *a)
{
    qm_adafactor8_squares_of(a, QM_ADAFACTOR8_V, a->w->g, a->n, a->h->maximize,
                             a->w->slot_is_f32[QM_ADAFACTOR8_V] && !a->is_046 ? 0.0f : added(a));
}

/* CAME before 0.2.6, whose products may overflow: means[batch] of the rows of the second moment; r
 * and c: the means that the confidence takes in. */
static qm_status reopen(const struct qm_adafactor8 *a, double *means, float *r, float *c)
{
    void *is_open = NULL;
    QM_TRY(qm_tensor_rule_alloc(sizeof(double) * (size_t)a->batch, &is_open));
    float *const *slot = a->w->slot;
    struct qm_sweep s = {.n = a->batch,
                         .rows = a->rows,
                         .cols = a->cols,
                         .d = {[QM_ADAFACTOR8_FLOOR] = a->eps_sq},
                         .flag = {[QM_ADAFACTOR8_OPEN_TURNS] = a->h->maximize},
                         .x = {NULL, slot[QM_ADAFACTOR8_ROW], slot[QM_ADAFACTOR8_COL],
                               QM_AT(a->w->g), slot[QM_ADAFACTOR8_M]},
                         .y = {is_open, means}};
    qm_sweep_run(QM_SWEEP_adafactor8_open, &s);
    s.n = a->batch * a->rows;
    s.x[0] = r;
    qm_sweep_run(QM_SWEEP_adafactor8_open_rows, &s);
    s.n = a->batch * a->cols;
    s.x[0] = c;
    qm_sweep_run(QM_SWEEP_adafactor8_open_cols, &s);
    qm_tensor_rule_free(is_open);
    return QM_OK;
}

/* The averages in slots row and col take in the row means and the column means of the terms of x,
 * with weight b.  means: those of `reopen`, or NULL. */
static qm_status factor_states(const struct qm_adafactor8 *a, struct qm_term t,
                               const struct qm_lazy_floats *x, float add,
                               enum qm_adafactor8_slot row, double *means)
{
    enum qm_adafactor8_slot col = row + 1;
    int64_t n_rows = a->batch * a->rows, n_cols = a->batch * a->cols;
    const struct qm_matrices m = {a->batch, a->rows, a->cols};
    void *room = NULL;
    t.is_single = !means; /* those of `reopen` overflow by its products */
    QM_TRY(qm_tensor_rule_alloc(sizeof(float) * (size_t)(n_rows + n_cols), &room));
    float *r = room;
    qm_status st = qm_two_means(&m, t, x, a->w->room, r, r + n_rows);
    if (st == QM_OK && means)
        st = reopen(a, means, r, r + n_rows);
    if (st == QM_OK) {
        adafactor8_squares(a, row, r, n_rows, add);
        adafactor8_squares(a, col, r + n_rows, n_cols, add);
    }
    qm_tensor_rule_free(room);
    return st;
}

/* How the root of a factored second moment is divided by.  TORCH: by the operators of torch.
 * TORCH_CLAMPED: the same, with the row mean of values that are at their floor already (the float32
 * states of CAME).  KERNEL: as the CUDA kernels, whose floor acts on the product.  RECODED: the
 * same, with factors that are coded once more after their mean is taken. */
enum form { TORCH, TORCH_CLAMPED, KERNEL, RECODED };

/* x over the root of the factored second moment in two slots.  On a device, it is made; on the
 * host, it is formed when it is needed, which costs less than writing and reading it. */
struct factored {
    struct qm_lazy_floats u;
    const struct qm_adafactor8 *a;
    enum form form;
    const float *x; /* as `taken` says, if is_taken */
    struct qm_moment taken;
    int is_taken, is_usual; /* is_usual: all numbers are as struct qm_root requires */
    const float *row, *col;
    double floor;                /* KERNEL */
    double *mean;                /* [batch] */
    double *row_root, *col_root; /* [batch rows], [batch cols] */
    void *own;                   /* row and col, where they are no slots; or NULL */
};

/* Elements between those in work and those that are prefetched. */
enum { AHEAD = 8192 };

/* n numbers of row i from column j on; out may be x. */
static void form_row(const struct factored *f, int64_t i, int64_t j, int64_t n, const float *x,
                     float *out)
{
    int64_t batch = i / f->a->rows, k = batch * f->a->cols + j;
    const struct qm_root r = {(double)f->row[i], f->mean[batch], f->floor, f->col + k,
                              f->col_root + k};
    if (f->form != KERNEL)
        qm_tensor_rule_loops()->outer(n, f->row_root[i], r.root, x, out);
    else if (f->is_usual)
        qm_tensor_rule_loops()->over_root(&r, n, x, out);
    else
        for (int64_t c = 0; c < n; c++)
            out[c] = qm_over_root(r.row, (double)r.col[c], r.mean, r.floor, x[c]);
}

static void form_factored(const void *how, int64_t from, int64_t n, float *out)
{
    const struct factored *f = how;
    const float *x = f->x + from;
    if (f->is_taken) {
        qm_tensor_rule_loops()->taken(&f->taken, n, x, out);
        x = out;
    }
    for (int64_t done = 0, m; done < n; done += m) {
        int64_t i = (from + done) / f->a->cols, j = from + done - i * f->a->cols;
        m = f->a->cols - j < n - done ? f->a->cols - j : n - done;
        form_row(f, i, j, m, x + done, out + done);
    }
}

static void roots_of(struct factored *f)
{
    const struct qm_adafactor8 *a = f->a;
    f->is_usual = 1;
    for (int64_t k = 0; k < a->batch; k++)
        f->is_usual = f->is_usual && f->mean[k] > 0.0 && isfinite(f->mean[k]);
    for (int64_t i = 0; i < a->batch * a->rows; i++) {
        f->row_root[i] = qm_adafactor8_row_root(f->row[i], f->mean[i / a->rows], a->eps_sq);
        f->is_usual = f->is_usual && f->row[i] >= 0.0f && f->row[i] <= FLT_MAX;
    }
    for (int64_t j = 0; j < a->batch * a->cols; j++) {
        f->col_root[j] = f->form == KERNEL ? 1.0 / sqrt((double)f->col[j])
                                           : qm_adafactor8_col_root(f->col[j], a->eps_sq);
        f->is_usual = f->is_usual && f->col[j] >= 0.0f && f->col[j] <= FLT_MAX;
    }
}

/* Makes all of it, on a device. */
static void make_there(struct factored *f)
{
    const struct qm_adafactor8 *a = f->a;
    float *out = a->w->room;
    if (f->is_taken)
        qm_tensor_rule_loops()->taken(&f->taken, a->n, f->x, out);
    qm_sweep_run(f->form == KERNEL ? QM_SWEEP_adafactor8_over_root : QM_SWEEP_adafactor8_outer,
                 &(struct qm_sweep){
                     .n = a->n,
                     .rows = a->rows,
                     .cols = a->cols,
                     .d = {[QM_ADAFACTOR8_FLOOR] = f->form == KERNEL ? f->floor : a->eps_sq},
                     .x = {out, f->is_taken ? out : QM_AT(f->x), QM_AT(f->row), QM_AT(f->col)},
                     .y = {f->mean}});
    f->u.made = out;
}

/* mean[batch] = the means of the row averages, at least eps1. */
static void means_of(const struct qm_adafactor8 *a, enum form form, float *row, double *mean)
{
    struct qm_sweep s = {.n = a->batch, .cols = a->rows, .x = {NULL, row}, .y = {mean}};
    s.d[QM_ADAFACTOR8_MEAN_CLAMP] = a->eps_sq;
    s.d[QM_ADAFACTOR8_MEAN_LEAST] = a->eps1;
    s.flag[QM_ADAFACTOR8_MEAN_CLAMPS] = form == TORCH_CLAMPED;
    qm_sweep_run(QM_SWEEP_adafactor8_mean, &s);
}

/* The package's block size of a second moment; numbers that are coded once more have it, too. */
enum { RECODED_BLOCK = 2048 };

/* x[n] is coded in log2 and decoded again. */
static qm_status recode(float *x, int64_t n)
{
    int64_t blocks = (n + RECODED_BLOCK - 1) / RECODED_BLOCK;
    void *span = NULL;
    QM_TRY(qm_tensor_rule_alloc(sizeof(float) * (size_t)blocks, &span));
    struct qm_sweep s = {.n = blocks, .rows = n, .inner = RECODED_BLOCK, .x = {span, x}};
    qm_sweep_run(QM_SWEEP_adafactor8_top, &s);
    s = (struct qm_sweep){.n = n, .inner = RECODED_BLOCK, .x = {x, span}};
    qm_sweep_run(QM_SWEEP_adafactor8_recode, &s);
    qm_tensor_rule_free(span);
    return QM_OK;
}

static void factored_close(struct factored *f)
{
    if (f->mean)
        qm_tensor_rule_free(f->mean);
    qm_tensor_rule_free(f->own);
}

/* taken: how x is taken in before, or NULL.  RECODED changes row and col.  The caller closes f; an
 * f that is all zero may be closed too. */
static qm_status factored_open(const struct qm_adafactor8 *a, float *row, float *col,
                               enum form form, const float *x, const struct qm_moment *taken,
                               struct factored *f)
{
    int64_t n_rows = a->batch * a->rows, n_cols = a->batch * a->cols;
    void *room = NULL;
    QM_TRY(qm_tensor_rule_alloc(
        sizeof(double) * (size_t)(a->batch + (qm_tensor_rule_device() ? 0 : n_rows + n_cols)),
        &room));
    *f = (struct factored){.u = {form_factored, f, NULL},
                           .a = a,
                           .form = form == RECODED ? KERNEL : form,
                           .x = x,
                           .is_taken = taken != NULL,
                           .row = row,
                           .col = col,
                           .floor = fmax(a->eps_sq, 0x1p-53),
                           .mean = room};
    if (taken)
        f->taken = *taken;
    means_of(a, form, row, f->mean);
    if (form == RECODED) {
        QM_TRY(recode(row, n_rows));
        QM_TRY(recode(col, n_cols));
    }
    f->row_root = f->mean + a->batch;
    f->col_root = f->row_root + n_rows;
    if (qm_tensor_rule_device())
        make_there(f);
    else
        roots_of(f);
    return QM_OK;
}

static double norm_of(const float *x, int64_t n)
{
    return qm_adafactor8_norm(&(struct qm_lazy_floats){.made = x}, n, 1);
}

/* CAME.  The momentum takes in the clipped direction (in round 0; on the CUDA path in round 1),
 * and the confidence takes in the squared difference between the direction and the momentum (in
 * round 0; in round 2).  On the CUDA path each of the two reads the states before it as they are
 * stored. */
struct came {
    const struct qm_adafactor8 *a;
    struct factored f;
    struct qm_moment how;
    float denom;
};

/* (direction - momentum)^2, where in round 0 the momentum is updated before. */
static void form_missed(const void *how, int64_t from, int64_t n, float *out)
{
    const struct came *c = how;
    const struct qm_tensor_rule_loops *b = qm_tensor_rule_loops();
    float *u = qm_lazy_floats_at(&c->f.u, from, n, out), *m = c->a->w->slot[QM_ADAFACTOR8_M] + from;
    if (c->a->w->round != 1) { /* in round 1 the prefetcher of the processor does better alone */
        qm_ahead(c->a->w->g + from + AHEAD, n);
        qm_ahead(m + AHEAD, n);
    }
    if (b->came && !c->how.is_lerp) {
        b->came(&c->how, c->a->w->round, n, c->denom, (float)c->a->h->eps, m, u);
        return;
    }
    b->divide(n, c->denom, u);
    if (c->a->w->round < 2)
        b->moment(&c->how, n, u, m);
    if (c->a->w->round != 1)
        b->residual(n, (float)c->a->h->eps, m, u);
}

static void take_momentum(const struct came *c, int64_t from, int64_t n)
{
    float room[QM_TENSOR_CHUNK];
    form_missed(c, from, n, room);
}

/* The divisor of the direction, such that its RMS is at most clip; round 1 leaves it in the room
 * for round 2. */
static float denominator(const struct came *c)
{
    const struct qm_adafactor8 *a = c->a;
    float denom = 0.0f;
    if (a->w->round == 2) {
        qm_tensor_rule_read(&denom, a->w->room, sizeof denom);
        return denom;
    }
    double rms = qm_adafactor8_norm(&c->f.u, a->n, 1) / sqrt((double)a->n);
    return a->h->clip > 0.0 ? (float)qm_at_least(rms / a->h->clip, 1.0) : 1.0f;
}

static qm_status came_states(struct qm_adafactor8 *a)
{
    const struct qm_moment turned = moment_of(a, 1, 0);
    struct came c = {.a = a, .how = moment_of(a, 0, a->is_cuda)};
    int round = a->w->round;
    if (round == 2)
        c.denom = denominator(&c);
    QM_TRY(factored_open(a, a->w->slot[QM_ADAFACTOR8_ROW], a->w->slot[QM_ADAFACTOR8_COL], TORCH,
                         a->w->g, a->h->maximize ? &turned : NULL, &c.f));
    if (round < 2)
        c.denom = denominator(&c);
    qm_status st = QM_OK;
    if (round == 1) {
        QM_CHUNKS(a->n, i)
        take_momentum(&c, i, qm_chunk_n(a->n, i));
        qm_tensor_rule_write(a->w->room, &c.denom, sizeof c.denom);
    } else {
        a->b = 1.0 - a->h->beta3;
        st = factor_states(a, (struct qm_term){0}, &(struct qm_lazy_floats){form_missed, &c, NULL},
                           0.0f, QM_ADAFACTOR8_CONF_ROW, NULL);
    }
    factored_close(&c.f);
    return st;
}

/* CAME before 0.2.6: the confidence takes in ((g - M) / sqrt(V))^2.  The source sums the three
 * products of (g - M)^2 apart in float32; here the distance is formed before it is squared. */
static qm_status old_came_states(struct qm_adafactor8 *a)
{
    float *off = a->w->room;
    struct factored f = {.mean = NULL};
    qm_adafactor8_gradients(a, a->is_cuda && a->is_025, off);
    qm_sweep_run(a->is_cuda ? QM_SWEEP_less : QM_SWEEP_adafactor8_missed,
                 &(struct qm_sweep){.n = a->n, .x = {off, a->w->slot[QM_ADAFACTOR8_M]}});
    QM_TRY(factored_open(a, a->w->slot[QM_ADAFACTOR8_ROW], a->w->slot[QM_ADAFACTOR8_COL],
                         a->is_cuda ? KERNEL : TORCH, off, NULL, &f));
    a->b = 1.0 - a->h->beta3;
    qm_status st = factor_states(a, (struct qm_term){.is_square = 1}, &f.u, 0.0f,
                                 QM_ADAFACTOR8_CONF_ROW, a->is_cuda ? NULL : f.mean);
    factored_close(&f);
    return st;
}

/* The moment takes in the clipped update of a tensor that is not factored. */
static void unit_states(const struct qm_adafactor8 *a)
{
    const struct qm_moment how = moment_of(a, 0, 0);
    float *u = a->w->room, *m = a->w->slot[QM_ADAFACTOR8_M];
    qm_adafactor8_gradients(a, 0, u);
    qm_sweep_run(QM_SWEEP_adafactor8_direction,
                 &(struct qm_sweep){.n = a->n,
                                    .d = {[QM_ADAFACTOR8_FLOOR] = a->eps_sq},
                                    .x = {u, u, a->w->slot[QM_ADAFACTOR8_V]}});
    double rms = norm_of(u, a->n) / sqrt((double)a->n);
    float by = a->h->clip > 0.0 ? (float)qm_at_least(rms / a->h->clip, 1.0) : 1.0f;
    QM_CHUNKS(a->n, i)
    qm_tensor_rule_loops()->divide(qm_chunk_n(a->n, i), by, u + i);
    QM_CHUNKS(a->n, i)
    qm_tensor_rule_loops()->moment(&how, qm_chunk_n(a->n, i), u + i, m + i);
}

qm_status qm_adafactor8_states(const struct qm_tensor_rule_args *w)
{
    struct qm_adafactor8 a = qm_adafactor8_open(w);
    if (a.n == 0)
        return QM_OK;
    if (a.is_apollo)
        return qm_adafactor8_apollo_states(&a);
    qm_status st = QM_OK;
    if (!a.is_factored && !a.is_sgd)
        unfactored_states(&a);
    if (a.is_factored && w->round == 0) /* squares have no sign to turn */
        st = factor_states(&a, (struct qm_term){.is_square = 1},
                           &(struct qm_lazy_floats){.made = w->g}, added(&a), QM_ADAFACTOR8_ROW,
                           NULL);
    const struct qm_moment how = moment_of(&a, 1, a.is_cuda);
    if (a.is_unit)
        unit_states(&a);
    if (st == QM_OK && a.has_m && !a.is_unit && w->round == 0 && (!a.is_came || a.is_old_came)) {
        QM_CHUNKS(a.n, i)
        qm_tensor_rule_loops()->moment(&how, qm_chunk_n(a.n, i), w->g + i,
                                       w->slot[QM_ADAFACTOR8_M] + i);
    }
    if (st == QM_OK && a.is_came && (w->round > 0 || !a.is_cuda))
        st = a.is_old_came ? old_came_states(&a) : came_states(&a);
    return st;
}

/* ---- the step ------------------------------------------------------------------------------- */

double qm_adafactor8_rate(const struct qm_adafactor8 *a)
{
    if (!a->h->scale_parameter)
        return a->rho;
    return qm_at_least(norm_of(a->w->p, a->n) / sqrt((double)a->n), a->h->eps2) * a->rho;
}

static void write_chunk(const struct qm_lazy_floats *u, int64_t from, int64_t n, float keep,
                        float by, float *p)
{
    float room[QM_TENSOR_CHUNK];
    qm_tensor_rule_loops()->decay_step(n, keep, by, qm_lazy_floats_at(u, from, n, room), p + from);
}

static void write_lazy(const struct qm_adafactor8 *a, double alpha, double rate,
                       const struct qm_lazy_floats *u)
{
    const struct qm_hyper *h = a->h;
    float keep = (float)(1.0 - h->weight_decay * (h->scale_weight_decay ? alpha : a->rho));
    if (a->w->param != QM_DTYPE_f32 && h->weight_decay != 0.0) {
        qm_sweep_run(QM_SWEEP_adafactor8_decay,
                     &(struct qm_sweep){.n = a->n,
                                        .c = {[QM_ADAFACTOR8_DECAY_KEEP] = keep},
                                        .flag = {[QM_STORED_BF16] = a->w->param == QM_DTYPE_bf16,
                                                 [QM_STORED_F16] = a->w->param == QM_DTYPE_f16},
                                        .x = {a->w->p}});
        keep = 1.0f;
    }
    QM_CHUNKS(a->n, i)
    write_chunk(u, i, qm_chunk_n(a->n, i), keep, (float)rate, a->w->p);
}

void qm_adafactor8_write(const struct qm_adafactor8 *a, double alpha, double rate, const float *u)
{
    write_lazy(a, alpha, rate, &(struct qm_lazy_floats){.made = u});
}

/* CAME before 0.2.6: the momentum over the root of second moment times confidence. */
static qm_status old_came_direction(const struct qm_adafactor8 *a, struct factored *f)
{
    float *const *slot = a->w->slot;
    int64_t n_rows = a->batch * a->rows, n_cols = a->batch * a->cols;
    void *room = NULL;
    QM_TRY(qm_tensor_rule_alloc(sizeof(float) * (size_t)(n_rows + n_cols), &room));
    float *row = room, *col = row + n_rows;
    struct qm_sweep s = {
        .n = n_rows,
        .c = {[QM_ADAFACTOR8_PRODUCT_LEAST] = a->is_cuda ? QM_ADAFACTOR8_TINY : (float)a->eps_sq},
        .x = {row, slot[QM_ADAFACTOR8_ROW], slot[QM_ADAFACTOR8_CONF_ROW]}};
    qm_sweep_run(QM_SWEEP_adafactor8_product, &s);
    s.n = n_cols;
    s.x[0] = col;
    s.x[1] = slot[QM_ADAFACTOR8_COL];
    s.x[2] = slot[QM_ADAFACTOR8_CONF_COL];
    qm_sweep_run(QM_SWEEP_adafactor8_product, &s);
    qm_status st =
        factored_open(a, row, col, a->is_cuda ? RECODED : TORCH, slot[QM_ADAFACTOR8_M], NULL, f);
    f->own = room;
    return st;
}

/* SGD: u is the average of the gradients, (1 - beta1) taken off again. */
static void plain_direction(const struct qm_adafactor8 *a, const float *x, float *u)
{
    qm_sweep_run(QM_SWEEP_copy, &(struct qm_sweep){.n = a->n, .x = {u, QM_AT(x)}});
    if (a->has_m)
        qm_sweep_run(QM_SWEEP_divide,
                     &(struct qm_sweep){
                         .n = a->n, .c = {[QM_DIVIDE_BY] = (float)(1.0 - a->h->beta1)}, .x = {u}});
}

/* The direction before clipping. */
static qm_status direction(const struct qm_adafactor8 *a, struct factored *f)
{
    const struct qm_moment taken = moment_of(a, 1, a->is_cuda && a->is_025);
    const float *x = a->has_m ? a->w->slot[QM_ADAFACTOR8_M] : a->w->g;
    float *row = a->w->slot[a->is_came ? QM_ADAFACTOR8_CONF_ROW : QM_ADAFACTOR8_ROW];
    float *col = a->w->slot[a->is_came ? QM_ADAFACTOR8_CONF_COL : QM_ADAFACTOR8_COL];
    if (a->is_old_came)
        return old_came_direction(a, f);
    enum form form = a->is_cuda ? KERNEL : TORCH;
    if (a->is_came && !a->is_046 && a->w->slot_is_f32[QM_ADAFACTOR8_CONF_ROW])
        form = TORCH_CLAMPED;
    if (a->is_came || a->is_factored)
        return factored_open(a, row, col, form, x, a->has_m ? NULL : &taken, f);
    float *u = a->w->room;
    if (a->is_unit) {
        f->u.made = x;
        return QM_OK;
    }
    if (!a->has_m) {
        qm_adafactor8_gradients(a, a->is_cuda && a->is_025, u);
        x = u;
    }
    f->u.made = u;
    if (a->is_sgd) {
        plain_direction(a, x, u);
        return QM_OK;
    }
    struct qm_sweep s = {.n = a->n, .x = {u, QM_AT(x), a->w->slot[QM_ADAFACTOR8_V]}};
    if (a->is_adam) {
        s.d[QM_ADAFACTOR8_ADAM_EPS] = a->adam_eps;
        s.flag[QM_ADAFACTOR8_ADAM_RECIPROCAL] = a->has_m;
    } else {
        s.d[QM_ADAFACTOR8_FLOOR] = a->is_cuda ? fmax(a->eps_sq, 0x1p-53) : a->eps_sq;
        s.flag[QM_ADAFACTOR8_DIRECTION_NAN] = a->is_cuda;
    }
    qm_sweep_run(a->is_adam ? QM_SWEEP_adafactor8_adam : QM_SWEEP_adafactor8_direction, &s);
    return QM_OK;
}

/* Whether the step is clipped.  CAME of 0.2.6 has clipped the direction before, and clips again
 * only where its states are quantized and no kernel runs. */
static int clips(const struct qm_adafactor8 *a)
{
    if (a->is_046)
        return !a->is_came && !a->is_unit && a->h->clip > 0.0;
    return !a->is_came || a->is_old_came ||
           (a->h->clip_twice && !a->w->slot_is_f32[QM_ADAFACTOR8_CONF_ROW]);
}

qm_status qm_adafactor8_apply(const struct qm_tensor_rule_args *w)
{
    struct qm_adafactor8 a = qm_adafactor8_open(w);
    struct factored f = {.mean = NULL};
    if (a.n == 0)
        return QM_OK;
    if (a.is_apollo)
        return qm_adafactor8_apollo_apply(&a);
    QM_TRY(direction(&a, &f));
    double norm = qm_adafactor8_norm(&f.u, a.n, !a.is_cuda);
    double limit = a.h->limiter ? qm_adafactor8_limit(&a, norm) : 1.0;
    int is_stopped = a.h->limiter && a.is_025 && !isfinite(norm);
    norm = is_stopped ? 0.0 : norm;
    double alpha = qm_adafactor8_rate(&a) * a.correction;
    /* 0.2.6 turns it off by 1e9, later releases leave it out; the kernels take a NaN for 1 */
    double d = clips(&a) ? a.h->clip : 1e9, clipped = a.is_026 ? norm : norm * limit;
    double denom = qm_at_least(clipped / (sqrt((double)a.n) * d), 1.0);
    denom = (a.is_046 && !clips(&a)) || (a.is_cuda && isnan(denom)) ? 1.0 : denom;
    if (is_stopped && !a.is_cuda) { /* the kernels take the norm for 0, and leave the update */
        qm_sweep_run(QM_SWEEP_fill, &(struct qm_sweep){.n = a.n, .x = {w->room}});
        f.u.made = w->room;
        if (a.is_unit && w->slot_is_f32[QM_ADAFACTOR8_M]) /* the moment is the update */
            qm_sweep_run(QM_SWEEP_fill,
                         &(struct qm_sweep){.n = a.n, .x = {w->slot[QM_ADAFACTOR8_M]}});
    }
    write_lazy(&a, alpha, alpha / denom * limit, &f.u);
    factored_close(&f);
    return QM_OK;
}
