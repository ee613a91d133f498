/* prove.h - The kinds of proof of qualm prove, and their options. */
#ifndef QM_EXPERIMENTS_PROVE_PROVE_H
#define QM_EXPERIMENTS_PROVE_PROVE_H

#include <jansson.h>

#include "core/quant/quantizer.h"

enum { QM_PROVE_EMU_BITS = 26 }; /* backend emu takes 2^26 floats at most: about a minute */

struct qm_prove_options {
    const char *map, *round, *nan, *against; /* --map, --round, --nan, --against; NULL: not given */
    const char *backend;                     /* --backend: cpu, cuda, emu; NULL: cpu */
    const char *fmad;   /* --fmad: "true" or "false", the one form of a .cu file; NULL: not given */
    int64_t from, to;   /* --range as keys; by default all */
    int intervals;      /* most entries of a printed list */
    double limit;       /* seconds for a foreign routine */
    const char *scales; /* --scales: "M,V" or "M,V;M,V"; NULL: a list of edge cases */
    int64_t t;          /* step number of a whole step */
    double param;       /* its parameter */
    int is_long;        /* 1: recipes with 2^32 triples too */
    double bias, alpha; /* of the sequential test of stochastic rounding */
};

/* Routines named by a word: a search, a quantizer string (the norm may be left out), a variant, a
 * recipe, or "all" (every deterministic search and map of the registry and of the published
 * routines).  Each routine is listed once, under the name that qm_routine_print gives. */
struct qm_routine_name {
    struct qm_quantizer q;
    char name[QM_QUANTIZER_TEXT], used_by[96];
};
struct qm_routine_names {
    struct qm_routine_name *at;
    int n;
};
/* Appends the routines of a word to a list that starts as {NULL, 0}; list->at is the list's
 * own.  QM_NO_MATCH: the word names nothing, or nothing that is a deterministic nearest code;
 * QM_BAD_ARG: a quantizer or recipe that cannot be; QM_NO_MEMORY.  The list keeps what was added
 * before. */
qm_status qm_routine_names_add(struct qm_routine_names *list, const char *word,
                               const struct qm_prove_options *o);
/* Frees list->at and empties the list. */
void qm_routine_names_free(struct qm_routine_names *list);

/* Proves a whole element update for each pair of scales (triples.h); appends an object for each
 * pair to `all`, an array.  *failed is set to 1 where one does not hold, and else left as it is.
 * QM_BAD_ARG: the recipe or --scales cannot be parsed, or the recipe needs --long; QM_SKIPPED: the
 * recipe has no such proof, and why (qm_triples_count); QM_CHECK_FAILED, QM_NO_MEMORY. */
qm_status qm_prove_step(const char *recipe, const struct qm_prove_options *o, json_t *all,
                        int *failed);

/* Proves the stochastic rounding of "bf16", "f16", "e4m3" (core/rule/param.h) or of a quantizer:
 * counts exactly how often each number goes up, and tests the whole path with the draws in use
 * sequentially (oracle/codebook/unbiased_test.h).  *failed is set to 1 where a count deviates by
 * more than the arithmetic of the definition allows, or where the test finds a bias.  `all` is
 * an array, to which one object is appended.  QM_NO_MATCH: the word names nothing; QM_BAD_ARG:
 * it is no quantizer, or its round draws nothing; QM_NO_MEMORY. */
qm_status qm_prove_stoch(const char *word, const struct qm_prove_options *o, json_t *all,
                         int *failed);

/* Proves void qm_nearest() of a .c, .cu or .so file (core/abi/kernel_nearest.h) for o->map, in a
 * worker process; qm_kernel_file_build compiles a source.  Appends an object to `all`; of a .cu
 * file one for each form that is judged, with its "form", and one in all where contraction changes
 * nothing.  The verdict distinguishes a crash, a hang and a write outside the buffer.  *failed is
 * set to 1 where one does not hold.  QM_BAD_FILE: no such file or symbol; QM_BAD_ARG: the source
 * does not compile, or there is no --map. */
qm_status qm_prove_kernel(const char *path, const struct qm_prove_options *o, json_t *all,
                          int *failed);

/* Runs the worker process until the parent closes the socket; job: a JSON object of
 * qm_prove_kernel.  Returns an exit code where it cannot start. */
int qm_prove_worker(const char *job);

#endif
