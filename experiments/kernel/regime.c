/* regime.c - Selects the cases of a kernel check. */
#include "experiments/kernel/regime.h"

#include <string.h>

#include "core/base/name.h"
#include "core/base/philox.h"
#include "core/user_kernel/backend_file.h"

enum {
    EMULATED = (1 << 15) + 8,
    QUICK_STRIDE = 8
}; /* EMULATED: elements that the emulator steps in drawn cases */

/* Large cases of a .cu file on the emulator, after the core: the first WITHOUT_SIDES always, the
 * others where each row and column has a number. */
enum { LARGE = 4, WITHOUT_SIDES = 2 };

/* Elements just above 2^17, which make one step, and above 2^16, which make two, in odd numbers of
 * rows and columns; then more than 2^16 rows, and as many columns. */
static struct qm_shape large_shape(uint64_t seed, int64_t k)
{
    enum { STREAM = 0x6c617267 };
    uint32_t word = qm_philox_stream(seed, STREAM, (uint64_t)k);
    int64_t more = word / 128 % 4, rows = 2 * (128 + word % 128) + 1;
    int64_t elements = k == 0 ? 1 << 17 : 1 << 16, side = (1 << 16) + 1 + word % 64;
    return k < WITHOUT_SIDES ? (struct qm_shape){2, {rows, (elements / rows + 1 + more) | 1}}
           : k == 2          ? (struct qm_shape){2, {side, 2}}
                             : (struct qm_shape){2, {2, side}};
}

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
    *r = (struct qm_regimes){.o = o, .any_class = 1, .any_setting = 1};
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

void qm_regimes_draw_for(struct qm_regimes *r, const struct qm_recipe *recipe)
{
    qm_domain_of(recipe, &qm_backend_file, &r->domain);
    if (qm_kernel_is_cuda(r->o->file) && !r->o->on_gpu && r->domain.largest > EMULATED)
        r->domain.largest = EMULATED;
    int takes_large = r->domain.largest == EMULATED && !r->o->forever && !r->o->quick;
    r->n_large = !takes_large ? 0 : r->domain.has_sides ? LARGE : WITHOUT_SIDES;
}

/* Of the core every stride-th case is taken. */
static int stride(const struct qm_regimes *r) { return r->o->quick ? QUICK_STRIDE : 1; }

static int64_t core(const struct qm_regimes *r)
{
    return r->o->forever ? 0 : (qm_case_count() - 1) / stride(r) + 1;
}

int64_t qm_regimes_count(const struct qm_regimes *r)
{
    return r->o->forever ? INT64_MAX : core(r) + r->n_large + r->o->draws;
}

struct qm_case qm_regimes_at(const struct qm_regimes *r, uint64_t seed, int64_t i)
{
    int64_t k = i - core(r);
    struct qm_shape shape = large_shape(seed, k);
    return k < 0            ? qm_case_at((int)i * stride(r))
           : k < r->n_large ? qm_domain_large(&r->domain, seed, k, &shape)
                            : qm_domain_draw(&r->domain, seed, k - r->n_large);
}
