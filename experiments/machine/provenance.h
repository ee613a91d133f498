/* provenance.h - What produced a result: program, build, machine, floating-point environment. */
#ifndef QM_MACHINE_PROVENANCE_H
#define QM_MACHINE_PROVENANCE_H

#include <stdint.h>

/* "0.1.0", and "006dc84f12ab" or "006dc84f12ab-dirty", as the Makefile defines them (QM_VERSION and
 * QM_COMMIT); "unknown" without a definition.  Static. */
const char *qm_version(void);
const char *qm_commit(void);

/* A named fact: an integer or a text. */
struct qm_fact {
    const char *name; /* "compiler", "flush_to_zero", ...; static */
    int is_number;
    int64_t number;
    char text[512]; /* cut when longer; "" for numbers */
};

#define QM_FACTS_MAX 48

/* Fills out[QM_FACTS_MAX] and returns the number of facts.  A fact that cannot be determined is the
 * text "unknown"; Slurm's ids are present only inside a job.  Floating-point facts are the calling
 * thread's, now. */
int qm_provenance(struct qm_fact *out);

/* The current time as "2026-01-31T12:00:00Z", or the time in SOURCE_DATE_EPOCH where it is set, so
 * that whole files can be reproduced.  text holds 24 bytes; returns it. */
char *qm_utc(char *text);

#endif
