/* mapped.c - Reads ranges of arrays in a memory-mapped file. */
#include <assert.h>
#include <string.h>
#include <sys/mman.h>

#include "experiments/readers/float8.h"
#include "experiments/readers/format.h"

#define RESIDENT_MAX ((size_t)64 << 20) /* bytes touched before pages are dropped */
#define PIECE_BYTES  ((size_t)4 << 20)  /* bytes converted between two counts of touched bytes */
#define FAULT_BYTES  ((size_t)64 << 10) /* bytes that one page fault maps (fault-around) */
#define RUN          512                /* elements swapped or scattered at a time */

void qm_sink_write(struct qm_sink sink, int64_t at, const void *src, enum qm_dtype dtype, int64_t n)
{
    if (sink.f && dtype == QM_DTYPE_f32)
        memcpy(sink.f + at, src, (size_t)n * sizeof(float));
    else if (sink.d && dtype == QM_DTYPE_f64)
        memcpy(sink.d + at, src, (size_t)n * sizeof(double));
    else if (sink.f)
        qm_to_float(src, dtype, 0, n, sink.f + at);
    else
        qm_to_double(src, dtype, 0, n, sink.d + at);
}

void qm_box_next(const struct qm_shape *s, int64_t from, int64_t n, struct qm_box *box)
{
    int64_t coord[QM_MAX_RANK], inner[QM_MAX_RANK]; /* inner[k]: stride of dimension k */
    int64_t rest = from, below = 1;
    for (int k = s->rank - 1; k >= 0; k--) {
        inner[k] = below;
        below *= s->dim[k];
        coord[k] = rest % s->dim[k];
        rest /= s->dim[k];
    }
    int d = s->rank - 1;
    while (d > 0 && coord[d] == 0 && n >= inner[d - 1])
        d--;
    box->numel = 1;
    for (int k = 0; k < s->rank; k++) {
        int64_t left = s->dim[k] - coord[k];
        box->start[k] = coord[k];
        box->count[k] = k < d ? 1 : k > d ? s->dim[k] : left < n / inner[k] ? left : n / inner[k];
        box->numel *= box->count[k];
    }
}

/* Bytes of an element of entry i in the mapping. */
static size_t mapped_size(const struct qm_file *f, int i)
{
    return f->place[i].code ? 1 : qm_dtype_size(f->entry[i].dtype);
}

/* Copies elements [first, first + n), counted in the file's order.  All conversions from the
 * mapping are made here, so the assertions guard every access. */
static void copy_run(const struct qm_file *f, int i, int64_t first, int64_t n, struct qm_sink sink,
                     int64_t at)
{
    const struct qm_array_location *p = &f->place[i];
    enum qm_dtype dtype = f->entry[i].dtype;
    size_t size = mapped_size(f, i);
    assert(first >= 0 && n <= f->entry[i].numel - first);
    assert(p->offset + (size_t)(first + n) * size <= f->size);
    const unsigned char *src = f->map + p->offset + (size_t)first * size;
    float value[RUN];
    for (int64_t done = 0, part; p->code && done < n; done += part) {
        part = n - done < RUN ? n - done : RUN;
        for (int64_t k = 0; k < part; k++)
            value[k] = qm_float8_value[p->code](src[done + k]);
        qm_sink_write(sink, at + done, value, dtype, part);
    }
    if (p->code)
        return;
    if (!p->swap) {
        qm_sink_write(sink, at, src, dtype, n);
        return;
    }
    unsigned char turned[RUN * sizeof(double)];
    for (int64_t done = 0; done < n;) {
        int64_t part = n - done < RUN ? n - done : RUN;
        for (int64_t k = 0; k < part; k++, src += size)
            for (size_t b = 0; b < size; b++)
                turned[(size_t)k * size + b] = src[size - 1 - b];
        qm_sink_write(sink, at + done, turned, dtype, part);
        done += part;
    }
}

/* The pages are clean: one that is needed again costs a minor fault. */
void qm_mapped_touched(struct qm_file *f, size_t bytes)
{
    uintptr_t inside = (uintptr_t)f->map % 4096; /* of a file within a file */
    if (f->size <= RESIDENT_MAX)
        return;
    f->resident += bytes < FAULT_BYTES ? FAULT_BYTES : bytes;
    if (f->resident > RESIDENT_MAX) {
        madvise((void *)(f->map - inside), f->size + inside, MADV_DONTNEED);
        f->resident = 0;
    }
}

/* The dimension that varies fastest but for `k` others. */
static int fastest(const struct qm_array_location *p, int rank, int k)
{
    return p->fortran == 2 ? (k + rank - 1) % rank : p->fortran ? k : rank - 1 - k;
}

/* Copies n elements along the fastest dimension of a Fortran array: adjacent in the file, `stride`
 * apart in the sink. */
static void copy_column(struct qm_file *f, int i, int64_t first, int64_t n, struct qm_sink sink,
                        int64_t at, int64_t stride)
{
    float run_f[RUN];
    double run_d[RUN];
    struct qm_sink run = {sink.f ? run_f : NULL, sink.d ? run_d : NULL};
    for (int64_t done = 0; done < n;) {
        int64_t part = n - done < RUN ? n - done : RUN;
        copy_run(f, i, first + done, part, run, 0);
        for (int64_t k = 0; k < part; k++) {
            if (sink.f)
                sink.f[at + (done + k) * stride] = run_f[k];
            else
                sink.d[at + (done + k) * stride] = run_d[k];
        }
        done += part;
        qm_mapped_touched(f, (size_t)part * mapped_size(f, i));
    }
}

