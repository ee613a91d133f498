/* routine.h - Nearest-code routines over unit values, and their claims. */
#ifndef QM_EXPERIMENTS_PROVE_ROUTINE_H
#define QM_EXPERIMENTS_PROVE_ROUTINE_H

#include "core/quant/quantizer.h"
#include "oracle/codebook/nearest_proof.h"

/* The stored codes by a device, as runs: change[k].code holds from the float with bits
 * change[k].bits up to the next change; bits ascend.  Every float of the walk lies in a run. */
struct qm_code_change {
    uint32_t bits, code;
};
struct qm_code_runs {
    int64_t n;
    struct qm_code_change *change;
    double seconds; /* of the device */
};

/* A routine maps y[n] to code[n], element by element. */
struct qm_routine {
    struct qm_quantizer q;
    struct qm_codec codec; /* is q's; a foreign routine's has a map alone */
    const uint8_t *grid;   /* search grid: its 65,536 entries; owned */
    void (*kernel)(const float *y, long n, unsigned char *code); /* foreign routine; or NULL */
    /* Of a foreign routine: the rule that its last call broke, or ""; may be NULL. */
    const char *(*trouble)(void);
    struct qm_code_runs runs; /* owned; n 0: the CPU runs the search */
    struct qm_claims claims;
};

/* Opens the search and round of q, as the loops of core/quant/search_loops.h run them (NaN by
 * q's nan word; the other axes do not matter).  Its claims are: nearest of its own table, or of
 * the map `against` (NULL: its own); the decisions that experiments/check/decide.h derives from
 * the definition; the engine's edges.  QM_BAD_ARG: float32, curve allog, a round that draws,
 * floor or ceil, or `against` has another number of entries.  QM_CHECK_FAILED: the table differs
 * from its definition. */
qm_status qm_routine_open(struct qm_routine *r, const struct qm_quantizer *q, const char *against);

/* Opens a foreign routine for the map and sign of q, which gives stored codes.  It claims
 * nearest, with the ties of q's round where `ties` is 1 and the position of q's nan word where
 * `nan` is 1. */
qm_status qm_routine_foreign(struct qm_routine *r, const struct qm_quantizer *q, int ties, int nan);

/* Runs the kernel of an open routine's quantizer on a device, "cuda" or "emu", over the floats with
 * keys from .. to.  A walk over them then judges the device's codes.  QM_SKIPPED: no such device
 * here; QM_BAD_ARG: too many floats for the emulator, or an unknown name. */
qm_status qm_routine_on_device(struct qm_routine *r, const char *device, int64_t from, int64_t to);

void qm_routine_close(struct qm_routine *r);

/* Prints the words that matter to the routine, "nf4:4s/bisect/mid/nantop",
 * into text[QM_QUANTIZER_TEXT]. */
char *qm_routine_print(const struct qm_routine *r, char *text);

/* Fills *out from "nf4:4s", or "nf4" where the map has a single width and sign, in blocks of 128
 * and with round mid.  QM_BAD_ARG: no such map, or not at these bits. */
qm_status qm_map_parse(const char *text, struct qm_quantizer *out);

/* Runs the floats with keys from .. to (inclusive) in fixed chunks on all threads; the record does
 * not depend on the number of threads.  progress, where not NULL, is called after each chunk with
 * its floats, by one thread at a time.  QM_CHECK_FAILED: a foreign routine wrote outside its
 * buffer, changed its input, or reports trouble. */
struct qm_walk {
    int64_t from, to;
    void (*progress)(void *of, int64_t floats);
    void *of;
};
qm_status qm_routine_walk(const struct qm_routine *r, const struct qm_walk *w,
                          struct qm_record *out);

/* The first key of this thread's current batch, for signal handlers. */
extern _Thread_local volatile int64_t qm_walk_at;

#endif
