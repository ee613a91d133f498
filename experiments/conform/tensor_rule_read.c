/* tensor_rule_read.c - Reads what cases of rules over whole tensors share: shapes and numbers. */
#include <math.h>

#include "experiments/conform/tensor_rule_run.h"

int qm_tensor_run_shape(struct qm_conform *c, struct qm_shape *out)
{
    double dims[QM_MAX_RANK];
    int64_t numel = qm_golden_case_numel(c, "param0");
    int rank = qm_golden_numbers(c->file, c->group, "shape", dims, QM_MAX_RANK);
    struct qm_shape s = {.rank = rank};
    for (int i = 0; i < rank && rank <= QM_MAX_RANK; i++)
        s.dim[i] = dims[i] >= 0 && dims[i] < 1e9 ? (int64_t)dims[i] : -1;
    if (qm_golden_case_whole(c, "ndim", rank) == 0)
        s = (struct qm_shape){.rank = 0};
    if (rank <= QM_MAX_RANK && numel > 0 && qm_shape_numel(&s) == numel) {
        *out = s;
        return 1;
    }
    (void)qm_fail(QM_BAD_FILE, "%s: attribute shape does not describe the %lld values of param0",
                  c->group, (long long)numel);
    qm_golden_case_failed(c);
    return 0;
}

double qm_tensor_run_number(struct qm_conform *c, const char *name, int i, int n, double absent)
{
    double x[QM_TENSOR_RUN_NUMBERS];
    return qm_golden_case_numbers(c, name, n, x) && !isnan(x[i]) ? x[i] : absent;
}

/* The relative error of a root of a sum of n squares. */
static double norm_error(double n, int is_double)
{
    return is_double ? (n / 8.0 + 8.0) * 0x1p-53 : (n / 16.0 + 8.0) * 0x1p-24;
}

void qm_tensor_run_norms(struct qm_conform *c, struct qm_tensor_run_case *w)
{
    double n = (double)qm_golden_case_numel(c, "param0");
    struct qm_tensor_run_tolerance *const all[] = {&w->f32, &w->bf16, &w->f64};
    for (int i = 0; i < 3; i++) {
        double more = norm_error(n, i == 2);
        all[i]->state += more;
        all[i]->param += all[i]->param > 0.0 ? more : 0.0; /* 0: bfloat16, every bit */
        all[i]->free_state += more;
        all[i]->free_param += more;
    }
}

int qm_tensor_run_texts_known(struct qm_conform *c)
{
    static const char *const impls[] = {"single", "foreach"}, *const devices[] = {"cpu", "cuda"},
                             *const roots[] = {"ieee", "installed"};
    return qm_golden_case_choice(c, "impl", impls, 2, 0) >= 0 &&
           qm_golden_case_choice(c, "device", devices, 2, 0) >= 0 &&
           qm_golden_case_choice(c, "sqrt", roots, 2, 0) >= 0;
}

double qm_tensor_run_rms(const double *x, int64_t n)
{
    double s = 0.0, by = qm_match_largest_double(x, n) < 0x1p-400 ? 0x1p+500 : 1.0;
    for (int64_t i = 0; i < n; i++)
        s += by * x[i] * (by * x[i]);
    return sqrt(s / (double)n) / by;
}

void qm_tensor_run_judge_rms(struct qm_conform *c, const struct qm_tensor_run_case *w,
                             const double *p0, const double *params, int64_t steps, int64_t n)
{
    static const char *const types[] = {"f32", "bf16", "f64"};
    int type = qm_golden_case_choice(c, "dtype", types, 3, 0);
    if (type < 0 || !qm_golden_case_has(c, "state_RMS"))
        return;
    int is_came = strcmp(w->rule->name, "came") == 0;
    const double *want = qm_golden_case_doubles(c, "state_RMS", steps);
    if (type != 2 && !qm_golden_case_fits_double(c, "state_RMS", QM_PARAM_f32, want, steps))
        return;
    double *got = qm_golden_case_memory(c, steps, sizeof *got),
           *allowed = qm_golden_case_memory(c, steps, sizeof *allowed);
    double count = (double)n, error = norm_error(count, type == 2);
    for (int64_t t = 0; want && got && allowed && t < steps; t++) {
        got[t] = qm_tensor_run_rms(t > 0 ? params + (t - 1) * n : p0, n);
        int overflows = type != 2 && got[t] * sqrt(count) >= 0x1p64 && isinf(want[t]);
        got[t] = overflows ? want[t] : got[t];
        allowed[t] = (error + (type == 1 && is_came ? 0x1p-7 : 0.0)) * got[t];
        /* n squares, each off by a count q at most, make the mean off by q and its root by q over
         * the root, or by the root of q, of which 2^-74 and 2^-537 are no less */
        allowed[t] += type == 2 ? fmin(got[t], fmin(0x1p-537, 0x1p-1074 / fmax(got[t], 0x1p-537)))
                                : fmin(got[t], 0x1p-74);
        if (!isfinite(allowed[t]))
            allowed[t] = 0.0;
    }
    qm_match_close_double_each(c, "state_RMS", got, want, allowed, steps);
}
