/* write_results.c - Writes the result file of a suite and reports its tables. */
#include "experiments/run/write_results.h"
#include "core/base/clock.h"
#include "experiments/lockstep/coded_share.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "experiments/protocol/protocol.h"
#include "experiments/run/summary.h"

/* ---- reporting ------------------------------------------------------------------------------- */

struct counts {
    int64_t ok, skipped, diverged, failed;
    int64_t plain; /* that were not quantized */
};

static struct counts count(const struct qm_results *r)
{
    struct counts n = {0};
    for (int64_t i = 0; i < r->n_cells; i++) {
        const struct qm_outcome *o = &r->outcome[i];
        n.failed += o->failed;
        n.skipped += o->reason && !o->failed;
        n.diverged += !o->reason && o->diverged;
        n.ok += !o->reason && !o->diverged;
        n.plain += r->cell[i].role == QM_CELL_plain && !o->reason && qm_is_unquantized(r, i);
    }
    return n;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Keeps every distinct reason of failed or of skipped cells with the number of its cells, and notes
 * it unless all cells were skipped: the error names the reason then. */
static void note_reasons(const struct qm_results *r, int failed, int all_skipped, json_t *into)
{
    const char **reason = calloc((size_t)r->n_cells + 1, sizeof *reason);
    int64_t n = 0;
    for (int64_t i = 0; reason && i < r->n_cells; i++)
        if (r->outcome[i].reason && r->outcome[i].failed == failed)
            reason[n++] = r->outcome[i].reason;
    if (n > 0)
        qsort(reason, (size_t)n, sizeof *reason, by_text);
    for (int64_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && strcmp(reason[end], reason[i]) == 0; end++)
            ;
        if (!all_skipped)
            qm_note("%lld %s %s: %s", (long long)(end - i), end - i == 1 ? "cell" : "cells",
                    failed ? "failed" : "skipped", reason[i]);
        json_object_set_new(into, reason[i], json_integer(end - i));
    }
    free(reason);
}

/* QM_NO_MATCH, by the counts of reasons that the report has: the most frequent one is named. */
static qm_status fail_skipped(const struct qm_suite *s, const json_t *report, const char *path,
                              int is_kept)
{
    json_t *reasons = json_object_get(report, "reasons"), *n;
    const char *reason, *most = "";
    json_int_t of_most = 0;
    char others[48] = "";
    json_object_foreach (reasons, reason, n)
        if (json_integer_value(n) > of_most) {
            of_most = json_integer_value(n);
            most = reason;
        }
    if (json_object_size(reasons) > 1)
        snprintf(others, sizeof others, ", and %zu other reasons", json_object_size(reasons) - 1);
    return qm_fail(QM_NO_MATCH, "%s: every cell was skipped: %s (%lld of %lld cells%s); %s %s",
                   s->path, most, (long long)of_most,
                   (long long)json_integer_value(json_object_get(report, "cells")), others, path,
                   is_kept ? "stays as it was" : "lists them");
}

