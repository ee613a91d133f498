/* ledger_index.c - Reads ledgers, and decides which line of a cell counts. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/grow.h"
#include "experiments/campaign/folder.h"
#include "experiments/cli/cli.h"
#include "experiments/foreign/file_sum.h"
#include "experiments/run/run_cells.h"

/* ---- lines --------------------------------------------------------------------------------- */

/* The path of a file in the ledger's folder; the caller frees it. */
static char *beside(const char *ledger, const char *name)
{
    const char *slash = strrchr(ledger, '/');
    char *path = NULL;
    int n = slash ? asprintf(&path, "%.*s/%s", (int)(slash - ledger), ledger, name)
                  : asprintf(&path, "%s", name);
    return n < 0 ? NULL : path;
}

static int add_segment(struct qm_ledger_index *index, const char *ledger, const char *name,
                       const char *hash, int64_t cells)
{
    if (qm_grow((void **)&index->segment, &index->segment_room, index->n_segments + 1,
                sizeof *index->segment) != QM_OK)
        return -1;
    struct qm_ledger_index_segment s = {.path = beside(ledger, name), .cells = cells};
    if (!s.path)
        return -1;
    snprintf(s.hash, sizeof s.hash, "%s", hash);
    index->segment[index->n_segments++] = s;
    return 1;
}

/* The newest segment of this name from `first` on: a damaged one may have been written again. */
static int segment_find(const struct qm_ledger_index *index, int first, const char *name)
{
    for (int i = index->n_segments - 1; i >= first; i--) {
        const char *slash = strrchr(index->segment[i].path, '/');
        if (strcmp(slash ? slash + 1 : index->segment[i].path, name) == 0)
            return i;
    }
    return -1;
}

/* The take_ functions return 1: taken, 0: no valid line, -1: no memory. */
static int take_segment(struct qm_ledger_index *index, const char *ledger, const json_t *v)
{
    const char *name = json_string_value(json_object_get(v, "segment"));
    const char *hash = json_string_value(json_object_get(v, "sha256"));
    if (!name || !hash || strlen(hash) != 64 || strchr(name, '/'))
        return 0;
    return add_segment(index, ledger, name, hash, json_integer_value(json_object_get(v, "cells")));
}

static int add_line(struct qm_ledger_index *index, const struct qm_ledger_index_line *l)
{
    if (qm_grow((void **)&index->line, &index->room, index->n_lines + 1, sizeof *index->line) !=
        QM_OK)
        return -1;
    index->line[index->n_lines++] = *l;
    return 1;
}

static int take_cell(struct qm_ledger_index *index, const char *ledger, int first_segment,
                     const json_t *v)
{
    const char *id = json_string_value(json_object_get(v, "id"));
    const char *digest = json_string_value(json_object_get(v, "digest"));
    const char *status = qm_outcome_status_of(json_string_value(json_object_get(v, "status")));
    const char *segment = json_string_value(json_object_get(v, "segment"));
    if (!id || strlen(id) != QM_CELL_ID - 1 || !digest || strlen(digest) != 64 || !status ||
        !segment || strchr(segment, '/'))
        return 0;
    struct qm_ledger_index_line l = {.cell = json_integer_value(json_object_get(v, "cell")),
                                     .row = json_integer_value(json_object_get(v, "row")),
                                     .status = status,
                                     .failed = strcmp(status, "failed") == 0,
                                     .seconds = json_number_value(json_object_get(v, "seconds"))};
    /* lines are ordered by segment, so the search nearly always ends at the last segment */
    l.segment = segment_find(index, first_segment, segment);
    if (l.segment < 0) { /* the line that declares it is damaged */
        if (add_segment(index, ledger, segment, "", -1) < 0)
            return -1;
        l.segment = index->n_segments - 1;
    }
    snprintf(l.id, sizeof l.id, "%s", id);
    snprintf(l.digest, sizeof l.digest, "%s", digest);
    return add_line(index, &l);
}

static int take_session(struct qm_ledger_index *index, const json_t *v)
{
    const char *program = json_string_value(json_object_get(v, "session"));
    if (!program)
        return 0;
    if (index->n_programs == 0 || strcmp(program, index->program) != 0)
        index->n_programs++;
    snprintf(index->program, sizeof index->program, "%s", program);
    return 1;
}

