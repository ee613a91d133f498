/* ledger_index.c - what ledgers say, and which line of a cell counts. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experiments/campaign/folder.h"

static const char *known_status(const char *text)
{
    static const char *const all[] = {"ok", "skipped", "diverged", "failed"};
    for (int i = 0; text && i < 4; i++)
        if (strcmp(text, all[i]) == 0)
            return all[i];
    return NULL;
}

/* ---- lines --------------------------------------------------------------------------------- */

static char *beside(const char *ledger, const char *name)
{
    const char *slash = strrchr(ledger, '/');
    char *path = NULL;
    int n = slash ? asprintf(&path, "%.*s/%s", (int)(slash - ledger), ledger, name)
                  : asprintf(&path, "%s", name);
    return n < 0 ? NULL : path;
}

/* The newest of that name: a segment that was damaged may have been written again. */
static int segment_find(const struct qm_ledger_index *b, int first, const char *name)
{
    for (int i = b->n_segments - 1; i >= first; i--) {
        const char *slash = strrchr(b->segment[i].path, '/');
        if (strcmp(slash ? slash + 1 : b->segment[i].path, name) == 0)
            return i;
    }
    return -1;
}

/* 1: taken, 0: no line of ours, -1: no memory. */
static int take_segment(struct qm_ledger_index *b, const char *ledger, const json_t *v)
{
    const char *name = json_string_value(json_object_get(v, "segment"));
    const char *hash = json_string_value(json_object_get(v, "sha256"));
    if (!name || !hash || strlen(hash) != 64 || strchr(name, '/'))
        return 0;
    if (b->n_segments == b->segment_room) {
        int room = b->segment_room ? 2 * b->segment_room : 64;
        struct qm_ledger_index_segment *more = realloc(b->segment, (size_t)room * sizeof *more);
        if (!more)
            return -1;
        b->segment = more;
        b->segment_room = room;
    }
    struct qm_ledger_index_segment s = {.path = beside(ledger, name)};
    if (!s.path)
        return -1;
    snprintf(s.hash, sizeof s.hash, "%s", hash);
    s.cells = json_integer_value(json_object_get(v, "cells"));
    b->segment[b->n_segments++] = s;
    return 1;
}

static int take_cell(struct qm_ledger_index *b, int first_segment, const json_t *v)
{
    const char *id = json_string_value(json_object_get(v, "id"));
    const char *digest = json_string_value(json_object_get(v, "digest"));
    const char *status = known_status(json_string_value(json_object_get(v, "status")));
    const char *segment = json_string_value(json_object_get(v, "segment"));
    if (!id || strlen(id) != QM_CELL_ID - 1 || !digest || strlen(digest) != 64 || !status ||
        !segment)
        return 0;
    if (b->n_lines == b->room) {
        int64_t room = b->room ? 2 * b->room : 1024;
        struct qm_ledger_index_line *more = realloc(b->line, (size_t)room * sizeof *more);
        if (!more)
            return -1;
        b->line = more;
        b->room = room;
    }
    struct qm_ledger_index_line l = {.cell = json_integer_value(json_object_get(v, "cell")),
                                     .row = json_integer_value(json_object_get(v, "row")),
                                     .status = status,
                                     .failed = strcmp(status, "failed") == 0,
                                     .seconds = json_number_value(json_object_get(v, "seconds"))};
    /* lines come by segment: the last one is nearly always it */
    l.segment = segment_find(b, first_segment, segment);
    snprintf(l.id, sizeof l.id, "%s", id);
    snprintf(l.digest, sizeof l.digest, "%s", digest);
    b->line[b->n_lines++] = l;
    return 1;
}

static int take_session(struct qm_ledger_index *b, const json_t *v)
{
    const char *program = json_string_value(json_object_get(v, "session"));
    if (!program)
        return 0;
    if (b->n_programs == 0 || strcmp(program, b->program) != 0)
        b->n_programs++;
    snprintf(b->program, sizeof b->program, "%s", program);
    return 1;
}

