/* registry.h - seeded bugs and benign re-writings of the kernel templates in variants/native/.
 *
 * One text file per template, experiments/mutants/NAME.txt; the executable carries them.  A line is
 *
 *     template NAME SHAPE        first: variants/native/NAME.c, judged on a tensor of this shape
 *     mutant NAME CLASS: TEXT    a bug; the lines that follow say what it changes
 *     benign NAME: TEXT          a change after which the kernel is as right as before
 *     within REGIME: WHY         of a mutant: there its results differ, and are allowed to
 *     - CODE                     taken out: a piece of the template that stands there exactly once;
 *     + CODE                     several lines of one sign in a row are lines of one piece, and
 *                                their indentation does not count
 *     # ...                      a comment; empty lines too */
#ifndef QM_EXPERIMENTS_MUTANTS_REGISTRY_H
#define QM_EXPERIMENTS_MUTANTS_REGISTRY_H

#include "core/base/status.h"

/* Where every kernel is judged: class and setting of experiments/check/cases.h, and the first step. */
/* clang-format off */
#define QM_TRIAL_LIST(X)                                                                  \
    X(usual,   "normal/default/t10",   "gradients 0.01 wide, step 10, the variant's own settings") \
    X(start,   "small/wd0/t1",     "gradients 1e-6 wide, step 1, no weight decay")                              \
    X(late,    "unit/wd/t1000",        "gradients 1 wide, step 1000, weight decay 0.1")            \
    X(decades, "loguniform/wd/t3",     "gradients over 30 decades, step 3, weight decay 0.1")      \
    X(planted, "exact/exact/t1",   "new states on decision edges and ties, exact arithmetic, step 1") \
    X(turned,  "normal/maximize/t2",   "gradients 0.01 wide, step 2, an objective to maximize")
/* clang-format on */
enum qm_trial_regime {
#define X(name, parts, text) QM_TRIAL_##name,
    QM_TRIAL_LIST(X)
#undef X
        QM_TRIAL_COUNT
};

const char *qm_trial_name(int regime);
const char *qm_trial_text(int regime);

/* "33809/normal/default/t10/forced"; text of `size` bytes. */
void qm_trial_case(int regime, const char *shape, char *text, size_t size);

enum qm_mutant_kind { QM_MUTANT_template, QM_MUTANT_mutant, QM_MUTANT_benign };

struct qm_mutant_entry {
    enum qm_mutant_kind kind;
    char id[80]; /* "adamw4_ao", "adamw4_ao.eps-inside" */
    char template[40], shape[24], class[24], text[200];
    int of;                       /* index of its template's entry */
    char *source;                 /* C; owned */
    char *within[QM_TRIAL_COUNT]; /* why; owned, or NULL */
};

struct qm_registry {
    int n, room;
    struct qm_mutant_entry *entry; /* each template before what is made of it */
};

/* Adds one file's entries.  lines: ended by NULL, each with its newline.  QM_BAD_ARG, with the file's
 * name and the line's number, for anything that is not as above, or a piece that the template does
 * not hold exactly once. */
qm_status qm_registry_add(struct qm_registry *r, const char *file, const char *const *lines);

qm_status qm_registry_open(struct qm_registry *r); /* all that the executable carries */
void qm_registry_close(struct qm_registry *r);     /* accepts a zeroed or half-built one */

const struct qm_mutant_entry *qm_registry_find(const struct qm_registry *r, const char *id);

#endif
