/* unread.c - Names what a case holds that no replay of its system reads. */
#include "experiments/conform/conform.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Attributes that describe a recording and ask for nothing, as do those that begin with "last_". */
#define DESCRIBES                                                                                 \
    "seed what grad_kind grad_class sqrt_calls_replaced reload shape n kind driver note release " \
    "path nan_step"

/* The same of cases without steps, whose datasets have their types and sizes. */
#define DESCRIBES_DATA                                                                         \
    "dtype input dist family dequant_nan dequant_inf scaled_shape packed_bytes noise_use rng " \
    "rng_seed num_groups defect_note A step"

/* Whether a list of words, which spaces separate, has this one. */
static int has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list; n > 0 && (p = strstr(p, word)); p += n)
        if ((p == list || p[-1] == ' ') && (p[n] == ' ' || p[n] == '\0'))
            return 1;
    return 0;
}

/* What has no room in the text is counted in place of its name. */
static void name_it(struct qm_conform *c, const char *kind, const char *name)
{
    enum { COUNT_ROOM = 16 };
    char *text = c->now.unread, one[96];
    size_t used = strlen(text), size = sizeof c->now.unread;
    int n = snprintf(one, sizeof one, "%s%s %.60s", used ? ", " : "not read: ", kind, name);
    if (c->now.unread_more == 0 && used + (size_t)n + COUNT_ROOM < size) {
        memcpy(text + used, one, (size_t)n + 1);
        return;
    }
    char *more = c->now.unread_more++ > 0 ? strrchr(text, ',') : text + used;
    snprintf(more, size - (size_t)(more - text), ", %d more", c->now.unread_more);
}

/* Whether a group is deeper than any that a case has, as one that is linked into itself. */
static int is_deep(const struct qm_conform *c, const char *group)
{
    enum { DEEPEST = 3 };
    int depth = 0;
    for (const char *p = group + strnlen(c->group, strlen(group)); *p; p++)
        depth += *p == '/';
    return depth > DEEPEST || strlen(group) > 180;
}

/* Whether a case has steps. */
static int is_run(struct qm_conform *c)
{
    return qm_golden_case_has(c, "grads") || qm_golden_case_has(c, "p0_grads");
}

/* Names what is in no list, or, where lists are NULL, what was not read; last: only what a case
 * must have, else all but that. */
static void name_all(struct qm_conform *c, const char *group, const char *attributes,
                     const char *datasets, int last)
{
    char name[128], path[QM_GOLDEN_PATH];
    const char *more = is_run(c) ? "" : DESCRIBES_DATA;
    for (int i = 0; qm_golden_attribute_name(c->file, group, i, name, sizeof name); i++) {
        double x = 1.0;
        int was_read =
            attributes ? has_word(attributes, name) : qm_golden_was_read(c->file, group, name);
        if (was_read || has_word(DESCRIBES, name) || has_word(more, name) ||
            strncmp(name, "last_", 5) == 0 ||
            (c->now.arguments && has_word(c->now.arguments, name)) != last)
            continue;
        int is_number = qm_golden_numbers(c->file, group, name, &x, 1) == 1;
        if (!(is_number && (attributes ? x == 0.0 : isnan(x))))
            name_it(c, "attribute", name);
    }
    for (int i = 0; !last && i < qm_golden_members(c->file, group); i++) {
        if (!qm_golden_member(c->file, group, i, name, sizeof name))
            continue;
        snprintf(path, sizeof path, "%.180s/%.127s", group, name);
        if (datasets ? has_word(datasets, name) || qm_golden_case_is_start(c, name)
                     : qm_golden_was_read(c->file, path, NULL))
            continue;
        int is_group = qm_golden_at(c->file, path) == QM_GOLDEN_GROUP;
        if (!datasets && is_group && !is_deep(c, path))
            name_all(c, path, NULL, NULL, 0);
        else
            name_it(c, is_group ? "group" : "dataset", name);
    }
}

void qm_golden_case_unread(struct qm_conform *c, const char *attributes, const char *datasets)
{
    name_all(c, c->group, attributes, datasets, 0);
    c->now.has_unread = 1;
}

void qm_golden_case_left(struct qm_conform *c)
{
    if (!c->now.has_unread && qm_golden_case_open(c))
        for (int last = 0; last < 2; last++)
            name_all(c, c->group, NULL, NULL, last);
}
