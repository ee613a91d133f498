/* withheld.c - The list of what is not drawn by default, with the reasons. */
#include "experiments/check/withheld.h"

#include <string.h>

static int sets(const struct qm_case *c, int k) { return c->given >> k & 1; }

static int one_by_one(const struct qm_case *c)
{
    return c->shape.rank > 1 && qm_shape_numel(&c->shape) == 1;
}
static int denormal_decay(const struct qm_case *c)
{
    return sets(c, QM_HYPER_weight_decay) || sets(c, QM_HYPER_alpha) ||
           c->setting == QM_SETTING_extreme || qm_case_takes(c, QM_PART_schedule);
}

static int no_elements(const struct qm_case *c)
{
    return c->shape.rank > 1 && qm_shape_numel(&c->shape) == 0;
}

static const struct {
    const char *rules; /* the names begin so, separated by spaces */
    const char *what, *reason;
    int (*is)(const struct qm_case *c);
} list[] = {
    {"adamw_lpmm_factor", "matrices of one element", "rule and oracle take other factors",
     one_by_one},
    {"adafactor8", "matrices without elements",
     "their factors and projections are not defined by the source", no_elements},
    {"ademamix", "weight decay with alpha off the default", "the bound of denormals",
     denormal_decay},
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
