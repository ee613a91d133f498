/* device_codes.c - Codes of every float by a device's kernel, as runs, against the CPU's search. */
#include "experiments/prove/device_codes.h"
#include "core/base/clock.h"

#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"

__extension__ typedef unsigned __int128 wide_t;

enum { MOST = 65536, SAMPLES = 64 };

/* What the sums begin with, so that memory that was never written is no evidence. */
static const uint64_t before[QM_CODES_SUMS] = {
    UINT64_C(0x9e3779b97f4a7c15), UINT64_C(0xbf58476d1ce4e5b9), UINT64_C(0x94d049bb133111eb)};

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

/* What a device gives for [first, first + count). */
struct codes_list {
    uint64_t first, count, sums[QM_CODES_SUMS];
    struct qm_code_change *change;
    uint32_t found;
};

static qm_status list_changes(const struct qm_device *d, void *module, struct codes_list *l)
{
    qm_address at_found = 0, at_list = 0, at_sums = 0;
    uint32_t most = MOST;
    uint64_t blocks = (l->count + QM_STEP_THREADS - 1) / QM_STEP_THREADS;
    qm_status st = d->reserve(sizeof l->found, &at_found);
    if (st == QM_OK)
        st = d->reserve(sizeof *l->change * MOST, &at_list);
    if (st == QM_OK)
        st = d->reserve(sizeof l->sums, &at_sums);
    if (st == QM_OK)
        st = d->put(at_sums, before, sizeof before);
    void *args[] = {&l->first, &l->count, &at_found, &at_list, &most, &at_sums};
    if (st == QM_OK)
        st = d->launch(module, QM_KERNEL_codes, (unsigned)(blocks < 65536 ? blocks : 65536), 1,
                       args);
    if (st == QM_OK)
        st = d->get(&l->found, at_found, sizeof l->found);
    if (st == QM_OK)
        st = d->get(l->change, at_list, sizeof *l->change * (l->found < MOST ? l->found : MOST));
    if (st == QM_OK)
        st = d->get(l->sums, at_sums, sizeof l->sums);
    d->release(at_found);
    d->release(at_list);
    d->release(at_sums);
    return st;
}

/* The sum of b^2 over 0 <= b < n, n <= 2^32, modulo 2^64. */
static uint64_t squares(uint64_t n)
{
    return n == 0 ? 0 : (uint64_t)((wide_t)(n - 1) * n * (2 * n - 1) / 6);
}

/* Adds the sums of a run of floats [from, to) with one code (QM_CODES_SUMS). */
static void add_run(uint64_t from, uint64_t to, uint32_t code, uint64_t sums[QM_CODES_SUMS])
{
    uint64_t n = to - from, c = (uint64_t)code << 32;
    uint64_t bits = (uint64_t)((wide_t)n * (from + to - 1) / 2);
    sums[0] += n;
    sums[1] += bits + n * c;
    sums[2] += squares(to) - squares(from) + 2 * c * bits + n * c * c;
}

/* A kernel that did not run leaves no list, a list with holes would leave floats out, and a float
 * that the kernel did not visit is missing in its sums. */
static qm_status check_list(const struct codes_list *l)
{
    const struct qm_code_change *at = l->change;
    uint64_t end = l->first + l->count, want[QM_CODES_SUMS];
    if (l->found == 0)
        return qm_fail(QM_CHECK_FAILED, "the kernel gave no codes of %llu floats",
                       (unsigned long long)l->count);
    memcpy(want, before, sizeof want);
    for (uint32_t k = 0; k < l->found; k++) {
        if (k == 0 ? at[k].bits != l->first : at[k].bits <= at[k - 1].bits || at[k].bits >= end)
            return qm_fail(QM_CHECK_FAILED, "the kernel's list of codes is damaged at 0x%08x",
                           at[k].bits);
        add_run(at[k].bits, k + 1 < l->found ? at[k + 1].bits : end, at[k].code, want);
    }
    if (l->sums[0] != want[0])
        return qm_fail(QM_CHECK_FAILED, "the kernel visited %lld of %lld floats",
                       (long long)(l->sums[0] - before[0]), (long long)l->count);
    if (memcmp(l->sums, want, sizeof want) != 0)
        return qm_fail(QM_CHECK_FAILED, "the kernel's sums over the floats that it visited are not "
                                        "those of the codes that it lists");
    return QM_OK;
}

/* Appends the runs of [first, first + count) to out.  The caller owns the form. */
static qm_status runs_of(const struct qm_device *d, const struct qm_step_form *f, uint64_t first,
                         uint64_t count, struct qm_code_runs *out)
{
    void *module = NULL;
    struct codes_list l = {.first = first, .count = count};
    struct qm_code_change *list = realloc(out->change, sizeof *list * (size_t)(out->n + MOST));
    if (!list)
        return qm_fail(QM_NO_MEMORY, "a list of codes");
    out->change = list;
    l.change = list + out->n;
    QM_TRY(d->load(f, QM_MODE_exact, &module));
    double from = qm_seconds();
    QM_TRY(list_changes(d, module, &l));
    out->seconds += qm_seconds() - from;
    if (l.found > MOST)
        return qm_fail(QM_CHECK_FAILED, "codes change %u times: that is no search", l.found);
    qsort(l.change, l.found, sizeof *list, by_bits);
    QM_TRY(check_list(&l));
    out->n += l.found;
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
