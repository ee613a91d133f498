/* page.c - Writes a result file as one self-contained HTML page. */
#include "experiments/report/page.h"

#include <stdlib.h>
#include <string.h>

#include "experiments/report/against.h"
#include "experiments/report/curated.h"
#include "experiments/report/escape.h"
#include "experiments/report/texts.h"

#define PROTOCOL "/protocol/verdicts"

static int is_front(const char *path)
{
    return strncmp(path, "/summary/", 9) == 0 || strcmp(path, "/claims") == 0;
}

/* Opens a section with a heading and the id that links lead to. */
static void section(FILE *to, const char *id, const char *title)
{
    fprintf(to, "<section id=\"%s\">\n<h2>", id);
    qm_escape_html(to, title);
    fputs("</h2>\n", to);
}

/* Prints the text, escaped, between two pieces of HTML. */
static void print_text(FILE *to, const char *before, const char *text, const char *after)
{
    fputs(before, to);
    qm_escape_html(to, text);
    fputs(after, to);
}

/* ---- head ---------------------------------------------------------------------------------- */

static char *suite_text(const struct qm_page *p, const char *name)
{
    char *text = NULL;
    return qm_result_has(p->r, "/suite") && qm_result_text(p->r, "/suite", name, &text) == QM_OK
               ? text
               : NULL;
}

static void count_line(const struct qm_page *p, const char *table, const char *column,
                       const char *one, const char *many, FILE *to)
{
    int64_t n;
    char **text;
    if (!qm_result_has(p->r, table) || qm_distinct(p->r, table, column, &n, &text) != QM_OK)
        return;
    fprintf(to, "<li>%lld %s</li>", (long long)n, n == 1 ? one : many);
    free(text);
}

static void page_head(const struct qm_page *p, FILE *to)
{
    char counts[256], *title = suite_text(p, "title"), *question = suite_text(p, "question");
    char *remarks = suite_text(p, "data_remarks");
    const char *name = title && *title ? title : p->path;
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
          "<meta name=\"color-scheme\" content=\"light dark\">\n"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
          "style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n"
          "<link rel=\"icon\" href=\"data:,\">\n<title>",
          to);
    print_text(to, "", name, "</title>\n<style>\n");
    qm_report_text("page.css", to);
    fputs("</style>\n</head>\n<body>\n<a class=\"skip\" href=\"#main\">Skip to the results</a>\n"
          "<header>\n",
          to);
    print_text(to, "<h1>", name, "</h1>\n");
    if (question && *question)
        print_text(to, "<p class=\"question\">", question, "</p>\n");
    if (remarks && *remarks)
        print_text(to, "<p class=\"question\">Data: ", remarks, "</p>\n");
    print_text(to, "<ul class=\"facts\"><li><code>", p->path, "</code></li>");
    if (qm_result_has(p->r, "/cells") && qm_status_counts(p->r, counts, sizeof counts) == QM_OK)
        print_text(to, "<li>cells: ", counts, "</li>");
    if (qm_result_has(p->r, PROTOCOL)) {
        count_line(p, PROTOCOL, "problem", "problem", "problems", to);
    }
    fputs("</ul>\n</header>\n", to);
    free(title);
    free(question);
    free(remarks);
}

static void page_nav(const struct qm_page *p, FILE *to)
{
    size_t i;
    json_t *figure;
    fputs("<nav aria-label=\"Contents\"><ul>\n", to);
    json_array_foreach (p->figures, i, figure) {
        print_text(to, "<li><a href=\"#figure-", json_string_value(json_object_get(figure, "name")),
                   "\">");
        const char *menu = json_string_value(json_object_get(figure, "menu"));
        print_text(to, "", menu ? menu : json_string_value(json_object_get(figure, "title")),
                   "</a></li>\n");
    }
    if (p->pairs)
        fputs("<li><a href=\"#against\">Archive</a></li>\n", to);
    fputs("<li><a href=\"#tables\">Tables</a></li>\n", to);
    if (qm_result_has(p->r, "/cells"))
        fputs("<li><a href=\"#troubles\">Skipped, failed</a></li>\n", to);
    fputs("<li><a href=\"#provenance\">Provenance</a></li>\n"
          "<li><a href=\"#stored\">All that is stored</a></li>\n</ul></nav>\n",
          to);
}

/* ---- figures ------------------------------------------------------------------------------- */

static const char *word(const json_t *o, const char *key)
{
    const char *text = json_string_value(json_object_get(o, key));
    return text ? text : "";
}

