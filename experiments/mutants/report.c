/* report.c - Prints the kill matrix as text or JSON. */
#include <stdio.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/kernel/peer_rules.h"
#include "experiments/mutants/judge_entry.h"

static const char letters[] = {
#define X(name, letter) letter,
    QM_MATRIX_CELL_LIST(X)
#undef X
};
static const char *const cell_names[] = {
#define X(name, letter) #name,
    QM_MATRIX_CELL_LIST(X)
#undef X
};

static int is_mutant(const struct qm_mutant_result *t)
{
    return t->entry->kind == QM_MUTANT_mutant;
}

/* Number of regimes in which a rule rejects the entry and its results differ from
 * the template's. */
static int rejected_in(const struct qm_mutant_result *t, int rule)
{
    int count = 0;
    for (int k = 0; k < QM_MUTANT_REGIME_COUNT; k++)
        count += (t->cell[k].rejected_by >> rule & 1u) && t->cell[k].is != QM_MATRIX_CELL_equal;
    return count;
}

static const char *const sets[] = {
#define X(name, text) #name,
    QM_CASE_SET_LIST(X)
#undef X
};

/* Number of mutants that a set kills; except: and this set does not, or -1. */
static int set_kills(const struct qm_matrix *m, int set, int except)
{
    int count = 0;
    for (int i = 0; i < m->n; i++)
        count += is_mutant(&m->result[i]) && m->result[i].set[set].is == QM_MATRIX_CELL_killed &&
                 (except < 0 || m->result[i].set[except].is != QM_MATRIX_CELL_killed);
    return count;
}

static int count_cells(const struct qm_matrix *m, int regime, enum qm_matrix_cell is)
{
    int count = 0;
    for (int i = 0; i < m->n; i++)
        count += is_mutant(&m->result[i]) && m->result[i].cell[regime].is == is;
    return count;
}

/* Number of mutants that a rule rejects in a regime; regime -1: in any; rule -1: Qualm's judge. */
static int rejected(const struct qm_matrix *m, int rule, int regime)
{
    int count = 0;
    for (int i = 0; i < m->n; i++) {
        const struct qm_mutant_result *t = &m->result[i];
        if (!is_mutant(t))
            continue;
        if (regime < 0)
            count += (rule < 0 ? qm_mutant_kills(t) : rejected_in(t, rule)) > 0;
        else
            count += rule < 0 ? t->cell[regime].is == QM_MATRIX_CELL_killed
                              : (int)(t->cell[regime].rejected_by >> rule & 1u);
    }
    return count;
}

static int benign_rejected(const struct qm_matrix *m, int rule)
{
    int count = 0;
    for (int i = 0; i < m->n; i++)
        count +=
            m->result[i].entry->kind == QM_MUTANT_benign && rejected_in(&m->result[i], rule) > 0;
    return count;
}

/* ---- for people ------------------------------------------------------------------------------ */

static void print_matrix(const struct qm_matrix *m)
{
    enum { COLUMNS = 2 + QM_MUTANT_REGIME_COUNT + QM_CASE_SET_COUNT + QM_PEER_RULE_COUNT };
    const char *heads[COLUMNS] = {"mutant"};
    int n = 1;
    for (int k = 0; k < QM_MUTANT_REGIME_COUNT; k++)
        heads[n++] = qm_mutant_regime_name(k);
    for (int k = 0; k < QM_CASE_SET_COUNT; k++)
        heads[n++] = sets[k];
    for (int k = 0; k < QM_PEER_RULE_COUNT; k++)
        heads[n++] = qm_peer_rule_name(k);
    heads[n++] = "what";
    struct qm_table *t = qm_table_open(n, heads);
    for (int i = 0; i < m->n; i++) {
        const struct qm_mutant_result *result = &m->result[i];
        if (!is_mutant(result))
            continue;
        qm_table_cell(t, "%s", result->entry->id);
        for (int k = 0; k < QM_MUTANT_REGIME_COUNT; k++)
            qm_table_cell(t, "%c", letters[result->cell[k].is]);
        for (int k = 0; k < QM_CASE_SET_COUNT; k++)
            qm_table_cell(t, "%c", letters[result->set[k].is]);
        for (int k = 0; k < QM_PEER_RULE_COUNT; k++)
            qm_table_cell(t, rejected_in(result, k) ? "%d" : ".", rejected_in(result, k));
        qm_table_cell(t, "%s", result->entry->text);
    }
    qm_table_close(t);
    puts("K killed  = equal bits, so not a bug here  . survives;  behind them the transplanted "
         "rules, "
         "each with the\nnumber of regimes in which it rejects the mutant");
}

