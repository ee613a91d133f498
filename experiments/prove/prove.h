/* prove.h - the kinds of proof that qualm prove offers, and what they are told. */
#ifndef QM_EXPERIMENTS_PROVE_PROVE_H
#define QM_EXPERIMENTS_PROVE_PROVE_H

#include <jansson.h>

#include "core/quant/quantizer.h"

enum { QM_PROVE_EMU_BITS = 26 }; /* floats that backend emu takes: a minute or so */

struct qm_prove_options {
    const char *map, *round, *nan,
        *against;        /* words of --map, --round, --nan, --against; NULL: none */
    const char *backend; /* of --backend: cpu, cuda, emu; NULL: cpu */
    int64_t from, to;    /* keys of --range; all by default */
    int intervals;       /* most that are printed of a list */
    double limit;        /* seconds for a foreign routine */
    const char *scales;  /* of --scales: "M,V" or "M,V;M,V"; NULL: a list of edges */
    int64_t t;           /* of a whole step */
    double param;
    int is_long;        /* 2^32 triples too */
    double bias, alpha; /* of the sequential test of stoch */
};

/* Quantizers named by a search, a quantizer string (the norm may be left out), a variant or a
 * recipe, or by "all": every deterministic search and map of the registry and of the published
 * routines, each once.  Names are those of qm_routine_print. */
struct qm_routine_name {
    struct qm_quantizer q;
    char name[QM_QUANTIZER_TEXT], used_by[96];
};
struct qm_routine_names {
    struct qm_routine_name *at;
    int n;
};
qm_status qm_routine_names_add(struct qm_routine_names *list, const char *word,
                               const struct qm_prove_options *o);
void qm_routine_names_free(struct qm_routine_names *list);

/* Proves one routine of this program.  *holds: 0 where it is not what it claims. */
qm_status qm_prove_routine(const struct qm_routine_name *name, const struct qm_prove_options *o,
                           json_t **out, int *holds);

/* Proves a whole element update for each pair of scales (triples.h) and appends an object each. */
qm_status qm_prove_step(const char *recipe, const struct qm_prove_options *o, json_t *all,
                        int *failed);

/* Stochastic rounding of "bf16", "f16", "e4m3" (core/rule/param.h) or of a quantizer: how often each number
 * goes up, exactly, and a sequential test of the whole path with the draws in use (oracle/codebook/unbiased_test.h).
 * *failed: a deviation beyond what the arithmetic of the definition allows, or a bias that shows. */
qm_status qm_prove_stoch(const char *word, const struct qm_prove_options *o, json_t *all,
                         int *failed);

/* Proves void qm_nearest() of a .c, .cu or .so file (core/abi/kernel_nearest.h) for o->map, in a process of its
 * own: a source is compiled as qm_kernel_file_build says.  Tells a crash, a hang and a write outside its buffer
 * apart.  QM_BAD_FILE: no such file or symbol; QM_BAD_ARG: it does not compile, or no --map. */
qm_status qm_prove_kernel(const char *path, const struct qm_prove_options *o, json_t **out,
                          int *holds);

/* That process; job: what qm_prove_kernel says.  Returns an exit code when the parent hangs up. */
int qm_prove_worker(const char *job);

#endif
