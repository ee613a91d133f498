/* listing.h - Lists the datasets of a result file and the attributes of its provenance. */
#ifndef QM_REPORT_LISTING_H
#define QM_REPORT_LISTING_H

#include "core/base/status.h"

enum qm_listed { QM_LISTED_table, QM_LISTED_array, QM_LISTED_text };

struct qm_listing {
    int n, n_facts;
    struct qm_listed_set {
        char *path, *shape, *text; /* "/cells"; "3840 rows", "3840 x 48"; description, or "" */
        enum qm_listed kind;
    } * set; /* in byte order of the paths */
    struct qm_listed_fact {
        char *name, *value;
    } * fact; /* the attributes of /provenance in byte order, then argv as one line */
};

/* QM_BAD_FILE, QM_NO_MEMORY.  Free with qm_listing_free. */
qm_status qm_listing_read(const char *path, struct qm_listing *out);
void qm_listing_free(struct qm_listing *l);

#endif
