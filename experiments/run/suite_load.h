/* suite_load.h - a suite with its data and cells: what run, plan, submit and merge start from. */
#ifndef QM_RUN_SUITE_LOAD_H
#define QM_RUN_SUITE_LOAD_H

#include "experiments/suite/cell_id.h"

#define QM_SUITES "experiments/suites/"

/* A variant that the command line adds to every suite. */
struct qm_loaded_suite_variant {
    char label[64], recipe[QM_RECIPE_TEXT];
};

/* How a suite is changed before its cells are made. */
struct qm_loaded_suite_changes {
    const char *size; /* "small", "normal", "large"; NULL: normal */
    char **data;      /* globs instead of the suite's */
    int n_data, n_added;
    const struct qm_loaded_suite_variant *added;
};

struct qm_loaded_suite {
    struct qm_suite *suite;
    struct qm_replay *replay; /* NULL: no source needs recorded data; nothing of it is loaded */
    struct qm_cell *cells;
    int64_t n_cells;
};

/* Paths of suites, results and campaigns have room for so many bytes, and what is added to them. */
enum { QM_PATH_MOST = 700 };

/* QM_BAD_ARG: it is longer, and would be cut off. */
qm_status qm_path_check(const char *path);

/* A path as it is, or a name in QM_SUITES.  QM_NO_MATCH names the nearest. */
qm_status qm_loaded_suite_find(const char *word, char *path, size_t size);

/* Reads and checks a suite and makes its cells; changes may be NULL.  *out was zeroed, or a failure
 * leaves it for qm_loaded_suite_close all the same. */
qm_status qm_loaded_suite_open(const char *path, const struct qm_loaded_suite_changes *changes,
                               struct qm_loaded_suite *out);
void qm_loaded_suite_close(struct qm_loaded_suite *job);

/* Loads the recorded arrays that one cell needs, or all that any needs. */
qm_status qm_loaded_suite_load(struct qm_loaded_suite *job, const struct qm_cell *c);
qm_status qm_loaded_suite_load_all(struct qm_loaded_suite *job);

#endif
