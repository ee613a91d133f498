/* texts.h - page.css, page.js and the plotting scripts, as the program carries them. */
#ifndef QM_REPORT_TEXTS_H
#define QM_REPORT_TEXTS_H

#include <stdio.h>

#include "core/base/status.h"

/* Writes the text of that name; nothing where there is none. */
void qm_report_text(const char *name, FILE *to);

/* All Python scripts, side by side into that folder. */
qm_status qm_report_scripts(const char *folder);

#endif