static void print_totals(const struct qm_matrix *m)
{
    const char *heads[] = {"of this many mutants",
#define X(name, text) #name,
                           QM_PEER_RULE_LIST(X)
#undef X
                               "qualm"};
    struct qm_table *t = qm_table_open(QM_PEER_RULE_COUNT + 2, heads);
    putchar('\n');
    qm_table_cell(t, "killed in any regime, of %d", m->mutants);
    for (int k = 0; k < QM_PEER_RULE_COUNT; k++)
        qm_table_cell(t, "%d", rejected(m, k, -1));
    qm_table_cell(t, "%d", rejected(m, -1, -1));
    for (int r = 0; r < QM_MUTANT_REGIME_COUNT; r++) {
        qm_table_cell(t, "in %s, of %d that differ", qm_mutant_regime_name(r),
                      m->mutants - count_cells(m, r, QM_MATRIX_CELL_equal));
        for (int k = 0; k < QM_PEER_RULE_COUNT; k++)
            qm_table_cell(t, "%d", rejected(m, k, r));
        qm_table_cell(t, "%d", rejected(m, -1, r));
    }
    qm_table_cell(t, "benign, rejected, of %d", m->benign);
    for (int k = 0; k < QM_PEER_RULE_COUNT; k++)
        qm_table_cell(t, "%d", benign_rejected(m, k));
    int wrong = 0;
    for (int i = 0; i < m->n; i++)
        wrong += m->result[i].entry->kind == QM_MUTANT_benign && m->result[i].alarms > 0;
    qm_table_cell(t, "%d", wrong);
    qm_table_close(t);
    puts("The rules are transplanted: they compare the kernel with the composed step, so that no "
         "quantization error\nlies in between, which is generous to them.");
    for (int k = 0; k < QM_PEER_RULE_COUNT; k++)
        qm_print("  %-8s %s\n", qm_peer_rule_name(k), qm_peer_rule_text(k));
}

/* Prints the reason, the number of outputs that differ from the template's, and the largest error
 * / bound. */
static void print_within(const struct qm_mutant_result *t, int regime)
{
    const struct qm_mutant_difference *a = &t->cell[regime].difference;
    qm_print("  within  %s in %s: %s\n", t->entry->id, qm_mutant_regime_name(regime),
             t->entry->within[regime]);
    qm_print("          %lld of %lld outputs differ; judged %lld, largest share of a bound %.3g; "
             "%lld have no bound\n",
             (long long)a->differ, (long long)a->outputs, (long long)a->judged, a->worst,
             (long long)a->unbounded);
}

static json_t *difference_json(const struct qm_kill_cell *c)
{
    const struct qm_mutant_difference *a = &c->difference;
    return a->outputs == 0
               ? json_null()
               : json_pack("{s:I, s:I, s:I, s:I, s:f}", "outputs", (json_int_t)a->outputs, "differ",
                           (json_int_t)a->differ, "judged", (json_int_t)a->judged, "unbounded",
                           (json_int_t)a->unbounded, "worst_ratio", a->worst);
}

static void print_pairs(const struct qm_matrix *m)
{
    int equal = 0;
    for (int r = 0; r < QM_MUTANT_REGIME_COUNT; r++)
        equal += count_cells(m, r, QM_MATRIX_CELL_equal);
    qm_print("\n%d pairs of mutant and regime are equivalent: every output of every step has the "
             "template's bits\n",
             equal);
    for (int i = 0; i < m->n; i++) {
        const struct qm_mutant_result *t = &m->result[i];
        for (int k = 0; k < QM_MUTANT_REGIME_COUNT && is_mutant(t); k++)
            if (t->cell[k].is == QM_MATRIX_CELL_equal)
                qm_print("  equal   %s in %s, digest %016llx\n", t->entry->id,
                         qm_mutant_regime_name(k), (unsigned long long)t->cell[k].digest);
            else if (t->cell[k].is == QM_MATRIX_CELL_survives && t->entry->within[k])
                print_within(t, k);
    }
}

/* What check's own cases find: by the listed ones, and by the drawn ones what those miss. */
static void print_sets(const struct qm_matrix *m)
{
    int listed = set_kills(m, QM_CASE_SET_listed, -1), all = m->mutants;
    int new = set_kills(m, QM_CASE_SET_drawn, QM_CASE_SET_listed);
    if (m->o.quick) {
        qm_print("\ndrawn cases kill %d of %d mutants (few draws, and no listed cases; %d that "
                 "survived those were judged in all cases)\n",
                 set_kills(m, QM_CASE_SET_drawn, -1), all, m->in_full);
        return;
    }
    qm_print("\ncheck's listed cases kill %d of %d mutants, its drawn cases %d; %d that the listed "
             "ones miss (%.1f %% of all)\n",
             listed, all, set_kills(m, QM_CASE_SET_drawn, -1), new, all ? 100.0 * new / all : 0.0);
}