static int take_line(struct qm_ledger_index *b, const char *ledger, int first_segment,
                     const char *text, size_t n)
{
    json_t *v = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
    int taken = !json_is_object(v)              ? 0
                : json_object_get(v, "cell")    ? take_cell(b, first_segment, v)
                : json_object_get(v, "sha256")  ? take_segment(b, ledger, v)
                : json_object_get(v, "session") ? take_session(b, v)
                                                : 0;
    json_decref(v);
    return taken;
}

qm_status qm_ledger_index_read(struct qm_ledger_index *b, const char *path)
{
    int fd = -1;
    QM_TRY(qm_folder_open(path, O_RDONLY, &fd));
    FILE *f = fdopen(fd, "rb");
    if (!f) {
        close(fd);
        return qm_fail(QM_NO_MEMORY, "%s: its lines", path);
    }
    int first = b->n_segments, taken = 1;
    char *line = NULL;
    size_t room = 0;
    for (ssize_t n; taken >= 0 && (n = getline(&line, &room, f)) > 0;) {
        int whole = line[n - 1] == '\n';
        taken = whole ? take_line(b, path, first, line, (size_t)n) : 0;
        b->bad_lines += taken == 0 && whole; /* half a line at the end is what a kill leaves */
    }
    int bad = ferror(f);
    free(line);
    fclose(f);
    b->n_ledgers++;
    b->n_held += qm_ledger_is_held(path);
    if (taken < 0)
        return qm_fail(QM_NO_MEMORY, "%s: its lines", path);
    return bad ? qm_fail(QM_BAD_FILE, "%s: cannot be read", path) : QM_OK;
}

qm_status qm_ledger_index_read_all(struct qm_ledger_index *b, const char *dir)
{
    glob_t found;
    int failed = qm_folder_glob(dir, "*.jsonl", &found);
    qm_status st = failed == GLOB_NOMATCH ? qm_fail(QM_NO_MATCH, "%s: no ledger in it", dir)
                   : failed ? qm_fail(QM_BAD_FILE, "%s: cannot be read: %s", dir, strerror(errno))
                            : QM_OK;
    for (size_t i = 0; st == QM_OK && i < found.gl_pathc; i++)
        st = qm_ledger_index_read(b, found.gl_pathv[i]);
    globfree(&found);
    return st;
}

void qm_ledger_index_free(struct qm_ledger_index *b)
{
    for (int i = 0; i < b->n_segments; i++)
        free(b->segment[i].path);
    free(b->segment);
    free(b->line);
    *b = (struct qm_ledger_index){0};
}

/* ---- what counts --------------------------------------------------------------------------- */

int qm_ledger_index_check(struct qm_ledger_index *b)
{
    int damaged = 0;
    for (int i = 0; i < b->n_segments; i++) {
        struct qm_ledger_index_segment *s = &b->segment[i];
        char hash[65];
        int whole = qm_file_hash(s->path, hash) == QM_OK && strcmp(hash, s->hash) == 0;
        s->state = whole ? QM_SEGMENT_whole : QM_SEGMENT_damaged;
        damaged += !whole;
    }
    return damaged;
}

void qm_ledger_index_limit(struct qm_ledger_index *b, int64_t n)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < b->n_lines; i++)
        if (b->line[i].cell >= 0 && b->line[i].cell < n)
            b->line[kept++] = b->line[i];
    b->bad_lines += b->n_lines - kept;
    b->n_lines = kept;
}

qm_status qm_ledger_index_resolve(const struct qm_ledger_index *b, int64_t n,
                                  char (*id)[QM_CELL_ID], int64_t *line)
{
    for (int64_t i = 0; i < n; i++)
        line[i] = -1;
    for (int64_t k = 0; k < b->n_lines; k++) {
        const struct qm_ledger_index_line *l = &b->line[k];
        if (l->cell < 0 || l->cell >= n || l->segment < 0 ||
            b->segment[l->segment].state == QM_SEGMENT_damaged ||
            (id && strcmp(l->id, id[l->cell]) != 0))
            continue;
        int64_t *best = &line[l->cell];
        if (*best < 0 || b->line[*best].failed)
            *best = k;
    }
    return QM_OK;
}
