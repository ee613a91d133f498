/* texts.h - The embedded texts of the report: page.css, page.js and the plotting scripts. */
#ifndef QM_REPORT_TEXTS_H
#define QM_REPORT_TEXTS_H

#include <stdio.h>

#include "core/base/status.h"

/* Writes the text of this name; nothing where no text has it. */
void qm_report_text(const char *name, FILE *to);

/* Writes all Python scripts into one folder. */
qm_status qm_report_scripts(const char *folder);

#endif
