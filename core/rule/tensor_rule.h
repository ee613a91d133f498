/* whole.h - what rules over whole tensors share: matrices of a shape, sums (whole_sums.c), factored moments.
 *
 * Every sum is taken in double in the order of the indices and rounded to float32 once, so it
 * depends on no thread and no instruction set; the sources' own orders are not portable. */
#ifndef QM_RULE_WHOLE_H
#define QM_RULE_WHOLE_H

#include "core/rule/tensor_rule_loops.h"

/* Where a rule's arrays lie when that is not the host's memory: its step is then the same calls, of which
 * each is a launch there (core/device/tensor_rule_plan.c).  What fails is kept and told after the step. */
struct qm_tensor_rule_device {
    const struct qm_tensor_rule_loops *blocks; /* squares, row_sums, col_sums, came: none */
    qm_status (*room)(size_t bytes, void **out);
    void (*release)(void *p);
    void (*get)(void *to, const void *from, size_t bytes);
    void (*put)(void *to, const void *from, size_t bytes);
    void (*sweep)(enum qm_sweep_kind kind, const struct qm_sweep *a); /* n > 0 */
    qm_status (*kept)(int64_t key, size_t bytes, void **out, int *is_new);
};

/* Of this thread, from now on; NULL: the host. */
void qm_tensor_rule_set_device(const struct qm_tensor_rule_device *d);
const struct qm_tensor_rule_device *qm_tensor_rule_device(void);

/* One operation on every index: all threads where that is worth it, or a launch. */
void qm_sweep_run(enum qm_sweep_kind kind, const struct qm_sweep *a);

/* Memory where the rule's arrays lie, and numbers between there and here; release accepts NULL. */
qm_status qm_tensor_rule_alloc(size_t bytes, void **out);
void qm_tensor_rule_free(void *p);

/* The same for what the host works out now and then: on a device one array a tensor stays there from
 * step to step, always of that size.  *is_new: it does not hold yet what this key names, and the caller
 * puts it there; on the host, always. */
qm_status qm_tensor_rule_cached(int64_t key, size_t bytes, void **out, int *is_new);

void qm_tensor_rule_read(void *to, const void *from, size_t bytes);
void qm_tensor_rule_write(void *to, const void *from, size_t bytes);

/* Arguments of operations are not const, what they read included. */
#define QM_AT(x) ((float *)(uintptr_t)(x))

/* Elements, from which on loops run on several threads; elements that one thread takes in turn. */
enum { QM_THREADS_FROM = 1 << 16, QM_OWNED = 1 << 16 };

/* The loop that follows runs on all threads if `when`.  OWNED: it is a loop over chunks, and each thread gets
 * QM_OWNED elements in turn, so that it finds in its cache what it wrote in the pass before. */
#define QM_PRAGMA(text) _Pragma(#text)
#define QM_PARALLEL(when) QM_PRAGMA(omp parallel for schedule(static) if (when))
#define QM_PARALLEL_OWNED(when) \
    QM_PRAGMA(omp parallel for schedule(static, QM_OWNED / QM_TENSOR_CHUNK) if (when))

/* Elements of a chunk: on a device, all of them. */
static inline int64_t qm_chunk_size(int64_t total)
{
    return qm_tensor_rule_device() && total > 0 ? total : QM_TENSOR_CHUNK;
}

/* Elements of the chunk that begins at `from`. */
static inline int64_t qm_chunk_n(int64_t total, int64_t from)
{
    int64_t size = qm_chunk_size(total);
    return total - from < size ? total - from : size;
}

/* A loop over the chunks of `total` elements, in which `from` is the first element of a chunk: on all threads
 * where that is worth it.  The body touches elements [from, from + qm_chunk_n(total, from)) only, by
 * qm_tensor_rule_loops(). */
#define QM_CHUNKS(total, from)                                                      \
    QM_PARALLEL_OWNED(qm_chunk_size(total) < (total) && (total) >= QM_THREADS_FROM) \
    for (int64_t from = 0; from < (total); from += qm_chunk_size(total))

/* Numbers that a rule forms as they are wanted, so that they need not go to memory and back: `form` writes those
 * from number `from` on, n > 0 of them, to out, on any thread. */
