/* grid.c - Builds a table of texts and writes it as HTML, Markdown or LaTeX. */
#include "experiments/report/grid.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/grow.h"
#include "experiments/cli/cli.h"
#include "experiments/report/escape.h"

/* ---- building ------------------------------------------------------------------------------ */

static char *copy(struct qm_text_grid *g, const char *text)
{
    char *t = strdup(text ? text : "");
    g->failed |= t == NULL;
    return t;
}

void qm_grid_open(struct qm_text_grid *g, const char *name, const char *text)
{
    memset(g, 0, sizeof *g);
    g->name = copy(g, name);
    g->text = copy(g, text);
}

void qm_grid_column(struct qm_text_grid *g, const char *name, const char *unit, const char *text,
                    int number)
{
    struct qm_grid_head *more = realloc(g->head, (size_t)(g->n_cols + 1) * sizeof *more);
    if (!more) {
        g->failed = 1;
        return;
    }
    g->head = more;
    more[g->n_cols++] = (struct qm_grid_head){copy(g, name), copy(g, unit), copy(g, text), number};
}

void qm_grid_keyed(struct qm_text_grid *g, double key, const char *text)
{
    if (qm_grow((void **)&g->cell, &g->room, g->n_cells + 1, sizeof *g->cell) != QM_OK) {
        g->failed = 1;
        return;
    }
    g->cell[g->n_cells++] = (struct qm_grid_cell){copy(g, text), key};
}

void qm_grid_text(struct qm_text_grid *g, const char *text) { qm_grid_keyed(g, nan(""), text); }

void qm_grid_number(struct qm_text_grid *g, double x, const char *format)
{
    char text[64] = "-";
    if (!isnan(x))
        snprintf(text, sizeof text, format, x);
    qm_grid_keyed(g, x, text);
}

qm_status qm_grid_check(const struct qm_text_grid *g)
{
    return g->failed ? qm_fail(QM_NO_MEMORY, "table %s", g->name ? g->name : "") : QM_OK;
}

void qm_grid_close(struct qm_text_grid *g)
{
    for (int i = 0; i < g->n_cols; i++) {
        free(g->head[i].name);
        free(g->head[i].unit);
        free(g->head[i].text);
    }
    for (int64_t i = 0; i < g->n_cells; i++)
        free(g->cell[i].text);
    free(g->head);
    free(g->cell);
    free(g->name);
    free(g->text);
    memset(g, 0, sizeof *g);
}

int64_t qm_grid_rows(const struct qm_text_grid *g)
{
    return g->n_cols ? g->n_cells / g->n_cols : 0;
}

/* ---- reading ------------------------------------------------------------------------------- */

/* One column of a stored table; one of the three is not NULL. */
struct stored {
    char **text;
    int64_t *whole;
    double *number;
};

static qm_status stored_read(struct qm_result *r, const char *table,
                             const struct qm_result_columns *c, struct stored *column)
{
    for (int i = 0; i < c->n; i++) {
        int64_t rows;
        if (c->type[i] == QM_COLUMN_text)
            QM_TRY(qm_result_texts(r, table, c->name[i], &rows, &column[i].text));
        else if (c->type[i] == QM_COLUMN_i64)
            QM_TRY(qm_result_i64(r, table, c->name[i], &rows, &column[i].whole));
        else
            QM_TRY(qm_result_f64(r, table, c->name[i], &rows, &column[i].number));
    }
    return QM_OK;
}

static void add_rows(struct qm_text_grid *g, const struct stored *column, int64_t rows)
{
    for (int64_t row = 0; row < rows; row++)
        for (int i = 0; i < g->n_cols; i++) {
            char text[32];
            if (column[i].text) {
                qm_grid_text(g, column[i].text[row]);
            } else if (column[i].whole) {
                snprintf(text, sizeof text, "%lld", (long long)column[i].whole[row]);
                qm_grid_keyed(g, (double)column[i].whole[row], text);
            } else {
                qm_grid_number(g, column[i].number[row], "%.5g");
            }
        }
}

qm_status qm_grid_read(struct qm_result *r, const char *table, int64_t most,
                       struct qm_text_grid *out)
{
    struct qm_result_columns c;
    QM_TRY(qm_result_columns(r, table, &c));
    char *text = NULL;
    if (qm_result_text(r, table, "text", &text) != QM_OK)
        text = NULL;
    struct stored *column = calloc((size_t)c.n + 1, sizeof *column);
    qm_status st = column ? stored_read(r, table, &c, column) : qm_fail(QM_NO_MEMORY, "%s", table);
    struct qm_text_grid g;
    qm_grid_open(&g, table, text);
    for (int i = 0; st == QM_OK && i < c.n; i++)
        qm_grid_column(&g, c.name[i], c.unit[i], c.text[i], c.type[i] != QM_COLUMN_text);
    if (st == QM_OK && !g.failed) {
        int64_t rows = c.rows < most ? c.rows : most;
        g.rows_left_out = c.rows - rows;
        add_rows(&g, column, rows);
    }
    if (st == QM_OK)
        st = qm_grid_check(&g);
    for (int i = 0; column && i < c.n; i++) {
        free(column[i].text);
        free(column[i].whole);
        free(column[i].number);
    }
    if (st == QM_OK)
        *out = g;
    else
        qm_grid_close(&g);
    free(column);
    free(text);
    qm_result_columns_free(&c);
    return st;
}

/* ---- HTML ---------------------------------------------------------------------------------- */

static int shown(const char *unit) { return *unit && strcmp(unit, "1") != 0; }

