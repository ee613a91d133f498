/* withheld.c - The list of what is not drawn by default, with the reasons. */
#include "experiments/check/withheld.h"

#include <string.h>

static int no_elements(const struct qm_case *c)
{
    return c->shape.rank > 1 && qm_shape_numel(&c->shape) == 0;
}

/* The source takes the buffer of one element for new at every step, and does not dampen it. */
static int one_dampened(const struct qm_case *c)
{
    int sets = c->given >> QM_HYPER_dampening & 1;
    return qm_shape_numel(&c->shape) == 1 && (sets || qm_case_takes(c, QM_PART_schedule));
}

static const struct {
    const char *rules; /* the names begin so, separated by spaces */
    const char *what, *reason;
    int (*is)(const struct qm_case *c);
} list[] = {
    {"sgdm_lpmm", "one element with dampening", "the oracle dampens what the source takes for new",
     one_dampened},
    {"adafactor8", "matrices without elements",
     "their factors and projections are not defined by the source", no_elements},
};

static int is_of(const struct qm_recipe *r, const char *rules)
{
    for (const char *at = rules; *at; at += *at == ' ') {
        size_t n = strcspn(at, " ");
        if (strncmp(r->rule->name, at, n) == 0)
            return 1;
        at += n;
    }
    return 0;
}

int qm_case_is_withheld(const struct qm_recipe *r, const struct qm_case *c)
{
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (is_of(r, list[i].rules) && list[i].is(c))
            return 1;
    return 0;
}

const char *qm_withheld_at(const struct qm_recipe *r, int k, const char **reason)
{
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (is_of(r, list[i].rules) && k-- == 0) {
            *reason = list[i].reason;
            return list[i].what;
        }
    return NULL;
}
