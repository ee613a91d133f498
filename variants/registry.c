/* registry.c - Finds and enumerates the variants.
 *
 * The Makefile writes variants.inc from the names of the files: a file registers its variant. */
#include "core/base/name.h"
#include "core/recipe/variant.h"

#include <string.h>

#define QM_ENTRY(stem, file) extern const struct qm_variant qm_variant_##stem;
#include "variants.inc"
#undef QM_ENTRY

static const struct qm_variant *const table[] = {
#define QM_ENTRY(stem, file) &qm_variant_##stem,
#include "variants.inc"
#undef QM_ENTRY
};

static const char *const files[] = {
#define QM_ENTRY(stem, file) file,
#include "variants.inc"
#undef QM_ENTRY
};

enum { COUNT = sizeof table / sizeof *table };

int qm_variant_count(void) { return COUNT; }

const struct qm_variant *qm_variant_at(int i) { return table[i]; }

const char *qm_variant_file(const struct qm_variant *v)
{
    int i = 0;
    while (table[i] != v)
        i++;
    return files[i];
}

qm_status qm_variant_find(const char *name, const struct qm_variant **out)
{
    const char *names[COUNT];
    for (int i = 0; i < COUNT; i++) {
        names[i] = table[i]->name;
        if (strcmp(name, names[i]) == 0) {
            *out = table[i];
            return QM_OK;
        }
    }
    return qm_name_unknown("variant", name, names, COUNT);
}
