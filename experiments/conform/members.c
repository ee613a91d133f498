/* members.c - Walks the members of a group of a recording: cases, or groups of cases. */
#include "experiments/conform/conform.h"
#include "experiments/conform/golden.h"

#include <stdio.h>
#include <string.h>

/* Longest path of a member; qm_golden_case_begin has room for it and for a part. */
enum { LONGEST = 250 };

/* The case that stands for member i of the group, whose path is too long. */
static void refuse(struct qm_conform *c, const char *group, int i)
{
    char name[32];
    snprintf(name, sizeof name, "member %d", i + 1);
    if (!qm_golden_case_begin(c, group[0] ? group : name, group[0] ? name : NULL))
        return;
    qm_golden_case_unreadable(c, "its path has more than %d characters", LONGEST);
    qm_golden_case_end(c);
}

void qm_golden_each(struct qm_conform *c, const char *group,
                    void (*visit)(struct qm_conform *c, const struct qm_golden_place *at))
{
    char name[LONGEST + 1], path[QM_GOLDEN_PATH];
    const char *slash = group[0] ? "/" : "";
    size_t room = sizeof name - strlen(group) - strlen(slash);
    for (int i = 0; i < qm_golden_members(c->file, group); i++) {
        if (!qm_golden_member(c->file, group, i, name, room)) {
            refuse(c, group, i);
            continue;
        }
        snprintf(path, sizeof path, "%s%s%s", group, slash, name);
        visit(c, &(struct qm_golden_place){group, name, path});
    }
}

int qm_golden_groups(struct qm_conform *c, const char *group)
{
    char name[LONGEST + 1], path[QM_GOLDEN_PATH + LONGEST];
    for (int i = 0; i < qm_golden_members(c->file, group); i++) {
        if (!qm_golden_member(c->file, group, i, name, sizeof name))
            continue;
        snprintf(path, sizeof path, "%s/%s", group, name);
        if (qm_golden_at(c->file, path) == QM_GOLDEN_GROUP)
            return 1;
    }
    return 0;
}

static void read_case(struct qm_conform *c, const struct qm_golden_place *at)
{
    const struct qm_golden_readers *r = c->readers;
    int is_map = r->map && strcmp(at->group, "maps") == 0; /* a dataset, where others are groups */
    if (!(is_map ? qm_golden_case_begin(c, at->group, at->name)
                 : qm_golden_case_begin(c, at->path, NULL)))
        return;
    if (is_map)
        r->map(c, at->name);
    else if (r->single && strcmp(at->path, r->single) == 0)
        r->replay_single(c);
    else if (strcmp(at->group, "optim") == 0)
        r->run(c);
    else
        r->quantizer(c);
    qm_golden_case_end(c);
}

static void read_group(struct qm_conform *c, const struct qm_golden_place *at)
{
    if (c->readers->single && strcmp(at->path, c->readers->single) == 0)
        read_case(c, at);
    else
        qm_golden_each(c, at->path, read_case);
}

void qm_golden_read_all(struct qm_conform *c, const struct qm_golden_readers *readers)
{
    c->readers = readers;
    qm_golden_each(c, "", read_group);
}
