/* suite_load.c - Loads suites with their data and cells. */
#include "experiments/run/suite_load.h"

#include <glob.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/name.h"
#include "experiments/cli/cli.h"
#include "experiments/machine/shipped_files.h"
#include "experiments/run/claim.h"
#include "experiments/run/rate_file.h"
#include "experiments/run/summary.h"

static char default_data[] = "experiments/data/*.h5";

qm_status qm_path_check(const char *path)
{
    size_t n = strlen(path);
    return n <= QM_PATH_MOST ? QM_OK
                             : qm_fail(QM_BAD_ARG, "'%.40s...': a path of %zu bytes, at most %d",
                                       path, n, QM_PATH_MOST);
}

qm_status qm_loaded_suite_find(const char *word, char *path, size_t size)
{
    QM_TRY(qm_path_check(word));
    snprintf(path, size, "%s", word);
    if (access(path, F_OK) != 0 && strchr(word, '/') && *word != '/')
        qm_shipped(word, path, size);
    if (access(path, F_OK) == 0 || strchr(word, '/'))
        return QM_OK; /* reading it reports what is wrong */
    size_t n = strlen(word);
    int has_ending = n > 5 && strcmp(word + n - 5, ".yaml") == 0;
    char name[PATH_MAX];
    snprintf(name, sizeof name, QM_SUITES "%s%s", word, has_ending ? "" : ".yaml");
    if (access(qm_shipped(name, path, size), F_OK) == 0)
        return QM_OK;
    glob_t found = {0};
    glob(qm_shipped_pattern(QM_SUITES "*.yaml", name, sizeof name), 0, NULL, &found);
    for (size_t i = 0; i < found.gl_pathc; i++) { /* turns "FOLDER/NAME.yaml" into "NAME" */
        char *last = strrchr(found.gl_pathv[i], '/') + 1;
        memmove(found.gl_pathv[i], last, strlen(last) + 1);
        *strrchr(found.gl_pathv[i], '.') = 0;
    }
    char near[QM_NAME_NEAR];
    qm_name_near(word, (const char *const *)found.gl_pathv, (int)found.gl_pathc, near);
    qm_status st =
        qm_fail(has_ending ? QM_BAD_FILE : QM_NO_MATCH, "no file and no suite '%s'%s%s%s", word,
                *near ? "; did you mean " : "", near, *near ? "?" : "; " QM_SUITES " holds them");
    globfree(&found);
    return st;
}

/* Adds what there is to say about a file of the data to what the results will say. */
static qm_status keep_remark(struct qm_suite *s, const char *path, const char *remark)
{
    char *all = NULL, *before = s->data_remarks;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (!remark[0])
        return QM_OK;
    if (asprintf(&all, "%s%s%s: %s", before ? before : "", before ? "; " : "", name, remark) < 0)
        return qm_fail(QM_NO_MEMORY, "%s: remarks", path);
    free(before);
    s->data_remarks = all;
    return QM_OK;
}

char *qm_loaded_suite_pattern(const struct qm_suite *s, int i, char *out, size_t size)
{
    return qm_shipped_pattern_from(s->data_folder, s->data[i], out, size);
}

/* Opens the files of the suite's data. */
static qm_status open_replay(const struct qm_suite *s, struct qm_replay **out)
{
    char path[PATH_MAX], **pattern = calloc((size_t)s->n_data + 1, sizeof *pattern);
    qm_status st = pattern ? QM_OK : qm_fail(QM_NO_MEMORY, "data");
    for (int i = 0; st == QM_OK && i < s->n_data; i++)
        if (!(pattern[i] = strdup(qm_loaded_suite_pattern(s, i, path, sizeof path))))
            st = qm_fail(QM_NO_MEMORY, "data");
    if (st == QM_OK)
        st = qm_replay_open(pattern, s->n_data, out);
    if (st == QM_NO_MATCH && s->data_folder)
        st = qm_fail(QM_NO_MATCH, "%s, in '%s', where the campaign was begun, or here",
                     qm_message(), s->data_folder);
    for (int i = 0; pattern && i < s->n_data; i++)
        free(pattern[i]);
    free(pattern);
    return st;
}

