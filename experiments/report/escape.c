/* escape.c - Escapes any text for HTML, Markdown or LaTeX. */
#include "experiments/report/escape.h"

#include <string.h>

#include "experiments/cli/cli.h"

/* Prints the character at c, which is UTF-8; returns its last byte. */
static const char *put(FILE *to, const char *c)
{
    int n = qm_cli_utf8_bytes(c);
    fwrite(c, 1, (size_t)n, to);
    return c + n - 1;
}

void qm_escape_html(FILE *to, const char *text)
{
    for (const char *c = text; *c; c++) {
        int control = strchr("\n\t\r", *c) ? 0 : qm_cli_control_bytes(c);
        if (control) {
            fputs("&#xfffd;", to);
            c += control - 1;
            continue;
        }
        switch (*c) {
        case '&': fputs("&amp;", to); break;
        case '<': fputs("&lt;", to); break;
        case '>': fputs("&gt;", to); break;
        case '"': fputs("&quot;", to); break;
        case '\'': fputs("&#39;", to); break;
        default: c = put(to, c);
        }
    }
}

void qm_escape_markdown(FILE *to, const char *text)
{
    for (const char *c = text; *c; c++) {
        int control = qm_cli_control_bytes(c);
        if (control) {
            putc(' ', to);
            c += control - 1;
        } else if (*c == '<')
            fputs("&lt;", to);
        else if (*c == '&')
            fputs("&amp;", to);
        else {
            if (strchr("\\`*_{}[]#|>~$", *c))
                putc('\\', to);
            c = put(to, c);
        }
    }
}

/* Characters that LaTeX does not print as they are. */
static const struct {
    const char *from, *to;
} latex[] = {
    {"\\", "\\textbackslash{}"},
    {"{", "\\{"},
    {"}", "\\}"},
    {"$", "\\$"},
    {"&", "\\&"},
    {"#", "\\#"},
    {"%", "\\%"},
    {"_", "\\_"},
    {"~", "\\textasciitilde{}"},
    {"^", "\\textasciicircum{}"},
    {"<", "$<$"},
    {">", "$>$"},
    {"|", "$|$"},
    {"\"", "''"},
    {"\n", " "},
    {"\r", " "},
    {"\t", " "},
    {"-", "{-}"},
    {"\xe2\x88\x92", "$-$"},
    {"\xe2\x80\x93", "--"},
    {"\xc3\x97", "$\\times$"},
    {"\xc2\xb1", "$\\pm$"},
    {"[", "{[}"},
    {"]", "{]}"},
};

void qm_escape_latex(FILE *to, const char *text)
{
    while (*text) {
        size_t i = 0, n = sizeof latex / sizeof *latex;
        while (i < n && strncmp(text, latex[i].from, strlen(latex[i].from)) != 0)
            i++;
        if (i < n) {
            fputs(latex[i].to, to);
            text += strlen(latex[i].from);
        } else if (qm_cli_control_bytes(text)) {
            putc(' ', to);
            text += qm_cli_control_bytes(text);
        } else {
            text = put(to, text) + 1;
        }
    }
}
