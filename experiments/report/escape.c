/* escape.c - Escapes any text for HTML, Markdown or LaTeX. */
#include "experiments/report/escape.h"

#include <string.h>

void qm_escape_html(FILE *to, const char *text)
{
    for (const unsigned char *c = (const unsigned char *)text; *c; c++)
        switch (*c) {
        case '&': fputs("&amp;", to); break;
        case '<': fputs("&lt;", to); break;
        case '>': fputs("&gt;", to); break;
        case '"': fputs("&quot;", to); break;
        case '\'': fputs("&#39;", to); break;
        default:
            if ((*c < ' ' && *c != '\n' && *c != '\t' && *c != '\r') || *c == 127)
                fputs("&#xfffd;", to);
            else
                putc(*c, to);
        }
}

void qm_escape_markdown(FILE *to, const char *text)
{
    for (const char *c = text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 127)
            putc(' ', to);
        else if (*c == '<')
            fputs("&lt;", to);
        else if (*c == '&')
            fputs("&amp;", to);
        else {
            if (strchr("\\`*_{}[]#|>~$", *c))
                putc('\\', to);
            putc(*c, to);
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
        } else {
            putc(*text++, to);
        }
    }
}