static int has_right_sum(const char *text, size_t n, const json_t *v)
{
    static const char before[] = ",\"sum\":\"";
    char sum[QM_LEDGER_SUM];
    const char *said = json_string_value(json_object_get(v, "sum"));
    const char *at = said ? memmem(text, n, before, sizeof before - 1) : NULL;
    if (!at)
        return 0;
    qm_ledger_line_sum(text, (size_t)(at - text), sum);
    return strcmp(said, sum) == 0;
}

static int take_line(struct qm_ledger_index *index, const char *ledger, int first_segment,
                     const char *text, size_t n)
{
    json_t *v = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
    int taken = !json_is_object(v) || !has_right_sum(text, n, v) ? 0
                : json_object_get(v, "cell")    ? take_cell(index, ledger, first_segment, v)
                : json_object_get(v, "sha256")  ? take_segment(index, ledger, v)
                : json_object_get(v, "session") ? take_session(index, v)
                                                : 0;
    json_decref(v);
    return taken;
}

enum { LINE_MOST = 1 << 16 };

/* Reads a line with its newline.  *n: its bytes, of which `line` gets the first LINE_MOST.  Returns
 * 0 at the end of the file. */
static int read_line(FILE *f, char *line, size_t *n)
{
    int c = EOF;
    for (*n = 0; c != '\n' && (c = getc_unlocked(f)) != EOF; ++*n)
        if (*n < LINE_MOST)
            line[*n] = (char)c;
    return *n > 0;
}

qm_status qm_ledger_index_read(struct qm_ledger_index *index, const char *path)
{
    int fd = -1;
    QM_TRY(qm_folder_open_within(path, O_RDONLY, qm_ledger_most(index->cells), &fd));
    char *line = malloc(LINE_MOST);
    FILE *f = line ? fdopen(fd, "rb") : NULL;
    if (!f) {
        close(fd);
        free(line);
        return qm_fail(QM_NO_MEMORY, "%s: its lines", path);
    }
    int first = index->n_segments, taken = 1;
    for (size_t n; taken >= 0 && read_line(f, line, &n);) {
        int long_one = n > LINE_MOST, whole = !long_one && line[n - 1] == '\n';
        taken = whole ? take_line(index, path, first, line, n) : 0;
        /* a kill leaves half a line at the end, but no long one */
        index->bad_lines += taken == 0 && (whole || long_one);
    }
    int bad = ferror(f);
    free(line);
    fclose(f);
    index->n_ledgers++;
    index->n_held += qm_ledger_is_held(path);
    if (taken < 0)
        return qm_fail(QM_NO_MEMORY, "%s: its lines", path);
    return bad ? qm_fail(QM_BAD_FILE, "%s: cannot be read", path) : QM_OK;
}

qm_status qm_ledger_index_read_all(struct qm_ledger_index *index, const char *dir)
{
    glob_t found;
    int failed = qm_folder_glob(dir, "*.jsonl", &found);
    qm_status st = failed == GLOB_NOMATCH ? qm_fail(QM_NO_MATCH, "%s: no ledger in it", dir)
                   : failed ? qm_fail(QM_BAD_FILE, "%s: cannot be read: %s", dir, strerror(errno))
                            : QM_OK;
    for (size_t i = 0; st == QM_OK && i < found.gl_pathc; i++)
        st = qm_ledger_index_read(index, found.gl_pathv[i]);
    globfree(&found);
    return st;
}

void qm_ledger_index_free(struct qm_ledger_index *index)
{
    for (int i = 0; i < index->n_segments; i++)
        free(index->segment[i].path);
    free(index->segment);
    free(index->line);
    *index = (struct qm_ledger_index){0};
}

/* ---- what counts --------------------------------------------------------------------------- */