/* Copies a box of a Fortran array in the file's order, so that accesses to a page are adjacent. */
static void copy_fortran_box(struct qm_file *f, int i, const struct qm_box *box,
                             struct qm_sink sink, int64_t at)
{
    const struct qm_shape *s = &f->entry[i].shape;
    int64_t in[QM_MAX_RANK], out[QM_MAX_RANK], index[QM_MAX_RANK] = {0};
    int64_t first = 0, step = 1;
    int dim[QM_MAX_RANK];
    for (int k = 0; k < s->rank; k++) {
        int d = dim[k] = fastest(&f->place[i], s->rank, k);
        in[d] = step;
        step *= s->dim[d];
        first += box->start[d] * in[d];
    }
    step = 1;
    for (int k = s->rank - 1; k >= 0; k--) {
        out[k] = step;
        step *= box->count[k];
    }
    for (int k = 0; k < s->rank;) {
        copy_column(f, i, first, box->count[dim[0]], sink, at, out[dim[0]]);
        for (k = 1; k < s->rank; k++) { /* counts up the index over the other dimensions */
            int d = dim[k];
            first += in[d];
            at += out[d];
            if (++index[d] < box->count[d])
                break;
            first -= index[d] * in[d];
            at -= index[d] * out[d];
            index[d] = 0;
        }
    }
}

qm_status qm_mapped_check(const struct qm_file *f)
{
    QM_TRY(qm_file_mark_check(&f->mark, f->path));
    return qm_mapping_has_lost(f->mapping) ? qm_file_mark_lost(&f->mark, f->path) : QM_OK;
}

const float *qm_mapped_view(struct qm_file *f, int i, int64_t from, int64_t n)
{
    const struct qm_entry *e = &f->entry[i];
    const struct qm_array_location *p = &f->place[i];
    if (!f->map || e->dtype != QM_DTYPE_f32 || p->swap || p->code ||
        (p->fortran && e->shape.rank > 1) || p->offset % _Alignof(float) != 0 ||
        qm_mapped_check(f) != QM_OK)
        return NULL;
    qm_mapped_touched(f, (size_t)n * sizeof(float));
    return (const float *)(const void *)(f->map + p->offset) + from;
}

/* Copies elements as they are, in C order and in this machine's byte order, whatever the file's. */
static void copy_turned(struct qm_file *f, int i, unsigned char *out)
{
    const struct qm_entry *e = &f->entry[i];
    const struct qm_array_location *p = &f->place[i];
    const size_t size = qm_dtype_size(e->dtype);
    int64_t step[QM_MAX_RANK], index[QM_MAX_RANK] = {0}, from = 0;
    for (int k = 0, last = 0; k < e->shape.rank; k++) {
        int d = fastest(p, e->shape.rank, k);
        step[d] = k == 0 ? 1 : step[last] * e->shape.dim[last];
        last = d;
    }
    for (int64_t n = 0; n < e->numel; n++, out += size) {
        const unsigned char *in = f->map + p->offset + (size_t)from * size;
        for (size_t b = 0; b < size; b++)
            out[b] = in[p->swap ? size - 1 - b : b];
        for (int k = e->shape.rank - 1; k >= 0; k--) {
            from += step[k];
            if (++index[k] < e->shape.dim[k])
                break;
            from -= index[k] * step[k];
            index[k] = 0;
        }
    }
    qm_mapped_touched(f, (size_t)e->numel * size);
}

qm_status qm_mapped_bytes(struct qm_file *f, int i, void *out)
{
    const struct qm_entry *e = &f->entry[i];
    const struct qm_array_location *p = &f->place[i];
    if (!f->map)
        return qm_fail(QM_BAD_ARG, "%s: '%s' does not lie in one piece", f->path, e->name);
    if (!p->code && (p->swap || (p->fortran && e->shape.rank > 1))) {
        copy_turned(f, i, out);
        return QM_OK;
    }
    if (p->code) {
        copy_run(f, i, 0, e->numel, (struct qm_sink){.f = out}, 0);
        qm_mapped_touched(f, (size_t)e->numel);
        return QM_OK;
    }
    size_t n = (size_t)e->numel * qm_dtype_size(e->dtype);
    if (n > 0)
        memcpy(out, f->map + p->offset, n);
    qm_mapped_touched(f, n);
    return QM_OK;
}

qm_status qm_mapped_read(struct qm_file *f, int i, int64_t from, int64_t n, struct qm_sink sink)
{
    const struct qm_entry *e = &f->entry[i];
    if (f->place[i].fortran && e->shape.rank > 1) {
        struct qm_box box;
        for (int64_t done = 0; done < n; done += box.numel) {
            qm_box_next(&e->shape, from + done, n - done, &box);
            copy_fortran_box(f, i, &box, sink, done);
        }
        return QM_OK;
    }
    int64_t piece = (int64_t)(PIECE_BYTES / qm_dtype_size(e->dtype));
    for (int64_t done = 0; done < n;) {
        int64_t part = n - done < piece ? n - done : piece;
        copy_run(f, i, from + done, part, sink, done);
        qm_mapped_touched(f, (size_t)part * mapped_size(f, i));
        done += part;
    }
    return QM_OK;
}
