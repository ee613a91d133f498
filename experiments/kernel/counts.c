/* counts.c - Splits the names of cases into their coordinates and counts equal words. */
#include "experiments/kernel/counts.h"

#include <stdlib.h>
#include <string.h>

enum { PARTS = 8, WORDS = 512 };

/* The parts of a case's name, in their order (cases.h). */
static const char *const axes[PARTS] = {"shape", "class", "setting", "first", "mode"};

struct counts {
    int n;
    struct {
        char name[48];
        int64_t cases, of;
    } word[WORDS];
};

static void count(struct counts *c, const char *name, int is_taken)
{
    int i = 0;
    while (i < c->n && strcmp(c->word[i].name, name) != 0)
        i++;
    if (i == WORDS)
        return;
    if (i == c->n) {
        memset(&c->word[i], 0, sizeof c->word[i]);
        snprintf(c->word[c->n++].name, sizeof c->word[i].name, "%s", name);
    }
    c->word[i].of++;
    c->word[i].cases += is_taken;
}

/* Sorts by cases, the most first; equal ones stay in the order of the run. */
static void sort(struct counts *c)
{
    for (int i = 1; i < c->n; i++)
        for (int k = i; k > 0 && c->word[k].cases > c->word[k - 1].cases; k--) {
            struct counts two;
            two.word[0] = c->word[k];
            c->word[k] = c->word[k - 1];
            c->word[k - 1] = two.word[0];
        }
}

/* The words of c that a case was taken of; has_all 1: the number of all cases is known. */
static json_t *words(struct counts *c, int has_all)
{
    json_t *out = json_array();
    sort(c);
    for (int i = 0; i < c->n && c->word[i].cases > 0; i++) {
        json_t *one =
            json_pack("{s:s, s:I}", "name", c->word[i].name, "cases", (json_int_t)c->word[i].cases);
        if (has_all)
            json_object_set_new(one, "of", json_integer((json_int_t)c->word[i].of));
        json_array_append_new(out, one);
    }
    return out;
}

static int is_taken(const struct qm_kernel_case *c, int refused)
{
    return refused ? c->result == QM_CASE_refused : qm_case_result_is_bad(c->result);
}

/* Part i of the case's name; 0: it has none. */
static int part_of(const struct qm_kernel_case *c, int i, char *text, size_t size)
{
    const char *at = c->name;
    for (; i > 0 && at; i--) {
        at = strchr(at, '/');
        at = at ? at + 1 : NULL;
    }
    snprintf(text, size, "%.*s", at ? (int)strcspn(at, "/") : 0, at ? at : "");
    return at != NULL;
}

static const char *tensor_of(const struct qm_kernel_run *r, const struct qm_kernel_case *c)
{
    if (c->result != QM_CASE_failed)
        return qm_case_result_name(c->result);
    return c->slot >= 0               ? r->subject.recipe.rule->slot[c->slot]
           : c->slot == QM_SLOT_PARAM ? "parameter"
                                      : "machinery";
}

/* The number behind "step " in the case's text; 0: there is none. */
static int step_of(const struct qm_kernel_case *c, char *text, size_t size)
{
    const char *at = c->text ? strstr(c->text, "step ") : NULL;
    size_t n = at ? strspn(at + 5, "0123456789") : 0;
    snprintf(text, size, "%.*s", (int)n, at ? at + 5 : "");
    return n > 0;
}

json_t *qm_kernel_counts(const struct qm_kernel_run *r, int refused)
{
    json_t *out = json_object();
    struct counts *c = malloc(sizeof *c);
    for (int axis = 0; axis < PARTS + 2 && c; axis++) {
        int n = 0;
        char name[48];
        c->n = 0;
        for (int i = 0; i < r->n_cases; i++) {
            const struct qm_kernel_case *one = &r->cases[i];
            int has = strchr(one->name, '/') != NULL;
            if (axis < PARTS)
                has &= part_of(one, axis, name, sizeof name);
            else if (axis == PARTS)
                snprintf(name, sizeof name, "%s", tensor_of(r, one));
            else
                has &= step_of(one, name, sizeof name);
            has &= axis < PARTS || is_taken(one, refused);
            if (has)
                count(c, name, is_taken(one, refused));
            n += has && is_taken(one, refused);
        }
        if (n > 0 && (axis < PARTS ? axes[axis] != NULL : !refused))
            json_object_set_new(out,
                                axis < PARTS    ? axes[axis]
                                : axis == PARTS ? "tensor"
                                                : "step",
                                words(c, axis < PARTS && !r->o->forever));
    }
    free(c);
    return out;
}
