/* rule.c - Finds and enumerates the rules; a family is registered by its file, family_NAME.c. */
#include "core/rule/rule.h"

#include <string.h>

#include "core/rule/param_loops.h"

#define QM_ENTRY(stem, file) extern const struct qm_rule_family qm_##stem;
#include "families.inc"
#undef QM_ENTRY

static const struct qm_rule_family *const table[] = {
#define QM_ENTRY(stem, file) &qm_##stem,
#include "families.inc"
#undef QM_ENTRY
};

static const char *const files[] = {
#define QM_ENTRY(stem, file) file,
#include "families.inc"
#undef QM_ENTRY
};

enum { FAMILIES = sizeof table / sizeof *table };

QM_ISA_TABLE(const struct qm_param_loops, qm_param_loops)

const struct qm_param_loops *qm_param_loops(void) { return qm_param_loops_by_isa(); }

struct qm_hyper qm_hyper_default(void)
{
    struct qm_hyper h = {
#define X(name, value, text) .name = value,
        QM_HYPER_LIST(X) QM_HYPER_FLAG_LIST(X)
#undef X
    };
    return h;
}

int qm_hyper_has(const char *name)
{
    static const char *const names[] = {
#define X(name, value, text) #name,
        QM_HYPER_LIST(X) QM_HYPER_FLAG_LIST(X)
#undef X
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return 1;
    return 0;
}

enum qm_dtype qm_param_type(enum qm_param_format format)
{
    static const enum qm_dtype types[] = {[QM_PARAM_f32] = QM_DTYPE_f32,
                                          [QM_PARAM_bf16] = QM_DTYPE_bf16,
                                          [QM_PARAM_f16] = QM_DTYPE_f16,
                                          [QM_PARAM_e4m3] = QM_DTYPE_u8};
    return types[format];
}

int qm_rule_reads(const struct qm_rule *r, const char *hyper)
{
    size_t n = strlen(hyper);
    for (const char *at = r->reads; *at; at += strspn(at, " ")) {
        size_t word = strcspn(at, " ");
        if (word == n && memcmp(at, hyper, n) == 0)
            return 1;
        at += word;
    }
    return 0;
}

qm_status qm_rule_takes(const struct qm_rule *r, const struct qm_hyper *h,
                        const struct qm_shape *param)
{
    return r->takes ? r->takes(h, param) : QM_OK;
}

int qm_rule_slot_like(const struct qm_rule *r, int i)
{
    for (int k = 0; r->slot_like[i] && k < i; k++)
        if (strcmp(r->slot[k], r->slot_like[i]) == 0)
            return k;
    return -1;
}

qm_status qm_rule_slot_check(const struct qm_rule *r, int i)
{
    if (i >= 0 && i < r->n_slots)
        return QM_OK;
    return qm_fail(QM_BAD_ARG, "rule %s has slots 0 to %d, not %d", r->name, r->n_slots - 1, i);
}

qm_status qm_rule_from_0(const char *name, double value)
{
    return value >= 0.0 ? QM_OK
                        : qm_fail(QM_BAD_ARG, "%s is %g and must not be negative", name, value);
}

void qm_rule_slot_shape(const struct qm_rule *r, const struct qm_hyper *h, int i,
                        const struct qm_shape *param, struct qm_shape *out)
{
    if (r->slot_shape)
        r->slot_shape(h, i, param, out);
    else
        *out = *param;
}

int qm_rule_applies_stored(const struct qm_rule *r, const struct qm_tensor_rule_args *w, int i)
{
    return r->tensor->applies_stored ? r->tensor->applies_stored(w, i) : 0;
}

int qm_rule_encodes_again(const struct qm_rule *r, const struct qm_tensor_rule_args *w, int i)
{
    return r->tensor->encodes_again ? r->tensor->encodes_again(w, i) : 0;
}

int qm_rule_update_round(const struct qm_rule *r, const struct qm_tensor_rule_args *w, int i)
{
    return r->tensor->update_round ? r->tensor->update_round(w, i) : 0;
}

int qm_rule_count(void)
{
    int n = 0;
    for (int i = 0; i < FAMILIES; i++)
        n += table[i]->n;
    return n;
}

const struct qm_rule *qm_rule_at(int i)
{
    int f = 0;
    for (; i >= table[f]->n; f++)
        i -= table[f]->n;
    return &table[f]->rule[i];
}

const struct qm_rule *qm_rule_find(const char *name)
{
    for (int i = 0; i < qm_rule_count(); i++)
        if (strcmp(name, qm_rule_at(i)->name) == 0)
            return qm_rule_at(i);
    return NULL;
}

const char *qm_rule_file(const struct qm_rule *r)
{
    for (int f = 0; f < FAMILIES; f++)
        if (r >= table[f]->rule && r < table[f]->rule + table[f]->n)
            return files[f];
    return "";
}
