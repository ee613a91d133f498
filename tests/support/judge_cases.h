/* judge_cases.h - Judges a recipe on a part of the list of cases. */
#ifndef QM_SUPPORT_JUDGE_CASES_H
#define QM_SUPPORT_JUDGE_CASES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "experiments/check/judge.h"

/* Judges cases first, first + stride, ...; with stop_early only up to the first that fails.  0:
 * this recipe cannot be judged. */
static inline int judge_cases(const struct qm_backend *backend, const char *recipe,
                              void (*alter)(struct qm_recipe *), uint64_t seed, int first,
                              int stride, int stop_early, struct qm_tally *t)
{
    struct qm_subject s = {.backend = backend, .alter = alter};
    qm_status st = qm_recipe_parse(recipe, &s.recipe);
    if (st == QM_OK)
        st = qm_judge_begin(&s, t);
    if (st == QM_SKIPPED)
        return 0;
    if (st != QM_OK)
        fail_msg("%s: %s", recipe, qm_message());
    for (int i = first; stop_early && i < qm_case_count() && !t->failed_cases; i += stride) {
        struct qm_case c = qm_case_at(i);
        if (qm_judge_case(&s, &c, seed, t) != QM_OK)
            fail_msg("%s: %s", recipe, qm_message());
    }
    if (!stop_early &&
        qm_judge_list(&s, first, stride, seed, t, (struct qm_judge_watch){.done = NULL}) != QM_OK)
        fail_msg("%s: %s", recipe, qm_message());
    qm_judge_end(&s, t);
    return 1;
}

#endif