int qm_ledger_index_check(struct qm_ledger_index *index)
{
    int damaged = 0;
    for (int i = 0; i < index->n_segments; i++) {
        struct qm_ledger_index_segment *s = &index->segment[i];
        char hash[65];
        enum qm_file_sum sum = QM_FILE_SUM_none;
        /* The file's own checksum comes first: it refuses one that was made longer, by gibibytes
         * perhaps, without reading it.  Files of older versions have none. */
        int whole =
            qm_file_sum_check(s->path, &sum) == QM_OK &&
            (sum == QM_FILE_SUM_right ||
             (*s->hash && qm_file_hash(s->path, hash) == QM_OK && strcmp(hash, s->hash) == 0));
        s->state = whole ? QM_SEGMENT_whole : QM_SEGMENT_damaged;
        damaged += !whole;
    }
    return damaged;
}

/* Adds the lines of segment k that the ledgers lack; has[row] tells which they have. */
static qm_status heal_segment(struct qm_ledger_index *index, int k, const struct qm_segment *s)
{
    char *has = calloc((size_t)s->rows + 1, 1);
    qm_status st = has ? QM_OK : qm_fail(QM_NO_MEMORY, "%lld cells", (long long)s->rows);
    for (int64_t i = 0; has && i < index->n_lines; i++) {
        const struct qm_ledger_index_line *l = &index->line[i];
        if (l->segment == k && l->row >= 0 && l->row < s->rows)
            has[l->row] = 1;
    }
    for (int64_t i = 0; st == QM_OK && i < s->rows; i++) {
        const struct qm_segment_row *r = &s->row[i];
        struct qm_ledger_index_line l = {.cell = r->cell,
                                         .row = i,
                                         .segment = k,
                                         .status = r->status,
                                         .failed = strcmp(r->status, "failed") == 0,
                                         .seconds = r->seconds};
        snprintf(l.id, sizeof l.id, "%s", r->id);
        snprintf(l.digest, sizeof l.digest, "%s", r->digest);
        if (has[i] || !*r->status)
            continue;
        if (add_line(index, &l) < 0)
            st = qm_fail(QM_NO_MEMORY, "%lld lines", (long long)index->n_lines);
        index->n_healed += st == QM_OK;
    }
    free(has);
    return st;
}

qm_status qm_ledger_index_heal(struct qm_ledger_index *index)
{
    int64_t *lines = calloc((size_t)index->n_segments + 1, sizeof *lines);
    qm_status st = lines ? QM_OK : qm_fail(QM_NO_MEMORY, "%d segments", index->n_segments);
    for (int64_t i = 0; lines && i < index->n_lines; i++)
        lines[index->line[i].segment]++;
    for (int k = 0; st == QM_OK && k < index->n_segments; k++) {
        const struct qm_ledger_index_segment *s = &index->segment[k];
        struct qm_segment whole = {0};
        if (s->state != QM_SEGMENT_whole || (s->cells >= 0 && lines[k] >= s->cells))
            continue;
        if (qm_segment_read(s->path, &whole) == QM_OK) /* else its missing cells run again */
            st = heal_segment(index, k, &whole);
        qm_segment_free(&whole);
    }
    free(lines);
    return st;
}

void qm_ledger_index_note(const struct qm_ledger_index *index, const char *rest)
{
    if (index->bad_lines || index->n_healed)
        qm_note("ledgers: damaged lines: %lld; cells without a line, read back from their "
                "segments: %lld%s",
                (long long)index->bad_lines, (long long)index->n_healed, rest);
}

void qm_ledger_index_limit(struct qm_ledger_index *index, int64_t n)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < index->n_lines; i++)
        if (index->line[i].cell >= 0 && index->line[i].cell < n)
            index->line[kept++] = index->line[i];
    index->bad_lines += index->n_lines - kept;
    index->n_lines = kept;
}

qm_status qm_ledger_index_resolve(const struct qm_ledger_index *index, int64_t n,
                                  char (*id)[QM_CELL_ID], int64_t *line)
{
    for (int64_t i = 0; i < n; i++)
        line[i] = -1;
    for (int64_t k = 0; k < index->n_lines; k++) {
        const struct qm_ledger_index_line *l = &index->line[k];
        if (l->cell < 0 || l->cell >= n || l->segment < 0 ||
            index->segment[l->segment].state == QM_SEGMENT_damaged ||
            (id && strcmp(l->id, id[l->cell]) != 0))
            continue;
        int64_t *best = &line[l->cell];
        if (*best < 0 || index->line[*best].failed)
            *best = k;
    }
    return QM_OK;
}
