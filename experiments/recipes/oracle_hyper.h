/* oracle_hyper.h - Copies a rule's hyper-parameters, name by name, to the oracle's own struct. */
#ifndef QM_RECIPES_ORACLE_HYPER_H
#define QM_RECIPES_ORACLE_HYPER_H

#include "core/rule/rule.h"
#include "oracle/oracle.h"

static inline struct qm_oracle_hyper qm_oracle_hyper_of(const struct qm_hyper *h)
{
    return (struct qm_oracle_hyper){
#define X(name, value, text) .name = h->name,
        QM_HYPER_LIST(X) QM_HYPER_FLAG_LIST(X)
#undef X
    };
}

#endif
