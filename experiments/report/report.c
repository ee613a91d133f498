/* report.c - Makes the page of a result file and the files that belong to it. */
#include "experiments/report/report.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/interrupt.h"
#include "experiments/cli/cli.h"
#include "experiments/report/against.h"
#include "experiments/report/archive.h"
#include "experiments/report/figures.h"
#include "experiments/report/fit.h"
#include "experiments/report/page.h"
#include "experiments/store/atomic_file.h"

/* ---- files --------------------------------------------------------------------------------- */

/* "DIR/X.html" for "DIR/X.h5". */
static void default_out(const char *path, char *out, size_t size)
{
    const char *slash = strrchr(path, '/'), *dot = strrchr(path, '.');
    int n = dot && dot > (slash ? slash : path) ? (int)(dot - path) : (int)strlen(path);
    snprintf(out, size, "%.*s.html", n, path);
}

/* A table that is missing, or is of another kind than the schema says, is damage of the file. */
static qm_status as_damage(qm_status st)
{
    char said[1024];
    if (st != QM_BAD_ARG && st != QM_NO_MATCH)
        return st;
    snprintf(said, sizeof said, "%s", qm_message());
    return qm_fail(QM_BAD_FILE, "%s", said);
}

/* Writes the output of print to a file that appears whole, or to stdout for "-". */
static qm_status write_file(const char *path, const struct qm_page *p,
                            qm_status (*print)(const struct qm_page *p, FILE *to))
{
    if (strcmp(path, "-") == 0)
        return as_damage(print(p, stdout));
    struct qm_atomic_file part;
    QM_TRY(qm_atomic_file_open(path, &part));
    int fd = dup(part.fd);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
    qm_status st = f ? as_damage(print(p, f)) : qm_fail(QM_NO_MEMORY, "%s", path);
    errno = 0;
    int bad = f && (ferror(f) || fflush(f) != 0);
    if (st == QM_OK && bad)
        st = qm_fail(QM_BAD_FILE, "%s: cannot be written: %s", path,
                     errno ? strerror(errno) : "no space is left, or a limit of file sizes is met");
    if (f)
        fclose(f);
    else if (fd >= 0)
        close(fd);
    if (st == QM_OK)
        st = qm_atomic_file_commit(&part);
    if (st != QM_OK)
        qm_atomic_file_abort(&part);
    return st;
}

/* ---- parts of the page --------------------------------------------------------------------- */

/* A report under construction; folder holds its figures and the comparison with an archive. */
struct making {
    const struct qm_report *o;
    struct qm_page page;
    json_t *against; /* qm_against_counts */
    char folder[PATH_MAX], out[PATH_MAX], archive[PATH_MAX], why[512];
};

static qm_status make_folder(struct making *m)
{
    if (qm_interrupt_folder(m->folder, sizeof m->folder, "report"))
        return QM_OK;
    qm_status st = qm_fail(QM_BAD_FILE, "%s: %s", m->folder, strerror(errno));
    m->folder[0] = 0;
    return st;
}

static void pairs_path(const struct making *m, char path[PATH_MAX + 16])
{
    snprintf(path, PATH_MAX + 16, "%s/pairs.h5", m->folder);
}

static qm_status compare(struct making *m)
{
    char path[PATH_MAX + 16];
    struct qm_result *archive = NULL;
    pairs_path(m, path);
    QM_TRY(qm_archive_find(m->o->against, m->archive, sizeof m->archive));
    QM_TRY(qm_result_open(m->archive, &archive));
    qm_status st = qm_against_write(m->page.r, archive, path);
    qm_result_close(archive);
    if (st == QM_OK)
        st = qm_result_open(path, &m->page.pairs);
    if (st == QM_OK)
        st = qm_against_counts(m->page.pairs, &m->against);
    m->page.archive = m->archive;
    return st;
}

/* Reads the figures drawn beforehand, or draws them.  Without Python the page has a
 * note instead. */
static qm_status get_figures(struct making *m)
{
    struct qm_page *p = &m->page;
    char pairs[PATH_MAX + 16];
    pairs_path(m, pairs);
    if (m->o->no_figures)
        return (p->figures = json_array()) ? QM_OK : qm_fail(QM_NO_MEMORY, "figures");
    if (m->o->figures) {
        char list[PATH_MAX + 16];
        snprintf(list, sizeof list, "%s/figures.json", m->o->figures);
        if (access(list, R_OK) != 0)
            return qm_fail(QM_BAD_FILE,
                           "%s: %s; expected what plots/report/draw.py --page --out %s makes", list,
                           strerror(errno), m->o->figures);
        return qm_figures_read(m->o->figures, &p->figures);
    }
    qm_status st = qm_figures_draw(m->o->path, p->archive, p->archive ? pairs : NULL, m->folder,
                                   qm_cli.verbose);
    if (st == QM_OK)
        return qm_figures_read(m->folder, &p->figures);
    if (st != QM_SKIPPED)
        return st;
    snprintf(m->why, sizeof m->why, "%s", qm_message());
    qm_note("no figures: %s", m->why);
    p->no_figures = m->why;
    return (p->figures = json_array()) ? QM_OK : qm_fail(QM_NO_MEMORY, "figures");
}

