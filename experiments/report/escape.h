/* escape.h - Escapes any text for HTML, Markdown or LaTeX. */
#ifndef QM_REPORT_ESCAPE_H
#define QM_REPORT_ESCAPE_H

#include <stdio.h>

/* For HTML text and attribute values: & < > " ' become references; control characters and
 * bytes that are no UTF-8 become U+FFFD; other characters pass unchanged. */
void qm_escape_html(FILE *to, const char *text);

/* For a cell of a table in GitHub's Markdown: characters that could start markup or end the cell
 * are escaped; control characters and bytes that are no UTF-8 become spaces. */
void qm_escape_markdown(FILE *to, const char *text);

/* For text mode of LaTeX without packages; line ends, control characters and
 * bytes that are no UTF-8 become spaces.  The few signs beyond ASCII
 * that this program writes become commands; others pass as UTF-8. */
void qm_escape_latex(FILE *to, const char *text);

#endif
