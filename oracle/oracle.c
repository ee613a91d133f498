/* oracle.c - The list of double-precision references, and a step of any of them. */
#include "oracle/oracle.h"

#include <string.h>

/* A new oracle needs a file in rule/ and its name here. */
/* clang-format off */
#define QM_ORACLE_LIST(X)                                                                      \
    X(adafactor8) X(adafactor8_021) X(adafactor8_024) X(adafactor8_025) X(adafactor8_046) X(adafactor8_046_1d)      \
    X(adam) X(adamw) X(adamw_factor) X(ema) X(sgdm)                                            \
    X(adamw_after) X(ademamix) X(ademamix_after) X(momentum) X(rmsprop) X(rmsprop_raw)         \
    X(adagrad) X(adagrad_raw) X(lion) X(lamb) X(lamb_raw) X(lars) X(lars_bare)                 \
    X(adafactor) X(adafactor_torch) X(came) X(apollo) X(fira) X(fira_rms)                \
    X(lion8) X(sgd_zero) X(sgdw) X(rmsprop_torch) X(rmsprop_full) X(adagrad_torch)             \
    X(nadam) X(nadamw) X(radam) X(radamw) X(adabelief) X(muon_lin) X(muon_bnb) \
    X(microadam) X(shampoo_adamw) X(shampoo_sgd)
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
        if (strcmp(qm_oracle_at(i)->family, family) == 0)
            return qm_oracle_at(i);
    return NULL;
}

int qm_oracle_has_adam_states(const char *family)
{
    const struct qm_oracle *o = qm_oracle_find(family);
    return o && o->has_adam_states;
}

qm_status qm_oracle_step(const struct qm_oracle *o, double *p, double *const *slot, const double *g,
                         const struct qm_shape *shape, uint32_t tensor,
                         const struct qm_oracle_hyper *h, int64_t t)
{
    if (o->whole)
        return o->whole(p, slot, g, shape, tensor, h, t);
    int64_t n = qm_shape_numel(shape), rows = shape->rank > 0 ? shape->dim[0] : 1;
    o->step(p, slot, g, rows, rows > 0 ? n / rows : 0, h, t);
    return QM_OK;
}
