/* matrix.h - runs every entry of the registry through `check --kernel`'s judge and decides whether
 * the judge is fit: every bug found, nothing right called wrong. */
#ifndef QM_EXPERIMENTS_MUTANTS_MATRIX_H
#define QM_EXPERIMENTS_MUTANTS_MATRIX_H

#include <stdint.h>

#include "experiments/mutants/registry.h"

/* One entry in one regime.  survives: other bits than the template's, and nothing found. */
/* clang-format off */
#define QM_CELL_LIST(X) X(killed, 'K') X(equal, '=') X(survives, '.') X(refused, 'r') X(none, ' ')
/* clang-format on */
enum qm_cell_is {
#define X(name, letter) QM_CELL_##name,
    QM_CELL_LIST(X)
#undef X
        QM_CELL_COUNT
};

/* What a kernel that nothing was found in makes otherwise than its template, from the same inputs. */
struct qm_apart {
    int64_t outputs, differ;   /* parameters and elements of states, over all steps */
    int64_t judged, unbounded; /* numbers with a verdict, and without: they may overflow */
    double worst;              /* largest share of its bound of any number judged; 1 at most */
};

struct qm_kill_cell {
    enum qm_cell_is is;
    uint64_t digest;       /* of all results */
    unsigned field;        /* bit i: rule i of experiments/kernel/peer_rules.h rejects it */
    char *finding;         /* the first; owned, or NULL */
    struct qm_apart apart; /* of what survives; outputs 0: not known */
};

struct qm_mutant_trial {
    const struct qm_mutant_entry *entry;
    struct qm_kill_cell cell[QM_TRIAL_COUNT];
    int64_t runs, alarms; /* cases judged, over all seeds; those with a finding */
    char *broken;         /* why it could not be built or loaded; owned, or NULL */
};

struct qm_matrix_options {
    const struct qm_registry *registry;
    const char *only; /* regular expression on ids, or NULL; templates are taken with theirs */
    int quick;        /* every fourth mutant and benign entry of a template; one seed */
    int64_t runs;     /* benign cases at least */
    uint64_t seed;
    int threads; /* 0: as many as there are processors */
};

/* What stands against the judge, one line each; owned. */
struct qm_matrix {
    struct qm_matrix_options o;
    int n; /* in the registry's order; templates among them */
    struct qm_mutant_trial *trial;
    int n_faults, room;
    char **fault;
    int mutants, benign;  /* how many of each */
    int64_t runs, alarms; /* of templates and benign entries */
    double seconds;
};

/* QM_NO_MATCH where `only` leaves nothing; QM_INTERRUPTED.  The caller frees with qm_matrix_free even
 * on failure.  Faults, which are no failure of the run:
 *   - a mutant that is killed in no regime
 *   - one that differs from its template in a regime, unkilled, and no `within` says why
 *   - a finding in a template or a benign entry
 *   - an entry that does not compile, load or run
 * What survives with a reason is run once more beside its template, and counted (struct qm_apart). */
qm_status qm_matrix_run(const struct qm_matrix_options *o, struct qm_matrix *m);
void qm_matrix_free(struct qm_matrix *m);

/* To stdout, as tables or as JSON. */
void qm_matrix_report(const struct qm_matrix *m);

#endif