static json_t *report(struct qm_write_results *f, const struct qm_results *r,
                      struct qm_summary **tables, const struct qm_effect *effect,
                      const struct qm_protocol *protocol, const char *path, double seconds)
{
    struct counts n = count(r);
    json_t *skips = json_object(), *summary = json_object();
    int all_skipped = n.skipped == r->n_cells; /* the tables would be empty */
    int is_printed = !qm_cli.json && !all_skipped;
    note_reasons(r, 0, all_skipped, skips);
    note_reasons(r, 1, all_skipped, skips);
    int64_t beyond = qm_oneshot_beyond(r);
    if (beyond && !all_skipped)
        qm_note("%lld cells of coupling oneshot give codes to a tensor that their recipe keeps in "
                "float32 (min_numel, whole_blocks)",
                (long long)beyond);
    if (n.diverged)
        qm_note("%lld cell%s diverged", (long long)n.diverged, n.diverged == 1 ? "" : "s");
    if (n.plain && !protocol) /* whose table says it */
        qm_note("%lld cell%s not quantized: what the suite varies had no codes (min_numel, "
                "whole_blocks)",
                (long long)n.plain, n.plain == 1 ? " was" : "s were");
    if (is_printed && !f->claims && !f->headline && !protocol && !r->suite->claim &&
        r->suite->n_summaries == 0)
        qm_note("no table, for the suite has no key summary: qualm plot draws the results");
    for (int i = 0; i < r->suite->n_summaries; i++) {
        if (qm_cli.json)
            json_object_set_new(summary, r->suite->summary[i].name, qm_summary_json(tables[i]));
        else if (is_printed && !f->claims && (!f->headline || r->suite->summary[i].headline))
            qm_summary_print(tables[i]);
    }
    if (is_printed && !f->claims)
        qm_protocol_print(protocol);
    for (int i = 0; i < r->suite->n_expects; i++)
        f->verdicts[effect[i].verdict]++;
    if (r->suite->claim && is_printed)
        qm_claim_print(r->suite, effect);
    fflush(stdout); /* keeps the order with notes on stderr */
    if (!all_skipped)
        qm_note("%s%lld cells, %lld skipped, %.1f s: %s", f->claims ? "  " : "\n",
                (long long)r->n_cells, (long long)n.skipped, seconds, path);
    json_t *all = json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "suite",
                            r->suite->stem, "file", path, "cells", (json_int_t)r->n_cells, "ok",
                            (json_int_t)n.ok, "skipped", (json_int_t)n.skipped, "diverged",
                            (json_int_t)n.diverged, "failed", (json_int_t)n.failed, "not_quantized",
                            (json_int_t)n.plain, "reasons", skips, "summary", summary);
    if (r->suite->claim)
        json_object_set_new(all, "claim", qm_claim_json(r->suite, effect));
    if (protocol)
        json_object_set_new(all, "protocol", qm_protocol_json(protocol));
    return all;
}

/* ---- storing --------------------------------------------------------------------------------- */

static qm_status store_all(const struct qm_results *r, struct qm_summary **tables,
                           const struct qm_effect *effect, const struct qm_protocol *protocol,
                           struct qm_store *store)
{
    QM_TRY(qm_results_store(r, store));
    QM_TRY(qm_protocol_store(protocol, store));
    for (int i = 0; i < r->suite->n_summaries; i++)
        QM_TRY(qm_summary_store(tables[i], store));
    return qm_claim_store(r->suite, effect, store);
}

qm_status qm_write_results(struct qm_write_results *f, const struct qm_results *r,
                           struct qm_store *store, const char *path, json_t *into)
{
    const struct qm_suite *s = r->suite;
    struct qm_summary **tables = calloc((size_t)s->n_summaries + 1, sizeof *tables);
    struct qm_effect *effect = calloc((size_t)s->n_expects + 1, sizeof *effect);
    struct qm_protocol *protocol = NULL;
    qm_status st = tables && effect ? QM_OK : qm_fail(QM_NO_MEMORY, "summaries");
    for (int i = 0; st == QM_OK && i < s->n_summaries; i++)
        st = qm_summary_make(r, &s->summary[i], &tables[i]);
    if (st == QM_OK)
        st = qm_claim_judge(r, effect);
    if (st == QM_OK)
        st = qm_protocol_make(r, &protocol);
    if (st == QM_OK)
        st = store_all(r, tables, effect, protocol, store);
    if (st == QM_OK && f->stop && *f->stop)
        st = qm_fail(QM_INTERRUPTED, "interrupted");
    struct counts n = count(r);
    int is_kept = n.skipped == r->n_cells && access(path, F_OK) == 0;
    if (st == QM_OK && !is_kept) { /* a file of skipped cells replaces no results */
        st = qm_store_commit(store);
        store = NULL;
    }
    if (st == QM_OK) {
        json_t *said = report(f, r, tables, effect, protocol, path, qm_seconds() - f->started);
        json_array_append_new(into, said);
        if (n.skipped == r->n_cells)
            st = fail_skipped(s, said, path, is_kept);
    }
    qm_store_abort(store);
    qm_protocol_free(protocol);
    for (int i = 0; tables && i < s->n_summaries; i++)
        qm_summary_free(tables[i]);
    free(tables);
    free(effect);
    return st;
}
