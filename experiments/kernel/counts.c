/* counts.c - Splits the names of cases into their coordinates and counts equal words. */
#include "experiments/kernel/counts.h"

#include <stdlib.h>
#include <string.h>

enum { AXES = 6, WORDS = 512 };

/* The parts of a case's name, in their order (cases.h). */
static const char *const axes[AXES] = {"shape", "class", "setting", "first", "fallback", "part"};
enum { SETTING = 2, PART = 5 };

struct word {
    char name[48];
    int64_t cases, of;
};

struct counts {
    int n;
    struct word word[WORDS];
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
            struct word before = c->word[k - 1];
            c->word[k - 1] = c->word[k];
            c->word[k] = before;
        }
}

/* The words that occur in the name of a counted case.  has_all 1: the number of all cases is
 * known. */
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

/* Counts a word of a case's name, without the value of a hyper-parameter and the number of a
 * part. */
static void count_word(struct counts *c, int axis, const char *word, size_t length, int is_taken)
{
    char name[48];
    size_t n = axis == SETTING ? strcspn(word, "=") : axis == PART ? strcspn(word, "^") : length;
    if (axis == PART && strncmp(word, "tensor", 6) == 0)
        n = 6;
    n = n < length ? n : length;
    snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name - 1), word);
    count(c, name, is_taken);
}

/* Counts part `axis` of the case's name, or every further part; a setting has words joined by +. */
static void count_part(struct counts *c, const struct qm_kernel_case *one, int axis, int is_taken)
{
    const char *at = one->name;
    for (int i = 0; at && i < axis; i++) {
        at = strchr(at, '/');
        at = at ? at + 1 : NULL;
    }
    while (at && *at) {
        size_t length = strcspn(at, axis == SETTING ? "/+" : "/");
        count_word(c, axis, at, length, is_taken);
        if (at[length] == '\0' || (at[length] == '/' && axis != PART))
            break;
        at += length + 1;
    }
}

static const char *tensor_of(const struct qm_kernel_run *r, const struct qm_kernel_case *c)
{
    if (c->result != QM_CASE_failed)
        return qm_case_result_name(c->result);
    return c->slot >= 0               ? r->subject.recipe.rule->slot[c->slot]
           : c->slot == QM_SLOT_PARAM ? "parameter"
                                      : "machinery";
}

/* What of the tensor is wrong. */
static const char *place_of(const struct qm_kernel_case *c)
{
    static const char *const names[] = {
        [QM_PLACE_NONE] = "other",         [QM_PLACE_OUTSIDE] = "write outside",
        [QM_PLACE_MODE] = "floating mode", [QM_PLACE_REPEAT] = "repetition",
        [QM_PLACE_LAYER] = "rule of CUDA", [QM_PLACE_NUMBER] = "value",
        [QM_PLACE_SCALE] = "scale",        [QM_PLACE_CODE] = "code"};
    return c->result == QM_CASE_failed ? names[c->place] : qm_case_result_name(c->result);
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
    for (int axis = 0; axis < AXES + 3 && c; axis++) {
        static const char *const others[] = {"tensor", "number", "step"};
        const char *name = axis < AXES ? axes[axis] : others[axis - AXES];
        char text[48];
        int n = 0;
        c->n = 0;
        for (int i = 0; i < r->n_cases; i++) {
            const struct qm_kernel_case *one = &r->cases[i];
            int is = is_taken(one, refused);
            n += is;
            if (axis < AXES && strchr(one->name, '/'))
                count_part(c, one, axis, is);
            else if (axis == AXES && is)
                count(c, tensor_of(r, one), 1);
            else if (axis == AXES + 1 && is)
                count(c, place_of(one), 1);
            else if (axis > AXES + 1 && is && step_of(one, text, sizeof text))
                count(c, text, 1);
        }
        json_t *found = words(c, axis < AXES && !r->o->forever);
        if (n > 0 && json_array_size(found) > 0 && (axis < AXES || !refused))
            json_object_set(out, name, found);
        json_decref(found);
    }
    free(c);
    return out;
}