static void legend(const json_t *figure, FILE *to)
{
    size_t i;
    json_t *item, *list = json_object_get(figure, "legend");
    if (json_array_size(list) == 0)
        return;
    fputs("<ul class=\"legend\" aria-label=\"Series; choose some to bring them out\">\n", to);
    json_array_foreach (list, i, item) {
        int series = (int)json_integer_value(json_object_get(item, "series"));
        if (series >= 0)
            fprintf(to, "<li><button type=\"button\" aria-pressed=\"false\" data-series=\"%d\">",
                    series);
        else
            fputs("<li><span>", to);
        fputs(word(item, "swatch"), to);
        print_text(to, " ", word(item, "label"),
                   series >= 0 ? "</button></li>\n" : "</span></li>\n");
    }
    fputs("</ul>\n", to);
}

static void one_figure(const json_t *figure, FILE *to)
{
    size_t i;
    json_t *panel, *panels = json_object_get(figure, "panels");
    fprintf(to, "<section class=\"figure\" id=\"figure-%s\">\n", word(figure, "name"));
    print_text(to, "<h2>", word(figure, "title"), "</h2>\n");
    if (*word(figure, "caption"))
        print_text(to, "<p>", word(figure, "caption"), "</p>\n");
    legend(figure, to);
    fprintf(to, "<div class=\"panels%s\">\n",
            json_is_true(json_object_get(figure, "wide")) ? " wide" : "");
    json_array_foreach (panels, i, panel) {
        fputs("<figure>", to);
        if (*word(panel, "title"))
            print_text(to, "<figcaption>", word(panel, "title"), "</figcaption>");
        fputs(word(panel, "svg"), to); /* made by the scripts, with escapes of their own */
        fputs("</figure>\n", to);
    }
    print_text(to, "</div>\n<p class=\"again\">Drawn by <code>", word(figure, "command"),
               "</code></p>\n</section>\n");
}

static void all_figures(const struct qm_page *p, FILE *to)
{
    size_t i;
    json_t *figure;
    if (p->no_figures) {
        print_text(to, "<p class=\"missing\">No figures: ", p->no_figures, ". ");
        print_text(to, "Where that is there, <code>qualm report ", p->path,
                   "</code> draws them from the same file.</p>\n");
    }
    json_array_foreach (p->figures, i, figure)
        one_figure(figure, to);
}

/* ---- tables -------------------------------------------------------------------------------- */

typedef qm_status (*maker)(struct qm_result *r, struct qm_text_grid *out);
typedef void (*printer)(const struct qm_text_grid *g, FILE *to);

static qm_status print_made(const struct qm_page *p, maker make, printer print, FILE *to)
{
    struct qm_text_grid g;
    QM_TRY(make(p->r, &g));
    print(&g, to);
    qm_grid_close(&g);
    return QM_OK;
}

static qm_status print_stored(const struct qm_page *p, const char *path, printer print, FILE *to)
{
    struct qm_text_grid g;
    QM_TRY(qm_grid_read(p->r, path, p->most, &g));
    print(&g, to);
    qm_grid_close(&g);
    return QM_OK;
}

/* The tables of the comparison with an archive, if any. */
static qm_status against(const struct qm_page *p, printer print, FILE *to)
{
    static const char *const tables[] = {"/against/pairs", "/against/apart"};
    struct qm_text_grid g;
    if (!p->pairs)
        return QM_OK;
    QM_TRY(qm_against_table(p->pairs, &g));
    print(&g, to);
    qm_grid_close(&g);
    for (int i = 0; i < 2; i++) {
        QM_TRY(qm_grid_read(p->pairs, tables[i], INT64_MAX, &g));
        print(&g, to);
        qm_grid_close(&g);
    }
    return QM_OK;
}

/* The tables that answer the suite's question. */
static qm_status front_tables(const struct qm_page *p, printer print, FILE *to)
{
    if (qm_result_has(p->r, PROTOCOL)) {
        QM_TRY(print_made(p, qm_verdicts_wide, print, to));
        QM_TRY(print_made(p, qm_verdicts_long, print, to));
    }
    if (qm_result_has(p->r, "/protocol/contrasts"))
        QM_TRY(print_made(p, qm_contrasts_table, print, to));
    for (int i = 0; i < p->listing.n; i++)
        if (p->listing.set[i].kind == QM_LISTED_table && is_front(p->listing.set[i].path))
            QM_TRY(print_stored(p, p->listing.set[i].path, print, to));
    return QM_OK;
}