static qm_status open_data(const struct qm_loaded_suite_changes *changes, struct qm_loaded_suite *l)
{
    struct qm_suite *s = l->suite;
    char *globs[] = {default_data};
    if (changes && changes->n_data)
        QM_TRY(qm_suite_data(s, changes->data, changes->n_data));
    else if (s->n_data == 0 && qm_suite_wants_data(s))
        QM_TRY(qm_suite_data(s, globs, 1));
    if (!qm_suite_wants_data(s)) {
        if (s->n_data)
            qm_note("%s: data '%s'%s is not read: no source of the suite is recorded (states: or "
                    "trace:)",
                    s->stem, s->data[0], s->n_data > 1 ? " and more" : "");
        return QM_OK;
    }
    QM_TRY(open_replay(s, &l->replay));
    char remark[QM_FILE_REMARK];
    const char *path;
    for (int i = 0; qm_replay_remark(l->replay, i, &path, remark), path; i++) {
        if (remark[0])
            qm_note_remark(path, remark);
        QM_TRY(keep_remark(s, path, remark));
    }
    return QM_OK;
}

/* Says where the protocol has nothing to judge: it judges training runs alone. */
static void note_protocol(const struct qm_loaded_suite *l)
{
    for (int64_t i = 0; i < l->n_cells; i++)
        if (l->cells[i].coupling == QM_COUPLING_closed)
            return;
    if (l->suite->paired)
        qm_note("%s: protocol paired has nothing to judge: no cell is of coupling closed",
                l->suite->stem);
}

/* Says where the learning rate never reaches its value, nor the schedule its beginning. */
static void note_warmup(const struct qm_loaded_suite *l)
{
    int64_t n = 0, first = -1;
    for (int64_t i = 0; i < l->n_cells; i++)
        if (!l->cells[i].reason && l->cells[i].steps > 0 &&
            l->cells[i].warmup >= l->cells[i].steps) {
            first = first < 0 ? i : first;
            n++;
        }
    if (n)
        qm_note("%s: warmup %lld is not over in %lld steps, as in %lld of %lld cells: the learning "
                "rate stays below its value there, and no schedule begins",
                l->suite->stem, (long long)l->cells[first].warmup, (long long)l->cells[first].steps,
                (long long)n, (long long)l->n_cells);
}

qm_status qm_loaded_suite_open(const char *path, const struct qm_loaded_suite_changes *changes,
                               struct qm_loaded_suite *out)
{
    *out = (struct qm_loaded_suite){0};
    const char *size = changes ? changes->size : NULL;
    QM_TRY(qm_suite_read_size(path, size, &out->suite));
    if (size && strcmp(size, "normal") != 0 && !out->suite->is_sized)
        qm_note("%s: no values for size %s; as it is", out->suite->stem, size);
    for (int i = 0; changes && i < changes->n_added; i++)
        QM_TRY(qm_suite_add_variant(out->suite, changes->added[i].label, changes->added[i].recipe));
    for (int i = 0; i < out->suite->n_summaries; i++)
        QM_TRY(qm_summary_check(out->suite, &out->suite->summary[i]));
    for (int i = 0; i < out->suite->n_expects; i++)
        QM_TRY(qm_claim_check(out->suite, &out->suite->expect[i]));
    if (changes && changes->folder && *changes->folder &&
        !(out->suite->data_folder = strdup(changes->folder)))
        return qm_fail(QM_NO_MEMORY, "%s: its folder", path);
    QM_TRY(open_data(changes, out));
    int had_rates = out->suite->has_rates;
    QM_TRY(qm_rates_attach(out->suite, changes ? changes->rates : NULL));
    QM_TRY(qm_suite_cells(out->suite, out->replay, &out->cells, &out->n_cells));
    note_protocol(out);
    note_warmup(out);
    qm_suite_prune_rates(out->suite);
    if (had_rates || out->suite->n_rates == 0)
        return QM_OK;
    out->suite->has_rates = 1; /* the plan names what its cells were made with */
    return qm_suite_print(out->suite);
}

void qm_loaded_suite_close(struct qm_loaded_suite *l)
{
    free(l->cells);
    qm_replay_close(l->replay);
    qm_suite_free(l->suite);
    *l = (struct qm_loaded_suite){0};
}

qm_status qm_loaded_suite_load(struct qm_loaded_suite *l, const struct qm_cell *c)
{
    return c->recorded && !c->reason ? qm_replay_load(l->replay, c->recorded) : QM_OK;
}

qm_status qm_loaded_suite_load_all(struct qm_loaded_suite *l)
{
    for (int64_t i = 0; i < l->n_cells; i++)
        QM_TRY(qm_loaded_suite_load(l, &l->cells[i]));
    return QM_OK;
}
