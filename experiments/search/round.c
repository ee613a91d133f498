/* round.c - Runs one round of a search as a campaign, and takes its values. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experiments/campaign/campaign.h"
#include "experiments/cli/cli.h"
#include "experiments/lockstep/coded_share.h"
#include "experiments/search/halving.h"
#include "experiments/store/atomic_file.h"

const char *qm_halving_round_name(int round)
{
    static const char *const name[] = {
#define X(name) #name,
        QM_HALVING_ROUND_LIST(X)
#undef X
    };
    return name[round];
}

/* ---- suites ---------------------------------------------------------------------------------- */

/* "states:" and the name with every character that a glob reads escaped. */
static json_t *source_of(const char *name)
{
    size_t used = 7;
    char *text = malloc(2 * strlen(name) + 8);
    if (!text)
        return NULL;
    memcpy(text, "states:", 8);
    for (; *name; name++) {
        if (strchr("*?[]\\", *name))
            text[used++] = '\\';
        text[used++] = *name;
    }
    text[used] = '\0';
    json_t *v = json_string(text);
    free(text);
    return v;
}

qm_status qm_halving_suite(const struct qm_halving *s, const char *path, const int *entry, int n,
                           json_t *more)
{
    json_t *suite = json_object(), *variant = json_array();
    for (int i = 0; i < n; i++) {
        const struct qm_halving_entry *e = &s->entry[entry[i]];
        json_array_append_new(variant, json_pack("{s:s}", e->label, e->recipe));
    }
    json_object_set_new(suite, "variant", variant);
    json_object_update(suite, more);
    json_decref(more);
    char *text = json_dumps(suite, JSON_INDENT(1) | JSON_ENSURE_ASCII);
    json_decref(suite);
    struct qm_atomic_file file;
    qm_status st = text ? qm_atomic_file_open(path, &file) : qm_fail(QM_NO_MEMORY, "a suite");
    if (st == QM_OK && (st = qm_atomic_file_write(&file, text, strlen(text))) == QM_OK)
        st = qm_atomic_file_commit(&file);
    else if (text && st != QM_OK)
        qm_atomic_file_abort(&file);
    free(text);
    return st;
}

static json_t *sources(const struct qm_halving *s, const struct qm_halving_part *p)
{
    json_t *data = json_array(), *source = json_array();
    for (int half = 0; half < QM_HALF_COUNT; half++)
        for (int i = 0; i < s->files.n_files[half]; i++)
            json_array_append_new(data, json_string(s->files.files[half][i]));
    for (int t = p->from; t < p->to; t++)
        json_array_append_new(source, source_of(s->halves.tensor[t].name));
    return json_pack("{s:s, s:s, s:o, s:o}", "title", "a round of a search", "coupling", "update",
                     "data", data, "source", source);
}

/* ---- running --------------------------------------------------------------------------------- */

/* Takes the values of a round's cells. */
static void take(struct qm_halving *s, const struct qm_halving_part *p, const struct qm_results *r)
{
    int variant = qm_suite_axis(r->suite, "variant"), source = qm_suite_axis(r->suite, "source");
    int value = qm_value_find("sqnr");
    for (int64_t i = 0; i < r->n_cells; i++) {
        const struct qm_outcome *o = &r->outcome[i];
        const struct qm_cell *c = &r->cell[i];
        struct qm_halving_entry *e = &s->entry[p->entry[qm_cell_value(r->suite, c, variant)]];
        double coded = qm_coded_share(o, QM_ALL_SLOTS);
        int has = !o->reason && !(coded < 1.0) && isfinite(o->value[value]);
        e->sqnr[p->from + qm_cell_value(r->suite, c, source)] = has ? o->value[value] : nan("");
        e->is_undefined |= !has && p->round != QM_HALVING_ROUND_report;
    }
}

static qm_status run_campaign(struct qm_halving *s, struct qm_loaded_suite *job, const char *dir,
                              struct qm_results *out)
{
    struct qm_campaign_options o = {.dir = dir,
                                    .workers = s->workers,
                                    .shards = 1,
                                    .fresh = s->fresh,
                                    .seconds = QM_CAMPAIGN_SECONDS,
                                    .mebibytes = qm_campaign_memory(s->workers)};
    struct qm_campaign_count count;
    char *source[] = {(char *)(uintptr_t)dir};
    QM_TRY(qm_campaign_run(job, &o, s->stop, &count));
    if (count.all_failed)
        return qm_fail(QM_CHECK_FAILED, "%lld cells failed; %s/*.log has what they printed",
                       (long long)count.all_failed, dir);
    return qm_campaign_collect(job, source, 1, out);
}

qm_status qm_halving_round(struct qm_halving *s, const struct qm_halving_part *p)
{
    char path[1024], dir[1100];
    const char *name = qm_halving_round_name(p->round);
    struct qm_loaded_suite job = {0};
    struct qm_results r = {0};
    if (p->n == 0 || p->from == p->to)
        return QM_OK;
    snprintf(path, sizeof path, "%s/%s.yaml", s->folder, name);
    snprintf(dir, sizeof dir, "%s/%s.run", s->folder, name);
    qm_note("%s: %d on %d tensors", name, p->n, p->to - p->from);
    qm_status st = qm_halving_suite(s, path, p->entry, p->n, sources(s, p));
    if (st == QM_OK)
        st = qm_loaded_suite_open(path, NULL, &job);
    if (st == QM_OK)
        st = run_campaign(s, &job, dir, &r);
    if (st == QM_OK) {
        take(s, p, &r);
        for (int i = 0; i < p->n; i++)
            s->entry[p->entry[i]].round = p->round;
    }
    if (st == QM_OK && p->round == QM_HALVING_ROUND_report) {
        s->job = job;
        s->report = r;
        return QM_OK;
    }
    qm_results_free(&r);
    qm_loaded_suite_close(&job);
    return st;
}

void qm_halving_clear(const char *folder)
{
    char path[1100];
    for (int i = 0; i < QM_HALVING_ROUND_COUNT; i++) {
        snprintf(path, sizeof path, "%s/%s.yaml", folder, qm_halving_round_name(i));
        unlink(path);
        snprintf(path, sizeof path, "%s/%s.run", folder, qm_halving_round_name(i));
        qm_campaign_remove(path);
    }
    rmdir(folder);
}
