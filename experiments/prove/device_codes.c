/* device_codes.c - Codes of every float by a device's kernel, as runs, against the CPU's search. */
#include "experiments/prove/device_codes.h"
#include "core/base/clock.h"

#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"

enum { MOST = 65536, SAMPLES = 64 };

/* The step form of a recipe of one slot with this quantizer; the norm does not matter to
 * its codes. */
static qm_status form_of(const struct qm_quantizer *q, struct qm_step_form *f)
{
    const struct qm_shape shape = {1, {4096}};
    struct qm_recipe r;
    QM_TRY(qm_recipe_parse("ema4_nf4", &r));
    r.slot[0] = *q;
    r.slot[0].norm = QM_NORM_block;
    r.slot[0].block = 128;
    r.min_numel[0] = r.whole_blocks[0] = 0;
    QM_TRY(qm_step_form(&r, &shape, QM_DTYPE_f32, f));
    f->codes = 1;
    return QM_OK;
}

static int by_bits(const void *a, const void *b)
{
    const struct qm_code_change *x = a, *y = b;
    return (x->bits > y->bits) - (x->bits < y->bits);
}

/* The stored code by the search that defines it. */
static uint32_t want_of(const struct qm_codec *c, uint32_t bits)
{
    float y = qm_float(bits);
    return qm_stored_code(&c->cb, y, qm_code_of(c, y, 0));
}

/* Compares a run's floats [from, to) with its code; returns how many differ. */
static uint64_t compare_run(const struct qm_codec *c, uint64_t from, uint64_t to, uint32_t code,
                            int sampled, struct qm_codes_result *out)
{
    uint64_t wrong = 0, first = UINT64_MAX, n = to - from, step = 1;
    if (sampled && n > SAMPLES)
        step = (n - 1) / SAMPLES + 1;
#pragma omp parallel for reduction(+ : wrong) reduction(min : first) schedule(static)
    for (uint64_t i = 0; i < n; i += step) {
        uint32_t bits = (uint32_t)(from + i);
        if (want_of(c, bits) != code) {
            wrong++;
            first = bits < first ? bits : first;
        }
    }
    if (want_of(c, (uint32_t)(to - 1)) != code && (n - 1) % step)
        wrong++, first = to - 1 < first ? to - 1 : first;
    if (wrong && !out->wrong)
        out->first_wrong = (uint32_t)first;
    out->compared += (n - 1) / step + 1 + ((n - 1) % step ? 1 : 0);
    return wrong;
}

static qm_status list_changes(const struct qm_device *d, void *module, uint64_t first,
                              uint64_t count, struct qm_code_change *list, uint32_t *found)
{
    qm_address at_found = 0, at_list = 0;
    uint32_t most = MOST;
    uint64_t blocks = (count + QM_STEP_THREADS - 1) / QM_STEP_THREADS;
    qm_status st = d->reserve(sizeof *found, &at_found);
    if (st == QM_OK)
        st = d->reserve(sizeof *list * MOST, &at_list);
    void *args[] = {&first, &count, &at_found, &at_list, &most};
    if (st == QM_OK)
        st = d->launch(module, QM_KERNEL_codes, (unsigned)(blocks < 65536 ? blocks : 65536), 1,
                       args);
    if (st == QM_OK)
        st = d->get(found, at_found, sizeof *found);
    if (st == QM_OK)
        st = d->get(list, at_list, sizeof *list * (*found < MOST ? *found : MOST));
    d->release(at_found);
    d->release(at_list);
    return st;
}

/* A kernel that did not run leaves no list, and a list with holes would leave floats out. */
static qm_status check_list(const struct qm_code_change *list, uint32_t n, uint64_t first,
                            uint64_t count)
{
    if (n == 0)
        return qm_fail(QM_CHECK_FAILED, "the kernel gave no codes of %llu floats",
                       (unsigned long long)count);
    for (uint32_t k = 0; k < n; k++)
        if (k == 0 ? list[k].bits != first
                   : list[k].bits <= list[k - 1].bits || list[k].bits >= first + count)
            return qm_fail(QM_CHECK_FAILED, "the kernel's list of codes is damaged at 0x%08x",
                           list[k].bits);
    return QM_OK;
}

/* Appends the runs of [first, first + count) to out.  The caller owns the form. */
static qm_status runs_of(const struct qm_device *d, const struct qm_step_form *f, uint64_t first,
                         uint64_t count, struct qm_code_runs *out)
{
    void *module = NULL;
    uint32_t found = 0;
    struct qm_code_change *list = realloc(out->change, sizeof *list * (size_t)(out->n + MOST));
    if (!list)
        return qm_fail(QM_NO_MEMORY, "a list of codes");
    out->change = list;
    QM_TRY(d->load(f, QM_MODE_exact, &module));
    double from = qm_seconds();
    QM_TRY(list_changes(d, module, first, count, list + out->n, &found));
    out->seconds += qm_seconds() - from;
    if (found > MOST)
        return qm_fail(QM_CHECK_FAILED, "codes change %u times: that is no search", found);
    qsort(list + out->n, found, sizeof *list, by_bits);
    QM_TRY(check_list(list + out->n, found, first, count));
    out->n += found;
    return QM_OK;
}

qm_status qm_codes_runs(const struct qm_device *d, const struct qm_quantizer *q, uint64_t first,
                        uint64_t count, struct qm_code_runs *out)
{
    struct qm_step_form *f = malloc(sizeof *f);
    qm_status st = f ? form_of(q, f) : qm_fail(QM_NO_MEMORY, "a kernel's form");
    if (st == QM_OK)
        st = runs_of(d, f, first, count, out);
    free(f);
    return st;
}

qm_status qm_codes_compare(const struct qm_device *d, const struct qm_quantizer *q, uint64_t first,
                           uint64_t count, int sampled, struct qm_codes_result *out)
{
    struct qm_step_form *f = malloc(sizeof *f);
    struct qm_code_runs runs = {0};
    memset(out, 0, sizeof *out);
    qm_status st = f ? form_of(q, f) : qm_fail(QM_NO_MEMORY, "a kernel's form");
    if (st == QM_OK)
        st = runs_of(d, f, first, count, &runs);
    out->device_seconds = runs.seconds;
    if (st == QM_OK) {
        out->inputs = count;
        out->runs = (uint64_t)runs.n;
    }
    for (int64_t k = 0; st == QM_OK && k < runs.n; k++) {
        const struct qm_code_change *at = &runs.change[k];
        uint64_t to = k + 1 < runs.n ? at[1].bits : first + count;
        out->wrong += compare_run(&f->slot[0].codec, at->bits, to, at->code, sampled, out);
    }
    free(f);
    free(runs.change);
    return st;
}
