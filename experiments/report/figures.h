/* figures.h - the figures of a page: drawn by the scripts in plots/, which the program carries.
 *
 * The scripts write themed SVG (colours are CSS variables, texts stay texts) and figures.json, a
 * line of JSON per figure: {name, title, caption, command, wide, legend: [{label, series, swatch}],
 * panels: [{file, title}]}. */
#ifndef QM_REPORT_FIGURES_H
#define QM_REPORT_FIGURES_H

#include <jansson.h>

#include "core/base/status.h"

/* Draws all that fits the file `path` into the folder `out`, with /usr/bin/python3.  against: NULL,
 * or an archive that is drawn behind it; pairs: NULL, or the file that holds their comparison.
 * What the scripts say goes to stderr where verbose.  QM_SKIPPED: Python, numpy, h5py or matplotlib
 * is not there; the message names the package.  QM_INTERNAL: a script failed. */
qm_status qm_figures_draw(const char *path, const char *against, const char *pairs, const char *out,
                          int verbose);

/* The lines of out/figures.json, each panel with its file's text as "svg".  QM_BAD_FILE where one
 * is missing or is no SVG. */
qm_status qm_figures_read(const char *out, json_t **figures);

/* Removes a folder that holds files and such folders. */
void qm_folder_remove(const char *path);

#endif
