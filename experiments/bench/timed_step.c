/* timed_step.c - Binds a recipe to the arrays of the bench, and times one step of it. */
#include <omp.h>
#include <stdlib.h>

#include "core/base/clock.h"
#include "core/recipe/backend.h"
#include "experiments/bench/bench.h"

qm_status qm_bench_arrays_alloc(const struct qm_bench *b, struct qm_bench_arrays *a)
{
    size_t bytes = sizeof(float) * (size_t)b->n;
    *a = (struct qm_bench_arrays){{2, {b->n / 1024, 1024}},
                                  aligned_alloc(64, bytes),
                                  aligned_alloc(64, bytes),
                                  aligned_alloc(64, bytes)};
    if (a->p && a->g && a->stored)
        return QM_OK;
    qm_bench_arrays_free(a);
    return qm_fail(QM_NO_MEMORY, "three arrays of %lld floats", (long long)b->n);
}

void qm_bench_arrays_free(struct qm_bench_arrays *a)
{
    free(a->p);
    free(a->g);
    free(a->stored);
    *a = (struct qm_bench_arrays){0};
}

qm_status qm_bench_bind(const struct qm_bench *b, const struct qm_bench_arrays *a,
                        const struct qm_recipe *r, struct qm_bench_bound *x)
{
    x->param = r->param;
    for (int h = 0; h < 2; h++) {
        omp_set_num_threads(h ? b->threads : 1);
        QM_TRY(qm_backend_cpu.open(r, &a->shape, 0, &x->plan[h]));
    }
    return QM_OK;
}

void qm_bench_release(struct qm_bench_bound *x)
{
    for (int h = 0; h < 2; h++)
        qm_backend_cpu.close(x->plan[h]);
    *x = (struct qm_bench_bound){.plan = {NULL}};
}

qm_status qm_bench_timed(const struct qm_bench *b, const struct qm_bench_arrays *a,
                         const struct qm_bench_bound *x, int h, int64_t t, double *seconds)
{
    struct qm_tensor p = {a->p, QM_DTYPE_f32, a->shape}, g = {a->g, QM_DTYPE_f32, a->shape};
    if (x->param.format != QM_PARAM_f32) {
        p = (struct qm_tensor){a->stored, qm_param_dtype(&x->param), a->shape};
        qm_param_from_float(&x->param, b->n, a->p, a->stored);
    }
    omp_set_num_threads(h ? b->threads : 1);
    double start = qm_seconds();
    qm_status st = qm_backend_cpu.step(x->plan[h], &p, &g, t, 1);
    *seconds = qm_seconds() - start;
    return st;
}
