/* tensor_rule.h - What tensor rules share: devices, chunks, matrices, sums, factored moments.
 *
 * Every sum is taken in double in the order of the indices and rounded to float32 once, so it
 * depends on no thread and no instruction set; the orders of the sources are not portable. */
#ifndef QM_RULE_TENSOR_RULE_H
#define QM_RULE_TENSOR_RULE_H

#include "core/rule/tensor_rule_loops.h"

/* A device in whose memory the arrays of a tensor rule lie.  A step of the rule makes the same
 * calls as on the host, and each call launches a kernel (core/device/tensor_rule_plan.c).  The
 * device keeps a failure and reports it after the step.  Of its loops only moment, taken, divide,
 * multiply, residual, decay_step, average, decay, add_scaled and lpmm_lerp are not NULL. */
struct qm_tensor_rule_device {
    const struct qm_tensor_rule_loops *loops;
    qm_status (*room)(size_t bytes, void **out);
    void (*release)(void *p);
    void (*get)(void *to, const void *from, size_t bytes);
    void (*put)(void *to, const void *from, size_t bytes);
    void (*sweep)(enum qm_sweep_kind kind, const struct qm_sweep *a); /* n > 0 */
    qm_status (*kept)(int64_t key, size_t bytes, void **out, int *is_new);
};

/* Sets the device of this thread's rules from now on; NULL: the host. */
void qm_tensor_rule_set_device(const struct qm_tensor_rule_device *d);
const struct qm_tensor_rule_device *qm_tensor_rule_device(void);

/* Runs one operation on every index i < a->n: on all threads where that is worth it, or as
 * a launch. */
void qm_sweep_run(enum qm_sweep_kind kind, const struct qm_sweep *a);

/* Memory where the arrays of the rule lie: on the device or on the host.  free accepts NULL. */
qm_status qm_tensor_rule_alloc(size_t bytes, void **out);
void qm_tensor_rule_free(void *p);

/* The same for an array that the host computes now and then.  A device keeps one such array per
 * tensor from step to step, always of the same size.  *is_new = 1: the array does not hold yet what
 * this key names, and the caller writes it; on the host always. */
qm_status qm_tensor_rule_cached(int64_t key, size_t bytes, void **out, int *is_new);

/* read copies from the memory of the rule's arrays to the host; write copies back. */
void qm_tensor_rule_read(void *to, const void *from, size_t bytes);
void qm_tensor_rule_write(void *to, const void *from, size_t bytes);

/* Casts const away: the members of struct qm_sweep are not const, even where the operation
 * only reads. */
#define QM_AT(x) ((float *)(uintptr_t)(x))

/* QM_THREADS_FROM: loops over at least so many elements run on several threads.  QM_OWNED: the
 * consecutive elements that a thread takes at a time. */
enum { QM_THREADS_FROM = 1 << 16, QM_OWNED = 1 << 16 };

/* The loop that follows runs on all threads if `when` is not 0.  OWNED: it is a loop over chunks,
 * and each thread gets QM_OWNED elements in turn, so that it finds in its cache what it wrote in
 * the pass before. */
#define QM_PRAGMA(text) _Pragma(#text)
#define QM_PARALLEL(when) QM_PRAGMA(omp parallel for schedule(static) if (when))
#define QM_PARALLEL_OWNED(when) \
    QM_PRAGMA(omp parallel for schedule(static, QM_OWNED / QM_TENSOR_CHUNK) if (when))

/* Elements of a chunk: on a device, all of them. */
static inline int64_t qm_chunk_size(int64_t total)
{
    return qm_tensor_rule_device() && total > 0 ? total : QM_TENSOR_CHUNK;
}

/* Elements of the chunk that begins at `from`; on a device only one chunk begins, at 0. */
static inline int64_t qm_chunk_n(int64_t total, int64_t from)
{
    int64_t size = from > 0 ? QM_TENSOR_CHUNK : qm_chunk_size(total);
    return total - from < size ? total - from : size;
}

/* A loop over the chunks of `total` elements, in which `from` is the first element of a chunk: on
 * all threads where that is worth it.  The body touches elements [from, from + qm_chunk_n(total,
 * from)) only, by qm_tensor_rule_loops(). */
#define QM_CHUNKS(total, from)                                                      \
    QM_PARALLEL_OWNED(qm_chunk_size(total) < (total) && (total) >= QM_THREADS_FROM) \
    for (int64_t from = 0; from < (total); from += qm_chunk_size(total))

