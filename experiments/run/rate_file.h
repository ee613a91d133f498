/* rate_file.h - Files of tuned learning rates, in JSON.
 *
 *     {"qualm_rates": 1, "suite": "NAME", "rates": [
 *       {"key": "problem:nqm instance=1 ...",   qm_rate_key (suite.h)
 *        "rate": 1.778, "edge": false,          factor of the problem's rate; edge: none was found
 *        "seeds": "901..908",
 *        "near": 1.334,                         of a variant: the twin's rate
 *        "curve": [[0.1, -0.2, 0.01], ...]}, ...],  rate, mean log10 of the late gap, margin
 *      "sum": "0123456789abcdef"}
 *
 * Rates are in the order of keys.  The sum is the first 16 hex digits of the SHA-256 of the rest in
 * jansson's compact form with sorted keys; a file without it, as one written by hand, is read with
 * a note, and one with another key is refused.  A rate is the one that qm_rate_choose takes of its
 * curve, or without `near` one as low.  A point without margin, as files of earlier versions have
 * them, has margin 0, so that the lowest is taken. */
#ifndef QM_RUN_RATE_FILE_H
#define QM_RUN_RATE_FILE_H

#include <jansson.h>

#include "experiments/run/rate_search.h"

/* The rates in a file, a JSON object by key; an empty one where no file is there.  QM_BAD_FILE: it
 * is no such file, its sum is another, or a rate is not what its curve gives.  A note says that a
 * file has no sum. */
qm_status qm_rate_file_read(const char *path, json_t **out);

/* Sets the entry of a unit whose search has ended. */
void qm_rate_file_set(json_t *rates, const struct qm_rate_unit *u, uint64_t first_seed, int seeds);

/* Writes the file, whole or not at all. */
qm_status qm_rate_file_write(const char *path, const char *suite, const json_t *rates);

/* Adds to a suite without `rates` those of its file: `from`, or where that is NULL
 * results/rates/NAME.json, or else the shipped experiments/rates/NAME.json.  "none": no rates. */
qm_status qm_rates_attach(struct qm_suite *s, const char *from);

#endif