static qm_status troubles(const struct qm_page *p, FILE *to)
{
    struct qm_text_grid g;
    if (!qm_result_has(p->r, "/cells"))
        return QM_OK;
    section(to, "troubles", "Skipped and failed cells");
    QM_TRY(qm_troubles(p->r, &g));
    if (qm_grid_rows(&g))
        qm_grid_html(&g, to);
    else
        fputs("<p>None: every cell ran to its end.</p>\n", to);
    qm_grid_close(&g);
    fputs("</section>\n", to);
    return QM_OK;
}

/* ---- provenance, and all that is stored ---------------------------------------------------- */

static void provenance(const struct qm_page *p, FILE *to)
{
    char *plan = suite_text(p, "plan");
    section(to, "provenance", "Provenance");
    fputs("<div class=\"box\" tabindex=\"0\" role=\"region\" aria-label=\"Provenance\">\n"
          "<table class=\"facts\"><tbody>\n",
          to);
    for (int i = 0; i < p->listing.n_facts; i++) {
        const struct qm_listed_fact *f = &p->listing.fact[i];
        print_text(to, "<tr><th scope=\"row\">", f->name, "</th><td>");
        print_text(to, strcmp(f->name, "argv") == 0 ? "qualm " : "", f->value, "</td></tr>\n");
    }
    print_text(to, "</tbody></table></div>\n<p>This page: <code>qualm report ", p->path,
               "</code>. ");
    fputs("The hash of what the file says: <code>qualm digest</code>.</p>\n", to);
    if (plan)
        print_text(to,
                   "<details><summary>The suite, in canonical form</summary><pre tabindex=\"0\">",
                   plan, "</pre></details>\n");
    fputs("</section>\n", to);
    free(plan);
}

static qm_status stored(const struct qm_page *p, FILE *to)
{
    section(to, "stored", "All that is stored");
    for (int i = 0; i < p->listing.n; i++) {
        const struct qm_listed_set *s = &p->listing.set[i];
        if (s->kind != QM_LISTED_table || is_front(s->path))
            continue;
        print_text(to, "<details><summary><code>", s->path, "</code> ");
        print_text(to, "", s->shape, "</summary>\n");
        QM_TRY(print_stored(p, s->path, qm_grid_html, to));
        fputs("</details>\n", to);
    }
    fputs("<details><summary>Arrays and texts</summary>\n<div class=\"box\" tabindex=\"0\" "
          "role=\"region\" aria-label=\"Arrays\"><table class=\"facts\"><tbody>\n",
          to);
    for (int i = 0; i < p->listing.n; i++) {
        const struct qm_listed_set *s = &p->listing.set[i];
        if (s->kind == QM_LISTED_table)
            continue;
        print_text(to, "<tr><th scope=\"row\"><code>", s->path, "</code></th>");
        print_text(to, "<td>", s->shape, "</td>");
        print_text(to, "<td>", s->text, "</td></tr>\n");
    }
    print_text(to, "</tbody></table></div>\n<p>Read them with <code>h5py.File(\"", p->path,
               "\")</code>; results/README.md has the schema.</p></details>\n</section>\n");
    return QM_OK;
}

qm_status qm_page_write(const struct qm_page *p, FILE *to)
{
    page_head(p, to);
    page_nav(p, to);
    fputs("<main id=\"main\">\n", to);
    all_figures(p, to);
    if (p->pairs) {
        section(to, "against", "Against the archive");
        print_text(to, "<p>The archive is <code>", p->archive, "</code>.</p>\n");
        QM_TRY(against(p, qm_grid_html, to));
        fputs("</section>\n", to);
    }
    section(to, "tables", "Tables");
    QM_TRY(front_tables(p, qm_grid_html, to));
    fputs("</section>\n", to);
    QM_TRY(troubles(p, to));
    provenance(p, to);
    QM_TRY(stored(p, to));
    fputs("</main>\n<script>\n", to);
    qm_report_text("page.js", to);
    fputs("</script>\n</body>\n</html>\n", to);
    return QM_OK;
}

qm_status qm_page_markdown(const struct qm_page *p, FILE *to)
{
    QM_TRY(against(p, qm_grid_markdown, to));
    return front_tables(p, qm_grid_markdown, to);
}

qm_status qm_page_latex(const struct qm_page *p, FILE *to)
{
    fprintf(to, "%% qualm report --latex; tables of text and numbers, no package needed\n");
    QM_TRY(against(p, qm_grid_latex, to));
    return front_tables(p, qm_grid_latex, to);
}