/* Numbers that a rule forms when they are needed, so that they need not go to memory and back.
 * `form` writes numbers from .. from + n - 1, n > 0, to out; it may run on any thread. */
struct qm_lazy_floats {
    void (*form)(const void *how, int64_t from, int64_t n, float *out);
    const void *how;
    const float *made; /* all of them, if they are in memory; otherwise NULL */
};

/* Prefetches x[n], which is needed soon, earlier than the processor would by itself. */
static inline void qm_ahead(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i += 16)
        __builtin_prefetch(x + i, 0, 2);
}

/* Numbers from .. from + n - 1: in memory, or formed in room[n]. */
static inline float *qm_lazy_floats_at(const struct qm_lazy_floats *f, int64_t from, int64_t n,
                                       float *room)
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

/* row[batch * rows], col[batch * cols]: means of the terms of x[batch][rows][cols] over columns,
 * and over rows. */
void qm_row_means(const struct qm_matrices *m, struct qm_term t, const float *x, float *row);
void qm_col_means(const struct qm_matrices *m, struct qm_term t, const float *x, float *col);

/* Both in one pass over x.  Numbers that are not made yet are formed once each; on a device,
 * in room[batch][rows][cols]. */
qm_status qm_two_means(const struct qm_matrices *m, struct qm_term t,
                       const struct qm_lazy_floats *x, float *room, float *row, float *col);

/* For tests, of what sums over tensors do: ((x[0]^2 + x[1]^2) + x[2]^2) + ..., each addition
 * rounded to double: the bits of that chain, computed in parallel.
 *
 * While the running sum s lies in [2^E, 2^(E+1)), s is a multiple of u = 2^(E-52), and so is the
 * next value, s + v rounded to double: it is s + (v rounded to a multiple of u), unless v lies half
 * way between two multiples; then the last bit of s decides, as ties go to even.  So a block of
 * terms adds the sum of its rounded terms, which is exact in any order as long as s stays below
 * 2^(E+1).  A block that contains ties has two such sums, one for each last bit of s.  A block in
 * which s reaches 2^(E+1) is added term by term. */
double qm_sum_squares(const float *x, int64_t n);

/* The same for numbers that may be formed, some of them twice.  On a device, x must be made. */
double qm_sum_squares_of(const struct qm_lazy_floats *x, int64_t n);

/* The sum of the squares as float32 has it: infinite where it overflows there, and counts of 2^-149
 * where squares are that small. */
double qm_float_squares_of(const struct qm_lazy_floats *x, int64_t n);

/* out[a][c] = sum over k of x[a step_a + k step_k] y[k][c], rows x cols, in double in the order
 * of k. */
void qm_product(const float *x, int64_t step_a, int64_t step_k, const float *y, int64_t rows,
                int64_t inner, int64_t cols, float *out);

/* sqrt(sum of x[i]^2), rounded to float32 once; squares overflow and vanish as in float32, in which
 * the sources form them. */
float qm_root_of_squares(const float *x, int64_t n);

/* The same as torch.norm has it: of one number its absolute value, without a square. */
float qm_norm2(const float *x, int64_t n);

/* torch.norm of float32 on CPU with AVX2, one thread (sweep.h). */
float qm_lane_norm(const float *x, int64_t n);

/* The norm over the root of the count, both float32: tensor.norm(2) / numel ** 0.5. */
float qm_rms(const float *x, int64_t n);

/* old <- old * decay + x * weight, the addition fused: mul_(decay).add_(x, alpha=weight). */
void qm_average(float *old, const float *x, int64_t n, double decay, double weight);

/* out = (r / mean(r))^(-1/2) c^(-1/2) x for rows r and columns c of a factored second moment, where
 * mean(r) is taken over the rows of each matrix: the order of _approx_sq_grad of transformers and
 * CAME.  out may be x. */
qm_status qm_factor_rsqrt(const struct qm_matrices *m, const float *row, const float *col,
                          const float *x, float *out);

/* (*out)[batch]: the means of row[batch][rows] of each matrix.  The caller frees it
 * by qm_tensor_rule_free. */
qm_status qm_batch_means(const struct qm_matrices *m, const float *row, float **out);

/* x <- x / max(1, rms(x) / clip). */
void qm_clip_rms(float *x, int64_t n, double clip);

#endif