struct qm_formed {
    void (*form)(const void *how, int64_t from, int64_t n, float *out);
    const void *how;
    const float *made; /* where all of them lie already; NULL: nowhere */
};

/* Asks for x[n], which will be wanted soon, before the processor would foresee it. */
static inline void qm_ahead(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i += 16)
        __builtin_prefetch(x + i, 0, 2);
}

/* n of them where they lie, or in `room`. */
static inline float *qm_formed_at(const struct qm_formed *f, int64_t from, int64_t n, float *room)
{
    if (f->made)
        return QM_AT(f->made + from);
    f->form(f->how, from, n, room);
    return room;
}

/* The last two dims; the dims before them are a batch of independent matrices. */
struct qm_matrices {
    int64_t batch, rows, cols;
};

/* 0 for tensors of less than two dims, which have no matrices. */
int qm_matrices_of(const struct qm_shape *s, struct qm_matrices *out);

/* The shape without its last, or without its second-to-last dim; dim {0} for an empty tensor or
 * one of less than two dims. */
void qm_shape_of_rows(const struct qm_shape *s, struct qm_shape *out);
void qm_shape_of_cols(const struct qm_shape *s, struct qm_shape *out);

static inline struct qm_shape qm_shape_none(void)
{
    return (struct qm_shape){.rank = 1, .dim = {0}};
}

/* row[batch * rows], col[batch * cols]: means of the terms of x[batch][rows][cols] over the other
 * dim. */
void qm_row_means(const struct qm_matrices *m, struct qm_term t, const float *x, float *row);
void qm_col_means(const struct qm_matrices *m, struct qm_term t, const float *x, float *col);

/* Both at once, while each part of x is at hand.  A number that is not made yet is formed once, on a device in
 * room[batch][rows][cols]. */
qm_status qm_two_means(const struct qm_matrices *m, struct qm_term t, const struct qm_formed *x,
                       float *room, float *row, float *col);

/* ((x[0]^2 + x[1]^2) + x[2]^2) + ..., every addition rounded: that very double, in parallel.
 *
 * While the running sum s lies in [2^E, 2^(E+1)), all of it are multiples of u = 2^(E-52), and so is the
 * next one, s + v rounded: it is s + (v rounded to a multiple of u), unless v lies half way between
 * two of them, where the parity of s decides.  So a block adds the sum of its rounded terms, which is
 * exact in any order while s stays below 2^(E+1); one with such ties has two sums, for either parity, and
 * where s reaches 2^(E+1) the block goes one by one. */
double qm_sum_squares(const float *x, int64_t n);

/* The same of numbers that may be formed, some of them twice; on a device they are made. */
double qm_sum_squares_of(const struct qm_formed *x, int64_t n);

/* out[a][c] = sum over k of x[a step_a + k step_k] y[k][c], rows x cols, in double in the order of k. */
void qm_product(const float *x, int64_t step_a, int64_t step_k, const float *y, int64_t rows,
                int64_t inner, int64_t cols, float *out);

float qm_norm2(const float *x, int64_t n);

/* torch.norm of float32 on CPU with AVX2, one thread (sweep.h). */
float qm_lane_norm(const float *x, int64_t n);

/* The norm over the root of the count, both float32: tensor.norm(2) / numel ** 0.5. */
float qm_rms(const float *x, int64_t n);

/* old <- old * decay + x * weight, the addition fused: mul_(decay).add_(x, alpha=weight). */
void qm_average(float *old, const float *x, int64_t n, double decay, double weight);

/* out <- (r / mean(r))^(-1/2) c^(-1/2) x, r's mean over the rows of each matrix: by the inverse root
 * of the factored second moment in the order of transformers' and CAME's _approx_sq_grad.  out may be
 * x. */
qm_status qm_factor_rsqrt(const struct qm_matrices *m, const float *row, const float *col,
                          const float *x, float *out);

/* The mean of the rows' averages of each matrix, row[batch][rows]: *out[batch], to be released. */
qm_status qm_batch_means(const struct qm_matrices *m, const float *row, float **out);

/* x / max(1, rms(x) / clip). */
void qm_clip_rms(float *x, int64_t n, double clip);

#endif
