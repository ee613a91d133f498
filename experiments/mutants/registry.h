/* registry.h - Seeded bugs and benign rewritings of the kernel templates in variants/native/.
 *
 * There is one text file per template, experiments/mutants/NAME.txt, which the executable contains.
 * A line is one of
 *
 *     template NAME SHAPE        the first line: variants/native/NAME.c, judged on this shape
 *     mutant NAME CLASS: TEXT    a bug; the lines that follow hold its changes
 *     benign NAME: TEXT          a rewriting that is as correct as the template
 *     within REGIME: WHY         the mutant's results differ in this regime, within the bounds
 *     - CODE                     code that is removed; it occurs in the template exactly once
 *     + CODE                     code that is inserted in its place; consecutive lines of one sign
 *                                form one piece, and indentation does not count
 *     # ...                      a comment, as is an empty line */
#ifndef QM_EXPERIMENTS_MUTANTS_REGISTRY_H
#define QM_EXPERIMENTS_MUTANTS_REGISTRY_H

#include <stdint.h>

#include "core/base/status.h"

/* The cases that every kernel is judged on: class and setting of experiments/check/cases.h, and the
 * first step. */
/* clang-format off */
#define QM_MUTANT_REGIME_LIST(X)                                                                  \
    X(usual,   "normal/default/t10",   "gradients 0.01 wide, step 10, the variant's own settings") \
    X(start,   "small/wd0/t1",     "gradients 1e-6 wide, step 1, no weight decay")                              \
    X(late,    "unit/wd/t1000",        "gradients 1 wide, step 1000, weight decay 0.1")            \
    X(decades, "loguniform/wd/t3",     "gradients over 30 decades, step 3, weight decay 0.1")      \
    X(planted, "exact/exact/t1",   "new states on decision edges and ties, exact arithmetic, step 1") \
    X(turned,  "normal/maximize/t2",   "gradients 0.01 wide, step 2, an objective to maximize")
/* clang-format on */
enum qm_mutant_regime {
#define X(name, parts, text) QM_MUTANT_REGIME_##name,
    QM_MUTANT_REGIME_LIST(X)
#undef X
        QM_MUTANT_REGIME_COUNT
};

const char *qm_mutant_regime_name(int regime);
const char *qm_mutant_regime_text(int regime);

/* Prints "33809/normal/default/t10/forced" into text[size]. */
void qm_mutant_regime_case(int regime, const char *shape, char *text, size_t size);

enum qm_mutant_kind { QM_MUTANT_template, QM_MUTANT_mutant, QM_MUTANT_benign };

struct qm_mutant_entry {
    enum qm_mutant_kind kind;
    char id[80]; /* "adamw4_ao", "adamw4_ao.eps-inside" */
    char template[40], shape[24], class[24], text[200];
    int of;                               /* index of its template's entry */
    char *source;                         /* C code; owned */
    char *within[QM_MUTANT_REGIME_COUNT]; /* reason, by regime; owned, or NULL */
};

struct qm_registry {
    int n;
    int64_t room;
    struct qm_mutant_entry *entry; /* each template before the entries made from it */
};

/* Adds one file's entries.  lines: ended by NULL, each with its newline.  QM_BAD_ARG, with file
 * and line number: a line of another form, or a piece that does not occur in the template
 * exactly once. */
qm_status qm_registry_add(struct qm_registry *r, const char *file, const char *const *lines);

qm_status qm_registry_open(struct qm_registry *r); /* with all files of the executable */
void qm_registry_close(struct qm_registry *r);     /* accepts a zeroed or half-built one */

const struct qm_mutant_entry *qm_registry_find(const struct qm_registry *r, const char *id);

#endif
