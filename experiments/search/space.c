/* space.c - Makes the formats that the members of the axes compose. */
#include "experiments/search/space.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/grow.h"
#include "core/base/name.h"

static const char *const slot_name[QM_HALVING_SLOTS] = {"exp_avg", "exp_avg_sq"};
static const char *const axis_name[] = {
#define X(name, first, second) #name,
    QM_HALVING_AXIS_LIST(X)
#undef X
};

void qm_halving_space_start(struct qm_halving_space *s)
{
    static const char *const member[][QM_HALVING_SLOTS] = {
#define X(name, first, second) {first, second},
        QM_HALVING_AXIS_LIST(X)
#undef X
    };
    *s = (struct qm_halving_space){0};
    for (int slot = 0; slot < QM_HALVING_SLOTS; slot++)
        for (int a = 0; a < QM_HALVING_AXIS_COUNT; a++)
            s->member[slot][a] = member[a][slot];
}

qm_status qm_halving_space_set(struct qm_halving_space *s, const char *text)
{
    const char *equals = strchr(text, '='), *dot = strchr(text, '.');
    if (!equals || !dot || dot > equals)
        return qm_fail(QM_BAD_ARG, "--space '%s': expected SLOT.AXIS=MEMBER,MEMBER...", text);
    char slot[64], axis[64];
    snprintf(slot, sizeof slot, "%.*s", (int)(dot - text), text);
    snprintf(axis, sizeof axis, "%.*s", (int)(equals - dot - 1), dot + 1);
    int i = qm_name_find(slot, slot_name, QM_HALVING_SLOTS);
    int a = qm_name_find(axis, axis_name, QM_HALVING_AXIS_COUNT);
    if (i < 0)
        return qm_name_none_of("slot", slot, slot_name, QM_HALVING_SLOTS);
    if (a < 0)
        return qm_name_none_of("axis", axis, axis_name, QM_HALVING_AXIS_COUNT);
    s->member[i][a] = equals + 1;
    return QM_OK;
}

/* ---- formats ------------------------------------------------------------------------------- */

/* Member i of a list, its length in *n; NULL: there is none. */
static const char *member_at(const char *list, int64_t i, int *n)
{
    for (; i > 0 && (list = strchr(list, ',')); i--)
        list++;
    list += list ? strspn(list, " ") : 0;
    *n = list ? (int)strcspn(list, ",") : 0;
    return *n ? list : NULL;
}

static int64_t members(const char *list)
{
    int64_t n = *list != '\0';
    for (; *list; list++)
        n += *list == ',';
    return n;
}

void qm_halving_recipe(const struct qm_halving_space *s, const int64_t format[QM_HALVING_SLOTS],
                       char text[QM_RECIPE_TEXT])
{
    int n = snprintf(text, QM_RECIPE_TEXT, "adamw_f32");
    for (int i = 0; i < QM_HALVING_SLOTS; i++)
        if (format[i] >= 0)
            n += snprintf(text + n, (size_t)(QM_RECIPE_TEXT - n), ",%s=%s", slot_name[i],
                          s->format[i][format[i]].text);
}

qm_status qm_halving_bits(const struct qm_recipe *r, double *bits)
{
    const struct qm_shape shape = {2, {QM_HALVING_SIDE, QM_HALVING_SIDE}};
    int64_t bytes;
    QM_TRY(qm_recipe_bytes(r, &shape, &bytes));
    *bits = 8.0 * (double)bytes / QM_HALVING_SIDE / QM_HALVING_SIDE;
    return QM_OK;
}

/* Adds the format of a text, unless it makes no sense for this moment or is there already. */
static qm_status add(struct qm_halving_space *s, int slot, const char *text)
{
    char whole[QM_RECIPE_TEXT];
    struct qm_recipe r;
    s->combined[slot]++;
    snprintf(whole, sizeof whole, "adamw_f32,%s=%s", slot_name[slot], text);
    qm_status st = qm_recipe_parse(whole, &r);
    if (st == QM_NO_MATCH)
        return qm_fail_in(QM_BAD_ARG, "--space");
    if (st == QM_BAD_ARG || (st == QM_OK && r.slot[slot].bits == 0))
        return QM_OK;
    QM_TRY(st);
    struct qm_halving_format f;
    QM_TRY(qm_halving_bits(&r, &f.bits));
    f.bits -= 32.0; /* of the other moment, which is float32 */
    qm_quantizer_print(&r.slot[slot], f.text);
    for (int64_t i = 0; i < s->n[slot]; i++)
        if (strcmp(s->format[slot][i].text, f.text) == 0)
            return QM_OK;
    QM_TRY(qm_grow((void **)&s->format[slot], &s->room[slot], s->n[slot] + 1, sizeof f));
    s->format[slot][s->n[slot]++] = f;
    return QM_OK;
}

/* Writes combination k of the axes before `format`, the last axis fastest; the words come in the
 * order MAP/NORM/bisect/ROUND/hi/SCALE/CURVE. */
static void combine(const char *const *member, int64_t k, char *text, size_t size)
{
    size_t used = 0;
    int64_t index[QM_HALVING_AXIS_format];
    for (int a = QM_HALVING_AXIS_format - 1; a >= 0; a--) {
        index[a] = k % members(member[a]);
        k /= members(member[a]);
    }
    text[0] = '\0';
    for (int a = 0; a < QM_HALVING_AXIS_format; a++) {
        int n;
        const char *word = member_at(member[a], index[a], &n);
        if (a > 0 && (!word || (n == 4 && strncmp(word, "none", 4) == 0)))
            continue;
        used += (size_t)snprintf(text + used, size - used, "%s%.*s%s", a ? "/" : "", n,
                                 word ? word : "",
                                 a == QM_HALVING_AXIS_norm    ? "/bisect"
                                 : a == QM_HALVING_AXIS_round ? "/hi"
                                                              : "");
        used = used < size ? used : size - 1;
    }
}

static qm_status make_slot(struct qm_halving_space *s, int slot)
{
    const char *const *member = s->member[slot];
    char text[QM_RECIPE_TEXT];
    int64_t n = 1;
    for (int a = 0; a < QM_HALVING_AXIS_format; a++)
        n *= members(member[a]);
    for (int64_t k = 0; k < n; k++) {
        combine(member, k, text, QM_QUANTIZER_TEXT);
        QM_TRY(add(s, slot, text));
    }
    for (int64_t k = 0; k < members(member[QM_HALVING_AXIS_format]); k++) {
        int length;
        const char *word = member_at(member[QM_HALVING_AXIS_format], k, &length);
        snprintf(text, QM_QUANTIZER_TEXT, "%.*s", length, word ? word : "");
        QM_TRY(add(s, slot, text));
    }
    return s->n[slot] ? QM_OK
                      : qm_fail(QM_NO_MATCH, "--space: of %lld formats of %s none makes sense%s%s",
                                (long long)s->combined[slot], slot_name[slot],
                                s->combined[slot] ? "; the last one: " : "",
                                s->combined[slot] ? qm_message() : "");
}

qm_status qm_halving_space_make(struct qm_halving_space *s)
{
    for (int slot = 0; slot < QM_HALVING_SLOTS; slot++)
        QM_TRY(make_slot(s, slot));
    return QM_OK;
}

void qm_halving_space_free(struct qm_halving_space *s)
{
    for (int slot = 0; slot < QM_HALVING_SLOTS; slot++)
        free(s->format[slot]);
}
