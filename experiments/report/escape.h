/* escape.h - any text inside HTML, Markdown or LaTeX, meaning itself. */
#ifndef QM_REPORT_ESCAPE_H
#define QM_REPORT_ESCAPE_H

#include <stdio.h>

/* Text and attribute values alike: & < > " ' become references; control characters that XML does
 * not allow become U+FFFD.  Bytes from 128 on pass: what is stored is UTF-8. */
void qm_escape_html(FILE *to, const char *text);

/* Inside a cell of a table of GitHub's Markdown: all that could start markup or end the cell is
 * escaped, line ends become spaces. */
void qm_escape_markdown(FILE *to, const char *text);

/* Inside text mode of LaTeX, no package needed; line ends become spaces.  The letters beyond ASCII
 * that this program writes itself (a few signs) are spelled out, others pass as UTF-8. */
void qm_escape_latex(FILE *to, const char *text);

#endif
