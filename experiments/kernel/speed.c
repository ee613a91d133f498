/* speed.c - Runs steps of two kernels in turn and keeps their seconds. */
#include "experiments/kernel/speed.h"
#include "core/base/clock.h"

#include <stdlib.h>

#include "experiments/cli/cli.h"

enum { N = 1 << 20, ROUNDS_LEAST = 5, ROUNDS_MOST = 101 };

static const double most_seconds = 2.0;

/* Makes one step and appends the seconds that the kernel took. */
static qm_status timed_step(void *plan, const struct qm_recipe *r, float *p, float *g, int64_t t,
                            json_t *to)
{
    const struct qm_shape shape = {1, {N}};
    struct qm_tensor tp = {p, qm_param_dtype(&r->param), shape}, tg = {g, QM_DTYPE_f32, shape};
    QM_TRY(qm_backend_file.step(plan, &tp, &tg, t, 1));
    if (t > 1) /* the first step touches fresh pages */
        json_array_append_new(to, json_real(qm_plan_file_seconds(plan)));
    return QM_OK;
}

static qm_status time_both(void *const plan[2], const struct qm_recipe *r, json_t *const to[2])
{
    float *p = calloc(3 * sizeof *p, N), *g = p + N, *x = p + 2 * N;
    double from = qm_seconds();
    qm_status st = p ? QM_OK : qm_fail(QM_NO_MEMORY, "%d elements", N);
    for (int i = 0; i < N && p; i++) {
        x[i] = (float)(i % 1009 - 504) / 504.0f;
        g[i] = (float)(i % 757 - 378) / 37800.0f;
    }
    if (p)
        qm_param_from_float(&r->param, N, x, p);
    for (int k = 1; st == QM_OK && k <= ROUNDS_MOST + 1; k++) {
        if (k > ROUNDS_LEAST + 1 && qm_seconds() - from > most_seconds)
            break;
        for (int i = 0; i < 2 && st == QM_OK; i++) /* alternates which kernel is first */
            st = timed_step(plan[(i + k) % 2], r, p, g, k, to[(i + k) % 2]);
    }
    free(p);
    return st;
}

void qm_kernel_speed(struct qm_kernel_run *r, struct qm_kernel_file *now,
                     struct qm_kernel_file *old)
{
    struct qm_kernel_file *both[2] = {now, old};
    struct qm_shape shape = {1, {N}};
    void *plan[2] = {NULL, NULL};
    json_t *to[2] = {json_array(), json_array()};
    qm_status st = QM_OK;
    for (int i = 0; i < 2 && st == QM_OK; i++) {
        qm_host_begin(qm_kernel_file_host(both[i]));
        qm_kernel_file_keep_open(both[i], 1);
        qm_kernel_file_use(both[i]);
        st = qm_backend_file.open(&r->subject.recipe, &shape, 1, &plan[i]);
    }
    if (st == QM_OK)
        st = time_both(plan, &r->subject.recipe, to);
    qm_backend_file.close(plan[0]);
    qm_backend_file.close(plan[1]);
    r->speed = json_pack("{s:o, s:o}", "new", to[0], "old", to[1]);
    r->speed_n = N;
    if (st == QM_OK)
        return;
    json_decref(r->speed);
    r->speed = NULL;
}