static void html_head(const struct qm_grid_head *h, FILE *to)
{
    fprintf(to, "<th scope=\"col\" aria-sort=\"none\"%s title=\"", h->number ? " class=\"n\"" : "");
    qm_escape_html(to, h->text);
    fputs("\"><button type=\"button\">", to);
    qm_escape_html(to, h->name);
    if (shown(h->unit)) {
        fputs(" <small>", to);
        qm_escape_html(to, h->unit);
        fputs("</small>", to);
    }
    fputs("</button></th>", to);
}

/* A cell.  Where the text of a number column is no plain number, data-key holds its sort key. */
static void html_cell(const struct qm_text_grid *g, int64_t i, FILE *to)
{
    const struct qm_grid_head *h = &g->head[i % g->n_cols];
    char *end;
    strtod(g->cell[i].text, &end);
    if (!h->number)
        fputs("<td>", to);
    else if (isnan(g->cell[i].key) || *end == 0)
        fputs("<td class=\"n\">", to);
    else
        fprintf(to, "<td class=\"n\" data-key=\"%.9g\">", g->cell[i].key);
    qm_escape_html(to, g->cell[i].text);
    fputs("</td>", to);
}

/* Prints the grid's name as an id: "/protocol/runs" becomes t-protocol-runs. */
static void print_id(const struct qm_text_grid *g, FILE *to)
{
    putc('t', to);
    putc('-', to);
    for (const char *c = g->name + (*g->name == '/'); *c; c++)
        putc(isalnum((unsigned char)*c) ? *c : '-', to);
}

void qm_grid_html(const struct qm_text_grid *g, FILE *to)
{
    fputs("<div class=\"box\" tabindex=\"0\" role=\"region\" aria-labelledby=\"", to);
    print_id(g, to);
    fputs("-name\">\n<table id=\"", to);
    print_id(g, to);
    fputs("\">\n<caption id=\"", to);
    print_id(g, to);
    fputs("-name\"><b>", to);
    qm_escape_html(to, g->name);
    fputs("</b> ", to);
    qm_escape_html(to, g->text);
    if (g->rows_left_out)
        fprintf(to, " <em>The first %lld of %lld rows.</em>", (long long)qm_grid_rows(g),
                (long long)(qm_grid_rows(g) + g->rows_left_out));
    fputs("</caption>\n<thead><tr>", to);
    for (int i = 0; i < g->n_cols; i++)
        html_head(&g->head[i], to);
    fputs("</tr></thead>\n<tbody>\n", to);
    for (int64_t i = 0; i < g->n_cells; i++) {
        fputs(i % g->n_cols == 0 ? "<tr>" : "", to);
        html_cell(g, i, to);
        fputs((i + 1) % g->n_cols == 0 ? "</tr>\n" : "", to);
    }
    fputs("</tbody>\n</table></div>\n", to);
}

/* ---- Markdown and LaTeX -------------------------------------------------------------------- */

/* Prints a cell; a name with underscores is a code span, so that it stands in the file as it is. */
static void markdown_cell(const char *text, FILE *to)
{
    int is_name = strchr(text, '_') && !strpbrk(text, "`|\\\n\r\t");
    for (const char *c = text; is_name && *c; c++)
        is_name = !qm_cli_control_bytes(c);
    if (is_name)
        fprintf(to, "`%s`", text);
    else
        qm_escape_markdown(to, text);
}

void qm_grid_markdown(const struct qm_text_grid *g, FILE *to)
{
    fputs("**", to);
    qm_escape_markdown(to, g->name);
    fputs("** ", to);
    qm_escape_markdown(to, g->text);
    fputs("\n\n|", to);
    for (int i = 0; i < g->n_cols; i++) {
        putc(' ', to);
        markdown_cell(g->head[i].name, to);
        if (shown(g->head[i].unit)) {
            fputs(" (", to);
            qm_escape_markdown(to, g->head[i].unit);
            putc(')', to);
        }
        fputs(" |", to);
    }
    fputs("\n|", to);
    for (int i = 0; i < g->n_cols; i++)
        fputs(g->head[i].number ? " ---: |" : " --- |", to);
    for (int64_t i = 0; i < g->n_cells; i++) {
        fputs(i % g->n_cols == 0 ? "\n| " : " ", to);
        markdown_cell(g->cell[i].text, to);
        fputs(" |", to);
    }
    fputs("\n\n", to);
}

void qm_grid_latex(const struct qm_text_grid *g, FILE *to)
{
    fputs("\\begin{table}\n\\caption{", to);
    qm_escape_latex(to, g->name);
    fputs(*g->text ? ". " : "", to);
    qm_escape_latex(to, g->text);
    fputs("}\n\\begin{tabular}{", to);
    for (int i = 0; i < g->n_cols; i++)
        putc(g->head[i].number ? 'r' : 'l', to);
    fputs("}\n\\hline\n", to);
    for (int i = 0; i < g->n_cols; i++) {
        fputs(i ? " & " : "", to);
        qm_escape_latex(to, g->head[i].name);
        if (shown(g->head[i].unit)) {
            fputs(" (", to);
            qm_escape_latex(to, g->head[i].unit);
            putc(')', to);
        }
    }
    fputs(" \\\\\n\\hline\n", to);
    for (int64_t i = 0; i < g->n_cells; i++) {
        fputs(i % g->n_cols ? " & " : "", to);
        qm_escape_latex(to, g->cell[i].text);
        fputs((i + 1) % g->n_cols ? "" : " \\\\\n", to);
    }
    fputs("\\hline\n\\end{tabular}\n\\end{table}\n\n", to);
}
