/* unread.c - Names what a case holds that no replay of its system reads. */
#include "experiments/conform/conform.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Attributes that describe a recording and ask for nothing. */
#define DESCRIBES "seed what grad_kind sqrt_calls_replaced reload"

/* Whether a list of words, which spaces separate, has this one. */
static int has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list; n > 0 && (p = strstr(p, word)); p += n)
        if ((p == list || p[-1] == ' ') && (p[n] == ' ' || p[n] == '\0'))
            return 1;
    return 0;
}

static void name_it(struct qm_conform *c, const char *kind, const char *name)
{
    size_t used = strlen(c->now.unread), size = sizeof c->now.unread;
    snprintf(c->now.unread + used, size - used, "%s%s %.60s", used ? ", " : "not read: ", kind,
             name);
}

void qm_golden_case_unread(struct qm_conform *c, const char *attributes, const char *datasets)
{
    char name[128];
    for (int i = 0; qm_golden_attribute_name(c->file, c->group, i, name, sizeof name); i++) {
        double x = (double)NAN;
        int is_zero = qm_golden_numbers(c->file, c->group, name, &x, 1) == 1 && x == 0.0;
        if (!is_zero && !has_word(attributes, name) && !has_word(DESCRIBES, name))
            name_it(c, "attribute", name);
    }
    int n = qm_golden_members(c->file, c->group);
    for (int i = 0; i < n; i++)
        if (qm_golden_member(c->file, c->group, i, name, sizeof name) && !has_word(datasets, name))
            name_it(c, "dataset", name);
}
