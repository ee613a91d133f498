/* oracle.c - the list of double-precision references. */
#include "oracle/oracle.h"

#include <string.h>

/* A new oracle is its file and its line here. */
/* clang-format off */
#define QM_ORACLE_LIST(X)                                                                      \
    X(adam) X(adamw) X(adamw_factor) X(ema) X(sgdm)                                            \
    X(adamw_after) X(ademamix) X(ademamix_after) X(momentum) X(rmsprop) X(rmsprop_raw)         \
    X(adagrad) X(adagrad_raw) X(lion) X(lamb) X(lamb_raw) X(lars) X(lars_bare)
/* clang-format on */

#define X(name) extern const struct qm_oracle qm_oracle_##name;
QM_ORACLE_LIST(X)
#undef X

static const struct qm_oracle *const list[] = {
#define X(name) &qm_oracle_##name,
    QM_ORACLE_LIST(X)
#undef X
};

int qm_oracle_count(void) { return (int)(sizeof list / sizeof *list); }

const struct qm_oracle *qm_oracle_at(int i)
{
    return i >= 0 && i < qm_oracle_count() ? list[i] : NULL;
}

const struct qm_oracle *qm_oracle_find(const char *family)
{
    for (int i = 0; i < qm_oracle_count(); i++)
        if (strcmp(list[i]->family, family) == 0)
            return list[i];
    return NULL;
}