static void print(const struct qm_matrix *m)
{
    print_matrix(m);
    print_totals(m);
    print_sets(m);
    print_pairs(m);
    qm_print("\n%lld runs of %d benign re-writings and the templates: %lld false alarms\n",
             (long long)m->runs, m->benign, (long long)m->alarms);
    for (int i = 0; i < m->n_faults; i++)
        qm_print("FAULT %s\n", m->fault[i]);
    qm_print("%s: %d of %d mutants killed, %lld false alarms; seed %llu, %.0f s\n",
             m->n_faults ? "FAILED" : "passed", rejected(m, -1, -1), m->mutants,
             (long long)m->alarms, (unsigned long long)m->o.seed, m->seconds);
}

/* ---- for machines ---------------------------------------------------------------------------- */

static json_t *cell_json(const struct qm_mutant_result *t, int regime)
{
    const struct qm_kill_cell *c = &t->cell[regime];
    json_t *field = json_array();
    for (int k = 0; k < QM_PEER_RULE_COUNT; k++)
        if (c->rejected_by >> k & 1u)
            json_array_append_new(field, json_string(qm_peer_rule_name(k)));
    return json_pack(
        "{s:s, s:o, s:s?, s:s?, s:o, s:o}", "verdict", cell_names[c->is], "rejected_by", field,
        "finding", c->finding, "within", t->entry->within[regime], "digest",
        json_sprintf("%016llx", (unsigned long long)c->digest), "apart", difference_json(c));
}

static json_t *sets_json(const struct qm_mutant_result *t)
{
    json_t *all = json_object();
    for (int k = 0; k < QM_CASE_SET_COUNT; k++)
        json_object_set_new(all, sets[k],
                            json_pack("{s:s, s:I, s:s?}", "verdict", cell_names[t->set[k].is],
                                      "cases", (json_int_t)t->set[k].cases, "finding",
                                      t->set[k].finding));
    return all;
}

static json_t *result_json(const struct qm_mutant_result *t)
{
    static const char *const kinds[] = {"template", "mutant", "benign"};
    json_t *cells = json_object();
    for (int k = 0; k < QM_MUTANT_REGIME_COUNT; k++)
        json_object_set_new(cells, qm_mutant_regime_name(k), cell_json(t, k));
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:s?, s:o, s:o}", "id", t->entry->id,
                     "kind", kinds[t->entry->kind], "template", t->entry->template, "class",
                     t->entry->class, "text", t->entry->text, "runs", (json_int_t)t->runs,
                     "findings", (json_int_t)t->alarms, "broken", t->broken, "regimes", cells,
                     "sets", sets_json(t));
}

static json_t *matrix_json(const struct qm_matrix *m)
{
    json_t *entries = json_array(), *faults = json_array(), *rules = json_array();
    json_t *regimes = json_array(), *kills = json_object();
    for (int k = 0; k < QM_CASE_SET_COUNT; k++)
        json_object_set_new(kills, sets[k], json_integer(set_kills(m, k, -1)));
    json_object_set_new(kills, "drawn_and_not_listed",
                        json_integer(set_kills(m, QM_CASE_SET_drawn, QM_CASE_SET_listed)));
    for (int i = 0; i < m->n; i++)
        json_array_append_new(entries, result_json(&m->result[i]));
    for (int i = 0; i < m->n_faults; i++)
        json_array_append_new(faults, json_string(m->fault[i]));
    for (int k = 0; k < QM_PEER_RULE_COUNT; k++)
        json_array_append_new(rules,
                              json_pack("{s:s, s:s, s:i, s:i}", "name", qm_peer_rule_name(k),
                                        "text", qm_peer_rule_text(k), "killed", rejected(m, k, -1),
                                        "benign_rejected", benign_rejected(m, k)));
    for (int k = 0; k < QM_MUTANT_REGIME_COUNT; k++)
        json_array_append_new(regimes,
                              json_pack("{s:s, s:s, s:i, s:i, s:i}", "name",
                                        qm_mutant_regime_name(k), "text", qm_mutant_regime_text(k),
                                        "killed", count_cells(m, k, QM_MATRIX_CELL_killed), "equal",
                                        count_cells(m, k, QM_MATRIX_CELL_equal), "within",
                                        count_cells(m, k, QM_MATRIX_CELL_survives)));
    return json_pack("{s:I, s:b, s:i, s:i, s:i, s:i, s:I, s:I, s:f, s:o, s:o, s:o, s:o, s:o}",
                     "seed", (json_int_t)m->o.seed, "passed", m->n_faults == 0, "mutants",
                     m->mutants, "killed", rejected(m, -1, -1), "judged_in_full", m->in_full,
                     "benign", m->benign, "benign_runs", (json_int_t)m->runs, "false_alarms",
                     (json_int_t)m->alarms, "seconds", m->seconds, "rules", rules, "regimes",
                     regimes, "faults", faults, "sets", kills, "entries", entries);
}

void qm_matrix_report(const struct qm_matrix *m)
{
    if (qm_cli.json)
        qm_json_print(matrix_json(m));
    else
        print(m);
}
