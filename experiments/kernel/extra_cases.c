/* extra_cases.c - Draws cases about what had an effect in too few, and in place of refused ones. */
#include "experiments/kernel/extra_cases.h"

/* CASES: of a round.  REFUSED: drawn cases refused, from which on as many others are drawn, of
 * values that are taken; at most INSTEAD. */
enum { ROUNDS = 3, CASES = 24, REFUSED = 16, INSTEAD = 160 };

/* Begins a round; 0: none is wanted. */
static int begin(struct qm_extra_cases *f, const struct qm_kernel_run *r, struct qm_domain *d)
{
    int lacks = qm_coverage_lacks(&r->coverage, d);
    int64_t refused = r->count[QM_CASE_refused];
    if (!f->has_replaced && refused >= REFUSED) {
        f->has_replaced = 1;
        f->left = refused < INSTEAD ? refused : INSTEAD;
        d->subjects = lacks ? d->subjects : d->reads;
        return 1;
    }
    f->left = CASES;
    f->rounds++;
    return lacks;
}

int qm_extra_cases_next(struct qm_extra_cases *f, const struct qm_kernel_run *r,
                        struct qm_domain *d, int is_idle, struct qm_case *out)
{
    const struct qm_kernel_options *o = r->o;
    if (o->quick || o->draws == 0 || o->n_regimes > 0 || o->one_case)
        return 0;
    while (f->left > 0 || f->rounds < ROUNDS) {
        if (f->left == 0 && !is_idle)
            return -1;
        if (f->left == 0 && !begin(f, r, d))
            return 0;
        f->left--;
        *out = qm_domain_further(d, r->seed, f->drawn++);
        if (out->effects & d->subjects)
            return 1;
    }
    return 0;
}
