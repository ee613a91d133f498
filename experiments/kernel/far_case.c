/* far_case.c - Runs a case with large indices, and says which one a check has. */
#include "experiments/kernel/far_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/user_kernel/large_index.h"

/* Limits for a kernel that runs over all elements.  Its arrays map the same pages again and again,
 * and each mapping counts as resident.  WHOLE_N: of a tensor of so many elements the emulator runs
 * all blocks, where it leaves QM_FAR_N. */
enum { SECONDS = 300, MEBIBYTES = 1 << 20, WHOLE_N = (1 << 20) + 7 };

int64_t qm_far_case(const char *name)
{
    char *end;
    int64_t n = strtoll(name, &end, 10), power = n > 7 ? n - n % 8 : 0;
    int is =
        strcmp(end, "/far") == 0 && n > power && power >= 1 << 17 && (power & (power - 1)) == 0;
    return is && n <= QM_FAR_N ? n : 0;
}

int64_t qm_far_elements(const struct qm_kernel_run *r)
{
    int is_emulated = qm_kernel_is_cuda(r->o->file) && !r->o->on_gpu;
    return is_emulated ? QM_FAR_N : qm_large_index_least(&r->subject.recipe);
}

qm_status qm_far_case_run(const struct qm_kernel_run *r, struct qm_kernel_file *kernel,
                          const struct qm_kernel_case *c, struct qm_tally *tally, char *not_far,
                          struct qm_kernel_verdict *v)
{
    struct qm_finding none = {0};
    struct qm_host *host = qm_kernel_file_host(kernel);
    struct qm_host_limits limits = r->o->limits;
    const struct qm_shape flat = {1, {QM_FAR_N}};
    int64_t judged;
    int is_row = qm_large_index_is_row(&r->subject.recipe) && !qm_kernel_is_cuda(r->o->file);
    if (!is_row &&
        qm_rule_takes(r->subject.recipe.rule, &r->subject.recipe.hyper, &flat) != QM_OK) {
        snprintf(not_far, 400, "%.399s", qm_message());
        v->how = QM_CASE_unfit;
        tally->skipped++;
        return QM_OK;
    }
    if (!qm_kernel_is_cuda(r->o->file)) {
        limits.seconds = fmax(limits.seconds, SECONDS);
        limits.mebibytes = MEBIBYTES;
    }
    for (int64_t n = qm_far_case(c->name); n > 0;) {
        qm_host_begin(host);
        qm_status st =
            qm_host_large_index(host, r->recipe, n, limits.seconds, limits.mebibytes, &judged);
        QM_TRY(qm_kernel_conclude(kernel, st, "", &none, v));
        int is_left = (v->how == QM_CASE_refused && judged != QM_FAR_REFUSED) ||
                      v->how == QM_CASE_hung || v->how == QM_CASE_memory;
        int is_slow = v->how == QM_CASE_hung;
        if (is_left)
            v->how = QM_CASE_unfit; /* of the last two: it loops over all elements */
        if (is_slow && !*not_far)
            snprintf(not_far, 400, "the step takes longer than %g s, the limit of --time-limit",
                     limits.seconds);
        else if (is_left && !*not_far)
            snprintf(not_far, 400, "%.299s", v->text);
        else if (n == WHOLE_N && n != qm_far_case(c->name))
            snprintf(not_far + strlen(not_far), 100, "; of 2^20 + 7 elements %s",
                     is_slow   ? "it takes longer too, so that no large tensor is judged"
                     : is_left ? "neither"
                               : "the ends were judged");
        n = is_left && n == QM_FAR_N && qm_kernel_is_cuda(r->o->file) ? WHOLE_N : 0;
    }
    tally->skipped += v->how == QM_CASE_unfit;
    tally->cases += v->how != QM_CASE_unfit && v->how != QM_CASE_refused;
    if (v->how == QM_CASE_passed)
        tally->judged = tally->verdict[QM_VERDICT_EQUAL] = judged;
    if (v->how == QM_CASE_failed) {
        tally->failed_cases = tally->n_findings = 1;
        tally->finding[0] = v->finding;
        snprintf(tally->finding[0].name, QM_CASE_TEXT, "%s", c->name);
    }
    return QM_OK;
}