static int count_tables(const struct qm_page *p)
{
    int tables = 0;
    for (int k = 0; k < p->listing.n; k++)
        tables += p->listing.set[k].kind == QM_LISTED_table;
    return tables;
}

/* QM_NO_MATCH where the page would have no figure and no table, as of what `qualm import` wrote. */
static qm_status expect_something(const struct making *m)
{
    if (json_array_size(m->page.figures) > 0 || m->page.pairs || count_tables(&m->page) > 0)
        return QM_OK;
    return qm_fail(QM_NO_MATCH, "%s: holds nothing that a page shows: no figure and no table",
                   m->o->path);
}

/* Notes what was made, and returns it as JSON. */
static json_t *describe(const struct making *m)
{
    const struct qm_page *p = &m->page;
    int tables = count_tables(p);
    json_t *names = json_array(), *figure;
    size_t i;
    json_array_foreach (p->figures, i, figure)
        json_array_append(names, json_object_get(figure, "name"));
    qm_note("%s: %zu figures, %d tables", m->out, json_array_size(p->figures), tables);
    return json_pack("{s:o, s:o, s:o, s:s?, s:i, s:s?, s:O?, s:s?, s:s?}", "file",
                     qm_json_text(m->o->path), "page", qm_json_text(m->out), "figures", names,
                     "no_figures", p->no_figures, "tables", tables, "against", p->archive,
                     "against_counts", m->against, "markdown", m->o->markdown, "latex",
                     m->o->latex);
}

static qm_status write_all(struct making *m)
{
    QM_TRY(qm_result_open(m->o->path, &m->page.r));
    QM_TRY(qm_listing_read(m->o->path, &m->page.listing));
    QM_TRY(qm_fit_check(m->page.r, m->o->path, &m->page.listing));
    QM_TRY(make_folder(m));
    if (m->o->against)
        QM_TRY(compare(m));
    QM_TRY(get_figures(m));
    QM_TRY(expect_something(m));
    QM_TRY(write_file(m->out, &m->page, qm_page_write));
    if (m->o->markdown)
        QM_TRY(write_file(m->o->markdown, &m->page, qm_page_markdown));
    if (m->o->archive)
        QM_TRY(qm_archive_write(m->page.r, m->o->path, m->o->archive));
    return m->o->latex ? write_file(m->o->latex, &m->page, qm_page_latex) : QM_OK;
}

qm_status qm_report_make(const struct qm_report *o, json_t **out)
{
    struct making *m = calloc(1, sizeof *m);
    if (!m)
        return qm_fail(QM_NO_MEMORY, "%s", o->path);
    m->o = o;
    m->page.path = o->path;
    m->page.most = o->rows;
    default_out(o->path, m->out, sizeof m->out);
    if (o->out)
        snprintf(m->out, sizeof m->out, "%s", o->out);
    qm_status st = qm_cli_writes(m->out);
    if (st == QM_OK)
        st = write_all(m);
    if (st == QM_OK)
        *out = describe(m);
    json_decref(m->page.figures);
    json_decref(m->against);
    qm_listing_free(&m->page.listing);
    qm_result_close(m->page.pairs);
    qm_result_close(m->page.r);
    if (m->folder[0])
        qm_folder_remove(m->folder);
    free(m);
    return st;
}

qm_status qm_report_expect_pairs(const json_t *out)
{
    const json_t *of = json_object_get(out, "against_counts");
    if (!json_is_object(of) || json_array_size(json_object_get(of, "counts")) > 0)
        return QM_OK;
    return qm_fail(QM_NO_MATCH,
                   "%s: nothing to compare: none of %lld archived variants has runs to pair with; "
                   "%s says what they lack",
                   json_string_value(json_object_get(out, "against")),
                   (long long)json_integer_value(json_object_get(of, "archived")),
                   json_string_value(json_object_get(out, "page")));
}

qm_status qm_report_against(json_t *done, const char *archive)
{
    static const char *const added[] = {"page", "against", "against_counts"};
    json_t *last = json_array_get(done, json_array_size(done) - 1), *out;
    const char *path = json_string_value(json_object_get(last, "file"));
    const struct qm_report o = {.path = path, .against = archive, .rows = QM_REPORT_ROWS};
    if (!path)
        return QM_OK;
    QM_TRY(qm_report_make(&o, &out));
    for (size_t i = 0; i < sizeof added / sizeof *added; i++)
        json_object_set(last, added[i], json_object_get(out, added[i]));
    if (!qm_cli.json)
        qm_against_print(json_object_get(out, "against_counts"),
                         json_string_value(json_object_get(out, "against")));
    json_decref(out);
    return QM_OK;
}
