/* matrix.h - Tests the judge of `check --kernel` on seeded bugs: the kill matrix.
 *
 * Every entry of the registry is judged.  The judge passes where it finds every bug and nothing in
 * templates and benign entries. */
#ifndef QM_EXPERIMENTS_MUTANTS_MATRIX_H
#define QM_EXPERIMENTS_MUTANTS_MATRIX_H

#include <stdint.h>

#include "experiments/mutants/registry.h"

/* The result of one entry in one regime.  equal: the template's bits; survives: other bits, but
 * no finding. */
/* clang-format off */
#define QM_MATRIX_CELL_LIST(X)                                                                     \
    X(killed, 'K') X(equal, '=') X(survives, '.') X(refused, 'r') X(none, ' ')
/* clang-format on */
enum qm_matrix_cell {
#define X(name, letter) QM_MATRIX_CELL_##name,
    QM_MATRIX_CELL_LIST(X)
#undef X
        QM_MATRIX_CELL_COUNT
};

/* The difference of a surviving kernel's results from its template's, from equal inputs. */
struct qm_mutant_difference {
    int64_t outputs, differ;   /* parameters and elements of states, over all steps */
    int64_t judged, unbounded; /* numbers with a verdict; numbers that may overflow */
    double worst;              /* largest error / bound of any number judged; at most 1 */
};

struct qm_kill_cell {
    enum qm_matrix_cell is;
    uint64_t digest;      /* of all results */
    unsigned rejected_by; /* bit i: rule i of experiments/kernel/peer_rules.h rejects the kernel */
    char *finding;        /* the first finding; owned, or NULL */
    struct qm_mutant_difference difference; /* where it survives; outputs 0: unknown */
};

/* The sets of cases that `check --kernel` judges by default, beside the regimes: its core, which
 * was all before cases were drawn, and what it draws from the domain with the run's seed. */
#define QM_CASE_SET_LIST(X)                       \
    X(listed, "the listed cases of check's core") \
    X(drawn, "cases drawn from the domain")
enum qm_case_set {
#define X(name, text) QM_CASE_SET_##name,
    QM_CASE_SET_LIST(X)
#undef X
        QM_CASE_SET_COUNT
};

/* The result of a set: of a mutant up to its first finding, of others after all its cases. */
struct qm_case_set_result {
    enum qm_matrix_cell is; /* killed, survives, or none: the set was not run */
    int64_t cases;          /* judged */
    char *finding;          /* the first case with a finding, and the finding; owned, or NULL */
};

struct qm_mutant_result {
    const struct qm_mutant_entry *entry;
    struct qm_kill_cell cell[QM_MUTANT_REGIME_COUNT];
    struct qm_case_set_result set[QM_CASE_SET_COUNT];
    int64_t runs, alarms; /* cases judged over all seeds; cases with a finding */
    char *broken;         /* why the kernel was not built or loaded; owned, or NULL */
};

struct qm_matrix_options {
    const struct qm_registry *registry;
    const char *only; /* regular expression on ids, or NULL; templates come with their entries */
    int quick;        /* every fourth mutant and benign entry of a template; one seed; few draws,
                       * and no listed cases but for a mutant that survives those */
    int64_t runs;     /* least number of benign cases */
    uint64_t seed;
    int threads; /* 0: one per processor */
};

struct qm_matrix {
    struct qm_matrix_options o;
    int n; /* number of results, with templates, in the registry's order */
    struct qm_mutant_result *result;
    int n_faults;
    int64_t room;
    char **fault;         /* texts; owned */
    int mutants, benign;  /* numbers of entries */
    int in_full;          /* of a quick run: mutants that survived few cases and got all */
    int64_t runs, alarms; /* of templates and benign entries */
    double seconds;
};

/* Runs the matrix.  QM_NO_MATCH: `only` matches nothing; QM_INTERRUPTED.  The caller calls
 * qm_matrix_free even on failure.  Faults, which are no failure of the run, are:
 *   - a mutant that is killed in no regime and by no case of check's sets
 *   - a mutant that survives in a regime where its results differ from the template's, without a
 *     `within` line that gives a reason
 *   - a finding in a template or a benign entry
 *   - an entry that does not compile, load or run
 * A mutant that survives runs once more with its template, and the differences are counted (struct
 * qm_mutant_difference). */
qm_status qm_matrix_run(const struct qm_matrix_options *o, struct qm_matrix *m);
void qm_matrix_free(struct qm_matrix *m);

/* Prints the matrix to stdout, as tables or JSON. */
void qm_matrix_report(const struct qm_matrix *m);

#endif
