/* cell_id.c - Hashes the canonical text of a cell. */
#include "experiments/suite/cell_id.h"

#include <string.h>

#include "core/base/name.h"
#include "core/base/sha256.h"
#include "experiments/suite/shared.h"

static void add(struct qm_sha256 *h, const char *key, const char *text)
{
    qm_sha256_add(h, key, strlen(key));
    qm_sha256_add(h, "=", 1);
    qm_sha256_add(h, text, strlen(text) + 1); /* the NUL separates: texts hold any other byte */
}

static void add_number(struct qm_sha256 *h, const char *key, long long x)
{
    char text[24], *at = text + sizeof text;
    unsigned long long rest = x < 0 ? -(unsigned long long)x : (unsigned long long)x;
    *--at = '\0';
    do
        *--at = (char)('0' + rest % 10);
    while (rest /= 10);
    if (x < 0)
        *--at = '-';
    add(h, key, at);
}

/* Adds axes in the order of their keys: all of them, or those that the cell's members do
 * not cover. */
static void add_axes(struct qm_sha256 *h, const struct qm_suite *s, const struct qm_cell *c,
                     int all)
{
    static const char *const known[] = {"variant", "coupling", "slot",  "source",  "seed",
                                        "steps",   "n",        "start", "instance"};
    const char *last = "";
    for (int done = 0; done < s->n_axes; done++) {
        const struct qm_axis *next = NULL;
        int at = 0;
        for (int a = 0; a < s->n_axes; a++)
            if (strcmp(s->axis[a].key, last) > 0 &&
                (!next || strcmp(s->axis[a].key, next->key) < 0)) {
                next = &s->axis[a];
                at = a;
            }
        if (!next)
            return;
        last = next->key;
        if ((all || (!next->is_recipe && qm_name_find(next->key, known, 9) < 0)) &&
            qm_cell_value(s, c, at) >= 0)
            add(h, next->key, next->value[qm_cell_value(s, c, at)].text);
    }
}

/* Hashes what comes first and what cells in a row have in common, once for all of them. */
static void add_head(struct qm_sha256 *h, const struct qm_cell *c)
{
    static _Thread_local struct qm_cell last; /* its pointers are compared, and not followed */
    static _Thread_local struct qm_sha256 known;
    int whole = c->recipe->base && c->recipe->rule;
    if (last.recipe == c->recipe && last.source_text == c->source_text &&
        last.tensor == c->tensor && last.slot == c->slot && last.coupling == c->coupling &&
        last.lr_given == c->lr_given) {
        *h = known;
        return;
    }
    qm_sha256_start(h);
    add(h, "qualm-cell", "1");
    add(h, "recipe", whole ? qm_shared_recipe_text(c->recipe) : "");
    add(h, "slot", whole && c->recipe->rule->n_slots ? c->recipe->rule->slot[c->slot] : "");
    add(h, "coupling", qm_coupling_name(c->coupling));
    add(h, "source", c->source_text);
    add(h, "tensor", c->tensor);
    add_number(h, "lr", c->lr_given);
    last = *c;
    known = *h;
}

void qm_cell_id(const struct qm_suite *s, const struct qm_cell *c, char out[QM_CELL_ID])
{
    struct qm_sha256 h;
    char hex[65];
    add_head(&h, c);
    add_number(&h, "seed", (long long)c->seed);
    add_number(&h, "steps", c->steps);
    add_number(&h, "n", c->n);
    add_number(&h, "every", c->every);
    if (c->instance > 1) /* only then: ids of versions without the key stay valid */
        add_number(&h, "instance", (long long)c->instance);
    if (c->rate != 1.0) {
        char text[32];
        snprintf(text, sizeof text, "%.17g", c->rate);
        add(&h, "rate", text);
    }
    if (c->start_ulp) /* the same */
        add(&h, "start", "ulp");
    add_axes(&h, s, c, c->reason != NULL);
    qm_sha256_hex(&h, hex);
    memcpy(out, hex, QM_CELL_ID - 1);
    out[QM_CELL_ID - 1] = '\0';
}
