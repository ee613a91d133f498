/* suite_load.h - Loads a suite with its data and cells, for the commands run, plan,
 * submit, merge. */
#ifndef QM_RUN_SUITE_LOAD_H
#define QM_RUN_SUITE_LOAD_H

#include "experiments/suite/cell_id.h"

#define QM_SUITES "experiments/suites/"

/* A variant that the command line adds to every suite. */
struct qm_loaded_suite_variant {
    char label[64], recipe[QM_RECIPE_TEXT];
};

/* Changes to a suite before its cells are made. */
struct qm_loaded_suite_changes {
    const char *size;  /* "small", "normal", "large"; NULL: normal */
    char **data;       /* globs that replace the suite's; n_data 0: the suite's stay */
    const char *rates; /* a file of tuned rates, or "none"; NULL: the suite's (rate_file.h) */
    int n_data, n_added;
    const struct qm_loaded_suite_variant *added;
    const char *folder; /* relative globs of data are looked for in it first; NULL or "": not */
};

struct qm_loaded_suite {
    struct qm_suite *suite;
    struct qm_replay *replay; /* NULL: no source needs recorded data; arrays are not loaded yet */
    struct qm_cell *cells;
    int64_t n_cells;
};

/* The most bytes of a path of a suite, result or campaign; buffers have room for this and
 * an ending. */
enum { QM_PATH_MOST = 700 };

/* QM_BAD_ARG where a path is longer than QM_PATH_MOST. */
qm_status qm_path_check(const char *path);

/* Sets path to the word where it is a path of a file, else to the suite of this name in QM_SUITES.
 * QM_NO_MATCH names the nearest suite. */
qm_status qm_loaded_suite_find(const char *word, char *path, size_t size);

/* Reads and checks a suite and makes its cells; changes may be NULL.  The caller closes *out, also
 * after a failure. */
qm_status qm_loaded_suite_open(const char *path, const struct qm_loaded_suite_changes *changes,
                               struct qm_loaded_suite *out);
void qm_loaded_suite_close(struct qm_loaded_suite *l);

/* Writes the pattern of glob() for files of the suite's data[i] to out[size]; returns out. */
char *qm_loaded_suite_pattern(const struct qm_suite *s, int i, char *out, size_t size);

/* Loads the recorded arrays of one cell, or of all cells. */
qm_status qm_loaded_suite_load(struct qm_loaded_suite *l, const struct qm_cell *c);
qm_status qm_loaded_suite_load_all(struct qm_loaded_suite *l);

#endif
