/* regime.c - Selects the cases of a kernel check, and draws random ones. */
#include "experiments/kernel/regime.h"

#include <string.h>

#include "core/base/name.h"
#include "core/base/philox.h"

static const char *const class_names[] = {
#define X(name, ...) #name,
    QM_CLASS_LIST(X)
#undef X
};
static const char *const setting_names[] = {
#define X(name, ...) #name,
    QM_SETTING_LIST(X)
#undef X
};

qm_status qm_regimes_of(const struct qm_kernel_options *o, struct qm_regimes *r)
{
    const char *all[QM_CLASS_COUNT + QM_SETTING_COUNT];
    memcpy(all, class_names, sizeof class_names);
    memcpy(all + QM_CLASS_COUNT, setting_names, sizeof setting_names);
    *r = (struct qm_regimes){.any_class = 1, .any_setting = 1};
    for (int i = 0; i < o->n_regimes; i++) {
        int c = qm_name_find(o->regime[i], class_names, QM_CLASS_COUNT);
        int s = qm_name_find(o->regime[i], setting_names, QM_SETTING_COUNT);
        if (c < 0 && s < 0) {
            const char *near =
                qm_name_nearest(o->regime[i], all, QM_CLASS_COUNT + QM_SETTING_COUNT);
            return qm_fail(QM_NO_MATCH,
                           "no regime '%s'%s%s%s; the second and third part of "
                           "`qualm check --list-cases` are their names",
                           o->regime[i], near ? "; did you mean '" : "", near ? near : "",
                           near ? "'?" : "");
        }
        if (c >= 0)
            r->class[c] = 1, r->any_class = 0;
        if (s >= 0)
            r->setting[s] = 1, r->any_setting = 0;
    }
    return QM_OK;
}

int qm_regimes_take(const struct qm_regimes *r, const struct qm_case *c)
{
    return (r->any_class || r->class[c->kind]) && (r->any_setting || r->setting[c->setting]);
}

/* Draw k of round i: uniform below n. */
static int64_t draw(uint64_t seed, int64_t i, int k, int64_t n)
{
    return (int64_t)(qm_philox_stream(seed, (uint64_t)i, (uint64_t)k) % (uint32_t)n);
}

struct qm_case qm_regimes_draw(const struct qm_regimes *r, uint64_t seed, int64_t i)
{
    static const int64_t steps[] = {1, 1, 2, 10, 1000, 1000000};
    struct qm_case c = {.forced = draw(seed, i, 0, 4) != 0};
    int64_t remaining = 1 + draw(seed, i, 1, 1 << draw(seed, i, 2, 15));
    c.shape.rank = 1 + (int)draw(seed, i, 3, 3);
    for (int a = 0; a < c.shape.rank; a++) {
        int64_t most = a + 1 == c.shape.rank ? remaining : 1 + draw(seed, i, 4 + a, remaining);
        c.shape.dim[a] = most;
        remaining /= most;
    }
    c.t = steps[draw(seed, i, 10, 6)];
    for (int k = 12;; k += 2) {
        c.kind = (enum qm_class)draw(seed, i, k, QM_CLASS_COUNT);
        c.setting = (enum qm_setting)draw(seed, i, k + 1, QM_SETTING_COUNT);
        if (c.kind == QM_CLASS_exact && r->any_setting)
            c.setting = QM_SETTING_exact; /* class exact needs setting exact */
        if (qm_regimes_take(r, &c) || k > 4000)
            return c;
    }
}
