/* figures.h - Draws the figures of a page with the scripts of plots/, which the program embeds.
 *
 * The scripts write themed SVG (colours are CSS variables, texts stay texts) and figures.json, one
 * line of JSON per figure: {name, title, caption, command, wide, legend: [{label, series, swatch}],
 * panels: [{file, title}]}. */
#ifndef QM_REPORT_FIGURES_H
#define QM_REPORT_FIGURES_H

#include <jansson.h>

#include "core/base/status.h"

/* Draws all figures that apply to the file `path` into the folder `out`, with /usr/bin/python3.
 * against: NULL, or an archive that is drawn behind the file; pairs: NULL, or the file that
 * holds their comparison.  With verbose, the output of the scripts goes to stderr.  QM_SKIPPED:
 * Python, numpy, h5py or matplotlib is missing; the message names the package.  QM_INTERNAL: a
 * script failed. */
qm_status qm_figures_draw(const char *path, const char *against, const char *pairs, const char *out,
                          int verbose);

/* What `qualm plot` draws; strings are borrowed. */
struct qm_plot {
    char *path, *what, *pair; /* what, pair: NULL, or as plots/report/draw.py takes them */
    char **out;               /* files by their endings */
    int n_out, list;          /* list: only tell which figures there are */
};

/* Draws one figure, or lists them: *out is an array of {name, title}, that of the figure drawn
 * first.  QM_SKIPPED as above; QM_BAD_ARG: no such figure or pair; QM_NO_MATCH: the file lacks
 * its tables; QM_BAD_FILE: a file cannot be read or written. */
qm_status qm_figures_plot(const struct qm_plot *p, json_t **out);

/* Reads the lines of out/figures.json and adds the text of each panel's file as "svg".  QM_BAD_FILE
 * where a file is missing or is no SVG. */
qm_status qm_figures_read(const char *out, json_t **figures);

/* Removes a folder and all it contains. */
void qm_folder_remove(const char *path);

#endif
